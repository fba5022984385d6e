/*
 * What a language's file says about errors: the table [diagnosis], at its end (languages/README.md). It is read when it
 * is first needed, which for most runs is never.
 */
#ifndef HC_RUN_LANGUAGE_DIAGNOSIS_H
#define HC_RUN_LANGUAGE_DIAGNOSIS_H

#include "run/language.h"

/* What a rule makes of the groups of its pattern: templates with {1} to {9}, and {a1} to {a9} for those of `above`. */
enum rule_field {
    RULE_TYPE,
    RULE_MESSAGE,
    RULE_FILE,
    RULE_LINE,
    RULE_COLUMN,
    RULE_BEGINS, /* how the line begins, where that is all that is known of the place */
    RULE_MODULE,
    RULE_PATH,
    RULE_HOST,
    RULE_HINT,
    RULE_FIELDS,
};

enum rule_stage { RULE_ANY_STAGE, RULE_COMPILE, RULE_RUN };
enum { RULE_EXITS = 8, RULE_GROUPS = 10 };

struct rule {
    char *pattern, *above; /* above: of the line before; NULL: any */
    regex_t regex, above_regex;
    bool compiled, above_compiled;
    enum rule_stage stage;
    bool below;     /* of a place: it is looked for below the error, not above it */
    bool last;      /* of an error: nothing may follow it but empty lines */
    bool continues; /* of an error: its message is on the next line, where there is none on this */
    bool anywhere;  /* of a cause: looked for in all lines, not only in the error's */
    bool denied;    /* of a cause: the kernel refused a system call */
    const char *category;
    int limit; /* of a cause: the one to raise, or -1 */
    int signal;
    int exits[RULE_EXITS];
    size_t exit_count; /* 0: any but 0 */
    char *field[RULE_FIELDS];
};

struct rules {
    struct rule *item;
    size_t count;
};

struct language_diagnosis {
    struct rules errors, places, causes;
    bool from_start;       /* of a run's errors, the first counts; else the last. A compiler's first always does */
    struct words packages; /* "module=package" */
};

/* Reads it, once. *out is NULL where the language has none. -errno: a fault in the file, with file and line. */
int language_diagnosis(struct language *language, const struct language_diagnosis **out, struct hc_err *err);
void language_diagnosis_free(struct language_diagnosis *diagnosis);
/* The Debian package that has a module; NULL: not known. */
const char *language_package_of(const struct language_diagnosis *diagnosis, const char *module);

#endif
