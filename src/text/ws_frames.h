/*
 * The frames of WebSocket (RFC 6455): bytes in, events out. It does no I/O. The gateway reads a client's with it, the
 * command line a server's. Strict: what the RFC calls a failure is one, with the code that the connection is then
 * closed with. No extensions.
 *
 * What always holds: a message is held whole and is never larger than the limit; how the bytes are cut into pieces
 * makes no difference to what comes out; an error sticks.
 */
#ifndef HC_TEXT_WS_FRAMES_H
#define HC_TEXT_WS_FRAMES_H

#include "base/buf.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WS_CONTROL_MAX = 125, /* bytes in a control frame */
    WS_HEADER_MAX = 10,   /* of a frame that a server sends */
    WS_MASKED_MAX = 14,   /* of one that a client sends */
};

enum ws_opcode {
    WS_CONTINUATION = 0,
    WS_TEXT = 1,
    WS_BINARY = 2,
    WS_CLOSE = 8,
    WS_PING = 9,
    WS_PONG = 10,
};

enum ws_close {
    WS_NORMAL = 1000,
    WS_GOING_AWAY = 1001,
    WS_PROTOCOL = 1002,
    WS_NO_STATUS = 1005, /* never sent: the other side closed without a code */
    WS_ABNORMAL = 1006,  /* never sent: the connection was lost */
    WS_NOT_TEXT = 1007,
    WS_POLICY = 1008,
    WS_TOO_BIG = 1009,
    WS_INTERNAL = 1011,
};

enum ws_event {
    WS_EVENT_MORE,    /* all was used; it needs more */
    WS_EVENT_MESSAGE, /* whole: `opcode` is WS_TEXT, which is UTF-8, or WS_BINARY */
    WS_EVENT_PING,
    WS_EVENT_PONG,
    WS_EVENT_CLOSE, /* `code`, and the reason as data. Nothing after it counts */
    WS_EVENT_ERROR, /* `code` and `why`. For ever */
};

struct ws_frames {
    bool from_server; /* the caller's, after ws_frames_init: frames are not masked */

    /* After an event; data is valid until the next call. */
    enum ws_opcode opcode;
    const char *data;
    size_t length;
    unsigned code;
    const char *why; /* a constant sentence */

    /* Its own. */
    size_t message_max;
    unsigned state;
    unsigned char header[14];
    size_t header_have, header_need;
    uint64_t left; /* of the frame's payload */
    size_t masked; /* bytes of it that were unmasked */
    bool fin, handed_out;
    enum ws_opcode frame;   /* the one that is being read */
    enum ws_opcode message; /* the one that it continues; WS_CONTINUATION: none */
    struct hc_buf text;     /* the message so far */
    char control[WS_CONTROL_MAX + 1];
    size_t control_length;
};

void ws_frames_init(struct ws_frames *frames, size_t message_max);
void ws_frames_release(struct ws_frames *frames);
/* Takes some of `data` and says how much in *used. */
enum ws_event ws_frames_take(struct ws_frames *frames, const char *data, size_t length, size_t *used);

/* The header of a frame that a server sends, whole and unmasked; its length. */
size_t ws_frame_header(unsigned char header[WS_HEADER_MAX], enum ws_opcode opcode, size_t length);
/* The same as a client sends it, with its mask; its length. The payload is then masked with ws_mask. */
size_t ws_frame_masked(unsigned char header[WS_MASKED_MAX], enum ws_opcode opcode, size_t length,
                       const unsigned char mask[4]);
void ws_mask(char *data, size_t length, const unsigned char mask[4]);
/* Whether a peer may close with this code. */
bool ws_close_code_valid(unsigned code);

#endif
