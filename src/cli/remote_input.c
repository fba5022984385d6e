/*
 * The stdin of a run on a server. What is short and complete travels with the request. The rest is sent piece by piece
 * while the run goes on, each when the one before it has been taken: a program that does not read keeps nobody from
 * seeing what it writes, and what it leaves unread stays where it is.
 */
#include "cli/remote.h"

#include "base/fd.h"
#include "cli/message.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { WHOLE_MAX = 64 * 1024, PIECE = 32 * 1024 };

/* ---- before the run ---- */

static bool is_null_device(const struct stat *info)
{
    return S_ISCHR(info->st_mode) && info->st_rdev == makedev(1, 3);
}

/* Whether all that will ever come of it can be had now, and is short. */
static bool is_complete(int fd)
{
    struct stat info;

    if (fstat(fd, &info) < 0)
        return false;
    if (S_ISREG(info.st_mode)) {
        off_t at = lseek(fd, 0, SEEK_CUR);
        return at >= 0 && info.st_size - at <= WHOLE_MAX;
    }
    if (is_null_device(&info))
        return true;
    struct pollfd end = {.fd = fd, .events = POLLIN};
    int waiting = 0;
    return S_ISFIFO(info.st_mode) && poll(&end, 1, 0) >= 0 && end.revents & POLLHUP &&
           ioctl(fd, FIONREAD, &waiting) == 0 && waiting <= WHOLE_MAX;
}

int remote_input_prepare(struct remote_input *input, struct run_line *line, hc_request *request, struct hc_err *err)
{
    hc_cleanup_free char *data = NULL;
    hc_error *error = NULL;
    size_t length = 0;

    *input = (struct remote_input){.fd = -1, .aside.fd = -1};
    if (line->input_fd < 0)
        return 0;
    if (!is_complete(line->input_fd)) {
        input->fd = line->input_fd;
        return hc_request_set(request, "stdin_open", "true", &error) < 0 ? message_adopt(error, err) : 0;
    }
    int status = hc_read_all(line->input_fd, WHOLE_MAX, &data, &length);
    if (status < 0)
        return hc_fail_errno(err, HC_CLASS_REQUEST, -status, "cannot read stdin for the program");
    if (length > 0 && hc_request_set_stdin(request, data, length, &error) < 0)
        return message_adopt(error, err);
    hc_request_stdin_fd(request, -1);
    line->input_fd = -1;
    return 0;
}

/* ---- during it ---- */

static void stop(struct remote_input *input)
{
    http_close(input->sending);
    input->sending = NULL;
    input->aside.fd = -1;
}

/* Whoever refuses a piece has no use for the next one: the run is over, or its program reads no more. */
static void take_answer(struct remote_input *input)
{
    int status = http_receive(input->sending, NULL);
    bool taken = status == 0 && http_response_of(input->sending)->status == 204;

    stop(input);
    if (taken && !input->ended)
        input->aside.fd = input->fd;
}

static void send_piece(struct remote_input *input)
{
    char piece[PIECE];
    ssize_t count = read(input->fd, piece, sizeof piece);

    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    input->ended = count <= 0;
    char target[sizeof input->target + 16];
    snprintf(target, sizeof target, "%s%s", input->target, input->ended ? "?end=true" : "");
    const struct http_ask ask = {.method = "POST",
                                 .target = target,
                                 .type = "application/octet-stream",
                                 .body = piece,
                                 .length = count > 0 ? (size_t)count : 0};
    if (http_send(&input->address, &ask, &input->sending, NULL) < 0)
        stop(input);
    else
        input->aside.fd = http_fd(input->sending);
}

static void on_ready(void *data, int fd)
{
    struct remote_input *input = data;

    (void)fd;
    if (input->sending)
        take_answer(input);
    else
        send_piece(input);
}

void remote_input_begin(struct remote_input *input, const struct server *server, const char *id)
{
    if (input->fd < 0 || input->aside.ready)
        return;
    input->address = server->address;
    input->address.terms.aside = NULL;
    snprintf(input->target, sizeof input->target, "/v1/runs/%s/stdin", id);
    input->aside = (struct connection_aside){.fd = input->fd, .ready = on_ready, .data = input};
}

void remote_input_end(struct remote_input *input)
{
    stop(input);
}
