/*
 * Every key of the configuration, in one table. Limits are not repeated here: each row of limit_table is a key of
 * [limits] and of [ceilings]. How a key gets its value is config_assign.c's.
 */
#include "run/config_internal.h"
#include "run/policy.h"
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))
#define AT(member) offsetof(struct config, member)

/* What programs of the host image look for below /etc when they start (Debian's interpreters and compilers, traced),
 * and no more. Left out on purpose: everything that names this machine, its users or its network, and files in which
 * people keep credentials (npmrc, pip.conf, maven, gitconfig). The cell makes up passwd, group, hosts and their like.
 */
#define IMAGE_ETC                                                                                                      \
    "['alternatives', 'fonts', 'java-*', 'ld.so.cache', 'localtime', 'matplotlibrc', 'os-release', 'perl', 'php',"     \
    " 'protocols', 'python3.*', 'R', 'services', 'ssl/certs', 'ssl/openssl.cnf', 'timezone']"

static int check_work_dir(const char *text, struct hc_err *err);
static int check_word(const char *text, struct hc_err *err);
static int check_log_level(const char *text, struct hc_err *err);
static int check_log_format(const char *text, struct hc_err *err);

static const struct config_key fixed_keys[] = {
    {"sandbox", "use_sandbox", CONFIG_BOOL, AT(use_sandbox), 0, "true",
     "accepted for older configurations; every run is in a cell", NULL},
    {"sandbox", "image", CONFIG_STRING, AT(image), 0, "host", "the root filesystem; host is this machine's own /usr",
     check_word},
    {"sandbox", "work_dir", CONFIG_STRING, AT(work_dir), 0, "/workspace", "the working directory in the cell",
     check_work_dir},
    {"sandbox", "network_enabled", CONFIG_BOOL, AT(network_enabled), 0, "false", "whether runs may have a network",
     NULL},
    {"sandbox", "read_only", CONFIG_BOOL, AT(read_only), 0, "true", "whether the root filesystem is read-only", NULL},
    {"languages", "default", CONFIG_STRING, AT(default_language), 0, "python",
     "the language of code whose language nobody named", check_word},
    {"languages", "paths", CONFIG_PATHS, AT(language_paths), 0, NULL, "more folders of language files", NULL},
    {"mounts", "allowed_read_paths", CONFIG_PATHS, AT(read_paths), 0, NULL,
     "host folders that may be mounted read-only", NULL},
    {"mounts", "allowed_write_paths", CONFIG_PATHS, AT(write_paths), 0, NULL,
     "host folders that may be mounted, also writable", NULL},
    {"mounts", "forbidden_paths", CONFIG_PATHS, AT(forbidden_paths), 0, NULL,
     "host folders that may never be mounted, besides the built-in list", NULL},
    {"isolation", "allow_weak", CONFIG_BOOL, AT(allow_weak), 0, "false",
     "whether to run where this machine cannot enforce every layer", NULL},
    {"isolation", "uid_base", CONFIG_NUMBER, AT(uid_base), 0, "0", "the first host uid for cells; 0: picked", NULL},
    {"isolation", "uid_count", CONFIG_NUMBER, AT(uid_count), 0, "0", "how many host uids cells may use; 0: picked",
     NULL},
    {"image", "etc", CONFIG_NAMES, AT(image_etc), 0, IMAGE_ETC,
     "what of /etc the host image shows; a name may end in *", NULL},
    {"server", "listen", CONFIG_STRINGS, AT(server.listen), 0, "['127.0.0.1:7600']",
     "addresses to serve on; anything but loopback needs keys", NULL},
    {"server", "execute_listen", CONFIG_STRING, AT(server.execute_listen), 0, "127.0.0.1:6000",
     "one more address, where older clients look for POST /execute; empty: none", NULL},
    {"server", "socket", CONFIG_STRING, AT(server.socket), 0, "", "the unix socket; empty: the usual place; none: none",
     NULL},
    {"server", "state", CONFIG_STRING, AT(server.state), 0, "",
     "the folder for history, keys and audit; empty: the usual place", NULL},
    {"server", "workspace", CONFIG_STRING, AT(server.workspace), 0, "",
     "the folder that POST /execute keeps as /workspace; empty: one under the state folder", NULL},
    {"server", "tls_certificate", CONFIG_STRING, AT(server.tls_certificate), 0, "",
     "a PEM file with the certificate chain", NULL},
    {"server", "tls_key", CONFIG_STRING, AT(server.tls_key), 0, "", "a PEM file with the private key", NULL},
    {"server", "hosts", CONFIG_STRINGS, AT(server.hosts), 0, NULL, "names by which clients may call this server (Host)",
     NULL},
    {"server", "origins", CONFIG_STRINGS, AT(server.origins), 0, NULL,
     "web pages that may call it from a browser, such as https://example.org", NULL},
    {"server", "concurrent", CONFIG_NUMBER, AT(server.concurrent), 0, "0",
     "runs at once; 0: 16 for each processor, if memory allows", NULL},
    {"server", "queue", CONFIG_NUMBER, AT(server.queue), 0, "256", "runs that may wait for their turn", NULL},
    {"server", "queue_time", CONFIG_DURATION, AT(server.queue_time), 0, "60s", "how long a run may wait for its turn",
     NULL, "10ms"},
    {"server", "connections", CONFIG_NUMBER, AT(server.connections), 0, "12000", "open connections", NULL, "8"},
    {"server", "header_bytes", CONFIG_SIZE, AT(server.header_bytes), 0, "16k", "request line and headers of a request",
     NULL, "1k"},
    {"server", "header_count", CONFIG_NUMBER, AT(server.header_count), 0, "100", "headers of a request", NULL, "8"},
    {"server", "body_bytes", CONFIG_SIZE, AT(server.body_bytes), 0, "32m", "the body of a request", NULL, "1k"},
    {"server", "body_total", CONFIG_SIZE, AT(server.body_total), 0, "128m", "the bodies of all requests together", NULL,
     "1k"},
    {"server", "result_total", CONFIG_SIZE, AT(server.result_total), 0, "512m",
     "the gateway's memory for what all runs write, collect and answer together", NULL},
    {"server", "write_backlog", CONFIG_SIZE, AT(server.write_backlog), 0, "4m",
     "what may wait for a slow reader of a stream before it is dropped", NULL, "4k"},
    {"server", "header_time", CONFIG_DURATION, AT(server.header_time), 0, "10s", "for a client to send its headers",
     NULL, "100ms"},
    {"server", "body_time", CONFIG_DURATION, AT(server.body_time), 0, "60s", "for a client to send its body", NULL,
     "100ms"},
    {"server", "idle_time", CONFIG_DURATION, AT(server.idle_time), 0, "120s", "a kept connection may rest", NULL,
     "100ms"},
    {"server", "write_time", CONFIG_DURATION, AT(server.write_time), 0, "30s", "a client may read nothing of its reply",
     NULL, "100ms"},
    {"server", "wait_time", CONFIG_DURATION, AT(server.wait_time), 0, "60s", "the most that ?wait= may ask for", NULL},
    {"server", "drain_time", CONFIG_DURATION, AT(server.drain_time), 0, "30s",
     "after SIGTERM, for runs to end by themselves", NULL},
    {"server", "hang_time", CONFIG_DURATION, AT(server.hang_time), 0, "10s",
     "without an answer, after which the warden or the gateway is replaced; 0: never", NULL, "500ms", true},
    {"history", "keep_time", CONFIG_DURATION, AT(server.keep_time), 0, "720h",
     "how long runs are remembered; 0: for ever", NULL},
    {"history", "keep_bytes", CONFIG_SIZE, AT(server.keep_bytes), 0, "1g",
     "how large the history may grow; 0: any size", NULL},
    {"pool", "min", CONFIG_NUMBER, AT(pool.least), 0, "2", "cells that are kept ready", NULL},
    {"pool", "max", CONFIG_NUMBER, AT(pool.most), 0, "16", "and up to how many, when there is demand; 0: none", NULL},
    {"warm", "enabled", CONFIG_BOOL, AT(warm.enabled), 0, "true",
     "whether interpreters are started before there is a program for them", NULL},
    {"warm", "start", CONFIG_STRINGS, AT(warm.start), 0, "['python']",
     "what is started at once, such as python, python/data or java; the rest when it is first used", NULL},
    {"warm", "forks", CONFIG_NUMBER, AT(warm.forks), 0, "1000",
     "a waiting interpreter is replaced after so many programs", NULL},
    {"warm", "age", CONFIG_DURATION, AT(warm.age), 0, "10m",
     "what waits is replaced, or ended if unused, after that time", NULL},
    {"warm", "primed_min", CONFIG_NUMBER, AT(warm.primed_least), 0, "1",
     "of a language that cannot fork: programs that wait, once it is in use", NULL},
    {"warm", "primed_max", CONFIG_NUMBER, AT(warm.primed_most), 0, "4",
     "and up to how many, when there is demand; 0: none", NULL},
    {"compile_cache", "size", CONFIG_SIZE, AT(compile_cache_size), 0, "64m",
     "memory for compiled programs, so that the same compile is not done again; 0: none", NULL},
    {"compile_cache", "prepare", CONFIG_BOOL, AT(prepare), 0, "true",
     "whether standard headers and libraries are prepared for compilers, in the state folder", NULL},
    {"sandboxes", "max", CONFIG_NUMBER, AT(sandboxes.max), 0, "100", "sandboxes at once", NULL},
    {"sandboxes", "max_per_tenant", CONFIG_NUMBER, AT(sandboxes.max_per_tenant), 0, "0",
     "sandboxes of one tenant; 0: as many as there may be", NULL},
    {"sandboxes", "idle_timeout", CONFIG_DURATION, AT(sandboxes.idle_timeout), 0, "3600s",
     "a sandbox that nobody uses is removed after that time; 0: never", NULL},
    {"sandboxes", "max_lifetime", CONFIG_DURATION, AT(sandboxes.max_lifetime), 0, "0s",
     "and any after that one, unless it was asked for with another; 0: never", NULL},
    {"sandboxes", "longest_lifetime", CONFIG_DURATION, AT(sandboxes.longest_lifetime), 0, "0s",
     "the most that idle_timeout and max_lifetime of a request may be; 0: any", NULL},
    {"sandboxes", "cleanup_interval", CONFIG_DURATION, AT(sandboxes.cleanup_interval), 0, "300s",
     "how often idle and old ones are looked for, at least", NULL},
    {"sandboxes", "terminal_time", CONFIG_DURATION, AT(sandboxes.terminal_time), 0, "600s",
     "a terminal whose client has gone waits for it", NULL},
    {"sandboxes", "file_bytes", CONFIG_SIZE, AT(sandboxes.file_bytes), 0, "4g", "one file or archive that is sent",
     NULL},
    {"sandboxes", "domain", CONFIG_STRING, AT(sandboxes.domain), 0, "",
     "below which previews are served by name, such as preview.example.org; empty: none", NULL},
    {"volumes", "max_size", CONFIG_SIZE, AT(volumes.max_size), 0, "10g", "the size of one volume", NULL},
    {"volumes", "max_total", CONFIG_SIZE, AT(volumes.max_total), 0, "100g",
     "the sizes of all volumes together; 0: there are none", NULL},
    {"volumes", "max_per_tenant", CONFIG_NUMBER, AT(volumes.max_per_tenant), 0, "16", "volumes of one tenant", NULL},
    {"client", "local_server", CONFIG_BOOL, AT(local_server), 0, "true",
     "whether hotcell run uses a server that runs on this machine", NULL},
    {"log", "level", CONFIG_STRING, AT(server.log_level), 0, "info", "error, warning, info or debug", check_log_level},
    {"log", "format", CONFIG_STRING, AT(server.log_format), 0, "auto", "text, json, or auto: text on a terminal",
     check_log_format},
};

/* The seeds' names in [sandbox] for what are limits here. */
static const struct {
    const char *name;
    enum limit_id limit;
} limit_aliases[] = {
    {"memory_limit", LIMIT_MEMORY},
    {"cpu_limit", LIMIT_CPUS},
    {"timeout", LIMIT_TIMEOUT},
    {"pids_limit", LIMIT_PIDS},
};

/* ---- the table ---- */

size_t config_key_count(void)
{
    return COUNT_OF(fixed_keys) + (size_t)2 * LIMIT_COUNT;
}

struct config_key config_key_at(size_t index)
{
    if (index < COUNT_OF(fixed_keys))
        return fixed_keys[index];
    index -= COUNT_OF(fixed_keys);
    bool ceiling = index >= LIMIT_COUNT;
    enum limit_id limit = (enum limit_id)(index % LIMIT_COUNT);
    return (struct config_key){.section = ceiling ? "ceilings" : "limits",
                               .name = limit_table[limit].name,
                               .kind = ceiling ? CONFIG_CEILING : CONFIG_LIMIT,
                               .limit = limit,
                               .summary = limit_table[limit].summary};
}

int config_key_find(const char *section, const char *name)
{
    if (strcmp(section, "sandbox") == 0)
        for (size_t i = 0; i < COUNT_OF(limit_aliases); i++)
            if (strcmp(limit_aliases[i].name, name) == 0)
                return (int)(COUNT_OF(fixed_keys) + limit_aliases[i].limit);
    for (size_t i = 0; i < config_key_count(); i++) {
        struct config_key key = config_key_at(i);
        if (strcmp(key.section, section) == 0 && strcmp(key.name, name) == 0)
            return (int)i;
    }
    return -1;
}

size_t config_key_names(const char *section, const char **names, size_t max)
{
    size_t count = 0;
    for (size_t i = 0; i < config_key_count() && count < max; i++) {
        struct config_key key = config_key_at(i);
        if (!section) { /* the rows of a section are together */
            if (count == 0 || strcmp(names[count - 1], key.section) != 0)
                names[count++] = key.section;
        } else if (strcmp(key.section, section) == 0) {
            names[count++] = key.name;
        }
    }
    if (section && strcmp(section, "sandbox") == 0)
        for (size_t i = 0; i < COUNT_OF(limit_aliases) && count < max; i++)
            names[count++] = limit_aliases[i].name;
    return count;
}

const char *config_key_home(const char *name)
{
    for (size_t i = 0; i < config_key_count(); i++) {
        struct config_key key = config_key_at(i);
        if (strcmp(key.name, name) == 0)
            return key.section;
    }
    for (size_t i = 0; i < COUNT_OF(limit_aliases); i++)
        if (strcmp(limit_aliases[i].name, name) == 0)
            return "sandbox";
    return NULL;
}

/* ---- checks ---- */

static int check_word(const char *text, struct hc_err *err)
{
    return *text ? 0 : hc_fail(err, HC_CLASS_REQUEST, EINVAL, "expected a name, found an empty string");
}

static int check_choice(const char *text, const char *const *words, struct hc_err *err)
{
    char all[80] = "";
    for (const char *const *word = words; *word; word++) {
        if (strcmp(*word, text) == 0)
            return 0;
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s\"%s\"", word == words ? "" : word[1] ? ", " : " or ", *word);
    }
    return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "expected %s, found \"%.40s\"", all, text);
}

static int check_log_level(const char *text, struct hc_err *err)
{
    static const char *const words[] = {"error", "warning", "info", "debug", NULL};
    return check_choice(text, words, err);
}

static int check_log_format(const char *text, struct hc_err *err)
{
    static const char *const words[] = {"auto", "text", "json", NULL};
    return check_choice(text, words, err);
}

static int check_work_dir(const char *text, struct hc_err *err)
{
    char canonical[256];
    int rc = policy_check_target(text, canonical, sizeof canonical, err);
    if (rc < 0)
        return rc;
    if (strcmp(canonical, text) != 0)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "expected a plain path such as \"%s\", found \"%s\"", canonical,
                       text);
    return 0;
}
