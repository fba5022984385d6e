/*
 * Input that is sent while a run goes on: POST /v1/runs/{id}/stdin. It passes through a pipe, which the drive reads as
 * the command line's own would be read. What always holds: one piece is on its way at a time, and whoever sent it is
 * answered when the program's side has room for more; so a program that does not read costs one piece of memory.
 */
#include "base/fd.h"
#include "gateway/run_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

struct run_input {
    struct hc_loop *loop;
    struct hc_watch *watch; /* of the sink, while bytes wait for it */
    int source, sink;       /* of the pipe; sink -1: the end has been told */
    char *bytes;
    size_t length, written;
    bool ending;                  /* after these bytes */
    struct http_request *request; /* who sent them; NULL: the run's own request, or nobody any more */
};

static void answer(struct run_input *input, int status, const char *detail)
{
    struct http_request *request = input->request;
    input->request = NULL;
    if (request == NULL)
        return;
    request->on_gone = NULL;
    if (status == 204)
        reply_text(request, 204, "text/plain", "", 0);
    else
        reply_problem(request, status, "conflict", detail);
}

static void on_sink(struct hc_loop *loop, int fd, uint32_t events, void *data);

/* As much as there is room for. */
static void advance(struct run_input *input)
{
    while (input->written < input->length) {
        ssize_t count = write(input->sink, input->bytes + input->written, input->length - input->written);
        if (count < 0 && errno != EAGAIN && errno != EINTR) {
            input->written = input->length; /* this process holds the other end too: it does not happen */
            break;
        }
        if (count < 0)
            break;
        input->written += (size_t)count;
    }
    bool done = input->written == input->length;
    if (!done && input->watch == NULL)
        input->watch = hc_loop_watch(input->loop, input->sink, EPOLLOUT, on_sink, input);
    if (!done && input->watch != NULL)
        return;
    hc_watch_remove(input->watch);
    input->watch = NULL;
    free(input->bytes);
    input->bytes = NULL;
    input->length = input->written = 0;
    if (input->ending)
        input->sink = hc_close(input->sink);
    answer(input, done ? 204 : 409, "the server is out of memory");
}

static void on_sink(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)fd, (void)events;
    advance(data);
}

int run_input_new(struct hc_loop *loop, const struct blob *first, struct run_input **out)
{
    int ends[2];
    struct run_input *input = calloc(1, sizeof *input);
    char *copy = malloc(first->length + 1);
    if (input == NULL || copy == NULL || pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0) {
        free(copy);
        free(input);
        return -ENOMEM;
    }
    if (first->length > 0)
        memcpy(copy, first->data, first->length);
    *input =
        (struct run_input){.loop = loop, .source = ends[0], .sink = ends[1], .bytes = copy, .length = first->length};
    advance(input);
    *out = input;
    return 0;
}

int run_input_fd(const struct run_input *input)
{
    return input != NULL ? input->source : -1;
}

void run_input_free(struct run_input *input)
{
    if (input == NULL)
        return;
    answer(input, 409, "the run has ended");
    hc_watch_remove(input->watch);
    hc_close(input->source);
    hc_close(input->sink);
    free(input->bytes);
    free(input);
}

/* ---- the route ---- */

/* What was sent is the program's, whether or not its sender waits. */
static void on_gone(struct http_request *request)
{
    struct run_input *input = request->data;
    input->request = NULL;
}

/* Whether ?end= says that nothing follows. -EINVAL: it has replied. */
static int read_end(struct http_request *request)
{
    static const char *const known[] = {"end", NULL};
    char text[64];
    if (http_query_unknown(request, known, text, sizeof text) != NULL) {
        reply_problem(request, 400, "invalid_request", "there is no such parameter; there is end=true");
        return -EINVAL;
    }
    int given = http_query_value(request, "end", text, sizeof text);
    if (given == 0 || (given > 0 && strcmp(text, "false") == 0))
        return 0;
    if (given > 0 && strcmp(text, "true") == 0)
        return 1;
    reply_problem(request, 400, "invalid_request", "end is true or false");
    return -EINVAL;
}

static void take(struct run_input *input, struct http_request *request, bool end)
{
    char *copy = malloc(request->body_length + 1);
    if (copy == NULL) {
        reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
        return;
    }
    memcpy(copy, request->body, request->body_length);
    input->bytes = copy;
    input->length = request->body_length;
    input->written = 0;
    input->ending = end;
    input->request = request;
    request->data = input;
    request->on_gone = on_gone;
    advance(input);
}

void handle_run_stdin(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    const char *id = route_value(match, "id");
    int end = read_end(request);
    if (end < 0)
        return;
    const char *type = http_header(request, "content-type");
    if (request->body_length > 0 && (type == NULL || strcmp(type, "application/octet-stream") != 0)) {
        reply_problem(request, 415, "invalid_request", "send Content-Type: application/octet-stream");
        return;
    }
    struct run *run = runs_find(gateway->runs, request->context, id);
    struct run_input *input = run != NULL && run->work != NULL ? run->work->input : NULL;
    if (run == NULL)
        reply_problem(request, 404, "not_found", "there is no such run, or it has ended");
    else if (run->work == NULL)
        reply_problem(request, 409, "conflict", "the run has ended");
    else if (input == NULL || input->sink < 0)
        reply_problem(request, 409, "conflict",
                      input == NULL ? "the run was not asked for with stdin_open" : "its end has been sent already");
    else if (input->bytes != NULL)
        reply_problem(request, 409, "conflict", "the piece before this one has not been read yet; wait for its answer");
    else
        take(input, request, end > 0);
}
