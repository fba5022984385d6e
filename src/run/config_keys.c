/*
 * Every key of the configuration, in one table, and the code that gives a key its value. Limits are not repeated here:
 * each row of limit_table is a key of [limits] and of [ceilings].
 *
 * What always holds: a value that was stored passed the same checks, whether it came from a file, the environment, a
 * caller or the table itself.
 */
#include "base/account.h"
#include "base/fd.h"
#include "base/size.h"
#include "run/config_internal.h"
#include "run/policy.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))
#define AT(member) offsetof(struct config, member)

/* What programs of the host image look for below /etc when they start (Debian's interpreters and compilers, traced),
 * and no more. Left out on purpose: everything that names this machine, its users or its network, and files in which
 * people keep credentials (npmrc, pip.conf, maven, gitconfig). The cell makes up passwd, group, hosts and their like.
 */
#define IMAGE_ETC                                                                                                      \
    "['alternatives', 'fonts', 'java-*', 'ld.so.cache', 'localtime', 'os-release', 'perl', 'php', 'protocols',"        \
    " 'python3.*', 'R', 'services', 'ssl/certs', 'ssl/openssl.cnf', 'timezone']"

static int check_work_dir(const char *text, struct hc_err *err);
static int check_word(const char *text, struct hc_err *err);

static const struct config_key fixed_keys[] = {
    {"sandbox", "use_sandbox", CONFIG_BOOL, AT(use_sandbox), 0, "true",
     "accepted for older configurations; every run is in a cell", NULL},
    {"sandbox", "image", CONFIG_STRING, AT(image), 0, "host", "the root filesystem; host is this machine's own /usr",
     check_word},
    {"sandbox", "work_dir", CONFIG_STRING, AT(work_dir), 0, "/workspace", "the working directory in the cell",
     check_work_dir},
    {"sandbox", "network_enabled", CONFIG_BOOL, AT(network_enabled), 0, "false", "whether runs may have a network",
     NULL},
    {"sandbox", "read_only", CONFIG_BOOL, AT(read_only), 0, "true", "whether the root filesystem is read-only", NULL},
    {"languages", "default", CONFIG_STRING, AT(default_language), 0, "python",
     "the language of code whose language nobody named", check_word},
    {"languages", "paths", CONFIG_PATHS, AT(language_paths), 0, NULL, "more folders of language files", NULL},
    {"mounts", "allowed_read_paths", CONFIG_PATHS, AT(read_paths), 0, NULL,
     "host folders that may be mounted read-only", NULL},
    {"mounts", "allowed_write_paths", CONFIG_PATHS, AT(write_paths), 0, NULL,
     "host folders that may be mounted, also writable", NULL},
    {"mounts", "forbidden_paths", CONFIG_PATHS, AT(forbidden_paths), 0, NULL,
     "host folders that may never be mounted, besides the built-in list", NULL},
    {"isolation", "allow_weak", CONFIG_BOOL, AT(allow_weak), 0, "false",
     "whether to run where this machine cannot enforce every layer", NULL},
    {"isolation", "uid_base", CONFIG_NUMBER, AT(uid_base), 0, "0", "the first host uid for cells; 0: picked", NULL},
    {"isolation", "uid_count", CONFIG_NUMBER, AT(uid_count), 0, "0", "how many host uids cells may use; 0: picked",
     NULL},
    {"image", "etc", CONFIG_NAMES, AT(image_etc), 0, IMAGE_ETC,
     "what of /etc the host image shows; a name may end in *", NULL},
};

/* The seeds' names in [sandbox] for what are limits here. */
static const struct {
    const char *name;
    enum limit_id limit;
} limit_aliases[] = {
    {"memory_limit", LIMIT_MEMORY},
    {"cpu_limit", LIMIT_CPUS},
    {"timeout", LIMIT_TIMEOUT},
    {"pids_limit", LIMIT_PIDS},
};

/* ---- the table ---- */

size_t config_key_count(void)
{
    return COUNT_OF(fixed_keys) + (size_t)2 * LIMIT_COUNT;
}

struct config_key config_key_at(size_t index)
{
    if (index < COUNT_OF(fixed_keys))
        return fixed_keys[index];
    index -= COUNT_OF(fixed_keys);
    bool ceiling = index >= LIMIT_COUNT;
    enum limit_id limit = (enum limit_id)(index % LIMIT_COUNT);
    return (struct config_key){.section = ceiling ? "ceilings" : "limits",
                               .name = limit_table[limit].name,
                               .kind = ceiling ? CONFIG_CEILING : CONFIG_LIMIT,
                               .limit = limit,
                               .summary = limit_table[limit].summary};
}

int config_key_find(const char *section, const char *name)
{
    if (strcmp(section, "sandbox") == 0)
        for (size_t i = 0; i < COUNT_OF(limit_aliases); i++)
            if (strcmp(limit_aliases[i].name, name) == 0)
                return (int)(COUNT_OF(fixed_keys) + limit_aliases[i].limit);
    for (size_t i = 0; i < config_key_count(); i++) {
        struct config_key key = config_key_at(i);
        if (strcmp(key.section, section) == 0 && strcmp(key.name, name) == 0)
            return (int)i;
    }
    return -1;
}

size_t config_key_names(const char *section, const char **names, size_t max)
{
    size_t count = 0;
    for (size_t i = 0; i < config_key_count() && count < max; i++) {
        struct config_key key = config_key_at(i);
        if (!section) { /* the rows of a section are together */
            if (count == 0 || strcmp(names[count - 1], key.section) != 0)
                names[count++] = key.section;
        } else if (strcmp(key.section, section) == 0) {
            names[count++] = key.name;
        }
    }
    if (section && strcmp(section, "sandbox") == 0)
        for (size_t i = 0; i < COUNT_OF(limit_aliases) && count < max; i++)
            names[count++] = limit_aliases[i].name;
    return count;
}

const char *config_key_home(const char *name)
{
    for (size_t i = 0; i < config_key_count(); i++) {
        struct config_key key = config_key_at(i);
        if (strcmp(key.name, name) == 0)
            return key.section;
    }
    for (size_t i = 0; i < COUNT_OF(limit_aliases); i++)
        if (strcmp(limit_aliases[i].name, name) == 0)
            return "sandbox";
    return NULL;
}

/* ---- checks ---- */

static int fail_memory(struct hc_err *err)
{
    return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory while reading the configuration");
}

static int check_word(const char *text, struct hc_err *err)
{
    return *text ? 0 : hc_fail(err, HC_CLASS_REQUEST, EINVAL, "expected a name, found an empty string");
}

static int check_work_dir(const char *text, struct hc_err *err)
{
    char canonical[256];
    int rc = policy_check_target(text, canonical, sizeof canonical, err);
    if (rc < 0)
        return rc;
    if (strcmp(canonical, text) != 0)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "expected a plain path such as \"%s\", found \"%s\"", canonical,
                       text);
    return 0;
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

/* ---- taking a value ---- */

static void *member_of(const struct config *config, const struct config_key *key)
{
    return (char *)config + key->offset;
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
    case CONFIG_STRING:
        return "a string";
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

static int assign_words(const struct config_key *key, struct words *member, const struct toml_value *array,
                        struct hc_err *err)
{
    struct words words HC_CLEANUP(words_release) = {0};
    for (size_t i = 0; i < toml_count(array); i++) {
        const struct toml_value *item = toml_at(array, i);
        const char *text = plain_string(item);
        if (!text)
            return fail_type(key, item, err);
        int rc = key->kind == CONFIG_PATHS ? add_path(&words, text, err) : add_name(&words, text, err);
        if (rc < 0)
            return rc;
    }
    words_release(member);
    *member = words;
    words = (struct words){0};
    return 0;
}

static int assign_limit(struct limits *limits, const struct config_key *key, const struct toml_value *value,
                        struct hc_err *err)
{
    uint64_t number;
    int rc;
    if (plain_string(value))
        rc = limit_parse(key->limit, plain_string(value), &number, err);
    else if (toml_type(value) == TOML_INTEGER)
        rc = limit_from_number(key->limit, (double)toml_integer(value), &number, err);
    else if (toml_type(value) == TOML_FLOAT)
        rc = limit_from_number(key->limit, toml_float(value), &number, err);
    else
        return fail_type(key, value, err);
    if (rc < 0)
        return rc;
    limits->value[key->limit] = number;
    limits->set[key->limit] = true;
    return 0;
}

static int assign(struct config *config, const struct config_key *key, const struct toml_value *value,
                  struct hc_err *err)
{
    switch (key->kind) {
    case CONFIG_BOOL:
        if (toml_type(value) != TOML_BOOLEAN)
            return fail_type(key, value, err);
        *(bool *)member_of(config, key) = toml_boolean(value);
        return 0;
    case CONFIG_NUMBER:
        if (toml_type(value) != TOML_INTEGER || toml_integer(value) < 0)
            return fail_type(key, value, err);
        *(uint64_t *)member_of(config, key) = (uint64_t)toml_integer(value);
        return 0;
    case CONFIG_STRING:
        if (!plain_string(value))
            return fail_type(key, value, err);
        return assign_string(key, member_of(config, key), plain_string(value), err);
    case CONFIG_PATHS:
    case CONFIG_NAMES:
        if (toml_type(value) != TOML_ARRAY)
            return fail_type(key, value, err);
        return assign_words(key, member_of(config, key), value, err);
    case CONFIG_LIMIT:
        return assign_limit(&config->defaults, key, value, err);
    case CONFIG_CEILING:
        return assign_limit(&config->ceilings, key, value, err);
    }
    return -EINVAL;
}

int config_assign(struct config *config, const struct config_key *key, const struct toml_value *value,
                  struct hc_err *err)
{
    int rc = assign(config, key, value, err);
    if (rc == -ENOMEM || rc >= 0)
        return rc;
    hc_err_field(err, "%s.%s", key->section, key->name);
    hc_err_context(err, "%s.%s", key->section, key->name);
    return rc;
}

/* Text has no types of its own: a string or a limit is taken as it stands, a list may be one item, and the rest is
 * TOML. */
int config_assign_text(struct config *config, const struct config_key *key, const char *text, struct hc_err *err)
{
    bool list = key->kind == CONFIG_PATHS || key->kind == CONFIG_NAMES;
    bool raw = key->kind == CONFIG_STRING || key->kind == CONFIG_LIMIT || key->kind == CONFIG_CEILING;
    struct toml_value *root HC_CLEANUP(toml_free_ptr) = NULL;
    char *document hc_cleanup_free = NULL;
    if (raw || (list && text[0] != '[')) {
        json_t *quoted hc_cleanup_json = json_string(text); /* a JSON string is a TOML string, but for "\/" */
        char *dumped hc_cleanup_free = quoted ? json_dumps(quoted, JSON_ENCODE_ANY) : NULL;
        if (!dumped)
            return hc_fail(err, HC_CLASS_REQUEST, EILSEQ, "%s.%s: the value is not valid UTF-8", key->section,
                           key->name);
        if (asprintf(&document, list ? "value = [%s]" : "value = %s", dumped) < 0)
            document = NULL;
    } else if (asprintf(&document, "value = %s", text) < 0) {
        document = NULL;
    }
    if (!document)
        return fail_memory(err);
    int rc = toml_parse(document, strlen(document), key->name, &root, NULL);
    if (rc == -ENOMEM)
        return fail_memory(err);
    if (rc < 0 || toml_count(root) != 1) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s.%s: expected %s, found \"%.80s\"", key->section, key->name,
                expected_of(key), text);
        hc_err_field(err, "%s.%s", key->section, key->name);
        return -EINVAL;
    }
    return config_assign(config, key, toml_at(root, 0), err);
}

/* ---- showing a value ---- */

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

json_t *config_show(const struct config *config, const struct config_key *key)
{
    const void *member = member_of(config, key);
    switch (key->kind) {
    case CONFIG_BOOL:
        return json_boolean(*(const bool *)member);
    case CONFIG_NUMBER:
        return json_integer((json_int_t) * (const uint64_t *)member);
    case CONFIG_STRING:
        return hc_json_text_lossy(*(char *const *)member);
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

void config_drop(struct config *config, const struct config_key *key)
{
    if (key->kind == CONFIG_STRING)
        free(*(char **)member_of(config, key));
    else if (key->kind == CONFIG_PATHS || key->kind == CONFIG_NAMES)
        words_release(member_of(config, key));
}
