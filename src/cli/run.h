/*
 * The parts of `hotcell run`: the command line as it was understood (run.c), the request made of it (request.c,
 * files.c), and the files that came back (collect.c).
 */
#ifndef HC_CLI_RUN_H
#define HC_CLI_RUN_H

#include "base/err.h"
#include "cli/options.h"
#include "hotcell.h"
#include <stdbool.h>
#include <stddef.h>

enum run_option {
    RUN_FIELD = OPTION_FIRST_OWN, /* nothing but hc_request_set(option->field) */
    RUN_CODE,
    RUN_LANGUAGE,
    RUN_ENTRY,
    RUN_SHELL,
    RUN_REQUEST,
    RUN_ENV,
    RUN_FILE,
    RUN_MOUNT,
    RUN_STDIN,
    RUN_READ_ONLY,
    RUN_ALLOW_WEAK,
    RUN_COLLECT,
    RUN_COLLECT_TO,
    RUN_FORCE,
    RUN_QUIET,
    RUN_VERBOSE,
};

/* One command line. Strings are borrowed from argv; the fds are owned. */
struct run_line {
    const struct option *table;
    int argc;
    char **argv;
    const char *code, *shell, *entry, *language, *request;
    const char *config, *stdin_path, *collect_to;
    bool collect, force, allow_weak;
    bool command;   /* the operands are a command */
    int operand;    /* index of the first one; argc when there is none */
    int stdin_fd;   /* what was opened for --stdin, or -1 */
    int collect_fd; /* the folder that collected files go to, or -1 */
};

/* request.c: everything the line asks for, put into the request. */
int request_build(struct run_line *line, hc_request *request, struct hc_err *err);

/* files.c */
/* --file PATH[:NAME]; a folder is taken with all that is in it. */
int files_add(hc_request *request, const char *spec, struct hc_err *err);
/* The program itself: its file is added and becomes the entry. Without a language and an extension, a "#!" line names
 * it. */
int files_add_program(hc_request *request, const char *path, bool has_language, struct hc_err *err);
/* "-ENOENT: there is no file …", with the nearest name in that folder as the remedy. */
int files_missing(const char *path, struct hc_err *err);

/* collect.c */
/* The folder for collected files; made when its parent exists. The fd, or -errno. */
int collect_open(const char *folder, struct hc_err *err);
/* Write one file at a path that nobody vouches for. 0 or -errno: -EINVAL for a path that leaves the folder, -ENOTDIR or
 * -ELOOP for one that goes through a link, -EEXIST for a file that is there, unless force. */
int collect_file(int root, const char *path, const char *content, size_t length, bool force);
/* Write every collected file below the folder. Each that cannot be written gets a message; the first's -errno is
 * returned. */
int collect_write(int folder, const hc_result *result, bool force, bool verbose);

#endif
