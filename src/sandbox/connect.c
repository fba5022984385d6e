/* See connect.h. The helper's answer is a socket of the cell's own network: it is looked at before it is used. */
#include "sandbox/connect.h"

#include "base/fd.h"
#include "run/block.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECT_TIME (5 * 1000000ULL)

struct connecting {
    struct sandbox *sandbox;
    struct box_job job;
    int door, fd;
    void (*done)(void *data, int fd, const struct hc_err *err);
    void *data;
};

static bool is_stream(int fd)
{
    int domain = 0, type = 0, protocol = 0;
    socklen_t size = sizeof domain;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
           getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 &&
           (domain == AF_INET || domain == AF_INET6) && type == SOCK_STREAM && protocol == IPPROTO_TCP;
}

/* The helper has ended: what it had to say is in the door. */
static void on_ended(struct box_job *job, const struct warden_message *message)
{
    struct connecting connecting = *(struct connecting *)job->data;
    struct hc_err err = message->err;
    char byte;
    int fd = -1;
    size_t count = 0;
    free(job->data);
    ssize_t size = hc_recv_fds(connecting.door, &byte, 1, &fd, 1, &count);
    hc_close(connecting.door);
    if (size != 1 || count != 1)
        fd = -1;
    if (fd >= 0 && (!connecting.done || !is_stream(fd)))
        fd = hc_close(fd);
    if (fd >= 0)
        hc_set_nonblock(fd, true);
    else if (!err.code)
        hc_fail(&err, message->facts.end == JOB_TIMED_OUT ? HC_CLASS_PROGRAM : HC_CLASS_HOST, EIO,
                "the connection could not be made");
    if (connecting.done)
        connecting.done(connecting.data, fd, fd >= 0 ? NULL : &err);
    sandbox_release(connecting.sandbox);
}

static int start(struct connecting *connecting, unsigned port)
{
    struct sandbox *sandbox = connecting->sandbox;
    struct words argv = {0};
    char text[16];
    int ends[2];
    hc_cleanup_fd int null = open("/dev/null", O_RDWR | O_CLOEXEC), block = -1, inside = -1;
    if (null < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return -errno;
    connecting->door = ends[0];
    inside = ends[1];
    hc_set_nonblock(connecting->door, true);
    snprintf(text, sizeof text, "%u", port);
    int result = words_add(&argv, text);
    if (result == 0)
        result = block = argument_block(sandbox->plan.cell.work_dir, &argv, &sandbox->plan.env);
    words_release(&argv);
    if (result < 0)
        return result;
    struct job_spec spec = {.kind = JOB_CONNECT, .has_door = 1};
    plan_job_limits(&sandbox->limits, &spec.limits);
    spec.limits.wall = CONNECT_TIME;
    spec.limits.cpu_time = 0;
    int fds[5] = {null, null, null, block, inside};
    return box_start(sandbox->box, &connecting->job, &spec, fds, 5);
}

int connect_start(struct sandbox *sandbox, unsigned port, void (*done)(void *data, int fd, const struct hc_err *err),
                  void *data, struct connecting **out, struct hc_err *err)
{
    if (!sandbox_box(sandbox, err))
        return -err->code;
    struct connecting *connecting = calloc(1, sizeof *connecting);
    if (!connecting)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    *connecting = (struct connecting){.sandbox = sandbox, .door = -1, .fd = -1, .done = done, .data = data};
    connecting->job = (struct box_job){.data = connecting, .ended = on_ended};
    int result = start(connecting, port);
    if (result < 0) {
        hc_close(connecting->door);
        free(connecting);
        return hc_fail_errno(err, hc_class_of(-result, HC_CLASS_OURS), -result, "connecting to port %u", port);
    }
    sandbox_hold(sandbox);
    *out = connecting;
    return 0;
}

void connect_drop(struct connecting *connecting)
{
    connecting->done = NULL;
    box_kill(&connecting->job, JOB_CANCELLED);
}
