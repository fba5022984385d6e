/*
 * The log of the programs, on stderr. What always holds: a line is written with one write(2), so that lines of several
 * processes that share stderr do not mix; control bytes are shown as '?', so that no logged value can forge a line or
 * drive a terminal.
 */
#include "base/log.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static enum hc_log_level log_level = HC_LOG_WARNING;

static const char *const LEVEL_WORDS[] = {
    [HC_LOG_ERROR] = "error",
    [HC_LOG_WARNING] = "warning",
    [HC_LOG_INFO] = "info",
    [HC_LOG_DEBUG] = "debug",
};

void hc_log_set_level(enum hc_log_level level)
{
    log_level = level;
}

void hc_log(enum hc_log_level level, const char *format, ...)
{
    if (level > log_level)
        return;
    int saved = errno;
    char line[1024];
    size_t room = sizeof line - 1; /* one byte is kept for the newline */
    size_t used = (size_t)snprintf(line, room, "hotcell: %s: ", LEVEL_WORDS[level]);
    va_list arguments;
    va_start(arguments, format);
    int added = vsnprintf(line + used, room - used, format, arguments);
    va_end(arguments);
    if (added > 0)
        used += (size_t)added < room - used ? (size_t)added : room - used - 1;
    for (size_t i = 0; i < used; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7F)
            line[i] = '?';
    line[used++] = '\n';
    /* There is nowhere to report that the log itself cannot be written. */
    ssize_t written = write(STDERR_FILENO, line, used);
    (void)written;
    errno = saved;
}
