/*
 * Is this process sealed? Looks at itself and prints one line for each seal, `name=sealed` or `name=OPEN <what was
 * seen>`. Arguments: the host's namespaces as `mnt=ID pid=ID …`, and `uid=N` (default 1000), `open_files=N` where the
 * limit is known. `pids=N`, `cpus=N` (thousandths) and `memory=MIB` try those limits out; memory comes last, because
 * the proof of that limit is to be killed by it. Run outside a cell it finds almost everything open; that is its
 * control.
 *
 * It looks three times and believes the majority: the fault injection of case 104 makes one system call of every
 * process fail, also one of ours.
 */
#include "probe.h"
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/statvfs.h>

static void seal(const char *name, bool sealed, const char *format, ...) __attribute__((format(printf, 3, 4)));

enum { MAX_SEALS = 128, LOOKS = 3 };

static struct {
    char name[48], text[96];
    int sealed, seen;
} seals[MAX_SEALS];
static size_t seal_count;

static void seal(const char *name, bool sealed, const char *format, ...)
{
    size_t i = 0;
    while (i < seal_count && strcmp(seals[i].name, name) != 0)
        i++;
    if (i == MAX_SEALS)
        return;
    if (i == seal_count)
        snprintf(seals[seal_count++].name, sizeof seals[i].name, "%s", name);
    seals[i].seen++;
    seals[i].sealed += sealed;
    if (sealed)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(seals[i].text, sizeof seals[i].text, format, arguments);
    va_end(arguments);
}

/* A write that fails is tried again, so that one injected fault does not eat the answer. */
static void say(const char *text)
{
    size_t left = strlen(text);
    for (int tries = 0; left > 0 && tries < 5; tries++) {
        ssize_t put_bytes = write(STDOUT_FILENO, text, left);
        if (put_bytes > 0) {
            text += put_bytes;
            left -= (size_t)put_bytes;
        }
    }
}

static void tell(void)
{
    static char report[MAX_SEALS * 160];
    size_t at = 0;
    for (size_t i = 0; i < seal_count; i++) {
        bool holds = seals[i].sealed * 2 > seals[i].seen;
        at += (size_t)snprintf(report + at, sizeof report - at, holds ? "%s=sealed\n" : "%s=OPEN %s\n", seals[i].name,
                               seals[i].text);
    }
    say(report);
    seal_count = 0;
    memset(seals, 0, sizeof seals);
}

static void look_at_status(void)
{
    FILE *file = fopen("/proc/self/status", "re");
    char line[512], word[4];
    unsigned long long value;
    int found = 0;
    seal("status", file != NULL, "no /proc/self/status");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "Cap%3[A-Za-z]:\t%llx", word, &value) == 2) {
            char name[16];
            snprintf(name, sizeof name, "cap_%s", word);
            seal(name, value == 0, "%llx", value);
            found++;
        } else if (sscanf(line, "NoNewPrivs:\t%llu", &value) == 1) {
            seal("no_new_privs", value == 1, "%llu", value);
            found++;
        } else if (sscanf(line, "Seccomp:\t%llu", &value) == 1) {
            seal("seccomp", value == 2, "%llu", value);
            found++;
        } else if (strncmp(line, "Groups:", 7) == 0) {
            int group = -1, first = -1, second = -1;
            int count = sscanf(line + 7, "%d %d", &first, &second);
            group = count >= 1 ? first : (int)getgid();
            seal("groups", count < 2 && group == (int)getgid(), "%s", line + 7);
            found++;
        }
    }
    if (file)
        fclose(file);
    seal("status_lines", found == 8, "%d of 8", found); /* five capability sets, no_new_privs, seccomp, groups */
}

static void look_at_namespaces(int argc, char **argv)
{
    static const char *const kinds[] = {"mnt", "uts", "ipc", "user", "pid", "net", "cgroup"};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        char path[64], own[128] = "", prefix[16], name[32];
        snprintf(path, sizeof path, "/proc/self/ns/%s", kinds[k]);
        snprintf(prefix, sizeof prefix, "%s=", kinds[k]);
        snprintf(name, sizeof name, "ns_%s", kinds[k]);
        ssize_t length = readlink(path, own, sizeof own - 1);
        const char *theirs = NULL;
        for (int i = 1; i < argc; i++)
            if (strncmp(argv[i], prefix, strlen(prefix)) == 0)
                theirs = argv[i] + strlen(prefix);
        seal(name, length > 0 && theirs && strcmp(own, theirs) != 0, "%s", own);
    }
}

static void look_at_files(void)
{
    static const char *const sealed[] = {"/", "/usr", "/usr/bin", "/etc"};
    for (size_t i = 0; i < sizeof sealed / sizeof *sealed; i++) {
        struct statvfs info;
        char name[64];
        snprintf(name, sizeof name, "read_only_%s", sealed[i]);
        bool known = statvfs(sealed[i], &info) == 0;
        seal(name, known && (info.f_flag & ST_RDONLY), "flags %lx", known ? info.f_flag : 0);
    }
    static const char *const limited[] = {".", "/tmp", "/dev/shm"};
    for (size_t i = 0; i < sizeof limited / sizeof *limited; i++) {
        struct statvfs info;
        char name[64];
        snprintf(name, sizeof name, "limited_%s", limited[i]);
        bool known = statvfs(limited[i], &info) == 0;
        unsigned long long bytes = known ? (unsigned long long)info.f_blocks * info.f_frsize : 0;
        seal(name,
             known && bytes > 0 && bytes <= (512ull << 20) && info.f_files > 0 && info.f_files < 10000000 &&
                 (info.f_flag & (ST_NOSUID | ST_NODEV)) == (ST_NOSUID | ST_NODEV),
             "%llu bytes, %llu inodes, flags %lx", bytes, known ? (unsigned long long)info.f_files : 0,
             known ? info.f_flag : 0);
    }
    static const char *const masked[] = {"/proc/kcore",      "/proc/kallsyms",   "/proc/keys",      "/proc/timer_list",
                                         "/proc/interrupts", "/proc/modules",    "/proc/iomem",     "/proc/slabinfo",
                                         "/proc/diskstats",  "/proc/config.gz",  "/proc/key-users", "/proc/sched_debug",
                                         "/proc/kmsg",       "/proc/vmallocinfo"};
    for (size_t i = 0; i < sizeof masked / sizeof *masked; i++) {
        int fd = open(masked[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        char byte, name[64];
        ssize_t got = fd < 0 ? -1 : read(fd, &byte, 1);
        snprintf(name, sizeof name, "masked_%s", masked[i] + 6);
        seal(name, got <= 0, "readable");
        if (fd >= 0)
            close(fd);
    }
    seal("no_sys", access("/sys/kernel", F_OK) < 0, "/sys is there");
    seal("no_root_home", access("/root/.", R_OK) < 0 || errno == ENOENT, "/root can be read");
    static const char *const knobs[] = {"/proc/sysrq-trigger", "/proc/sys/kernel/hostname",
                                        "/proc/sys/kernel/core_pattern"};
    for (size_t i = 0; i < sizeof knobs / sizeof *knobs; i++) {
        int fd = open_knob(knobs[i]);
        seal(knobs[i], fd < 0, "opens for writing");
        if (fd >= 0)
            close(fd);
    }
    struct stat old;
    seal("old_root", stat("/old", &old) < 0 && stat("/.old_root", &old) < 0 && stat("/oldroot", &old) < 0,
         "still there");
}

static void look_at_mounts(void)
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    char line[4096];
    int suid = 0, devices = 0, shared = 0, count = 0;
    while (file && fgets(line, sizeof line, file)) {
        char point[512], flags[512];
        struct stat info;
        if (sscanf(line, "%*d %*d %*s %*s %511s %511s", point, flags) != 2)
            continue;
        count++;
        suid += !strstr(flags, "nosuid");
        bool device = stat(point, &info) == 0 && S_ISCHR(info.st_mode); /* one of /dev, or a mask made of /dev/null */
        devices += !strstr(flags, "nodev") && !device && strcmp(point, "/dev") != 0;
        shared += strstr(line, " shared:") != NULL || strstr(line, " master:") != NULL;
    }
    if (file)
        fclose(file);
    seal("mounts_seen", count > 0, "none");
    seal("mounts_nosuid", suid == 0, "%d of %d without nosuid", suid, count);
    seal("mounts_nodev", devices == 0, "%d of %d without nodev", devices, count);
    seal("mounts_private", shared == 0, "%d of %d propagate", shared, count);
}

static void look_at_limits(long open_files)
{
    struct rlimit limit;
    getrlimit(RLIMIT_CORE, &limit);
    seal("limit_core", limit.rlim_max == 0, "%ld", (long)limit.rlim_max);
    getrlimit(RLIMIT_NOFILE, &limit);
    seal("limit_nofile", limit.rlim_max == (rlim_t)open_files, "%ld", (long)limit.rlim_max);
    getrlimit(RLIMIT_FSIZE, &limit);
    seal("limit_fsize", limit.rlim_max != RLIM_INFINITY, "unlimited");
    getrlimit(RLIMIT_MEMLOCK, &limit);
    seal("limit_memlock", limit.rlim_max <= (1 << 20), "%ld", (long)limit.rlim_max);
    getrlimit(RLIMIT_MSGQUEUE, &limit);
    seal("limit_msgqueue", limit.rlim_max <= (1 << 20), "%ld", (long)limit.rlim_max);
    getrlimit(RLIMIT_SIGPENDING, &limit);
    seal("limit_sigpending", limit.rlim_max <= 4096, "%ld", (long)limit.rlim_max);
    getrlimit(RLIMIT_STACK, &limit);
    seal("limit_stack", limit.rlim_max != RLIM_INFINITY, "unlimited");
}

static void look(int argc, char **argv, int uid, long open_files)
{
    int open_count = 0;
    for (int fd = 0; fd < 4096; fd++) /* everything of our own is closed again */
        open_count += fcntl(fd, F_GETFD) >= 0;
    seal("descriptors", open_count == 3, "%d open", open_count);
    uid_t real, effective, saved;
    gid_t group, effective_group, saved_group;
    getresuid(&real, &effective, &saved);
    getresgid(&group, &effective_group, &saved_group);
    seal("uid", (int)real == uid && real == effective && effective == saved && uid != 0, "%d %d %d", (int)real,
         (int)effective, (int)saved);
    seal("gid", group != 0 && group == effective_group && effective_group == saved_group, "%d %d %d", (int)group,
         (int)effective_group, (int)saved_group);
    look_at_status();
    look_at_namespaces(argc, argv);
    look_at_files();
    look_at_mounts();
    look_at_limits(open_files);
    int securebits = prctl(PR_GET_SECUREBITS);
    seal("securebits", (securebits & 0x2f) == 0x2f, "%x", securebits);
    int fd = socket(AF_NETLINK, SOCK_RAW, 0);
    seal("seccomp_socket", fd < 0, "netlink opens");
    if (fd >= 0)
        close(fd);
    seal("seccomp_unshare", unshare(CLONE_NEWUSER) < 0, "unshare works");
    char cwd[PATH_MAX] = "";
    seal("cwd", getcwd(cwd, sizeof cwd) && strcmp(cwd, "/workspace") == 0, "%s", cwd);
}

/* More children than the limit: the last ones must be refused. */
static void try_pids(long limit)
{
    static pid_t children[1024];
    long made = 0;
    for (int failures = 0; made <= limit && made < 1024 && failures < 3;) {
        pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            nap(10000);
            _exit(0);
        }
        if (child > 0)
            children[made++] = child;
        else
            failures++;
    }
    seal("limit_pids", made < limit, "%ld children", made);
    for (long i = 0; i < made; i++)
        kill(children[i], SIGKILL);
    while (wait(NULL) > 0)
        ;
    tell();
}

/* A quota shows in CPU time that is less than the wall time of a loop that never sleeps. */
static void try_cpus(long milli)
{
    struct timespec start, now, used;
    clock_gettime(CLOCK_MONOTONIC, &start);
    struct timespec before;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    double wall = 0, cpu = 0;
    while (wall < 0.35) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        wall = (double)(now.tv_sec - start.tv_sec) + (double)(now.tv_nsec - start.tv_nsec) / 1e9;
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    cpu = (double)(used.tv_sec - before.tv_sec) + (double)(used.tv_nsec - before.tv_nsec) / 1e9;
    seal("limit_cpus", cpu / wall < (double)milli / 1000 * 1.8, "%.2f CPUs", cpu / wall);
    tell();
}

/* Being killed is the proof. */
static void try_memory(long mib)
{
    for (long i = 0; i < mib; i++) {
        char *block = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (block != MAP_FAILED)
            memset(block, 1, 1 << 20);
    }
    seal("limit_memory", false, "%ld MiB were had", mib);
    tell();
}

int main(int argc, char **argv)
{
    int uid = 1000;
    long open_files = 256, pids = 0, cpus = 0, memory = 0;
    for (int i = 1; i < argc; i++) {
        sscanf(argv[i], "uid=%d", &uid);
        sscanf(argv[i], "open_files=%ld", &open_files);
        sscanf(argv[i], "pids=%ld", &pids);
        sscanf(argv[i], "cpus=%ld", &cpus);
        sscanf(argv[i], "memory=%ld", &memory);
    }
    for (int i = 0; i < LOOKS; i++)
        look(argc, argv, uid, open_files);
    tell();
    say("verdict=seen\n");
    if (pids)
        try_pids(pids);
    if (cpus)
        try_cpus(cpus);
    if (memory)
        try_memory(memory);
    return 0;
}
