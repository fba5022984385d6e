/*
 * Giving a key of the configuration its value.
 *
 * What always holds: a value that was stored passed the same checks, whether it came from a file, the environment, a
 * caller or the table of defaults.
 */
#include "base/account.h"
#include "base/fd.h"
#include "base/size.h"
#include "run/config_internal.h"
#include "text/utf8.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fail_memory(struct hc_err *err)
{
    return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory while reading the configuration");
}

int config_home(char *path, size_t size)
{
    const char *home = getenv("HOME");
    if (!home || home[0] != '/') {
        int result = hc_account_home(getuid(), path, size);
        return result == 0 && path[0] != '/' ? -ENOENT : result;
    }
    return (size_t)snprintf(path, size, "%s", home) < size ? 0 : -ENAMETOOLONG;
}

/* A path of a list, as it is stored: ~/ expanded. */
static int add_path(struct words *words, const char *text, struct hc_err *err)
{
    char home[2048], expanded[4096];
    bool tilde = text[0] == '~' && (text[1] == '/' || text[1] == '\0');
    if (tilde && config_home(home, sizeof home) < 0)
        return hc_fail(err, HC_CLASS_REQUEST, ENOENT, "\"%.200s\" needs a home folder, and there is no HOME", text);
    if (!tilde && text[0] != '/')
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "expected an absolute path, found \"%.200s\"", text);
    int length = snprintf(expanded, sizeof expanded, "%s%s", tilde ? home : "", tilde ? text + 1 : text);
    if (length < 0 || (size_t)length >= sizeof expanded)
        return hc_fail(err, HC_CLASS_REQUEST, ENAMETOOLONG, "the path \"%.80s…\" is too long", text);
    return words_add(words, expanded) < 0 ? fail_memory(err) : 0;
}

/* A name below /etc: relative, without "." and ".." components; '*' only at its end. */
static int add_name(struct words *words, const char *text, struct hc_err *err)
{
    const char *star = strchr(text, '*');
    bool fine = *text && *text != '/' && strlen(text) < 256 && (!star || (star[1] == '\0' && star != text));
    for (const char *part = text; fine && *part;) {
        size_t length = strcspn(part, "/");
        fine = length > 0 && !(length == 1 && part[0] == '.') && !(length == 2 && part[0] == '.' && part[1] == '.');
        part += length;
        if (*part == '/')
            fine = fine && *++part;
    }
    if (!fine)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL,
                       "expected a name below /etc such as \"fonts\", \"ssl/certs\" or \"java-*\", found \"%.200s\"",
                       text);
    return words_add(words, text) < 0 ? fail_memory(err) : 0;
}

/* ---- one value ---- */

void *config_member(const struct config *config, const struct config_key *key)
{
    return (char *)config + key->offset;
}

static bool is_list(const struct config_key *key)
{
    return key->kind == CONFIG_STRINGS || key->kind == CONFIG_PATHS || key->kind == CONFIG_NAMES;
}

static const char *expected_of(const struct config_key *key)
{
    static const char *const limits[] = {
        [LIMIT_KIND_DURATION] = "a time in seconds or a string such as \"500ms\"",
        [LIMIT_KIND_SIZE] = "a number of bytes or a string such as \"512m\"",
        [LIMIT_KIND_MILLI] = "a number such as 0.5",
        [LIMIT_KIND_NUMBER] = "a whole number",
    };
    switch (key->kind) {
    case CONFIG_BOOL:
        return "true or false";
    case CONFIG_NUMBER:
        return "a whole number of 0 or more";
    case CONFIG_SIZE:
        return limits[LIMIT_KIND_SIZE];
    case CONFIG_DURATION:
        return limits[LIMIT_KIND_DURATION];
    case CONFIG_STRING:
        return "a string";
    case CONFIG_STRINGS:
        return "an array of strings such as [\"a\", \"b\"]";
    case CONFIG_PATHS:
        return "an array of paths such as [\"/data\"]";
    case CONFIG_NAMES:
        return "an array of names such as [\"fonts\"]";
    case CONFIG_LIMIT:
    case CONFIG_CEILING:
        return limits[limit_table[key->limit].kind];
    }
    return "another value";
}

/* The value in a few words, fit for a terminal: what a file holds may be anything. */
static const char *describe(const struct toml_value *value, char *text, size_t size)
{
    switch (toml_type(value)) {
    case TOML_STRING:
        snprintf(text, size, "the string \"%.40s\"", toml_string(value, NULL));
        break;
    case TOML_INTEGER:
        snprintf(text, size, "%lld", (long long)toml_integer(value));
        break;
    case TOML_FLOAT:
        snprintf(text, size, "%g", toml_float(value));
        break;
    case TOML_BOOLEAN:
        snprintf(text, size, "%s", toml_boolean(value) ? "true" : "false");
        break;
    case TOML_ARRAY:
        snprintf(text, size, "an array");
        break;
    default:
        snprintf(text, size, "a %s", toml_type_name(toml_type(value)));
    }
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7F)
            *p = '?';
    return text;
}

static int fail_type(const struct config_key *key, const struct toml_value *value, struct hc_err *err)
{
    char found[96];
    return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "expected %s, found %s", expected_of(key),
                   describe(value, found, sizeof found));
}

/* A string without NUL, or NULL. */
static const char *plain_string(const struct toml_value *value)
{
    if (toml_type(value) != TOML_STRING)
        return NULL;
    size_t length;
    const char *text = toml_string(value, &length);
    return strlen(text) == length ? text : NULL;
}

static int assign_string(const struct config_key *key, char **member, const char *text, struct hc_err *err)
{
    int rc = key->check ? key->check(text, err) : 0;
    if (rc < 0)
        return rc;
    char *copy = strdup(text);
    if (!copy)
        return fail_memory(err);
    free(*member);
    *member = copy;
    return 0;
}

static int add_word(const struct config_key *key, struct words *words, const char *text, struct hc_err *err)
{
    if (key->kind == CONFIG_STRINGS)
        return words_add(words, text) < 0 ? fail_memory(err) : 0;
    return key->kind == CONFIG_PATHS ? add_path(words, text, err) : add_name(words, text, err);
}

static int assign_words(const struct config_key *key, struct words *member, const struct toml_value *array,
                        struct hc_err *err)
{
    struct words words HC_CLEANUP(words_release) = {0};
    for (size_t i = 0; i < toml_count(array); i++) {
        const struct toml_value *item = toml_at(array, i);
        const char *text = plain_string(item);
        int rc = text ? add_word(key, &words, text, err) : fail_type(key, item, err);
        if (rc < 0)
            return rc;
    }
    words_release(member);
    *member = words;
    words = (struct words){0};
    return 0;
}

static int assign_one_word(const struct config_key *key, struct words *member, const char *text, struct hc_err *err)
{
    struct words words = {0};
    int rc = add_word(key, &words, text, err);
    if (rc < 0)
        return rc;
    words_release(member);
    *member = words;
    return 0;
}

static int assign_limit(struct config *config, const struct config_key *key, uint64_t number)
{
    struct limits *limits = key->kind == CONFIG_LIMIT ? &config->defaults : &config->ceilings;
    limits->value[key->limit] = number;
    limits->set[key->limit] = true;
    return 0;
}

/* Whether text is taken as it stands, rather than read as TOML. */
static bool takes_text(const struct config_key *key)
{
    return key->kind == CONFIG_STRING || key->kind == CONFIG_SIZE || key->kind == CONFIG_DURATION ||
           key->kind == CONFIG_LIMIT || key->kind == CONFIG_CEILING;
}

static int assign_plain(struct config *config, const struct config_key *key, const char *text, struct hc_err *err)
{
    uint64_t number;
    int rc;
    switch (key->kind) {
    case CONFIG_STRING:
        return assign_string(key, config_member(config, key), text, err);
    case CONFIG_SIZE:
        return hc_parse_size(text, config_member(config, key), err);
    case CONFIG_DURATION:
        return hc_parse_duration(text, config_member(config, key), err);
    default:
        rc = limit_parse(key->limit, text, &number, err);
        return rc < 0 ? rc : assign_limit(config, key, number);
    }
}

/* A size, a duration or a limit as a number of bytes, of seconds, or of what the limit counts. */
static int assign_number(struct config *config, const struct config_key *key, const struct toml_value *value,
                         struct hc_err *err)
{
    char text[64];
    bool whole = toml_type(value) == TOML_INTEGER;
    if (!whole && toml_type(value) != TOML_FLOAT)
        return fail_type(key, value, err);
    if (key->kind == CONFIG_LIMIT || key->kind == CONFIG_CEILING) {
        uint64_t number;
        double given = whole ? (double)toml_integer(value) : toml_float(value);
        int rc = limit_from_number(key->limit, given, &number, err);
        return rc < 0 ? rc : assign_limit(config, key, number);
    }
    if (whole)
        snprintf(text, sizeof text, "%lld", (long long)toml_integer(value));
    else
        snprintf(text, sizeof text, "%.6f", toml_float(value));
    return assign_plain(config, key, text, err);
}

static int assign(struct config *config, const struct config_key *key, const struct toml_value *value,
                  struct hc_err *err)
{
    const char *text = plain_string(value);
    if (text && takes_text(key))
        return assign_plain(config, key, text, err);
    switch (key->kind) {
    case CONFIG_BOOL:
        if (toml_type(value) != TOML_BOOLEAN)
            return fail_type(key, value, err);
        *(bool *)config_member(config, key) = toml_boolean(value);
        return 0;
    case CONFIG_NUMBER:
        if (toml_type(value) != TOML_INTEGER || toml_integer(value) < 0)
            return fail_type(key, value, err);
        *(uint64_t *)config_member(config, key) = (uint64_t)toml_integer(value);
        return 0;
    case CONFIG_STRING:
        return fail_type(key, value, err);
    case CONFIG_STRINGS:
    case CONFIG_PATHS:
    case CONFIG_NAMES:
        if (toml_type(value) != TOML_ARRAY)
            return fail_type(key, value, err);
        return assign_words(key, config_member(config, key), value, err);
    case CONFIG_SIZE:
    case CONFIG_DURATION:
    case CONFIG_LIMIT:
    case CONFIG_CEILING:
        return assign_number(config, key, value, err);
    }
    return -EINVAL;
}

/* What would be a server that serves nobody is told when the file is read, and not found out later. */
static int check_least(const struct config *config, const struct config_key *key, struct hc_err *err)
{
    uint64_t least = 0, value;
    if (!key->least)
        return 0;
    memcpy(&value, config_member(config, key), sizeof value);
    if (key->kind == CONFIG_SIZE)
        hc_parse_size(key->least, &least, err);
    else if (key->kind == CONFIG_DURATION)
        hc_parse_duration(key->least, &least, err);
    else
        least = strtoull(key->least, NULL, 10);
    if (value >= least || (value == 0 && key->or_zero))
        return 0;
    char text[32];
    if (key->kind == CONFIG_SIZE)
        hc_format_size(value, text, sizeof text);
    else if (key->kind == CONFIG_DURATION)
        hc_format_duration(value, text, sizeof text);
    else
        snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    hc_fail(err, HC_CLASS_REQUEST, ERANGE, "%s is too little for anything to work", text);
    return hc_err_remedy(err, "use %s or more%s", key->least, key->or_zero ? ", or 0" : "");
}

static int name_key(const struct config_key *key, int rc, struct hc_err *err)
{
    if (rc == -ENOMEM || rc >= 0)
        return rc;
    hc_err_field(err, "%s.%s", key->section, key->name);
    hc_err_context(err, "%s.%s", key->section, key->name);
    return rc;
}

int config_assign(struct config *config, const struct config_key *key, const struct toml_value *value,
                  struct hc_err *err)
{
    int rc = assign(config, key, value, err);
    return name_key(key, rc < 0 ? rc : check_least(config, key, err), err);
}

static int assign_toml(struct config *config, const struct config_key *key, const char *text, struct hc_err *err)
{
    struct toml_value *root HC_CLEANUP(toml_free_ptr) = NULL;
    char *document hc_cleanup_free = NULL;
    if (asprintf(&document, "value = %s", text) < 0) {
        document = NULL;
        return fail_memory(err);
    }
    int rc = toml_parse(document, strlen(document), key->name, &root, NULL);
    if (rc == -ENOMEM)
        return fail_memory(err);
    if (rc < 0 || toml_count(root) != 1)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "expected %s, found \"%.80s\"", expected_of(key), text);
    return assign(config, key, toml_at(root, 0), err);
}

/* Text has no types of its own: a string or a limit is taken as it stands, a list may be one item, true and false are
 * what they say, and the rest is TOML. Every run gives each key its default here: what needs no parser gets none. */
int config_assign_text(struct config *config, const struct config_key *key, const char *text, struct hc_err *err)
{
    int rc = 0;
    bool one = is_list(key) && text[0] != '[';
    if ((one || takes_text(key)) && !hc_utf8_valid(text, strlen(text)))
        rc = hc_fail(err, HC_CLASS_REQUEST, EILSEQ, "the value is not valid UTF-8");
    else if (one)
        rc = assign_one_word(key, config_member(config, key), text, err);
    else if (takes_text(key))
        rc = assign_plain(config, key, text, err);
    else if (key->kind == CONFIG_BOOL && (strcmp(text, "true") == 0 || strcmp(text, "false") == 0))
        *(bool *)config_member(config, key) = text[0] == 't';
    else
        rc = assign_toml(config, key, text, err);
    return name_key(key, rc < 0 ? rc : check_least(config, key, err), err);
}

void config_drop(struct config *config, const struct config_key *key)
{
    if (key->kind == CONFIG_STRING)
        free(*(char **)config_member(config, key));
    else if (is_list(key))
        words_release(config_member(config, key));
}
