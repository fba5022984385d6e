/*
 * A JSON text as the command line looks into it, beside Jansson: nothing leads past its end, and where Jansson finds
 * the text valid, both see the same values in it.
 */
#include "text/json_plain.h"

#include <errno.h>
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool condition)
{
    if (!condition)
        abort();
}

static void compare(const json_t *known, struct hc_peek value, int depth);

static void compare_object(const json_t *known, struct hc_peek value, int depth)
{
    const char *key;
    json_t *member;

    expect(hc_peek_is_object(value));
    json_object_foreach((json_t *)known, key, member)
    {
        struct hc_peek found = hc_peek_member(value, key);
        if (found.at) /* a key that was written with escapes is not found, which is no harm: ours are plain words */
            compare(member, found, depth - 1);
    }
}

static void compare(const json_t *known, struct hc_peek value, int depth)
{
    struct hc_peek item = {0};
    char *text = NULL;
    size_t length = 0;
    int64_t number = 0;

    expect(value.at != NULL);
    if (depth == 0)
        return;
    if (json_is_string(known)) {
        expect(hc_peek_string(value, &text, &length) == 0 && length == json_string_length(known) &&
               memcmp(text, json_string_value(known), length) == 0);
        free(text);
    } else if (json_is_integer(known)) {
        expect(hc_peek_integer(value, &number) == -EPROTO || number == json_integer_value(known));
    } else if (json_is_array(known)) {
        expect(hc_peek_count(value) == json_array_size(known));
        for (size_t i = 0; i < json_array_size(known); i++) {
            expect(hc_peek_next(value, &item));
            compare(json_array_get(known, i), item, depth - 1);
        }
    } else if (json_is_object(known)) {
        compare_object(known, value, depth);
    } else {
        expect(hc_peek_is_true(value) == json_is_true(known));
    }
}

/* What nobody vouches for is looked at in every way. */
static void look(struct hc_peek value)
{
    char text[8];
    int64_t number;
    struct hc_peek item = {0};

    hc_peek_copy(value, text, sizeof text);
    hc_peek_copy(hc_peek_member(value, "a"), text, sizeof text);
    hc_peek_integer(value, &number);
    hc_peek_number(value);
    for (int i = 0; i < 16 && hc_peek_next(value, &item); i++)
        hc_peek_copy(item, text, sizeof text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size ? size : 1); /* exactly so long: ASan sees a step past it */
    if (!text)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    struct hc_peek value = hc_peek_text(text, size);
    look(value);
    json_t *known = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
    if (known && !memchr(text, '\0', size)) /* Jansson takes a NUL after the value for its end */
        compare(known, value, DEPTH);
    json_decref(known);

    /* What is written is read back as it was. */
    struct hc_buf written = HC_BUF_INIT(SIZE_MAX / 2);
    char *read = NULL;
    size_t length = 0;
    if (hc_json_add_string(&written, text, size) == 0) {
        expect(hc_peek_string(hc_peek_text(written.data, written.length), &read, &length) == 0);
        expect(length == size && memcmp(read, text, size) == 0);
    }
    free(read);
    hc_buf_release(&written);
    free(text);
    return 0;
}
