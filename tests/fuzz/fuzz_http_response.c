/* Fuzz target: the client's parser of HTTP, and of the events in its body. Cut into pieces in any way, the same bytes
 * give the same answer. */
#include "cli/http_response.h"
#include "cli/sse.h"
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BODY_MAX = 1 << 20 };

struct reading {
    struct hc_buf body, events;
    int status, end, code;
    char content_type[64];
};

static int note(void *context, const struct sse_event *event)
{
    struct hc_buf *events = context;

    hc_buf_printf(events, "%s|%s|%zu|", event->name, event->id, event->length);
    hc_buf_add(events, event->data, event->length);
    if (strlen(event->name) > 31 || strlen(event->id) > 127)
        abort();
    return 0;
}

/* `seed` 0: all at once; else pieces of 1 to 16 bytes by it. */
static size_t next_piece(uint32_t *seed, size_t left)
{
    if (*seed == 0)
        return left;
    *seed = *seed * 1103515245 + 12345;
    size_t piece = 1 + (*seed >> 16) % 16;
    return piece < left ? piece : left;
}

static void read_all(struct reading *reading, const char *data, size_t size, uint32_t seed)
{
    struct http_response response;
    struct sse sse;

    *reading = (struct reading){.body = HC_BUF_INIT(BODY_MAX), .events = HC_BUF_INIT(4 * BODY_MAX)};
    http_response_start(&response);
    sse_start(&sse);
    for (size_t at = 0; reading->status == 0 && at < size;) {
        size_t piece = next_piece(&seed, size - at);
        reading->status = http_response_feed(&response, data + at, piece, &reading->body);
        at += piece;
        if (response.reader.line.length > HTTP_HEAD_MAX)
            abort();
    }
    reading->end = http_response_end(&response);
    reading->code = response.status;
    memcpy(reading->content_type, response.content_type, sizeof reading->content_type);
    const char *body = reading->body.data;
    for (size_t at = 0; at < reading->body.length;) {
        size_t piece = next_piece(&seed, reading->body.length - at);
        if (sse_feed(&sse, body + at, piece, note, &reading->events) != 0)
            break;
        at += piece;
    }
    http_response_release(&response);
    sse_release(&sse);
}

static bool same(const struct hc_buf *a, const struct hc_buf *b)
{
    return a->length == b->length && (a->length == 0 || memcmp(a->data, b->data, a->length) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct reading whole, pieces;

    read_all(&whole, (const char *)data, size, 0);
    read_all(&pieces, (const char *)data, size, (uint32_t)size * 2 + 1);
    if (whole.status != pieces.status)
        abort();
    if (whole.status == 0 &&
        (whole.end != pieces.end || whole.code != pieces.code || !same(&whole.body, &pieces.body) ||
         !same(&whole.events, &pieces.events) || strcmp(whole.content_type, pieces.content_type) != 0))
        abort();
    hc_buf_release(&whole.body);
    hc_buf_release(&whole.events);
    hc_buf_release(&pieces.body);
    hc_buf_release(&pieces.events);
    return 0;
}
