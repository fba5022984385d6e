/* The mount calls by file descriptor. argv[1]: a folder to mount on. */
#include "probe.h"
#include <linux/mount.h>

#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    int context = (int)syscall(SYS_fsopen, "tmpfs", 0);
    probe("fsopen", context);
    probe("fsconfig", syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0));
    int made = (int)syscall(SYS_fsmount, context, 0, 0);
    probe("fsmount", made);
    probe("move_mount", syscall(SYS_move_mount, made, "", AT_FDCWD, argv[1], MOVE_MOUNT_F_EMPTY_PATH));
    int tree = (int)syscall(SYS_open_tree, AT_FDCWD, argv[1], OPEN_TREE_CLONE);
    probe("open_tree_clone", tree);
    struct mount_attr attr = {.attr_clr = MOUNT_ATTR_RDONLY};
    probe("mount_setattr", syscall(SYS_mount_setattr, AT_FDCWD, argv[1], 0, &attr, sizeof attr));
    probe("fspick", syscall(SYS_fspick, AT_FDCWD, argv[1], 0));
    return 0;
}
