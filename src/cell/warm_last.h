/* The last word of a program that began warm: see witness.h. In hotcell-warm.so. */
#ifndef HC_CELL_WARM_LAST_H
#define HC_CELL_WARM_LAST_H

#include <stdbool.h>

/* Before anything of the interpreter's is: what is registered first comes last. */
void warm_last_at_exit(void);
/* Of this process, or not. Not of those that it forks. */
void warm_last_is_heard(bool yes);
/* Returns where nobody would hear it, or others are still at work: the exit is then to be made as ever. */
void warm_last_say(int code);

#endif
