/* The configuration: which file wins, where a value came from, what is refused and how it is said. */
#include "base/fd.h"
#include "run/config.h"
#include "text/json.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
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

struct places { /* an empty machine: no system file, no user's file */
    char root[64], system[128], user[128], extra[128];
};

static void write_text(const char *path, const char *text)
{
    int fd hc_cleanup_fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(hc_write_all(fd, text, strlen(text)), 0);
}

static int set_up(void **state)
{
    static struct places places; /* one test at a time */
    char folder[128];
    strcpy(places.root, "/tmp/hotcell-config-XXXXXX");
    if (!mkdtemp(places.root))
        return -1;
    snprintf(folder, sizeof folder, "%s/user", places.root);
    mkdir(folder, 0755);
    setenv("XDG_CONFIG_HOME", folder, 1);
    setenv("HOTCELL_SYSCONFDIR", places.root, 1);
    snprintf(folder, sizeof folder, "%s/user/hotcell", places.root);
    mkdir(folder, 0755);
    snprintf(places.system, sizeof places.system, "%s/config.toml", places.root);
    snprintf(places.user, sizeof places.user, "%s/user/hotcell/config.toml", places.root);
    snprintf(places.extra, sizeof places.extra, "%s/extra.toml", places.root);
    *state = &places;
    return 0;
}

static int tear_down(void **state)
{
    struct places *places = *state;
    char folder[128];
    unlink(places->system);
    unlink(places->user);
    unlink(places->extra);
    snprintf(folder, sizeof folder, "%s/user/hotcell", places->root);
    rmdir(folder);
    snprintf(folder, sizeof folder, "%s/user", places->root);
    rmdir(folder);
    return rmdir(places->root);
}

static void free_config(struct config **config)
{
    config_free(*config);
}

static struct config *load(const char *path)
{
    struct hc_err err = {0};
    struct config *config = NULL;
    if (config_load(path, &config, &err) < 0)
        fail_msg("refused: %s", err.message);
    return config;
}

static struct hc_err refused(const char *path)
{
    struct hc_err err = {0};
    struct config *config = NULL;
    assert_true(config_load(path, &config, &err) < 0);
    assert_null(config);
    assert_int_not_equal(err.code, 0);
    return err;
}

/* The text as the --config file is refused, and the message ends in `message` after the file's name. */
static void assert_message(struct places *places, const char *text, const char *message, const char *remedy)
{
    write_text(places->extra, text);
    struct hc_err err = refused(places->extra);
    size_t length = strlen(places->extra);
    assert_int_equal(strncmp(err.message, places->extra, length), 0);
    assert_string_equal(err.message + length, message);
    if (remedy)
        assert_string_equal(err.remedy, remedy);
}

static json_t *find_row(json_t *list, const char *key)
{
    size_t i;
    json_t *row;
    json_array_foreach(list, i, row) if (strcmp(json_string_value(json_object_get(row, "key")), key) == 0) return row;
    fail_msg("no row for %s", key);
    return NULL;
}

static json_t *shown(const struct config *config)
{
    char *text hc_cleanup_free = config_to_json(config);
    assert_non_null(text);
    json_t *list = json_loads(text, 0, NULL);
    assert_non_null(list);
    return list;
}

static void test_defaults_need_no_file(void **state)
{
    (void)state;
    struct config *config HC_CLEANUP(free_config) = load(NULL);
    assert_string_equal(config->image, "host");
    assert_string_equal(config->work_dir, "/workspace");
    assert_string_equal(config->default_language, "python");
    assert_true(config->read_only);
    assert_false(config->network_enabled);
    assert_false(config->allow_weak);
    assert_false(config->defaults.set[LIMIT_MEMORY]);
    assert_int_equal(config->read_paths.count, 0);
    assert_string_equal(config->image_etc.item[0], "alternatives");
    for (size_t i = 0; i < config->image_etc.count; i++) /* nothing that tells of the host or its users */
        for (const char *const *bad = (const char *const[]){"passwd", "shadow", "hosts", "hostname", "machine-id",
                                                            "ssh", "ssl", "ssl/private", "resolv.conf", NULL};
             *bad; bad++)
            assert_string_not_equal(config->image_etc.item[i], *bad);
}

static void test_later_files_win_and_origins_are_kept(void **state)
{
    struct places *places = *state;
    write_text(places->system, "[limits]\nmemory = '1g'\npids = 7\ntimeout = 1.5\n");
    write_text(places->user, "[limits]\nmemory = '2g'\npids = 8\n");
    write_text(places->extra, "\n[limits]\nmemory = 3_221_225_472\n");
    struct config *config HC_CLEANUP(free_config) = load(places->extra);
    assert_int_equal(config->defaults.value[LIMIT_MEMORY], 3ull << 30);
    assert_int_equal(config->defaults.value[LIMIT_PIDS], 8);
    assert_int_equal(config->defaults.value[LIMIT_TIMEOUT], 1500000);

    json_t *list hc_cleanup_json = shown(config);
    char origin[160];
    snprintf(origin, sizeof origin, "%s:3", places->extra);
    assert_string_equal(json_string_value(json_object_get(find_row(list, "limits.memory"), "origin")), origin);
    snprintf(origin, sizeof origin, "%s:3", places->user);
    assert_string_equal(json_string_value(json_object_get(find_row(list, "limits.pids"), "origin")), origin);
    assert_string_equal(json_string_value(json_object_get(find_row(list, "limits.disk"), "origin")), "default");
    assert_string_equal(json_string_value(json_object_get(find_row(list, "limits.memory"), "value")), "3 GiB");
    assert_string_equal(json_string_value(json_object_get(find_row(list, "limits.memory"), "default")), "512 MiB");
}

static void test_old_names_are_the_same_settings(void **state)
{
    struct places *places = *state;
    write_text(places->extra,
               "[sandbox]\nuse_sandbox = false\nimage = 'host'\nwork_dir = '/workspace'\nmemory_limit = '64m'\n"
               "cpu_limit = 0.5\ntimeout = 300\nnetwork_enabled = false\npids_limit = 50\n");
    struct config *config HC_CLEANUP(free_config) = load(places->extra);
    assert_int_equal(config->defaults.value[LIMIT_MEMORY], 64 << 20);
    assert_int_equal(config->defaults.value[LIMIT_CPUS], 500);
    assert_int_equal(config->defaults.value[LIMIT_TIMEOUT], 300000000);
    assert_int_equal(config->defaults.value[LIMIT_PIDS], 50);
    assert_false(config->use_sandbox);
}

static void test_one_setting_under_two_names_in_one_file_is_refused(void **state)
{
    struct places *places = *state;
    write_text(places->extra, "[sandbox]\nmemory_limit = '64m'\n[limits]\nmemory = '1g'\n");
    struct hc_err err = refused(places->extra);
    assert_non_null(strstr(err.message, ":4: limits.memory is set already in "));
    assert_non_null(strstr(err.message, "extra.toml:2"));
}

static void test_environment_beats_files(void **state)
{
    struct places *places = *state;
    write_text(places->extra, "[limits]\npids = 7\n[mounts]\nallowed_read_paths = ['/a']\n");
    setenv("HOTCELL_LIMITS_PIDS", "9", 1);
    setenv("HOTCELL_MOUNTS_ALLOWED_READ_PATHS", "['/b', '/c']", 1);
    struct config *config HC_CLEANUP(free_config) = load(places->extra);
    setenv("HOTCELL_LIMITS_PIDS", "many", 1);
    struct hc_err err = refused(places->extra);
    unsetenv("HOTCELL_LIMITS_PIDS");
    unsetenv("HOTCELL_MOUNTS_ALLOWED_READ_PATHS");
    assert_int_equal(config->defaults.value[LIMIT_PIDS], 9);
    assert_int_equal(config->read_paths.count, 2);
    assert_string_equal(config->read_paths.item[1], "/c");
    assert_non_null(strstr(err.message, "environment variable HOTCELL_LIMITS_PIDS"));
    json_t *list hc_cleanup_json = shown(config);
    assert_string_equal(json_string_value(json_object_get(find_row(list, "limits.pids"), "origin")),
                        "HOTCELL_LIMITS_PIDS");
}

static void test_errors_have_line_expected_and_found(void **state)
{
    struct places *places = *state;
    assert_message(places, "[sandbox]\nread_only = 'yes'\n",
                   ":2: sandbox.read_only: expected true or false, found the string \"yes\"", NULL);
    assert_message(places, "[limits]\n\nmemory = true\n",
                   ":3: limits.memory: expected a number of bytes or a string such as \"512m\", found true", NULL);
    assert_message(places, "[mounts]\nallowed_read_paths = '/data'\n",
                   ":2: mounts.allowed_read_paths: expected an array of paths such as [\"/data\"], found the string "
                   "\"/data\"",
                   NULL);
    assert_message(places, "[mounts]\nallowed_read_paths = ['data']\n",
                   ":2: mounts.allowed_read_paths: expected an absolute path, found \"data\"", NULL);
    assert_message(places, "[isolation]\nuid_count = -1\n",
                   ":2: isolation.uid_count: expected a whole number of 0 or more, found -1", NULL);
    assert_message(places, "[languages]\ndefault = ''\n",
                   ":2: languages.default: expected a name, found an empty string", NULL);
    assert_message(places, "[image]\netc = ['../root']\n",
                   ":2: image.etc: expected a name below /etc such as \"fonts\", \"ssl/certs\" or \"java-*\", found "
                   "\"../root\"",
                   NULL);
    assert_message(places, "[limits\n", ":1:8: expected ']', found the end of the line", NULL);
}

static void test_wrong_names_get_the_nearest_right_one(void **state)
{
    struct places *places = *state;
    assert_message(places, "[limits]\nmemroy = '1g'\n", ":2: unknown key 'memroy' in [limits]",
                   "did you mean 'memory'?");
    assert_message(places, "[limit]\n", ":1: unknown section [limit]", "did you mean [limits]?");
    assert_message(places, "[mounts]\npids = 3\n", ":2: unknown key 'pids' in [mounts]", "'pids' belongs in [limits]");
    assert_message(places, "default = 'ruby'\n", ":1: 'default' is outside of any section",
                   "put it under a line that says [languages]");
    assert_message(places, "[isolation]\nzzzzzzzz = 1\n", ":2: unknown key 'zzzzzzzz' in [isolation]",
                   "the keys of [isolation] are allow_weak, uid_base, uid_count");
    assert_message(places, "[\"\\u001b[2J\"]\n", ":1: unknown section [?[2J]", NULL);
}

static void test_limits_are_never_unlimited_by_a_wrong_value(void **state)
{
    struct places *places = *state;
    static const char *const wrong[] = {
        "memory = -1",
        "memory = 'NaN'",
        "memory = nan",
        "memory = inf",
        "memory = 0",
        "memory = '-1'",
        "memory = 1e300",
        "cpus = -0.5",
        "pids = 1.5",
        "timeout = 0",
        "timeout = -inf",
        "pids = 0",
        "memory = '512q'",
        "memory = ''",
        "pids = '1e3'",
        "output = 0.5",
        "disk = []",
        "cpus = {}",
        "memory = '9999999999999999999g'",
        "pids = 9223372036854775807",
        "timeout = 2024-01-01",
        "memory = \"1g\\u0000\"",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        for (int ceiling = 0; ceiling < 2; ceiling++) {
            char text[128];
            snprintf(text, sizeof text, "[%s]\n%s\n", ceiling ? "ceilings" : "limits", wrong[i]);
            write_text(places->extra, text);
            struct hc_err err = refused(places->extra);
            assert_non_null(strstr(err.message, "extra.toml:2: "));
            assert_int_equal(strncmp(err.field, ceiling ? "ceilings." : "limits.", ceiling ? 9 : 7), 0);
        }
    }
}

static void test_ceilings_are_shown_as_null_until_set(void **state)
{
    struct places *places = *state;
    write_text(places->extra, "[ceilings]\nmemory = '1g'\n");
    struct config *config HC_CLEANUP(free_config) = load(places->extra);
    json_t *list hc_cleanup_json = shown(config);
    assert_true(config->ceilings.set[LIMIT_MEMORY]);
    assert_string_equal(json_string_value(json_object_get(find_row(list, "ceilings.memory"), "value")), "1 GiB");
    assert_true(json_is_null(json_object_get(find_row(list, "ceilings.memory"), "default")));
    assert_true(json_is_null(json_object_get(find_row(list, "ceilings.pids"), "value")));
}

static void test_what_is_shown_can_be_set_again(void **state)
{
    struct places *places = *state;
    write_text(places->extra, "[limits]\nmemory = 123456789\ntimeout = 0.123457\ncpus = 1.25\ncpu_time = '90s'\n");
    struct config *config HC_CLEANUP(free_config) = load(places->extra);
    struct config *again HC_CLEANUP(free_config) = load(NULL);
    json_t *list hc_cleanup_json = shown(config), *row;
    size_t i;
    json_array_foreach(list, i, row)
    {
        json_t *value = json_object_get(row, "value");
        char *text hc_cleanup_free = json_is_string(value)
                                         ? strdup(json_string_value(value))
                                         : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
        struct hc_err err = {0};
        if (json_is_null(value) || strcmp(text, "none") == 0)
            continue;
        if (config_set(again, json_string_value(json_object_get(row, "key")), text, "test", &err) < 0)
            fail_msg("%s", err.message);
    }
    static const enum limit_id ids[] = {LIMIT_MEMORY, LIMIT_TIMEOUT, LIMIT_CPUS, LIMIT_CPU_TIME};
    for (i = 0; i < 4; i++)
        assert_int_equal(again->defaults.value[ids[i]], config->defaults.value[ids[i]]);
    assert_int_equal(again->image_etc.count, config->image_etc.count);
}

static void test_setting_one_key_from_text(void **state)
{
    (void)state;
    struct config *config HC_CLEANUP(free_config) = load(NULL);
    struct hc_err err = {0};
    assert_int_equal(config_set(config, "limits.memory", "64m", "--memory", &err), 0);
    assert_int_equal(config_set(config, "sandbox.timeout", "2m", "--timeout", &err), 0);
    assert_int_equal(config_set(config, "isolation.allow_weak", "true", "--allow-weak", &err), 0);
    assert_int_equal(config_set(config, "mounts.allowed_write_paths", "/data \"x\"", "test", &err), 0);
    assert_int_equal(config->defaults.value[LIMIT_MEMORY], 64 << 20);
    assert_int_equal(config->defaults.value[LIMIT_TIMEOUT], 120000000);
    assert_true(config->allow_weak);
    assert_string_equal(config->write_paths.item[0], "/data \"x\"");

    static const char *const wrong[][2] = {{"limits.memory", "lots"},
                                           {"limits.memori", "1g"},
                                           {"memory", "1g"},
                                           {"isolation.allow_weak", "1"},
                                           {"isolation.allow_weak", "true\nx = 1"},
                                           {"isolation.uid_base", "two"},
                                           {"sandbox.work_dir", "work"},
                                           {"sandbox.work_dir", "/proc/x"},
                                           {"sandbox.work_dir", "/a/../b"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        hc_err_clear(&err);
        assert_true(config_set(config, wrong[i][0], wrong[i][1], "test", &err) < 0);
        assert_int_equal(err.class, HC_CLASS_REQUEST);
    }
    assert_int_equal(config->defaults.value[LIMIT_MEMORY], 64 << 20);
    assert_string_equal(config->work_dir, "/workspace");
}

static void test_home_is_expanded_in_paths(void **state)
{
    struct places *places = *state;
    write_text(places->extra, "[mounts]\nallowed_read_paths = ['~/data', '~', '/x/~']\n");
    char *home hc_cleanup_free = getenv("HOME") ? strdup(getenv("HOME")) : NULL;
    setenv("HOME", "/srv/someone", 1);
    struct config *config HC_CLEANUP(free_config) = load(places->extra);
    if (home)
        setenv("HOME", home, 1);
    assert_string_equal(config->read_paths.item[0], "/srv/someone/data");
    assert_string_equal(config->read_paths.item[1], "/srv/someone");
    assert_string_equal(config->read_paths.item[2], "/x/~");
}

static void test_uids_of_real_users_cannot_be_taken(void **state)
{
    struct places *places = *state;
    write_text(places->extra, "[isolation]\nuid_base = 1000\nuid_count = 10\n");
    assert_non_null(strstr(refused(places->extra).message, "extra.toml:2: isolation.uid_base"));
    write_text(places->extra, "[isolation]\nuid_base = 4294967000\nuid_count = 1000\n");
    assert_non_null(strstr(refused(places->extra).message, "past the last uid"));
    write_text(places->extra, "[isolation]\nuid_base = 100000\nuid_count = 65536\n");
    struct config *config HC_CLEANUP(free_config) = load(places->extra);
    assert_int_equal(config->uid_base, 100000);
}

static void test_what_waits_is_within_bounds(void **state)
{
    static const struct {
        const char *key, *value, *reason;
    } cases[] = {
        {"POOL_MAX", "1001", "at most 1000"},   {"POOL_MIN", "17", "at most max, which is 16"},
        {"WARM_FORKS", "0", "expected 1 to"},   {"WARM_AGE", "0", "expected a time"},
        {"WARM_PRIMED_MIN", "5", "primed_max"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config *config = NULL;
        struct hc_err err = {0};
        char name[64];
        snprintf(name, sizeof name, "HOTCELL_%s", cases[i].key);
        setenv(name, cases[i].value, 1);
        assert_true(config_load(NULL, &config, &err) < 0);
        unsetenv(name);
        if (!strstr(err.message, cases[i].reason) || !strstr(err.message, name))
            fail_msg("%s: %s", cases[i].reason, err.message);
    }
    struct config *config = NULL;
    setenv("HOTCELL_POOL_MAX", "0", 1); /* turns it off, whatever the least is */
    assert_int_equal(config_load(NULL, &config, NULL), 0);
    unsetenv("HOTCELL_POOL_MAX");
    assert_int_equal(config->pool.most, 0);
    config_free(config);
}

static void test_the_named_file_must_exist_and_be_a_file(void **state)
{
    struct places *places = *state;
    assert_int_equal(refused("/nonexistent/hotcell.toml").code, ENOENT);
    assert_non_null(strstr(refused(places->root).message, "is not a regular file"));
    assert_int_equal(mkfifo(places->extra, 0600), 0);
    assert_non_null(strstr(refused(places->extra).message, "is not a regular file"));
}

static void test_a_standard_file_that_is_a_folder_is_an_error(void **state)
{
    struct places *places = *state;
    assert_int_equal(mkdir(places->user, 0755), 0);
    struct hc_err err = refused(NULL);
    assert_int_equal(rmdir(places->user), 0);
    assert_non_null(strstr(err.message, "user/hotcell/config.toml"));
}

static bool says(const char *path, const char *message, const char *remedy)
{
    struct hc_err err = {0};
    struct config *config = NULL;
    return config_load(path, &config, &err) == -EACCES && strstr(err.message, message) && strstr(err.remedy, remedy);
}

/* As root, or as root of a user namespace: then a file of another user is one of the real root's. */
static int refuse_as_root(struct places *places)
{
    uid_t uid = getuid();
    char map[32];
    snprintf(map, sizeof map, "0 %u 1", (unsigned)uid);
    if (uid != 0 && (unshare(CLONE_NEWUSER) < 0 || hc_write_file_at(AT_FDCWD, "/proc/self/uid_map", map) < 0))
        return 10;
    if (chmod(places->extra, 0664) < 0 || !says(places->extra, "writable by its group (mode 0664)", "chmod go-w "))
        return 1;
    if (chmod(places->extra, 0646) < 0 || !says(places->extra, "writable by everyone", "chmod go-w "))
        return 2;
    if (chmod(places->extra, 0644) < 0)
        return 3;
    struct config *config HC_CLEANUP(free_config) = load(places->extra);
    if (config->defaults.value[LIMIT_PIDS] != 7)
        return 4;
    if (uid == 0 && chown(places->extra, 1234, 1234) < 0)
        return 5;
    return says(uid == 0 ? places->extra : "/etc/passwd", "belongs to uid ", "chown root:root ") ? 0 : 6;
}

static void test_root_refuses_a_file_that_others_can_write(void **state)
{
    write_text(((struct places *)*state)->extra, "[limits]\npids = 7\n");
    pid_t child = fork();
    if (child == 0)
        _exit(refuse_as_root(*state));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_an_unreadable_standard_file_is_an_error(void **state)
{
    struct places *places = *state;
    write_text(places->system, "[limits]\npids = 7\n");
    chmod(places->system, 0);
    chmod(places->root, 0755);
    pid_t child = fork();
    if (child == 0) { /* root reads everything, so look with other eyes */
        if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
            _exit(3);
        struct hc_err err = {0};
        struct config *config = NULL;
        int rc = config_load(NULL, &config, &err);
        _exit(rc == -EACCES && strstr(err.message, "cannot read the configuration file") ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_defaults_need_no_file),
        CASE(test_later_files_win_and_origins_are_kept),
        CASE(test_old_names_are_the_same_settings),
        CASE(test_one_setting_under_two_names_in_one_file_is_refused),
        CASE(test_environment_beats_files),
        CASE(test_errors_have_line_expected_and_found),
        CASE(test_wrong_names_get_the_nearest_right_one),
        CASE(test_limits_are_never_unlimited_by_a_wrong_value),
        CASE(test_ceilings_are_shown_as_null_until_set),
        CASE(test_what_is_shown_can_be_set_again),
        CASE(test_setting_one_key_from_text),
        CASE(test_home_is_expanded_in_paths),
        CASE(test_uids_of_real_users_cannot_be_taken),
        CASE(test_what_waits_is_within_bounds),
        CASE(test_the_named_file_must_exist_and_be_a_file),
        CASE(test_a_standard_file_that_is_a_folder_is_an_error),
        CASE(test_root_refuses_a_file_that_others_can_write),
        CASE(test_an_unreadable_standard_file_is_an_error),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
