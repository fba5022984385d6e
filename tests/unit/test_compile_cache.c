/* Compiles that are kept: what makes two of them the same, how much is kept, and of whom. */
#include "gateway/compile_cache.h"
#include "language_folder.h"

#define TOY_COMPILE "[compile]\ncommand = [\"/bin/sh\", \"-c\", \"cp {entry} {out}\"]\n"

/* ---- keys ---- */

struct setting {
    struct config *config;
    struct request *request;
};

/* A request for the toy language, whose compiler is a file of the test's own. */
static struct setting begin(const struct folder *folder, const char *code)
{
    struct setting setting = {.request = request_new()};
    struct hc_err err = {0};
    hc_cleanup_free char *tool = in(folder, "bin/tool");
    hc_cleanup_free char *text = NULL;
    assert_true(asprintf(&text,
                         "name = \"toy\"\ntitle = \"Toy\"\nextensions = [\".toy\"]\nfile = \"main.toy\"\n"
                         "needs = [\"/bin/sh\", \"%s\"]\n" TOY_COMPILE TOY_RUN,
                         tool) > 0);
    write_file(folder, USER_FOLDER "toy.toml", text);
    if (access(tool, F_OK) < 0)
        write_file(folder, "bin/tool", "tool");
    assert_int_equal(config_load(NULL, &setting.config, &err), 0);
    assert_int_equal(request_set(setting.request, "language", "toy", &err), 0);
    assert_int_equal(request_set_code(setting.request, code, strlen(code), &err), 0);
    return setting;
}

/* Whether it has a key. Ends the setting. */
static bool key_of(struct setting setting, const char *tenant, struct compile_key *key)
{
    struct plan plan;
    struct hc_err err = {0};
    if (plan_make(setting.config, setting.request, &plan, &err) < 0)
        fail_msg("%s", err.message);
    memset(key, 0, sizeof *key);
    bool has = compile_cache_key(&plan, tenant, key);
    plan_release(&plan);
    request_free(setting.request);
    config_free(setting.config);
    return has;
}

static struct compile_key key_for(const struct folder *folder, const char *code, const char *tenant)
{
    struct compile_key key;
    assert_true(key_of(begin(folder, code), tenant, &key));
    return key;
}

static bool same(const struct compile_key *a, const struct compile_key *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static void test_a_key_is_of_all_that_decides_a_compile(void **state)
{
    struct compile_key usual = key_for(*state, "1", "ada"), key;
    key = key_for(*state, "1", "ada");
    assert_true(same(&usual, &key));
    key = key_for(*state, "2", "ada");
    assert_false(same(&usual, &key));
    key = key_for(*state, "1", "bob");
    assert_false(same(&usual, &key));

    struct setting setting = begin(*state, "1");
    request_add_env(setting.request, "X", "1", NULL);
    assert_true(key_of(setting, "ada", &key));
    assert_false(same(&usual, &key));

    setting = begin(*state, "1");
    request_add_file(setting.request, "a.h", "", 0, 0644, NULL);
    assert_true(key_of(setting, "ada", &key));
    assert_false(same(&usual, &key));

    setting = begin(*state, "1");
    request_set(setting.request, "entry", "other.toy", NULL);
    assert_true(key_of(setting, "ada", &key));
    assert_false(same(&usual, &key));

    setting = begin(*state, "1");
    request_set(setting.request, "limits.cpus", "0.5", NULL);
    assert_true(key_of(setting, "ada", &key));
    assert_false(same(&usual, &key));
}

static void test_input_and_arguments_are_not_in_a_key(void **state)
{
    struct compile_key usual = key_for(*state, "1", "ada"), key;
    struct setting setting = begin(*state, "1");
    request_set_input(setting.request, "in", 2, NULL);
    request_add_arg(setting.request, "x", NULL);
    request_add_collect(setting.request, "*", NULL);
    assert_true(key_of(setting, "ada", &key));
    assert_true(same(&usual, &key));
}

static void test_words_cannot_be_moved_from_one_part_of_a_key_to_another(void **state)
{
    struct compile_key one, two;
    struct setting setting = begin(*state, "1");
    request_add_env(setting.request, "A", "1\nB=2", NULL);
    assert_true(key_of(setting, "ada", &one));
    setting = begin(*state, "1");
    request_add_env(setting.request, "A", "1", NULL);
    request_add_env(setting.request, "B", "2", NULL);
    assert_true(key_of(setting, "ada", &two));
    assert_false(same(&one, &two));
}

static void test_a_tool_that_changed_is_another(void **state)
{
    struct compile_key usual = key_for(*state, "1", "ada"), key;
    write_file(*state, "bin/tool", "tool, the second");
    key = key_for(*state, "1", "ada");
    assert_false(same(&usual, &key));
    usual = key;
    write_file(*state, "bin/part", "beside it");
    key = key_for(*state, "1", "ada");
    assert_false(same(&usual, &key));
}

static void test_what_no_key_covers_has_none(void **state)
{
    struct compile_key key;
    struct setting setting = begin(*state, "1");
    setting.request->no_cache = true;
    assert_false(key_of(setting, "ada", &key));

    setting = begin(*state, "1");
    setting.request->read_only = 0;
    assert_false(key_of(setting, "ada", &key));

    setting = begin(*state, "1");
    setting.request->stages = calloc(1, sizeof *setting.request->stages);
    setting.request->stage_count = 1;
    words_add(&setting.request->stages[0].command, "/bin/true");
    assert_false(key_of(setting, "ada", &key));

    setting = begin(*state, "1");
    request_set(setting.request, "language", "sh", NULL);
    assert_false(key_of(setting, "ada", &key));
}

/* ---- entries ---- */

enum { SIZE = 1 << 20 };

static struct compile_key number(unsigned n)
{
    struct compile_key key = {{(unsigned char)(n >> 8), (unsigned char)n, 1}};
    return key;
}

static void add(struct compile_cache *cache, const char *tenant, unsigned n, size_t bytes, uint64_t size)
{
    struct compile_key key = number(n);
    struct snapshot files;
    struct capture output;
    snapshot_init(&files);
    files.fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    files.size = bytes;
    capture_init(&output, 100);
    capture_add(&output, "warning", 7);
    compile_cache_add(cache, tenant, &key, &files, &output, size);
    capture_release(&output);
    snapshot_release(&files);
}

static const struct drive_kept *find(struct compile_cache *cache, const char *tenant, unsigned n)
{
    struct compile_key key = number(n);
    return compile_cache_find(cache, tenant, &key);
}

static struct compile_cache_stats stats_of(const struct compile_cache *cache)
{
    struct compile_cache_stats stats;
    compile_cache_stats(cache, &stats);
    return stats;
}

static void test_what_was_kept_is_found_by_its_tenant_alone(void **state)
{
    (void)state;
    struct compile_cache *cache = compile_cache_new();
    assert_null(find(cache, "ada", 1));
    add(cache, "ada", 1, 1000, SIZE);
    const struct drive_kept *kept = find(cache, "ada", 1);
    assert_non_null(kept);
    assert_int_equal(kept->files.size, 1000);
    assert_true(kept->files.fd >= 0);
    assert_int_equal(kept->output.head_length, 7);
    assert_memory_equal(kept->output.head, "warning", 7);
    assert_null(find(cache, "bob", 1));
    assert_null(find(cache, "ada", 2));
    struct compile_cache_stats stats = stats_of(cache);
    assert_int_equal(stats.entries, 1);
    assert_int_equal(stats.hits, 1);
    assert_int_equal(stats.misses, 3);
    compile_cache_free(cache);
}

static void test_the_same_key_has_one_entry(void **state)
{
    (void)state;
    struct compile_cache *cache = compile_cache_new();
    add(cache, "ada", 1, 1000, SIZE);
    uint64_t bytes = stats_of(cache).bytes;
    add(cache, "ada", 1, 2000, SIZE);
    assert_int_equal(stats_of(cache).entries, 1);
    assert_int_equal(stats_of(cache).bytes, bytes + 1000);
    assert_int_equal(find(cache, "ada", 1)->files.size, 2000);
    compile_cache_free(cache);
}

static void test_what_was_used_least_lately_goes_first(void **state)
{
    (void)state;
    struct compile_cache *cache = compile_cache_new();
    for (unsigned n = 0; n < 4; n++)
        add(cache, "ada", n, SIZE / 5, SIZE);
    assert_non_null(find(cache, "ada", 0));
    add(cache, "ada", 4, SIZE / 4, SIZE);
    assert_non_null(find(cache, "ada", 0));
    assert_null(find(cache, "ada", 1));
    assert_non_null(find(cache, "ada", 2));
    assert_true(stats_of(cache).bytes <= SIZE);
    compile_cache_free(cache);
}

static void test_the_tenant_that_holds_the_most_pays(void **state)
{
    (void)state;
    struct compile_cache *cache = compile_cache_new();
    add(cache, "quiet", 1, SIZE / 8, SIZE);
    for (unsigned n = 0; n < 100; n++) {
        add(cache, "flood", n, SIZE / 6, SIZE);
        assert_true(stats_of(cache).bytes <= SIZE);
    }
    assert_non_null(find(cache, "quiet", 1));
    assert_non_null(find(cache, "flood", 99));
    assert_null(find(cache, "flood", 0));
    compile_cache_free(cache);
}

static void test_number_and_size_of_entries_are_bounded(void **state)
{
    (void)state;
    struct compile_cache *cache = compile_cache_new();
    for (unsigned n = 0; n < COMPILE_CACHE_ENTRIES + 100; n++)
        add(cache, "ada", n, 1, 64 << 20);
    assert_int_equal(stats_of(cache).entries, COMPILE_CACHE_ENTRIES);
    add(cache, "ada", 60000, SIZE / 4 + 1, SIZE);
    assert_null(find(cache, "ada", 60000));
    compile_cache_trim(cache, 0);
    assert_int_equal(stats_of(cache).entries, 0);
    assert_int_equal(stats_of(cache).bytes, 0);
    compile_cache_free(cache);
}

static void test_output_that_is_not_whole_is_not_kept(void **state)
{
    (void)state;
    struct compile_cache *cache = compile_cache_new();
    struct compile_key key = number(1);
    struct snapshot files;
    struct capture output;
    snapshot_init(&files);
    files.fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    capture_init(&output, 4);
    capture_add(&output, "more than four", 14);
    compile_cache_add(cache, "ada", &key, &files, &output, SIZE);
    assert_true(files.fd >= 0);
    assert_null(find(cache, "ada", 1));
    capture_release(&output);
    snapshot_release(&files);
    compile_cache_free(cache);
}

static void test_a_key_is_seen_the_second_time(void **state)
{
    (void)state;
    struct compile_cache *cache = compile_cache_new();
    struct compile_key one = number(1), two = number(2);
    assert_false(compile_cache_seen(cache, &one));
    assert_false(compile_cache_seen(cache, &two));
    assert_true(compile_cache_seen(cache, &one));
    assert_true(compile_cache_seen(cache, &two));
    compile_cache_free(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_key_is_of_all_that_decides_a_compile),
        TEST(test_input_and_arguments_are_not_in_a_key),
        TEST(test_words_cannot_be_moved_from_one_part_of_a_key_to_another),
        TEST(test_a_tool_that_changed_is_another),
        TEST(test_what_no_key_covers_has_none),
        cmocka_unit_test(test_what_was_kept_is_found_by_its_tenant_alone),
        cmocka_unit_test(test_the_same_key_has_one_entry),
        cmocka_unit_test(test_what_was_used_least_lately_goes_first),
        cmocka_unit_test(test_the_tenant_that_holds_the_most_pays),
        cmocka_unit_test(test_number_and_size_of_entries_are_bounded),
        cmocka_unit_test(test_output_that_is_not_whole_is_not_kept),
        cmocka_unit_test(test_a_key_is_seen_the_second_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
