/* Shared by the config*.c files only: the table of keys, and how one key takes and shows its value. */
#ifndef HC_RUN_CONFIG_INTERNAL_H
#define HC_RUN_CONFIG_INTERNAL_H

#include "run/config.h"
#include "text/toml.h"

enum config_kind {
    CONFIG_BOOL,
    CONFIG_NUMBER,
    CONFIG_SIZE,     /* bytes */
    CONFIG_DURATION, /* µs */
    CONFIG_STRING,
    CONFIG_STRINGS, /* a list of any strings */
    CONFIG_PATHS,   /* absolute paths; ~/ is the home of whoever runs hotcell */
    CONFIG_NAMES,   /* names below /etc */
    CONFIG_LIMIT,   /* one of config->defaults */
    CONFIG_CEILING  /* one of config->ceilings */
};

struct config_key {
    const char *section, *name;
    enum config_kind kind;
    size_t offset;       /* in struct config; not for limits */
    enum limit_id limit; /* only for limits */
    const char *initial; /* as text; NULL: nothing */
    const char *summary;
    int (*check)(const char *text, struct hc_err *err); /* strings: more than being a string; may be NULL */
    const char *least; /* numbers, sizes and durations: with less nothing would work; NULL: anything will do */
    bool or_zero;      /* less than that, but none at all: what that means is in the summary */
};

struct config_origin {
    char *text; /* "default", "/etc/hotcell/config.toml:3", … */
    int file;   /* number of the file that set it, in order of reading; 0: none */
};

struct config *config_new(struct hc_err *err); /* every key at its default; NULL: out of memory */
size_t config_key_count(void);
struct config_key config_key_at(size_t index); /* by value: the rows of limits are made from limit_table */
/* The index, or -1. The seeds' names for limits ([sandbox] memory_limit) find the limit itself. */
int config_key_find(const char *section, const char *name);
/* Names for suggestions: sections when section is NULL, else the keys in it, aliases too. At most `max`; the count. */
size_t config_key_names(const char *section, const char **names, size_t max);
/* The section that has a key of this name, or NULL. */
const char *config_key_home(const char *name);

/* Outputs are written only on success. The error names the key; it does not know the file. */
int config_assign(struct config *config, const struct config_key *key, const struct toml_value *value,
                  struct hc_err *err);
int config_assign_text(struct config *config, const struct config_key *key, const char *text, struct hc_err *err);
void *config_member(const struct config *config, const struct config_key *key); /* where its value is; not for limits */
void config_drop(struct config *config, const struct config_key *key);          /* frees what the key holds */

/* config_mcp.c: the table [mcp]. */
int config_mcp_take(struct config *config, const struct toml_value *mcp, struct hc_err *err);
/* An empty one of this name, in place of one that was there. NULL: no name, or too many. */
struct mcp_server_config *config_mcp_add(struct mcp_config *mcp, const char *name, struct hc_err *err);
void config_mcp_release(struct mcp_config *mcp);

/* The caller's home, from $HOME or the password file; -ENOENT when neither says. */
int config_home(char *path, size_t size);

#endif
