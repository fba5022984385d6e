/* See remote.h. */
#include "base/fd.h"
#include "base/remedy.h"
#include "base/signame.h"
#include "base/size.h"
#include "cli/remote.h"
#include "text/base64.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the summary ---- */

static uint64_t number(struct hc_peek object, const char *key)
{
    double value = hc_peek_number(hc_peek_member(object, key));

    return value > 0 ? (uint64_t)value : 0;
}

static void summarize_truncation(struct hc_peek result, char *text, size_t size)
{
    const struct hc_peek truncated = hc_peek_member(result, "truncated"), stages = hc_peek_member(result, "stages");
    uint64_t missing = number(truncated, "stdout") + number(truncated, "stderr");
    struct hc_peek last = {0};
    char limit[32];

    while (hc_peek_next(stages, &last)) {
        struct hc_peek next = last;
        if (!hc_peek_next(stages, &next))
            break;
    }
    if (missing > 0)
        snprintf(text, size, "output: %" PRIu64 " byte%s over the %s limit %s left out; raise --output", missing,
                 missing == 1 ? "" : "s",
                 hc_format_size(number(hc_peek_member(last, "limits"), "output"), limit, sizeof limit),
                 missing == 1 ? "was" : "were");
    size_t length = strlen(text);
    if (number(truncated, "files") > 0)
        snprintf(text + length, size - length,
                 "%scollect: %" PRIu64 " files over the first %zu were left out; collect fewer", length ? "; " : "",
                 number(truncated, "files"), hc_peek_count(hc_peek_member(result, "files")));
}

/* What the program itself wrote about its end is above that line already: then the line says how it ended, as it does
 * of a run on this machine. False: the diagnosis knows more. */
static bool summarize_end(struct hc_peek result, struct hc_peek diagnosis, char *text, size_t size)
{
    const struct hc_peek status = hc_peek_member(result, "status"), evidence = hc_peek_member(diagnosis, "evidence");
    bool compile = hc_peek_is(status, "compile_error"), told = hc_peek_is_string(hc_peek_member(evidence, "output"));
    int64_t code = 0, signal = 0, ignored;

    if ((!compile && !hc_peek_is(status, "error")) || hc_peek_integer(hc_peek_member(evidence, "errno"), &ignored) == 0)
        return false;
    hc_peek_integer(hc_peek_member(result, "exit_code"), &code);
    if (hc_peek_integer(hc_peek_member(result, "signal"), &signal) < 0) {
        snprintf(text, size, compile ? "compile failed with exit code %d" : "exited with status %d", (int)code);
        return true;
    }
    if ((!told && !hc_peek_is(hc_peek_member(diagnosis, "category"), "signal")) || !hc_signal_name((int)signal))
        return false;
    snprintf(text, size, "ended by signal %d (%s, %s)", (int)signal, hc_signal_name((int)signal),
             hc_signal_meaning((int)signal));
    return true;
}

const char *remote_summary(struct hc_peek result, char *text, size_t size)
{
    const struct hc_peek diagnosis = hc_peek_member(result, "diagnosis");
    char message[512], hint[512], typed[512], category[32];
    int64_t code = 0;

    text[0] = '\0';
    if (hc_peek_is(hc_peek_member(result, "status"), "completed")) {
        summarize_truncation(result, text, size);
    } else if (!hc_peek_is_object(diagnosis)) {
        hc_peek_integer(hc_peek_member(result, "exit_code"), &code);
        snprintf(text, size, "exited with status %d", (int)code);
    } else {
        hc_peek_copy(hc_peek_member(diagnosis, "hint"), hint, sizeof hint);
        hc_peek_copy(hc_peek_member(diagnosis, "category"), category, sizeof category);
        if (!summarize_end(result, diagnosis, message, sizeof message))
            hc_peek_copy(hc_peek_member(diagnosis, "message"), message, sizeof message);
        else if (!hc_remedy_is_around(category, hint))
            hint[0] = '\0';
        snprintf(text, size, "%.240s%s%s", message, hint[0] ? "; " : "", hc_remedy_typed(hint, typed, sizeof typed));
        size_t length = strlen(text);
        hint[0] = '\0';
        if (!hc_peek_is(hc_peek_member(result, "status"), "output_limit"))
            summarize_truncation(result, hint, sizeof hint);
        if (hint[0])
            snprintf(text + length, size - length, "; %s", hint);
    }
    return text;
}

/* ---- files ---- */

void remote_files_free(struct run_file *files, size_t count)
{
    for (size_t i = 0; files && i < count; i++) {
        free((char *)files[i].path);
        free((char *)files[i].content);
    }
    free(files);
}

static int decode(struct hc_peek value, const char **out, size_t *length)
{
    hc_cleanup_free char *encoded = NULL;
    char *bytes = NULL;
    size_t size = 0;

    int status = hc_peek_string(value, &encoded, &size);
    if (status == 0)
        status = hc_base64_decode(encoded, size, &bytes, length);
    *out = bytes;
    return status;
}

static int read_file(struct hc_peek object, struct run_file *file)
{
    const struct hc_peek path = hc_peek_member(object, "path");
    char *text = NULL;
    size_t length = 0;

    file->type = hc_peek_is(hc_peek_member(object, "type"), "symlink")  ? "symlink"
                 : hc_peek_is_true(hc_peek_member(object, "truncated")) ? "truncated"
                                                                        : "file";
    int status = hc_peek_is_string(path) ? hc_peek_string(path, &text, &length)
                                         : decode(hc_peek_member(object, "path_base64"), &file->path, &length);
    if (text)
        file->path = text;
    if (status < 0 || !file->path || strlen(file->path) != length)
        return status < 0 ? status : -EPROTO;
    return decode(hc_peek_member(object, "base64"), &file->content, &file->length);
}

int remote_files(struct hc_peek result, struct run_file **files, size_t *count)
{
    const struct hc_peek list = hc_peek_member(result, "files");
    struct hc_peek item = {0};
    size_t known = hc_peek_count(list), index = 0;
    struct run_file *found = calloc(known + 1, sizeof *found);
    int status = found ? 0 : -ENOMEM;

    while (status == 0 && hc_peek_next(list, &item))
        status = read_file(item, &found[index++]);
    if (status < 0) {
        remote_files_free(found, known);
        return status;
    }
    *files = found;
    *count = known;
    return 0;
}
