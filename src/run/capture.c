/*
 * Captured output, see capture.h.
 *
 * Up to the cap, everything is in `head`. The byte that goes past the cap makes the ring: the second half of the head
 * moves into it, and from then on the head is the first half of what was written and never changes, and the ring is
 * full and holds the last bytes. So the memory used is at most one and a half times the cap (the head keeps its
 * allocation), and adding costs a copy of the piece, whatever its size.
 */
#include "run/capture.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_ALLOCATION = 4096 };

void capture_init(struct capture *capture, size_t cap)
{
    *capture = (struct capture){.cap = cap};
}

void capture_release(struct capture *capture)
{
    free(capture->head);
    free(capture->ring);
    capture_init(capture, capture->cap);
}

/* Sizes are the powers of two times FIRST_ALLOCATION, so that the allocation follows from the length and needs no
 * field. */
static size_t allocation_for(const struct capture *capture, size_t length)
{
    size_t size = FIRST_ALLOCATION;

    while (size < length)
        size *= 2;
    return size < capture->cap ? size : capture->cap;
}

static int head_grow(struct capture *capture, size_t length)
{
    size_t wanted = allocation_for(capture, length);

    if (length == 0 || (capture->head && wanted == allocation_for(capture, capture->head_length)))
        return 0;
    char *grown = realloc(capture->head, wanted);
    if (!grown)
        return -ENOMEM;
    capture->head = grown;
    return 0;
}

static void ring_add(struct capture *capture, const char *data, size_t length)
{
    if (length >= capture->ring_size) {
        memcpy(capture->ring, data + (length - capture->ring_size), capture->ring_size);
        capture->ring_start = 0;
        return;
    }
    size_t to_end = capture->ring_size - capture->ring_start;
    size_t first = length < to_end ? length : to_end;
    memcpy(capture->ring + capture->ring_start, data, first);
    memcpy(capture->ring, data + first, length - first);
    capture->ring_start = (capture->ring_start + length) % capture->ring_size;
}

/* The piece at data crosses the cap, or is the first past it. On -ENOMEM nothing has changed. */
static int start_ring(struct capture *capture, const char **data, size_t *length)
{
    size_t ring_size = capture->cap - capture->cap / 2;
    size_t fits = capture->cap - capture->head_length;

    if (head_grow(capture, capture->cap) < 0)
        return -ENOMEM;
    char *ring = malloc(ring_size);
    if (!ring)
        return -ENOMEM;
    memcpy(capture->head + capture->head_length, *data, fits);
    capture->head_length = capture->cap / 2;
    memcpy(ring, capture->head + capture->head_length, ring_size);
    capture->ring = ring;
    capture->ring_size = capture->ring_length = ring_size;
    capture->ring_start = 0;
    *data += fits;
    *length -= fits;
    return 0;
}

int capture_add(struct capture *capture, const char *data, size_t length)
{
    uint64_t total = capture->total + length;

    if (length == 0)
        return 0;
    if (total <= capture->cap) {
        if (head_grow(capture, total) < 0)
            return -ENOMEM;
        memcpy(capture->head + capture->head_length, data, length);
        capture->head_length += length;
    } else if (capture->cap > 0) {
        if (!capture->ring && start_ring(capture, &data, &length) < 0)
            return -ENOMEM;
        ring_add(capture, data, length);
    }
    capture->total = total;
    return 0;
}

static size_t sequence_length(unsigned char lead)
{
    return lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
}

/* How much of the head to show: all of it, less a UTF-8 sequence that the seam cuts. */
static size_t head_shown(const struct capture *capture)
{
    size_t length = capture->head_length;

    if (!capture->ring)
        return length;
    for (size_t back = 1; back <= 3 && back <= length; back++) {
        unsigned char byte = (unsigned char)capture->head[length - back];
        if (byte >= 0xc0)
            return sequence_length(byte) > back ? length - back : length;
        if (byte < 0x80)
            break;
    }
    return length;
}

/* How many bytes at the start of the ring are the rest of a UTF-8 sequence that began before it. */
static size_t ring_hidden(const struct capture *capture)
{
    size_t hidden = 0;

    while (hidden < 3 && hidden < capture->ring_length) {
        unsigned char byte = (unsigned char)capture->ring[(capture->ring_start + hidden) % capture->ring_size];
        if ((byte & 0xc0) != 0x80)
            break;
        hidden++;
    }
    return hidden;
}

uint64_t capture_missing(const struct capture *capture)
{
    return capture->total - head_shown(capture) - (capture->ring_length - ring_hidden(capture));
}

char *capture_text(const struct capture *capture, size_t *length)
{
    uint64_t missing = capture_missing(capture);
    size_t head = head_shown(capture), hidden = ring_hidden(capture), tail = capture->ring_length - hidden;
    char marker[64] = "";
    size_t marker_length = 0;

    if (missing > 0) {
        marker_length = (size_t)snprintf(marker, sizeof(marker), "\n[hotcell: %" PRIu64 " byte%s left out]\n", missing,
                                         missing == 1 ? "" : "s");
    }
    char *text = malloc(head + marker_length + tail + 1);
    if (!text)
        return NULL;
    if (head > 0)
        memcpy(text, capture->head, head);
    memcpy(text + head, marker, marker_length);
    size_t end = head + marker_length;
    for (size_t done = 0; done < tail;) {
        size_t from = (capture->ring_start + hidden + done) % capture->ring_size;
        size_t run = capture->ring_size - from < tail - done ? capture->ring_size - from : tail - done;
        memcpy(text + end + done, capture->ring + from, run);
        done += run;
    }
    text[end + tail] = '\0';
    *length = end + tail;
    return text;
}
