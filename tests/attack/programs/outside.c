/*
 * Rename, link, truncate and exchange a file outside the workspace (a read-only mount). argv[1]: the folder, which
 * holds `canary` and, where the door is open, also `spare`.
 */
#include "probe.h"

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    int outside = open(argv[1], O_PATH | O_DIRECTORY | O_CLOEXEC);
    probe("open_folder", outside);
    if (outside < 0)
        return 1;
    put("outside.own", "own\n");
    int fd = openat(outside, "canary", O_WRONLY | O_CLOEXEC);
    probe("open_write", fd);
    fd = openat(outside, "canary", O_RDONLY | O_TRUNC | O_CLOEXEC);
    probe("open_trunc", fd);
    probe("link_into", linkat(AT_FDCWD, "outside.own", outside, "own", 0));
    probe("rename_into", renameat(AT_FDCWD, "outside.own", outside, "own2"));
    probe("rename_within", renameat(outside, "canary", outside, "canary.moved"));
    probe("exchange", (long)syscall(SYS_renameat2, outside, "canary.moved", outside, "spare", 2 /* RENAME_EXCHANGE */));
    probe("symlink", symlinkat("/", outside, "link"));
    probe("unlink", unlinkat(outside, "canary.moved", 0));
    probe("remove", unlinkat(outside, "spare", 0));
    probe("mkdir", mkdirat(outside, "folder", 0755));
    unlink("outside.own");
    return 0;
}
