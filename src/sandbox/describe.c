/* A sandbox as JSON: the object of docs/SANDBOXES.md. */
#include "sandbox/internal.h"
#include "sandbox/kinds.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

const char *sandbox_time_text(int64_t when, char *text, size_t size)
{
    time_t seconds = (time_t)(when / 1000000);
    struct tm utc;
    size_t length = gmtime_r(&seconds, &utc) ? strftime(text, size, "%Y-%m-%dT%H:%M:%S", &utc) : 0;
    snprintf(text + length, size - length, ".%03dZ", (int)(when / 1000 % 1000));
    return text;
}

struct hc_loop *sandbox_loop(const struct sandbox *sandbox)
{
    return sandbox->all->loop;
}

static json_t *time_of(int64_t when)
{
    char text[40];
    return when ? json_string(sandbox_time_text(when, text, sizeof text)) : json_null();
}

static json_t *seconds_of(uint64_t microseconds)
{
    return microseconds ? json_real((double)microseconds / 1e6) : json_null();
}

static json_t *limits_of(const struct sandbox *sandbox)
{
    json_t *object = json_object();
    for (int id = 0; id < LIMIT_COUNT; id++) {
        uint64_t value = sandbox->limits.value[id];
        if (id == LIMIT_CPU_TIME)
            continue;
        json_object_set_new(object, limit_table[id].name,
                            limit_table[id].kind == LIMIT_KIND_DURATION ? json_real((double)value / 1e6)
                            : limit_table[id].kind == LIMIT_KIND_MILLI  ? json_real((double)value / 1e3)
                                                                        : json_integer((json_int_t)value));
    }
    return object;
}

static json_t *env_of(const struct sandbox *sandbox)
{
    json_t *object = json_object();
    for (size_t i = 0; i < sandbox->request->env.count; i++) {
        char name[256];
        const char *setting = sandbox->request->env.item[i];
        size_t length = strcspn(setting, "=");
        snprintf(name, sizeof name, "%.*s", (int)length, setting);
        json_object_set_new(object, name, hc_json_text_lossy(setting + length + (setting[length] == '=')));
    }
    return object;
}

static json_t *mounts_of(const struct sandbox *sandbox)
{
    json_t *list = json_array();
    for (size_t i = 0; i < sandbox->request->mount_count; i++) {
        const struct request_mount *mount = &sandbox->request->mounts[i];
        json_array_append_new(list, json_pack("{s:o, s:o, s:b}", "host", hc_json_text_lossy(mount->host), "path",
                                              hc_json_text_lossy(mount->path), "read_only", mount->read_only));
    }
    return list;
}

static json_t *metadata_of(const struct sandbox *sandbox)
{
    json_t *metadata = NULL;
    const char *text = sandbox->request->metadata;
    return text && hc_json_read(text, strlen(text), 64, &metadata, NULL) == 0 ? metadata : json_object();
}

json_t *sandbox_json(const struct sandbox *sandbox)
{
    json_t *object = json_pack("{s:s, s:s}", "id", sandbox->id, "state", sandbox_state_word(sandbox->state));
    if (!object)
        return NULL;
    struct {
        const char *name;
        json_t *value;
    } fields[] = {
        {"reason", sandbox->why.code ? hc_json_text_lossy(sandbox->why.message) : json_null()},
        {"image", json_string("host")},
        {"network", json_string("none")},
        {"read_only", json_boolean(!(sandbox->plan.cell.flags & CELL_WRITABLE_ROOT))},
        {"work_dir", hc_json_text_lossy(sandbox->plan.cell.work_dir)},
        {"limits", limits_of(sandbox)},
        {"env", env_of(sandbox)},
        {"mounts", mounts_of(sandbox)},
        {"volumes", sandbox_volumes_json(sandbox)},
        {"idle_timeout", seconds_of(sandbox->idle_timeout)},
        {"max_lifetime", seconds_of(sandbox->max_lifetime)},
        {"recover", json_boolean(sandbox->recover)},
        {"recovered", json_integer((json_int_t)sandbox->recovered)},
        {"metadata", metadata_of(sandbox)},
        {"created_at", time_of(sandbox->created_at)},
        {"last_used_at", time_of(sandbox->used_at)},
        {"expires_at", time_of(sandbox_expires(sandbox))},
        {"jobs", json_integer((json_int_t)fixture_count(sandbox, "job") + sandbox->holds)},
        {"sessions", json_integer((json_int_t)fixture_count(sandbox, "session"))},
        {"contexts", json_integer((json_int_t)fixture_count(sandbox, "context"))},
        {"terminals", json_integer((json_int_t)fixture_count(sandbox, "terminal"))},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        json_object_set_new(object, fields[i].name, fields[i].value);
    return object;
}
