/* What request.c and request_json.c share, and nobody else needs. */
#ifndef HC_RUN_REQUEST_FIELDS_H
#define HC_RUN_REQUEST_FIELDS_H

#include "run/request.h"

int request_no_memory(struct hc_err *err);
/* "<field>: <what>", -EINVAL. */
int request_fail(struct hc_err *err, const char *field, const char *what);
/* An unknown field, with the nearest of the known ones as the remedy. */
int request_unknown(const char *field, const char *prefix, const char *const *known, size_t count, struct hc_err *err);
int request_unknown_limit(const char *name, const char *prefix, struct hc_err *err);

int blob_set(struct blob *blob, const char *data, size_t length); /* replaces; 0 or -ENOMEM */
int request_add_word(struct words *words, const char *field, const char *word, struct hc_err *err);
void request_stage_release(struct request_stage *stage);
void request_test_release(struct request_test *test);

#endif
