/*
 * The part of Python's driver that is not in Python (languages/warm/python/sitecustomize.py is the other).
 *
 * Every object that a child uses is written to, for it is counted, and every page of the zygote that is written to is
 * copied first. A step of Python takes some ten objects from as many pages; so what each child does, it does here.
 * Python's functions are called for what is out of the ordinary.
 *
 * Nor does the zygote fork where its driver is imported, as a sitecustomize: to return from there, through the imports
 * that are under way, is work as well. The driver leaves a function in sys and opens WARM_LATER; the interpreter goes
 * on to the end of its start, and warm_python_serve is called where it opens its program.
 */
#ifndef HC_CELL_WARM_PYTHON_H
#define HC_CELL_WARM_PYTHON_H

#include "cell/entry.h"

struct warm_door {
    pid_t (*fork)(void);                        /* returns in children alone */
    const struct entry_words *(*receive)(void); /* waits for the program */
    void (*start_cold)(void);                   /* does not return */
};

/* Returns in a child that has its program, which the interpreter may open now. */
void warm_python_serve(const struct warm_door *door);

#endif
