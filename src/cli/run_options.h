/* Rows of options that more than one verb has, because more than one makes a request of the same kind. */
#ifndef HC_CLI_RUN_OPTIONS_H
#define HC_CLI_RUN_OPTIONS_H

#include "cli/run.h"

/* clang-format off */
/* What a cell may use, whether it is a run's or a sandbox's. */
#define RUN_ROWS_LIMITS                                                                                                \
    {RUN_FIELD, 0, "memory", "SIZE", false, "limits.memory", "memory of all its processes and files (default 512m)"},  \
    {RUN_FIELD, 0, "swap", "SIZE", false, "limits.swap", "swap on top of the memory (default 0)"},                     \
    {RUN_FIELD, 0, "cpus", "NUMBER", false, "limits.cpus", "how many CPUs, such as 0.5 (default 1.0)"},                \
    {RUN_FIELD, 0, "cpu-shares", "NUMBER", false, "limits.cpu_shares",                                                 \
     "its share when CPUs are scarce (default 1024)"},                                                                 \
    {RUN_FIELD, 0, "pids", "NUMBER", false, "limits.pids", "processes and threads at one time (default 100)"},         \
    {RUN_FIELD, 0, "output", "SIZE", false, "limits.output", "bytes of stdout, and of stderr (default 1m)"},           \
    {RUN_FIELD, 0, "disk", "SIZE", false, "limits.disk", "bytes in all the files it writes (default 100m)"},           \
    {RUN_FIELD, 0, "inodes", "NUMBER", false, "limits.inodes", "files and folders it may make (default 16384)"},       \
    {RUN_FIELD, 0, "files-open", "NUMBER", false, "limits.files_open",                                                 \
     "files each process may have open (default 256)"}
#define RUN_HEADING(text) {OPTION_HEADING, 0, NULL, NULL, false, NULL, text}
/* clang-format on */

#endif
