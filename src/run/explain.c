/*
 * See explain.h. Three questions, one after another, each answered by rules that are tried in the order in which the
 * language's file has them:
 *
 *   errors   which line says what failed? From the last line up (a compiler's: from the first down), the first line on
 *            which a rule holds with all its conditions: exit code, signal, the line above, being the last.
 *   places   where? The nearest line that names a file of the program itself, else the nearest at all.
 *   causes   why? The first that is found in "TYPE: MESSAGE".
 */
#include "run/explain.h"

#include "run/denied.h"
#include "run/explain_lines.h"
#include "run/explain_place.h"
#include "run/fingerprint.h"
#include "run/language_diagnosis.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct search {
    const struct run_stage *stage;
    const struct explain_context *context;
    const struct language_diagnosis *language;
    struct lines lines;
    size_t at; /* the line of the error */
    struct diagnosis *found;
};

/* What a rule was found in. */
struct match {
    const char *text, *above;
    regmatch_t group[RULE_GROUPS], above_group[RULE_GROUPS];
};

static bool is_blank(const char *line)
{
    return line[strspn(line, " \t")] == '\0';
}

/* ---- templates ---- */

static size_t put(char *out, size_t size, size_t at, const char *text, size_t length)
{
    length = length < size - 1 - at ? length : size - 1 - at;
    memcpy(out + at, text, length);
    return at + length;
}

static void expand(const char *template, const struct match *match, char *out, size_t size)
{
    size_t at = 0;
    while (template != NULL && *template != '\0') {
        bool above = template[0] == '{' && template[1] == 'a';
        const char *digit = template + 1 + above;
        if (template[0] == '{' && *digit >= '1' && *digit <= '9' && digit[1] == '}') {
            const regmatch_t *group = above ? &match->above_group[*digit - '0'] : &match->group[*digit - '0'];
            const char *text = above ? match->above : match->text;
            if (group->rm_so >= 0)
                at = put(out, size, at, text + group->rm_so, (size_t)(group->rm_eo - group->rm_so));
            template = digit + 2;
        } else {
            at = put(out, size, at, template, 1);
            template ++;
        }
    }
    out[at] = '\0';
}

#define EXPAND(rule, which, match, out)                                                                                \
    do {                                                                                                               \
        if ((rule)->field[which] != NULL)                                                                              \
            expand((rule)->field[which], match, out, sizeof(out));                                                     \
    } while (0)

/* ---- errors ---- */

static bool stage_fits(const struct rule *rule, const struct run_stage *stage)
{
    return rule->stage == RULE_ANY_STAGE || (rule->stage == RULE_COMPILE) == stage->compile;
}

static bool end_fits(const struct rule *rule, const struct run_stage *stage)
{
    if (rule->signal != stage->signal)
        return false;
    for (size_t i = 0; i < rule->exit_count; i++)
        if (rule->exits[i] == stage->exit_code)
            return true;
    return rule->exit_count == 0;
}

static bool is_last(const struct search *search, size_t at)
{
    for (size_t i = at + 1; i < search->lines.count; i++)
        if (!is_blank(search->lines.item[i]))
            return false;
    return true;
}

static bool rule_holds(const struct search *search, const struct rule *rule, size_t at, struct match *match)
{
    match->text = search->lines.item[at];
    match->above = at > 0 ? search->lines.item[at - 1] : "";
    if (!stage_fits(rule, search->stage) || !end_fits(rule, search->stage) || (rule->last && !is_last(search, at)))
        return false;
    if (regexec(&rule->regex, match->text, RULE_GROUPS, match->group, 0) != 0)
        return false;
    return rule->above == NULL || regexec(&rule->above_regex, match->above, RULE_GROUPS, match->above_group, 0) == 0;
}

static uint32_t number_of(const char *text)
{
    unsigned long number = strtoul(text, NULL, 10);
    return number < UINT32_MAX ? (uint32_t)number : 0;
}

static void take_place(const struct rule *rule, const struct match *match, struct diagnosis *found)
{
    char line[16] = "", column[16] = "";
    EXPAND(rule, RULE_FILE, match, found->file);
    EXPAND(rule, RULE_LINE, match, line);
    EXPAND(rule, RULE_COLUMN, match, column);
    found->line = number_of(line);
    found->column = number_of(column);
}

static void take_error(struct search *search, const struct rule *rule, size_t at, const struct match *match)
{
    struct diagnosis *found = search->found;
    search->at = at;
    found->category = rule->category;
    found->explained = true;
    found->error_type[0] = found->message[0] = '\0';
    EXPAND(rule, RULE_TYPE, match, found->error_type);
    EXPAND(rule, RULE_MESSAGE, match, found->message);
    EXPAND(rule, RULE_HINT, match, found->hint);
    take_place(rule, match, found);
    if (rule->field[RULE_BEGINS] != NULL) {
        char begins[sizeof found->source] = "";
        EXPAND(rule, RULE_BEGINS, match, begins);
        place_by_line(search->context, begins, found);
    }
    snprintf(found->proof[PROOF_OUTPUT], sizeof found->proof[PROOF_OUTPUT], "%s", match->text);
    if (rule->continues && is_blank(found->message) && at + 1 < search->lines.count) {
        const char *next = search->lines.item[at + 1];
        snprintf(found->message, sizeof found->message, "%.500s", next + strspn(next, " \t"));
    }
}

static bool find_error(struct search *search)
{
    const struct rules *rules = &search->language->errors;
    bool down = search->stage->compile || search->language->from_start;
    struct match match;
    for (size_t i = 0; i < search->lines.count; i++) {
        size_t at = down ? i : search->lines.count - 1 - i;
        for (size_t k = 0; k < rules->count; k++) {
            if (!rule_holds(search, &rules->item[k], at, &match))
                continue;
            take_error(search, &rules->item[k], at, &match);
            return true;
        }
    }
    return false;
}

/* ---- places ---- */

/* Looks along one rule. `own`: only places in the program's own files count. */
static bool look_along(const struct search *search, const struct rule *rule, bool own, struct diagnosis *place)
{
    for (size_t step = 1; step < search->lines.count; step++) {
        size_t at = rule->below ? search->at + step : search->at - step;
        struct match match;
        if (rule->below ? at >= search->lines.count : step > search->at)
            return false;
        match.text = search->lines.item[at];
        match.above = "";
        if (regexec(&rule->regex, match.text, RULE_GROUPS, match.group, 0) != 0)
            continue;
        take_place(rule, &match, place);
        if (place->line > 0 && (!own || place_is_own(search->context, place->file)))
            return true;
    }
    return false;
}

static void find_place(struct search *search)
{
    const struct rules *rules = &search->language->places;
    struct diagnosis *found = search->found;
    for (int round = 0; round < 2 && found->line == 0; round++)
        for (size_t i = 0; i < rules->count && found->line == 0; i++) {
            struct diagnosis place = {0};
            if (!stage_fits(&rules->item[i], search->stage) || !look_along(search, &rules->item[i], round == 0, &place))
                continue;
            memcpy(found->file, place.file, sizeof found->file);
            found->line = place.line;
            found->column = place.column;
        }
    place_settle(search->context, &search->lines, found);
}

/* ---- causes ---- */

static bool cause_holds(const struct search *search, const struct rule *rule, const char *text, struct match *match)
{
    match->text = text;
    match->above = "";
    if (!stage_fits(rule, search->stage))
        return false;
    if (regexec(&rule->regex, match->text, RULE_GROUPS, match->group, 0) == 0)
        return true;
    for (size_t i = 0; rule->anywhere && i < search->lines.count; i++) {
        match->text = search->lines.item[i];
        if (regexec(&rule->regex, match->text, RULE_GROUPS, match->group, 0) == 0)
            return true;
    }
    return false;
}

static void name_call(struct diagnosis *found)
{
    const char *name = denied_in_message(found->proof[PROOF_OUTPUT]);
    if (name == NULL)
        name = denied_in_code(found->source);
    if (name != NULL)
        snprintf(found->proof[PROOF_CALL], sizeof found->proof[PROOF_CALL], "%s", name);
}

static void take_cause(const struct search *search, const struct rule *rule, const struct match *match)
{
    struct diagnosis *found = search->found;
    if (rule->category != NULL)
        found->category = rule->category;
    found->limit = rule->limit;
    found->own = rule->limit >= 0 && search->stage->own[rule->limit];
    EXPAND(rule, RULE_MODULE, match, found->proof[PROOF_MODULE]);
    EXPAND(rule, RULE_PATH, match, found->proof[PROOF_PATH]);
    EXPAND(rule, RULE_HOST, match, found->proof[PROOF_HOST]);
    EXPAND(rule, RULE_HINT, match, found->hint);
    if (rule->field[RULE_TYPE] != NULL || rule->field[RULE_MESSAGE] != NULL) { /* `match` may be of what they replace */
        char type[sizeof found->error_type], message[sizeof found->message];
        memcpy(type, found->error_type, sizeof type);
        memcpy(message, found->message, sizeof message);
        EXPAND(rule, RULE_TYPE, match, type);
        EXPAND(rule, RULE_MESSAGE, match, message);
        memcpy(found->error_type, type, sizeof type);
        memcpy(found->message, message, sizeof message);
    }
    if (rule->limit >= 0) {
        static const char *const names[LIMIT_COUNT] = {
            [LIMIT_MEMORY] = "memory_limit", [LIMIT_DISK] = "disk_limit", [LIMIT_FILES_OPEN] = "files_open_limit"};
        if (names[rule->limit] != NULL)
            diagnosis_evidence(found, names[rule->limit], (double)search->stage->limits.value[rule->limit]);
    }
    if (rule->denied)
        name_call(found);
}

static void find_cause(struct search *search)
{
    const struct rules *rules = &search->language->causes;
    struct diagnosis *found = search->found;
    char text[sizeof found->error_type + sizeof found->message + 4];
    struct match match;
    snprintf(text, sizeof text, "%s%s%s", found->error_type, found->error_type[0] != '\0' ? ": " : "", found->message);
    for (size_t i = 0; i < rules->count; i++)
        if (cause_holds(search, &rules->item[i], text, &match)) {
            take_cause(search, &rules->item[i], &match);
            break;
        }
    const char *module = found->proof[PROOF_MODULE];
    const char *package = module[0] != '\0' ? language_package_of(search->language, module) : NULL;
    if (package != NULL)
        snprintf(found->proof[PROOF_PACKAGE], sizeof found->proof[PROOF_PACKAGE], "%s", package);
}

/* ---- remedies ---- */

/* Of what a cell is, which is the same for every language. Those of a language are in its file. */
static void advise(struct diagnosis *d)
{
    const char *category = d->category != NULL ? d->category : "";
    if (d->proof[PROOF_PACKAGE][0] != '\0') {
        snprintf(d->hint, sizeof d->hint, "apt install %s on the machine that runs hotcell", d->proof[PROOF_PACKAGE]);
        return;
    }
    if (d->hint[0] != '\0' || d->limit >= 0)
        return;
    if (strcmp(category, "import") == 0)
        snprintf(d->hint, sizeof d->hint,
                 "%.100s is not on the machine that runs hotcell: send it with `files`, or do "
                 "without it",
                 d->proof[PROOF_MODULE][0] != '\0' ? d->proof[PROOF_MODULE] : "it");
    else if (strcmp(category, "network") == 0)
        snprintf(d->hint, sizeof d->hint, "a cell has no network: send what it needs with `files` or `stdin`");
    else if (d->proof[PROOF_CALL][0] != '\0')
        snprintf(d->hint, sizeof d->hint, "a cell does not allow %s: do without it", d->proof[PROOF_CALL]);
    else if (strcmp(category, "permission") == 0)
        snprintf(d->hint, sizeof d->hint, "write to the working directory or to /tmp: the rest of a cell is read-only");
    else if (d->file[0] != '\0' && d->line > 0)
        snprintf(d->hint, sizeof d->hint, "%s %s, line %u",
                 strcmp(category, "syntax") == 0 || strcmp(category, "compile") == 0 ? "correct" : "look at", d->file,
                 d->line);
    else if (d->explained && category[0] != '\0')
        snprintf(d->hint, sizeof d->hint, "look in the program for what leads to this message");
}

static void advise_on_signal(struct diagnosis *d, int signal)
{
    static const struct {
        int signal;
        const char *hint;
    } table[] = {
        {SIGSEGV, "it used memory that is not its own: look for a null or freed pointer, an index past the end, or a "
                  "recursion without an end"},
        {SIGBUS, "it used memory that is not there: look for a file that became shorter than its mapping"},
        {SIGFPE, "a whole number was divided by zero: look at the divisor first"},
        {SIGILL, "it came upon an instruction that the processor does not know: was it compiled for another one?"},
        {SIGABRT, "it ended itself by abort(): what it wrote before may say why"},
        {SIGPIPE, "it wrote to a pipe that nobody reads any more"},
    };
    if (signal == 0 || d->hint[0] != '\0' || d->limit >= 0)
        return;
    const char *hint = "a process of its own sent the signal: hotcell did not, and no limit was met";
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].signal == signal)
            hint = table[i].hint;
    snprintf(d->hint, sizeof d->hint, "%s", hint);
}

/* ---- all of it ---- */

/* What only the program knows, it may have said last. */
static void keep_last_words(struct search *search)
{
    for (size_t i = search->lines.count; i > 0; i--)
        if (!is_blank(search->lines.item[i - 1])) {
            snprintf(search->found->proof[PROOF_OUTPUT], sizeof search->found->proof[PROOF_OUTPUT], "%s",
                     search->lines.item[i - 1]);
            return;
        }
}

/* The kernel's word on what happened stands; the place may still be had from what was written. */
static void add_place(struct search *search, struct diagnosis *diagnosis)
{
    const struct diagnosis *found = search->found;
    find_place(search);
    memcpy(diagnosis->file, found->file, sizeof diagnosis->file);
    memcpy(diagnosis->source, found->source, sizeof diagnosis->source);
    memcpy(diagnosis->proof[PROOF_OUTPUT], found->proof[PROOF_OUTPUT], sizeof diagnosis->proof[PROOF_OUTPUT]);
    diagnosis->line = found->line;
    diagnosis->column = found->column;
}

static void explain(struct search *search, struct diagnosis *diagnosis)
{
    bool proven = search->stage->status == RUN_PIDS_LIMIT || search->stage->status == RUN_OOM;
    struct diagnosis found = *diagnosis;
    search->found = &found;
    if (find_error(search) && proven) {
        add_place(search, diagnosis);
    } else if (found.explained) {
        find_place(search);
        find_cause(search);
        advise(&found);
        *diagnosis = found;
    } else if (!proven && search->stage->signal == 0) {
        keep_last_words(search);
        memcpy(diagnosis->proof, found.proof, sizeof found.proof);
    }
    search->found = NULL;
}

void stage_explain(const struct run_stage *stage, const struct capture *out, const struct capture *err,
                   const struct explain_context *context, struct diagnosis *diagnosis)
{
    (void)out;
    bool told = stage->facts.end == JOB_EXITED; /* else it was ended by us, or never began */
    struct hc_err fault = {0};
    struct search search = {.stage = stage, .context = context};
    static const struct language_diagnosis none;
    if (!told || stage->status == RUN_COMPLETED || lines_make(err, &search.lines) < 0)
        return;
    if (context->language != NULL && language_diagnosis(context->language, &search.language, &fault) < 0)
        snprintf(diagnosis->proof[PROOF_FAULT], sizeof diagnosis->proof[PROOF_FAULT], "%.190s", fault.message);
    if (search.language == NULL)
        search.language = &none;
    explain(&search, diagnosis);
    advise_on_signal(diagnosis, stage->signal);
    lines_release(&search.lines);
}

static struct diagnosis *keep(const struct diagnosis *diagnosis, const char *language)
{
    struct diagnosis *copy = malloc(sizeof *copy);
    if (copy != NULL) {
        *copy = *diagnosis;
        diagnosis_fingerprint(copy, language);
    }
    return copy;
}

void result_explain(struct result *result, const struct explain_context *context)
{
    const char *language = context->language != NULL ? context->language->name : "";
    struct diagnosis diagnosis;
    for (size_t i = 0; i < result->test_count; i++) {
        struct run_test *test = &result->tests[i];
        if (!stage_diagnose(&test->job, &test->out, &test->err, &diagnosis))
            continue;
        stage_explain(&test->job, &test->out, &test->err, context, &diagnosis);
        free(test->diagnosis);
        test->diagnosis = keep(&diagnosis, language);
    }
    if (!result_diagnose(result, &diagnosis))
        return;
    const struct run_stage *stage = result_decisive_stage(result);
    const struct capture *err = &result->err, *out = &result->out;
    for (size_t i = 0; i < result->test_count; i++)
        if (stage == &result->tests[i].job) {
            out = &result->tests[i].out;
            err = &result->tests[i].err;
        }
    if (stage != NULL && result->status != RUN_INTERNAL)
        stage_explain(stage, out, err, context, &diagnosis);
    free(result->diagnosis);
    result->diagnosis = keep(&diagnosis, language);
}
