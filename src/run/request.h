/*
 * What was asked for: API.md's run request, held as C. Filled by setters (command line, library) or from JSON (server).
 * It is checked here for shape; what it means (which language, which limits are allowed) is decided by plan.c.
 */
#ifndef HC_RUN_REQUEST_H
#define HC_RUN_REQUEST_H

#include "run/limits.h"

enum {
    REQUEST_MAX_FILES = 1024,
    REQUEST_MAX_MOUNTS = 16,
    REQUEST_MAX_WORDS = 4096,
    REQUEST_MAX_STAGES = 16,
    REQUEST_MAX_TESTS = 256,
    RUN_NAME_SIZE = 68, /* of a stage or test: at most 64 bytes and a NUL */
};

struct words { /* a list of strings, NULL-terminated for execve's sake; each string and the list are malloc'ed */
    char **item;
    size_t count;
};

struct blob {
    char *data; /* malloc'ed, NUL-terminated */
    size_t length;
};

struct request_file {
    char *path; /* relative to the working directory; no "..", not absolute, no empty component */
    struct blob content;
    unsigned mode; /* 0644 unless said otherwise */
};

struct request_mount {
    char *host, *path;
    bool read_only;
};

struct request_stage {
    char *name; /* may be NULL */
    struct words command;
    struct limits limits; /* only what the stage set */
};

struct request_test {
    char *name; /* may be NULL */
    struct blob input;
    struct blob expect_stdout;
    bool has_input, has_expect, has_args; /* given; the request's own stdin and args stand in for the first and last */
    struct words args;
    struct limits limits; /* only what the test set */
};

struct request {
    char *language; /* NULL: decided by entry's name, else the configured default */
    struct blob code;
    bool has_code;
    char *entry; /* NULL: the language's usual file name */
    struct words command;
    bool command_shell; /* command was one string: item[0] goes to `sh -c` */
    struct request_file *files;
    size_t file_count;
    struct blob input;      /* stdin */
    struct words args, env; /* env items are "K=V" */
    struct limits limits;
    char *network, *image; /* NULL: default */
    int read_only;         /* -1: default, 0, 1 */
    int allow_weak;        /* -1: as configured, 0, 1. Not in JSON: only the operator says this */
    bool code_apart;       /* the code goes to PLAN_APART, because others share the working directory; no files then.
                              Not in JSON */
    char *apart;           /* with code_apart: a name that nobody else in the cell has. Code that is compiled goes to a
                              folder of that name, other code to a hidden file in the working directory, so that it
                              finds its neighbours there. Not in JSON */
    char *cwd;             /* where it begins; NULL: the working directory of the cell. Not in JSON */
    struct request_mount *mounts;
    size_t mount_count;
    struct request_stage *stages;
    size_t stage_count;
    struct request_test *tests;
    size_t test_count;
    struct words collect;
    char *metadata; /* JSON object as text, or NULL */
    bool async;
    bool no_cache;   /* "cache": false: its compile is done anew, and not kept */
    bool stdin_open; /* more input is sent while it runs */
};

struct request *request_new(void);
void request_free(struct request *request);

/* Every setter copies, and fails with HC_CLASS_REQUEST naming the field. `field` in request_set is one of language,
 * code, entry, shell (a command string), stdin, stdin_open, network, image, read_only, async, or limits.<name>. */
int request_set(struct request *request, const char *field, const char *value, struct hc_err *err);
int request_set_code(struct request *request, const char *data, size_t length, struct hc_err *err);
int request_set_input(struct request *request, const char *data, size_t length, struct hc_err *err);
int request_add_command(struct request *request, const char *word, struct hc_err *err);
int request_add_arg(struct request *request, const char *word, struct hc_err *err);
int request_add_env(struct request *request, const char *name, const char *value, struct hc_err *err);
int request_add_file(struct request *request, const char *path, const char *data, size_t length, unsigned mode,
                     struct hc_err *err);
int request_add_mount(struct request *request, const char *host, const char *path, bool read_only, struct hc_err *err);
int request_add_collect(struct request *request, const char *pattern, struct hc_err *err);
/* A JSON object, as text. */
int request_set_metadata(struct request *request, const char *json, size_t length, struct hc_err *err);
/* The whole of API.md's request object. Strict: unknown fields, duplicate keys, wrong types, deep nesting are errors
 * that name the field (files.data.bin.base64, limits.memory, tests[2].stdin). */
int request_from_json(struct request *request, const char *text, size_t length, struct hc_err *err);

/* The other way: only what was set. malloc'ed; NULL with an error, which names a text that is not UTF-8. */
char *request_to_json(const struct request *request, struct hc_err *err);

int words_add(struct words *words, const char *text); /* copies; 0 or -ENOMEM */
void words_release(struct words *words);

#endif
