/* hotcell mcp: which server it is, and the relay to it. */
#include "cli/client.h"

#include "cli/client_private.h"
#include "cli/client_relay.h"
#include "cli/message.h"
#include "run/local.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LOOK_TIME = 2 * 1000 * 1000 }; /* µs: for a server that nobody asked for to answer */

static bool has_tools(const struct server *server)
{
    const struct http_ask ask = {.method = "GET", .target = "/v1/tools", .patience = LOOK_TIME};
    struct http_answer answer = {0};

    if (http_fetch(&server->address, &ask, &answer, NULL) < 0)
        return false;
    free(answer.body);
    return answer.status == 200;
}

/* Whether a server of this machine answers. `owner` must outlive its use. */
static bool find_running(struct server *server, uid_t *owner)
{
    hc_config *config = NULL;
    hc_error *error = NULL;
    struct local_sockets sockets;
    bool found = false;

    if (hc_config_load(NULL, &config, &error) < 0) {
        hc_error_free(error);
        return false;
    }
    local_sockets_find(config, &sockets);
    hc_config_free(config);
    for (size_t i = 0; !found && i < sockets.count; i++) {
        *owner = sockets.item[i].owner;
        *server = (struct server){.address.terms = {.wake = -1, .owner = owner}};
        found = access(sockets.item[i].path, F_OK) == 0 &&
                url_of_socket(sockets.item[i].path, &server->address.url, NULL) == 0 && has_tools(server);
    }
    return found;
}

int client_mcp(struct cli *cli, const struct client_line *line)
{
    struct private_server own = {.line = -1, .guardian = -1};
    struct server server = {0};
    struct hc_err err = {0};
    uid_t owner;
    int status = 0;

    if (cli->server) {
        status = server_find(cli, &server, &err);
    } else if (line->value[MCP_PRIVATE] || !find_running(&server, &owner)) {
        status = private_start(&own, line->value[MCP_WEAK] != NULL, &err);
        server = (struct server){.address.terms.wake = -1};
        if (status == 0)
            status = url_of_socket(own.socket, &server.address.url, &err);
    }
    if (status == 0)
        status = relay_run(&server, &err);
    private_stop(&own);
    return status < 0 ? message_error(cli, &err) : EXIT_OK;
}
