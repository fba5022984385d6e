/* See plan.h. The order of checks is the order in which a person would want to hear of mistakes: what to run, then with
 * what, then how much. */
#include "run/plan.h"

#include "base/buf.h"
#include "base/fd.h"
#include "cell/archive.h"
#include "run/policy.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const base_env[] = {
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG=C.UTF-8",
    "TMPDIR=/tmp",
    "USER=sandbox",
    "LOGNAME=sandbox",
};

static int no_memory(struct hc_err *err)
{
    return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
}

/* ---- host folders ---- */

static int place_mount(struct plan *plan, const struct policy_mount *checked, struct hc_err *err)
{
    struct stat st;
    if (fstat(checked->fd, &st) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "looking at %s", checked->host);
    uint32_t index = plan->cell.mount_count;
    struct cell_mount *mount = &plan->mounts[index];
    if (words_add(&plan->hosts, checked->host) < 0)
        return no_memory(err);
    snprintf(mount->path, sizeof mount->path, "%s", checked->path);
    mount->host = index;
    mount->read_only = checked->read_only;
    mount->device = st.st_dev;
    mount->inode = st.st_ino;
    plan->host_writable[index] = !checked->read_only;
    plan->cell.mount_count++;
    return 0;
}

static int plan_mounts(const struct config *config, struct plan *plan, struct hc_err *err)
{
    const struct request *request = plan->request;
    for (size_t i = 0; i < request->mount_count; i++) {
        struct policy_mount *checked = calloc(1, sizeof *checked);
        if (!checked)
            return no_memory(err);
        checked->fd = -1;
        int result = policy_open(config, &request->mounts[i], checked, err);
        if (result == 0)
            result = place_mount(plan, checked, err);
        hc_close(checked->fd);
        free(checked);
        if (result < 0)
            return result;
    }
    return 0;
}

/* ---- the cell ---- */

static int plan_cell(const struct config *config, struct plan *plan, struct hc_err *err)
{
    const struct request *request = plan->request;
    const char *network = request->network ? request->network : config->network_enabled ? "enabled" : "none";
    if (strcmp(network, "none") != 0) {
        hc_fail(err, HC_CLASS_REQUEST, EOPNOTSUPP,
                "network \"%s\" is not available: a cell has no network but its own loopback", network);
        hc_err_field(err, request->network ? "network" : "sandbox.network_enabled");
        return hc_err_remedy(err, "use \"none\"");
    }
    const char *image = request->image ? request->image : config->image;
    if (strcmp(image, "host") != 0) {
        hc_fail(err, HC_CLASS_REQUEST, ENOENT, "image \"%s\" is not available", image);
        hc_err_field(err, request->image ? "image" : "sandbox.image");
        return hc_err_remedy(err, "use \"host\", which is this machine's own /usr, read-only");
    }
    bool read_only = request->read_only < 0 ? config->read_only : request->read_only;
    if (!read_only)
        plan->cell.flags |= CELL_WRITABLE_ROOT;
    snprintf(plan->cell.hostname, sizeof plan->cell.hostname, "hotcell");
    if (policy_check_target(config->work_dir, plan->cell.work_dir, sizeof plan->cell.work_dir, err) < 0)
        return hc_err_context(err, "sandbox.work_dir");
    return 0;
}

/* ---- files ---- */

static int put_file(int fd, const char *path, const struct blob *content, unsigned mode, struct hc_err *err)
{
    int result = archive_put_header(fd, ARCHIVE_FILE, mode, path, content->length, content->length);
    if (result == 0)
        result = hc_write_all(fd, content->data, content->length);
    if (result < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, -result, "packing %s", path);
    return 0;
}

static int plan_files(struct plan *plan, const char *code_name, struct hc_err *err)
{
    const struct request *request = plan->request;
    if (!request->file_count && !code_name)
        return 0;
    hc_cleanup_fd int fd = hc_memfd_open("hotcell-files");
    if (fd < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, -fd, "memory file");
    for (size_t i = 0; i < request->file_count; i++) {
        const struct request_file *file = &request->files[i];
        if (code_name && strcmp(file->path, code_name) == 0) {
            hc_fail(err, HC_CLASS_REQUEST, EEXIST, "the code is put into %s, and a file of that name is given as well",
                    code_name);
            hc_err_field(err, "files.%.50s", file->path);
            return hc_err_remedy(err, "name the code's own file by `entry`");
        }
        int result = put_file(fd, file->path, &file->content, file->mode, err);
        if (result < 0)
            return result;
    }
    int result = code_name ? put_file(fd, code_name, &request->code, 0644, err) : 0;
    if (result == 0)
        result = archive_put_header(fd, ARCHIVE_END, 0, "", 0, 0);
    if (result == 0)
        result = hc_memfd_seal(fd);
    if (result < 0)
        return err->code ? result : hc_fail_errno(err, HC_CLASS_OURS, -result, "packing files");
    plan->files = HC_TAKE_FD(fd);
    return 0;
}

/* ---- environment ---- */

/* A later setting of a name replaces the earlier one. */
static int set_env(struct words *env, const char *setting)
{
    size_t name = strcspn(setting, "=") + 1;
    for (size_t i = 0; i < env->count; i++) {
        if (strncmp(env->item[i], setting, name) != 0)
            continue;
        char *copy = strdup(setting);
        if (!copy)
            return -ENOMEM;
        free(env->item[i]);
        env->item[i] = copy;
        return 0;
    }
    return words_add(env, setting);
}

static int plan_env(struct plan *plan, struct hc_err *err)
{
    int result = 0;
    char home[300];
    snprintf(home, sizeof home, "HOME=%s", plan->cell.work_dir);
    result = set_env(&plan->env, home);
    for (size_t i = 0; i < sizeof base_env / sizeof *base_env && result == 0; i++)
        result = set_env(&plan->env, base_env[i]);
    for (size_t i = 0; plan->language && i < plan->language->env.count && result == 0; i++)
        result = set_env(&plan->env, plan->language->env.item[i]);
    for (size_t i = 0; i < plan->request->env.count && result == 0; i++)
        result = set_env(&plan->env, plan->request->env.item[i]);
    return result < 0 ? no_memory(err) : 0;
}

/* ---- stages ---- */

static struct plan_stage *add_stage(struct plan *plan, const char *name, bool compile, const struct limits *limits)
{
    struct plan_stage *grown = realloc(plan->stages, (plan->stage_count + 1) * sizeof *grown);
    if (!grown)
        return NULL;
    plan->stages = grown;
    struct plan_stage *stage = &grown[plan->stage_count++];
    *stage = (struct plan_stage){.compile = compile, .limits = *limits};
    snprintf(stage->name, sizeof stage->name, "%s", name);
    return stage;
}

static int add_words(struct words *to, const struct words *from)
{
    int result = 0;
    for (size_t i = 0; i < from->count && result == 0; i++)
        result = words_add(to, from->item[i]);
    return result;
}

/* A stage's own limits replace the run's, within the operator's ceilings. */
static struct limits stage_limits(const struct config *config, const struct limits *run, const struct limits *own)
{
    struct limits limits = *run;
    for (int id = 0; id < LIMIT_COUNT; id++) {
        if (!own->set[id])
            continue;
        limits.value[id] = own->value[id];
        if (config->ceilings.set[id] && limits.value[id] > config->ceilings.value[id])
            limits.value[id] = config->ceilings.value[id];
    }
    return limits;
}

static bool has_extension(const char *path, const struct words *extensions)
{
    size_t length = strlen(path);
    for (size_t i = 0; i < extensions->count; i++) {
        size_t size = strlen(extensions->item[i]);
        if (length > size && strcasecmp(path + length - size, extensions->item[i]) == 0)
            return true;
    }
    return false;
}

static int plan_language_stages(const struct config *config, struct plan *plan, const struct limits *limits,
                                struct hc_err *err)
{
    const struct language *language = plan->language;
    const struct request *request = plan->request;
    struct words sources = {0};
    int result = words_add(&sources, plan->entry);
    for (size_t i = 0; i < request->file_count && result == 0; i++)
        if (strcmp(request->files[i].path, plan->entry) != 0 &&
            has_extension(request->files[i].path, &language->extensions))
            result = words_add(&sources, request->files[i].path);
    if (result < 0)
        no_memory(err);
    if (result == 0 && language->compile.present) {
        struct limits own = stage_limits(config, limits, &language->compile.limits);
        struct plan_stage *stage = add_stage(plan, "compile", true, &own);
        result = stage ? language_expand(language, &language->compile, plan->cell.work_dir, plan->entry, &sources, &own,
                                         &stage->argv, err)
                       : no_memory(err);
        if (own.value[LIMIT_DISK] > plan->cell.disk)
            plan->cell.disk = own.value[LIMIT_DISK];
        if (own.value[LIMIT_INODES] > plan->cell.inodes)
            plan->cell.inodes = own.value[LIMIT_INODES];
    }
    if (result == 0) {
        struct plan_stage *stage = add_stage(plan, "run", false, limits);
        result = stage ? language_expand(language, &language->run, plan->cell.work_dir, plan->entry, &sources, limits,
                                         &stage->argv, err)
                       : no_memory(err);
        if (result == 0 && add_words(&stage->argv, &request->args) < 0)
            result = no_memory(err);
    }
    words_release(&sources);
    return result;
}

static int plan_command_stage(struct plan *plan, const struct limits *limits, struct hc_err *err)
{
    const struct request *request = plan->request;
    struct plan_stage *stage = add_stage(plan, "run", false, limits);
    int result = stage ? 0 : -ENOMEM;
    if (result == 0 && request->command_shell) {
        result = words_add(&stage->argv, "/bin/sh");
        if (result == 0)
            result = words_add(&stage->argv, "-c");
        if (result == 0)
            result = words_add(&stage->argv, request->command.item[0]);
        if (result == 0 && request->args.count)
            result = words_add(&stage->argv, "sh");
    } else if (result == 0) {
        result = add_words(&stage->argv, &request->command);
    }
    if (result == 0)
        result = add_words(&stage->argv, &request->args);
    return result < 0 ? no_memory(err) : 0;
}

static int plan_stages(const struct config *config, struct plan *plan, struct hc_err *err)
{
    const struct request *request = plan->request;
    struct limits limits;
    int result = limits_resolve(&request->limits, &config->defaults, &config->ceilings, &limits, err);
    if (result < 0)
        return result;
    plan->output_cap = limits.value[LIMIT_OUTPUT];
    plan->cell.disk = limits.value[LIMIT_DISK];
    plan->cell.inodes = limits.value[LIMIT_INODES];
    for (size_t i = 0; i < request->stage_count; i++) {
        struct limits own;
        result = limits_resolve(&request->stages[i].limits, &limits, &config->ceilings, &own, err);
        if (result < 0)
            return hc_err_context(err, "stages[%zu]", i);
        char name[32];
        snprintf(name, sizeof name, "stage%zu", i + 1);
        struct plan_stage *stage =
            add_stage(plan, request->stages[i].name ? request->stages[i].name : name, true, &own);
        if (!stage || add_words(&stage->argv, &request->stages[i].command) < 0)
            return no_memory(err);
    }
    return plan->language ? plan_language_stages(config, plan, &limits, err) : plan_command_stage(plan, &limits, err);
}

/* ---- what to run ---- */

static int choose_language(const struct config *config, struct plan *plan, struct hc_err *err)
{
    const struct request *request = plan->request;
    int result;
    if (request->language)
        result = languages_find(config, request->language, &plan->language, err);
    else if (request->entry)
        result = languages_find_by_file(config, request->entry, &plan->language, err);
    else
        result = languages_find(config, config->default_language, &plan->language, err);
    if (result < 0)
        return result;
    const char *missing;
    if (!language_available(plan->language, &missing)) {
        hc_fail(err, HC_CLASS_HOST, ENOENT, "%s is not installed on this machine: there is no %s", plan->language->name,
                missing);
        hc_err_field(err, "language");
        return hc_err_remedy(err, "apt install %s", plan->language->package);
    }
    plan->entry = strdup(request->entry ? request->entry : plan->language->file);
    return plan->entry ? 0 : no_memory(err);
}

static bool has_file(const struct request *request, const char *path)
{
    for (size_t i = 0; i < request->file_count; i++)
        if (strcmp(request->files[i].path, path) == 0)
            return true;
    return false;
}

static int check_what(const struct request *request, struct hc_err *err)
{
    bool command = request->command.count > 0;
    if (request->test_count) {
        hc_fail(err, HC_CLASS_REQUEST, EOPNOTSUPP, "tests are run by the server, which this version does not have");
        return hc_err_field(err, "tests");
    }
    if (!command && !request->has_code && !request->entry) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "there is nothing to run");
        hc_err_field(err, "code");
        return hc_err_remedy(err, "give one of code, command or entry");
    }
    if (command && (request->has_code || request->entry || request->language)) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "command excludes code, entry and language");
        hc_err_field(err, "command");
        return hc_err_remedy(err, "give one of code, command or entry");
    }
    if (!command && !request->has_code && !has_file(request, request->entry)) {
        hc_fail(err, HC_CLASS_REQUEST, ENOENT, "entry \"%s\" is not among the files", request->entry);
        return hc_err_field(err, "entry");
    }
    return 0;
}

int plan_make(const struct config *config, const struct request *request, struct plan *plan, struct hc_err *err)
{
    memset(plan, 0, sizeof *plan);
    plan->files = -1;
    plan->request = request;
    int result = check_what(request, err);
    if (result == 0)
        result = plan_cell(config, plan, err);
    if (result == 0 && request->command.count == 0)
        result = choose_language(config, plan, err);
    if (result == 0)
        result = plan_mounts(config, plan, err);
    if (result == 0)
        result = plan_stages(config, plan, err);
    if (result == 0)
        result = plan_files(plan, request->has_code ? plan->entry : NULL, err);
    if (result == 0)
        result = plan_env(plan, err);
    if (result == 0)
        result = cell_spec_check(&plan->cell, plan->mounts, err);
    if (result < 0)
        plan_release(plan);
    return result;
}

void plan_release(struct plan *plan)
{
    for (size_t i = 0; i < plan->stage_count; i++)
        words_release(&plan->stages[i].argv);
    free(plan->stages);
    words_release(&plan->env);
    words_release(&plan->hosts);
    hc_close(plan->files);
    language_free(plan->language);
    free(plan->entry);
    memset(plan, 0, sizeof *plan);
    plan->files = -1;
}

void plan_job_limits(const struct limits *limits, struct job_limits *out)
{
    *out = (struct job_limits){
        .memory = limits->value[LIMIT_MEMORY],
        .swap = limits->value[LIMIT_SWAP],
        .cpu_milli = limits->value[LIMIT_CPUS],
        .cpu_shares = limits->value[LIMIT_CPU_SHARES],
        .pids = limits->value[LIMIT_PIDS],
        .wall = limits->value[LIMIT_TIMEOUT],
        .cpu_time = limits->value[LIMIT_CPU_TIME],
        .files_open = limits->value[LIMIT_FILES_OPEN],
        /* Larger than what fits, so that a full disk is ENOSPC, as programs expect, and only a sparse file ends here.
         */
        .file_size = limits->value[LIMIT_DISK] + (1 << 20),
    };
}
