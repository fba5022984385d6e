/*
 * A run as server-sent events: start, stage, stdout, stderr, result, as text of text/event-stream.
 *
 * The id of an event says how much had been told when it was sent: "start", "<stage>-<bytes of stdout>-<bytes of
 * stderr>" within a stage, "end". So going on after an id needs no list of what was sent to whom, only what the streams
 * have shown, which is in memory while a run is fresh and in the store afterwards. Every byte is told exactly once,
 * whatever the sizes of the pieces in which it came and wherever a reader lost its connection.
 */
#ifndef HC_GATEWAY_EVENTS_H
#define HC_GATEWAY_EVENTS_H

#include "base/buf.h"
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EVENTS_ID_SIZE = 72, EVENTS_PIECE = 32 << 10 /* bytes of output in one event, at most */ };

enum events_phase {
    EVENTS_NOTHING, /* nothing was told */
    EVENTS_STARTED, /* start */
    EVENTS_STAGE,   /* that `stage` has begun, and `offset` bytes of its stdout and stderr */
    EVENTS_OVER,    /* all */
};

struct events_position {
    enum events_phase phase;
    size_t stage;
    uint64_t offset[2];
};

/* 0, or -EINVAL: it is not an id of ours. */
int events_parse_id(const char *text, struct events_position *position);
/* `text` has EVENTS_ID_SIZE bytes; returned for convenience. Not for EVENTS_NOTHING, which has no id. */
const char *events_format_id(const struct events_position *position, char *text);

struct events_stage {
    const char *name;
    const char *bytes[2]; /* what stdout and stderr have shown so far */
    size_t length[2];
};

struct events_source { /* what there is to tell */
    const char *id;    /* of the run */
    size_t stage_count;
    bool over; /* no more will come */
    void *data;
    void (*stage)(void *data, size_t index, struct events_stage *out);
};

/* Whether the position can be one of this run: it is not beyond what there is. */
bool events_position_fits(const struct events_position *position, const struct events_source *source);
/* Appends the event that comes after the position, and moves it. 1; 0 when there is none yet; 2 when only the result is
 * left, which the caller writes (events_result_begin, the JSON on one line, EVENTS_RESULT_END); -ENOMEM. */
int events_next(struct events_position *position, const struct events_source *source, struct hc_buf *out);
int events_result_begin(struct events_position *position, struct hc_buf *out);
#define EVENTS_RESULT_END "\n\n"

/* ---- what is kept of the streams of a run that is over ---- */

/* Everything that the source has to tell but the result, as JSON text, for the store. malloc'ed; NULL: no memory. */
char *events_pack(const struct events_source *source);
struct events_kept;
/* From that text; or, without it, from the result: its streams are those of its last stage. */
int events_kept_new(const char *log, size_t log_length, const char *result, size_t result_length,
                    struct events_kept **out, struct hc_err *err);
void events_kept_free(struct events_kept *kept);
/* The source lives as long as `kept`. */
void events_kept_source(struct events_kept *kept, const char *id, struct events_source *source);

#endif
