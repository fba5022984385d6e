/*
 * The inside of http_*.c: the server, its connections, and the exchange (one request and its reply) that a connection
 * may have under way. Nobody else includes this.
 *
 * What always holds:
 * - A connection is in exactly one list, that of what it waits for; the list says which deadline it has.
 * - A connection is closed only from the loop (an event, the timer, a newcomer that needs room) or by
 *   http_server_free, never from inside a reply function: those leave it for the next turn.
 * - An idle connection holds this struct and nothing else.
 */
#ifndef HC_GATEWAY_HTTP_CONN_H
#define HC_GATEWAY_HTTP_CONN_H

#include "gateway/http_parse.h"
#include "gateway/http_tls.h"
#include <netinet/in.h>

enum {
    HTTP_READ_SIZE = 16384,           /* one TLS record; also what a pipelining client can make a connection hold */
    HTTP_BODY_READ_SIZE = HTTP_PIECE, /* where the length is known and nothing can follow it */
    HTTP_ADDED_HEADERS = 8192,        /* bytes of http_add_header */
    HTTP_LINGER_BYTES = 64 << 20,
    HTTP_LINGER_COUNT = 64, /* connections that may linger past the limit of connections */
};
#define HTTP_LINGER_TIME UINT64_C(2000000)
#define HTTP_SILENCE UINT64_C(1000000) /* a newcomer that said nothing for so long may be closed for another's sake */

enum http_state {
    HTTP_HANDSHAKE, /* of TLS */
    HTTP_READING,   /* a request, or the wait for one */
    HTTP_HANDLING,  /* the handler has it, and may be getting its body */
    HTTP_STREAMING, /* the handler writes a reply, or has the whole connection */
    HTTP_SENDING,   /* the reply is whole, and not all of it sent */
    HTTP_LINGERING, /* all is sent. What still comes is thrown away, because closing now could take back the reply */
    HTTP_BROKEN,    /* to be closed in the next turn */
};

enum http_wait {
    HTTP_WAIT_HANDLER, /* no deadline here */
    HTTP_WAIT_NEXT_TURN,
    HTTP_WAIT_FIRST, /* the first byte, or the end of the handshake */
    HTTP_WAIT_HEAD,
    HTTP_WAIT_BODY,
    HTTP_WAIT_IDLE,
    HTTP_WAIT_WRITE,
    HTTP_WAIT_LINGER,
    HTTP_WAITS,
};

struct http_exchange {
    struct http_request request;
    struct http_parser parser;
    struct hc_buf added; /* headers of the reply */
    size_t body_capacity;
    bool counted;  /* in requests_active: its head was complete */
    bool complete; /* all of the request has been read */
    char nothing[1];
    /* The body, where it is handed on. */
    bool streamed;      /* by on_body */
    bool paused;        /* not now */
    bool ended;         /* on_body_end is done with */
    bool owes_continue; /* the client waits for a 100 */
    bool raw;           /* the connection was taken over: no request is parsed any more */
    /* The reply. */
    bool chunked;
    bool bare;     /* somebody else's */
    size_t passed; /* where its headers begin in `added` */
    bool sized;    /* `left` is what is missing of it */
    uint64_t left;
};

union http_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

struct http_connection {
    struct http_server *server;
    struct http_connection *next, *previous; /* in its list */
    uint64_t since;                          /* when it came into the list */
    struct hc_watch *watch;
    struct ssl_st *ssl;
    struct http_exchange *exchange;
    struct hc_buf out; /* from out_sent on, what waits for the client */
    size_t out_sent;
    uint64_t out_held; /* of limits.replies */
    char *ahead;       /* what was read past the end of the request: the next one's beginning */
    size_t ahead_length;
    size_t lingered;
    uint32_t interest, read_wants, write_wants; /* epoll events */
    int fd;
    uint8_t state, wait, kind; /* enum http_state, http_wait, http_listener_kind */
    bool busy;                 /* its bytes are being consumed: who is called back leaves the next step to that */
    bool close_after;          /* the reply */
    bool deaf;                 /* more input has come than is asked for now: only its end is watched */
    bool drained;              /* on_drained is due */
    union http_address peer, local;
};

struct http_list {
    struct http_connection *first, *last;
    size_t count;
};

struct http_listener {
    struct http_listener *next;
    struct http_server *server;
    struct hc_watch *watch;
    struct http_tls *tls;
    int fd;
    enum http_listener_kind kind;
};

struct http_server {
    struct hc_loop *loop;
    struct http_limits limits;
    struct http_handlers handlers;
    struct http_listener *listeners;
    struct http_list lists[HTTP_WAITS];
    struct http_counts counts;
    struct hc_timer *timer; /* of all deadlines */
    uint64_t timer_at;
    struct hc_timer *pause; /* set while accepting is put off */
    int spare;              /* an fd to give up when there is no other, to tell a newcomer so */
    bool draining;
    char scratch[HTTP_BODY_READ_SIZE];
};

/* ---- http_wait.c: lists and their deadlines ---- */
void http_wait_join(struct http_connection *connection, enum http_wait wait); /* a new one */
void http_wait_leave(struct http_connection *connection);
void http_wait_for(struct http_connection *connection, enum http_wait wait); /* nothing happens if it already does */
void http_wait_again(struct http_connection *connection);                    /* its time begins anew */
void http_wait_limits_changed(struct http_server *server);
/* What the state now asks for: the list and the events. */
void http_connection_settle(struct http_connection *connection);

/* ---- http_conn.c ---- */
/* Takes the fd, also on failure. */
struct http_connection *http_connection_new(struct http_server *server, const struct http_listener *listener, int fd);
void http_connection_close(struct http_connection *connection); /* on_gone, if a request is under way; frees it */
void http_connection_expired(struct http_connection *connection);
void http_connection_address(const struct http_connection *connection, const union http_address *address,
                             char text[HTTP_ADDRESS_SIZE]);

/* ---- http_stream.c ---- */
/* Whether what comes is wanted now, and whether some of it is here already. */
bool http_wants_input(const struct http_connection *connection);
bool http_input_ready(const struct http_connection *connection);

/* ---- http_send.c: what goes out ---- */
/* Writes what waits, as far as it goes. 0, or -EPIPE. */
int http_flush(struct http_connection *connection);
void http_release_out(struct http_connection *connection); /* all is sent, or never will be */
size_t http_unsent(const struct http_connection *connection);
/* The reply is whole: flushes it, and goes on to what comes after it. */
void http_sent(struct http_connection *connection);
/* An answer of our own, and the end of the connection. */
void http_refuse(struct http_connection *connection, int status, const char *why);
/* The status line and headers, but for those about the body and the empty line. */
void http_begin_head(struct http_connection *connection, int status, const char *content_type);
bool http_has_no_body(int status);
/* The exchange is over; `gone`: without a reply, on_gone is called. */
void http_exchange_end(struct http_connection *connection, bool gone);
void http_send_continue(struct http_connection *connection);

#endif
