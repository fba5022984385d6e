/*
 * Matching of patterns, in two layers that work alike: the characters of one component against *, and the components of
 * a path against **. Each remembers only its last star: if what follows that star cannot be matched, giving an earlier
 * star more does not help either, so there is no recursion and no exponential pattern.
 */
#include "cell/glob.h"

#include <stddef.h>
#include <string.h>

struct part { /* one component */
    const char *at, *end;
};

static struct part part_of(const char *text)
{
    return (struct part){text, text + strcspn(text, "/")};
}

/* The next component, or NULL after the last. */
static const char *after(struct part part)
{
    return *part.end == '/' ? part.end + 1 : NULL;
}

/* One [set] against a byte. Returns what follows the set, or NULL when it is not closed: then '[' stands for itself. */
static const char *match_set(const char *at, const char *end, unsigned char byte, bool *matches)
{
    bool negated = at < end && (*at == '!' || *at == '^'), found = false;
    const char *first = at + negated;

    for (at = first; at < end && (*at != ']' || at == first); at++) {
        unsigned char low = (unsigned char)*at, high = low;
        if (end - at > 2 && at[1] == '-' && at[2] != ']') {
            high = (unsigned char)at[2];
            at += 2;
        }
        found |= byte >= low && byte <= high;
    }
    *matches = found != negated;
    return at < end ? at + 1 : NULL;
}

/* One element of the pattern (not a star) against the text at *at; both move on when it matches. */
static bool match_element(const char **pattern, const char *pattern_end, const char **at, const char *end)
{
    const char *p = *pattern;
    unsigned char byte = (unsigned char)*(*at)++;

    if (*p == '?') {
        /* One character, not one byte of it. */
        while (byte >= 0xc0 && *at < end && ((unsigned char)**at & 0xc0) == 0x80)
            (*at)++;
        *pattern = p + 1;
        return true;
    }
    if (*p == '[') {
        bool matches = false;
        const char *next = match_set(p + 1, pattern_end, byte, &matches);
        if (next) {
            *pattern = next;
            return matches;
        }
    }
    if (*p == '\\' && p + 1 < pattern_end)
        p++;
    *pattern = p + 1;
    return (unsigned char)*p == byte;
}

static bool match_part(struct part pattern, struct part text)
{
    const char *p = pattern.at, *t = text.at, *star = NULL, *resume = NULL;

    while (t < text.end) {
        if (p < pattern.end && *p == '*') {
            star = ++p;
            resume = t;
            continue;
        }
        if (p < pattern.end && match_element(&p, pattern.end, &t, text.end))
            continue;
        if (!star)
            return false;
        p = star;
        t = ++resume;
    }
    while (p < pattern.end && *p == '*')
        p++;
    return p == pattern.end;
}

static bool is_any_depth(struct part pattern)
{
    return pattern.end - pattern.at == 2 && memcmp(pattern.at, "**", 2) == 0;
}

bool glob_match(const char *pattern, const char *path)
{
    const char *star = NULL, *resume = NULL;

    while (path) {
        if (pattern && is_any_depth(part_of(pattern))) {
            pattern = after(part_of(pattern));
            if (!pattern)
                return true;
            star = pattern;
            resume = path;
            continue;
        }
        if (pattern && match_part(part_of(pattern), part_of(path))) {
            pattern = after(part_of(pattern));
            path = after(part_of(path));
            continue;
        }
        if (!star)
            return false;
        pattern = star;
        path = resume = after(part_of(resume));
    }
    return !pattern;
}

bool glob_may_match_below(const char *pattern, const char *path)
{
    for (; pattern && path; pattern = after(part_of(pattern)), path = after(part_of(path))) {
        if (is_any_depth(part_of(pattern)))
            return true;
        if (!match_part(part_of(pattern), part_of(path)))
            return false;
    }
    return pattern != NULL;
}
