/* GET /v1/history/errors: what failed before, how often, and which run put it right. From the store alone. */
#include "base/fd.h"
#include "base/size.h"
#include "gateway/languages.h"
#include "gateway/run_internal.h"
#include "text/json.h"
#include <errno.h>
#include <string.h>

enum { LIST_DEFAULT = 50, LIST_LIMIT = 1000 };

struct error_query {
    char error_type[100], fingerprint[20], language[32], limit[16];
};

struct listing {
    json_t *errors;
    bool failed, operator_;
};

static int list_group(void *data, const struct error_group *group)
{
    struct listing *listing = data;
    if (json_array_append_new(listing->errors, error_group_json(group, listing->operator_)) == 0)
        return 0;
    listing->failed = true;
    return 1;
}

static int read_query(const struct http_request *request, struct error_query *query, uint64_t *limit,
                      struct hc_err *err)
{
    static const char *const known[] = {"error_type", "fingerprint", "language", "limit", NULL};
    const struct {
        char *text;
        size_t size;
    } fields[] = {{query->error_type, sizeof query->error_type},
                  {query->fingerprint, sizeof query->fingerprint},
                  {query->language, sizeof query->language},
                  {query->limit, sizeof query->limit}};
    char name[64];
    if (http_query_unknown(request, known, name, sizeof name) != NULL)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL,
                       "there is no parameter \"%s\"; there are error_type, fingerprint, language and limit", name);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (http_query_value(request, known[i], fields[i].text, fields[i].size) < 0)
            return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "the value of %s is malformed, too long, or there twice",
                           known[i]);
    *limit = LIST_DEFAULT;
    if (query->limit[0] != '\0' && hc_parse_count(query->limit, 1, LIST_LIMIT, limit, err) < 0)
        return hc_err_field(err, "limit");
    const char *print = query->fingerprint;
    if (print[0] != '\0' && (strlen(print) != 16 || strspn(print, "0123456789abcdef") != 16)) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL,
                "\"%s\" is no fingerprint: it is 16 characters from 0-9 and a-f, as in a result's diagnosis", print);
        return hc_err_field(err, "fingerprint");
    }
    return 0;
}

static const char *or_null(const char *text)
{
    return text[0] != '\0' ? text : NULL;
}

void handle_error_list(struct gateway *gateway, struct http_request *request, const struct route_match *match)
{
    (void)match;
    const struct caller *caller = request->context;
    struct error_query query = {0};
    struct hc_err err = {0};
    uint64_t limit;
    if (read_query(request, &query, &limit, &err) < 0) {
        reply_error(request, &err);
        return;
    }
    const struct language *language =
        query.language[0] != '\0' ? catalogue_find(gateway->catalogue, query.language) : NULL;
    const struct error_filter filter = {
        .tenant = caller->operator_ ? NULL : caller->tenant,
        .fingerprint = or_null(query.fingerprint),
        .error_type = or_null(query.error_type),
        .language = language != NULL ? language->name : or_null(query.language),
        .limit = limit,
    };
    struct listing listing = {.errors = json_array(), .operator_ = caller->operator_};
    int result = listing.errors != NULL ? store_error_list(gateway->store, &filter, list_group, &listing) : -ENOMEM;
    if (result < 0 || listing.failed) {
        json_decref(listing.errors);
        reply_problem(request, 500, "internal", "the history cannot be read");
        return;
    }
    hc_cleanup_json json_t *answer = json_pack("{s:o}", "errors", listing.errors);
    hc_cleanup_free char *text = answer != NULL ? hc_json_write(answer, false) : NULL;
    if (text != NULL)
        reply_json(request, 200, text);
    else
        reply_busy(request, 503, "overloaded", 1, "the server is out of memory");
}
