/*
 * Messages. Their text may hold names that a guest or a stranger's folder chose, so no control character reaches a
 * terminal from here, and JSON is valid whatever the bytes were.
 */
#include "cli/message.h"

#include "base/buf.h"
#include "base/fd.h"
#include "cli/stream.h"
#include "cli/table.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MESSAGE_CEILING = 64 * 1024 };

/* API.md's stable words for what went wrong, by whose fault it is. */
static const char *code_word(const char *class)
{
    static const struct {
        const char *class, *code;
    } words[] = {{"request", "invalid_request"}, {"host", "unsupported_host"}, {"program", "program_error"}};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i].class, class) == 0)
            return words[i].code;
    return "internal";
}

/* The length of the UTF-8 sequence at `text`, or 0 when it is not one. */
static size_t utf8_length(const unsigned char *text)
{
    size_t length = text[0] < 0x80   ? 1
                    : text[0] < 0xc2 ? 0
                    : text[0] < 0xe0 ? 2
                    : text[0] < 0xf0 ? 3
                    : text[0] < 0xf5 ? 4
                                     : 0;

    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
        (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f))
        return 0;
    return length;
}

static void add_json_string(struct hc_buf *buf, const char *text)
{
    const unsigned char *at = (const unsigned char *)text;

    hc_buf_add_str(buf, "\"");
    while (*at) {
        size_t length = utf8_length(at);
        if (length == 0)
            hc_buf_add_str(buf, "\\ufffd");
        else if (*at == '"' || *at == '\\')
            hc_buf_printf(buf, "\\%c", *at);
        else if (*at < 0x20)
            hc_buf_printf(buf, "\\u%04x", *at);
        else
            hc_buf_add(buf, at, length);
        at += length ? length : 1;
    }
    hc_buf_add_str(buf, "\"");
}

static void print_json(const char *code, const char *message, const char *field, const char *remedy)
{
    struct hc_buf buf = HC_BUF_INIT(MESSAGE_CEILING);
    const char *const pairs[][2] = {{"code", code}, {"message", message}, {"field", field}, {"remedy", remedy}};

    hc_buf_add_str(&buf, "{\"error\":{");
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        hc_buf_printf(&buf, "%s\"%s\":", i ? "," : "", pairs[i][0]);
        if (pairs[i][1][0])
            add_json_string(&buf, pairs[i][1]);
        else
            hc_buf_add_str(&buf, "null");
    }
    hc_buf_add_str(&buf, "}}\n");
    if (hc_buf_status(&buf) == 0)
        stream_write(STDOUT_FILENO, buf.data, buf.length);
    hc_buf_release(&buf);
}

/* One write for each message: lines of two programs on one terminal do not mix. */
static void print_text(const char *message, const char *remedy)
{
    struct hc_buf buf = HC_BUF_INIT(MESSAGE_CEILING);

    hc_buf_add_str(&buf, "hotcell: ");
    table_add_printable(&buf, message);
    hc_buf_add_str(&buf, "\n");
    if (remedy[0]) {
        hc_buf_add_str(&buf, "         ");
        table_add_printable(&buf, remedy);
        hc_buf_add_str(&buf, "\n");
    }
    if (hc_buf_status(&buf) == 0)
        stream_write(STDERR_FILENO, buf.data, buf.length);
    hc_buf_release(&buf);
}

/* A person typed --cpu-time, not limits.cpu_time or cpu_time: the option takes the place of the name. A message that
 * does not begin with the name is about something else, such as a line of a configuration file. */
static void with_option(const char *field, const char *message, char *text, size_t size)
{
    const char *const prefix = "limits.";
    char option[64];

    bool is_limit = strncmp(field, prefix, strlen(prefix)) == 0 && !strstr(message, "--");
    const char *name = is_limit ? field + strlen(prefix) : field;
    const char *rest = strncmp(message, prefix, strlen(prefix)) == 0 ? message + strlen(prefix) : message;
    if (!is_limit || strncmp(rest, name, strlen(name)) != 0) {
        snprintf(text, size, "%s", message);
        return;
    }
    message = rest;
    if (message[strlen(name)] == ':')
        message += strlen(name) + strspn(message + strlen(name), ": ");
    snprintf(option, sizeof option, "%s", name);
    for (char *at = option; *at; at++)
        if (*at == '_')
            *at = '-';
    snprintf(text, size, "--%s: %s", option, message);
}

static void print_error(const struct cli *cli, const char *code, const char *message, const char *field,
                        const char *remedy)
{
    char text[1024];

    if (cli->json) {
        print_json(code, message, field, remedy);
        return;
    }
    with_option(field, message, text, sizeof text);
    print_text(text, remedy);
}

int message_problem(const struct cli *cli, const struct hc_err *err, const char *code)
{
    const struct hc_class_info *info = hc_class_info(err->class);

    print_error(cli, code[0] ? code : code_word(info->word), err->message, err->field, err->remedy);
    return info->exit_code;
}

int message_error(const struct cli *cli, const struct hc_err *err)
{
    return message_problem(cli, err, "");
}

int message_adopt(hc_error *error, struct hc_err *err)
{
    static const enum hc_class classes[] = {HC_CLASS_PROGRAM, HC_CLASS_REQUEST, HC_CLASS_HOST};
    enum hc_class class = HC_CLASS_OURS;

    if (!error)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (strcmp(hc_error_class(error), hc_class_info(classes[i])->word) == 0)
            class = classes[i];
    hc_fail(err, class, EINVAL, "%s", hc_error_message(error));
    hc_err_field(err, "%s", hc_error_field(error));
    hc_err_remedy(err, "%s", hc_error_remedy(error));
    hc_error_free(error);
    return -EINVAL;
}

int message_library(const struct cli *cli, hc_error *error)
{
    struct hc_err err = {0};

    message_adopt(error, &err);
    return message_error(cli, &err);
}

int message_no_memory(const struct cli *cli)
{
    print_error(cli, "internal", "out of memory", "", "");
    return EXIT_OURS;
}

int message_cannot_write(int status)
{
    message_note("cannot write to stdout: %s", strerror(-status));
    return EXIT_OURS;
}

void message_note(const char *format, ...)
{
    char text[1024];
    va_list list;

    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    print_text(text, "");
}

void message_summary(const char *summary)
{
    struct hc_buf buf = HC_BUF_INIT(MESSAGE_CEILING);
    size_t length = strcspn(summary, ":;");
    hc_cleanup_free char *word = table_colour(STDERR_FILENO) ? strndup(summary, length) : NULL;

    hc_buf_add_str(&buf, "hotcell: ");
    if (word) {
        hc_buf_add_str(&buf, "\033[31m");
        table_add_printable(&buf, word);
        hc_buf_add_str(&buf, "\033[0m");
        summary += length;
    }
    table_add_printable(&buf, summary);
    hc_buf_add_str(&buf, "\n");
    if (hc_buf_status(&buf) == 0)
        stream_write(STDERR_FILENO, buf.data, buf.length);
    hc_buf_release(&buf);
}
