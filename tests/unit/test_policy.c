/*
 * The mount policy. Each refusal has its control beside it: the same folder, or one like it, is mounted where the rule
 * does not apply, so a policy that refused everything would fail here as well.
 */
#include "base/fd.h"
#include "run/policy.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct world {
    char root[64]; /* data/ data/out/ data/ref/ data/file data-x/ secret/ link -> data, and more by the tests */
    struct config *config;
};

static const char *in(const struct world *world, const char *name)
{
    static char path[4][PATH_MAX];
    static unsigned turn;
    char *text = path[turn++ % 4];
    snprintf(text, PATH_MAX, "%s/%s", world->root, name);
    return text;
}

static void set(struct world *world, const char *key, const char *first, const char *second)
{
    char text[PATH_MAX * 2];
    struct hc_err err = {0};
    if (second)
        snprintf(text, sizeof text, "['%s', '%s']", first, second);
    else if (first)
        snprintf(text, sizeof text, "['%s']", first);
    else
        strcpy(text, "[]");
    if (config_set(world->config, key, text, "test", &err) < 0)
        fail_msg("%s", err.message);
}

static void allow_read(struct world *world, const char *path)
{
    set(world, "mounts.allowed_read_paths", path, NULL);
}

static void allow_write(struct world *world, const char *path)
{
    set(world, "mounts.allowed_write_paths", path, NULL);
}

static int set_up(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    struct hc_err err = {0};
    strcpy(world->root, "/tmp/hotcell-policy-XXXXXX");
    if (!mkdtemp(world->root))
        return -1;
    setenv("HOTCELL_SYSCONFDIR", world->root, 1);
    setenv("XDG_CONFIG_HOME", world->root, 1);
    if (config_load(NULL, &world->config, &err) < 0)
        return -1;
    static const char *const folders[] = {"data", "data/out", "data/ref", "data-x", "secret"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        mkdir(in(world, folders[i]), 0755);
    int fd hc_cleanup_fd = open(in(world, "data/file"), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    *state = world;
    return fd >= 0 && symlink("data", in(world, "link")) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
    struct world *world = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf --one-file-system '%s'", world->root);
    int rc = system(command);
    config_free(world->config);
    free(world);
    return rc;
}

static int try_mount(const struct world *world, const char *host, bool read_only, struct hc_err *err)
{
    char path[] = "/data";
    struct request_mount mount = {.host = (char *)host, .path = path, .read_only = read_only};
    struct policy_mount opened = {.fd = -1};
    *err = (struct hc_err){0};
    int rc = policy_open(world->config, &mount, &opened, err);
    if (rc < 0) {
        assert_int_equal(opened.fd, -1);
        return rc;
    }
    /* What is handed on is what was named, by its real path. */
    struct stat by_fd, by_name;
    assert_int_equal(fstat(opened.fd, &by_fd), 0);
    assert_int_equal(stat(opened.host, &by_name), 0);
    assert_true(by_fd.st_dev == by_name.st_dev && by_fd.st_ino == by_name.st_ino);
    assert_int_equal(opened.read_only, read_only);
    assert_string_equal(opened.path, "/data");
    hc_close(opened.fd);
    return 0;
}

static void assert_mounts(const struct world *world, const char *host, bool read_only)
{
    struct hc_err err;
    if (try_mount(world, host, read_only, &err) < 0)
        fail_msg("%s: %s", host, err.message);
}

static void assert_denied(const struct world *world, const char *host, bool read_only, const char *rule)
{
    struct hc_err err;
    if (try_mount(world, host, read_only, &err) >= 0)
        fail_msg("%s was allowed", host);
    assert_int_equal(err.class, HC_CLASS_REQUEST);
    if (rule && !strstr(err.message, rule))
        fail_msg("%s: expected the rule '%s' in: %s", host, rule, err.message);
}

static void test_an_empty_allow_list_denies_and_says_what_to_add(void **state)
{
    struct world *world = *state;
    struct hc_err err;
    assert_int_equal(try_mount(world, in(world, "data"), true, &err), -EACCES);
    assert_non_null(strstr(err.message, "mounts.allowed_read_paths, which is empty"));
    assert_non_null(strstr(err.remedy, "[mounts]: allowed_read_paths = [\"/tmp/hotcell-policy-"));
    assert_int_equal(try_mount(world, in(world, "data"), false, &err), -EACCES);
    assert_non_null(strstr(err.remedy, "allowed_write_paths = [\""));
}

static void test_allowed_folders_and_what_is_in_them(void **state)
{
    struct world *world = *state;
    allow_read(world, in(world, "data"));
    assert_mounts(world, in(world, "data"), true);
    assert_mounts(world, in(world, "data/"), true);
    assert_mounts(world, in(world, "data/out"), true);
    assert_mounts(world, in(world, "data/file"), true);
    assert_mounts(world, in(world, "link/out"), true);
    assert_mounts(world, in(world, "secret/../data/./out//"), true);
    assert_denied(world, in(world, "secret"), true, "under none of mounts.allowed_read_paths");
    assert_denied(world, in(world, "data/../secret"), true, "under none of");
    assert_denied(world, in(world, "data-x"), true, "under none of");
    assert_denied(world, in(world, "data/absent"), true, "no such file");
    assert_denied(world, in(world, ""), true, "under none of");
}

static void test_an_allow_list_may_name_a_symlink(void **state)
{
    struct world *world = *state;
    allow_read(world, in(world, "link"));
    assert_mounts(world, in(world, "data/out"), true);
    assert_denied(world, in(world, "secret"), true, "under none of");
}

static void test_a_symlink_out_of_the_allowed_folder_is_followed_before_the_check(void **state)
{
    struct world *world = *state;
    allow_read(world, in(world, "data"));
    assert_int_equal(symlink("../secret", in(world, "data/escape")), 0);
    assert_int_equal(symlink("/etc", in(world, "data/etc")), 0);
    assert_int_equal(symlink("/", in(world, "data/all")), 0);
    assert_denied(world, in(world, "data/escape"), true, "under none of");
    assert_denied(world, in(world, "data/etc"), true, "parent of /etc/shadow");
    assert_denied(world, in(world, "data/etc/shadow"), true, "/etc/shadow is forbidden");
    assert_denied(world, in(world, "data/all"), true, "parent of");
}

static void test_writable_needs_the_write_list(void **state)
{
    struct world *world = *state;
    allow_read(world, in(world, "data"));
    assert_denied(world, in(world, "data"), false, "allowed read-only");
    assert_denied(world, in(world, "data/out"), false, "allowed read-only");
    allow_write(world, in(world, "data/out"));
    assert_mounts(world, in(world, "data/out"), false);
    assert_mounts(world, in(world, "data/out"), true);
    assert_denied(world, in(world, "data"), false, "allowed read-only");
}

static void test_a_read_only_folder_inside_a_writable_one_stays_read_only(void **state)
{
    struct world *world = *state;
    allow_write(world, in(world, "data"));
    assert_mounts(world, in(world, "data"), false);
    allow_read(world, in(world, "data/ref"));
    assert_denied(world, in(world, "data/ref"), false, "allowed read-only");
    assert_denied(world, in(world, "data"), false, "holds");
    assert_mounts(world, in(world, "data/ref"), true);
    assert_mounts(world, in(world, "data/out"), false);
}

static void test_forbidden_beats_allowed(void **state)
{
    struct world *world = *state;
    allow_write(world, "/");
    assert_mounts(world, in(world, "data"), false);
    set(world, "mounts.forbidden_paths", in(world, "secret"), in(world, "data/ref"));
    assert_denied(world, in(world, "secret"), true, "mounts.forbidden_paths has it");
    assert_denied(world, in(world, "data/ref"), true, "forbidden");
    assert_denied(world, in(world, "data"), true, "is a parent of");
    assert_mounts(world, in(world, "data/out"), true);
    assert_mounts(world, in(world, "data-x"), true);
}

static void test_a_forbidden_symlink_forbids_what_it_leads_to(void **state)
{
    struct world *world = *state;
    allow_read(world, world->root);
    assert_mounts(world, in(world, "data/out"), true);
    set(world, "mounts.forbidden_paths", in(world, "link/"), NULL);
    assert_denied(world, in(world, "data/out"), true, "under");
    assert_mounts(world, in(world, "data-x"), true);
}

/* ATTACKS.md 95 and 96. */
static void test_the_built_in_list_holds_whatever_is_allowed(void **state)
{
    struct world *world = *state;
    static const char *const denied[] = {
        "/",
        "//",
        "/.",
        "/proc",
        "/proc/",
        "/proc/self",
        "/proc/sys/kernel",
        "/sys",
        "/dev",
        "/dev/shm",
        "/dev/null",
        "/run",
        "/var/run",
        "/etc",
        "/etc/passwd",
        "/etc/./shadow",
        "/etc//shadow",
        "/etc/ssl/../shadow",
        "/var",
        "/var/lib",
        "/home",
        "/root",
        "/root/",
        "/usr/../root",
    };
    allow_write(world, "/");
    for (size_t i = 0; i < sizeof denied / sizeof *denied; i++) {
        struct hc_err err;
        int rc = try_mount(world, denied[i], true, &err);
        if (rc == -ENOENT && access(denied[i], F_OK) < 0)
            continue; /* not on this machine */
        if (rc != -EACCES)
            fail_msg("%s: %d %s", denied[i], rc, err.message);
        assert_true(try_mount(world, denied[i], false, &err) < 0);
    }
    assert_mounts(world, "/usr", true);
    assert_mounts(world, "/etc/ssl/certs", true);
}

static void test_names_are_forbidden_before_they_exist(void **state)
{
    struct world *world = *state;
    char why[8192];
    static const char *const denied[] = {
        "/run/docker.sock", "/run/hotcell/x", "/var/lib/hotcell",  "/var/cache/hotcell",
        "/etc/hotcell",     "/boot/vmlinuz",  "/home/nobody-here", "/home/nobody-here/x",
        "/root/.ssh",       "/sys/fs",        "/var/lib/docker/x", "/"};
    allow_write(world, "/");
    for (size_t i = 0; i < sizeof denied / sizeof *denied; i++)
        if (!policy_check(world->config, denied[i], false, why, sizeof why))
            fail_msg("%s was allowed", denied[i]);
    static const char *const fine[] = {"/srv/data", "/rooted",      "/runner/x",
                                       "/homes/x",  "/development", "/var/lib/hotcell-x"};
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
        if (policy_check(world->config, fine[i], true, why, sizeof why))
            fail_msg("%s: %s", fine[i], why);
}

/* ATTACKS.md 97. */
static void test_magic_links_are_not_followed(void **state)
{
    struct world *world = *state;
    char link[64];
    int fd hc_cleanup_fd = open(in(world, "data"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    allow_write(world, "/");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    assert_denied(world, link, true, NULL);
    snprintf(link, sizeof link, "/dev/fd/%d", fd);
    assert_denied(world, link, true, NULL);
    assert_denied(world, "/proc/self/root", true, NULL);
    assert_denied(world, "/proc/self/root/usr", true, NULL);
    assert_denied(world, "/proc/self/cwd", true, NULL);
    assert_mounts(world, in(world, "data"), true);
}

static void test_only_folders_and_regular_files_are_mounted(void **state)
{
    struct world *world = *state;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    allow_write(world, world->root);
    int fd hc_cleanup_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/data/docker.sock", world->root);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(mkfifo(in(world, "data/fifo"), 0600), 0);
    assert_denied(world, in(world, "data/docker.sock"), true, "neither a folder nor a regular file");
    assert_denied(world, in(world, "data/fifo"), true, "neither a folder nor a regular file");
    assert_mounts(world, in(world, "data/file"), false);
}

static void test_a_hard_link_of_a_forbidden_file_is_that_file(void **state)
{
    struct world *world = *state;
    allow_read(world, world->root);
    assert_int_equal(link(in(world, "data/file"), in(world, "data/out/other")), 0);
    assert_mounts(world, in(world, "data/out/other"), true);
    set(world, "mounts.forbidden_paths", in(world, "data/file"), NULL);
    assert_denied(world, in(world, "data/out/other"), true, "another name of");
}

/* Runs `body` in a mount namespace of its own; 77: it could not be set up. */
static void in_namespace(struct world *world, int (*body)(struct world *world))
{
    pid_t child = fork();
    if (child == 0) {
        uid_t uid = getuid();
        if (unshare(uid == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) < 0 ||
            mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
            _exit(77);
        _exit(body(world));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        fail_msg("no mount namespace to try this in; hotcell does not run on such a machine either");
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int bound_elsewhere(struct world *world)
{
    struct hc_err err;
    if (mount(in(world, "data"), in(world, "data-x"), NULL, MS_BIND, NULL) < 0)
        return 77;
    if (try_mount(world, in(world, "data-x"), true, &err) < 0 ||
        try_mount(world, in(world, "data-x/out"), true, &err) < 0)
        return 1; /* the control */
    set(world, "mounts.forbidden_paths", in(world, "data"), NULL);
    if (try_mount(world, in(world, "data-x"), true, &err) != -EACCES || !strstr(err.message, "another name of"))
        return 2;
    if (try_mount(world, in(world, "data-x/out"), true, &err) != -EACCES ||
        !strstr(err.message, "under another name of"))
        return 3;
    set(world, "mounts.forbidden_paths", in(world, "data/ref"), NULL);
    if (try_mount(world, in(world, "data-x"), true, &err) != -EACCES || !strstr(err.message, "a parent of"))
        return 4;
    return try_mount(world, in(world, "data-x/out"), true, &err) == 0 ? 0 : 5;
}

static void test_a_bind_mount_does_not_rename_a_forbidden_folder(void **state)
{
    struct world *world = *state;
    allow_read(world, world->root);
    in_namespace(world, bound_elsewhere);
}

static int proc_elsewhere(struct world *world)
{
    struct hc_err err;
    if (mount("/proc/self", in(world, "data-x"), NULL, MS_BIND, NULL) < 0)
        return 77;
    int rc = try_mount(world, in(world, "data-x"), true, &err);
    if (rc != -EACCES || !strstr(err.message, "on proc"))
        return 1;
    if (mount("none", in(world, "secret"), "tmpfs", 0, "size=64k") < 0)
        return 77;
    return try_mount(world, in(world, "secret"), true, &err) == 0 ? 0 : 2;
}

static void test_a_kernel_filesystem_is_refused_wherever_it_is(void **state)
{
    struct world *world = *state;
    allow_read(world, world->root);
    in_namespace(world, proc_elsewhere);
}

static int read_only_filesystem(struct world *world)
{
    struct hc_err err;
    if (mount("none", in(world, "secret"), "tmpfs", MS_RDONLY, "size=64k") < 0)
        return 77;
    if (try_mount(world, in(world, "secret"), true, &err) < 0)
        return 1;
    int rc = try_mount(world, in(world, "secret"), false, &err);
    return rc == -EACCES && strstr(err.message, "read-only filesystem") ? 0 : 2;
}

static void test_a_read_only_filesystem_cannot_be_mounted_writable(void **state)
{
    struct world *world = *state;
    allow_write(world, world->root);
    in_namespace(world, read_only_filesystem);
}

static void test_secrets_in_the_home_that_the_environment_names(void **state)
{
    struct world *world = *state;
    char *home hc_cleanup_free = getenv("HOME") ? strdup(getenv("HOME")) : NULL;
    allow_read(world, world->root);
    mkdir(in(world, "data/.ssh"), 0700);
    mkdir(in(world, "data/.config"), 0700);
    mkdir(in(world, "data/project"), 0700);
    assert_mounts(world, in(world, "data/.ssh"), true);
    setenv("HOME", in(world, "data"), 1);
    assert_denied(world, in(world, "data/.ssh"), true, "where keys are kept");
    assert_denied(world, in(world, "data/.config"), true, "where keys are kept");
    assert_denied(world, in(world, "data"), true, "parent of");
    assert_mounts(world, in(world, "data/project"), true);
    if (home)
        setenv("HOME", home, 1);
    else
        unsetenv("HOME");
}

/* ATTACKS.md 99. */
static void test_targets_in_the_cell(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",           "/",    "//",     "/.",       "data",     "../x",
                                        "/data/../x", "/..",  "/proc",  "/proc/",   "//proc",   "/./proc/sys",
                                        "/dev/x",     "/sys", "/usr",   "/usr/lib", "/etc",     "/bin",
                                        "/sbin/x",    "/lib", "/lib64", "/run/x",   "/sandbox", "/a\nb"};
    static const char *const right[][2] = {{"/data", "/data"},
                                           {"/data/", "/data"},
                                           {"//data/./x//y/", "/data/x/y"},
                                           {"/workspace/in", "/workspace/in"},
                                           {"/procs", "/procs"},
                                           {"/..data", "/..data"},
                                           {"/usr2/lib", "/usr2/lib"},
                                           {"/opt/tool", "/opt/tool"}};
    char canonical[256];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct hc_err err = {0};
        if (policy_check_target(wrong[i], canonical, sizeof canonical, &err) >= 0)
            fail_msg("'%s' was accepted", wrong[i]);
        assert_int_equal(err.class, HC_CLASS_REQUEST);
    }
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        struct hc_err err = {0};
        assert_int_equal(policy_check_target(right[i][0], canonical, sizeof canonical, &err), 0);
        assert_string_equal(canonical, right[i][1]);
    }
    char longest[300];
    memset(longest, 'x', sizeof longest);
    longest[0] = '/';
    longest[255] = '\0';
    struct hc_err err = {0};
    assert_int_equal(policy_check_target(longest, canonical, sizeof canonical, &err), 0);
    longest[255] = 'x';
    longest[256] = '\0';
    assert_int_equal(policy_check_target(longest, canonical, sizeof canonical, &err), -ENAMETOOLONG);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_an_empty_allow_list_denies_and_says_what_to_add),
        CASE(test_allowed_folders_and_what_is_in_them),
        CASE(test_an_allow_list_may_name_a_symlink),
        CASE(test_a_symlink_out_of_the_allowed_folder_is_followed_before_the_check),
        CASE(test_writable_needs_the_write_list),
        CASE(test_a_read_only_folder_inside_a_writable_one_stays_read_only),
        CASE(test_forbidden_beats_allowed),
        CASE(test_a_forbidden_symlink_forbids_what_it_leads_to),
        CASE(test_the_built_in_list_holds_whatever_is_allowed),
        CASE(test_names_are_forbidden_before_they_exist),
        CASE(test_magic_links_are_not_followed),
        CASE(test_only_folders_and_regular_files_are_mounted),
        CASE(test_a_hard_link_of_a_forbidden_file_is_that_file),
        CASE(test_a_bind_mount_does_not_rename_a_forbidden_folder),
        CASE(test_a_kernel_filesystem_is_refused_wherever_it_is),
        CASE(test_a_read_only_filesystem_cannot_be_mounted_writable),
        CASE(test_secrets_in_the_home_that_the_environment_names),
        CASE(test_targets_in_the_cell),
    };
    return cmocka_run_group_tests_name("policy", tests, NULL, NULL);
}
