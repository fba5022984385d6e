/*
 * Which version of a language is installed. Asking the tool costs from 2 ms (python) to half a second (tsc), so answers
 * are kept in one small text file, a line each:
 *
 *     size TAB modified (ns) TAB hash of command and pattern TAB path TAB version
 *
 * The tool's path, size and time are the key: an upgrade changes them. The cache is a convenience and never an
 * authority: it is read only if nobody but us can have written it, replaced by rename so that no reader sees half of
 * it, and when it cannot be written nothing is said and the tool is asked again next time.
 */
#include "run/language.h"

#include "base/buf.h"
#include "base/fd.h"
#include "base/loop.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <regex.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CACHE_LIMIT = 64 * 1024, ANSWER_LIMIT = 64 * 1024, PROBE_MILLISECONDS = 10 * 1000 };

#define CACHE_NAME "versions"

/* ---- the key ---- */

/* FNV-1a: only to notice that a language file changed its question. */
static uint64_t hash_text(uint64_t hash, const char *text)
{
    do
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    while (*text++ != '\0');
    return hash;
}

static int make_key(const struct language *language, char *key, size_t size)
{
    char path[PATH_MAX];
    struct stat status;
    if (language->version_command.count == 0 || realpath(language->version_command.item[0], path) == NULL ||
        stat(path, &status) < 0 || strpbrk(path, "\t\n") != NULL)
        return -ENOENT;
    uint64_t hash = hash_text(0xcbf29ce484222325u, language->version_pattern);
    for (size_t i = 0; i < language->version_command.count; i++)
        hash = hash_text(hash, language->version_command.item[i]);
    int length = snprintf(key, size, "%lld\t%lld%09ld\t%016" PRIx64 "\t%s\t", (long long)status.st_size,
                          (long long)status.st_mtim.tv_sec, status.st_mtim.tv_nsec, hash, path);
    return length > 0 && (size_t)length < size ? 0 : -ENAMETOOLONG;
}

/* ---- the cache ---- */

static bool only_ours(int fd, mode_t type)
{
    struct stat status;
    return fstat(fd, &status) == 0 && (status.st_mode & S_IFMT) == type && status.st_uid == geteuid() &&
           (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

static int cache_path(char *path, size_t size)
{
    const char *base = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    int length;
    if (base != NULL && base[0] == '/')
        length = snprintf(path, size, "%s/hotcell", base);
    else if (geteuid() == 0)
        length = snprintf(path, size, "/var/cache/hotcell");
    else if (home != NULL && home[0] == '/')
        length = snprintf(path, size, "%s/.cache/hotcell", home);
    else
        return -ENOENT;
    return length > 0 && (size_t)length < size ? 0 : -ENAMETOOLONG;
}

/* The cache's folder, made when `make` says so; -1 when there is none that is ours alone. */
static int open_cache(bool make)
{
    char path[PATH_MAX];
    if (cache_path(path, sizeof path) < 0)
        return -1;
    if (make && mkdir(path, 0700) < 0 && errno == ENOENT) {
        char *slash = strrchr(path, '/');
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
        (void)mkdir(path, 0700);
    }
    hc_cleanup_fd int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return folder >= 0 && only_ours(folder, S_IFDIR) ? HC_TAKE_FD(folder) : -1;
}

/* The cache's text, or NULL; malloc'ed. */
static char *read_cache(int folder)
{
    hc_cleanup_fd int fd = openat(folder, CACHE_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    char *text = NULL;
    size_t length;
    if (fd < 0 || !only_ours(fd, S_IFREG) || hc_read_all(fd, CACHE_LIMIT, &text, &length) < 0)
        return NULL;
    return text;
}

static bool look_up(const char *text, const char *key, char *version, size_t size)
{
    size_t key_length = strlen(key);
    for (const char *line = text; line != NULL && *line != '\0';) {
        const char *end = strchrnul(line, '\n');
        if (strncmp(line, key, key_length) == 0) {
            int length = (int)(end - line - (ptrdiff_t)key_length);
            return (size_t)snprintf(version, size, "%.*s", length, line + key_length) < size;
        }
        line = *end == '\n' ? end + 1 : end;
    }
    return false;
}

/* The part of a line, or of a key, that names the tool and the question; its size and time are what may change. */
static const char *line_subject(const char *line)
{
    for (int i = 0; i < 2; i++) {
        line = strchr(line, '\t');
        if (line == NULL)
            return NULL;
        line++;
    }
    return line;
}

/* The old lines, without those of the same subject, and the new one. */
static void merge(struct hc_buf *buf, const char *text, const char *key, const char *version)
{
    const char *subject = line_subject(key);
    for (const char *line = text; line != NULL && *line != '\0';) {
        const char *end = strchrnul(line, '\n');
        const char *other = line_subject(line);
        bool whole = *end == '\n' && other != NULL && other < end;
        if (whole && strncmp(other, subject, strlen(subject)) != 0)
            hc_buf_add(buf, line, (size_t)(end + 1 - line));
        line = *end == '\n' ? end + 1 : end;
    }
    hc_buf_printf(buf, "%s%s\n", key, version);
}

static void remember(const char *key, const char *version)
{
    hc_cleanup_fd int folder = open_cache(true);
    if (folder < 0)
        return;
    hc_cleanup_free char *old = read_cache(folder);
    struct hc_buf buf = HC_BUF_INIT(CACHE_LIMIT);
    merge(&buf, old, key, version);
    if (hc_buf_status(&buf) < 0) { /* full of tools that are gone: begin again */
        hc_buf_release(&buf);
        buf = HC_BUF_INIT(CACHE_LIMIT);
        merge(&buf, NULL, key, version);
    }
    size_t length;
    hc_cleanup_free char *text = hc_buf_take(&buf, &length);
    char name[64];
    snprintf(name, sizeof name, CACHE_NAME ".%ld.%" PRIu64, (long)getpid(), hc_now());
    hc_cleanup_fd int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (text == NULL || fd < 0)
        return;
    if (hc_write_all(fd, text, length) < 0 || renameat(folder, name, folder, CACHE_NAME) < 0)
        (void)unlinkat(folder, name, 0);
}

/* ---- the question ---- */

static pid_t start_tool(char *const *argv, int output)
{
    char path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    char home[] = "HOME=/";
    char locale[] = "LANG=C.UTF-8";
    char *const environment[] = {path, home, locale, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    if (posix_spawn_file_actions_init(&actions) != 0)
        return -1;
    if (posix_spawnattr_init(&attributes) != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return -1;
    }
    /* A group of its own: Ctrl-C is for hotcell to handle, and a tool that hangs is killed with its children. */
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    pid_t pid = -1;
    int failed =
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    failed = failed != 0 ? failed : posix_spawnattr_setsigmask(&attributes, &none);
    failed = failed != 0 ? failed : posix_spawnattr_setsigdefault(&attributes, &all);
    failed = failed != 0 ? failed : posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    failed = failed != 0 ? failed : posix_spawn_file_actions_adddup2(&actions, output, 1);
    failed = failed != 0 ? failed : posix_spawn_file_actions_adddup2(&actions, output, 2);
    failed = failed != 0 ? failed : posix_spawn_file_actions_addchdir_np(&actions, "/");
    if (failed != 0 || posix_spawn(&pid, argv[0], &actions, &attributes, argv, environment) != 0)
        pid = -1;
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

/* Everything the tool says until it closes its output, too much, or too late. */
static bool hear_out(int fd, struct hc_buf *answer)
{
    uint64_t deadline = hc_now() + (uint64_t)PROBE_MILLISECONDS * 1000;
    for (;;) {
        uint64_t now = hc_now();
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        int ready = now >= deadline ? 0 : poll(&wait, 1, (int)((deadline - now + 999) / 1000));
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return false;
        char chunk[4096];
        ssize_t count = read(fd, chunk, sizeof chunk);
        if (count == 0)
            return true;
        if (count < 0 ? errno != EINTR : hc_buf_add(answer, chunk, (size_t)count) < 0)
            return false;
    }
}

static bool ask(const struct language *language, struct hc_buf *answer)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return false;
    hc_cleanup_fd int output = ends[0];
    pid_t pid = start_tool(language->version_command.item, ends[1]);
    hc_close(ends[1]);
    if (pid < 0)
        return false;
    bool heard = hear_out(output, answer);
    (void)kill(-pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return heard;
}

bool language_version_in(const struct language *language, const char *text, char *version, size_t size)
{
    regex_t compiled;
    if (regcomp(&compiled, language->version_pattern, REG_EXTENDED | REG_NEWLINE) != 0)
        return false;
    regmatch_t group[2];
    bool found = regexec(&compiled, text, 2, group, 0) == 0 && group[1].rm_so >= 0;
    regfree(&compiled);
    if (!found)
        return false;
    int length = (int)(group[1].rm_eo - group[1].rm_so);
    snprintf(version, size, "%.*s", length, text + group[1].rm_so);
    return version[0] != '\0' && strpbrk(version, "\t\n") == NULL;
}

void language_version(const struct language *language, char *version, size_t size)
{
    char key[PATH_MAX + 128];
    version[0] = '\0';
    if (make_key(language, key, sizeof key) < 0)
        return;
    hc_cleanup_fd int folder = open_cache(false);
    hc_cleanup_free char *cached = folder >= 0 ? read_cache(folder) : NULL;
    if (look_up(cached, key, version, size))
        return;
    version[0] = '\0';
    struct hc_buf answer = HC_BUF_INIT(ANSWER_LIMIT);
    if (ask(language, &answer) && answer.data != NULL && language_version_in(language, answer.data, version, size))
        remember(key, version);
    else
        version[0] = '\0';
    hc_buf_release(&answer);
}
