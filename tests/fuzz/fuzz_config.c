/*
 * Feeds bytes to the configuration as a --config file. A refusal is the request's fault and names the file; what is
 * accepted has every limit within its bounds, absolute paths, and can be shown as JSON.
 */
#include "base/fd.h"
#include "run/config.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void check(int holds)
{
    if (!holds)
        abort();
}

static void check_limits(const struct limits *limits)
{
    for (int id = 0; id < LIMIT_COUNT; id++)
        if (limits->set[id])
            check(limits->value[id] >= limit_table[id].low && limits->value[id] <= limit_table[id].high);
}

static void check_paths(const struct words *paths)
{
    for (size_t i = 0; i < paths->count; i++)
        check(paths->item[i][0] == '/');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    setenv("HOTCELL_SYSCONFDIR", "/nonexistent", 1);
    setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
    setenv("HOME", "/nonexistent", 1);
    int fd hc_cleanup_fd = hc_memfd_open("fuzz");
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    check(fd >= 0 && fchmod(fd, 0600) == 0 && hc_write_all(fd, data, size) == 0);

    struct hc_err err = {0};
    struct config *config = NULL;
    if (config_load(path, &config, &err) < 0) {
        check(config == NULL && err.code > 0 && err.class == HC_CLASS_REQUEST);
        check(strncmp(err.message, path, strlen(path)) == 0);
        return 0;
    }
    check_limits(&config->defaults);
    check_limits(&config->ceilings);
    check_paths(&config->read_paths);
    check_paths(&config->write_paths);
    check_paths(&config->forbidden_paths);
    check_paths(&config->language_paths);
    check(config->work_dir[0] == '/' && strlen(config->work_dir) < 256);
    check(config->uid_base == 0 || config->uid_base + config->uid_count < UINT32_MAX);
    char *shown hc_cleanup_free = config_to_json(config);
    check(shown != NULL);
    config_free(config);
    return 0;
}
