/* GET …/files/watch: what changes in a sandbox's folder, as server-sent events. The helper writes a line for each. */
#include "base/fd.h"
#include "gateway/file_visit.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { WATCH_BACKLOG = 256 << 10 };

/* {"event": "created", …} becomes an event of that name. */
static void tell_line(struct file_visit *visit, const char *line, size_t length)
{
    hc_cleanup_json json_t *object = NULL;
    if (hc_json_read(line, length, 8, &object, NULL) < 0 || !json_is_object(object))
        return;
    const char *event = json_string_value(json_object_get(object, "event"));
    char name[32];
    snprintf(name, sizeof name, "%.31s", event != NULL && strpbrk(event, "\r\n") == NULL ? event : "changed");
    json_object_del(object, "event");
    hc_cleanup_free char *data = hc_json_write(object, false);
    struct hc_buf out = HC_BUF_INIT(1 << 20);
    hc_buf_printf(&out, "event: %s\ndata: ", name);
    hc_buf_add_str(&out, data != NULL ? data : "{}");
    hc_buf_add_str(&out, "\n\n");
    if (hc_buf_status(&out) == 0)
        http_stream_write(visit->request, out.data, out.length);
    hc_buf_release(&out);
}

static void on_drained(struct http_request *request)
{
    struct file_visit *visit = request->data;
    if (visit->watch != NULL)
        hc_watch_set(visit->watch, EPOLLIN);
}

static void on_lines(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)events;
    struct file_visit *visit = data;
    char bytes[16384];
    ssize_t count = read(fd, bytes, sizeof bytes);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (count <= 0 || hc_buf_add(&visit->line, bytes, (size_t)count) < 0) {
        http_stream_end(file_visit_done(visit));
        return;
    }
    char *at = visit->line.data, *end;
    while ((end = memchr(at, '\n', visit->line.length - (size_t)(at - visit->line.data))) != NULL) {
        tell_line(visit, at, (size_t)(end - at));
        at = end + 1;
    }
    size_t rest = visit->line.length - (size_t)(at - visit->line.data);
    memmove(visit->line.data, at, rest);
    visit->line.length = rest;
    if (http_stream_pending(visit->request) > WATCH_BACKLOG) /* the helper waits, and its queue tells what was lost */
        hc_watch_set(visit->watch, 0);
}

static void answer_watching(struct file_visit *visit, const json_t *head)
{
    (void)head;
    struct http_request *request = visit->request;
    reply_stream(request, 200, "text/event-stream");
    http_stream_write(request, "event: start\ndata: {}\n\n", 23);
    request->on_drained = on_drained;
    visit->watch = hc_loop_watch(visit->gateway->loop, visit->fd, EPOLLIN, on_lines, visit);
    if (visit->watch == NULL)
        http_stream_end(file_visit_done(visit));
}

void handle_file_watch(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    static const char *const known[] = {"path", "recursive", NULL};
    struct sandbox *sandbox = sandbox_for_work(gateway, request, match);
    struct words words = {0};
    char path[4096] = "", recursive[8] = "false", unknown[64];
    if (sandbox == NULL)
        return;
    if (http_query_unknown(request, known, unknown, sizeof unknown) != NULL ||
        http_query_value(request, "path", path, sizeof path) < 0 ||
        http_query_value(request, "recursive", recursive, sizeof recursive) < 0) {
        reply_problem(request, 400, "invalid_request", "the parameters are path and recursive");
        return;
    }
    if (words_add(&words, "watch") == 0 && errand_word(&words, "path", path) == 0 &&
        errand_word(&words, "recursive", recursive) == 0) {
        file_visit(gateway, request, sandbox, &words, FILE_BODY_OUT, 0, answer_watching);
        return;
    }
    words_release(&words);
    reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
}
