/*
 * An image as a block device, and its file system as a mount that is attached nowhere. So nothing of it is in the
 * host's table of mounts, and the kernel clears all of it by itself when the last who has it is gone, however that
 * ends: the device is one that clears itself, and what holds it is the keeper's fd and the mounts in cells.
 */
#include "base/fd.h"
#include "kernel/sys.h"
#include "serve/volume_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { ATTACH_TRIES = 20 };

static int no_device(int code, const char *path, struct hc_err *err)
{
    hc_fail(err, HC_CLASS_HOST, EOPNOTSUPP, "volumes take a loop device, and %s cannot be had: %s", path,
            strerror(code));
    hc_err_field(err, "volumes");
    return hc_err_remedy(err, "modprobe loop; in a container, give it %s", path);
}

/* -EBUSY: somebody else was faster. */
static int attach_to(const char *path, int image, struct hc_err *err)
{
    struct loop_config config = {.fd = (uint32_t)image, .info = {.lo_flags = LO_FLAGS_AUTOCLEAR}};
    snprintf((char *)config.info.lo_file_name, sizeof config.info.lo_file_name, "hotcell");
    hc_cleanup_fd int writer = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (writer < 0)
        return no_device(errno, path, err);
    if (ioctl(writer, LOOP_CONFIGURE, &config) < 0)
        return errno == EBUSY ? -EBUSY : hc_fail_errno(err, HC_CLASS_HOST, errno, "attaching a volume to %s", path);
    /* Some kernels mount nothing that somebody else has open to write. */
    int reader = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return reader < 0 ? no_device(errno, path, err) : reader;
}

int volume_device_attach(int image, char path[DEVICE_PATH_SIZE], struct hc_err *err)
{
    hc_cleanup_fd int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (control < 0)
        return no_device(errno, "/dev/loop-control", err);
    int result = -EBUSY;
    for (int try = 0; try < ATTACH_TRIES && result == -EBUSY && err->code == 0; try++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE);
        if (number < 0)
            return no_device(errno, "/dev/loop-control", err);
        snprintf(path, DEVICE_PATH_SIZE, "/dev/loop%d", number);
        result = attach_to(path, image, err);
    }
    return result < 0 && err->code == 0 ? no_device(EBUSY, "a free one", err) : result;
}

/* A mounted file system has its device for itself. */
bool volume_device_busy(const char *path)
{
    hc_cleanup_fd int fd = open(path, O_RDONLY | O_EXCL | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0;
}

/* What the kernel says besides a number: "e ext4: …". */
static int mount_failed(int fs, int code, struct hc_err *err)
{
    char text[256] = "";
    ssize_t length = fs < 0 ? -1 : read(fs, text, sizeof text - 1);
    text[length > 0 ? length : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    hc_fail_errno(err, HC_CLASS_HOST, code, "mounting a volume%s%s", text[0] ? ": " : "",
                  strlen(text) > 2 ? text + 2 : "");
    hc_err_field(err, "volumes");
    return code == ENODEV ? hc_err_remedy(err, "volumes take ext4: modprobe ext4") : -code;
}

int volume_device_mount(const char *path, struct hc_err *err)
{
    hc_cleanup_fd int fs = hc_fsopen("ext4");
    if (fs < 0)
        return mount_failed(-1, errno, err);
    if (hc_fsconfig(fs, HC_FSCONFIG_SET_STRING, "source", path) < 0 ||
        hc_fsconfig(fs, HC_FSCONFIG_SET_STRING, "errors", "remount-ro") < 0 ||
        hc_fsconfig(fs, HC_FSCONFIG_SET_FLAG, "discard", NULL) < 0 || /* what is deleted is given back to the host */
        hc_fsconfig(fs, HC_FSCONFIG_CMD_CREATE, NULL, NULL) < 0)
        return mount_failed(fs, errno, err);
    int mount = hc_fsmount(fs, HC_MOUNT_ATTR_NOSUID | HC_MOUNT_ATTR_NODEV);
    return mount < 0 ? mount_failed(fs, errno, err) : mount;
}
