/* Landlock by raw system calls. TCP is not handled: its rules name ports and not addresses, so that they could only
 * forbid the cell's own loopback, and the way out is already missing from the network namespace. */
#include "kernel/landlock.h"

#include "base/fd.h"
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { /* not in every linux/landlock.h */
       FS_EXECUTE = 1 << 0,
       FS_WRITE_FILE = 1 << 1,
       FS_READ_FILE = 1 << 2,
       FS_READ_DIR = 1 << 3,
       FS_REMOVE_DIR = 1 << 4,
       FS_REMOVE_FILE = 1 << 5,
       FS_MAKE_CHAR = 1 << 6,
       FS_MAKE_DIR = 1 << 7,
       FS_MAKE_REG = 1 << 8,
       FS_MAKE_SOCK = 1 << 9,
       FS_MAKE_FIFO = 1 << 10,
       FS_MAKE_BLOCK = 1 << 11,
       FS_MAKE_SYM = 1 << 12,
       FS_REFER = 1 << 13,                  /* ABI 2 */
       FS_TRUNCATE = 1 << 14,               /* ABI 3 */
       FS_IOCTL_DEV = 1 << 15,              /* ABI 5 */
       SCOPE_ABSTRACT_UNIX_SOCKET = 1 << 0, /* ABI 6 */
       SCOPE_SIGNAL = 1 << 1,
       CREATE_RULESET_VERSION = 1,
       RULE_PATH_BENEATH = 1,
};

struct ruleset_attr {
    uint64_t handled_access_fs;
    uint64_t handled_access_net;
    uint64_t scoped;
};

struct path_beneath_attr {
    uint64_t allowed_access;
    int32_t parent_fd;
} __attribute__((packed));

/* What each ABI added. A kernel refuses bits that it does not know. */
static uint64_t known_rights(int abi)
{
    uint64_t rights = FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | FS_READ_DIR | FS_REMOVE_DIR | FS_REMOVE_FILE |
                      FS_MAKE_CHAR | FS_MAKE_DIR | FS_MAKE_REG | FS_MAKE_SOCK | FS_MAKE_FIFO | FS_MAKE_BLOCK |
                      FS_MAKE_SYM;
    if (abi >= 2)
        rights |= FS_REFER;
    if (abi >= 3)
        rights |= FS_TRUNCATE;
    if (abi >= 5)
        rights |= FS_IOCTL_DEV;
    return rights;
}

static uint64_t rights_of(enum landlock_access access)
{
    switch (access) {
    case LANDLOCK_READ:
        return FS_EXECUTE | FS_READ_FILE | FS_READ_DIR;
    case LANDLOCK_DEVICE:
        return FS_READ_FILE | FS_READ_DIR | FS_WRITE_FILE | FS_TRUNCATE | FS_IOCTL_DEV;
    case LANDLOCK_WRITE:
        return ~(uint64_t)(FS_MAKE_CHAR | FS_MAKE_BLOCK);
    }
    return 0;
}

int hc_landlock_abi(void)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, CREATE_RULESET_VERSION);
    return abi < 0 ? 0 : (int)abi;
}

static int add_path(int ruleset, uint64_t handled, const struct landlock_path *path, struct hc_err *err)
{
    hc_cleanup_fd int fd = open(path->path, O_PATH | O_CLOEXEC);
    if (fd < 0) {
        if (errno == ENOENT)
            return 0; /* nothing there, nothing allowed */
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "landlock: opening %s", path->path);
    }
    struct stat st;
    if (fstat(fd, &st) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "landlock: looking at %s", path->path);
    uint64_t allowed = rights_of(path->access) & handled;
    if (!S_ISDIR(st.st_mode))
        allowed &= FS_EXECUTE | FS_READ_FILE | FS_WRITE_FILE | FS_TRUNCATE | FS_IOCTL_DEV;
    struct path_beneath_attr rule = {.allowed_access = allowed, .parent_fd = fd};
    if (syscall(SYS_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &rule, 0) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "landlock: allowing %s", path->path);
    return 0;
}

int hc_landlock_restrict(const struct landlock_path *paths, size_t count, bool alone, struct hc_err *err)
{
    int abi = hc_landlock_abi();
    if (abi == 0)
        return hc_fail(err, HC_CLASS_HOST, ENOSYS, "this kernel has no Landlock");
    struct ruleset_attr attr = {.handled_access_fs = known_rights(abi)};
    size_t size = sizeof attr.handled_access_fs;
    if (abi >= 4)
        size = offsetof(struct ruleset_attr, scoped);
    if (abi >= 6 && alone) {
        attr.scoped = SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL;
        size = sizeof attr;
    }
    hc_cleanup_fd int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
    if (ruleset < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "landlock: making the rules");
    for (size_t i = 0; i < count; i++) {
        int result = add_path(ruleset, attr.handled_access_fs, &paths[i], err);
        if (result < 0)
            return result;
    }
    if (syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "landlock: putting the rules in force");
    return 0;
}
