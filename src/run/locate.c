/* See locate.h. */
#include "run/locate.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The dynamic linker knows the program only by argv[0], which may say anything, and a static one not at all; the kernel
 * knows better. */
int locate_own_folder(char *folder, size_t size)
{
    static const char here = 0;
    Dl_info info;
    struct link_map *map = NULL;
    bool library = dladdr1(&here, &info, (void **)&map, RTLD_DL_LINKMAP) != 0 && map && map->l_name[0];
    char path[PATH_MAX];
    if (!realpath(library ? map->l_name : "/proc/self/exe", path))
        return -errno;
    *strrchr(path, '/') = '\0';
    return (size_t)snprintf(folder, size, "%s", path) < size ? 0 : -ENAMETOOLONG;
}

static int try_folder(char *folder, size_t size, const char *base, const char *rest)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s%s/hotcell-warden", base, rest) >= (int)sizeof path || access(path, R_OK) < 0)
        return -ENOENT;
    return (size_t)snprintf(folder, size, "%s%s", base, rest) < size ? 0 : -ENAMETOOLONG;
}

int locate_libexec(char *folder, size_t size, struct hc_err *err)
{
    const char *named = getenv("HOTCELL_LIBEXEC");
    if (named && named[0]) {
        if (try_folder(folder, size, named, "") == 0)
            return 0;
        hc_fail(err, HC_CLASS_HOST, ENOENT, "there is no hotcell-warden in %s", named);
        return hc_err_field(err, "HOTCELL_LIBEXEC");
    }
    char own[PATH_MAX];
    if (locate_own_folder(own, sizeof own) == 0 &&
        (try_folder(folder, size, own, "") == 0 || try_folder(folder, size, own, "/../libexec/hotcell") == 0))
        return 0;
    if (try_folder(folder, size, HC_LIBEXECDIR, "") == 0)
        return 0;
    hc_fail(err, HC_CLASS_OURS, ENOENT, "hotcell-warden is neither beside the program nor in " HC_LIBEXECDIR);
    return hc_err_remedy(err, "reinstall hotcell, or set HOTCELL_LIBEXEC to the folder that has it");
}
