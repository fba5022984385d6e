/*
 * A tar that nobody vouches for, unpacked on this machine: the guest chose its names, links and bytes. What always
 * holds: nothing is written outside the folder or through a link, no link is made that leads out of it, and a file
 * appears whole or not at all.
 */
#ifndef HC_CLI_EXTRACT_H
#define HC_CLI_EXTRACT_H

#include "base/err.h"
#include "cell/files_tar.h"
#include <stdbool.h>

struct extract_folder; /* one that was made, and gets its mode and time at the end */

struct extract {
    int root;         /* not owned */
    const char *base; /* of all entries, in root: "" or the name of the copy. Borrowed */
    mode_t mask;
    struct extract_folder *folders;
    size_t folder_count;
    /* Bytes that were written. */
    void (*wrote)(void *data, size_t count);
    void *data;
};

void extract_start(struct extract *extract, int root, const char *base);
void extract_release(struct extract *extract);
/* One entry, at `path` below the base ("" is the base itself). 0; 1: it was left out, with the reason in *why (a
 * constant); -errno. */
int extract_entry(struct extract *extract, struct tar_reader *reader, const struct tar_entry *entry, const char *path,
                  const char **why, struct hc_err *err);
/* Modes and times of the folders that were made. */
void extract_finish(struct extract *extract);

#endif
