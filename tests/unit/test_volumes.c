/* What the keeper makes of questions about volumes from a gateway that was taken over: it may ask anything. The volumes
 * themselves are tested with a server (tests/integration/test_volumes.py). */
#include "base/fd.h"
#include "serve/internal.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct world {
    char folder[64];
    struct keeper_server server;
    struct config config;
    int gateway; /* its end */
};

static int make_world(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    int ends[2];
    assert_non_null(world);
    snprintf(world->folder, sizeof world->folder, "/tmp/hotcell-volumes-XXXXXX");
    assert_non_null(mkdtemp(world->folder));
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    world->gateway = ends[1];
    world->config.volumes = (struct volumes_config){.max_size = 1 << 30, .max_total = 1 << 30, .max_per_tenant = 2};
    world->server.config = &world->config;
    world->server.control = ends[0];
    world->server.loop = hc_loop_new();
    world->server.uids = (struct uid_plan){.source = UIDS_RANGE, .lock = -1};
    world->server.volumes.folder = -1;
    world->server.state.lock = open(world->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    snprintf(world->server.state.folder, sizeof world->server.state.folder, "%s", world->folder);
    *state = world;
    return 0;
}

static int end_world(void **state)
{
    struct world *world = *state;
    char command[128];
    volumes_close(&world->server);
    hc_loop_free(world->server.loop);
    hc_close(world->server.state.lock);
    hc_close(world->server.control);
    hc_close(world->gateway);
    snprintf(command, sizeof command, "rm -rf %s", world->folder);
    assert_int_equal(system(command), 0);
    free(world);
    return 0;
}

/* The error of the answer, which must be there at once. */
static struct hc_err ask(struct world *world, const struct serve_volume *volume)
{
    struct serve_message message = {0};
    int fd = -1;
    size_t count = 0;
    volumes_ask(&world->server, volume);
    assert_int_equal(hc_recv_fds(world->gateway, &message, sizeof message, &fd, 1, &count), sizeof message);
    assert_int_equal(message.type, SERVE_VOLUME);
    assert_int_equal(message.volume.id, volume->id);
    hc_close(fd);
    return message.err;
}

static struct serve_volume question(enum serve_volume_act act, const char *tenant, const char *name)
{
    struct serve_volume volume = {.id = 7, .act = act, .facts = {.size = 16 << 20}};
    snprintf(volume.facts.tenant, sizeof volume.facts.tenant, "%s", tenant);
    snprintf(volume.facts.name, sizeof volume.facts.name, "%s", name);
    return volume;
}

static const enum serve_volume_act ACTS[] = {SERVE_VOLUME_CREATE, SERVE_VOLUME_REMOVE, SERVE_VOLUME_OPEN};

static void test_names_that_lead_elsewhere_are_refused(void **state)
{
    struct world *world = *state;
    static const char *const tenants[] = {"", ".", "..", "../..", "a/b", "/etc", ".hidden", "a b", "\n"};
    static const char *const names[] = {"", ".", "..", "../x", "x/y", "/etc/passwd", "X", "x.img", "-x", "x\ny"};
    volumes_open(&world->server);
    for (size_t act = 0; act < sizeof ACTS / sizeof *ACTS; act++) {
        for (size_t i = 0; i < sizeof tenants / sizeof *tenants; i++) {
            struct serve_volume volume = question(ACTS[act], tenants[i], "x");
            assert_int_equal(ask(world, &volume).code, EINVAL);
        }
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            struct serve_volume volume = question(ACTS[act], "tenant", names[i]);
            assert_int_equal(ask(world, &volume).code, EINVAL);
        }
    }
    assert_int_equal(world->server.volumes.count, 0);
    assert_null(world->server.volumes.tasks);
}

static void test_names_without_an_end_are_refused(void **state)
{
    struct world *world = *state;
    volumes_open(&world->server);
    for (size_t act = 0; act < sizeof ACTS / sizeof *ACTS; act++) {
        struct serve_volume volume = question(ACTS[act], "tenant", "x");
        memset(volume.facts.name, 'x', sizeof volume.facts.name);
        assert_int_equal(ask(world, &volume).code, EPROTO);
        volume = question(ACTS[act], "tenant", "x");
        memset(volume.facts.tenant, 'x', sizeof volume.facts.tenant);
        assert_int_equal(ask(world, &volume).code, EPROTO);
    }
    struct serve_volume list = question(SERVE_VOLUME_LIST, "", "");
    memset(list.facts.tenant, 'x', sizeof list.facts.tenant);
    assert_int_equal(ask(world, &list).code, EPROTO);
}

static void test_unknown_acts_are_refused(void **state)
{
    struct world *world = *state;
    static const uint32_t acts[] = {0, SERVE_VOLUME_OPEN + 1, 99, UINT32_MAX};
    volumes_open(&world->server);
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        struct serve_volume volume = question(SERVE_VOLUME_OPEN, "tenant", "x");
        volume.act = acts[i];
        assert_int_equal(ask(world, &volume).code, EPROTO);
    }
}

static void test_sizes_have_bounds_of_the_keepers_own(void **state)
{
    struct world *world = *state;
    static const uint64_t sizes[] = {0, 1, (16 << 20) - 1, (1 << 30) + 1, 1ULL << 63, UINT64_MAX};
    volumes_open(&world->server);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct serve_volume volume = question(SERVE_VOLUME_CREATE, "tenant", "x");
        volume.facts.size = sizes[i];
        assert_int_equal(ask(world, &volume).code, ERANGE);
    }
    world->config.volumes.max_total = 8 << 20;
    struct serve_volume volume = question(SERVE_VOLUME_CREATE, "tenant", "x");
    assert_int_equal(ask(world, &volume).code, EDQUOT);
    world->config.volumes.max_total = 1 << 30;
    world->config.volumes.max_per_tenant = 0;
    assert_int_equal(ask(world, &volume).code, EDQUOT);
}

static void test_only_a_plain_file_of_ours_is_an_image(void **state)
{
    struct world *world = *state;
    int root = world->server.state.lock;
    volumes_open(&world->server);
    assert_true(world->server.volumes.folder >= 0);
    assert_int_equal(mkdirat(root, "volumes/tenant", 0700), 0);
    assert_int_equal(hc_close(openat(root, "secret", O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), -1);
    assert_int_equal(symlinkat("../../secret", root, "volumes/tenant/link.img"), 0);
    assert_int_equal(linkat(root, "secret", root, "volumes/tenant/hard.img", 0), 0);
    assert_int_equal(mkfifoat(root, "volumes/tenant/fifo.img", 0600), 0);
    assert_int_equal(mkdirat(root, "volumes/tenant/folder.img", 0700), 0);
    assert_int_equal(symlinkat("tenant", root, "volumes/other"), 0);
    static const char *const names[] = {"link", "hard", "fifo", "folder"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct serve_volume volume = question(SERVE_VOLUME_OPEN, "tenant", names[i]);
        assert_int_not_equal(ask(world, &volume).code, 0);
        volume.act = SERVE_VOLUME_REMOVE;
        assert_int_not_equal(ask(world, &volume).code, 0);
    }
    struct serve_volume volume = question(SERVE_VOLUME_OPEN, "other", "hard");
    assert_int_not_equal(ask(world, &volume).code, 0);
    assert_int_equal(faccessat(root, "secret", F_OK, 0), 0);
}

static void test_a_number_that_was_not_given_out_is_nothing(void **state)
{
    struct world *world = *state;
    static const uint32_t numbers[] = {0, CELL_FIRST_VOLUME, CELL_FIRST_VOLUME + 1, UINT32_MAX};
    volumes_open(&world->server);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct hc_err err = {0};
        assert_int_equal(volumes_mount(&world->server, numbers[i], &err), -EAGAIN);
    }
}

static void test_a_folder_that_leads_elsewhere_is_not_used(void **state)
{
    struct world *world = *state;
    assert_int_equal(symlinkat("/", world->server.state.lock, "volumes"), 0);
    volumes_open(&world->server);
    assert_true(world->server.volumes.folder < 0);
    struct serve_volume volume = question(SERVE_VOLUME_CREATE, "tmp", "x");
    assert_int_not_equal(ask(world, &volume).code, 0);
}

static void test_without_a_range_of_uids_there_are_none(void **state)
{
    struct world *world = *state;
    world->server.uids.source = UIDS_SINGLE;
    volumes_open(&world->server);
    struct serve_volume volume = question(SERVE_VOLUME_LIST, "", "");
    struct hc_err err = ask(world, &volume);
    assert_int_equal(err.code, EOPNOTSUPP);
    assert_string_equal(err.field, "volumes");
    assert_int_not_equal(err.remedy[0], '\0');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_names_that_lead_elsewhere_are_refused, make_world, end_world),
        cmocka_unit_test_setup_teardown(test_names_without_an_end_are_refused, make_world, end_world),
        cmocka_unit_test_setup_teardown(test_unknown_acts_are_refused, make_world, end_world),
        cmocka_unit_test_setup_teardown(test_sizes_have_bounds_of_the_keepers_own, make_world, end_world),
        cmocka_unit_test_setup_teardown(test_only_a_plain_file_of_ours_is_an_image, make_world, end_world),
        cmocka_unit_test_setup_teardown(test_a_number_that_was_not_given_out_is_nothing, make_world, end_world),
        cmocka_unit_test_setup_teardown(test_a_folder_that_leads_elsewhere_is_not_used, make_world, end_world),
        cmocka_unit_test_setup_teardown(test_without_a_range_of_uids_there_are_none, make_world, end_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
