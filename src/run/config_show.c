/* How a value of the configuration is shown: as JSON that can be written into a file and means the same. */
#include "run/config_show.h"
#include "base/size.h"
#include "run/config_internal.h"
#include <stdio.h>

static json_t *show_limit(const struct limits *limits, const struct config_key *key)
{
    const struct limit_info *info = &limit_table[key->limit];
    if (!limits->set[key->limit] && key->kind == CONFIG_CEILING)
        return json_null();
    uint64_t value = limits->set[key->limit] ? limits->value[key->limit] : info->initial, again;
    char text[32];
    if (info->kind == LIMIT_KIND_NUMBER)
        return json_integer((json_int_t)value);
    if (info->kind == LIMIT_KIND_MILLI)
        return value % 1000 ? json_real((double)value / 1000) : json_integer((json_int_t)(value / 1000));
    /* What is shown can be written into a file and means the same: a rounded figure would not. */
    limit_format(key->limit, value, text, sizeof text);
    if (limit_parse(key->limit, text, &again, NULL) == 0 && again == value)
        return json_string(text);
    if (info->kind == LIMIT_KIND_SIZE)
        return json_integer((json_int_t)value);
    return value % 1000000 ? json_real((double)value / 1000000) : json_integer((json_int_t)(value / 1000000));
}

/* What is shown can be written into a file and means the same: a rounded figure would not. */
static json_t *show_measure(enum config_kind kind, uint64_t value)
{
    char text[32];
    uint64_t again;
    bool size = kind == CONFIG_SIZE;
    if (size)
        hc_format_size(value, text, sizeof text);
    else
        hc_format_duration(value, text, sizeof text);
    if ((size ? hc_parse_size(text, &again, NULL) : hc_parse_duration(text, &again, NULL)) == 0 && again == value)
        return json_string(text);
    return size ? json_integer((json_int_t)value) : json_real((double)value / 1000000);
}

json_t *config_show(const struct config *config, const struct config_key *key)
{
    const void *member = config_member(config, key);
    switch (key->kind) {
    case CONFIG_BOOL:
        return json_boolean(*(const bool *)member);
    case CONFIG_NUMBER:
        return json_integer((json_int_t) * (const uint64_t *)member);
    case CONFIG_SIZE:
    case CONFIG_DURATION:
        return show_measure(key->kind, *(const uint64_t *)member);
    case CONFIG_STRING:
        return hc_json_text_lossy(*(char *const *)member);
    case CONFIG_STRINGS:
    case CONFIG_PATHS:
    case CONFIG_NAMES: {
        const struct words *words = member;
        json_t *list = json_array();
        for (size_t i = 0; list && i < words->count; i++)
            json_array_append_new(list, hc_json_text_lossy(words->item[i]));
        return list;
    }
    case CONFIG_LIMIT:
        return show_limit(&config->defaults, key);
    case CONFIG_CEILING:
        return show_limit(&config->ceilings, key);
    }
    return NULL;
}

/* A default that a ceiling cuts is in force as that, and came from there. False: it is not cut. */
static bool show_cut(const struct config *config, const struct config_key *key, json_t **value, json_t **origin)
{
    struct limits none = {0}, cut;
    if (key->kind != CONFIG_LIMIT || limits_resolve(&none, &config->defaults, &config->ceilings, &cut, NULL) < 0)
        return false;
    uint64_t own =
        config->defaults.set[key->limit] ? config->defaults.value[key->limit] : limit_table[key->limit].initial;
    int index = config_key_find("ceilings", key->name);
    if (cut.value[key->limit] == own || index < 0)
        return false;
    char text[640];
    snprintf(text, sizeof text, "%.500s: ceilings.%s", config->origins[index].text, key->name);
    cut.set[key->limit] = true;
    *value = show_limit(&cut, key);
    *origin = hc_json_text_lossy(text);
    return true;
}

static char *show_all(const struct config *config, const struct config *defaults)
{
    json_t *list hc_cleanup_json = json_array();
    if (!list)
        return NULL;
    for (size_t i = 0; i < config_key_count(); i++) {
        struct config_key key = config_key_at(i);
        char dotted[128];
        snprintf(dotted, sizeof dotted, "%s.%s", key.section, key.name);
        json_t *value, *origin;
        if (!show_cut(config, &key, &value, &origin)) {
            value = config_show(config, &key);
            origin = hc_json_text_lossy(config->origins[i].text);
        }
        json_t *row = json_pack("{s:s, s:o, s:o, s:o, s:s}", "key", dotted, "value", value, "default",
                                config_show(defaults, &key), "origin", origin, "summary", key.summary);
        if (!row || json_array_append_new(list, row) < 0)
            return NULL;
    }
    return hc_json_write(list, false);
}

char *config_to_json(const struct config *config)
{
    struct config *defaults = config_new(NULL);
    char *text = defaults ? show_all(config, defaults) : NULL;
    config_free(defaults);
    return text;
}
