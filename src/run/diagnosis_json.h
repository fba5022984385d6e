/* A diagnosis as API.md has it. */
#ifndef HC_RUN_DIAGNOSIS_JSON_H
#define HC_RUN_DIAGNOSIS_JSON_H

#include "run/diagnose.h"
#include <jansson.h>

json_t *diagnosis_to_json(const struct diagnosis *diagnosis); /* NULL: out of memory */

#endif
