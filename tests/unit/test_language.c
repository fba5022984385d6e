/* Languages: files are read strictly, found by name, alias and file name, and expanded into commands. */
#include "language_folder.h"

static void refuse_toy(const struct folder *folder, const char *text, const char *place, const char *reason)
{
    write_file(folder, "toy.toml", text);
    hc_cleanup_free char *path = in(folder, "toy.toml");
    struct language *language = NULL;
    struct hc_err err = {0};
    assert_true(language_read(path, &language, &err) < 0);
    assert_null(language);
    assert_int_equal(err.class, HC_CLASS_REQUEST);
    if (strstr(err.message, place) == NULL || strstr(err.message, reason) == NULL)
        fail_msg("expected \"%s\" and \"%s\" in: %s", place, reason, err.message);
}

static struct language *find(const char *name)
{
    struct language *language = NULL;
    struct hc_err err = {0};
    if (languages_find(NULL, name, &language, &err) < 0)
        fail_msg("%s: %s", name, err.message);
    return language;
}

static void expect_name(const char *asked, const char *name)
{
    struct language *language = find(asked);
    assert_string_equal(language->name, name);
    language_free(language);
}

/* ---- reading ---- */

static void test_a_whole_file_is_read(void **state)
{
    struct language *toy =
        read_toy(*state, TOY "[version]\ncommand = [\"/bin/echo\", \"v1\"]\npattern = 'v(.)'\n"
                             "[compile]\ncommand = [\"/bin/cp\", \"{entry}\", \"{out}\"]\ntimeout = \"10s\"\n"
                             "memory = \"1g\"\ncpus = 0.5\npids = 7\n"
                             "[run]\ncommand = [\"{out}\"]\n[env]\nK = \"V=1\"\n");
    assert_string_equal(toy->title, "Toy");
    assert_string_equal(toy->package, "toybox");
    assert_string_equal(toy->version_pattern, "v(.)");
    assert_true(toy->compile.present && toy->run.present);
    assert_int_equal(toy->compile.limits.value[LIMIT_TIMEOUT], 10 * 1000 * 1000);
    assert_int_equal(toy->compile.limits.value[LIMIT_MEMORY], 1 << 30);
    assert_int_equal(toy->compile.limits.value[LIMIT_CPUS], 500);
    assert_int_equal(toy->compile.limits.value[LIMIT_PIDS], 7);
    assert_true(toy->compile.limits.set[LIMIT_PIDS]);
    assert_false(toy->compile.limits.set[LIMIT_OUTPUT]);
    assert_int_equal(toy->env.count, 1);
    assert_string_equal(toy->env.item[0], "K=V=1");
    assert_non_null(strstr(toy->source, "/toy.toml"));
    language_free(toy);
}

static void test_every_mistake_is_refused_with_file_and_line(void **state)
{
    static const struct {
        const char *text, *line, *reason;
    } cases[] = {
        {TOY "extentions = []\n" TOY_RUN, "toy.toml:8:", "unknown key \"extentions\""},
        {TOY TOY_RUN "timeout = 3\n", "toy.toml:10:", "unknown key \"timeout\" in run"},
        {TOY TOY_RUN "[compile]\ncommand = [\"/bin/true\"]\ntimeuot = 3\n",
         "toy.toml:12:", "unknown key \"timeuot\" in compile"},
        {TOY TOY_RUN "[compile]\ncommand = [\"/bin/true\"]\nmemory = \"much\"\n", "toy.toml:12", "much"},
        {TOY TOY_RUN "[compile]\ntimeout = 3\n", "toy.toml:", "\"compile.command\" is missing"},
        {TOY, "toy.toml:", "[run] is missing"},
        {"title = \"Toy\"\n" TOY_RUN, "toy.toml:", "\"name\" is missing"},
        {TOY "[run]\ncommand = []\n", "toy.toml:9:", "must not be empty"},
        {TOY "[run]\ncommand = \"sh x\"\n", "toy.toml:9:", "must be a list of strings, not a string"},
        {TOY "[run]\ncommand = [\"sh\"]\n", "toy.toml:9:", "absolute path"},
        {TOY "[run]\ncommand = [\"/bin/sh\", 3]\n", "toy.toml:9:", "must be a string, not a"},
        {TOY "[run]\ncommand = [\"/bin/sh\", \"{entrie}\"]\n", "toy.toml:9:", "unknown placeholder"},
        {TOY "[run]\ncommand = [\"/bin/sh\", \"a{sources}\"]\n", "toy.toml:9:", "word of its own"},
        {TOY "[run]\ncommand = [\"/bin/sh\", \"a\\u0000b\"]\n", "toy.toml:9:", "NUL"},
        {TOY TOY_RUN "lookups = [\"usr/lib/a\"]\n", "toy.toml:10:", "must be an absolute path"},
        {TOY TOY_RUN "lookups = \"/usr/lib/a\"\n", "toy.toml:10:", "must be a list of strings"},
        {TOY TOY_RUN "[env]\n\"A=B\" = \"x\"\n", "toy.toml:11:", "environment variable"},
        {TOY TOY_RUN "[env]\nA = 1\n", "toy.toml:11:", "must be a string"},
        {TOY TOY_RUN "[version]\ncommand = [\"/bin/sh\"]\npattern = '('\n", "toy.toml:12:", "regular expression"},
        {TOY TOY_RUN "[version]\ncommand = [\"/bin/sh\"]\npattern = 'v'\n", "toy.toml:12:", "group"},
        {TOY "run = 3\n", "toy.toml:8:", "must be a table"},
        {TOY TOY, "toy.toml:8:", ""},
        {"x = \n", "toy.toml:1:", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse_toy(*state, cases[i].text, cases[i].line, cases[i].reason);
}

static void test_lookups_are_read_and_have_a_bound(void **state)
{
    struct language *toy = read_toy(*state, TOY TOY_RUN "lookups = [\"/usr/lib/a\", \"/usr/lib/b\"]\n");
    assert_int_equal(toy->lookups.count, 2);
    assert_string_equal(toy->lookups.item[1], "/usr/lib/b");
    language_free(toy);
    char text[16384] = TOY TOY_RUN "lookups = [";
    for (int i = 0; i <= 8192 / 100; i++) {
        size_t length = strlen(text);
        snprintf(text + length, sizeof text - length, "\"/%098d\",", i);
    }
    refuse_toy(*state, strcat(text, "]\n"), "toy.toml:10:", "must have 8192 bytes at most");
    hc_cleanup_free char *longer = NULL;
    assert_true(asprintf(&longer, TOY TOY_RUN "lookups = [\"/%0255d\"]\n", 1) > 0);
    refuse_toy(*state, longer, "toy.toml:10:", "255 characters at most");
}

static void test_wrong_values_are_refused(void **state)
{
    static const char *const whole = TOY TOY_RUN;
    static const struct {
        const char *from, *to, *reason;
    } cases[] = {
        {"\"toy\"", "\"Toy\"", "must be made of"},
        {"\"toy\"", "\"../toy\"", "must be made of"},
        {"\"toy\"", "\"game\"", "must be named game.toml"},
        {"\"toy\"", "\"\"", "1 to 31 characters"},
        {"\"plaything\"", "\"Play Thing\"", "must be made of"},
        {"[\".toy\"]", "[\"toy\"]", "must begin with a dot"},
        {"\"main.toy\"", "\"a/main.toy\"", "plain file name"},
        {"\"main.toy\"", "\"main.txt\"", "must end in one of"},
        {"\"/bin/sh\"", "\"sh\"", "absolute path"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *at = strstr(whole, cases[i].from);
        assert_non_null(at);
        hc_cleanup_free char *text = NULL;
        assert_true(asprintf(&text, "%.*s%s%s", (int)(at - whole), whole, cases[i].to, at + strlen(cases[i].from)) > 0);
        refuse_toy(*state, text, "toy.toml:", cases[i].reason);
    }
}

static void test_an_unknown_key_gets_the_nearest_suggested(void **state)
{
    write_file(*state, "toy.toml", TOY "extentions = []\n" TOY_RUN);
    hc_cleanup_free char *path = in(*state, "toy.toml");
    struct language *language = NULL;
    struct hc_err err = {0};
    assert_true(language_read(path, &language, &err) < 0);
    assert_string_equal(err.remedy, "did you mean \"extensions\"?");
}

/* ---- finding ---- */

static void test_the_built_in_languages_are_all_there(void **state)
{
    (void)state;
    static const char *const names[] = {"bash", "c",      "cpp", "go",   "java", "javascript", "lua",       "perl",
                                        "php",  "python", "r",   "ruby", "rust", "sh",         "typescript"};
    struct languages *languages = NULL;
    struct hc_err err = {0};
    if (languages_load(NULL, &languages, &err) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(languages_count(languages), sizeof names / sizeof *names);
    for (size_t i = 0; i < languages_count(languages); i++) {
        const struct language *language = languages_at(languages, i);
        assert_string_equal(language->name, names[i]);
        assert_true(language->package[0] != '\0' && language->version_command.count > 0);
    }
    languages_free(languages);
}

/* Only .sh has two owners, and bash is meant to win. */
static void test_no_two_built_in_languages_claim_the_same_alias(void **state)
{
    (void)state;
    struct languages *languages = NULL;
    struct hc_err err = {0};
    assert_int_equal(languages_load(NULL, &languages, &err), 0);
    for (size_t i = 0; i < languages_count(languages); i++) {
        const struct language *language = languages_at(languages, i);
        expect_name(language->name, language->name);
        for (size_t j = 0; j < language->aliases.count; j++)
            expect_name(language->aliases.item[j], language->name);
        for (size_t j = 0; j < language->extensions.count; j++) {
            hc_cleanup_free char *file = NULL;
            assert_true(asprintf(&file, "some/where.x/a%s", language->extensions.item[j]) > 0);
            struct language *found = NULL;
            assert_int_equal(languages_find_by_file(NULL, file, &found, &err), 0);
            bool shell = strcmp(language->extensions.item[j], ".sh") == 0;
            assert_string_equal(found->name, shell ? "bash" : language->name);
            language_free(found);
        }
    }
    languages_free(languages);
}

static void test_names_are_found_whatever_their_case_and_spaces(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"python", "python"}, {" Python ", "python"}, {"PY", "python"},
        {"js", "javascript"}, {"Node", "javascript"}, {"ts", "typescript"},
        {"C++", "cpp"},       {"\tGolang\n", "go"},   {"R", "r"},
        {"C", "c"},           {"rb", "ruby"},         {"RS", "rust"},
        {"pl", "perl"},       {"shell", "bash"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        expect_name(pairs[i][0], pairs[i][1]);
}

static void test_files_are_found_by_extension(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"job.py", "python"}, {"a/b.c/x.go", "go"}, {"MAIN.PY", "python"}, {"x.C", "cpp"},       {"x.c", "c"},
        {"run.sh", "bash"},   {"x.R", "r"},         {"x.r", "r"},          {"App.java", "java"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct language *language = NULL;
        struct hc_err err = {0};
        if (languages_find_by_file(NULL, pairs[i][0], &language, &err) < 0)
            fail_msg("%s", err.message);
        assert_string_equal(language->name, pairs[i][1]);
        language_free(language);
    }
}

static void test_a_file_without_a_known_extension_is_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"Makefile", "a.py/readme", "x.unknown", "trailing.", ""};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct language *language = NULL;
        struct hc_err err = {0};
        assert_int_equal(languages_find_by_file(NULL, names[i], &language, &err), -EINVAL);
        assert_null(language);
        assert_string_equal(err.field, "language");
        assert_non_null(strstr(err.remedy, "--language"));
    }
}

static void test_an_unknown_name_lists_what_there_is_and_suggests(void **state)
{
    (void)state;
    struct language *language = NULL;
    struct hc_err err = {0};
    assert_int_equal(languages_find(NULL, "pyhton", &language, &err), -EINVAL);
    assert_int_equal(err.class, HC_CLASS_REQUEST);
    assert_string_equal(err.field, "language");
    assert_non_null(strstr(err.message, "\"pyhton\""));
    assert_non_null(strstr(err.message, "bash, c, cpp, go, java, javascript, lua, perl, php, python, r, ruby"));
    assert_string_equal(err.remedy, "did you mean \"python\"?");
    static const char *const names[] = {"", "   ", "../languages/python", "/etc/passwd", "python.toml", "."};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        hc_err_clear(&err);
        assert_int_equal(languages_find(NULL, names[i], &language, &err), -EINVAL);
    }
}

static void test_a_folder_of_the_user_adds_and_replaces(void **state)
{
    write_file(*state, USER_FOLDER "toy.toml", TOY TOY_RUN);
    write_file(*state, USER_FOLDER "python.toml",
               "name = \"python\"\ntitle = \"Mine\"\nextensions = [\".py\"]\nfile = \"main.py\"\nneeds = "
               "[\"/bin/sh\"]\n" TOY_RUN);
    write_file(*state, USER_FOLDER "notes.txt", "not a language");
    expect_name("toy", "toy");
    expect_name("Plaything", "toy");
    struct language *language = find("python");
    assert_string_equal(language->title, "Mine");
    assert_string_equal(language->package, "");
    language_free(language);
    struct languages *languages = NULL;
    struct hc_err err = {0};
    assert_int_equal(languages_load(NULL, &languages, &err), 0);
    assert_int_equal(languages_count(languages), 16);
    languages_free(languages);
}

static void test_an_alias_of_an_earlier_folder_wins_but_never_over_a_name(void **state)
{
    write_file(
        *state, USER_FOLDER "toy.toml",
        "name = \"toy\"\ntitle = \"Toy\"\naliases = [\"py\", \"ruby\"]\nextensions = [\".py\"]\nfile = \"a.py\"\n"
        "needs = [\"/bin/sh\"]\n" TOY_RUN);
    expect_name("py", "toy");
    expect_name("ruby", "ruby");
    struct language *language = NULL;
    struct hc_err err = {0};
    assert_int_equal(languages_find_by_file(NULL, "x.py", &language, &err), 0);
    assert_string_equal(language->name, "toy");
    language_free(language);
}

static void test_one_language_is_found_beside_a_broken_file_of_another(void **state)
{
    write_file(*state, USER_FOLDER "toy.toml", "this is not TOML");
    expect_name("python", "python");
    expect_name("py", "python");
    struct language *language = NULL;
    struct hc_err err = {0};
    assert_int_equal(languages_find_by_file(NULL, "x.py", &language, &err), 0);
    language_free(language);
    language = NULL;
    write_file(*state, USER_FOLDER "toy.toml", "this, which may be about \"py\", is not TOML");
    assert_true(languages_find(NULL, "py", &language, &err) < 0);
    assert_non_null(strstr(err.message, "toy.toml:1"));
}

/* Also where it does not say what was asked for, and is not parsed. */
static void test_a_file_of_the_user_hides_the_built_in_one_of_its_name(void **state)
{
    write_file(*state, USER_FOLDER "python.toml",
               "name = \"python\"\ntitle = \"Mine\"\nextensions = [\".snake\"]\nfile = \"main.snake\"\nneeds = "
               "[\"/bin/sh\"]\n" TOY_RUN);
    struct language *language = NULL;
    struct hc_err err = {0};
    assert_int_equal(languages_find_by_file(NULL, "x.py", &language, &err), -EINVAL);
    assert_int_equal(languages_find_by_file(NULL, "x.snake", &language, &err), 0);
    assert_string_equal(language->title, "Mine");
    language_free(language);
    language = NULL;
    assert_int_equal(languages_find(NULL, "py", &language, &err), -EINVAL);
}

static void test_the_configured_folder_comes_first_and_must_exist(void **state)
{
    write_file(*state, "mine/python.toml",
               "name = \"python\"\ntitle = \"Configured\"\nextensions = [\".py\"]\nfile = \"main.py\"\nneeds = "
               "[\"/bin/sh\"]\n" TOY_RUN);
    write_file(*state, USER_FOLDER "python.toml", "broken");
    hc_cleanup_free char *path = in(*state, "mine");
    struct config config = {0};
    assert_int_equal(words_add(&config.language_paths, path), 0);
    struct language *language = NULL;
    struct hc_err err = {0};
    assert_int_equal(languages_find(&config, "python", &language, &err), 0);
    assert_string_equal(language->title, "Configured");
    language_free(language);
    language = NULL;
    assert_int_equal(words_add(&config.language_paths, "/no/such/folder"), 0);
    assert_int_equal(languages_find(&config, "python", &language, &err), -ENOENT);
    assert_string_equal(err.field, "languages.paths");
    assert_null(language);
    words_release(&config.language_paths);
}

static void test_a_missing_folder_of_languages_says_how_to_name_it(void **state)
{
    (void)state;
    setenv("HOTCELL_LANGUAGES", "/no/such/folder", 1);
    struct language *language = NULL;
    struct hc_err err = {0};
    assert_int_equal(languages_find(NULL, "python", &language, &err), -ENOENT);
    assert_int_equal(err.class, HC_CLASS_HOST);
    assert_non_null(strstr(err.message, "/no/such/folder"));
    assert_non_null(strstr(err.remedy, "HOTCELL_LANGUAGES"));
}

/* A copy of this program in a build tree of its own, started from elsewhere under a false name. */
static void test_the_build_tree_finds_its_own_languages(void **state)
{
    unsetenv("HOTCELL_LANGUAGES");
    write_file(*state, "tree/languages/toy.toml", TOY TOY_RUN);
    write_mode(*state, "tree/build/hotcell", "", 0755);
    hc_cleanup_free char *path = in(*state, "tree/build/hotcell");
    hc_cleanup_free char *copy = NULL;
    assert_true(asprintf(&copy, "cp /proc/%ld/exe '%s'", (long)getpid(), path) > 0);
    assert_int_equal(system(copy), 0);
    pid_t pid = fork();
    if (pid == 0) {
        execl(path, "/usr/bin/sh", FIND_TOY, (char *)NULL);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int find_toy(void)
{
    struct language *language = NULL;
    struct hc_err err = {0};
    if (languages_find(NULL, "toy", &language, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    language_free(language);
    return 0;
}

/* ---- commands ---- */

static void expect_expansion(const struct language *language, const struct language_stage *stage, const char *entry,
                             const struct words *sources, const struct limits *limits, const char *expected)
{
    struct words argv = {0};
    struct hc_err err = {0};
    assert_int_equal(language_expand(language, stage, "/workspace", entry, LANGUAGE_OUT, sources, limits, &argv, &err),
                     0);
    char text[512] = "";
    for (size_t i = 0; i < argv.count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s|", argv.item[i]);
    assert_null(argv.item[argv.count]);
    assert_string_equal(text, expected);
    words_release(&argv);
}

static void test_placeholders_are_filled(void **state)
{
    struct language *toy = read_toy(
        *state, TOY "[compile]\ncommand = [\"/bin/cc\", \"-I{dir}\", \"-o{out}\", \"{sources}\", \"{stem}.x\"]\n"
                    "[run]\ncommand = [\"/bin/sh\", \"{memory}m{cpus}{entry}\", \"${X}{ a }{A}{}{\"]\n");
    struct words sources = {0};
    words_add(&sources, "src/main.toy");
    words_add(&sources, "-odd name.toy");
    expect_expansion(toy, &toy->compile, "src/main.toy", &sources, NULL,
                     "/bin/cc|-I/workspace|-o/tmp/.hotcell/main|src/main.toy|./-odd name.toy|main.x|");
    struct limits limits = {0};
    limits.value[LIMIT_MEMORY] = 64 << 20;
    limits.value[LIMIT_CPUS] = 1500;
    expect_expansion(toy, &toy->run, "-a.tar.toy", &sources, &limits, "/bin/sh|64m2./-a.tar.toy|${X}{ a }{A}{}{|");
    expect_expansion(toy, &toy->run, "{out}", &sources, NULL, "/bin/sh|512m1{out}|${X}{ a }{A}{}{|");
    words_release(&sources);
    language_free(toy);
}

static void test_a_stem_is_the_name_without_folder_and_extension(void **state)
{
    struct language *toy = read_toy(*state, TOY "[run]\ncommand = [\"/bin/sh\", \"{stem}\"]\n");
    struct words none = {0};
    expect_expansion(toy, &toy->run, "a.b/Main.java", &none, NULL, "/bin/sh|Main|");
    expect_expansion(toy, &toy->run, ".hidden", &none, NULL, "/bin/sh|.hidden|");
    expect_expansion(toy, &toy->run, "plain", &none, NULL, "/bin/sh|plain|");
    language_free(toy);
}

/* ---- warm starts ---- */

#define WARM "[warm]\nkind = \"zygote\"\ncommand = [\"/bin/sh\", \"main.toy\"]\n"

static void test_a_warm_table_is_read(void **state)
{
    struct language *toy =
        read_toy(*state, TOY TOY_RUN WARM "entry = \"main.toy\"\ncold_env = [\"TOY*\", \"LANG\"]\n"
                                          "import = '^use[[:blank:]]+'\n[warm.env]\nTOYPATH = \"{driver}\"\n"
                                          "[[warm.sets]]\nname = \"one\"\nmodules = [\"a\", \"b\"]\n"
                                          "[[warm.sets]]\nname = \"two\"\nmodules = [\"c\"]\n");
    assert_int_equal(toy->warm.kind, LANGUAGE_ZYGOTE);
    assert_string_equal(toy->warm.run.command.item[1], "main.toy");
    assert_false(toy->warm.compile.present);
    assert_string_equal(toy->warm.entry, "main.toy");
    assert_int_equal(toy->warm.cold_env.count, 2);
    assert_true(toy->warm.has_import);
    assert_string_equal(toy->warm.env.item[0], "TOYPATH={driver}");
    assert_int_equal(toy->warm.set_count, 2);
    assert_string_equal(toy->warm.sets[0].modules.item[1], "b");
    assert_string_equal(toy->warm.sets[1].name, "two");
    language_free(toy);
    toy = read_toy(*state, TOY TOY_RUN);
    assert_int_equal(toy->warm.kind, LANGUAGE_COLD);
    language_free(toy);
    toy = read_toy(*state, TOY TOY_RUN "[compile]\ncommand = [\"/bin/true\"]\n[warm]\nkind = \"primed\"\n"
                                       "command = [\"/bin/sh\"]\ncompile = [\"/bin/sh\", \"{driver}/{out}\"]\n");
    assert_int_equal(toy->warm.kind, LANGUAGE_PRIMED);
    assert_true(toy->warm.compile.present);
    language_free(toy);
}

static void test_mistakes_in_a_warm_table_are_refused_with_file_and_line(void **state)
{
    static const char sets[] = "[[warm.sets]]\nname = \"one\"\nmodules = [\"a\"]\n";
    static const struct {
        const char *text, *line, *reason;
        bool sets;
    } cases[] = {
        {"[warm]\nkind = \"zygote\"\n", "toy.toml:10:", "\"warm.command\" is missing", false},
        {"[warm]\nkind = \"hot\"\ncommand = [\"/x\"]\n", "toy.toml:11:", "\"zygote\" or \"primed\"", false},
        {WARM "compil = []\n", "toy.toml:13:", "unknown key \"compil\" in warm", false},
        {WARM "compile = []\n", "toy.toml:13:", "must not be empty", false},
        {WARM "compile = [\"/bin/sh\"]\n", "toy.toml:10:", "\"primed\" alone", false},
        {"[warm]\nkind = \"primed\"\ncommand = [\"/x\"]\ncompile = [\"/x\"]\n", "toy.toml:10:", "[compile]", false},
        {"[warm]\nkind = \"zygote\"\ncommand = [\"{out}\"]\n", "toy.toml:12:", "absolute path", false},
        {"[warm]\nkind = \"zygote\"\ncommand = [\"/x\", \"{entry}\"]\n", "toy.toml:12:", "{driver}", false},
        {WARM "entry = \"a/b.toy\"\n", "toy.toml:13:", "plain file name", false},
        {WARM "cold_env = [\"A*B\"]\n", "toy.toml:13:", "prefix that ends in *", false},
        {WARM "import = '('\n", "toy.toml:13:", "regular expression", true},
        {WARM "import = '^use[ \\t]'\n", "toy.toml:13:", "[[:blank:]]", true},
        {WARM "import = 'use'\n", "toy.toml:10:", "need each other", false},
        {WARM, "toy.toml:10:", "need each other", true},
        {WARM "[warm.env]\nA = \"{stem}\"\n", "toy.toml:14:", "unknown placeholder", false},
        {WARM "env = 1\n", "toy.toml:13:", "must be a table", false},
        {WARM "sets = 1\n", "toy.toml:13:", "[[warm.sets]]", false},
        {WARM "import = 'x'\n[[warm.sets]]\nname = \"one\"\n", "toy.toml:14:", "\"warm.sets.modules\"", false},
        {WARM "import = 'x'\n[[warm.sets]]\nname = \"one\"\nmodule = [\"a\"]\n",
         "toy.toml:16:", "unknown key \"module\"", false},
        {WARM "import = 'x'\n[[warm.sets]]\nname = \"one\"\nmodules = [\"a b\"]\n", "toy.toml:16:", "module's name",
         false},
        {WARM "import = 'x'\n[[warm.sets]]\nname = \"one\"\nmodules = [\"b\"]\n", "toy.toml:18:", "two sets", true},
        {"[warm]\nkind = \"primed\"\ncommand = [\"/x\"]\nimport = 'x'\n", "toy.toml:10:", "\"zygote\" alone", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        snprintf(text, sizeof text, "%s%s%s", TOY TOY_RUN, cases[i].text, cases[i].sets ? sets : "");
        refuse_toy(*state, text, cases[i].line, cases[i].reason);
    }
}

static void test_what_is_started_ahead_is_expanded_without_a_program(void **state)
{
    struct language *toy = read_toy(*state, TOY TOY_RUN "[warm]\nkind = \"zygote\"\n"
                                                        "command = [\"/bin/sh\", \"{driver}/x\", \"{dir}\", "
                                                        "\"-m{memory}\", \"{cpus}\", \"{out}.log\"]\n");
    struct limits limits = {.value = {[LIMIT_MEMORY] = 64 << 20, [LIMIT_CPUS] = 1500}};
    struct words argv = {0};
    assert_int_equal(language_expand_warm(toy, &toy->warm.run.command, "/work", &limits, &argv, NULL), 0);
    static const char *const expected[] = {"/bin/sh", "/.hotcell/warm/toy/x", "/work", "-m64",
                                           "2",       LANGUAGE_OUT ".log"};
    assert_int_equal(argv.count, sizeof expected / sizeof *expected);
    for (size_t i = 0; i < argv.count; i++)
        assert_string_equal(argv.item[i], expected[i]);
    words_release(&argv);
    language_free(toy);
}

/* ---- contexts ---- */

static void test_a_context_table_is_read(void **state)
{
    struct language *toy = read_toy(*state, TOY TOY_RUN WARM
                                    "import = 'x'\n[[warm.sets]]\nname = \"one\"\nmodules = [\"a\"]\n"
                                    "[context]\ncommand = [\"/bin/sh\", \"{driver}/context\"]\npreload = \"one\"\n");
    assert_true(toy->context.run.present);
    assert_string_equal(toy->context.run.command.item[1], "{driver}/context");
    assert_string_equal(toy->context.preload, "one");
    assert_ptr_equal(language_set_find(toy, "one"), &toy->warm.sets[0]);
    assert_null(language_set_find(toy, "two"));
    language_free(toy);
    toy = read_toy(*state, TOY TOY_RUN);
    assert_false(toy->context.run.present);
    assert_null(toy->context.preload);
    language_free(toy);
}

static void test_mistakes_in_a_context_table_are_refused_with_file_and_line(void **state)
{
    static const struct {
        const char *text, *line, *reason;
    } cases[] = {
        {"[context]\n", "toy.toml:10:", "\"context.command\" is missing"},
        {"[context]\ncommand = [\"/x\", \"{entry}\"]\n", "toy.toml:11:", "{driver}"},
        {"[context]\ncommand = [\"x\"]\n", "toy.toml:11:", "absolute path"},
        {"[context]\ncommand = [\"/x\"]\npreloads = \"a\"\n", "toy.toml:12:", "unknown key \"preloads\" in context"},
        {"[context]\ncommand = [\"/x\"]\npreload = \"a\"\n", "toy.toml:12:", "[[warm.sets]]; it is \"a\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        snprintf(text, sizeof text, "%s%s", TOY TOY_RUN, cases[i].text);
        refuse_toy(*state, text, cases[i].line, cases[i].reason);
    }
}

int main(int count, char **arguments)
{
    if (count == 2 && strcmp(arguments[1], FIND_TOY) == 0)
        return find_toy();
    const struct CMUnitTest tests[] = {
        TEST(test_a_whole_file_is_read),
        TEST(test_every_mistake_is_refused_with_file_and_line),
        TEST(test_lookups_are_read_and_have_a_bound),
        TEST(test_wrong_values_are_refused),
        TEST(test_an_unknown_key_gets_the_nearest_suggested),
        TEST(test_the_built_in_languages_are_all_there),
        TEST(test_no_two_built_in_languages_claim_the_same_alias),
        TEST(test_names_are_found_whatever_their_case_and_spaces),
        TEST(test_files_are_found_by_extension),
        TEST(test_a_file_without_a_known_extension_is_refused),
        TEST(test_an_unknown_name_lists_what_there_is_and_suggests),
        TEST(test_a_folder_of_the_user_adds_and_replaces),
        TEST(test_an_alias_of_an_earlier_folder_wins_but_never_over_a_name),
        TEST(test_one_language_is_found_beside_a_broken_file_of_another),
        TEST(test_a_file_of_the_user_hides_the_built_in_one_of_its_name),
        TEST(test_the_configured_folder_comes_first_and_must_exist),
        TEST(test_a_missing_folder_of_languages_says_how_to_name_it),
        TEST(test_the_build_tree_finds_its_own_languages),
        TEST(test_placeholders_are_filled),
        TEST(test_a_stem_is_the_name_without_folder_and_extension),
        TEST(test_a_warm_table_is_read),
        TEST(test_mistakes_in_a_warm_table_are_refused_with_file_and_line),
        TEST(test_what_is_started_ahead_is_expanded_without_a_program),
        TEST(test_a_context_table_is_read),
        TEST(test_mistakes_in_a_context_table_are_refused_with_file_and_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
