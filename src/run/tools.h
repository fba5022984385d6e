/*
 * The tools that hotcell offers to models: their names, descriptions and schemas, as data (tools.json, put into the
 * program by the build). What a call of one does is in gateway/tools*.c; the command line prints them without a server.
 */
#ifndef HC_RUN_TOOLS_H
#define HC_RUN_TOOLS_H

#include "base/err.h"
#include <jansson.h>
#include <stddef.h>

extern const char tools_text[]; /* {"tools": [{"name", "title", "description", "inputSchema", …}]} */
extern const size_t tools_length;

/* The list of tools: a new reference. NULL: out of memory. */
json_t *tools_load(void);
/* A list of tools as "json" (as they are), "openai" (functions of its chat interface) or "anthropic" has it. -EINVAL:
 * no such format. */
int tools_format(const json_t *tools, const char *format, json_t **out, struct hc_err *err);

#endif
