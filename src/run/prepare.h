/*
 * Caches that compilers can use, prepared ahead. The [prepare] command of a language is run once, in a cell of its own
 * and on nothing that came from outside; what it leaves in its working directory is what the cells of a server have as
 * {cache}, read-only. Nothing that a guest does can reach it, and a compiler that finds it missing or made by another
 * version of itself does without.
 */
#ifndef HC_RUN_PREPARE_H
#define HC_RUN_PREPARE_H

#include "run/language.h"

/* Makes `<folder>/<name>` anew, unless it was made by the same command with the same tools as there are now. 1: it was
 * made; 0: there was nothing to do; -errno: what was there before is still there. Takes as long as the command. */
int prepare_cache(const struct config *config, const struct language *language, int folder, struct hc_err *err);
/* Removes what an earlier one that was interrupted left. */
void prepare_clear(int folder);

#endif
