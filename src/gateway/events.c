/*
 * See events.h. What always holds: an event never splits a UTF-8 sequence that the program wrote whole (the incomplete
 * end of what has come so far waits for its rest), and a piece that is not UTF-8 is told as base64.
 */
#include "gateway/events.h"

#include "base/fd.h"
#include "text/base64.h"
#include "text/json.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const stream_names[2] = {"stdout", "stderr"};

/* ---- ids ---- */

/* Digits alone, no sign, no leading zero, so that each position has one id. */
static bool parse_number(const char **text, uint64_t *number)
{
    size_t length = strspn(*text, "0123456789");
    if (length == 0 || length > 18 || ((*text)[0] == '0' && length > 1))
        return false;
    *number = strtoull(*text, NULL, 10);
    *text += length;
    return true;
}

int events_parse_id(const char *text, struct events_position *position)
{
    struct events_position found = {0};
    uint64_t stage = 0;
    if (strcmp(text, "start") == 0) {
        found.phase = EVENTS_STARTED;
    } else if (strcmp(text, "end") == 0) {
        found.phase = EVENTS_OVER;
    } else {
        bool good = parse_number(&text, &stage) && *text++ == '-' && parse_number(&text, &found.offset[0]) &&
                    *text++ == '-' && parse_number(&text, &found.offset[1]) && *text == '\0';
        if (!good)
            return -EINVAL;
        found.phase = EVENTS_STAGE;
        found.stage = (size_t)stage;
    }
    *position = found;
    return 0;
}

const char *events_format_id(const struct events_position *position, char *text)
{
    if (position->phase == EVENTS_STAGE)
        snprintf(text, EVENTS_ID_SIZE, "%zu-%" PRIu64 "-%" PRIu64, position->stage, position->offset[0],
                 position->offset[1]);
    else
        snprintf(text, EVENTS_ID_SIZE, "%s", position->phase == EVENTS_OVER ? "end" : "start");
    return text;
}

bool events_position_fits(const struct events_position *position, const struct events_source *source)
{
    if (position->phase != EVENTS_STAGE)
        return position->phase != EVENTS_OVER || source->over;
    if (position->stage >= source->stage_count)
        return false;
    struct events_stage stage;
    source->stage(source->data, position->stage, &stage);
    return position->offset[0] <= stage.length[0] && position->offset[1] <= stage.length[1];
}

/* ---- pieces of output ---- */

/* How many bytes at the end are the beginning of a UTF-8 sequence whose rest is missing. */
static size_t incomplete_tail(const char *bytes, size_t length)
{
    for (size_t back = 1; back <= 3 && back <= length; back++) {
        unsigned char byte = (unsigned char)bytes[length - back];
        if ((byte & 0xc0) == 0x80)
            continue;
        size_t whole = byte >= 0xf0 && byte <= 0xf4   ? 4
                       : byte >= 0xe0 && byte <= 0xef ? 3
                       : byte >= 0xc2 && byte <= 0xdf ? 2
                                                      : 1;
        return whole > back ? back : 0;
    }
    return 0;
}

/* How much of `length` bytes goes into the next event. `closed`: no more will follow them. */
static size_t piece_length(const char *bytes, size_t length, bool closed)
{
    size_t piece = length < EVENTS_PIECE ? length : EVENTS_PIECE;
    if (piece == length && closed)
        return piece;
    return piece - incomplete_tail(bytes, piece);
}

static json_t *bytes_value(const char *bytes, size_t length, const char **key)
{
    json_t *value = hc_json_text(bytes, length);
    *key = "text";
    if (value != NULL)
        return value;
    *key = "base64";
    size_t encoded = 0;
    hc_cleanup_free char *text = hc_base64_encode(bytes, length, &encoded);
    return text != NULL ? json_stringn_nocheck(text, encoded) : NULL;
}

/* Takes `data`, which may be NULL for lack of memory. */
static int add_event(struct hc_buf *out, const char *name, const struct events_position *position, json_t *data)
{
    char id[EVENTS_ID_SIZE];
    hc_cleanup_free char *text = data != NULL ? hc_json_write(data, false) : NULL;
    json_decref(data);
    if (text == NULL)
        return -ENOMEM;
    hc_buf_printf(out, "id: %s\nevent: %s\ndata: ", events_format_id(position, id), name);
    hc_buf_add_str(out, text);
    hc_buf_add_str(out, "\n\n");
    return hc_buf_status(out) < 0 ? hc_buf_status(out) : 1;
}

static int add_piece(struct events_position *position, int stream, const char *bytes, size_t length, struct hc_buf *out)
{
    const char *key;
    json_t *value = bytes_value(bytes, length, &key);
    json_t *data =
        value != NULL ? json_pack("{s:o, s:I}", key, value, "offset", (json_int_t)position->offset[stream]) : NULL;
    struct events_position after = *position;
    after.offset[stream] += length;
    int result = add_event(out, stream_names[stream], &after, data);
    if (result > 0)
        *position = after;
    return result;
}

static int add_stage(struct events_position *position, const struct events_source *source, size_t index,
                     struct hc_buf *out)
{
    struct events_stage stage;
    source->stage(source->data, index, &stage);
    struct events_position after = {.phase = EVENTS_STAGE, .stage = index};
    int result = add_event(out, "stage", &after, json_pack("{s:o}", "name", hc_json_text_lossy(stage.name)));
    if (result > 0)
        *position = after;
    return result;
}

/* ---- the next one ---- */

static int next_in_stage(struct events_position *position, const struct events_source *source, struct hc_buf *out)
{
    struct events_stage stage;
    source->stage(source->data, position->stage, &stage);
    bool last = position->stage + 1 >= source->stage_count;
    bool closed = !last || source->over;
    for (int stream = 0; stream < 2; stream++) {
        const char *bytes = stage.bytes[stream] + position->offset[stream];
        size_t left = stage.length[stream] - (size_t)position->offset[stream];
        size_t piece = left > 0 ? piece_length(bytes, left, closed) : 0;
        if (piece > 0)
            return add_piece(position, stream, bytes, piece, out);
    }
    if (!last)
        return add_stage(position, source, position->stage + 1, out);
    return source->over ? 2 : 0;
}

int events_next(struct events_position *position, const struct events_source *source, struct hc_buf *out)
{
    switch (position->phase) {
    case EVENTS_NOTHING: {
        struct events_position after = {.phase = EVENTS_STARTED};
        int result = add_event(out, "start", &after, json_pack("{s:s}", "id", source->id));
        if (result > 0)
            *position = after;
        return result;
    }
    case EVENTS_STARTED:
        if (source->stage_count > 0)
            return add_stage(position, source, 0, out);
        return source->over ? 2 : 0;
    case EVENTS_STAGE:
        return next_in_stage(position, source, out);
    case EVENTS_OVER:
        break;
    }
    return 0;
}

int events_result_begin(struct events_position *position, struct hc_buf *out)
{
    position->phase = EVENTS_OVER;
    return hc_buf_add_str(out, "id: end\nevent: result\ndata: ");
}

/* ---- kept ---- */

static json_t *packed_stream(const char *bytes, size_t length)
{
    const char *key;
    json_t *value = bytes_value(bytes, length, &key);
    return value != NULL ? json_pack("{s:o}", key, value) : NULL;
}

char *events_pack(const struct events_source *source)
{
    hc_cleanup_json json_t *list = json_array();
    for (size_t i = 0; i < source->stage_count; i++) {
        struct events_stage stage;
        source->stage(source->data, i, &stage);
        json_t *object = json_pack("{s:o, s:o, s:o}", "name", hc_json_text_lossy(stage.name), "stdout",
                                   packed_stream(stage.bytes[0], stage.length[0]), "stderr",
                                   packed_stream(stage.bytes[1], stage.length[1]));
        if (json_array_append_new(list, object) != 0)
            return NULL;
    }
    return list != NULL ? hc_json_write(list, false) : NULL;
}

struct kept_stage {
    char *name;
    char *bytes[2];
    size_t length[2];
};

struct events_kept {
    struct kept_stage *stages;
    size_t count;
};

void events_kept_free(struct events_kept *kept)
{
    if (kept == NULL)
        return;
    for (size_t i = 0; i < kept->count; i++) {
        free(kept->stages[i].name);
        free(kept->stages[i].bytes[0]);
        free(kept->stages[i].bytes[1]);
    }
    free(kept->stages);
    free(kept);
}

/* A string's bytes, or what its base64 stands for. */
static int read_bytes(const json_t *value, bool base64, char **bytes, size_t *length)
{
    const char *text = json_string_value(value);
    size_t size = json_string_length(value);
    if (text == NULL)
        return -EBADMSG;
    if (base64)
        return hc_base64_decode(text, size, bytes, length);
    *bytes = malloc(size + 1);
    if (*bytes == NULL)
        return -ENOMEM;
    memcpy(*bytes, text, size + 1);
    *length = size;
    return 0;
}

static int read_packed(struct kept_stage *stage, const json_t *object)
{
    int result = 0;
    for (int stream = 0; stream < 2 && result == 0; stream++) {
        const json_t *holder = json_object_get(object, stream_names[stream]);
        const json_t *encoded = json_object_get(holder, "base64");
        result = read_bytes(encoded != NULL ? encoded : json_object_get(holder, "text"), encoded != NULL,
                            &stage->bytes[stream], &stage->length[stream]);
    }
    return result;
}

static int read_streams(struct kept_stage *stage, const json_t *result)
{
    const char *encoding = json_string_value(json_object_get(result, "output_encoding"));
    bool base64 = encoding != NULL && strcmp(encoding, "base64") == 0;
    int status = 0;
    for (int stream = 0; stream < 2 && status == 0; stream++)
        status = read_bytes(json_object_get(result, stream_names[stream]), base64, &stage->bytes[stream],
                            &stage->length[stream]);
    return status;
}

/* `list`: stages by name. The streams are in each of them when it is a packed log, else in `result`, for the last. */
static int read_stages(struct events_kept *kept, const json_t *list, const json_t *result)
{
    size_t count = json_array_size(list);
    kept->stages = calloc(count > 0 ? count : 1, sizeof *kept->stages);
    if (kept->stages == NULL)
        return -ENOMEM;
    int status = 0;
    for (size_t i = 0; i < count && status == 0; i++) {
        const json_t *object = json_array_get(list, i);
        struct kept_stage *stage = &kept->stages[kept->count++];
        const char *name = json_string_value(json_object_get(object, "name"));
        stage->name = strdup(name != NULL ? name : "");
        if (stage->name == NULL)
            status = -ENOMEM;
        else if (result == NULL)
            status = read_packed(stage, object);
        else if (i + 1 == count)
            status = read_streams(stage, result);
    }
    return status;
}

int events_kept_new(const char *log, size_t log_length, const char *result, size_t result_length,
                    struct events_kept **out, struct hc_err *err)
{
    hc_cleanup_json json_t *root = NULL;
    int status = log != NULL ? hc_json_read(log, log_length, 8, &root, err)
                             : hc_json_read(result, result_length, 80, &root, err);
    if (status < 0)
        return hc_err_context(err, "the history");
    struct events_kept *kept = calloc(1, sizeof *kept);
    if (kept == NULL)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    status = log != NULL ? read_stages(kept, root, NULL) : read_stages(kept, json_object_get(root, "stages"), root);
    if (status < 0) {
        events_kept_free(kept);
        return hc_fail_errno(err, HC_CLASS_OURS, -status, "reading what the run showed");
    }
    *out = kept;
    return 0;
}

static void kept_stage_at(void *data, size_t index, struct events_stage *out)
{
    const struct events_kept *kept = data;
    const struct kept_stage *stage = &kept->stages[index];
    *out = (struct events_stage){.name = stage->name};
    for (int stream = 0; stream < 2; stream++) {
        out->bytes[stream] = stage->bytes[stream] != NULL ? stage->bytes[stream] : "";
        out->length[stream] = stage->length[stream];
    }
}

void events_kept_source(struct events_kept *kept, const char *id, struct events_source *source)
{
    *source = (struct events_source){
        .id = id, .stage_count = kept->count, .over = true, .data = kept, .stage = kept_stage_at};
}
