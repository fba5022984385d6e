/* System calls that the C libraries we build with (glibc, and musl for the small static programs) do not all wrap. */
#ifndef HC_KERNEL_SYS_H
#define HC_KERNEL_SYS_H

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#ifndef CLONE_NEWCGROUP
#define CLONE_NEWCGROUP 0x02000000
#endif
#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x00001000
#endif
#define HC_CLONE_INTO_CGROUP 0x200000000ULL
#define HC_OPEN_TREE_CLONE 1u
#define HC_AT_RECURSIVE 0x8000u
#define HC_MOVE_MOUNT_F_EMPTY_PATH 0x4u
#define HC_MOVE_MOUNT_T_EMPTY_PATH 0x40u

#define HC_MOUNT_ATTR_RDONLY 0x1u
#define HC_MOUNT_ATTR_NOSUID 0x2u
#define HC_MOUNT_ATTR_NODEV 0x4u
#define HC_MOUNT_ATTR_NOEXEC 0x8u
#define HC_MOUNT_ATTR_IDMAP 0x00100000u

struct hc_clone_args {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
};
struct hc_mount_attr {
    uint64_t attr_set, attr_clr, propagation, userns_fd;
};

/* A fork with namespaces: returns twice. cgroup < 0: stay in the parent's. *pidfd is written in the parent. */
static inline pid_t hc_clone(uint64_t flags, int cgroup, int *pidfd)
{
    struct hc_clone_args args = {
        .flags = flags | CLONE_PIDFD, .pidfd = (uint64_t)(uintptr_t)pidfd, .exit_signal = SIGCHLD};
    if (cgroup >= 0) {
        args.flags |= HC_CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)cgroup;
    }
    return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

static inline int hc_open_tree(int dir, const char *path, unsigned flags)
{
    return (int)syscall(428 /* open_tree */, dir, path, flags);
}
static inline int hc_move_mount(int from, const char *from_path, int to, const char *to_path, unsigned flags)
{
    return (int)syscall(429 /* move_mount */, from, from_path, to, to_path, flags);
}
static inline int hc_mount_setattr(int dir, const char *path, unsigned flags, const struct hc_mount_attr *attr)
{
    return (int)syscall(442 /* mount_setattr */, dir, path, flags, attr, sizeof *attr);
}
/* A file system as a mount that is attached nowhere, by the calls of fsopen(2), fsconfig(2) and fsmount(2). */
enum hc_fsconfig { HC_FSCONFIG_SET_FLAG = 0, HC_FSCONFIG_SET_STRING = 1, HC_FSCONFIG_CMD_CREATE = 6 };
static inline int hc_fsopen(const char *type)
{
    return (int)syscall(430 /* fsopen */, type, 1 /* FSOPEN_CLOEXEC */);
}
static inline int hc_fsconfig(int fs, enum hc_fsconfig command, const char *key, const char *value)
{
    return (int)syscall(431 /* fsconfig */, fs, command, key, value, 0);
}
static inline int hc_fsmount(int fs, unsigned attributes)
{
    return (int)syscall(432 /* fsmount */, fs, 1 /* FSMOUNT_CLOEXEC */, attributes);
}
/* Nothing above `dir`, no symlink on the way, no other mount. */
static inline int hc_open_beneath(int dir, const char *path, uint64_t flags)
{
    struct {
        uint64_t flags, mode, resolve;
    } how = {flags, 0, 0x08 | 0x04 | 0x02 | 0x01 /* RESOLVE_BENEATH, _NO_SYMLINKS, _NO_MAGICLINKS, _NO_XDEV */};
    return (int)syscall(437 /* openat2 */, dir, path, &how, sizeof how);
}
static inline int hc_close_range(unsigned first, unsigned last, unsigned flags)
{
    return (int)syscall(436 /* close_range */, first, last, flags);
}
static inline int hc_pidfd_signal(int pidfd, int number)
{
    return (int)syscall(424 /* pidfd_send_signal */, pidfd, number, NULL, 0);
}
static inline int hc_pivot_root(const char *new_root, const char *put_old)
{
    return (int)syscall(SYS_pivot_root, new_root, put_old);
}

#endif
