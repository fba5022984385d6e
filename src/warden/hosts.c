/* See hosts.h. A file system that cannot do idmapped mounts (tmpfs before Linux 6.3, overlay, network file systems) is
 * mounted plain: then the guest has the rights of a stranger. */
#include "warden/hosts.h"

#include "base/fd.h"
#include "kernel/sys.h"
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* The guest of a slot, in the warden's user namespace: see cell_begin. */
static uint64_t guest_of(uint32_t slot)
{
    return 2 + 2 * (uint64_t)slot;
}

/* It goes with its parent, however that goes, and holds nothing of it meanwhile: the lock of a state folder, say. */
static _Noreturn void hold_namespace(pid_t parent)
{
    hc_close_range(0, ~0U, 0);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0)
        while (getppid() == parent)
            pause();
    _exit(0);
}

/* A user namespace whose maps say: what is `from` on the disk is `to` here. It needs a process only until its fd is
 * open. */
static int map_namespace(uid_t from_uid, gid_t from_gid, uint64_t to_uid, uint64_t to_gid)
{
    int pidfd = -1;
    pid_t parent = getpid(), pid = hc_clone(CLONE_NEWUSER, -1, &pidfd);
    if (pid == 0)
        hold_namespace(parent);
    if (pid < 0)
        return -errno;
    char path[64], text[64];
    snprintf(path, sizeof path, "/proc/%d/uid_map", (int)pid);
    snprintf(text, sizeof text, "%u %" PRIu64 " 1\n", (unsigned)from_uid, to_uid);
    int result = hc_write_file_at(AT_FDCWD, path, text);
    snprintf(path, sizeof path, "/proc/%d/gid_map", (int)pid);
    snprintf(text, sizeof text, "%u %" PRIu64 " 1\n", (unsigned)from_gid, to_gid);
    if (result == 0)
        result = hc_write_file_at(AT_FDCWD, path, text);
    snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
    if (result == 0 && (result = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        result = -errno;
    hc_pidfd_signal(pidfd, SIGKILL);
    waitpid(pid, NULL, 0);
    hc_close(pidfd);
    return result;
}

int hosts_map(int tree, uid_t uid, gid_t gid, const struct uid_plan *uids, uint32_t slot, struct hc_err *err)
{
    hc_cleanup_fd int space = map_namespace(uid, gid, uids->uid_base + guest_of(slot), uids->gid_base + guest_of(slot));
    if (space < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, -space, "making a map of owners");
    struct hc_mount_attr map = {.attr_set = HC_MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)space};
    if (hc_mount_setattr(tree, "", AT_EMPTY_PATH | HC_AT_RECURSIVE, &map) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "mapping the owner of a mount");
    return 0;
}

int hosts_open_one(const char *path, bool writable, const struct uid_plan *uids, uint32_t slot, struct hc_err *err)
{
    hc_cleanup_fd int tree = hc_open_tree(AT_FDCWD, path, HC_OPEN_TREE_CLONE | HC_AT_RECURSIVE | O_CLOEXEC);
    struct stat st;
    if (tree < 0 || fstat(tree, &st) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "opening %s", path);
    if (!writable || (st.st_uid != 0 && st.st_gid != 0)) {
        hc_cleanup_fd int space =
            map_namespace(st.st_uid, st.st_gid, uids->uid_base + guest_of(slot), uids->gid_base + guest_of(slot));
        struct hc_mount_attr map = {.attr_set = HC_MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)(space < 0 ? 0 : space)};
        if (space >= 0 && hc_mount_setattr(tree, "", AT_EMPTY_PATH | HC_AT_RECURSIVE, &map) < 0 && errno != EINVAL &&
            errno != EPERM)
            return hc_fail_errno(err, HC_CLASS_HOST, errno, "mapping the owner of %s", path);
    }
    /* A clone of a shared mount, which all are under systemd, is its peer: when a cell lets go of one below it, the
     * host would lose it too. */
    struct hc_mount_attr attr = {.attr_set =
                                     HC_MOUNT_ATTR_NOSUID | HC_MOUNT_ATTR_NODEV | (writable ? 0 : HC_MOUNT_ATTR_RDONLY),
                                 .propagation = MS_PRIVATE};
    if (hc_mount_setattr(tree, "", AT_EMPTY_PATH | HC_AT_RECURSIVE, &attr) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "restricting the mount of %s", path);
    return HC_TAKE_FD(tree);
}

int hosts_open(const struct image_plan *plan, const struct uid_plan *uids, int *fds, struct hc_err *err)
{
    for (size_t i = 0; i < plan->host_count; i++) {
        fds[i] = hosts_open_one(plan->host[i], plan->host_writable[i], uids, 0, err);
        if (fds[i] < 0)
            return fds[i];
    }
    return 0;
}
