/*
 * The option parser. It reads words and says what they mean by the table; it changes nothing else, so a command line
 * can be read twice: once to find what is wrong with it, once to act on it.
 */
#include "cli/options.h"

#include "base/suggest.h"
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

enum { MAX_NAMES = 64 };

void options_start(struct options *options, const struct option *table, int argc, char **argv)
{
    *options = (struct options){.table = table, .argv = argv, .argc = argc, .next = 1};
}

static const struct option *find_name(const struct option *table, const char *name, size_t length)
{
    for (; table->id != OPTION_END; table++)
        if (table->name && strncmp(table->name, name, length) == 0 && table->name[length] == '\0')
            return table;
    return NULL;
}

static const struct option *find_letter(const struct option *table, char letter)
{
    for (; table->id != OPTION_END; table++)
        if (table->letter && table->letter == letter)
            return table;
    return NULL;
}

static int unknown_name(const struct option *table, const char *name, size_t length, struct hc_err *err)
{
    const char *names[MAX_NAMES];
    size_t count = 0;
    char word[64];

    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "unknown option --%.*s", (int)length, name);
    if (length >= sizeof word)
        return -EINVAL;
    memcpy(word, name, length);
    word[length] = '\0';
    for (; table->id != OPTION_END && count < MAX_NAMES; table++)
        if (table->name)
            names[count++] = table->name;
    const char *nearest = hc_suggest(word, names, count);
    if (nearest)
        hc_err_remedy(err, "did you mean --%s?", nearest);
    else
        hc_err_remedy(err, "--help lists the options");
    return -EINVAL;
}

static int missing_value(const struct option *option, struct hc_err *err)
{
    if (option->name)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "--%s needs a value: --%s %s", option->name, option->name,
                       option->argument);
    return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "-%c needs a value: -%c %s", option->letter, option->letter,
                   option->argument);
}

static int next_long(struct options *options, const char *word, const struct option **option, const char **value,
                     struct hc_err *err)
{
    size_t length = strcspn(word, "=");
    const char *given = word[length] == '=' ? word + length + 1 : NULL;
    const struct option *found = find_name(options->table, word, length);

    if (!found)
        return unknown_name(options->table, word, length, err);
    if (given && !found->argument)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "--%s takes no value", found->name);
    if (!given && found->argument && !found->optional) {
        if (options->next >= options->argc)
            return missing_value(found, err);
        given = options->argv[options->next++];
    }
    *option = found;
    *value = given;
    return 1;
}

static int next_letter(struct options *options, const struct option **option, const char **value, struct hc_err *err)
{
    char letter = *options->letters++;
    const struct option *found = find_letter(options->table, letter);

    if (!found) {
        /* `-memory` is meant as `--memory` far more often than as six letters. */
        const char *word = options->letters - 1;
        size_t length = strcspn(word, "=");
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "unknown option -%c", letter);
        if (length > 1 && find_name(options->table, word, length))
            hc_err_remedy(err, "did you mean --%.*s?", (int)length, word);
        else
            hc_err_remedy(err, "--help lists the options");
        return -EINVAL;
    }
    *value = NULL;
    if (found->argument && !found->optional) {
        if (*options->letters)
            *value = options->letters;
        else if (options->next < options->argc)
            *value = options->argv[options->next++];
        else
            return missing_value(found, err);
        options->letters = NULL;
    } else if (!*options->letters) {
        options->letters = NULL;
    }
    *option = found;
    return 1;
}

int options_next(struct options *options, const struct option **option, const char **value, struct hc_err *err)
{
    if (options->letters)
        return next_letter(options, option, value, err);
    if (options->dashes || options->next >= options->argc)
        return 0;

    const char *word = options->argv[options->next];
    if (word[0] != '-' || word[1] == '\0')
        return 0;
    options->next++;
    if (strcmp(word, "--") == 0) {
        options->dashes = true;
        return 0;
    }
    if (word[1] == '-')
        return next_long(options, word + 2, option, value, err);
    options->letters = word + 1;
    return next_letter(options, option, value, err);
}

bool options_want_json(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--json") == 0)
            return true;
    return false;
}

int option_boolean(const char *name, const char *text, struct hc_err *err)
{
    static const char *const words[][2] = {{"false", "true"}, {"no", "yes"}, {"off", "on"}, {"0", "1"}};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (int truth = 0; truth < 2; truth++)
            if (strcasecmp(text, words[i][truth]) == 0)
                return truth;
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "--%s is true or false, not \"%s\"", name, text);
    return -EINVAL;
}
