/* Shared by the files that read a language: what a key takes, and how it is taken. */
#ifndef HC_RUN_LANGUAGE_INTERNAL_H
#define HC_RUN_LANGUAGE_INTERNAL_H

#include "run/language.h"
#include "text/toml.h"

struct language_parser {
    const char *path; /* for messages */
    struct language *language;
};

/* What a key's value must look like; `field` of struct language is where it goes. */
enum key_kind {
    KEY_TEXT,
    KEY_NAME,
    KEY_FILE,
    KEY_VERSION_PATTERN,
    KEY_IMPORT_PATTERN,
    KEY_WARMTH,
    KEY_WORDS, /* lists of strings from here */
    KEY_NAMES,
    KEY_EXTENSIONS,
    KEY_PATHS,
    KEY_LOOKUPS,
    KEY_MODULES,
    KEY_VARIABLES,
    KEY_COMMAND,
    KEY_WARM_COMMAND,
    KEY_ENV, /* tables from here */
    KEY_WARM_ENV,
    KEY_SETS
};

struct key {
    const char *name;
    enum key_kind kind;
    size_t field;
    bool required;
};

int language_fail_at(const struct language_parser *parser, int line, struct hc_err *err, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
int language_fail_memory(struct hc_err *err);
/* An unknown key; `section` may be NULL. */
int language_fail_key(const struct language_parser *parser, const char *section, const char *key, int line,
                      const char *const *candidates, size_t count, struct hc_err *err);
int language_take_key(const struct language_parser *parser, const struct toml_value *value, const struct key *key,
                      struct hc_err *err);
/* A limit of the compile stage, as a request would say it: "1g", 10, 0.5. */
int language_take_limit(const struct language_parser *parser, const struct toml_value *value, int id,
                        struct hc_err *err);

#endif
