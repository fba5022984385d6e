/* Every classic mount call. argv[1]: a folder that may be mounted over, argv[2]: the root's mount point, argv[3]: one
 * that is read-only. */
#include "probe.h"
#include <sys/mount.h>

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    const char *over = argv[1], *root = argv[2], *sealed = argv[3];
    probe("remount_rw", mount(NULL, sealed, NULL, MS_REMOUNT, NULL));
    probe("remount_bind_rw", mount(NULL, sealed, NULL, MS_REMOUNT | MS_BIND, NULL));
    probe("bind", mount(".", over, NULL, MS_BIND, NULL));
    probe("unmount", umount2(over, MNT_DETACH));
    probe("tmpfs", mount("none", over, "tmpfs", 0, NULL));
    probe("move", mount(over, ".", NULL, MS_MOVE, NULL));
    probe("proc", mount("none", over, "proc", 0, NULL));
    probe("propagation", mount(NULL, root, NULL, MS_PRIVATE | MS_REC, NULL));
    probe("unmount_sealed", umount2(sealed, MNT_DETACH));
    probe("pivot_root", syscall(SYS_pivot_root, ".", "."));
    return 0;
}
