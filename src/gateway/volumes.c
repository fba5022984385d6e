/* See volumes.h. */
#include "gateway/volumes.h"

#include "base/fd.h"
#include "sandbox/sandbox.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* More than IN_FLIGHT wait here: the answers to those must fit into the socket, where the keeper does not wait. */
enum { QUESTIONS_MAX = 1024, IN_FLIGHT = 32 };

struct volume_question {
    struct volume_question *next;
    struct serve_volume volume;
    bool sent;
    void *data;
    volume_answer_fn answered; /* NULL: nobody waits */
};

/* The oldest first. -EAGAIN: one that has to go now could not. */
static int send_some(struct gateway *gateway)
{
    size_t count = 0;
    for (struct volume_question *question = gateway->volume_questions; question != NULL; question = question->next) {
        struct serve_message message = {.protocol = SERVE_PROTOCOL, .type = SERVE_VOLUME, .volume = question->volume};
        if (count++ == IN_FLIGHT)
            break;
        if (question->sent)
            continue;
        int result = hc_try_send_fds(SERVE_CONTROL_FD, &message, sizeof message, NULL, 0);
        if (result < 0)
            return result;
        question->sent = true;
    }
    return 0;
}

int volume_ask(struct gateway *gateway, enum serve_volume_act act, const struct serve_volume_facts *facts,
               volume_answer_fn answered, void *data, struct hc_err *err)
{
    size_t count = 0;
    struct volume_question **last = &gateway->volume_questions;
    for (; *last != NULL; last = &(*last)->next)
        count++;
    struct volume_question *question = count < QUESTIONS_MAX ? calloc(1, sizeof *question) : NULL;
    if (question == NULL)
        return hc_fail(err, HC_CLASS_HOST, EAGAIN, "too many volumes are asked for at once");
    *question = (struct volume_question){
        .volume = {.id = ++gateway->volume_next, .act = act, .facts = *facts}, .data = data, .answered = answered};
    *last = question;
    if (send_some(gateway) == 0 || count > 0) /* the next answer sends it */
        return 0;
    *last = NULL;
    free(question);
    hc_fail(err, HC_CLASS_HOST, EAGAIN, "the server is busy with other things");
    return hc_err_remedy(err, "try again in a second");
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
        if ((*at)->volume.id == message->volume.id) {
            struct volume_question *question = *at;
            *at = question->next;
            (void)send_some(gateway);
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
