/* The order matters: the bounding set and the securebits need a capability, changing uid needs another, and capset
 * comes last. */
#include "kernel/caps.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    LOCKED_SECUREBITS = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP | SECBIT_NO_SETUID_FIXUP_LOCKED |
                        SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED
};

static int drop_bounding_set(struct hc_err *err)
{
    for (unsigned long cap = 0; cap < 64; cap++) {
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0)
            continue;
        if (errno == EINVAL && cap > CAP_AUDIT_READ)
            return 0; /* past the last one that this kernel knows */
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "dropping capability %lu from the bounding set", cap);
    }
    return 0;
}

static int clear_capabilities(struct hc_err *err)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}};
    if (syscall(SYS_capset, &header, none) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "clearing the capability sets");
    return 0;
}

int hc_become(uid_t uid, gid_t gid, bool may_setgroups, struct hc_err *err)
{
    int result = drop_bounding_set(err);
    if (result < 0)
        return result;
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "clearing the ambient capabilities");
    if (prctl(PR_SET_SECUREBITS, LOCKED_SECUREBITS, 0, 0, 0) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "locking the securebits");
    if (may_setgroups && setgroups(0, NULL) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "leaving supplementary groups");
    if (syscall(SYS_setresgid, gid, gid, gid) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "becoming group %u", (unsigned)gid);
    if (syscall(SYS_setresuid, uid, uid, uid) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "becoming user %u", (unsigned)uid);
    result = clear_capabilities(err);
    if (result < 0)
        return result;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "setting no_new_privs");
    return 0;
}
