/*
 * Feeds bytes to unwrap_code. Besides what the sanitizers see, it checks what the header promises: the code is never
 * longer than the text and ends with a NUL; a fence's language is known; text without a brace or a backtick at its
 * beginning comes back to the byte; a dictionary made around any code gives that code.
 */
#include "gateway/unwrap.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int holds)
{
    if (!holds)
        abort();
}

static bool known(void *data, const char *name)
{
    (void)data;
    return strcmp(name, "python") == 0 || strcmp(name, "py") == 0;
}

/* The bytes as a literal in which each one is an escape, so that neither quote nor fence in them matters. Bytes from
 * 0x80 on are characters of their own. */
static void check_round_trip(const uint8_t *data, size_t size)
{
    static const char head[] = "{'generated_code': '#", tail[] = "'}";
    char *text = malloc(sizeof(head) + size * 4 + sizeof(tail));
    struct unwrapped found = {0};
    size_t length = sizeof(head) - 1, at = 1;

    check(text != NULL);
    memcpy(text, head, sizeof(head));
    for (size_t i = 0; i < size; i++)
        length += (size_t)sprintf(text + length, i % 2 ? "\\%03o" : "\\x%02x", data[i]);
    memcpy(text + length, tail, sizeof(tail));
    check(unwrap_code(text, length + sizeof(tail) - 1, known, NULL, &found) == 0);
    check(found.length > 0 && found.code[0] == '#');
    for (size_t i = 0; i < size; i++) {
        if (data[i] >= 0x80)
            check((uint8_t)found.code[at++] == (0xc0 | data[i] >> 6));
        check((uint8_t)found.code[at++] == (data[i] < 0x80 ? data[i] : (0x80 | (data[i] & 0x3f))));
    }
    check(at == found.length);
    free(found.code);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct unwrapped found = {0};
    size_t first = 0;

    check(unwrap_code(text, size, known, NULL, &found) == 0);
    check(found.length <= size && found.code[found.length] == '\0');
    check(memchr(found.language, '\0', sizeof(found.language)) != NULL);
    while (first < size && memchr(" \t\r\n\f", text[first], 5))
        first++;
    bool wrapped = first < size && (text[first] == '{' || text[first] == '`');
    if (!wrapped)
        check(found.length == size && memcmp(found.code, text, size) == 0 && found.language[0] == '\0');
    else if (text[first] == '`')
        check(found.language[0] == '\0' || known(NULL, found.language));
    free(found.code);
    if (size < 4096)
        check_round_trip(data, size);
    return 0;
}
