/*
 * What fuzz_warden.c plays: processes. Each is a pipe, whose reading end is its pidfd: it becomes readable when the
 * process is over, and its inode says which one it is, whatever number the warden's fd has. A zygote is a process with
 * the other end of a door; it takes requests from there and answers them, or not, as the input says. So is a program
 * that waits in its cell. And time: it passes when the input says so.
 */
#ifndef HC_FUZZ_PLAYED_H
#define HC_FUZZ_PLAYED_H

/* ---- time ---- */

struct hc_timer {
    struct hc_timer *next;
    uint64_t when, sequence;
    hc_timer_fn fn;
    void *data;
};

static struct hc_timer *timers;
static uint64_t played_clock, timer_sequence;

static uint64_t played_now(void)
{
    return played_clock;
}

static struct hc_timer *played_timer(struct hc_loop *loop, uint64_t when, hc_timer_fn fn, void *data)
{
    (void)loop;
    struct hc_timer *timer = malloc(sizeof *timer);
    check(timer != NULL);
    *timer = (struct hc_timer){timers, when, timer_sequence++, fn, data};
    return timers = timer;
}

static void played_timer_remove(struct hc_timer *timer)
{
    struct hc_timer **at = &timers;
    while (timer && *at && *at != timer)
        at = &(*at)->next;
    check(!timer || *at != NULL);
    if (timer)
        *at = timer->next;
    free(timer);
}

/* What is due, the earliest first; not what is set meanwhile. */
static void play_time(struct hc_loop *loop, uint64_t passing)
{
    uint64_t first_new = timer_sequence;
    played_clock += passing;
    for (;;) {
        struct hc_timer *due = NULL;
        for (struct hc_timer *timer = timers; timer; timer = timer->next)
            if (timer->when <= played_clock && timer->sequence < first_new && (!due || timer->when < due->when))
                due = timer;
        if (!due)
            return;
        hc_timer_fn fn = due->fn;
        void *data = due->data;
        played_timer_remove(due);
        fn(loop, data);
    }
}

/* ---- processes ---- */

enum played_kind { PLAYED_CELL, PLAYED_JOB, PLAYED_ZYGOTE };

struct played {
    enum played_kind kind;
    ino_t inode; /* of its pidfd */
    int pidfd;   /* one of our own, while nobody was told of it */
    int gone;    /* the writing end */
    int report;  /* our end of its pipe; -1 once closed */
    int door;    /* its end; of a cell: pid 1's, for last words; -1: none */
    int book;    /* where pid 1 of its cell may write anything; -1: nowhere */
    uint64_t witness;
    bool over, killed, reaped;
    int code, status;
    const void *owner; /* the warden's struct cell, for a cell */
    unsigned slot;
    pid_t cell; /* of a zygote's child that its zygote said nothing of */
};

static struct played played[MAX_PLAYED];
static size_t played_count;

static struct played *find_played(int pidfd)
{
    struct stat status;
    for (size_t i = 0; fstat(pidfd, &status) == 0 && i < played_count; i++)
        if (played[i].inode == status.st_ino)
            return &played[i];
    return NULL;
}

/* `report`: the writing end of its pipe, which it takes. */
static struct played *play(enum played_kind kind, int report, int *pidfd)
{
    int ends[2];
    struct stat status;
    if (played_count == MAX_PLAYED || pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return NULL;
    check(fstat(ends[0], &status) == 0);
    struct played *process = &played[played_count++];
    *process = (struct played){
        .kind = kind, .inode = status.st_ino, .pidfd = -1, .gone = ends[1], .report = report, .door = -1, .book = -1};
    *pidfd = ends[0];
    return process;
}

static struct played *play_with_report(enum played_kind kind, int *pidfd, int *report)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return NULL;
    struct played *process = play(kind, ends[1], pidfd);
    *report = ends[0];
    if (!process) {
        hc_close(ends[0]);
        hc_close(ends[1]);
    }
    return process;
}

static void tell_report(struct played *process, bool failed)
{
    if (process->report < 0)
        return;
    struct hc_err err = {0};
    struct cell_start start = {.time = played_now()};
    if (process->kind == PLAYED_JOB && !failed)
        (void)hc_write_all(process->report, &start, sizeof start);
    if (failed) {
        memset(&err, 'x', sizeof err); /* not terminated: the warden trusts nobody's strings */
        err.code = next_byte();
        err.class = next_byte() % 5;
        (void)hc_write_all(process->report, &err, sizeof err);
    }
    process->report = hc_close(process->report);
}

/* The row of a job, as a pid 1 that was taken over would write it: of this job or another, with any counts, or half. */
static void write_book(const struct played *process)
{
    uint8_t how = next_byte();
    struct witness_row row = {.job = process->witness + (how >> 6 & how >> 7)};
    memset(&row.calls, how, sizeof row.calls);
    row.calls.count[how % REPORTED_MAX] = (uint16_t)(next_byte() * 256);
    if (how & 1)
        witness_write(process->book, &row);
    if (how & 2)
        check(ftruncate(process->book, how * 16) == 0);
}

static void end_played(struct played *process)
{
    if (process->over)
        return;
    if (process->book >= 0)
        write_book(process);
    uint8_t how = next_byte();
    process->over = true;
    process->code = how & 1 ? CLD_EXITED : CLD_KILLED;
    process->status = how >> 1;
    if ((how & 6) == 6)
        tell_report(process, true);
    process->report = hc_close(process->report);
    process->door = hc_close(process->door);
    process->gone = hc_close(process->gone); /* end of file: readable */
}

static long played_wait(int fd, siginfo_t *info)
{
    struct played *process = find_played(fd);
    if (process && process->over) {
        process->reaped = true;
        info->si_pid = (pid_t)(process - played + 1);
        info->si_code = process->code;
        info->si_status = process->status;
    }
    return 0;
}

static int played_signal(int pidfd, int number)
{
    struct played *process = find_played(pidfd);
    check(process != NULL && number > 0 && number <= 64);
    process->killed = process->killed || number == SIGKILL;
    return 0;
}

/* Of any job, with any code, or no word at all: as a pid 1 that was taken over would say it. */
static void say_last_word(const struct played *process)
{
    struct witness_last last = {.job = next_byte() % 8, .code = (int32_t)next_byte() - 8};
    size_t size = next_byte() % 4 ? sizeof last : 3;
    (void)send(process->door, &last, size, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* ---- zygotes, and programs that wait ---- */

static int last_door = -1; /* of the socket that was made last, for the zygote that is born next */

static int played_socketpair(int domain, int type, int protocol, int *ends)
{
    int result = socketpair(domain, type, protocol, ends);
    hc_close(last_door);
    last_door = result == 0 ? fcntl(ends[1], F_DUPFD_CLOEXEC, 3) : -1;
    if (result == 0)
        hc_set_nonblock(last_door, true);
    return result;
}

static pid_t play_zygote(int *pidfd)
{
    struct played *process = (next_byte() & 7) == 7 ? NULL : play(PLAYED_ZYGOTE, -1, pidfd);
    if (!process)
        return -1;
    process->door = last_door;
    last_door = -1;
    return (pid_t)played_count;
}

static void say_word(const struct played *process, int code, int pidfd)
{
    struct warm_word word = {.code = code, .pid = (pid_t)played_count};
    (void)hc_try_send_fds(process->door, &word, sizeof word, &pidfd, pidfd >= 0 ? 1 : 0);
}

enum zygote_act { ANSWER, REFUSE, KEEP_SILENT, FORGET_PIDFD, DROP_REQUEST };

/* One request, of which the child becomes a process like any other. */
static void play_request(struct played *zygote, enum zygote_act act)
{
    static struct warm_request request;
    int fds[HC_MAX_FDS], pidfd = -1;
    size_t count = 0;
    struct hc_err none = {0};
    ssize_t size = hc_recv_fds(zygote->door, &request, sizeof request, fds, HC_MAX_FDS, &count);
    if (size <= 0)
        return;
    check(size == (ssize_t)(offsetof(struct warm_request, entry) + entry_size(&request.entry)));
    size_t witness = request.entry.witness ? 2 : 0;
    check(count == 6u + (request.has_files ? 1 : 0) + (request.has_door ? 1 : 0) + witness && request.groups == 0);
    check(job_limits_check(&request.entry.limits, &none) == 0 && request.entry.kind == CELL_JOB_PROGRAM);
    const struct played *cell = find_played(fds[0]);
    check(cell && cell->kind == PLAYED_CELL);
    struct played *child = act == REFUSE || act == DROP_REQUEST || cell->over ? NULL : play(PLAYED_JOB, fds[1], &pidfd);
    if (child) {
        fds[1] = -1;
        child->pidfd = pidfd;
        if (request.has_door)
            hc_set_nonblock(child->door = HC_TAKE_FD(fds[count - 1 - witness]), true);
        if (act != ANSWER)
            child->cell = (pid_t)(cell - played + 1);
        if (act != KEEP_SILENT)
            say_word(zygote, 0, act == ANSWER ? pidfd : -1);
        if (act == ANSWER)
            child->pidfd = hc_close(child->pidfd);
    } else if (act != DROP_REQUEST && act != KEEP_SILENT) {
        say_word(zygote, EAGAIN, -1);
    }
    for (size_t i = 0; i < count; i++)
        hc_close(fds[i]);
}

/* A program for one that waits. */
static void play_program(struct played *process)
{
    struct warm_program program;
    int fds[HC_MAX_FDS];
    size_t count = 0;
    ssize_t size = hc_recv_fds(process->door, &program, sizeof program, fds, HC_MAX_FDS, &count);
    if (size <= 0)
        return;
    check(size == (ssize_t)sizeof program && count == (program.has_files ? 6u : 5u));
    check(memchr(program.work_dir, '\0', sizeof program.work_dir) != NULL);
    hc_close(process->report);
    process->report = HC_TAKE_FD(fds[0]);
    process->door = hc_close(process->door);
    for (size_t i = 0; i < count; i++)
        hc_close(fds[i]);
}

static void play_door(struct played *process, uint8_t how)
{
    if (process->over && process->book >= 0)
        write_book(process); /* what it left running */
    if (process->door < 0 || process->over)
        return;
    if ((how & 15) == 15)
        (void)hc_try_send_fds(process->door, &how, 1, NULL, 0); /* not a word */
    else if ((how & 15) >= 12)
        say_word(process, 0, -1); /* it waits; or nobody asked */
    else if (process->kind == PLAYED_ZYGOTE)
        play_request(process, how % 5);
    else if ((how & 15) < 6)
        say_word(process, 0, -1);
    else
        play_program(process);
}

int stray_find(const struct warden *warden, pid_t cell, pid_t *pid)
{
    (void)warden;
    for (size_t i = 0; i < played_count; i++)
        if (played[i].cell == cell && played[i].pidfd >= 0) {
            *pid = (pid_t)(i + 1);
            return HC_TAKE_FD(played[i].pidfd);
        }
    return -1;
}

void stray_end(struct warden *warden, int pidfd)
{
    (void)warden;
    played_signal(pidfd, SIGKILL);
    hc_close(pidfd);
}

static int played_limits(pid_t pid, const struct job_limits *limits)
{
    struct hc_err none = {0};
    check(pid > 0 && job_limits_check(limits, &none) == 0);
    return next_byte() % 8 == 7 ? -EPERM : 0;
}

/* ---- what needs the warden's rights ---- */

void cell_init(struct cell *cell)
{
    memset(cell, 0, sizeof *cell);
    cell->pidfd = cell->report = cell->built = -1;
    cgroup_init(&cell->group);
    witness_init(&cell->witness);
}

int cell_begin(const struct cell_host *host, const struct cell_spec *spec, const struct cell_parts *parts,
               unsigned slot, const char *name, struct cell *cell, struct hc_err *err)
{
    struct hc_err none = {0};
    uint8_t how = next_byte();
    check(cell_spec_check(spec, parts->mounts, &none) == 0);
    check(!spec->lookups == (parts->lookups < 0) && (parts->lookups < 0 || fcntl(parts->lookups, F_GETFD) >= 0));
    for (uint32_t i = 0; parts->trees && i < spec->mount_count; i++)
        check(fcntl(parts->trees[i], F_GETFD) >= 0);
    for (size_t i = 0; i < played_count; i++)
        check(played[i].kind != PLAYED_CELL || played[i].over || played[i].slot != slot);
    check(strlen(name) < sizeof cell->group.name);
    struct played *process = (how & 3) == 3 ? NULL : play_with_report(PLAYED_CELL, &cell->pidfd, &cell->report);
    if (!process)
        return hc_fail(err, HC_CLASS_HOST, EMFILE, "no cell");
    process->owner = cell;
    process->slot = slot;
    cell->spec = *spec;
    cell->slot = slot;
    cell->pid = (pid_t)(process - played + 1);
    int inside = -1;
    if (how & 16)
        check(witness_make(&cell->witness, &inside, err) == 0);
    process->door = inside;
    int result = cgroup_create(&host->cgroups, name, &cell->group, err);
    return (how & 7) == 4 ? hc_fail(err, HC_CLASS_HOST, EPERM, "its maps cannot be written") : result;
}

void cell_kill(const struct cell *cell)
{
    for (size_t i = 0; i < played_count; i++)
        if (played[i].owner == cell)
            played[i].killed = true;
}

bool cell_is_ending(const struct cell *cell)
{
    for (size_t i = 0; i < played_count; i++)
        if (played[i].owner == cell && played[i].kind == PLAYED_CELL)
            return played[i].killed || played[i].over;
    return false;
}

int cell_enter(const struct cell_host *host, const struct cell *cell, const struct cgroup *group,
               const struct cell_job *job, pid_t *pid, int *pidfd, int *report, struct hc_err *err)
{
    struct hc_err none = {0};
    (void)host, (void)group;
    check(cell->pid > 0 && job_limits_check(&job->limits, &none) == 0);
    check(job->kind == CELL_JOB_PROGRAM || job->kind == (job->shared ? CELL_JOB_FILES : CELL_JOB_COLLECT) ||
          (job->shared && job->door >= 0 && (job->kind == CELL_JOB_TERMINAL || job->kind == CELL_JOB_CONNECT)));
    check(!job->shared || !job->sweep);
    check(fcntl(job->input, F_GETFD) >= 0 && fcntl(job->output, F_GETFD) >= 0 && fcntl(job->error, F_GETFD) >= 0 &&
          fcntl(job->block, F_GETFD) >= 0);
    struct played *process = (next_byte() & 3) == 3 ? NULL : play_with_report(PLAYED_JOB, pidfd, report);
    if (!process)
        return hc_fail(err, HC_CLASS_HOST, EAGAIN, "no process");
    *pid = (pid_t)(process - played + 1);
    check(!job->witness ==
          (cell->witness.book < 0 || (job->kind != CELL_JOB_PROGRAM && job->kind != CELL_JOB_TERMINAL)));
    if (job->witness) {
        process->book = fcntl(cell->witness.book, F_DUPFD_CLOEXEC, 3);
        process->witness = job->witness;
    }
    if (job->door >= 0)
        hc_set_nonblock(process->door = fcntl(job->door, F_DUPFD_CLOEXEC, 3), true);
    return 0;
}

static void release_played(void)
{
    for (size_t i = 0; i < played_count; i++) {
        hc_close(played[i].gone);
        hc_close(played[i].report);
        hc_close(played[i].door);
        hc_close(played[i].pidfd);
        hc_close(played[i].book);
    }
    last_door = hc_close(last_door);
    while (timers)
        played_timer_remove(timers);
}

#endif
