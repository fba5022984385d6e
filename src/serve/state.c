/*
 * The state folder: the gateway's database and the shared workspace are in it, and the audit log, which is the
 * keeper's. The folder is the keeper's, with the sticky bit, and open to the gateway's group: the gateway makes and
 * removes its own files there, and cannot remove or replace the audit log.
 */
#include "serve/internal.h"

#include "base/fd.h"
#include "run/config_internal.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* A folder of root's is never shown to guests as their own. */
enum { STORED_UID = CUSTODY_STORED_UID };

static int make_folders(const char *path, mode_t mode, struct hc_err *err)
{
    char text[PATH_MAX];
    snprintf(text, sizeof text, "%s", path);
    for (char *slash = strchr(text + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash)
            *slash = '\0';
        if (mkdir(text, slash ? 0755 : mode) < 0 && errno != EEXIST)
            return hc_fail_errno(err, HC_CLASS_HOST, errno, "making the folder %s", text);
        if (!slash)
            return 0;
        *slash = '/';
    }
}

static int usual_place(char *path, size_t size, struct hc_err *err)
{
    if (geteuid() == 0) {
        snprintf(path, size, "/var/lib/hotcell");
        return 0;
    }
    const char *folder = getenv("XDG_STATE_HOME");
    char home[2048];
    if (folder && folder[0] == '/')
        snprintf(path, size, "%s/hotcell", folder);
    else if (config_home(home, sizeof home) == 0)
        snprintf(path, size, "%s/.local/state/hotcell", home);
    else
        return hc_fail(err, HC_CLASS_REQUEST, ENOENT, "there is no home folder for the state; name one with --state");
    return 0;
}

static int open_folder(struct state *state, const struct config *config, const struct serve_options *options,
                       struct hc_err *err)
{
    char path[PATH_MAX] = "";
    const char *named = options->state ? options->state : config->server.state;
    if (named[0])
        snprintf(path, sizeof path, "%s", named);
    int result = named[0] ? 0 : usual_place(path, sizeof path, err);
    if (result == 0 && options->check && access(path, F_OK) < 0 && errno == ENOENT)
        return 0; /* it will be made */
    if (result == 0)
        result = make_folders(path, 0700, err);
    if (result < 0) {
        hc_err_field(err, options->state ? "--state" : "server.state");
        return result;
    }
    if (!realpath(path, state->folder))
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "opening the state folder %s", path);
    state->lock = open(state->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat st;
    if (state->lock < 0 || fstat(state->lock, &st) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "opening the state folder %s", state->folder);
    if (st.st_uid != geteuid()) {
        hc_fail(err, HC_CLASS_REQUEST, EACCES, "the state folder %s belongs to uid %u", state->folder,
                (unsigned)st.st_uid);
        return hc_err_remedy(err, "name another with --state, or make it yours");
    }
    /* A check comes before a reload, while the server holds it. */
    if (!options->check && flock(state->lock, LOCK_EX | LOCK_NB) < 0) {
        hc_fail(err, HC_CLASS_HOST, EBUSY, "another server uses the state folder %s", state->folder);
        return hc_err_remedy(err, "stop it, or name another folder with --state");
    }
    return 0;
}

static bool is_empty(const char *path)
{
    DIR *list = opendir(path);
    bool empty = true;
    for (struct dirent *entry; list && empty && (entry = readdir(list));)
        empty = entry->d_name[0] == '.' && (entry->d_name[1] == '\0' || strcmp(entry->d_name, "..") == 0);
    if (list)
        closedir(list);
    return list && empty;
}

/* OUTPUT_DATA_PATH is what the older server called it. */
static int open_workspace(struct state *state, const struct config *config, bool check, struct hc_err *err)
{
    const char *named = getenv("OUTPUT_DATA_PATH");
    char path[PATH_MAX + 16];
    if (!named || !named[0])
        named = config->server.workspace;
    if (named[0])
        snprintf(path, sizeof path, "%s", named);
    else
        snprintf(path, sizeof path, "%s/workspace", state->folder);
    if (check && ((!named[0] && !state->folder[0]) || (access(path, F_OK) < 0 && errno == ENOENT)))
        return 0; /* it will be made */
    int result = make_folders(path, 0755, err);
    if (result < 0)
        return result;
    if (!realpath(path, state->workspace))
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "opening the workspace %s", path);
    struct stat st;
    if (stat(state->workspace, &st) < 0 || !S_ISDIR(st.st_mode))
        return hc_fail(err, HC_CLASS_REQUEST, ENOTDIR, "the workspace %s is not a folder", state->workspace);
    if (geteuid() != 0 || st.st_uid != 0)
        return 0;
    if (is_empty(state->workspace) && (check || chown(state->workspace, STORED_UID, STORED_UID) == 0))
        return 0;
    hc_fail(err, HC_CLASS_REQUEST, EACCES, "the workspace %s belongs to root, and guests may not write what is root's",
            state->workspace);
    hc_err_field(err, "server.workspace");
    return hc_err_remedy(err, "name an empty folder; or, if this one is for nothing else: chown -R %d:%d %s",
                         STORED_UID, STORED_UID, state->workspace);
}

static int choose_socket(struct state *state, const struct config *config, const struct serve_options *options,
                         struct hc_err *err)
{
    const char *named = config->server.socket, *runtime = getenv("XDG_RUNTIME_DIR");
    state->socket[0] = '\0';
    if (strcmp(named, "none") == 0)
        return 0;
    if (named[0]) {
        snprintf(state->socket, sizeof state->socket, "%s", named);
        return 0;
    }
    bool private_instance = options->state || options->listen_count;
    if (!private_instance && geteuid() == 0)
        snprintf(state->socket, sizeof state->socket, "/run/hotcell/hotcell.sock");
    else if (!private_instance && runtime && runtime[0] == '/')
        snprintf(state->socket, sizeof state->socket, "%s/hotcell.sock", runtime);
    else
        snprintf(state->socket, sizeof state->socket, "%.4000s/hotcell.sock", state->folder);
    return strncmp(state->socket, "/run/hotcell/", 13) == 0 ? make_folders("/run/hotcell", 0755, err) : 0;
}

int state_open(struct state *state, const struct config *config, const struct serve_options *options,
               struct hc_err *err)
{
    state->lock = state->audit = -1;
    int result = open_folder(state, config, options, err);
    if (result == 0)
        result = open_workspace(state, config, options->check, err);
    if (result < 0 || options->check)
        return result;
    result = choose_socket(state, config, options, err);
    if (result < 0)
        return result;
    state->audit = openat(state->lock, "audit.log", O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (state->audit < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "opening %s/audit.log", state->folder);
    return 0;
}

/* Whoever had a file before could have put anything in its place: only a regular file with one name is given away. */
static int give_file(int folder, const char *name, uid_t uid, gid_t gid, struct hc_err *err)
{
    hc_cleanup_fd int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return 0;
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "opening %s in the state folder", name);
    if (!S_ISREG(st.st_mode) || st.st_nlink != 1)
        return hc_fail(err, HC_CLASS_HOST, EACCES, "%s in the state folder is not a plain file of ours", name);
    if ((st.st_uid != uid || st.st_gid != gid) && fchown(fd, uid, gid) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "giving %s to the gateway", name);
    return 0;
}

int state_give(const struct state *state, uid_t uid, gid_t gid, struct hc_err *err)
{
    static const char *const files[] = {"history.db", "history.db-wal", "history.db-shm", "history.db-journal",
                                        "history.db-runs"};
    if (uid == 0)
        return 0;
    if (fchown(state->lock, geteuid(), gid) < 0 || fchmod(state->lock, 01770) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "opening the state folder to the gateway");
    int result = 0;
    for (size_t i = 0; i < sizeof files / sizeof *files && result == 0; i++)
        result = give_file(state->lock, files[i], uid, gid, err);
    return result;
}

void state_close(struct state *state)
{
    state->audit = hc_close(state->audit);
    state->lock = hc_close(state->lock);
}
