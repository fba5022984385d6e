/*
 * The mount policy of a server's gateway, which sees no file of the host: it has names alone. The keeper has resolved
 * the allowed folders and made the forbidden list; a request names a path below an allowed folder; and whoever mounts
 * it goes there without following a symlink or crossing into another mount (cell/mounts.c), so that a name is all there
 * is to a path.
 */
#include "base/fd.h"
#include "run/policy_internal.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static int refuse(const char *why, const char *remedy, struct hc_err *err)
{
    hc_fail(err, HC_CLASS_REQUEST, EACCES, "mount refused by the mount policy: %.380s", why);
    hc_err_field(err, "mounts");
    return hc_err_remedy(err, "%s", remedy);
}

/* The narrowest allowed folder that has the path, or -1. The first is the shared workspace, which no request names. */
static int narrowest(const struct config *config, const char *path)
{
    int best = -1;
    for (size_t i = 1; i < config->served_hosts.count; i++) {
        const char *host = config->served_hosts.item[i];
        if (!policy_is_under(path, host))
            continue;
        size_t length = strlen(host), longest = best < 0 ? 0 : strlen(config->served_hosts.item[best]);
        if (length > longest || (length == longest && config->served_writable[i]))
            best = (int)i;
    }
    return best;
}

static const char *read_only_inside(const struct config *config, const char *path)
{
    for (size_t i = 1; i < config->served_hosts.count; i++) {
        const char *host = config->served_hosts.item[i];
        if (!config->served_writable[i] && strcmp(host, path) != 0 && policy_is_under(host, path))
            return host;
    }
    return NULL;
}

static const char *check_forbidden(const struct config *config, const char *path, char *why, size_t size)
{
    for (size_t i = 0; i + 1 < config->served_forbidden.count; i += 2) {
        struct policy_entry entry = {.path = config->served_forbidden.item[i],
                                     .reason = config->served_forbidden.item[i + 1]};
        if (policy_refuse_name(path, &entry, why, size))
            return why;
    }
    return NULL;
}

int policy_open_served(const struct config *config, const struct request_mount *mount, struct policy_mount *out,
                       struct hc_err *err)
{
    char path[PATH_MAX], why[PATH_MAX + 512];
    int result = mount->host[0] == '/' ? policy_clean_path(mount->host, path, sizeof path) : -EINVAL;
    if (result < 0 || strcspn(mount->host, "\n\r\t") != strlen(mount->host)) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "mount %.200s: expected an absolute path without \"..\"", mount->host);
        return hc_err_field(err, "mounts");
    }
    if (path[0] == '\0')
        return refuse("/ is a parent of all that is forbidden", "name the folder that the program needs", err);
    if (check_forbidden(config, path, why, sizeof why))
        return refuse(why, "no setting allows this; copy what the program needs to another folder", err);
    int host = narrowest(config, path);
    if (host < 0) {
        snprintf(why, sizeof why, "%s is under none of the folders that this server allows", path);
        return refuse(why, "the operator allows folders under [mounts] in the configuration", err);
    }
    if (!mount->read_only && !config->served_writable[host]) {
        snprintf(why, sizeof why, "%s is allowed read-only (mounts.allowed_read_paths), not writable", path);
        return refuse(why, "ask for it with \"read_only\": true", err);
    }
    const char *inside = mount->read_only ? NULL : read_only_inside(config, path);
    if (inside) {
        snprintf(why, sizeof why, "%s holds %.200s, which mounts.allowed_read_paths allows read-only", path, inside);
        return refuse(why, "ask for it with \"read_only\": true", err);
    }
    const char *below = path + strlen(config->served_hosts.item[host]);
    below += strspn(below, "/");
    if ((size_t)snprintf(out->below, sizeof out->below, "%s", below) >= sizeof out->below)
        return hc_fail(err, HC_CLASS_REQUEST, ENAMETOOLONG, "mount %.200s: the path is too long", mount->host);
    out->fd = -1;
    out->served = (unsigned)host;
    snprintf(out->host, sizeof out->host, "%s", path);
    return 0;
}
