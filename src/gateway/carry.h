/*
 * Bytes between a request and a pipe or socket, without waiting: the body of a request into an fd, and an fd into a
 * reply. Back-pressure both ways: nothing is read that the other side has not taken, and no more than HTTP_PIECE bytes
 * are held here, whatever passes through.
 *
 * Neither owns the fd, which must be non-blocking and something that epoll takes, nor the request. `done` is called
 * once, from the loop, and may free the carrier; whoever frees one before that hears no more. A request that is gone
 * (on_gone) takes its carriers with it: free them there.
 */
#ifndef HC_GATEWAY_CARRY_H
#define HC_GATEWAY_CARRY_H

#include "base/loop.h"
#include "gateway/http.h"

/* status: 0; -ETIMEDOUT when the fd's other side did nothing for `stall_time`; another -errno of the fd, such as -EPIPE
 * when nobody reads any more, or -EIO when it ended before the length that was promised. `bytes`: how many have passed.
 */
typedef void (*carry_done)(void *data, int status, uint64_t bytes);

struct carry {
    struct hc_loop *loop;
    struct http_request *request;
    int fd;
    uint64_t stall_time; /* µs without progress while the fd is waited for; 0: any */
    carry_done done;
    void *data;
};

/* The streamed body of the request goes to the fd. Sets on_body and on_body_end, and resumes the body. The reply is the
 * caller's, in `done` or after it. NULL: no memory. */
struct carry_in;
struct carry_in *carry_in_new(const struct carry *carry);
void carry_in_free(struct carry_in *in); /* NULL is fine */

/* What comes from the fd goes into the reply, which was begun (http_stream_begin or http_stream_begin_sized) and which
 * the caller ends in `done` by http_stream_end: `length` bytes, or all there is for HTTP_LENGTH_UNKNOWN. Sets
 * on_drained. For a HEAD nothing is read. NULL: no memory. */
struct carry_out;
struct carry_out *carry_out_new(const struct carry *carry, uint64_t length);
void carry_out_free(struct carry_out *out); /* NULL is fine */

#endif
