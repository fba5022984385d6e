/*
 * A small state machine: header, path, content, again. What always holds: memory follows the bytes that arrived, never
 * the lengths that a header claims, and is bounded by the cap, the number of files and the length of a path.
 */
#include "run/collected.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum phase { PHASE_HEADER, PHASE_PATH, PHASE_CONTENT };

void collected_init(struct collected *collected, uint64_t cap)
{
    *collected = (struct collected){.left = cap};
}

static void release_files(struct result_file *files, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(files[i].path);
        free(files[i].content.data);
    }
    free(files);
}

void collected_release(struct collected *collected)
{
    release_files(collected->files, collected->count);
    collected_init(collected, 0);
}

/* Fills `target` up to `size` from the piece. True once it is full. */
static bool fill(struct collected *collected, void *target, size_t size, const char **data, size_t *length)
{
    size_t need = size - collected->have;
    size_t taken = *length < need ? *length : need;

    memcpy((char *)target + collected->have, *data, taken);
    collected->have += taken;
    *data += taken;
    *length -= taken;
    return collected->have == size;
}

static void next_phase(struct collected *collected, enum phase phase)
{
    collected->phase = phase;
    collected->have = 0;
}

static int end_header(struct collected *collected, struct hc_err *err)
{
    int status = archive_header_check(&collected->header, err);

    if (status < 0)
        return status;
    if (collected->header.type == ARCHIVE_END)
        collected->ended = true;
    else
        next_phase(collected, PHASE_PATH);
    return 0;
}

static int begin_file(struct collected *collected, struct hc_err *err)
{
    const struct archive_header *header = &collected->header;
    struct result_file file = {.size = header->true_size, .truncated = header->content_length < header->true_size};

    collected->path[header->path_length] = '\0';
    if (archive_path_check(collected->path, header->path_length) < 0)
        return hc_fail(err, HC_CLASS_PROGRAM, EPROTO, "the collected files have a path that is not accepted");
    next_phase(collected, header->content_length > 0 ? PHASE_CONTENT : PHASE_HEADER);
    collected->content_left = header->content_length;
    collected->content_size = 0;
    collected->keep = collected->count < COLLECTED_MAX_FILES;
    if (!collected->keep) {
        collected->skipped++;
        return 0;
    }
    /* The capacity is not stored: it is the smallest power of two that holds the files, and grows when they fill it. */
    if ((collected->count & (collected->count - 1)) == 0) {
        size_t capacity = collected->count > 0 ? collected->count * 2 : 1;
        struct result_file *grown = reallocarray(collected->files, capacity, sizeof(*grown));
        if (!grown)
            return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
        collected->files = grown;
    }
    if (file.size < header->content_length)
        file.size = header->content_length;
    memcpy(file.type, header->type == ARCHIVE_SYMLINK ? "symlink" : "file", header->type == ARCHIVE_SYMLINK ? 8 : 5);
    file.path = strdup(collected->path);
    file.content.data = calloc(1, 1);
    if (!file.path || !file.content.data) {
        free(file.path);
        free(file.content.data);
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    }
    collected->files[collected->count++] = file;
    return 0;
}

static int keep_content(struct collected *collected, const char *data, size_t length, struct hc_err *err)
{
    struct result_file *file = &collected->files[collected->count - 1];
    struct blob *content = &file->content;

    if (length > collected->left) {
        length = (size_t)collected->left;
        file->truncated = true;
    }
    size_t need = content->length + length;
    if (need > collected->content_size) {
        size_t size = need < 4096 ? 4096 : need + need / 2;
        char *grown = realloc(content->data, size + 1);
        if (!grown)
            return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
        content->data = grown;
        collected->content_size = size;
    }
    memcpy(content->data + content->length, data, length);
    content->length = need;
    content->data[need] = '\0';
    collected->left -= length;
    return 0;
}

static int add_content(struct collected *collected, const char **data, size_t *length, struct hc_err *err)
{
    size_t taken = *length < collected->content_left ? *length : (size_t)collected->content_left;
    int status = collected->keep ? keep_content(collected, *data, taken, err) : 0;

    if (status < 0)
        return status;
    *data += taken;
    *length -= taken;
    collected->content_left -= taken;
    if (collected->content_left == 0)
        next_phase(collected, PHASE_HEADER);
    return 0;
}

int collected_add(struct collected *collected, const char *data, size_t length, struct hc_err *err)
{
    int status = 0;

    while (length > 0 && status == 0) {
        if (collected->ended)
            return hc_fail(err, HC_CLASS_PROGRAM, EPROTO, "the collected files go on after their end");
        switch ((enum phase)collected->phase) {
        case PHASE_HEADER:
            if (fill(collected, &collected->header, sizeof(collected->header), &data, &length))
                status = end_header(collected, err);
            break;
        case PHASE_PATH:
            if (fill(collected, collected->path, collected->header.path_length, &data, &length))
                status = begin_file(collected, err);
            break;
        case PHASE_CONTENT:
            status = add_content(collected, &data, &length, err);
            break;
        }
    }
    return status;
}

/* '/' sorts before every other byte, so that a path is followed directly by what would be below it. */
static int compare_paths(const void *left, const void *right)
{
    const unsigned char *a = (const unsigned char *)((const struct result_file *)left)->path;
    const unsigned char *b = (const unsigned char *)((const struct result_file *)right)->path;

    while (*a != '\0' && *a == *b) {
        a++;
        b++;
    }
    int low = *a == '/' ? 1 : *a == '\0' ? 0 : *a + 2;
    int high = *b == '/' ? 1 : *b == '\0' ? 0 : *b + 2;
    return low - high;
}

/* The same path twice, or one below another: whoever writes these to a disk would follow one to the other. */
static bool clashes(const char *path, const char *next)
{
    size_t length = strlen(path);
    return strncmp(path, next, length) == 0 && (next[length] == '\0' || next[length] == '/');
}

int collected_finish(struct collected *collected, struct result *result, struct hc_err *err)
{
    if (!collected->ended && collected->phase == PHASE_CONTENT && collected->keep)
        collected->files[collected->count - 1].truncated = true;
    if (collected->count > 1)
        qsort(collected->files, collected->count, sizeof(*collected->files), compare_paths);
    for (size_t i = 1; i < collected->count; i++) {
        if (clashes(collected->files[i - 1].path, collected->files[i].path)) {
            collected_release(collected);
            return hc_fail(err, HC_CLASS_PROGRAM, EPROTO, "the collected files have two entries at the same place");
        }
    }
    release_files(result->files, result->file_count);
    result->files = collected->files;
    result->file_count = collected->count;
    result->files_skipped = collected->skipped;
    collected_init(collected, 0);
    return 0;
}
