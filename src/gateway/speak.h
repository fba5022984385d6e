/* A call of a session or a context over HTTP: asked for, streamed or awaited, recorded, answered. */
#ifndef HC_GATEWAY_SPEAK_H
#define HC_GATEWAY_SPEAK_H

#include "gateway/sandboxes.h"
#include "sandbox/speaker.h"

struct speak_order {
    const char *code;
    size_t code_length;
    const char *input; /* stdin */
    size_t input_length;
    uint64_t time;
    size_t cap;
    char *metadata; /* JSON text, or NULL: taken */
};

/* stdin, timeout, output and metadata of a body; the code is the caller's to fill in. False: it has replied. */
bool speak_order(struct gateway *gateway, struct http_request *request, const struct sandbox *sandbox,
                 const json_t *body, struct speak_order *order);
/* Makes the call, and answers. Texts of the order need not outlive this. */
void speak(struct gateway *gateway, struct http_request *request, struct speaker *speaker, struct speak_order *order);

#endif
