/*
 * See carry.h. What always holds: an fd is watched only while it is waited for, and not with an empty set of events:
 * epoll tells of a hang-up whether it was asked or not, and would do so without end.
 */
#include "gateway/carry.h"
#include "base/fd.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- what both have ---- */

struct end {
    struct carry carry;
    struct hc_watch *watch; /* NULL: the fd is not waited for */
    struct hc_timer *timer; /* of stall_time, while it is */
    uint64_t since;         /* of the last progress, or the beginning of the wait */
    uint64_t bytes;
};

static void on_stall(struct hc_loop *loop, void *data);

static void stop_waiting(struct end *end)
{
    hc_watch_remove(HC_TAKE_PTR(end->watch));
    hc_timer_remove(HC_TAKE_PTR(end->timer));
}

/* 0 or -errno. */
static int wait_for(struct end *end, uint32_t events, hc_watch_fn fn)
{
    end->since = hc_now();
    if (end->watch == NULL)
        end->watch = hc_loop_watch(end->carry.loop, end->carry.fd, events, fn, end);
    if (end->watch == NULL)
        return -errno;
    if (end->timer == NULL && end->carry.stall_time > 0)
        end->timer = hc_loop_timer(end->carry.loop, end->since + end->carry.stall_time, on_stall, end);
    return end->timer != NULL || end->carry.stall_time == 0 ? 0 : -ENOMEM;
}

static void finish(struct end *end, int status)
{
    stop_waiting(end);
    end->carry.done(end->carry.data, status, end->bytes);
}

/* Moved only when it fires: progress is made more often than that. */
static void on_stall(struct hc_loop *loop, void *data)
{
    struct end *end = data;
    uint64_t when = end->since + end->carry.stall_time;
    end->timer = when > hc_now() ? hc_loop_timer(loop, when, on_stall, end) : NULL;
    if (end->timer == NULL)
        finish(end, -ETIMEDOUT);
}

/* ---- in ---- */

struct carry_in {
    struct end end;
    bool ended; /* the body */
    size_t from, length;
    char pending[HTTP_PIECE]; /* from `from` on: what the fd has not taken yet */
};

/* A socket whose reader is gone must not raise SIGPIPE; a pipe cannot be told so, and the gateway ignores the signal.
 */
static ssize_t write_some(int fd, const char *data, size_t length)
{
    ssize_t count;
    do
        count = send(fd, data, length, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (count < 0 && errno == EINTR);
    if (count < 0 && errno == ENOTSOCK)
        do
            count = write(fd, data, length);
        while (count < 0 && errno == EINTR);
    return count >= 0 ? count : -errno;
}

static void on_writable(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop;
    (void)events;
    struct carry_in *in = data;
    ssize_t count = write_some(fd, in->pending + in->from, in->length - in->from);
    if (count == -EAGAIN)
        return;
    if (count < 0) {
        finish(&in->end, (int)count);
        return;
    }
    in->from += (size_t)count;
    in->end.bytes += (uint64_t)count;
    in->end.since = hc_now();
    if (in->from < in->length)
        return;
    in->from = in->length = 0;
    stop_waiting(&in->end);
    if (in->ended)
        finish(&in->end, 0);
    else
        http_body_resume(in->end.carry.request);
}

static void take_piece(struct http_request *request, const char *data, size_t length)
{
    struct carry_in *in = request->body_data;
    ssize_t count = write_some(in->end.carry.fd, data, length);
    if (count < 0 && count != -EAGAIN) {
        http_body_pause(request);
        finish(&in->end, (int)count);
        return;
    }
    size_t written = count > 0 ? (size_t)count : 0;
    in->end.bytes += written;
    if (written == length)
        return;
    in->length = length - written;
    memcpy(in->pending, data + written, in->length);
    http_body_pause(request);
    int status = wait_for(&in->end, EPOLLOUT, on_writable);
    if (status < 0)
        finish(&in->end, status);
}

static void take_end(struct http_request *request)
{
    struct carry_in *in = request->body_data;
    in->ended = true;
    if (in->length == 0)
        finish(&in->end, 0);
}

struct carry_in *carry_in_new(const struct carry *carry)
{
    struct carry_in *in = calloc(1, sizeof *in);
    if (in == NULL)
        return NULL;
    in->end.carry = *carry;
    carry->request->body_data = in;
    carry->request->on_body = take_piece;
    carry->request->on_body_end = take_end;
    http_body_resume(carry->request);
    return in;
}

void carry_in_free(struct carry_in *in)
{
    if (in == NULL)
        return;
    stop_waiting(&in->end);
    free(in);
}

/* ---- out ---- */

struct carry_out {
    struct end end;
    uint64_t left; /* HTTP_LENGTH_UNKNOWN: until the end of the fd */
    char piece[HTTP_PIECE];
};

static void on_readable(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop;
    (void)events;
    struct carry_out *out = data;
    struct http_request *request = out->end.carry.request;
    size_t size = out->left < sizeof out->piece ? (size_t)out->left : sizeof out->piece;
    ssize_t count = read(fd, out->piece, size);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (count <= 0) {
        int early = out->left == HTTP_LENGTH_UNKNOWN ? 0 : -EIO;
        finish(&out->end, count < 0 ? -errno : early);
        return;
    }
    out->end.bytes += (uint64_t)count;
    out->end.since = hc_now();
    if (out->left != HTTP_LENGTH_UNKNOWN)
        out->left -= (uint64_t)count;
    int written = http_stream_write(request, out->piece, (size_t)count);
    if (written == 0 && out->left == 0)
        finish(&out->end, 0);
    else if (written < 0 || http_stream_pending(request) > 0)
        stop_waiting(&out->end); /* until it is taken; or on_gone comes */
}

/* All that was read is with the kernel. Also the first step, and the end where there is nothing to read. */
static void on_taken(struct http_request *request)
{
    struct carry_out *out = request->drained_data;
    if (out->end.watch != NULL)
        return;
    int status = out->left > 0 ? wait_for(&out->end, EPOLLIN, on_readable) : 0;
    if (out->left == 0 || status < 0)
        finish(&out->end, status);
}

struct carry_out *carry_out_new(const struct carry *carry, uint64_t length)
{
    struct carry_out *out = calloc(1, sizeof *out);
    if (out == NULL)
        return NULL;
    out->end.carry = *carry;
    out->left = carry->request->method == HTTP_HEAD ? 0 : length;
    carry->request->drained_data = out;
    carry->request->on_drained = on_taken;
    http_stream_kick(carry->request);
    return out;
}

void carry_out_free(struct carry_out *out)
{
    if (out == NULL)
        return;
    stop_waiting(&out->end);
    free(out);
}
