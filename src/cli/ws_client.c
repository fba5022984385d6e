/* See ws_client.h. */
#include "cli/ws_client.h"

#include "base/fd.h"
#include "base/loop.h"
#include "text/base64.h"
#include "text/http_reader.h"
#include <errno.h>
#include <openssl/sha.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

enum {
    HEAD_MAX = 32 * 1024,
    IN_MAX = 128 * 1024,
    OUT_MAX = 4 * 1024 * 1024,
    PIECE = 64 * 1024,
    REFUSAL_MAX = 1024 * 1024
};
enum { HANDSHAKE_TIME = 30 * 1000 * 1000 /* µs */, AT_ONCE = 1 /* a deadline that is over */ };
enum { KEY_BYTES = 16, KEY_TEXT = 32 };

#define NO_SERVER "what answers is no WebSocket of a hotcell server"

struct ws_client {
    struct server *server;
    struct connection *connection;
    struct ws_frames frames;
    struct hc_buf in, out;
    size_t in_at, out_at;
};

/* ---- the handshake ---- */

static int encode(const void *bytes, size_t length, char text[KEY_TEXT])
{
    size_t size = 0;
    hc_cleanup_free char *encoded = hc_base64_encode(bytes, length, &size);

    if (!encoded || size >= KEY_TEXT)
        return -ENOMEM;
    memcpy(text, encoded, size + 1);
    return 0;
}

static int make_key(char key[KEY_TEXT], char accept[KEY_TEXT])
{
    unsigned char bytes[KEY_BYTES], digest[SHA_DIGEST_LENGTH];
    char text[128];

    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return -EIO;
    int status = encode(bytes, sizeof bytes, key);
    if (status < 0)
        return status;
    int length = snprintf(text, sizeof text, "%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key);
    if (!SHA1((const unsigned char *)text, (size_t)length, digest))
        return -EIO;
    return encode(digest, sizeof digest, accept);
}

static int send_head(const struct ws_client *client, const char *target, const char *key, uint64_t deadline)
{
    const struct http_server_address *address = &client->server->address;
    struct hc_buf head = HC_BUF_INIT(HEAD_MAX);

    hc_buf_printf(&head,
                  "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: hotcell/" HC_VERSION "\r\nConnection: Upgrade\r\n"
                  "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n",
                  target, address->url.authority, key);
    if (address->key)
        hc_buf_printf(&head, "Authorization: Bearer %s\r\n", address->key);
    hc_buf_add_str(&head, "\r\n");
    int status = hc_buf_status(&head);
    if (status == 0)
        status = connection_write(client->connection, head.data, head.length, deadline);
    hc_buf_release(&head);
    return status == -EALREADY ? 0 : status;
}

static bool is_accepted(const struct http_reader *reader, const char *accept)
{
    const char *name, *value;
    bool upgraded = false, signed_ = false;

    for (size_t at = 0; http_reader_header(reader, &at, &name, &value);) {
        upgraded = upgraded || (strcasecmp(name, "upgrade") == 0 && strcasecmp(value, "websocket") == 0);
        signed_ = signed_ || (strcasecmp(name, "sec-websocket-accept") == 0 && strcmp(value, accept) == 0);
    }
    return upgraded && signed_;
}

struct answer {
    struct http_reader reader;
    struct hc_buf body;
    const char *accept;
    bool ended, accepted;
};

/* What follows a 101 is kept: it is the first of the frames. */
static int feed(struct ws_client *client, struct answer *answer, const char *data, size_t length)
{
    while (length > 0 && !answer->ended) {
        const char *piece;
        size_t used, piece_length;
        int event = http_reader_take(&answer->reader, data, length, &used, &piece, &piece_length);
        if (event < 0)
            return event;
        if (event == HTTP_READER_EVENT_HEAD)
            answer->accepted = answer->reader.status == 101 && is_accepted(&answer->reader, answer->accept);
        if (event == HTTP_READER_EVENT_PIECE)
            hc_buf_add(&answer->body, piece, piece_length);
        answer->ended = answer->reader.state == HTTP_READER_DONE || answer->accepted;
        data += used;
        length -= used;
    }
    return answer->ended ? hc_buf_add(&client->in, data, length) : 0;
}

static int read_answer(struct ws_client *client, struct answer *answer, uint64_t deadline)
{
    hc_cleanup_free char *piece = malloc(PIECE);
    int status = piece ? 0 : -ENOMEM;

    while (status == 0 && !answer->ended) {
        ssize_t count = connection_read(client->connection, piece, PIECE, deadline);
        if (count < 0)
            return (int)count;
        if (count == 0) {
            status = http_reader_end(&answer->reader);
            answer->ended = true;
        } else {
            status = feed(client, answer, piece, (size_t)count);
        }
    }
    return status;
}

static int judge(struct ws_client *client, const struct answer *answer, struct hc_err *err)
{
    if (answer->accepted)
        return 0;
    if (answer->reader.status != 101)
        return server_problem(client->server, answer->reader.status, 0, answer->body.data ? answer->body.data : "",
                              answer->body.length, err);
    return hc_fail(err, HC_CLASS_HOST, EPROTO, NO_SERVER);
}

static int shake_hands(struct ws_client *client, const char *target, struct hc_err *err)
{
    struct answer answer = {.body = HC_BUF_INIT(REFUSAL_MAX)};
    uint64_t deadline = hc_now() + HANDSHAKE_TIME;
    char key[KEY_TEXT], accept[KEY_TEXT];

    int status = make_key(key, accept);
    if (status < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, -status, "no key for a WebSocket can be made");
    http_reader_start(&answer.reader);
    answer.reader.upgrades = true;
    answer.accept = accept;
    status = send_head(client, target, key, deadline);
    if (status == 0)
        status = read_answer(client, &answer, deadline);
    if (status == -EPROTO)
        hc_fail(err, HC_CLASS_HOST, EPROTO, NO_SERVER);
    status = status < 0 ? hc_fail_errno(err, HC_CLASS_HOST, -status, "the connection to the server was lost")
                        : judge(client, &answer, err);
    http_reader_release(&answer.reader);
    hc_buf_release(&answer.body);
    return status;
}

int ws_open(struct server *server, const char *target, size_t message_max, struct ws_client **out, struct hc_err *err)
{
    struct ws_client *client = calloc(1, sizeof *client);

    if (!client)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    client->server = server;
    client->in = HC_BUF_INIT(IN_MAX);
    client->out = HC_BUF_INIT(OUT_MAX);
    ws_frames_init(&client->frames, message_max);
    client->frames.from_server = true;
    int status = connection_open(&server->address.url, &server->address.terms, hc_now() + HANDSHAKE_TIME,
                                 &client->connection, err);
    if (status == 0)
        status = shake_hands(client, target, err);
    if (status < 0) {
        ws_close(client);
        return status;
    }
    *out = client;
    return 0;
}

void ws_close(struct ws_client *client)
{
    if (!client)
        return;
    connection_close(client->connection);
    ws_frames_release(&client->frames);
    hc_buf_release(&client->in);
    hc_buf_release(&client->out);
    free(client);
}

/* ---- sending ---- */

int ws_fd(const struct ws_client *client)
{
    return connection_fd(client->connection);
}

short ws_events(const struct ws_client *client)
{
    return (short)(ws_pending(client) > 0 ? POLLIN | POLLOUT : POLLIN);
}

size_t ws_pending(const struct ws_client *client)
{
    return client->out.length - client->out_at;
}

int ws_send(struct ws_client *client, enum ws_opcode opcode, const void *data, size_t length)
{
    unsigned char mask[4], header[WS_MASKED_MAX];

    if (getrandom(mask, sizeof mask, 0) != sizeof mask)
        return -EIO;
    size_t size = ws_frame_masked(header, opcode, length, mask);
    hc_buf_add(&client->out, header, size);
    if (hc_buf_add(&client->out, data, length) < 0)
        return hc_buf_status(&client->out);
    ws_mask(client->out.data + client->out.length - length, length, mask);
    return ws_flush(client);
}

int ws_flush(struct ws_client *client)
{
    while (ws_pending(client) > 0) {
        ssize_t count = connection_try_write(client->connection, client->out.data + client->out_at, ws_pending(client));
        if (count < 0)
            return count == -EAGAIN ? 0 : (int)count;
        client->out_at += (size_t)count;
    }
    hc_buf_reset(&client->out);
    client->out_at = 0;
    return 0;
}

/* ---- receiving ---- */

/* 1: there is something in `in`; 0: nothing yet; -errno. */
static int fill(struct ws_client *client)
{
    char piece[PIECE];

    if (client->in_at < client->in.length)
        return 1;
    hc_buf_reset(&client->in);
    client->in_at = 0;
    ssize_t count = connection_read(client->connection, piece, sizeof piece, AT_ONCE);
    if (count == -ETIMEDOUT)
        return 0;
    if (count <= 0)
        return count < 0 ? (int)count : -ECONNRESET;
    int status = hc_buf_add(&client->in, piece, (size_t)count);
    return status < 0 ? status : 1;
}

int ws_take(struct ws_client *client, const struct ws_frames **frames)
{
    size_t used;

    *frames = &client->frames;
    for (;;) {
        int there = fill(client);
        if (there <= 0)
            return there < 0 ? there : WS_EVENT_MORE;
        enum ws_event event =
            ws_frames_take(&client->frames, client->in.data + client->in_at, client->in.length - client->in_at, &used);
        client->in_at += used;
        int status = event == WS_EVENT_PING ? ws_send(client, WS_PONG, client->frames.data, client->frames.length) : 0;
        if (status < 0)
            return status;
        if (event != WS_EVENT_MORE && event != WS_EVENT_PING && event != WS_EVENT_PONG)
            return (int)event;
    }
}
