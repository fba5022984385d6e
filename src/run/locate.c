/* See locate.h. */
#include "run/locate.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

/* The ELF header of the file that this code was loaded from; the linker puts the symbol there. */
extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

/* The kernel says where the program's own headers are; if those are not ours, we are in a library. */
static bool in_library(void)
{
    return (uintptr_t)&__ehdr_start + __ehdr_start.e_phoff != getauxval(AT_PHDR);
}

/* The dynamic linker knows the program only by argv[0], which may say anything, and a static one not at all; the kernel
 * knows better, and what it says needs no resolving. */
static int own_path(char *path, size_t size)
{
    Dl_info info;
    if (in_library() && dladdr(&__ehdr_start, &info) != 0)
        return realpath(info.dli_fname, path) ? 0 : -errno;
    ssize_t length = readlink("/proc/self/exe", path, size);
    if (length < 0)
        return -errno;
    if ((size_t)length == size)
        return -ENAMETOOLONG;
    path[length] = '\0';
    return 0;
}

int locate_own_folder(char *folder, size_t size)
{
    char path[PATH_MAX];
    int result = own_path(path, sizeof path);
    if (result < 0)
        return result;
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
