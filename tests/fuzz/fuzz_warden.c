/*
 * The warden's messages, from a client that may send anything, and its life between them: cells are built or not,
 * programs end or fail to start, interpreters wait and are asked, answer or die, clients go and others come, in any
 * order that the input says. The warden's own files are compiled in here, with its sockets and its loop; only what
 * needs its rights is played (played.h).
 *
 * Checked: what the warden hands on has passed its checks; two living cells have not the same uids; a job that was
 * asked for is answered exactly once, and so is a question about a cell that lasts; when the keeper goes and everything
 * has ended, no cell, fd or memory is left.
 *
 * The input is a row of steps: one byte says what happens, those after it with what.
 */
#include "base/fd.h"
#include "cell/image.h"
#include "cell/warm.h"
#include "kernel/landlock.h"
#include "kernel/later.h"
#include "kernel/seccomp.h"
#include "kernel/sys.h"
#include "warden/warden.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_PLAYED = 512, STEPS = 400, ROOT_FD = 1000000 /* never opened */ };

#define check(holds) check_at(holds, __LINE__)
static void check_at(int holds, int line)
{
    if (!holds) {
        fprintf(stderr, "fuzz_warden.c:%d: it does not hold\n", line);
        abort();
    }
}

/* ---- the input ---- */

static const uint8_t *input;
static size_t input_left;

static uint8_t next_byte(void)
{
    if (input_left == 0)
        return 0;
    input_left--;
    return *input++;
}

#include "played.h"
#include "played_groups.h"

/* The client reads while the warden speaks: a list of what is held can be longer than the socket has room for. */
static int played_send(int socket, const void *data, size_t length, const int *fds, size_t count);

/* ---- the warden ---- */

enum { DONE = 1, IN_HASTE };
static jmp_buf over;

static _Noreturn void leave(int code)
{
    (void)code;
    longjmp(over, DONE);
}

static _Noreturn void leave_in_haste(int code)
{
    (void)code;
    longjmp(over, IN_HASTE);
}

int warden_main(void);
#define main warden_main
#define exit leave
#define _exit leave_in_haste
#define syscall(number, type, fd, info, options, usage) ((void)(usage), played_wait(fd, info))
#define entry_limits(pid, limits, held, err) played_limits(pid, limits)
#define entry_limit_files(pid, limits, err) ((void)(limits), (pid) > 0 ? 0 : -ESRCH)
#define hc_clone(flags, group, pidfd) play_zygote(pidfd)
#define hc_pidfd_signal played_signal
#define hc_now played_now
#define hc_loop_timer played_timer
#define hc_timer_remove played_timer_remove
/* Each file has names of its own. */
#include "../../src/warden/job.c"
#include "../../src/warden/job_exit.c"
#define hc_send_fds played_send
#include "../../src/warden/main.c"
#undef hc_send_fds
#define kill played_kill
#define cgroup_inner_create played_inner_create
#define cgroup_inner_kill played_inner_kill
#define cgroup_inner_remove played_inner_remove
#define cgroup_freeze played_freeze
#define sweep sweep_of_job
#include "../../src/warden/lasting.c"
#undef kill
#undef cgroup_inner_create
#undef cgroup_inner_kill
#undef cgroup_inner_remove
#undef cgroup_freeze
#undef sweep
#include "../../src/warden/supervise.c"
#define FAILED_PAUSE_US POOL_FAILED_PAUSE_US
#include "../../src/warden/pool.c"
#undef FAILED_PAUSE_US
#define FAILED_PAUSE_US PRIMED_FAILED_PAUSE_US
#define on_door on_primed_door
#include "../../src/warden/primed.c"
#undef FAILED_PAUSE_US
#undef on_door
#define FAILED_PAUSE_US ZYGOTE_FAILED_PAUSE_US
#define on_door on_zygote_door
#define socketpair played_socketpair
#include "../../src/warden/warm.c"
#undef socketpair
#undef entry_limits
#undef entry_limit_files
#undef hc_clone
#undef hc_pidfd_signal
#undef hc_now
#undef hc_loop_timer
#undef hc_timer_remove
#undef main
#undef exit
#undef _exit
#undef syscall

#include "forgotten.h"

/* ---- its client and its keeper ---- */

struct world {
    struct warden warden;
    int client, control, hosts; /* our ends */
    int wardens_control;        /* which main() has as a fixed number */
    size_t asked, answered;     /* jobs of this client, in cells that have a number */
    size_t questions, replies;  /* about cells that last */
    bool whole;                 /* it has been our only client */
    bool finishing;             /* nothing is sent any more */
};

static void drain(struct world *world)
{
    struct warden_message message;
    for (;;) {
        ssize_t size = recv(world->client, &message, sizeof message, MSG_DONTWAIT);
        if (size <= 0)
            return;
        check(size == (ssize_t)sizeof message && message.protocol == WARDEN_PROTOCOL);
        check(memchr(message.err.message, '\0', sizeof message.err.message) != NULL);
        check(memchr(message.err.remedy, '\0', sizeof message.err.remedy) != NULL);
        check(memchr(message.err.field, '\0', sizeof message.err.field) != NULL);
        struct reported calls = message.facts.calls;
        reported_check(&calls);
        check(memcmp(&calls, &message.facts.calls, sizeof calls) == 0);
        check(message.type != WARDEN_JOB_CALLS || (reported_any(&calls) && message.cell & WARDEN_LASTING));
        world->answered += message.type == WARDEN_JOB_ENDED;
        world->replies += message.type == WARDEN_CELL_USAGE || message.type == WARDEN_CELL_FREEZE ||
                          (message.type == WARDEN_HELD && message.cell == 0);
        check(!world->whole || (world->answered <= world->asked && world->replies <= world->questions));
    }
}

static struct world the_world;

static int played_send(int socket, const void *data, size_t length, const int *fds, size_t count)
{
    int result;
    while ((result = hc_try_send_fds(socket, data, length, fds, count)) == -EAGAIN)
        drain(&the_world);
    return result;
}

static void turn(struct world *world)
{
    for (int i = 0; i < 3; i++) {
        check(hc_loop_turn(world->warden.loop, 0) == 0);
        play_time(world->warden.loop, 0);
        drain(world);
    }
}

/* Mounts as a client hands them over; well-formed or not. */
static int mounts_file(uint32_t count)
{
    struct cell_mount mounts[CELL_MAX_MOUNTS];
    memset(mounts, 0, sizeof mounts);
    for (uint32_t i = 0; i < CELL_MAX_MOUNTS; i++)
        snprintf(mounts[i].path, sizeof mounts[i].path, "/m%u", i);
    uint8_t how = next_byte();
    if (how & 1)
        ((uint8_t *)mounts)[(next_byte() * 256u + next_byte()) % sizeof mounts] = next_byte();
    size_t length = sizeof mounts[0] * (count < CELL_MAX_MOUNTS ? count : CELL_MAX_MOUNTS);
    if (how & 2)
        length = next_byte();
    return hc_memfd_sealed("fuzz", mounts, length);
}

static int lookups_file(uint32_t length)
{
    static char names[CELL_MAX_LOOKUPS];
    uint32_t most = length < sizeof names ? length : sizeof names;
    return hc_memfd_sealed("fuzz", names, next_byte() % 4 == 3 ? next_byte() : most);
}

/* For a cell that lasts. */
static void make_lasting(struct warden_message *message)
{
    uint8_t how = next_byte();
    message->cell |= WARDEN_LASTING;
    message->lasting = 1;
    message->cell_limits = message->job_spec.limits;
    message->on = how & 1;
    message->verbose = how >> 1 & 1;
    message->since = how & 4 ? played_now() : 0;
    message->job_spec.has_door = how >> 3 & 1;
    message->job_spec.has_files = how >> 4 & 3;
    message->signal = next_byte() % 70 - 2;
}

static struct warden_message sound_message(uint32_t type)
{
    struct warden_message message = {.protocol = WARDEN_PROTOCOL, .type = type};
    uint8_t number = next_byte();
    message.cell = number % 128 % 5;
    message.job = next_byte() % 4;
    message.reason = next_byte() % 9;
    message.cell_spec =
        (struct cell_spec){.disk = 1 << 20, .inodes = 100, .hostname = "cell", .work_dir = "/workspace"};
    message.warm = next_byte() % 4;
    message.job_spec.warm = next_byte() % 4;
    message.job_spec.stage = next_byte() % 3;
    message.job_spec.limits = (struct job_limits){
        .memory = 64 << 20, .pids = 10, .files_open = 64, .file_size = 1 << 20, .cpu_shares = 1024, .wall = 1000000};
    if (number & 128)
        make_lasting(&message);
    return message;
}

/* The answers of a keeper, ready before they are asked for. */
static void prepare_hosts(struct world *world, uint32_t count)
{
    struct warden_message message;
    while (recv(world->hosts, &message, sizeof message, MSG_DONTWAIT) > 0)
        continue;
    for (uint32_t i = 0; i < count && i < CELL_MAX_MOUNTS; i++) {
        uint8_t how = next_byte();
        hc_cleanup_fd int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        message = (struct warden_message){.protocol = WARDEN_PROTOCOL, .type = WARDEN_HOST_WANTED};
        if (how & 1)
            hc_fail(&message.err, HC_CLASS_HOST, EACCES, "no such folder");
        (void)hc_try_send_fds(world->hosts, &message, sizeof message, &null,
                              how & 1 ? 0 : 1); /* what was not asked for is still there */
    }
}

static void send_message(struct world *world, bool sound)
{
    struct warden_message message = sound_message(next_byte() % 24);
    if (!sound) { /* a few bytes of it are anything */
        for (int i = next_byte() % 8; i >= 0; i--)
            ((uint8_t *)&message)[(next_byte() * 256u + next_byte()) % sizeof message] = next_byte();
    } else {
        uint8_t beside = next_byte();
        message.cell_spec.mount_count = beside % 4 == 3 ? next_byte() % 18 : 0;
        message.cell_spec.lookups = beside / 4 % 16 == 15 ? next_byte() * 33u : 0;
        message.job_spec.kind = next_byte() % (message.lasting ? 5 : 2);
        message.job_spec.last = next_byte() % 4 == 3;
    }
    size_t count = 0;
    int fds[WARDEN_KEEP_MAX + 2];
    if (message.type == WARDEN_CELL_NEW && (message.cell_spec.mount_count || message.cell_spec.lookups)) {
        prepare_hosts(world, message.cell_spec.mount_count);
        if (message.cell_spec.mount_count)
            check((fds[count++] = mounts_file(message.cell_spec.mount_count)) >= 0);
        if (message.cell_spec.lookups && next_byte() % 8 != 7)
            check((fds[count++] = lookups_file(message.cell_spec.lookups)) >= 0);
    } else {
        size_t wanted = 0;
        if (message.type == WARDEN_JOB_START)
            wanted = 4 + (message.job_spec.has_files != 0) + (message.job_spec.has_door != 0);
        else if (message.type == WARDEN_KEEP)
            wanted = next_byte() % (WARDEN_KEEP_MAX + 2);
        uint8_t other = next_byte();
        for (wanted = other % 8 == 7 ? other / 8 % 8 : wanted; count < wanted; count++)
            check((fds[count] = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0);
    }
    size_t length = !sound && next_byte() % 16 == 15 ? next_byte() : sizeof message;
    world->asked += message.type == WARDEN_JOB_START && message.cell != 0;
    world->questions +=
        message.type == WARDEN_HELD ||
        ((message.type == WARDEN_CELL_USAGE || message.type == WARDEN_CELL_FREEZE) && message.cell != 0);
    if (length != sizeof message || message.protocol != WARDEN_PROTOCOL)
        world->whole = false;
    if (length > 0 && hc_try_send_fds(world->client, &message, length, fds, count) < 0)
        world->whole = false; /* it is gone for the warden */
    for (size_t i = 0; i < count; i++)
        hc_close(fds[i]);
    turn(world);
    if (world->warden.client < 0)
        world->whole = false;
}

static void new_client(struct world *world)
{
    int ends[2];
    struct warden_message message = {.protocol = WARDEN_PROTOCOL, .type = WARDEN_CLIENT};
    if (!world->warden.service)
        return;
    check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    check(hc_try_send_fds(world->control, &message, sizeof message, &ends[1], 1) == 0);
    hc_close(ends[1]);
    hc_close(world->client);
    world->client = ends[0];
    world->whole = false;
    turn(world);
}

/* What is to be there before anybody asks for it. */
static void tell_keepers_wish(struct world *world)
{
    struct warden_message message = sound_message(next_byte() & 1 ? WARDEN_POOL : WARDEN_WARM);
    uint8_t how = next_byte();
    message.pool_spec = (struct pool_spec){.least = how & 1, .most = how >> 1 & 3, .cell = message.cell_spec};
    message.warm_spec = (struct warm_spec){.id = message.warm,
                                           .kind = how >> 2 & 1,
                                           .stages = 1 + (how >> 3 & 1),
                                           .eager = how >> 4 & 1,
                                           .least = 1,
                                           .most = 2,
                                           .forks = 1 + (how >> 5),
                                           .age = 1000000,
                                           .limits = message.job_spec.limits};
    size_t count = message.type == WARDEN_WARM ? message.warm_spec.stages + (how == 255) : 0;
    int fds[4];
    for (size_t i = 0; i < count; i++)
        check((fds[i] = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0);
    if (world->warden.service)
        check(hc_try_send_fds(world->control, &message, sizeof message, fds, count) == 0);
    for (size_t i = 0; i < count; i++)
        hc_close(fds[i]);
    turn(world);
}

/* Pauses, answers that do not come, programs that take too long, what is too old. */
static void let_time_pass(struct world *world)
{
    static const uint32_t steps[] = {600, 3000, 25000, 1100000, 5100000, 11000000, 31000000, 61000000};
    play_time(world->warden.loop, steps[next_byte() % 8]);
}

static void step(struct world *world)
{
    uint8_t what = next_byte() % 24;
    struct played *one = played_count ? &played[next_byte() % played_count] : NULL;
    if (what < 6)
        send_message(world, true);
    else if (what < 9)
        send_message(world, false);
    else if (what < 11 && one)
        tell_report(one, what == 10);
    else if (what < 14 && one)
        end_played(one);
    else if (what == 14)
        new_client(world);
    else if (what == 15) {
        world->client = hc_close(world->client);
        world->whole = false;
        turn(world);
        new_client(world);
    } else if (what < 18)
        tell_keepers_wish(world);
    else if (what < 20)
        let_time_pass(world);
    else if (one && one->kind == PLAYED_CELL && one->door >= 0)
        say_last_word(one);
    else if (one)
        play_door(one, next_byte());
    turn(world);
}

/* ---- the whole ---- */

static void set_up(struct world *world)
{
    int ends[2];
    uint8_t how = next_byte();
    played_count = 0;
    played_clock = 1000000000;
    *world = (struct world){.whole = true, .hosts = -1};
    struct warden *warden = &world->warden;
    *warden = (struct warden){.service = how & 1, .hosts = -1, .later = -1, .isolation = ISOLATION_ALL};
    warden->host.spare_net = warden->host.init_fd = warden->host.pid_namespace = -1;
    warden->host.many_uids = how & 2;
    warden->pool.room = 100;
    cgroup_base_init(&warden->host.cgroups);
    if (how & 4) /* programs for two stages can wait in one cell */
        warden->host.cgroups.dir[CGROUP_UNIFIED] = ROOT_FD;
    warden->loop = hc_loop_new();
    check(warden->loop != NULL);
    check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    warden->client = ends[0];
    world->client = ends[1];
    warden->client_watch = hc_loop_watch(warden->loop, ends[0], EPOLLIN, on_client, warden);
    check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    world->control = ends[1];
    world->wardens_control = ends[0];
    if (warden->service)
        warden->control_watch = hc_loop_watch(warden->loop, ends[0], EPOLLIN, on_control, warden);
    check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    warden->hosts = ends[0];
    world->hosts = ends[1];
}

static bool has_unended(const struct held_cell *cell)
{
    const struct held_job *job = cell->jobs;
    while (job && job->over)
        job = job->next;
    return job != NULL;
}

/* Everything ends by itself; then the keeper goes. The warden must follow: it leaves by way of `over`. */
static void finish_all(struct world *world)
{
    bool same = world->whole && world->warden.client >= 0;
    world->finishing = true;
    for (int round = 0; round < 8; round++) {
        for (size_t i = 0; i < played_count; i++)
            end_played(&played[i]);
        turn(world);
        play_time(world->warden.loop, 1100); /* a group that is still busy is tried again after a millisecond */
    }
    if (same && world->warden.client >= 0) {
        struct held_cell *cell = world->warden.cells;
        while (cell && (!has_unended(cell) || cell->place != PLACE_CLIENT))
            cell = cell->next;
        check(cell != NULL || world->answered == world->asked);
        check(world->replies == world->questions);
    }
    world->control = hc_close(world->control);
    world->client = hc_close(world->client);
    for (int round = 0; round < 8; round++) {
        turn(world);
        for (size_t i = 0; i < played_count; i++)
            end_played(&played[i]);
        play_time(world->warden.loop, 1100);
    }
    check(!"the warden stays although its keeper and its cells are gone");
}

/* How many there are, and the highest. */
static size_t open_fds(unsigned *highest)
{
    DIR *list = opendir("/proc/self/fd");
    size_t count = 0;
    check(list != NULL);
    for (struct dirent *entry; (entry = readdir(list)); count++) {
        unsigned number = (unsigned)strtoul(entry->d_name, NULL, 10);
        if (highest && number > *highest && (int)number != dirfd(list))
            *highest = number;
    }
    closedir(list);
    return count;
}

static void release(struct world *world)
{
    forget_cells(&world->warden);
    forget_zygotes(&world->warden);
    hc_loop_free(world->warden.loop);
    hc_close(world->warden.client);
    hc_close(world->warden.hosts);
    hc_close(world->wardens_control);
    hc_close(world->client);
    hc_close(world->control);
    hc_close(world->hosts);
    release_played();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned highest = 2;
    size_t before = open_fds(&highest);
    signal(SIGPIPE, SIG_IGN);
    input = data;
    input_left = size;
    set_up(&the_world);
    int code = setjmp(over);
    if (code == 0) {
        for (int i = 0; input_left > 0 && i < STEPS; i++)
            step(&the_world);
        finish_all(&the_world);
    }
    check(code == IN_HASTE || the_world.warden.cells == NULL);
    release(&the_world);
    if (code == DONE &&
        the_world.finishing) /* one that leaves in the middle of a message leaves its fds to the kernel */
        check(open_fds(NULL) == before);
    else
        hc_close_range(highest + 1, ~0U, 0);
    return 0;
}
