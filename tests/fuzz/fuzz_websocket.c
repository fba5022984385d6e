/*
 * Feeds bytes to the reader of WebSocket frames, three times: whole, byte by byte, and in pieces whose lengths the
 * input decides. What comes out must be the same, messages must be within their limit, and text must be text.
 */
#include "text/utf8.h"
#include "text/ws_frames.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MESSAGE_MAX = 300 };

static void check(int holds)
{
    if (!holds)
        abort();
}

/* One event, as text. */
static void note(struct hc_buf *events, const struct ws_frames *frames, enum ws_event event)
{
    check(event == WS_EVENT_ERROR || frames->data != NULL);
    switch (event) {
    case WS_EVENT_MESSAGE:
        check(frames->length <= MESSAGE_MAX && (frames->opcode == WS_TEXT || frames->opcode == WS_BINARY));
        check(frames->opcode != WS_TEXT || hc_utf8_valid(frames->data, frames->length));
        break;
    case WS_EVENT_CLOSE:
        check(frames->code == WS_NO_STATUS || ws_close_code_valid(frames->code));
        check(hc_utf8_valid(frames->data, frames->length));
        /* fall through */
    case WS_EVENT_PING:
    case WS_EVENT_PONG:
        check(frames->length <= WS_CONTROL_MAX);
        break;
    case WS_EVENT_ERROR:
        check(ws_close_code_valid(frames->code) && frames->why != NULL);
        hc_buf_printf(events, "error %u %s", frames->code, frames->why);
        return;
    case WS_EVENT_MORE:
        abort();
    }
    hc_buf_printf(events, "%d %d %u %zu:", (int)event, (int)frames->opcode, frames->code, frames->length);
    hc_buf_add(events, frames->data, frames->length);
}

static void read_all(struct hc_buf *events, const char *data, size_t size, const uint8_t *cuts, size_t cut_count)
{
    struct ws_frames frames;
    bool over = false;
    ws_frames_init(&frames, MESSAGE_MAX);
    for (size_t at = 0, i = 0; at < size && !over; i++) {
        size_t length = cuts != NULL ? cuts[i % cut_count] : size;
        length = length > 0 ? length : 1;
        length = length < size - at ? length : size - at;
        for (size_t taken = 0, used; !over; taken += used) {
            enum ws_event event = ws_frames_take(&frames, data + at + taken, length - taken, &used);
            check(used <= length - taken);
            if (event == WS_EVENT_MORE) {
                check(taken + used == length);
                break;
            }
            note(events, &frames, event);
            over = event == WS_EVENT_ERROR;
        }
        at += length;
    }
    ws_frames_release(&frames);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t SINGLE[] = {1};
    struct hc_buf whole = HC_BUF_INIT(SIZE_MAX), single = whole, cut = whole;
    read_all(&whole, (const char *)data, size, NULL, 0);
    read_all(&single, (const char *)data, size, SINGLE, 1);
    read_all(&cut, (const char *)data, size, size > 0 ? data : SINGLE, size > 0 ? size : 1);
    check(whole.length == single.length && whole.length == cut.length);
    check(whole.length == 0 || memcmp(whole.data, single.data, whole.length) == 0);
    check(whole.length == 0 || memcmp(whole.data, cut.data, whole.length) == 0);
    hc_buf_release(&whole);
    hc_buf_release(&single);
    hc_buf_release(&cut);
    return 0;
}
