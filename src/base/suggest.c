/*
 * "Did you mean …?": restricted Damerau-Levenshtein distance (a swap of neighbours is one mistake) over case-folded
 * ASCII. What always holds: no allocation; a word longer than WORD_MAX gets no suggestion, which bounds the work.
 */
#include "base/suggest.h"
#include <string.h>

enum { WORD_MAX = 64 };

static unsigned char fold(char c)
{
    return (unsigned char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Three rows are enough: the one being filled, the one before, and the one before that for the swaps. */
static size_t distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t rows[3][WORD_MAX + 1];
    size_t *before = rows[0], *previous = rows[1], *current = rows[2];
    for (size_t j = 0; j <= b_length; j++)
        previous[j] = j;
    memcpy(before, previous, sizeof rows[0]);
    for (size_t i = 1; i <= a_length; i++) {
        current[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t wrong = fold(a[i - 1]) != fold(b[j - 1]);
            size_t best = smaller(previous[j] + 1, current[j - 1] + 1);
            best = smaller(best, previous[j - 1] + wrong);
            if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) && fold(a[i - 2]) == fold(b[j - 1]))
                best = smaller(best, before[j - 2] + 1);
            current[j] = best;
        }
        size_t *spare = before;
        before = previous;
        previous = current;
        current = spare;
    }
    return previous[b_length];
}

static int is_prefix(const char *word, size_t length, const char *candidate)
{
    for (size_t i = 0; i < length; i++)
        if (fold(word[i]) != fold(candidate[i])) /* also stops at the candidate's NUL: word holds none */
            return 0;
    return 1;
}

const char *hc_suggest(const char *word, const char *const *candidates, size_t count)
{
    size_t length = strnlen(word, WORD_MAX + 1);
    if (length == 0 || length > WORD_MAX)
        return NULL;
    size_t allowed = length / 3 > 0 ? length / 3 : 1;
    const char *nearest = NULL;
    const char *longer = NULL; /* the shortest candidate that word is the beginning of */
    size_t nearest_distance = allowed + 1;
    for (size_t i = 0; i < count; i++) {
        size_t candidate_length = strnlen(candidates[i], WORD_MAX + 1);
        if (candidate_length == 0 || candidate_length > WORD_MAX)
            continue;
        size_t wrong = distance(word, length, candidates[i], candidate_length);
        /* Every letter wrong is no likeness at all: "x" is not nearly "c". */
        if (wrong < nearest_distance && wrong < length) {
            nearest = candidates[i];
            nearest_distance = wrong;
        }
        if (is_prefix(word, length, candidates[i]) && (longer == NULL || candidate_length < strlen(longer)))
            longer = candidates[i];
    }
    /* A beginning has no letter wrong, so only a single slip is nearer than that. */
    if (longer != NULL && nearest_distance > 1)
        return longer;
    return nearest;
}
