/*
 * See order.h. Most of it is what a run may ask for as well, and is read by the same code: the rest of the object, once
 * our own fields have been taken out, is a run's request whose program does not matter.
 */
#include "sandbox/order.h"

#include "base/fd.h"
#include "base/size.h"
#include "sandbox/internal.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ORDER_DEPTH = 32, LONGEST_SECONDS = 366 * 86400 };

/* Of a run's request: what a sandbox may be asked for with. */
static const char *const shared[] = {"limits", "env", "files", "read_only", "mounts", "network", "image", "metadata"};

static int fail(struct hc_err *err, const char *field, const char *text)
{
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s %s", field, text);
    return hc_err_field(err, "%s", field);
}

int order_duration(const json_t *value, const char *field, uint64_t *microseconds, struct hc_err *err)
{
    if (!value || json_is_null(value)) {
        *microseconds = 0;
        return 0;
    }
    if (json_is_string(value)) {
        if (hc_parse_duration(json_string_value(value), microseconds, err) == 0)
            return 0;
        return hc_err_field(err, "%s", field);
    }
    double seconds = json_is_number(value) ? json_number_value(value) : -1;
    if (seconds > LONGEST_SECONDS) {
        hc_fail(err, HC_CLASS_REQUEST, ERANGE, "%s is %g seconds, and %d (366 days) is the most", field, seconds,
                LONGEST_SECONDS);
        return hc_err_field(err, "%s", field);
    }
    if (!(seconds >= 0))
        return fail(err, field, "must be a number of seconds, 0 or more, or a text such as \"10m\"");
    *microseconds = (uint64_t)(seconds * 1e6);
    return 0;
}

static int read_time(json_t *order, const char *field, uint64_t usual, uint64_t longest, uint64_t *out,
                     struct hc_err *err)
{
    json_t *value = json_object_get(order, field);
    int result = 0;
    *out = usual;
    if (value)
        result = order_duration(value, field, out, err);
    json_object_del(order, field);
    if (result == 0 && value && longest && (*out == 0 || *out > longest)) {
        hc_fail(err, HC_CLASS_REQUEST, ERANGE, "%s is more than this server allows, which is %llu s", field,
                (unsigned long long)(longest / 1000000));
        return hc_err_field(err, "%s", field);
    }
    return result;
}

static int read_flag(json_t *order, const char *field, bool *out, struct hc_err *err)
{
    const json_t *value = json_object_get(order, field);
    if (value && !json_is_null(value) && !json_is_boolean(value))
        return fail(err, field, "must be true or false");
    *out = json_is_true(value);
    json_object_del(order, field);
    return 0;
}

/* A run has more fields, which mean nothing here: they are as unknown as any other. */
static int check_fields(json_t *order, struct hc_err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach(order, key, value)
    {
        bool known = false;
        for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
            known = known || strcmp(shared[i], key) == 0;
        if (known)
            continue;
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "unknown field \"%.64s\"", key);
        hc_err_field(err, "%.60s", key);
        return hc_err_remedy(err, "a sandbox takes limits, env, files, read_only, mounts, network, image, metadata, "
                                  "volumes, idle_timeout, max_lifetime and recover");
    }
    return 0;
}

static int read_rest(struct request *request, const json_t *order, struct hc_err *err)
{
    hc_cleanup_free char *text = hc_json_write(order, false);
    if (!text)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    int result = request_from_json(request, text, strlen(text), err);
    if (result == 0)
        result = request_add_command(request, "true", err);
    return result;
}

struct times {
    uint64_t idle, life;
    bool recover;
};

static int read_order(const struct config *config, const char *text, size_t length, struct request *request,
                      struct times *times, json_t **volumes, struct hc_err *err)
{
    hc_cleanup_json json_t *order = NULL;
    const struct sandboxes_config *settings = &config->sandboxes;
    int result = hc_json_read(text, length, ORDER_DEPTH, &order, err);
    if (result < 0)
        return result;
    if (!json_is_object(order))
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "the request must be a JSON object");
    result = read_time(order, "idle_timeout", settings->idle_timeout, settings->longest_lifetime, &times->idle, err);
    if (result == 0)
        result =
            read_time(order, "max_lifetime", settings->max_lifetime, settings->longest_lifetime, &times->life, err);
    if (result == 0)
        result = read_flag(order, "recover", &times->recover, err);
    *volumes = json_incref(json_object_get(order, "volumes"));
    json_object_del(order, "volumes");
    if (result == 0)
        result = check_fields(order, err);
    return result < 0 ? result : read_rest(request, order, err);
}

int order_read(struct sandbox *sandbox, const struct config *config, const char *text, size_t length,
               struct hc_err *err)
{
    struct times times = {0};
    struct plan plan = {.files = -1};
    struct sandbox_volume *volumes = NULL;
    size_t volume_count = 0;
    hc_cleanup_json json_t *list = NULL;
    struct request *request = request_new();
    int result = request ? read_order(config, text, length, request, &times, &list, err)
                         : hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    if (result == 0)
        result = plan_make(config, request, &plan, err);
    if (result == 0 && (result = sandbox_volumes_read(list, sandbox, &plan, &volumes, &volume_count, err)) < 0)
        plan_release(&plan);
    if (result < 0) {
        request_free(request);
        return result;
    }
    if (sandbox->request)
        plan_release(&sandbox->plan);
    request_free(sandbox->request);
    sandbox_volumes_forget(sandbox);
    free(sandbox->volumes);
    sandbox->volumes = volumes;
    sandbox->volume_count = volume_count;
    sandbox->request = request;
    sandbox->plan = plan;
    sandbox->limits = plan.stages[0].limits;
    sandbox->idle_timeout = times.idle;
    sandbox->max_lifetime = times.life;
    sandbox->recover = times.recover;
    return 0;
}
