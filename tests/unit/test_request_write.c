/* A request as JSON: what was read comes out again, byte for byte, and what cannot be written is named. */
#include "run/request.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *through(const char *json)
{
    struct hc_err err = {0};
    struct request *request = request_new();

    assert_non_null(request);
    if (request_from_json(request, json, strlen(json), &err) < 0)
        fail_msg("%s: %s", json, err.message);
    char *text = request_to_json(request, &err);
    request_free(request);
    assert_non_null(text);
    return text;
}

/* `json` is as hc_json_write writes it, so it must come out as it went in. */
static void same(const char *json)
{
    char *text = through(json);

    assert_string_equal(text, json);
    free(text);
}

static void test_every_field_comes_out_as_it_went_in(void **state)
{
    (void)state;
    same("{}");
    same("{\"language\":\"python\",\"code\":\"print(42)\"}");
    same("{\"code\":\"a\\u0000b\",\"stdin\":{\"base64\":\"/w==\"}}");
    same("{\"entry\":\"a.py\",\"files\":{\"a.py\":\"1\",\"b\":{\"base64\":\"/wA=\"},"
         "\"c\":{\"base64\":\"MQ==\",\"executable\":true}}}");
    same("{\"command\":[\"make\",\"test\"],\"args\":[\"x\"],\"env\":{\"K\":\"V=W\"}}");
    same("{\"command\":\"echo 1 | wc\"}");
    same("{\"network\":\"none\",\"image\":\"host\",\"read_only\":false,\"mounts\":"
         "[{\"host\":\"/data\",\"path\":\"/d\",\"read_only\":true}],\"collect\":[\"out/*.png\"],"
         "\"metadata\":{\"a\":[1,null]},\"stdin_open\":true,\"async\":true}");
    same("{\"stages\":[{\"name\":\"build\",\"command\":[\"make\"],\"limits\":{\"timeout\":\"10000000us\"}}],"
         "\"tests\":[{\"stdin\":\"1\",\"expect_stdout\":\"2\",\"args\":[\"a\"],\"limits\":{\"memory\":\"67108864\"}},"
         "{\"name\":\"t\",\"stdin\":\"\",\"args\":[]}]}");
}

static void test_limits_are_exact(void **state)
{
    (void)state;
    same("{\"limits\":{\"timeout\":\"1500000us\",\"cpu_time\":\"0us\",\"memory\":\"67108864\",\"cpus\":\"0.500\","
         "\"pids\":\"20\"}}");
    char *text = through("{\"limits\":{\"timeout\":0.1,\"memory\":\"64m\",\"cpus\":0.125}}");
    assert_string_equal(text, "{\"limits\":{\"timeout\":\"100000us\",\"memory\":\"67108864\",\"cpus\":\"0.125\"}}");
    free(text);
}

static void test_text_that_is_not_utf8_is_named(void **state)
{
    struct hc_err err = {0};
    struct request *request = request_new();

    (void)state;
    assert_int_equal(request_add_arg(request, "a\xff", NULL), 0);
    assert_null(request_to_json(request, &err));
    assert_int_equal(err.class, HC_CLASS_REQUEST);
    assert_string_equal(err.field, "args");
    request_free(request);
}

static void test_executable_must_be_a_boolean(void **state)
{
    static const char *const wrong[] = {"{\"files\":{\"a\":{\"base64\":\"\",\"executable\":1}}}",
                                        "{\"files\":{\"a\":{\"executable\":true}}}",
                                        "{\"files\":{\"a\":{\"base64\":\"\",\"executable\":true,\"x\":1}}}"};

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct hc_err err = {0};
        struct request *request = request_new();
        assert_int_equal(request_from_json(request, wrong[i], strlen(wrong[i]), &err), -EINVAL);
        assert_true(strncmp(err.field, "files.a", 7) == 0);
        request_free(request);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_field_comes_out_as_it_went_in),
        cmocka_unit_test(test_limits_are_exact),
        cmocka_unit_test(test_text_that_is_not_utf8_is_named),
        cmocka_unit_test(test_executable_must_be_a_boolean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
