/* See server.h. */
#include "cli/server.h"

#include "base/fd.h"
#include "cli/message.h"
#include "text/json_plain.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- where and as whom ---- */

/* A header must not end where the key does not. */
static int set_key(struct server *server, const char *text, const char *origin, struct hc_err *err)
{
    size_t length = strlen(text);

    while (length > 0 && strchr(" \t\r\n", text[length - 1]))
        length--;
    for (size_t i = 0; i < length; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s holds no key: a key is one word", origin);
    if (length == 0 || length >= sizeof server->key)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s holds no key", origin);
    memcpy(server->key, text, length);
    server->key[length] = '\0';
    server->address.key = server->key;
    return 0;
}

int server_find_key(const struct cli *cli, struct server *server, struct hc_err *err)
{
    const char *named = getenv("HOTCELL_KEY");
    char text[sizeof server->key + 64];

    if (!cli->key_file)
        return named && named[0] ? set_key(server, named, "HOTCELL_KEY", err) : 0;
    ssize_t count = hc_read_file_at(AT_FDCWD, cli->key_file, text, sizeof text);
    if (count < 0)
        return hc_fail_errno(err, HC_CLASS_REQUEST, (int)-count, "cannot read the key in %s", cli->key_file);
    return set_key(server, text, cli->key_file, err);
}

int server_find(const struct cli *cli, struct server *server, struct hc_err *err)
{
    const char *trusted = getenv("HOTCELL_CA");

    *server = (struct server){.address.terms = {.wake = -1, .net = cli->client ? cli->client->net : NULL}};
    int status = url_parse(cli->server, &server->address.url, err);
    if (status < 0)
        return status;
    server->address.terms.ca = cli->ca ? cli->ca : trusted && trusted[0] ? trusted : NULL;
    return server_find_key(cli, server, err);
}

/* ---- problems ---- */

static enum hc_class class_of(int status)
{
    if (status == 429 || status == 502 || status == 503 || status == 504)
        return HC_CLASS_HOST;
    return status >= 500 ? HC_CLASS_OURS : HC_CLASS_REQUEST;
}

/* The server writes "message; remedy" into the detail, for those who read nothing else. */
static size_t without_remedy(const char *detail, const char *remedy)
{
    size_t length = strlen(detail), tail = strlen(remedy);

    if (tail > 0 && length > tail + 2 && strcmp(detail + length - tail, remedy) == 0 &&
        strncmp(detail + length - tail - 2, "; ", 2) == 0)
        return length - tail - 2;
    return length;
}

static void add_remedy(const struct server *server, int status, unsigned retry_after, struct hc_err *err)
{
    if (status == 401)
        hc_err_remedy(err, server->address.key ? "is the key right? hotcell key list shows those there are"
                                               : "give a key: --key-file FILE or HOTCELL_KEY");
    else if (retry_after > 0)
        hc_err_remedy(err, "try again in %u s", retry_after);
}

int server_problem(struct server *server, int status, unsigned retry_after, const char *body, size_t length,
                   struct hc_err *err)
{
    const struct hc_peek problem = hc_peek_text(body, length);
    char detail[1024], remedy[512], field[128];

    if (err)
        hc_err_clear(err);
    hc_peek_copy(hc_peek_member(problem, "detail"), detail, sizeof detail);
    hc_peek_copy(hc_peek_member(problem, "remedy"), remedy, sizeof remedy);
    hc_peek_copy(hc_peek_member(problem, "field"), field, sizeof field);
    hc_peek_copy(hc_peek_member(problem, "code"), server->code, sizeof server->code);
    int code = status == 404 ? ENOENT : class_of(status) == HC_CLASS_HOST ? EAGAIN : EINVAL;
    if (detail[0])
        hc_fail(err, class_of(status), code, "%.*s", (int)without_remedy(detail, remedy), detail);
    else
        hc_fail(err, HC_CLASS_HOST, code, "the server answered with %d and did not say why", status);
    hc_err_field(err, "%s", field);
    if (remedy[0])
        hc_err_remedy(err, "%s", remedy);
    else
        add_remedy(server, status, retry_after, err);
    return -code;
}

int server_message(const struct cli *cli, const struct server *server, const struct hc_err *err)
{
    return message_problem(cli, err, server->code);
}

/* ---- asking ---- */

int server_ask(struct server *server, const struct http_ask *ask, struct http_answer *answer, struct hc_err *err)
{
    struct http_answer found = {0};

    server->code[0] = '\0';
    int status = http_fetch(&server->address, ask, &found, err);
    if (status < 0)
        return status;
    if (found.status / 100 == 2) {
        *answer = found;
        return 0;
    }
    status = server_problem(server, found.status, found.retry_after, found.body, found.length, err);
    free(found.body);
    return status;
}
