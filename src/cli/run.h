/*
 * The parts of `hotcell run`: the command line as it was understood (run.c), the request made of it (request.c,
 * files.c), and the files that came back (collect.c).
 */
#ifndef HC_CLI_RUN_H
#define HC_CLI_RUN_H

#include "base/err.h"
#include "cli/options.h"
#include "cli/stream.h"
#include "cli/verbs.h"
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
    RUN_LOCAL,
    RUN_READ_ONLY,
    RUN_ALLOW_WEAK,
    RUN_COLLECT,
    RUN_COLLECT_TO,
    RUN_FORCE,
    RUN_QUIET,
    RUN_VERBOSE,
    RUN_OPTION_END /* those of other verbs that make requests begin here */
};

/* One command line. Strings are borrowed from argv; the fds are owned. */
struct run_line {
    const struct option *table;
    int argc;
    char **argv;
    const char *code, *shell, *entry, *language, *request;
    const char *config, *stdin_path, *collect_to;
    bool collect, force, allow_weak, local;
    bool endless;    /* it serves: hotcell mcp-wrap */
    bool mounts;     /* there is a --mount */
    bool command;    /* the operands are a command */
    char alone[448]; /* why no server of this machine runs it */
    int operand;     /* index of the first one; argc when there is none */
    int stdin_fd;    /* what was opened for --stdin, or -1 */
    int input_fd;    /* what the program reads: stdin_fd, hotcell's own stdin, or -1 for nothing; not owned */
    int collect_fd;  /* the folder that collected files go to, or -1 */
};

/* A collected file. */
struct run_file {
    const char *path, *type; /* "file", "symlink", "truncated" */
    const char *content;
    size_t length;
};

/* What came of a run, here or on a server. Everything is borrowed from whoever made it. */
struct run_outcome {
    int exit_code;
    const char *summary; /* one line, "" for plain success */
    const struct run_file *files;
    size_t file_count;
    const char *server; /* that ran it; NULL: this program */
    const char *alone;  /* without one: why, or NULL */
    const void *data;
    const char *(*json)(const void *data, bool pretty); /* the result; NULL: out of memory */
};

/* run.c: what both ways to run have in common. Each returns the exit code. */
int run_report(const struct cli *cli, const struct run_line *line, const struct run_outcome *outcome,
               struct stream *stream);
int run_interrupted(const struct cli *cli, const struct stream *stream);
int run_cannot_write(const struct cli *cli, const struct stream *stream);

/* A command line of this table, which must not have --json, -v or --request: hotcell mcp-wrap. */
int run_served(struct cli *cli, const struct verb *verb, int argc, char **argv);

/* request.c: everything the line asks for, put into the request. */
int request_build(const struct cli *cli, struct run_line *line, hc_request *request, struct hc_err *err);
/* One option of enum run_option; those that say nothing to a request are passed over. */
int request_option(hc_request *request, const struct option *option, const char *value, struct hc_err *err);

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
/* The folder that `path` is in, made where missing, below root and through no link; *name is its last part, inside
 * `path`, which is cut up. The fd, or -errno. */
int collect_parent(int root, char *path, const char **name);
/* Write one file at a path that nobody vouches for. 0 or -errno: -EINVAL for a path that leaves the folder, -ENOTDIR or
 * -ELOOP for one that goes through a link, -EEXIST for a file that is there, unless force. */
int collect_file(int root, const char *path, const char *content, size_t length, bool force);
/* Write every collected file below the folder. Each that cannot be written gets a message; the first's -errno is
 * returned. */
int collect_write(int folder, const struct run_file *files, size_t count, bool force, bool verbose);

#endif
