/* Files without a name (O_TMPFILE), and where those do not exist (overlay on older kernels) with a random one. */
#include "cell/files_temp.h"

#include "base/fd.h"
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

enum { TRIES = 16 };

void files_temp_name(char name[32])
{
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number)
        number = (uint64_t)getpid();
    snprintf(name, 32, ".hotcell-%016llx", (unsigned long long)number);
}

int files_temp_open(struct files_temp *temp, int dir)
{
    *temp = (struct files_temp){.dir = dir};
    temp->fd = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    for (int i = 0; temp->fd < 0 && errno != ENOSPC && errno != EDQUOT && i < TRIES; i++) {
        files_temp_name(temp->name);
        temp->fd = openat(dir, temp->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (temp->fd < 0 && errno != EEXIST)
            break;
    }
    if (temp->fd < 0)
        temp->name[0] = '\0';
    return temp->fd < 0 ? -errno : 0;
}

int files_temp_commit(struct files_temp *temp, const char *name)
{
    char self[32];
    snprintf(self, sizeof self, "/proc/self/fd/%d", temp->fd);
    if (!temp->name[0]) {
        if (linkat(AT_FDCWD, self, temp->dir, name, AT_SYMLINK_FOLLOW) == 0)
            return 0;
        if (errno != EEXIST)
            return -errno;
        files_temp_name(temp->name);
        if (linkat(AT_FDCWD, self, temp->dir, temp->name, AT_SYMLINK_FOLLOW) < 0) {
            temp->name[0] = '\0';
            return -errno;
        }
    }
    if (renameat(temp->dir, temp->name, temp->dir, name) < 0)
        return -errno;
    temp->name[0] = '\0';
    return 0;
}

void files_temp_close(struct files_temp *temp)
{
    if (temp->name[0])
        unlinkat(temp->dir, temp->name, 0);
    temp->name[0] = '\0';
    temp->fd = hc_close(temp->fd);
}
