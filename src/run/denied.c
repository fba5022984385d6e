/*
 * The filter answers EPERM or ENOSYS, and nobody outside the cell is told which call it was. A program that prints what
 * failed says it, and then the name must be one of those that the filter refuses.
 */
#include "run/denied.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#define ALLOW(name)
#define DENY(name) #name,
#define DENY_MASK(name, arg, mask, code) #name,
#define DENY_EQ(name, arg, value, code)
#define ONLY_EQ(name, arg, value, code)
#define DENY_CREATE(name, flags, mode, mask)
#define REPORT(name) #name,
#define REPORT_MASK(name, arg, mask, code) #name,
#define REPORT_EQ(name, arg, value, code)
#define TELL_EQ(name, arg, value, code)

static const char *const NAMES[] = {
#include "kernel/syscalls.h"
};

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static const char *find(const char *word, size_t length)
{
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (strncmp(NAMES[i], word, length) == 0 && NAMES[i][length] == '\0')
            return NAMES[i];
    return NULL;
}

static bool failed_there(const char *rest)
{
    return rest[0] == ':' || rest[0] == '(' || strncmp(rest, " failed", 7) == 0;
}

static bool called_there(const char *rest)
{
    return rest[0] == '(';
}

/* The one name that `after` accepts the text behind; NULL: none, or several. */
static const char *only(const char *text, bool (*after)(const char *))
{
    const char *found = NULL;
    while (*text != '\0') {
        size_t length = 0;
        while (is_name(text[length]))
            length++;
        const char *name = length > 0 && after(text + length) ? find(text, length) : NULL;
        if (name != NULL && found != NULL && name != found)
            return NULL;
        found = name != NULL ? name : found;
        text += length > 0 ? length : 1;
    }
    return found;
}

const char *denied_in_message(const char *text)
{
    return only(text, failed_there);
}

const char *denied_in_code(const char *line)
{
    return only(line, called_there);
}
