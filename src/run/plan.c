/* See plan.h. The order of checks is the order in which a person would want to hear of mistakes: what to run, then with
 * what, then how much. */
#include "run/plan_internal.h"

#include "base/buf.h"
#include "base/fd.h"
#include "base/suggest.h"
#include "cell/archive.h"
#include "run/policy.h"
#include "run/stock.h"
#include "run/warm.h"
#include <errno.h>
#include <limits.h>
#include <stddef.h>
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

int plan_no_memory(struct hc_err *err)
{
    return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
}

/* ---- host folders ---- */

static int place_mount(struct plan *plan, const struct policy_mount *checked, struct hc_err *err)
{
    uint32_t index = plan->cell.mount_count;
    struct cell_mount *mount = &plan->mounts[index];
    *mount = (struct cell_mount){0};
    snprintf(mount->path, sizeof mount->path, "%s", checked->path);
    mount->read_only = checked->read_only;
    if (checked->fd < 0) { /* a server's: the warden can have it by its number */
        mount->host = checked->served;
        memcpy(mount->below, checked->below, sizeof mount->below);
        plan->cell.mount_count++;
        return 0;
    }
    struct stat st;
    if (fstat(checked->fd, &st) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "looking at %s", checked->host);
    if (words_add(&plan->hosts, checked->host) < 0)
        return plan_no_memory(err);
    mount->host = index;
    mount->device = st.st_dev;
    mount->inode = st.st_ino;
    plan->host_writable[index] = !checked->read_only;
    plan->cell.mount_count++;
    return 0;
}

static int by_path(const void *left, const void *right)
{
    return strcmp(((const struct cell_mount *)left)->path, ((const struct cell_mount *)right)->path);
}

/* A folder comes before what is mounted in it, else it would hide that. Two in one place cannot both be seen. */
static int order_mounts(struct plan *plan, struct hc_err *err)
{
    if (plan->cell.mount_count > 1)
        qsort(plan->mounts, plan->cell.mount_count, sizeof *plan->mounts, by_path);
    for (uint32_t i = 1; i < plan->cell.mount_count; i++)
        if (strcmp(plan->mounts[i - 1].path, plan->mounts[i].path) == 0) {
            hc_fail(err, HC_CLASS_REQUEST, EEXIST, "two mounts have the path %.200s", plan->mounts[i].path);
            hc_err_field(err, "mounts");
            return hc_err_remedy(err, "give each a path of its own");
        }
    return 0;
}

static int plan_mounts(const struct config *config, struct plan *plan, struct hc_err *err)
{
    const struct request *request = plan->request;
    for (size_t i = 0; i < request->mount_count; i++) {
        struct policy_mount *checked = calloc(1, sizeof *checked);
        if (!checked)
            return plan_no_memory(err);
        checked->fd = -1;
        int result = policy_open(config, &request->mounts[i], checked, err);
        if (result == 0)
            result = place_mount(plan, checked, err);
        hc_close(checked->fd);
        free(checked);
        if (result < 0)
            return result;
    }
    return order_mounts(plan, err);
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
        config_blame(config, err);
        return hc_err_remedy(err, request->network ? "use \"none\"" : "set network_enabled = false");
    }
    const char *image = request->image ? request->image : config->image;
    if (strcmp(image, "host") != 0) {
        hc_fail(err, HC_CLASS_REQUEST, ENOENT, "image \"%s\" is not available", image);
        hc_err_field(err, request->image ? "image" : "sandbox.image");
        config_blame(config, err);
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
    int result = archive_put_file(fd, mode, path, content->data, content->length);
    if (result < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, -result, "packing %s", path);
    return 0;
}

static int plan_files(struct plan *plan, const char *code_name, struct hc_err *err)
{
    const struct request *request = plan->request;
    if (!request->file_count && !code_name)
        return 0;
    hc_cleanup_fd int fd = stock_memfd();
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

const char *plan_cwd(const struct plan *plan)
{
    return plan->request->cwd ? plan->request->cwd : plan->cell.work_dir;
}

/* ---- environment ---- */

int plan_set_env(struct words *env, const char *setting)
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

int plan_base_env(const char *work_dir, const struct language *language, struct words *env)
{
    char home[300];
    snprintf(home, sizeof home, "HOME=%s", work_dir);
    int result = plan_set_env(env, home);
    for (size_t i = 0; i < sizeof base_env / sizeof *base_env && result == 0; i++)
        result = plan_set_env(env, base_env[i]);
    for (size_t i = 0; language && i < language->env.count && result == 0; i++)
        result = plan_set_env(env, language->env.item[i]);
    return result;
}

static int plan_env(struct plan *plan, struct hc_err *err)
{
    int result = plan_base_env(plan->cell.work_dir, plan->language, &plan->env);
    for (size_t i = 0; i < plan->request->env.count && result == 0; i++)
        result = plan_set_env(&plan->env, plan->request->env.item[i]);
    return result < 0 ? plan_no_memory(err) : 0;
}

/* ---- what to run ---- */

static int name_entry(struct plan *plan, const char *name, struct hc_err *err)
{
    const struct request *request = plan->request;
    const char *dot = strrchr(plan->language->file, '.');
    int length;
    if (!request->apart)
        length = asprintf(&plan->entry, "%s%s", request->code_apart ? PLAN_APART : "", name);
    else if (plan->language->compile.present)
        length = asprintf(&plan->entry, PLAN_APART_OWN "/code/%s", request->apart, name);
    else
        length = asprintf(&plan->entry, "%s/.%s%s", plan->cell.work_dir, request->apart, dot ? dot : "");
    if (length >= 0)
        return 0;
    plan->entry = NULL;
    return plan_no_memory(err);
}

char *plan_rubbish(const struct plan *plan)
{
    char *path = NULL;
    if (!plan->request->apart || !plan->entry)
        return NULL;
    if (!plan->language->compile.present)
        return strdup(plan->entry);
    return asprintf(&path, PLAN_APART_OWN, plan->request->apart) < 0 ? NULL : path;
}

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
    if (result < 0 && !request->language && !request->entry && strcmp(err->field, "language") == 0)
        hc_err_field(err, "languages.default");
    if (result < 0) {
        config_blame(config, err);
        return result;
    }
    const char *missing;
    if (!language_available(plan->language, &missing)) {
        hc_fail(err, HC_CLASS_HOST, ENOENT, "%s is not installed on this machine: there is no %s", plan->language->name,
                missing);
        hc_err_field(err, "language");
        return hc_err_remedy(err, "apt install %s", plan->language->package);
    }
    return name_entry(plan, request->entry ? request->entry : plan->language->file, err);
}

static bool has_file(const struct request *request, const char *path)
{
    for (size_t i = 0; i < request->file_count; i++)
        if (strcmp(request->files[i].path, path) == 0)
            return true;
    return false;
}

static void suggest_file(const struct request *request, struct hc_err *err)
{
    hc_cleanup_free const char **names = calloc(request->file_count + 1, sizeof *names);
    for (size_t i = 0; names != NULL && i < request->file_count; i++)
        names[i] = request->files[i].path;
    const char *near = names != NULL ? hc_suggest(request->entry, names, request->file_count) : NULL;
    if (near != NULL)
        hc_err_remedy(err, "did you mean \"%.100s\"?", near);
}

static int check_what(const struct request *request, struct hc_err *err)
{
    bool command = request->command.count > 0;
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
        suggest_file(request, err);
        return hc_err_field(err, "entry");
    }
    return 0;
}

int plan_make(const struct config *config, const struct request *request, struct plan *plan, struct hc_err *err)
{
    memset(plan, 0, offsetof(struct plan, mounts));
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
        result = plan_files(plan, request->has_code ? plan->entry + request->code_apart : NULL, err);
    if (result == 0)
        result = plan_env(plan, err);
    if (result == 0)
        result = cell_spec_check(&plan->cell, plan->mounts, err);
    if (result == 0)
        warm_choose(config, plan);
    else
        plan_release(plan);
    return result;
}

void plan_release(struct plan *plan)
{
    for (size_t i = 0; i < plan->stage_count; i++)
        words_release(&plan->stages[i].argv);
    free(plan->stages);
    for (size_t i = 0; i < plan->test_count; i++)
        words_release(&plan->tests[i].argv);
    free(plan->tests);
    words_release(&plan->env);
    words_release(&plan->hosts);
    hc_close(plan->files);
    language_free(plan->language);
    free(plan->entry);
    memset(plan, 0, offsetof(struct plan, mounts));
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
