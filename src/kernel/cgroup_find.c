/* See cgroup_find.h. */
#include "kernel/cgroup_find.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>

enum { CGROUP2_MAGIC = 0x63677270, CGROUP1_MAGIC = 0x27e0eb };

/* Where systemd and the distributions mount them. Looking costs a few microseconds, and reading the list of all mounts
 * a hundred. False when nothing is there: then the list is read. */
static bool find_standard(struct hierarchy *found)
{
    static const struct {
        enum cgroup_slot slot;
        long magic;
        const char *path;
    } places[] = {
        {CGROUP_UNIFIED, CGROUP2_MAGIC, "/sys/fs/cgroup"},
        {CGROUP_UNIFIED, CGROUP2_MAGIC, "/sys/fs/cgroup/unified"},
        {CGROUP_MEMORY, CGROUP1_MAGIC, "/sys/fs/cgroup/memory"},
        {CGROUP_CPU, CGROUP1_MAGIC, "/sys/fs/cgroup/cpu"},
        {CGROUP_CPU, CGROUP1_MAGIC, "/sys/fs/cgroup/cpu,cpuacct"},
        {CGROUP_PIDS, CGROUP1_MAGIC, "/sys/fs/cgroup/pids"},
        {CGROUP_CPUACCT, CGROUP1_MAGIC, "/sys/fs/cgroup/cpuacct"},
        {CGROUP_CPUACCT, CGROUP1_MAGIC, "/sys/fs/cgroup/cpu,cpuacct"},
    };
    bool any = false;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct hierarchy *hierarchy = &found[places[i].slot];
        struct statfs fs;
        if (hierarchy->found || statfs(places[i].path, &fs) < 0 || (long)fs.f_type != places[i].magic)
            continue;
        hierarchy->found = any = true;
        snprintf(hierarchy->mount, sizeof hierarchy->mount, "%s", places[i].path);
        if (i == 0)
            break; /* version 2 alone */
    }
    return any;
}

/* One line of /proc/self/mountinfo: "36 35 0:31 /root /mount opts - type source superopts". */
static void note_mount(char *line, struct hierarchy *found)
{
    char *fields[6], *save = NULL;
    char *tail = strstr(line, " - ");
    if (!tail)
        return;
    *tail = '\0';
    char *type = strtok_r(tail + 3, " \n", &save);
    strtok_r(NULL, " \n", &save);
    char *super = strtok_r(NULL, "\n", &save);
    if (!type || !super || strncmp(type, "cgroup", 6) != 0)
        return;
    int count = 0;
    for (char *word = strtok_r(line, " ", &save); word && count < 6; word = strtok_r(NULL, " ", &save))
        fields[count++] = word;
    if (count < 5)
        return;
    static const char *const controllers[CGROUP_SLOTS] = {NULL, "memory", "cpu", "pids", "cpuacct"};
    for (int slot = 0; slot < CGROUP_SLOTS; slot++) {
        bool match = slot == CGROUP_UNIFIED && strcmp(type, "cgroup2") == 0;
        if (slot != CGROUP_UNIFIED && strcmp(type, "cgroup") == 0) {
            char options[256];
            snprintf(options, sizeof options, "%s", super);
            char *inner = NULL;
            for (char *word = strtok_r(options, ",", &inner); word; word = strtok_r(NULL, ",", &inner))
                match = match || strcmp(word, controllers[slot]) == 0;
        }
        if (!match || found[slot].found)
            continue;
        found[slot].found = true;
        snprintf(found[slot].mount, sizeof found[slot].mount, "%s", fields[4]);
    }
}

/* One line of /proc/self/cgroup: "4:memory:/path" or "0::/path". */
static void note_own(char *line, struct hierarchy *found)
{
    char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path)
        return;
    *path++ = '\0';
    controllers++;
    path[strcspn(path, "\n")] = '\0';
    static const char *const words[CGROUP_SLOTS] = {"", "memory", "cpu", "pids", "cpuacct"};
    for (int slot = 0; slot < CGROUP_SLOTS; slot++) {
        bool match = slot == CGROUP_UNIFIED && *controllers == '\0';
        if (slot != CGROUP_UNIFIED) {
            char list[256], *save = NULL;
            snprintf(list, sizeof list, "%s", controllers);
            for (char *word = strtok_r(list, ",", &save); word; word = strtok_r(NULL, ",", &save))
                match = match || strcmp(word, words[slot]) == 0;
        }
        if (match)
            snprintf(found[slot].own, sizeof found[slot].own, "%s", strstr(path, "/..") ? "/" : path);
    }
}

static void each_line(const char *path, void (*note)(char *, struct hierarchy *), struct hierarchy *found)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, file) > 0)
        note(line, found);
    free(line);
    fclose(file);
}

void cgroup_find(struct hierarchy *found)
{
    for (int slot = 0; slot < CGROUP_SLOTS; slot++) {
        found[slot].found = false;
        found[slot].mount[0] = found[slot].own[0] = '\0';
    }
    if (!find_standard(found))
        each_line("/proc/self/mountinfo", note_mount, found);
    each_line("/proc/self/cgroup", note_own, found);
}
