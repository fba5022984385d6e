/*
 * Warm starts, as a language's file describes them ([warm], languages/README.md): what the keeper tells the warden to
 * start ahead, and which of it a planned stage may ask for. Keeper and gateway read the same files and derive the same
 * ids; where they differ, an id is unknown to the warden, and the program starts cold.
 */
#ifndef HC_RUN_WARM_H
#define HC_RUN_WARM_H

#include "run/config.h"
#include "run/language.h"
#include "run/plan.h"
#include "warden/proto.h"

/* Where the drivers and the library are, in the warden's root: WARM_FOLDER "/python/…", WARM_LIBRARY. */
#define WARM_FOLDER LANGUAGE_DRIVERS
#define WARM_LIBRARY WARM_FOLDER "/hotcell-warm.so"

/* One thing to be started ahead. */
struct warm_definition {
    struct warm_spec spec;
    struct words argv[WARM_MAX_STAGES], env[WARM_MAX_STAGES]; /* as it is exec'ed, LD_PRELOAD and all */
    char cwd[sizeof((struct cell_spec *)0)->work_dir];
    char name[80]; /* "python", "python/data": for people */
    /* What it was made from. */
    const struct language *language;
    const struct language_set *set; /* or NULL */
    char work_dir[sizeof((struct cell_spec *)0)->work_dir];
    struct limits run, compile;
};

struct warm_definitions {
    struct warm_definition *item;
    size_t count;
};

/* All of them, of the languages that are installed. */
int warm_definitions_make(const struct config *config, const struct languages *languages, struct warm_definitions *out,
                          struct hc_err *err);
void warm_definitions_release(struct warm_definitions *definitions);
/* That languages.default and the names of warm.start are those of languages, and of sets of modules, that there are. */
int warm_check_names(const struct config *config, struct hc_err *err);
/* How programs of a language start under this configuration: "warm", "primed" or "cold". */
const char *warm_word(const struct config *config, const struct language *language);
/* Fills in stage->warm and plan->warm of a plan that is otherwise complete; leaves 0 where a program must start cold:
 * everywhere, if config->definitions is NULL. */
void warm_choose(const struct config *config, struct plan *plan);
/* What a context can be forked from: the zygote of the set `preload` (NULL: the one that the language's [context]
 * names), for variables `env` of its own. *id is 0 where it starts cold. -EINVAL: there is no such set. */
int warm_choose_context(const struct config *config, const struct language *language, const char *preload,
                        const struct words *env, uint64_t *id, struct hc_err *err);

#endif
