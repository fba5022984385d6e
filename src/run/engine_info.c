/* About this machine: what the doctor found, and which languages there are. Both as JSON, from which the command line
 * makes its tables. */
#include "run/engine.h"

#include "kernel/probe.h"
#include "run/isolation.h"
#include "run/language.h"
#include "run/warm.h"
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- languages ---- */

static json_t *words_json(const struct words *words)
{
    json_t *array = json_array();
    for (size_t i = 0; i < words->count; i++)
        json_array_append_new(array, json_string(words->item[i]));
    return array;
}

char *hc_languages_json(const hc_config *config, hc_error **error)
{
    struct hc_err err = {0};
    struct languages *languages;
    if (languages_load(engine_config(config), &languages, &err) < 0) {
        engine_give_error(error, &err);
        return NULL;
    }
    json_t *array = json_array();
    for (size_t i = 0; i < languages_count(languages); i++) {
        const struct language *language = languages_at(languages, i);
        const char *missing;
        char version[64] = "";
        bool available = language_available(language, &missing);
        if (available)
            language_version(language, version, sizeof version);
        json_array_append_new(array, json_pack("{s:s, s:s?, s:o, s:s, s:s, s:s, s:b, s:s?, s:s?}", "name",
                                               language->name, "title", language->title, "aliases",
                                               words_json(&language->aliases), "version", version, "extension",
                                               language->extensions.count ? language->extensions.item[0] : "", "start",
                                               warm_word(engine_config(config), language), "available", available,
                                               "package", language->package, "source", language->source));
    }
    languages_free(languages);
    char *text = json_dumps(array, JSON_COMPACT);
    json_decref(array);
    if (!text) {
        hc_fail(&err, HC_CLASS_OURS, ENOMEM, "out of memory");
        engine_give_error(error, &err);
    }
    return text;
}

/* ---- doctor ---- */

static void add_check(json_t *checks, const char *name, const char *status, const char *detail, const char *remedy)
{
    json_array_append_new(
        checks, json_pack("{s:s, s:s, s:s, s:s}", "name", name, "status", status, "detail", detail, "remedy", remedy));
}

static void check_namespaces(json_t *checks)
{
    for (size_t i = 0; i < probe_namespace_count; i++) {
        int result = probe_namespace(&probe_namespaces[i]);
        add_check(
            checks, probe_namespaces[i].name, result == 0 ? "ok" : "missing",
            result == 0 ? probe_namespaces[i].what : strerror(-result),
            result == 0
                ? ""
                : "sysctl -w user.max_user_namespaces=10000 (and on some systems kernel.unprivileged_userns_clone=1 or "
                  "kernel.apparmor_restrict_unprivileged_userns=0)");
    }
}

static void check_groups(json_t *checks, const hc_engine *engine)
{
    bool groups = engine->isolation & (ISOLATION_MEMORY | ISOLATION_CPU | ISOLATION_PIDS);
    add_check(checks, "control groups", groups ? "ok" : "weak", probe_cgroup_word(engine->cgroup_mode),
              groups ? "" : engine->remedy);
    static const struct {
        const char *name, *what;
        uint32_t bit;
    } controllers[] = {{"memory limit", "memory controller, kernel's own oom_kill counter", ISOLATION_MEMORY},
                       {"cpu limit", "cpu controller", ISOLATION_CPU},
                       {"pids limit", "pids controller", ISOLATION_PIDS}};
    for (size_t i = 0; i < 3; i++) {
        bool held = engine->isolation & controllers[i].bit;
        add_check(checks, controllers[i].name, held ? "ok" : "weak",
                  held             ? controllers[i].what
                  : engine->why[0] ? engine->why
                                   : "no controller",
                  held ? "" : engine->remedy);
    }
}

static void check_kernel(json_t *checks)
{
    char text[96];
    struct hc_err err = {0};
    bool seccomp = probe_seccomp(&err) == 0;
    add_check(checks, "seccomp", seccomp ? "ok" : "missing", seccomp ? "system call allow-list" : err.message,
              seccomp ? "" : "use a kernel with CONFIG_SECCOMP_FILTER");
    int abi = probe_landlock();
    snprintf(text, sizeof text, "ABI %d%s", abi, abi >= 6 ? ", files, signals and abstract sockets" : ", files");
    add_check(checks, "landlock", abi ? "ok" : "weak", abi ? text : "this kernel has none, or it is not switched on",
              abi ? "" : "boot with landlock in the lsm= parameter (Linux 5.13 or newer)");
}

/* The proof of the pudding: a whole cell, overlay and all, with a program in it. */
static int check_trial(json_t *checks, hc_engine *engine, bool *worked)
{
    hc_request *request = hc_request_new();
    hc_result *result = NULL;
    hc_error *error = NULL;
    *worked = false;
    if (!request)
        return -ENOMEM;
    hc_request_allow_weak(request, 1);
    hc_request_add_command(request, "/bin/true", &error);
    int status = error ? -ENOMEM : hc_run(engine, request, &result, &error);
    if (status < 0) {
        add_check(checks, "a trial run", "missing", hc_error_message(error), hc_error_remedy(error));
    } else {
        *worked = strcmp(hc_result_status(result), "completed") == 0;
        add_check(checks, "a trial run", *worked ? "ok" : "missing",
                  *worked ? "a cell was built, overlay included, and /bin/true ran in it" : hc_result_summary(result),
                  "");
    }
    hc_error_free(error);
    hc_result_free(result);
    hc_request_free(request);
    return 0;
}

static void check_uids(json_t *checks, const struct config *config)
{
    struct keeper_plan plan = {.uid_base = config->uid_base, .uid_count = config->uid_count};
    char text[128];
    uint64_t count = keeper_uid_range(&plan, text, sizeof text);
    add_check(checks, "uid range", "ok", text,
              count >= 3
                  ? ""
                  : "for uids of their own: apt install uidmap, and a line for you in /etc/subuid and /etc/subgid");
}

char *hc_doctor_json(const hc_config *config, int *safe, hc_error **error)
{
    struct hc_err err = {0};
    json_t *checks = json_array();
    bool worked = false;
    uint32_t isolation = 0;
    check_namespaces(checks);
    hc_engine *engine = NULL;
    hc_error *opening = NULL;
    int status = hc_engine_open(config, &engine, &opening);
    if (status == 0 && engine_greet(engine, &err) == 0) {
        isolation = engine->isolation;
        check_groups(checks, engine);
        check_kernel(checks);
        check_uids(checks, engine_config(config));
        check_trial(checks, engine, &worked);
    } else {
        check_kernel(checks);
        check_uids(checks, engine_config(config));
        add_check(checks, "a trial run", "missing", status == 0 ? err.message : hc_error_message(opening),
                  status == 0 ? err.remedy : hc_error_remedy(opening));
    }
    hc_error_free(opening);
    hc_engine_close(engine);
    bool full = worked && (isolation & ISOLATION_ALL) == ISOLATION_ALL;
    *safe = full || (worked && engine_config(config)->allow_weak);
    json_t *object = json_pack("{s:b, s:s, s:s, s:{s:b, s:b, s:b}, s:o}", "safe", *safe, "level",
                               full     ? "full"
                               : worked ? "weak"
                                        : "none",
                               "as", geteuid() == 0 ? "root" : "rootless", "limits_enforced", "memory",
                               (isolation & ISOLATION_MEMORY) != 0, "cpu", (isolation & ISOLATION_CPU) != 0, "pids",
                               (isolation & ISOLATION_PIDS) != 0, "checks", checks);
    char *text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    if (!text) {
        hc_err_clear(&err);
        hc_fail(&err, HC_CLASS_OURS, ENOMEM, "out of memory");
        engine_give_error(error, &err);
    }
    return text;
}
