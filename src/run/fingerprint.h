/*
 * What two failures have in common, and what two programs have: both as numbers from which neither message nor code can
 * be had back.
 */
#ifndef HC_RUN_FINGERPRINT_H
#define HC_RUN_FINGERPRINT_H

#include "run/diagnose.h"

/* A message without what differs from run to run: numbers are 0, what is in quotes is "", paths are /, white space is
 * one space. `out` is no longer than the message. */
void message_normalise(const char *message, char *out, size_t size);
/* 64 bits, as 16 hexadecimal digits, over the language, category, error type, missing module and normalised message. */
void diagnosis_fingerprint(struct diagnosis *diagnosis, const char *language);

/*
 * The shape of a program: of every three tokens in a row (a name, a number, a text, a sign; white space does not count)
 * a hash, put into one of 64 slots by the hash itself; a slot keeps its least (min-wise hashing in one permutation).
 * The share of slots that two shapes agree in estimates the share of triples that the programs have in common.
 */
enum { SHAPE_SLOTS = 64, SHAPE_CODE_LIMIT = 256 * 1024 };
struct code_shape {
    uint32_t slot[SHAPE_SLOTS]; /* UINT32_MAX: empty */
};
void shape_begin(struct code_shape *shape);
/* Adds one file; no more than the first 256 KiB of it are looked at. */
void shape_add(struct code_shape *shape, const char *code, size_t length);
bool shape_is_empty(const struct code_shape *shape);

#endif
