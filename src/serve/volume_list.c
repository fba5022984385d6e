/* The list of volumes, as a memory file: what each is, and how full. */
#include "base/fd.h"
#include "serve/volume_internal.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/statvfs.h>

enum { LIST_MAX = 65536 };

struct listing {
    const struct keeper_server *server;
    struct serve_volume_facts *item;
    size_t count;
    bool failed;
};

/* One that is mounted is asked itself: what its image says is from before. */
static void look_at(const struct keeper_server *server, struct serve_volume_facts *facts)
{
    hc_cleanup_fd int image = volume_image_open(server->volumes.folder, facts, NULL);
    if (image < 0 || volume_image_facts(image, facts) < 0)
        return;
    const struct volume_device *device = volume_find_device(&server->volumes, facts);
    struct hc_err err = {0};
    struct statvfs now;
    hc_cleanup_fd int mount = device && volume_device_busy(device->path) ? volume_device_mount(device->path, &err) : -1;
    if (mount >= 0 && fstatvfs(mount, &now) == 0)
        facts->used = (uint64_t)(now.f_blocks - now.f_bfree) * now.f_frsize;
}

static void list_one(void *data, const struct serve_volume_facts *facts, bool made)
{
    struct listing *listing = data;
    if (!made || listing->failed || listing->count == LIST_MAX)
        return;
    size_t used = listing->count + 1;
    if (listing->count == 0 || (used & (used - 1)) == 0) {
        struct serve_volume_facts *item = reallocarray(listing->item, used * 2, sizeof *item);
        listing->failed = item == NULL;
        if (!item)
            return;
        listing->item = item;
    }
    listing->item[listing->count] = *facts;
    look_at(listing->server, &listing->item[listing->count++]);
}

void volume_list(struct keeper_server *server, const struct serve_volume *volume)
{
    struct listing listing = {.server = server};
    struct hc_err err = {0};
    int result = volume_images_each(server->volumes.folder, volume->facts.tenant, list_one, &listing);
    if (listing.failed)
        result = -ENOMEM;
    hc_cleanup_fd int fd = result < 0 ? result
                                      : hc_memfd_sealed("hotcell-volumes", listing.item ? (void *)listing.item : "",
                                                        listing.count * sizeof *listing.item);
    if (fd < 0)
        hc_fail_errno(&err, HC_CLASS_HOST, -fd, "listing volumes");
    free(listing.item);
    volume_tell(server, volume, server->restarts, &err, fd);
}
