/* hotcell cp: what goes where. The copying itself is in cp_in.c and cp_out.c. */
#include "cli/cp.h"

#include "base/fd.h"
#include "cli/interrupt.h"
#include "cli/json.h"
#include "cli/message.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- words ---- */

/* One operand: of the sandbox `id` when that is not "". */
struct spot {
    char id[SANDBOX_ID];
    const char *path;
};

/* "ID:PATH"; what begins with a slash or a dot, or has a slash before the colon, is of this machine. */
static int read_spot(const char *text, struct spot *spot, struct hc_err *err)
{
    size_t length = strcspn(text, ":/");

    *spot = (struct spot){.path = text};
    if (text[0] == '.' || text[length] != ':')
        return 0;
    if (length == 0 || length >= sizeof spot->id) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "\"%s\" does not begin with the id of a sandbox", text);
        return hc_err_remedy(err, "a file whose name has a colon is ./%s", text);
    }
    memcpy(spot->id, text, length);
    spot->path = text[length + 1] ? text + length + 1 : ".";
    return 0;
}

static bool is_stream(const struct spot *spot)
{
    return !spot->id[0] && spot->path && strcmp(spot->path, "-") == 0;
}

static bool ends_in_slash(const char *path)
{
    size_t length = strlen(path);

    return length > 0 && path[length - 1] == '/';
}

/* The last name of a path, into `name`; "" where it has none of its own: "/", ".", "..", "x/.". */
static int last_name(const char *path, char *name, size_t size, struct hc_err *err)
{
    size_t end = strlen(path);

    while (end > 0 && path[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/')
        start--;
    if (end - start >= size)
        return hc_fail(err, HC_CLASS_REQUEST, ENAMETOOLONG, "the name of %s is too long", path);
    memcpy(name, path + start, end - start);
    name[end - start] = '\0';
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        name[0] = '\0';
    return 0;
}

/* What comes before the last name: "." where that is all there is. */
static int parent_of(const char *path, char *parent, size_t size, struct hc_err *err)
{
    size_t end = strlen(path);

    while (end > 1 && path[end - 1] == '/')
        end--;
    while (end > 0 && path[end - 1] != '/')
        end--;
    while (end > 1 && path[end - 1] == '/')
        end--;
    if (end >= size)
        return hc_fail(err, HC_CLASS_REQUEST, ENAMETOOLONG, "the path %s is too long", path);
    snprintf(parent, size, "%.*s", end ? (int)end : 1, end ? path : ".");
    return 0;
}

/* ---- asking ---- */

int cp_target(const struct cp *cp, const char *kind, const char *path, struct hc_buf *target, struct hc_err *err)
{
    hc_buf_printf(target, "/v1/sandboxes/%s/%s?path=", cp->id, kind);
    http_add_encoded(target, path);
    return hc_buf_status(target) < 0 ? hc_fail(err, HC_CLASS_REQUEST, ENAMETOOLONG, "the path is too long") : 0;
}

int cp_look(struct cp *cp, const char *path, char type[16], uint64_t *size, struct hc_err *err)
{
    struct hc_buf target = HC_BUF_INIT(SANDBOX_TARGET);
    json_cleanup json_t *facts = NULL;

    type[0] = '\0';
    int status = cp_target(cp, "files", path, &target, err);
    hc_buf_add_str(&target, "&limit=1");
    if (status == 0)
        status = sandbox_ask(&cp->server, "GET", target.data, NULL, &facts, err);
    hc_buf_release(&target);
    if (status < 0)
        return status;
    snprintf(type, 16, "%s", json_text(facts, "type"));
    if (size)
        *size = strcmp(type, "file") == 0 ? (uint64_t)json_integer_value(json_object_get(facts, "size")) : 0;
    return 0;
}

void cp_leave_out(struct cp *cp, const char *path, const char *why)
{
    cp->partly = true;
    progress_end(&cp->progress);
    message_note("%s is left out: %s", path, why);
}

/* ---- into one ---- */

/* Whether what is copied goes into the path, under its own name, rather than becoming it. */
static int goes_into(struct cp *cp, const char *path, bool *into, struct hc_err *err)
{
    struct hc_err none = {0};
    char type[16], name[NAME_MAX + 1];

    int status = last_name(path, name, sizeof name, err);
    if (status < 0)
        return status;
    *into = true;
    if (ends_in_slash(path) || !name[0])
        return 0;
    status = cp_look(cp, path, type, NULL, &none);
    if (status < 0 && strcmp(cp->server.code, "not_found") != 0) {
        *err = none;
        return status;
    }
    cp->server.code[0] = '\0';
    *into = strcmp(type, "directory") == 0;
    return 0;
}

static int copy_in(struct cp *cp, const struct spot *from, const struct spot *to, bool into, struct hc_err *err)
{
    char name[NAME_MAX + 1], other[NAME_MAX + 1], parent[PATH_MAX];

    int status = last_name(from->path, name, sizeof name, err);
    if (status < 0)
        return status;
    if (into || !name[0])
        return cp_in(cp, from->path, to->path, name, err);
    status = last_name(to->path, other, sizeof other, err);
    if (status == 0)
        status = parent_of(to->path, parent, sizeof parent, err);
    return status < 0 ? status : cp_in(cp, from->path, parent, other, err);
}

static int all_in(struct cp *cp, const struct spot *spots, size_t count, struct hc_err *err)
{
    const struct spot *to = &spots[count];
    bool into = true;

    for (size_t i = 0; i < count; i++)
        if (is_stream(&spots[i]) && count > 1)
            return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "'-' is stdin, and cannot be copied with others");
    if (is_stream(&spots[0]))
        return cp_in_stream(cp, to->path, ends_in_slash(to->path) || strcmp(to->path, ".") == 0, err);
    int status = goes_into(cp, to->path, &into, err);
    if (status == 0 && count > 1 && !into)
        status = hc_fail(err, HC_CLASS_REQUEST, ENOTDIR, "%s is no folder of the sandbox, and cannot take several",
                         to->path);
    for (size_t i = 0; status == 0 && i < count; i++)
        status = copy_in(cp, &spots[i], to, into, err);
    return status;
}

/* ---- out of one ---- */

static int to_stream(struct cp *cp, const char *path, struct hc_err *err)
{
    char type[16];

    if (isatty(STDOUT_FILENO) && ends_in_slash(path))
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "a folder comes as a tar, which is not for a terminal");
    int status = cp_look(cp, path, type, &cp->progress.total, err);
    if (status < 0)
        return status;
    if (strcmp(type, "directory") != 0)
        return cp_out_file(cp, path, STDOUT_FILENO, err);
    if (isatty(STDOUT_FILENO)) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "%s is a folder: it comes as a tar, which is not for a terminal", path);
        return hc_err_remedy(err, "such as: hotcell cp ID:%s - | tar t", path);
    }
    return cp_out_archive(cp, path, err);
}

/* To a place that is there and is no folder. A file is replaced; all else is written to, a link as well: whoever named
 * /dev/stdout wants the bytes there, and the link to stay. */
static int onto(struct cp *cp, const char *path, const char *place, bool *done, struct hc_err *err)
{
    struct stat info;
    char type[16];

    *done = true;
    int status = cp_look(cp, path, type, &cp->progress.total, err);
    if (status < 0)
        return status;
    if (strcmp(type, "directory") == 0)
        return hc_fail(err, HC_CLASS_REQUEST, ENOTDIR, "%s is a folder, but %s is none", path, place);
    if (lstat(place, &info) == 0 && S_ISREG(info.st_mode)) {
        *done = false;
        return 0;
    }
    hc_cleanup_fd int fd = open(place, O_WRONLY | O_TRUNC | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return hc_fail_errno(err, HC_CLASS_REQUEST, errno, "cannot write to %s", place);
    return cp_out_file(cp, path, fd, err);
}

static int open_folder(const char *path, struct hc_err *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? hc_fail_errno(err, HC_CLASS_REQUEST, errno, "cannot write to the folder %s", path) : fd;
}

static int copy_out(struct cp *cp, const struct spot *from, const char *place, bool several, struct hc_err *err)
{
    char name[NAME_MAX + 1], parent[PATH_MAX], type[16];
    struct stat info;
    bool done = false;

    bool there = stat(place, &info) == 0, folder = there && S_ISDIR(info.st_mode);
    int status = last_name(folder ? from->path : place, name, sizeof name, err);
    if (status == 0 && several && !folder)
        status = hc_fail(err, HC_CLASS_REQUEST, ENOTDIR, "%s is no folder, and cannot take several", place);
    if (status == 0 && there && !folder)
        status = onto(cp, from->path, place, &done, err);
    else if (status == 0 && !there && ends_in_slash(place)) {
        status = cp_look(cp, from->path, type, NULL, err);
        if (status == 0 && strcmp(type, "directory") != 0)
            status = hc_fail(err, HC_CLASS_REQUEST, ENOENT, "there is no folder %s", place);
    }
    if (status == 0)
        status = parent_of(place, parent, sizeof parent, err);
    if (status < 0 || done)
        return status;
    hc_cleanup_fd int root = open_folder(folder ? place : parent, err);
    return root < 0 ? root : cp_out(cp, from->path, root, name, err);
}

/* ---- all of it ---- */

static int check_spots(const struct spot *spots, size_t count, struct hc_err *err)
{
    const bool out = !spots[count].id[0];

    for (size_t i = 0; i < count; i++) {
        if (spots[i].id[0] && !out) {
            hc_fail(err, HC_CLASS_REQUEST, EINVAL, "both %s:%s and the destination are in sandboxes", spots[i].id,
                    spots[i].path);
            return hc_err_remedy(err, "go through a pipe: hotcell cp A:PATH - | hotcell cp - B:PATH");
        }
        if (!spots[i].id[0] && out) {
            hc_fail(err, HC_CLASS_REQUEST, EINVAL, "neither %s nor %s is in a sandbox", spots[i].path,
                    spots[count].path);
            return hc_err_remedy(err, "one of them is ID:PATH; hotcell sandbox list shows the ids");
        }
    }
    if (out && is_stream(&spots[count]) && count > 1)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "'-' is stdout, and takes one file or folder");
    return 0;
}

static int copy_all(struct cp *cp, const struct spot *spots, size_t count, struct hc_err *err)
{
    const struct spot *to = &spots[count];
    int status = 0;

    if (to->id[0]) {
        status = sandbox_resolve(&cp->server, to->id, cp->id, err);
        return status < 0 ? status : all_in(cp, spots, count, err);
    }
    for (size_t i = 0; status == 0 && i < count; i++) {
        status = sandbox_resolve(&cp->server, spots[i].id, cp->id, err);
        if (status == 0)
            status = is_stream(to) ? to_stream(cp, spots[i].path, err)
                                   : copy_out(cp, &spots[i], to->path ? to->path : ".", count > 1, err);
    }
    return status;
}

static int report(struct cp *cp, int status, const struct hc_err *err)
{
    progress_end(&cp->progress);
    if (interrupt_caught())
        return 128 + interrupt_caught();
    if (status < 0 && err->code == EPIPE)
        return 128 + SIGPIPE;
    if (status < 0)
        return server_message(cp->cli, &cp->server, err);
    if (cp->cli->json) {
        json_cleanup json_t *object = json_pack("{s:I, s:I, s:b}", "entries", (json_int_t)cp->entries, "bytes",
                                                (json_int_t)cp->bytes, "partly", cp->partly);
        sandbox_show_json(object);
    }
    return cp->partly ? EXIT_PARTLY : EXIT_OK;
}

int sandbox_cp(struct cli *cli, const struct sandbox_line *line)
{
    struct cp cp = {.cli = cli};
    struct hc_err err = {0};

    int status = line->operands >= 2 ? 0
                                     : hc_fail(&err, HC_CLASS_REQUEST, EINVAL,
                                               "hotcell cp needs a source and a destination, such as FILE ID:PATH");
    hc_cleanup_free struct spot *spots = calloc(line->operands + 1, sizeof *spots);
    for (size_t i = 0; status == 0 && i < line->operands; i++)
        status = spots ? read_spot(line->operand[i], &spots[i], &err)
                       : hc_fail(&err, HC_CLASS_OURS, ENOMEM, "out of memory");
    if (status == 0)
        status = check_spots(spots, line->operands - 1, &err);
    if (status == 0)
        status = sandbox_server(cli, line, &cp.server, &err);
    if (status < 0)
        return message_error(cli, &err);
    hc_cleanup_fd int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    cp.server.address.terms.wake = wake;
    interrupt_wake(wake);
    interrupt_begin();
    progress_start(&cp.progress, line->operand[0], cli->quiet || cli->json);
    status = copy_all(&cp, spots, line->operands - 1, &err);
    interrupt_wake(-1);
    return report(&cp, status, &err);
}
