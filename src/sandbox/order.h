/* What a sandbox is asked for with: the JSON of POST /v1/sandboxes, read and checked. */
#ifndef HC_SANDBOX_ORDER_H
#define HC_SANDBOX_ORDER_H

#include "sandbox/sandbox.h"

/* Fills request, plan, limits, times and flags of the sandbox. On failure the sandbox is as it was. */
int order_read(struct sandbox *sandbox, const struct config *config, const char *text, size_t length,
               struct hc_err *err);

/* A time in JSON: a number of seconds, or text such as "10m". `field` names it. */
int order_duration(const json_t *value, const char *field, uint64_t *microseconds, struct hc_err *err);

#endif
