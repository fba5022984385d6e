/* A run as events: ids, pieces of output, and going on after any of them. */
#include "base/fd.h"
#include "gateway/events.h"
#include "text/base64.h"
#include "text/json.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

enum { STAGES = 3, LIMIT = 200000 };

/* A run as it is shown while it goes on: how much of each stream has come. */
struct script {
    const char *bytes[STAGES][2];
    size_t length[STAGES][2], shown[STAGES][2];
};

static const char *const stage_names[STAGES] = {"compile", "run", "test 1"};

static void script_stage(void *data, size_t index, struct events_stage *out)
{
    const struct script *script = data;
    *out = (struct events_stage){.name = stage_names[index]};
    for (int i = 0; i < 2; i++) {
        out->bytes[i] = script->bytes[index][i];
        out->length[i] = script->shown[index][i];
    }
}

/* ---- a reader of events ---- */

struct reader {
    char *bytes[STAGES][2];
    size_t length[STAGES][2];
    size_t stages, starts, results;
    char id[EVENTS_ID_SIZE];
};

static void reader_init(struct reader *reader)
{
    *reader = (struct reader){0};
    for (int s = 0; s < STAGES; s++)
        for (int i = 0; i < 2; i++)
            reader->bytes[s][i] = malloc(LIMIT);
}

static void reader_free(struct reader *reader)
{
    for (int s = 0; s < STAGES; s++)
        for (int i = 0; i < 2; i++)
            free(reader->bytes[s][i]);
}

static void read_output(struct reader *reader, int stream, const json_t *data)
{
    size_t stage = reader->stages - 1, length;
    char *bytes = NULL;
    const json_t *text = json_object_get(data, "text"), *base64 = json_object_get(data, "base64");
    assert_true((text != NULL) != (base64 != NULL));
    if (text != NULL) {
        length = json_string_length(text);
        bytes = malloc(length + 1);
        memcpy(bytes, json_string_value(text), length);
    } else {
        assert_int_equal(hc_base64_decode(json_string_value(base64), json_string_length(base64), &bytes, &length), 0);
    }
    assert_true(length > 0);
    assert_int_equal(json_integer_value(json_object_get(data, "offset")), (json_int_t)reader->length[stage][stream]);
    memcpy(reader->bytes[stage][stream] + reader->length[stage][stream], bytes, length);
    reader->length[stage][stream] += length;
    free(bytes);
}

/* Reads one event as a browser does. */
static void read_event(struct reader *reader, const char *text)
{
    char id[EVENTS_ID_SIZE], name[32];
    int used = 0;
    assert_int_equal(sscanf(text, "id: %71s\nevent: %31s\ndata: %n", id, name, &used), 2);
    const char *end = strchr(text + used, '\n');
    assert_non_null(end);
    assert_string_equal(end, "\n\n");
    json_t *data = NULL;
    struct hc_err err = {0};
    assert_int_equal(hc_json_read(text + used, (size_t)(end - text) - (size_t)used, 8, &data, &err), 0);
    if (strcmp(name, "start") == 0)
        reader->starts++;
    else if (strcmp(name, "stage") == 0)
        assert_string_equal(json_string_value(json_object_get(data, "name")), stage_names[reader->stages++]);
    else
        read_output(reader, strcmp(name, "stderr") == 0, data);
    json_decref(data);
    snprintf(reader->id, sizeof reader->id, "%s", id);
}

/* Tells what there is to tell, at most `most` events. Whether only the result is left. */
static bool pump(struct reader *reader, struct events_position *position, const struct events_source *source,
                 size_t most)
{
    for (size_t i = 0; i < most; i++) {
        struct hc_buf out = HC_BUF_INIT(1 << 20);
        int result = events_next(position, source, &out);
        assert_true(result >= 0);
        if (result == 1)
            read_event(reader, out.data);
        hc_buf_release(&out);
        if (result != 1)
            return result == 2;
    }
    return false;
}

/* ---- random runs ---- */

static unsigned next_random(unsigned *seed)
{
    *seed = *seed * 1103515245U + 12345U;
    return *seed >> 8;
}

static const char *const words[] = {"plain ",   "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
                                    "\n",       "\xff",     "\xc3",         "\xe2\x82",
                                    "\xf0\x9f", "\x80",     "\xed\xa0\x80", "\"\\\x01"};

static size_t random_bytes(unsigned *seed, char *bytes, size_t limit)
{
    size_t length = 0, wanted = next_random(seed) % 4 == 0 ? 0 : next_random(seed) % limit;
    unsigned kinds = next_random(seed) % 2 == 0 ? 5 : sizeof words / sizeof *words; /* UTF-8 alone, or anything */
    while (length < wanted) {
        const char *word = words[next_random(seed) % kinds];
        memcpy(bytes + length, word, strlen(word));
        length += strlen(word);
        if (next_random(seed) % 9 == 0)
            bytes[length++] = '\0';
    }
    return length;
}

static void assert_all_was_read(const struct script *script, const struct reader *reader)
{
    assert_int_equal(reader->starts, 1);
    assert_int_equal(reader->stages, STAGES);
    for (int s = 0; s < STAGES; s++)
        for (int i = 0; i < 2; i++) {
            assert_int_equal(reader->length[s][i], script->length[s][i]);
            assert_memory_equal(reader->bytes[s][i], script->bytes[s][i], script->length[s][i]);
        }
}

/* One step of the run: more output of the stage, the next stage, or the end. */
static void step(struct script *script, struct events_source *source, unsigned *seed)
{
    size_t stage = source->stage_count - 1;
    int stream = (int)(next_random(seed) % 2);
    for (int i = 0; i < 2; i++, stream = !stream) {
        size_t left = source->stage_count > 0 ? script->length[stage][stream] - script->shown[stage][stream] : 0;
        if (left > 0) {
            size_t some = 1 + next_random(seed) % (next_random(seed) % 3 == 0 ? left : 7);
            script->shown[stage][stream] += some < left ? some : left;
            return;
        }
    }
    if (source->stage_count < STAGES)
        source->stage_count++;
    else
        source->over = true;
}

/* Whatever the split of the output, and wherever readers lose their connection, every byte comes once. */
static void run_once(unsigned seed, size_t size)
{
    struct script script = {0};
    struct reader reader;
    struct events_position position = {0};
    struct events_source source = {.id = "run_1", .data = &script, .stage = script_stage};
    char *all = malloc((size_t)STAGES * 2 * (size + 16));
    reader_init(&reader);
    for (int s = 0; s < STAGES; s++)
        for (int i = 0; i < 2; i++) {
            char *bytes = all + ((size_t)s * 2 + (size_t)i) * (size + 16);
            script.bytes[s][i] = bytes;
            script.length[s][i] = random_bytes(&seed, bytes, size);
        }
    bool only_result = false;
    while (!only_result) {
        if (!source.over && next_random(&seed) % 8 != 0)
            step(&script, &source, &seed);
        only_result = pump(&reader, &position, &source, 1 + next_random(&seed) % 4);
        if (reader.starts > 0 && next_random(&seed) % 5 == 0) { /* another reader goes on after the last id */
            position = (struct events_position){0};
            assert_int_equal(events_parse_id(reader.id, &position), 0);
            assert_true(events_position_fits(&position, &source));
        }
    }
    assert_true(source.over);
    assert_all_was_read(&script, &reader);
    reader_free(&reader);
    free(all);
}

static void test_every_byte_comes_once_however_it_is_split_and_resumed(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 2000; seed++)
        run_once(seed, 60);
}

static void test_large_output_is_told_in_pieces(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 20; seed++)
        run_once(seed, LIMIT - 64);
}

/* From the store: a packed run tells the same, after any id that was given before. */
static void test_a_packed_run_goes_on_after_any_id(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 300; seed++) {
        unsigned random = seed;
        struct script script = {0};
        char all[STAGES * 2][96];
        for (int s = 0; s < STAGES; s++)
            for (int i = 0; i < 2; i++) {
                script.bytes[s][i] = all[s * 2 + i];
                script.length[s][i] = script.shown[s][i] = random_bytes(&random, all[s * 2 + i], 70);
            }
        struct events_source live = {
            .id = "run_1", .stage_count = STAGES, .over = true, .data = &script, .stage = script_stage};
        char *log = events_pack(&live);
        struct events_kept *kept = NULL;
        struct hc_err err = {0};
        assert_int_equal(events_kept_new(log, strlen(log), NULL, 0, &kept, &err), 0);
        struct events_source stored;
        events_kept_source(kept, "run_1", &stored);

        struct reader reader;
        reader_init(&reader);
        struct events_position position = {0};
        pump(&reader, &position, &live, 1 + next_random(&random) % 12);
        assert_int_equal(events_parse_id(reader.id, &position), 0);
        assert_true(events_position_fits(&position, &stored));
        assert_true(pump(&reader, &position, &stored, 1000));
        assert_all_was_read(&script, &reader);
        reader_free(&reader);
        events_kept_free(kept);
        free(log);
    }
}

static void test_without_a_log_the_result_tells_the_streams(void **state)
{
    (void)state;
    static const char *const results[] = {
        "{\"stdout\":\"aGkA\",\"stderr\":\"/w==\",\"output_encoding\":\"base64\","
        "\"stages\":[{\"name\":\"compile\"},{\"name\":\"run\"}]}",
        "{\"stdout\":\"hi\\u0000\",\"stderr\":\"!\",\"output_encoding\":\"utf-8\","
        "\"stages\":[{\"name\":\"compile\"},{\"name\":\"run\"}]}",
    };
    for (size_t i = 0; i < 2; i++) {
        struct events_kept *kept = NULL;
        struct hc_err err = {0};
        assert_int_equal(events_kept_new(NULL, 0, results[i], strlen(results[i]), &kept, &err), 0);
        struct events_source source;
        events_kept_source(kept, "run_1", &source);
        assert_int_equal(source.stage_count, 2);
        struct events_stage stage;
        source.stage(source.data, 0, &stage);
        assert_string_equal(stage.name, "compile");
        assert_int_equal(stage.length[0] + stage.length[1], 0);
        source.stage(source.data, 1, &stage);
        assert_int_equal(stage.length[0], 3);
        assert_memory_equal(stage.bytes[0], "hi\0", 3);
        assert_memory_equal(stage.bytes[1], i == 0 ? "\xff" : "!", 1);
        events_kept_free(kept);
    }
}

static void test_a_history_that_cannot_be_read_is_an_error(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "[{\"name\":\"run\"}]", "[{\"stdout\":{\"base64\":\"!\"}}]", "[1]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct events_kept *kept = NULL;
        struct hc_err err = {0};
        assert_true(events_kept_new(bad[i], strlen(bad[i]), NULL, 0, &kept, &err) < 0);
        assert_true(err.message[0] != '\0');
    }
}

static void test_a_character_is_not_cut_in_two(void **state)
{
    (void)state;
    struct script script = {.bytes[0] = {"\xe2\x82\xac", ""}, .length[0] = {3, 0}, .shown[0] = {2, 0}};
    struct events_source source = {.id = "run_1", .stage_count = 1, .data = &script, .stage = script_stage};
    struct events_position position = {.phase = EVENTS_STAGE};
    struct hc_buf out = HC_BUF_INIT(4096);
    assert_int_equal(events_next(&position, &source, &out), 0);
    script.shown[0][0] = 3;
    assert_int_equal(events_next(&position, &source, &out), 1);
    assert_string_equal(out.data, "id: 0-3-0\nevent: stdout\ndata: {\"text\":\"\xe2\x82\xac\",\"offset\":0}\n\n");
    hc_buf_release(&out);
}

static void test_half_a_character_at_the_end_is_told_as_base64(void **state)
{
    (void)state;
    struct script script = {.bytes[0] = {"\xe2\x82", ""}, .length[0] = {2, 0}, .shown[0] = {2, 0}};
    struct events_source source = {
        .id = "run_1", .stage_count = 1, .over = true, .data = &script, .stage = script_stage};
    struct events_position position = {.phase = EVENTS_STAGE};
    struct hc_buf out = HC_BUF_INIT(4096);
    assert_int_equal(events_next(&position, &source, &out), 1);
    assert_non_null(strstr(out.data, "{\"base64\":\"4oI=\",\"offset\":0}"));
    hc_buf_release(&out);
}

static void test_ids_are_read_back(void **state)
{
    (void)state;
    static const struct events_position positions[] = {
        {.phase = EVENTS_STARTED},
        {.phase = EVENTS_OVER},
        {.phase = EVENTS_STAGE, .stage = 0},
        {.phase = EVENTS_STAGE, .stage = 12, .offset = {1048576, 99999999999ULL}},
    };
    for (size_t i = 0; i < sizeof positions / sizeof *positions; i++) {
        char id[EVENTS_ID_SIZE];
        struct events_position read;
        assert_int_equal(events_parse_id(events_format_id(&positions[i], id), &read), 0);
        assert_int_equal(read.phase, positions[i].phase);
        assert_int_equal(read.stage, positions[i].stage);
        assert_memory_equal(read.offset, positions[i].offset, sizeof read.offset);
    }
}

static void test_ids_of_others_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",        "0",      "0-1",     "0-1-",   "-1-0-0",
                                      "0-1-2-3", "+1-0-0", "01-0-0",  " 0-1-2", "0-1-2 ",
                                      "0--1-2",  "START",  "0x1-0-0", "start ", "9999999999999999999-0-0"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct events_position position = {.stage = 42};
        assert_int_equal(events_parse_id(bad[i], &position), -EINVAL);
        assert_int_equal(position.stage, 42);
    }
}

static void test_an_id_beyond_the_run_does_not_fit(void **state)
{
    (void)state;
    struct script script = {.bytes[0] = {"abc", ""}, .length[0] = {3, 0}, .shown[0] = {3, 0}};
    struct events_source source = {.id = "run_1", .stage_count = 1, .data = &script, .stage = script_stage};
    struct events_position position = {.phase = EVENTS_STAGE, .offset = {3, 0}};
    assert_true(events_position_fits(&position, &source));
    position.offset[0] = 4;
    assert_false(events_position_fits(&position, &source));
    position = (struct events_position){.phase = EVENTS_STAGE, .stage = 1};
    assert_false(events_position_fits(&position, &source));
    position = (struct events_position){.phase = EVENTS_OVER};
    assert_false(events_position_fits(&position, &source));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_byte_comes_once_however_it_is_split_and_resumed),
        cmocka_unit_test(test_large_output_is_told_in_pieces),
        cmocka_unit_test(test_a_packed_run_goes_on_after_any_id),
        cmocka_unit_test(test_without_a_log_the_result_tells_the_streams),
        cmocka_unit_test(test_a_history_that_cannot_be_read_is_an_error),
        cmocka_unit_test(test_a_character_is_not_cut_in_two),
        cmocka_unit_test(test_half_a_character_at_the_end_is_told_as_base64),
        cmocka_unit_test(test_ids_are_read_back),
        cmocka_unit_test(test_ids_of_others_are_refused),
        cmocka_unit_test(test_an_id_beyond_the_run_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
