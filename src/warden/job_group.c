/* The control group of a job: the cell's own for the first, then one for each, so that limits and figures are its own.
 */
#include "warden/warden.h"
#include <errno.h>
#include <stdio.h>

/* The job's limits, in force for its group, and the count of what is its own from now on. */
int job_limit(struct held_job *job, bool background, struct hc_err *err)
{
    struct held_cell *cell = job->cell;
    const struct cgroup_base *base = &cell->warden->host.cgroups;
    struct cgroup_limits limits = {.memory = job->spec.limits.memory,
                                   .swap = job->spec.limits.swap,
                                   .cpu_milli = job->spec.limits.cpu_milli,
                                   .cpu_shares = job->spec.limits.cpu_shares,
                                   .pids = job->spec.limits.pids,
                                   .background = background};
    if (job->group == &cell->cell.group)
        limits.pids++; /* pid 1 of the cell is in there */
    int result = cgroup_limit(base, job->group, &limits, err);
    if (result == 0 && job->spec.final) /* alone in its base, which is what competes with other hotcells */
        result = cgroup_weigh(base, limits.cpu_shares, err);
    if (result == 0 &&
        (job->group == &cell->cell.group || job->waiting)) /* its builder, or booting, was counted there */
        cgroup_cpu(base, job->group, &job->before);
    return result;
}

int job_choose_group(struct held_job *job, struct hc_err *err)
{
    struct held_cell *cell = job->cell;
    const struct cgroup_base *base = &cell->warden->host.cgroups;
    if (cell->lasting)
        return lasting_group(job, err);
    if (!cell->used) {
        cell->used = true;
        job->group = &cell->cell.group;
    } else {
        if (cell->spare_count == CELL_MAX_JOBS)
            return hc_fail(err, HC_CLASS_REQUEST, E2BIG, "too many jobs in one cell");
        struct cgroup *group = &cell->spare[cell->spare_count];
        char name[32];
        snprintf(name, sizeof name, "%.20s.%u", cell->cell.group.name, cell->spare_count + 1);
        int result = cgroup_create(base, name, group, err);
        if (result < 0)
            return result;
        cell->spare_count++;
        job->group = group;
    }
    return 0;
}

int job_limit_group(struct held_job *job, struct hc_err *err)
{
    const struct cgroup_base *base = &job->cell->warden->host.cgroups;
    if (job->cell->lasting) /* the limits are the cell's own */
        return 0;
    if (job->waiting) /* there is time, and they are read now and at its end */
        cgroup_prepare_stats(base, job->group);
    int result = job_limit(job, job->waiting, err);
    if (result < 0)
        return result;
    job->oom = cgroup_oom_fd(base, job->group);
    if (job->oom < -1)
        return hc_fail_errno(err, HC_CLASS_HOST, -job->oom, "watching the memory of the job");
    return 0;
}
