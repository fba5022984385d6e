/*
 * The catalogue: run/language.h's languages as they were when they were last read, and the version of each. The tools
 * are the host's, but the gateway cannot see them and nobody runs anything outside a cell: the question "which version"
 * is an ordinary plan with a command, driven like any run, one language at a time, and not recorded.
 *
 * What always holds: a question is asked once; the death of a warden leaves it open for the next one.
 */
#include "gateway/languages.h"

#include "base/fd.h"
#include "base/log.h"
#include "run/drive.h"
#include "run/language_diagnosis.h"
#include "run/plan.h"
#include "run/stock.h"
#include "run/warm.h"
#include "serve/proto.h"
#include "text/json.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct version {
    bool asked; /* and answered, be it with nothing */
    bool used;  /* and the keeper knows */
    char text[64];
};

struct catalogue {
    struct languages *languages;
    struct warm_definitions definitions;
    struct version *versions; /* in the order of languages_at */
    /* The question under way. */
    struct gateway *gateway;
    struct hc_timer *timer; /* the next one is begun from the loop, never from the end of the one before */
    bool asking;
    size_t index;
    struct request *request;
    struct plan plan;
    struct result result;
};

/* Without definitions every program starts cold. */
static void attach(struct catalogue *catalogue, struct config *config)
{
    struct hc_err err = {0};
    warm_definitions_release(&catalogue->definitions);
    if (warm_definitions_make(config, catalogue->languages, &catalogue->definitions, &err) < 0)
        hc_log(HC_LOG_WARNING, "every program will start cold: %s", err.message);
    config->languages = catalogue->languages;
    config->definitions = &catalogue->definitions;
}

/* Of each language what its file says about errors: once the gateway is sealed, a fault in it would only show when a
 * program fails. */
static int read_diagnoses(const struct languages *languages, struct hc_err *err)
{
    for (size_t i = 0; i < languages_count(languages); i++) {
        const struct language_diagnosis *ignored;
        int result = language_diagnosis((struct language *)languages_at(languages, i), &ignored, err);
        if (result < 0)
            return result;
    }
    return 0;
}

int catalogue_new(struct config *config, struct catalogue **out, struct hc_err *err)
{
    struct catalogue *catalogue = calloc(1, sizeof *catalogue);
    if (catalogue == NULL)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    int result = languages_load(config, &catalogue->languages, err);
    if (result == 0)
        result = read_diagnoses(catalogue->languages, err);
    if (result == 0) {
        catalogue->versions = calloc(languages_count(catalogue->languages) + 1, sizeof *catalogue->versions);
        if (catalogue->versions == NULL)
            result = hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    }
    if (result < 0) {
        catalogue_free(catalogue);
        return result;
    }
    languages_look(catalogue->languages);
    attach(catalogue, config);
    *out = catalogue;
    return 0;
}

static void release_question(struct catalogue *catalogue)
{
    plan_release(&catalogue->plan);
    result_release(&catalogue->result);
    request_free(catalogue->request);
    catalogue->request = NULL;
    catalogue->asking = false;
}

void catalogue_free(struct catalogue *catalogue)
{
    if (catalogue == NULL)
        return;
    hc_timer_remove(catalogue->timer);
    if (catalogue->asking)
        release_question(catalogue);
    if (catalogue->languages != NULL)
        languages_free(catalogue->languages);
    warm_definitions_release(&catalogue->definitions);
    free(catalogue->versions);
    free(catalogue);
}

/* What is known of a language that stays; its version is asked for again, since somebody may have upgraded it. */
static void carry_over(const struct catalogue *catalogue, const struct languages *fresh, struct version *versions)
{
    for (size_t i = 0; i < languages_count(fresh); i++)
        for (size_t k = 0; k < languages_count(catalogue->languages); k++)
            if (strcmp(languages_at(fresh, i)->name, languages_at(catalogue->languages, k)->name) == 0)
                memcpy(versions[i].text, catalogue->versions[k].text, sizeof versions[i].text);
}

int catalogue_reload(struct catalogue *catalogue, struct config *config, struct hc_err *err)
{
    struct languages *fresh = NULL;
    int result = languages_load(config, &fresh, err);
    if (result == 0 && (result = read_diagnoses(fresh, err)) < 0)
        languages_free(fresh);
    if (result < 0)
        return result;
    struct version *versions = calloc(languages_count(fresh) + 1, sizeof *versions);
    if (versions == NULL) {
        languages_free(fresh);
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    }
    languages_look(fresh);
    carry_over(catalogue, fresh, versions);
    catalogue->index = languages_count(fresh); /* the answer that is awaited is nobody's now: it is asked for again */
    languages_free(catalogue->languages);      /* runs have shares in theirs */
    free(catalogue->versions);
    catalogue->languages = fresh;
    catalogue->versions = versions;
    attach(catalogue, config);
    return 0;
}

/* ---- looking ---- */

const struct language *catalogue_find(const struct catalogue *catalogue, const char *name)
{
    struct config config = {.languages = catalogue->languages};
    struct language *found = NULL;
    if (languages_find(&config, name, &found, NULL) < 0)
        return NULL;
    language_free(found); /* the share that finding it took; the catalogue has its own */
    return found;
}

const char *catalogue_version(const struct catalogue *catalogue, const char *name)
{
    const struct language *language = catalogue_find(catalogue, name);
    for (size_t i = 0; language != NULL && i < languages_count(catalogue->languages); i++)
        if (languages_at(catalogue->languages, i) == language)
            return catalogue->versions[i].text;
    return "";
}

void catalogue_list(const struct catalogue *catalogue, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < languages_count(catalogue->languages); i++) {
        const struct language *language = languages_at(catalogue->languages, i);
        if (!language_available(language, NULL) || used + strlen(language->name) + sizeof ", " >= size)
            continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "", language->name);
    }
}

static json_t *words_json(const struct words *words)
{
    json_t *array = json_array();
    for (size_t i = 0; array != NULL && i < words->count; i++)
        json_array_append_new(array, json_string(words->item[i]));
    return array;
}

char *catalogue_json(const struct catalogue *catalogue, const struct config *config)
{
    hc_cleanup_json json_t *array = json_array();
    for (size_t i = 0; i < languages_count(catalogue->languages); i++) {
        const struct language *language = languages_at(catalogue->languages, i);
        json_t *object = json_pack(
            "{s:s, s:s?, s:o, s:s, s:s, s:s, s:b, s:s?}", "name", language->name, "title", language->title, "aliases",
            words_json(&language->aliases), "version", catalogue->versions[i].text, "extension",
            language->extensions.count > 0 ? language->extensions.item[0] : "", "start", warm_word(config, language),
            "available", language_available(language, NULL), "package", language->package);
        if (json_array_append_new(array, object) < 0)
            return NULL;
    }
    return array != NULL ? hc_json_write(array, false) : NULL;
}

void catalogue_used(struct catalogue *catalogue, const struct language *language)
{
    struct serve_message message = {.protocol = SERVE_PROTOCOL, .type = SERVE_USED};
    if (!language->prepare.present)
        return;
    for (size_t i = 0; i < languages_count(catalogue->languages); i++) {
        if (languages_at(catalogue->languages, i) != language || catalogue->versions[i].used)
            continue;
        snprintf(message.language, sizeof message.language, "%s", language->name);
        catalogue->versions[i].used = hc_try_send_fds(SERVE_CONTROL_FD, &message, sizeof message, NULL, 0) == 0;
    }
}

/* ---- asking for versions ---- */

static void ask_next(struct hc_loop *loop, void *data);

static void ask_later(struct catalogue *catalogue)
{
    if (catalogue->timer == NULL)
        catalogue->timer = hc_loop_timer(catalogue->gateway->loop, hc_now(), ask_next, catalogue);
}

static bool find_version(const struct capture *output, const struct language *language, struct version *version)
{
    size_t length;
    hc_cleanup_free char *text = capture_text(output, &length);
    if (text != NULL && language_version_in(language, text, version->text, sizeof version->text))
        return true;
    version->text[0] = '\0';
    return false;
}

static void on_answer(void *data)
{
    struct catalogue *catalogue = data;
    bool ours = catalogue->index < languages_count(catalogue->languages);
    const struct language *language = ours ? languages_at(catalogue->languages, catalogue->index) : NULL;
    struct version *version = &catalogue->versions[catalogue->index];
    bool failed = catalogue->result.status == RUN_INTERNAL;
    if (!failed && ours) {
        version->asked = true;
        if (!find_version(&catalogue->result.out, language, version))
            find_version(&catalogue->result.err, language, version);
    }
    release_question(catalogue);
    stock_refill();
    if (!failed)
        ask_later(catalogue);
}

/* Whatever fails before the cell is there fails for this language alone. */
static int ask(struct catalogue *catalogue, const struct language *language)
{
    const struct gateway *gateway = catalogue->gateway;
    struct hc_err err = {0};
    catalogue->result = (struct result){0};
    catalogue->plan = (struct plan){.files = -1};
    catalogue->request = request_new();
    int result = catalogue->request != NULL ? 0 : -ENOMEM;
    for (size_t i = 0; i < language->version_command.count && result == 0; i++)
        result = request_add_command(catalogue->request, language->version_command.item[i], &err);
    if (result == 0)
        result = plan_make(gateway->config, catalogue->request, &catalogue->plan, &err);
    struct drive_options options = {.input = -1,
                                    .required = gateway->config->allow_weak ? 0 : ISOLATION_ALL,
                                    .events = {.data = catalogue, .ended = on_answer}};
    struct drive *drive;
    if (result == 0)
        result = drive_start(gateway->link, &catalogue->plan, &options, &catalogue->result, &drive);
    catalogue->asking = true;
    if (result < 0)
        release_question(catalogue);
    return result;
}

static void ask_next(struct hc_loop *loop, void *data)
{
    struct catalogue *catalogue = data;
    (void)loop;
    catalogue->timer = NULL;
    for (size_t i = 0; i < languages_count(catalogue->languages) && !catalogue->asking; i++) {
        const struct language *language = languages_at(catalogue->languages, i);
        if (catalogue->gateway->link == NULL || !link_alive(catalogue->gateway->link))
            return;
        if (catalogue->versions[i].asked || !language_available(language, NULL))
            continue;
        catalogue->index = i;
        if (ask(catalogue, language) < 0 && link_alive(catalogue->gateway->link))
            catalogue->versions[i].asked = true;
    }
}

void catalogue_probe(struct gateway *gateway)
{
    gateway->catalogue->gateway = gateway;
    if (!gateway->catalogue->asking)
        ask_later(gateway->catalogue);
}
