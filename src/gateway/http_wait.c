/*
 * What a connection waits for: events, and deadlines. Each kind of wait has a list, and a connection joins it at its
 * end: since all of one list have the same time limit, the first is always the next to expire. So a change of what a
 * connection waits for costs a few pointers, however many others there are, and one timer of the loop serves all. The
 * timer is moved only forward in urgency: one that fires too early finds nothing and is set anew, which is cheaper than
 * to move it with every request.
 */
#include "gateway/http_conn.h"
#include <sys/epoll.h>

static uint64_t time_limit(const struct http_server *server, enum http_wait wait)
{
    switch (wait) {
    case HTTP_WAIT_NEXT_TURN:
        return 0;
    case HTTP_WAIT_FIRST:
    case HTTP_WAIT_HEAD:
        return server->limits.header_time;
    case HTTP_WAIT_BODY:
        return server->limits.body_time;
    case HTTP_WAIT_IDLE:
        return server->limits.idle_time;
    case HTTP_WAIT_WRITE:
        return server->limits.write_time;
    case HTTP_WAIT_LINGER:
        return HTTP_LINGER_TIME;
    case HTTP_WAIT_HANDLER:
    case HTTP_WAITS:
        break;
    }
    return UINT64_MAX;
}

/* When the first of a list expires; UINT64_MAX: never. */
static uint64_t expiry(const struct http_server *server, enum http_wait wait)
{
    const struct http_connection *first = server->lists[wait].first;
    uint64_t when;
    if (first == NULL || __builtin_add_overflow(first->since, time_limit(server, wait), &when))
        return UINT64_MAX;
    return when;
}

static void on_timer(struct hc_loop *loop, void *data);

static void set_timer(struct http_server *server, uint64_t when)
{
    if (when == UINT64_MAX || (server->timer != NULL && server->timer_at <= when))
        return;
    hc_timer_remove(server->timer);
    server->timer = hc_loop_timer(server->loop, when, on_timer, server);
    server->timer_at = when;
}

static void set_timer_to_first(struct http_server *server)
{
    for (enum http_wait wait = 0; wait < HTTP_WAITS; wait++)
        set_timer(server, expiry(server, wait));
}

static void on_timer(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct http_server *server = data;
    server->timer = NULL;
    /* Those that join a list from here on have a later time, and wait for the next turn. */
    uint64_t now = hc_now();
    for (enum http_wait wait = 0; wait < HTTP_WAITS; wait++)
        while (expiry(server, wait) < now)
            http_connection_expired(server->lists[wait].first);
    set_timer_to_first(server);
}

void http_wait_join(struct http_connection *connection, enum http_wait wait)
{
    struct http_server *server = connection->server;
    struct http_list *list = &server->lists[wait];
    connection->wait = (uint8_t)wait;
    connection->since = hc_now();
    connection->next = NULL;
    connection->previous = list->last;
    if (list->last != NULL)
        list->last->next = connection;
    else
        list->first = connection;
    list->last = connection;
    list->count++;
    set_timer(server, expiry(server, wait));
}

void http_wait_leave(struct http_connection *connection)
{
    struct http_list *list = &connection->server->lists[connection->wait];
    if (connection->previous != NULL)
        connection->previous->next = connection->next;
    else
        list->first = connection->next;
    if (connection->next != NULL)
        connection->next->previous = connection->previous;
    else
        list->last = connection->previous;
    list->count--;
}

void http_wait_again(struct http_connection *connection)
{
    http_wait_leave(connection);
    http_wait_join(connection, connection->wait);
}

void http_wait_for(struct http_connection *connection, enum http_wait wait)
{
    if (connection->wait == wait)
        return;
    http_wait_leave(connection);
    http_wait_join(connection, wait);
}

void http_wait_limits_changed(struct http_server *server)
{
    set_timer_to_first(server);
}

/* ---- what a state asks for ---- */

static enum http_wait wait_of(const struct http_connection *connection)
{
    switch ((enum http_state)connection->state) {
    case HTTP_HANDSHAKE:
        return HTTP_WAIT_FIRST;
    case HTTP_READING:
        if (connection->exchange != NULL)
            return connection->exchange->counted ? HTTP_WAIT_BODY : HTTP_WAIT_HEAD;
        if (connection->ahead != NULL)
            return HTTP_WAIT_NEXT_TURN;
        return connection->wait == HTTP_WAIT_FIRST ? HTTP_WAIT_FIRST : HTTP_WAIT_IDLE;
    case HTTP_HANDLING:
    case HTTP_STREAMING:
        if (http_input_ready(connection) || (connection->drained && http_unsent(connection) == 0))
            return HTTP_WAIT_NEXT_TURN;
        if (connection->state == HTTP_STREAMING && http_unsent(connection) > 0)
            return HTTP_WAIT_WRITE;
        return http_wants_input(connection) && !connection->exchange->raw ? HTTP_WAIT_BODY : HTTP_WAIT_HANDLER;
    case HTTP_SENDING:
        return HTTP_WAIT_WRITE;
    case HTTP_LINGERING:
        return HTTP_WAIT_LINGER;
    case HTTP_BROKEN:
        break;
    }
    return HTTP_WAIT_NEXT_TURN;
}

/* Input is left on, though none is wanted, until some comes: that saves two system calls a request. */
static uint32_t input_of_handled(const struct http_connection *connection)
{
    /* On a connection that was taken over what is still to be read comes before the end. */
    uint32_t end = connection->exchange->raw ? 0 : EPOLLRDHUP;
    if (connection->deaf || http_input_ready(connection))
        return end;
    return end | (http_wants_input(connection) ? connection->read_wants : EPOLLIN);
}

static uint32_t interest_of(const struct http_connection *connection)
{
    uint32_t write = http_unsent(connection) > 0 ? connection->write_wants : 0;
    switch ((enum http_state)connection->state) {
    case HTTP_HANDSHAKE:
        return connection->read_wants;
    case HTTP_READING:
        return connection->ahead != NULL ? 0 : connection->read_wants | EPOLLRDHUP | write;
    case HTTP_HANDLING:
    case HTTP_STREAMING:
        return input_of_handled(connection) | write;
    case HTTP_SENDING:
        return write;
    case HTTP_LINGERING:
        return EPOLLIN;
    case HTTP_BROKEN:
        break;
    }
    return 0;
}

void http_connection_settle(struct http_connection *connection)
{
    if (http_wants_input(connection))
        connection->deaf = false;
    http_wait_for(connection, wait_of(connection));
    uint32_t interest = interest_of(connection);
    if (interest == connection->interest)
        return;
    if (hc_watch_set(connection->watch, interest) == 0) {
        connection->interest = interest;
    } else {
        connection->state = HTTP_BROKEN;
        http_wait_for(connection, HTTP_WAIT_NEXT_TURN);
    }
}
