/*
 * See warm_set.h. The text is taken apart into statements, at line ends and semicolons. Where the language's pattern
 * matches one, module names follow: "a.b as c, d". Code that hides its imports better than that loads them itself. The
 * text is a guest's: it is compared with the names in the language's own file, and goes nowhere.
 */
#include "run/warm_set.h"

#include <string.h>

enum { TEXT_LIMIT = 256 * 1024, STATEMENT_LIMIT = 1024, NAMES_LIMIT = 64 };

struct names { /* of imported modules that are in some set: each as that set has it */
    const char *start[NAMES_LIMIT];
    size_t length[NAMES_LIMIT], count;
};

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static const char *skip_blanks(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    return at;
}

static const char *skip_name(const char *at, const char *end)
{
    while (at < end && is_name(*at))
        at++;
    return at;
}

/* The module in a set, or a part of it: "matplotlib" is in ["matplotlib.pyplot"]. NULL: it is not there. */
static const char *find_module(const struct language_set *set, const char *name, size_t length)
{
    for (size_t i = 0; i < set->modules.count; i++)
        if (strncmp(set->modules.item[i], name, length) == 0 && !is_name(set->modules.item[i][length]))
            return set->modules.item[i];
    return NULL;
}

static void want(const struct language_warm *warm, struct names *wanted, const char *name, size_t length)
{
    for (size_t i = 0; i < wanted->count; i++)
        if (wanted->length[i] == length && memcmp(wanted->start[i], name, length) == 0)
            return;
    const char *found = NULL;
    for (size_t i = 0; i < warm->set_count && !found; i++)
        found = find_module(&warm->sets[i], name, length);
    if (found && wanted->count < NAMES_LIMIT) {
        wanted->start[wanted->count] = found;
        wanted->length[wanted->count++] = length;
    }
}

/* "numpy as np, pandas.core; …": up to what is not part of such a list. */
static void take_list(const struct language_warm *warm, struct names *wanted, const char *at, const char *end)
{
    for (;;) {
        const char *name = skip_blanks(at, end);
        at = skip_name(name, end);
        if (at == name)
            return;
        want(warm, wanted, name, (size_t)(at - name));
        while (at < end && (is_name(*at) || *at == '.'))
            at++;
        at = skip_blanks(at, end);
        if (end - at > 2 && at[0] == 'a' && at[1] == 's' && (at[2] == ' ' || at[2] == '\t'))
            at = skip_blanks(skip_name(skip_blanks(at + 2, end), end), end);
        if (at == end || *at != ',')
            return;
        at++;
    }
}

static void look(const struct language_warm *warm, const char *text, size_t length, struct names *wanted)
{
    const char *end = text + (length < TEXT_LIMIT ? length : TEXT_LIMIT);
    for (const char *at = text, *next; at < end; at = next + 1) {
        for (next = at; next < end && *next != '\n' && *next != ';';)
            next++;
        size_t size = (size_t)(next - at) < STATEMENT_LIMIT ? (size_t)(next - at) : STATEMENT_LIMIT - 1;
        char statement[STATEMENT_LIMIT];
        memcpy(statement, at, size);
        statement[size] = '\0';
        regmatch_t match;
        if (regexec(&warm->import, statement, 1, &match, 0) == 0)
            take_list(warm, wanted, statement + match.rm_eo, statement + size);
    }
}

static const struct blob *source_of(const struct plan *plan)
{
    const struct request *request = plan->request;
    if (request->has_code)
        return &request->code;
    for (size_t i = 0; i < request->file_count; i++)
        if (strcmp(request->files[i].path, plan->entry) == 0)
            return &request->files[i].content;
    return NULL;
}

const struct language_set *warm_set(const struct plan *plan)
{
    const struct language_warm *warm = &plan->language->warm;
    const struct blob *source = source_of(plan);
    const struct language_set *best = NULL;
    struct names wanted = {.count = 0};
    size_t most = 0;
    if (!warm->has_import || !source)
        return NULL;
    look(warm, source->data, source->length, &wanted);
    for (size_t i = 0; i < warm->set_count; i++) {
        const struct language_set *set = &warm->sets[i];
        size_t count = 0;
        for (size_t j = 0; j < wanted.count; j++)
            count += find_module(set, wanted.start[j], wanted.length[j]) != NULL;
        if (count > most || (count && count == most && set->modules.count < best->modules.count)) {
            best = set;
            most = count;
        }
    }
    return best;
}
