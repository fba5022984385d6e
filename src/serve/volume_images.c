/*
 * The files of volumes: volumes/TENANT/NAME.img in the state folder, each a file system. All of it is the keeper's, and
 * closed to everybody else. What is read of an image is its superblock, which only the kernel and mke2fs have written.
 */
#include "base/fd.h"
#include "serve/volume_internal.h"
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char SUFFIX[] = ".img", NEW[] = ".new-";
enum { FILE_NAME_SIZE = VOLUME_NAME_SIZE + 16 };

/* The alphabet of key names (store/keys.c), of which "." and ".." could be made. */
static bool tenant_fits(const char *tenant)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    size_t length = strspn(tenant, letters);
    return length > 0 && tenant[length] == '\0' && tenant[0] != '.';
}

int volume_image_check(const struct serve_volume_facts *facts, struct hc_err *err)
{
    if (!memchr(facts->tenant, '\0', sizeof facts->tenant) || !memchr(facts->name, '\0', sizeof facts->name))
        return hc_fail(err, HC_CLASS_OURS, EPROTO, "the name of a volume is not terminated");
    if (!tenant_fits(facts->tenant)) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "a tenant named \"%s\" cannot have volumes", facts->tenant);
        return hc_err_remedy(err, "use a key whose name does not begin with a dot");
    }
    return volume_check_name(facts->name, err);
}

static int refuse(const struct serve_volume_facts *facts, struct hc_err *err)
{
    return hc_fail(err, HC_CLASS_REQUEST, ENOENT, "there is no volume \"%s\"", facts->name);
}

/* ---- folders ---- */

static bool is_ours(int fd, mode_t type)
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & S_IFMT) == type &&
           (type == S_IFDIR || st.st_nlink == 1);
}

/* The gateway can make files in the state folder: one that is not ours is not used. */
static int open_folder(int above, const char *name, bool make)
{
    if (make && mkdirat(above, name, 0700) < 0 && errno != EEXIST)
        return -errno;
    hc_cleanup_fd int fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    return is_ours(fd, S_IFDIR) ? HC_TAKE_FD(fd) : -EACCES;
}

static int tenant_folder(int folder, const struct serve_volume_facts *facts, bool make, struct hc_err *err)
{
    int result = volume_image_check(facts, err);
    if (result < 0)
        return result;
    int fd = open_folder(folder, facts->tenant, make);
    if (fd == -ENOENT)
        return refuse(facts, err);
    return fd < 0 ? hc_fail_errno(err, HC_CLASS_HOST, -fd, "opening the folder of volumes") : fd;
}

static DIR *list_of(int folder)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (!list)
        hc_close(fd);
    return list;
}

static void clear_new(int folder)
{
    DIR *list = list_of(folder);
    for (struct dirent *entry; list && (entry = readdir(list));)
        if (strncmp(entry->d_name, NEW, sizeof NEW - 1) == 0)
            unlinkat(folder, entry->d_name, 0);
    if (list)
        closedir(list);
}

int volume_images_open(const struct state *state, struct hc_err *err)
{
    hc_cleanup_fd int folder = open_folder(state->lock, "volumes", true);
    if (folder < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, -folder, "opening %s/volumes", state->folder);
    if (fchmod(folder, 0700) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "closing %s/volumes to others", state->folder);
    DIR *list = list_of(folder);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        hc_cleanup_fd int tenant = tenant_fits(entry->d_name) ? open_folder(folder, entry->d_name, false) : -1;
        if (tenant >= 0)
            clear_new(tenant);
    }
    if (list)
        closedir(list);
    return HC_TAKE_FD(folder);
}

/* ---- one ---- */

static const char *file_name(const struct serve_volume_facts *facts, bool made, char name[FILE_NAME_SIZE])
{
    snprintf(name, FILE_NAME_SIZE, "%s%.*s%s", made ? "" : NEW, VOLUME_NAME_SIZE - 1, facts->name, made ? SUFFIX : "");
    return name;
}

int volume_image_open(int folder, const struct serve_volume_facts *facts, struct hc_err *err)
{
    char name[FILE_NAME_SIZE];
    hc_cleanup_fd int tenant = tenant_folder(folder, facts, false, err);
    if (tenant < 0)
        return tenant;
    hc_cleanup_fd int fd = openat(tenant, file_name(facts, true, name), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return refuse(facts, err);
    if (fd < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "opening the volume \"%s\"", facts->name);
    if (!is_ours(fd, S_IFREG))
        return hc_fail(err, HC_CLASS_HOST, EACCES, "the file of the volume \"%s\" is not the server's own",
                       facts->name);
    return HC_TAKE_FD(fd);
}

int volume_image_make(int folder, const struct serve_volume_facts *facts, struct hc_err *err)
{
    char name[FILE_NAME_SIZE];
    hc_cleanup_fd int tenant = tenant_folder(folder, facts, true, err);
    if (tenant < 0)
        return tenant;
    if (faccessat(tenant, file_name(facts, true, name), F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return hc_fail(err, HC_CLASS_REQUEST, EEXIST, "there is a volume \"%s\" already", facts->name);
    unlinkat(tenant, file_name(facts, false, name), 0);
    hc_cleanup_fd int fd = openat(tenant, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)facts->size) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "making the volume \"%s\"", facts->name);
    return HC_TAKE_FD(fd);
}

int volume_image_keep(int folder, const struct serve_volume_facts *facts, struct hc_err *err)
{
    char before[FILE_NAME_SIZE], after[FILE_NAME_SIZE];
    hc_cleanup_fd int tenant = tenant_folder(folder, facts, false, err);
    if (tenant < 0)
        return tenant;
    if (renameat(tenant, file_name(facts, false, before), tenant, file_name(facts, true, after)) < 0 ||
        fsync(tenant) < 0 || fsync(folder) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "keeping the volume \"%s\"", facts->name);
    return 0;
}

void volume_image_drop(int folder, const struct serve_volume_facts *facts)
{
    char name[FILE_NAME_SIZE];
    hc_cleanup_fd int tenant = tenant_folder(folder, facts, false, NULL);
    if (tenant >= 0)
        unlinkat(tenant, file_name(facts, false, name), 0);
}

int volume_image_remove(int folder, const struct serve_volume_facts *facts, struct hc_err *err)
{
    char name[FILE_NAME_SIZE];
    hc_cleanup_fd int tenant = tenant_folder(folder, facts, false, err);
    if (tenant < 0)
        return tenant;
    if (unlinkat(tenant, file_name(facts, true, name), 0) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "removing the volume \"%s\"", facts->name);
    unlinkat(folder, facts->tenant, AT_REMOVEDIR); /* if it was the last */
    return 0;
}

int volume_image_lock(int image)
{
    return flock(image, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;
}

/* ---- what is in it ---- */

/* Of struct ext4_super_block (the kernel's Documentation/filesystems/ext4/super.rst), at 1024 in the image. */
enum {
    SUPERBLOCK = 1024,
    AT_BLOCKS = 0x4,
    AT_FREE = 0xc,
    AT_BLOCK_SIZE = 0x18,
    AT_MAGIC = 0x38,
    AT_CREATED = 0x108,
    AT_OVERHEAD = 0x248
};

static uint64_t number_at(const unsigned char *block, size_t at)
{
    uint32_t value;
    memcpy(&value, block + at, sizeof value);
    return le32toh(value);
}

int volume_image_facts(int image, struct serve_volume_facts *facts)
{
    unsigned char block[1024];
    struct stat st;
    if (fstat(image, &st) < 0)
        return -errno;
    if (pread(image, block, sizeof block, SUPERBLOCK) != (ssize_t)sizeof block ||
        (number_at(block, AT_MAGIC) & 0xffff) != 0xef53 || number_at(block, AT_BLOCK_SIZE) > 6)
        return -EBADMSG;
    uint64_t blocks = number_at(block, AT_BLOCKS), others = number_at(block, AT_FREE) + number_at(block, AT_OVERHEAD);
    facts->size = (uint64_t)st.st_size;
    facts->used = (blocks > others ? blocks - others : 0) << (10 + number_at(block, AT_BLOCK_SIZE));
    facts->created_at = (int64_t)number_at(block, AT_CREATED) * 1000000;
    return 0;
}

/* ---- all ---- */

/* Whether it is the name of an image, and of which. */
static bool take_name(const char *file, struct serve_volume_facts *facts, bool *made)
{
    size_t length = strlen(file), tail = sizeof SUFFIX - 1;
    *made = strncmp(file, NEW, sizeof NEW - 1) != 0;
    if (!*made)
        file += sizeof NEW - 1;
    else if (length > tail && strcmp(file + length - tail, SUFFIX) == 0)
        length -= tail;
    else
        return false;
    snprintf(facts->name, sizeof facts->name, "%.*s", (int)length, file);
    return volume_check_name(facts->name, NULL) == 0;
}

static void each_of_tenant(int folder, const char *tenant, volume_image_fn fn, void *data)
{
    hc_cleanup_fd int own = tenant_fits(tenant) ? open_folder(folder, tenant, false) : -1;
    DIR *list = own < 0 ? NULL : list_of(own);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        struct serve_volume_facts facts = {0};
        struct stat st;
        bool made;
        snprintf(facts.tenant, sizeof facts.tenant, "%s", tenant);
        if (!take_name(entry->d_name, &facts, &made) || fstatat(own, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISREG(st.st_mode))
            continue;
        facts.size = (uint64_t)st.st_size;
        fn(data, &facts, made);
    }
    if (list)
        closedir(list);
}

int volume_images_each(int folder, const char *tenant, volume_image_fn fn, void *data)
{
    if (tenant[0]) {
        each_of_tenant(folder, tenant, fn, data);
        return 0;
    }
    DIR *list = list_of(folder);
    if (!list)
        return -errno;
    for (struct dirent *entry; (entry = readdir(list));)
        each_of_tenant(folder, entry->d_name, fn, data);
    closedir(list);
    return 0;
}
