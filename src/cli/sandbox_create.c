/*
 * hotcell sandbox create. What a run may ask for as well is gathered as a run's request, by the code that gathers that;
 * the rest is added to its JSON.
 */
#include "base/fd.h"
#include "base/size.h"
#include "cli/json.h"
#include "cli/message.h"
#include "cli/sandbox.h"
#include "text/json.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ORDER_DEPTH = 64 };

static int no_memory(struct hc_err *err)
{
    return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
}

/* ---- what a run has not ---- */

/* NAME:PATH[:ro|rw]. */
static int add_volume(json_t *order, const char *text, struct hc_err *err)
{
    hc_cleanup_free char *spec = strdup(text);
    bool read_only = false;

    if (!spec)
        return no_memory(err);
    char *last = strrchr(spec, ':');
    if (last && (strcmp(last, ":ro") == 0 || strcmp(last, ":rw") == 0)) {
        read_only = strcmp(last, ":ro") == 0;
        *last = '\0';
    }
    char *colon = strchr(spec, ':');
    if (!colon || colon == spec || colon[1] != '/') {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "--volume %s is not of the form NAME:PATH[:ro|rw]", text);
        return hc_err_remedy(err, "such as --volume cache:/cache; hotcell volume list shows the names");
    }
    *colon = '\0';
    json_t *list = json_object_get(order, "volumes");
    if (!list) {
        list = json_array();
        json_object_set_new(order, "volumes", list);
    }
    json_t *one = json_pack("{s:s, s:s, s:b}", "name", spec, "path", colon + 1, "read_only", read_only);
    if (!one)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "--volume %s is no UTF-8", text);
    return json_array_append_new(list, one) == 0 ? 0 : no_memory(err);
}

static int add_metadata(json_t *order, const char *text, struct hc_err *err)
{
    const char *equals = strchr(text, '=');
    hc_cleanup_free char *key = strndup(text, strcspn(text, "="));

    if (!key)
        return no_memory(err);
    if (!equals || equals == text) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "--metadata %s is not of the form K=V", text);
        return hc_err_remedy(err, "such as --metadata job=42");
    }
    json_t *object = json_object_get(order, "metadata"), *value = json_string(equals + 1);
    if (!object) {
        object = json_object();
        json_object_set_new(order, "metadata", object);
    }
    if (!value || json_object_set_new(object, key, value) < 0)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "--metadata %s is no UTF-8", text);
    return 0;
}

static int set_time(json_t *order, const char *field, const char *option, const char *text, struct hc_err *err)
{
    uint64_t microseconds;

    if (hc_parse_duration(text, &microseconds, err) < 0)
        return hc_err_context(err, "--%s", option);
    json_object_set_new(order, field, json_real((double)microseconds / 1e6));
    return 0;
}

static int add_own(json_t *order, const struct given *given, struct hc_err *err)
{
    switch (given->option->id) {
    case SANDBOX_VOLUME:
        return add_volume(order, given->value, err);
    case SANDBOX_METADATA:
        return add_metadata(order, given->value, err);
    case SANDBOX_IDLE_TIMEOUT:
        return set_time(order, "idle_timeout", given->option->name, given->value, err);
    case SANDBOX_MAX_LIFETIME:
        return set_time(order, "max_lifetime", given->option->name, given->value, err);
    case SANDBOX_RECOVER:
        json_object_set_new(order, "recover", json_true());
        return 0;
    default:
        return 0;
    }
}

/* ---- all of it ---- */

static int read_shared(const struct sandbox_line *line, json_t **order, struct hc_err *err)
{
    hc_request *request = hc_request_new();
    hc_error *error = NULL;
    int status = request ? 0 : no_memory(err);

    for (size_t i = 0; status == 0 && i < line->given_count; i++)
        status = request_option(request, line->given[i].option, line->given[i].value, err);
    hc_cleanup_free char *text = status == 0 ? hc_request_json(request, &error) : NULL;
    if (text)
        status = hc_json_read(text, strlen(text), ORDER_DEPTH, order, err);
    else if (status == 0)
        status = message_adopt(error, err);
    hc_request_free(request);
    return status;
}

static int read_order(const struct sandbox_line *line, json_t **order, struct hc_err *err)
{
    int status = read_shared(line, order, err);

    for (size_t i = 0; status == 0 && i < line->given_count; i++)
        status = add_own(*order, &line->given[i], err);
    return status;
}

int sandbox_create(struct cli *cli, const struct sandbox_line *line)
{
    json_cleanup json_t *order = NULL, *answer = NULL;
    struct server server = {0};
    struct hc_err err = {0};

    int status = sandbox_operands(line, 0, 0, &err);
    if (status == 0)
        status = read_order(line, &order, &err);
    if (status == 0)
        status = sandbox_server(cli, line, &server, &err);
    if (status == 0)
        status = sandbox_ask(&server, "POST", "/v1/sandboxes", order, &answer, &err);
    if (status < 0)
        return server_message(cli, &server, &err);
    if (cli->json)
        return sandbox_show_json(answer);
    printf("%s\n", json_text(answer, "id"));
    return EXIT_OK;
}
