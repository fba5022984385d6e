/* See account.h. */
#include "base/account.h"

#include <errno.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>

static int look_up(uid_t uid, bool home, char *text, size_t size)
{
    FILE *file = fopen("/etc/passwd", "re");
    int result = -ENOENT;
    for (struct passwd *entry; file && result == -ENOENT && (entry = fgetpwent(file));) {
        if (entry->pw_uid != uid)
            continue;
        int length = snprintf(text, size, "%s", home ? entry->pw_dir : entry->pw_name);
        result = length >= 0 && (size_t)length < size ? 0 : -ENAMETOOLONG;
    }
    if (file)
        fclose(file);
    return result;
}

int hc_account_name(uid_t uid, char *name, size_t size)
{
    return look_up(uid, false, name, size);
}

int hc_account_home(uid_t uid, char *home, size_t size)
{
    return look_up(uid, true, home, size);
}
