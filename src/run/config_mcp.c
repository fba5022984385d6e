/*
 * [mcp.servers.NAME]: somebody else's MCP servers. The only part of the configuration whose tables are named by who
 * writes it, which is why it is not in the table of keys. A definition in a later file replaces one of the same name
 * whole.
 */
#include "run/config_internal.h"

#include "base/size.h"
#include "base/suggest.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SERVERS_MAX = 32, CALL_TIME = 300 * 1000000 };

static int fail_type(const char *server, const char *key, const char *expected, struct hc_err *err)
{
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "mcp.servers.%s.%s: expected %s", server, key, expected);
    hc_err_field(err, "mcp.servers.%s.%s", server, key);
    return -EINVAL;
}

/* A string without a NUL in it, or NULL. */
static const char *text_of(const struct toml_value *value)
{
    size_t length;
    if (toml_type(value) != TOML_STRING)
        return NULL;
    const char *text = toml_string(value, &length);
    return strlen(text) == length ? text : NULL;
}

static int take_list(const char *server, const char *key, const struct toml_value *value, struct words *words,
                     struct hc_err *err)
{
    if (toml_type(value) != TOML_ARRAY)
        return fail_type(server, key, "a list of strings", err);
    for (size_t i = 0; i < toml_count(value); i++) {
        const char *text = text_of(toml_at(value, i));
        if (!text)
            return fail_type(server, key, "a list of strings", err);
        if (words_add(words, text) < 0)
            return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    }
    return 0;
}

/* A table of strings and numbers, as "KEY=VALUE". */
static int take_pairs(const char *server, const char *key, const struct toml_value *value, struct words *words,
                      struct hc_err *err)
{
    if (toml_type(value) != TOML_TABLE)
        return fail_type(server, key, "a table, such as { NAME = \"value\" }", err);
    for (size_t i = 0; i < toml_count(value); i++) {
        const struct toml_value *item = toml_at(value, i);
        const char *text = text_of(item), *name = toml_key(value, i, NULL);
        char number[64], pair[4096];
        if (toml_type(item) == TOML_INTEGER)
            snprintf(number, sizeof number, "%lld", (long long)toml_integer(item));
        else if (toml_type(item) == TOML_FLOAT)
            snprintf(number, sizeof number, "%g", toml_float(item));
        else if (!text)
            return fail_type(server, key, "strings or numbers as its values", err);
        int length = snprintf(pair, sizeof pair, "%s=%s", name, text ? text : number);
        if (length < 0 || (size_t)length >= sizeof pair)
            return fail_type(server, key, "values of less than 4096 bytes", err);
        if (words_add(words, pair) < 0)
            return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    }
    return 0;
}

static int take_command(struct mcp_server_config *server, const struct toml_value *value, struct hc_err *err)
{
    const char *text = text_of(value);
    server->shell = text != NULL;
    if (!text)
        return take_list(server->name, "command", value, &server->command, err);
    return words_add(&server->command, text) < 0 ? hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory") : 0;
}

static int take_call_time(struct mcp_server_config *server, const struct toml_value *value, struct hc_err *err)
{
    const char *text = text_of(value);
    if (toml_type(value) == TOML_INTEGER && toml_integer(value) > 0 && toml_integer(value) <= 86400)
        server->call_time = (uint64_t)toml_integer(value) * 1000000;
    else if (!text || hc_parse_duration(text, &server->call_time, NULL) < 0 || server->call_time == 0)
        return fail_type(server->name, "call_timeout", "a time, such as 60 or \"5m\"", err);
    return 0;
}

static int take_key(struct mcp_server_config *server, const char *key, const struct toml_value *value,
                    struct hc_err *err)
{
    static const char *const known[] = {"command", "env", "mounts", "limits", "tools", "call_timeout"};
    if (strcmp(key, "command") == 0)
        return take_command(server, value, err);
    if (strcmp(key, "env") == 0)
        return take_pairs(server->name, key, value, &server->env, err);
    if (strcmp(key, "mounts") == 0)
        return take_list(server->name, key, value, &server->mounts, err);
    if (strcmp(key, "limits") == 0)
        return take_pairs(server->name, key, value, &server->limits, err);
    if (strcmp(key, "call_timeout") == 0)
        return take_call_time(server, value, err);
    if (strcmp(key, "tools") == 0) {
        server->restricted = true;
        return take_list(server->name, key, value, &server->tools, err);
    }
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "there is no setting mcp.servers.%s.%.40s", server->name, key);
    const char *nearest = hc_suggest(key, known, sizeof known / sizeof *known);
    if (nearest)
        hc_err_remedy(err, "did you mean \"%s\"?", nearest);
    return -EINVAL;
}

static bool is_name(const char *name)
{
    size_t length = strlen(name);
    return length > 0 && length < MCP_NAME_SIZE && !strstr(name, "__") && name[0] != '_' && name[length - 1] != '_' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == length;
}

static void release(struct mcp_server_config *server)
{
    words_release(&server->command);
    words_release(&server->env);
    words_release(&server->mounts);
    words_release(&server->limits);
    words_release(&server->tools);
}

/* Its place among the others; NULL: out of memory, or there are too many. */
static struct mcp_server_config *place_for(struct mcp_config *mcp, const char *name)
{
    for (size_t i = 0; i < mcp->count; i++) {
        if (strcmp(mcp->item[i].name, name) == 0) {
            release(&mcp->item[i]);
            return &mcp->item[i];
        }
    }
    if (mcp->count == SERVERS_MAX)
        return NULL;
    struct mcp_server_config *item = reallocarray(mcp->item, mcp->count + 1, sizeof *item);
    if (!item)
        return NULL;
    mcp->item = item;
    return &mcp->item[mcp->count++];
}

struct mcp_server_config *config_mcp_add(struct mcp_config *mcp, const char *name, struct hc_err *err)
{
    if (!is_name(name)) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL,
                "mcp.servers: \"%.40s\" is no name: letters, digits, - and single _, at most %d of them", name,
                MCP_NAME_SIZE - 1);
        hc_err_field(err, "mcp.servers");
        return NULL;
    }
    struct mcp_server_config *server = place_for(mcp, name);
    if (!server) {
        hc_fail(err, HC_CLASS_REQUEST, E2BIG, "mcp.servers: there are more than %d", SERVERS_MAX);
        return NULL;
    }
    *server = (struct mcp_server_config){.call_time = CALL_TIME};
    snprintf(server->name, sizeof server->name, "%s", name);
    return server;
}

void config_mcp_release(struct mcp_config *mcp)
{
    for (size_t i = 0; i < mcp->count; i++)
        release(&mcp->item[i]);
    free(mcp->item);
    *mcp = (struct mcp_config){0};
}

static int take_server(struct config *config, const char *name, const struct toml_value *table, struct hc_err *err)
{
    if (toml_type(table) != TOML_TABLE)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "mcp.servers.%.40s: expected a table", name);
    struct mcp_server_config *server = config_mcp_add(&config->mcp, name, err);
    if (!server)
        return -EINVAL;
    for (size_t i = 0; i < toml_count(table); i++) {
        int status = take_key(server, toml_key(table, i, NULL), toml_at(table, i), err);
        if (status < 0)
            return status;
    }
    return server->command.count > 0 ? 0
                                     : fail_type(name, "command", "a command, such as [\"node\", \"/srv/x.js\"]", err);
}

int config_mcp_take(struct config *config, const struct toml_value *mcp, struct hc_err *err)
{
    const struct toml_value *servers = toml_type(mcp) == TOML_TABLE ? toml_get(mcp, "servers") : NULL;
    if (!servers || toml_count(mcp) != 1 || toml_type(servers) != TOML_TABLE) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "mcp: expected tables [mcp.servers.NAME] and nothing else");
        return hc_err_field(err, "mcp");
    }
    for (size_t i = 0; i < toml_count(servers); i++) {
        int status = take_server(config, toml_key(servers, i, NULL), toml_at(servers, i), err);
        if (status < 0)
            return status;
    }
    return 0;
}
