/* See file_visit.h. */
#include "gateway/file_visit.h"

#include "base/fd.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static void stop_carrying(struct file_visit *visit)
{
    carry_in_free(visit->in);
    carry_out_free(visit->out);
    hc_watch_remove(visit->watch);
    visit->in = NULL;
    visit->out = NULL;
    visit->watch = NULL;
}

static void visit_free(struct file_visit *visit)
{
    stop_carrying(visit);
    if (visit->waits)
        sandbox_unawait(visit->sandbox, &visit->waiter);
    if (visit->errand != NULL)
        errand_drop(visit->errand, HC_TAKE_FD(visit->fd));
    hc_close(visit->fd);
    hc_buf_release(&visit->line);
    free(visit);
}

struct http_request *file_visit_done(struct file_visit *visit)
{
    struct http_request *request = visit->request;
    request->on_gone = NULL;
    request->on_drained = NULL;
    visit_free(visit);
    return request;
}

static void on_gone(struct http_request *request)
{
    visit_free(request->data);
}

/* ---- the helper's words ---- */

static void refuse(struct file_visit *visit, const struct hc_err *err)
{
    struct hc_err why = *err;
    struct http_request *request = file_visit_done(visit);
    if (why.code == ENOSPC && why.class == HC_CLASS_REQUEST)
        reply_problem(request, 507, "too_large", why.message);
    else if (why.code == ETIMEDOUT)
        reply_problem(request, 504, "internal", why.message);
    else
        reply_error(request, &why);
}

/* The cell was dying, and is gone: the request is asked again, of the sandbox that failed or is made anew. */
static void on_cell_over(struct sandbox_waiter *waiter)
{
    struct file_visit *visit = (struct file_visit *)waiter;
    struct gateway *gateway = visit->gateway;
    visit->waits = false;
    struct http_request *request = file_visit_done(visit);
    request->data = NULL;
    gateway_handle(gateway, request);
}

/* A body that came in is with the helper that died, in part: it cannot be asked again, except by its sender. */
static void await_end(struct file_visit *visit)
{
    if (visit->body == FILE_BODY_IN) {
        reply_busy(file_visit_done(visit), 503, "overloaded", 1, "pid 1 of the sandbox died: send the request again");
        return;
    }
    visit->waits = true;
    visit->waiter.over = on_cell_over;
    sandbox_await(visit->sandbox, &visit->waiter);
}

static void on_head(void *data, const json_t *head, const struct hc_err *err)
{
    struct file_visit *visit = data;
    struct hc_err why = {0};
    if (head == NULL && err->code == SANDBOX_LOST && visit->sandbox->box != NULL) {
        await_end(visit);
        return;
    }
    if (head == NULL) {
        refuse(visit, err);
        return;
    }
    if (errand_error(head, &why) < 0) {
        const json_t *size = json_object_get(head, "size");
        if (json_integer_value(json_object_get(head, "errno")) == ERANGE && json_is_integer(size)) {
            char range[48];
            snprintf(range, sizeof range, "bytes */%" JSON_INTEGER_FORMAT, json_integer_value(size));
            http_add_header(visit->request, "Content-Range", range);
            reply_problem(file_visit_done(visit), 416, "invalid_request", why.message);
            return;
        }
        refuse(visit, &why);
        return;
    }
    visit->answered = true;
    visit->answer(visit, head);
}

static void finish_stream(struct file_visit *visit)
{
    http_stream_end(file_visit_done(visit));
}

static void on_ended(void *data, bool whole)
{
    struct file_visit *visit = data;
    visit->errand = NULL;
    (void)whole; /* a sized stream that is short is cut off by itself */
    if (visit->out == NULL && visit->watch == NULL && visit->carried)
        finish_stream(visit);
}

/* ---- bodies ---- */

static void on_carried_in(void *data, int status, uint64_t bytes)
{
    (void)bytes;
    struct file_visit *visit = data;
    carry_in_free(HC_TAKE_PTR(visit->in));
    if (status == 0)
        visit->fd = hc_close(visit->fd); /* that was all of it: the helper goes on to its end, and its head */
    /* Otherwise it does not read any more, and its head says why. */
}

static void on_carried_out(void *data, int status, uint64_t bytes)
{
    (void)bytes, (void)status;
    struct file_visit *visit = data;
    carry_out_free(HC_TAKE_PTR(visit->out));
    visit->carried = true;
    finish_stream(visit);
}

void file_visit_stream(struct file_visit *visit, int status, const char *type, uint64_t length)
{
    struct carry carry = {.loop = visit->gateway->loop,
                          .request = visit->request,
                          .fd = visit->fd,
                          .done = on_carried_out,
                          .data = visit};
    if (length == HTTP_LENGTH_UNKNOWN)
        reply_stream(visit->request, status, type);
    else
        reply_stream_sized(visit->request, status, type, length);
    visit->out = carry_out_new(&carry, length);
    if (visit->out == NULL)
        finish_stream(visit); /* one that is sized is cut off by it */
}

static int open_body(struct file_visit *visit, int *theirs)
{
    int ends[2];
    if (visit->body == FILE_NO_BODY)
        return 0;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    visit->fd = ends[visit->body == FILE_BODY_IN];
    *theirs = ends[visit->body != FILE_BODY_IN];
    return hc_set_nonblock(visit->fd, true);
}

void file_visit(struct gateway *gateway, struct http_request *request, struct sandbox *sandbox, struct words *words,
                enum file_body body, uint64_t time, void (*answer)(struct file_visit *visit, const json_t *head))
{
    struct hc_err err = {0};
    hc_cleanup_fd int theirs = -1;
    struct file_visit *visit = calloc(1, sizeof *visit);
    int result = visit != NULL ? 0 : hc_fail(&err, HC_CLASS_OURS, ENOMEM, "out of memory");
    if (result == 0) {
        *visit = (struct file_visit){.gateway = gateway,
                                     .request = request,
                                     .sandbox = sandbox,
                                     .body = body,
                                     .fd = -1,
                                     .line = HC_BUF_INIT(1 << 20),
                                     .answer = answer};
        result = open_body(visit, &theirs);
        if (result < 0)
            hc_fail_errno(&err, HC_CLASS_HOST, -result, "making a pipe");
    }
    struct errand_events events = {.data = visit, .head = on_head, .ended = on_ended};
    if (result == 0)
        result = errand_start(sandbox, words, body == FILE_BODY_IN ? theirs : -1, body == FILE_BODY_OUT ? theirs : -1,
                              time, &events, &visit->errand, &err);
    words_release(words);
    if (result == 0 && body == FILE_BODY_IN) {
        struct carry carry = {
            .loop = gateway->loop, .request = request, .fd = visit->fd, .done = on_carried_in, .data = visit};
        visit->in = carry_in_new(&carry);
        if (visit->in == NULL)
            result = hc_fail(&err, HC_CLASS_OURS, ENOMEM, "out of memory");
    }
    if (result < 0) {
        if (visit != NULL)
            visit_free(visit);
        reply_error(request, &err);
        return;
    }
    request->data = visit;
    request->on_gone = on_gone;
}
