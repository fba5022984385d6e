/*
 * A folder's list. Of a folder with a million entries only the `limit` first in order (after `after`) are ever held, in
 * a heap whose first is the greatest: an entry that is greater still is passed over, by its name alone. One more than
 * the limit is kept, to know whether there is more.
 */
#include "base/fd.h"
#include "cell/files_internal.h"
#include "cell/files_walk.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LIMIT_MAX = 10000, DEPTH_MAX = 16 };

struct item {
    char *path; /* then, behind its NUL, the target of a symlink */
    ssize_t target_length;
    struct stat stat;
};

struct list {
    struct item *items; /* a heap, at most room */
    size_t count, room;
    uint64_t depth;
    const char *after;
};

/* Names in bytewise order, and a folder right before what is in it: a slash is less than any byte of a name. */
static int compare_paths(const char *left, const char *right)
{
    while (*left && *left == *right)
        left++, right++;
    if (*left == *right)
        return 0;
    int a = *left == '\0' ? -1 : *left == '/' ? 0 : (unsigned char)*left;
    int b = *right == '\0' ? -1 : *right == '/' ? 0 : (unsigned char)*right;
    return a < b ? -1 : 1;
}

static int compare_items(const void *left, const void *right)
{
    return compare_paths(((const struct item *)left)->path, ((const struct item *)right)->path);
}

static void swap(struct item *left, struct item *right)
{
    struct item other = *left;
    *left = *right;
    *right = other;
}

static void sift_up(struct item *items, size_t at)
{
    for (; at > 0 && compare_items(&items[(at - 1) / 2], &items[at]) < 0; at = (at - 1) / 2)
        swap(&items[(at - 1) / 2], &items[at]);
}

static void sift_down(struct item *items, size_t count)
{
    for (size_t at = 0, next; (next = 2 * at + 1) < count; at = next) {
        if (next + 1 < count && compare_items(&items[next], &items[next + 1]) < 0)
            next++;
        if (compare_items(&items[at], &items[next]) >= 0)
            return;
        swap(&items[at], &items[next]);
    }
}

static bool is_past(const struct list *list, const char *path)
{
    return list->count == list->room && compare_paths(path, list->items[0].path) > 0;
}

static int keep(struct list *list, int dir, const char *name, const char *path, struct hc_err *err)
{
    struct item item = {.target_length = -1};
    char target[PATH_MAX];
    if (fstatat(dir, name, &item.stat, AT_SYMLINK_NOFOLLOW) < 0)
        return 0; /* gone meanwhile */
    if (S_ISLNK(item.stat.st_mode))
        item.target_length = readlinkat(dir, name, target, sizeof target);
    size_t length = strlen(path), more = item.target_length > 0 ? (size_t)item.target_length : 0;
    item.path = malloc(length + 1 + more);
    if (!item.path)
        return hc_fail(err, HC_CLASS_HOST, ENOMEM, "no memory for a list of %zu entries", list->room);
    memcpy(item.path, path, length + 1);
    memcpy(item.path + length + 1, target, more);
    if (list->count == list->room) {
        free(list->items[0].path);
        list->items[0] = item;
        sift_down(list->items, list->count);
    } else {
        list->items[list->count] = item;
        sift_up(list->items, list->count++);
    }
    return 0;
}

static int list_entry(struct files_walk *walk, const char *name, unsigned char type, void *data, struct hc_err *err)
{
    struct list *list = data;
    const char *path = walk->path.data;
    bool past = is_past(list, path);
    if (!past && (!list->after || compare_paths(path, list->after) > 0)) {
        int status = keep(list, walk->at, name, path, err);
        if (status < 0)
            return status;
    }
    /* What is in a folder comes after it: past the last one kept there is nothing to be found. */
    return type == DT_DIR && walk->depth < list->depth && !past;
}

static void put_item(struct files_json *body, const struct item *item)
{
    size_t length = strlen(item->path);
    files_json_open(body, NULL, '{');
    files_json_name(body, "name", item->path, length);
    files_put_facts(body, &item->stat, item->target_length < 0 ? NULL : item->path + length + 1,
                    (size_t)item->target_length);
    files_json_close(body, '}');
}

static int put_list(struct files *files, const char *path, const struct list *list, struct hc_err *err)
{
    struct files_json *body = &files->body;
    size_t limit = list->room - 1, shown = list->count < limit ? list->count : limit;
    files_head_begin(files);
    int status = files_head_end(files, err);
    if (status < 0)
        return status;
    files_json_open(body, NULL, '{');
    files_put_path(body, "path", path);
    files_json_text(body, "type", "directory");
    files_json_open(body, "entries", '[');
    for (size_t i = 0; i < shown; i++)
        put_item(body, &list->items[i]);
    files_json_close(body, ']');
    files_json_bool(body, "truncated", list->count > limit);
    files_json_close(body, '}');
    files_json_line(body);
    return files_body_status(body, err);
}

/* Of what is no folder: its facts, and of a symlink (that leads to no folder) its own. */
static int put_one(struct files *files, const char *path, int code, struct hc_err *err)
{
    struct files_json *body = &files->body;
    struct stat stat;
    char target[PATH_MAX];
    if (lstat(path, &stat) < 0)
        return files_fail(err, errno, "list", path);
    if (S_ISDIR(stat.st_mode))
        return files_fail(err, code, "list", path);
    ssize_t length = S_ISLNK(stat.st_mode) ? readlink(path, target, sizeof target) : -1;
    files_head_begin(files);
    int status = files_head_end(files, err);
    if (status < 0)
        return status;
    files_json_open(body, NULL, '{');
    files_put_path(body, "path", path);
    files_put_facts(body, &stat, length < 0 ? NULL : target, (size_t)length);
    files_json_close(body, '}');
    files_json_line(body);
    return files_body_status(body, err);
}

int files_list(struct files *files, struct hc_err *err)
{
    static const struct files_hooks hooks = {.entry = list_entry};
    struct list list = {.depth = 1, .after = files->value[FILES_AFTER]};
    char path[PATH_MAX];
    uint64_t limit = 1000;
    int status = files_path(files, FILES_PATH, path, err);
    if (status == 0)
        status = files_number(files, FILES_LIMIT, 1, LIMIT_MAX, &limit, err);
    if (status == 0)
        status = files_number(files, FILES_DEPTH, 1, DEPTH_MAX, &list.depth, err);
    if (status < 0)
        return status;
    hc_cleanup_fd int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOCTTY | O_CLOEXEC);
    if (dir < 0)
        return put_one(files, path, errno, err);
    list.room = (size_t)limit + 1;
    list.items = calloc(list.room, sizeof *list.items);
    if (!list.items)
        return hc_fail(err, HC_CLASS_HOST, ENOMEM, "no memory for a list of %zu entries", list.room);
    status = files_walk(dir, &hooks, &list, err);
    if (status == 0) {
        qsort(list.items, list.count, sizeof *list.items, compare_items);
        status = put_list(files, path, &list, err);
    }
    for (size_t i = 0; i < list.count; i++)
        free(list.items[i].path);
    free(list.items);
    return status;
}
