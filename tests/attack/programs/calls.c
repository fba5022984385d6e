/*
 * System calls that a guest has no business with, each with arguments that are harmless where the door is open: what
 * does not exist is named, or what is set is what was set before. argv[1] picks the group. `past` counts as open: an
 * errno that only comes after the permission check.
 */
#include "probe.h"
#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <linux/reboot.h>
#include <sys/fanotify.h>
#include <sys/io.h>
#include <sys/personality.h>
#include <sys/timex.h>

static void surface(void)
{
    struct io_uring_params ring = {0};
    probe("io_uring_setup", syscall(SYS_io_uring_setup, 2, &ring));
    probe("io_uring_setup_nosqarray", syscall(SYS_io_uring_setup, 2, &(struct io_uring_params){.flags = 1 << 16}));
    int missing = (int)syscall(SYS_io_uring_register, -1, 0, NULL, 0);
    if (missing < 0 && (errno == EBADF || errno == EINVAL))
        missing = 0;
    probe("io_uring_register", missing);
    union bpf_attr map = {.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
    probe("bpf", syscall(SYS_bpf, BPF_MAP_CREATE, &map, sizeof map));
    struct perf_event_attr event = {
        .type = PERF_TYPE_SOFTWARE, .size = sizeof event, .config = PERF_COUNT_SW_TASK_CLOCK, .exclude_kernel = 1};
    probe("perf_event_open", syscall(SYS_perf_event_open, &event, 0, -1, -1, 0));
    probe("userfaultfd", syscall(SYS_userfaultfd, O_CLOEXEC));
    probe("userfaultfd_user", syscall(SYS_userfaultfd, O_CLOEXEC | 1));
}

static void keys(void)
{
    /* A session keyring of our own first, so that nothing outlives us where the calls work. */
    probe("keyctl_join", syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL));
    probe("add_key", syscall(SYS_add_key, "user", "hotcell-attack", "x", 1, KEY_SPEC_PROCESS_KEYRING));
    long asked = syscall(SYS_request_key, "user", "hotcell-attack", NULL, 0);
    probe("request_key", asked < 0 && errno == ENOKEY ? 0 : asked);
    probe("keyctl_get", syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_PROCESS_KEYRING, 0));
}

/* Open when the call came as far as to look at its (wrong) arguments. */
static void past(const char *name, long result)
{
    if (result < 0 && (errno == EINVAL || errno == EFAULT || errno == ENOENT || errno == ENOEXEC || errno == EBADF ||
                       errno == ENODEV || errno == ENOTBLK))
        result = 0;
    probe(name, result);
}

static void machine(void)
{
    past("kexec_load", syscall(SYS_kexec_load, 0, 0, NULL, 0));
    past("kexec_file_load", syscall(SYS_kexec_file_load, -1, -1, 0, NULL, 0));
    past("init_module", syscall(SYS_init_module, NULL, 0, ""));
    past("finit_module", syscall(SYS_finit_module, -1, "", 0));
    past("delete_module", syscall(SYS_delete_module, "hotcell_no_such_module", O_NONBLOCK));
    past("reboot",
         syscall(SYS_reboot, 0, 0, 0, NULL)); /* wrong magic numbers: refused by everyone, after the privilege check */
    past("swapon", syscall(SYS_swapon, "/nonexistent", 0));
    past("swapoff", syscall(SYS_swapoff, "/nonexistent"));
    past("acct", syscall(SYS_acct, "/nonexistent/file"));
    past("quotactl", syscall(SYS_quotactl, 0x800001 << 8, "/nonexistent", 0, NULL));
    probe("iopl", syscall(SYS_iopl, 3));
    probe("ioperm", syscall(SYS_ioperm, 0x80, 1, 1));
    past("open_by_handle_at", syscall(SYS_open_by_handle_at, -1, NULL, 0));
    past("name_to_handle_at", syscall(SYS_name_to_handle_at, AT_FDCWD, ".", NULL, NULL, 0));
}

static void bits(void)
{
    static const struct {
        const char *name;
        unsigned long value;
    } kinds[] = {
        {"no_randomize", ADDR_NO_RANDOMIZE},
        {"read_implies_exec", READ_IMPLIES_EXEC},
        {"compat_layout", ADDR_COMPAT_LAYOUT},
        {"mmap_page_zero", MMAP_PAGE_ZERO},
        {"linux32", PER_LINUX32},
        {"limit_3gb", ADDR_LIMIT_3GB},
        {"uname26", UNAME26},
        {"short_inode", SHORT_INODE},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        probe(kinds[i].name, personality(kinds[i].value));
    personality(0);
}

static void watching(void)
{
    probe("fanotify_init", syscall(SYS_fanotify_init, FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY));
    probe("fanotify_unprivileged", syscall(SYS_fanotify_init, FAN_CLASS_NOTIF | FAN_REPORT_FID, O_RDONLY));
    probe("syslog_size", syscall(SYS_syslog, 10, NULL, 0));
    char text[64];
    probe("syslog_read_all", syscall(SYS_syslog, 3, text, sizeof text));
    past("quotactl", syscall(SYS_quotactl, 0x800001 << 8, "/nonexistent", 0, NULL));
}

static void clocks(const char *real)
{
    struct timex now = {0};
    if (clock_adjtime(CLOCK_REALTIME, &now) >= 0) {
        now.modes = ADJ_TICK; /* the value that it has */
        probe("clock_adjtime", clock_adjtime(CLOCK_REALTIME, &now));
        probe("adjtimex", adjtimex(&now));
    } else {
        probe("clock_adjtime", -1);
        probe("adjtimex", adjtimex(&now));
    }
    probe("sethostname", sethostname("attacked", 8));
    probe("setdomainname", setdomainname("attacked", 8));
    if (real) { /* only inside a cell */
        struct timespec time;
        clock_gettime(CLOCK_REALTIME, &time);
        probe("clock_settime", clock_settime(CLOCK_REALTIME, &time));
        struct timeval old = {time.tv_sec, time.tv_nsec / 1000};
        probe("settimeofday", settimeofday(&old, NULL));
    }
}

int main(int argc, char **argv)
{
    const char *group = argc > 1 ? argv[1] : "";
    if (strcmp(group, "surface") == 0)
        surface();
    if (strcmp(group, "keys") == 0)
        keys();
    if (strcmp(group, "machine") == 0)
        machine();
    if (strcmp(group, "bits") == 0)
        bits();
    if (strcmp(group, "watching") == 0)
        watching();
    if (strcmp(group, "clocks") == 0)
        clocks(argc > 2 ? argv[2] : NULL);
    return 0;
}
