/*
 * See warm_pages.h. What always holds: the rehearsal is over before the zygote says that it waits; its process can
 * outlive neither the zygote nor REHEARSAL_MS; it has its own mounts, so that nothing that it does is seen by the
 * zygote; and what it reports is used as addresses to ask the kernel about, never as anything to read or write.
 */
#include "cell/warm_pages.h"

#include "base/err.h"
#include "base/fd.h"
#include "cell/warm.h"
#include "cell/warm_files.h"
#include "cell/warm_maps.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define POPULATE_WRITE 23 /* MADV_POPULATE_WRITE, Linux 5.14 */
#define COLLAPSE 25       /* MADV_COLLAPSE, Linux 6.1 */
enum {
    REHEARSAL_MS = 5000,
    MAX_WORDS = 64,
    BLOCK_BYTES = 16384,
    REPORT_FD = 60, /* where no interpreter puts one of its own */
    HUGE = 2 << 20,
    PLACE_LEAST = 256 << 10,
    PLACE_ROOM = 64 << 20,
    FILL_MOST = (96 << 10) + 8, /* below what is mapped, and what is given back */
    FILL_LEAST = 24,            /* what fills the smallest chunk */
    FILL_STEP = 16,
};

/* A preloaded library has nobody to carry its state. */
static pid_t rehearsing; /* this process, while it does */
static struct warm_ranges found;
static const char *setting;
static struct rehearsal {
    char *program, *target, folder[256], *words[MAX_WORDS];
    size_t count;
} rehearsal;

/* ---- what it uses ---- */

/* Pages that it has for itself were written to. */
static bool note_written(uint64_t at, uint64_t entry, void *ranges)
{
    if (entry & WARM_IS_PRESENT && entry & WARM_IS_ALONE && !(entry & WARM_IS_FILE))
        warm_maps_add(ranges, at, true);
    return true;
}

static void find_written(void)
{
    hc_cleanup_fd int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    FILE *list = fopen("/proc/self/maps", "re");
    char line[512], *rest;
    uint64_t start, end;
    while (map >= 0 && warm_maps_next(list, line, sizeof line, &start, &end, &rest))
        if (rest[1] == 'r')
            warm_maps_each_page(map, start, end, note_written, &found);
    if (list)
        fclose(list);
}

void warm_pages_report(void)
{
    if (!rehearsing || rehearsing != getpid())
        return;
    rehearsing = 0;
    find_written();
    warm_files_find(&found);
    (void)hc_write_all(REPORT_FD, found.range, found.count * sizeof *found.range);
}

static void report_at_exit(int code, void *nothing)
{
    (void)code, (void)nothing;
    warm_pages_report();
}

/* ---- in the zygote ---- */

/* What the rehearsal has mapped for itself is nobody else's. */
static bool is_mapped(uint64_t start, size_t length)
{
    for (size_t at = 0; at < length; at += WARM_PAGE) {
        unsigned char resident;
        if (mincore((void *)(uintptr_t)(start + at), WARM_PAGE, &resident) < 0)
            return false;
    }
    return true;
}

static void list_written(struct warm_pages *pages)
{
    for (size_t i = 0; i < found.count; i++)
        if (found.range[i].written && is_mapped(found.range[i].start, found.range[i].length))
            pages->list[pages->count++] =
                (struct iovec){(void *)(uintptr_t)found.range[i].start, found.range[i].length};
}

/* What is free between things that stay is taken, for good: a child that is given memory then gets it in one place, and
 * not a piece on each of many pages, all of which it would have to copy. */
static void fill_heap(void)
{
    char *top = (char *)sbrk(0) - mallinfo2().keepcost;
    for (size_t size = FILL_MOST; size >= FILL_LEAST; size -= FILL_STEP)
        for (;;) {
            char *piece = malloc(size);
            if (!piece || piece >= top) {
                free(piece);
                break;
            }
        }
    free(malloc(FILL_MOST)); /* and there is room at the top */
}

void warm_pages_begin(void)
{
    on_exit(report_at_exit, NULL); /* nobody could be earlier, so it comes last: after the dynamic linker's, too */
    setting = getenv(WARM_REHEARSAL);
    uintptr_t now = (uintptr_t)sbrk(0);
    (void)sbrk((intptr_t)((HUGE - now % HUGE) % HUGE));
}

void *warm_pages_place(size_t length)
{
    static uintptr_t next, limit;
    if (length < PLACE_LEAST || length >= HUGE)
        return NULL;
    if (!limit) {
        void *room =
            (void *)syscall(SYS_mmap, NULL, PLACE_ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (room == MAP_FAILED)
            return NULL;
        munmap(room, PLACE_ROOM);
        next = ((uintptr_t)room + HUGE - 1) / HUGE * HUGE;
        limit = (uintptr_t)room + PLACE_ROOM;
    }
    if (next + length > limit)
        return NULL;
    void *place = (void *)next;
    next += (length + WARM_PAGE - 1) / WARM_PAGE * WARM_PAGE;
    return place;
}

/* Memory in large pieces is copied by a fork, and given back at an exit, piece by piece and not page by page. */
static void gather(void)
{
    FILE *list = fopen("/proc/self/maps", "re");
    char line[512], *rest;
    uint64_t start, end;
    while (warm_maps_next(list, line, sizeof line, &start, &end, &rest)) {
        start = (start + HUGE - 1) / HUGE * HUGE;
        end = end / HUGE * HUGE;
        if (strncmp(rest, " rw-p 00000000 00:00 0", 22) == 0 && !strstr(rest, "[stack]") && end > start)
            (void)madvise((void *)(uintptr_t)start, end - start, COLLAPSE);
    }
    if (list)
        fclose(list);
}

/* ---- the rehearsal ---- */

static bool read_setting(struct rehearsal *out)
{
    char *text = setting ? strdup(setting) : NULL, *state = NULL;
    out->count = 0;
    out->program = text ? strtok_r(text, " ", &state) : NULL;
    out->target = out->program ? strtok_r(NULL, " ", &state) : NULL;
    for (char *word; out->target && out->count < MAX_WORDS && (word = strtok_r(NULL, " ", &state));)
        out->words[out->count++] = word;
    const char *slash = out->count ? strrchr(out->target, '/') : NULL;
    if (!slash || (size_t)(slash - out->target) >= sizeof out->folder)
        return false;
    snprintf(out->folder, sizeof out->folder, "%.*s", (int)(slash - out->target), out->target);
    return true;
}

/* As a request's: the counts, the working directory, the command, the variables. */
int warm_pages_block(void)
{
    static char block[BLOCK_BYTES];
    size_t length = 0, variables = 0;
    if (!read_setting(&rehearsal))
        return -1;
    while (environ[variables] && strncmp(environ[variables], WARM_MODE "=", sizeof WARM_MODE) != 0)
        variables++; /* what stands before it is what a program gets */
    length = (size_t)snprintf(block, sizeof block, "%zu%c%zu%c%s", rehearsal.count, 0, variables, 0, rehearsal.folder);
    length++;
    for (size_t i = 0; i < rehearsal.count && length < sizeof block; i++)
        length += (size_t)snprintf(block + length, sizeof block - length, "%s", rehearsal.words[i]) + 1;
    for (size_t i = 0; i < variables && length < sizeof block; i++)
        length += (size_t)snprintf(block + length, sizeof block - length, "%s", environ[i]) + 1;
    return length <= sizeof block ? hc_memfd_sealed("rehearsal", block, length) : -1;
}

static bool copy_file(const char *from, const char *to)
{
    char text[BLOCK_BYTES];
    ssize_t length = hc_read_file_at(AT_FDCWD, from, text, sizeof text);
    hc_cleanup_fd int fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    return length >= 0 && fd >= 0 && hc_write_all(fd, text, (size_t)length) == 0;
}

/* A room that looks like a cell's: the program in a working directory of its own, nothing to read, somebody to write
 * to. */
static bool set_the_stage(const struct rehearsal *of)
{
    int output[2], null;
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", of->folder, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755") < 0 || chdir(of->folder) < 0 ||
        !copy_file(of->program, of->target))
        return false;
    if ((null = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0 || pipe2(output, O_CLOEXEC) < 0 || dup2(null, 0) < 0 ||
        dup2(output[1], 1) < 0 || dup2(output[1], 2) < 0)
        return false;
    hc_close(null);
    hc_close(output[1]); /* the other end stays, above, for as long as the process lives */
    return true;
}

/* Until it closes its end, or its time is over. */
static void hear(int fd)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t deadline = now.tv_sec * 1000 + now.tv_nsec / 1000000 + REHEARSAL_MS;
    size_t length = 0;
    for (;;) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        int64_t left = deadline - (now.tv_sec * 1000 + now.tv_nsec / 1000000);
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (left <= 0 || (poll(&wait, 1, (int)left) <= 0 && errno != EINTR))
            break;
        ssize_t got = read(fd, (char *)found.range + length, sizeof found.range - length);
        if (got <= 0)
            break;
        length += (size_t)got;
    }
    found.count = length / sizeof *found.range;
}

bool warm_pages_rehearse(int (*fork_really)(void), struct warm_pages *pages)
{
    int ends[2];
    pages->count = 0;
    fill_heap();
    gather();
    if (!rehearsal.count || pipe2(ends, O_CLOEXEC) < 0)
        return false;
    pid_t pid = fork_really();
    if (pid == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || dup3(ends[1], REPORT_FD, O_CLOEXEC) < 0)
            _exit(125);
        hc_close(ends[0]);
        hc_close(ends[1]);
        warm_files_begin();
        if (!set_the_stage(&rehearsal))
            _exit(125);
        rehearsing = getpid();
        return true;
    }
    hc_close(ends[1]);
    if (pid > 0) {
        hear(ends[0]);
        kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            continue;
        warm_files_hand_down(&found);
        list_written(pages);
    }
    hc_close(ends[0]);
    return false;
}

/* ---- what it is for ---- */

/* All in one call, which a process may ask of itself since Linux 6.13. False: this kernel does not do that. */
static bool take_together(const struct iovec *list, size_t count)
{
    hc_cleanup_fd int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    for (size_t at = 0; at < count;) {
        size_t some = count - at < IOV_MAX ? count - at : IOV_MAX;
        ssize_t done = syscall(SYS_process_madvise, self, list + at, some, POPULATE_WRITE, 0);
        if (done <= 0 && at == 0)
            return false;
        if (done <= 0)
            at++; /* where something else is now, or nothing, there is nothing to be gained */
        for (; done > 0 && at < count; at++)
            done -= (ssize_t)list[at].iov_len;
    }
    return true;
}

void warm_pages_take(const struct warm_pages *pages, uint64_t most)
{
    size_t count = 0;
    while (count < pages->count && pages->list[count].iov_len <= most)
        most -= pages->list[count++].iov_len;
    if (!count || take_together(pages->list, count))
        return;
    for (size_t i = 0; i < count; i++)
        (void)madvise(pages->list[i].iov_base, pages->list[i].iov_len, POPULATE_WRITE);
}
