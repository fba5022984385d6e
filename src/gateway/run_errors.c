/* What the history learns from a run: the fingerprint of its failure, and the shape of its code. */
#include "gateway/run_internal.h"
#include "run/diagnose.h"
#include "run/fingerprint.h"
#include "text/json.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static_assert((int)STORE_SHAPE_SLOTS == (int)SHAPE_SLOTS, "the store keeps what fingerprint.c makes");

/* Cut where a character ends: the store's text is UTF-8. */
static void copy_text(char *out, size_t size, const char *text)
{
    size_t length = strlen(text);
    if (length >= size) {
        length = size - 1;
        while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80)
            length--;
    }
    memcpy(out, text, length);
    out[length] = '\0';
}

static bool add_shape(const struct run *run, struct code_shape *shape)
{
    const struct request *request = run->work->request;
    shape_begin(shape);
    if (request == NULL)
        return false;
    if (request->has_code)
        shape_add(shape, request->code.data, request->code.length);
    for (size_t i = 0; !request->has_code && request->entry != NULL && i < request->file_count; i++)
        if (strcmp(request->files[i].path, request->entry) == 0)
            shape_add(shape, request->files[i].content.data, request->files[i].content.length);
    return !shape_is_empty(shape);
}

/* One that somebody ended, or that failed for our reasons, is no error of the program. */
static bool is_its_own(const struct result *result)
{
    return result->diagnosis != NULL && result->status != RUN_KILLED && result->status != RUN_INTERNAL;
}

void run_learn(struct run *run)
{
    const struct result *result = &run->work->result;
    struct run_row *row = &run->row;
    struct code_shape shape;
    row->error = (struct run_error){0};
    row->has_shape = false;
    bool good = result_success(result);
    if (!good && !is_its_own(result))
        return;
    row->has_shape = add_shape(run, &shape);
    memcpy(row->code_shape, shape.slot, sizeof row->code_shape);
    if (good)
        return;
    const struct diagnosis *found = result->diagnosis;
    copy_text(row->error.fingerprint, sizeof row->error.fingerprint, found->fingerprint);
    copy_text(row->error.category, sizeof row->error.category, found->category != NULL ? found->category : "");
    copy_text(row->error.error_type, sizeof row->error.error_type, found->error_type);
    copy_text(row->error.message, sizeof row->error.message, found->message);
}

/* ---- as JSON ---- */

static json_t *text_or_null(const char *text)
{
    return text[0] != '\0' ? hc_json_text_lossy(text) : json_null();
}

json_t *error_group_json(const struct error_group *group, bool tenant)
{
    char first[40], last[40];
    json_t *object =
        json_pack("{s:s, s:o, s:o, s:o, s:I, s:s, s:s, s:s, s:o, s:o}", "fingerprint", group->error.fingerprint,
                  "error_type", text_or_null(group->error.error_type), "category", text_or_null(group->error.category),
                  "language", text_or_null(group->language), "count", (json_int_t)group->count, "first_at",
                  run_time_text(group->first_at, first, sizeof first), "last_at",
                  run_time_text(group->last_at, last, sizeof last), "last_run", group->last_run, "message",
                  hc_json_text_lossy(group->error.message), "fixed_by", text_or_null(group->fixed_by));
    if (object != NULL && tenant)
        json_object_set_new(object, "tenant", hc_json_text_lossy(group->tenant));
    return object;
}

/* A store_error_fn. */
static int take_seen(void *data, const struct error_group *group)
{
    *(json_t **)data = error_group_json(group, false);
    return 1;
}

json_t *run_seen(struct store *store, const char *tenant, const char *fingerprint)
{
    json_t *seen = NULL;
    const struct error_filter filter = {.tenant = tenant, .fingerprint = fingerprint, .limit = 1};
    if (fingerprint != NULL && fingerprint[0] != '\0')
        store_error_list(store, &filter, take_seen, &seen);
    return seen != NULL ? seen : json_null();
}
