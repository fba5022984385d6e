/*
 * Groups within a group, for the jobs of a cell that lives on. The outer group has the limits and pid 1 of the cell; an
 * inner one has the processes of one job, and no controllers of its own: so the kernel lets both have processes
 * (cgroups version 2 forbids that only where controllers are handed out), and nobody has to be moved when a second job
 * comes.
 *
 * In version 2 and hybrid the inner group is a version 2 group, which can be ended by cgroup.kill and counts its CPU
 * time. With version 1 alone it is one of the pids hierarchy, which tells who belongs to the job.
 */
#include "base/fd.h"
#include "kernel/cgroup.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PROCS_SIZE = 64 * 1024 };

static int own_slot(const struct cgroup *group)
{
    return group->dir[CGROUP_UNIFIED] >= 0 ? CGROUP_UNIFIED : CGROUP_PIDS;
}

int cgroup_inner_create(const struct cgroup_base *base, const struct cgroup *outer, const char *name,
                        struct cgroup *inner, struct hc_err *err)
{
    cgroup_init(inner);
    snprintf(inner->name, sizeof inner->name, "%s", name);
    int slot = own_slot(outer), result = 0;
    if (outer->dir[slot] >= 0) {
        if (mkdirat(outer->dir[slot], name, 0755) < 0)
            return hc_fail_errno(err, HC_CLASS_HOST, errno, "making the control group %s of a job", name);
        inner->dir[slot] = openat(outer->dir[slot], name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        result = inner->dir[slot] < 0 ? -errno : 0;
    }
    /* A job joins the outer group where it has no inner one. */
    for (int other = 0; other < CGROUP_SLOTS && result == 0; other++)
        if (other != slot && outer->dir[other] >= 0 && base->mode != CGROUP_V2) {
            inner->dir[other] = fcntl(outer->dir[other], F_DUPFD_CLOEXEC, 3);
            result = inner->dir[other] < 0 ? -errno : 0;
        }
    if (result == 0)
        return 0;
    (void)cgroup_inner_remove(outer, inner);
    return hc_fail_errno(err, HC_CLASS_HOST, -result, "opening the control group %s of a job", name);
}

int cgroup_inner_remove(const struct cgroup *outer, struct cgroup *inner)
{
    int slot = own_slot(outer);
    if (outer->dir[slot] >= 0 && inner->name[0] && unlinkat(outer->dir[slot], inner->name, AT_REMOVEDIR) < 0 &&
        errno != ENOENT)
        return -errno;
    for (int other = 0; other < CGROUP_SLOTS; other++)
        inner->dir[other] = hc_close(inner->dir[other]);
    return 0;
}

int cgroup_inner_kill(const struct cgroup *inner, pid_t but)
{
    int dir = inner->dir[own_slot(inner)], count = 0;
    if (dir < 0)
        return -EOPNOTSUPP;
    if (but == 0 && cgroup_kill(inner) == 0)
        return 0;
    hc_cleanup_free char *text = malloc(PROCS_SIZE);
    ssize_t length = text ? hc_read_file_at(dir, "cgroup.procs", text, PROCS_SIZE) : -ENOMEM;
    if (length <= 0)
        return (int)length;
    char *save = NULL;
    for (char *word = strtok_r(text, "\n", &save); word; word = strtok_r(NULL, "\n", &save)) {
        long pid = strtol(word, NULL, 10);
        if (pid <= 1 || pid == but) /* 0: of a namespace that we do not see */
            continue;
        kill((pid_t)pid, SIGKILL);
        count++;
    }
    return count;
}

int cgroup_freeze(const struct cgroup *group, bool on)
{
    if (group->dir[CGROUP_UNIFIED] < 0)
        return -EOPNOTSUPP;
    return hc_write_file_at(group->dir[CGROUP_UNIFIED], "cgroup.freeze", on ? "1" : "0");
}

static void number(int dir, const char *file, uint64_t *value)
{
    unsigned long long found;
    if (dir >= 0 && hc_read_number_at(dir, file, NULL, &found) == 0)
        *value = found;
}

void cgroup_usage(const struct cgroup_base *base, const struct cgroup *group, struct cgroup_usage *usage)
{
    bool v2 = base->mode == CGROUP_V2;
    int memory = group->dir[v2 ? CGROUP_UNIFIED : CGROUP_MEMORY];
    struct cgroup_stats stats = {0};
    memset(usage, 0, sizeof *usage);
    number(memory, v2 ? "memory.current" : "memory.usage_in_bytes", &usage->memory);
    number(memory, v2 ? "memory.peak" : "memory.max_usage_in_bytes", &usage->memory_peak);
    number(group->dir[v2 ? CGROUP_UNIFIED : CGROUP_PIDS], "pids.current", &usage->pids);
    cgroup_cpu(base, group, &stats);
    usage->cpu = stats.cpu;
}
