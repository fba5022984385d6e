/*
 * The table of limits, and the only code that turns text or numbers into a limit.
 *
 * What always holds: a value that was accepted is finite and within its bounds. Several of these become kernel settings
 * in which 0 means "no limit" (tmpfs size and nr_inodes among them), so the low bound of each is above that; the one
 * limit that may be 0, cpu_time, means "none" by contract, and limits_resolve treats it as the largest value there is.
 */
#include "run/limits.h"
#include "base/size.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)
#define TIB(n) ((uint64_t)(n) << 40)
#define SECONDS(n) ((uint64_t)(n)*1000000)
#define HOURS(n) SECONDS((uint64_t)(n)*3600)

const struct limit_info limit_table[LIMIT_COUNT] = {
    [LIMIT_TIMEOUT] = {"timeout", LIMIT_KIND_DURATION, SECONDS(30), 1, HOURS(24), "wall-clock time of the program"},
    [LIMIT_CPU_TIME] = {"cpu_time", LIMIT_KIND_DURATION, 0, 0, HOURS(24),
                        "CPU time of all its processes together; 0 for none"},
    /* Less than 4 MiB does not hold the dynamic loader and the C library of an ordinary program. */
    [LIMIT_MEMORY] = {"memory", LIMIT_KIND_SIZE, MIB(512), MIB(4), TIB(16), "memory of all its processes together"},
    [LIMIT_SWAP] = {"swap", LIMIT_KIND_SIZE, 0, 0, TIB(16), "swap space on top of memory"},
    /* A hundredth of a CPU is the kernel's least quota: 1 ms in a period of 100 ms. */
    [LIMIT_CPUS] = {"cpus", LIMIT_KIND_MILLI, 1000, 10, 1024000, "CPUs, as a decimal: 0.5 is half of one"},
    [LIMIT_CPU_SHARES] = {"cpu_shares", LIMIT_KIND_NUMBER, 1024, 2, 262144,
                          "weight against other cells when CPUs are scarce; 1024 is ordinary"},
    [LIMIT_PIDS] = {"pids", LIMIT_KIND_NUMBER, 100, 1, 4194304, "processes and threads at one time"},
    /* Captured output is held in memory, two streams for each run. */
    [LIMIT_OUTPUT] = {"output", LIMIT_KIND_SIZE, MIB(1), 1, GIB(1), "bytes of output kept, of each stream"},
    [LIMIT_DISK] = {"disk", LIMIT_KIND_SIZE, MIB(100), KIB(64), TIB(1),
                    "bytes in /workspace, /tmp and /dev/shm together"},
    /* A file costs about 1 KiB of kernel memory that the disk limit does not see, even when it is empty. 16384 of
     * them are 16 MiB, and room for an unpacked source tree of some size. */
    [LIMIT_INODES] = {"inodes", LIMIT_KIND_NUMBER, 16384, 64, 16777216, "files and folders that it may make"},
    /* The loader needs a few besides the three streams; the high bound is the kernel's usual fs.nr_open. */
    [LIMIT_FILES_OPEN] = {"files_open", LIMIT_KIND_NUMBER, 256, 8, 1048576, "open files of one process"},
};

int limit_find(const char *name)
{
    for (int id = 0; id < LIMIT_COUNT; id++)
        if (strcmp(limit_table[id].name, name) == 0)
            return id;
    return -1;
}

static const char *example_of(enum limit_kind kind)
{
    switch (kind) {
    case LIMIT_KIND_DURATION:
        return "a time in seconds, or such as 500ms, 30s or 2m";
    case LIMIT_KIND_SIZE:
        return "a number of bytes, or such as 64k, 512m or 1g";
    case LIMIT_KIND_MILLI:
        return "a number such as 0.5 or 2";
    case LIMIT_KIND_NUMBER:
        return "a whole number";
    }
    return "a number";
}

static int fail_field(enum limit_id id, struct hc_err *err)
{
    char low[32], high[32];

    hc_err_field(err, "limits.%s", limit_table[id].name);
    return hc_err_remedy(err, "give %s, from %s to %s", example_of(limit_table[id].kind),
                         limit_format(id, limit_table[id].low, low, sizeof(low)),
                         limit_format(id, limit_table[id].high, high, sizeof(high)));
}

static int check_bounds(enum limit_id id, uint64_t value, struct hc_err *err)
{
    const struct limit_info *info = &limit_table[id];
    char given[32], bound[32];

    if (value >= info->low && value <= info->high)
        return 0;
    bool small = value < info->low;
    if (small && info->kind == LIMIT_KIND_DURATION) {
        hc_fail(err, HC_CLASS_REQUEST, ERANGE, "%s must be more than 0", info->name);
    } else {
        hc_fail(err, HC_CLASS_REQUEST, ERANGE, "%s of %s is %s than what is accepted, which is %s", info->name,
                limit_format(id, value, given, sizeof(given)), small ? "less" : "more",
                limit_format(id, small ? info->low : info->high, bound, sizeof(bound)));
    }
    fail_field(id, err);
    return -ERANGE;
}

int limit_parse(enum limit_id id, const char *text, uint64_t *value, struct hc_err *err)
{
    const struct limit_info *info = &limit_table[id];
    uint64_t parsed = 0;
    double decimal = 0;
    int status = -EINVAL;

    switch (info->kind) {
    case LIMIT_KIND_DURATION:
        status = hc_parse_duration(text, &parsed, err);
        break;
    case LIMIT_KIND_SIZE:
        status = hc_parse_size(text, &parsed, err);
        break;
    case LIMIT_KIND_NUMBER:
        status = hc_parse_count(text, 0, UINT64_MAX, &parsed, err);
        break;
    case LIMIT_KIND_MILLI:
        status = hc_parse_decimal(text, 0, 1e9, &decimal, err);
        parsed = status < 0 ? 0 : (uint64_t)(decimal * 1000 + 0.5);
        break;
    }
    if (status < 0) {
        hc_err_context(err, "%s", info->name);
        fail_field(id, err);
        return status;
    }
    status = check_bounds(id, parsed, err);
    if (status == 0)
        *value = parsed;
    return status;
}

int limit_from_number(enum limit_id id, double number, uint64_t *value, struct hc_err *err)
{
    static const double scale[] = {
        [LIMIT_KIND_DURATION] = 1e6,
        [LIMIT_KIND_SIZE] = 1,
        [LIMIT_KIND_MILLI] = 1000,
        [LIMIT_KIND_NUMBER] = 1,
    };
    const struct limit_info *info = &limit_table[id];
    double scaled = number * scale[info->kind];
    bool whole = info->kind == LIMIT_KIND_SIZE || info->kind == LIMIT_KIND_NUMBER;

    /* Every high bound is far below 2^53, so the comparisons are exact; NaN fails all of them. */
    if (!(scaled >= 0 && scaled <= (double)info->high) || (whole && scaled != (double)(uint64_t)scaled)) {
        hc_fail(err, HC_CLASS_REQUEST, ERANGE, "%s of %g is not accepted", info->name, number);
        fail_field(id, err);
        return -ERANGE;
    }
    uint64_t rounded = (uint64_t)(scaled + 0.5);
    int status = check_bounds(id, rounded, err);
    if (status == 0)
        *value = rounded;
    return status;
}

const char *limit_format(enum limit_id id, uint64_t value, char *text, size_t size)
{
    switch (limit_table[id].kind) {
    case LIMIT_KIND_DURATION:
        if (value == 0 && limit_table[id].low == 0) {
            snprintf(text, size, "none");
            return text;
        }
        return hc_format_duration(value, text, size);
    case LIMIT_KIND_SIZE:
        return hc_format_size(value, text, size);
    case LIMIT_KIND_MILLI:
        snprintf(text, size, "%" PRIu64 ".%03u", value / 1000, (unsigned)(value % 1000));
        for (size_t end = strlen(text); end > 0 && (text[end - 1] == '0' || text[end - 1] == '.'); end--) {
            bool point = text[end - 1] == '.';
            text[end - 1] = '\0';
            if (point)
                break;
        }
        return text;
    case LIMIT_KIND_NUMBER:
        snprintf(text, size, "%" PRIu64, value);
        return text;
    }
    return text;
}

const char *limit_option(enum limit_id id, char *text, size_t size)
{
    snprintf(text, size, "--%s", limit_table[id].name);
    for (char *at = text; *at != '\0'; at++)
        if (*at == '_')
            *at = '-';
    return text;
}

/* cpu_time 0 is "none": larger than any other. */
static uint64_t rank(enum limit_id id, uint64_t value)
{
    return id == LIMIT_CPU_TIME && value == 0 ? UINT64_MAX : value;
}

int limits_resolve(const struct limits *asked, const struct limits *defaults, const struct limits *ceilings,
                   struct limits *out, struct hc_err *err)
{
    struct limits resolved = {0};

    for (int id = 0; id < LIMIT_COUNT; id++) {
        bool was_asked = asked && asked->set[id];
        bool has_default = defaults && defaults->set[id];
        uint64_t value = was_asked ? asked->value[id] : has_default ? defaults->value[id] : limit_table[id].initial;

        if (ceilings && ceilings->set[id] && rank(id, value) > rank(id, ceilings->value[id])) {
            if (was_asked) {
                char given[32], most[32];
                hc_fail(err, HC_CLASS_REQUEST, EPERM, "%s of %s is over the ceiling of %s that is configured here",
                        limit_table[id].name, limit_format(id, value, given, sizeof(given)),
                        limit_format(id, ceilings->value[id], most, sizeof(most)));
                hc_err_field(err, "limits.%s", limit_table[id].name);
                hc_err_remedy(err, "ask for %s or less, or raise ceilings.%s in the configuration", most,
                              limit_table[id].name);
                return -EPERM;
            }
            value = ceilings->value[id];
        }
        resolved.value[id] = value;
        resolved.set[id] = was_asked || has_default;
    }
    *out = resolved;
    return 0;
}
