/*
 * hotcell-gateway: the server's unprivileged side, from birth to drain. It is told everything by the keeper, over fd 3
 * (serve/proto.h): its sockets, the configuration, the warden. It seals itself (seal.h) before it reads the first byte
 * from outside, and says READY only when the warden has greeted it.
 */
#include "base/fd.h"
#include "base/log.h"
#include "gateway/gateway.h"
#include "gateway/languages.h"
#include "gateway/listener.h"
#include "gateway/mcp.h"
#include "gateway/mcp_servers.h"
#include "gateway/metrics.h"
#include "gateway/runs.h"
#include "gateway/sandboxes.h"
#include "gateway/seal.h"
#include "gateway/tenants.h"
#include "gateway/volumes.h"
#include "run/isolation.h"
#include "run/stock.h"
#include "serve/proto.h"
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { CONFIG_LIMIT = 4 << 20, PRUNE_EVERY = 10 * 60 * 1000000, PRUNE_LOOK = 5 * 1000000 };

enum { NO_WARDEN_US = 10000000 };

struct service {
    struct gateway gateway;
    struct http_tls *tls;
    struct hc_watch *control_watch;
    struct hc_timer *drain_timer, *prune_timer, *warden_timer;
    uint64_t pruned_at;
    uint32_t restarts;
    bool ready, done, pruning;
    int audit_socket;
};

static void tell_keeper(uint32_t type, const struct hc_err *err)
{
    struct serve_message message = {.protocol = SERVE_PROTOCOL, .type = type};
    if (err)
        message.err = *err;
    hc_send_fds(SERVE_CONTROL_FD, &message, sizeof message, NULL, 0);
}

static void tell_ready(struct gateway *gateway)
{
    struct serve_message message = {
        .protocol = SERVE_PROTOCOL, .type = SERVE_READY, .keys = tenants_have_keys(gateway->tenants)};
    hc_send_fds(SERVE_CONTROL_FD, &message, sizeof message, NULL, 0);
}

static int64_t wall_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* ---- configuration ---- */

static int read_config(int fd, struct config **out, struct hc_err *err)
{
    char *text hc_cleanup_free = NULL;
    size_t length;
    if (hc_memfd_check(fd, &length) < 0 || lseek(fd, 0, SEEK_SET) < 0 ||
        hc_read_all(fd, CONFIG_LIMIT, &text, &length) < 0)
        return hc_fail(err, HC_CLASS_OURS, EPROTO, "the configuration was not handed over whole");
    return config_from_bundle(text, length, out, err);
}

static struct http_limits limits_of(struct gateway *gateway)
{
    const struct server_config *config = &gateway->config->server;
    gateway->results.limit = config->result_total;
    return (struct http_limits){.header_bytes = config->header_bytes,
                                .header_count = config->header_count,
                                .body_bytes = config->body_bytes,
                                .body_total = config->body_total,
                                .connections = config->connections,
                                .header_time = config->header_time,
                                .body_time = config->body_time,
                                .idle_time = config->idle_time,
                                .write_time = config->write_time,
                                .replies = &gateway->results,
                                .write_backlog = config->write_backlog};
}

static void take_config(struct service *service, int fd)
{
    struct hc_err err = {0};
    struct config *config;
    if (read_config(fd, &config, &err) < 0) {
        tell_keeper(SERVE_CONFIG, &err);
        return;
    }
    struct gateway *gateway = &service->gateway;
    if (catalogue_reload(gateway->catalogue, config, &err) < 0) {
        config_free(config);
        tell_keeper(SERVE_CONFIG, &err);
        return;
    }
    sandboxes_configure(gateway->sandboxes, config);
    config_free(gateway->config);
    gateway->config = config;
    mcp_servers_configure(gateway->servers);
    struct http_limits limits = limits_of(gateway);
    http_server_set_limits(gateway->http, &limits);
    hc_log_configure(config->server.log_level, config->server.log_format);
    audit_add(gateway->audit, "config_reloaded", NULL, NULL, NULL);
    tell_keeper(SERVE_CONFIG, NULL);
    catalogue_probe(gateway);
}

/* ---- the warden ---- */

static void say_ready(struct service *service, const struct hc_err *err)
{
    if (service->ready)
        return;
    if (err)
        tell_keeper(SERVE_READY, err);
    else
        tell_ready(&service->gateway);
    service->ready = !err;
    service->done = err != NULL;
}

static void on_held(void *data, const struct warden_message *message, int *fds, size_t count)
{
    struct service *service = data;
    sandboxes_held(service->gateway.sandboxes, message, fds, count);
}

static void on_hello(void *data, const struct warden_message *message)
{
    struct service *service = data;
    struct gateway *gateway = &service->gateway;
    struct hc_err err = message->err;
    uint32_t missing = ~message->isolation & ISOLATION_ALL;
    if (!err.code && missing && !gateway->config->allow_weak) {
        char words[128];
        isolation_words(missing, words, sizeof words);
        hc_err_clear(&err);
        hc_fail(&err, HC_CLASS_HOST, EPERM, "this machine cannot enforce: %s%s%s", words,
                message->err.message[0] ? "; " : "", message->err.message);
        hc_err_remedy(&err, "%s%sor accept it with --allow-weak ([isolation] allow_weak = true)", message->err.remedy,
                      message->err.remedy[0] ? "; " : "see hotcell doctor; ");
    }
    if (err.code) {
        hc_log(HC_LOG_ERROR, "%s", err.message);
        say_ready(service, &err);
        return;
    }
    gateway->isolation = gateway->isolation_last = message->isolation;
    gateway->warden_silent = false;
    if (missing)
        audit_add(gateway->audit, "isolation_weak", NULL, NULL, NULL);
    if (!message->witness)
        hc_log(HC_LOG_WARNING, "system calls that are refused to programs cannot be written to the audit log here");
    sandboxes_attach(gateway->sandboxes, gateway->link, gateway->config->allow_weak ? 0 : ISOLATION_ALL);
    if (link_ask_held(gateway->link, on_held) < 0)
        hc_log(HC_LOG_ERROR, "the warden cannot be asked for its sandboxes");
    if (!service->ready)
        runs_recover(gateway->runs); /* their records say how cells are isolated here, which is known only now */
    runs_warden_up(gateway->runs);
    mcp_servers_warden_up(gateway->servers);
    catalogue_probe(gateway);
    say_ready(service, NULL);
}

static void on_pool(void *data, const struct pool_facts *facts)
{
    struct service *service = data;
    service->gateway.pool = *facts;
}

/* It lives and does not speak to us any more, or the keeper would have sent another. To the next of us it will. */
static void on_no_warden(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct service *service = data;
    service->warden_timer = NULL;
    hc_log(HC_LOG_ERROR, "the line to the warden broke, and no other came");
    service->done = true;
}

static void on_warden_gone(void *data)
{
    struct service *service = data;
    service->gateway.isolation = 0;
    service->gateway.pool = (struct pool_facts){0};
    if (service->gateway.draining)
        return;
    audit_add(service->gateway.audit, "warden_died", NULL, NULL, NULL);
    sandboxes_attach(service->gateway.sandboxes, NULL, 0);
    runs_warden_down(service->gateway.runs);
    if (!service->warden_timer)
        service->warden_timer = hc_loop_timer(service->gateway.loop, hc_now() + NO_WARDEN_US, on_no_warden, service);
}

/* Takes the socket. */
static int take_warden(struct service *service, int socket)
{
    struct gateway *gateway = &service->gateway;
    hc_timer_remove(service->warden_timer);
    service->warden_timer = NULL;
    link_free(gateway->link);
    gateway->link = link_new(gateway->loop, socket, on_hello, on_warden_gone, service);
    if (!gateway->link)
        return -errno;
    link_on_pool(gateway->link, on_pool);
    return 0;
}

/* ---- history does not grow for ever ---- */

static void prune(struct hc_loop *loop, void *data);

static void on_pruned(void *data, int result)
{
    struct service *service = data;
    service->pruning = false;
    if (result < 0)
        hc_log(HC_LOG_WARNING, "removing old runs: %s", strerror(-result));
}

/* Age is looked at now and then. Size at once: a busy server writes more in ten minutes than some disks hold. */
static bool prune_is_due(const struct service *service)
{
    const struct gateway *gateway = &service->gateway;
    uint64_t most = gateway->config->server.keep_bytes;
    struct store_totals totals;
    return hc_now() - service->pruned_at >= PRUNE_EVERY ||
           (most > 0 && store_totals(gateway->store, NULL, 0, &totals) == 0 && totals.bytes > most);
}

static void prune(struct hc_loop *loop, void *data)
{
    struct service *service = data;
    const struct server_config *config = &service->gateway.config->server;
    int64_t before = config->keep_time ? wall_clock() - (int64_t)config->keep_time : 0;
    if (!service->pruning && prune_is_due(service) &&
        store_prune(service->gateway.store, before, config->keep_bytes, on_pruned, service) == 0) {
        service->pruning = true;
        service->pruned_at = hc_now();
    }
    service->prune_timer = hc_loop_timer(loop, hc_now() + PRUNE_LOOK, prune, service);
}

/* ---- the end ---- */

static void check_drained(struct hc_loop *loop, void *data)
{
    struct service *service = data;
    service->drain_timer = NULL;
    if (runs_idle(service->gateway.runs)) {
        service->done = true;
        return;
    }
    service->drain_timer = hc_loop_timer(loop, hc_now() + 20000, check_drained, service);
}

static void begin_drain(struct service *service)
{
    struct gateway *gateway = &service->gateway;
    if (gateway->draining)
        return;
    gateway->draining = true;
    hc_log(HC_LOG_INFO, "draining");
    http_server_stop_accepting(gateway->http);
    runs_drain(gateway->runs, hc_now() + gateway->config->server.drain_time);
    check_drained(gateway->loop, service);
}

/* ---- what the keeper says ---- */

static void on_control(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)events;
    struct service *service = data;
    struct serve_message message;
    int fds[HC_MAX_FDS];
    size_t count = 0;
    ssize_t size = hc_recv_fds(fd, &message, sizeof message, fds, HC_MAX_FDS, &count);
    if (size == -EAGAIN || size == -EINTR)
        return;
    if (size != (ssize_t)sizeof message || message.protocol != SERVE_PROTOCOL) {
        service->done = true; /* without a keeper there is nobody to start a warden, or us */
        return;
    }
    if (message.type == SERVE_WARDEN && count == 1) {
        if (take_warden(service, HC_TAKE_FD(fds[0])) < 0)
            service->done = true;
    } else if (message.type == SERVE_CONFIG && count == 1) {
        take_config(service, fds[0]);
    } else if (message.type == SERVE_DRAIN) {
        begin_drain(service);
    } else if (message.type == SERVE_PING) {
        tell_keeper(SERVE_PING, NULL);
    } else if (message.type == SERVE_VOLUME) {
        volume_answered(&service->gateway, &message, count == 1 ? fds[0] : -1);
    } else if (message.type == SERVE_SILENT) {
        service->gateway.warden_silent = message.silent;
        if (!message.silent)
            runs_warden_up(service->gateway.runs);
    }
    for (size_t i = 0; i < count; i++)
        hc_close(fds[i]);
}

/* ---- the beginning ---- */

struct gifts { /* what comes with SERVE_SETUP, in its order */
    struct serve_message message;
    int warden, config, audit, audit_socket, certificate, key;
    int listeners[SERVE_MAX_LISTENERS];
};

static int receive_gifts(struct gifts *gifts, struct hc_err *err)
{
    int fds[HC_MAX_FDS];
    size_t count = 0, next = 0;
    gifts->certificate = gifts->key = -1;
    ssize_t size = hc_recv_fds(SERVE_CONTROL_FD, &gifts->message, sizeof gifts->message, fds, HC_MAX_FDS, &count);
    const struct serve_message *message = &gifts->message;
    if (size != (ssize_t)sizeof *message || message->protocol != SERVE_PROTOCOL || message->type != SERVE_SETUP ||
        message->listener_count > SERVE_MAX_LISTENERS || count != 4 + (message->tls ? 2 : 0) + message->listener_count)
        return hc_fail(err, HC_CLASS_OURS, EPROTO, "the gateway's setup message is not well-formed");
    gifts->warden = fds[next++];
    gifts->config = fds[next++];
    gifts->audit = fds[next++];
    gifts->audit_socket = fds[next++];
    if (message->tls) {
        gifts->certificate = fds[next++];
        gifts->key = fds[next++];
    }
    for (uint32_t i = 0; i < message->listener_count; i++)
        gifts->listeners[i] = fds[next++];
    return 0;
}

static int load_tls(struct service *service, const struct gifts *gifts, struct hc_err *err)
{
    if (!gifts->message.tls)
        return 0;
    char *certificate hc_cleanup_free = NULL, *key hc_cleanup_free = NULL;
    size_t certificate_length = 0, key_length = 0;
    lseek(gifts->certificate, 0, SEEK_SET);
    lseek(gifts->key, 0, SEEK_SET);
    if (hc_read_all(gifts->certificate, CONFIG_LIMIT, &certificate, &certificate_length) < 0 ||
        hc_read_all(gifts->key, CONFIG_LIMIT, &key, &key_length) < 0)
        return hc_fail(err, HC_CLASS_OURS, EIO, "the certificate was not handed over whole");
    int result = http_tls_new(certificate, certificate_length, key, key_length, &service->tls, err);
    explicit_bzero(key, key_length);
    return result;
}

static int listen_all(struct service *service, const struct gifts *gifts, struct hc_err *err)
{
    struct gateway *gateway = &service->gateway;
    /* A server that lost its last key while it served goes on with its doors closed, also when a gateway died: that
     * must not end it for whoever uses the socket. */
    bool keys = service->restarts ? tenants_have_keys(gateway->tenants) : tenants_have_key_in_force(gateway->tenants);
    for (uint32_t i = 0; i < gifts->message.listener_count; i++) {
        int fd = gifts->listeners[i];
        if (!keys && !listener_is_loopback(fd)) {
            char address[64];
            const char *source = gifts->message.listener_source[i];
            hc_fail(err, HC_CLASS_REQUEST, EACCES,
                    "%s (%s) is not loopback: such an address is served only with keys, and none is in force",
                    listener_address(fd, address, sizeof address), source);
            hc_err_field(err, "%s", source);
            return hc_err_remedy(err, "make one first: hotcell key create NAME (with the same --state)");
        }
        bool local = gifts->message.listener_unix & 1u << i;
        int result = http_server_listen(gateway->http, fd, local ? HTTP_LISTEN_UNIX : HTTP_LISTEN_TCP,
                                        gifts->message.listener_tls & 1u << i ? service->tls : NULL, err);
        if (result < 0)
            return result;
    }
    return 0;
}

/* The keeper's to write: what was acknowledged is on disk (serve/audit.c). It answers at once, and without it there is
 * nothing to wait for. */
static int append_to_audit(void *data, int64_t end, const char *bytes, size_t length)
{
    struct service *service = data;
    struct serve_append question = {.protocol = SERVE_PROTOCOL, .length = (uint32_t)length, .end = end};
    int32_t answer;
    size_t count;
    if (length > SERVE_APPEND_MAX)
        return -E2BIG;
    hc_cleanup_free char *message = malloc(sizeof question + length);
    if (message == NULL)
        return -ENOMEM;
    memcpy(message, &question, sizeof question);
    memcpy(message + sizeof question, bytes, length);
    int result = hc_send_fds(service->audit_socket, message, sizeof question + length, NULL, 0);
    if (result < 0)
        return result;
    ssize_t size = hc_recv_fds(service->audit_socket, &answer, sizeof answer, NULL, 0, &count);
    return size == (ssize_t)sizeof answer ? answer : size < 0 ? (int)size : -EPIPE;
}

/* Everything that reads files comes first, then the store, whose thread is born without them. */
static int open_parts(struct service *service, const struct gifts *gifts, struct hc_err *err)
{
    struct gateway *gateway = &service->gateway;
    service->audit_socket = gifts->audit_socket;
    int result = read_config(gifts->config, &gateway->config, err);
    hc_close(gifts->config);
    if (result < 0)
        return result;
    hc_log_configure(gateway->config->server.log_level, gateway->config->server.log_format);
    gateway->workspace_host = gifts->message.workspace_host;
    gateway->volume_count = gifts->message.volume_count;
    gateway->volume_bytes = gifts->message.volume_bytes;
    gateway->loop = hc_loop_new();
    if (!gateway->loop || metrics_new(&gateway->metrics) < 0)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    result = load_tls(service, gifts, err);
    hc_close(gifts->certificate);
    hc_close(gifts->key);
    if (result == 0)
        result = catalogue_new(gateway->config, &gateway->catalogue, err);
    if (result == 0)
        result = seal_files(err);
    if (result == 0)
        result = store_open(SERVE_STATE, gateway->loop, false, &gateway->store, err);
    if (result == 0)
        result = store_start(gateway->store, err);
    if (result == 0)
        result = audit_open_through(gifts->audit, append_to_audit, service, &gateway->audit, err);
    if (result == 0)
        result = tenants_new(gateway, &gateway->tenants, err);
    if (result == 0)
        result = runs_new(gateway, &gateway->runs, err);
    if (result == 0)
        result = gateway_sandboxes_new(gateway, err);
    if (result == 0)
        result = tools_new(&gateway->tools, err);
    if (result == 0)
        result = mcp_new(&gateway->mcp, err);
    if (result == 0 && (gateway->servers = mcp_servers_new(gateway)) == NULL)
        result = hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    struct http_limits limits = limits_of(gateway);
    struct http_handlers handlers = {
        .data = gateway, .admit = gateway_admit, .handle = gateway_handle, .refused = gateway_refused};
    if (result == 0)
        result = http_server_new(gateway->loop, &limits, &handlers, &gateway->http, err);
    return result;
}

static int start(struct service *service, struct hc_err *err)
{
    struct gateway *gateway = &service->gateway;
    struct gifts gifts;
    umask(077);
    int result = receive_gifts(&gifts, err);
    if (result == 0)
        result = open_parts(service, &gifts, err);
    if (result == 0)
        result = seal_calls(err);
    if (result != 0)
        return result;
    gateway->started_at = hc_now();
    gateway->started_time = wall_clock();
    service->restarts = gifts.message.restarts;
    audit_add(gateway->audit, service->restarts ? "gateway_died" : "server_started", NULL, NULL, NULL);
    mcp_servers_configure(gateway->servers);
    stock_keep();
    result = listen_all(service, &gifts, err);
    if (result < 0)
        return result;
    prune(gateway->loop, service);
    hc_set_nonblock(SERVE_CONTROL_FD, true);
    service->control_watch = hc_loop_watch(gateway->loop, SERVE_CONTROL_FD, EPOLLIN, on_control, service);
    if (!service->control_watch || take_warden(service, gifts.warden) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "watching the keeper and the warden");
    return 0;
}

static void finish(struct service *service)
{
    struct gateway *gateway = &service->gateway;
    hc_watch_remove(service->control_watch);
    hc_timer_remove(service->drain_timer);
    hc_timer_remove(service->prune_timer);
    stock_drop();
    if (gateway->http)
        http_server_free(gateway->http);
    sandboxes_free(HC_TAKE_PTR(gateway->sandboxes));
    volume_end(gateway);
    if (gateway->link)
        link_free(HC_TAKE_PTR(gateway->link)); /* what ends now must not find it */
    if (gateway->audit && service->ready)
        audit_add(gateway->audit, "server_stopped", NULL, NULL, NULL);
    if (gateway->store)
        store_close(gateway->store);
    if (gateway->runs)
        runs_free(gateway->runs);
    mcp_servers_free(gateway->servers);
    mcp_free(gateway->mcp);
    tools_free(gateway->tools);
    if (gateway->tenants)
        tenants_free(gateway->tenants);
    if (gateway->audit)
        audit_close(gateway->audit);
    hc_close(service->audit_socket);
    if (gateway->metrics)
        metrics_free(gateway->metrics);
    catalogue_free(gateway->catalogue);
    http_tls_free(service->tls);
    config_free(gateway->config);
    hc_loop_free(gateway->loop);
}

/* Bodies and results come and go, large and small, for a year. The large ones are mappings of their own, which go back
 * whole; glibc would learn from them to keep ever larger ones in the heap, and one small block above them keeps all. */
static void settle_memory(void)
{
    mallopt(M_MMAP_THRESHOLD, 64 * 1024);
    mallopt(M_TRIM_THRESHOLD, 256 * 1024);
    mallopt(M_ARENA_MAX, 1);
}

/* For `hotcell serve --check`, which has no library for it. */
static int check_tls(void)
{
    struct service service = {.audit_socket = -1};
    struct gifts gifts = {.message = {.tls = 1}, .certificate = SERVE_CHECK_CERTIFICATE, .key = SERVE_CHECK_KEY};
    struct hc_err err = {0};
    int result = load_tls(&service, &gifts, &err);
    if (result < 0)
        fputs(err.message, stdout);
    http_tls_free(service.tls);
    return result < 0 ? 1 : 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], SERVE_CHECK_TLS) == 0)
        return check_tls();
    settle_memory();
    struct service service = {.audit_socket = -1};
    struct hc_err err = {0};
    int result = start(&service, &err);
    if (result < 0)
        tell_keeper(SERVE_READY, &err);
    while (result == 0 && !service.done) {
        result = hc_loop_turn(service.gateway.loop, -1);
        if (result == -EINTR)
            result = 0;
    }
    finish(&service);
    return result < 0 ? 1 : 0;
}
