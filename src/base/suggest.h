/* "Did you mean …?": the nearest of a list of words. */
#ifndef HC_BASE_SUGGEST_H
#define HC_BASE_SUGGEST_H

#include <stddef.h>

/* The candidate nearest to `word` (Damerau-Levenshtein, case folded), or NULL when none is near enough to be worth
 * saying: at most a third of the letters wrong, at least one; a candidate that `word` is a prefix of also counts. */
const char *hc_suggest(const char *word, const char *const *candidates, size_t count);

#endif
