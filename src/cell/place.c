/* See place.h. */
#include "cell/place.h"

#include "kernel/sys.h"
#include <sys/mount.h>
#include <sys/stat.h>

int place_folder(const char *path, mode_t mode, struct hc_err *err)
{
    if (mkdir(path, mode) < 0 && errno != EEXIST)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "making %s", path);
    return 0;
}

int place_bind(const char *from, const char *to, struct hc_err *err)
{
    if (mount(from, to, NULL, MS_BIND | MS_REC, NULL) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "binding %s", from);
    return 0;
}

int place_attributes(const char *path, unsigned attributes, unsigned flags, struct hc_err *err)
{
    struct hc_mount_attr attr = {.attr_set = attributes};
    if (hc_mount_setattr(AT_FDCWD, path, flags, &attr) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "mount attributes of %s", path);
    return 0;
}
