/*
 * What fuzz_warden.c plays for cells that last: the groups of their jobs, and signals. Who is in a group, whether it
 * can be frozen or removed is what the input says. A signal goes to the process group of a job that was not waited for
 * yet: after that its number may be anybody's.
 */
#ifndef HC_FUZZ_PLAYED_GROUPS_H
#define HC_FUZZ_PLAYED_GROUPS_H

static int played_kill(pid_t pid, int number)
{
    check(pid < 0 && (size_t)-pid <= played_count && number > 0 && number <= 64);
    struct played *process = &played[-pid - 1];
    check(process->kind == PLAYED_JOB && !process->reaped);
    process->killed = process->killed || number == SIGKILL;
    return 0;
}

static int played_inner_kill(const struct cgroup *inner, pid_t but, uint64_t since)
{
    (void)since;
    check(inner->name[0] && but >= 0 && (size_t)but <= played_count);
    return next_byte() % 4; /* so many were met */
}

static int played_inner_remove(const struct cgroup *outer, struct cgroup *inner)
{
    return next_byte() % 4 == 3 ? -EBUSY : cgroup_inner_remove(outer, inner);
}

static int played_inner_create(const struct cgroup_base *base, const struct cgroup *outer, const char *name,
                               struct cgroup *inner, struct hc_err *err)
{
    if (next_byte() % 8 == 7)
        return hc_fail(err, HC_CLASS_HOST, EAGAIN, "no group");
    return cgroup_inner_create(base, outer, name, inner, err);
}

static int played_freeze(const struct cgroup *group, bool on)
{
    (void)group, (void)on;
    return next_byte() % 4 == 3 ? -EOPNOTSUPP : 0;
}

#endif
