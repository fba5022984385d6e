/*
 * Whose key it is, and what is left of its quotas. The keys are a copy of the store's, read again whenever another
 * process has changed the database, so that a revoked key ends with the next request. A tenant's counters live as long
 * as the gateway; the CPU time of a day is also in the store and outlives it.
 *
 * What always holds: the time of an answer does not depend on which key was nearly right: every key is compared, whole
 * hashes against whole hashes. Counters are of keys that exist, so nobody can make them grow by asking.
 */
#include "gateway/tenants.h"

#include "base/fd.h"
#include "gateway/quota.h"
#include "text/json.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum { REFUSALS_PER_MINUTE = 20, RETRY_CONCURRENT = 1, USED_EVERY = 60 * 1000000, DENIED_EVERY = 60 * 1000000 };

struct tenant {
    struct tenant *next;
    char name[64];
    struct quota_window minute;
    uint64_t running;
    int64_t day; /* of cpu_us; -1: not asked yet */
    uint64_t cpu_us;
    int64_t noted_at;  /* when the store was last told that the key was used */
    int64_t denied_at; /* when the audit log was last told that a quota was used up */
};

struct tenants {
    struct gateway *gateway;
    struct key_row *keys;
    size_t key_count;
    uint64_t version; /* of the store when they were read */
    bool read;
    struct tenant *list;
    struct quota_window refusals;
    uint64_t refusals_left_out;
};

static int64_t epoch_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* ---- keys ---- */

struct reading {
    struct key_row *keys;
    size_t count;
};

static int take_key(void *data, const struct key_row *row)
{
    struct reading *reading = data;
    struct key_row *keys = reallocarray(reading->keys, reading->count + 1, sizeof *keys);
    if (keys == NULL)
        return -ENOMEM;
    reading->keys = keys;
    keys[reading->count++] = *row;
    return 0;
}

/* On failure the old copy stays in force, and the next request tries again. */
static int refresh(struct tenants *tenants)
{
    struct store *store = tenants->gateway->store;
    uint64_t version = store_version(store);
    if (tenants->read && version == tenants->version)
        return 0;
    struct reading reading = {0};
    int result = store_key_list(store, take_key, &reading);
    if (result < 0) {
        free(reading.keys);
        return result;
    }
    free(tenants->keys);
    tenants->keys = reading.keys;
    tenants->key_count = reading.count;
    tenants->version = version;
    tenants->read = true;
    return 0;
}

int tenants_new(struct gateway *gateway, struct tenants **out, struct hc_err *err)
{
    struct tenants *tenants = calloc(1, sizeof *tenants);
    if (tenants == NULL)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    tenants->gateway = gateway;
    int result = refresh(tenants);
    if (result < 0) { /* without them nobody could be told from nobody: do not start */
        tenants_free(tenants);
        return hc_fail_errno(err, HC_CLASS_HOST, -result, "reading the keys");
    }
    *out = tenants;
    return 0;
}

void tenants_free(struct tenants *tenants)
{
    if (tenants == NULL)
        return;
    while (tenants->list != NULL) {
        struct tenant *next = tenants->list->next;
        free(tenants->list);
        tenants->list = next;
    }
    free(tenants->keys);
    free(tenants);
}

bool tenants_have_keys(struct tenants *tenants)
{
    refresh(tenants);
    return tenants->key_count > 0;
}

bool tenants_have_key_in_force(struct tenants *tenants)
{
    refresh(tenants);
    for (size_t i = 0; i < tenants->key_count; i++)
        if (tenants->keys[i].revoked_at == 0)
            return true;
    return false;
}

static const struct key_row *key_of(const struct tenants *tenants, const char *name)
{
    for (size_t i = 0; i < tenants->key_count; i++)
        if (tenants->keys[i].revoked_at == 0 && strcmp(tenants->keys[i].name, name) == 0)
            return &tenants->keys[i];
    return NULL;
}

static struct tenant *tenant_of(struct tenants *tenants, const char *name)
{
    for (struct tenant *tenant = tenants->list; tenant != NULL; tenant = tenant->next)
        if (strcmp(tenant->name, name) == 0)
            return tenant;
    struct tenant *tenant = calloc(1, sizeof *tenant);
    if (tenant == NULL)
        return NULL;
    snprintf(tenant->name, sizeof tenant->name, "%s", name);
    tenant->day = -1;
    tenant->next = tenants->list;
    tenants->list = tenant;
    return tenant;
}

/* ---- who asks ---- */

static const char *token_of(const struct http_request *request)
{
    static const char bearer[] = "Bearer ";
    const char *value = http_header(request, "authorization");
    if (value == NULL)
        return http_header(request, "x-api-key");
    if (strncasecmp(value, bearer, sizeof bearer - 1) != 0)
        return NULL;
    value += sizeof bearer - 1;
    return value + strspn(value, " ");
}

static void note_used(struct tenants *tenants, const char *name)
{
    struct tenant *tenant = tenant_of(tenants, name);
    int64_t now = epoch_now();
    if (tenant == NULL || (tenant->noted_at != 0 && now - tenant->noted_at < USED_EVERY))
        return;
    tenant->noted_at = now;
    store_key_used(tenants->gateway->store, name, now);
}

int tenants_identify(struct tenants *tenants, const struct http_request *request, struct caller *caller)
{
    const char *token = token_of(request);
    if (token == NULL)
        return -EACCES;
    refresh(tenants);
    unsigned char hash[32];
    store_key_hash(token, hash);
    const struct key_row *found = NULL;
    for (size_t i = 0; i < tenants->key_count; i++)
        if (store_key_equal(hash, tenants->keys[i].hash))
            found = &tenants->keys[i];
    if (found == NULL || found->revoked_at != 0)
        return -EACCES;
    *caller = (struct caller){0};
    snprintf(caller->tenant, sizeof caller->tenant, "%s", found->name);
    note_used(tenants, caller->tenant);
    return 0;
}

/* Takes the detail. */
static void write_refusal(struct tenants *tenants, const char *event, json_t *taken)
{
    hc_cleanup_json json_t *detail = taken;
    unsigned retry;
    if (tenants->gateway->audit == NULL)
        return;
    if (!quota_take(&tenants->refusals, REFUSALS_PER_MINUTE, hc_now() / 1000000, &retry)) {
        tenants->refusals_left_out++;
        return;
    }
    if (detail != NULL)
        json_object_set_new(detail, "left_out", json_integer((json_int_t)tenants->refusals_left_out));
    hc_cleanup_free char *text = detail != NULL ? hc_json_write(detail, false) : NULL;
    if (audit_add(tenants->gateway->audit, event, NULL, NULL, text) == 0)
        tenants->refusals_left_out = 0;
}

void tenants_note_refusal(struct tenants *tenants, const struct http_request *request, const char *event,
                          const char *why)
{
    write_refusal(tenants, event,
                  json_pack("{s:s, s:s, s:o, s:o}", "peer", request->peer, "method", request->method_name, "path",
                            hc_json_text_lossy(request->path), "why", hc_json_text_lossy(why)));
}

void tenants_note_nonsense(struct tenants *tenants, const char *peer, int status, const char *why)
{
    write_refusal(tenants, "request_refused",
                  json_pack("{s:s, s:i, s:o}", "peer", peer, "status", status, "why", hc_json_text_lossy(why)));
}

bool tenants_may_cache(struct tenants *tenants, const char *name)
{
    refresh(tenants);
    const struct key_row *key = key_of(tenants, name);
    return key == NULL || !key->no_compile_cache;
}

/* ---- quotas ---- */

static int over(struct hc_err *err, const char *quota, uint64_t limit, const char *remedy)
{
    hc_fail(err, HC_CLASS_REQUEST, EDQUOT, "this key's quota of %" PRIu64 " %s is used up", limit, quota);
    return hc_err_remedy(err, "%s", remedy);
}

/* The CPU time that the tenant has used today, also before this gateway started. */
static int load_day(struct tenants *tenants, struct tenant *tenant, int64_t now, struct hc_err *err)
{
    int64_t day = quota_day(now);
    if (tenant->day == day)
        return 0;
    uint64_t cpu_us = 0, runs = 0;
    int result = store_usage_get(tenants->gateway->store, tenant->name, day, &cpu_us, &runs);
    if (result < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, -result, "reading what this key has used today");
    tenant->day = day;
    tenant->cpu_us = cpu_us;
    return 0;
}

int tenants_run_begin(struct tenants *tenants, const char *name, unsigned *retry_seconds, struct hc_err *err)
{
    refresh(tenants);
    struct tenant *tenant = tenant_of(tenants, name);
    if (tenant == NULL)
        return hc_fail(err, HC_CLASS_HOST, ENOMEM, "out of memory");
    static const struct key_row unlimited = {0};
    const struct key_row *key = key_of(tenants, name);
    if (key == NULL)
        key = &unlimited;
    int64_t now = epoch_now();
    int result = load_day(tenants, tenant, now, err);
    if (result < 0)
        return result;
    if (key->cpu_seconds_per_day > 0 && tenant->cpu_us / 1000000 >= key->cpu_seconds_per_day) {
        *retry_seconds = quota_day_left(now);
        return over(err, "CPU seconds a day", key->cpu_seconds_per_day, "it begins anew at midnight UTC");
    }
    if (key->concurrent > 0 && tenant->running >= key->concurrent) {
        *retry_seconds = RETRY_CONCURRENT;
        return over(err, "runs at once", key->concurrent, "wait until one of them has ended");
    }
    if (!quota_take(&tenant->minute, key->runs_per_minute, hc_now() / 1000000, retry_seconds))
        return over(err, "runs a minute", key->runs_per_minute, "wait as long as Retry-After says");
    tenant->running++;
    return 0;
}

bool tenants_denial_is_news(struct tenants *tenants, const char *name)
{
    struct tenant *tenant = tenant_of(tenants, name);
    int64_t now = epoch_now();
    if (tenant == NULL || (tenant->denied_at != 0 && now - tenant->denied_at < DENIED_EVERY))
        return false;
    tenant->denied_at = now;
    return true;
}

void tenants_run_end(struct tenants *tenants, const char *name, uint64_t cpu_us)
{
    struct tenant *tenant = tenant_of(tenants, name);
    int64_t day = quota_day(epoch_now());
    if (tenant != NULL && tenant->running > 0)
        tenant->running--;
    if (tenant != NULL && tenant->day == day)
        tenant->cpu_us += cpu_us;
    store_usage_add(tenants->gateway->store, name, day, cpu_us, 1);
}
