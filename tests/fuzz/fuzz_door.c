/*
 * What a program in a sandbox may write to its door: frames whole, in pieces, too long or no frames at all, with output
 * beside them, while calls begin, are cancelled and are lost. The program is a guest: nothing that it writes may do
 * more than end its own calls. The real speaker, its calls and its sockets; only the sandbox and its box are played.
 *
 * Checked: a call that was made ends exactly once, and one that was abandoned is not told of; what it showed has a type
 * and data; what it wrote is told up to its cap; no fd and no memory is left.
 *
 * The input is a row of steps: one byte says what happens, those after it with what.
 */
#include "base/fd.h"
#include "sandbox/call.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STEPS = 200, CAP = 64, PIECE = 256 };

#define check(holds) check_at(holds, __LINE__)
static void check_at(int holds, int line)
{
    if (!holds) {
        fprintf(stderr, "fuzz_door.c:%d: it does not hold\n", line);
        abort();
    }
}

struct world {
    struct hc_loop *loop;
    struct sandbox sandbox;
    struct speaker *speaker;
    int door, output[2]; /* the program's ends */
    struct call *call;   /* that we are told the end of */
    size_t made, ended, abandoned;
    size_t told[2]; /* bytes of its output */
    int holds;
};

static struct world world; /* what is played has no other way to it */
static const uint8_t *input;
static size_t input_left;

static uint8_t next_byte(void)
{
    if (input_left == 0)
        return 0;
    input_left--;
    return *input++;
}

static size_t next_bytes(uint8_t *bytes)
{
    size_t length = next_byte();
    if (length > input_left)
        length = input_left;
    memcpy(bytes, input, length);
    input += length;
    input_left -= length;
    return length;
}

/* ---- the sandbox and its box, as a speaker has them ---- */

struct hc_loop *sandbox_loop(const struct sandbox *sandbox)
{
    (void)sandbox;
    return world.loop;
}

struct box *sandbox_box(struct sandbox *sandbox, struct hc_err *err)
{
    (void)err;
    return (struct box *)sandbox; /* not NULL; nobody looks into it */
}

void sandbox_save(struct sandbox *sandbox)
{
    (void)sandbox;
}

void sandbox_used(struct sandbox *sandbox)
{
    (void)sandbox;
}

void sandbox_hold(struct sandbox *sandbox)
{
    (void)sandbox;
    world.holds++;
}

void sandbox_release(struct sandbox *sandbox)
{
    (void)sandbox;
    check(world.holds-- > 0);
}

void sandbox_linger(struct sandbox *sandbox, int fd)
{
    (void)sandbox;
    hc_close(fd);
}

int box_start(struct box *box, struct box_job *job, const struct job_spec *spec, const int *fds, size_t count)
{
    check(spec->kind == JOB_PROGRAM && count == 4);
    job->box = box;
    job->number = 1;
    world.door = fcntl(fds[0], F_DUPFD_CLOEXEC, 3);
    for (int i = 0; i < 2; i++) {
        world.output[i] = fcntl(fds[1 + i], F_DUPFD_CLOEXEC, 3);
        hc_set_nonblock(world.output[i], true);
    }
    return 0;
}

int box_keep(struct box *box, const struct box_job *job, const int *fds, size_t count)
{
    (void)box, (void)job, (void)fds, (void)count;
    return 0;
}

void box_kill(struct box_job *job, enum job_end reason)
{
    check(job->number == 1 && reason == JOB_CANCELLED);
}

void box_signal(struct box *box, uint64_t job, int number)
{
    (void)box;
    check(job == 1 && (number == SIGURG || number == SIGINT));
}

void box_sweep(struct box_job *job, int number, uint64_t since)
{
    (void)since;
    check(job->number == 1 && number == SIGINT);
}

/* ---- who made the call ---- */

static void on_started(void *data, struct speaker *speaker, const struct hc_err *err)
{
    (void)data, (void)speaker, (void)err;
}

static void on_output(void *data, int stream, const char *bytes, size_t length)
{
    (void)data, (void)bytes;
    check(stream == 0 || stream == 1);
    check((world.told[stream] += length) <= CAP);
}

static void on_display(void *data, const json_t *entry)
{
    (void)data;
    check(json_is_string(json_object_get(entry, "type")) && json_object_get(entry, "data"));
}

static void on_ended(void *data, struct call_outcome *outcome)
{
    check(data == &world && world.call != NULL && world.ended < world.made);
    check(json_is_array(outcome->results) && (!outcome->error || json_is_object(outcome->error)));
    check(outcome->status == RUN_COMPLETED || outcome->exit_code != 0 || !outcome->alive);
    world.call = NULL;
    world.ended++;
}

/* ---- steps ---- */

static void turn(void)
{
    for (int i = 0; i < 3; i++)
        check(hc_loop_turn(world.loop, 0) == 0);
}

static void make_call(void)
{
    struct hc_err err = {0};
    struct call_events events = {.data = &world, .output = on_output, .display = on_display, .ended = on_ended};
    struct call *call = NULL;
    if (speaker_call(world.speaker, "1", 1, "x", next_byte() & 1, 0, CAP, &events, &call, &err) < 0)
        return;
    call->id = 1; /* the clock gave it one that no input could know */
    world.call = call;
    world.told[0] = world.told[1] = 0;
    world.made++;
}

static void give_up_call(bool told)
{
    if (!world.call)
        return;
    if (told) {
        call_cancel(world.call);
        return;
    }
    call_abandon(world.call);
    world.call = NULL;
    world.abandoned++;
}

static void write_door(bool framed)
{
    uint8_t bytes[PIECE + 4];
    size_t length = next_bytes(bytes + 4);
    bytes[0] = (uint8_t)length;
    bytes[1] = bytes[2] = bytes[3] = 0;
    (void)send(world.door, bytes + (framed ? 0 : 4), length + (framed ? 4 : 0), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void step(void)
{
    char bytes[4096];
    uint8_t text[PIECE], what = next_byte() % 12;
    if (what < 5)
        write_door(true);
    else if (what < 7)
        write_door(false);
    else if (what == 7)
        make_call();
    else if (what == 8)
        give_up_call(next_byte() & 1);
    else if (what == 9) {
        size_t length = next_bytes(text);
        (void)hc_write_all(world.output[length & 1], text, length);
    } else if (what == 10)
        (void)recv(world.door, bytes, sizeof bytes, MSG_DONTWAIT);
    else
        shutdown(world.door, SHUT_WR);
    turn();
}

static size_t open_fds(void)
{
    DIR *list = opendir("/proc/self/fd");
    size_t count = 0;
    check(list != NULL);
    while (readdir(list))
        count++;
    closedir(list);
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct words none = {0};
    struct speaker_plan plan = {.language = "python", .argv = &none, .env = &none, .cwd = "/"};
    struct hc_err err = {0};
    size_t before = open_fds();
    signal(SIGPIPE, SIG_IGN);
    input = data;
    input_left = size;
    world = (struct world){.loop = hc_loop_new(), .door = -1, .output = {-1, -1}};
    check(world.loop != NULL);
    check(speaker_start(&world.sandbox, &session_kind, &plan, on_started, NULL, &world.speaker, &err) == 0);
    for (int i = 0; input_left > 0 && i < STEPS; i++)
        step();
    struct warden_message message = {.type = WARDEN_JOB_ENDED, .job = 1};
    struct box_job *job = &world.speaker->fixture.job;
    job->ended(job, &message); /* and with it the speaker */
    check(world.call == NULL && world.ended + world.abandoned == world.made && world.holds == 0);
    hc_close(world.door);
    hc_close(world.output[0]);
    hc_close(world.output[1]);
    hc_loop_free(world.loop);
    check(open_fds() == before);
    return 0;
}
