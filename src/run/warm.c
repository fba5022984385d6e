/*
 * See warm.h. What always holds: an id is made from the very words that are exec'ed, so that two definitions with one
 * id are the same thing; a request gets an id only if what it would have had started ahead, with its own limits, is one
 * of the definitions. The code of a request is looked at for the names of modules, and for nothing else.
 */
#include "run/warm.h"

#include "base/fd.h"
#include "run/plan_internal.h"
#include "run/policy.h"
#include "run/warm_set.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODE_SETTING "HOTCELL_WARM=" /* cell/warm.h */
#define PRELOAD_SETTING "HOTCELL_PRELOAD="
#define WARM_USUAL_DIR "/workspace"

/* ---- what is started ahead ---- */

/* FNV-1a, over words with their NULs. It tells a few dozen trusted definitions apart; it keeps no secret. */
static uint64_t hash_words(uint64_t hash, const struct words *words)
{
    for (size_t i = 0; i < words->count; i++)
        for (const char *at = words->item[i];; at++) {
            hash = (hash ^ (unsigned char)*at) * 0x100000001b3u;
            if (!*at)
                break;
        }
    return (hash ^ 0xff) * 0x100000001b3u; /* no word has this byte at its end */
}

static uint64_t definition_id(const struct warm_definition *definition)
{
    uint64_t hash = 0xcbf29ce484222325u ^ definition->spec.kind;
    for (uint32_t i = 0; i < definition->spec.stages; i++) {
        hash = hash_words(hash, &definition->argv[i]);
        hash = hash_words(hash, &definition->env[i]);
    }
    return hash ? hash : 1;
}

static int add_preload(struct words *env, const struct language_set *set)
{
    if (!set)
        return 0;
    size_t size = sizeof PRELOAD_SETTING, length = sizeof PRELOAD_SETTING - 1;
    for (size_t i = 0; i < set->modules.count; i++)
        size += strlen(set->modules.item[i]) + 1;
    hc_cleanup_free char *text = malloc(size);
    if (!text)
        return -ENOMEM;
    memcpy(text, PRELOAD_SETTING, sizeof PRELOAD_SETTING);
    for (size_t i = 0; i < set->modules.count; i++)
        length += (size_t)snprintf(text + length, size - length, "%s%s", i ? " " : "", set->modules.item[i]);
    return plan_set_env(env, text);
}

/* One program of it: as its driver finds itself, when there is nothing to run yet. */
static int define_program(const struct language *language, const struct language_stage *stage, const char *work_dir,
                          const struct limits *limits, const struct language_set *set, struct words *argv,
                          struct words *env, struct hc_err *err)
{
    struct words own HC_CLEANUP(words_release) = {0};
    bool zygote = language->warm.kind == LANGUAGE_ZYGOTE;
    int result = language_expand_warm(language, &stage->command, work_dir, limits, argv, err);
    if (result == 0)
        result = language_expand_warm(language, &language->warm.env, work_dir, limits, &own, err);
    if (result < 0)
        return result;
    result = plan_base_env(work_dir, language, env);
    if (result == 0) /* what stands before it is what a program gets */
        result = plan_set_env(env, zygote ? MODE_SETTING "zygote" : MODE_SETTING "primed");
    for (size_t i = 0; i < own.count && result == 0; i++)
        result = plan_set_env(env, own.item[i]);
    if (result == 0)
        result = plan_set_env(env, "LD_PRELOAD=" WARM_LIBRARY);
    if (result == 0)
        result = add_preload(env, set);
    return result < 0 ? plan_no_memory(err) : 0;
}

static void definition_release(struct warm_definition *definition)
{
    for (size_t i = 0; i < WARM_MAX_STAGES; i++) {
        words_release(&definition->argv[i]);
        words_release(&definition->env[i]);
    }
}

/* A primed cell has a program for the compile stage, if there is one, and then one for the run. */
static int define_one(const struct language *language, const char *work_dir, const struct limits *run,
                      const struct limits *compile, const struct language_set *set, struct warm_definition *out,
                      struct hc_err *err)
{
    struct warm_definition made = {.spec.kind = language->warm.kind == LANGUAGE_ZYGOTE ? WARM_ZYGOTE : WARM_PRIMED};
    int result = 0;
    if (language->warm.compile.present) {
        result =
            define_program(language, &language->warm.compile, work_dir, compile, set, &made.argv[0], &made.env[0], err);
        made.spec.stages++;
    }
    if (result == 0) {
        uint32_t last = made.spec.stages++;
        result =
            define_program(language, &language->warm.run, work_dir, run, set, &made.argv[last], &made.env[last], err);
    }
    if (result < 0) {
        definition_release(&made);
        return result;
    }
    made.spec.id = definition_id(&made);
    /* The warden's root, in which a zygote waits, has no other working directory than the usual one. */
    bool there = made.spec.kind == WARM_PRIMED || strcmp(work_dir, WARM_USUAL_DIR) == 0;
    snprintf(made.cwd, sizeof made.cwd, "%s", there ? work_dir : "/");
    snprintf(made.name, sizeof made.name, "%s%s%s", language->name, set ? "/" : "", set ? set->name : "");
    made.language = language;
    made.set = set;
    snprintf(made.work_dir, sizeof made.work_dir, "%s", work_dir);
    made.run = *run;
    made.compile = *compile;
    *out = made;
    return 0;
}

/* While it waits it may be as large as either stage, for as long as the warden wants it. */
static void waiting_limits(const struct limits *run, const struct limits *compile, struct job_limits *out)
{
    struct job_limits other;
    plan_job_limits(run, out);
    plan_job_limits(compile, &other);
    if (other.memory > out->memory)
        out->memory = other.memory;
    if (other.pids > out->pids)
        out->pids = other.pids;
    if (other.file_size > out->file_size)
        out->file_size = other.file_size;
    if (other.files_open > out->files_open)
        out->files_open = other.files_open;
    out->wall = out->cpu_time = 0;
}

static bool is_called(const struct language *language, const char *name, size_t length)
{
    bool found = strlen(language->name) == length && strncasecmp(language->name, name, length) == 0;
    for (size_t i = 0; i < language->aliases.count && !found; i++) {
        const char *alias = language->aliases.item[i];
        found = strlen(alias) == length && strncasecmp(alias, name, length) == 0;
    }
    return found;
}

/* "python" is the language without any set, "python/data" that set, "python/" + '*' all of them. */
static bool starts_at_once(const struct config *config, const struct language *language, const struct language_set *set)
{
    for (size_t i = 0; i < config->warm.start.count; i++) {
        const char *name = config->warm.start.item[i];
        size_t length = strcspn(name, "/");
        const char *rest = name[length] ? name + length + 1 : NULL;
        if (is_called(language, name, length) &&
            (rest ? strcmp(rest, "*") == 0 || (set && strcmp(rest, set->name) == 0) : !set))
            return true;
    }
    return false;
}

/* One name of warm.start: "python", "python/data" or "python/" + '*'. */
static int check_start(const struct config *config, const char *name, struct hc_err *err)
{
    size_t length = strcspn(name, "/");
    const char *set = name[length] ? name + length + 1 : "*";
    hc_cleanup_free char *word = strndup(name, length);
    struct language *language;
    if (!word)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    int result = languages_find(config, word, &language, err);
    if (result < 0)
        return result;
    bool known = strcmp(set, "*") == 0;
    for (size_t i = 0; i < language->warm.set_count && !known; i++)
        known = strcmp(language->warm.sets[i].name, set) == 0;
    if (language->warm.kind == LANGUAGE_COLD)
        result = hc_fail(err, HC_CLASS_REQUEST, EINVAL, "programs in %s always start cold: nothing can wait for them",
                         language->name);
    else if (!known)
        result = hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s has no set of modules \"%.64s\"", language->name, set);
    language_free(language);
    return result;
}

int warm_check_names(const struct config *config, struct hc_err *err)
{
    struct language *language;
    int result = languages_find(config, config->default_language, &language, err);
    if (result < 0) {
        hc_err_field(err, "languages.default");
        return result;
    }
    language_free(language);
    for (size_t i = 0; i < config->warm.start.count; i++) {
        result = check_start(config, config->warm.start.item[i], err);
        if (result < 0) {
            hc_err_field(err, "warm.start");
            return result;
        }
    }
    return 0;
}

struct defaults {
    char work_dir[sizeof((struct cell_spec *)0)->work_dir];
    struct limits run, compile;
};

static int defaults_of(const struct config *config, const struct language *language, struct defaults *out,
                       struct hc_err *err)
{
    static const struct limits none;
    int result = policy_check_target(config->work_dir, out->work_dir, sizeof out->work_dir, err);
    if (result == 0)
        result = limits_resolve(&none, &config->defaults, &config->ceilings, &out->run, err);
    if (result == 0)
        out->compile = plan_compile_limits(config, &out->run, &language->compile.limits);
    return result;
}

static int define_language(const struct config *config, const struct language *language,
                           struct warm_definitions *definitions, struct hc_err *err)
{
    struct defaults defaults;
    int result = defaults_of(config, language, &defaults, err);
    for (size_t i = 0; i <= language->warm.set_count && result == 0; i++) {
        struct warm_definition *item = reallocarray(definitions->item, definitions->count + 1, sizeof *item);
        if (!item)
            return plan_no_memory(err);
        definitions->item = item;
        item += definitions->count;
        const struct language_set *set = i ? &language->warm.sets[i - 1] : NULL;
        result = define_one(language, defaults.work_dir, &defaults.run, &defaults.compile, set, item, err);
        if (result < 0)
            return result;
        definitions->count++;
        item->spec.eager = starts_at_once(config, language, set);
        bool zygote =
            language->warm.kind == LANGUAGE_ZYGOTE; /* whose children are as cheap as the cells they wait in */
        item->spec.least = (uint32_t)(zygote ? config->pool.least : config->warm.primed_least);
        item->spec.most = (uint32_t)(zygote ? config->pool.most : config->warm.primed_most);
        item->spec.forks = (uint32_t)config->warm.forks;
        item->spec.age = config->warm.age;
        waiting_limits(&defaults.run, &defaults.compile, &item->spec.limits);
    }
    return result;
}

static bool is_wanted(const struct config *config, const struct language *language)
{
    if (!config->warm.enabled || language->warm.kind == LANGUAGE_COLD || !language_available(language, NULL))
        return false;
    return language->warm.kind == LANGUAGE_ZYGOTE || config->warm.primed_most > 0;
}

const char *warm_word(const struct config *config, const struct language *language)
{
    if (!is_wanted(config, language))
        return "cold";
    return language->warm.kind == LANGUAGE_ZYGOTE ? "warm" : "primed";
}

int warm_definitions_make(const struct config *config, const struct languages *languages, struct warm_definitions *out,
                          struct hc_err *err)
{
    struct warm_definitions made = {0};
    int result = 0;
    for (size_t i = 0; i < languages_count(languages) && result == 0; i++)
        if (is_wanted(config, languages_at(languages, i)))
            result = define_language(config, languages_at(languages, i), &made, err);
    if (result < 0)
        warm_definitions_release(&made);
    else
        *out = made;
    return result;
}

void warm_definitions_release(struct warm_definitions *definitions)
{
    for (size_t i = 0; i < definitions->count; i++)
        definition_release(&definitions->item[i]);
    free(definitions->item);
    *definitions = (struct warm_definitions){0};
}

/* ---- which of it a plan may ask for ---- */

static bool matches(const char *pattern, const char *setting)
{
    size_t name = strcspn(setting, "="), length = strlen(pattern);
    if (length > 0 && pattern[length - 1] == '*')
        return name >= length - 1 && strncmp(pattern, setting, length - 1) == 0;
    return name == length && strncmp(pattern, setting, length) == 0;
}

static bool has_cold_env(const struct language_warm *warm, const struct words *env)
{
    for (size_t i = 0; i < env->count; i++)
        for (size_t j = 0; j < warm->cold_env.count; j++)
            if (matches(warm->cold_env.item[j], env->item[i]))
                return true;
    return false;
}

static bool is_cold(const struct plan *plan)
{
    const struct language_warm *warm = &plan->language->warm;
    if (warm->entry && strcmp(warm->entry, plan->entry) != 0)
        return true;
    return has_cold_env(warm, &plan->request->env);
}

/* What is primed is in a cell already: one like those of requests that ask for nothing special. */
static bool fits_primed(const struct config *config, const struct plan *plan)
{
    return plan->request->stage_count == 0 && plan->cell.mount_count == 0 &&
           !(plan->cell.flags & CELL_WRITABLE_ROOT) == config->read_only;
}

/* Most requests ask for what is usual: then nothing has to be made to see that it is the same. */
static bool is_made_from(const struct warm_definition *definition, const struct language *language,
                         const char *work_dir, const struct language_set *set, const struct limits *run,
                         const struct limits *compile)
{
    return definition->language == language && definition->set == set && strcmp(definition->work_dir, work_dir) == 0 &&
           memcmp(definition->run.value, run->value, sizeof run->value) == 0 &&
           (!language->warm.compile.present ||
            memcmp(definition->compile.value, compile->value, sizeof compile->value) == 0);
}

/* The id of what would be started ahead for these limits, if it is; else 0. */
static uint64_t find_defined(const struct config *config, const struct language *language, const char *work_dir,
                             const struct language_set *set, const struct limits *run, const struct limits *compile)
{
    struct warm_definition wanted;
    uint64_t id = 0;
    for (size_t i = 0; i < config->definitions->count; i++)
        if (is_made_from(&config->definitions->item[i], language, work_dir, set, run, compile))
            return config->definitions->item[i].spec.id;
    if (define_one(language, work_dir, run, compile, set, &wanted, NULL) < 0)
        return 0;
    for (size_t i = 0; i < config->definitions->count && !id; i++)
        if (config->definitions->item[i].spec.id == wanted.spec.id)
            id = wanted.spec.id;
    definition_release(&wanted);
    return id;
}

static uint64_t find_id(const struct config *config, const struct plan *plan, const struct language_set *set,
                        const struct limits *run, const struct limits *compile)
{
    return find_defined(config, plan->language, plan->cell.work_dir, set, run, compile);
}

/* Each test has a cell of its own, after the compiler's: a program that waits there for nothing may be any. */
static void choose_for_tests(const struct config *config, struct plan *plan, const struct language_set *set,
                             struct plan_stage *compile)
{
    struct defaults defaults;
    bool primed = plan->language->warm.kind == LANGUAGE_PRIMED;
    if (defaults_of(config, plan->language, &defaults, NULL) < 0)
        return;
    if (compile && primed) {
        compile->warm = find_id(config, plan, set, &defaults.run, &compile->limits);
        plan->warm = compile->warm;
    }
    for (size_t i = 0; i < plan->test_count; i++) {
        struct plan_test *test = &plan->tests[i];
        test->warm = find_id(config, plan, set, &test->limits, &defaults.compile);
        test->warm_stage = compile != NULL;
        test->cell_warm = test->warm;
    }
}

void warm_choose(const struct config *config, struct plan *plan)
{
    if (!config->definitions || !plan->language || plan->language->warm.kind == LANGUAGE_COLD || is_cold(plan))
        return;
    bool primed = plan->language->warm.kind == LANGUAGE_PRIMED;
    if (primed && !fits_primed(config, plan))
        return;
    const struct language_set *set = warm_set(plan);
    size_t before = plan->stage_count - (plan->test_count ? 0 : 1); /* the stages besides the program's own */
    bool compiled = plan->language->warm.compile.present;
    if (plan->test_count) {
        choose_for_tests(config, plan, set, compiled ? &plan->stages[before - 1] : NULL);
        return;
    }
    struct plan_stage *run = &plan->stages[before];
    run->warm = find_id(config, plan, set, &run->limits, compiled ? &run[-1].limits : &run->limits);
    run->warm_stage = compiled;
    if (compiled)
        run[-1].warm = run->warm;
    plan->warm = primed || before == 0 ? run->warm : 0; /* a zygote's child may wait in a cell, too */
}

/* ---- contexts ---- */

static int fail_preload(const struct language *language, const char *preload, struct hc_err *err)
{
    char names[160] = "";
    size_t length = 0;
    for (size_t i = 0; i < language->warm.set_count && length < sizeof names; i++)
        length +=
            (size_t)snprintf(names + length, sizeof names - length, "%s%s", i ? ", " : "", language->warm.sets[i].name);
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "\"preload\": %s has no set of modules named \"%.64s\"", language->title,
            preload);
    hc_err_field(err, "preload");
    if (names[0])
        hc_err_remedy(err, "it has: %s", names);
    else
        hc_err_remedy(err, "leave it out");
    return -EINVAL;
}

int warm_choose_context(const struct config *config, const struct language *language, const char *preload,
                        const struct words *env, uint64_t *id, struct hc_err *err)
{
    const char *name = preload ? preload : language->context.preload;
    const struct language_set *set = name ? language_set_find(language, name) : NULL;
    struct defaults defaults;
    *id = 0;
    if (name && !set)
        return fail_preload(language, name, err);
    if (!config->definitions || language->warm.kind != LANGUAGE_ZYGOTE || has_cold_env(&language->warm, env) ||
        defaults_of(config, language, &defaults, NULL) < 0)
        return 0;
    *id = find_defined(config, language, defaults.work_dir, set, &defaults.run, &defaults.compile);
    return 0;
}
