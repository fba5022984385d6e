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
};

/* `warden`: the socket of a warden that has said HELLO. 0 with a filled result (also RUN_INTERNAL); -ENOMEM. */
int drive_run(int warden, const struct plan *plan, const struct drive_options *options, struct result *result,
              struct hc_err *err);

#endif
