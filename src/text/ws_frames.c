/*
 * See ws_frames.h. A frame is its header, which is collected whole, and its payload, which is unmasked on its way into
 * the message or into the small room for control frames: those may come in between the frames of a message (RFC
 * 6455, 5.4).
 */
#include "text/ws_frames.h"
#include "text/utf8.h"
#include <string.h>

enum state { IN_HEADER, IN_PAYLOAD, CLOSED, BROKEN };

void ws_frames_init(struct ws_frames *frames, size_t message_max)
{
    *frames = (struct ws_frames){.message_max = message_max, .header_need = 2, .text = HC_BUF_INIT(message_max)};
}

void ws_frames_release(struct ws_frames *frames)
{
    hc_buf_release(&frames->text);
}

static enum ws_event fail(struct ws_frames *frames, unsigned code, const char *why)
{
    frames->state = BROKEN;
    frames->code = code;
    frames->why = why;
    return WS_EVENT_ERROR;
}

static bool is_control(enum ws_opcode opcode)
{
    return opcode >= WS_CLOSE;
}

bool ws_close_code_valid(unsigned code)
{
    /* 1004 is reserved, 1005, 1006 and 1015 are never sent; up to 1014 is registered. */
    if (code >= 1000 && code <= 1014)
        return code != 1004 && code != WS_NO_STATUS && code != WS_ABNORMAL;
    return code >= 3000 && code <= 4999;
}

/* ---- the header ---- */

static enum ws_event check_opcode(struct ws_frames *frames)
{
    switch (frames->frame) {
    case WS_CONTINUATION:
        if (frames->message == WS_CONTINUATION)
            return fail(frames, WS_PROTOCOL, "a frame continues a message that was not begun");
        return WS_EVENT_MORE;
    case WS_TEXT:
    case WS_BINARY:
        if (frames->message != WS_CONTINUATION)
            return fail(frames, WS_PROTOCOL, "a message begins before the one before it has ended");
        frames->message = frames->frame;
        return WS_EVENT_MORE;
    case WS_CLOSE:
    case WS_PING:
    case WS_PONG:
        if (!frames->fin)
            return fail(frames, WS_PROTOCOL, "a control frame is in fragments");
        return WS_EVENT_MORE;
    }
    return fail(frames, WS_PROTOCOL, "a frame has an unknown opcode");
}

static size_t mask_length(const struct ws_frames *frames)
{
    return frames->from_server ? 0 : 4;
}

/* The first two bytes say how long the header is. */
static enum ws_event read_beginning(struct ws_frames *frames)
{
    unsigned char first = frames->header[0], second = frames->header[1];
    if ((first & 0x70) != 0)
        return fail(frames, WS_PROTOCOL, "a frame has a reserved bit set");
    if ((second & 0x80) == 0 && !frames->from_server)
        return fail(frames, WS_PROTOCOL, "a frame from the client is not masked");
    if ((second & 0x80) != 0 && frames->from_server)
        return fail(frames, WS_PROTOCOL, "a frame from the server is masked");
    frames->fin = (first & 0x80) != 0;
    frames->frame = (enum ws_opcode)(first & 0x0F);
    if (check_opcode(frames) == WS_EVENT_ERROR)
        return WS_EVENT_ERROR;
    unsigned length = second & 0x7F;
    if (is_control(frames->frame) && length > WS_CONTROL_MAX)
        return fail(frames, WS_PROTOCOL, "a control frame is too long");
    frames->header_need = 2 + (length == 126 ? 2 : length == 127 ? 8 : 0) + mask_length(frames);
    return WS_EVENT_MORE;
}

static enum ws_event read_length(struct ws_frames *frames)
{
    size_t bytes = frames->header_need - 2 - mask_length(frames);
    uint64_t length = bytes == 0 ? frames->header[1] & 0x7F : 0;
    for (size_t i = 0; i < bytes; i++)
        length = length << 8 | frames->header[2 + i];
    if ((bytes == 2 && length < 126) || (bytes == 8 && length < 65536))
        return fail(frames, WS_PROTOCOL, "a length is not written in the shortest way");
    if (length >> 63 != 0)
        return fail(frames, WS_PROTOCOL, "a length has its highest bit set");
    if (!is_control(frames->frame) && length > frames->message_max - frames->text.length)
        return fail(frames, WS_TOO_BIG, "the message is too large");
    frames->left = length;
    frames->masked = 0;
    frames->control_length = 0;
    frames->state = IN_PAYLOAD;
    return WS_EVENT_MORE;
}

/* One byte of the header. */
static enum ws_event take_header(struct ws_frames *frames, unsigned char byte)
{
    frames->header[frames->header_have++] = byte;
    enum ws_event event = frames->header_have == 2 ? read_beginning(frames) : WS_EVENT_MORE;
    if (event == WS_EVENT_MORE && frames->header_have == frames->header_need)
        event = read_length(frames);
    return event;
}

/* ---- the payload ---- */

static enum ws_event end_close(struct ws_frames *frames)
{
    const unsigned char *bytes = (const unsigned char *)frames->control;
    frames->code = WS_NO_STATUS;
    frames->data = "";
    frames->length = 0;
    if (frames->control_length == 1)
        return fail(frames, WS_PROTOCOL, "a close has half a code");
    if (frames->control_length >= 2) {
        frames->code = (unsigned)bytes[0] << 8 | bytes[1];
        frames->data = frames->control + 2;
        frames->length = frames->control_length - 2;
        if (!ws_close_code_valid(frames->code))
            return fail(frames, WS_PROTOCOL, "a close has a code that must not be sent");
        if (!hc_utf8_valid(frames->data, frames->length))
            return fail(frames, WS_NOT_TEXT, "the reason of a close is not UTF-8");
    }
    frames->state = CLOSED;
    return WS_EVENT_CLOSE;
}

static enum ws_event end_frame(struct ws_frames *frames)
{
    frames->state = IN_HEADER;
    frames->header_have = 0;
    frames->header_need = 2;
    frames->control[frames->control_length] = '\0';
    if (frames->frame == WS_CLOSE)
        return end_close(frames);
    if (is_control(frames->frame)) {
        frames->data = frames->control;
        frames->length = frames->control_length;
        return frames->frame == WS_PING ? WS_EVENT_PING : WS_EVENT_PONG;
    }
    if (!frames->fin)
        return WS_EVENT_MORE;
    frames->opcode = frames->message;
    frames->message = WS_CONTINUATION;
    frames->data = frames->text.data != NULL ? frames->text.data : "";
    frames->length = frames->text.length;
    frames->handed_out = true;
    if (frames->opcode == WS_TEXT && !hc_utf8_valid(frames->data, frames->length))
        return fail(frames, WS_NOT_TEXT, "a text message is not UTF-8");
    return WS_EVENT_MESSAGE;
}

static void unmask(struct ws_frames *frames, char *data, size_t length)
{
    if (frames->from_server)
        return;
    const unsigned char *key = frames->header + frames->header_need - 4;
    for (size_t i = 0; i < length; i++)
        data[i] = (char)(data[i] ^ key[(frames->masked + i) & 3]);
    frames->masked += length;
}

static enum ws_event take_payload(struct ws_frames *frames, const char *data, size_t length)
{
    if (length > 0 && is_control(frames->frame)) {
        char *to = frames->control + frames->control_length;
        memcpy(to, data, length);
        unmask(frames, to, length);
        frames->control_length += length;
    } else if (length > 0) {
        if (hc_buf_add(&frames->text, data, length) != 0)
            return fail(frames, WS_INTERNAL, "there is no memory for the message");
        unmask(frames, frames->text.data + frames->text.length - length, length);
    }
    frames->left -= length;
    return frames->left == 0 ? end_frame(frames) : WS_EVENT_MORE;
}

enum ws_event ws_frames_take(struct ws_frames *frames, const char *data, size_t length, size_t *used)
{
    *used = 0;
    if (frames->handed_out) { /* an idle connection holds nothing */
        hc_buf_release(&frames->text);
        frames->handed_out = false;
    }
    if (frames->state == BROKEN)
        return WS_EVENT_ERROR;
    while (frames->state != CLOSED) {
        enum ws_event event;
        if (frames->state == IN_PAYLOAD) {
            size_t count = length - *used < frames->left ? length - *used : (size_t)frames->left;
            if (count == 0 && frames->left > 0)
                return WS_EVENT_MORE;
            event = take_payload(frames, data + *used, count);
            *used += count;
        } else if (*used < length) {
            event = take_header(frames, (unsigned char)data[(*used)++]);
        } else {
            return WS_EVENT_MORE;
        }
        if (event != WS_EVENT_MORE)
            return event;
    }
    *used = length; /* after a close nothing counts */
    return WS_EVENT_MORE;
}

size_t ws_frame_header(unsigned char header[WS_HEADER_MAX], enum ws_opcode opcode, size_t length)
{
    header[0] = (unsigned char)(0x80 | opcode);
    if (length <= WS_CONTROL_MAX) {
        header[1] = (unsigned char)length;
        return 2;
    }
    size_t bytes = length <= UINT16_MAX ? 2 : 8;
    header[1] = bytes == 2 ? 126 : 127;
    for (size_t i = 0; i < bytes; i++)
        header[2 + i] = (unsigned char)(length >> (8 * (bytes - 1 - i)));
    return 2 + bytes;
}

size_t ws_frame_masked(unsigned char header[WS_MASKED_MAX], enum ws_opcode opcode, size_t length,
                       const unsigned char mask[4])
{
    size_t used = ws_frame_header(header, opcode, length);
    header[1] |= 0x80;
    memcpy(header + used, mask, 4);
    return used + 4;
}

void ws_mask(char *data, size_t length, const unsigned char mask[4])
{
    for (size_t i = 0; i < length; i++)
        data[i] = (char)(data[i] ^ mask[i & 3]);
}
