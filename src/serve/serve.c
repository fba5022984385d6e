/* See serve.h. */
#include "serve/serve.h"

#include "base/fd.h"
#include "base/log.h"
#include "kernel/cgroup.h"
#include "kernel/sys.h"
#include "run/language.h"
#include "run/locate.h"
#include "run/warm.h"
#include "serve/internal.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DRAIN_GRACE = 5 * 1000000, FDS_BESIDE_CONNECTIONS = 4096 };

/* ---- configuration ---- */

static int load_config(const struct serve_options *options, struct config **out, struct hc_err *err)
{
    struct config *config;
    int result = config_load(options->config, &config, err);
    if (result < 0)
        return result;
    const char *debug = getenv("DEBUG"); /* the older server's switch */
    if (debug && debug[0] && strcmp(debug, "0") != 0 && strcasecmp(debug, "false") != 0)
        result = config_set(config, "log.level", "debug", "environment variable DEBUG", err);
    for (size_t i = 0; i < options->setting_count && result == 0; i++)
        result = config_set(config, options->settings[i].key, options->settings[i].value, "command line", err);
    /* What a run prints is held in the gateway's memory, several times over: a client must not choose how much. */
    if (result == 0 && !config->ceilings.set[LIMIT_OUTPUT])
        result = config_set(config, "ceilings.output", "8m", "default of a server", err);
    if (result == 0 && (config->server.tls_certificate[0] == '\0') != (config->server.tls_key[0] == '\0')) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "TLS needs both a certificate and a key, and only %s is named",
                config->server.tls_key[0] ? "server.tls_key" : "server.tls_certificate");
        result = hc_err_field(err, config->server.tls_key[0] ? "server.tls_certificate" : "server.tls_key");
    }
    if (result == 0)
        result = listeners_check(config, options, err);
    if (result == 0) {
        *out = config;
        return 0;
    }
    config_blame(config, err);
    config_free(config);
    return result;
}

/* ---- what it says ---- */

/* As one word of a shell. */
static void print_word(const char *word)
{
    putchar('\'');
    for (; *word; word++)
        if (*word == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*word);
    putchar('\'');
}

/* Where a client on this machine finds it. An address of all interfaces is nobody's name, and a certificate is made for
 * a name. */
static void print_url(const struct listener *listener)
{
    static const char *const unnamed[] = {"://0.0.0.0:", "://[::]:", "://127.0.0.1:"};
    const char *scheme_end = strstr(listener->address, "://"), *port = strrchr(listener->address, ':');
    bool local = false;
    for (size_t i = 0; i < (listener->is_tls ? 3 : 2); i++)
        local = local || strncmp(scheme_end, unnamed[i], strlen(unnamed[i])) == 0;
    if (local)
        printf("%.*s://localhost%s", (int)(scheme_end - listener->address), listener->address, port);
    else
        printf("%s", listener->address);
}

/* A line to paste. */
static void say_how(const struct keeper_server *server, const struct listener *listener, bool keys)
{
    keys = keys && !listener->is_unix; /* the socket is the operator's */
    if (keys)
        printf("HOTCELL_KEY in the next line is a key that hotcell key create printed\n");
    printf("try: curl -s ");
    if (listener->is_unix) {
        printf("--unix-socket ");
        print_word(listener->address + strlen("unix:"));
        printf(" http://localhost");
    } else {
        if (listener->is_tls) {
            printf("--cacert ");
            print_word(server->config->server.tls_certificate);
            putchar(' ');
        }
        print_url(listener);
    }
    printf("/v1/runs%s -H 'Content-Type: application/json' -d '{\"code\":\"print(42)\"}'\n",
           keys ? " -H \"Authorization: Bearer $HOTCELL_KEY\"" : "");
}

static void say_where(const struct keeper_server *server, bool keys)
{
    const struct listener *first = NULL, *socket = NULL;
    for (size_t i = 0; i < server->listeners.count; i++) {
        const struct listener *listener = &server->listeners.item[i];
        printf("listening on %s\n", listener->address);
        if (!first && !listener->is_unix)
            first = listener;
        if (!socket && listener->is_unix)
            socket = listener;
    }
    if (first || socket)
        say_how(server, first ? first : socket, keys);
    fflush(stdout);
}

static void on_control(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)events;
    struct keeper_server *server = data;
    struct serve_message message;
    size_t count = 0;
    ssize_t size = hc_recv_fds(fd, &message, sizeof message, NULL, 0, &count);
    if (size == -EAGAIN || size == -EINTR)
        return;
    if (size != (ssize_t)sizeof message || message.protocol != SERVE_PROTOCOL) {
        hc_watch_remove(server->control_watch); /* its pidfd tells the rest */
        server->control_watch = NULL;
        return;
    }
    message.err.field[sizeof message.err.field - 1] = message.err.message[sizeof message.err.message - 1] =
        message.err.remedy[sizeof message.err.remedy - 1] = '\0';
    bundle_name_paths(server, message.err.message, sizeof message.err.message);
    pulse_heard(&server->gateway_pulse);
    if (message.type == SERVE_READY && message.err.code) {
        server->failure = message.err;
    } else if (message.type == SERVE_READY && !server->ready) {
        server->ready = true;
        say_where(server, message.keys);
        notify("READY=1\nSTATUS=serving");
    } else if (message.type == SERVE_READY) {
        hc_log(HC_LOG_INFO, "the gateway serves again");
    } else if (message.type == SERVE_USED) {
        message.language[sizeof message.language - 1] = '\0';
        caches_want(server, message.language);
    } else if (message.type == SERVE_VOLUME) {
        volumes_ask(server, &message.volume);
    } else if (message.type == SERVE_CONFIG) {
        if (message.err.code)
            hc_log(HC_LOG_ERROR, "the configuration was not taken: %s", message.err.message);
        else
            hc_log(HC_LOG_INFO, "the configuration was read again");
        notify("READY=1\nSTATUS=serving");
    }
}

/* ---- signals ---- */

/* systemd 253 and later (Type=notify-reload) want to know when it began; older ones pass over that line. */
static void notify_reloading(void)
{
    char text[64];
    snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%llu", (unsigned long long)hc_now());
    notify(text);
}

static void reload(struct keeper_server *server)
{
    struct hc_err err = {0};
    struct config *config;
    char names[256];
    notify_reloading();
    int result = load_config(server->options, &config, &err);
    if (result == 0) {
        result = host_list_check(&server->hosts, config, &err);
        if (result == 0)
            result = warm_check_names(config, &err);
        if (result < 0) {
            config_blame(config, &err);
            config_free(config);
        }
    }
    if (result < 0) {
        hc_log(HC_LOG_ERROR, "the configuration stays as it was: %s%s%s", err.message, err.remedy[0] ? "; " : "",
               err.remedy);
        notify("READY=1\nSTATUS=serving with the old configuration");
        return;
    }
    if (settled_changed(server->config, config, names, sizeof names) > 0)
        hc_log(HC_LOG_WARNING, "changed, and in force only after a restart: %s", names);
    hc_cleanup_fd int bundle = bundle_config(config, &server->hosts, server->languages.count);
    if (bundle < 0) {
        hc_log(HC_LOG_ERROR, "the configuration stays as it was: %s", strerror(-bundle));
        notify("READY=1\nSTATUS=serving with the old configuration");
        config_free(config);
        return;
    }
    server->plan.image.etc = config->image_etc.item; /* a warden that is started later must not look into the old one */
    server->plan.image.etc_count = config->image_etc.count;
    config_free(server->config);
    server->config = config;
    hc_log_configure(config->server.log_level, config->server.log_format);
    pulse_start(server);
    warm_tell_definitions(server);
    if (server->control < 0 || gateway_tell(server, SERVE_CONFIG, bundle) < 0)
        notify("READY=1\nSTATUS=serving"); /* there is no gateway at this moment: the next one begins with it */
}

static void on_drain_over(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct keeper_server *server = data;
    server->drain_timer = NULL;
    if (server->gateway_pidfd >= 0)
        hc_pidfd_signal(server->gateway_pidfd, SIGKILL);
    else
        server->ended = true;
}

static void begin_drain(struct keeper_server *server)
{
    if (server->draining) { /* asked twice: now */
        on_drain_over(server->loop, server);
        return;
    }
    server->draining = true;
    notify("STOPPING=1");
    listeners_close(&server->listeners); /* whoever comes now is refused at once, and not left waiting for the end */
    hc_timer_remove(server->restart_timer);
    server->restart_timer = NULL;
    server->drain_timer =
        hc_loop_timer(server->loop, hc_now() + server->config->server.drain_time + DRAIN_GRACE, on_drain_over, server);
    if (server->control < 0 || gateway_tell(server, SERVE_DRAIN, -1) < 0 || !server->drain_timer)
        server->ended = true;
}

static void on_signal(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)events;
    struct keeper_server *server = data;
    struct signalfd_siginfo info;
    if (read(fd, &info, sizeof info) != (ssize_t)sizeof info)
        return;
    if (info.ssi_signo == SIGHUP)
        reload(server);
    else
        begin_drain(server);
}

/* ---- life ---- */

static int open_signals(struct keeper_server *server, struct hc_err *err)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0 ||
        (server->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)) < 0)
        return hc_fail_errno(err, HC_CLASS_OURS, errno, "watching signals");
    server->signal_watch = hc_loop_watch(server->loop, server->signals, EPOLLIN, on_signal, server);
    return server->signal_watch ? 0 : hc_fail_errno(err, HC_CLASS_OURS, errno, "watching signals");
}

/* A connection is an fd of the gateway's, which inherits this. Less than asked for is not an error: /v1/stats says what
 * there is. */
static void raise_file_limit(uint64_t connections)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    rlim_t wanted = connections + FDS_BESIDE_CONNECTIONS;
    if (limit.rlim_cur >= wanted)
        return;
    struct rlimit more = {wanted, limit.rlim_max > wanted ? limit.rlim_max : wanted};
    if (setrlimit(RLIMIT_NOFILE, &more) == 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* That they are there; whether they fit together the gateway says when it starts, which has the library for it. */
static int check_tls(const struct server_config *config, struct hc_err *err)
{
    const char *const paths[] = {config->tls_certificate, config->tls_key};
    for (int i = 0; i < 2; i++) {
        hc_cleanup_fd int copy = paths[i][0] ? bundle_file(paths[i]) : -1;
        if (paths[i][0] && copy < 0) {
            hc_fail_errno(err, HC_CLASS_REQUEST, -copy, "reading %s", paths[i]);
            return hc_err_field(err, i == 0 ? "server.tls_certificate" : "server.tls_key");
        }
    }
    return 0;
}

/* What the start of a server would find out by itself. */
static int check_more(const struct keeper_server *server, struct hc_err *err)
{
    bool tls = server->config->server.tls_certificate[0] != '\0';
    int result = tls ? tls_check(server->libexec, &server->config->server, err) : 0;
    if (result == 0 && listeners_need_keys(server->config, server->options))
        hc_log(HC_LOG_WARNING, "it listens on an address that is not loopback: without a key (hotcell key create NAME) "
                               "it will not start");
    return result;
}

static int prepare(struct keeper_server *server, struct hc_err *err)
{
    int result = locate_libexec(server->libexec, sizeof server->libexec, err);
    if (result == 0)
        result = check_tls(&server->config->server, err);
    if (result == 0)
        result = language_folders(server->config, &server->languages, err);
    if (result == 0 && server->languages.count > SERVE_MAX_LANGUAGES)
        result = hc_fail(err, HC_CLASS_REQUEST, E2BIG, "languages.paths: more than %d folders of languages",
                         SERVE_MAX_LANGUAGES);
    if (result == 0)
        result = languages_load(server->config, &server->known, err);
    if (result == 0)
        result = warm_check_names(server->config, err);
    if (result == 0)
        result = state_open(&server->state, server->config, server->options, err);
    if (result == 0)
        result = host_list_make(&server->hosts, server->config, &server->state, err);
    if (result == 0)
        result = uids_plan(server->config->uid_base, server->config->uid_count, &server->uids, err);
    server->plan = (struct keeper_plan){
        .image = {.etc = server->config->image_etc.item,
                  .etc_count = server->config->image_etc.count,
                  .host = server->hosts.paths.item,
                  .host_writable = server->hosts.writable,
                  .host_count = server->hosts.paths.count},
        .libexec = server->libexec,
    };
    return result;
}

static int run(struct keeper_server *server, struct hc_err *err)
{
    raise_file_limit(server->config->server.connections);
    cgroup_settle();
    umask(022);
    int result = open_signals(server, err);
    if (result == 0)
        result = listeners_open(&server->listeners, server->config, server->options, server->state.socket, err);
    if (result == 0) {
        caches_open(server);
        volumes_open(server);
        result = warden_start(server, err);
    }
    if (result == 0)
        result = gateway_start(server, err);
    pulse_start(server);
    while (result == 0 && !server->ended) {
        result = hc_loop_turn(server->loop, -1);
        if (result == -EINTR)
            result = 0;
    }
    if (result == 0 && server->failure.code) {
        *err = server->failure;
        result = -err->code;
    }
    return result;
}

static void release(struct keeper_server *server)
{
    hc_timer_remove(server->restart_timer);
    hc_timer_remove(server->drain_timer);
    hc_timer_remove(server->pulse_timer);
    if (server->gateway_pidfd >= 0)
        hc_pidfd_signal(server->gateway_pidfd, SIGKILL);
    gateway_forget(server, NULL);
    listeners_close(&server->listeners);
    warden_end(server);
    hc_watch_remove(server->signal_watch);
    hc_close(server->signals);
    hc_close(server->uids.lock);
    host_list_release(&server->hosts);
    words_release(&server->languages);
    languages_free(server->known);
    warm_files_close(&server->warm_files);
    caches_close(server);
    volumes_close(server);
    state_close(&server->state);
    hc_loop_free(server->loop);
    config_free(server->config);
}

int serve(const struct serve_options *options, struct hc_err *err)
{
    struct keeper_server server = {.options = options,
                                   .warden_pidfd = -1,
                                   .gateway_pidfd = -1,
                                   .control = -1,
                                   .audit_socket = -1,
                                   .gateway_socket = -1,
                                   .signals = -1,
                                   .on_control = on_control};
    server.caches.folder = server.caches.pidfd = server.volumes.folder = -1;
    server.uids.lock = server.state.lock = server.state.audit = -1;
    custody_init(&server.custody, &server.plan);
    int result = load_config(options, &server.config, err);
    if (!server.config)
        return result;
    hc_log_configure(server.config->server.log_level, server.config->server.log_format);
    server.loop = hc_loop_new();
    result = server.loop ? prepare(&server, err) : hc_fail_errno(err, HC_CLASS_OURS, errno, "making a loop");
    if (result == 0)
        result = options->check ? check_more(&server, err) : run(&server, err);
    if (result < 0)
        config_blame(server.config, err);
    release(&server);
    return result;
}
