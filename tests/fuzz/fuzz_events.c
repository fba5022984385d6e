/*
 * A run as events, read as a client reads them, while output is still coming: every byte is told exactly once, in
 * order, and also by a reader that goes away after any event and comes back, and by what was kept of the run. Besides,
 * what a client says to find its way: an event's id, a query, an Accept header, each of which has one meaning or none.
 *
 * The input: a line with an id, one with a query, one with an Accept; then pieces of output, each with a byte that says
 * whose it is and one for its length.
 */
#include "base/fd.h"
#include "gateway/events.h"
#include "gateway/http.h"
#include "text/base64.h"
#include "text/json.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { STAGES = 3, ROOM = 1 << 16 };

static void check(int holds)
{
    if (!holds)
        abort();
}

/* ---- what is shown, and what was told of it ---- */

struct streams {
    size_t stage_count;
    struct {
        char bytes[2][ROOM];
        size_t length[2];
    } stage[STAGES];
};

static struct streams shown, told;

static void shown_stage(void *data, size_t index, struct events_stage *out)
{
    struct streams *streams = data;
    check(index < streams->stage_count);
    *out = (struct events_stage){.name = "run"};
    for (int i = 0; i < 2; i++) {
        out->bytes[i] = streams->stage[index].bytes[i];
        out->length[i] = streams->stage[index].length[i];
    }
}

static void empty(struct streams *streams)
{
    streams->stage_count = 0;
    for (int i = 0; i < STAGES; i++)
        streams->stage[i].length[0] = streams->stage[i].length[1] = 0;
}

static void add(struct streams *streams, int stream, const char *bytes, size_t length)
{
    check(streams->stage_count > 0);
    size_t last = streams->stage_count - 1, *used = &streams->stage[last].length[stream];
    check(*used + length <= ROOM);
    memcpy(streams->stage[last].bytes[stream] + *used, bytes, length);
    *used += length;
}

static void check_same(const struct streams *a, const struct streams *b)
{
    check(a->stage_count == b->stage_count);
    for (size_t i = 0; i < a->stage_count; i++)
        for (int stream = 0; stream < 2; stream++) {
            check(a->stage[i].length[stream] == b->stage[i].length[stream]);
            check(memcmp(a->stage[i].bytes[stream], b->stage[i].bytes[stream], a->stage[i].length[stream]) == 0);
        }
}

/* ---- a client ---- */

static void take_output(int stream, const json_t *data)
{
    const json_t *text = json_object_get(data, "text"), *base64 = json_object_get(data, "base64");
    size_t last = told.stage_count - 1;
    check(told.stage_count > 0 && (text == NULL) != (base64 == NULL));
    check((size_t)json_integer_value(json_object_get(data, "offset")) == told.stage[last].length[stream]);
    if (text != NULL) {
        add(&told, stream, json_string_value(text), json_string_length(text));
        return;
    }
    hc_cleanup_free char *bytes = NULL;
    size_t length;
    check(hc_base64_decode(json_string_value(base64), json_string_length(base64), &bytes, &length) == 0);
    add(&told, stream, bytes, length);
}

/* One event, which is three lines and an empty one. Its id in `id`. */
static void take_event(char *event, size_t length, char *id)
{
    char *lines[3], *at = event;
    check(length > 2 && strlen(event) == length && strcmp(event + length - 2, "\n\n") == 0);
    for (int i = 0; i < 3; i++) {
        lines[i] = at;
        at = strchr(at, '\n');
        check(at != NULL);
        *at++ = '\0';
    }
    check(strcmp(at, "\n") == 0 && strchr(event, '\r') == NULL);
    check(strncmp(lines[0], "id: ", 4) == 0 && strlen(lines[0] + 4) < EVENTS_ID_SIZE);
    check(strncmp(lines[1], "event: ", 7) == 0 && strncmp(lines[2], "data: ", 6) == 0);
    strcpy(id, lines[0] + 4);
    hc_cleanup_json json_t *data = NULL;
    check(hc_json_read(lines[2] + 6, strlen(lines[2] + 6), 8, &data, NULL) == 0);
    const char *name = lines[1] + 7;
    if (strcmp(name, "stage") == 0) {
        check(told.stage_count < STAGES);
        told.stage_count++;
    } else if (strcmp(name, "start") != 0) {
        check(strcmp(name, "stdout") == 0 || strcmp(name, "stderr") == 0);
        take_output(strcmp(name, "stderr") == 0, data);
    }
}

/* Reads what there is. `leave`: after every so many events the reader goes and comes back with what it saw last. */
static void read_events(struct events_position *position, const struct events_source *source, unsigned leave)
{
    for (unsigned count = 1;; count++) {
        struct hc_buf out = HC_BUF_INIT(1 << 20);
        char id[EVENTS_ID_SIZE];
        int result = events_next(position, source, &out);
        if (result == 1)
            take_event(out.data, out.length, id);
        hc_buf_release(&out);
        check(result >= 0 && result <= 2 && (result != 2 || source->over));
        if (result != 1)
            return;
        if (leave > 0 && count % leave == 0) {
            struct events_position back;
            check(events_parse_id(id, &back) == 0 && events_position_fits(&back, source));
            *position = back;
        }
    }
}

static void check_kept(const struct events_source *source)
{
    hc_cleanup_free char *log = events_pack(source);
    struct events_kept *kept = NULL;
    struct events_source again;
    struct events_position position = {0};
    check(log != NULL && events_kept_new(log, strlen(log), NULL, 0, &kept, NULL) == 0);
    events_kept_source(kept, "run_x", &again);
    empty(&told);
    read_events(&position, &again, 3);
    check_same(&shown, &told);
    events_kept_free(kept);
}

/* ---- what a client says ---- */

static void try_id(const char *text)
{
    struct events_position position;
    char again[EVENTS_ID_SIZE];
    if (events_parse_id(text, &position) == 0) {
        check(strcmp(events_format_id(&position, again), text) == 0);
        struct events_source source = {.id = "run_x", .stage_count = shown.stage_count, .over = true, .data = &shown};
        source.stage = shown_stage;
        struct hc_buf out = HC_BUF_INIT(1 << 20);
        if (events_position_fits(&position, &source))
            check(events_next(&position, &source, &out) >= 0);
        hc_buf_release(&out);
    }
}

static void try_words(char *query, char *accept)
{
    static const char *const known[] = {"wait", "limit", "before", NULL};
    struct http_header header = {.name = "accept", .value = accept};
    struct http_request request = {.query = query, .headers = &header, .header_count = 1};
    char text[32], other[16];
    for (size_t i = 0; known[i] != NULL; i++)
        if (http_query_value(&request, known[i], text, sizeof text) == 1)
            check(strlen(text) < sizeof text);
    const char *unknown = http_query_unknown(&request, known, other, sizeof other);
    check(unknown == NULL || strlen(unknown) < sizeof other);
    bool events = http_accepts(&request, "text/event-stream"), plain = http_accepts(&request, "text/plain");
    check(strchr(accept, '/') != NULL || (!events && !plain));
}

static char *take_line(const uint8_t **data, size_t *size)
{
    const uint8_t *end = memchr(*data, '\n', *size);
    size_t length = end != NULL ? (size_t)(end - *data) : *size;
    char *line = strndup((const char *)*data, length);
    check(line != NULL);
    *data += length + (end != NULL);
    *size -= length + (end != NULL);
    return line;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > ROOM)
        return 0;
    hc_cleanup_free char *id = take_line(&data, &size), *query = take_line(&data, &size),
                         *accept = take_line(&data, &size);
    struct events_source source = {.id = "run_x", .data = &shown, .stage = shown_stage};
    struct events_position position = {0};
    empty(&shown);
    empty(&told);
    while (size >= 2) {
        uint8_t whose = data[0];
        size_t length = data[1] < size - 2 ? data[1] : size - 2;
        data += 2;
        if (((whose & 8) || shown.stage_count == 0) && shown.stage_count < STAGES)
            shown.stage_count++;
        add(&shown, whose & 1, (const char *)data, length);
        data += length;
        size -= length;
        size -= 2;
        source.stage_count = shown.stage_count;
        if (whose & 2)
            read_events(&position, &source, whose >> 5);
    }
    source.over = true;
    read_events(&position, &source, 2);
    check_same(&shown, &told);
    check_kept(&source);
    try_id(id);
    try_words(query, accept);
    return 0;
}
