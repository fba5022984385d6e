/*
 * The prepared caches of compilers (run/prepare.h): a folder of the keeper's in the state folder, which cells see and
 * nobody but the keeper can write to. A language's part is made when the language is first used, by a child of the
 * keeper's with a low priority, in a cell of its own. Until then, and where it fails, compilers do without.
 *
 * What always holds: there is one such child at most, and it ends with the keeper.
 */
#include "base/fd.h"
#include "base/log.h"
#include "kernel/sys.h"
#include "run/language.h"
#include "run/prepare.h"
#include "serve/internal.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A server that is used for a moment, or has just begun to be, has better things to do. */
enum { CACHES_PAUSE = 3 * 1000000, CACHES_NICE = 19, CACHES_FD = 3 };

/* The gateway can make files in the state folder: one that is not ours is not used. */
static int open_folder(const struct state *state)
{
    hc_cleanup_fd int fd = -1;
    struct stat st;
    if (mkdirat(state->lock, "cache", 0755) < 0 && errno != EEXIST)
        return -errno;
    fd = openat(state->lock, "cache", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (st.st_uid != geteuid())
        return -EACCES;
    return fchmod(fd, 0755) < 0 ? -errno : HC_TAKE_FD(fd);
}

void caches_open(struct keeper_server *server)
{
    struct caches *caches = &server->caches;
    if (!server->config->prepare)
        return;
    caches->folder = open_folder(&server->state);
    caches->wanted = calloc(languages_count(server->known) + 1, sizeof *caches->wanted);
    if (caches->folder < 0 || !caches->wanted) {
        hc_log(HC_LOG_WARNING, "nothing is prepared for compilers: %s/cache: %s", server->state.folder,
               strerror(caches->folder < 0 ? -caches->folder : ENOMEM));
        caches->folder = hc_close(caches->folder);
        return;
    }
    prepare_clear(caches->folder);
    snprintf(caches->path, sizeof caches->path, "%.4080s/cache", server->state.folder);
    server->plan.image.cache = caches->path;
}

/* ---- the child ---- */

static int become_child(const struct keeper_server *server)
{
    sigset_t none;
    sigemptyset(&none);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || dup2(server->caches.folder, CACHES_FD) < 0 ||
        syscall(SYS_close_range, CACHES_FD + 1, ~0U, 0) < 0)
        return -errno;
    setpriority(PRIO_PROCESS, 0, CACHES_NICE);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    return 0;
}

/* All that are wanted, one after another. Never returns. */
static void prepare_wanted(const struct keeper_server *server)
{
    if (become_child(server) < 0)
        _exit(1);
    for (size_t i = 0; i < languages_count(server->known); i++) {
        const struct language *language = languages_at(server->known, i);
        struct hc_err err = {0};
        if (!server->caches.wanted[i])
            continue;
        uint64_t begun = hc_now();
        int result = prepare_cache(server->config, language, CACHES_FD, &err);
        if (result < 0)
            hc_log(HC_LOG_WARNING, "nothing is prepared for %s: %s", language->name, err.message);
        else if (result > 0)
            hc_log(HC_LOG_INFO, "prepared the cache of %s in %.1f s", language->name, (double)(hc_now() - begun) / 1e6);
    }
    _exit(0);
}

static void start(struct keeper_server *server);

static void on_child_gone(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)fd, (void)events;
    struct keeper_server *server = data;
    caches_stop(server);
    if (server->caches.more)
        start(server);
}

static void on_pause_over(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct keeper_server *server = data;
    struct caches *caches = &server->caches;
    caches->timer = NULL;
    caches->more = false;
    caches->pid = hc_clone(0, -1, &caches->pidfd);
    if (caches->pid == 0)
        prepare_wanted(server);
    memset(caches->wanted, 0, languages_count(server->known) * sizeof *caches->wanted);
    if (caches->pid > 0)
        caches->watch = hc_loop_watch(server->loop, caches->pidfd, EPOLLIN, on_child_gone, server);
}

static void start(struct keeper_server *server)
{
    server->caches.more = true;
    if (server->caches.pid <= 0 && !server->caches.timer)
        server->caches.timer = hc_loop_timer(server->loop, hc_now() + CACHES_PAUSE, on_pause_over, server);
}

void caches_want(struct keeper_server *server, const char *name)
{
    for (size_t i = 0; server->caches.folder >= 0 && i < languages_count(server->known); i++) {
        const struct language *language = languages_at(server->known, i);
        if (strcmp(language->name, name) != 0 || !language->prepare.present || !language_available(language, NULL))
            continue;
        server->caches.wanted[i] = true;
        start(server);
    }
}

void caches_stop(struct keeper_server *server)
{
    struct caches *caches = &server->caches;
    hc_watch_remove(caches->watch);
    caches->watch = NULL;
    if (caches->pid > 0) {
        hc_pidfd_signal(caches->pidfd, SIGKILL);
        while (waitpid(caches->pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
    caches->pid = 0;
    caches->pidfd = hc_close(caches->pidfd);
}

void caches_close(struct keeper_server *server)
{
    hc_timer_remove(server->caches.timer);
    caches_stop(server);
    hc_close(server->caches.folder);
    free(server->caches.wanted);
}
