/* For request_json.c: metadata that has been parsed already. */
#ifndef HC_RUN_REQUEST_METADATA_H
#define HC_RUN_REQUEST_METADATA_H

#include "run/request.h"
#include <jansson.h>

/* `object` stays the caller's. */
int request_take_metadata(struct request *request, const json_t *object, struct hc_err *err);

#endif
