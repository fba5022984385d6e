/*
 * What may never be mounted into a cell, whatever the configuration allows: the machine's secrets, the kernel's
 * windows, hotcell's own state, other people's homes, and what people keep their keys in. "/" needs no row: it is the
 * parent of all.
 */
#include "base/account.h"
#include "base/fd.h"
#include "run/policy_internal.h"
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

enum { FIRST_USER = 1000, LAST_USER = 60000 }; /* login.defs' range for people */

static const struct {
    const char *path, *reason;
} fixed[] = {
    {"/etc/shadow", "it holds passwords"},
    {"/etc/gshadow", "it holds passwords"},
    {"/etc/passwd", "it tells of this machine's users"},
    {"/etc/sudoers", "it decides who is root"},
    {"/etc/sudoers.d", "it decides who is root"},
    {"/etc/ssh", "it holds this machine's keys"},
    {"/etc/ssl/private", "it holds this machine's keys"},
    {"/etc/hotcell", "it is hotcell's own"},
    {"/root", "it is root's home"},
    {"/proc", "it is a window into the kernel"},
    {"/sys", "it is a window into the kernel"},
    {"/dev", "it holds devices"},
    {"/boot", "it holds the kernel"},
    {"/run", "it holds the sockets of this machine's services"},
    {"/var/run", "it holds the sockets of this machine's services"},
    {"/run/docker.sock", "it gives root on this machine"},
    {"/var/run/docker.sock", "it gives root on this machine"},
    {"/var/lib/docker", "it holds other containers"},
    {"/var/lib/containerd", "it holds other containers"},
    {"/run/hotcell", "it is hotcell's own"},
    {"/var/lib/hotcell", "it is hotcell's own"},
    {"/var/cache/hotcell", "it is hotcell's own"},
};

/* In every home. */
static const char *const secrets[] = {
    ".ssh",   ".aws",   ".gnupg",           ".config", ".docker",         ".kube",
    ".azure", ".netrc", ".git-credentials", ".pgpass", ".password-store", ".local/share/keyrings",
};

static int add_one(struct policy_forbidden *forbidden, const char *path, const char *reason)
{
    if (forbidden->count == forbidden->capacity) {
        size_t capacity = forbidden->capacity ? forbidden->capacity * 2 : 64;
        struct policy_entry *item = reallocarray(forbidden->item, capacity, sizeof *item);
        if (!item)
            return -ENOMEM;
        forbidden->item = item;
        forbidden->capacity = capacity;
    }
    char *copy = strdup(path);
    if (!copy)
        return -ENOMEM;
    struct policy_entry *entry = &forbidden->item[forbidden->count++];
    struct stat status;
    *entry = (struct policy_entry){.path = copy, .reason = reason};
    if (stat(path, &status) == 0) {
        entry->exists = true;
        entry->device = status.st_dev;
        entry->inode = status.st_ino;
    }
    return 0;
}

/* A written path, cleaned of "//", "." and a trailing "/"; one with ".." is left to realpath. */
static int add_path(struct policy_forbidden *forbidden, const char *path, const char *reason)
{
    char clean[PATH_MAX], resolved[PATH_MAX];
    size_t used = 0;
    bool climbs = false;
    for (const char *part = path; *part;) {
        part += strspn(part, "/");
        size_t length = strcspn(part, "/");
        climbs = climbs || (length == 2 && part[0] == '.' && part[1] == '.');
        if (length > 0 && !(length == 1 && part[0] == '.')) {
            if (used + length + 2 > sizeof clean)
                return -ENAMETOOLONG;
            clean[used++] = '/';
            memcpy(clean + used, part, length);
            used += length;
        }
        part += length;
    }
    if (used == 0)
        clean[used++] = '/';
    clean[used] = '\0';
    int rc = climbs ? 0 : add_one(forbidden, clean, reason);
    if (rc == 0 && realpath(path, resolved) && (climbs || strcmp(resolved, clean) != 0))
        rc = add_one(forbidden, resolved, reason);
    return rc;
}

/* ---- homes ---- */

/* A folder that can be someone's home, rather than a default for accounts that have none. */
static bool is_home(const char *path)
{
    static const char *const others[] = {"/",    "/home", "/nonexistent", "/usr", "/var", "/bin", "/sbin",
                                         "/dev", "/tmp",  "/srv",         "/opt", "/mnt", "/etc"};
    for (size_t i = 0; i < COUNT_OF(others); i++)
        if (strcmp(path, others[i]) == 0)
            return false;
    return path[0] == '/';
}

static int add_secrets(struct policy_forbidden *forbidden, const char *home)
{
    for (size_t i = 0; i < COUNT_OF(secrets); i++) {
        char path[PATH_MAX];
        if ((size_t)snprintf(path, sizeof path, "%s/%s", home, secrets[i]) >= sizeof path)
            return -ENAMETOOLONG;
        int rc = add_path(forbidden, path, "it is where keys are kept");
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* The caller's home by the password file: $HOME says whatever its owner wants. "" when there is none. */
static void own_home(char *home, size_t size)
{
    char named[PATH_MAX];
    home[0] = '\0';
    if (hc_account_home(getuid(), named, sizeof named) == 0 && is_home(named) && !realpath(named, home))
        snprintf(home, size, "%s", named);
}

static int add_home(struct policy_forbidden *forbidden, const char *home, const char *own)
{
    char resolved[PATH_MAX];
    int rc = add_secrets(forbidden, home);
    bool is_own = own[0] && (strcmp(home, own) == 0 || (realpath(home, resolved) && strcmp(resolved, own) == 0));
    if (rc == 0 && !is_own)
        rc = add_path(forbidden, home, "it is another user's home");
    return rc;
}

/* Every folder in /home is a home. */
static int add_home_folders(struct policy_forbidden *forbidden, const char *own)
{
    DIR *folder = opendir("/home");
    if (!folder)
        return 0;
    int rc = 0;
    for (struct dirent *entry; rc == 0 && (entry = readdir(folder));) {
        char home[PATH_MAX];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(home, sizeof home, "/home/%s", entry->d_name);
        rc = add_home(forbidden, home, own);
    }
    closedir(folder);
    return rc;
}

/* Homes of people that are somewhere else. Read from the file itself: a directory service may have a hundred thousand.
 */
static int add_listed_homes(struct policy_forbidden *forbidden, const char *own)
{
    FILE *file = fopen("/etc/passwd", "re");
    if (!file)
        return 0;
    int rc = 0;
    for (struct passwd *entry; rc == 0 && (entry = fgetpwent(file));)
        if (entry->pw_uid >= FIRST_USER && entry->pw_uid <= LAST_USER && is_home(entry->pw_dir))
            rc = add_home(forbidden, entry->pw_dir, own);
    fclose(file);
    return rc;
}

int policy_forbidden_load(const struct config *config, struct policy_forbidden *forbidden)
{
    int rc = 0;
    const char *own = forbidden->own;
    own_home(forbidden->own, sizeof forbidden->own);
    for (size_t i = 0; rc == 0 && i < COUNT_OF(fixed); i++)
        rc = add_path(forbidden, fixed[i].path, fixed[i].reason);
    for (size_t i = 0; rc == 0 && i < config->forbidden_paths.count; i++)
        rc = add_path(forbidden, config->forbidden_paths.item[i], FORBIDDEN_BY_SETTING);
    if (rc == 0)
        rc = add_home_folders(forbidden, own);
    if (rc == 0)
        rc = add_listed_homes(forbidden, own);
    if (rc == 0 && own[0])
        rc = add_secrets(forbidden, own);
    const char *named = getenv("HOME");
    if (rc == 0 && named && is_home(named))
        rc = add_secrets(forbidden, named);
    if (rc < 0)
        policy_forbidden_release(forbidden);
    return rc;
}

int policy_forbidden_add(struct policy_forbidden *forbidden, const char *path, const char *reason)
{
    return add_path(forbidden, path, reason);
}

void policy_forbidden_release(struct policy_forbidden *forbidden)
{
    for (size_t i = 0; i < forbidden->count; i++)
        free(forbidden->item[i].path);
    free(forbidden->item);
    forbidden->item = NULL;
    forbidden->count = forbidden->capacity = 0;
}

int policy_forbidden_words(const struct config *config, struct words *out)
{
    struct policy_forbidden forbidden HC_CLEANUP(policy_forbidden_release) = {0};
    int result = policy_forbidden_load(config, &forbidden);
    for (size_t i = 0; i < forbidden.count && result == 0; i++)
        if (words_add(out, forbidden.item[i].path) < 0 || words_add(out, forbidden.item[i].reason) < 0)
            result = -ENOMEM;
    if (result == 0 && !(forbidden.own[0] && policy_is_under(forbidden.own, "/home")) &&
        (words_add(out, "/home") < 0 || words_add(out, "it holds other users' homes") < 0))
        result = -ENOMEM;
    return result;
}
