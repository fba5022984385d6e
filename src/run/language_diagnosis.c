/*
 * The table [diagnosis] of a language file. The schema is the table KEYS below; what is not in it is an error with file
 * and line. What holds afterwards: every pattern is compiled, every template names only groups that its pattern has,
 * and there are at most so many rules that trying all of them on a bounded text is quick.
 */
#include "run/language_diagnosis.h"

#include "base/fd.h"
#include "base/signame.h"
#include "run/diagnose.h"
#include "run/language_internal.h"
#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RULES_LIMIT = 48, PATTERN_LIMIT = 400, PACKAGES_LIMIT = 512 };
enum { IN_ERRORS = 1, IN_PLACES = 2, IN_CAUSES = 4 };

enum value {
    VALUE_PATTERN,
    VALUE_ABOVE,
    VALUE_STAGE,
    VALUE_SIDE,
    VALUE_CATEGORY,
    VALUE_LIMIT,
    VALUE_SIGNAL,
    VALUE_EXIT,
    VALUE_FLAG,
    VALUE_TEMPLATE
};

struct rule_key {
    const char *name;
    enum value value;
    unsigned lists;
    size_t place; /* a flag's offset, or a template's enum rule_field */
};

static const struct rule_key KEYS[] = {
    {"pattern", VALUE_PATTERN, IN_ERRORS | IN_PLACES | IN_CAUSES, 0},
    {"stage", VALUE_STAGE, IN_ERRORS | IN_PLACES | IN_CAUSES, 0},
    {"above", VALUE_ABOVE, IN_ERRORS, 0},
    {"exit", VALUE_EXIT, IN_ERRORS, 0},
    {"signal", VALUE_SIGNAL, IN_ERRORS, 0},
    {"last", VALUE_FLAG, IN_ERRORS, offsetof(struct rule, last)},
    {"continues", VALUE_FLAG, IN_ERRORS, offsetof(struct rule, continues)},
    {"side", VALUE_SIDE, IN_PLACES, 0},
    {"anywhere", VALUE_FLAG, IN_CAUSES, offsetof(struct rule, anywhere)},
    {"denied", VALUE_FLAG, IN_CAUSES, offsetof(struct rule, denied)},
    {"limit", VALUE_LIMIT, IN_CAUSES, 0},
    {"category", VALUE_CATEGORY, IN_ERRORS | IN_CAUSES, 0},
    {"type", VALUE_TEMPLATE, IN_ERRORS | IN_CAUSES, RULE_TYPE},
    {"message", VALUE_TEMPLATE, IN_ERRORS | IN_CAUSES, RULE_MESSAGE},
    {"file", VALUE_TEMPLATE, IN_ERRORS | IN_PLACES, RULE_FILE},
    {"line", VALUE_TEMPLATE, IN_ERRORS | IN_PLACES, RULE_LINE},
    {"column", VALUE_TEMPLATE, IN_ERRORS | IN_PLACES, RULE_COLUMN},
    {"begins", VALUE_TEMPLATE, IN_ERRORS, RULE_BEGINS},
    {"module", VALUE_TEMPLATE, IN_CAUSES, RULE_MODULE},
    {"path", VALUE_TEMPLATE, IN_CAUSES, RULE_PATH},
    {"host", VALUE_TEMPLATE, IN_CAUSES, RULE_HOST},
    {"hint", VALUE_TEMPLATE, IN_ERRORS | IN_CAUSES, RULE_HINT},
};
enum { KEY_COUNT = sizeof KEYS / sizeof *KEYS };

static const struct {
    const char *name;
    unsigned list;
    size_t place;
} LISTS[] = {{"errors", IN_ERRORS, offsetof(struct language_diagnosis, errors)},
             {"places", IN_PLACES, offsetof(struct language_diagnosis, places)},
             {"causes", IN_CAUSES, offsetof(struct language_diagnosis, causes)}};
enum { LIST_COUNT = sizeof LISTS / sizeof *LISTS };

/* ---- values ---- */

/* NULL: err says why. */
static const char *take_string(const struct language_parser *parser, const struct toml_value *value, const char *key,
                               struct hc_err *err)
{
    size_t length = 0;
    const char *found = toml_type(value) == TOML_STRING ? toml_string(value, &length) : NULL;
    if (found != NULL && length > 0 && length <= PATTERN_LIMIT && strlen(found) == length)
        return found;
    language_fail_at(parser, toml_line(value), err, "\"%s\" must be a text of 1 to %d characters", key, PATTERN_LIMIT);
    return NULL;
}

static int take_pattern(const struct language_parser *parser, const struct toml_value *value, const char *key,
                        char **text, regex_t *regex, bool *compiled, struct hc_err *err)
{
    const char *found = take_string(parser, value, key, err);
    if (found == NULL)
        return -EINVAL;
    if (strstr(found, "\\t") != NULL || regcomp(regex, found, REG_EXTENDED) != 0)
        return language_fail_at(
            parser, toml_line(value), err,
            "\"%s\" must be a POSIX extended regular expression (a tab is [[:blank:]]), not \"%.80s\"", key, found);
    *compiled = true;
    *text = strdup(found);
    return *text != NULL ? 0 : language_fail_memory(err);
}

static int take_word(const struct language_parser *parser, const struct toml_value *value, const struct rule_key *key,
                     struct rule *rule, struct hc_err *err)
{
    const char *word = take_string(parser, value, key->name, err);
    if (word == NULL)
        return -EINVAL;
    const char *what = NULL;
    switch (key->value) {
    case VALUE_STAGE:
        rule->stage = word[0] == 'c' ? RULE_COMPILE : RULE_RUN;
        what = strcmp(word, "compile") == 0 || strcmp(word, "run") == 0 ? NULL : "\"compile\" or \"run\"";
        break;
    case VALUE_SIDE:
        rule->below = word[0] == 'b';
        what = strcmp(word, "above") == 0 || strcmp(word, "below") == 0 ? NULL : "\"above\" or \"below\"";
        break;
    case VALUE_CATEGORY:
        rule->category = diagnosis_category(word);
        what = rule->category != NULL ? NULL : "a category of a diagnosis, as \"exception\"";
        break;
    case VALUE_LIMIT:
        rule->limit = limit_find(word);
        what = rule->limit >= 0 ? NULL : "the name of a limit, as \"disk\"";
        break;
    default:
        for (int number = 1; number < NSIG && rule->signal == 0; number++)
            if (hc_signal_name(number) != NULL && strcmp(hc_signal_name(number), word) == 0)
                rule->signal = number;
        what = rule->signal > 0 ? NULL : "a signal, as \"SIGABRT\"";
    }
    if (what == NULL)
        return 0;
    return language_fail_at(parser, toml_line(value), err, "\"%s\" must be %s, not \"%.40s\"", key->name, what, word);
}

static int take_exits(const struct language_parser *parser, const struct toml_value *value, struct rule *rule,
                      struct hc_err *err)
{
    bool list = toml_type(value) == TOML_ARRAY;
    size_t count = list ? toml_count(value) : 1;
    for (size_t i = 0; i < count && count <= RULE_EXITS; i++) {
        const struct toml_value *item = list ? toml_at(value, i) : value;
        if (toml_type(item) != TOML_INTEGER || toml_integer(item) < 1 || toml_integer(item) > 255)
            break;
        rule->exits[rule->exit_count++] = (int)toml_integer(item);
    }
    if (count > 0 && rule->exit_count == count)
        return 0;
    return language_fail_at(parser, toml_line(value), err,
                            "\"exit\" must be an exit code from 1 to 255, or a list of at most %d", RULE_EXITS);
}

/* Whether the groups that a template names are there. */
static bool template_fits(const struct rule *rule, const char *template)
{
    for (const char *open = strchr(template, '{'); open != NULL; open = strchr(open + 1, '{')) {
        bool above = open[1] == 'a' && isdigit((unsigned char)open[2]);
        const char *digit = open + 1 + above;
        if (!isdigit((unsigned char)*digit) || digit[1] != '}')
            continue;
        size_t group = (size_t)(*digit - '0');
        if (group > (above ? (rule->above_compiled ? rule->above_regex.re_nsub : 0) : rule->regex.re_nsub))
            return false;
    }
    return true;
}

static int take_value(const struct language_parser *parser, const struct toml_value *value, const struct rule_key *key,
                      struct rule *rule, struct hc_err *err)
{
    const char *text;
    switch (key->value) {
    case VALUE_PATTERN:
        return take_pattern(parser, value, key->name, &rule->pattern, &rule->regex, &rule->compiled, err);
    case VALUE_ABOVE:
        return take_pattern(parser, value, key->name, &rule->above, &rule->above_regex, &rule->above_compiled, err);
    case VALUE_EXIT:
        return take_exits(parser, value, rule, err);
    case VALUE_FLAG:
        if (toml_type(value) != TOML_BOOLEAN)
            return language_fail_at(parser, toml_line(value), err, "\"%s\" must be true or false", key->name);
        *(bool *)((char *)rule + key->place) = toml_boolean(value);
        return 0;
    case VALUE_TEMPLATE:
        if ((text = take_string(parser, value, key->name, err)) == NULL)
            return -EINVAL;
        rule->field[key->place] = strdup(text);
        return rule->field[key->place] != NULL ? 0 : language_fail_memory(err);
    default:
        return take_word(parser, value, key, rule, err);
    }
}

/* ---- rules ---- */

static int fail_unknown(const struct language_parser *parser, size_t list, const char *name, int line,
                        struct hc_err *err)
{
    const char *candidates[KEY_COUNT];
    char section[32];
    size_t count = 0;
    for (size_t i = 0; i < KEY_COUNT; i++)
        if (KEYS[i].lists & LISTS[list].list)
            candidates[count++] = KEYS[i].name;
    snprintf(section, sizeof section, "diagnosis.%s", LISTS[list].name);
    return language_fail_key(parser, section, name, line, candidates, count, err);
}

static int take_rule(const struct language_parser *parser, const struct toml_value *table, size_t list,
                     struct rule *rule, struct hc_err *err)
{
    if (toml_type(table) != TOML_TABLE)
        return language_fail_at(parser, toml_line(table), err, "\"diagnosis.%s\" must be tables", LISTS[list].name);
    rule->limit = -1;
    for (size_t i = 0; i < toml_count(table); i++) {
        const char *name = toml_key(table, i, NULL);
        const struct toml_value *value = toml_at(table, i);
        const struct rule_key *key = NULL;
        for (size_t k = 0; k < KEY_COUNT && key == NULL; k++)
            if (strcmp(KEYS[k].name, name) == 0 && KEYS[k].lists & LISTS[list].list)
                key = &KEYS[k];
        int result = key == NULL ? fail_unknown(parser, list, name, toml_line(value), err)
                                 : take_value(parser, value, key, rule, err);
        if (result < 0)
            return result;
    }
    if (!rule->compiled)
        return language_fail_at(parser, toml_line(table), err, "\"diagnosis.%s.pattern\" is missing", LISTS[list].name);
    for (size_t i = 0; i < RULE_FIELDS; i++)
        if (rule->field[i] != NULL && !template_fits(rule, rule->field[i]))
            return language_fail_at(parser, toml_line(table), err, "\"%.80s\" names a group that the pattern has not",
                                    rule->field[i]);
    return 0;
}

static int take_rules(const struct language_parser *parser, const struct toml_value *array, size_t list,
                      struct rules *rules, struct hc_err *err)
{
    if (toml_type(array) != TOML_ARRAY || toml_count(array) > RULES_LIMIT)
        return language_fail_at(parser, toml_line(array), err,
                                "\"diagnosis.%s\" must be tables, [[diagnosis.%s]], and at most %d", LISTS[list].name,
                                LISTS[list].name, RULES_LIMIT);
    rules->item = calloc(toml_count(array) + 1, sizeof *rules->item);
    if (rules->item == NULL)
        return language_fail_memory(err);
    int result = 0;
    for (size_t i = 0; i < toml_count(array) && result == 0; i++) {
        rules->count++;
        result = take_rule(parser, toml_at(array, i), list, &rules->item[i], err);
    }
    return result;
}

static int take_packages(const struct language_parser *parser, const struct toml_value *table, struct words *packages,
                         struct hc_err *err)
{
    if (toml_type(table) != TOML_TABLE || toml_count(table) > PACKAGES_LIMIT)
        return language_fail_at(parser, toml_line(table), err,
                                "\"diagnosis.packages\" must be a table of at most %d names", PACKAGES_LIMIT);
    for (size_t i = 0; i < toml_count(table); i++) {
        const char *module = toml_key(table, i, NULL);
        const char *package = take_string(parser, toml_at(table, i), module, err);
        if (package == NULL)
            return -EINVAL;
        char *pair = NULL;
        int result = asprintf(&pair, "%s=%s", module, package) < 0 ? -ENOMEM : words_add(packages, pair);
        free(pair);
        if (result < 0)
            return language_fail_memory(err);
    }
    return 0;
}

static int take_from(const struct language_parser *parser, const struct toml_value *value, bool *from_start,
                     struct hc_err *err)
{
    const char *word = take_string(parser, value, "from", err);
    if (word == NULL)
        return -EINVAL;
    *from_start = strcmp(word, "start") == 0;
    if (*from_start || strcmp(word, "end") == 0)
        return 0;
    return language_fail_at(parser, toml_line(value), err, "\"from\" must be \"start\" or \"end\", not \"%.40s\"",
                            word);
}

static int take_diagnosis(const struct language_parser *parser, const struct toml_value *table,
                          struct language_diagnosis *diagnosis, struct hc_err *err)
{
    static const char *const names[] = {"from", "packages", "errors", "places", "causes"};
    int result = 0;
    for (size_t i = 0; i < toml_count(table) && result == 0; i++) {
        const char *name = toml_key(table, i, NULL);
        const struct toml_value *value = toml_at(table, i);
        size_t list = 0;
        while (list < LIST_COUNT && strcmp(LISTS[list].name, name) != 0)
            list++;
        if (list < LIST_COUNT)
            result = take_rules(parser, value, list, (struct rules *)((char *)diagnosis + LISTS[list].place), err);
        else if (strcmp(name, "packages") == 0)
            result = take_packages(parser, value, &diagnosis->packages, err);
        else if (strcmp(name, "from") == 0)
            result = take_from(parser, value, &diagnosis->from_start, err);
        else
            result = language_fail_key(parser, "diagnosis", name, toml_line(value), names, sizeof names / sizeof *names,
                                       err);
    }
    return result;
}

/* ---- the whole ---- */

int language_diagnosis(struct language *language, const struct language_diagnosis **out, struct hc_err *err)
{
    *out = language->diagnosis;
    if (language->diagnosis != NULL || language->text == NULL)
        return 0;
    struct language_parser parser = {.path = language->source, .language = language};
    HC_CLEANUP(toml_free_ptr) struct toml_value *root = NULL;
    int result = toml_parse(language->text, strlen(language->text), language->source, &root, err);
    const struct toml_value *table = result < 0 ? NULL : toml_get(root, "diagnosis");
    struct language_diagnosis *diagnosis = calloc(1, sizeof *diagnosis);
    if (diagnosis == NULL)
        return language_fail_memory(err);
    if (result == 0 && (table == NULL || toml_type(table) != TOML_TABLE))
        result = language_fail_at(&parser, 1, err, "\"diagnosis\" must be a table, [diagnosis]");
    if (result == 0)
        result = take_diagnosis(&parser, table, diagnosis, err);
    if (result < 0) {
        language_diagnosis_free(diagnosis);
        return result;
    }
    *out = language->diagnosis = diagnosis;
    return 0;
}

static void rules_free(struct rules *rules)
{
    for (size_t i = 0; i < rules->count; i++) {
        struct rule *rule = &rules->item[i];
        if (rule->compiled)
            regfree(&rule->regex);
        if (rule->above_compiled)
            regfree(&rule->above_regex);
        free(rule->pattern);
        free(rule->above);
        for (size_t k = 0; k < RULE_FIELDS; k++)
            free(rule->field[k]);
    }
    free(rules->item);
}

void language_diagnosis_free(struct language_diagnosis *diagnosis)
{
    if (diagnosis == NULL)
        return;
    rules_free(&diagnosis->errors);
    rules_free(&diagnosis->places);
    rules_free(&diagnosis->causes);
    words_release(&diagnosis->packages);
    free(diagnosis);
}

const char *language_package_of(const struct language_diagnosis *diagnosis, const char *module)
{
    size_t length = strlen(module);
    for (size_t i = 0; i < diagnosis->packages.count; i++)
        if (strncmp(diagnosis->packages.item[i], module, length) == 0 && diagnosis->packages.item[i][length] == '=')
            return diagnosis->packages.item[i] + length + 1;
    return NULL;
}
