/* Keys and quotas on a real store, which another connection changes as the command line does. */
#include "base/fd.h"
#include "gateway/tenants.h"
#include "text/json.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

struct place {
    char folder[64];
    struct store *cli; /* what `hotcell key` does */
    struct gateway gateway;
};

static int set_up(void **state)
{
    struct place *place = calloc(1, sizeof *place);
    struct hc_err err = {0};
    snprintf(place->folder, sizeof place->folder, "/tmp/hotcell-tenants-XXXXXX");
    if (mkdtemp(place->folder) == NULL || (place->gateway.loop = hc_loop_new()) == NULL ||
        store_open(place->folder, place->gateway.loop, false, &place->gateway.store, &err) < 0 ||
        store_open(place->folder, NULL, false, &place->cli, &err) < 0 ||
        tenants_new(&place->gateway, &place->gateway.tenants, &err) < 0) {
        print_error("%s\n", err.message);
        return -1;
    }
    *state = place;
    return 0;
}

static int forget(const char *path, const struct stat *status, int kind, struct FTW *where)
{
    (void)status;
    (void)kind;
    (void)where;
    return remove(path);
}

static int tear_down(void **state)
{
    struct place *place = *state;
    tenants_free(place->gateway.tenants);
    store_close(place->gateway.store);
    store_close(place->cli);
    audit_close(place->gateway.audit);
    hc_loop_free(place->gateway.loop);
    nftw(place->folder, forget, 8, FTW_DEPTH | FTW_PHYS);
    free(place);
    return 0;
}

/* What was changed on the gateway's own thread is on disk only some turns later. */
static void settle(struct place *place)
{
    for (int i = 0; i < 20; i++)
        hc_loop_turn(place->gateway.loop, 10);
}

static void make_key(struct place *place, const char *name, struct key_row quotas, char token[STORE_TOKEN_LENGTH + 1])
{
    struct hc_err err = {0};
    struct key_row row = quotas;
    snprintf(row.name, sizeof row.name, "%s", name);
    assert_int_equal(store_key_create(place->cli, &row, token, &err), 0);
}

static int identify(struct place *place, const char *header, const char *format, const char *token,
                    struct caller *caller)
{
    char name[32], value[256];
    struct http_header headers = {name, value};
    struct http_request request = {.headers = &headers, .header_count = header != NULL};
    snprintf(name, sizeof name, "%s", header != NULL ? header : "");
    snprintf(value, sizeof value, "%s%s", format, token);
    return tenants_identify(place->gateway.tenants, &request, caller);
}

static int begin(struct place *place, const char *tenant, unsigned *retry)
{
    struct hc_err err = {0};
    int result = tenants_run_begin(place->gateway.tenants, tenant, retry, &err);
    if (result == -EDQUOT)
        assert_int_equal(err.code, EDQUOT);
    return result;
}

static void test_a_key_that_was_just_made_is_known(void **state)
{
    struct place *place = *state;
    struct caller caller;
    char token[STORE_TOKEN_LENGTH + 1];
    assert_false(tenants_have_keys(place->gateway.tenants));
    make_key(place, "ada", (struct key_row){0}, token);
    assert_true(tenants_have_keys(place->gateway.tenants));
    assert_int_equal(identify(place, "authorization", "Bearer ", token, &caller), 0);
    assert_string_equal(caller.tenant, "ada");
    assert_false(caller.operator_);
    assert_int_equal(identify(place, "x-api-key", "", token, &caller), 0);
}

static void test_wrong_tokens_open_nothing(void **state)
{
    struct place *place = *state;
    struct caller caller;
    char token[STORE_TOKEN_LENGTH + 1], wrong[STORE_TOKEN_LENGTH + 1];
    make_key(place, "ada", (struct key_row){0}, token);
    assert_int_equal(identify(place, NULL, "", "", &caller), -EACCES);
    assert_int_equal(identify(place, "authorization", "", token, &caller), -EACCES);
    assert_int_equal(identify(place, "authorization", "Basic ", token, &caller), -EACCES);
    assert_int_equal(identify(place, "authorization", "Bearer ", "", &caller), -EACCES);
    for (size_t i = 0; i < STORE_TOKEN_LENGTH; i++) {
        memcpy(wrong, token, sizeof wrong);
        wrong[i] ^= 1;
        assert_int_equal(identify(place, "authorization", "Bearer ", wrong, &caller), -EACCES);
        memcpy(wrong, token, sizeof wrong);
        wrong[i] = '\0';
        assert_int_equal(identify(place, "authorization", "Bearer ", wrong, &caller), -EACCES);
    }
}

static void test_a_revoked_key_is_refused_and_keys_stay_needed(void **state)
{
    struct place *place = *state;
    struct caller caller;
    struct hc_err err = {0};
    char token[STORE_TOKEN_LENGTH + 1];
    make_key(place, "ada", (struct key_row){0}, token);
    assert_int_equal(identify(place, "authorization", "Bearer ", token, &caller), 0);
    assert_int_equal(store_key_revoke(place->cli, "ada", &err), 0);
    assert_int_equal(identify(place, "authorization", "Bearer ", token, &caller), -EACCES);
    assert_true(tenants_have_keys(place->gateway.tenants));
}

static void test_runs_a_minute_are_counted(void **state)
{
    struct place *place = *state;
    char token[STORE_TOKEN_LENGTH + 1];
    unsigned retry = 0;
    make_key(place, "ada", (struct key_row){.runs_per_minute = 2}, token);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(begin(place, "ada", &retry), 0);
        tenants_run_end(place->gateway.tenants, "ada", 0);
    }
    assert_int_equal(begin(place, "ada", &retry), -EDQUOT);
    assert_in_range(retry, 1, 61);
    assert_int_equal(begin(place, "local", &retry), 0);
}

static void test_runs_at_once_are_given_back(void **state)
{
    struct place *place = *state;
    char token[STORE_TOKEN_LENGTH + 1];
    unsigned retry = 0;
    make_key(place, "ada", (struct key_row){.concurrent = 2}, token);
    assert_int_equal(begin(place, "ada", &retry), 0);
    assert_int_equal(begin(place, "ada", &retry), 0);
    assert_int_equal(begin(place, "ada", &retry), -EDQUOT);
    assert_true(retry >= 1);
    tenants_run_end(place->gateway.tenants, "ada", 0);
    assert_int_equal(begin(place, "ada", &retry), 0);
}

static void test_a_refused_run_costs_nothing(void **state)
{
    struct place *place = *state;
    char token[STORE_TOKEN_LENGTH + 1];
    unsigned retry = 0;
    make_key(place, "ada", (struct key_row){.concurrent = 1, .runs_per_minute = 2}, token);
    assert_int_equal(begin(place, "ada", &retry), 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(begin(place, "ada", &retry), -EDQUOT);
    tenants_run_end(place->gateway.tenants, "ada", 0);
    assert_int_equal(begin(place, "ada", &retry), 0);
}

static void test_cpu_time_outlives_the_gateway(void **state)
{
    struct place *place = *state;
    char token[STORE_TOKEN_LENGTH + 1];
    unsigned retry = 0;
    struct hc_err err = {0};
    make_key(place, "ada", (struct key_row){.cpu_seconds_per_day = 3}, token);
    assert_int_equal(begin(place, "ada", &retry), 0);
    tenants_run_end(place->gateway.tenants, "ada", 2999999);
    assert_int_equal(begin(place, "ada", &retry), 0);
    tenants_run_end(place->gateway.tenants, "ada", 1);
    assert_int_equal(begin(place, "ada", &retry), -EDQUOT);
    assert_in_range(retry, 1, 86400);
    settle(place);
    tenants_free(place->gateway.tenants);
    assert_int_equal(tenants_new(&place->gateway, &place->gateway.tenants, &err), 0);
    assert_int_equal(begin(place, "ada", &retry), -EDQUOT);
}

static void test_refusals_are_audited_at_a_bounded_rate(void **state)
{
    struct place *place = *state;
    struct hc_err err = {0};
    char path[96], method[] = "/v1/stats";
    snprintf(path, sizeof path, "%s/audit.log", place->folder);
    int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(audit_open(fd, &place->gateway.audit, &err), 0);
    struct http_request request = {.path = method, .method_name = "GET", .peer = "127.0.0.1:1"};
    for (int i = 0; i < 500; i++)
        tenants_note_refusal(place->gateway.tenants, &request, "unauthorized", "no key");
    hc_cleanup_fd int log = open(path, O_RDONLY | O_CLOEXEC);
    struct audit_report report;
    assert_int_equal(audit_verify(log, NULL, &report), 0);
    assert_in_range(report.lines, 1, 20);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_a_key_that_was_just_made_is_known),
        TEST(test_wrong_tokens_open_nothing),
        TEST(test_a_revoked_key_is_refused_and_keys_stay_needed),
        TEST(test_runs_a_minute_are_counted),
        TEST(test_runs_at_once_are_given_back),
        TEST(test_a_refused_run_costs_nothing),
        TEST(test_cpu_time_outlives_the_gateway),
        TEST(test_refusals_are_audited_at_a_bounded_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
