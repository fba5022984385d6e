/*
 * Captured output of one stream, with a cap. Up to the cap all bytes are kept; past it the first half and the last half
 * of the cap are kept (head, and a ring), and the bytes between are counted. Memory is bounded by the cap, whatever the
 * guest writes.
 */
#ifndef HC_RUN_CAPTURE_H
#define HC_RUN_CAPTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct capture {
    char *head; /* grows up to cap */
    char *ring; /* last half, once head is past the cap; else NULL */
    size_t cap, head_length, ring_size, ring_start, ring_length;
    uint64_t total; /* bytes the guest wrote */
};

void capture_init(struct capture *capture, size_t cap);
void capture_release(struct capture *capture);
/* 0 or -ENOMEM. */
int capture_add(struct capture *capture, const char *data, size_t length);
uint64_t capture_missing(const struct capture *capture); /* bytes left out */
/* What is kept, as one malloc'ed text with the marker line between the halves: "\n[hotcell: 12345 bytes left
 * out]\n". UTF-8 sequences are not cut in two at the seam. NULL: out of memory. */
char *capture_text(const struct capture *capture, size_t *length);

#endif
