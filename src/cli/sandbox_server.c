/*
 * The server that has the sandboxes, and their ids. What always holds: an id that goes into a target is one that the
 * server has told, or letters and digits alone.
 */
#include "base/fd.h"
#include "base/suggest.h"
#include "cli/client.h"
#include "cli/json.h"
#include "cli/message.h"
#include "cli/sandbox.h"
#include "run/local.h"
#include "text/json.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATIENCE = 60 * 1000 * 1000 /* µs */, JSON_DEPTH = 64, WHOLE = 30, SHORTEST = 4, MOST_IDS = 1024 };

/* ---- which server ---- */

/* One of this machine that is there: the user's own, or root's. 1 or 0. */
static int find_socket(const struct cli *cli, struct server *server, struct hc_err *err)
{
    struct local_sockets sockets;
    hc_config *config = NULL;
    hc_error *error = NULL;

    if (hc_config_load(NULL, &config, &error) < 0)
        return message_adopt(error, err);
    local_sockets_find(config, &sockets);
    hc_config_free(config);
    for (size_t i = 0; i < sockets.count; i++) {
        if (access(sockets.item[i].path, F_OK) < 0)
            continue;
        *server = (struct server){.address.terms.wake = -1};
        int status = url_of_socket(sockets.item[i].path, &server->address.url, err);
        if (status == 0)
            status = server_find_key(cli, server, err);
        return status < 0 ? status : 1;
    }
    return 0;
}

int sandbox_server(const struct cli *cli, const struct sandbox_line *line, struct server *server, struct hc_err *err)
{
    struct client_line place = {.config = line->config};

    if (cli->server)
        return server_find(cli, server, err);
    int found = line->state || line->config ? 0 : find_socket(cli, server, err);
    if (found != 0)
        return found < 0 ? found : 0;
    place.value[CLIENT_STATE] = line->state;
    return server_find_local(cli, &place, server, err); /* its error names the place where one would be */
}

/* ---- asking ---- */

int sandbox_ask(struct server *server, const char *method, const char *target, const json_t *body, json_t **out,
                struct hc_err *err)
{
    hc_cleanup_free char *text = body ? hc_json_write(body, false) : NULL;
    struct http_ask ask = {.method = method, .target = target, .patience = PATIENCE, .body = text};
    struct http_answer answer = {0};

    if (body && !text)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    ask.length = text ? strlen(text) : 0;
    int status = server_ask(server, &ask, &answer, err);
    if (status < 0)
        return status;
    if (answer.length > 0 && hc_json_read(answer.body, answer.length, JSON_DEPTH, out, NULL) < 0)
        status = hc_fail(err, HC_CLASS_HOST, EPROTO, "the server's answer to %s is no JSON", target);
    free(answer.body);
    return status;
}

int sandbox_show_json(const json_t *value)
{
    hc_cleanup_free char *text = hc_json_write(value, false);
    int status = text ? json_show(text) : -ENOMEM;

    return status < 0 ? message_cannot_write(status) : EXIT_OK;
}

/* ---- ids ---- */

static bool is_plain(const char *text)
{
    return text[0] && !text[strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_")];
}

/* By its beginning, with or without "sbx_", or by its end: those made in one minute begin alike. */
static bool matches(const char *id, const char *text)
{
    size_t length = strlen(text), whole = strlen(id);
    const char *bare = strchr(id, '_') ? strchr(id, '_') + 1 : id;

    if (strncmp(id, text, length) == 0 || strncmp(bare, text, length) == 0)
        return true;
    return length >= SHORTEST && length < whole && strcmp(id + whole - length, text) == 0;
}

static int unknown(const char *text, const char *const *ids, size_t count, struct hc_err *err)
{
    hc_fail(err, HC_CLASS_REQUEST, ENOENT, "there is no sandbox \"%s\"", text);
    const char *nearest = hc_suggest(text, ids, count);
    if (nearest)
        return hc_err_remedy(err, "did you mean %s?", nearest);
    return hc_err_remedy(err,
                         count ? "hotcell sandbox list shows those there are" : "hotcell sandbox create makes one");
}

int sandbox_resolve(struct server *server, const char *text, char id[SANDBOX_ID], struct hc_err *err)
{
    json_cleanup json_t *answer = NULL;
    const char *ids[MOST_IDS], *found = NULL;
    size_t count = 0, hits = 0;

    if (strncmp(text, "sbx_", 4) == 0 && strlen(text) == WHOLE && is_plain(text)) {
        snprintf(id, SANDBOX_ID, "%s", text);
        return 0;
    }
    int status = sandbox_ask(server, "GET", "/v1/sandboxes", NULL, &answer, err);
    if (status < 0)
        return status;
    const json_t *list = json_object_get(answer, "sandboxes");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *one = json_text(json_array_get(list, i), "id");
        if (!is_plain(one) || strlen(one) >= SANDBOX_ID)
            continue;
        if (count < MOST_IDS)
            ids[count++] = one;
        if (text[0] && matches(one, text)) {
            found = one;
            hits++;
        }
    }
    if (hits > 1) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "\"%s\" stands for %zu sandboxes", text, hits);
        return hc_err_remedy(err, "give more of the id, or its end: they differ there");
    }
    if (!found)
        return unknown(text, ids, count, err);
    snprintf(id, SANDBOX_ID, "%s", found);
    return 0;
}

int sandbox_find(const struct cli *cli, const struct sandbox_line *line, const char *text, struct server *server,
                 char id[SANDBOX_ID], struct hc_err *err)
{
    int status = sandbox_server(cli, line, server, err);

    return status < 0 ? status : sandbox_resolve(server, text, id, err);
}
