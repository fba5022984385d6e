/*
 * Calls of tools: what a model asks for by name becomes requests of the HTTP interface, made by the same caller
 * (http_inside.h), and their replies become content that a model can read. POST /mcp and POST /v1/tools/{name} both end
 * here. The definitions are data: run/tools.json.
 */
#ifndef HC_GATEWAY_TOOLS_H
#define HC_GATEWAY_TOOLS_H

#include "gateway/gateway.h"
#include <jansson.h>

struct tools;     /* the definitions, loaded */
struct tool_call; /* one under way */

int tools_new(struct tools **out, struct hc_err *err);
void tools_free(struct tools *tools);
/* The tools whose names begin with `prefix` are now these (an array, borrowed; NULL: none). */
void tools_replace(struct tools *tools, const char *prefix, const json_t *list);
const json_t *tools_list(const struct tools *tools);                   /* borrowed: an array */
const json_t *tools_find(const struct tools *tools, const char *name); /* borrowed; NULL: there is none */

struct tool_events {
    void *data;
    /* Output of the program so far: the newest piece of it (UTF-8), and how many bytes there were in all. May be NULL:
     * then nobody wants to know. */
    void (*progress)(void *data, const char *text, size_t length, uint64_t total);
    /* Once, unless it was dropped: {"content": […], "structuredContent": {…}, "isError": true}, as MCP has it; to be
     * released by who gets it. The call is gone after it. NULL: out of memory. */
    void (*done)(void *data, json_t *result);
};

/* `definition` is of tools_find, `from` the client's request, which must outlive the call. `arguments` may be NULL.
 * `done` may be called before this returns: *out is NULL then. Bad arguments are a result, not a failure: a model can
 * mend them. Negative: out of memory. */
int tool_call_start(struct gateway *gateway, const struct http_request *from, const json_t *definition,
                    const json_t *arguments, const struct tool_events *events, struct tool_call **out);
/* Nobody wants it any more: what it had begun is ended. NULL is fine. */
void tool_call_drop(struct tool_call *call);

/* A result that is only a sentence. NULL: out of memory. */
json_t *tool_text_result(const char *text, bool is_error);

#endif
