/* See uids.h. A range that is in use is known by an abstract socket name, which the kernel frees with its holder,
 * however that ends. */
#include "warden/uids.h"

#include "base/account.h"
#include "base/fd.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* Above what useradd (subuid) and systemd-nspawn give out, below 2^31 where some file systems stop. */
enum { BLOCK = 65536, BLOCKS = 4000, TRIES = 200 };
static const uint64_t first_uid = 0x70000000;

static int hold(unsigned block)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "hotcell-uids-%u", block);
    hc_cleanup_fd int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (bind(fd, (struct sockaddr *)&address,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) < 0)
        return -errno;
    return HC_TAKE_FD(fd);
}

static int pick_range(struct uid_plan *plan, struct hc_err *err)
{
    for (int try = 0; try < TRIES; try++) {
        unsigned random;
        if (getrandom(&random, sizeof random, 0) != sizeof random)
            return hc_fail_errno(err, HC_CLASS_HOST, errno, "getrandom");
        unsigned block = random % BLOCKS;
        int lock = hold(block);
        if (lock == -EADDRINUSE)
            continue;
        if (lock < 0)
            return hc_fail_errno(err, HC_CLASS_HOST, -lock, "holding a range of uids");
        *plan = (struct uid_plan){UIDS_RANGE, first_uid + (uint64_t)block * BLOCK, first_uid + (uint64_t)block * BLOCK,
                                  BLOCK, lock};
        return 0;
    }
    return hc_fail(err, HC_CLASS_HOST, EAGAIN, "every range of uids is held by another hotcell");
}

/* "name:base:count" or "uid:base:count". */
static bool subordinate(const char *path, const char *name, uid_t uid, uint64_t *base, uint64_t *count)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    char line[256], number[16];
    snprintf(number, sizeof number, "%u", (unsigned)uid);
    bool found = false;
    while (!found && fgets(line, sizeof line, file)) {
        char *save = NULL, *who = strtok_r(line, ":", &save), *from = strtok_r(NULL, ":", &save),
             *many = strtok_r(NULL, ":\n", &save);
        if (!who || !from || !many || (strcmp(who, number) != 0 && (!name || strcmp(who, name) != 0)))
            continue;
        *base = strtoull(from, NULL, 10);
        *count = strtoull(many, NULL, 10);
        found = *base > 0 && *count >= 2;
    }
    fclose(file);
    return found;
}

/* Root of a user namespace (a container's, say) has only the uids that were mapped there, and our ranges are not among
 * them. Not to know is an error: the host's root would take itself for such a one, and guests would have its uid. */
static int has_every_uid(struct hc_err *err)
{
    char text[256];
    unsigned inside, outside, count;
    char *save = NULL;
    ssize_t length = hc_read_file_at(AT_FDCWD, "/proc/self/uid_map", text, sizeof text);
    if (length <= 0)
        return hc_fail_errno(err, HC_CLASS_HOST, length < 0 ? (int)-length : ENODATA, "reading /proc/self/uid_map");
    inside = (unsigned)strtoul(text, &save, 10);
    outside = (unsigned)strtoul(save, &save, 10);
    count = (unsigned)strtoul(save, NULL, 10);
    return inside == 0 && outside == 0 && count == UINT32_MAX;
}

int uids_plan(uint64_t base, uint64_t count, struct uid_plan *plan, struct hc_err *err)
{
    plan->lock = -1;
    int every = geteuid() == 0 && base == 0 ? has_every_uid(err) : 0;
    if (every < 0)
        return every;
    if (geteuid() == 0 && (base != 0 || every)) {
        if (base == 0)
            return pick_range(plan, err);
        *plan = (struct uid_plan){UIDS_RANGE, base, base, count ? count : BLOCK, -1};
        return 0;
    }
    uid_t uid = geteuid();
    char account[256];
    const char *name = hc_account_name(uid, account, sizeof account) == 0 ? account : NULL;
    uint64_t gids;
    *plan = (struct uid_plan){.source = UIDS_SUBORDINATE, .lock = -1};
    if (access("/usr/bin/newuidmap", X_OK) == 0 && access("/usr/bin/newgidmap", X_OK) == 0 &&
        subordinate("/etc/subuid", name, uid, &plan->uid_base, &plan->count) &&
        subordinate("/etc/subgid", name, uid, &plan->gid_base, &gids)) {
        if (gids < plan->count)
            plan->count = gids;
        if (plan->count > BLOCK)
            plan->count = BLOCK;
        return 0;
    }
    *plan = (struct uid_plan){.source = UIDS_SINGLE, .count = 1, .lock = -1};
    return 0;
}

static int write_proc(pid_t child, const char *file, const char *text, struct hc_err *err)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)child, file);
    int result = hc_write_file_at(AT_FDCWD, path, text);
    if (result < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, -result, "writing %s", file);
    return 0;
}

/* newuidmap PID 0 OWN 1 1 BASE COUNT: a set-uid program of the host, which checks /etc/subuid for us. */
static int run_helper(const char *path, pid_t child, unsigned own, uint64_t base, uint64_t count, struct hc_err *err)
{
    char words[5][24];
    snprintf(words[0], sizeof words[0], "%d", (int)child);
    snprintf(words[1], sizeof words[1], "%u", own);
    snprintf(words[2], sizeof words[2], "%" PRIu64, base);
    snprintf(words[3], sizeof words[3], "%" PRIu64, count);
    pid_t pid = fork();
    if (pid == 0) {
        execl(path, path, words[0], "0", words[1], "1", "1", words[2], words[3], (char *)NULL);
        _exit(127);
    }
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "running %s", path);
    if (status != 0)
        return hc_fail(err, HC_CLASS_HOST, EPERM, "%s refused the range in /etc/subuid and /etc/subgid", path);
    return 0;
}

int uids_map(const struct uid_plan *plan, pid_t child, struct hc_err *err)
{
    char text[96];
    int result;
    switch (plan->source) {
    case UIDS_RANGE:
        snprintf(text, sizeof text, "0 %" PRIu64 " %" PRIu64 "\n", plan->uid_base, plan->count);
        result = write_proc(child, "uid_map", text, err);
        snprintf(text, sizeof text, "0 %" PRIu64 " %" PRIu64 "\n", plan->gid_base, plan->count);
        return result < 0 ? result : write_proc(child, "gid_map", text, err);
    case UIDS_SUBORDINATE:
        result = run_helper("/usr/bin/newuidmap", child, geteuid(), plan->uid_base, plan->count, err);
        return result < 0 ? result
                          : run_helper("/usr/bin/newgidmap", child, getegid(), plan->gid_base, plan->count, err);
    case UIDS_SINGLE:
        result = write_proc(child, "setgroups", "deny", err);
        snprintf(text, sizeof text, "0 %u 1\n", (unsigned)geteuid());
        if (result == 0)
            result = write_proc(child, "uid_map", text, err);
        snprintf(text, sizeof text, "0 %u 1\n", (unsigned)getegid());
        return result < 0 ? result : write_proc(child, "gid_map", text, err);
    }
    return -EINVAL;
}
