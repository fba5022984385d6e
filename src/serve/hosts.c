/*
 * Host folders that cells of this server may have: the shared workspace, and what the mount policy allows. Each is
 * resolved here, once; what a request names below one of them is found by the cell's builder, without symlinks.
 */
#include "serve/internal.h"

#include "run/policy.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int add(struct host_list *list, const char *path, bool writable, struct hc_err *err)
{
    char canonical[4096];
    if (!realpath(path, canonical))
        return hc_fail_errno(err, HC_CLASS_REQUEST, errno, "opening %s", path);
    if (list->paths.count == CELL_MAX_HOSTS)
        return hc_fail(err, HC_CLASS_REQUEST, E2BIG, "more than %d folders may not be allowed in [mounts]",
                       CELL_MAX_HOSTS - 1);
    if (words_add(&list->paths, canonical) < 0)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    list->writable[list->paths.count - 1] = writable;
    return 0;
}

/* From its socket a guest would be the operator; its folder has everybody's runs. Names are compared with canonical
 * ones, so that these must be, too; a socket is not there yet. */
static int add_own(struct host_list *list, const char *path)
{
    char folder[4096], canonical[4096], whole[8192];
    if (!path[0])
        return 0;
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (realpath(path, canonical)) {
        snprintf(whole, sizeof whole, "%s", canonical);
    } else if (slash && slash > folder) {
        *slash = '\0';
        snprintf(whole, sizeof whole, "%s/%s", realpath(folder, canonical) ? canonical : folder, slash + 1);
    } else {
        snprintf(whole, sizeof whole, "%s", path);
    }
    return words_add(&list->own, whole);
}

int host_list_make(struct host_list *list, const struct config *config, const struct state *state, struct hc_err *err)
{
    *list = (struct host_list){.workspace = state->workspace[0] ? 0 : -1};
    int result = state->workspace[0] ? add(list, state->workspace, true, err) : 0;
    for (size_t i = 0; i < config->read_paths.count && result == 0; i++)
        if ((result = add(list, config->read_paths.item[i], false, err)) < 0)
            hc_err_field(err, "mounts.allowed_read_paths");
    for (size_t i = 0; i < config->write_paths.count && result == 0; i++)
        if ((result = add(list, config->write_paths.item[i], true, err)) < 0)
            hc_err_field(err, "mounts.allowed_write_paths");
    if (result == 0 && (add_own(list, state->folder) < 0 || add_own(list, state->socket) < 0 ||
                        add_own(list, config->server.tls_key) < 0))
        result = hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    return result < 0 ? result : host_list_check(list, config, err);
}

/* Requests are checked by name, by a gateway that sees no folder. So a name must be all there is to a folder: one that
 * is a bind mount of a forbidden one, or of a folder above it, would undo what is forbidden. The shared workspace is
 * named by nobody. */
int host_list_check(const struct host_list *list, const struct config *config, struct hc_err *err)
{
    char why[PATH_MAX + 512];
    for (size_t i = 0; i < list->paths.count; i++) {
        if ((int)i == list->workspace || !policy_other_name(config, &list->own, list->paths.item[i], why, sizeof why))
            continue;
        hc_fail(err, HC_CLASS_REQUEST, EACCES, "a folder that is allowed would show one that is forbidden: %.380s",
                why);
        hc_err_field(err, "mounts.%s", list->writable[i] ? "allowed_write_paths" : "allowed_read_paths");
        return hc_err_remedy(err, "take %.120s out of the list, or unmount what is mounted there", list->paths.item[i]);
    }
    return 0;
}

void host_list_release(struct host_list *list)
{
    words_release(&list->paths);
    words_release(&list->own);
}
