/*
 * The languages of this installation: which folders hold them, and how one is found by name, alias or file. A name
 * beats an alias, an earlier folder beats a later one. The file of a language has its name (language_parse.c insists),
 * so asking for a language by name opens one file. For an alias or an extension those files are read in which it stands
 * somewhere, for to parse them all takes longer than to start a program; only a mistake reads them all.
 */
#include "run/language.h"

#include "base/fd.h"
#include "base/suggest.h"
#include "run/locate.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef HC_DATADIR
#define HC_DATADIR "/usr/local/share/hotcell"
#endif

enum { NAME_SIZE = 64, LANGUAGE_LIMIT = 1024, LIST_LIMIT = 256, MENTION_LIMIT = 32 * 1024 };

struct entry {
    struct language *language;
    size_t rank; /* order of reading: the lower one wins where two claim an alias or an extension */
};

struct languages {
    struct entry *item;
    size_t count;
    struct words passed; /* files that were passed over: one of that name in a later folder does not count */
};

static int fail_memory(struct hc_err *err)
{
    hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory while reading languages");
    return -ENOMEM;
}

/* ---- folders ---- */

static bool is_folder(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static int add_folder(struct words *folders, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Adds it if it is there. 1: added, 0: not there, or -ENOMEM. */
static int add_folder(struct words *folders, const char *format, ...)
{
    hc_cleanup_free char *path = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&path, format, arguments);
    va_end(arguments);
    if (length < 0) {
        path = NULL;
        return -ENOMEM;
    }
    if (!is_folder(path))
        return 0;
    return words_add(folders, path) < 0 ? -ENOMEM : 1;
}

static int add_built_in(struct words *folders)
{
    const char *named = getenv("HOTCELL_LANGUAGES");
    if (named != NULL && named[0] != '\0')
        return add_folder(folders, "%s", named);
    char own[PATH_MAX];
    if (locate_own_folder(own, sizeof own) == 0) {
        /* The build tree; a program copied together with its languages; an installation that was moved. */
        static const char *const places[] = {"../languages", "languages", "../share/hotcell/languages",
                                             "../../share/hotcell/languages"}; /* from libexec/hotcell */
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            int result = add_folder(folders, "%s/%s", own, places[i]);
            if (result != 0)
                return result;
        }
    }
    return add_folder(folders, "%s", HC_DATADIR "/languages");
}

static int add_users(struct words *folders)
{
    const char *config = getenv("XDG_CONFIG_HOME");
    if (config != NULL && config[0] == '/')
        return add_folder(folders, "%s/hotcell/languages", config);
    const char *home = getenv("HOME");
    return home != NULL && home[0] == '/' ? add_folder(folders, "%s/.config/hotcell/languages", home) : 0;
}

/* A folder that the configuration names must exist: a silent typo there would look like a missing language. */
int language_folders(const struct config *config, struct words *folders, struct hc_err *err)
{
    for (size_t i = 0; config != NULL && i < config->language_paths.count; i++) {
        const char *path = config->language_paths.item[i];
        int result = add_folder(folders, "%s", path);
        if (result < 0)
            return fail_memory(err);
        if (result == 0) {
            hc_fail(err, HC_CLASS_REQUEST, ENOENT, "the folder of languages %s does not exist", path);
            return hc_err_field(err, "languages.paths"), -ENOENT;
        }
    }
    if (add_users(folders) < 0 || add_folder(folders, "/etc/hotcell/languages") < 0)
        return fail_memory(err);
    int result = add_built_in(folders);
    if (result < 0)
        return fail_memory(err);
    if (result == 0) {
        hc_fail(err, HC_CLASS_HOST, ENOENT, "hotcell's own languages are not installed: %s does not exist",
                getenv("HOTCELL_LANGUAGES") != NULL ? getenv("HOTCELL_LANGUAGES") : HC_DATADIR "/languages");
        return hc_err_remedy(err, "install hotcell again, or set HOTCELL_LANGUAGES to the folder"), -ENOENT;
    }
    return 0;
}

/* ---- all of them ---- */

static const struct language *find_name(const struct languages *languages, const char *name)
{
    for (size_t i = 0; i < languages->count; i++)
        if (strcmp(languages->item[i].language->name, name) == 0)
            return languages->item[i].language;
    return NULL;
}

/* Takes the language in any case; one whose name is there already is dropped. */
static int add_language(struct languages *languages, struct language *language, struct hc_err *err)
{
    if (find_name(languages, language->name) != NULL) {
        language_free(language);
        return 0;
    }
    struct entry *item =
        languages->count == LANGUAGE_LIMIT ? NULL : reallocarray(languages->item, languages->count + 1, sizeof *item);
    if (item == NULL) {
        language_free(language);
        if (languages->count < LANGUAGE_LIMIT)
            return fail_memory(err);
        hc_fail(err, HC_CLASS_REQUEST, E2BIG, "there are more than %d languages", LANGUAGE_LIMIT);
        return -E2BIG;
    }
    languages->item = item;
    item[languages->count] = (struct entry){.language = language, .rank = languages->count};
    languages->count++;
    return 0;
}

/* Whether the word stands in the file, in whatever case. One that cannot be read is left to language_read to tell. */
static bool mentions(const char *path, const char *word)
{
    char text[MENTION_LIMIT];
    ssize_t length = hc_read_file_at(AT_FDCWD, path, text, sizeof text);
    return length < 0 || strcasestr(text, word) != NULL;
}

static bool has_word(const struct words *words, const char *text, bool fold)
{
    for (size_t i = 0; i < words->count; i++)
        if ((fold ? strcasecmp : strcmp)(words->item[i], text) == 0)
            return true;
    return false;
}

static int load_file(struct languages *languages, const char *folder, const char *name, const char *word,
                     struct hc_err *err)
{
    hc_cleanup_free char *path = NULL;
    if (asprintf(&path, "%s/%s", folder, name) < 0) {
        path = NULL;
        return fail_memory(err);
    }
    if (word != NULL && has_word(&languages->passed, name, false))
        return 0;
    if (word != NULL && !mentions(path, word))
        return words_add(&languages->passed, name) < 0 ? fail_memory(err) : 0;
    struct language *language = NULL;
    int result = language_read(path, &language, err);
    return result < 0 ? result : add_language(languages, language, err);
}

static int is_language_file(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return entry->d_name[0] != '.' && dot != NULL && strcmp(dot, ".toml") == 0;
}

static int load_folder(struct languages *languages, const char *folder, const char *word, struct hc_err *err)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, is_language_file, alphasort);
    if (count < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "cannot list the languages in %s", folder);
    int result = 0;
    for (int i = 0; i < count; i++) {
        if (result == 0)
            result = load_file(languages, folder, entries[i]->d_name, word, err);
        free(entries[i]);
    }
    free(entries);
    return result;
}

static int by_name(const void *left, const void *right)
{
    return strcmp(((const struct entry *)left)->language->name, ((const struct entry *)right)->language->name);
}

/* All, or those whose files have `word` in them. */
static int load(const struct words *folders, const char *word, struct languages **out, struct hc_err *err)
{
    struct languages *languages = calloc(1, sizeof *languages);
    if (languages == NULL)
        return fail_memory(err);
    for (size_t i = 0; i < folders->count; i++) {
        int result = load_folder(languages, folders->item[i], word, err);
        if (result < 0) {
            languages_free(languages);
            return result;
        }
    }
    if (languages->count > 0)
        qsort(languages->item, languages->count, sizeof *languages->item, by_name);
    *out = languages;
    return 0;
}

int languages_load(const struct config *config, struct languages **out, struct hc_err *err)
{
    HC_CLEANUP(words_release) struct words folders = {0};
    int result = language_folders(config, &folders, err);
    return result < 0 ? result : load(&folders, NULL, out, err);
}

void languages_free(struct languages *languages)
{
    if (languages == NULL)
        return;
    for (size_t i = 0; i < languages->count; i++)
        language_free(languages->item[i].language);
    free(languages->item);
    words_release(&languages->passed);
    free(languages);
}

size_t languages_count(const struct languages *languages)
{
    return languages->count;
}

const struct language *languages_at(const struct languages *languages, size_t index)
{
    return languages->item[index].language;
}

/* ---- one of them ---- */

/* "  Python3 " → "python3". false: no language can have this name. */
static bool normalise(const char *name, char *text, size_t size)
{
    while (isspace((unsigned char)*name))
        name++;
    size_t length = strlen(name);
    while (length > 0 && isspace((unsigned char)name[length - 1]))
        length--;
    if (length == 0 || length >= size)
        return false;
    for (size_t i = 0; i < length; i++)
        text[i] = (char)tolower((unsigned char)name[i]);
    text[length] = '\0';
    return true;
}

/* The first in order of reading that claims `text` as an alias or, `fold` apart, as an extension. */
static struct entry *find_claim(const struct languages *languages, bool extension, const char *text, bool fold)
{
    struct entry *best = NULL;
    for (size_t i = 0; i < languages->count; i++) {
        struct entry *entry = &languages->item[i];
        const struct words *words = extension ? &entry->language->extensions : &entry->language->aliases;
        if (has_word(words, text, fold) && (best == NULL || entry->rank < best->rank))
            best = entry;
    }
    return best;
}

/* Case matters first (.C is C++), then it does not (MAIN.PY). */
static struct entry *claim_extension(const struct languages *languages, const char *extension)
{
    struct entry *entry = find_claim(languages, true, extension, false);
    return entry != NULL ? entry : find_claim(languages, true, extension, true);
}

/* It gets one more user. */
static struct language *use(struct entry *entry)
{
    entry->language->users++;
    return entry->language;
}

static const char *list_names(const struct languages *languages, char *text, size_t size)
{
    size_t length = 0;
    text[0] = '\0';
    for (size_t i = 0; i < languages->count; i++) {
        const char *name = languages->item[i].language->name;
        if (length + strlen(name) + sizeof ", …" >= size) {
            snprintf(text + length, size - length, ", …");
            break;
        }
        length += (size_t)snprintf(text + length, size - length, "%s%s", i > 0 ? ", " : "", name);
    }
    return text;
}

static int fail_unknown(const struct languages *languages, const char *name, struct hc_err *err)
{
    char list[LIST_LIMIT];
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "there is no language \"%.64s\"; there are %s", name,
            list_names(languages, list, sizeof list));
    hc_err_field(err, "language");
    size_t count = 0, limit = 0;
    for (size_t i = 0; i < languages->count; i++)
        limit += 1 + languages->item[i].language->aliases.count;
    hc_cleanup_free const char **words = calloc(limit + 1, sizeof *words);
    for (size_t i = 0; words != NULL && i < languages->count; i++) {
        const struct language *language = languages->item[i].language;
        words[count++] = language->name;
        for (size_t j = 0; j < language->aliases.count; j++)
            words[count++] = language->aliases.item[j];
    }
    const char *near = words != NULL ? hc_suggest(name, words, count) : NULL;
    if (near != NULL)
        hc_err_remedy(err, "did you mean \"%s\"?", near);
    return -EINVAL;
}

/* 1: found, 0: no file of that name, or negative. */
static int find_direct(const struct words *folders, const char *name, struct language **out, struct hc_err *err)
{
    if (strchr(name, '/') != NULL || name[0] == '.')
        return 0;
    for (size_t i = 0; i < folders->count; i++) {
        char path[PATH_MAX];
        if ((size_t)snprintf(path, sizeof path, "%s/%s.toml", folders->item[i], name) >= sizeof path ||
            access(path, F_OK) < 0)
            continue;
        int result = language_read(path, out, err);
        return result < 0 ? result : 1;
    }
    return 0;
}

/* What claims `text` among those whose files have `word` in them, or, NULL, among all. 1: found, 0: there is none, and
 * *left, if it is asked for, has them all; or negative. */
static int find_claimed(const struct words *folders, const char *word, bool extension, const char *text,
                        struct language **out, struct languages **left, struct hc_err *err)
{
    struct languages *languages = NULL;
    int result = load(folders, word, &languages, err);
    if (result < 0)
        return result;
    struct entry *entry = text == NULL ? NULL
                          : extension  ? claim_extension(languages, text)
                                       : find_claim(languages, false, text, false);
    if (entry != NULL)
        *out = use(entry);
    else if (left != NULL)
        *left = HC_TAKE_PTR(languages);
    languages_free(languages);
    return entry != NULL;
}

/* `name` is NULL where no language can have the name asked for. */
static int find_alias(const struct words *folders, const char *name, const char *asked, struct language **out,
                      struct hc_err *err)
{
    struct languages *all = NULL;
    int result = name != NULL ? find_claimed(folders, name, false, name, out, NULL, err) : 0;
    if (result == 0)
        result = find_claimed(folders, NULL, false, name, out, &all, err);
    if (result == 0)
        result = fail_unknown(all, asked, err);
    languages_free(all);
    return result < 0 ? result : 0;
}

/* One of those that were read beforehand. */
static int find_kept(const struct languages *languages, const char *name, struct language **out, struct hc_err *err)
{
    char wanted[NAME_SIZE];
    struct entry *found = NULL;
    bool possible = normalise(name, wanted, sizeof wanted);
    for (size_t i = 0; possible && found == NULL && i < languages->count; i++)
        if (strcmp(languages->item[i].language->name, wanted) == 0)
            found = &languages->item[i];
    if (possible && found == NULL)
        found = find_claim(languages, false, wanted, false);
    if (found == NULL)
        return fail_unknown(languages, name, err);
    *out = use(found);
    return 0;
}

int languages_find(const struct config *config, const char *name, struct language **out, struct hc_err *err)
{
    if (config != NULL && config->languages != NULL)
        return find_kept(config->languages, name, out, err);
    HC_CLEANUP(words_release) struct words folders = {0};
    int result = language_folders(config, &folders, err);
    if (result < 0)
        return result;
    char wanted[NAME_SIZE];
    if (!normalise(name, wanted, sizeof wanted))
        return find_alias(&folders, NULL, name, out, err);
    result = find_direct(&folders, wanted, out, err);
    if (result != 0)
        return result < 0 ? result : 0;
    return find_alias(&folders, wanted, name, out, err);
}

int languages_find_by_file(const struct config *config, const char *file_name, struct language **out,
                           struct hc_err *err)
{
    const char *base = strrchr(file_name, '/') != NULL ? strrchr(file_name, '/') + 1 : file_name;
    const char *dot = strrchr(base, '.');
    const struct languages *kept = config != NULL ? config->languages : NULL;
    HC_CLEANUP(words_release) struct words folders = {0};
    int result = 0;
    if (kept != NULL) {
        struct entry *entry = dot != NULL ? claim_extension(kept, dot) : NULL;
        result = entry != NULL;
        *out = entry != NULL ? use(entry) : *out;
    } else if (dot != NULL) {
        result = language_folders(config, &folders, err);
        if (result == 0)
            result = find_claimed(&folders, dot, true, dot, out, NULL, err);
        if (result == 0)
            result = find_claimed(&folders, NULL, true, dot, out, NULL, err);
    }
    if (result != 0)
        return result < 0 ? result : 0;
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "no language is known for the file \"%.128s\"", base);
    hc_err_field(err, "language");
    hc_err_remedy(err, "name the language, as in --language python");
    return -EINVAL;
}

void languages_look(struct languages *languages)
{
    for (size_t i = 0; i < languages->count; i++) {
        struct language *language = languages->item[i].language;
        const char *missing = NULL;
        language->looked = false;
        language->missing = language_available(language, &missing) ? NULL : missing;
        language->looked = true;
    }
}

bool language_available(const struct language *language, const char **missing)
{
    if (language->looked) {
        if (missing != NULL && language->missing != NULL)
            *missing = language->missing;
        return language->missing == NULL;
    }
    for (size_t i = 0; i < language->needs.count; i++) {
        if (access(language->needs.item[i], R_OK) == 0 || access(language->needs.item[i], X_OK) == 0)
            continue;
        if (missing != NULL)
            *missing = language->needs.item[i];
        return false;
    }
    return true;
}
