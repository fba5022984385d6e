/* The life of attached servers: started in a cell, watched, started again. See mcp_servers.h. */
#include "base/fd.h"
#include "base/log.h"
#include "gateway/mcp_servers_internal.h"
#include "gateway/runs.h"
#include "run/isolation.h"
#include "run/stock.h"
#include "text/json.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { FIRST_PAUSE = 1000000, LONGEST_PAUSE = 60 * 1000000, GOOD_TIME = 60 * 1000000, GREETING_TIME = 60 * 1000000 };

/* ---- calls of a server that is gone ---- */

static void finish_forward(struct mcp_forward *forward, json_t *result)
{
    struct tool_events events = forward->events;
    hc_timer_remove(forward->timer);
    free(forward);
    events.done(events.data, result);
}

static void fail_forwards(struct attached *server)
{
    while (server->forwards != NULL) {
        struct mcp_forward *forward = server->forwards;
        char text[sizeof server->why + 96];
        server->forwards = forward->next;
        snprintf(text, sizeof text, "the MCP server \"%s\" has ended: %s", server->name, server->why);
        finish_forward(forward, tool_text_result(text, true));
    }
}

/* ---- starting ---- */

static int add_mount(struct request *request, const char *text, struct hc_err *err)
{
    hc_cleanup_free char *spec = strdup(text);
    bool read_only = true;
    if (spec == NULL)
        return hc_fail(err, HC_CLASS_HOST, ENOMEM, "out of memory");
    char *colon = strrchr(spec, ':');
    if (colon != NULL && (strcmp(colon, ":ro") == 0 || strcmp(colon, ":rw") == 0)) {
        read_only = strcmp(colon, ":ro") == 0;
        *colon = '\0';
        colon = strrchr(spec, ':');
    }
    if (colon == NULL || colon == spec || colon[1] != '/')
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "mounts: \"%.100s\" is not of the form HOST:PATH[:ro|rw]", text);
    *colon = '\0';
    return request_add_mount(request, spec, colon + 1, read_only, err);
}

static int add_pair(struct request *request, const char *pair, bool limit, struct hc_err *err)
{
    char name[128];
    const char *equals = strchr(pair, '=');
    snprintf(name, sizeof name, "%s%.*s", limit ? "limits." : "", (int)(equals - pair), pair);
    return limit ? request_set(request, name, equals + 1, err) : request_add_env(request, name, equals + 1, err);
}

static int make_request(const struct mcp_server_config *config, struct request *request, struct hc_err *err)
{
    int status = config->shell ? request_set(request, "shell", config->command.item[0], err) : 0;
    for (size_t i = 0; i < config->command.count && !config->shell && status == 0; i++)
        status = request_add_command(request, config->command.item[i], err);
    for (size_t i = 0; i < config->env.count && status == 0; i++)
        status = add_pair(request, config->env.item[i], false, err);
    for (size_t i = 0; i < config->limits.count && status == 0; i++)
        status = add_pair(request, config->limits.item[i], true, err);
    for (size_t i = 0; i < config->mounts.count && status == 0; i++)
        status = add_mount(request, config->mounts.item[i], err);
    return status;
}

static int on_output(void *data, size_t stage, int stream, const char *bytes, size_t length)
{
    (void)stage;
    struct attached *server = data;
    if (stream == 1) {
        attached_heard(server, bytes, length);
        return 0;
    }
    size_t kept = length < SERVER_ERRORS_KEPT ? length : SERVER_ERRORS_KEPT;
    size_t drop =
        server->errors_length + kept > SERVER_ERRORS_KEPT ? server->errors_length + kept - SERVER_ERRORS_KEPT : 0;
    memmove(server->errors, server->errors + drop, server->errors_length - drop);
    server->errors_length -= drop;
    memcpy(server->errors + server->errors_length, bytes + length - kept, kept);
    server->errors_length += kept;
    server->errors[server->errors_length] = '\0';
    return 0;
}

static void release_run(struct attached *server)
{
    hc_watch_remove(HC_TAKE_PTR(server->watch));
    server->input[0] = hc_close(server->input[0]);
    server->input[1] = hc_close(server->input[1]);
    if (server->planned)
        plan_release(&server->plan);
    server->planned = false;
    request_free(HC_TAKE_PTR(server->request));
    result_release(&server->result);
    server->result = (struct result){0};
    hc_buf_reset(&server->out);
    hc_buf_reset(&server->line);
    server->out.status = server->line.status = 0;
    server->out_sent = 0;
}

static void attached_free(struct attached *server)
{
    fail_forwards(server);
    hc_timer_remove(server->timer);
    release_run(server);
    hc_buf_release(&server->out);
    hc_buf_release(&server->line);
    json_decref(server->definition);
    json_decref(server->tools);
    json_decref(server->listing);
    free(server);
}

static void start(struct attached *server);

static void on_time(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct attached *server = data;
    server->timer = NULL;
    if (server->drive == NULL)
        start(server);
    else if (server->state != SERVER_READY)
        attached_fail(server, "it has not said which tools it has within 60 s");
}

static void set_timer(struct attached *server, uint64_t time)
{
    hc_timer_remove(server->timer);
    server->timer = hc_loop_timer(server->servers->gateway->loop, hc_now() + time, on_time, server);
}

/* The next start: after a second, then two, four, … up to a minute; anew after one that lived for a while. */
static void start_later(struct attached *server)
{
    uint64_t pause = FIRST_PAUSE;
    for (unsigned i = 1; i < server->failures && pause < LONGEST_PAUSE; i++)
        pause *= 2;
    set_timer(server, pause < LONGEST_PAUSE ? pause : LONGEST_PAUSE);
}

static void on_ended(void *data)
{
    struct attached *server = data;
    server->drive = NULL;
    stock_refill();
    if (server->doomed) {
        attached_free(server);
        return;
    }
    if (server->why[0] == '\0') {
        char *newline = strchr(server->errors, '\n');
        if (newline != NULL && newline[1] == '\0')
            *newline = '\0';
        snprintf(server->why, sizeof server->why, "%s%s%.180s", run_status_word(server->result.status),
                 server->errors[0] != '\0' ? ", its last words: " : "", server->errors);
    }
    server->failures = hc_now() - server->started_at > GOOD_TIME ? 1 : server->failures + 1;
    hc_log(HC_LOG_WARNING, "the MCP server \"%s\" has ended: %s", server->name, server->why);
    audit_add(server->servers->gateway->audit, "mcp_server_ended", NULL, NULL, server->name);
    if (server->result.stage_count > 0)
        runs_audit_calls(server->servers->gateway->runs, NULL, NULL, NULL, server->name,
                         &server->result.stages[server->result.stage_count - 1].facts.calls);
    server->state = SERVER_DOWN;
    attached_offer(server, NULL);
    release_run(server);
    fail_forwards(server);
    start_later(server);
}

static int begin(struct attached *server, struct hc_err *err)
{
    struct gateway *gateway = server->servers->gateway;
    server->request = request_new();
    int status = server->request != NULL ? make_request(server->config, server->request, err)
                                         : hc_fail(err, HC_CLASS_HOST, ENOMEM, "out of memory");
    if (status == 0)
        status = plan_make(gateway->config, server->request, &server->plan, err);
    if (status < 0)
        return status;
    server->planned = true;
    if (!server->request->limits.set[LIMIT_TIMEOUT])
        server->plan.stages[server->plan.stage_count - 1].limits.value[LIMIT_TIMEOUT] = 0;
    if (pipe2(server->input, O_CLOEXEC | O_NONBLOCK) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "making a pipe");
    struct drive_options options = {.input = server->input[0],
                                    .required = gateway->config->allow_weak ? 0 : ISOLATION_ALL,
                                    .passes = true,
                                    .events = {.data = server, .output = on_output, .ended = on_ended}};
    status = drive_start(gateway->link, &server->plan, &options, &server->result, &server->drive);
    return status < 0 ? hc_fail_errno(err, HC_CLASS_HOST, -status, "starting it") : 0;
}

static void start(struct attached *server)
{
    struct hc_err err = {0};
    const struct gateway *gateway = server->servers->gateway;
    if (server->drive != NULL || gateway->link == NULL || gateway->isolation == 0 || gateway->draining)
        return;
    server->why[0] = server->errors[0] = '\0';
    server->errors_length = 0;
    server->started_at = hc_now();
    if (begin(server, &err) < 0) {
        server->failures++;
        snprintf(server->why, sizeof server->why, "%.250s", err.message);
        hc_log(HC_LOG_ERROR, "the MCP server \"%s\" cannot be started: %s", server->name, err.message);
        release_run(server);
        start_later(server);
        return;
    }
    set_timer(server, GREETING_TIME);
    attached_greet(server);
}

void attached_fail(struct attached *server, const char *format, ...)
{
    va_list arguments;
    if (server->why[0] != '\0' || server->drive == NULL)
        return;
    va_start(arguments, format);
    vsnprintf(server->why, sizeof server->why, format, arguments);
    va_end(arguments);
    drive_cancel(server->drive);
}

/* ---- the list of tools ---- */

void attached_offer(struct attached *server, json_t *tools)
{
    json_decref(server->tools);
    server->tools = tools;
    char prefix[MCP_NAME_SIZE + 2];
    snprintf(prefix, sizeof prefix, "%s__", server->name);
    tools_replace(server->servers->gateway->tools, prefix, tools);
}

static struct attached *find_server(const struct mcp_servers *servers, const char *tool)
{
    const char *end = strstr(tool, "__");
    for (struct attached *server = servers->first; end != NULL && server != NULL; server = server->next)
        if (strlen(server->name) == (size_t)(end - tool) && strncmp(server->name, tool, (size_t)(end - tool)) == 0)
            return server;
    return NULL;
}

bool mcp_servers_has(const struct mcp_servers *servers, const char *tool)
{
    return servers != NULL && find_server(servers, tool) != NULL;
}

/* ---- calls ---- */

static void on_call_time(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct mcp_forward *forward = data;
    forward->timer = NULL;
    if (forward->server == NULL) {
        finish_forward(forward, tool_text_result(forward->why, true));
        return;
    }
    char text[128];
    snprintf(text, sizeof text, "the MCP server \"%s\" has not answered in time", forward->server->name);
    attached_cancel(forward->server, forward);
    for (struct mcp_forward **at = &forward->server->forwards; *at != NULL; at = &(*at)->next) {
        if (*at == forward) {
            *at = forward->next;
            break;
        }
    }
    finish_forward(forward, tool_text_result(text, true));
}

int mcp_forward_start(struct mcp_servers *servers, const char *tool, const json_t *arguments,
                      const struct tool_events *events, struct mcp_forward **out)
{
    struct attached *server = find_server(servers, tool);
    struct mcp_forward *forward = calloc(1, sizeof *forward);
    if (forward == NULL)
        return -ENOMEM;
    forward->events = *events;
    bool up = server != NULL && server->state == SERVER_READY && server->why[0] == '\0';
    if (!up)
        snprintf(forward->why, sizeof forward->why,
                 "the MCP server \"%.32s\" is not there now%s%.150s; try again later",
                 server != NULL ? server->name : tool, server != NULL && server->why[0] != '\0' ? ": " : "",
                 server != NULL ? server->why : "");
    uint64_t time = up ? server->config->call_time : 0;
    forward->timer = hc_loop_timer(servers->gateway->loop, hc_now() + time, on_call_time, forward);
    if (forward->timer == NULL) {
        free(forward);
        return -ENOMEM;
    }
    *out = forward;
    if (up)
        attached_call(server, forward, tool + strlen(server->name) + 2, arguments);
    return 0;
}

void mcp_forward_drop(struct mcp_forward *forward)
{
    if (forward == NULL)
        return;
    if (forward->server != NULL) {
        attached_cancel(forward->server, forward);
        for (struct mcp_forward **at = &forward->server->forwards; *at != NULL; at = &(*at)->next) {
            if (*at == forward) {
                *at = forward->next;
                break;
            }
        }
    }
    hc_timer_remove(forward->timer);
    free(forward);
}

/* ---- all of them ---- */

struct mcp_servers *mcp_servers_new(struct gateway *gateway)
{
    struct mcp_servers *servers = calloc(1, sizeof *servers);
    if (servers != NULL)
        servers->gateway = gateway;
    return servers;
}

void mcp_servers_free(struct mcp_servers *servers)
{
    if (servers == NULL)
        return;
    while (servers->first != NULL) {
        struct attached *server = servers->first;
        servers->first = server->next;
        attached_free(server);
    }
    free(servers);
}

static json_t *words_json(const struct words *words)
{
    json_t *list = json_array();
    for (size_t i = 0; i < words->count; i++)
        json_array_append_new(list, hc_json_text_lossy(words->item[i]));
    return list;
}

/* What makes one server another. */
static json_t *definition_of(const struct mcp_server_config *config)
{
    return json_pack("[b, b, I, o, o, o, o, o]", config->shell, config->restricted, (json_int_t)config->call_time,
                     words_json(&config->command), words_json(&config->env), words_json(&config->mounts),
                     words_json(&config->limits), words_json(&config->tools));
}

static const struct mcp_server_config *wanted(const struct config *config, const struct attached *server)
{
    for (size_t i = 0; i < config->mcp.count; i++) {
        if (strcmp(config->mcp.item[i].name, server->name) != 0)
            continue;
        hc_cleanup_json json_t *definition = definition_of(&config->mcp.item[i]);
        return json_equal(definition, server->definition) ? &config->mcp.item[i] : NULL;
    }
    return NULL;
}

static void end_unwanted(struct mcp_servers *servers)
{
    for (struct attached **at = &servers->first; *at != NULL;) {
        struct attached *server = *at;
        server->config = wanted(servers->gateway->config, server);
        if (server->config != NULL) {
            at = &server->next;
            continue;
        }
        *at = server->next;
        attached_offer(server, NULL);
        server->doomed = true;
        attached_fail(server, "the configuration has changed");
        if (server->drive == NULL)
            attached_free(server);
    }
}

static void add_server(struct mcp_servers *servers, const struct mcp_server_config *config)
{
    struct attached *server = calloc(1, sizeof *server);
    if (server == NULL)
        return;
    server->servers = servers;
    server->config = config;
    server->definition = definition_of(config);
    server->input[0] = server->input[1] = -1;
    server->out = HC_BUF_INIT(SERVER_OUT_LIMIT);
    server->line = HC_BUF_INIT(SERVER_LINE_LIMIT);
    snprintf(server->name, sizeof server->name, "%s", config->name);
    server->next = servers->first;
    servers->first = server;
    start(server);
}

void mcp_servers_configure(struct mcp_servers *servers)
{
    const struct mcp_config *config = &servers->gateway->config->mcp;
    end_unwanted(servers);
    for (size_t i = 0; i < config->count; i++) {
        const struct attached *server = servers->first;
        while (server != NULL && server->config != &config->item[i])
            server = server->next;
        if (server == NULL)
            add_server(servers, &config->item[i]);
    }
}

void mcp_servers_warden_up(struct mcp_servers *servers)
{
    for (struct attached *server = servers->first; server != NULL; server = server->next)
        start(server);
}
