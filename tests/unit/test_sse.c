/* Server-sent events: every form of line, pieces of any size, and the id that a reader goes on from. */
#include "cli/sse.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static int note(void *data, const struct sse_event *event)
{
    struct hc_buf *told = data;

    hc_buf_printf(told, "[%s|%s|", event->name, event->id);
    hc_buf_add(told, event->data, event->length);
    hc_buf_add_str(told, "]");
    return strcmp(event->name, "stop") == 0 ? -EINTR : 0;
}

static void expect(const char *text, const char *events)
{
    for (size_t piece = 1; piece <= strlen(text); piece++) {
        struct hc_buf told = HC_BUF_INIT(4096);
        struct sse sse;
        sse_start(&sse);
        for (size_t at = 0; at < strlen(text); at += piece) {
            size_t left = strlen(text) - at;
            assert_int_equal(sse_feed(&sse, text + at, left < piece ? left : piece, note, &told), 0);
        }
        assert_string_equal(told.data ? told.data : "", events);
        hc_buf_release(&told);
        sse_release(&sse);
    }
}

static void test_events(void **state)
{
    (void)state;
    expect("event: start\nid: 1\ndata: {\"id\":\"x\"}\n\n", "[start|1|{\"id\":\"x\"}]");
    expect("data: a\ndata: b\n\ndata: c\n\n", "[message||a\nb][message||c]");
    expect("data:a\n\ndata:  a\n\ndata\n\ndata:\n\n", "[message||a][message|| a][message||][message||]");
}

static void test_line_ends(void **state)
{
    (void)state;
    expect("data: a\r\n\r\ndata: b\r\rdata: c\n\n", "[message||a][message||b][message||c]");
    expect("data: a\r\n\r\n\r\n", "[message||a]");
}

static void test_an_event_without_data_is_none_but_its_id_counts(void **state)
{
    (void)state;
    expect("event: x\nid: 7\n\ndata: a\n\n", "[message|7|a]");
}

static void test_the_id_stays_until_another_comes(void **state)
{
    (void)state;
    expect("id: 1\ndata: a\n\ndata: b\n\nid: 2\ndata: c\n\nid\ndata: d\n\n",
           "[message|1|a][message|1|b][message|2|c][message||d]");
}

static void test_comments_and_unknown_fields_are_passed_over(void **state)
{
    (void)state;
    expect(": still here\nretry: 2000\nfoo: bar\nDATA: x\n data: y\n\ndata: a\n\n", "[message||a]");
}

static void test_a_byte_order_mark_at_the_start_alone(void **state)
{
    (void)state;
    expect("\xef\xbb\xbf"
           "data: a\n\n\xef\xbb\xbf"
           "data: b\n\n",
           "[message||a]");
}

static void test_an_event_that_is_not_ended_is_not_told(void **state)
{
    struct hc_buf told = HC_BUF_INIT(4096);
    struct sse sse;

    (void)state;
    sse_start(&sse);
    assert_int_equal(sse_feed(&sse, "id: 1\ndata: a\n\nid: 2\nevent: x\ndata: half", 38, note, &told), 0);
    sse_restart(&sse);
    assert_int_equal(sse_feed(&sse, "data: b\n\n", 9, note, &told), 0);
    assert_string_equal(told.data, "[message|1|a][message|1|b]");
    hc_buf_release(&told);
    sse_release(&sse);
}

static void test_the_reader_can_end_it(void **state)
{
    struct hc_buf told = HC_BUF_INIT(4096);
    struct sse sse;

    (void)state;
    sse_start(&sse);
    assert_int_equal(sse_feed(&sse, "event: stop\ndata: a\n\ndata: b\n\n", 31, note, &told), -EINTR);
    assert_string_equal(told.data, "[stop||a]");
    hc_buf_release(&told);
    sse_release(&sse);
}

static void test_names_and_ids_have_bounds(void **state)
{
    char line[256];
    struct sse sse;

    (void)state;
    sse_start(&sse);
    snprintf(line, sizeof line, "id: %0127d\n", 1);
    assert_int_equal(sse_feed(&sse, line, strlen(line), note, NULL), 0);
    snprintf(line, sizeof line, "id: %0128d\n", 1);
    assert_int_equal(sse_feed(&sse, line, strlen(line), note, NULL), -EPROTO);
    sse_restart(&sse);
    snprintf(line, sizeof line, "event: %032d\n", 1);
    assert_int_equal(sse_feed(&sse, line, strlen(line), note, NULL), -EPROTO);
    sse_restart(&sse);
    assert_int_equal(sse_feed(&sse, "id: a\0b\n", 8, note, NULL), -EPROTO);
    sse_release(&sse);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_line_ends),
        cmocka_unit_test(test_an_event_without_data_is_none_but_its_id_counts),
        cmocka_unit_test(test_the_id_stays_until_another_comes),
        cmocka_unit_test(test_comments_and_unknown_fields_are_passed_over),
        cmocka_unit_test(test_a_byte_order_mark_at_the_start_alone),
        cmocka_unit_test(test_an_event_that_is_not_ended_is_not_told),
        cmocka_unit_test(test_the_reader_can_end_it),
        cmocka_unit_test(test_names_and_ids_have_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
