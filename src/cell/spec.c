/* Checks of what is asked of a cell, made by the warden before it acts, whatever the client has checked already. */
#include "cell/spec.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

static bool terminated(const char *text, size_t size)
{
    return memchr(text, '\0', size) != NULL;
}

/* Components that are not empty, "." or "..", with one slash between them. */
static bool clean_relative(const char *path)
{
    for (;;) {
        size_t length = strcspn(path, "/");
        if (length == 0 || (length == 1 && path[0] == '.') || (length == 2 && path[0] == '.' && path[1] == '.'))
            return false;
        path += length;
        if (*path++ == '\0')
            return true;
    }
}

static bool clean_absolute(const char *path)
{
    return path[0] == '/' && clean_relative(path + 1);
}

int cell_spec_check(const struct cell_spec *spec, const struct cell_mount *mounts, struct hc_err *err)
{
    if (!terminated(spec->hostname, sizeof spec->hostname) || !terminated(spec->work_dir, sizeof spec->work_dir))
        return hc_fail(err, HC_CLASS_OURS, EINVAL, "cell: a name is not terminated");
    if (!clean_absolute(spec->work_dir))
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "cell: work_dir %s", spec->work_dir);
    if (spec->disk < 4096 || spec->disk > (1ULL << 50) || spec->inodes < 1 || spec->inodes > (1ULL << 32))
        return hc_fail(err, HC_CLASS_REQUEST, ERANGE, "cell: disk or inodes out of range");
    if (spec->mount_count > CELL_MAX_MOUNTS)
        return hc_fail(err, HC_CLASS_REQUEST, E2BIG, "cell: too many mounts");
    if (spec->lookups > CELL_MAX_LOOKUPS)
        return hc_fail(err, HC_CLASS_REQUEST, E2BIG, "cell: too many names to look up");
    if (spec->flags & ~(uint32_t)CELL_WRITABLE_ROOT)
        return hc_fail(err, HC_CLASS_OURS, EINVAL, "cell: unknown flags %#x", spec->flags);
    for (uint32_t i = 0; i < spec->mount_count; i++) {
        const struct cell_mount *mount = &mounts[i];
        if (!terminated(mount->path, sizeof mount->path) || !clean_absolute(mount->path) ||
            (mount->host >= CELL_MAX_HOSTS && mount->host < CELL_FIRST_VOLUME) ||
            !terminated(mount->below, sizeof mount->below) || (mount->below[0] && !clean_relative(mount->below)))
            return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "cell: mount %u is not well-formed", i);
    }
    return 0;
}

int job_limits_check(const struct job_limits *limits, struct hc_err *err)
{
    if (limits->memory < (1 << 20) || limits->memory > (1ULL << 50) || limits->swap > (1ULL << 50) ||
        limits->pids < 1 || limits->pids > (1 << 22) || limits->cpu_milli > 1000000 || limits->files_open < 8 ||
        limits->files_open > (1 << 20) || limits->file_size < 4096 || limits->wall > 1000000ULL * 86400 * 366 ||
        limits->cpu_time > 1000000ULL * 86400 * 366)
        return hc_fail(err, HC_CLASS_REQUEST, ERANGE, "job: a limit is out of range");
    return 0;
}
