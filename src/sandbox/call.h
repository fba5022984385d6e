/* One call of a speaker: what speaker.c and call.c share. */
#ifndef HC_SANDBOX_CALL_H
#define HC_SANDBOX_CALL_H

#include "sandbox/speaker.h"

struct call {
    struct speaker *speaker;
    uint64_t id;
    struct call_events events;
    struct call_outcome outcome;
    int pipe[2];
    struct hc_watch *watch[2];
    struct hc_timer *timer;
    uint64_t begun, held;
    enum run_status ending; /* RUN_COMPLETED: nobody has ended it yet */
    bool abandoned, killed, asked_again;
};

/* Its pipes, of which the other ends go to fds[0] and fds[1], the caller's. */
int call_open_pipes(struct call *call, int *fds);
int call_arm(struct call *call, uint64_t time); /* its clock begins: µs, 0 for none. 0 or -ENOMEM */
void call_take_output(struct call *call, int stream, const char *bytes, size_t length);
/* A frame about it: a display, or that it is done, which ends it. */
void call_frame(struct call *call, const json_t *frame);
/* Its program is gone. */
void call_lost(struct call *call, const struct warden_message *message);

#endif
