/*
 * One language file: TOML in, struct language out. The schema is the tables below; everything that is not in them is an
 * error with file and line. What holds afterwards: every required key is there, no text contains a NUL, every command
 * is an absolute path (or the compiled program) and has only placeholders that language_expand knows.
 */
#include "run/language_diagnosis.h"
#include "run/language_internal.h"

#include "base/fd.h"
#include "cell/spec.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

enum { LANGUAGE_FILE_LIMIT = 64 * 1024, CANDIDATE_LIMIT = 32 };

#define FIELD(member) offsetof(struct language, member)

static const struct key top_keys[] = {
    {"name", KEY_NAME, FIELD(name), true},         {"title", KEY_TEXT, FIELD(title), true},
    {"aliases", KEY_NAMES, FIELD(aliases), false}, {"extensions", KEY_EXTENSIONS, FIELD(extensions), true},
    {"file", KEY_FILE, FIELD(file), true},         {"package", KEY_TEXT, FIELD(package), false},
    {"needs", KEY_PATHS, FIELD(needs), true},      {"env", KEY_ENV, FIELD(env), false},
};
static const struct key version_keys[] = {
    {"command", KEY_COMMAND, FIELD(version_command), true},
    {"pattern", KEY_VERSION_PATTERN, FIELD(version_pattern), true},
};
static const struct key compile_keys[] = {{"command", KEY_COMMAND, FIELD(compile.command), true}};
static const struct key prepare_keys[] = {{"command", KEY_COMMAND, FIELD(prepare.command), true}};
static const struct key run_keys[] = {
    {"command", KEY_COMMAND, FIELD(run.command), true},
    {"lookups", KEY_LOOKUPS, FIELD(lookups), false},
};
static const struct key warm_keys[] = {
    {"kind", KEY_WARMTH, FIELD(warm.kind), true},
    {"command", KEY_WARM_COMMAND, FIELD(warm.run.command), true},
    {"compile", KEY_WARM_COMMAND, FIELD(warm.compile.command), false},
    {"entry", KEY_FILE, FIELD(warm.entry), false},
    {"cold_env", KEY_VARIABLES, FIELD(warm.cold_env), false},
    {"import", KEY_IMPORT_PATTERN, FIELD(warm.import), false},
    {"env", KEY_WARM_ENV, FIELD(warm.env), false},
    {"sets", KEY_SETS, FIELD(warm.sets), false},
};

static const struct key context_keys[] = {
    {"command", KEY_WARM_COMMAND, FIELD(context.run.command), true},
    {"preload", KEY_NAME, FIELD(context.preload), false},
};

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
    {"prepare", KEYS(prepare_keys), false, false, FIELD(prepare.present)},
    {"run", KEYS(run_keys), true, false, FIELD(run.present)},
    {"warm", KEYS(warm_keys), false, false, FIELD(warm.run.present)},
    {"context", KEYS(context_keys), false, false, FIELD(context.run.present)},
};
enum { SECTION_COUNT = sizeof sections / sizeof *sections };

/* ---- sections ---- */

static int fail_unknown(const struct language_parser *parser, const struct section *section, const char *key, int line,
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
    return language_fail_key(parser, section->name, key, line, candidates, count, err);
}

static bool is_section(const char *key)
{
    for (size_t i = 1; i < SECTION_COUNT; i++)
        if (strcmp(sections[i].name, key) == 0)
            return true;
    return false;
}

static int take_member(const struct language_parser *parser, const struct section *section, const char *key,
                       const struct toml_value *value, struct hc_err *err)
{
    for (size_t i = 0; i < section->count; i++)
        if (strcmp(section->keys[i].name, key) == 0)
            return language_take_key(parser, value, &section->keys[i], err);
    int id = section->limits ? limit_find(key) : -1;
    if (id >= 0)
        return language_take_limit(parser, value, id, err);
    if (section->name == NULL && is_section(key))
        return 0;
    if (section->name == NULL && strcmp(key, "diagnosis") == 0)
        return language_fail_at(parser, toml_line(value), err,
                                "\"diagnosis\" must be the last table, and begin with a line [diagnosis] of its own");
    return fail_unknown(parser, section, key, toml_line(value), err);
}

static int take_section(const struct language_parser *parser, const struct section *section,
                        const struct toml_value *table, struct hc_err *err)
{
    if (toml_type(table) != TOML_TABLE)
        return language_fail_at(parser, toml_line(table), err, "\"%s\" must be a table, [%s]", section->name,
                                section->name);
    if (section->present != 0)
        *(bool *)((char *)parser->language + section->present) = true;
    for (size_t i = 0; i < toml_count(table); i++) {
        int result = take_member(parser, section, toml_key(table, i, NULL), toml_at(table, i), err);
        if (result < 0)
            return result;
    }
    for (size_t i = 0; i < section->count; i++)
        if (section->keys[i].required && toml_get(table, section->keys[i].name) == NULL)
            return language_fail_at(parser, toml_line(table), err, "\"%s%s%s\" is missing",
                                    section->name != NULL ? section->name : "", section->name != NULL ? "." : "",
                                    section->keys[i].name);
    return 0;
}

/* What the kind of a warm start can do. A zygote is one program that forks; only it can be had in several sets. */
static int check_warm(const struct language_parser *parser, const struct toml_value *root, struct hc_err *err)
{
    struct language_warm *warm = &parser->language->warm;
    const struct toml_value *table = toml_get(root, "warm");
    if (table == NULL)
        return 0;
    int line = toml_line(table);
    warm->compile.present = warm->compile.command.count > 0;
    if (warm->compile.present && warm->kind == LANGUAGE_ZYGOTE)
        return language_fail_at(parser, line, err, "\"warm.compile\" is for kind = \"primed\" alone");
    if (warm->compile.present && !parser->language->compile.present)
        return language_fail_at(parser, line, err, "\"warm.compile\" needs the table [compile]");
    if (warm->set_count > 0 && warm->kind != LANGUAGE_ZYGOTE)
        return language_fail_at(parser, line, err, "\"warm.sets\" are for kind = \"zygote\" alone");
    if ((warm->set_count > 0) != warm->has_import)
        return language_fail_at(parser, line, err, "\"warm.import\" and \"warm.sets\" need each other");
    return 0;
}

static int check_context(const struct language_parser *parser, const struct toml_value *root, struct hc_err *err)
{
    const struct language *language = parser->language;
    if (language->context.preload == NULL || language_set_find(language, language->context.preload) != NULL)
        return 0;
    return language_fail_at(parser, toml_line(toml_get(toml_get(root, "context"), "preload")), err,
                            "\"preload\" must be the name of one of [[warm.sets]]; it is \"%s\"",
                            language->context.preload);
}

static int check_lookups(const struct language_parser *parser, const struct toml_value *root, struct hc_err *err)
{
    const struct words *lookups = &parser->language->lookups;
    size_t total = 0;
    for (size_t i = 0; i < lookups->count; i++)
        total += strlen(lookups->item[i]) + 1;
    if (total <= CELL_MAX_LOOKUPS)
        return 0;
    return language_fail_at(parser, toml_line(toml_get(toml_get(root, "run"), "lookups")), err,
                            "\"lookups\" must have %d bytes at most, with one between names; they have %zu",
                            CELL_MAX_LOOKUPS, total);
}

/* The file's name decides where languages_find looks, so it must agree with what is written inside. */
static int check_whole(const struct language_parser *parser, const struct toml_value *root, struct hc_err *err)
{
    const struct language *language = parser->language;
    const char *base = strrchr(parser->path, '/') != NULL ? strrchr(parser->path, '/') + 1 : parser->path;
    size_t length = strlen(language->name);
    if (strncmp(base, language->name, length) != 0 || strcmp(base + length, ".toml") != 0)
        return language_fail_at(parser, toml_line(toml_get(root, "name")), err,
                                "the file of language \"%s\" must be named %s.toml", language->name, language->name);
    int result = check_warm(parser, root, err);
    if (result == 0)
        result = check_context(parser, root, err);
    if (result == 0)
        result = check_lookups(parser, root, err);
    if (result < 0)
        return result;
    const char *dot = strrchr(language->file, '.');
    for (size_t i = 0; dot != NULL && i < language->extensions.count; i++)
        if (strcmp(dot, language->extensions.item[i]) == 0)
            return 0;
    return language_fail_at(parser, toml_line(toml_get(root, "file")), err,
                            "\"file\" must end in one of \"extensions\"");
}

static int fill(const struct language_parser *parser, const struct toml_value *root, struct hc_err *err)
{
    for (size_t i = 0; i < SECTION_COUNT; i++) {
        const struct toml_value *table = sections[i].name == NULL ? root : toml_get(root, sections[i].name);
        if (table == NULL && sections[i].required)
            return language_fail_at(parser, toml_line(root), err, "the table [%s] is missing", sections[i].name);
        int result = table == NULL ? 0 : take_section(parser, &sections[i], table, err);
        if (result < 0)
            return result;
    }
    if (parser->language->package == NULL && (parser->language->package = strdup("")) == NULL)
        return language_fail_memory(err);
    return check_whole(parser, root, err);
}

/* Where the table [diagnosis] begins, with which a file may end: most runs do without it, and then need not read it.
 * The length of the text where there is none, or where it is not alone at the end: then the whole is read, and refused.
 * The text ends with a NUL. */
static size_t without_diagnosis(const char *text, size_t length)
{
    const char *found = strstr(text, "\n[diagnosis]\n");
    if (found == NULL || strlen(text) != length)
        return length;
    for (const char *line = found; (line = strstr(line, "\n[")) != NULL; line++)
        if (strncmp(line, "\n[diagnosis", 11) != 0 && strncmp(line, "\n[[diagnosis.", 13) != 0)
            return length;
    return (size_t)(found - text) + 1;
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
    size_t front = without_diagnosis(text, length);
    if ((result = toml_parse(text, front, path, &root, err)) < 0)
        return result;
    struct language *language = calloc(1, sizeof *language);
    if (language == NULL)
        return language_fail_memory(err);
    struct language_parser parser = {.path = path, .language = language};
    language->source = strdup(path);
    language->text = front < length ? HC_TAKE_PTR(text) : NULL;
    result = language->source != NULL ? fill(&parser, root, err) : language_fail_memory(err);
    if (result < 0) {
        language_free(language);
        return result;
    }
    *out = language;
    return 0;
}

const struct language_set *language_set_find(const struct language *language, const char *name)
{
    for (size_t i = 0; i < language->warm.set_count; i++)
        if (strcmp(language->warm.sets[i].name, name) == 0)
            return &language->warm.sets[i];
    return NULL;
}

static void warm_free(struct language_warm *warm)
{
    free(warm->entry);
    if (warm->has_import)
        regfree(&warm->import);
    words_release(&warm->run.command);
    words_release(&warm->compile.command);
    words_release(&warm->cold_env);
    words_release(&warm->env);
    for (size_t i = 0; i < warm->set_count; i++) {
        free(warm->sets[i].name);
        words_release(&warm->sets[i].modules);
    }
    free(warm->sets);
}

void language_free(struct language *language)
{
    if (language == NULL || language->users-- > 0)
        return;
    free(language->name);
    free(language->title);
    free(language->package);
    free(language->file);
    free(language->version_pattern);
    free(language->source);
    free(language->text);
    language_diagnosis_free(language->diagnosis);
    words_release(&language->aliases);
    words_release(&language->extensions);
    words_release(&language->needs);
    words_release(&language->version_command);
    words_release(&language->compile.command);
    words_release(&language->prepare.command);
    words_release(&language->run.command);
    words_release(&language->lookups);
    words_release(&language->env);
    warm_free(&language->warm);
    words_release(&language->context.run.command);
    free(language->context.preload);
    free(language);
}
