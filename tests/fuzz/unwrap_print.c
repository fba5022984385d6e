/*
 * unwrap_code as a filter, for differential_unwrap.py. Reads records from stdin, each a length (4 bytes, little endian)
 * and a text; writes for each the code and the language, each as a length and its bytes. The languages that are known
 * are the arguments.
 */
#include "gateway/unwrap.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { TEXT_MAX = 16 * 1024 * 1024 };

static bool known(void *data, const char *name)
{
    for (char **word = data; *word; word++) {
        if (strcasecmp(*word, name) == 0)
            return true;
    }
    return false;
}

static bool write_record(const char *bytes, size_t length)
{
    uint8_t head[4] = {(uint8_t)length, (uint8_t)(length >> 8), (uint8_t)(length >> 16), (uint8_t)(length >> 24)};

    return fwrite(head, sizeof(head), 1, stdout) == 1 && fwrite(bytes, 1, length, stdout) == length;
}

/* 1, 0 at the end of the input, -1 on failure. */
static int answer_one(char **names)
{
    uint8_t head[4];
    struct unwrapped found = {0};

    if (fread(head, sizeof(head), 1, stdin) != 1)
        return feof(stdin) ? 0 : -1;
    size_t length = head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
    char *text = length <= TEXT_MAX ? malloc(length > 0 ? length : 1) : NULL;
    bool good = text && fread(text, 1, length, stdin) == length && unwrap_code(text, length, known, names, &found) == 0;
    good = good && write_record(found.code, found.length) && write_record(found.language, strlen(found.language));
    free(found.code);
    free(text);
    return good && fflush(stdout) == 0 ? 1 : -1;
}

int main(int argc, char **argv)
{
    int status = 1;

    while (argc > 0 && status > 0)
        status = answer_one(argv + 1);
    return status == 0 ? 0 : 1;
}
