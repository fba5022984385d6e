/* See fingerprint.h. */
#include "run/fingerprint.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* FNV-1a, and the last step of MurmurHash3, so that every bit of the result depends on every byte. Not against forgery:
 * who makes two failures look alike fools only themselves. */
static const uint64_t HASH_START = 0xcbf29ce484222325;

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3;
    return hash;
}

static uint64_t hash_end(uint64_t hash)
{
    hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccd;
    hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53;
    return hash ^ hash >> 33;
}

/* ---- messages ---- */

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* The end of a text in quotes that begins here, or 0. An apostrophe within a word (can't) begins none. */
static size_t quoted(const char *text, bool after_word)
{
    static const struct {
        const char *open, *close;
    } pairs[] = {{"'", "'"}, {"\"", "\""}, {"`", "'"}, {"`", "`"}, {"\u2018", "\u2019"}, {"\u201c", "\u201d"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        size_t length = strlen(pairs[i].open);
        if (strncmp(text, pairs[i].open, length) != 0 || (after_word && text[0] == '\''))
            continue;
        const char *close = strstr(text + length, pairs[i].close);
        if (close != NULL)
            return (size_t)(close - text) + strlen(pairs[i].close);
    }
    return 0;
}

/* How much of the text goes, and what stands for it. */
static size_t vary(const char *text, char before, const char **instead)
{
    size_t length = quoted(text, is_word(before));
    *instead = "\"\"";
    if (length > 0)
        return length;
    *instead = "/";
    if (text[0] == '/' && is_word(text[1]) && !is_word(before))
        return strcspn(text, " \t\n'\",;:()");
    *instead = "0";
    if (isdigit((unsigned char)text[0]) && !is_word(before)) {
        length = text[0] == '0' && text[1] == 'x' ? 2 + strspn(text + 2, "0123456789abcdefABCDEF") : 0;
        return length > 2 ? length : strspn(text, "0123456789.");
    }
    *instead = " ";
    return strspn(text, " \t\r\n");
}

void message_normalise(const char *message, char *out, size_t size)
{
    size_t at = 0;
    char before = ' ';
    while (*message != '\0' && at + 3 < size) {
        const char *instead;
        size_t length = vary(message, before, &instead);
        if (length > 0) {
            size_t more = strlen(instead) < length ? strlen(instead) : length;
            memcpy(out + at, instead, more);
            at += more;
        } else {
            length = 1;
            out[at++] = *message;
        }
        before = message[length - 1];
        message += length;
    }
    out[at] = '\0';
}

void diagnosis_fingerprint(struct diagnosis *d, const char *language)
{
    char message[sizeof d->message];
    message_normalise(d->message, message, sizeof message);
    const char *const parts[] = {language, d->category != NULL ? d->category : "", d->error_type,
                                 d->proof[PROOF_MODULE], message};
    uint64_t hash = HASH_START;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        hash = hash_bytes(hash, parts[i], strlen(parts[i]) + 1);
    snprintf(d->fingerprint, sizeof d->fingerprint, "%016" PRIx64, hash_end(hash));
}

/* ---- programs ---- */

/* The length of the token at the beginning, and its hash: a name by its letters, a number or a text by its kind alone,
 * so that another constant is no other program. */
static size_t token(const char *code, size_t length, uint64_t *hash)
{
    size_t size = 1;
    if (is_word(code[0])) {
        while (size < length && is_word(code[size]))
            size++;
        bool number = isdigit((unsigned char)code[0]);
        *hash = hash_bytes(HASH_START, number ? "0" : code, number ? 1 : size);
    } else if (code[0] == '"' || code[0] == '\'') {
        while (size < length && code[size] != code[0] && code[size] != '\n')
            size++;
        size += size < length && code[size] == code[0];
        *hash = hash_bytes(HASH_START, "\"", 1);
    } else {
        *hash = hash_bytes(HASH_START, code, 1);
    }
    return size;
}

void shape_begin(struct code_shape *shape)
{
    memset(shape, 0xff, sizeof *shape);
}

void shape_add(struct code_shape *shape, const char *code, size_t length)
{
    uint64_t last[3] = {0};
    size_t tokens = 0;
    length = length < SHAPE_CODE_LIMIT ? length : SHAPE_CODE_LIMIT;
    for (size_t at = 0; at < length;) {
        if (isspace((unsigned char)code[at])) {
            at++;
            continue;
        }
        last[0] = last[1];
        last[1] = last[2];
        at += token(code + at, length - at, &last[2]);
        if (++tokens < 3)
            continue;
        uint64_t hash = hash_end(hash_bytes(HASH_START, last, sizeof last));
        uint32_t *slot = &shape->slot[hash % SHAPE_SLOTS], value = (uint32_t)(hash >> 32);
        *slot = value < *slot ? value : *slot;
    }
}

bool shape_is_empty(const struct code_shape *shape)
{
    for (size_t i = 0; i < SHAPE_SLOTS; i++)
        if (shape->slot[i] != UINT32_MAX)
            return false;
    return true;
}
