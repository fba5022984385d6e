/*
 * Speakers: programs in a sandbox that keep their state from one piece of code to the next, and are talked to through a
 * door: shells (sessions) and interpreters (contexts). languages/README.md has what goes through the door.
 *
 * One call at a time. What a call writes comes by pipes of its own where the program can take fds, so that nothing of
 * an earlier call can get into it; where it cannot, by the program's own, which are emptied before a call begins.
 *
 * A call that takes too long is interrupted: everything that it started is ended, and the program gets SIGINT, which
 * leaves it its state. One that does not answer to that is ended. Who waits is told which it was.
 */
#ifndef HC_SANDBOX_SPEAKER_H
#define HC_SANDBOX_SPEAKER_H

#include "run/result.h"
#include "sandbox/sandbox.h"

extern const struct fixture_kind session_kind, context_kind;

enum speaker_state { SPEAKER_STARTING, SPEAKER_IDLE, SPEAKER_BUSY, SPEAKER_ENDED };

struct call;

struct speaker {
    struct fixture fixture;
    enum speaker_state state;
    char *name;     /* of a session */
    char *language; /* "python" */
    char version[64];
    bool takes_fds;
    uint32_t start;           /* enum job_start */
    bool has_said, has_begun; /* while it starts */
    uint64_t calls;
    int64_t used_at; /* µs since the epoch */
    int door, pipe[2];
    struct hc_watch *door_watch, *pipe_watch[2];
    struct hc_buf *frame; /* what has come of the next one */
    char *unsent;         /* of a frame that the program has not taken whole */
    size_t unsent_at, unsent_length;
    struct call *call; /* under way, or NULL */
    unsigned watchers; /* requests that look at it: it is not forgotten meanwhile */
    void *starter;     /* whom to tell that it is ready, or not */
    void (*started)(void *data, struct speaker *speaker, const struct hc_err *err);
};

struct speaker_plan {
    const char *language, *name; /* name NULL: it has none */
    const struct words *argv, *env;
    const char *cwd;
    uint64_t warm; /* what it may be forked from, or 0 */
};

/* `started` is called once, from the loop; with an error it is gone after that. 0 or -errno: nothing was started. */
int speaker_start(struct sandbox *sandbox, const struct fixture_kind *kind, const struct speaker_plan *plan,
                  void (*started)(void *data, struct speaker *speaker, const struct hc_err *err), void *starter,
                  struct speaker **out, struct hc_err *err);
struct speaker *speaker_find(const struct sandbox *sandbox, const struct fixture_kind *kind, const char *id_or_name);
void speaker_end(struct speaker *speaker);
/* Before an interrupt, by SIGURG: a shell then goes on with nothing of its call when its child has died, whatever that
 * died of (cell/session_builtin.c). Everybody else ignores it. */
void speaker_warn(struct speaker *speaker);
void speaker_interrupt(struct speaker *speaker); /* the call under way; nothing without one */
const char *speaker_state_word(const struct speaker *speaker);

struct call_outcome {
    enum run_status status;
    int exit_code, signal; /* of a shell's last command, or of the program where that has ended */
    struct capture out, err;
    json_t *results; /* what it showed: a list of {"type","data","of","value"} */
    json_t *error;   /* an object, or NULL */
    bool alive;      /* the program still has its state */
    uint64_t took;   /* µs */
};

struct call_events {
    void *data;
    void (*output)(void *data, int stream, const char *bytes, size_t length); /* within the cap; may be NULL */
    void (*display)(void *data, const json_t *entry);                         /* may be NULL */
    bool (*holds)(void *data, uint64_t bytes); /* so much is held for it; false: it must end. May be NULL */
    void (*ended)(void *data, struct call_outcome *outcome); /* once, from the loop. The outcome is released after it */
};

/* -EBUSY: another call is under way. `time` in µs, 0 for none; `cap`: bytes of each stream. */
int speaker_call(struct speaker *speaker, const char *code, size_t code_length, const char *input, size_t input_length,
                 uint64_t time, size_t cap, const struct call_events *events, struct call **out, struct hc_err *err);
void call_cancel(struct call *call);  /* interrupts it; `ended` follows with status killed */
void call_abandon(struct call *call); /* the same, and nobody is told any more */

#endif
