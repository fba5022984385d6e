/*
 * hotcell run on the server that happens to run on this machine, which has cells and interpreters ready. Nobody asked
 * for it, so it must not be felt but in time: what a server cannot do just as a run here would is declined before
 * anything is sent, and what the server refuses is done here.
 */
#include "cli/remote.h"

#include "run/local.h"
#include <stdio.h>
#include <unistd.h>

static const char *unfit(const struct run_line *line)
{
    if (line->local)
        return "--local";
    if (line->config)
        return "--config is for this run alone";
    if (line->mounts)
        return "--mount shows folders as this user sees them";
    return NULL;
}

int local_run(const struct cli *cli, struct run_line *line, const hc_config *config, hc_request *request, char *why,
              size_t size)
{
    struct local_sockets sockets;
    const char *reason = unfit(line);
    int code = REMOTE_DECLINED;

    if (!reason)
        local_sockets_find(config, &sockets);
    snprintf(why, size, "%s", reason ? reason : sockets.why);
    for (size_t i = 0; !reason && code == REMOTE_DECLINED && i < sockets.count; i++) {
        struct remote_place place = {.optional = true};
        place.expect = line->allow_weak || sockets.weak ? "hotcell/" HC_VERSION : "hotcell/" HC_VERSION " full";
        place.server.address.terms = (struct connection_terms){.wake = -1, .owner = &sockets.item[i].owner};
        if (access(sockets.item[i].path, F_OK) < 0 ||
            url_of_socket(sockets.item[i].path, &place.server.address.url, NULL) < 0)
            continue;
        code = remote_run(cli, line, request, &place);
        if (code == REMOTE_DECLINED)
            snprintf(why, size, "%s", place.why);
    }
    return code;
}
