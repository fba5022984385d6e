/*
 * Whether a certificate and a key can be used, before there is a server: `hotcell serve --check`. The keeper has no
 * library for it; the gateway does, and is started for this one question, with the two files and nothing else.
 */
#include "base/fd.h"
#include "serve/internal.h"
#include "serve/proto.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ANSWER_LIMIT = 512, FIRST_FREE = 100 };

/* After the fork: only system calls. */
static void ask(const char *program, int certificate, int key, int answer)
{
    static char *const arguments[] = {(char *)"hotcell-gateway", (char *)SERVE_CHECK_TLS, NULL};
    static char *const environment[] = {NULL};
    int fds[] = {certificate, key, answer};
    static const int places[] = {SERVE_CHECK_CERTIFICATE, SERVE_CHECK_KEY, STDOUT_FILENO};
    for (int i = 0; i < 3; i++) { /* first out of each other's way */
        fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, FIRST_FREE);
        if (fds[i] < 0)
            return;
    }
    for (int i = 0; i < 3; i++)
        if (dup2(fds[i], places[i]) < 0)
            return;
    execve(program, arguments, environment);
}

int tls_check(const char *libexec, const struct server_config *config, struct hc_err *err)
{
    char program[PATH_MAX];
    hc_cleanup_fd int certificate = bundle_file(config->tls_certificate), key = bundle_file(config->tls_key);
    int ends[2];
    snprintf(program, sizeof program, "%s/hotcell-gateway", libexec);
    if (certificate < 0 || key < 0 || pipe2(ends, O_CLOEXEC) < 0)
        return hc_fail(err, HC_CLASS_HOST, EIO, "the certificate and the key cannot be read");
    pid_t pid = fork();
    if (pid == 0) {
        ask(program, certificate, key, ends[1]);
        _exit(127);
    }
    hc_cleanup_fd int answer = ends[0];
    hc_close(ends[1]);
    if (pid < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "starting %s", program);
    hc_cleanup_free char *text = NULL;
    size_t length = 0;
    int status = 0, result = hc_read_all(answer, ANSWER_LIMIT, &text, &length);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (result < 0 || length == 0)
        return hc_fail(err, HC_CLASS_HOST, EIO, "%s does not say whether the certificate is fine", program);
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%.*s", (int)length, text);
    return hc_err_field(err, strstr(err->message, "key") ? "server.tls_key" : "server.tls_certificate");
}
