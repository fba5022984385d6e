/*
 * Files of sandboxes over HTTP. Everything is done by a helper inside the sandbox (cell/files.h); here requests become
 * its words, and its heads and bodies become replies. No path of a guest's is ever looked up on this side.
 */
#include "base/fd.h"
#include "gateway/file_visit.h"
#include "text/base64.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PATH_LONGEST = 4096, VALUE_LONGEST = 4096 };
#define SHORT_TIME (30 * 1000000ULL)
#define SEARCH_TIME (60 * 1000000ULL)

/* ---- words ---- */

/* Whose first name makes a path absolute: the folders of a cell's root. */
static const char *const ROOT_FOLDERS[] = {"workspace", "sandbox", "tmp",  "home", "usr", "etc",
                                           "var",       "dev",     "proc", "opt",  "srv", "mnt",
                                           "run",       "root",    "bin",  "sbin", "lib", "lib64"};

static bool begins_at_root(const char *path, const struct sandbox *sandbox)
{
    size_t length = strcspn(path, "/");
    const char *work = sandbox->plan.cell.work_dir + 1;
    if (strcspn(work, "/") == length && strncmp(work, path, length) == 0)
        return true;
    for (size_t i = 0; i < sizeof ROOT_FOLDERS / sizeof *ROOT_FOLDERS; i++)
        if (strlen(ROOT_FOLDERS[i]) == length && strncmp(ROOT_FOLDERS[i], path, length) == 0)
            return true;
    return false;
}

/* What a request asks with: each parameter of the query becomes a word of the helper's. */
struct parameter {
    const char *name;
    const char *usual; /* or NULL: left out */
};

static void fail_parameter(struct http_request *request, const char *name, const char *text)
{
    struct hc_err err = {0};
    hc_fail(&err, HC_CLASS_REQUEST, EINVAL, "%s %s", name, text);
    hc_err_field(&err, "%s", name);
    reply_error(request, &err);
}

/* path=, or path_base64= for one that is not UTF-8, as names are told. 1 when there is one, 0, or -EINVAL. */
static int query_path(const struct http_request *request, char *text, size_t size)
{
    char encoded[PATH_LONGEST / 3 * 4 + 8];
    size_t length = 0;
    int found = http_query_value(request, "path", text, size);
    int other = http_query_value(request, "path_base64", encoded, sizeof encoded);
    if (other == 0 || found < 0)
        return found;
    hc_cleanup_free char *bytes = NULL;
    if (found > 0 || other < 0 || hc_base64_decode(encoded, strlen(encoded), &bytes, &length) < 0 || length >= size ||
        memchr(bytes, '\0', length) != NULL)
        return -EINVAL;
    memcpy(text, bytes, length + 1);
    return 1;
}

/* False: it has replied. */
static bool add_parameters(struct http_request *request, struct words *words, const struct parameter *parameters,
                           size_t count)
{
    const char *known[16];
    char unknown[64];
    size_t i;
    for (i = 0; i < count; i++)
        known[i] = parameters[i].name;
    known[i] = "path_base64";
    known[i + 1] = NULL;
    if (http_query_unknown(request, known, unknown, sizeof unknown) != NULL) {
        fail_parameter(request, unknown, "is no parameter of this");
        return false;
    }
    char *value hc_cleanup_free = malloc(VALUE_LONGEST);
    for (i = 0; i < count && value != NULL; i++) {
        bool path = strcmp(parameters[i].name, "path") == 0;
        int found = path ? query_path(request, value, PATH_LONGEST)
                         : http_query_value(request, parameters[i].name, value, VALUE_LONGEST);
        if (found < 0) {
            fail_parameter(request, parameters[i].name, "is malformed, too long, or there twice");
            return false;
        }
        const char *text = found > 0 ? value : parameters[i].usual;
        if (text != NULL && errand_word(words, parameters[i].name, text) < 0)
            break;
    }
    if (value != NULL && i == count)
        return true;
    reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
    return false;
}

/* path=, from what stands behind files/ or, where that is nothing, from ?path=. False: it has replied. */
static bool add_path(struct http_request *request, const struct sandbox *sandbox, const struct route_match *match,
                     struct words *words)
{
    const char *rest = route_value(match, "path");
    char text[PATH_LONGEST + 8];
    bool long_rest = strlen(rest) >= PATH_LONGEST;
    int found = long_rest ? -EINVAL : rest[0] != '\0' ? 0 : query_path(request, text, PATH_LONGEST);
    if (long_rest || (rest[0] == '\0' && found <= 0)) {
        fail_parameter(request, "path", found < 0 ? "is malformed, too long, or there twice" : "is needed");
        return false;
    }
    if (rest[0] != '\0') {
        size_t length = strlen(rest);
        snprintf(text, sizeof text, "%s%s", begins_at_root(rest, sandbox) ? "/" : "", rest);
        if (length > 1 && text[strlen(text) - 1] == '/')
            text[strlen(text) - 1] = '\0';
    }
    if (errand_word(words, "path", text) == 0)
        return true;
    reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
    return false;
}

/* ---- answers ---- */

static void answer_facts(struct file_visit *visit, const json_t *head)
{
    json_t *object = json_copy((json_t *)head);
    json_object_del(object, "ok");
    sandbox_reply(file_visit_done(visit), 200, object);
}

static void answer_json(struct file_visit *visit, const json_t *head)
{
    (void)head;
    file_visit_stream(visit, 200, "application/json", HTTP_LENGTH_UNKNOWN);
}

static void add_facts(struct http_request *request, const json_t *head)
{
    const char *mode = json_string_value(json_object_get(head, "mode"));
    const json_t *mtime = json_object_get(head, "mtime");
    char text[64];
    time_t when = (time_t)json_number_value(mtime);
    struct tm utc;
    if (mode != NULL)
        http_add_header(request, "Hotcell-Mode", mode);
    if (json_is_number(mtime) && gmtime_r(&when, &utc) != NULL &&
        strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &utc) > 0)
        http_add_header(request, "Last-Modified", text);
    http_add_header(request, "Accept-Ranges", "bytes");
    http_add_header(request, "Content-Security-Policy", "sandbox"); /* a guest's page is no page of this server's */
    http_add_header(request, "X-Content-Type-Options", "nosniff");
}

/* Only plain digits are a number here: scanf(3) takes blanks and signs as well. */
static bool read_digits(const char **at, unsigned long long *value)
{
    size_t count = strspn(*at, "0123456789");
    if (count == 0 || count > 18)
        return false;
    *value = strtoull(*at, NULL, 10);
    *at += count;
    return true;
}

struct range {
    bool first_given, last_given;
    unsigned long long first, last;
};

/* One range of bytes. False: there is none, or several, or it is malformed, all of which mean the whole (RFC 9110). */
static bool read_range(const struct http_request *request, struct range *range)
{
    const char *at = http_header(request, "range");
    if (at == NULL || strncmp(at, "bytes=", 6) != 0)
        return false;
    at += 6;
    range->first_given = read_digits(&at, &range->first);
    if (*at++ != '-')
        return false;
    range->last_given = read_digits(&at, &range->last);
    bool ordered = !range->first_given || !range->last_given || range->last >= range->first;
    return *at == '\0' && ordered && (range->first_given || range->last_given);
}

static void answer_bytes(struct file_visit *visit, const json_t *head)
{
    struct http_request *request = visit->request;
    json_int_t size = json_integer_value(json_object_get(head, "size"));
    json_int_t offset = json_integer_value(json_object_get(head, "offset"));
    json_int_t length = json_integer_value(json_object_get(head, "length"));
    struct range asked = {0};
    bool part = read_range(request, &asked);
    add_facts(request, head);
    if (part) {
        char range[96];
        snprintf(range, sizeof range, "bytes %" JSON_INTEGER_FORMAT "-%" JSON_INTEGER_FORMAT "/%" JSON_INTEGER_FORMAT,
                 offset, offset + length - 1, size);
        http_add_header(request, "Content-Range", range);
    }
    file_visit_stream(visit, part ? 206 : 200, "application/octet-stream", (uint64_t)length);
}

/* HEAD: the facts alone. */
static void answer_headers(struct file_visit *visit, const json_t *head)
{
    struct http_request *request = visit->request;
    const char *type = json_string_value(json_object_get(head, "type"));
    json_int_t size = json_integer_value(json_object_get(head, "size"));
    if (type == NULL || strcmp(type, "file") != 0) {
        reply_problem(file_visit_done(visit), 409, "conflict", "it is no file");
        return;
    }
    add_facts(request, head);
    request = file_visit_done(visit);
    reply_stream_sized(request, 200, "application/octet-stream", (uint64_t)size);
    http_stream_end(request);
}

static void answer_written(struct file_visit *visit, const json_t *head)
{
    bool created = json_is_true(json_object_get(head, "created"));
    reply_text(file_visit_done(visit), created ? 201 : 204, "text/plain", "", 0);
}

static void answer_nothing(struct file_visit *visit, const json_t *head)
{
    (void)head;
    reply_text(file_visit_done(visit), 204, "text/plain", "", 0);
}

static void answer_archive(struct file_visit *visit, const json_t *head)
{
    char text[32];
    snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(json_object_get(head, "skipped")));
    http_add_header(visit->request, "Hotcell-Skipped", text);
    file_visit_stream(visit, 200, "application/x-tar", HTTP_LENGTH_UNKNOWN);
}

/* ---- looking ---- */

static bool begin_words(struct http_request *request, struct words *words, const char *operation)
{
    if (words_add(words, operation) == 0)
        return true;
    reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
    return false;
}

void handle_file_list(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    static const struct parameter parameters[] = {{"path", ""}, {"limit", "1000"}, {"depth", "1"}, {"after", NULL}};
    struct sandbox *sandbox = sandbox_for_work(gateway, request, match);
    struct words words = {0};
    if (sandbox == NULL)
        return;
    if (begin_words(request, &words, "list") && add_parameters(request, &words, parameters, 4))
        file_visit(gateway, request, sandbox, &words, FILE_BODY_OUT, SHORT_TIME, answer_json);
    else
        words_release(&words);
}

void handle_file_search(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    static const struct parameter parameters[] = {
        {"path", ""}, {"name", NULL}, {"content", NULL}, {"regex", NULL}, {"limit", "100"}};
    struct sandbox *sandbox = sandbox_for_work(gateway, request, match);
    struct words words = {0};
    if (sandbox == NULL)
        return;
    if (begin_words(request, &words, "search") && add_parameters(request, &words, parameters, 5))
        file_visit(gateway, request, sandbox, &words, FILE_BODY_OUT, SEARCH_TIME, answer_json);
    else
        words_release(&words);
}

/* ---- bytes ---- */

static int add_range(const struct http_request *request, struct words *words)
{
    struct range range = {0};
    if (!read_range(request, &range))
        return 0;
    if (!range.first_given)
        return errand_number(words, "suffix", range.last);
    int result = errand_number(words, "offset", range.first);
    return result == 0 && range.last_given ? errand_number(words, "length", range.last - range.first + 1) : result;
}

void handle_file_get(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    struct sandbox *sandbox = sandbox_for_work(gateway, request, match);
    struct words words = {0};
    if (sandbox == NULL)
        return;
    bool head = request->method == HTTP_HEAD;
    if (!begin_words(request, &words, head ? "stat" : "read") || !add_path(request, sandbox, match, &words)) {
        words_release(&words);
        return;
    }
    if (!head && add_range(request, &words) < 0) {
        words_release(&words);
        reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
        return;
    }
    if (head)
        file_visit(gateway, request, sandbox, &words, FILE_NO_BODY, SHORT_TIME, answer_headers);
    else
        file_visit(gateway, request, sandbox, &words, FILE_BODY_OUT, 0, answer_bytes);
}

/* The body must come to its Content-Length, and to no more than the server allows. */
static int add_body_limits(const struct gateway *gateway, struct http_request *request, struct words *words)
{
    uint64_t most = gateway->config->sandboxes.file_bytes;
    http_body_limit(request, most);
    int result = errand_number(words, "limit", most);
    if (result == 0 && request->body_expected != HTTP_LENGTH_UNKNOWN)
        result = errand_number(words, "length", request->body_expected);
    return result;
}

void handle_file_put(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    static const struct parameter parameters[] = {{"mode", NULL}, {"append", NULL}};
    static const char *const known[] = {"mode", "append", "path", "path_base64", NULL};
    struct sandbox *sandbox = sandbox_for_work(gateway, request, match);
    struct words words = {0};
    char unknown[64], value[32];
    if (sandbox == NULL)
        return;
    if (http_query_unknown(request, known, unknown, sizeof unknown) != NULL) {
        fail_parameter(request, unknown, "is no parameter of this");
        return;
    }
    bool good = begin_words(request, &words, "write") && add_path(request, sandbox, match, &words);
    int result = 0;
    for (size_t i = 0; i < 2 && good && result == 0; i++)
        if (http_query_value(request, parameters[i].name, value, sizeof value) > 0)
            result = errand_word(&words, parameters[i].name, value);
    if (good && result == 0)
        result = add_body_limits(gateway, request, &words);
    if (good && result == 0) {
        file_visit(gateway, request, sandbox, &words, FILE_BODY_IN, 0, answer_written);
        return;
    }
    words_release(&words);
    if (good)
        reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
}

void handle_file_delete(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    struct sandbox *sandbox = sandbox_for_work(gateway, request, match);
    struct words words = {0};
    char value[8] = "";
    if (sandbox == NULL)
        return;
    if (begin_words(request, &words, "delete") && add_path(request, sandbox, match, &words)) {
        if (http_query_value(request, "recursive", value, sizeof value) > 0 && strcmp(value, "true") == 0)
            (void)errand_word(&words, "recursive", "true"); /* without memory it deletes less, and says so */
        file_visit(gateway, request, sandbox, &words, FILE_NO_BODY, SHORT_TIME, answer_nothing);
    } else {
        words_release(&words);
    }
}

/* ---- by JSON ---- */

struct field {
    const char *name;
    bool flag, needed;
    const char *usual; /* or NULL: left out */
};

/* The body's fields as words. False: it has replied. */
static bool add_fields(struct http_request *request, struct words *words, const struct field *fields, size_t count)
{
    hc_cleanup_json json_t *body = sandbox_body(request);
    const char *known[8];
    size_t i;
    for (i = 0; i < count; i++)
        known[i] = fields[i].name;
    known[i] = NULL;
    if (body == NULL || !sandbox_body_knows(request, body, known))
        return false;
    for (i = 0; i < count; i++) {
        const json_t *value = json_object_get(body, fields[i].name);
        bool absent = value == NULL || json_is_null(value);
        bool fits = fields[i].flag
                        ? json_is_boolean(value)
                        : json_is_string(value) && strlen(json_string_value(value)) == json_string_length(value);
        if (absent && !fields[i].needed && fields[i].usual == NULL)
            continue;
        if (absent ? fields[i].needed : !fits) {
            fail_parameter(request, fields[i].name, fields[i].flag ? "must be true or false" : "must be a text");
            return false;
        }
        const char *text = absent           ? fields[i].usual
                           : fields[i].flag ? (json_is_true(value) ? "true" : "false")
                                            : json_string_value(value);
        if (errand_word(words, fields[i].name, text) < 0) {
            reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
            return false;
        }
    }
    return true;
}

void handle_file_move(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    static const struct field fields[] = {{"from", false, true, NULL},
                                          {"to", false, true, NULL},
                                          {"overwrite", true, false, NULL},
                                          {"parents", true, false, NULL}};
    struct sandbox *sandbox = sandbox_for_work(gateway, request, match);
    struct words words = {0};
    if (sandbox == NULL)
        return;
    if (begin_words(request, &words, "move") && add_fields(request, &words, fields, 4))
        file_visit(gateway, request, sandbox, &words, FILE_NO_BODY, 0, answer_facts);
    else
        words_release(&words);
}

void handle_file_mkdir(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    static const struct field fields[] = {
        {"path", false, true, NULL}, {"parents", true, false, "true"}, {"mode", false, false, NULL}};
    struct sandbox *sandbox = sandbox_for_work(gateway, request, match);
    struct words words = {0};
    if (sandbox == NULL)
        return;
    if (begin_words(request, &words, "mkdir") && add_fields(request, &words, fields, 3))
        file_visit(gateway, request, sandbox, &words, FILE_NO_BODY, SHORT_TIME, answer_written);
    else
        words_release(&words);
}

/* ---- archives ---- */

void handle_archive_get(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    static const struct parameter parameters[] = {{"path", ""}};
    struct sandbox *sandbox = sandbox_for_work(gateway, request, match);
    struct words words = {0};
    if (sandbox == NULL)
        return;
    if (begin_words(request, &words, "pack") && add_parameters(request, &words, parameters, 1) &&
        errand_number(&words, "limit", gateway->config->sandboxes.file_bytes) == 0)
        file_visit(gateway, request, sandbox, &words, FILE_BODY_OUT, 0, answer_archive);
    else
        words_release(&words);
}

void handle_archive_put(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    static const struct parameter parameters[] = {{"path", ""}};
    struct sandbox *sandbox = sandbox_for_work(gateway, request, match);
    struct words words = {0};
    if (sandbox == NULL)
        return;
    http_body_limit(request, gateway->config->sandboxes.file_bytes);
    if (begin_words(request, &words, "unpack") && add_parameters(request, &words, parameters, 1) &&
        errand_number(&words, "limit", gateway->config->sandboxes.file_bytes) == 0)
        file_visit(gateway, request, sandbox, &words, FILE_BODY_IN, 0, answer_facts);
    else
        words_release(&words);
}
