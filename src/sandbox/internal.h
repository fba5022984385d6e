/* What sandbox.c and sandboxes.c share. */
#ifndef HC_SANDBOX_INTERNAL_H
#define HC_SANDBOX_INTERNAL_H

#include "sandbox/sandbox.h"

struct sandboxes {
    struct hc_loop *loop;
    struct sandboxes_events events;
    const struct config *config;
    struct link *link; /* NULL: no warden */
    uint32_t required; /* layers that must hold */
    bool listed;       /* the warden has told what there is */
    struct sandbox *first;
    struct sandbox *adopting; /* whose jobs the warden is telling */
    json_t *adopting_state;
    struct hc_timer *timer;
};

/* sandboxes.c */
struct sandbox *sandbox_new(struct sandboxes *all, const char *tenant); /* in no list; NULL: no memory */
void sandboxes_add(struct sandbox *sandbox);
void sandboxes_remove(struct sandbox *sandbox); /* and frees it */

/* recover.c */
void recover_later(struct sandbox *sandbox);   /* it was used: its files are packed soon, if it is one that recovers */
int recover_listen(struct sandbox *sandbox);   /* the end of a pipe for the head of what unpacks them, or -errno */
void recover_told(struct sandbox *sandbox);    /* it is done: sandbox->lost */
void recover_release(struct sandbox *sandbox); /* it goes */

/* volumes.c */
/* The volumes of an order become mounts of the plan. *out is malloc'ed, or NULL where there are none. */
int sandbox_volumes_read(const json_t *list, struct sandbox *sandbox, struct plan *plan, struct sandbox_volume **out,
                         size_t *count, struct hc_err *err);
int sandbox_volumes_open(struct sandbox *sandbox, struct hc_err *err); /* sandbox_begun follows, from the loop */
void sandbox_volumes_forget(struct sandbox *sandbox);                  /* or does not follow any more */
json_t *sandbox_volumes_json(const struct sandbox *sandbox);

/* sandbox.c */
void sandbox_begun(struct sandbox *sandbox, const struct hc_err *err); /* its volumes are open, or err */
void sandbox_free(struct sandbox *sandbox);
void sandbox_tell(const struct sandbox *sandbox, const char *event, const char *why);
const struct box_events *sandbox_events(struct sandbox *sandbox, struct box_events *events);

#endif
