/*
 * File descriptors. An fd starts at -1, is always close-on-exec, and has one owner; ownership moves by HC_TAKE_FD.
 */
#ifndef HC_BASE_FD_H
#define HC_BASE_FD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

#define HC_CLEANUP(fn) __attribute__((cleanup(fn)))
#define hc_cleanup_fd HC_CLEANUP(hc_close_ptr)
#define hc_cleanup_free HC_CLEANUP(hc_free_ptr)
#define HC_TAKE_FD(fd)                                                                                                 \
    ({                                                                                                                 \
        int hc_taken = (fd);                                                                                           \
        (fd) = -1;                                                                                                     \
        hc_taken;                                                                                                      \
    })
#define HC_TAKE_PTR(p)                                                                                                 \
    ({                                                                                                                 \
        __typeof__(p) hc_taken = (p);                                                                                  \
        (p) = NULL;                                                                                                    \
        hc_taken;                                                                                                      \
    })

/* Closes fd if it is 0 or more, keeps errno, returns -1 so that `fd = hc_close(fd)` reads well. */
int hc_close(int fd);
void hc_close_ptr(int *fd);
void hc_free_ptr(void *pointer_to_pointer);

int hc_set_nonblock(int fd, bool on);

/* Write all of it; 0 or -errno. Blocking fds. */
int hc_write_all(int fd, const void *data, size_t length);
int hc_writev_all(int fd, struct iovec *parts, size_t count); /* uses `parts` up */
int hc_pwrite_all(int fd, const void *data, size_t length, off_t at);
/* Copy everything from where `from` stands to `to`; 0 or -errno. */
int hc_copy_all(int from, int to);
/* Read up to `size` bytes until end of file; the count, or -errno. */
ssize_t hc_read_full(int fd, void *data, size_t size);

/* Small kernel files, relative to a directory fd (or AT_FDCWD). */
int hc_write_file_at(int dir, const char *path, const char *text);
/* Always NUL-terminates; the count, or -errno; -E2BIG when it does not fit. */
ssize_t hc_read_file_at(int dir, const char *path, char *text, size_t size);
/* The number in a kernel file: a single one, or the one after `key ` on its own line when key is given. -ENODATA if
 * none. */
int hc_read_number_at(int dir, const char *path, const char *key, unsigned long long *value);

/* All of fd, at most `limit` bytes (-EFBIG past that). *data is malloc'ed, NUL-terminated, owned by the caller. */
int hc_read_all(int fd, size_t limit, char **data, size_t *length);

/* A memfd that holds `length` bytes and is sealed against every further change. The fd, or -errno. */
int hc_memfd_sealed(const char *name, const void *data, size_t length);
/* The same of a memfd with no content yet, which is closed where that fails, or an error that is passed on. */
int hc_memfd_fill(int memfd, const void *data, size_t length);
/* A memfd with no content yet, that is sealed later by hc_memfd_seal. */
int hc_memfd_open(const char *name);
int hc_memfd_seal(int fd);
/* 0 if fd is a memfd with every seal (so its size and content are fixed), else -EINVAL. */
int hc_memfd_check(int fd, size_t *length);

/* One message with fds over a SOCK_SEQPACKET socket. All or nothing. 0 or -errno. */
enum { HC_MAX_FDS = 40 };
int hc_send_fds(int socket, const void *data, size_t length, const int *fds, size_t count);
/* The same without waiting: -EAGAIN when there is no room. */
int hc_try_send_fds(int socket, const void *data, size_t length, const int *fds, size_t count);
/* The number of bytes, 0 at end of file, -errno (-EPROTO: truncated, or more fds than max). Received fds are CLOEXEC;
 * all of them are closed on failure. */
ssize_t hc_recv_fds(int socket, void *data, size_t size, int *fds, size_t max, size_t *count);

#endif
