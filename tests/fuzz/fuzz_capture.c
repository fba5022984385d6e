/*
 * The first byte is the cap, each further piece begins with its length. Checks the text against a copy that keeps
 * everything: the head and the tail are the true ones, no more than the cap is kept, what is left out is counted, and
 * UTF-8 in is UTF-8 out.
 */
#include "run/capture.h"
#include "text/json.h"
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int holds)
{
    if (!holds)
        abort();
}

static bool is_utf8(const char *data, size_t length)
{
    json_t *text = hc_json_text(data, length);
    json_decref(text);
    return text != NULL;
}

static void compare(const struct capture *capture, const char *all, size_t total)
{
    size_t length = 0;
    char *text = capture_text(capture, &length);
    uint64_t missing = capture_missing(capture);
    char marker[64];

    check(text != NULL && text[length] == '\0');
    check(capture->total == total);
    if (total <= capture->cap) {
        check(missing == 0 && length == total && memcmp(text, all, total) == 0);
        free(text);
        return;
    }
    check(missing >= total - capture->cap && missing <= total - capture->cap + 6);
    int marker_length = snprintf(marker, sizeof(marker), "\n[hotcell: %" PRIu64 " byte%s left out]\n", missing,
                                 missing == 1 ? "" : "s");
    check(length == total - missing + (size_t)marker_length);
    size_t head = 0;
    while (head < length && head < total && text[head] == all[head])
        head++;
    /* The guest may have written a marker's beginning itself, so the head is at most what agrees, and at least the
     * trimmed half. */
    size_t half = capture->cap / 2, least = half > 3 ? half - 3 : 0, found = SIZE_MAX;
    for (size_t at = least; at <= half && at + (size_t)marker_length <= length; at++)
        if (memcmp(text + at, marker, (size_t)marker_length) == 0)
            found = at;
    check(found != SIZE_MAX && found <= head);
    size_t tail = length - found - (size_t)marker_length;
    check(memcmp(text + length - tail, all + total - tail, tail) == 0);
    if (is_utf8(all, total))
        check(is_utf8(text, length));
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct capture capture;
    size_t at = 1, total = 0;

    if (size == 0)
        return 0;
    char *all = malloc(size);
    check(all != NULL);
    capture_init(&capture, data[0]);
    while (at < size) {
        size_t length = data[at++];
        if (length > size - at)
            length = size - at;
        check(capture_add(&capture, (const char *)data + at, length) == 0);
        memcpy(all + total, data + at, length);
        total += length;
        at += length;
        check(capture.head_length + capture.ring_length <= capture.cap);
    }
    compare(&capture, all, total);
    capture_release(&capture);
    free(all);
    return 0;
}
