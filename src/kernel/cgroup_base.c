/*
 * The keeper's part of control groups: find out what this machine has, make the base folder, give it to the warden,
 * remove it at the end, and what dead keepers left as well (cgroup_clear.c).
 *
 * Where the base goes. Version 1: below our own group in each hierarchy, so that whatever limits us limits the cells.
 * Version 2: below our own group too, if we may hand out controllers there, which the kernel allows only in a group
 * without processes of its own; that is the case for the root group, and for a delegated group once we have stepped
 * aside into a leaf of it; a server does so when it starts (cgroup_settle), and then it is the group above. Real root
 * on a machine whose own group is taken (a login session) uses the top of the tree.
 */
#include "kernel/cgroup.h"

#include "base/fd.h"
#include "kernel/cgroup_clear.h"
#include "kernel/cgroup_find.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

struct cgroup_keeper {
    char name[32];
    int parent[CGROUP_SLOTS];  /* the folder that the base is in */
    char *place[CGROUP_SLOTS]; /* its path, where it is known; or NULL */
    int lock;                  /* holds the flock for as long as we live */
    int warden;                /* base/warden, version 2 */
    bool stepped_aside;        /* our own process is in base/caller */
    uid_t owner;               /* whom it is given to; -1: nobody */
    gid_t group;
    int left; /* version 1: the first slot that cgroup_base_open did not look at */
};

static int open_group(const struct hierarchy *hierarchy, const char *path)
{
    char full[2 * PATH_MAX];
    snprintf(full, sizeof full, "%s%s", hierarchy->mount, path);
    return open(full, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* ---- making the base ---- */

/* The folder, so that groups can be made in it; and in version 2 cgroup.procs, so that processes may be born from one
 * group of it into another. */
static int give(int dir, int slot, uid_t owner, gid_t group)
{
    if (fchown(dir, owner, group) < 0)
        return -errno;
    if (slot == CGROUP_UNIFIED && fchownat(dir, "cgroup.procs", owner, group, 0) < 0)
        return -errno;
    if (slot == CGROUP_CPU && fchownat(dir, "cpu.shares", owner, group, 0) < 0)
        return -errno;
    return 0;
}

/* The first folder of a base carries its lock. Whoever clears up holds the parent's lock meanwhile, and so do we
 * between making and locking: a base is never seen without the one or the other. */
static int claim(struct cgroup_keeper *keeper, int slot)
{
    int parent = keeper->parent[slot];
    if (flock(parent, LOCK_EX) < 0)
        return -errno;
    int result = mkdirat(parent, keeper->name, 0755) < 0 ? -errno : 0;
    if (result == 0) {
        keeper->lock = openat(parent, keeper->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (keeper->lock < 0 || flock(keeper->lock, LOCK_EX | LOCK_NB) < 0)
            result = -errno;
    }
    flock(parent, LOCK_UN);
    return result;
}

static int make_base(struct cgroup_base *base, struct cgroup_keeper *keeper, int slot)
{
    int result = 0;
    if (keeper->lock < 0)
        result = claim(keeper, slot);
    else if (mkdirat(keeper->parent[slot], keeper->name, 0755) < 0)
        result = -errno;
    if (result < 0)
        return result;
    base->dir[slot] = openat(keeper->parent[slot], keeper->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (base->dir[slot] < 0)
        return -errno;
    return keeper->owner == (uid_t)-1 ? 0 : give(base->dir[slot], slot, keeper->owner, keeper->group);
}

static uint32_t listed_controllers(int dir, const char *file)
{
    char text[512];
    if (hc_read_file_at(dir, file, text, sizeof text) < 0)
        return 0;
    uint32_t found = 0;
    char *save = NULL;
    for (char *word = strtok_r(text, " \n", &save); word; word = strtok_r(NULL, " \n", &save)) {
        if (strcmp(word, "memory") == 0)
            found |= CGROUP_HAS_MEMORY;
        if (strcmp(word, "cpu") == 0)
            found |= CGROUP_HAS_CPU;
        if (strcmp(word, "pids") == 0)
            found |= CGROUP_HAS_PIDS;
    }
    return found;
}

/* Hand the controllers that `dir` has on to its children. 0 when all three are, -EBUSY when processes are in the way.
 */
static int hand_on(int dir)
{
    if (listed_controllers(dir, "cgroup.subtree_control") == CGROUP_HAS_ALL)
        return 0;
    uint32_t available = listed_controllers(dir, "cgroup.controllers");
    if (available != CGROUP_HAS_ALL)
        return -ENOENT;
    return hc_write_file_at(dir, "cgroup.subtree_control", "+memory +cpu +pids");
}

/* Version 2: choose the parent of the base, as the opening comment says. */
static int choose_v2_parent(const struct hierarchy *hierarchy, bool *crowded)
{
    hc_cleanup_fd int own = open_group(hierarchy, hierarchy->own);
    *crowded = false;
    if (own >= 0 && faccessat(own, "cgroup.procs", W_OK, AT_EACCESS) == 0) {
        int result = hand_on(own);
        if (result == 0)
            return HC_TAKE_FD(own);
        *crowded = result == -EBUSY;
        hc_cleanup_fd int above = cgroup_is_delegated(own) ? -1 : openat(own, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (above >= 0 && cgroup_is_delegated(above) && hand_on(above) == 0) {
            *crowded = false;
            return HC_TAKE_FD(above);
        }
    }
    hc_cleanup_fd int top = open_group(hierarchy, "/");
    if (top >= 0 && faccessat(top, "cgroup.procs", W_OK, AT_EACCESS) == 0 && hand_on(top) == 0) {
        *crowded = false;
        return HC_TAKE_FD(top);
    }
    return *crowded ? HC_TAKE_FD(own) : -EACCES;
}

static int move_us(int dir)
{
    char caller[16];
    snprintf(caller, sizeof caller, "%d", (int)getppid());
    int result = hc_write_file_at(dir, "cgroup.procs", "0");
    if (result == 0 && getppid() > 1)
        result = hc_write_file_at(dir, "cgroup.procs", caller);
    return result == -ESRCH ? 0 : result;
}

/* Whether everybody in a group is another hotcell, which is about to step aside as we did. */
static bool has_only_hotcells(int dir)
{
    char text[65536], *save = NULL;
    if (hc_read_file_at(dir, "cgroup.procs", text, sizeof text) < 0)
        return false;
    for (char *pid = strtok_r(text, "\n", &save); pid; pid = strtok_r(NULL, "\n", &save)) {
        char path[64], comm[32];
        snprintf(path, sizeof path, "/proc/%.20s/comm", pid);
        if (hc_read_file_at(AT_FDCWD, path, comm, sizeof comm) > 0 && strncmp(comm, "hotcell", 7) != 0)
            return false;
    }
    return true;
}

/* Several that start at once in one group wait for each other, for a moment. */
static int hand_on_when_empty(int dir)
{
    int result = hand_on(dir);
    for (int tries = 0; result == -EBUSY && tries < 200 && has_only_hotcells(dir); tries++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        result = hand_on(dir);
    }
    return result;
}

/* Our own process and the caller that forked us are what fills a delegated group: step into a leaf below it, both, then
 * hand the controllers on. */
static int step_aside(struct cgroup_base *base, struct cgroup_keeper *keeper)
{
    int dir = base->dir[CGROUP_UNIFIED];
    if (mkdirat(dir, "caller", 0755) < 0)
        return -errno;
    hc_cleanup_fd int leaf = openat(dir, "caller", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (leaf < 0)
        return -errno;
    int result = move_us(leaf);
    if (result < 0)
        return result;
    keeper->stepped_aside = true;
    return hand_on_when_empty(keeper->parent[CGROUP_UNIFIED]);
}

static int open_v2(struct cgroup_base *base, struct cgroup_keeper *keeper, const struct hierarchy *found)
{
    bool crowded;
    int parent = choose_v2_parent(&found[CGROUP_UNIFIED], &crowded);
    if (parent < 0) {
        snprintf(base->why, sizeof base->why, "the control group %.150s is not ours to divide",
                 found[CGROUP_UNIFIED].own);
        return parent;
    }
    keeper->parent[CGROUP_UNIFIED] = parent;
    int result = make_base(base, keeper, CGROUP_UNIFIED);
    if (result == 0 && crowded)
        result = step_aside(base, keeper);
    if (result == 0)
        result = hc_write_file_at(base->dir[CGROUP_UNIFIED], "cgroup.subtree_control", "+memory +cpu +pids");
    if (result == 0 && keeper->owner != (uid_t)-1 &&
        fchownat(base->dir[CGROUP_UNIFIED], "cpu.weight", keeper->owner, keeper->group, 0) < 0)
        result = -errno;
    if (result < 0) {
        snprintf(base->why, sizeof base->why, "cannot make control groups in %.120s: %.40s%s",
                 found[CGROUP_UNIFIED].own, strerror(-result), crowded ? " (other processes are in it)" : "");
        return result;
    }
    base->mode = CGROUP_V2;
    base->controllers = CGROUP_HAS_ALL;
    return 0;
}

/* NULL when there is no memory. */
static char *join_path(const char *mount, const char *below)
{
    size_t size = strlen(mount) + strlen(below) + 1;
    char *path = malloc(size);
    if (path)
        snprintf(path, size, "%s%s", mount, strcmp(below, "/") == 0 ? "" : below);
    return path;
}

/* Version 1, and the version 2 leaf on a hybrid host, for which any place that we can write to will do: no controller
 * is involved. */
static void open_v1_parents(struct cgroup_keeper *keeper, const struct hierarchy *found)
{
    for (int slot = 0; slot < CGROUP_SLOTS; slot++) {
        if (!found[slot].found)
            continue;
        /* cpuacct only where nothing else counts CPU time, and it is a folder of its own. */
        if (slot == CGROUP_CPUACCT &&
            (keeper->parent[CGROUP_UNIFIED] >= 0 || strcmp(found[slot].mount, found[CGROUP_CPU].mount) == 0))
            continue;
        keeper->parent[slot] = open_group(&found[slot], found[slot].own);
        if (keeper->parent[slot] >= 0 && faccessat(keeper->parent[slot], ".", W_OK, AT_EACCESS) < 0)
            keeper->parent[slot] = hc_close(keeper->parent[slot]);
        keeper->place[slot] = join_path(found[slot].mount, found[slot].own);
    }
}

/* One part of version 1; what cannot be had is left out, with the reason in base->why. */
static int add_v1(struct cgroup_base *base, struct cgroup_keeper *keeper, int slot)
{
    static const uint32_t bits[CGROUP_SLOTS] = {0, CGROUP_HAS_MEMORY, CGROUP_HAS_CPU, CGROUP_HAS_PIDS, 0};
    int result = keeper->parent[slot] < 0 ? -EACCES : make_base(base, keeper, slot);
    if (result == 0) {
        base->controllers |= bits[slot];
        return 0;
    }
    if (keeper->parent[slot] >= 0 && bits[slot])
        snprintf(base->why, sizeof base->why, "cannot make a control group in the %s hierarchy: %s",
                 cgroup_slot_word(slot), strerror(-result));
    if (base->dir[slot] >= 0)
        unlinkat(keeper->parent[slot], keeper->name, AT_REMOVEDIR);
    base->dir[slot] = hc_close(base->dir[slot]);
    keeper->parent[slot] = hc_close(keeper->parent[slot]);
    return result;
}

/* The first part is enough to begin with: it carries the lock, and on a hybrid host it is the one to be born into. */
static int open_v1(struct cgroup_base *base, struct cgroup_keeper *keeper, const struct hierarchy *found)
{
    open_v1_parents(keeper, found);
    for (int slot = 0; slot < CGROUP_SLOTS; slot++) {
        if (!found[slot].found || add_v1(base, keeper, slot) < 0)
            continue;
        keeper->left = slot + 1;
        base->mode = base->dir[CGROUP_UNIFIED] >= 0 ? CGROUP_HYBRID : CGROUP_V1;
        return 0;
    }
    return -EACCES;
}

static int open_warden_leaf(struct cgroup_base *base, struct cgroup_keeper *keeper)
{
    int dir = base->dir[CGROUP_UNIFIED];
    if (dir < 0)
        return 0;
    if (mkdirat(dir, CGROUP_WARDEN, 0755) < 0)
        return -errno;
    keeper->warden = openat(dir, CGROUP_WARDEN, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (keeper->warden < 0)
        return -errno;
    return keeper->owner == (uid_t)-1 ? 0 : give(keeper->warden, CGROUP_UNIFIED, keeper->owner, keeper->group);
}

static void say_remedy(struct cgroup_base *base)
{
    if (base->controllers == CGROUP_HAS_ALL)
        return;
    if (base->why[0] == '\0')
        snprintf(base->why, sizeof base->why, "no%s%s%s controller",
                 base->controllers & CGROUP_HAS_MEMORY ? "" : " memory",
                 base->controllers & CGROUP_HAS_CPU ? "" : " cpu", base->controllers & CGROUP_HAS_PIDS ? "" : " pids");
    snprintf(base->remedy, sizeof base->remedy,
             geteuid() == 0 ? "mount the cgroup2 file system with the memory, cpu and pids controllers"
                            : "run it in a delegated group: systemd-run --user --scope -p Delegate=yes hotcell …");
}

int cgroup_base_open(struct cgroup_base *base, uid_t owner, gid_t group, struct cgroup_keeper **out, struct hc_err *err)
{
    cgroup_base_init(base);
    struct hierarchy *found = malloc(CGROUP_SLOTS * sizeof *found);
    struct cgroup_keeper *keeper = calloc(1, sizeof *keeper);
    if (!found || !keeper) {
        free(found);
        free(keeper);
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    }
    keeper->lock = keeper->warden = -1;
    keeper->left = CGROUP_SLOTS;
    keeper->owner = owner;
    keeper->group = group;
    for (int slot = 0; slot < CGROUP_SLOTS; slot++)
        keeper->parent[slot] = -1;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(keeper->name, sizeof keeper->name, CGROUP_BASE_PREFIX "%d-%llx", (int)getpid(),
             ((unsigned long long)now.tv_sec << 20 | (unsigned long long)now.tv_nsec >> 10) & 0xffffffffffULL);
    cgroup_find(found);

    int result = -ENOENT;
    bool v1 = found[CGROUP_MEMORY].found || found[CGROUP_CPU].found || found[CGROUP_PIDS].found;
    if (v1)
        result = open_v1(base, keeper, found);
    else if (found[CGROUP_UNIFIED].found)
        result = open_v2(base, keeper, found);
    else
        snprintf(base->why, sizeof base->why, "no control group file system is mounted");
    if (result == 0)
        result = open_warden_leaf(base, keeper);
    if (result < 0)
        say_remedy(base);
    free(found);
    if (result < 0) {
        char why[sizeof base->why], remedy[sizeof base->remedy];
        memcpy(why, base->why, sizeof why);
        memcpy(remedy, base->remedy, sizeof remedy);
        cgroup_base_close(base, keeper);
        keeper = NULL;
        memcpy(base->why, why, sizeof why);
        memcpy(base->remedy, remedy, sizeof remedy);
    }
    *out = keeper;
    return 0;
}

/* Made as its owner, so that the files in it are the owner's as well. Where that fails the warden makes its own. */
static void make_ready(struct cgroup_base *base, const struct cgroup_keeper *keeper)
{
    static const char name[] = CGROUP_FIRST_CELL;
    bool give_away = keeper->owner != (uid_t)-1;
    int failed = 0;
    if (give_away) {
        setfsgid(keeper->group);
        setfsuid(keeper->owner);
    }
    for (int slot = 0; slot < CGROUP_SLOTS; slot++)
        if (base->dir[slot] >= 0 && mkdirat(base->dir[slot], name, 0755) < 0)
            failed = errno;
    if (give_away) {
        setfsuid(0);
        setfsgid(0);
    }
    if (!failed)
        snprintf(base->ready, sizeof base->ready, "%s", name);
}

void cgroup_base_complete(struct cgroup_base *base, struct cgroup_keeper *keeper)
{
    for (int slot = keeper ? keeper->left : CGROUP_SLOTS; slot < CGROUP_SLOTS; slot++)
        (void)add_v1(base, keeper, slot); /* what is missing is said in base->why */
    if (!keeper || base->controllers == 0)
        base->mode = CGROUP_NONE;
    else
        make_ready(base, keeper);
    say_remedy(base);
}

void cgroup_base_clear_stale(const struct cgroup_keeper *keeper)
{
    int dirs[CGROUP_SLOTS];
    size_t count = 0;
    for (int slot = 0; keeper && slot < CGROUP_SLOTS; slot++)
        if (keeper->parent[slot] >= 0)
            dirs[count++] = keeper->parent[slot];
    if (count == 0 || flock(dirs[0], LOCK_EX) < 0)
        return;
    cgroup_clear_stale(dirs, count);
    flock(dirs[0], LOCK_UN);
}

void cgroup_base_empty(const struct cgroup_base *base, const struct cgroup_keeper *keeper)
{
    for (int slot = CGROUP_SLOTS - 1; keeper && slot >= 0; slot--) {
        if (keeper->parent[slot] < 0 || base->dir[slot] < 0 ||
            unlinkat(base->dir[slot], CGROUP_FIRST_CELL, AT_REMOVEDIR) < 0)
            continue;
        if (slot != CGROUP_UNIFIED)
            unlinkat(keeper->parent[slot], keeper->name, AT_REMOVEDIR);
    }
}

int cgroup_base_path(const struct cgroup_keeper *keeper, int slot, char *path, size_t size)
{
    if (!keeper || keeper->parent[slot] < 0)
        return -ENOENT;
    const char *place = keeper->place[slot];
    if (place)
        return (size_t)snprintf(path, size, "%s/%s", place, keeper->name) < size ? 0 : -ENAMETOOLONG;
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", keeper->parent[slot]);
    ssize_t length = readlink(link, path, size);
    if (length < 0)
        return -errno;
    if ((size_t)length + strlen(keeper->name) + 2 > size)
        return -ENAMETOOLONG;
    snprintf(path + length, size - (size_t)length, "%s%s", length > 1 ? "/" : "", keeper->name);
    return 0;
}

bool cgroup_base_is(const struct cgroup_keeper *keeper, int slot, int fd)
{
    struct stat here, there;
    return fstat(fd, &here) == 0 && fstatat(keeper->parent[slot], keeper->name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

int cgroup_warden_fd(const struct cgroup_keeper *keeper)
{
    return keeper ? keeper->warden : -1;
}

bool cgroup_base_moved(const struct cgroup_keeper *keeper)
{
    return keeper && keeper->stepped_aside;
}

/* A group that we stepped out of is entered again before its controllers can be taken back. */
static void step_back(struct cgroup_base *base, struct cgroup_keeper *keeper)
{
    int parent = keeper->parent[CGROUP_UNIFIED];
    hc_write_file_at(base->dir[CGROUP_UNIFIED], "cgroup.subtree_control", "-memory -cpu -pids");
    hc_write_file_at(parent, "cgroup.subtree_control", "-memory -cpu -pids");
    move_us(parent);
}

void cgroup_base_close(struct cgroup_base *base, struct cgroup_keeper *keeper)
{
    if (keeper) {
        hc_close(keeper->warden);
        if (keeper->stepped_aside)
            step_back(base, keeper);
        /* The hierarchy with the lock goes last: until then nobody takes the rest for stale. */
        for (int slot = CGROUP_SLOTS - 1; slot >= 0; slot--)
            if (keeper->parent[slot] >= 0)
                cgroup_clear_base(keeper->parent[slot], keeper->name);
        for (int slot = 0; slot < CGROUP_SLOTS; slot++) {
            hc_close(keeper->parent[slot]);
            free(keeper->place[slot]);
        }
        hc_close(keeper->lock);
        free(keeper);
    }
    for (int slot = 0; slot < CGROUP_SLOTS; slot++)
        hc_close(base->dir[slot]);
    cgroup_base_init(base);
}
