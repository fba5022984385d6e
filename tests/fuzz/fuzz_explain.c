/* Fuzz target: what a guest wrote, read by the patterns of a language. The first byte is the language, the second how
 * the program ended. Whatever was written, the diagnosis is a finished text, its place is in the program, and a
 * category is one of those that there are. */
#include "run/explain.h"
#include "run/fingerprint.h"
#include "run/language_diagnosis.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const NAMES[] = {"python", "bash", "c", "cpp",  "go",   "java", "javascript", "lua",
                                    "perl",   "php",  "r", "ruby", "rust", "sh",   "typescript"};
enum { LANGUAGES = sizeof NAMES / sizeof *NAMES };

/* Read once, from beside this file. */
static struct language *language_at(size_t index)
{
    static struct language *kept[LANGUAGES];
    char path[4096];
    struct hc_err err = {0};
    const char *root = getenv("HOTCELL_SOURCE");
    snprintf(path, sizeof path, "%s/languages/%s.toml", root != NULL ? root : HC_SOURCE_DIR, NAMES[index]);
    if (kept[index] == NULL && language_read(path, &kept[index], &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        abort();
    }
    return kept[index];
}

static void check(const struct diagnosis *d)
{
    if (d->category != NULL && diagnosis_category(d->category) == NULL)
        abort();
    if (memchr(d->message, '\0', sizeof d->message) == NULL || memchr(d->hint, '\0', sizeof d->hint) == NULL ||
        memchr(d->file, '\0', sizeof d->file) == NULL || memchr(d->source, '\0', sizeof d->source) == NULL)
        abort();
    for (size_t i = 0; i < PROOF_COUNT; i++)
        if (memchr(d->proof[i], '\0', sizeof d->proof[i]) == NULL)
            abort();
    if ((d->line > 0) != (d->file[0] != '\0') || (d->source[0] != '\0' && d->line == 0))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char program[] = "one\n  two(3)\n\nfour = chroot(\"/\")";
    static const int exits[] = {1, 2, 101, 127, 255, 3}, signals[] = {SIGABRT, SIGSEGV};
    if (size < 2)
        return 0;
    struct run_stage stage = {.name = "run", .compile = data[1] & 0x80, .facts = {.end = JOB_EXITED}};
    if (data[1] & 0x40)
        stage.facts.signal = signals[data[1] % 2];
    else
        stage.facts.exit_code = exits[data[1] % 6];
    stage_judge(&stage);
    struct language *language = language_at(data[0] % LANGUAGES);
    struct capture out, err;
    capture_init(&out, 64);
    capture_init(&err, 1 << 20);
    if (capture_add(&err, (const char *)data + 2, size - 2) < 0)
        return 0;
    const struct explain_file file = {language->file, program, strlen(program)};
    const struct explain_context context = {language, "/workspace", &file, 1};
    struct diagnosis diagnosis;
    struct code_shape shape;
    if (stage_diagnose(&stage, &out, &err, &diagnosis)) {
        stage_explain(&stage, &out, &err, &context, &diagnosis);
        diagnosis_fingerprint(&diagnosis, language->name);
        check(&diagnosis);
    }
    shape_begin(&shape);
    shape_add(&shape, (const char *)data, size);
    capture_release(&out);
    capture_release(&err);
    return 0;
}
