/* The layers of a cell, in words: one table for results, messages and the doctor. */
#ifndef HC_RUN_ISOLATION_H
#define HC_RUN_ISOLATION_H

#include <stddef.h>
#include <stdint.h>

enum { ISOLATION_LAYERS = 12 };
extern const char *const isolation_layer_words[ISOLATION_LAYERS]; /* bit n of enum isolation_layer is word n */
/* "memory, cpu, pids". */
const char *isolation_words(uint32_t bits, char *text, size_t size);

#endif
