/*
 * Replies: JSON, problem+json (RFC 9457), and the one place where an error of ours becomes an HTTP status. Every reply
 * of the server goes through here and is counted once, under its route and status.
 */
#include "base/fd.h"
#include "gateway/gateway.h"
#include "gateway/metrics.h"
#include "text/json.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char PROBLEM[] = "application/problem+json";

/* ---- counted ---- */

static void count(const struct http_request *request, int status)
{
    const struct visit *visit = request->context;
    if (visit != NULL && visit->gateway->metrics != NULL)
        metrics_request(visit->gateway->metrics, visit->route != NULL ? visit->route->pattern : "", status);
}

void reply_text(struct http_request *request, int status, const char *content_type, const char *body, size_t length)
{
    count(request, status);
    http_reply(request, status, content_type, body, length);
}

void reply_stream(struct http_request *request, int status, const char *content_type)
{
    count(request, status);
    http_stream_begin(request, status, content_type);
}

void reply_stream_sized(struct http_request *request, int status, const char *content_type, uint64_t length)
{
    count(request, status);
    http_stream_begin_sized(request, status, content_type, length);
}

void reply_json(struct http_request *request, int status, const char *json)
{
    reply_text(request, status, "application/json", json, strlen(json));
}

/* ---- problems ---- */

/* Field and remedy are members of their own where they are known: a client need not take the sentence apart. */
static void problem(struct http_request *request, int status, const char *code, const char *detail, const char *field,
                    const char *remedy)
{
    hc_cleanup_json json_t *object =
        json_pack("{s:s, s:s, s:i, s:o, s:s}", "type", "about:blank", "title", http_status_text(status), "status",
                  status, "detail", hc_json_text_lossy(detail), "code", code);
    if (object != NULL && field[0] != '\0')
        json_object_set_new(object, "field", hc_json_text_lossy(field));
    if (object != NULL && remedy[0] != '\0')
        json_object_set_new(object, "remedy", hc_json_text_lossy(remedy));
    hc_cleanup_free char *text = object != NULL ? hc_json_write(object, false) : NULL;
    if (text == NULL) /* a reply without a body is better than none */
        text = strdup("");
    reply_text(request, status, PROBLEM, text != NULL ? text : "", text != NULL ? strlen(text) : 0);
}

void reply_problem(struct http_request *request, int status, const char *code, const char *detail)
{
    problem(request, status, code, detail, "", "");
}

static void add_retry(struct http_request *request, unsigned seconds)
{
    char text[16];
    snprintf(text, sizeof text, "%u", seconds > 0 ? seconds : 1);
    http_add_header(request, "Retry-After", text);
}

void reply_busy(struct http_request *request, int status, const char *code, unsigned retry_seconds, const char *detail)
{
    add_retry(request, retry_seconds);
    reply_problem(request, status, code, detail);
}

/* ---- errors ---- */

enum { RETRY_QUOTA = 60, RETRY_BUSY = 1, RETRY_HOST = 10 };

struct mapping {
    int code;
    enum hc_class class; /* NONE: any */
    const char *field;   /* the beginning of the field at fault; "": any; "-": none */
    int status;
    const char *word;
    unsigned retry;
};

/* The first row that fits. What the mount policy says of a path is a 403 whether it is forbidden or absent: the answer
 * must not tell which host paths exist. */
static const struct mapping MAPPINGS[] = {
    {EDQUOT, HC_CLASS_NONE, "", 429, "quota_exceeded", RETRY_QUOTA},
    {EAGAIN, HC_CLASS_NONE, "", 503, "overloaded", RETRY_BUSY},
    {EACCES, HC_CLASS_REQUEST, "mounts", 403, "forbidden", 0},
    {EPERM, HC_CLASS_REQUEST, "mounts", 403, "forbidden", 0},
    {ENOENT, HC_CLASS_REQUEST, "mounts", 403, "forbidden", 0},
    {EACCES, HC_CLASS_REQUEST, "-", 403, "forbidden", 0},
    {ENOENT, HC_CLASS_REQUEST, "-", 404, "not_found", 0},
    {EEXIST, HC_CLASS_REQUEST, "-", 409, "conflict", 0},
    {EBUSY, HC_CLASS_REQUEST, "", 409, "conflict", 0},
    {ENOENT, HC_CLASS_REQUEST, "volumes", 404, "not_found", 0},
    {E2BIG, HC_CLASS_REQUEST, "", 413, "too_large", 0},
    {EFBIG, HC_CLASS_REQUEST, "", 413, "too_large", 0},
    /* Not installed: asking again does not help, so it is no 503. */
    {ENOENT, HC_CLASS_HOST, "language", 400, "language_unavailable", 0},
    {EOPNOTSUPP, HC_CLASS_HOST, "volumes", 400, "volumes_unavailable", 0},
};

static bool fits(const struct mapping *row, const struct hc_err *err)
{
    if (row->code != err->code || (row->class != HC_CLASS_NONE && row->class != (enum hc_class)err->class))
        return false;
    return row->field[0] == '-' ? err->field[0] == '\0' : strncmp(err->field, row->field, strlen(row->field)) == 0;
}

static struct mapping map_error(const struct hc_err *err)
{
    for (size_t i = 0; i < sizeof MAPPINGS / sizeof MAPPINGS[0]; i++)
        if (fits(&MAPPINGS[i], err))
            return MAPPINGS[i];
    int status = hc_class_info(err->class)->http_status;
    struct mapping other = {.status = status >= 400 ? status : 500};
    other.word = other.status == 400 ? "invalid_request" : "internal";
    other.retry = other.status == 503 ? RETRY_HOST : 0;
    return other;
}

void reply_error(struct http_request *request, const struct hc_err *err)
{
    struct mapping mapping = map_error(err);
    char detail[sizeof err->field + sizeof err->message + sizeof err->remedy + 8];
    bool named = err->field[0] == '\0' || strstr(err->message, err->field) != NULL;
    snprintf(detail, sizeof detail, "%s%s%s%s%s", named ? "" : err->field, named ? "" : ": ", err->message,
             err->remedy[0] != '\0' ? "; " : "", err->remedy);
    if (mapping.retry > 0)
        add_retry(request, mapping.retry);
    problem(request, mapping.status, mapping.word, detail, err->field, err->remedy);
}

/* ---- requests ---- */

bool content_is_json(const struct http_request *request)
{
    const char *type = http_header(request, "content-type");
    static const char prefix[] = "application/";
    if (type == NULL || strncasecmp(type, prefix, sizeof prefix - 1) != 0)
        return false;
    const char *word = type + sizeof prefix - 1;
    size_t length = strcspn(word, "; \t");
    const char *rest = word + length + strspn(word + length, " \t");
    if (*rest != '\0' && *rest != ';')
        return false;
    if (length == 4 && strncasecmp(word, "json", 4) == 0)
        return true;
    return length > 5 && strncasecmp(word + length - 5, "+json", 5) == 0 && memchr(word, '/', length) == NULL;
}
