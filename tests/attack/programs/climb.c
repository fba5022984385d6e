/* Climb out of the root by "..", and by the chroot that leaves the working directory outside. argv[1]: a file below the
 * host's root. */
#include "probe.h"

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s%s", UP64, argv[1] + 1);
    peek("relative", path);

    struct stat root, above;
    if (stat("/", &root) == 0 && stat("/" UP64, &above) == 0)
        fact("own_root", "%s", root.st_dev == above.st_dev && root.st_ino == above.st_ino ? "yes" : "no");

    char inner[] = "climb.XXXXXX";
    if (!mkdtemp(inner)) {
        probe("mkdtemp", -1);
        return 1;
    }
    int entered = chroot(inner);
    probe("chroot", entered);
    if (entered == 0)
        peek("chroot_escape", path);
    else
        rmdir(inner);
    return 0;
}
