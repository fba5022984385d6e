/*
 * A folder for each test, with a user's configuration and a cache inside it, and a language to put there. cmocka wants
 * the standard headers before its own, so this brings them all.
 */
#ifndef HC_TESTS_LANGUAGE_FOLDER_H
#define HC_TESTS_LANGUAGE_FOLDER_H

#include "run/language.h"

#include "base/fd.h"
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- a folder for each test ---- */

struct folder {
    char path[64];
};

static inline char *in(const struct folder *folder, const char *name)
{
    char *path;
    assert_true(asprintf(&path, "%s/%s", folder->path, name) > 0);
    return path;
}

static inline void write_mode(const struct folder *folder, const char *name, const char *text, mode_t mode)
{
    hc_cleanup_free char *path = in(folder, name);
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
        *slash = '/';
    }
    hc_cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    assert_true(fd >= 0);
    assert_int_equal(hc_write_all(fd, text, strlen(text)), 0);
}

static inline void write_file(const struct folder *folder, const char *name, const char *text)
{
    write_mode(folder, name, text, 0644);
}

static inline int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)status, (void)kind, (void)place;
    return remove(path);
}

static inline int set_up(void **state)
{
    struct folder *folder = calloc(1, sizeof *folder);
    snprintf(folder->path, sizeof folder->path, "/tmp/hotcell-language-XXXXXX");
    if (mkdtemp(folder->path) == NULL)
        return -1;
    hc_cleanup_free char *config = in(folder, "config");
    hc_cleanup_free char *cache = in(folder, "cache");
    hc_cleanup_free char *languages = NULL;
    const char *source = getenv("HOTCELL_SOURCE");
    if (asprintf(&languages, "%s/languages", source != NULL ? source : ".") < 0)
        return -1;
    setenv("XDG_CONFIG_HOME", config, 1);
    setenv("XDG_CACHE_HOME", cache, 1);
    setenv("HOTCELL_LANGUAGES", languages, 1);
    *state = folder;
    return 0;
}

static inline int tear_down(void **state)
{
    struct folder *folder = *state;
    int result = nftw(folder->path, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    free(folder);
    return result;
}

/* ---- the language of the tests ---- */

#define TOY                                                                                                            \
    "name = \"toy\"\n"                                                                                                 \
    "title = \"Toy\"\n"                                                                                                \
    "aliases = [\"plaything\"]\n"                                                                                      \
    "extensions = [\".toy\"]\n"                                                                                        \
    "file = \"main.toy\"\n"                                                                                            \
    "package = \"toybox\"\n"                                                                                           \
    "needs = [\"/bin/sh\"]\n"
#define TOY_RUN "[run]\ncommand = [\"/bin/sh\", \"{entry}\"]\n"
#define USER_FOLDER "config/hotcell/languages/"
#define FIND_TOY "--find-toy" /* what the copy of this program is asked for */

static inline struct language *read_toy(const struct folder *folder, const char *text)
{
    write_file(folder, "toy.toml", text);
    hc_cleanup_free char *path = in(folder, "toy.toml");
    struct language *language = NULL;
    struct hc_err err = {0};
    if (language_read(path, &language, &err) < 0)
        fail_msg("%s", err.message);
    return language;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
