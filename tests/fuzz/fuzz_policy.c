/*
 * Feeds a path to the mount policy. An accepted target is absolute and clean, stays as it is when it is checked again,
 * and is not under what the cell is made of; a canonical host path under a forbidden one is never allowed.
 */
#include "base/fd.h"
#include "run/policy.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int holds)
{
    if (!holds)
        abort();
}

static void check_clean(const char *path)
{
    size_t length = strlen(path);
    check(length > 1 && length < 256 && path[0] == '/' && path[length - 1] != '/');
    check(!strstr(path, "//") && !strstr(path, "/./") && !strstr(path, "/../"));
    check(length < 3 || strcmp(path + length - 3, "/..") != 0);
    check(strncmp(path, "/proc/", 6) != 0 && strcmp(path, "/proc") != 0);
    check(strncmp(path, "/etc/", 5) != 0 && strcmp(path, "/etc") != 0);
}

static void check_host(const char *clean)
{
    char root[] = "/", *allowed[] = {root, NULL}, path[512], why[8192];
    struct config config = {.read_paths = {.item = allowed, .count = 1}};
    static const char *const forbidden[] = {"/proc", "/run/hotcell", "/root", "/etc/shadow"};
    for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++) {
        snprintf(path, sizeof path, "%s%s", forbidden[i], clean);
        check(policy_check(&config, path, false, why, sizeof why) != NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *path hc_cleanup_free = strndup((const char *)data, size);
    char canonical[256] = "untouched", again[256];
    struct hc_err err = {0};
    check(path != NULL);
    if (policy_check_target(path, canonical, sizeof canonical, &err) < 0) {
        check(err.class == HC_CLASS_REQUEST && strcmp(canonical, "untouched") == 0);
        return 0;
    }
    check_clean(canonical);
    check(policy_check_target(canonical, again, sizeof again, &err) == 0 && strcmp(canonical, again) == 0);
    check_host(canonical);
    return 0;
}
