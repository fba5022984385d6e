/*
 * A growing byte buffer with a ceiling. Every buffer that outside input can fill has one. The first failure (ceiling,
 * no memory) sticks: later appends do nothing, and hc_buf_status() reports it once at the end.
 */
#ifndef HC_BASE_BUF_H
#define HC_BASE_BUF_H

#include <stddef.h>

struct hc_buf {
    char *data; /* NUL-terminated whenever not NULL */
    size_t length;
    size_t capacity;
    size_t ceiling;
    int status; /* 0, -EFBIG or -ENOMEM */
};

#define HC_BUF_INIT(limit) ((struct hc_buf){.ceiling = (limit)})

void hc_buf_release(struct hc_buf *buf);
/* For whoever knows what is coming: room for so many more bytes. 0 or the failure. */
int hc_buf_room(struct hc_buf *buf, size_t extra);
int hc_buf_add(struct hc_buf *buf, const void *data, size_t length);
int hc_buf_add_str(struct hc_buf *buf, const char *text);
int hc_buf_printf(struct hc_buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
void hc_buf_reset(struct hc_buf *buf);
/* Gives the bytes away (NUL-terminated, malloc'ed; "" when empty) and releases the buffer. NULL when it had failed. */
char *hc_buf_take(struct hc_buf *buf, size_t *length);
int hc_buf_status(const struct hc_buf *buf);

#endif
