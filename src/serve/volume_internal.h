/* What the files about volumes share: their images, the devices that images are attached to, and who works on them. */
#ifndef HC_SERVE_VOLUME_INTERNAL_H
#define HC_SERVE_VOLUME_INTERNAL_H

#include "serve/internal.h"

/* ---- volume_images.c: the files. Names are checked by each of these ---- */

/* `volumes` in the state folder, cleared of what was half made when a server ended. The fd, or -errno. */
int volume_images_open(const struct state *state, struct hc_err *err);
int volume_image_check(const struct serve_volume_facts *facts,
                       struct hc_err *err); /* tenant and name, also their NULs */
/* The file of one, to read and write. -ENOENT: there is none. */
int volume_image_open(int folder, const struct serve_volume_facts *facts, struct hc_err *err);
/* A new one of facts->size, under a name of its own until it is kept, and when it is dropped never seen. */
int volume_image_make(int folder, const struct serve_volume_facts *facts, struct hc_err *err);
int volume_image_keep(int folder, const struct serve_volume_facts *facts, struct hc_err *err);
void volume_image_drop(int folder, const struct serve_volume_facts *facts);
int volume_image_remove(int folder, const struct serve_volume_facts *facts, struct hc_err *err);
/* size, used and created_at, as the file system wrote them when it was last let go. 0 or -errno. */
int volume_image_facts(int image, struct serve_volume_facts *facts);
/* Each there is, also one that is being made (`made` is false); tenant "": everybody's. facts have size alone. */
typedef void (*volume_image_fn)(void *data, const struct serve_volume_facts *facts, bool made);
int volume_images_each(int folder, const char *tenant, volume_image_fn fn, void *data);
/* Nobody else has it, also no device of a server that was killed; held as long as the fd or a device of it is there.
 * -EWOULDBLOCK: somebody has. */
int volume_image_lock(int image);

/* ---- volume_device.c ---- */

enum { DEVICE_PATH_SIZE = 32 };
/* A block device of the image. It goes when the fd that is returned and all mounts of it are gone. */
int volume_device_attach(int image, char path[DEVICE_PATH_SIZE], struct hc_err *err);
/* Somebody has it mounted. */
bool volume_device_busy(const char *path);
/* Its file system, mounted nowhere: all mounts of a device are of the same. The fd, or -errno. */
int volume_device_mount(const char *path, struct hc_err *err);

/* ---- volume_worker.c ---- */

/* Makes the file system of an image, or checks the one it has, in a process of its own. What fails comes by *report as
 * a struct hc_err, and nothing when all is well. */
int volume_worker_start(const struct custody *custody, int image, bool make, pid_t *pid, int *pidfd, int *report,
                        struct hc_err *err);

/* ---- volumes.c ---- */

struct volume_device { /* one that is attached */
    struct volume_device *next;
    char tenant[64], name[VOLUME_NAME_SIZE];
    char path[DEVICE_PATH_SIZE];
    uint32_t number;
    uint64_t size, claimed; /* when somebody last asked for it */
    int fd;
};
/* The one of this volume; NULL: it is not attached. */
struct volume_device *volume_find_device(const struct volumes *volumes, const struct serve_volume_facts *facts);
/* The answer to a question of that gateway's; `fd` stays the caller's. Nobody is told if that one is gone. */
void volume_tell(struct keeper_server *server, const struct serve_volume *volume, uint32_t gateway,
                 const struct hc_err *err, int fd);

/* ---- volume_list.c ---- */

void volume_list(struct keeper_server *server, const struct serve_volume *volume); /* answers SERVE_VOLUME_LIST */

#endif
