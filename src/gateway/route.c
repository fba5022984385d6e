/*
 * A path against the patterns of a table. What always holds: values are parts of a path that was decoded and found
 * plain (http_url.h), so none but a rest has a slash in it, and none is "." or "..".
 */
#include "base/suggest.h"
#include "gateway/gateway.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUGGESTIONS = 128 };

static bool take_value(struct route_match *match, const char *name, size_t name_length, const char *path,
                       const char *at)
{
    bool rest = name_length > 3 && memcmp(name + name_length - 3, "...", 3) == 0;
    size_t length = rest ? strlen(at) : strcspn(at, "/");
    if ((length == 0 && !rest) || match->count == ROUTE_VALUES)
        return false;
    match->value[match->count].name = name;
    match->value[match->count].name_length = rest ? name_length - 3 : name_length;
    match->value[match->count].at = (size_t)(at - path);
    match->value[match->count].length = length;
    match->value[match->count].rest = rest;
    match->count++;
    return true;
}

static bool pattern_fits(const char *pattern, const char *path, struct route_match *match)
{
    const char *at = path;
    match->count = 0;
    while (*pattern != '\0') {
        if (*pattern != '{') {
            if (*pattern++ != *at++)
                return false;
            continue;
        }
        const char *end = strchr(pattern, '}');
        if (!take_value(match, pattern + 1, (size_t)(end - pattern - 1), path, at))
            return false;
        at += match->value[match->count - 1].length;
        pattern = end + 1;
    }
    return *at == '\0';
}

static const char *method_word(enum http_method method)
{
    static const char *const words[] = {
        [HTTP_GET] = "GET, HEAD", [HTTP_HEAD] = "HEAD",       [HTTP_POST] = "POST", [HTTP_PUT] = "PUT",
        [HTTP_DELETE] = "DELETE", [HTTP_OPTIONS] = "OPTIONS", [HTTP_OTHER] = "",    [HTTP_ANY] = ""};
    return words[method];
}

void route_match(const struct route *table, enum http_method method, const char *path, struct route_match *match)
{
    *match = (struct route_match){0};
    size_t used = 0;
    unsigned named = 0; /* a bit for each method in `allow` */
    for (const struct route *route = table; route->pattern != NULL; route++) {
        if (!pattern_fits(route->pattern, path, match))
            continue;
        if (route->method == method || route->method == HTTP_ANY ||
            (method == HTTP_HEAD && route->method == HTTP_GET)) {
            match->route = route;
            match->allow[0] = '\0';
            return;
        }
        if ((named & 1U << route->method) == 0)
            used += (size_t)snprintf(match->allow + used, sizeof match->allow - used, "%s%s", used > 0 ? ", " : "",
                                     method_word(route->method));
        named |= 1U << route->method;
    }
    match->count = 0;
}

int route_bind(struct route_match *match, const char *path)
{
    for (size_t i = 0; i < match->count; i++)
        if (!match->value[i].rest && match->value[i].length > ROUTE_VALUE_MAX)
            return -ENAMETOOLONG;
    free(match->text); /* a request may be handled a second time */
    match->text = strdup(path);
    if (match->text == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < match->count; i++)
        match->text[match->value[i].at + match->value[i].length] = '\0';
    return 0;
}

void route_release(struct route_match *match)
{
    free(match->text);
    match->text = NULL;
}

const char *route_value(const struct route_match *match, const char *name)
{
    for (size_t i = 0; i < match->count; i++)
        if (strlen(name) == match->value[i].name_length &&
            memcmp(match->value[i].name, name, match->value[i].name_length) == 0)
            return match->text + match->value[i].at;
    return "";
}

/* An encoded slash is refused, so the slashes of a target are those of its path. */
const char *route_raw_rest(const struct route_match *match, const struct http_request *request)
{
    const char *raw = request->target;
    size_t end = match->count > 0 ? match->value[match->count - 1].at : 0;
    for (size_t i = 0; i < end; i++)
        if (request->path[i] == '/')
            raw = strchr(raw, '/') + 1;
    return raw;
}

const char *route_nearest(const struct route *table, const char *path)
{
    const char *patterns[SUGGESTIONS];
    size_t count = 0;
    for (const struct route *route = table; route->pattern != NULL && count < SUGGESTIONS; route++)
        if (strstr(route->pattern, "...}") == NULL) /* those are never far from anything */
            patterns[count++] = route->pattern;
    return hc_suggest(path, patterns, count);
}
