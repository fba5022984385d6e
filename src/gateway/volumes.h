/* Volumes, as the gateway has them: it asks the keeper, whose they are, and never waits for the answer. */
#ifndef HC_GATEWAY_VOLUMES_H
#define HC_GATEWAY_VOLUMES_H

#include "gateway/gateway.h"
#include "serve/proto.h"

/* Called once, from the loop, with the keeper's answer; `fd` is a list's, and stays the caller's. */
typedef void (*volume_answer_fn)(void *data, const struct serve_volume *volume, int fd, const struct hc_err *err);

/* 0, or -errno with err: nothing was asked. */
int volume_ask(struct gateway *gateway, enum serve_volume_act act, const struct serve_volume_facts *facts,
               volume_answer_fn answered, void *data, struct hc_err *err);
void volume_unask(struct gateway *gateway, const void *data); /* whoever asked wants no answer any more */
/* What the keeper says. */
void volume_answered(struct gateway *gateway, const struct serve_message *message, int fd);
/* The keeper will not answer any more: everybody who waits hears of that. */
void volume_end(struct gateway *gateway);

/* Of sandboxes: struct sandboxes_events. */
struct sandboxes_events;
void volumes_for_sandboxes(struct sandboxes_events *events);

#endif
