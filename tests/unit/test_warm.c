/* Warm starts: what the keeper defines from the languages' files, and which of it a plan asks for. */
#include "language_folder.h"

#include "run/plan.h"
#include "run/warm.h"
#include "run/warm_set.h"

#define WARM_TOY                                                                                                       \
    TOY TOY_RUN "[env]\nTOY = \"1\"\n"                                                                                 \
                "[warm]\nkind = \"zygote\"\ncommand = [\"/bin/sh\", \"main.toy\"]\nentry = \"main.toy\"\n"             \
                "cold_env = [\"TOY_*\", \"LANG\"]\nimport = '^[[:blank:]]*(import|from)[[:blank:]]+'\n"                \
                "[warm.env]\nTOYPATH = \"{driver}\"\n"                                                                 \
                "[[warm.sets]]\nname = \"data\"\nmodules = [\"numbers\", \"frames\", \"plots.flat\"]\n"                \
                "[[warm.sets]]\nname = \"small\"\nmodules = [\"numbers\"]\n"                                           \
                "[[warm.sets]]\nname = \"net\"\nmodules = [\"requests\", \"numbers\"]\n"

#define PRIMED_TOY                                                                                                     \
    TOY TOY_RUN "[compile]\ncommand = [\"/bin/sh\", \"{entry}\"]\nmemory = \"1g\"\n"                                   \
                "[warm]\nkind = \"primed\"\ncommand = [\"/bin/sh\", \"-m{memory}\", \"{driver}/run\"]\n"               \
                "compile = [\"/bin/sh\", \"-m{memory}\", \"{driver}/compile\", \"{out}\"]\n"

struct fixture {
    struct folder *folder;
    struct config *config;
    struct languages *languages;
    struct warm_definitions definitions;
    struct request *request;
    struct plan plan;
};

static struct fixture *begin(struct folder *folder, const char *text)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    struct hc_err err = {0};
    fixture->folder = folder;
    fixture->plan.files = -1;
    write_file(folder, "languages/toy.toml", text);
    hc_cleanup_free char *path = in(folder, "languages");
    setenv("HOTCELL_LANGUAGES", path, 1);
    if (config_load(NULL, &fixture->config, &err) < 0 ||
        languages_load(fixture->config, &fixture->languages, &err) < 0 ||
        warm_definitions_make(fixture->config, fixture->languages, &fixture->definitions, &err) < 0)
        fail_msg("%s", err.message);
    fixture->config->languages = fixture->languages;
    fixture->config->definitions = &fixture->definitions;
    fixture->request = request_new();
    request_set(fixture->request, "language", "toy", &err);
    request_set(fixture->request, "code", "print(42)", &err);
    return fixture;
}

static void end(struct fixture *fixture)
{
    plan_release(&fixture->plan);
    request_free(fixture->request);
    warm_definitions_release(&fixture->definitions);
    languages_free(fixture->languages);
    config_free(fixture->config);
    free(fixture);
}

static const struct plan_stage *planned(struct fixture *fixture)
{
    struct hc_err err = {0};
    plan_release(&fixture->plan);
    if (plan_make(fixture->config, fixture->request, &fixture->plan, &err) < 0)
        fail_msg("%s", err.message);
    return fixture->plan.stage_count ? &fixture->plan.stages[fixture->plan.stage_count - 1] : NULL;
}

static const struct warm_definition *defined(const struct fixture *fixture, const char *name)
{
    for (size_t i = 0; i < fixture->definitions.count; i++)
        if (strcmp(fixture->definitions.item[i].name, name) == 0)
            return &fixture->definitions.item[i];
    fail_msg("there is no %s", name);
    return NULL;
}

static const char *setting(const struct words *env, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < env->count; i++)
        if (strncmp(env->item[i], name, length) == 0 && env->item[i][length] == '=')
            return env->item[i] + length + 1;
    return NULL;
}

/* ---- definitions ---- */

static void test_a_zygote_has_a_cold_starts_environment_and_its_own(void **state)
{
    struct fixture *fixture = begin(*state, WARM_TOY);
    const struct warm_definition *bare = defined(fixture, "toy"), *data = defined(fixture, "toy/data");
    assert_int_equal(fixture->definitions.count, 4);
    assert_int_equal(bare->spec.kind, WARM_ZYGOTE);
    assert_int_equal(bare->spec.stages, 1);
    assert_string_equal(bare->argv[0].item[1], "main.toy");
    assert_string_equal(bare->cwd, "/workspace");
    assert_string_equal(setting(&bare->env[0], "LD_PRELOAD"), "/.hotcell/warm/hotcell-warm.so");
    assert_string_equal(setting(&bare->env[0], "HOTCELL_WARM"), "zygote");
    assert_string_equal(setting(&bare->env[0], "TOYPATH"), "/.hotcell/warm/toy");
    assert_null(setting(&bare->env[0], "HOTCELL_PRELOAD"));
    assert_string_equal(setting(&data->env[0], "HOTCELL_PRELOAD"), "numbers frames plots.flat");
    planned(fixture);
    for (size_t i = 0; i < fixture->plan.env.count; i++)
        assert_string_equal(bare->env[0].item[i], fixture->plan.env.item[i]);
    end(fixture);
}

static void test_ids_differ_with_every_word_and_are_never_0(void **state)
{
    struct fixture *fixture = begin(*state, WARM_TOY);
    for (size_t i = 0; i < fixture->definitions.count; i++) {
        assert_true(fixture->definitions.item[i].spec.id != 0);
        for (size_t j = 0; j < i; j++)
            assert_true(fixture->definitions.item[i].spec.id != fixture->definitions.item[j].spec.id);
    }
    struct fixture *other = begin(*state, WARM_TOY);
    assert_true(defined(fixture, "toy")->spec.id == defined(other, "toy")->spec.id);
    end(other);
    other = begin(*state, TOY TOY_RUN "[env]\nTOY = \"2\"\n[warm]\nkind = \"zygote\"\ncommand = [\"/bin/sh\"]\n");
    assert_true(defined(fixture, "toy")->spec.id != defined(other, "toy")->spec.id);
    end(other);
    end(fixture);
}

static void test_what_waits_is_as_the_configuration_says(void **state)
{
    setenv("HOTCELL_WARM_START", "['plaything']", 1);
    setenv("HOTCELL_WARM_PRIMED_MAX", "7", 1);
    setenv("HOTCELL_WARM_AGE", "90s", 1);
    struct fixture *fixture = begin(*state, PRIMED_TOY);
    unsetenv("HOTCELL_WARM_START");
    unsetenv("HOTCELL_WARM_PRIMED_MAX");
    unsetenv("HOTCELL_WARM_AGE");
    const struct warm_definition *toy = defined(fixture, "toy");
    assert_int_equal(toy->spec.kind, WARM_PRIMED);
    assert_true(toy->spec.eager);
    assert_int_equal(toy->spec.least, 1);
    assert_int_equal(toy->spec.most, 7);
    assert_int_equal(toy->spec.age, 90 * 1000000);
    assert_int_equal(toy->spec.limits.memory, 1 << 30);
    assert_int_equal(toy->spec.limits.wall, 0);
    assert_int_equal(toy->spec.stages, 2);
    assert_string_equal(toy->argv[0].item[2], "/.hotcell/warm/toy/compile");
    assert_string_equal(toy->argv[0].item[1], "-m1024");
    assert_string_equal(toy->argv[1].item[2], "/.hotcell/warm/toy/run");
    end(fixture);
}

static void test_what_is_started_at_once_is_named_with_its_set(void **state)
{
    static const struct {
        const char *start, *eager;
    } cases[] = {{"[]", ""},
                 {"['toy']", "toy "},
                 {"['Plaything/data', 'toys']", "toy/data "},
                 {"['toy/*']", "toy toy/data toy/small toy/net "},
                 {"['to', 'toy/', 'toy/dat']", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char names[128] = "";
        setenv("HOTCELL_WARM_START", cases[i].start, 1);
        struct fixture *fixture = begin(*state, WARM_TOY);
        unsetenv("HOTCELL_WARM_START");
        for (size_t j = 0; j < fixture->definitions.count; j++)
            if (fixture->definitions.item[j].spec.eager)
                snprintf(names + strlen(names), sizeof names - strlen(names), "%s ", fixture->definitions.item[j].name);
        assert_string_equal(names, cases[i].eager);
        end(fixture);
    }
}

static void test_nothing_waits_where_it_is_turned_off(void **state)
{
    setenv("HOTCELL_WARM_ENABLED", "false", 1);
    struct fixture *fixture = begin(*state, WARM_TOY);
    unsetenv("HOTCELL_WARM_ENABLED");
    assert_int_equal(fixture->definitions.count, 0);
    assert_string_equal(warm_word(fixture->config, languages_at(fixture->languages, 0)), "cold");
    assert_true(planned(fixture)->warm == 0);
    end(fixture);
    setenv("HOTCELL_WARM_PRIMED_MAX", "0", 1);
    fixture = begin(*state, PRIMED_TOY);
    unsetenv("HOTCELL_WARM_PRIMED_MAX");
    assert_int_equal(fixture->definitions.count, 0);
    end(fixture);
}

/* ---- choosing ---- */

static void test_a_plain_program_asks_for_its_zygote(void **state)
{
    struct fixture *fixture = begin(*state, WARM_TOY);
    request_add_env(fixture->request, "NAME", "x", NULL);
    request_add_arg(fixture->request, "argument", NULL);
    assert_string_equal(warm_word(fixture->config, languages_at(fixture->languages, 0)), "warm");
    assert_true(planned(fixture)->warm == defined(fixture, "toy")->spec.id);
    assert_true(fixture->plan.warm == defined(fixture, "toy")->spec.id); /* a child may wait in a cell already */
    end(fixture);
}

static void test_without_definitions_everything_is_cold(void **state)
{
    struct fixture *fixture = begin(*state, WARM_TOY);
    fixture->config->definitions = NULL;
    assert_true(planned(fixture)->warm == 0);
    end(fixture);
}

static void test_what_a_waiting_process_cannot_be_given_starts_cold(void **state)
{
    static const char *const names[] = {"TOY_X", "TOY_", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct fixture *fixture = begin(*state, WARM_TOY);
        request_add_env(fixture->request, names[i], "x", NULL);
        assert_true(planned(fixture)->warm == 0);
        end(fixture);
    }
    struct fixture *fixture = begin(*state, WARM_TOY);
    request_add_env(fixture->request, "LANGUAGE", "x", NULL);
    request_add_env(fixture->request, "TOY", "x", NULL);
    assert_true(planned(fixture)->warm != 0);
    request_set(fixture->request, "entry", "other.toy", NULL);
    assert_true(planned(fixture)->warm == 0);
    end(fixture);
}

static void test_a_stage_of_the_requests_own_is_cold_and_the_program_after_it_is_not(void **state)
{
    static const char text[] = "{\"language\":\"toy\",\"code\":\"x\",\"stages\":[{\"command\":[\"/bin/true\"]}]}";
    struct fixture *fixture = begin(*state, WARM_TOY);
    request_free(fixture->request);
    fixture->request = request_new();
    assert_int_equal(request_from_json(fixture->request, text, strlen(text), NULL), 0);
    assert_true(planned(fixture)->warm == defined(fixture, "toy")->spec.id);
    assert_int_equal(fixture->plan.stage_count, 2);
    assert_true(fixture->plan.stages[0].warm == 0);
    end(fixture);
}

static void test_primed_programs_are_asked_for_by_stage_and_with_their_cell(void **state)
{
    struct fixture *fixture = begin(*state, PRIMED_TOY);
    uint64_t id = defined(fixture, "toy")->spec.id;
    assert_true(planned(fixture)->warm == id);
    assert_int_equal(fixture->plan.stages[1].warm_stage, 1);
    assert_true(fixture->plan.stages[0].warm == id);
    assert_int_equal(fixture->plan.stages[0].warm_stage, 0);
    assert_true(fixture->plan.warm == id);
    end(fixture);
}

static void test_a_limit_in_a_primed_command_makes_it_another(void **state)
{
    struct fixture *fixture = begin(*state, PRIMED_TOY);
    request_set(fixture->request, "limits.timeout", "3s", NULL);
    assert_true(planned(fixture)->warm != 0);
    request_set(fixture->request, "limits.memory", "100m", NULL);
    assert_true(planned(fixture)->warm == 0);
    assert_true(fixture->plan.stages[0].warm == 0);
    assert_true(fixture->plan.warm == 0);
    end(fixture);
}

static void test_a_cell_of_another_shape_has_nothing_primed(void **state)
{
    struct fixture *fixture = begin(*state, PRIMED_TOY);
    request_set(fixture->request, "read_only", "false", NULL);
    assert_true(planned(fixture)->warm == 0);
    assert_true(fixture->plan.warm == 0);
    end(fixture);
    fixture = begin(*state, WARM_TOY);
    request_set(fixture->request, "read_only", "false", NULL);
    assert_true(planned(fixture)->warm != 0);
    end(fixture);
}

static void test_each_test_asks_for_itself(void **state)
{
    static const char text[] = "{\"language\":\"toy\",\"code\":\"x\",\"tests\":[{},{\"limits\":{\"memory\":\"99m\"}}]}";
    struct fixture *fixture = begin(*state, PRIMED_TOY);
    uint64_t id = defined(fixture, "toy")->spec.id;
    request_free(fixture->request);
    fixture->request = request_new();
    assert_int_equal(request_from_json(fixture->request, text, strlen(text), NULL), 0);
    planned(fixture);
    assert_true(fixture->plan.warm == id && fixture->plan.stages[0].warm == id);
    assert_true(fixture->plan.tests[0].warm == id && fixture->plan.tests[0].cell_warm == id);
    assert_int_equal(fixture->plan.tests[0].warm_stage, 1);
    assert_true(fixture->plan.tests[1].warm == 0 && fixture->plan.tests[1].cell_warm == 0);
    end(fixture);
}

/* ---- sets ---- */

static void test_the_set_is_the_smallest_that_has_what_is_imported(void **state)
{
    static const struct {
        const char *code, *set;
    } cases[] = {
        {"import sys\nprint(1)", NULL},
        {"import numbers", "small"},
        {"  import numbers as n", "small"},
        {"from numbers import frames", "small"},
        {"import numbers, frames", "data"},
        {"import numbers as n, frames as f", "data"},
        {"import os, frames.parts", "data"},
        {"import os; import frames", "data"},
        {"import plots", "data"},
        {"import plots.flat as p", "data"},
        {"import plot\nimport numbersign, framesx", NULL},
        {"import requests", "net"},
        {"import numbers\nimport requests", "net"},
        {"import frames\nimport plots\nimport requests", "data"}, /* no set has them all */
        {"print('import numbers')", NULL},
        {"important numbers", NULL},
        {"import\tnumbers", "small"},
        {"import numbers\r\nimport frames\r\n", "data"},
        {"import", NULL},
        {"import ", NULL},
        {"import ,,,", NULL},
        {"from . import frames", NULL},
        {"import numbers as", "small"},
    };
    struct fixture *fixture = begin(*state, WARM_TOY);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        request_set_code(fixture->request, cases[i].code, strlen(cases[i].code), NULL);
        uint64_t id = planned(fixture)->warm;
        const struct language_set *set = warm_set(&fixture->plan);
        if ((set == NULL) != (cases[i].set == NULL) || (set && strcmp(set->name, cases[i].set) != 0))
            fail_msg("%s: %s", cases[i].code, set ? set->name : "none");
        char name[32];
        snprintf(name, sizeof name, "toy%s%s", set ? "/" : "", set ? set->name : "");
        assert_true(id == defined(fixture, name)->spec.id);
    }
    end(fixture);
}

static void test_the_entry_alone_is_looked_at(void **state)
{
    struct fixture *fixture = begin(*state, WARM_TOY);
    request_free(fixture->request);
    fixture->request = request_new();
    request_set(fixture->request, "language", "toy", NULL);
    request_set(fixture->request, "entry", "main.toy", NULL);
    request_add_file(fixture->request, "other.toy", "import frames", strlen("import frames"), 0644, NULL);
    request_add_file(fixture->request, "main.toy", "import numbers", strlen("import numbers"), 0644, NULL);
    planned(fixture);
    assert_string_equal(warm_set(&fixture->plan)->name, "small");
    end(fixture);
}

static void test_only_the_beginning_of_a_long_text_is_looked_at(void **state)
{
    enum { LONG = 300 * 1024 };
    struct fixture *fixture = begin(*state, WARM_TOY);
    hc_cleanup_free char *text = malloc(LONG);
    static const char last[] = "\nimport frames\n";
    memset(text, ';', LONG);
    memcpy(text + LONG - sizeof last, last, sizeof last);
    request_set_code(fixture->request, text, LONG, NULL);
    planned(fixture);
    assert_null(warm_set(&fixture->plan));
    memcpy(text + 1000, last, sizeof last - 1);
    request_set_code(fixture->request, text, LONG, NULL);
    planned(fixture);
    assert_string_equal(warm_set(&fixture->plan)->name, "data");
    memset(text, 'x', LONG); /* one statement, longer than any that is looked at */
    memcpy(text, "import frames,", 14);
    request_set_code(fixture->request, text, LONG, NULL);
    planned(fixture);
    assert_string_equal(warm_set(&fixture->plan)->name, "data");
    end(fixture);
}

/* ---- contexts ---- */

static void expect_context(struct fixture *fixture, const char *preload, const char *setting, uint64_t expected)
{
    const struct language *toy = languages_at(fixture->languages, 0);
    struct words env = {0};
    struct hc_err err = {0};
    uint64_t id = 1;
    if (setting)
        assert_int_equal(words_add(&env, setting), 0);
    assert_int_equal(warm_choose_context(fixture->config, toy, preload, &env, &id, &err), 0);
    assert_true(id == expected);
    words_release(&env);
}

static void test_a_context_is_forked_from_the_set_that_it_names(void **state)
{
    struct fixture *fixture = begin(*state, WARM_TOY "[context]\ncommand = [\"/bin/sh\"]\npreload = \"small\"\n");
    assert_int_equal(languages_count(fixture->languages), 1);
    expect_context(fixture, NULL, NULL, defined(fixture, "toy/small")->spec.id);
    expect_context(fixture, "data", "OTHER=1", defined(fixture, "toy/data")->spec.id);
    expect_context(fixture, "data", "TOY_X=1", 0);
    fixture->config->definitions = NULL;
    expect_context(fixture, "data", NULL, 0);
    end(fixture);
    fixture = begin(*state, WARM_TOY "[context]\ncommand = [\"/bin/sh\"]\n");
    expect_context(fixture, NULL, NULL, defined(fixture, "toy")->spec.id);
    end(fixture);
    fixture = begin(*state, PRIMED_TOY "[context]\ncommand = [\"/bin/sh\"]\n");
    expect_context(fixture, NULL, NULL, 0);
    end(fixture);
}

static void test_a_set_that_is_not_there_is_refused_with_those_that_are(void **state)
{
    struct fixture *fixture = begin(*state, WARM_TOY "[context]\ncommand = [\"/bin/sh\"]\n");
    struct words env = {0};
    struct hc_err err = {0};
    uint64_t id;
    int result = warm_choose_context(fixture->config, languages_at(fixture->languages, 0), "huge", &env, &id, &err);
    assert_int_equal(result, -EINVAL);
    assert_string_equal(err.field, "preload");
    assert_non_null(strstr(err.message, "\"huge\""));
    assert_non_null(strstr(err.remedy, "data, small, net"));
    end(fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_zygote_has_a_cold_starts_environment_and_its_own),
        TEST(test_ids_differ_with_every_word_and_are_never_0),
        TEST(test_what_waits_is_as_the_configuration_says),
        TEST(test_what_is_started_at_once_is_named_with_its_set),
        TEST(test_nothing_waits_where_it_is_turned_off),
        TEST(test_a_plain_program_asks_for_its_zygote),
        TEST(test_without_definitions_everything_is_cold),
        TEST(test_what_a_waiting_process_cannot_be_given_starts_cold),
        TEST(test_a_stage_of_the_requests_own_is_cold_and_the_program_after_it_is_not),
        TEST(test_primed_programs_are_asked_for_by_stage_and_with_their_cell),
        TEST(test_a_limit_in_a_primed_command_makes_it_another),
        TEST(test_a_cell_of_another_shape_has_nothing_primed),
        TEST(test_each_test_asks_for_itself),
        TEST(test_the_set_is_the_smallest_that_has_what_is_imported),
        TEST(test_the_entry_alone_is_looked_at),
        TEST(test_only_the_beginning_of_a_long_text_is_looked_at),
        TEST(test_a_context_is_forked_from_the_set_that_it_names),
        TEST(test_a_set_that_is_not_there_is_refused_with_those_that_are),
    };
    return cmocka_run_group_tests_name("warm", tests, NULL, NULL);
}
