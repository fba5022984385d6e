/*
 * Looking at a request: its headers, the values of its query, what its Accept prefers. What always holds: nothing here
 * changes the request, and a value that could be read in two ways (there twice, broken escapes) is refused, not chosen.
 */
#include "gateway/http.h"
#include "gateway/http_url.h"
#include <errno.h>
#include <string.h>
#include <strings.h>

const char *http_header(const struct http_request *request, const char *name)
{
    for (size_t i = 0; i < request->header_count; i++)
        if (strcmp(request->headers[i].name, name) == 0)
            return request->headers[i].value;
    return NULL;
}

/* ---- the query ---- */

struct pair {
    const char *name, *value;
    size_t name_length, value_length;
};

/* The next name=value of the query; *at moves past it. */
static bool next_pair(const char **at, struct pair *pair)
{
    *at += strspn(*at, "&");
    if (**at == '\0')
        return false;
    size_t length = strcspn(*at, "&");
    const char *equals = memchr(*at, '=', length);
    pair->name = *at;
    pair->name_length = equals != NULL ? (size_t)(equals - *at) : length;
    pair->value = equals != NULL ? equals + 1 : *at + length;
    pair->value_length = equals != NULL ? length - pair->name_length - 1 : 0;
    *at += length;
    return true;
}

static bool is_named(const struct pair *pair, const char *name)
{
    char decoded[128];
    return http_percent_decode(pair->name, pair->name_length, true, decoded, sizeof decoded) >= 0 &&
           strcmp(decoded, name) == 0;
}

int http_query_value(const struct http_request *request, const char *name, char *text, size_t size)
{
    int found = 0;
    struct pair pair;
    for (const char *at = request->query; next_pair(&at, &pair);) {
        if (!is_named(&pair, name))
            continue;
        if (found == 1 || http_percent_decode(pair.value, pair.value_length, true, text, size) < 0)
            return -EINVAL;
        found = 1;
    }
    return found;
}

const char *http_query_unknown(const struct http_request *request, const char *const *known, char *text, size_t size)
{
    struct pair pair;
    for (const char *at = request->query; next_pair(&at, &pair);) {
        bool is_known = false;
        for (const char *const *name = known; *name != NULL && !is_known; name++)
            is_known = is_named(&pair, *name);
        if (is_known)
            continue;
        if (http_percent_decode(pair.name, pair.name_length, true, text, size) < 0) {
            size_t length = pair.name_length < size - 1 ? pair.name_length : size - 1;
            memcpy(text, pair.name, length); /* as it was sent, which is ASCII */
            text[length] = '\0';
        }
        return text;
    }
    return NULL;
}

/* ---- Accept ---- */

/* How well one type is served by what was accepted so far. */
struct match {
    unsigned exactness; /* 0: not named; 1: by a star-slash-star; 2: by type-slash-star; 3: by its name */
    unsigned quality;   /* in thousandths */
};

/* "q=0.8" in thousandths, of text that ends at `end`; what is malformed is not wanted. */
static unsigned read_weight(const char *text, const char *end)
{
    if (text[2] == '1')
        return 1000;
    unsigned value = 0, unit = 100;
    if (end - text > 4 && text[2] == '0' && text[3] == '.')
        for (const char *c = text + 4; c < end && *c >= '0' && *c <= '9'; c++, unit /= 10)
            value += (unsigned)(*c - '0') * unit;
    return value;
}

static unsigned read_quality(const char *item, size_t length)
{
    const char *end = item + length;
    for (const char *at = item; (at = memchr(at, ';', (size_t)(end - at))) != NULL;) {
        at++;
        while (at < end && (*at == ' ' || *at == '\t'))
            at++;
        if (end - at >= 3 && (*at | 0x20) == 'q' && at[1] == '=')
            return read_weight(at, end);
    }
    return 1000;
}

static void match_item(struct match *match, const char *type, const char *item, size_t length)
{
    size_t name = 0;
    while (name < length && item[name] != ';' && item[name] != ' ' && item[name] != '\t')
        name++;
    size_t major = strcspn(type, "/");
    unsigned exactness = 0;
    if (name == strlen(type) && strncasecmp(item, type, name) == 0)
        exactness = 3;
    else if (name > 2 && name - 2 == major && strncasecmp(item, type, major) == 0 && memcmp(item + major, "/*", 2) == 0)
        exactness = 2;
    else if (name == 3 && memcmp(item, "*/*", 3) == 0)
        exactness = 1;
    if (exactness <= match->exactness)
        return;
    match->exactness = exactness;
    match->quality = read_quality(item, length);
}

bool http_accepts(const struct http_request *request, const char *type)
{
    struct match wanted = {0}, json = {0};
    for (size_t i = 0; i < request->header_count; i++) {
        if (strcmp(request->headers[i].name, "accept") != 0)
            continue;
        for (const char *item = request->headers[i].value; *item != '\0';) {
            item += strspn(item, " \t,");
            size_t length = strcspn(item, ",");
            match_item(&wanted, type, item, length);
            match_item(&json, "application/json", item, length);
            item += length;
        }
    }
    if (wanted.quality == 0)
        return false;
    /* Of two that are liked as much, the one that was asked for by name; of two that were, JSON. */
    return wanted.quality != json.quality ? wanted.quality > json.quality : wanted.exactness > json.exactness;
}
