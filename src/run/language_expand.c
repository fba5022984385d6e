/*
 * Commands of a language, from template to argv. A template is checked when its file is read (language_template_check),
 * so that expanding it later fails only for what the request brings: too many words, or no memory.
 */
#include "run/language.h"

#include "base/buf.h"
#include "base/fd.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_LIMIT = 128 * 1024 }; /* execve's MAX_ARG_STRLEN */

enum placeholder {
    PLACE_ENTRY,
    PLACE_SOURCES,
    PLACE_OUT,
    PLACE_STEM,
    PLACE_DIR,
    PLACE_MEMORY,
    PLACE_CPUS,
    PLACE_DRIVER,
    PLACE_CACHE,
    PLACE_COUNT
};

static const char *const placeholder_names[PLACE_COUNT] = {"{entry}",  "{sources}", "{out}",    "{stem}", "{dir}",
                                                           "{memory}", "{cpus}",    "{driver}", "{cache}"};

/* What is started ahead has a driver and no program yet; with a program it is the other way round. */
static bool has_place(int place, bool warm)
{
    bool program = place == PLACE_ENTRY || place == PLACE_SOURCES || place == PLACE_STEM;
    return warm ? !program : place != PLACE_DRIVER;
}

struct values {
    const char *text[PLACE_COUNT]; /* {sources} has none: it is a word of its own */
};

/* The placeholder that `text` begins with, or -1. */
static int placeholder_at(const char *text)
{
    for (int i = 0; text[0] == '{' && i < PLACE_COUNT; i++)
        if (strncmp(text, placeholder_names[i], strlen(placeholder_names[i])) == 0)
            return i;
    return -1;
}

/* "{lower-case letters}" is meant as a placeholder; every other brace is text, so that a command can hold a script. */
static bool looks_like_placeholder(const char *text)
{
    size_t letters = text[0] == '{' ? strspn(text + 1, "abcdefghijklmnopqrstuvwxyz") : 0;
    return letters > 0 && text[1 + letters] == '}';
}

const char *language_template_check(const char *template, bool warm)
{
    for (const char *at = template; *at != '\0'; at++) {
        if (!looks_like_placeholder(at))
            continue;
        int place = placeholder_at(at);
        if (place < 0 || !has_place(place, warm))
            return warm ? "has an unknown placeholder; known are {driver} {out} {dir} {memory} {cpus} {cache}"
                        : "has an unknown placeholder; known are {entry} {sources} {out} {stem} {dir} {memory} {cpus} "
                          "{cache}";
        if (place == PLACE_SOURCES && strcmp(template, placeholder_names[place]) != 0)
            return "has {sources} inside a word; it must be a word of its own";
    }
    return NULL;
}

/* "main.py", or "./-main.py": a name is never an option. */
static char *file_word(const char *name)
{
    char *word = NULL;
    return asprintf(&word, "%s%s", name[0] == '-' ? "./" : "", name) < 0 ? NULL : word;
}

static int add_file_word(struct words *argv, const char *name)
{
    hc_cleanup_free char *word = file_word(name);
    return word == NULL ? -ENOMEM : words_add(argv, word);
}

static int add_expanded(struct words *argv, const char *template, const struct values *values)
{
    struct hc_buf word = HC_BUF_INIT(WORD_LIMIT);
    for (const char *at = template; *at != '\0';) {
        int place = placeholder_at(at);
        if (place >= 0) {
            hc_buf_add_str(&word, values->text[place]);
            at += strlen(placeholder_names[place]);
        } else {
            size_t plain = 1 + strcspn(at + 1, "{");
            hc_buf_add(&word, at, plain);
            at += plain;
        }
    }
    int status = hc_buf_status(&word);
    if (status < 0) {
        hc_buf_release(&word);
        return status;
    }
    hc_cleanup_free char *text = hc_buf_take(&word, NULL);
    return text == NULL ? -ENOMEM : words_add(argv, text);
}

static int expand(const struct words *command, const struct values *values, const struct words *sources,
                  struct words *argv)
{
    int result = 0;
    for (size_t i = 0; i < command->count && result == 0; i++) {
        if (strcmp(command->item[i], placeholder_names[PLACE_SOURCES]) != 0) {
            result = add_expanded(argv, command->item[i], values);
            continue;
        }
        for (size_t j = 0; j < sources->count && result == 0; j++)
            result = add_file_word(argv, sources->item[j]);
    }
    return result;
}

static uint64_t limit_of(const struct limits *limits, enum limit_id id)
{
    return limits != NULL ? limits->value[id] : limit_table[id].initial;
}

struct measures {
    char memory[32], cpus[32], cache[sizeof LANGUAGE_CACHE + 64];
};

/* Whether a word of these may want them: {memory}, {cpus} or {cache}. */
static bool want_measures(const struct words *templates)
{
    for (size_t i = 0; i < templates->count; i++)
        for (const char *at = strchr(templates->item[i], '{'); at != NULL; at = strchr(at + 1, '{'))
            if (at[1] == 'm' || at[1] == 'c')
                return true;
    return false;
}

static void measure(const struct language *language, const struct words *templates, const struct limits *limits,
                    struct measures *measures)
{
    measures->memory[0] = measures->cpus[0] = measures->cache[0] = '\0';
    if (!want_measures(templates))
        return;
    snprintf(measures->cache, sizeof measures->cache, LANGUAGE_CACHE "/%s", language->name);
    uint64_t mib = limit_of(limits, LIMIT_MEMORY) >> 20;
    snprintf(measures->memory, sizeof measures->memory, "%" PRIu64, mib > 0 ? mib : 1);
    snprintf(measures->cpus, sizeof measures->cpus, "%" PRIu64, (limit_of(limits, LIMIT_CPUS) + 999) / 1000);
}

/* `out` is untouched on failure. */
static int fill_in(const struct words *command, const struct values *values, const struct words *sources,
                   struct words *out)
{
    struct words made = {0};
    int result = expand(command, values, sources, &made);
    if (result < 0)
        words_release(&made);
    else
        *out = made;
    return result;
}

int language_expand(const struct language *language, const struct language_stage *stage, const char *work_dir,
                    const char *entry, const char *out, const struct words *sources, const struct limits *limits,
                    struct words *argv, struct hc_err *err)
{
    const char *base = strrchr(entry, '/') != NULL ? strrchr(entry, '/') + 1 : entry;
    const char *dot = strrchr(base, '.');
    int stem_length = dot != NULL && dot != base ? (int)(dot - base) : (int)strlen(base);
    struct measures measures;
    measure(language, &stage->command, limits, &measures);

    hc_cleanup_free char *entry_word = file_word(entry);
    hc_cleanup_free char *stem = NULL;
    if (entry_word == NULL || asprintf(&stem, "%.*s", stem_length, base) < 0) {
        stem = NULL;
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    }
    const struct values values = {
        {entry_word, "", out, stem, work_dir, measures.memory, measures.cpus, "", measures.cache}};
    int result = fill_in(&stage->command, &values, sources, argv);
    if (result < 0)
        return hc_fail_errno(err, result == -ENOMEM ? HC_CLASS_OURS : HC_CLASS_REQUEST, -result,
                             "cannot make the command of %s for %s", language->name, entry);
    return 0;
}

int language_expand_warm(const struct language *language, const struct words *templates, const char *work_dir,
                         const struct limits *limits, struct words *out, struct hc_err *err)
{
    struct measures measures;
    char driver[sizeof LANGUAGE_DRIVERS + 64];
    measure(language, templates, limits, &measures);
    snprintf(driver, sizeof driver, LANGUAGE_DRIVERS "/%s", language->name);
    const struct values values = {
        {"", "", LANGUAGE_OUT, "", work_dir, measures.memory, measures.cpus, driver, measures.cache}};
    static const struct words none;
    int result = fill_in(templates, &values, &none, out);
    if (result < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, -result, "cannot make what %s starts ahead", language->name);
    return 0;
}
