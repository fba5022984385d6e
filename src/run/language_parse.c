/*
 * One language file: TOML in, struct language out. The schema is the tables below; everything that is not in them is an
 * error with file and line. What holds afterwards: every required key is there, no text contains a NUL, every command
 * is an absolute path (or the compiled program) and has only placeholders that language_expand knows.
 */
#include "run/language.h"

#include "base/fd.h"
#include "base/suggest.h"
#include "text/toml.h"
#include <errno.h>
#include <fcntl.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LANGUAGE_FILE_LIMIT = 64 * 1024, LANGUAGE_NAME_LIMIT = 31 };

struct parser {
    const char *path; /* for messages */
    struct language *language;
};

/* What a key's value must look like; `field` is where it goes. */
enum key_kind {
    KEY_TEXT,
    KEY_NAME,
    KEY_FILE,
    KEY_PATTERN,
    KEY_WORDS,
    KEY_NAMES,
    KEY_EXTENSIONS,
    KEY_PATHS,
    KEY_COMMAND
};

struct key {
    const char *name;
    enum key_kind kind;
    size_t field;
    bool required;
};

#define FIELD(member) offsetof(struct language, member)

static const struct key top_keys[] = {
    {"name", KEY_NAME, FIELD(name), true},         {"title", KEY_TEXT, FIELD(title), true},
    {"aliases", KEY_NAMES, FIELD(aliases), false}, {"extensions", KEY_EXTENSIONS, FIELD(extensions), true},
    {"file", KEY_FILE, FIELD(file), true},         {"package", KEY_TEXT, FIELD(package), false},
    {"needs", KEY_PATHS, FIELD(needs), true},
};
static const struct key version_keys[] = {
    {"command", KEY_COMMAND, FIELD(version_command), true},
    {"pattern", KEY_PATTERN, FIELD(version_pattern), true},
};
static const struct key compile_keys[] = {{"command", KEY_COMMAND, FIELD(compile.command), true}};
static const struct key run_keys[] = {{"command", KEY_COMMAND, FIELD(run.command), true}};

struct section {
    const char *name; /* NULL: the top of the file */
    const struct key *keys;
    size_t count;
    bool required;
    bool limits;    /* the names of limits are keys, too */
    size_t present; /* offset of a bool that says that the section was there; 0: none */
};

#define KEYS(table) table, sizeof(table) / sizeof *(table)

static const struct section sections[] = {
    {NULL, KEYS(top_keys), true, false, 0},
    {"version", KEYS(version_keys), false, false, 0},
    {"compile", KEYS(compile_keys), false, true, FIELD(compile.present)},
    {"run", KEYS(run_keys), true, false, FIELD(run.present)},
    {"env", NULL, 0, false, false, 0},
};
enum { SECTION_COUNT = sizeof sections / sizeof *sections, CANDIDATE_LIMIT = 32 };

static int fail_at(const struct parser *parser, int line, struct hc_err *err, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static int fail_at(const struct parser *parser, int line, struct hc_err *err, const char *format, ...)
{
    char text[320];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s:%d: %s", parser->path, line, text);
    return -EINVAL;
}

static int fail_memory(struct hc_err *err)
{
    hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory while reading a language");
    return -ENOMEM;
}

/* ---- checks of single texts: NULL, or what is wrong ---- */

static const char *check_name(const char *text)
{
    size_t length = strlen(text);
    if (length == 0 || length > LANGUAGE_NAME_LIMIT)
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

static const char *check_pattern(const char *text)
{
    regex_t pattern;
    if (regcomp(&pattern, text, REG_EXTENDED | REG_NEWLINE) != 0)
        return "must be a POSIX extended regular expression";
    size_t groups = pattern.re_nsub;
    regfree(&pattern);
    return groups > 0 ? NULL : "must have a group, (…), around the version";
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
    case KEY_PATTERN:
        return check_pattern(text);
    case KEY_PATHS:
        return check_path(text);
    case KEY_COMMAND:
        return language_template_check(text);
    case KEY_TEXT:
    case KEY_WORDS:
        break;
    }
    return NULL;
}

/* ---- values ---- */

/* The text of a string that passes its check; NULL with the error otherwise. */
static const char *take_text(const struct parser *parser, const struct toml_value *value, const char *key,
                             enum key_kind kind, struct hc_err *err)
{
    if (toml_type(value) != TOML_STRING) {
        fail_at(parser, toml_line(value), err, "\"%s\" must be a string, not a %s", key,
                toml_type_name(toml_type(value)));
        return NULL;
    }
    size_t length;
    const char *text = toml_string(value, &length);
    if (strlen(text) != length) {
        fail_at(parser, toml_line(value), err, "\"%s\" contains a NUL character", key);
        return NULL;
    }
    const char *wrong = check_text(kind, text);
    if (wrong != NULL) {
        fail_at(parser, toml_line(value), err, "\"%s\" %s; it is \"%.80s\"", key, wrong, text);
        return NULL;
    }
    return text;
}

static int take_words(const struct parser *parser, const struct toml_value *value, const struct key *key,
                      struct words *words, struct hc_err *err)
{
    if (toml_type(value) != TOML_ARRAY)
        return fail_at(parser, toml_line(value), err, "\"%s\" must be a list of strings, not a %s", key->name,
                       toml_type_name(toml_type(value)));
    if (key->required && toml_count(value) == 0)
        return fail_at(parser, toml_line(value), err, "\"%s\" must not be empty", key->name);
    for (size_t i = 0; i < toml_count(value); i++) {
        const char *text = take_text(parser, toml_at(value, i), key->name, key->kind, err);
        if (text == NULL)
            return -EINVAL;
        if (key->kind == KEY_COMMAND && i == 0 && text[0] != '/' && strcmp(text, "{out}") != 0)
            return fail_at(parser, toml_line(value), err,
                           "\"%s\" must begin with the absolute path of a program, or {out}; it begins with \"%.80s\"",
                           key->name, text);
        if (words_add(words, text) < 0)
            return fail_memory(err);
    }
    return 0;
}

static int take_key(const struct parser *parser, const struct toml_value *value, const struct key *key,
                    struct hc_err *err)
{
    void *field = (char *)parser->language + key->field;
    if (key->kind >= KEY_WORDS)
        return take_words(parser, value, key, field, err);
    const char *text = take_text(parser, value, key->name, key->kind, err);
    if (text == NULL)
        return -EINVAL;
    char **place = field;
    *place = strdup(text);
    return *place != NULL ? 0 : fail_memory(err);
}

/* A limit may be written as in a request: "1g", 10, 0.5. */
static int take_limit(const struct parser *parser, const struct toml_value *value, int id, struct hc_err *err)
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

static int take_env(const struct parser *parser, const struct toml_value *table, struct hc_err *err)
{
    for (size_t i = 0; i < toml_count(table); i++) {
        const struct toml_value *value = toml_at(table, i);
        size_t length;
        const char *name = toml_key(table, i, &length);
        if (length == 0 || strlen(name) != length || strchr(name, '=') != NULL)
            return fail_at(parser, toml_line(value), err, "\"%.80s\" is not a name for an environment variable", name);
        const char *text = take_text(parser, value, name, KEY_TEXT, err);
        if (text == NULL)
            return -EINVAL;
        hc_cleanup_free char *pair = NULL;
        if (asprintf(&pair, "%s=%s", name, text) < 0) {
            pair = NULL;
            return fail_memory(err);
        }
        if (words_add(&parser->language->env, pair) < 0)
            return fail_memory(err);
    }
    return 0;
}

/* ---- sections ---- */

static int fail_unknown(const struct parser *parser, const struct section *section, const char *key, int line,
                        struct hc_err *err)
{
    const char *candidates[CANDIDATE_LIMIT];
    size_t count = 0;
    for (size_t i = 0; i < section->count; i++)
        candidates[count++] = section->keys[i].name;
    for (size_t i = 1; section->name == NULL && i < SECTION_COUNT; i++)
        candidates[count++] = sections[i].name;
    for (size_t i = 0; section->limits && i < LIMIT_COUNT; i++)
        candidates[count++] = limit_table[i].name;
    const char *near = hc_suggest(key, candidates, count);
    fail_at(parser, line, err, "unknown key \"%.80s\"%s%s", key, section->name != NULL ? " in " : "",
            section->name != NULL ? section->name : "");
    if (near != NULL)
        hc_err_remedy(err, "did you mean \"%s\"?", near);
    return -EINVAL;
}

static bool is_section(const char *key)
{
    for (size_t i = 1; i < SECTION_COUNT; i++)
        if (strcmp(sections[i].name, key) == 0)
            return true;
    return false;
}

static int take_member(const struct parser *parser, const struct section *section, const char *key,
                       const struct toml_value *value, struct hc_err *err)
{
    for (size_t i = 0; i < section->count; i++)
        if (strcmp(section->keys[i].name, key) == 0)
            return take_key(parser, value, &section->keys[i], err);
    int id = section->limits ? limit_find(key) : -1;
    if (id >= 0)
        return take_limit(parser, value, id, err);
    if (section->name == NULL && is_section(key))
        return 0;
    return fail_unknown(parser, section, key, toml_line(value), err);
}

static int take_section(const struct parser *parser, const struct section *section, const struct toml_value *table,
                        struct hc_err *err)
{
    if (toml_type(table) != TOML_TABLE)
        return fail_at(parser, toml_line(table), err, "\"%s\" must be a table, [%s]", section->name, section->name);
    if (section->present != 0)
        *(bool *)((char *)parser->language + section->present) = true;
    if (section->keys == NULL)
        return take_env(parser, table, err);
    for (size_t i = 0; i < toml_count(table); i++) {
        int result = take_member(parser, section, toml_key(table, i, NULL), toml_at(table, i), err);
        if (result < 0)
            return result;
    }
    for (size_t i = 0; i < section->count; i++)
        if (section->keys[i].required && toml_get(table, section->keys[i].name) == NULL)
            return fail_at(parser, toml_line(table), err, "\"%s%s%s\" is missing",
                           section->name != NULL ? section->name : "", section->name != NULL ? "." : "",
                           section->keys[i].name);
    return 0;
}

/* The file's name decides where languages_find looks, so it must agree with what is written inside. */
static int check_whole(const struct parser *parser, const struct toml_value *root, struct hc_err *err)
{
    const struct language *language = parser->language;
    const char *base = strrchr(parser->path, '/') != NULL ? strrchr(parser->path, '/') + 1 : parser->path;
    size_t length = strlen(language->name);
    if (strncmp(base, language->name, length) != 0 || strcmp(base + length, ".toml") != 0)
        return fail_at(parser, toml_line(toml_get(root, "name")), err,
                       "the file of language \"%s\" must be named %s.toml", language->name, language->name);
    const char *dot = strrchr(language->file, '.');
    for (size_t i = 0; dot != NULL && i < language->extensions.count; i++)
        if (strcmp(dot, language->extensions.item[i]) == 0)
            return 0;
    return fail_at(parser, toml_line(toml_get(root, "file")), err, "\"file\" must end in one of \"extensions\"");
}

static int fill(const struct parser *parser, const struct toml_value *root, struct hc_err *err)
{
    for (size_t i = 0; i < SECTION_COUNT; i++) {
        const struct toml_value *table = sections[i].name == NULL ? root : toml_get(root, sections[i].name);
        if (table == NULL && sections[i].required)
            return fail_at(parser, toml_line(root), err, "the table [%s] is missing", sections[i].name);
        int result = table == NULL ? 0 : take_section(parser, &sections[i], table, err);
        if (result < 0)
            return result;
    }
    if (parser->language->package == NULL && (parser->language->package = strdup("")) == NULL)
        return fail_memory(err);
    return check_whole(parser, root, err);
}

int language_read(const char *path, struct language **out, struct hc_err *err)
{
    hc_cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "cannot open the language file %s", path);
    hc_cleanup_free char *text = NULL;
    size_t length;
    int result = hc_read_all(fd, LANGUAGE_FILE_LIMIT, &text, &length);
    if (result < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, -result, "cannot read the language file %s", path);

    HC_CLEANUP(toml_free_ptr) struct toml_value *root = NULL;
    if ((result = toml_parse(text, length, path, &root, err)) < 0)
        return result;
    struct language *language = calloc(1, sizeof *language);
    if (language == NULL)
        return fail_memory(err);
    struct parser parser = {.path = path, .language = language};
    language->source = strdup(path);
    result = language->source != NULL ? fill(&parser, root, err) : fail_memory(err);
    if (result < 0) {
        language_free(language);
        return result;
    }
    *out = language;
    return 0;
}

void language_free(struct language *language)
{
    if (language == NULL)
        return;
    free(language->name);
    free(language->title);
    free(language->package);
    free(language->file);
    free(language->version_pattern);
    free(language->source);
    words_release(&language->aliases);
    words_release(&language->extensions);
    words_release(&language->needs);
    words_release(&language->version_command);
    words_release(&language->compile.command);
    words_release(&language->run.command);
    words_release(&language->env);
    free(language);
}
