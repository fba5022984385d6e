/*
 * Is this process sealed? Looks at itself and prints one line for each seal, `name=sealed` or `name=OPEN <what was seen>`. Arguments: the host's namespaces as
 * `mnt=ID pid=ID …`, and `uid=N` (default 1000), `open_files=N` where the limit is known. Run outside a cell it finds almost everything open; that is its
 * control.
 */
#include "probe.h"
#include <sys/socket.h>
#include <sys/statvfs.h>

static void seal(const char *name, bool sealed, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void seal(const char *name, bool sealed, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (sealed)
        dprintf(1, "%s=sealed\n", name);
    else
        dprintf(1, "%s=OPEN %s\n", name, text);
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
        seal(name, known && bytes > 0 && bytes <= (512ull << 20) && info.f_files > 0 && info.f_files < 10000000 &&
                       (info.f_flag & (ST_NOSUID | ST_NODEV)) == (ST_NOSUID | ST_NODEV),
             "%llu bytes, %llu inodes, flags %lx", bytes, known ? (unsigned long long)info.f_files : 0, known ? info.f_flag : 0);
    }
    static const char *const masked[] = {"/proc/kcore",     "/proc/kallsyms",   "/proc/keys",   "/proc/timer_list", "/proc/interrupts",
                                         "/proc/modules",   "/proc/iomem",      "/proc/slabinfo", "/proc/diskstats",  "/proc/config.gz",
                                         "/proc/key-users", "/proc/sched_debug", "/proc/kmsg",   "/proc/vmallocinfo"};
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
    int fd = open("/proc/sysrq-trigger", O_WRONLY | O_CLOEXEC);
    seal("sysrq", fd < 0, "opens for writing");
    fd = open("/proc/sys/kernel/hostname", O_WRONLY | O_CLOEXEC);
    seal("proc_sys", fd < 0, "opens for writing");
    struct stat old;
    seal("old_root", stat("/old", &old) < 0 && stat("/.old_root", &old) < 0 && stat("/oldroot", &old) < 0, "still there");
}

static void look_at_mounts(void)
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    char line[4096];
    int suid = 0, devices = 0, shared = 0, count = 0;
    while (file && fgets(line, sizeof line, file)) {
        char point[512], flags[512];
        if (sscanf(line, "%*d %*d %*s %*s %511s %511s", point, flags) != 2)
            continue;
        count++;
        suid += !strstr(flags, "nosuid");
        devices += !strstr(flags, "nodev") && strncmp(point, "/dev", 4) != 0;
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

int main(int argc, char **argv)
{
    int open_count = 0;
    for (int fd = 0; fd < 4096; fd++) /* before anything of our own is opened */
        open_count += fcntl(fd, F_GETFD) >= 0;
    seal("descriptors", open_count == 3, "%d open", open_count);
    int uid = 1000;
    long open_files = 256;
    for (int i = 1; i < argc; i++) {
        sscanf(argv[i], "uid=%d", &uid);
        sscanf(argv[i], "open_files=%ld", &open_files);
    }
    uid_t real, effective, saved;
    gid_t group, effective_group, saved_group;
    getresuid(&real, &effective, &saved);
    getresgid(&group, &effective_group, &saved_group);
    seal("uid", (int)real == uid && real == effective && effective == saved && uid != 0, "%d %d %d", (int)real, (int)effective, (int)saved);
    seal("gid", group != 0 && group == effective_group && effective_group == saved_group, "%d %d %d", (int)group,
         (int)effective_group, (int)saved_group);
    look_at_status();
    look_at_namespaces(argc, argv);
    look_at_files();
    look_at_mounts();
    look_at_limits(open_files);
    int securebits = prctl(PR_GET_SECUREBITS);
    seal("securebits", (securebits & 0x2f) == 0x2f || securebits == -1, "%x", securebits);
    seal("seccomp_socket", socket(AF_NETLINK, SOCK_RAW, 0) < 0, "netlink opens");
    seal("seccomp_unshare", unshare(CLONE_NEWUSER) < 0, "unshare works");
    char cwd[PATH_MAX] = "";
    seal("cwd", getcwd(cwd, sizeof cwd) && cwd[0] == '/', "%s", cwd);
    fact("verdict", "seen");
    return 0;
}
