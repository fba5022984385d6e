/*
 * Errands: what is done with the files of a sandbox, by a helper inside it (cell/files.h). Its body comes and goes by
 * fds; its head, one line of JSON, is read here.
 */
#ifndef HC_SANDBOX_ERRAND_H
#define HC_SANDBOX_ERRAND_H

#include "sandbox/sandbox.h"

struct errand;

struct errand_events { /* from the loop, never from errand_start */
    void *data;
    /* Its head, which is only valid inside; NULL, and err, where there is none: the helper was killed, say. Comes
     * exactly once, before `ended`. A head with "ok": false is an error of the errand's: errand_error. */
    void (*head)(void *data, const json_t *head, const struct hc_err *err);
    /* The helper is gone: whatever it had to say on its body's fd is in there. The errand is freed after it. */
    void (*ended)(void *data, bool whole);
    bool looks; /* it is no use of the sandbox: its idle time goes on */
};

/* words: the operation, and key=value for each argument. input, output: for fds 0 and 1, which stay the caller's; -1:
 * nothing. `time`: µs, 0 for none. 0, or -errno and err. */
int errand_start(struct sandbox *sandbox, const struct words *words, int input, int output, uint64_t time,
                 const struct errand_events *events, struct errand **out, struct hc_err *err);
/* Ends it; nothing more is told. `fd`, if it is not -1, is closed when the helper is gone and not before: the end of a
 * body that was cut off must not look like its end. */
void errand_drop(struct errand *errand, int fd);
/* What a head says of a failure, as an error: its code decides the HTTP status. 0: it is none. */
int errand_error(const json_t *head, struct hc_err *err);

/* Removes a path, in the background; of a box that is gone nothing is left. NULL: nothing. */
void errand_remove(struct sandbox *sandbox, const char *path);

/* A word "key=value" into the list; 0 or -ENOMEM. */
int errand_word(struct words *words, const char *key, const char *value);
int errand_number(struct words *words, const char *key, uint64_t value);

#endif
