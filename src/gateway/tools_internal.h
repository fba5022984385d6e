/* The inside of tools*.c. Nobody else includes this but their unit test. */
#ifndef HC_GATEWAY_TOOLS_INTERNAL_H
#define HC_GATEWAY_TOOLS_INTERNAL_H

#include "base/buf.h"
#include "gateway/http_inside.h"
#include "gateway/tools.h"

enum {
    TOOL_REPLY_LIMIT = 64 << 20, /* bytes of one reply that are looked at */
    TOOL_TARGET_LIMIT = 32768,
    TOOL_TEXT_LIMIT = 64 << 20,
};

/* One request of a call. `target` and `body` are released by tools.c. */
struct tool_ask {
    enum http_method method;
    struct hc_buf target;
    json_t *json; /* the body, or NULL */
    char *bytes;  /* the body instead, as application/octet-stream; malloc'ed */
    size_t length;
    bool streamed; /* it can be had as events, with output as it comes */
};

struct tool_row {
    const char *name;
    /* Fills the request of call->step, which begins at 0. */
    int (*ask)(struct tool_call *call, struct tool_ask *ask, struct hc_err *err);
    /* A reply was a 2xx. 1: call->step is that of another request; 0: tool_finish was called; negative: err is the
     * result. */
    int (*take)(struct tool_call *call, struct hc_err *err);
};

struct tool_call {
    struct gateway *gateway;
    const struct http_request *from;
    const struct tool_row *row;
    json_t *definition;
    json_t *arguments;
    struct tool_events events;
    struct http_inside *inside;
    struct mcp_forward *forward; /* instead of it: the tool is an attached server's */
    int step;
    json_t *kept; /* a tool's own, between its steps; or NULL */
    /* The reply to the request that is under way. */
    int status;
    bool is_stream;
    struct hc_buf body; /* of a stream: what is not yet a whole event */
    char *last;         /* the result that a stream ended with */
    uint64_t output;    /* bytes that the program wrote so far */
    json_t *result;     /* what tool_finish was given */
};

/* ---- tools.c ---- */
/* The end of a call: takes `content` (an array) and `structured` (an object, or NULL). */
void tool_finish(struct tool_call *call, json_t *content, json_t *structured);
const char *tool_text(const struct tool_call *call, const char *name); /* a text among the arguments, or NULL */
const json_t *tool_argument(const struct tool_call *call, const char *name);

/* ---- tools_check.c ---- */
/* Whether `value` is as the JSON Schema says, for the keywords that tools.json uses. */
int tool_check(const json_t *value, const json_t *schema, struct hc_err *err);
/* What of `value` the schema speaks of: an object loses the members that it does not name. A new reference. */
json_t *tool_project(const json_t *value, const json_t *schema);

/* ---- tools_result.c: content ---- */
void content_add_text(json_t *content, const char *text, size_t length);
/* By what is in it: an image, a text or a blob, with `uri` as its address. */
void content_add_bytes(json_t *content, const char *uri, const char *path, const char *bytes, size_t length);
const char *content_image_type(const char *bytes, size_t length); /* "image/png", …; NULL: it is none */
const char *content_type_of(const char *path, const char *bytes, size_t length);
/* The result of a run, an exec or a job. */
void result_content(json_t *content, const json_t *result);
/* An object as text, for a result that has no better form. */
void content_add_json(json_t *content, const json_t *value);

/* ---- requests ---- */
/* Adds "/v1/sandboxes/ID", by the argument "sandbox". */
int ask_sandbox(const struct tool_call *call, struct tool_ask *ask, struct hc_err *err);
/* Adds an id of the arguments as a component of the path. */
int ask_id(const struct tool_call *call, const char *name, struct tool_ask *ask, struct hc_err *err);
void ask_encoded(struct tool_ask *ask, const char *text, bool keep_slashes);
/* Adds the arguments of these names (NULL-terminated), where they are given, as a query. */
void ask_query(const struct tool_call *call, struct tool_ask *ask, const char *const *names);
/* Copies the arguments of these names into an object, under the same names. */
void ask_copy(const struct tool_call *call, json_t *object, const char *const *names);
/* The body of the reply as JSON; NULL with the error set. */
json_t *reply_read(const struct tool_call *call, struct hc_err *err);
/* The reply, projected by the tool's output schema, and as text. */
int take_json(struct tool_call *call, struct hc_err *err);

/* ---- the rows ---- */
extern const struct tool_row TOOLS_RUN[], TOOLS_SANDBOX[], TOOLS_FILES[]; /* each ends with a row without a name */

#endif
