/*
 * The state folder of this machine's server, for the verbs that need no server. Where it is follows the server's own
 * rules: --state, then the configuration, then the usual place.
 */
#include "base/fd.h"
#include "cli/client.h"
#include "cli/json.h"
#include "cli/message.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DATABASE "history.db"

static int too_long(struct hc_err *err)
{
    return hc_fail(err, HC_CLASS_REQUEST, ENAMETOOLONG, "the path of the state folder is too long");
}

static int write_path(char *path, const char *folder, const char *rest, struct hc_err *err)
{
    return snprintf(path, PATH_MAX, "%s%s", folder, rest) < PATH_MAX ? 0 : too_long(err);
}

static int usual_folder(char *path, struct hc_err *err)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");

    if (geteuid() == 0)
        return write_path(path, "/var/lib", "/hotcell", err);
    if (state && state[0] == '/')
        return write_path(path, state, "/hotcell", err);
    const struct passwd *user = home && home[0] == '/' ? NULL : getpwuid(geteuid());
    if (user)
        home = user->pw_dir;
    if (home && home[0] == '/')
        return write_path(path, home, "/.local/state/hotcell", err);
    return hc_fail(err, HC_CLASS_REQUEST, ENOENT, "there is no home folder for the state; name one with --state");
}

static int usual_socket(const struct client_line *line, struct state_place *place, struct hc_err *err)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");

    if (!line->value[CLIENT_STATE] && geteuid() == 0)
        return write_path(place->socket, "/run/hotcell", "/hotcell.sock", err);
    if (!line->value[CLIENT_STATE] && runtime && runtime[0] == '/')
        return write_path(place->socket, runtime, "/hotcell.sock", err);
    return write_path(place->socket, place->folder, "/hotcell.sock", err);
}

/* One setting of the configuration, "" when it is not set. */
static void setting(const json_t *settings, const char *key, char *value)
{
    value[0] = '\0';
    for (size_t i = 0; i < json_array_size(settings); i++) {
        const json_t *row = json_array_get(settings, i);
        if (strcmp(json_text(row, "key"), key) == 0)
            snprintf(value, PATH_MAX, "%s", json_text(row, "value"));
    }
}

int state_find(const struct client_line *line, struct state_place *place, struct hc_err *err)
{
    char folder[PATH_MAX], socket[PATH_MAX];
    hc_config *config = NULL;
    hc_error *error = NULL;

    if (hc_config_load(line->config, &config, &error) < 0)
        return message_adopt(error, err);
    hc_cleanup_free char *text = hc_config_json(config);
    hc_config_free(config);
    json_cleanup json_t *settings = text ? json_loads(text, 0, NULL) : NULL;
    if (!settings)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    setting(settings, "server.state", folder);
    setting(settings, "server.socket", socket);

    const char *named = line->value[CLIENT_STATE] ? line->value[CLIENT_STATE] : folder;
    int status = named[0] ? write_path(place->folder, named, "", err) : usual_folder(place->folder, err);
    if (status < 0)
        return status;
    if (socket[0] && strcmp(socket, "none") != 0)
        return write_path(place->socket, socket, "", err);
    return usual_socket(line, place, err);
}

int state_enter(const struct state_place *place, struct hc_err *err)
{
    char path[PATH_MAX + 16];
    struct stat info;

    snprintf(path, sizeof path, "%s/" DATABASE, place->folder);
    if (geteuid() != 0 || stat(path, &info) < 0 || info.st_uid == 0)
        return 0;
    if (setgroups(0, NULL) < 0 || setresgid(info.st_gid, info.st_gid, info.st_gid) < 0 ||
        setresuid(info.st_uid, info.st_uid, info.st_uid) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "cannot become uid %u, whose %s is", (unsigned)info.st_uid,
                             path);
    return 0;
}

static int make_folder(const char *path, struct hc_err *err)
{
    char text[PATH_MAX];

    snprintf(text, sizeof text, "%s", path);
    for (char *slash = strchr(text + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash)
            *slash = '\0';
        if (mkdir(text, slash ? 0755 : 0700) < 0 && errno != EEXIST)
            return hc_fail_errno(err, HC_CLASS_HOST, errno, "cannot make the folder %s", text);
        if (!slash)
            return 0;
        *slash = '/';
    }
}

int state_audit(const struct state_place *place, enum state_use use, struct hc_err *err)
{
    char path[PATH_MAX + 16];

    if (use == STATE_MAKE) {
        int status = make_folder(place->folder, err);
        if (status < 0)
            return status;
    }
    snprintf(path, sizeof path, "%s/audit.log", place->folder);
    int flags = use == STATE_READ ? O_RDONLY : O_RDWR | O_APPEND | O_CREAT;
    int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0)
        return fd;
    int code = errno;
    hc_fail_errno(err, HC_CLASS_HOST, code, "cannot open the audit log %s", path);
    if (code == ENOENT)
        hc_err_remedy(err, "is this the state folder of a server? name another with --state");
    return -code;
}
