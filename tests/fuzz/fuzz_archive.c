/*
 * A stream of collected files, every byte of it the guest's. The first byte says how the stream is cut into pieces.
 * Checks what the header promises of what is accepted: clean paths in order that do not clash, content within the cap,
 * truncation that is told.
 */
#include "run/collected.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { CAP = 64 };

static void check(int holds)
{
    if (!holds)
        abort();
}

static void check_files(const struct result *result)
{
    uint64_t total = 0;

    check(result->file_count <= COLLECTED_MAX_FILES);
    for (size_t i = 0; i < result->file_count; i++) {
        const struct result_file *file = &result->files[i];
        size_t length = strlen(file->path);
        check(archive_path_check(file->path, length) == 0);
        check(strcmp(file->type, "file") == 0 || strcmp(file->type, "symlink") == 0);
        check(file->content.data[file->content.length] == '\0');
        check(file->truncated || file->content.length == file->size);
        check(file->content.length <= file->size);
        total += file->content.length;
        for (size_t j = 0; j < result->file_count && j < 50; j++) {
            const char *other = result->files[j].path;
            check(i == j || strncmp(other, file->path, length) != 0 || (other[length] != '\0' && other[length] != '/'));
        }
    }
    check(total <= CAP);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct result result = {0};
    struct collected collected;
    struct hc_err err = {0};
    int status = 0;

    if (size == 0)
        return 0;
    size_t piece = data[0] ? data[0] : 4096;
    collected_init(&collected, CAP);
    for (size_t at = 1; at < size && status == 0; at += piece) {
        size_t length = size - at < piece ? size - at : piece;
        status = collected_add(&collected, (const char *)data + at, length, &err);
    }
    check((status < 0) == (err.code != 0));
    hc_err_clear(&err);
    if (collected_finish(&collected, &result, &err) == 0)
        check_files(&result);
    else
        check(err.code != 0 && result.file_count == 0);
    collected_release(&collected);
    result_release(&result);
    return 0;
}
