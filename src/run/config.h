/*
 * Configuration: /etc/hotcell/config.toml, then the user's ($XDG_CONFIG_HOME/hotcell/config.toml), then --config, then
 * the environment and the command line; the later wins, and each value remembers where it came from. One table in
 * config_keys.c has every key.
 */
#ifndef HC_RUN_CONFIG_H
#define HC_RUN_CONFIG_H

#include "run/limits.h"
#include "run/request.h"

struct config {
    struct limits defaults, ceilings; /* [limits], [ceilings] */
    char *image, *work_dir;           /* [sandbox] image = "host", work_dir = "/workspace" */
    bool use_sandbox; /* [sandbox]; false is accepted for the seeds' sake and changes nothing: every run is in a cell */
    bool network_enabled;                 /* [sandbox]; true is refused by plan.c until there is a network policy */
    bool read_only;                       /* [sandbox] read_only = true */
    char *default_language;               /* [languages] default = "python" */
    struct words language_paths;          /* [languages] paths: more folders of TOML files */
    struct words read_paths, write_paths; /* [mounts] allowed_read_paths, allowed_write_paths */
    struct words forbidden_paths;         /* [mounts] forbidden_paths, besides the built-in list */
    bool allow_weak;                      /* [isolation] allow_weak = false */
    uint64_t uid_base, uid_count;         /* [isolation] uid_base, uid_count; 0: pick */
    struct words image_etc; /* [image] etc: what of /etc the host image shows, relative to /etc, may end in '*' */
    struct config_origin *origins; /* one for each key of the table; config.c */
};

/* `path`: the --config file, which must exist; NULL: none. The standard files may be absent. */
int config_load(const char *path, struct config **out, struct hc_err *err);
/* Set one key ("limits.memory") from text, as the command line does; origin is shown by config_to_json. */
int config_set(struct config *config, const char *key, const char *value, const char *origin, struct hc_err *err);
void config_free(struct config *config);
/* [{"key","value","default","origin","summary"}…] as malloc'ed JSON text. */
char *config_to_json(const struct config *config);

#endif
