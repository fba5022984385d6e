/*
 * The parts of hotcell cp. Both ways a tar is what travels: it carries modes, times and links, and its length need not
 * be known before it is sent.
 */
#ifndef HC_CLI_CP_H
#define HC_CLI_CP_H

#include "base/err.h"
#include "cli/progress.h"
#include "cli/sandbox.h"
#include <stdbool.h>
#include <stdint.h>

enum { EXIT_PARTLY = 1 }; /* something was left out, and a message said so */

struct cp {
    struct cli *cli;
    struct server server;
    char id[SANDBOX_ID];
    struct progress progress;
    uint64_t entries, bytes;
    bool partly;
};

/* cp.c: what a path of the sandbox is, by the server's word for it: "file", "directory", …; "" when there is nothing.
 * `size` may be NULL. */
int cp_look(struct cp *cp, const char *path, char type[16], uint64_t *size, struct hc_err *err);
/* "/v1/sandboxes/ID/KIND?path=PATH" */
int cp_target(const struct cp *cp, const char *kind, const char *path, struct hc_buf *target, struct hc_err *err);
/* A message about something that is left out. */
void cp_leave_out(struct cp *cp, const char *path, const char *why);

/* cp_in.c: a file or folder of this machine, as `name` in the folder `folder` of the sandbox; "" as the name: what is
 * in it, into that folder. */
int cp_in(struct cp *cp, const char *source, const char *folder, const char *name, struct hc_err *err);
/* stdin, as the bytes of a file, or as a tar that is unpacked in the folder. */
int cp_in_stream(struct cp *cp, const char *path, bool archive, struct hc_err *err);

/* cp_out.c: a path of the sandbox as `name` in the folder `root`. With "" as the name, what is in it goes there. */
int cp_out(struct cp *cp, const char *path, int root, const char *name, struct hc_err *err);
/* A file's bytes to fd. */
int cp_out_file(struct cp *cp, const char *path, int fd, struct hc_err *err);
/* A folder to stdout, as the tar that it comes as. */
int cp_out_archive(struct cp *cp, const char *path, struct hc_err *err);

#endif
