/*
 * Driving a run: sends a plan's stages to a warden one after another, carries stdin, stdout and stderr, and makes the
 * result from what the warden reports. One run at a time on one loop; the server will have a drive for each run.
 */
#ifndef HC_RUN_DRIVE_H
#define HC_RUN_DRIVE_H

#include "run/plan.h"
#include "run/result.h"

enum { DRIVE_OUTPUT_FACTOR = 16, DRIVE_COLLECT_LIMIT = 64 << 20 };

typedef int (*drive_output_fn)(void *data, int stream, const char *bytes, size_t length);

struct drive_options {
    int input;  /* fd to feed stdin from, or -1: the request's own */
    int cancel; /* becomes readable when the run is to be ended, or -1 */
    drive_output_fn output;
    void *output_data;
    uint32_t required; /* the layers that must hold: the warden makes no cell otherwise */
    bool final;        /* the warden is not needed after this run */
    /* The warden's greeting, if it has not been read yet. A negative return refuses the run. */
    int (*hello)(void *data, const struct warden_message *message, struct hc_err *err);
    void *hello_data;
};

/* `warden`: the socket of a warden. What it is asked is sent at once, also before it has said HELLO: it reads it when
 * it is up. 0 with a filled result (also RUN_INTERNAL); negative when the greeting refused the run. */
int drive_run(int warden, const struct plan *plan, const struct drive_options *options, struct result *result,
              struct hc_err *err);

#endif
