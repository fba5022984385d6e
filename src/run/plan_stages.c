/*
 * Stages and tests: each command with its limits. A request's own stages come first, then the language's compile stage,
 * then the program: as a stage of its own, or once for each test.
 */
#include "base/fd.h"
#include "run/plan_internal.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct plan_stage *add_stage(struct plan *plan, const char *name, bool compile, const struct limits *limits)
{
    struct plan_stage *grown = realloc(plan->stages, (plan->stage_count + 1) * sizeof *grown);
    if (!grown)
        return NULL;
    plan->stages = grown;
    struct plan_stage *stage = &grown[plan->stage_count++];
    *stage = (struct plan_stage){.compile = compile, .limits = *limits};
    snprintf(stage->name, sizeof stage->name, "%s", name);
    return stage;
}

static int add_words(struct words *to, const struct words *from)
{
    int result = 0;
    for (size_t i = 0; i < from->count && result == 0; i++)
        result = words_add(to, from->item[i]);
    return result;
}

struct limits plan_compile_limits(const struct config *config, const struct limits *run, const struct limits *own)
{
    struct limits limits = *run;
    for (int id = 0; id < LIMIT_COUNT; id++) {
        if (!own->set[id])
            continue;
        limits.value[id] = own->value[id];
        if (config->ceilings.set[id] && limits.value[id] > config->ceilings.value[id])
            limits.value[id] = config->ceilings.value[id];
    }
    return limits;
}

static bool has_extension(const char *path, const struct words *extensions)
{
    size_t length = strlen(path);
    for (size_t i = 0; i < extensions->count; i++) {
        size_t size = strlen(extensions->item[i]);
        if (length > size && strcasecmp(path + length - size, extensions->item[i]) == 0)
            return true;
    }
    return false;
}

static int find_sources(const struct plan *plan, struct words *sources)
{
    const struct request *request = plan->request;
    int result = words_add(sources, plan->entry);
    for (size_t i = 0; i < request->file_count && result == 0; i++)
        if (strcmp(request->files[i].path, plan->entry) != 0 &&
            has_extension(request->files[i].path, &plan->language->extensions))
            result = words_add(sources, request->files[i].path);
    return result;
}

static int expand(const struct plan *plan, const struct language_stage *stage, const struct limits *limits,
                  struct words *argv, struct hc_err *err)
{
    struct words sources = {0};
    char out[96] = LANGUAGE_OUT;
    if (plan->request->apart)
        snprintf(out, sizeof out, PLAN_APART_OWN "/main", plan->request->apart);
    int result = find_sources(plan, &sources);
    result = result < 0 ? plan_no_memory(err)
                        : language_expand(plan->language, stage, plan->cell.work_dir, plan->entry, out, &sources,
                                          limits, argv, err);
    words_release(&sources);
    return result;
}

/* The program itself, with these arguments. Limits may be part of the command: a Java heap, for one. */
static int program_argv(const struct plan *plan, const struct limits *limits, const struct words *args,
                        struct words *argv, struct hc_err *err)
{
    const struct request *request = plan->request;
    int result = 0;
    if (plan->language) {
        result = expand(plan, &plan->language->run, limits, argv, err);
        if (result < 0)
            return result;
    } else if (request->command_shell) {
        result = words_add(argv, "/bin/sh");
        if (result == 0)
            result = words_add(argv, "-c");
        if (result == 0)
            result = words_add(argv, request->command.item[0]);
        if (result == 0 && args->count)
            result = words_add(argv, "sh");
    } else {
        result = add_words(argv, &request->command);
    }
    if (result == 0)
        result = add_words(argv, args);
    return result < 0 ? plan_no_memory(err) : 0;
}

/* Of a limit that was refused: which item of the list asked for it. */
static int name_item(struct hc_err *err, const char *list, size_t index)
{
    char field[32];
    snprintf(field, sizeof field, "%.31s", err->field);
    hc_err_field(err, "%s[%zu].%s", list, index, field);
    return hc_err_context(err, "%s[%zu]", list, index);
}

/* The stages share a cell, whose disk is the largest that one of them asks for. */
static void make_room(struct plan *plan, const struct limits *limits)
{
    if (limits->value[LIMIT_DISK] > plan->cell.disk)
        plan->cell.disk = limits->value[LIMIT_DISK];
    if (limits->value[LIMIT_INODES] > plan->cell.inodes)
        plan->cell.inodes = limits->value[LIMIT_INODES];
}

static int plan_own_stages(const struct config *config, struct plan *plan, const struct limits *limits,
                           struct hc_err *err)
{
    const struct request *request = plan->request;
    for (size_t i = 0; i < request->stage_count; i++) {
        struct limits own;
        int result = limits_resolve(&request->stages[i].limits, limits, &config->ceilings, &own, err);
        if (result < 0)
            return name_item(err, "stages", i);
        char name[32];
        snprintf(name, sizeof name, "stage%zu", i + 1);
        struct plan_stage *stage =
            add_stage(plan, request->stages[i].name ? request->stages[i].name : name, true, &own);
        if (!stage || add_words(&stage->argv, &request->stages[i].command) < 0)
            return plan_no_memory(err);
        make_room(plan, &own);
    }
    return 0;
}

static int plan_compile_stage(const struct config *config, struct plan *plan, const struct limits *limits,
                              struct hc_err *err)
{
    if (!plan->language || !plan->language->compile.present)
        return 0;
    struct limits own = plan_compile_limits(config, limits, &plan->language->compile.limits);
    struct plan_stage *stage = add_stage(plan, "compile", true, &own);
    if (!stage)
        return plan_no_memory(err);
    memcpy(stage->own, plan->language->compile.limits.set, sizeof stage->own);
    make_room(plan, &own);
    return expand(plan, &plan->language->compile, &own, &stage->argv, err);
}

/* ---- tests ---- */

/* A test's cell is its own: nothing that is mounted where its files go could be. Files of what? Of every test: the
 * answer to `collect` would be as many sets of files as there are tests. */
static int check_tests(const struct plan *plan, struct hc_err *err)
{
    const char *work = plan->cell.work_dir;
    if (plan->request->collect.count) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "files cannot be collected from a run with tests");
        hc_err_field(err, "collect");
        return hc_err_remedy(err, "leave out collect, or tests");
    }
    for (uint32_t i = 0; i < plan->cell.mount_count; i++) {
        const char *path = plan->mounts[i].path;
        if ((strncmp(path, work, strlen(work)) != 0 || (path[strlen(work)] && path[strlen(work)] != '/')) &&
            strcmp(path, "/tmp") != 0 && strncmp(path, "/tmp/", 5) != 0)
            continue;
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "tests begin with files of their own, and %s is a host folder", path);
        hc_err_field(err, "mounts[%u].path", i);
        return hc_err_remedy(err, "mount it elsewhere, not in %s or /tmp", work);
    }
    return 0;
}

static int plan_tests(const struct config *config, struct plan *plan, const struct limits *limits, struct hc_err *err)
{
    const struct request *request = plan->request;
    int result = check_tests(plan, err);
    if (result < 0)
        return result;
    plan->tests = calloc(request->test_count, sizeof *plan->tests);
    if (!plan->tests)
        return plan_no_memory(err);
    for (size_t i = 0; i < request->test_count && result == 0; i++) {
        const struct request_test *asked = &request->tests[i];
        struct plan_test *test = &plan->tests[plan->test_count++];
        if (asked->name && asked->name[0])
            snprintf(test->name, sizeof test->name, "%s", asked->name);
        else
            snprintf(test->name, sizeof test->name, "test %zu", i + 1);
        test->input = asked->has_input ? &asked->input : &request->input;
        test->expect = asked->has_expect ? &asked->expect_stdout : NULL;
        result = limits_resolve(&asked->limits, limits, &config->ceilings, &test->limits, err);
        if (result < 0)
            return name_item(err, "tests", i);
        result = program_argv(plan, &test->limits, asked->has_args ? &asked->args : &request->args, &test->argv, err);
    }
    return result;
}

int plan_stages(const struct config *config, struct plan *plan, struct hc_err *err)
{
    const struct request *request = plan->request;
    struct limits limits;
    int result = limits_resolve(&request->limits, &config->defaults, &config->ceilings, &limits, err);
    if (result < 0)
        return result;
    plan->output_cap = limits.value[LIMIT_OUTPUT];
    plan->cell.disk = limits.value[LIMIT_DISK];
    plan->cell.inodes = limits.value[LIMIT_INODES];
    result = plan_own_stages(config, plan, &limits, err);
    if (result == 0)
        result = plan_compile_stage(config, plan, &limits, err);
    if (result < 0)
        return result;
    if (request->test_count)
        return plan_tests(config, plan, &limits, err);
    struct plan_stage *stage = add_stage(plan, "run", false, &limits);
    return stage ? program_argv(plan, &limits, &request->args, &stage->argv, err) : plan_no_memory(err);
}
