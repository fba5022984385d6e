/*
 * See client_private.h. Between this program and its server stands a guardian, a fork of this program that does nothing
 * but wait: for the server's end, or for the end of a pipe whose other side this program holds and never uses. The
 * kernel closes it whatever this program dies of, so nothing can be left behind but by killing both at once; and then
 * the server has a parent-death signal.
 */
#include "cli/client_private.h"

#include "base/fd.h"
#include "base/loop.h"
#include "cli/http_client.h"
#include "cli/message.h"
#include "run/locate.h"
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { START_TIME = 60 * 1000 * 1000, LOOK_EVERY = 20 * 1000 }; /* µs */

/* ---- the guardian ---- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    remove(path);
    return 0;
}

static void become_server(const char *program, const struct private_server *server, bool allow_weak)
{
    char config[128], state[128];
    const char *words[] = {"hotcell", "serve", "--config", config, "--state", state, allow_weak ? "--allow-weak" : NULL,
                           NULL};

    prctl(PR_SET_PDEATHSIG, SIGTERM);
    snprintf(config, sizeof config, "%s/config.toml", server->folder);
    snprintf(state, sizeof state, "%s/state", server->folder);
    unsetenv("SANDBOX_HOST");
    unsetenv("SANDBOX_PORT");
    execv(program, (char *const *)words);
    _exit(EXIT_OURS);
}

static void guard(const char *program, const struct private_server *server, bool allow_weak, int line)
{
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    dup2(null, STDIN_FILENO); /* the client's pipes are the program's alone: it must see them end with it */
    dup2(null, STDOUT_FILENO);
    pid_t pid = fork();
    if (pid == 0)
        become_server(program, server, allow_weak);
    /* A signal to the whole group ends the program that started us, and that ends the line. */
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    struct pollfd hung = {.fd = line, .events = POLLIN};
    int status = 0;
    bool ended = pid < 0;
    while (!ended && poll(&hung, 1, 200) <= 0)
        ended = waitpid(pid, &status, WNOHANG) == pid;
    if (!ended) {
        kill(pid, SIGTERM);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
    }
    nftw(server->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_OURS);
}

/* ---- starting ---- */

static int write_config(const struct private_server *server, struct hc_err *err)
{
    char path[128], text[256];

    snprintf(path, sizeof path, "%s/config.toml", server->folder);
    snprintf(text, sizeof text,
             "[server]\nlisten = []\nexecute_listen = \"\"\nsocket = \"%s\"\n[log]\nlevel = \"warning\"\n",
             server->socket);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int status = fd < 0 ? -errno : hc_write_all(fd, text, strlen(text));
    if (fd >= 0)
        close(fd);
    return status < 0 ? hc_fail_errno(err, HC_CLASS_HOST, -status, "writing %s", path) : 0;
}

static int make_folder(struct private_server *server, struct hc_err *err)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    bool fits = runtime && runtime[0] == '/' && strlen(runtime) < 36 && access(runtime, W_OK) == 0;

    snprintf(server->folder, sizeof server->folder, "%s/hotcell-mcp-XXXXXX", fits ? runtime : "/tmp");
    if (!mkdtemp(server->folder))
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "making a folder for a private server");
    snprintf(server->socket, sizeof server->socket, "%s/hotcell.sock", server->folder);
    return write_config(server, err);
}

static int wait_ready(struct private_server *server, struct hc_err *err)
{
    struct http_server_address address = {.terms.wake = -1};
    const struct http_ask ask = {.method = "GET", .target = "/readyz", .patience = START_TIME};
    uint64_t deadline = hc_now() + START_TIME;
    int status = url_of_socket(server->socket, &address.url, err);

    while (status == 0 && hc_now() < deadline) {
        struct http_answer answer = {0};
        if (access(server->socket, F_OK) == 0 && http_fetch(&address, &ask, &answer, NULL) == 0) {
            free(answer.body);
            if (answer.status == 200)
                return 0;
        }
        if (waitpid(server->guardian, NULL, WNOHANG) == server->guardian) {
            server->guardian = -1;
            hc_fail(err, HC_CLASS_HOST, ECHILD, "the private server ended before it was ready");
            return hc_err_remedy(err, "its own message is above; hotcell doctor says what this machine lacks");
        }
        usleep(LOOK_EVERY);
    }
    return status < 0 ? status : hc_fail(err, HC_CLASS_HOST, ETIMEDOUT, "the private server is not ready after 60 s");
}

/* The program that serves is the one beside us. */
static int find_program(char *path, size_t size, struct hc_err *err)
{
    char folder[PATH_MAX];
    int status = locate_libexec(folder, sizeof folder, err);

    if (status < 0)
        return status;
    snprintf(path, size, "%.4000s/hotcell-full", folder);
    if (access(path, X_OK) < 0) /* a build without musl has one program for both */
        snprintf(path, size, "%.4000s/hotcell", folder);
    return 0;
}

int private_start(struct private_server *server, bool allow_weak, struct hc_err *err)
{
    char program[PATH_MAX];
    int line[2];

    *server = (struct private_server){.line = -1, .guardian = -1};
    int status = find_program(program, sizeof program, err);
    if (status == 0)
        status = make_folder(server, err);
    if (status == 0 && pipe2(line, O_CLOEXEC) < 0)
        status = hc_fail_errno(err, HC_CLASS_HOST, errno, "making a pipe");
    if (status < 0)
        return status;
    server->guardian = fork();
    if (server->guardian == 0) {
        close(line[1]);
        guard(program, server, allow_weak, line[0]);
    }
    close(line[0]);
    server->line = line[1];
    if (server->guardian < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "starting a private server");
    status = wait_ready(server, err);
    if (status < 0)
        private_stop(server);
    return status;
}

void private_stop(struct private_server *server)
{
    if (server->line >= 0)
        server->line = hc_close(server->line);
    if (server->guardian > 0)
        while (waitpid(server->guardian, NULL, 0) < 0 && errno == EINTR)
            ;
    server->guardian = -1;
}
