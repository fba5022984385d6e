/*
 * What is to be there before anybody asks for it: the keeper, who alone is trusted to say so, tells each new warden of
 * the cells that should wait and of the interpreters, and puts their drivers into the warden's root. None of it is
 * needed: whatever is missing here means that programs start cold.
 */
#include "serve/internal.h"

#include "base/fd.h"
#include "base/log.h"
#include "run/block.h"
#include "run/language.h"
#include "run/plan.h"
#include "run/warm.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES_OF_A_LANGUAGE = 32 };

/* ---- the drivers ---- */

static int add_file(struct warm_files *files, const char *from, const char *path, bool program)
{
    hc_cleanup_fd int fd = open(from, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) < 0)
        return -errno;
    if (!S_ISREG(status.st_mode))
        return 0;
    struct image_file *item = reallocarray(files->item, files->count + 1, sizeof *item);
    if (item)
        files->item = item;
    char *copy = strdup(path);
    if (!item || !copy) {
        free(copy);
        return -ENOMEM;
    }
    files->item[files->count++] = (struct image_file){.path = copy, .fd = HC_TAKE_FD(fd), .program = program};
    return 0;
}

static int is_plain(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Beside its own file, in warm/<name>. One without such a folder needs none, or starts cold. */
static int add_driver(struct warm_files *files, const struct language *language)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(language->source, '/');
    int length = slash ? (int)(slash - language->source) : 1;
    if (snprintf(folder, sizeof folder, "%.*s/warm/%s", length, slash ? language->source : ".", language->name) >=
        (int)sizeof folder)
        return -ENAMETOOLONG;
    struct dirent **entries;
    int count = scandir(folder, &entries, is_plain, alphasort), result = 0;
    if (count < 0)
        return errno == ENOENT ? 0 : -errno;
    for (int i = 0; i < count; i++) {
        char from[PATH_MAX + 256], path[320];
        snprintf(from, sizeof from, "%s/%s", folder, entries[i]->d_name);
        snprintf(path, sizeof path, "%s/%s", language->name, entries[i]->d_name);
        if (result == 0)
            result = i < FILES_OF_A_LANGUAGE ? add_file(files, from, path, false) : -E2BIG;
        free(entries[i]);
    }
    free(entries);
    return result;
}

static int add_library(struct keeper_server *server, const char *name, const char *without)
{
    char library[PATH_MAX + 32];
    snprintf(library, sizeof library, "%s/%s", server->libexec, name);
    int result = add_file(&server->warm_files, library, name, true);
    if (result < 0)
        hc_log(HC_LOG_WARNING, "%s: %s: %s", without, library, strerror(-result));
    return result;
}

void warm_files_open(struct keeper_server *server)
{
    struct warm_files *files = &server->warm_files;
    warm_files_close(files);
    int result = add_library(server, "hotcell-warm.so", "every program will start cold");
    add_library(server, "hotcell-session.so", "there will be no shell sessions");
    add_library(server, "hotcell-door.so", "there will be no contexts of R");
    for (size_t i = 0; i < languages_count(server->known) && result == 0; i++) {
        const struct language *language = languages_at(server->known, i);
        bool has_driver = language->warm.kind != LANGUAGE_COLD || language->context.run.present;
        result = has_driver ? add_driver(files, language) : 0;
        if (result < 0)
            hc_log(HC_LOG_WARNING, "the driver of %s cannot be read: %s", language->name, strerror(-result));
    }
    server->plan.image.files = files->item;
    server->plan.image.file_count = files->count;
}

void warm_files_close(struct warm_files *files)
{
    for (size_t i = 0; i < files->count; i++) {
        hc_close(files->item[i].fd);
        free((char *)files->item[i].path);
    }
    free(files->item);
    *files = (struct warm_files){0};
}

/* ---- what the warden is told ---- */

/* The cell of a request that asks for nothing in particular. */
static int standard_cell(const struct config *config, struct cell_spec *cell, struct hc_err *err)
{
    struct request *request = request_new();
    struct plan plan;
    int result = request ? request_add_command(request, "/bin/true", err) : -ENOMEM;
    if (result == 0)
        result = plan_make(config, request, &plan, err);
    if (result == 0) {
        *cell = plan.cell;
        plan_release(&plan);
    }
    request_free(request);
    return result;
}

/* Never waits: a warden that is too busy to be told starts everything cold. */
static int tell(const struct keeper_server *server, struct warden_message *message, const int *fds, size_t count)
{
    message->protocol = WARDEN_PROTOCOL;
    return hc_try_send_fds(server->custody.control[0], message, sizeof *message, fds, count);
}

static void tell_pool(const struct keeper_server *server)
{
    const struct pool_config *pool = &server->config->pool;
    struct warden_message message = {.type = WARDEN_POOL};
    struct hc_err err = {0};
    if (pool->most == 0)
        return;
    message.pool_spec.least = (uint32_t)(pool->least < pool->most ? pool->least : pool->most);
    message.pool_spec.most = (uint32_t)pool->most;
    int result = standard_cell(server->config, &message.pool_spec.cell, &err);
    if (result == 0)
        result = tell(server, &message, NULL, 0);
    if (result < 0)
        hc_log(HC_LOG_WARNING, "no cells are built ahead: %s", err.code ? err.message : strerror(-result));
}

static int tell_one(const struct keeper_server *server, const struct warm_definition *definition)
{
    struct warden_message message = {.type = WARDEN_WARM, .warm_spec = definition->spec};
    int fds[WARM_MAX_STAGES], result = 0;
    size_t count = 0;
    while (count < definition->spec.stages && result >= 0) {
        result = argument_block(definition->cwd, &definition->argv[count], &definition->env[count]);
        if (result >= 0)
            fds[count++] = result;
    }
    if (result >= 0)
        result = tell(server, &message, fds, count);
    for (size_t i = 0; i < count; i++)
        hc_close(fds[i]);
    return result;
}

void warm_tell_definitions(const struct keeper_server *server)
{
    struct warm_definitions definitions = {0};
    struct hc_err err = {0};
    if (server->warm_files.count == 0)
        return;
    if (warm_definitions_make(server->config, server->known, &definitions, &err) < 0)
        hc_log(HC_LOG_WARNING, "nothing is started ahead: %s", err.message);
    for (size_t i = 0; i < definitions.count; i++) {
        int result = tell_one(server, &definitions.item[i]);
        if (result < 0)
            hc_log(HC_LOG_WARNING, "%s is not started ahead: %s", definitions.item[i].name, strerror(-result));
    }
    warm_definitions_release(&definitions);
}

void warm_tell(const struct keeper_server *server)
{
    tell_pool(server);
    warm_tell_definitions(server);
}
