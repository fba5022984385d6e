/*
 * The pages of files that programs of a zygote look at: code and constants, for the most part. They are shared by
 * everybody, but each process has to be shown them, which costs the fork and the exit of a child a tenth of a
 * microsecond for each, and the child itself about two for each that it has to ask for. An interpreter has a thousand
 * and more, of which a program needs a third: the rehearsal (warm_pages.h) tells which, and children are born with
 * these and no others.
 *
 * A process that asks for one page is shown its neighbours as well, as far as its mapping goes. So in the rehearsal
 * each page is a mapping of its own, and what is there at the end is what was asked for.
 */
#ifndef HC_CELL_WARM_FILES_H
#define HC_CELL_WARM_FILES_H

#include "cell/warm_maps.h"

/* In the rehearsal's process, which has just been forked: from now on it is noted. */
void warm_files_begin(void);
/* At its end: adds what it has used. */
void warm_files_find(struct warm_ranges *found);
/* In the zygote: its children are born with these. */
void warm_files_hand_down(const struct warm_ranges *found);
/* In the zygote, before its first child: it has what it needs for itself as well. */
void warm_files_settle(void);

#endif
