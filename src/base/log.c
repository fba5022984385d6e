/*
 * The log of the programs, on stderr. What always holds: a line is written with one write(2), so that lines of several
 * processes that share stderr do not mix; control bytes are shown as '?' (escaped in JSON), so that no logged value can
 * forge a line or drive a terminal.
 */
#include "base/log.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
    enum hc_log_level level;
    bool json;
} settings = {.level = HC_LOG_WARNING};

static const char *const LEVEL_WORDS[] = {
    [HC_LOG_ERROR] = "error",
    [HC_LOG_WARNING] = "warning",
    [HC_LOG_INFO] = "info",
    [HC_LOG_DEBUG] = "debug",
};

struct line {
    char text[2048];
    size_t used;
};

void hc_log_set_level(enum hc_log_level level)
{
    settings.level = level;
}

bool hc_log_set_level_word(const char *word)
{
    for (size_t i = 0; i < sizeof LEVEL_WORDS / sizeof *LEVEL_WORDS; i++)
        if (strcmp(LEVEL_WORDS[i], word) == 0) {
            settings.level = (enum hc_log_level)i;
            return true;
        }
    return false;
}

void hc_log_set_json(bool json)
{
    settings.json = json;
}

void hc_log_configure(const char *level, const char *format)
{
    hc_log_set_level_word(level);
    settings.json = strcmp(format, "json") == 0 || (strcmp(format, "auto") == 0 && !isatty(STDERR_FILENO));
}

/* Room is left for the end of a JSON object and the newline. */
static void add_bytes(struct line *line, const char *text, size_t length)
{
    size_t room = sizeof line->text - 8 - line->used;
    if (length > room)
        length = room;
    memcpy(line->text + line->used, text, length);
    line->used += length;
}

static void add(struct line *line, const char *text)
{
    add_bytes(line, text, strlen(text));
}

static void add_plain(struct line *line, const char *text)
{
    for (; *text; text++) {
        char byte[2] = {(unsigned char)*text < 0x20 || *text == 0x7F ? '?' : *text};
        add(line, byte);
    }
}

/* How much of a text, of so many bytes at the most, stands in JSON as it is. */
static size_t plain_length(const char *text, size_t most)
{
    size_t length = 0;
    while (length < most && (unsigned char)text[length] >= 0x20 && !strchr("\"\\\x7F", text[length]))
        length++;
    return length;
}

static void add_escape(struct line *line, unsigned char byte)
{
    char escaped[8];
    snprintf(escaped, sizeof escaped, byte == '"' || byte == '\\' ? "\\%c" : "\\u%04x", byte);
    add(line, escaped);
}

/* Bytes that are not ASCII go as they are: a value that is not UTF-8 does not get here from our own code, and one that
 * does spoils its own line alone. */
static void add_quoted(struct line *line, const char *text)
{
    add(line, "\"");
    while (*text && line->used + 24 < sizeof line->text) {
        size_t plain = plain_length(text, sizeof line->text - 24 - line->used);
        add_bytes(line, text, plain);
        text += plain;
        if (plain == 0)
            add_escape(line, (unsigned char)*text++);
    }
    add(line, "\"");
}

static void add_number(struct line *line, double number)
{
    char text[40];
    snprintf(text, sizeof text, "%.15g", number);
    add(line, text);
}

static void begin(struct line *line, enum hc_log_level level, const char *message)
{
    line->used = 0;
    if (!settings.json) {
        add(line, "hotcell: ");
        add(line, LEVEL_WORDS[level]);
        add(line, ": ");
        add_plain(line, message);
        return;
    }
    struct timespec now;
    struct tm parts;
    char at[64];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    size_t length = strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(at + length, sizeof at - length, ".%03ldZ", now.tv_nsec / 1000000);
    add(line, "{\"at\":");
    add_quoted(line, at);
    add(line, ",\"level\":");
    add_quoted(line, LEVEL_WORDS[level]);
    add(line, ",\"message\":");
    add_quoted(line, message);
}

static void finish(struct line *line)
{
    if (settings.json)
        line->text[line->used++] = '}';
    line->text[line->used++] = '\n';
    /* There is nowhere to report that the log itself cannot be written. */
    ssize_t written = write(STDERR_FILENO, line->text, line->used);
    (void)written;
}

void hc_log(enum hc_log_level level, const char *format, ...)
{
    if (level > settings.level)
        return;
    int saved = errno;
    char message[1024];
    struct line line;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    begin(&line, level, message);
    finish(&line);
    errno = saved;
}

static bool needs_quotes(const char *text)
{
    return text[0] == '\0' || strpbrk(text, " \"=\\") != NULL;
}

void hc_log_event(enum hc_log_level level, const char *message, const struct hc_log_field *fields, size_t count)
{
    if (level > settings.level)
        return;
    int saved = errno;
    struct line line;
    begin(&line, level, message);
    for (size_t i = 0; i < count; i++) {
        add(&line, settings.json ? "," : " ");
        if (settings.json)
            add_quoted(&line, fields[i].name);
        else
            add(&line, fields[i].name);
        add(&line, settings.json ? ":" : "=");
        if (!fields[i].text)
            add_number(&line, fields[i].number);
        else if (settings.json || needs_quotes(fields[i].text))
            add_quoted(&line, fields[i].text);
        else
            add_plain(&line, fields[i].text);
    }
    finish(&line);
    errno = saved;
}
