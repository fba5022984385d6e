/* What the files of the keeper share. Included by serve/ alone. */
#ifndef HC_SERVE_INTERNAL_H
#define HC_SERVE_INTERNAL_H

#include "base/loop.h"
#include "run/config.h"
#include "serve/proto.h"
#include "serve/serve.h"
#include "warden/custody.h"
#include <limits.h>

struct listener {
    int fd;
    bool is_unix, is_tls, loopback, activated; /* activated: it came from systemd, and is not ours to remove */
    const char *source;                        /* what named it: "--listen", "server.listen", … */
    char address[256];                         /* "http://127.0.0.1:7600", "unix:/run/hotcell/hotcell.sock" */
    char path[4096];                           /* of a unix socket that we made */
};

struct listeners {
    struct listener item[SERVE_MAX_LISTENERS];
    size_t count;
};

/* listeners.c */
int listeners_open(struct listeners *listeners, const struct config *config, const struct serve_options *options,
                   const char *socket_path, struct hc_err *err);
/* Only whether the addresses can be understood. */
int listeners_check(const struct config *config, const struct serve_options *options, struct hc_err *err);
/* Whether one of the addresses, which are good, is not loopback's. */
bool listeners_need_keys(const struct config *config, const struct serve_options *options);
void listeners_close(struct listeners *listeners);

/* state.c: the state folder and what is in it */
struct state {
    char folder[4096];    /* canonical */
    char workspace[4096]; /* canonical; what /execute has as /workspace */
    char socket[4096];    /* where the unix socket goes; "": none */
    int lock;             /* held while we live: one server a folder */
    int audit;            /* audit.log, opened for appending */
};
/* Only to check: nothing is made, locked or changed, and what is not there yet stays "". */
int state_open(struct state *state, const struct config *config, const struct serve_options *options,
               struct hc_err *err);
/* Files in it become the gateway's; the audit log stays ours. */
int state_give(const struct state *state, uid_t uid, gid_t gid, struct hc_err *err);
void state_close(struct state *state);

/* hosts.c: which host folders cells may have */
struct host_list {
    struct words paths; /* canonical */
    bool writable[CELL_MAX_HOSTS];
    int workspace;    /* the index of the shared workspace */
    struct words own; /* the server's own files, which no cell may have, wherever they are */
};
int host_list_make(struct host_list *list, const struct config *config, const struct state *state, struct hc_err *err);
/* That no allowed folder is another name of one that is forbidden, as `config` has it now. */
int host_list_check(const struct host_list *list, const struct config *config, struct hc_err *err);
void host_list_release(struct host_list *list);

/* spawn.c: the gateway's process */
struct spawn {
    const char *libexec;
    const struct state *state;
    const struct words *languages; /* folders */
    uid_t uid;                     /* of its own; 0: there is none to have, it keeps ours */
    gid_t gid;
};
/* A process with nothing but `control`, as SERVE_CONTROL_FD, in a root of its own. */
int spawn_gateway(const struct spawn *spawn, int control, pid_t *pid, int *pidfd, struct hc_err *err);

/* bundle.c: the configuration as the gateway gets it */
int bundle_config(const struct config *config, const struct host_list *hosts, size_t language_count);
/* Paths of the gateway's root in what it says become those of the host. */
struct keeper_server;
void bundle_name_paths(const struct keeper_server *server, char *text, size_t size);
/* A sealed copy of a file, or -errno. */
int bundle_file(const char *path);

/* tls.c: whether both files of the configuration are what they should be and fit together */
int tls_check(const char *libexec, const struct server_config *config, struct hc_err *err);

/* settled.c: the keys that are not what they were and that a reload cannot change, by name; how many there are */
size_t settled_changed(const struct config *before, const struct config *after, char *names, size_t size);

/* notify.c: systemd */
void notify(const char *text); /* to NOTIFY_SOCKET, if there is one */
/* How many sockets systemd handed to us (they begin at fd 3); 0 when none. */
int notify_listen_fds(void);

/* pulse.c: whether the two children answer */
struct pulse {
    bool known;      /* it has said something */
    bool asked;      /* and not answered yet */
    unsigned missed; /* beats since then */
};

/* warm.c: what is built and started ahead */
struct warm_files { /* the library and the drivers, for the warden's root */
    struct image_file *item;
    size_t count;
};
struct keeper_server;
/* Before a warden is started: opens them, and puts them into its plan. */
void warm_files_open(struct keeper_server *server);
void warm_files_close(struct warm_files *files);
/* When a warden is up: its pool, and its definitions. What fails is logged. */
void warm_tell(const struct keeper_server *server);
/* After a reload: those that are new; the warden passes over the others. */
void warm_tell_definitions(const struct keeper_server *server);

/* caches.c: what is prepared for compilers */
struct caches {
    int folder; /* in the state folder; -1: there is none */
    char path[4096];
    bool *wanted; /* for each language */
    pid_t pid;    /* of the child that prepares; 0: none */
    int pidfd;
    struct hc_watch *watch;
    struct hc_timer *timer;
    bool more; /* another was wanted meanwhile */
};
void caches_open(struct keeper_server *server); /* before a warden is started */
/* A language was used: its part is made in the background, if it has one that is not there yet. */
void caches_want(struct keeper_server *server, const char *name);
void caches_stop(struct keeper_server *server); /* ends the child */
void caches_close(struct keeper_server *server);

/* volumes.c: folders that outlive sandboxes */
struct volumes {
    int folder;                    /* in the state folder; -1: there are none */
    struct hc_err why;             /* there are none */
    struct volume_device *devices; /* that are attached */
    struct volume_task *tasks;     /* what is not answered yet */
    uint32_t next;                 /* number of a device */
    struct hc_timer *timer;
    uint64_t count, bytes; /* all there are, and their sizes */
};
void volumes_open(struct keeper_server *server); /* before a gateway is started */
void volumes_close(struct keeper_server *server);
void volumes_ask(struct keeper_server *server, const struct serve_volume *volume); /* what the gateway asks */
int volumes_mount(void *data, uint32_t number, struct hc_err *err); /* struct custody's `volume`; of the server */

/* serve.c: everything that the keeper of a server has */
struct keeper_server {
    const struct serve_options *options;
    struct config *config;
    struct hc_loop *loop;
    struct state state;
    struct listeners listeners;
    struct host_list hosts;
    struct words languages;  /* folders */
    struct languages *known; /* what is in them */
    struct warm_files warm_files;
    struct caches caches;
    struct volumes volumes;
    char libexec[PATH_MAX];
    struct uid_plan uids;
    struct keeper_plan plan;
    struct custody custody;
    int warden_pidfd;
    struct hc_watch *warden_watch, *hosts_watch, *answer_watch;
    pid_t gateway;
    int gateway_pidfd, control; /* control: our end */
    int gateway_socket;         /* the other end of the warden's client socket, until the gateway has it; or -1 */
    int audit_socket;           /* by which the gateway appends to the audit log: our end */
    struct hc_watch *gateway_watch, *control_watch, *audit_watch, *signal_watch;
    int signals;
    uint32_t restarts;
    uint64_t gateway_started;
    struct hc_timer *restart_timer, *drain_timer, *pulse_timer;
    struct pulse warden_pulse, gateway_pulse;
    bool told_silent;       /* the gateway knows that the warden does not answer */
    hc_watch_fn on_control; /* what the gateway says */
    bool ready, draining, ended;
    struct hc_err failure; /* why it ended, when not by a drain */
};

/* children.c */
/* On success server->gateway_socket is its client's end. */
int warden_start(struct keeper_server *server, struct hc_err *err);
void warden_end(struct keeper_server *server); /* waits for it, and clears */
int gateway_start(struct keeper_server *server, struct hc_err *err);
void gateway_forget(struct keeper_server *server, int *status);        /* waits for it */
int gateway_tell(struct keeper_server *server, uint32_t type, int fd); /* does not wait: -EAGAIN, it does not read */

/* audit.c */
/* The log for the gateway to read, and a new socket for it to append by: the caller's. */
int audit_give(struct keeper_server *server, int *log, int *socket, struct hc_err *err);
void audit_forget(struct keeper_server *server);

/* pulse.c */
void pulse_start(struct keeper_server *server); /* if the configuration has a time, and it does not beat already */
int pulse_watch_warden(struct keeper_server *server);
void pulse_heard(struct pulse *pulse);

#endif
