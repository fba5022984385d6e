/*
 * The volumes of a sandbox: read from its order, and opened, each by the server, before there is a cell for them. What
 * is opened has a number, which the cell is asked for with; the number is good for a while, and for no other volume.
 */
#include "run/policy.h"
#include "sandbox/internal.h"
#include "sandbox/order.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(struct hc_err *err, size_t index, const char *field, const char *text)
{
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "volumes[%zu]%s %s", index, field, text);
    return hc_err_field(err, "volumes[%zu]%s", index, field);
}

/* ---- the order ---- */

static int check_fields(const json_t *row, size_t index, struct hc_err *err)
{
    static const char *const known[] = {"name", "path", "read_only"};
    const char *key;
    json_t *value;
    if (!json_is_object(row))
        return fail(err, index, "", "must be an object: {\"name\", \"path\", \"read_only\"}");
    json_object_foreach((json_t *)row, key, value)
    {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            found = found || strcmp(known[i], key) == 0;
        if (found)
            continue;
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "volumes[%zu] has an unknown field \"%.64s\"", index, key);
        hc_err_field(err, "volumes[%zu].%.40s", index, key);
        return hc_err_remedy(err, "a volume takes name, path and read_only");
    }
    return 0;
}

static const char *text_of(const json_t *row, const char *field)
{
    const json_t *value = json_object_get(row, field);
    bool plain = json_is_string(value) && strlen(json_string_value(value)) == json_string_length(value);
    return plain ? json_string_value(value) : NULL;
}

static bool is_under(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 && (path[length] == '\0' || path[length] == '/');
}

/* One of the two would be hidden, or made within the other. */
static int check_apart(const struct plan *plan, const char *path, size_t index, struct hc_err *err)
{
    for (uint32_t i = 0; i < plan->cell.mount_count; i++)
        if (is_under(path, plan->mounts[i].path) || is_under(plan->mounts[i].path, path))
            return fail(err, index, ".path", "is the same as another mount's, or below or above it");
    if (is_under(plan->cell.work_dir, path) && strcmp(plan->cell.work_dir, path) != 0)
        return fail(err, index, ".path", "is above the working directory");
    return 0;
}

static int read_one(const json_t *row, size_t index, struct plan *plan, struct sandbox_volume *volume,
                    struct hc_err *err)
{
    const char *name = text_of(row, "name"), *path = text_of(row, "path");
    const json_t *read_only = json_object_get(row, "read_only");
    char canonical[sizeof plan->mounts[0].path];
    int result = check_fields(row, index, err);
    if (result < 0)
        return result;
    if (!name || !path)
        return fail(err, index, name ? ".path" : ".name", "must be a text");
    if (read_only && !json_is_null(read_only) && !json_is_boolean(read_only))
        return fail(err, index, ".read_only", "must be true or false");
    if (volume_check_name(name, err) < 0)
        return hc_err_field(err, "volumes[%zu].name", index);
    if (policy_check_target(path, canonical, sizeof canonical, err) < 0)
        return hc_err_field(err, "volumes[%zu].path", index);
    if (plan->cell.mount_count == CELL_MAX_MOUNTS)
        return fail(err, index, "", "is one too many: a sandbox has 16 mounts and volumes at most");
    result = check_apart(plan, canonical, index, err);
    if (result < 0)
        return result;
    struct cell_mount *mount = &plan->mounts[plan->cell.mount_count];
    *mount = (struct cell_mount){.host = CELL_FIRST_VOLUME, .read_only = json_is_true(read_only)};
    snprintf(mount->path, sizeof mount->path, "%s", canonical);
    snprintf(volume->name, sizeof volume->name, "%s", name);
    volume->mount = plan->cell.mount_count++;
    return 0;
}

int sandbox_volumes_read(const json_t *list, struct sandbox *sandbox, struct plan *plan, struct sandbox_volume **out,
                         size_t *count, struct hc_err *err)
{
    *out = NULL;
    *count = 0;
    if (!list || json_is_null(list))
        return 0;
    if (!json_is_array(list) || json_array_size(list) > CELL_MAX_MOUNTS) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "volumes must be a list of at most %d", CELL_MAX_MOUNTS);
        return hc_err_field(err, "volumes");
    }
    if (json_array_size(list) == 0)
        return 0;
    struct sandbox_volume *volumes = calloc(json_array_size(list), sizeof *volumes);
    int result = volumes ? 0 : hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    for (size_t i = 0; i < json_array_size(list) && result == 0; i++) {
        volumes[i].sandbox = sandbox;
        result = read_one(json_array_get(list, i), i, plan, &volumes[i], err);
    }
    if (result < 0) {
        free(volumes);
        return result;
    }
    *out = volumes;
    *count = json_array_size(list);
    return 0;
}

/* ---- opening ---- */

void sandbox_volumes_forget(struct sandbox *sandbox)
{
    const struct sandboxes_events *events = &sandbox->all->events;
    for (size_t i = 0; i < sandbox->volume_count; i++) {
        if (sandbox->volumes[i].waits)
            events->forget_volume(events->data, &sandbox->volumes[i]);
        sandbox->volumes[i].waits = false;
    }
}

int sandbox_volumes_open(struct sandbox *sandbox, struct hc_err *err)
{
    const struct sandboxes_events *events = &sandbox->all->events;
    sandbox->file_size = 0;
    for (size_t i = 0; i < sandbox->volume_count; i++) {
        struct sandbox_volume *volume = &sandbox->volumes[i];
        int result = events->open_volume ? events->open_volume(events->data, sandbox->tenant, volume->name, volume, err)
                                         : hc_fail(err, HC_CLASS_HOST, EOPNOTSUPP, "there are no volumes here");
        if (result < 0) {
            sandbox_volumes_forget(sandbox);
            return result;
        }
        volume->waits = true;
    }
    return 0;
}

void sandbox_volume_opened(struct sandbox_volume *volume, uint32_t host, uint64_t size, const struct hc_err *err)
{
    struct sandbox *sandbox = volume->sandbox;
    volume->waits = false;
    if (err) {
        struct hc_err why = *err;
        hc_err_field(&why, "volumes");
        sandbox_volumes_forget(sandbox);
        sandbox_begun(sandbox, &why);
        return;
    }
    struct cell_mount *mount = &sandbox->plan.mounts[volume->mount];
    mount->host = host;
    if (!mount->read_only && size + (1 << 20) > sandbox->file_size)
        sandbox->file_size = size + (1 << 20);
    for (size_t i = 0; i < sandbox->volume_count; i++)
        if (sandbox->volumes[i].waits)
            return;
    sandbox_begun(sandbox, NULL);
}

/* ---- looking ---- */

bool sandbox_has_volume(const struct sandbox *sandbox, const char *tenant, const char *name)
{
    bool alive = sandbox->state != SANDBOX_STOPPING && (sandbox->state != SANDBOX_FAILED || sandbox->recover);
    if (!alive || strcmp(sandbox->tenant, tenant) != 0)
        return false;
    for (size_t i = 0; i < sandbox->volume_count; i++)
        if (strcmp(sandbox->volumes[i].name, name) == 0)
            return true;
    return false;
}

json_t *sandbox_volumes_json(const struct sandbox *sandbox)
{
    json_t *list = json_array();
    for (size_t i = 0; i < sandbox->volume_count; i++) {
        const struct cell_mount *mount = &sandbox->plan.mounts[sandbox->volumes[i].mount];
        json_array_append_new(list, json_pack("{s:s, s:s, s:b}", "name", sandbox->volumes[i].name, "path", mount->path,
                                              "read_only", mount->read_only));
    }
    return list;
}
