/* What hotcell-client asks of a server besides runs. */
#include "cli/client.h"
#include "text/json.h"
#include <errno.h>
#include <stdlib.h>

enum { PATIENCE = 60 * 1000 * 1000 /* µs */, JSON_DEPTH = 64 };

int server_find_local(const struct cli *cli, const struct client_line *line, struct server *server, struct hc_err *err)
{
    struct state_place place;

    *server = (struct server){.address.terms.wake = -1};
    int status = state_find(line, &place, err);
    if (status == 0)
        status = url_of_socket(place.socket, &server->address.url, err);
    return status < 0 ? status : server_find_key(cli, server, err);
}

int server_json(struct server *server, const char *method, const char *target, json_t **out, struct hc_err *err)
{
    const struct http_ask ask = {.method = method, .target = target, .patience = PATIENCE};
    struct http_answer answer = {0};

    int status = server_ask(server, &ask, &answer, err);
    if (status < 0)
        return status;
    if (answer.length == 0)
        *out = json_object();
    else if (hc_json_read(answer.body, answer.length, JSON_DEPTH, out, NULL) < 0)
        status = hc_fail(err, HC_CLASS_HOST, EPROTO, "the server's answer to %s is no JSON", target);
    free(answer.body);
    return status;
}

char *client_languages(const struct cli *cli, int *exit_code)
{
    const struct http_ask ask = {.method = "GET", .target = "/v1/languages", .patience = PATIENCE};
    struct http_answer answer = {0};
    struct server server = {0};
    struct hc_err err = {0};

    if (server_find(cli, &server, &err) < 0 || server_ask(&server, &ask, &answer, &err) < 0)
        *exit_code = server_message(cli, &server, &err);
    return answer.body;
}
