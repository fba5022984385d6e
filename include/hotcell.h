/*
 * libhotcell: run untrusted code in a fresh, sealed cell.
 *
 *     hc_config *config; hc_engine *engine; hc_result *result; hc_error *error = NULL;
 *     if (hc_config_load(NULL, &config, &error) || hc_engine_open(config, &engine, &error)) …
 *     hc_request *request = hc_request_new();
 *     hc_request_set(request, "code", "print(42)", &error);
 *     if (hc_run(engine, request, &result, &error) == 0) puts(hc_result_json(result, 1));
 *
 * Functions that can fail return 0, or a negative errno and, where `error` is not NULL, an error that the caller frees.
 * Types are opaque. An engine is used by one thread at a time; any number of engines may live side by side.
 */
#ifndef HOTCELL_H
#define HOTCELL_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HC_API __attribute__((visibility("default")))

typedef struct hc_error hc_error;
typedef struct hc_config hc_config;
typedef struct hc_engine hc_engine;
typedef struct hc_request hc_request;
typedef struct hc_result hc_result;

HC_API const char *hc_version(void);

/* ---- errors ---- */
HC_API const char *hc_error_message(const hc_error *error);
HC_API const char *hc_error_field(const hc_error *error);  /* "" when none is at fault */
HC_API const char *hc_error_remedy(const hc_error *error); /* "" when there is none to name */
HC_API const char *hc_error_class(const hc_error *error);  /* "ours", "program", "request", "host" */
HC_API int hc_error_exit_code(const hc_error *error);      /* what a command line should exit with */
HC_API void hc_error_free(hc_error *error);

/* ---- configuration ---- */
/* path: a file that must exist, read after /etc/hotcell/config.toml and the user's own; NULL for those alone. */
HC_API int hc_config_load(const char *path, hc_config **config, hc_error **error);
/* One key, such as "limits.memory", from text. */
HC_API int hc_config_set(hc_config *config, const char *key, const char *value, hc_error **error);
HC_API char *hc_config_json(const hc_config *config); /* what is in force and where it came from; free() it */
HC_API void hc_config_free(hc_config *config);

/* ---- about this machine ---- */
/* Both return JSON text to free(), or NULL with an error. *safe: whether a run under this configuration would be
 * accepted. */
HC_API char *hc_doctor_json(const hc_config *config, int *safe, hc_error **error);
HC_API char *hc_languages_json(const hc_config *config, hc_error **error);

/* ---- a request ---- */
HC_API hc_request *hc_request_new(void); /* NULL: out of memory */
HC_API void hc_request_free(hc_request *request);
/* The JSON object of POST /v1/runs. With `stages`, those commands run first, in the same cell; with `tests`, the
 * program runs once for each, in a cell of its own that begins with what the stages left. */
HC_API int hc_request_load(hc_request *request, const char *json, size_t length, hc_error **error);
/* field: language, code, entry, shell, stdin, network, image, read_only, or limits.NAME such as limits.memory; async
 * and stdin_open are for a server (hc_request_json). */
HC_API int hc_request_set(hc_request *request, const char *field, const char *value, hc_error **error);
HC_API int hc_request_set_code(hc_request *request, const char *data, size_t length, hc_error **error);
HC_API int hc_request_set_stdin(hc_request *request, const char *data, size_t length, hc_error **error);
/* A JSON object of the caller's own, which the result hands back. */
HC_API int hc_request_set_metadata(hc_request *request, const char *json, size_t length, hc_error **error);
HC_API int hc_request_add_command(hc_request *request, const char *word, hc_error **error);
HC_API int hc_request_add_arg(hc_request *request, const char *word, hc_error **error);
HC_API int hc_request_add_env(hc_request *request, const char *name, const char *value, hc_error **error);
HC_API int hc_request_add_file(hc_request *request, const char *path, const char *data, size_t length, unsigned mode,
                               hc_error **error);
HC_API int hc_request_add_mount(hc_request *request, const char *host, const char *path, int read_only,
                                hc_error **error);
HC_API int hc_request_add_collect(hc_request *request, const char *pattern, hc_error **error);
/* The JSON object of POST /v1/runs, with all that was set; free() it. NULL with an error. */
HC_API char *hc_request_json(const hc_request *request, hc_error **error);
/* Accept a run on a machine that cannot enforce every layer. The result says which hold. */
HC_API void hc_request_allow_weak(hc_request *request, int allow);
/* Feed the program's stdin from this fd, which stays the caller's, instead of from the request. */
HC_API void hc_request_stdin_fd(hc_request *request, int fd);
/* Called with each piece of output as it arrives; stream is 1 or 2. The result still has all of it, up to the limit. A
 * return other than 0 ends the run. */
typedef int (*hc_output_fn)(void *data, int stream, const char *bytes, size_t length);
HC_API void hc_request_on_output(hc_request *request, hc_output_fn fn, void *data);
/* For a program that serves rather than ends: it has no time limit unless the request sets one, and what it writes goes
 * to hc_request_on_output's function, all of it, and is not kept. */
HC_API void hc_request_endless(hc_request *request, int endless);

/* ---- running ---- */
HC_API int hc_engine_open(const hc_config *config, hc_engine **engine, hc_error **error);
HC_API void hc_engine_close(hc_engine *engine);
/* hc_engine_close for a process that ends right after it: where every process of the run is known to be dead, what is
 * left to clear up is not waited for. In a process that goes on, it would leave a child that nobody waits for. */
HC_API void hc_engine_leave(hc_engine *engine);
/* Say, before the run, that this engine will do no other: clearing up then begins when the program ends. */
HC_API void hc_engine_single(hc_engine *engine);
/* 0 with a result, whatever became of the program; negative when the request was refused before anything ran. */
HC_API int hc_run(hc_engine *engine, const hc_request *request, hc_result **result, hc_error **error);
/* End the run that is under way; its status becomes "killed". Where none is, the next one ends when it begins, so that
 * whoever cancels need not know how far the other thread has come; one that comes as a run ends is for that run. Safe
 * to call from a signal handler or another thread. */
HC_API void hc_engine_cancel(hc_engine *engine);

/* ---- a result ---- */
HC_API void hc_result_free(hc_result *result);
/* "completed", "timeout", … With tests: of the first that did not complete. What each of them did is in the JSON. */
HC_API const char *hc_result_status(const hc_result *result);
/* With tests, 1 when all of them completed and one did not pass. */
HC_API int hc_result_exit_code(const hc_result *result);
/* NUL-terminated as well. "" where tests ran, for each has its own. */
HC_API const char *hc_result_stdout(const hc_result *result, size_t *length);
HC_API const char *hc_result_stderr(const hc_result *result, size_t *length);
HC_API const char *hc_result_summary(const hc_result *result); /* one line, "" for plain success */
HC_API const char *hc_result_json(const hc_result *result, int pretty);
/* Collected files: the number; the path, content and size of one, or NULL where there is none of that index. */
HC_API size_t hc_result_file_count(const hc_result *result);
HC_API const char *hc_result_file(const hc_result *result, size_t index, const char **content, size_t *length);
/* "file"; "symlink", whose content is its target; "truncated", a file of which the content is only the beginning. */
HC_API const char *hc_result_file_type(const hc_result *result, size_t index);

#ifdef __cplusplus
}
#endif

#endif
