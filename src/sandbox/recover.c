/*
 * What a sandbox that recovers by itself needs: its files, as they were when somebody last used it. A while after each
 * use a helper packs the working directory, and the archive is kept here and by the warden; when the cell dies, the
 * next one begins with it. What changed after that, what does not fit into RECOVER_LIMIT and what cannot be packed is
 * lost with the cell: it is counted, and told with the recovery.
 */
#include "base/fd.h"
#include "base/log.h"
#include "sandbox/errand.h"
#include "sandbox/internal.h"
#include "text/json.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { RECOVER_LIMIT = 256 << 20, HEAD_MAX = 4096, HEAD_DEPTH = 4 };
#define RECOVER_PAUSE (100000ULL)
#define RECOVER_TIME (60 * 1000000ULL)

struct packing { /* one that is being made */
    struct sandbox *sandbox;
    struct errand *errand;
    struct hc_watch *watch;
    int pipe, file;
    bool good;
    uint64_t skipped;
};

static uint64_t skipped_of(const json_t *head)
{
    json_int_t count = json_integer_value(json_object_get(head, "skipped"));
    return count > 0 ? (uint64_t)count : 0;
}

static void packing_free(struct packing *packing)
{
    packing->sandbox->packing = NULL;
    hc_watch_remove(packing->watch);
    hc_close(packing->pipe);
    hc_close(packing->file);
    free(packing);
}

/* False: no more comes. */
static bool take_some(struct packing *packing)
{
    char bytes[65536];
    ssize_t count = read(packing->pipe, bytes, sizeof bytes);
    if (count > 0 && hc_write_all(packing->file, bytes, (size_t)count) < 0)
        packing->good = false;
    return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
}

static void on_readable(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)fd, (void)events;
    struct packing *packing = data;
    if (take_some(packing))
        return;
    hc_watch_remove(packing->watch);
    packing->watch = NULL;
}

static void on_head(void *data, const json_t *head, const struct hc_err *err)
{
    (void)err;
    struct packing *packing = data;
    packing->good = json_is_true(json_object_get(head, "ok"));
    packing->skipped = skipped_of(head);
}

static void on_packed(void *data, bool whole)
{
    struct packing *packing = data;
    struct sandbox *sandbox = packing->sandbox;
    hc_set_nonblock(packing->pipe, false); /* nobody writes any more: the rest, and its end, are there */
    while (packing->watch && take_some(packing))
        continue;
    if (whole && packing->good && hc_memfd_seal(packing->file) == 0) {
        hc_close(sandbox->files);
        sandbox->files = HC_TAKE_FD(packing->file);
        sandbox->skipped = packing->skipped;
        sandbox_save(sandbox);
    } else if (sandbox->state == SANDBOX_RUNNING) {
        hc_log(HC_LOG_WARNING, "sandbox %s: its files could not be packed; if it dies it begins with older ones",
               sandbox->id);
    }
    packing_free(packing);
    if (!sandbox->packed)
        recover_later(sandbox);
}

static int pack(struct sandbox *sandbox)
{
    struct hc_err err = {0};
    struct words words = {0};
    int ends[2];
    struct packing *packing = calloc(1, sizeof *packing);
    if (!packing || pipe2(ends, O_CLOEXEC) < 0) {
        free(packing);
        return -ENOMEM;
    }
    hc_cleanup_fd int theirs = ends[1];
    *packing = (struct packing){.sandbox = sandbox, .pipe = ends[0], .file = hc_memfd_open("hotcell-files")};
    sandbox->packing = packing;
    hc_set_nonblock(ends[0], true);
    packing->watch = hc_loop_watch(sandbox->all->loop, ends[0], EPOLLIN, on_readable, packing);
    struct errand_events events = {.data = packing, .head = on_head, .ended = on_packed};
    int result = packing->file >= 0 && packing->watch ? words_add(&words, "pack") : -ENOMEM;
    if (result == 0)
        result = errand_word(&words, "path", sandbox->plan.cell.work_dir);
    if (result == 0)
        result = errand_number(&words, "limit", RECOVER_LIMIT);
    if (result == 0)
        result = errand_word(&words, "recover", "true");
    if (result == 0)
        result = errand_start(sandbox, &words, -1, theirs, RECOVER_TIME, &events, &packing->errand, &err);
    words_release(&words);
    if (result < 0)
        packing_free(packing);
    sandbox->packed = result == 0; /* until somebody else uses it */
    return result;
}

static void on_time(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct sandbox *sandbox = data;
    sandbox->pack_timer = NULL;
    if (sandbox->state == SANDBOX_RUNNING && !sandbox->packing)
        (void)pack(sandbox); /* the next use tries again */
}

void recover_later(struct sandbox *sandbox)
{
    if (sandbox->recover && !sandbox->packed && !sandbox->packing && !sandbox->pack_timer &&
        sandbox->state == SANDBOX_RUNNING)
        sandbox->pack_timer = hc_loop_timer(sandbox->all->loop, hc_now() + RECOVER_PAUSE, on_time, sandbox);
}

int recover_listen(struct sandbox *sandbox)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    hc_set_nonblock(ends[0], true);
    hc_close(sandbox->fill_head);
    sandbox->fill_head = ends[0];
    return ends[1];
}

void recover_told(struct sandbox *sandbox)
{
    char text[HEAD_MAX];
    hc_cleanup_json json_t *head = NULL;
    /* One line, which a pipe has room for; the helper is gone. */
    ssize_t length = sandbox->fill_head < 0 ? -1 : read(sandbox->fill_head, text, sizeof text);
    sandbox->fill_head = hc_close(sandbox->fill_head);
    if (length > 0)
        (void)hc_json_read(text, (size_t)length, HEAD_DEPTH, &head, NULL);
    sandbox->lost = sandbox->skipped + skipped_of(head);
}

void recover_release(struct sandbox *sandbox)
{
    hc_timer_remove(sandbox->pack_timer);
    sandbox->pack_timer = NULL;
    sandbox->files = hc_close(sandbox->files);
    sandbox->fill_head = hc_close(sandbox->fill_head);
}
