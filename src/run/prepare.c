/*
 * See prepare.h. The files come out of the cell as every file does (cell/archive.h): as a stream that a helper in it
 * has written, and that is read here as if a guest had. Only plain files are made of it, without any rights that the
 * cell asked for, in a new folder that gets its name when it is whole.
 *
 * The last file that is made is the key: what the command and the tools were. A folder without it is not whole.
 */
#include "run/prepare.h"

#include "base/fd.h"
#include "cell/archive.h"
#include "run/engine.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEY_LIMIT = 1 << 20, NAME_SIZE = 64 };

#define KEY_FILE ".key"
/* What the command may use. It is the operator's own, so the ceilings for requests do not hold for it. */
#define PREPARE_LIMITS                                                                                                 \
    {                                                                                                                  \
        {LIMIT_TIMEOUT, 600000000}, {LIMIT_MEMORY, 2ULL << 30},                                                        \
        {                                                                                                              \
            LIMIT_DISK, SNAPSHOT_LIMIT                                                                                 \
        }                                                                                                              \
    }

/* ---- folders ---- */

/* Everything below a folder, and the folder itself. The folder is ours alone. */
static void remove_tree(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    if (!list) {
        hc_close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(list));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (unlinkat(dirfd(list), entry->d_name, 0) < 0)
            remove_tree(dirfd(list), entry->d_name);
    }
    closedir(list);
    unlinkat(parent, name, AT_REMOVEDIR);
}

void prepare_clear(int folder)
{
    int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = copy >= 0 ? fdopendir(copy) : NULL;
    if (!list) {
        hc_close(copy);
        return;
    }
    for (struct dirent *entry; (entry = readdir(list));)
        if (entry->d_name[0] == '.' && strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            remove_tree(folder, entry->d_name);
    closedir(list);
}

/* ---- the key ---- */

static int make_key(const struct language *language, struct hc_buf *key)
{
    for (size_t i = 0; i < language->prepare.command.count; i++)
        hc_buf_printf(key, "%s\n", language->prepare.command.item[i]);
    for (size_t i = 0; i < language->env.count; i++)
        hc_buf_printf(key, "%s\n", language->env.item[i]);
    language_identity(language, key);
    return hc_buf_status(key);
}

static bool is_made(int folder, const char *name, const struct hc_buf *key)
{
    char path[NAME_SIZE + sizeof KEY_FILE];
    snprintf(path, sizeof path, "%s/" KEY_FILE, name);
    hc_cleanup_fd int fd = openat(folder, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    hc_cleanup_free char *text = NULL;
    size_t length;
    return fd >= 0 && hc_read_all(fd, KEY_LIMIT, &text, &length) == 0 && length == key->length &&
           memcmp(text, key->data, length) == 0;
}

static int write_file(int folder, const char *name, const char *data, size_t length)
{
    hc_cleanup_fd int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    return fd < 0 ? -errno : hc_write_all(fd, data, length);
}

/* ---- out of the archive ---- */

/* The folder that the last part of `path` goes into, made where it is missing; *name is that part. */
static int open_parent(int folder, char *path, const char **name)
{
    hc_cleanup_fd int at = fcntl(folder, F_DUPFD_CLOEXEC, 3);
    *name = path;
    for (char *slash; at >= 0 && (slash = strchr(path, '/')); path = slash + 1) {
        *slash = '\0';
        if (mkdirat(at, path, 0755) < 0 && errno != EEXIST)
            return -errno;
        int next = openat(at, path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        hc_close(at);
        at = next;
    }
    *name = path;
    return at < 0 ? -errno : HC_TAKE_FD(at);
}

static int write_record(int folder, const char *below, const struct archive_header *header, const char *path,
                        const char *content)
{
    char text[ARCHIVE_PATH_MAX + 1];
    size_t skip = strlen(below);
    const char *name;
    if (header->type != ARCHIVE_FILE || header->path_length <= skip || memcmp(path, below, skip) != 0)
        return 0;
    if (archive_path_check(path, header->path_length) < 0)
        return -EPROTO;
    memcpy(text, path + skip, header->path_length - skip);
    text[header->path_length - skip] = '\0';
    hc_cleanup_fd int parent = open_parent(folder, text, &name);
    return parent < 0 ? parent : write_file(parent, name, content, header->content_length);
}

/* The archive was read through by snapshot_finish: every length in it is within it. */
static int unpack(const struct snapshot *files, const char *below, int folder, struct hc_err *err)
{
    char *data = mmap(NULL, files->size, PROT_READ, MAP_PRIVATE, files->fd, 0);
    if (data == MAP_FAILED)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "reading what was prepared");
    int result = 0;
    for (uint64_t at = 0; at + sizeof(struct archive_header) <= files->size && result == 0;) {
        struct archive_header header;
        memcpy(&header, data + at, sizeof header);
        const char *path = data + at + sizeof header;
        if (header.type == ARCHIVE_END)
            break;
        result = write_record(folder, below, &header, path, path + header.path_length);
        at += sizeof header + header.path_length + header.content_length;
    }
    munmap(data, files->size);
    return result < 0 ? hc_fail_errno(err, HC_CLASS_HOST, -result, "writing what was prepared") : 0;
}

/* ---- the run ---- */

static int make_request(const struct config *config, const struct language *language, struct request *request,
                        struct hc_err *err)
{
    static const struct {
        enum limit_id id;
        uint64_t value;
    } limits[] = PREPARE_LIMITS;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        request->limits.set[limits[i].id] = true;
        request->limits.value[limits[i].id] = limits[i].value;
    }
    request->stages = calloc(1, sizeof *request->stages);
    if (!request->stages)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    request->stage_count = 1;
    int result = language_expand(language, &language->prepare, config->work_dir, language->file, LANGUAGE_OUT, NULL,
                                 NULL, &request->stages[0].command, err);
    for (size_t i = 0; i < language->env.count && result == 0; i++)
        result = words_add(&request->env, language->env.item[i]);
    /* What a stage left is collected before the one that follows it. */
    return result == 0 ? request_add_command(request, "/bin/true", err) : result;
}

static int fail_command(const hc_result *result, struct hc_err *err)
{
    size_t length = 0;
    const struct capture *output =
        result->result.stage_count > 1 ? &result->result.stages[0].output : &result->result.err;
    hc_cleanup_free char *text = capture_text(output, &length);
    return hc_fail(err, HC_CLASS_HOST, EIO, "its command ended with %s: %.200s", run_status_word(result->result.status),
                   text ? text : "");
}

static int run_command(const struct config *config, const struct language *language, struct snapshot *files,
                       struct hc_err *err)
{
    struct config own = *config;
    own.ceilings = (struct limits){0};
    hc_config wrapped = {.config = &own};
    hc_request request = {.request = request_new(), .input = -1, .keep = SNAPSHOT_LIMIT, .kept = files};
    hc_engine *engine = NULL;
    hc_result *result = NULL;
    hc_error *error = NULL;
    int status = request.request ? make_request(config, language, request.request, err)
                                 : hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    if (status == 0)
        status = hc_engine_open(&wrapped, &engine, &error);
    if (status == 0)
        status = hc_run(engine, &request, &result, &error);
    if (status < 0 && error)
        hc_fail(err, HC_CLASS_HOST, -status, "%s", hc_error_message(error));
    if (status == 0 && (result->result.status != RUN_COMPLETED || files->fd < 0))
        status = fail_command(result, err);
    hc_error_free(error);
    hc_result_free(result);
    hc_engine_close(engine);
    request_free(request.request);
    return status;
}

/* ---- into place ---- */

static int put_in_place(int folder, const char *made, const char *name, struct hc_err *err)
{
    char old[NAME_SIZE];
    snprintf(old, sizeof old, ".%.40s.old", name);
    remove_tree(folder, old);
    if (renameat(folder, name, folder, old) < 0 && errno != ENOENT)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "replacing what was there");
    if (renameat(folder, made, folder, name) < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "putting it in its place");
    remove_tree(folder, old); /* who has a file of it open keeps that */
    return 0;
}

static int make(const struct config *config, const struct language *language, int folder, const struct hc_buf *key,
                struct hc_err *err)
{
    char made[NAME_SIZE], below[PATH_MAX];
    struct snapshot files;
    snapshot_init(&files);
    snprintf(made, sizeof made, ".%.40s.new", language->name);
    snprintf(below, sizeof below, "%s/", config->work_dir + 1);
    int result = run_command(config, language, &files, err);
    if (result == 0) {
        remove_tree(folder, made);
        hc_cleanup_fd int into = mkdirat(folder, made, 0755) < 0
                                     ? -1
                                     : openat(folder, made, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        result =
            into < 0 ? hc_fail_errno(err, HC_CLASS_HOST, errno, "making a folder") : unpack(&files, below, into, err);
        if (result == 0 && (result = write_file(into, KEY_FILE, key->data, key->length)) < 0)
            hc_fail_errno(err, HC_CLASS_HOST, -result, "writing its key");
    }
    snapshot_release(&files);
    if (result == 0)
        result = put_in_place(folder, made, language->name, err);
    remove_tree(folder, made);
    return result;
}

int prepare_cache(const struct config *config, const struct language *language, int folder, struct hc_err *err)
{
    struct hc_buf key = HC_BUF_INIT(KEY_LIMIT);
    int result = make_key(language, &key);
    if (result < 0)
        hc_fail_errno(err, HC_CLASS_OURS, -result, "its key");
    else if (is_made(folder, language->name, &key))
        result = 0;
    else
        result = make(config, language, folder, &key, err) < 0 ? -err->code : 1;
    hc_buf_release(&key);
    return result;
}
