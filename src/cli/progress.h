/* A line on stderr about what takes long: only for a person who looks on, and only after a second. */
#ifndef HC_CLI_PROGRESS_H
#define HC_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool wanted, shown;
    const char *what; /* borrowed */
    uint64_t total;   /* 0: not known */
    uint64_t done, start, next;
};

void progress_start(struct progress *progress, const char *what, bool quiet);
/* So many bytes more. */
void progress_add(struct progress *progress, uint64_t bytes);
/* Takes the line away. */
void progress_end(struct progress *progress);

#endif
