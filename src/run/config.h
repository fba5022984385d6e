/*
 * Configuration: /etc/hotcell/config.toml, then the user's ($XDG_CONFIG_HOME/hotcell/config.toml), then --config, then
 * the environment and the command line; the later wins, and each value remembers where it came from. One table in
 * config_keys.c has every key.
 */
#ifndef HC_RUN_CONFIG_H
#define HC_RUN_CONFIG_H

#include "run/limits.h"
#include "run/request.h"

enum { CONFIG_MAX_HOSTS = 16 };

/* Times are in µs, sizes in bytes. */
struct server_config {
    struct words listen;             /* [server] listen = ["127.0.0.1:7600"] */
    char *execute_listen;            /* the seeds' port, "127.0.0.1:6000"; "": none */
    char *socket;                    /* the unix socket; "": the usual place; "none": none */
    char *state;                     /* the state folder; "": the usual place */
    char *workspace;                 /* what /execute has as /workspace; "": a folder under the state folder */
    char *tls_certificate, *tls_key; /* PEM files; "": no TLS */
    struct words hosts;              /* names that may stand in Host, besides loopback and the addresses listened on */
    struct words origins;            /* origins that may call from a browser */
    uint64_t concurrent;             /* runs at once; 0: 16 for each processor, if memory allows */
    uint64_t queue;                  /* runs that may wait */
    uint64_t queue_time;             /* how long one may wait for its turn */
    uint64_t connections, header_bytes, header_count, body_bytes, body_total, result_total, write_backlog;
    uint64_t header_time, body_time, idle_time, write_time;
    uint64_t wait_time;             /* the most that ?wait= may ask for */
    uint64_t drain_time;            /* SIGTERM: how long running runs may go on */
    uint64_t hang_time;             /* the warden or the gateway may leave the keeper without an answer; 0: for ever */
    uint64_t keep_time, keep_bytes; /* [history]: how long, and how much */
    char *log_level, *log_format;   /* [log]: error, warning, info, debug; auto, text, json */
};

/* Cells that wait: [pool]. */
struct pool_config {
    uint64_t least, most; /* most 0: none */
};

/* Interpreters that wait: [warm]. */
struct warm_config {
    bool enabled;
    struct words start;                 /* what is started at once: "python", "python/data"; the rest when first used */
    uint64_t forks, age;                /* a zygote is replaced after so many, and after that time */
    uint64_t primed_least, primed_most; /* of each language, once it is in use; most 0: none */
};

/* Cells that live on: [sandboxes]. */
struct sandboxes_config {
    uint64_t max, max_per_tenant;        /* 0: max_per_tenant is max */
    uint64_t idle_timeout, max_lifetime; /* what one gets unless it asks; 0: none */
    uint64_t longest_lifetime;           /* what it may ask for at most; 0: any */
    uint64_t cleanup_interval;           /* how often the idle and the old are looked for */
    uint64_t terminal_time;              /* a terminal that nobody is attached to goes on */
    uint64_t file_bytes;                 /* of one file or archive that is sent */
    char *domain;                        /* of previews by name; "": none */
};

/* Somebody else's MCP servers, each in a cell of its own: [mcp.servers.NAME]. */
enum { MCP_NAME_SIZE = 33 };
struct mcp_server_config {
    char name[MCP_NAME_SIZE];
    struct words command;
    bool shell;          /* command is one string for sh */
    struct words env;    /* K=V */
    struct words mounts; /* HOST:PATH[:ro|rw] */
    struct words limits; /* NAME=VALUE, as of a run */
    struct words tools;  /* the only ones that are offered, where `restricted` */
    bool restricted;
    uint64_t call_time; /* µs */
};
struct mcp_config {
    struct mcp_server_config *item;
    size_t count;
};

/* Folders that outlive sandboxes: [volumes]. */
struct volumes_config {
    uint64_t max_size, max_total; /* bytes */
    uint64_t max_per_tenant;
};

struct config {
    struct sandboxes_config sandboxes;
    struct volumes_config volumes;
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
    struct server_config server;
    bool local_server;           /* [client] local_server = true: hotcell run uses a server that is there */
    bool prepare;                /* [compile_cache] prepare: whether compilers get prepared caches */
    uint64_t compile_cache_size; /* [compile_cache] size: bytes; 0: off */
    struct pool_config pool;
    struct warm_config warm;
    /* Of a server's gateway: the host folders that the warden can have, canonical; mounts are planned by name alone. */
    struct mcp_config mcp;
    bool served;
    struct words served_hosts;
    bool served_writable[CONFIG_MAX_HOSTS];
    struct words served_forbidden; /* a path, why, a path, why, … */
    struct languages *languages;   /* read beforehand, by a program without a file system; NULL: from disk. Not owned */
    /* What the warden starts ahead, of these languages; NULL: nothing is warm. Not owned */
    const struct warm_definitions *definitions;
    struct config_origin *origins; /* one for each key of the table; config.c */
};

/* `path`: the --config file, which must exist; NULL: none. The standard files may be absent. */
int config_load(const char *path, struct config **out, struct hc_err *err);
/* Set one key ("limits.memory") from text, as the command line does; origin is shown by config_to_json. */
int config_set(struct config *config, const char *key, const char *value, const char *origin, struct hc_err *err);
/* Puts the file and line that set the key which an error names (err->field) before it, if a file did. */
void config_blame(const struct config *config, struct hc_err *err);
void config_free(struct config *config);
/* [{"key","value","default","origin","summary"}…] as malloc'ed JSON text. */
char *config_to_json(const struct config *config);
/* For a process without files. `languages`: the folder in which it finds that many folders of languages, /0, /1, …, the
 * last of which is the built-in one; `hosts`: what the warden was given; `own`: the server's own files, canonical,
 * which are forbidden besides everything else that is. malloc'ed; NULL: out of memory. */
char *config_to_bundle(const struct config *config, const char *languages, size_t language_count,
                       const struct words *hosts, const bool *writable, const struct words *own);
int config_from_bundle(const char *text, size_t length, struct config **out, struct hc_err *err);

#endif
