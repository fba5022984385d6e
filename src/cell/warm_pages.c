/*
 * See warm_pages.h. What always holds: the rehearsal is over before the zygote says that it waits; its process can
 * outlive neither the zygote nor REHEARSAL_MS; it has its own mounts, so that nothing that it does is seen by the
 * zygote; and what it reports is used as addresses to ask the kernel about, never as anything to read or write.
 */
#include "cell/warm_pages.h"

#include "base/err.h"
#include "base/fd.h"
#include "cell/warm.h"
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

#define POPULATE_READ 22 /* MADV_POPULATE_READ and _WRITE, Linux 5.14 */
#define POPULATE_WRITE 23
#define COLLAPSE 25 /* MADV_COLLAPSE, Linux 6.1 */
enum {
    REHEARSAL_MS = 5000,
    MAX_WORDS = 64,
    BLOCK_BYTES = 16384,
    REPORT_FD = 60, /* where no interpreter puts one of its own */
    PAGE = 4096,
    HUGE = 2 << 20,
    PLACE_LEAST = 256 << 10,
    PLACE_ROOM = 64 << 20,
    AT_ONCE = 512,              /* entries of the page map */
    FILL_MOST = (96 << 10) + 8, /* below what is mapped, and what is given back */
    FILL_LEAST = 24,            /* what fills the smallest chunk */
    FILL_STEP = 16,
};
#define IS_PRESENT (1ull << 63)
#define IS_SWAPPED (1ull << 62)
#define IS_FILE (1ull << 61)
#define IS_ALONE (1ull << 56) /* mapped by this process only */

struct range {
    uint64_t start;
    uint32_t length; /* bytes */
    uint32_t written;
};

struct ranges { /* what a rehearsal tells */
    size_t count;
    struct range range[WARM_MOST_RANGES];
};

/* A preloaded library has nobody to carry its state. */
static pid_t rehearsing; /* this process, while it does */
static struct ranges found;

/* ---- what it uses ---- */

static void add_page(uint64_t address, bool written, size_t *total)
{
    struct range *last = found.count ? &found.range[found.count - 1] : NULL;
    if (*total == WARM_MOST_PAGES)
        return;
    /* Asking once more costs as much as a page or two do. */
    uint64_t gap = written ? 0 : 8 * PAGE;
    if (last && last->written == written && address - (last->start + last->length) <= gap)
        last->length = (uint32_t)(address + PAGE - last->start);
    else if (found.count < WARM_MOST_RANGES)
        found.range[found.count++] = (struct range){address, PAGE, written};
    else
        return;
    ++*total;
}

/* What the kernel's page map says of each page, until `look` says false. Returns whether it never did. */
static bool for_each_page(int map, uint64_t start, uint64_t end,
                          bool (*look)(uint64_t at, uint64_t entry, size_t *data), size_t *data)
{
    uint64_t entry[AT_ONCE];
    for (uint64_t at = start; at < end;) {
        size_t want = (end - at) / PAGE < AT_ONCE ? (end - at) / PAGE : AT_ONCE;
        ssize_t got = pread(map, entry, want * sizeof *entry, (off_t)(at / PAGE * sizeof *entry));
        if (got < (ssize_t)sizeof *entry)
            return false;
        for (size_t i = 0; i < (size_t)got / sizeof *entry; i++, at += PAGE)
            if (!look(at, entry[i], data))
                return false;
    }
    return true;
}

/* Pages that it has for itself were written to. Those of files are shared by everybody, but each process has to be
 * shown them. */
static bool note_used(uint64_t at, uint64_t entry, size_t *total)
{
    if (entry & IS_PRESENT && entry & (IS_FILE | IS_ALONE))
        add_page(at, !(entry & IS_FILE), total);
    return true;
}

/* Nothing was written to it, by a linker for instance: what is there is what the file has. */
static bool is_as_in_file(uint64_t at, uint64_t entry, size_t *unused)
{
    (void)at, (void)unused;
    return !(entry & (IS_PRESENT | IS_SWAPPED)) || entry & IS_FILE;
}

/* The next mapping of this process; `rest` is what the kernel says of it behind its addresses. */
static bool next_mapping(FILE *list, char *line, int size, uint64_t *start, uint64_t *end, char **rest)
{
    char *next;
    if (!list || !fgets(line, size, list))
        return false;
    *start = strtoull(line, &next, 16);
    *end = strtoull(*next == '-' ? next + 1 : next, rest, 16);
    return *end > *start && strlen(*rest) > 4;
}

static void find_pages(void)
{
    hc_cleanup_fd int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    FILE *list = fopen("/proc/self/maps", "re");
    char line[512], *rest;
    uint64_t start, end;
    size_t total = 0;
    while (map >= 0 && next_mapping(list, line, sizeof line, &start, &end, &rest))
        if (rest[1] == 'r')
            for_each_page(map, start, end, note_used, &total);
    if (list)
        fclose(list);
}

__attribute__((destructor)) void warm_pages_report(void)
{
    if (!rehearsing || rehearsing != getpid())
        return;
    rehearsing = 0;
    find_pages();
    (void)hc_write_all(REPORT_FD, found.range, found.count * sizeof *found.range);
}

/* ---- pages of files ---- */

/* A mapping of a file that is only read: a fork leaves out its pages, for a child can find them again. */
static bool is_left_out(const char *rest)
{
    const char *inode = rest; /* " r-xp 00000000 fe:00 1234 …" */
    for (int field = 0; inode && field < 3; field++)
        inode = strchr(inode + 1, ' ');
    return rest[1] == 'r' && rest[2] == '-' && rest[4] == 'p' && inode && strtoul(inode, NULL, 10) != 0;
}

/* Of what overlaps this mapping. False: nothing does. */
static bool for_each_part(uint64_t start, uint64_t end, bool take)
{
    bool any = false;
    for (size_t i = 0; i < found.count; i++) {
        const struct range *range = &found.range[i];
        uint64_t from = range->start > start ? range->start : start, to = range->start + range->length;
        to = to < end ? to : end;
        if (range->written || from >= to)
            continue;
        any = true;
        if (take)
            (void)madvise((void *)(uintptr_t)from, to - from, POPULATE_READ);
    }
    return any;
}

/* A mapping in which one page is the process's own has all its pages copied to a child (vma_needs_copy in the kernel's
 * mm/memory.c), at a fifth of the price at which the child would find them. So one page of each mapping is written over
 * by itself, pages that programs do not need are let go, and those that they do are there. */
static void hand_down_files(void)
{
    hc_cleanup_fd int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    hc_cleanup_fd int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    FILE *list = fopen("/proc/self/maps", "re");
    char line[512], *rest;
    uint64_t start, end;
    bool good = map >= 0 && memory >= 0 && list;
    while (good && next_mapping(list, line, sizeof line, &start, &end, &rest)) {
        if (!is_left_out(rest) || !for_each_part(start, end, false) ||
            !for_each_page(map, start, end, is_as_in_file, NULL))
            continue;
        char byte;
        (void)madvise((void *)(uintptr_t)start, end - start, MADV_DONTNEED);
        good = pread(memory, &byte, 1, (off_t)start) == 1 && pwrite(memory, &byte, 1, (off_t)start) == 1;
        for_each_part(start, end, true);
    }
    if (list)
        fclose(list);
}

static void list_written(struct warm_pages *pages)
{
    for (size_t i = 0; i < found.count; i++)
        if (found.range[i].written)
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

void warm_pages_align(void)
{
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
    next += (length + PAGE - 1) / PAGE * PAGE;
    return place;
}

/* Memory in large pieces is copied by a fork, and given back at an exit, piece by piece and not page by page. */
static void gather(void)
{
    FILE *list = fopen("/proc/self/maps", "re");
    char line[512], *rest;
    uint64_t start, end;
    while (next_mapping(list, line, sizeof line, &start, &end, &rest)) {
        start = (start + HUGE - 1) / HUGE * HUGE;
        end = end / HUGE * HUGE;
        if (strncmp(rest, " rw-p 00000000 00:00 0", 22) == 0 && !strstr(rest, "[stack]") && end > start)
            (void)madvise((void *)(uintptr_t)start, end - start, COLLAPSE);
    }
    if (list)
        fclose(list);
}

/* ---- the rehearsal ---- */

/* As a request's: the counts, the working directory, the command, the variables. */
static int make_block(char *const *words, size_t count, const char *folder)
{
    static char block[BLOCK_BYTES];
    size_t length = 0, variables = 0;
    while (environ[variables] && strncmp(environ[variables], WARM_MODE "=", sizeof WARM_MODE) != 0)
        variables++; /* what stands before it is what a program gets */
    length = (size_t)snprintf(block, sizeof block, "%zu%c%zu%c%s", count, 0, variables, 0, folder) + 1;
    for (size_t i = 0; i < count && length < sizeof block; i++)
        length += (size_t)snprintf(block + length, sizeof block - length, "%s", words[i]) + 1;
    for (size_t i = 0; i < variables && length < sizeof block; i++)
        length += (size_t)snprintf(block + length, sizeof block - length, "%s", environ[i]) + 1;
    return length <= sizeof block ? hc_memfd_sealed("rehearsal", block, length) : -E2BIG;
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
static bool set_the_stage(char *text, int *block)
{
    char *words[MAX_WORDS], *state = NULL, folder[256];
    size_t count = 0;
    const char *program = strtok_r(text, " ", &state), *target = program ? strtok_r(NULL, " ", &state) : NULL;
    for (char *word; count < MAX_WORDS && (word = strtok_r(NULL, " ", &state));)
        words[count++] = word;
    const char *slash = target ? strrchr(target, '/') : NULL;
    int output[2], null;
    if (!count || !slash || (size_t)(slash - target) >= sizeof folder)
        return false;
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - target), target);
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755") < 0 || chdir(folder) < 0 ||
        !copy_file(program, target))
        return false;
    if ((null = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0 || pipe2(output, O_CLOEXEC) < 0 || dup2(null, 0) < 0 ||
        dup2(output[1], 1) < 0 || dup2(output[1], 2) < 0)
        return false;
    hc_close(null);
    hc_close(output[1]); /* the other end stays, above, for as long as the process lives */
    *block = make_block(words, count, folder);
    return *block >= 0;
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

bool warm_pages_rehearse(int (*fork_really)(void), struct warm_pages *pages, int *block)
{
    const char *setting = getenv(WARM_REHEARSAL);
    hc_cleanup_free char *text = setting ? strdup(setting) : NULL;
    int ends[2];
    pages->count = 0;
    fill_heap();
    gather();
    if (!text || pipe2(ends, O_CLOEXEC) < 0)
        return false;
    pid_t pid = fork_really();
    if (pid == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || dup3(ends[1], REPORT_FD, O_CLOEXEC) < 0)
            _exit(125);
        hc_close(ends[0]);
        hc_close(ends[1]);
        if (!set_the_stage(text, block))
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
        hand_down_files();
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
