/* Change the image: make, write, remove, rename, link and truncate in the folders that must not change. argv[1]: a
 * prefix, "" for the root. */
#include "probe.h"

static const char *prefix;

static const char *at(const char *path)
{
    static char text[2][PATH_MAX]; /* two, because rename and link take a pair */
    static int turn;
    turn = !turn;
    snprintf(text[turn], sizeof text[turn], "%s%s", prefix, path);
    return text[turn];
}

static void make(const char *name, const char *path)
{
    int fd = open(at(path), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    probe(name, fd);
    if (fd >= 0)
        close(fd);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    prefix = argv[1];
    make("create_usr", "/usr/attack");
    make("create_usr_bin", "/usr/bin/attack");
    make("create_etc", "/etc/attack");
    make("create_dev", "/dev/attack");
    make("create_root", "/attack");
    int fd = open(at("/usr/bin/env"), O_WRONLY | O_CLOEXEC);
    probe("open_write_usr", fd);
    fd = open(at("/etc/passwd"), O_WRONLY | O_TRUNC | O_CLOEXEC);
    probe("open_trunc_etc", fd);
    probe("truncate", truncate(at("/usr/bin/env"), 1));
    probe("chmod", chmod(at("/etc/passwd"), 0666));
    probe("chown", chown(at("/etc/passwd"), getuid(), getgid()));
    probe("utimes", utimensat(AT_FDCWD, at("/etc/passwd"), NULL, 0));
    probe("mkdir", mkdir(at("/usr/attack.d"), 0755));
    probe("symlink", symlink("/tmp", at("/etc/attack.link")));
    probe("rename_out", rename(at("/etc/passwd"), at("/etc/passwd.attack")));
    put("attack.tmp", "x");
    probe("rename_in", rename("attack.tmp", at("/usr/bin/attack.in")));
    probe("link_in", link(at("/usr/bin/env"), at("/usr/bin/attack.hard")));
    probe("unlink", unlink(at("/usr/bin/env")));
    probe("rmdir", rmdir(at("/usr/bin/empty")));
    unlink("attack.tmp");
    return 0;
}
