/*
 * Groups of jobs, below a base that exists already. See cgroup_base.c for how the base comes about.
 *
 * Joining: measured, writing a pid to cgroup.procs waits for an RCU grace period (6 to 15 ms on an idle machine), while
 * a process that writes "0" to a version 1 `tasks` file takes 30 µs, and clone3(CLONE_INTO_CGROUP) costs next to
 * nothing. So nobody is ever moved: a job is born in its version 2 group, and joins its version 1 groups by itself.
 */
#include "kernel/cgroup.h"

#include "base/fd.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_PIDS = 4194304 };
static const char *const slot_words[CGROUP_SLOTS] = {"unified", "memory", "cpu", "pids", "cpuacct"};

const char *cgroup_slot_word(int slot)
{
    return slot_words[slot];
}

const char *cgroup_mode_word(enum cgroup_mode mode)
{
    static const char *const words[] = {"none", "v1", "hybrid", "v2"};
    return words[mode];
}

void cgroup_init(struct cgroup *group)
{
    memset(group, 0, sizeof *group);
    for (int slot = 0; slot < CGROUP_SLOTS; slot++)
        group->dir[slot] = -1;
    for (int i = 0; i < CGROUP_FIGURES; i++)
        group->figure[i] = -1;
    group->idle = -1;
}

void cgroup_base_init(struct cgroup_base *base)
{
    memset(base, 0, sizeof *base);
    for (int slot = 0; slot < CGROUP_SLOTS; slot++)
        base->dir[slot] = -1;
}

int cgroup_create(const struct cgroup_base *base, const char *name, struct cgroup *group, struct hc_err *err)
{
    cgroup_init(group);
    snprintf(group->name, sizeof group->name, "%s", name);
    bool ready = strcmp(name, base->ready) == 0;
    for (int slot = 0; slot < CGROUP_SLOTS; slot++) {
        if (base->dir[slot] < 0)
            continue;
        if (!ready && mkdirat(base->dir[slot], name, 0755) < 0) {
            int code = errno;
            cgroup_remove(base, group);
            return hc_fail_errno(err, HC_CLASS_HOST, code, "making the %s control group %s", slot_words[slot], name);
        }
        group->dir[slot] = openat(base->dir[slot], name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (group->dir[slot] < 0) {
            int code = errno;
            unlinkat(base->dir[slot], name, AT_REMOVEDIR);
            cgroup_remove(base, group);
            return hc_fail_errno(err, HC_CLASS_HOST, code, "opening the %s control group %s", slot_words[slot], name);
        }
    }
    return 0;
}

static int put(int dir, const char *file, const char *text, struct hc_err *err)
{
    int result = hc_write_file_at(dir, file, text);
    if (result < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, -result, "writing %s to %s", text, file);
    return 0;
}

static int put_number(int dir, const char *file, uint64_t value, struct hc_err *err)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, value);
    return put(dir, file, text, err);
}

/* No kernel can have more processes than that, and it takes no larger number. */
static int put_pids(int dir, uint64_t count, struct hc_err *err)
{
    return put_number(dir, "pids.max", count < MOST_PIDS ? count : MOST_PIDS, err);
}

/* A quota under 1 ms a period is refused by the kernel: small shares get a longer period. */
static uint64_t cpu_period(uint64_t milli)
{
    return milli < 50 ? 1000000 : 100000;
}

/* Docker's shares have 1024 as the ordinary value, weights have 100. */
static int put_weight(int dir, uint64_t shares, struct hc_err *err)
{
    uint64_t weight = shares * 100 / 1024;
    return put_number(dir, "cpu.weight", weight < 1 ? 1 : weight > 10000 ? 10000 : weight, err);
}

enum { LEAST_SHARES = 2, SOCKET_PART = 8 };

static int put_shares(int dir, uint64_t shares, struct hc_err *err)
{
    return put_number(dir, "cpu.shares", shares < LEAST_SHARES ? LEAST_SHARES : shares, err);
}

static bool has_own_weight(const struct cgroup_limits *limits)
{
    return !limits->background && limits->cpu_shares != CGROUP_ORDINARY_SHARES;
}

static int limit_v2(const struct cgroup *group, uint32_t controllers, const struct cgroup_limits *limits,
                    struct hc_err *err)
{
    int result = 0, dir = group->dir[CGROUP_UNIFIED];
    if (controllers & CGROUP_HAS_MEMORY) {
        result = put_number(dir, "memory.max", limits->memory, err);
        if (result == 0)
            result = put(dir, "memory.oom.group", limits->apart ? "0" : "1", err);
        /* The file is absent on a kernel without swap accounting, where there is nothing to limit. */
        if (result == 0 && faccessat(dir, "memory.swap.max", F_OK, 0) == 0)
            result = put_number(dir, "memory.swap.max", limits->swap, err);
    }
    if (result == 0 && (controllers & CGROUP_HAS_CPU)) {
        char text[64] = "max";
        uint64_t period = cpu_period(limits->cpu_milli);
        if (limits->cpu_milli)
            snprintf(text, sizeof text, "%" PRIu64 " %" PRIu64, limits->cpu_milli * period / 1000, period);
        result = put(dir, "cpu.max", text, err);
        if (result == 0 && has_own_weight(limits))
            result = put_weight(dir, limits->cpu_shares, err);
    }
    if (result == 0 && (controllers & CGROUP_HAS_PIDS)) {
        if (limits->pids)
            result = put_pids(dir, limits->pids, err);
    }
    return result;
}

/* Version 1 counts what lies in sockets by itself, and only if it is asked to: without that a guest could hold as much
 * of it as the whole machine may. A kernel without the file has nothing to count it with. */
static int limit_sockets(int dir, uint64_t memory, struct hc_err *err)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, memory / SOCKET_PART);
    int result = hc_write_file_at(dir, "memory.kmem.tcp.limit_in_bytes", text);
    if (result < 0 && result != -ENOENT)
        return hc_fail_errno(err, HC_CLASS_HOST, -result, "writing %s to memory.kmem.tcp.limit_in_bytes", text);
    return 0;
}

static int limit_v1(const struct cgroup *group, const struct cgroup_limits *limits, struct hc_err *err)
{
    int result = 0, memory = group->dir[CGROUP_MEMORY], cpu = group->dir[CGROUP_CPU], pids = group->dir[CGROUP_PIDS];
    if (memory >= 0) {
        /* Memory first, then memory and swap together, which must not be less. */
        result = put_number(memory, "memory.limit_in_bytes", limits->memory, err);
        if (result == 0 && faccessat(memory, "memory.memsw.limit_in_bytes", F_OK, 0) == 0)
            result = put_number(memory, "memory.memsw.limit_in_bytes", limits->memory + limits->swap, err);
        if (result == 0)
            result = limit_sockets(memory, limits->memory, err);
    }
    if (result == 0 && cpu >= 0) {
        uint64_t period = cpu_period(limits->cpu_milli);
        if (limits->cpu_milli) {
            if (period != 100000)
                result = put_number(cpu, "cpu.cfs_period_us", period, err);
            if (result == 0)
                result = put_number(cpu, "cpu.cfs_quota_us", limits->cpu_milli * period / 1000, err);
        }
        if (result == 0 && has_own_weight(limits))
            result = put_shares(cpu, limits->cpu_shares, err);
    }
    if (result == 0 && pids >= 0 && limits->pids)
        result = put_pids(pids, limits->pids, err);
    return result;
}

/* A group that is idle gives way to whoever wakes up, and at once; one that has only little weight does so when its
 * turn is over. Linux 5.15. */
void cgroup_background(const struct cgroup_base *base, struct cgroup *group, bool on)
{
    struct hc_err err = {0};
    bool v2 = base->mode == CGROUP_V2;
    int dir = v2 ? group->dir[CGROUP_UNIFIED] : group->dir[CGROUP_CPU];
    uint64_t shares = on ? LEAST_SHARES : CGROUP_ORDINARY_SHARES;
    if (dir >= 0 && (!v2 || base->controllers & CGROUP_HAS_CPU)) {
        if (group->idle < 0)
            group->idle = openat(dir, "cpu.idle", O_WRONLY | O_CLOEXEC);
        if (group->idle < 0 || pwrite(group->idle, on ? "1" : "0", 1, 0) != 1)
            (void)(v2 ? put_weight(dir, shares, &err) : put_shares(dir, shares, &err));
        if (!on)
            group->idle = hc_close(group->idle);
    }
    group->background = on;
}

int cgroup_limit(const struct cgroup_base *base, struct cgroup *group, const struct cgroup_limits *limits,
                 struct hc_err *err)
{
    int result = 0;
    if (group->background != limits->background)
        cgroup_background(base, group, limits->background);
    group->most_pids = group->most_pids && group->most_pids < limits->pids ? group->most_pids : limits->pids;
    if (base->mode == CGROUP_V2)
        result = limit_v2(group, base->controllers, limits, err);
    else if (base->mode != CGROUP_NONE)
        result = limit_v1(group, limits, err);
    return result < 0 ? hc_err_context(err, "control group %s", group->name) : 0;
}

int cgroup_weigh(const struct cgroup_base *base, uint64_t cpu_shares, struct hc_err *err)
{
    int result = 0;
    if (base->mode == CGROUP_V2)
        result = put_weight(base->dir[CGROUP_UNIFIED], cpu_shares, err);
    else if (base->dir[CGROUP_CPU] >= 0 && cpu_shares != CGROUP_ORDINARY_SHARES)
        result = put_shares(base->dir[CGROUP_CPU], cpu_shares, err);
    return result;
}

int cgroup_clone_fd(const struct cgroup *group)
{
    return group->dir[CGROUP_UNIFIED];
}

int cgroup_join(const struct cgroup *group, struct hc_err *err)
{
    for (int slot = CGROUP_MEMORY; slot < CGROUP_SLOTS; slot++) {
        if (group->dir[slot] < 0)
            continue;
        int result = hc_write_file_at(group->dir[slot], "tasks", "0");
        if (result < 0)
            return hc_fail_errno(err, HC_CLASS_HOST, -result, "joining the %s control group", slot_words[slot]);
    }
    return 0;
}

int cgroup_join_full(const struct cgroup *group, struct hc_err *err)
{
    int result = hc_write_file_at(group->dir[CGROUP_UNIFIED], "cgroup.procs", "0");
    return result < 0 ? hc_fail_errno(err, HC_CLASS_HOST, -result, "joining the control group") : 0;
}

static bool has_more_than(const struct cgroup *group, bool or_as_many)
{
    static const char *const files[][2] = {{"pids.current", "pids.max"}, {"../pids.current", "../pids.max"}};
    int dir = group->dir[CGROUP_PIDS] >= 0 ? group->dir[CGROUP_PIDS] : group->dir[CGROUP_UNIFIED];
    for (size_t i = 0; dir >= 0 && i < sizeof files / sizeof *files; i++) {
        unsigned long long current, most; /* a limit of "max" is no number */
        if (hc_read_number_at(dir, files[i][0], NULL, &current) == 0 &&
            hc_read_number_at(dir, files[i][1], NULL, &most) == 0 && current + or_as_many > most)
            return true;
    }
    return false;
}

bool cgroup_crowded(const struct cgroup *group)
{
    return group->dir[CGROUP_PIDS] >= 0 && has_more_than(group, false);
}

bool cgroup_full(const struct cgroup *group)
{
    return has_more_than(group, true);
}

/* ---- figures ---- */

enum figure { CPU_TIME, MEMORY_PEAK, OOM_KILLS, PIDS_PEAK, PIDS_DENIED, PIDS_CURRENT };

/* Which file of which slot; the second pair is that of version 2. */
static const struct {
    int slot[2];
    const char *file[2];
} figures[CGROUP_FIGURES] = {
    [CPU_TIME] = {{CGROUP_UNIFIED, CGROUP_UNIFIED}, {"cpu.stat", "cpu.stat"}},
    [MEMORY_PEAK] = {{CGROUP_MEMORY, CGROUP_UNIFIED}, {"memory.max_usage_in_bytes", "memory.peak"}},
    [OOM_KILLS] = {{CGROUP_MEMORY, CGROUP_UNIFIED}, {"memory.oom_control", "memory.events"}},
    [PIDS_PEAK] = {{CGROUP_PIDS, CGROUP_UNIFIED}, {"pids.peak", "pids.peak"}},
    [PIDS_DENIED] = {{CGROUP_PIDS, CGROUP_UNIFIED}, {"pids.events", "pids.events"}},
    [PIDS_CURRENT] = {{CGROUP_PIDS, CGROUP_UNIFIED}, {"pids.current", "pids.current"}},
};

static int open_figure(const struct cgroup_base *base, const struct cgroup *group, enum figure which)
{
    int v2 = base->mode == CGROUP_V2, slot = figures[which].slot[v2];
    if (slot < 0 || group->dir[slot] < 0)
        return -1;
    return openat(group->dir[slot], figures[which].file[v2], O_RDONLY | O_CLOEXEC);
}

void cgroup_prepare_stats(const struct cgroup_base *base, struct cgroup *group)
{
    for (int i = 0; i < CGROUP_FIGURES; i++)
        if (group->figure[i] < 0 && i != PIDS_DENIED) /* which most need not read */
            group->figure[i] = open_figure(base, group, (enum figure)i);
}

int cgroup_oom_fd(const struct cgroup_base *base, const struct cgroup *group)
{
    if (base->mode == CGROUP_V2 || group->dir[CGROUP_MEMORY] < 0)
        return -1;
    hc_cleanup_fd int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    hc_cleanup_fd int opened = group->figure[OOM_KILLS] < 0 ? open_figure(base, group, OOM_KILLS) : -1;
    int control = opened >= 0 ? opened : group->figure[OOM_KILLS];
    if (event < 0 || control < 0)
        return -errno;
    char text[32];
    snprintf(text, sizeof text, "%d %d", event, control);
    int result = hc_write_file_at(group->dir[CGROUP_MEMORY], "cgroup.event_control", text);
    return result < 0 ? result : HC_TAKE_FD(event);
}

/* The text of the file: these have about 500 bytes at most, and the kernel gives them whole. */
static bool read_figure(const struct cgroup_base *base, const struct cgroup *group, enum figure which, char *text,
                        size_t size)
{
    hc_cleanup_fd int opened = group->figure[which] < 0 ? open_figure(base, group, which) : -1;
    int fd = opened >= 0 ? opened : group->figure[which];
    ssize_t length = fd < 0 ? -1 : pread(fd, text, size - 1, 0);
    text[length > 0 ? length : 0] = '\0';
    return length > 0;
}

/* "key value" lines, read once for several keys. 0 where a key is not there. */
static uint64_t keyed(const char *text, const char *key)
{
    size_t length = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncmp(line, key, length) == 0 && line[length] == ' ')
            return strtoull(line + length + 1, NULL, 10);
    return 0;
}

static bool number(int dir, const char *file, uint64_t *value)
{
    unsigned long long found;
    if (dir < 0 || hc_read_number_at(dir, file, NULL, &found) < 0)
        return false;
    *value = found;
    return true;
}

void cgroup_cpu(const struct cgroup_base *base, const struct cgroup *group, struct cgroup_stats *stats)
{
    char text[2048];
    if (read_figure(base, group, CPU_TIME, text, sizeof text)) {
        stats->counted |= CGROUP_HAS_CPU;
        stats->cpu = keyed(text, "usage_usec");
        stats->user = keyed(text, "user_usec");
        stats->system = keyed(text, "system_usec");
    } else {
        int cpu = group->dir[CGROUP_CPUACCT] >= 0 ? group->dir[CGROUP_CPUACCT] : group->dir[CGROUP_CPU];
        uint64_t nanoseconds;
        if (number(cpu, "cpuacct.usage", &nanoseconds)) {
            stats->counted |= CGROUP_HAS_CPU;
            stats->cpu = nanoseconds / 1000;
        }
        if (number(cpu, "cpuacct.usage_user", &nanoseconds))
            stats->user = nanoseconds / 1000;
        if (number(cpu, "cpuacct.usage_sys", &nanoseconds))
            stats->system = nanoseconds / 1000;
    }
}

void cgroup_stats(const struct cgroup_base *base, const struct cgroup *group, struct cgroup_stats *stats)
{
    char text[2048];
    memset(stats, 0, sizeof *stats);
    cgroup_cpu(base, group, stats);
    if (read_figure(base, group, MEMORY_PEAK, text, sizeof text)) {
        stats->counted |= CGROUP_HAS_MEMORY;
        stats->memory_peak = strtoull(text, NULL, 10);
    }
    if (read_figure(base, group, OOM_KILLS, text, sizeof text))
        stats->oom_kills = keyed(text, "oom_kill");
    if (read_figure(base, group, PIDS_PEAK, text, sizeof text)) {
        stats->counted |= CGROUP_HAS_PIDS;
        stats->pids_peak = strtoull(text, NULL, 10);
    }
    bool never_full = stats->counted & CGROUP_HAS_PIDS && stats->pids_peak < group->most_pids;
    if (!never_full && read_figure(base, group, PIDS_DENIED, text, sizeof text))
        stats->pids_denied = keyed(text, "max");
}

bool cgroup_has_at_most(const struct cgroup_base *base, const struct cgroup *group, unsigned count)
{
    char text[64];
    return read_figure(base, group, PIDS_CURRENT, text, sizeof text) && strtoull(text, NULL, 10) <= count;
}

int cgroup_kill(const struct cgroup *group)
{
    if (group->dir[CGROUP_UNIFIED] < 0)
        return -EOPNOTSUPP;
    return hc_write_file_at(group->dir[CGROUP_UNIFIED], "cgroup.kill", "1");
}

int cgroup_remove(const struct cgroup_base *base, struct cgroup *group)
{
    for (int i = 0; i < CGROUP_FIGURES; i++)
        group->figure[i] = hc_close(group->figure[i]);
    group->idle = hc_close(group->idle);
    for (int slot = 0; slot < CGROUP_SLOTS; slot++) {
        if (group->dir[slot] < 0)
            continue;
        if (unlinkat(base->dir[slot], group->name, AT_REMOVEDIR) < 0 && errno != ENOENT)
            return -errno;
        group->dir[slot] = hc_close(group->dir[slot]);
    }
    return 0;
}
