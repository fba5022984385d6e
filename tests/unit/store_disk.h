/*
 * A disk that fails: an SQLite VFS around the usual one, and the calls by which the journal is written (the test is
 * linked with --wrap), for tests of the store. Changes to the database, its WAL and the journal are counted; the one
 * with a given number fails once, or is the last one before the power is cut. What a power cut leaves is worked out
 * from what was synced: all of that, and of each later change all, nothing, or (a write) its first half.
 */
#ifndef HC_TESTS_STORE_DISK_H
#define HC_TESTS_STORE_DISK_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DISK_DATABASE, DISK_WAL, DISK_JOURNAL, DISK_FILES, DISK_CHANGES = 4096 };

struct disk_image {
    char path[256];
    char *bytes; /* as synced */
    size_t size, capacity;
};

struct disk_change {
    int file;
    sqlite3_int64 offset;
    int length; /* -1: cut to `offset` */
    char *bytes;
};

struct disk {
    sqlite3_vfs vfs;
    sqlite3_vfs *real;
    sqlite3_io_methods methods;
    pthread_mutex_t lock;
    struct disk_image images[DISK_FILES];
    struct disk_change changes[DISK_CHANGES]; /* not synced */
    int change_count;
    unsigned operations; /* so far */
    unsigned fail_at;    /* 0: never */
    int fail_code;
    bool cut;                  /* fail_at is a power cut: everything fails from then on */
    unsigned cut_at;           /* the same, besides fail_at */
    unsigned syncs, forget_at; /* the sync with this number fails, loses what it was to write, and the next one knows
                                  nothing of it; 0: none */
    bool off;
};

struct disk_file {
    sqlite3_file base;
    struct disk *disk;
    int which; /* or -1 */
    sqlite3_file *real;
};

static inline sqlite3_file *disk_real(sqlite3_file *file)
{
    return ((struct disk_file *)file)->real;
}

/* Counts an operation; the code with which it fails, or SQLITE_OK. */
static inline int disk_count(struct disk *disk)
{
    if (disk->off)
        return SQLITE_IOERR;
    ++disk->operations;
    if (disk->operations == disk->cut_at)
        disk->off = true;
    if (disk->operations == disk->fail_at)
        disk->off |= disk->cut;
    return disk->off || disk->operations == disk->fail_at ? disk->fail_code : SQLITE_OK;
}

static inline void disk_note(struct disk *disk, int which, const void *bytes, int length, sqlite3_int64 offset)
{
    if (disk->change_count == DISK_CHANGES)
        abort();
    struct disk_change *change = &disk->changes[disk->change_count++];
    *change = (struct disk_change){.file = which, .offset = offset, .length = length};
    if (length > 0) {
        change->bytes = malloc((size_t)length);
        memcpy(change->bytes, bytes, (size_t)length);
    }
}

static inline void disk_apply(struct disk *disk, const struct disk_change *change, int length)
{
    struct disk_image *image = &disk->images[change->file];
    size_t end = (size_t)change->offset + (length > 0 ? (size_t)length : 0);
    if (change->length < 0) {
        if (image->size > end)
            image->size = end;
        return;
    }
    if (end > image->capacity) {
        image->capacity = end * 2;
        image->bytes = realloc(image->bytes, image->capacity);
    }
    if (end > image->size) {
        memset(image->bytes + image->size, 0, end - image->size);
        image->size = end;
    }
    memcpy(image->bytes + change->offset, change->bytes, (size_t)length);
}

/* What was not synced of a file is on the disk now, or lost. */
static inline void disk_settle(struct disk *disk, int which, bool lost)
{
    int kept = 0;
    for (int i = 0; i < disk->change_count; i++) {
        struct disk_change *change = &disk->changes[i];
        if (change->file != which || (lost && change->length < 0)) {
            disk->changes[kept++] = *change;
            continue;
        }
        if (!lost)
            disk_apply(disk, change, change->length);
        free(change->bytes);
    }
    disk->change_count = kept;
}

static inline void disk_synced(struct disk *disk, int which)
{
    disk_settle(disk, which, false);
}

/* A sync: the code with which it fails, or SQLITE_OK. */
static inline int disk_try_sync(struct disk *disk, int which)
{
    pthread_mutex_lock(&disk->lock);
    int code = disk_count(disk);
    bool forget = code == SQLITE_OK && ++disk->syncs == disk->forget_at;
    if (code == SQLITE_OK)
        disk_settle(disk, which, forget);
    pthread_mutex_unlock(&disk->lock);
    return forget ? SQLITE_IOERR_FSYNC : code;
}

static int disk_write(sqlite3_file *file, const void *bytes, int length, sqlite3_int64 offset)
{
    struct disk_file *self = (struct disk_file *)file;
    if (self->which < 0 && !self->disk->off)
        return self->real->pMethods->xWrite(self->real, bytes, length, offset);
    pthread_mutex_lock(&self->disk->lock);
    int code = disk_count(self->disk);
    int done = code == SQLITE_OK ? length : self->disk->off ? 0 : length / 2; /* a failing write may do a part */
    if (done > 0) {
        disk_note(self->disk, self->which, bytes, done, offset);
        int real = self->real->pMethods->xWrite(self->real, bytes, done, offset);
        code = code == SQLITE_OK ? real : code;
    }
    pthread_mutex_unlock(&self->disk->lock);
    return code;
}

static int disk_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    struct disk_file *self = (struct disk_file *)file;
    if (self->which < 0 && !self->disk->off)
        return self->real->pMethods->xTruncate(self->real, size);
    pthread_mutex_lock(&self->disk->lock);
    int code = disk_count(self->disk);
    if (code == SQLITE_OK) {
        disk_note(self->disk, self->which, NULL, -1, size);
        code = self->real->pMethods->xTruncate(self->real, size);
    }
    pthread_mutex_unlock(&self->disk->lock);
    return code;
}

static int disk_sync(sqlite3_file *file, int flags)
{
    struct disk_file *self = (struct disk_file *)file;
    (void)flags; /* nothing needs to reach a true disk */
    if (self->which < 0)
        return SQLITE_OK;
    return disk_try_sync(self->disk, self->which);
}

static int disk_close(sqlite3_file *file)
{
    struct disk_file *self = (struct disk_file *)file;
    int code = self->real->pMethods != NULL ? self->real->pMethods->xClose(self->real) : SQLITE_OK;
    free(self->real);
    return code;
}

static int disk_read(sqlite3_file *file, void *bytes, int length, sqlite3_int64 offset)
{
    return disk_real(file)->pMethods->xRead(disk_real(file), bytes, length, offset);
}
static int disk_size(sqlite3_file *file, sqlite3_int64 *size)
{
    return disk_real(file)->pMethods->xFileSize(disk_real(file), size);
}
static int disk_lock(sqlite3_file *file, int level)
{
    return disk_real(file)->pMethods->xLock(disk_real(file), level);
}
static int disk_unlock(sqlite3_file *file, int level)
{
    return disk_real(file)->pMethods->xUnlock(disk_real(file), level);
}
static int disk_check_lock(sqlite3_file *file, int *held)
{
    return disk_real(file)->pMethods->xCheckReservedLock(disk_real(file), held);
}
static int disk_control(sqlite3_file *file, int operation, void *argument)
{
    return disk_real(file)->pMethods->xFileControl(disk_real(file), operation, argument);
}
static int disk_sector(sqlite3_file *file)
{
    return disk_real(file)->pMethods->xSectorSize(disk_real(file));
}
/* No promise of a device that would let SQLite leave something out. */
static int disk_traits(sqlite3_file *file)
{
    (void)file;
    return 0;
}
static int disk_shm_map(sqlite3_file *file, int page, int size, int extend, void volatile **memory)
{
    return disk_real(file)->pMethods->xShmMap(disk_real(file), page, size, extend, memory);
}
static int disk_shm_lock(sqlite3_file *file, int offset, int count, int flags)
{
    return disk_real(file)->pMethods->xShmLock(disk_real(file), offset, count, flags);
}
static void disk_shm_barrier(sqlite3_file *file)
{
    disk_real(file)->pMethods->xShmBarrier(disk_real(file));
}
static int disk_shm_unmap(sqlite3_file *file, int remove)
{
    return disk_real(file)->pMethods->xShmUnmap(disk_real(file), remove);
}

/* What is there when it is first opened is on the disk. */
static inline void disk_load(struct disk_image *image, const char *path)
{
    if (image->path[0] != '\0')
        return;
    snprintf(image->path, sizeof image->path, "%.250s", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t size = fd >= 0 ? lseek(fd, 0, SEEK_END) : 0;
    if (size > 0) {
        image->size = image->capacity = (size_t)size;
        image->bytes = malloc(image->size);
        if (pread(fd, image->bytes, image->size, 0) != (ssize_t)size)
            abort();
    }
    if (fd >= 0)
        close(fd);
}

static int disk_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out)
{
    struct disk *disk = vfs->pAppData;
    struct disk_file *self = (struct disk_file *)file;
    int which = flags & SQLITE_OPEN_MAIN_DB ? DISK_DATABASE : flags & SQLITE_OPEN_WAL ? DISK_WAL : -1;
    *self = (struct disk_file){.disk = disk, .which = which, .real = calloc(1, (size_t)disk->real->szOsFile)};
    int code = disk->real->xOpen(disk->real, name, self->real, flags, out);
    if (code != SQLITE_OK) {
        free(self->real);
        return code;
    }
    self->base.pMethods = &disk->methods;
    if (which >= 0)
        disk_load(&disk->images[which], name);
    if (which == DISK_DATABASE) {
        char journal[300];
        snprintf(journal, sizeof journal, "%s-runs", name);
        disk_load(&disk->images[DISK_JOURNAL], journal);
    }
    return SQLITE_OK;
}

static int disk_delete(sqlite3_vfs *vfs, const char *name, int sync)
{
    struct disk *disk = vfs->pAppData;
    pthread_mutex_lock(&disk->lock);
    int code = disk->off ? SQLITE_IOERR_DELETE : SQLITE_OK;
    if (code == SQLITE_OK && strcmp(name, disk->images[DISK_WAL].path) == 0) {
        disk_synced(disk, DISK_WAL);
        disk->images[DISK_WAL].size = 0;
    }
    pthread_mutex_unlock(&disk->lock);
    return code == SQLITE_OK ? disk->real->xDelete(disk->real, name, sync) : code;
}

/* The journal's calls go here; without a disk they do what they always do. */
static struct disk *disk_under_journal;

ssize_t __real_pwrite64(int fd, const void *bytes, size_t length, off_t offset);
int __real_fdatasync(int fd);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t length, off_t offset);
int __wrap_fdatasync(int fd);

static inline int disk_errno(int code)
{
    errno = code == SQLITE_FULL ? ENOSPC : EIO;
    return -1;
}

ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t length, off_t offset)
{
    struct disk *disk = disk_under_journal;
    if (disk == NULL)
        return __real_pwrite64(fd, bytes, length, offset);
    pthread_mutex_lock(&disk->lock);
    int code = disk_count(disk);
    size_t done = code == SQLITE_OK ? length : disk->off ? 0 : length / 2;
    if (done > 0) {
        disk_note(disk, DISK_JOURNAL, bytes, (int)done, offset);
        if (__real_pwrite64(fd, bytes, done, offset) != (ssize_t)done)
            abort();
    }
    pthread_mutex_unlock(&disk->lock);
    return code == SQLITE_OK ? (ssize_t)length : disk_errno(code);
}

int __wrap_fdatasync(int fd)
{
    struct disk *disk = disk_under_journal;
    if (disk == NULL)
        return __real_fdatasync(fd);
    int code = disk_try_sync(disk, DISK_JOURNAL);
    return code == SQLITE_OK ? 0 : disk_errno(code);
}

static inline struct disk *disk_new(void)
{
    struct disk *disk = calloc(1, sizeof *disk);
    disk->real = sqlite3_vfs_find("unix");
    disk->methods =
        (sqlite3_io_methods){2,           disk_close,   disk_read,     disk_write,       disk_truncate,  disk_sync,
                             disk_size,   disk_lock,    disk_unlock,   disk_check_lock,  disk_control,   disk_sector,
                             disk_traits, disk_shm_map, disk_shm_lock, disk_shm_barrier, disk_shm_unmap, NULL,
                             NULL};
    disk->vfs = *disk->real;
    disk->vfs.pNext = NULL;
    disk->vfs.zName = "failing-disk";
    disk->vfs.szOsFile = sizeof(struct disk_file);
    disk->vfs.pAppData = disk;
    disk->vfs.xOpen = disk_open;
    disk->vfs.xDelete = disk_delete;
    pthread_mutex_init(&disk->lock, NULL);
    sqlite3_vfs_register(&disk->vfs, 1);
    disk_under_journal = disk;
    return disk;
}

/* After everything that used it is closed. */
static inline void disk_free(struct disk *disk)
{
    disk_under_journal = NULL;
    sqlite3_vfs_unregister(&disk->vfs);
    sqlite3_vfs_register(disk->real, 1);
    for (int i = 0; i < disk->change_count; i++)
        free(disk->changes[i].bytes);
    for (int i = 0; i < DISK_FILES; i++)
        free(disk->images[i].bytes);
    pthread_mutex_destroy(&disk->lock);
    free(disk);
}

/* Puts into the folder what the power cut has left; returns whether there was one. Files must be closed. */
static inline bool disk_after_cut(struct disk *disk, unsigned *seed)
{
    if (!disk->off)
        return false;
    for (int i = 0; i < disk->change_count; i++) {
        struct disk_change *change = &disk->changes[i];
        int fate = rand_r(seed) % 3;
        if (fate > 0)
            disk_apply(disk, change, fate == 1 || change->length < 0 ? change->length : change->length / 2);
    }
    for (int i = 0; i < DISK_FILES; i++) {
        const struct disk_image *image = &disk->images[i];
        int fd = image->path[0] != '\0' ? open(image->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
        if (fd >= 0 && image->size > 0 && write(fd, image->bytes, image->size) != (ssize_t)image->size)
            abort();
        close(fd);
    }
    char shm[300];
    snprintf(shm, sizeof shm, "%s-shm", disk->images[DISK_DATABASE].path);
    unlink(shm); /* it is memory */
    return true;
}

#endif
