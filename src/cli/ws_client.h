/*
 * The client's side of a WebSocket (RFC 6455): the handshake, and frames that go both ways at once. After the handshake
 * nothing blocks: the caller polls ws_fd for ws_events.
 */
#ifndef HC_CLI_WS_CLIENT_H
#define HC_CLI_WS_CLIENT_H

#include "cli/server.h"
#include "text/ws_frames.h"
#include <stddef.h>

struct ws_client;

/* An answer other than 101 becomes an error, in the server's words. */
int ws_open(struct server *server, const char *target, size_t message_max, struct ws_client **out, struct hc_err *err);
void ws_close(struct ws_client *client); /* NULL is fine */

int ws_fd(const struct ws_client *client);
short ws_events(const struct ws_client *client);
/* Bytes that wait to be sent. */
size_t ws_pending(const struct ws_client *client);
/* A frame, masked, to be sent. 0 or -errno: -EFBIG when too much waits. */
int ws_send(struct ws_client *client, enum ws_opcode opcode, const void *data, size_t length);
/* What goes at once of what waits. 0 or -errno. */
int ws_flush(struct ws_client *client);
/* The next event: enum ws_event, WS_EVENT_MORE when there is none yet, or -errno; -ECONNRESET: the other side is gone.
 * Pings are answered already. *frames is valid until the next call. */
int ws_take(struct ws_client *client, const struct ws_frames **frames);

#endif
