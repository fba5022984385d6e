/* See errand.h. */
#include "sandbox/errand.h"

#include "base/buf.h"
#include "base/fd.h"
#include "run/block.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { HEAD_LIMIT = 64 << 10, HEAD_DEPTH = 8 };
#define REMOVE_TIME (10 * 1000000ULL)

struct errand {
    struct sandbox *sandbox;
    struct box_job job;
    struct errand_events events;
    int head_fd;
    struct hc_watch *watch;
    struct hc_buf head;
    int parked; /* or -1 */
    bool told, dropped, whole;
};

static void finish(struct errand *errand)
{
    struct errand_events events = errand->events;
    bool dropped = errand->dropped, whole = errand->whole;
    hc_watch_remove(errand->watch);
    hc_close(errand->head_fd);
    hc_close(errand->parked);
    hc_buf_release(&errand->head);
    if (errand->sandbox && events.looks)
        sandbox_leave(errand->sandbox);
    else if (errand->sandbox)
        sandbox_release(errand->sandbox);
    free(errand);
    if (!dropped && events.ended)
        events.ended(events.data, whole);
}

static void tell(struct errand *errand, const struct hc_err *why)
{
    struct hc_err err = {0};
    hc_cleanup_json json_t *head = NULL;
    if (errand->told || errand->dropped)
        return;
    errand->told = true;
    bool good = errand->head.length > 0 && hc_buf_status(&errand->head) == 0 &&
                hc_json_read(errand->head.data, errand->head.length, HEAD_DEPTH, &head, NULL) == 0 &&
                json_is_object(head);
    if (!good && why && why->code)
        err = *why;
    else if (!good)
        hc_fail(&err, HC_CLASS_HOST, EIO, "the helper inside the sandbox was ended before it had answered");
    errand->events.head(errand->events.data, good ? head : NULL, good ? NULL : &err);
}

/* One line; what comes after it is nobody's. */
static void read_head(struct errand *errand)
{
    char bytes[4096];
    for (;;) {
        ssize_t count = errand->head_fd < 0 ? -1 : read(errand->head_fd, bytes, sizeof bytes);
        if (count <= 0)
            return;
        hc_buf_add(&errand->head, bytes, (size_t)count);
    }
}

static void on_head(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)fd, (void)events;
    struct errand *errand = data;
    read_head(errand);
    bool line = errand->head.length > 0 && memchr(errand->head.data, '\n', errand->head.length);
    if (!line && hc_buf_status(&errand->head) == 0 && !(events & (EPOLLHUP | EPOLLERR)))
        return;
    hc_watch_remove(errand->watch); /* its end tells, where there was no line */
    errand->watch = NULL;
    if (line)
        tell(errand, NULL);
}

static void on_ended(struct box_job *job, const struct warden_message *message)
{
    struct errand *errand = job->data;
    struct hc_err why = message->err;
    read_head(errand);
    errand->whole = message->facts.end == JOB_EXITED && message->facts.exit_code == 0;
    if (!why.code && message->facts.end == JOB_OUT_OF_MEMORY)
        hc_fail(&why, HC_CLASS_REQUEST, ENOSPC, "the sandbox has no memory left for this");
    else if (!why.code && message->facts.end == JOB_TIMED_OUT)
        hc_fail(&why, HC_CLASS_HOST, ETIMEDOUT, "it took too long");
    tell(errand, &why);
    finish(errand);
}

int errand_start(struct sandbox *sandbox, const struct words *words, int input, int output, uint64_t time,
                 const struct errand_events *events, struct errand **out, struct hc_err *err)
{
    struct box *box = sandbox_box(sandbox, err);
    if (!box)
        return -err->code;
    struct errand *errand = calloc(1, sizeof *errand);
    int ends[2] = {-1, -1}, result = errand ? 0 : -ENOMEM;
    if (result == 0 && pipe2(ends, O_CLOEXEC) < 0)
        result = -errno;
    hc_cleanup_fd int null = open("/dev/null", O_RDWR | O_CLOEXEC), block = -1, report = ends[1];
    if (result == 0)
        result = block = argument_block(sandbox->plan.cell.work_dir, words, &sandbox->plan.env);
    struct job_spec spec = {.kind = JOB_FILES};
    plan_job_limits(&sandbox->limits, &spec.limits);
    spec.limits.wall = time;
    spec.limits.cpu_time = 0;
    if (result >= 0) {
        *errand = (struct errand){.events = *events, .head_fd = ends[0], .parked = -1, .head = HC_BUF_INIT(HEAD_LIMIT)};
        errand->job = (struct box_job){.data = errand, .ended = on_ended};
        hc_set_nonblock(ends[0], true);
        errand->watch = hc_loop_watch(sandbox_loop(sandbox), ends[0], EPOLLIN, on_head, errand);
        int fds[4] = {input >= 0 ? input : null, output >= 0 ? output : null, report, block};
        result = errand->watch ? box_start(box, &errand->job, &spec, fds, 4) : -ENOMEM;
    }
    if (result < 0) {
        if (errand)
            hc_watch_remove(errand->watch);
        hc_close(ends[0]);
        free(errand);
        return hc_fail_errno(err, hc_class_of(-result, HC_CLASS_OURS), -result, "starting the helper");
    }
    errand->sandbox = sandbox;
    if (events->looks)
        sandbox_stay(sandbox);
    else
        sandbox_hold(sandbox);
    *out = errand;
    return 0;
}

void errand_drop(struct errand *errand, int fd)
{
    errand->parked = fd;
    errand->dropped = true;
    box_kill(&errand->job, JOB_CANCELLED);
}

int errand_error(const json_t *head, struct hc_err *err)
{
    static const struct {
        const char *code;
        enum hc_class class;
        int number;
    } codes[] = {
        {"not_found", HC_CLASS_REQUEST, ENOENT}, {"forbidden", HC_CLASS_REQUEST, EACCES},
        {"conflict", HC_CLASS_REQUEST, EEXIST},  {"too_large", HC_CLASS_REQUEST, EFBIG},
        {"no_space", HC_CLASS_REQUEST, ENOSPC},  {"invalid_request", HC_CLASS_REQUEST, EINVAL},
        {"internal", HC_CLASS_HOST, EIO},
    };
    if (json_is_true(json_object_get(head, "ok")))
        return 0;
    const char *code = json_string_value(json_object_get(head, "code"));
    const char *message = json_string_value(json_object_get(head, "message"));
    const char *remedy = json_string_value(json_object_get(head, "remedy"));
    size_t i = 0;
    while (i + 1 < sizeof codes / sizeof *codes && (!code || strcmp(codes[i].code, code) != 0))
        i++;
    hc_fail(err, codes[i].class, codes[i].number, "%s", message ? message : "the helper did not say why");
    return remedy ? hc_err_remedy(err, "%s", remedy) : -err->code;
}

int errand_word(struct words *words, const char *key, const char *value)
{
    char *word = NULL;
    if (asprintf(&word, "%s=%s", key, value) < 0)
        return -ENOMEM;
    int result = words_add(words, word);
    free(word);
    return result;
}

int errand_number(struct words *words, const char *key, uint64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    return errand_word(words, key, text);
}

static void nothing(void *data, const json_t *head, const struct hc_err *err)
{
    (void)data, (void)head, (void)err;
}

void errand_remove(struct sandbox *sandbox, const char *path)
{
    struct words words = {0};
    struct hc_err err = {0};
    struct errand_events events = {.head = nothing};
    struct errand *errand;
    if (!path || words_add(&words, "delete") < 0 || errand_word(&words, "path", path) < 0 ||
        errand_word(&words, "recursive", "true") < 0)
        return;
    errand_start(sandbox, &words, -1, -1, REMOVE_TIME, &events, &errand,
                 &err); /* of a box that is gone nothing is left */
    words_release(&words);
}
