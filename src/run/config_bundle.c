/*
 * A configuration that travels: the keeper of a server reads it, and the gateway, which has no files, gets it as text.
 * What always holds: the gateway's values went through the same checks as the keeper's.
 */
#include "base/fd.h"
#include "run/config_internal.h"
#include "run/config_show.h"
#include "run/policy.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As config_set takes it: strings as they are, the rest as TOML, of which JSON's lists, numbers and booleans are a
 * part.
 */
static json_t *as_text(const json_t *value)
{
    if (json_is_string(value))
        return json_string(json_string_value(value));
    char *text hc_cleanup_free = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    return text ? json_string(text) : NULL;
}

static json_t *language_paths(const char *folder, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i + 1 < count; i++) { /* the last one is the built-in folder */
        char path[64];
        snprintf(path, sizeof path, "%s/%zu", folder, i);
        json_array_append_new(list, json_string(path));
    }
    return list;
}

static int add_settings(json_t *settings, const struct config *config, const char *languages, size_t language_count)
{
    for (size_t i = 0; i < config_key_count(); i++) {
        struct config_key key = config_key_at(i);
        json_t *value hc_cleanup_json =
            key.offset == offsetof(struct config, language_paths) && key.kind == CONFIG_PATHS
                ? language_paths(languages, language_count)
                : config_show(config, &key);
        if (!value)
            return -ENOMEM;
        if (json_is_null(value))
            continue;
        char dotted[128];
        snprintf(dotted, sizeof dotted, "%s.%s", key.section, key.name);
        json_t *row = json_pack("[s, o, o]", dotted, as_text(value), hc_json_text_lossy(config->origins[i].text));
        if (!row || json_array_append_new(settings, row) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* ---- [mcp.servers] ---- */

/* The lists of a definition, in the order in which they travel. */
enum { MCP_LISTS = 5 };

static void mcp_lists(struct mcp_server_config *server, struct words *lists[MCP_LISTS])
{
    lists[0] = &server->command;
    lists[1] = &server->env;
    lists[2] = &server->mounts;
    lists[3] = &server->limits;
    lists[4] = &server->tools;
}

static json_t *words_json(const struct words *words)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < words->count; i++)
        json_array_append_new(list, hc_json_text_lossy(words->item[i]));
    return list;
}

static json_t *mcp_json(const struct config *config)
{
    json_t *all = json_array();
    for (size_t i = 0; all && i < config->mcp.count; i++) {
        struct mcp_server_config *server = &config->mcp.item[i];
        struct words *lists[MCP_LISTS];
        mcp_lists(server, lists);
        json_t *words = json_array();
        for (size_t k = 0; k < MCP_LISTS; k++)
            json_array_append_new(words, words_json(lists[k]));
        json_array_append_new(all, json_pack("{s:s, s:b, s:b, s:I, s:o}", "name", server->name, "shell", server->shell,
                                             "restricted", server->restricted, "call_time",
                                             (json_int_t)server->call_time, "words", words));
    }
    return all;
}

static int take_mcp(struct config *config, const json_t *row, struct hc_err *err)
{
    const char *name = json_string_value(json_object_get(row, "name"));
    struct mcp_server_config *server = name ? config_mcp_add(&config->mcp, name, err) : NULL;
    struct words *lists[MCP_LISTS];
    if (!server)
        return hc_fail(err, HC_CLASS_OURS, EPROTO, "the MCP servers that were handed over are not well-formed");
    server->shell = json_is_true(json_object_get(row, "shell"));
    server->restricted = json_is_true(json_object_get(row, "restricted"));
    server->call_time = (uint64_t)json_integer_value(json_object_get(row, "call_time"));
    mcp_lists(server, lists);
    for (size_t k = 0; k < MCP_LISTS; k++) {
        const json_t *list = json_array_get(json_object_get(row, "words"), k);
        for (size_t i = 0; i < json_array_size(list); i++)
            if (!json_is_string(json_array_get(list, i)) ||
                words_add(lists[k], json_string_value(json_array_get(list, i))) < 0)
                return hc_fail(err, HC_CLASS_OURS, EPROTO, "the MCP servers that were handed over are not well-formed");
    }
    return 0;
}

char *config_to_bundle(const struct config *config, const char *languages, size_t language_count,
                       const struct words *hosts, const bool *writable, const struct words *own)
{
    struct words forbidden HC_CLEANUP(words_release) = {0};
    json_t *bundle hc_cleanup_json = json_pack("{s:[], s:[], s:[]}", "settings", "hosts", "forbidden");
    if (!bundle || add_settings(json_object_get(bundle, "settings"), config, languages, language_count) < 0)
        return NULL;
    json_object_set_new(bundle, "mcp", mcp_json(config));
    for (size_t i = 0; i < hosts->count; i++) {
        json_t *row = json_pack("{s:s, s:b}", "path", hosts->item[i], "writable", writable[i]);
        if (!row || json_array_append_new(json_object_get(bundle, "hosts"), row) < 0)
            return NULL;
    }
    if (policy_forbidden_words(config, &forbidden) < 0)
        return NULL;
    for (size_t i = 0; i < own->count; i++)
        if (words_add(&forbidden, own->item[i]) < 0 || words_add(&forbidden, "it is this server's own") < 0)
            return NULL;
    for (size_t i = 0; i < forbidden.count; i++)
        if (json_array_append_new(json_object_get(bundle, "forbidden"), hc_json_text_lossy(forbidden.item[i])) < 0)
            return NULL;
    return hc_json_write(bundle, false);
}

static int take_bundle(struct config *config, const json_t *bundle, struct hc_err *err)
{
    size_t index;
    json_t *row;
    json_array_foreach(json_object_get(bundle, "settings"), index, row)
    {
        const char *key = json_string_value(json_array_get(row, 0)), *value = json_string_value(json_array_get(row, 1)),
                   *origin = json_string_value(json_array_get(row, 2));
        if (!key || !value || !origin)
            return hc_fail(err, HC_CLASS_OURS, EPROTO, "the configuration that was handed over is not well-formed");
        int result = config_set(config, key, value, origin, err);
        if (result < 0)
            return result;
    }
    json_array_foreach(json_object_get(bundle, "hosts"), index, row)
    {
        const char *path = json_string_value(json_object_get(row, "path"));
        if (!path || index >= CONFIG_MAX_HOSTS || words_add(&config->served_hosts, path) < 0)
            return hc_fail(err, HC_CLASS_OURS, EPROTO, "the host folders that were handed over are not well-formed");
        config->served_writable[index] = json_is_true(json_object_get(row, "writable"));
    }
    json_array_foreach(json_object_get(bundle, "forbidden"), index, row)
    {
        if (!json_is_string(row) || words_add(&config->served_forbidden, json_string_value(row)) < 0)
            return hc_fail(err, HC_CLASS_OURS, EPROTO, "the forbidden paths that were handed over are not well-formed");
    }
    json_array_foreach(json_object_get(bundle, "mcp"), index, row)
    {
        int result = take_mcp(config, row, err);
        if (result < 0)
            return result;
    }
    config->served = true;
    return 0;
}

int config_from_bundle(const char *text, size_t length, struct config **out, struct hc_err *err)
{
    json_t *bundle hc_cleanup_json = NULL;
    int result = hc_json_read(text, length, 8, &bundle, err);
    struct config *config = result < 0 ? NULL : config_new(err);
    if (!config)
        return result < 0 ? result : -ENOMEM;
    result = take_bundle(config, bundle, err);
    if (result < 0)
        config_free(config);
    else
        *out = config;
    return result;
}
