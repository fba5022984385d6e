/*
 * See warm_python.h. A child gives no reference back that it can do without: it would write to shared memory for it.
 * But an interpreter that goes on to its own end must find nothing kept.
 */
#include "cell/warm_python.h"

#include "base/fd.h"
#include "cell/warm_python_end.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ARCHIVE_END = 1 << 17 };     /* the directory of an archive is no farther from its end */
#define FUNCTION_NAME "__hotcell__" /* in sys */

/* What the driver has told. A preloaded library has nobody to carry its state. */
static struct list {
    size_t count;
    const char **item;
} command, context, names, environment;
static const char *folder, *user_site;
static object *after_fork, *adopt, *become_context, *context_code;
static uint64_t kind[3]; /* of the streams that the zygote has made */

/* ---- before there is a program ---- */

/* Their bytes stay where they are. */
static struct list strings(object *list)
{
    struct list out = {.count = (size_t)python.list_size(list)};
    if (!(out.item = calloc(out.count + 1, sizeof *out.item)))
        _exit(3);
    for (size_t i = 0; i < out.count; i++)
        if (!(out.item[i] = python.text(python.item(list, (ssize_t)i))))
            _exit(3);
    return out;
}

/* What a stream asks of its fd when it is made: where two are of one kind, the stream that was made for the one fits
 * the other. */
static uint64_t kind_of(int fd)
{
    struct stat found;
    if (fstat(fd, &found) < 0)
        return 0;
    return S_ISCHR(found.st_mode)    ? (uint64_t)found.st_rdev << 4 | 1
           : S_ISFIFO(found.st_mode) ? (uint64_t)found.st_blksize << 4 | 2
                                     : 0;
}

static void ask_driver(void)
{
    object *function = python.sys_get(FUNCTION_NAME), *list[5], *end;
    if (!function)
        _exit(3);
    object *pair = python_must(python.build("(O(N))", function, python_end_handler()));
    python.sys_set(FUNCTION_NAME, NULL);
    object *told = python_must(python.call(python.member(pair, 0), python.member(pair, 1)));
    python.drop(pair);
    if (!python.parse(told, "(OOOOO)(OOOO)O", &list[0], &list[1], &list[2], &list[3], &list[4], &after_fork, &adopt,
                      &become_context, &context_code, &end))
        python_must(NULL);
    command = strings(list[0]), context = strings(list[1]), names = strings(list[3]), environment = strings(list[4]);
    struct list places = strings(list[2]);
    folder = places.item[0], user_site = places.item[1];
    python_end_prepare(told, end);
    for (int fd = 0; fd < 3; fd++)
        kind[fd] = kind_of(fd);
}

/* ---- a program ---- */

static bool is_list(const struct list *list, char *const *words, size_t count)
{
    for (size_t i = 0; i < list->count && i < count; i++)
        if (strcmp(list->item[i], words[i]) != 0)
            return false;
    return list->count == count;
}

/* A file of its own folder that no importer of sys.path_hooks would have: neither a link, nor a folder, nor an archive.
 * What is not there is plain, and an error. */
static bool is_plain(const char *path)
{
    hc_cleanup_fd int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
    struct stat found;
    if (fd < 0)
        return errno == ENOENT;
    if (fstat(fd, &found) < 0 || !S_ISREG(found.st_mode))
        return false;
    char part[4096 + 3];
    off_t at = found.st_size > ARCHIVE_END ? found.st_size - ARCHIVE_END : 0;
    for (ssize_t got; (got = pread(fd, part, sizeof part, at)) > 3; at += got - 3)
        if (memmem(part, (size_t)got, "PK\5\6", 4))
            return false;
    return true;
}

static int by_name(const void *key, const void *item)
{
    return strcmp(key, *(const char *const *)item);
}

/* Modules of the program's own, by the names of ones that are loaded. */
static bool has_namesake(void)
{
    DIR *list = names.count ? opendir(".") : NULL;
    bool found = false;
    for (struct dirent *entry; !found && list && (entry = readdir(list));) {
        char *dot = strchr(entry->d_name, '.');
        if (dot)
            *dot = '\0';
        found = bsearch(entry->d_name, names.item, names.count, sizeof *names.item, by_name) != NULL;
    }
    if (list)
        closedir(list);
    return found;
}

static bool is_folder(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 && S_ISDIR(found.st_mode);
}

/* None where the interpreter has the same already. */
static object *list_of(char *const *words, size_t count, const struct list *has)
{
    if (has && is_list(has, words, count))
        return python.none;
    object *list = python_must(python.new_list(0));
    for (size_t i = 0; i < count; i++)
        if (python.append(list, python_must(python.bytes(words[i]))) < 0)
            python_must(NULL);
    return list;
}

/* All objects that its streams consist of, if any were made; or NULL. */
static object *make_own(const struct entry_words *words)
{
    object *argv = list_of(words->argv, words->argc, &command), *env = list_of(words->envp, words->envc, &environment);
    object *fds = python.none;
    for (long fd = 0; fd < 3; fd++)
        if (!kind[fd] || kind_of((int)fd) != kind[fd]) {
            fds = fds == python.none ? python_must(python.new_list(0)) : fds;
            if (python.append(fds, python_must(python.build("l", fd))) < 0)
                python_must(NULL);
        }
    if (argv == python.none && env == python.none && fds == python.none)
        return NULL;
    return python_must(python.call(adopt, python_must(python.build("(NNN)", argv, env, fds))));
}

void warm_python_serve(const struct warm_door *door)
{
    char place[PATH_MAX];
    python_look_up();
    int state = python.ensure(); /* whoever opens a file has let go of the interpreter */
    ask_driver();

    python.before_fork();
    if (door->fork() != 0)
        _exit(1);
    python.after_fork();
    if (after_fork != python.none)
        python_must(python.call(after_fork, NULL));
    const struct entry_words *words = door->receive();
    bool is_context = is_list(&context, words->argv, words->argc);
    bool is_usual = words->argc >= command.count && is_list(&command, words->argv, command.count) &&
                    getcwd(place, sizeof place) && strcmp(place, folder) == 0 && is_plain(words->argv[1]);
    if ((!is_context && !is_usual) || is_folder(user_site) || has_namesake())
        door->start_cold();
    if (is_context) { /* which does not return: there is no main.py to go on with */
        object *globals = python_must(
            python.call(become_context, python_must(python.build("(N)", list_of(words->envp, words->envc, NULL)))));
        python_must(python.run(context_code, globals, globals));
    }
    python_end_begin(make_own(words));
    python.release(state);
}
