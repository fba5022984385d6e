/*
 * A server under systemd is born alone into a group that is delegated to it (Delegate=yes), and the kernel hands
 * controllers only to children of a group without processes of its own. So it moves, once and for good, into a leaf of
 * that group; the bases of its wardens come beside the leaf, and all that the server starts stays where systemd looks
 * for it and counts it. systemd removes the leaf with the group. DelegateSubgroup= of later versions makes the same
 * picture.
 */
#include "base/fd.h"
#include "kernel/cgroup_find.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

bool cgroup_is_delegated(int dir)
{
    static const char *const names[] = {"user.delegate", "trusted.delegate"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char value;
        if (fgetxattr(dir, names[i], &value, 1) == 1)
            return value == '1';
    }
    return false;
}

static bool is_alone(int dir)
{
    char listed[64], own[32];
    snprintf(own, sizeof own, "%d\n", (int)getpid());
    return hc_read_file_at(dir, "cgroup.procs", listed, sizeof listed) > 0 && strcmp(listed, own) == 0;
}

static void settle(const struct hierarchy *hierarchy)
{
    char path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s%s", hierarchy->mount, hierarchy->own);
    hc_cleanup_fd int own = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (own < 0 || !cgroup_is_delegated(own) || !is_alone(own))
        return;
    if (mkdirat(own, "keeper", 0755) < 0 && errno != EEXIST)
        return;
    /* Where this fails, the base finds what it can. */
    hc_write_file_at(own, "keeper/cgroup.procs", "0");
}

void cgroup_settle(void)
{
    struct hierarchy *found = malloc(CGROUP_SLOTS * sizeof *found);
    if (!found)
        return;
    cgroup_find(found);
    if (found[CGROUP_UNIFIED].found && !found[CGROUP_MEMORY].found && !found[CGROUP_CPU].found &&
        !found[CGROUP_PIDS].found)
        settle(&found[CGROUP_UNIFIED]);
    free(found);
}
