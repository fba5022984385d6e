/*
 * Volumes: theory of operation.
 *
 * A volume is a file in the state folder with a file system in it, so that its size is the file system's to enforce. It
 * is attached to a loop device when somebody opens it for a cell, and mounted, detached, once for each cell that asks
 * (volumes_mount, by the warden's question for a host folder), with the owner shown as that cell's guest. Who has it is
 * the kernel's to know: a device whose file system is mounted cannot be opened exclusively. One that nobody has is let
 * go after a while. The image is locked by the fd that the device was made of, so that the lock goes with the device: a
 * server that was killed, and whose cells are still going, holds its volumes from the next one until they are gone.
 *
 * The gateway asks (SERVE_VOLUME), and can name no more than tenants and volumes. A number that it got is never given
 * out again for another volume. Questions about one volume are answered one after another; making and checking are done
 * by children (volume_worker.c), so that the keeper never waits.
 */
#include "base/fd.h"
#include "base/log.h"
#include "base/size.h"
#include "kernel/sys.h"
#include "serve/volume_internal.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>

enum { TASKS_MAX = 256, WORKERS_MAX = 4, SMALLEST = 16 << 20 };
#define RETRY_US (50000ULL)
#define BUSY_US (5 * 1000000ULL)   /* what is still going is waited for */
#define LOOK_US (5 * 1000000ULL)   /* how often the unused are looked for */
#define CLAIM_US (30 * 1000000ULL) /* between the opening and the cell */

struct volume_task { /* a question that is not answered yet */
    struct volume_task *next;
    struct keeper_server *server;
    struct serve_volume volume;
    uint32_t gateway; /* which of them asked */
    uint64_t until;   /* when waiting ends; 0: it has not begun */
    int image, report, pidfd;
    pid_t pid;
    struct hc_watch *watch;
    struct hc_timer *timer;
};

enum step { STEP_DONE, STEP_WAITS, STEP_WORKS };

static bool same(const struct serve_volume_facts *a, const char *tenant, const char *name)
{
    return strcmp(a->tenant, tenant) == 0 && strcmp(a->name, name) == 0;
}

/* ---- devices ---- */

struct volume_device *volume_find_device(const struct volumes *volumes, const struct serve_volume_facts *facts)
{
    struct volume_device *device = volumes->devices;
    while (device && !same(facts, device->tenant, device->name))
        device = device->next;
    return device;
}

static void drop_device(struct volumes *volumes, struct volume_device *device)
{
    for (struct volume_device **at = &volumes->devices; *at; at = &(*at)->next)
        if (*at == device) {
            *at = device->next;
            break;
        }
    hc_close(device->fd);
    free(device);
}

static void on_look(struct hc_loop *loop, void *data);

static void look_later(struct keeper_server *server)
{
    if (!server->volumes.timer && server->volumes.devices)
        server->volumes.timer = hc_loop_timer(server->loop, hc_now() + LOOK_US, on_look, server);
}

static void on_look(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct keeper_server *server = data;
    struct volume_device *next;
    uint64_t now = hc_now();
    server->volumes.timer = NULL;
    for (struct volume_device *device = server->volumes.devices; device; device = next) {
        next = device->next;
        if (volume_device_busy(device->path))
            device->claimed = now;
        else if (now - device->claimed > CLAIM_US)
            drop_device(&server->volumes, device);
    }
    look_later(server);
}

int volumes_mount(void *data, uint32_t number, struct hc_err *err)
{
    struct keeper_server *server = data;
    struct volume_device *device = server->volumes.devices;
    while (device && device->number != number)
        device = device->next;
    if (!device) {
        hc_fail(err, HC_CLASS_HOST, EAGAIN, "the volume is not open any more");
        return hc_err_remedy(err, "try again");
    }
    device->claimed = hc_now();
    return volume_device_mount(device->path, err);
}

/* ---- answers ---- */

static void count_one(void *data, const struct serve_volume_facts *facts, bool made)
{
    (void)made;
    struct volumes *volumes = data;
    volumes->count++;
    volumes->bytes += facts->size;
}

static void count_all(struct volumes *volumes)
{
    volumes->count = volumes->bytes = 0;
    if (volumes->folder >= 0)
        volume_images_each(volumes->folder, "", count_one, volumes);
}

static void task_free(struct volume_task *task)
{
    for (struct volume_task **at = &task->server->volumes.tasks; *at; at = &(*at)->next)
        if (*at == task) {
            *at = task->next;
            break;
        }
    hc_watch_remove(task->watch);
    hc_timer_remove(task->timer);
    if (task->pid > 0) {
        hc_pidfd_signal(task->pidfd, SIGKILL);
        while (waitpid(task->pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
    hc_close(task->pidfd);
    hc_close(task->report);
    hc_close(task->image);
    free(task);
}

/* Nobody waits for an answer that a gateway was owed that is gone. */
void volume_tell(struct keeper_server *server, const struct serve_volume *volume, uint32_t gateway,
                 const struct hc_err *err, int fd)
{
    struct serve_message message = {.protocol = SERVE_PROTOCOL,
                                    .type = SERVE_VOLUME,
                                    .volume = *volume,
                                    .volume_count = server->volumes.count,
                                    .volume_bytes = server->volumes.bytes,
                                    .err = *err};
    if (server->control < 0 || gateway != server->restarts)
        return;
    if (hc_try_send_fds(server->control, &message, sizeof message, &fd, fd >= 0 ? 1 : 0) < 0)
        hc_log(HC_LOG_WARNING, "the gateway could not be told of a volume");
}

static void finish(struct volume_task *task, const struct hc_err *err)
{
    struct keeper_server *server = task->server;
    struct serve_volume volume = task->volume;
    uint32_t gateway = task->gateway;
    task_free(task);
    count_all(&server->volumes);
    volume_tell(server, &volume, gateway, err, -1);
}

/* ---- making ---- */

struct tally {
    const char *tenant;
    uint64_t own, bytes;
};

static void tally_one(void *data, const struct serve_volume_facts *facts, bool made)
{
    (void)made;
    struct tally *tally = data;
    tally->bytes += facts->size;
    tally->own += strcmp(facts->tenant, tally->tenant) == 0;
}

static int check_room(const struct keeper_server *server, const struct serve_volume_facts *facts, struct hc_err *err)
{
    const struct volumes_config *config = &server->config->volumes;
    struct tally tally = {.tenant = facts->tenant};
    char size[32];
    if (facts->size < SMALLEST || facts->size > config->max_size) {
        bool small = facts->size < SMALLEST;
        hc_fail(err, HC_CLASS_REQUEST, ERANGE, "a volume of %llu bytes is too %s: the %s is %s",
                (unsigned long long)facts->size, small ? "small" : "large", small ? "least" : "most",
                hc_format_size(small ? SMALLEST : config->max_size, size, sizeof size));
        hc_err_field(err, "size");
        return small ? -ERANGE : hc_err_remedy(err, "the operator sets it as volumes.max_size");
    }
    int result = volume_images_each(server->volumes.folder, "", tally_one, &tally);
    if (result < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, -result, "listing volumes");
    if (tally.own >= config->max_per_tenant) {
        hc_fail(err, HC_CLASS_REQUEST, EDQUOT,
                "there are %llu volumes already, which is the most that one tenant may "
                "have",
                (unsigned long long)tally.own);
        hc_err_field(err, "volumes.max_per_tenant");
        return hc_err_remedy(err, "remove one that is not needed any more");
    }
    if (tally.bytes > config->max_total || facts->size > config->max_total - tally.bytes) {
        hc_fail(err, HC_CLASS_REQUEST, EDQUOT, "all volumes together may have %s, and the others have most of it",
                hc_format_size(config->max_total, size, sizeof size));
        hc_err_field(err, "volumes.max_total");
        return hc_err_remedy(err, "ask for less, or remove one that is not needed any more");
    }
    return 0;
}

static void on_worker_gone(struct hc_loop *loop, int fd, uint32_t events, void *data);

static int work(struct volume_task *task, bool make, struct hc_err *err)
{
    int result =
        volume_worker_start(&task->server->custody, task->image, make, &task->pid, &task->pidfd, &task->report, err);
    if (result < 0)
        return result;
    task->watch = hc_loop_watch(task->server->loop, task->pidfd, EPOLLIN, on_worker_gone, task);
    return task->watch ? STEP_WORKS : hc_fail_errno(err, HC_CLASS_OURS, errno, "watching a process");
}

static int create(struct volume_task *task, struct hc_err *err)
{
    struct volumes *volumes = &task->server->volumes;
    const struct serve_volume_facts *facts = &task->volume.facts;
    int result = check_room(task->server, facts, err);
    if (result == 0)
        result = task->image = volume_image_make(volumes->folder, facts, err);
    if (result >= 0 && (result = volume_image_lock(task->image)) < 0)
        result = hc_fail_errno(err, HC_CLASS_HOST, -result, "locking the volume");
    if (result >= 0)
        result = work(task, true, err);
    if (result < 0 && task->image >= 0)
        volume_image_drop(volumes->folder, facts);
    return result;
}

static int created(struct volume_task *task, struct hc_err *err)
{
    struct volumes *volumes = &task->server->volumes;
    struct serve_volume_facts *facts = &task->volume.facts;
    int result = volume_image_keep(volumes->folder, facts, err);
    if (result == 0 && (result = volume_image_facts(task->image, facts)) < 0)
        result = hc_fail_errno(err, HC_CLASS_HOST, -result, "looking at the new volume");
    return result;
}

/* ---- opening ---- */

static void give(struct volume_task *task, struct volume_device *device)
{
    device->claimed = hc_now();
    task->volume.host = device->number;
    task->volume.facts.size = device->size;
}

static int open_one(struct volume_task *task, struct hc_err *err)
{
    struct volumes *volumes = &task->server->volumes;
    struct volume_device *device = volume_find_device(volumes, &task->volume.facts);
    if (device) {
        give(task, device);
        return STEP_DONE;
    }
    task->image = volume_image_open(volumes->folder, &task->volume.facts, err);
    if (task->image < 0)
        return task->image;
    if (volume_image_lock(task->image) < 0) {
        task->image = hc_close(task->image);
        return STEP_WAITS;
    }
    return work(task, false, err);
}

static int opened(struct volume_task *task, struct hc_err *err)
{
    struct volumes *volumes = &task->server->volumes;
    struct volume_device *device = calloc(1, sizeof *device);
    if (!device || volumes->next == UINT32_MAX) {
        free(device);
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    }
    device->fd = volume_device_attach(task->image, device->path, err);
    if (device->fd < 0) {
        free(device);
        return -err->code;
    }
    memcpy(device->tenant, task->volume.facts.tenant, sizeof device->tenant);
    memcpy(device->name, task->volume.facts.name, sizeof device->name);
    struct serve_volume_facts facts = {0};
    device->size = volume_image_facts(task->image, &facts) == 0 ? facts.size : 0;
    device->number = volumes->next++;
    device->next = volumes->devices;
    volumes->devices = device;
    give(task, device);
    look_later(task->server);
    return 0;
}

/* ---- removing ---- */

static int remove_one(struct volume_task *task, struct hc_err *err)
{
    struct volumes *volumes = &task->server->volumes;
    const struct serve_volume_facts *facts = &task->volume.facts;
    struct volume_device *device = volume_find_device(volumes, facts);
    if (device && volume_device_busy(device->path))
        return STEP_WAITS;
    if (device)
        drop_device(volumes, device);
    task->image = volume_image_open(volumes->folder, facts, err);
    if (task->image < 0)
        return task->image;
    if (volume_image_lock(task->image) < 0) {
        task->image = hc_close(task->image);
        return STEP_WAITS;
    }
    return volume_image_remove(volumes->folder, facts, err);
}

/* ---- turns ---- */

static const struct {
    int (*begin)(struct volume_task *task, struct hc_err *err); /* an enum step, or -errno with err */
    int (*worked)(struct volume_task *task, struct hc_err *err);
} ACTS[] = {
    [SERVE_VOLUME_CREATE] = {create, created},
    [SERVE_VOLUME_REMOVE] = {remove_one, NULL},
    [SERVE_VOLUME_OPEN] = {open_one, opened},
};

static void run_tasks(struct keeper_server *server);

static void on_worker_gone(struct hc_loop *loop, int fd, uint32_t events, void *data)
{
    (void)loop, (void)fd, (void)events;
    struct volume_task *task = data;
    struct keeper_server *server = task->server;
    struct hc_err err = {0}, failure;
    int status = 0;
    hc_watch_remove(task->watch);
    task->watch = NULL;
    while (waitpid(task->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    task->pid = 0;
    if (hc_read_full(task->report, &failure, sizeof failure) == (ssize_t)sizeof failure)
        err = failure;
    else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        hc_fail(&err, HC_CLASS_OURS, EIO, "what worked on the volume died (status %#x)", (unsigned)status);
    else
        (void)ACTS[task->volume.act].worked(task, &err);
    if (err.code && task->volume.act == SERVE_VOLUME_CREATE)
        volume_image_drop(server->volumes.folder, &task->volume.facts);
    finish(task, &err);
    run_tasks(server);
}

static void on_retry(struct hc_loop *loop, void *data)
{
    (void)loop;
    struct volume_task *task = data;
    task->timer = NULL;
    run_tasks(task->server);
}

static void busy(struct volume_task *task)
{
    struct hc_err err = {0};
    if (hc_now() < task->until &&
        (task->timer = hc_loop_timer(task->server->loop, hc_now() + RETRY_US, on_retry, task)))
        return;
    hc_fail(&err, HC_CLASS_REQUEST, EBUSY, "the volume \"%s\" is in use", task->volume.facts.name);
    hc_err_remedy(&err, "delete the sandboxes that have it, and try again");
    finish(task, &err);
}

/* The first of those about one volume has its turn; a task that waits, or works, keeps it. */
static bool may_begin(const struct volumes *volumes, const struct volume_task *task)
{
    int workers = 0;
    bool first = true;
    for (const struct volume_task *other = volumes->tasks; other; other = other->next) {
        workers += other->pid > 0;
        if (other == task)
            first = false;
        else if (first && same(&task->volume.facts, other->volume.facts.tenant, other->volume.facts.name))
            return false;
    }
    return task->pid == 0 && !task->timer && workers < WORKERS_MAX;
}

static struct volume_task *next_task(const struct volumes *volumes)
{
    struct volume_task *task = volumes->tasks;
    while (task && !may_begin(volumes, task))
        task = task->next;
    return task;
}

static void run_tasks(struct keeper_server *server)
{
    for (struct volume_task *task; (task = next_task(&server->volumes));) {
        struct hc_err err = {0};
        if (task->until == 0)
            task->until = hc_now() + BUSY_US;
        int step = ACTS[task->volume.act].begin(task, &err);
        if (step == STEP_WAITS)
            busy(task);
        else if (step != STEP_WORKS)
            finish(task, &err);
    }
}

/* ---- what the gateway asks ---- */

static int check(const struct keeper_server *server, const struct serve_volume *volume, struct hc_err *err)
{
    const struct volumes *volumes = &server->volumes;
    size_t count = 0;
    if (volumes->folder < 0) {
        *err = volumes->why;
        return -err->code;
    }
    if (volume->act == SERVE_VOLUME_LIST && memchr(volume->facts.tenant, '\0', sizeof volume->facts.tenant))
        return 0;
    if (volume->act < SERVE_VOLUME_CREATE || volume->act > SERVE_VOLUME_OPEN || volume->act == SERVE_VOLUME_LIST)
        return hc_fail(err, HC_CLASS_OURS, EPROTO, "the question about a volume is not well-formed");
    for (const struct volume_task *task = volumes->tasks; task; task = task->next)
        count++;
    if (count >= TASKS_MAX)
        return hc_fail(err, HC_CLASS_HOST, EAGAIN, "too many volumes are asked for at once");
    return volume_image_check(&volume->facts, err);
}

void volumes_ask(struct keeper_server *server, const struct serve_volume *volume)
{
    struct hc_err err = {0};
    int result = check(server, volume, &err);
    if (result == 0 && volume->act == SERVE_VOLUME_LIST) {
        volume_list(server, volume);
        return;
    }
    struct volume_task *task = result == 0 ? calloc(1, sizeof *task) : NULL;
    if (!task) {
        hc_fail(&err, HC_CLASS_OURS, ENOMEM, "out of memory");
        volume_tell(server, volume, server->restarts, &err, -1);
        return;
    }
    *task = (struct volume_task){
        .server = server, .volume = *volume, .gateway = server->restarts, .image = -1, .report = -1, .pidfd = -1};
    struct volume_task **last = &server->volumes.tasks;
    while (*last)
        last = &(*last)->next;
    *last = task;
    run_tasks(server);
}

/* ---- life ---- */

void volumes_open(struct keeper_server *server)
{
    struct volumes *volumes = &server->volumes;
    volumes->next = CELL_FIRST_VOLUME;
    if (server->uids.source == UIDS_RANGE) {
        volumes->folder = volume_images_open(&server->state, &volumes->why);
        if (volumes->folder < 0)
            hc_log(HC_LOG_WARNING, "there are no volumes: %s", volumes->why.message);
    } else {
        hc_fail(&volumes->why, HC_CLASS_HOST, EOPNOTSUPP, "volumes take a server that was started as root");
        hc_err_remedy(&volumes->why, "start it as root, or mount a folder: mounts.allowed_write_paths");
    }
    hc_err_field(&volumes->why, "volumes");
    count_all(volumes);
}

void volumes_close(struct keeper_server *server)
{
    struct volumes *volumes = &server->volumes;
    hc_timer_remove(volumes->timer);
    volumes->timer = NULL;
    while (volumes->tasks)
        task_free(volumes->tasks);
    while (volumes->devices)
        drop_device(volumes, volumes->devices);
    volumes->folder = hc_close(volumes->folder);
}
