/*
 * The facts about a job that has ended. Every one is the kernel's: the exit status comes from waitid on the pidfd, or
 * from the call by which the process is about to end (job_last_word), the counters from the job's own control group.
 * Why it was ended is what the warden itself decided, or a counter that rose.
 */
#include "warden/warden.h"
#include <signal.h>
#include <sys/resource.h>

static uint64_t microseconds(const struct timeval *time)
{
    return (uint64_t)time->tv_sec * 1000000 + (uint64_t)time->tv_usec;
}

static uint64_t less(uint64_t value, uint64_t other)
{
    return value > other ? value - other : 0;
}

void job_gather(struct held_job *job, const siginfo_t *info, const struct rusage *usage, struct job_facts *facts)
{
    const struct cgroup_base *base = &job->cell->warden->host.cgroups;
    struct cgroup_stats stats = {0};
    if (job->cell->lasting)
        cgroup_cpu(base, job->group, &stats);
    else
        cgroup_stats(base, job->group, &stats);
    facts->wall = hc_now() - (job->exec_at ? job->exec_at : job->begun);
    facts->started_at = job->exec_at;
    facts->start = job->start;
    facts->exit_code = info->si_code == CLD_EXITED ? info->si_status : -1;
    facts->signal = info->si_code == CLD_EXITED ? 0 : info->si_status;
    uint64_t all = microseconds(&usage->ru_utime) + microseconds(&usage->ru_stime);
    uint64_t user = less(microseconds(&usage->ru_utime), job->own.user);
    uint64_t system = less(microseconds(&usage->ru_stime), job->own.system);
    facts->cpu = user + system;
    facts->user = user;
    facts->system = system;
    facts->memory_peak = (uint64_t)usage->ru_maxrss * 1024;
    if (stats.counted & CGROUP_HAS_CPU) {
        facts->counted |= ISOLATION_CPU;
        facts->cpu = less(stats.cpu, job->before.cpu);
        facts->user = less(stats.user, job->before.user);
        facts->system = less(stats.system, job->before.system);
        /* One that came early may have begun, and even ended, before what its group had used was looked at. */
        if (facts->cpu < user + system) {
            facts->cpu = user + system;
            facts->user = user;
            facts->system = system;
        }
    }
    if (stats.counted & CGROUP_HAS_MEMORY) {
        facts->counted |= ISOLATION_MEMORY;
        facts->memory_peak = stats.memory_peak;
    }
    if (stats.counted & CGROUP_HAS_PIDS) {
        facts->counted |= ISOLATION_PIDS;
        /* The first group holds pid 1 of the cell as well, which is ours. */
        facts->pids_peak = less(stats.pids_peak, job->group == &job->cell->cell.group ? 1 : 0);
    }
    /* Without a controller RLIMIT_CPU stands in, for each process from its beginning: the signal is its, and wait4 says
     * that the time was used. */
    uint64_t cpu_time = job->spec.limits.cpu_time;
    if (cpu_time && !(base->controllers & CGROUP_HAS_CPU) && job->end == JOB_EXITED && all + 200000 >= cpu_time &&
        (facts->signal == SIGXCPU || facts->signal == SIGKILL))
        job->end = JOB_CPU_TIME;
    witness_read(job->cell->cell.witness.book, job->witness, &facts->calls);
    facts->oom_kills = stats.oom_kills;
    facts->pids_denied = stats.pids_denied;
    /* Proven by the counter, also when the process that the kernel chose was not the main one. */
    facts->end = job->end == JOB_EXITED && stats.oom_kills ? JOB_OUT_OF_MEMORY : job->end;
    if (job->cell->lasting)
        lasting_facts(job, facts);
}
