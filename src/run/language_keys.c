/*
 * The values of a language file's keys: each is checked by its kind, and refused with file and line. What always holds:
 * a text that was taken has no NUL, a command begins with an absolute path (or the compiled program) and has only
 * placeholders that language_expand.c knows.
 */
#include "run/language_internal.h"

#include "base/fd.h"
#include "base/suggest.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_LIMIT = 31, SETS_LIMIT = 16, LOOKUP_LIMIT = 255 };

int language_fail_at(const struct language_parser *parser, int line, struct hc_err *err, const char *format, ...)
{
    char text[320];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s:%d: %s", parser->path, line, text);
    return -EINVAL;
}

int language_fail_memory(struct hc_err *err)
{
    hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory while reading a language");
    return -ENOMEM;
}

int language_fail_key(const struct language_parser *parser, const char *section, const char *key, int line,
                      const char *const *candidates, size_t count, struct hc_err *err)
{
    const char *near = hc_suggest(key, candidates, count);
    language_fail_at(parser, line, err, "unknown key \"%.80s\"%s%s", key, section != NULL ? " in " : "",
                     section != NULL ? section : "");
    if (near != NULL)
        hc_err_remedy(err, "did you mean \"%s\"?", near);
    return -EINVAL;
}

/* ---- checks of single texts: NULL, or what is wrong ---- */

static const char *check_name(const char *text)
{
    size_t length = strlen(text);
    if (length == 0 || length > NAME_LIMIT)
        return "must have 1 to 31 characters";
    if (strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789+#._-") != length || text[0] == '.' || text[0] == '-')
        return "must be made of a-z, 0-9 and + # . _ -, and begin with a letter or a digit";
    return NULL;
}

static const char *check_extension(const char *text)
{
    if (text[0] != '.' || text[1] == '\0' || strpbrk(text, "/ ") != NULL)
        return "must begin with a dot, as in \".py\"";
    return NULL;
}

static const char *check_file(const char *text)
{
    if (text[0] == '\0' || text[0] == '-' || text[0] == '.' || strchr(text, '/') != NULL)
        return "must be a plain file name, as in \"main.py\"";
    return NULL;
}

static const char *check_path(const char *text)
{
    return text[0] == '/' ? NULL : "must be an absolute path";
}

static const char *check_lookup(const char *text)
{
    return strlen(text) > LOOKUP_LIMIT ? "must have 255 characters at most" : check_path(text);
}

static const char *check_pattern(const char *text, bool group)
{
    regex_t pattern;
    if (strstr(text, "\\t") != NULL) /* in brackets it would mean a backslash or a t */
        return "has \\t, which is no tab in a POSIX regular expression: write [[:blank:]]";
    if (regcomp(&pattern, text, REG_EXTENDED | REG_NEWLINE) != 0)
        return "must be a POSIX extended regular expression";
    size_t groups = pattern.re_nsub;
    regfree(&pattern);
    return groups > 0 || !group ? NULL : "must have a group, (…), around the version";
}

/* They reach a driver in one variable, with spaces between them. */
static const char *check_module(const char *text)
{
    return text[0] != '\0' && strpbrk(text, " \t\r\n") == NULL ? NULL : "must be a module's name, as in \"numpy\"";
}

static const char *check_variable(const char *text)
{
    const char *star = strchr(text, '*');
    if (text[0] == '\0' || strchr(text, '=') != NULL || (star != NULL && star[1] != '\0'))
        return "must be a variable's name, or a prefix that ends in *, as in \"PYTHON*\"";
    return NULL;
}

static const char *check_warmth(const char *text)
{
    return strcmp(text, "zygote") == 0 || strcmp(text, "primed") == 0 ? NULL : "must be \"zygote\" or \"primed\"";
}

static const char *check_text(enum key_kind kind, const char *text)
{
    switch (kind) {
    case KEY_NAME:
    case KEY_NAMES:
        return check_name(text);
    case KEY_EXTENSIONS:
        return check_extension(text);
    case KEY_FILE:
        return check_file(text);
    case KEY_VERSION_PATTERN:
    case KEY_IMPORT_PATTERN:
        return check_pattern(text, kind == KEY_VERSION_PATTERN);
    case KEY_PATHS:
        return check_path(text);
    case KEY_LOOKUPS:
        return check_lookup(text);
    case KEY_MODULES:
        return check_module(text);
    case KEY_VARIABLES:
        return check_variable(text);
    case KEY_WARMTH:
        return check_warmth(text);
    case KEY_COMMAND:
        return language_template_check(text, false);
    case KEY_WARM_COMMAND:
    case KEY_WARM_ENV:
        return language_template_check(text, true);
    case KEY_TEXT:
    case KEY_WORDS:
    case KEY_ENV:
    case KEY_SETS:
        break;
    }
    return NULL;
}

/* ---- values ---- */

/* The text of a string that passes its check; NULL with the error otherwise. */
static const char *take_text(const struct language_parser *parser, const struct toml_value *value, const char *key,
                             enum key_kind kind, struct hc_err *err)
{
    if (toml_type(value) != TOML_STRING) {
        language_fail_at(parser, toml_line(value), err, "\"%s\" must be a string, not a %s", key,
                         toml_type_name(toml_type(value)));
        return NULL;
    }
    size_t length;
    const char *text = toml_string(value, &length);
    if (strlen(text) != length) {
        language_fail_at(parser, toml_line(value), err, "\"%s\" contains a NUL character", key);
        return NULL;
    }
    const char *wrong = check_text(kind, text);
    if (wrong != NULL) {
        language_fail_at(parser, toml_line(value), err, "\"%s\" %s; it is \"%.80s\"", key, wrong, text);
        return NULL;
    }
    return text;
}

static bool begins_as_a_program(enum key_kind kind, const char *text)
{
    if (kind != KEY_COMMAND && kind != KEY_WARM_COMMAND)
        return true;
    return text[0] == '/' || (kind == KEY_COMMAND && strcmp(text, "{out}") == 0);
}

static int take_words(const struct language_parser *parser, const struct toml_value *value, const struct key *key,
                      struct words *words, struct hc_err *err)
{
    if (toml_type(value) != TOML_ARRAY)
        return language_fail_at(parser, toml_line(value), err, "\"%s\" must be a list of strings, not a %s", key->name,
                                toml_type_name(toml_type(value)));
    bool command = key->kind == KEY_COMMAND || key->kind == KEY_WARM_COMMAND;
    if ((key->required || command) && toml_count(value) == 0)
        return language_fail_at(parser, toml_line(value), err, "\"%s\" must not be empty", key->name);
    for (size_t i = 0; i < toml_count(value); i++) {
        const char *text = take_text(parser, toml_at(value, i), key->name, key->kind, err);
        if (text == NULL)
            return -EINVAL;
        if (i == 0 && !begins_as_a_program(key->kind, text))
            return language_fail_at(parser, toml_line(value), err,
                                    "\"%s\" must begin with the absolute path of a program%s; it begins with \"%.80s\"",
                                    key->name, key->kind == KEY_COMMAND ? ", or {out}" : "", text);
        if (words_add(words, text) < 0)
            return language_fail_memory(err);
    }
    return 0;
}

static int take_env(const struct language_parser *parser, const struct toml_value *table, const struct key *key,
                    struct words *env, struct hc_err *err)
{
    if (toml_type(table) != TOML_TABLE)
        return language_fail_at(parser, toml_line(table), err, "\"%s\" must be a table", key->name);
    for (size_t i = 0; i < toml_count(table); i++) {
        const struct toml_value *value = toml_at(table, i);
        size_t length;
        const char *name = toml_key(table, i, &length);
        if (length == 0 || strlen(name) != length || strchr(name, '=') != NULL)
            return language_fail_at(parser, toml_line(value), err,
                                    "\"%.80s\" is not a name for an environment variable", name);
        const char *text = take_text(parser, value, name, key->kind, err);
        if (text == NULL)
            return -EINVAL;
        hc_cleanup_free char *pair = NULL;
        if (asprintf(&pair, "%s=%s", name, text) < 0) {
            pair = NULL;
            return language_fail_memory(err);
        }
        if (words_add(env, pair) < 0)
            return language_fail_memory(err);
    }
    return 0;
}

/* ---- sets ---- */

static int take_set(const struct language_parser *parser, const struct toml_value *table, struct hc_err *err)
{
    static const char *const names[] = {"name", "modules"};
    struct language_warm *warm = &parser->language->warm;
    if (toml_type(table) != TOML_TABLE)
        return language_fail_at(parser, toml_line(table), err, "\"sets\" must be tables, [[warm.sets]]");
    for (size_t i = 0; i < toml_count(table); i++) {
        const char *key = toml_key(table, i, NULL);
        if (strcmp(key, names[0]) != 0 && strcmp(key, names[1]) != 0)
            return language_fail_key(parser, "warm.sets", key, toml_line(toml_at(table, i)), names, 2, err);
    }
    const struct toml_value *name = toml_get(table, "name"), *modules = toml_get(table, "modules");
    if (name == NULL || modules == NULL)
        return language_fail_at(parser, toml_line(table), err, "\"warm.sets.%s\" is missing",
                                name == NULL ? "name" : "modules");
    const char *text = take_text(parser, name, "name", KEY_NAME, err);
    if (text == NULL)
        return -EINVAL;
    for (size_t i = 0; i < warm->set_count; i++)
        if (strcmp(warm->sets[i].name, text) == 0)
            return language_fail_at(parser, toml_line(name), err, "there are two sets named \"%s\"", text);
    struct language_set *set = &warm->sets[warm->set_count];
    set->name = strdup(text);
    if (set->name == NULL)
        return language_fail_memory(err);
    warm->set_count++;
    const struct key key = {.name = "modules", .kind = KEY_MODULES, .required = true};
    return take_words(parser, modules, &key, &set->modules, err);
}

static int take_sets(const struct language_parser *parser, const struct toml_value *array, struct hc_err *err)
{
    struct language_warm *warm = &parser->language->warm;
    if (toml_type(array) != TOML_ARRAY)
        return language_fail_at(parser, toml_line(array), err, "\"sets\" must be tables, [[warm.sets]]");
    if (toml_count(array) > SETS_LIMIT)
        return language_fail_at(parser, toml_line(array), err, "there are more than %d sets", SETS_LIMIT);
    warm->set_count = 0;
    warm->sets = calloc(toml_count(array) + 1, sizeof *warm->sets);
    if (warm->sets == NULL)
        return language_fail_memory(err);
    int result = 0;
    for (size_t i = 0; i < toml_count(array) && result == 0; i++)
        result = take_set(parser, toml_at(array, i), err);
    return result;
}

/* ---- one key ---- */

static int take_import(struct language_warm *warm, const char *text, struct hc_err *err)
{
    if (regcomp(&warm->import, text, REG_EXTENDED) != 0)
        return language_fail_memory(err); /* it was compiled once already, to check it */
    warm->has_import = true;
    return 0;
}

int language_take_key(const struct language_parser *parser, const struct toml_value *value, const struct key *key,
                      struct hc_err *err)
{
    void *field = (char *)parser->language + key->field;
    if (key->kind == KEY_SETS)
        return take_sets(parser, value, err);
    if (key->kind >= KEY_ENV)
        return take_env(parser, value, key, field, err);
    if (key->kind >= KEY_WORDS)
        return take_words(parser, value, key, field, err);
    const char *text = take_text(parser, value, key->name, key->kind, err);
    if (text == NULL)
        return -EINVAL;
    if (key->kind == KEY_IMPORT_PATTERN)
        return take_import(&parser->language->warm, text, err);
    if (key->kind == KEY_WARMTH) {
        *(enum language_warmth *)field = text[0] == 'z' ? LANGUAGE_ZYGOTE : LANGUAGE_PRIMED;
        return 0;
    }
    char **place = field;
    *place = strdup(text);
    return *place != NULL ? 0 : language_fail_memory(err);
}

int language_take_limit(const struct language_parser *parser, const struct toml_value *value, int id,
                        struct hc_err *err)
{
    const char *name = limit_table[id].name;
    char number[64];
    const char *text = number;
    switch (toml_type(value)) {
    case TOML_INTEGER:
        snprintf(number, sizeof number, "%lld", (long long)toml_integer(value));
        break;
    case TOML_FLOAT:
        snprintf(number, sizeof number, "%.6f", toml_float(value));
        break;
    default:
        text = take_text(parser, value, name, KEY_TEXT, err);
        if (text == NULL)
            return -EINVAL;
    }
    struct limits *limits = &parser->language->compile.limits;
    int result = limit_parse((enum limit_id)id, text, &limits->value[id], err);
    if (result < 0)
        return hc_err_context(err, "%s:%d", parser->path, toml_line(value)), result;
    limits->set[id] = true;
    return 0;
}
