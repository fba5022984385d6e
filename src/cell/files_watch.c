/*
 * Changes as they happen: theory of operation.
 *
 * inotify tells of each folder that has a watch; with `recursive` every folder gets one, also those that are made
 * later. A line of JSON goes out for each change. Two kinds of events wait a moment before they are told: the first
 * half of a move, for its other half (alone it is a deletion), and a modification, so that a program that writes byte
 * by byte makes some lines a second and not thousands. Nothing else is held back, and what waits is told before
 * anything newer.
 *
 * What is lost is said: {"event":"overflow"} when the kernel's queue was full, or when there are more folders than
 * watches are allowed; who reads it should look at the folder anew. A file that is made in a folder which is itself new
 * may be told twice. It ends when nobody reads the lines any more, or when what is watched is gone.
 */
#include "cell/files_watch.h"

#include "base/fd.h"
#include "base/loop.h"
#include "cell/files_internal.h"
#include "cell/files_walk.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

enum {
    WATCHES = 4096,
    WATCHES_MAX = 100000,
    MODIFIED_WAIT = 100000, /* microseconds */
    MOVED_WAIT = 50000,
};
static const uint32_t events =
    IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF;

enum waiting { NOTHING, MOVED_FROM, MODIFIED };

struct watch {
    struct files_json *body;
    const char *root;
    int inotify;
    bool recursive, announce, over, full;
    struct watch_table table;
    enum waiting waiting; /* what waits, with the three below */
    char path[PATH_MAX];
    bool folder;
    uint32_t cookie;
    uint64_t since;
    char prefix[PATH_MAX]; /* of the tree that is being added */
};

static void tell(struct watch *watch, const char *event, const char *path, const char *to, bool folder)
{
    struct files_json *body = watch->body;
    files_json_open(body, NULL, '{');
    files_json_text(body, "event", event);
    if (path)
        files_put_below(body, "path", watch->root, path);
    if (to)
        files_put_below(body, "to", watch->root, to);
    if (path)
        files_json_text(body, "type", folder ? "directory" : "file");
    files_json_close(body, '}');
    if (files_json_line(body) < 0)
        watch->over = true;
}

static void tell_full(struct watch *watch)
{
    if (!watch->full)
        tell(watch, "overflow", NULL, NULL, false);
    watch->full = true;
}

/* ---- watches ---- */

/* -ENOSPC: there are as many as may be. */
static int add_watch(struct watch *watch, const char *path, uint32_t more)
{
    char full[2 * PATH_MAX];
    snprintf(full, sizeof full, "%s%s%s", watch->root, *path ? "/" : "", path);
    if (watch->table.count == watch->table.limit)
        return -ENOSPC;
    int wd = inotify_add_watch(watch->inotify, full, events | more);
    return wd < 0 ? -errno : watch_table_put(&watch->table, wd, path);
}

static int join(char out[PATH_MAX], const char *folder, const char *name)
{
    int length = snprintf(out, PATH_MAX, "%s%s%s", folder, *folder && *name ? "/" : "", name);
    return length < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int see_entry(struct files_walk *walk, const char *name, unsigned char type, void *data, struct hc_err *err)
{
    struct watch *watch = data;
    char path[PATH_MAX];
    (void)name, (void)err;
    if (watch->announce && join(path, watch->prefix, walk->path.data) == 0)
        tell(watch, "created", path, NULL, type == DT_DIR);
    return watch->over ? -ECANCELED : type == DT_DIR;
}

static int see_folder(struct files_walk *walk, const char *name, void *data, struct hc_err *err)
{
    struct watch *watch = data;
    char path[PATH_MAX];
    (void)name, (void)err;
    int status = join(path, watch->prefix, walk->path.data);
    if (status == 0)
        status = add_watch(watch, path, IN_ONLYDIR | IN_DONT_FOLLOW);
    if (status == -ENOENT || status == -ENOTDIR || status == -EACCES)
        return 1;
    return status < 0 ? status : 0;
}

/* Watches on a folder and all that are in it; with `announce`, what is in it is told as new. */
static int add_tree(struct watch *watch, const char *path, bool announce)
{
    static const struct files_hooks hooks = {.entry = see_entry, .enter = see_folder};
    struct hc_err ignored = {0};
    char full[2 * PATH_MAX];
    snprintf(full, sizeof full, "%s%s%s", watch->root, *path ? "/" : "", path);
    int status = add_watch(watch, path, *path ? IN_ONLYDIR | IN_DONT_FOLLOW : 0);
    if (status < 0)
        return status;
    hc_cleanup_fd int dir = open(full, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (*path ? O_NOFOLLOW : 0));
    if (dir < 0)
        return -errno;
    snprintf(watch->prefix, sizeof watch->prefix, "%s", path);
    watch->announce = announce;
    return files_walk(dir, &hooks, watch, &ignored);
}

static void add_new_tree(struct watch *watch, const char *path)
{
    if (!watch->recursive)
        return;
    int status = add_tree(watch, path, true);
    if (status < 0 && status != -ENOENT && status != -ENOTDIR && status != -EACCES)
        tell_full(watch);
}

static void drop_tree(struct watch *watch, const char *path)
{
    for (int wd; (wd = watch_table_below(&watch->table, path)) >= 0;) {
        inotify_rm_watch(watch->inotify, wd);
        watch_table_drop(&watch->table, wd);
    }
}

/* ---- events ---- */

static void settle(struct watch *watch)
{
    enum waiting waiting = watch->waiting;
    watch->waiting = NOTHING;
    if (waiting == MODIFIED)
        tell(watch, "modified", watch->path, NULL, false);
    if (waiting == MOVED_FROM) { /* to a place that is not watched */
        tell(watch, "deleted", watch->path, NULL, watch->folder);
        if (watch->folder)
            drop_tree(watch, watch->path);
    }
}

static void wait_for_more(struct watch *watch, enum waiting waiting, const char *path, bool folder, uint32_t cookie)
{
    watch->waiting = waiting;
    snprintf(watch->path, sizeof watch->path, "%s", path);
    watch->folder = folder;
    watch->cookie = cookie;
    watch->since = hc_now();
}

static void see_move(struct watch *watch, const char *path, bool folder, uint32_t cookie)
{
    if (watch->waiting != MOVED_FROM || watch->cookie != cookie) { /* from a place that is not watched */
        settle(watch);
        tell(watch, "created", path, NULL, folder);
        if (folder)
            add_new_tree(watch, path);
        return;
    }
    watch->waiting = NOTHING;
    tell(watch, "moved", watch->path, path, folder);
    if (folder && watch_table_move(&watch->table, watch->path, path) < 0)
        tell_full(watch);
}

static void see_change(struct watch *watch, const struct inotify_event *event, const char *path)
{
    bool folder = event->mask & IN_ISDIR;
    if (event->mask & IN_MODIFY) {
        if (watch->waiting == MODIFIED && strcmp(watch->path, path) == 0)
            return;
        settle(watch);
        wait_for_more(watch, MODIFIED, path, false, 0);
    } else if (event->mask & IN_MOVED_FROM) {
        settle(watch);
        wait_for_more(watch, MOVED_FROM, path, folder, event->cookie);
    } else if (event->mask & IN_MOVED_TO) {
        see_move(watch, path, folder, event->cookie);
    } else if (event->mask & IN_DELETE) {
        settle(watch);
        tell(watch, "deleted", path, NULL, folder);
    } else if (event->mask & IN_CREATE) {
        settle(watch);
        if (folder && watch_table_find(&watch->table, path) >= 0)
            return; /* found already, when the folder that it is in was new */
        tell(watch, "created", path, NULL, folder);
        if (folder)
            add_new_tree(watch, path);
    }
}

static void see_event(struct watch *watch, const struct inotify_event *event)
{
    char path[PATH_MAX];
    if (event->mask & IN_Q_OVERFLOW) {
        settle(watch);
        tell(watch, "overflow", NULL, NULL, false);
        if (watch->recursive)
            (void)add_tree(watch, "", false); /* folders that were made unseen */
        return;
    }
    const char *folder = watch_table_path(&watch->table, event->wd);
    if (!folder)
        return;
    bool root = *folder == '\0';
    if (event->mask & IN_IGNORED)
        watch_table_drop(&watch->table, event->wd);
    if (root && event->mask & (IN_IGNORED | IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT)) {
        settle(watch);
        if (!watch->over)
            tell(watch, "deleted", "", NULL, event->mask & IN_ISDIR);
        watch->over = true;
    } else if (!(event->mask & IN_IGNORED) && join(path, folder, event->len ? event->name : "") == 0) {
        see_change(watch, event, path);
    }
}

static void read_events(struct watch *watch)
{
    _Alignas(struct inotify_event) char buffer[16 * 1024];
    ssize_t count = read(watch->inotify, buffer, sizeof buffer);
    for (ssize_t at = 0; at < count && !watch->over;) {
        struct inotify_event *event = (struct inotify_event *)(void *)(buffer + at);
        see_event(watch, event);
        at += (ssize_t)(sizeof *event + event->len);
    }
}

static void watch_on(struct watch *watch)
{
    while (!watch->over) {
        uint64_t now = hc_now();
        uint64_t due = watch->since + (watch->waiting == MODIFIED ? MODIFIED_WAIT : MOVED_WAIT);
        if (watch->waiting != NOTHING && now >= due)
            settle(watch);
        int timeout = watch->waiting == NOTHING ? -1 : (int)((due - now) / 1000) + 1;
        struct pollfd fds[] = {{.fd = watch->inotify, .events = POLLIN}, {.fd = STDOUT_FILENO}};
        if (poll(fds, 2, timeout) < 0 && errno != EINTR)
            return;
        if (fds[1].revents)
            return;
        if (fds[0].revents)
            read_events(watch);
    }
}

static int begin(struct watch *watch, struct hc_err *err)
{
    watch->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (watch->inotify < 0 && errno == EMFILE) {
        hc_fail(err, HC_CLASS_REQUEST, EBUSY, "too many watches are open");
        return hc_err_remedy(err, "end another one first");
    }
    if (watch->inotify < 0)
        return files_fail(err, errno, "watch", watch->root);
    int status = watch->recursive ? add_tree(watch, "", false) : add_watch(watch, "", 0);
    if (status == -ENOTDIR && watch_table_find(&watch->table, "") >= 0)
        return 0; /* a file */
    if (status == -ENOSPC) {
        hc_fail(err, HC_CLASS_REQUEST, EFBIG,
                "cannot watch %s: it has more than %zu folders, or there are no more watches", watch->root,
                watch->table.limit);
        return hc_err_remedy(err, "watch a smaller folder, or without recursive=true");
    }
    return status < 0 ? files_fail(err, -status, "watch", watch->root) : 0;
}

int files_watch(struct files *files, struct hc_err *err)
{
    char path[PATH_MAX];
    uint64_t watches = WATCHES;
    struct watch watch = {.body = &files->body, .root = path, .inotify = -1};
    int status = files_path(files, FILES_PATH, path, err);
    if (status == 0)
        status = files_switch(files, FILES_RECURSIVE, &watch.recursive, err);
    if (status == 0)
        status = files_number(files, FILES_WATCHES, 1, WATCHES_MAX, &watches, err);
    if (status < 0)
        return status;
    watch.table.limit = (size_t)watches;
    status = begin(&watch, err);
    if (status == 0) {
        files_head_begin(files);
        status = files_head_end(files, err);
    }
    if (status == 0)
        watch_on(&watch);
    watch_table_release(&watch.table);
    hc_close(watch.inotify);
    return status;
}
