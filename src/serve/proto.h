/*
 * What the keeper of a server and its gateway say to each other: one struct of a fixed size over a SOCK_SEQPACKET pair,
 * with fds beside it. The gateway finds its end as SERVE_CONTROL_FD.
 */
#ifndef HC_SERVE_PROTO_H
#define HC_SERVE_PROTO_H

#include "base/err.h"
#include "run/volume.h"
#include <stdint.h>

enum {
    SERVE_PROTOCOL = 1,
    SERVE_CONTROL_FD = 3,
    SERVE_MAX_LISTENERS = 16,
    SERVE_MAX_LANGUAGES = 8,
    SERVE_SOURCE_SIZE = 32
};

/* `hotcell-gateway SERVE_CHECK_TLS`: says on stdout what is wrong with a certificate and a key, and exits with 1; 0
 * when they are fine. They are these fds. */
#define SERVE_CHECK_TLS "--check-tls"
enum { SERVE_CHECK_CERTIFICATE = 3, SERVE_CHECK_KEY = 4 };

/* Where the gateway finds things in its own root. */
#define SERVE_STATE "/state"
#define SERVE_LANGUAGES "/languages" /* /0, /1, … */

enum serve_type {
    SERVE_SETUP = 1, /* keeper →, first. fds: warden, configuration, audit log (to read), the socket to append to it by,
                        [certificate, key], listeners */
    SERVE_READY,     /* → keeper: it serves; or err: it cannot, and why */
    SERVE_WARDEN,    /* keeper →: fd, the socket of a new warden */
    SERVE_CONFIG,    /* keeper →: fd, the configuration as it is now; answered by SERVE_CONFIG, with or without err */
    SERVE_DRAIN,     /* keeper →: finish what runs, then end */
    SERVE_PING,      /* keeper →: answered alike, so that one that hangs is noticed */
    SERVE_USED,      /* → keeper: language was used for the first time */
    SERVE_SILENT,    /* keeper →: silent says whether the warden leaves its pings unanswered */
    SERVE_VOLUME,    /* → keeper: volume; answered alike, with err or facts. LIST: fd, a memory file of them */
};

/*
 * The audit log is the keeper's to write. Over a SOCK_SEQPACKET pair of its own the gateway asks it to append: this
 * struct, and `length` bytes behind it, which are whole lines. Answered, when they are on disk, by an int32_t: 0 or
 * -errno; -EAGAIN when the file does not end at `end`.
 */
enum { SERVE_APPEND_MAX = 64 * 1024 };
struct serve_append {
    uint32_t protocol, length;
    int64_t end;
};

enum serve_volume_act {
    SERVE_VOLUME_CREATE = 1,
    SERVE_VOLUME_REMOVE,
    SERVE_VOLUME_LIST, /* tenant "": everybody's */
    SERVE_VOLUME_OPEN, /* for a cell that is about to be made: host is the number by which it can have it */
};

struct serve_volume_facts {
    char tenant[64], name[VOLUME_NAME_SIZE];
    uint64_t size, used; /* bytes */
    int64_t created_at;  /* µs since the epoch */
};

struct serve_volume {
    uint64_t id;  /* the gateway's own, by which it knows the answer */
    uint32_t act; /* enum serve_volume_act */
    uint32_t host;
    struct serve_volume_facts facts; /* asked: tenant, name and size */
};

struct serve_message {
    uint32_t protocol, type;
    uint32_t tls;
    uint32_t restarts; /* how many gateways there were before this one */
    uint32_t listener_count;
    uint32_t listener_unix;                                       /* bit n: listener n is a unix socket */
    uint32_t listener_tls;                                        /* bit n: it speaks TLS */
    char listener_source[SERVE_MAX_LISTENERS][SERVE_SOURCE_SIZE]; /* who named it: "--listen", "SANDBOX_HOST", … */
    uint32_t language_count;
    uint32_t silent;
    uint32_t keys;          /* READY: who comes over the network needs one */
    char language[32];      /* USED: its name */
    int32_t workspace_host; /* which host folder is the shared /workspace; -1: none */
    struct serve_volume volume;
    uint64_t volume_count, volume_bytes; /* SETUP, VOLUME: all there are, and their sizes */
    struct hc_err err;
};

#endif
