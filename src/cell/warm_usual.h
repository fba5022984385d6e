/*
 * Programs that are started as most are: by the command of their zygote's rehearsal, in its folder and its environment.
 * A driver in a slow language need not find that out by itself (warm.h). In hotcell-warm.so.
 */
#ifndef HC_CELL_WARM_USUAL_H
#define HC_CELL_WARM_USUAL_H

#include "cell/entry.h"

/* In a zygote that has just begun. */
void warm_usual_begin(void);
/* In a zygote: the rehearsal's block, or -1. */
void warm_usual_learn(int block);
/* In the child, in its folder. True where these are the words, and the script's first line asks for nothing: then it is
 * open as `fd`, which an exec closes. */
bool warm_usual_take(const struct entry_words *words, int fd);

#endif
