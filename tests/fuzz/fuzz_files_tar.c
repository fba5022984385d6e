/*
 * A tar from outside. The first byte says how the stream is cut into pieces, and whether checksums are put right first,
 * which a fuzzer could hardly guess. Checks what the header promises of what is accepted: clean paths, bounded lengths,
 * content that is as long as it was announced.
 */
#include "cell/files_tar.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct input {
    const uint8_t *data;
    size_t length, at, piece;
};

static void check(int holds)
{
    if (!holds)
        abort();
}

static ssize_t read_input(void *data, void *bytes, size_t size)
{
    struct input *input = data;
    size_t part = input->length - input->at < size ? input->length - input->at : size;
    part = part < input->piece ? part : input->piece;
    memcpy(bytes, input->data + input->at, part);
    input->at += part;
    return (ssize_t)part;
}

static void check_path(const char *path)
{
    check(strlen(path) <= TAR_NAME_MAX && path[0] != '/');
    for (const char *at = path; *at;) {
        size_t part = strcspn(at, "/");
        check(part > 0 && part <= 255 && !(part == 1 && at[0] == '.') && !(part == 2 && memcmp(at, "..", 2) == 0));
        check(at[part] == '\0' || at[part + 1] != '\0');
        at += part + (at[part] == '/');
    }
}

static void check_entry(struct tar_reader *reader, const struct tar_entry *entry)
{
    char bytes[300];
    uint64_t total = 0;
    ssize_t count;
    struct hc_err err = {0};
    check_path(entry->path);
    check(entry->path[0] != '\0' || entry->type == TAR_FOLDER);
    check((entry->mode & ~01777u) == 0 && strlen(entry->target) <= TAR_NAME_MAX);
    check(entry->type == TAR_FILE || entry->size == 0);
    if (entry->type == TAR_HARDLINK)
        check_path(entry->target);
    if (entry->size % 3 == 0)
        return; /* left to the reader to pass over */
    while ((count = tar_content(reader, bytes, sizeof bytes, &err)) > 0)
        total += (uint64_t)count;
    check(count < 0 ? err.code != 0 && total < entry->size : total == entry->size);
}

/* Puts a checksum into every block that could be a header. */
static void mend(uint8_t *data, size_t length)
{
    for (size_t at = 0; at + TAR_BLOCK <= length; at += TAR_BLOCK) {
        unsigned sum = 0;
        char text[8];
        if (data[at] == 0)
            continue;
        memset(data + at + 148, ' ', 8);
        for (size_t i = 0; i < TAR_BLOCK; i++)
            sum += data[at + i];
        snprintf(text, sizeof text, "%06o", sum);
        memcpy(data + at + 148, text, 7);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    uint8_t *copy = malloc(size);
    struct tar_reader *reader = malloc(sizeof *reader);
    check(copy && reader);
    memcpy(copy, data + 1, size - 1);
    if (data[0] & 1)
        mend(copy, size - 1);
    struct input input = {.data = copy, .length = size - 1, .piece = data[0] > 1 ? (size_t)data[0] * 8 : 65536};
    struct tar_entry entry;
    struct hc_err err = {0};
    int status;
    tar_reader_init(reader, read_input, &input);
    while ((status = tar_next(reader, &entry, &err)) > 0)
        check_entry(reader, &entry);
    check((status < 0) == (err.code != 0));
    tar_reader_release(reader);
    free(reader);
    free(copy);
    return 0;
}
