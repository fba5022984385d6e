/* See terminal.h. */
#include "sandbox/terminal.h"

#include "base/fd.h"
#include "run/block.h"
#include "sandbox/kinds.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { DRAIN_READS = 64, PTMX_MAJOR = 5, PTMX_MINOR = 2 };

static struct terminal *terminal_of(const struct fixture *fixture)
{
    return (struct terminal *)fixture;
}

/* ---- bytes ---- */

static void watch_for(struct terminal *terminal)
{
    if (terminal->watch)
        hc_watch_set(terminal->watch, (terminal->full ? 0 : EPOLLIN) | (terminal->blocked ? EPOLLOUT : 0));
}

/* Whether something came. EIO means that nobody has the other end any more. */
static bool read_some(struct terminal *terminal)
{
    char bytes[16384];
    ssize_t count = terminal->master < 0 ? -1 : read(terminal->master, bytes, sizeof bytes);
    if (count <= 0)
        return false;
    job_log_add(terminal->log, 0, bytes, (size_t)count);
    if (terminal->attached && !terminal->client.written(terminal->client.data, bytes, (size_t)count)) {
        terminal->full = true;
        watch_for(terminal);
    }
    return true;
}

static void stop_watching(struct terminal *terminal)
{
    hc_watch_remove(terminal->watch);
    terminal->watch = NULL;
}

static void on_master(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)fd;
    struct terminal *terminal = data;
    if (events & EPOLLOUT && terminal->blocked) {
        terminal->blocked = false;
        watch_for(terminal);
        if (terminal->attached && terminal->client.writable)
            terminal->client.writable(terminal->client.data);
    }
    /* HUP while the program lives: nobody has it open at this moment, which may change (a shell between two programs).
     * Watching on would spin; its end is told by the job. */
    if (!read_some(terminal) && events & (EPOLLHUP | EPOLLERR))
        stop_watching(terminal);
}

void terminal_more(struct terminal *terminal)
{
    terminal->full = false;
    watch_for(terminal);
}

size_t terminal_write(struct terminal *terminal, const char *bytes, size_t length)
{
    size_t taken = 0;
    while (taken < length && terminal->master >= 0) {
        ssize_t count = write(terminal->master, bytes + taken, length - taken);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0) {
            if (errno != EAGAIN)
                return length; /* nobody is there to read it */
            terminal->blocked = true;
            watch_for(terminal);
            break;
        }
        taken += (size_t)count;
    }
    return taken;
}

void terminal_resize(struct terminal *terminal, unsigned cols, unsigned rows)
{
    struct winsize size = {.ws_col = (unsigned short)cols, .ws_row = (unsigned short)rows};
    terminal->cols = cols;
    terminal->rows = rows;
    if (terminal->master >= 0)
        ioctl(terminal->master, TIOCSWINSZ, &size); /* one that has no size stays as it is */
}

/* ---- its master ---- */

static void leave_fds(struct terminal *terminal)
{
    int fds[2] = {job_log_fd(terminal->log), terminal->master};
    (void)box_keep(terminal->fixture.sandbox->box, &terminal->fixture.job, fds, 2);
}

/* What comes out of a cell is looked at: this must be a terminal, and nothing else that might hang whoever uses it. */
static bool is_master(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && major(st.st_rdev) == PTMX_MAJOR &&
           minor(st.st_rdev) == PTMX_MINOR;
}

static int take_master(struct terminal *terminal, int fd)
{
    terminal->master = fd;
    hc_set_nonblock(fd, true);
    terminal->watch = hc_loop_watch(sandbox_loop(terminal->fixture.sandbox), fd, EPOLLIN, on_master, terminal);
    return terminal->watch ? 0 : -ENOMEM;
}

static void on_door(struct hc_loop *loop, int door, uint32_t events, void *data)
{
    (void)loop, (void)events;
    struct terminal *terminal = data;
    char byte;
    int fd = -1;
    size_t count = 0;
    ssize_t size = hc_recv_fds(door, &byte, 1, &fd, 1, &count);
    if (size == -EAGAIN || size == -EINTR)
        return;
    hc_watch_remove(terminal->door_watch);
    terminal->door_watch = NULL;
    terminal->door = hc_close(terminal->door);
    if (size != 1 || count != 1)
        return; /* its end says why */
    if (!is_master(fd) || take_master(terminal, fd) < 0) {
        hc_close(fd);
        terminal->master = -1;
        terminal_end(terminal);
        return;
    }
    terminal_resize(terminal, terminal->cols, terminal->rows);
    leave_fds(terminal);
    sandbox_save(terminal->fixture.sandbox);
    if (terminal->attached && terminal->client.ready)
        terminal->client.ready(terminal->client.data, terminal);
}

/* ---- who is attached ---- */

static void on_forgotten(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct terminal *terminal = data;
    terminal->timer = NULL;
    terminal_end(terminal);
}

static void let_go(struct terminal *terminal)
{
    terminal->attached = false;
    terminal_more(terminal);
    sandbox_release(terminal->fixture.sandbox);
}

void terminal_attach(struct terminal *terminal, const struct terminal_client *client)
{
    struct terminal_client before = terminal->client;
    bool was = terminal->attached;
    hc_timer_remove(terminal->timer);
    terminal->timer = NULL;
    if (!was)
        sandbox_hold(terminal->fixture.sandbox);
    terminal->client = *client;
    terminal->attached = true;
    terminal_more(terminal);
    if (was)
        before.ended(before.data, NULL, NULL);
}

void terminal_detach(struct terminal *terminal, const void *data)
{
    if (!terminal->attached || terminal->client.data != data)
        return;
    terminal->timer =
        hc_loop_timer(sandbox_loop(terminal->fixture.sandbox), hc_now() + terminal->wait, on_forgotten, terminal);
    let_go(terminal);
}

/* ---- its end ---- */

static void on_ended(struct box_job *job, const struct warden_message *message)
{
    struct terminal *terminal = job->data;
    struct sandbox *sandbox = terminal->fixture.sandbox;
    /* Also for a client that is behind: there is no later for it, and the kernel holds no more than some pages. */
    for (int i = 0; i < DRAIN_READS && read_some(terminal); i++)
        continue;
    terminal->fixture.running = false;
    sandbox_hold(sandbox);
    if (terminal->attached) {
        struct terminal_client client = terminal->client;
        bool failed = message->facts.end == JOB_NOT_STARTED;
        let_go(terminal);
        client.ended(client.data, failed ? NULL : message, failed ? &message->err : NULL);
    }
    fixture_remove(&terminal->fixture);
    if (sandbox->box && sandbox->state == SANDBOX_RUNNING)
        sandbox_save(sandbox);
    sandbox_release(sandbox);
}

static void terminal_free(struct fixture *fixture)
{
    struct terminal *terminal = terminal_of(fixture);
    stop_watching(terminal);
    hc_watch_remove(terminal->door_watch);
    hc_timer_remove(terminal->timer);
    hc_close(terminal->door);
    hc_close(terminal->master);
    job_log_free(terminal->log);
    free(terminal->command);
    free(terminal);
}

void terminal_end(struct terminal *terminal)
{
    if (terminal->fixture.running)
        box_kill(&terminal->fixture.job, JOB_CANCELLED);
}

/* ---- for the next gateway ---- */

static json_t *terminal_save(const struct fixture *fixture)
{
    const struct terminal *terminal = terminal_of(fixture);
    if (terminal->master < 0)
        return NULL;
    return json_pack("{s:s, s:i, s:i, s:I}", "command", terminal->command, "cols", (int)terminal->cols, "rows",
                     (int)terminal->rows, "wait", (json_int_t)terminal->wait);
}

static struct fixture *terminal_restore(struct sandbox *sandbox, const json_t *saved, const struct warden_message *held,
                                        int *fds, size_t count)
{
    const char *command = json_string_value(json_object_get(saved, "command"));
    struct terminal *terminal = count == 2 && command && !held->over ? calloc(1, sizeof *terminal) : NULL;
    if (!terminal)
        return NULL;
    terminal->fixture.sandbox = sandbox;
    terminal->fixture.job = (struct box_job){.data = terminal, .ended = on_ended};
    terminal->door = terminal->master = -1;
    terminal->command = strdup(command);
    terminal->cols = (unsigned)json_integer_value(json_object_get(saved, "cols"));
    terminal->rows = (unsigned)json_integer_value(json_object_get(saved, "rows"));
    terminal->wait = (uint64_t)json_integer_value(json_object_get(saved, "wait"));
    terminal->log = job_log_open(HC_TAKE_FD(fds[0]));
    int result = take_master(terminal, HC_TAKE_FD(fds[1]));
    terminal->timer = hc_loop_timer(sandbox_loop(sandbox), hc_now() + terminal->wait, on_forgotten, terminal);
    if (!terminal->command || !terminal->log || result < 0 || !terminal->timer) {
        terminal_free(&terminal->fixture);
        return NULL;
    }
    return &terminal->fixture;
}

const struct fixture_kind terminal_kind = {
    .word = "terminal", .save = terminal_save, .restore = terminal_restore, .free = terminal_free};

/* ---- its beginning ---- */

static int start(struct terminal *terminal, const struct terminal_plan *plan)
{
    struct sandbox *sandbox = terminal->fixture.sandbox;
    int ends[2];
    hc_cleanup_fd int null = open("/dev/null", O_RDWR | O_CLOEXEC), block = -1, inside = -1;
    if (null < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return -errno;
    terminal->door = ends[0];
    inside = ends[1];
    hc_set_nonblock(terminal->door, true);
    terminal->door_watch = hc_loop_watch(sandbox_loop(sandbox), terminal->door, EPOLLIN, on_door, terminal);
    if (!terminal->door_watch)
        return -ENOMEM;
    block = argument_block(plan->cwd, plan->argv, plan->env);
    if (block < 0)
        return block;
    struct job_spec spec = {.kind = JOB_TERMINAL, .has_door = 1};
    plan_job_limits(&sandbox->limits, &spec.limits);
    spec.limits.wall = spec.limits.cpu_time = 0;
    int fds[5] = {null, null, null, block, inside};
    return box_start(sandbox->box, &terminal->fixture.job, &spec, fds, 5);
}

int terminal_start(struct sandbox *sandbox, const struct terminal_plan *plan, const struct terminal_client *client,
                   struct terminal **out, struct hc_err *err)
{
    if (!sandbox_box(sandbox, err))
        return -err->code;
    struct terminal *terminal = calloc(1, sizeof *terminal);
    if (!terminal)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    terminal->master = terminal->door = -1;
    terminal->cols = plan->cols;
    terminal->rows = plan->rows;
    terminal->wait = plan->wait;
    terminal->fixture.job = (struct box_job){.data = terminal, .ended = on_ended};
    terminal->command = strdup(plan->argv->item[plan->argv->count - 1]);
    terminal->log = job_log_new(TERMINAL_SCROLLBACK);
    int result = terminal->command && terminal->log ? fixture_add(&terminal->fixture, sandbox, &terminal_kind, "term_")
                                                    : -ENOMEM;
    if (result < 0) {
        terminal_free(&terminal->fixture);
        return hc_fail_errno(err, HC_CLASS_OURS, -result, "making a terminal");
    }
    result = start(terminal, plan);
    if (result < 0) {
        fixture_remove(&terminal->fixture);
        return hc_fail_errno(err, hc_class_of(-result, HC_CLASS_OURS), -result, "making a terminal");
    }
    terminal->fixture.running = true;
    terminal_attach(terminal, client);
    *out = terminal;
    return 0;
}

struct terminal *terminal_find(const struct sandbox *sandbox, const char *id)
{
    struct fixture *found = fixture_find(sandbox, &terminal_kind, id);
    return found && found->running ? terminal_of(found) : NULL;
}
