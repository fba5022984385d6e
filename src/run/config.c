/*
 * Reading the configuration: which files there are, whether they can be trusted, and what their keys are called. What a
 * key is says config_keys.c, what it takes config_assign.c.
 *
 * What always holds: a file that exists is read whole and is right, or nothing runs; a key that nobody knows is an
 * error, because the alternative is a limit that someone believes in and that is not there. A process that is root
 * takes no settings from a file that others can write.
 */
#include "run/config.h"
#include "base/fd.h"
#include "base/suggest.h"
#include "run/config_internal.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef HC_SYSCONFDIR
#define HC_SYSCONFDIR "/etc/hotcell"
#endif

enum {
    FILE_LIMIT = 1024 * 1024,
    NAMES_MAX = 64,
    PATH_SIZE = 4096,
    WAITING_MOST = 1000,
    UID_LOWEST = 65536, /* below are the accounts of the machine and nobody */
};

static int fail_memory(struct hc_err *err)
{
    return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory while reading the configuration");
}

/* ---- one key ---- */

static int remember(struct config *config, int index, const char *origin, int file, struct hc_err *err)
{
    char *copy = strdup(origin);
    if (!copy)
        return fail_memory(err);
    free(config->origins[index].text);
    config->origins[index] = (struct config_origin){.text = copy, .file = file};
    return 0;
}

static void join(char *text, size_t size, const char *const *names, size_t count)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < count && used < size; i++) {
        int length = snprintf(text + used, size - used, "%s%s", i ? ", " : "", names[i]);
        used += length > 0 ? (size_t)length : 0;
    }
}

static int fail_unknown_section(const char *section, struct hc_err *err)
{
    const char *names[NAMES_MAX];
    char all[200];
    size_t count = config_key_names(NULL, names, NAMES_MAX);
    const char *near = hc_suggest(section, names, count), *home = config_key_home(section);
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "unknown section [%.60s]", section);
    hc_err_field(err, "%.60s", section);
    join(all, sizeof all, names, count);
    if (near)
        hc_err_remedy(err, "did you mean [%s]?", near);
    else if (home)
        hc_err_remedy(err, "%.60s is a key of [%s]", section, home);
    else
        hc_err_remedy(err, "the sections are %s", all);
    return -EINVAL;
}

static int fail_unknown_key(const char *section, const char *name, struct hc_err *err)
{
    const char *names[NAMES_MAX];
    char all[200];
    size_t count = config_key_names(section, names, NAMES_MAX);
    if (count == 0)
        return fail_unknown_section(section, err);
    const char *near = hc_suggest(name, names, count), *home = config_key_home(name);
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "unknown key '%.60s' in [%s]", name, section);
    hc_err_field(err, "%s.%.40s", section, name);
    join(all, sizeof all, names, count);
    if (home)
        hc_err_remedy(err, "'%.60s' belongs in [%s]", name, home);
    else if (near)
        hc_err_remedy(err, "did you mean '%s'?", near);
    else
        hc_err_remedy(err, "the keys of [%s] are %s", section, all);
    return -EINVAL;
}

int config_set(struct config *config, const char *key, const char *value, const char *origin, struct hc_err *err)
{
    char section[64];
    const char *dot = strchr(key, '.');
    if (!dot || (size_t)(dot - key) >= sizeof section)
        return fail_unknown_section(key, err);
    snprintf(section, sizeof section, "%.*s", (int)(dot - key), key);
    int index = config_key_find(section, dot + 1);
    if (index < 0)
        return fail_unknown_key(section, dot + 1, err);
    struct config_key row = config_key_at((size_t)index);
    int rc = config_assign_text(config, &row, value, err);
    return rc < 0 ? rc : remember(config, index, origin, 0, err);
}

void config_blame(const struct config *config, struct hc_err *err)
{
    char section[sizeof err->field];
    snprintf(section, sizeof section, "%s", err->field);
    char *dot = strchr(section, '.');
    if (!dot)
        return;
    *dot = '\0';
    int index = config_key_find(section, dot + 1);
    if (index >= 0 && config->origins && config->origins[index].file > 0)
        hc_err_context(err, "%s: %s", config->origins[index].text, err->field);
}

/* ---- a file ---- */

struct source {
    const char *path;
    int number; /* of the file, from 1 */
};

static int at_line(const struct source *source, const struct toml_value *value, int rc, struct hc_err *err)
{
    if (rc < 0)
        hc_err_context(err, "%s:%d", source->path, toml_line(value));
    return rc;
}

/* A key of a document may hold anything; names of ours do not. */
static void printable(const char *key, size_t length, char *text, size_t size)
{
    snprintf(text, size, "%.*s", (int)(length < size ? length : size - 1), key);
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7F)
            *p = '?';
}

static int take_key(struct config *config, const struct source *source, const char *section, const char *name,
                    const struct toml_value *value, struct hc_err *err)
{
    char origin[PATH_SIZE + 16];
    int index = config_key_find(section, name);
    if (index < 0)
        return fail_unknown_key(section, name, err);
    struct config_key key = config_key_at((size_t)index);
    if (config->origins[index].file == source->number)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s.%s is set already in %s, by this or another name of it",
                       section, name, config->origins[index].text);
    int rc = config_assign(config, &key, value, err);
    if (rc < 0)
        return rc;
    snprintf(origin, sizeof origin, "%s:%d", source->path, toml_line(value));
    return remember(config, index, origin, source->number, err);
}

static int take_section(struct config *config, const struct source *source, const char *section,
                        const struct toml_value *table, struct hc_err *err)
{
    const char *names[NAMES_MAX];
    if (toml_type(table) != TOML_TABLE) {
        const char *home = config_key_home(section);
        if (config_key_names(section, names, NAMES_MAX) > 0) {
            hc_fail(err, HC_CLASS_REQUEST, EINVAL, "'%s' is a section, and has to be a table", section);
            hc_err_field(err, "%.60s", section);
            hc_err_remedy(err, "write a line that says [%s], and its keys below it", section);
            return at_line(source, table, -EINVAL, err);
        }
        if (!home)
            return at_line(source, table, fail_unknown_section(section, err), err);
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "'%s' is outside of any section", section);
        hc_err_remedy(err, "put it under a line that says [%s]", home);
        return at_line(source, table, -EINVAL, err);
    }
    if (config_key_names(section, names, NAMES_MAX) == 0)
        return at_line(source, table, fail_unknown_section(section, err), err);
    for (size_t i = 0; i < toml_count(table); i++) {
        char name[128];
        size_t length;
        const char *key = toml_key(table, i, &length);
        printable(key, length, name, sizeof name);
        int rc = take_key(config, source, section, name, toml_at(table, i), err);
        if (rc < 0)
            return at_line(source, toml_at(table, i), rc, err);
    }
    return 0;
}

static int take_document(struct config *config, const struct source *source, const char *text, size_t length,
                         struct hc_err *err)
{
    struct toml_value *root HC_CLEANUP(toml_free_ptr) = NULL;
    int rc = toml_parse(text, length, source->path, &root, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < toml_count(root); i++) {
        char section[128];
        size_t size;
        const char *key = toml_key(root, i, &size);
        printable(key, size, section, sizeof section);
        if (strcmp(section, "mcp") == 0)
            rc = at_line(source, toml_at(root, i), config_mcp_take(config, toml_at(root, i), err), err);
        else
            rc = take_section(config, source, section, toml_at(root, i), err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Root acts on what the file says, so only root may have written it. */
static int check_trust(int fd, const char *path, struct hc_err *err)
{
    struct stat status;
    if (fstat(fd, &status) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "cannot look at %s", path);
    if (!S_ISREG(status.st_mode))
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s is not a regular file", path);
    if (geteuid() != 0)
        return 0;
    if (status.st_uid != 0) {
        hc_fail(err, HC_CLASS_REQUEST, EACCES, "%s belongs to uid %u, and hotcell runs as root", path,
                (unsigned)status.st_uid);
        hc_err_remedy(err, "make it root's: chown root:root %s", path);
        return -EACCES;
    }
    if (status.st_mode & (S_IWGRP | S_IWOTH)) {
        hc_fail(err, HC_CLASS_REQUEST, EACCES, "%s is writable by %s (mode %04o), and hotcell runs as root", path,
                status.st_mode & S_IWOTH ? "everyone" : "its group", (unsigned)(status.st_mode & 07777));
        hc_err_remedy(err, "take that away: chmod go-w %s", path);
        return -EACCES;
    }
    return 0;
}

/* A file that is not there is fine unless it must be. Anything else that keeps it from being read is an error. */
static int take_file(struct config *config, const struct source *source, bool must_exist, struct hc_err *err)
{
    /* O_NONBLOCK: a fifo in the file's place must not hold us up before check_trust sees it. */
    int fd hc_cleanup_fd = open(source->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 && !must_exist && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    if (fd < 0)
        return hc_fail_errno(err, hc_class_of(errno, HC_CLASS_REQUEST), errno, "cannot read the configuration file %s",
                             source->path);
    int rc = check_trust(fd, source->path, err);
    if (rc < 0)
        return rc;
    char *text hc_cleanup_free = NULL;
    size_t length;
    rc = hc_read_all(fd, FILE_LIMIT, &text, &length);
    if (rc == -EFBIG)
        return hc_fail(err, HC_CLASS_REQUEST, EFBIG, "%s is larger than %d bytes", source->path, FILE_LIMIT);
    if (rc < 0)
        return hc_fail_errno(err, hc_class_of(-rc, HC_CLASS_REQUEST), -rc, "cannot read the configuration file %s",
                             source->path);
    return take_document(config, source, text, length, err);
}

/* ---- all of it ---- */

struct config *config_new(struct hc_err *err)
{
    struct config *config = calloc(1, sizeof *config);
    if (!config || !(config->origins = calloc(config_key_count(), sizeof *config->origins))) {
        free(config);
        fail_memory(err);
        return NULL;
    }
    for (size_t i = 0; i < config_key_count(); i++) {
        struct config_key key = config_key_at(i);
        if ((key.initial && config_assign_text(config, &key, key.initial, err) < 0) ||
            remember(config, (int)i, "default", 0, err) < 0) {
            config_free(config);
            return NULL;
        }
    }
    return config;
}

static void config_free_ptr(struct config **config)
{
    config_free(*config);
}

void config_free(struct config *config)
{
    if (!config)
        return;
    for (size_t i = 0; i < config_key_count(); i++) {
        struct config_key key = config_key_at(i);
        config_drop(config, &key);
        free(config->origins[i].text);
    }
    config_mcp_release(&config->mcp);
    words_release(&config->served_hosts);
    words_release(&config->served_forbidden);
    free(config->origins);
    free(config);
}

static int take_system_file(struct config *config, struct hc_err *err)
{
    const char *folder = getenv("HOTCELL_SYSCONFDIR");
    char path[PATH_SIZE];
    if (!folder || folder[0] != '/')
        folder = HC_SYSCONFDIR;
    if ((size_t)snprintf(path, sizeof path, "%s/config.toml", folder) >= sizeof path)
        return hc_fail(err, HC_CLASS_REQUEST, ENAMETOOLONG, "HOTCELL_SYSCONFDIR is too long");
    return take_file(config, &(struct source){path, 1}, false, err);
}

static int take_user_file(struct config *config, struct hc_err *err)
{
    const char *folder = getenv("XDG_CONFIG_HOME");
    char path[PATH_SIZE];
    int length;
    if (folder && folder[0] == '/') { /* the standard says to ignore a relative one */
        length = snprintf(path, sizeof path, "%s/hotcell/config.toml", folder);
    } else {
        char home[PATH_SIZE];
        if (config_home(home, sizeof home) < 0)
            return 0;
        length = snprintf(path, sizeof path, "%s/.config/hotcell/config.toml", home);
    }
    if (length < 0 || (size_t)length >= sizeof path)
        return hc_fail(err, HC_CLASS_REQUEST, ENAMETOOLONG, "the path of the user's configuration is too long");
    return take_file(config, &(struct source){path, 2}, false, err);
}

/* HOTCELL_LIMITS_MEMORY is limits.memory, and so for every key. */
static int take_environment(struct config *config, struct hc_err *err)
{
    char **any = environ; /* as a rule there is none, and no name needs to be made */
    while (*any && strncmp(*any, "HOTCELL_", 8) != 0)
        any++;
    if (!*any)
        return 0;
    for (size_t i = 0; i < config_key_count(); i++) {
        struct config_key key = config_key_at(i);
        char variable[128], dotted[128];
        snprintf(variable, sizeof variable, "HOTCELL_%s_%s", key.section, key.name);
        for (char *p = variable; *p; p++)
            *p = (char)toupper((unsigned char)*p);
        const char *value = getenv(variable);
        if (!value)
            continue;
        snprintf(dotted, sizeof dotted, "%s.%s", key.section, key.name);
        int rc = config_set(config, dotted, value, variable, err);
        if (rc < 0) {
            hc_err_context(err, "environment variable %s", variable);
            return rc;
        }
    }
    return 0;
}

static int fail_value(const struct config *config, const char *section, const char *name, struct hc_err *err,
                      const char *format, ...) __attribute__((format(printf, 5, 6)));

static int fail_value(const struct config *config, const char *section, const char *name, struct hc_err *err,
                      const char *format, ...)
{
    char text[120];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s: %s.%s: %s", config->origins[config_key_find(section, name)].text,
            section, name, text);
    hc_err_field(err, "%s.%s", section, name);
    return -EINVAL;
}

/* How many may wait. A most of 0 turns it off, whatever the least is. */
static int check_waiting(const struct config *config, struct hc_err *err)
{
    const struct {
        const char *section, *least_name, *most_name;
        uint64_t least, most;
    } ranges[] = {{"pool", "min", "max", config->pool.least, config->pool.most},
                  {"warm", "primed_min", "primed_max", config->warm.primed_least, config->warm.primed_most}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        unsigned long long least = ranges[i].least, most = ranges[i].most;
        if (most > WAITING_MOST)
            return fail_value(config, ranges[i].section, ranges[i].most_name, err, "expected at most %d, found %llu",
                              WAITING_MOST, most);
        if (most && least > most)
            return fail_value(config, ranges[i].section, ranges[i].least_name, err,
                              "expected at most %s, which is %llu, found %llu", ranges[i].most_name, most, least);
    }
    if (config->warm.forks == 0 || config->warm.forks > UINT32_MAX)
        return fail_value(config, "warm", "forks", err, "expected 1 to %u", UINT32_MAX);
    if (config->warm.age == 0)
        return fail_value(config, "warm", "age", err, "expected a time, such as \"10m\"");
    return 0;
}

/* What no single key can say. */
static int check_together(const struct config *config, struct hc_err *err)
{
    int result = check_waiting(config, err);
    if (result < 0)
        return result;
    int base = config_key_find("isolation", "uid_base");
    uint64_t first = config->uid_base, count = config->uid_count;
    if (first != 0 && first < UID_LOWEST)
        hc_fail(err, HC_CLASS_REQUEST, EINVAL,
                "%s: isolation.uid_base: expected 0 or a uid from %d on, clear of this machine's own users, found %llu",
                config->origins[base].text, UID_LOWEST, (unsigned long long)first);
    else if (first > UINT32_MAX - 1 || count > UINT32_MAX - 1 - first)
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s: isolation.uid_base and uid_count reach past the last uid, %u",
                config->origins[base].text, UINT32_MAX - 1);
    else
        return 0;
    hc_err_field(err, "isolation.uid_base");
    return -EINVAL;
}

int config_load(const char *path, struct config **out, struct hc_err *err)
{
    struct config *config HC_CLEANUP(config_free_ptr) = config_new(err);
    if (!config)
        return -ENOMEM;
    int rc = take_system_file(config, err);
    if (rc == 0)
        rc = take_user_file(config, err);
    if (rc == 0 && path)
        rc = take_file(config, &(struct source){path, 3}, true, err);
    if (rc == 0)
        rc = take_environment(config, err);
    if (rc == 0)
        rc = check_together(config, err);
    if (rc == 0)
        *out = HC_TAKE_PTR(config);
    return rc;
}
