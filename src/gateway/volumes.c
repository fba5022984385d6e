/* See volumes.h. */
#include "gateway/volumes.h"

#include "base/fd.h"
#include "sandbox/sandbox.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { QUESTIONS_MAX = 256 };

struct volume_question {
    struct volume_question *next;
    uint64_t id;
    void *data;
    volume_answer_fn answered; /* NULL: nobody waits */
};

int volume_ask(struct gateway *gateway, enum serve_volume_act act, const struct serve_volume_facts *facts,
               volume_answer_fn answered, void *data, struct hc_err *err)
{
    size_t count = 0;
    for (const struct volume_question *other = gateway->volume_questions; other != NULL; other = other->next)
        count++;
    struct volume_question *question = count < QUESTIONS_MAX ? calloc(1, sizeof *question) : NULL;
    if (question == NULL)
        return hc_fail(err, HC_CLASS_HOST, EAGAIN, "too many volumes are asked for at once");
    *question = (struct volume_question){.id = ++gateway->volume_next, .data = data, .answered = answered};
    struct serve_message message = {
        .protocol = SERVE_PROTOCOL, .type = SERVE_VOLUME, .volume = {.id = question->id, .act = act, .facts = *facts}};
    int result = hc_try_send_fds(SERVE_CONTROL_FD, &message, sizeof message, NULL, 0);
    if (result < 0) {
        free(question);
        hc_fail(err, HC_CLASS_HOST, EAGAIN, "the server is busy with other volumes");
        return hc_err_remedy(err, "try again in a second");
    }
    question->next = gateway->volume_questions;
    gateway->volume_questions = question;
    return 0;
}

void volume_unask(struct gateway *gateway, const void *data)
{
    for (struct volume_question *question = gateway->volume_questions; question != NULL; question = question->next)
        if (question->data == data)
            question->answered = NULL;
}

static void tell(struct volume_question *question, const struct serve_volume *volume, int fd, const struct hc_err *err)
{
    if (question->answered != NULL)
        question->answered(question->data, volume, fd, err->code ? err : NULL);
    free(question);
}

void volume_answered(struct gateway *gateway, const struct serve_message *message, int fd)
{
    gateway->volume_count = message->volume_count;
    gateway->volume_bytes = message->volume_bytes;
    for (struct volume_question **at = &gateway->volume_questions; *at != NULL; at = &(*at)->next)
        if ((*at)->id == message->volume.id) {
            struct volume_question *question = *at;
            *at = question->next;
            tell(question, &message->volume, fd, &message->err);
            return;
        }
}

void volume_end(struct gateway *gateway)
{
    const struct serve_volume none = {0};
    struct hc_err err = {0};
    hc_fail(&err, HC_CLASS_HOST, EAGAIN, "the server is stopping");
    while (gateway->volume_questions != NULL) {
        struct volume_question *question = gateway->volume_questions;
        gateway->volume_questions = question->next;
        tell(question, &none, -1, &err);
    }
}

/* ---- for sandboxes ---- */

static void on_opened(void *data, const struct serve_volume *volume, int fd, const struct hc_err *err)
{
    (void)fd;
    sandbox_volume_opened(data, volume->host, volume->facts.size, err);
}

static int open_volume(void *data, const char *tenant, const char *name, struct sandbox_volume *volume,
                       struct hc_err *err)
{
    struct serve_volume_facts facts = {0};
    memcpy(facts.tenant, tenant, strnlen(tenant, sizeof facts.tenant - 1));
    memcpy(facts.name, name, strnlen(name, sizeof facts.name - 1));
    return volume_ask(data, SERVE_VOLUME_OPEN, &facts, on_opened, volume, err);
}

static void forget_volume(void *data, struct sandbox_volume *volume)
{
    volume_unask(data, volume);
}

void volumes_for_sandboxes(struct sandboxes_events *events)
{
    events->open_volume = open_volume;
    events->forget_volume = forget_volume;
}
