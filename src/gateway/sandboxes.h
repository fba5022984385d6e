/* Sandboxes over HTTP: what the route files about them share. */
#ifndef HC_GATEWAY_SANDBOXES_H
#define HC_GATEWAY_SANDBOXES_H

#include "gateway/gateway.h"
#include "sandbox/sandbox.h"

/* The sandbox that {id} names, if it is the caller's. NULL: it has replied (404). */
struct sandbox *sandbox_asked(struct gateway *gateway, struct http_request *request, const struct route_match *match);
/* The same, for work in it: one that is paused, or has failed, is a 409. One that failed and recovers by itself is made
 * anew first: NULL then, and the request is handled again when it is there. */
struct sandbox *sandbox_for_work(struct gateway *gateway, struct http_request *request,
                                 const struct route_match *match);
/* The body as a JSON object; an empty one is {}. NULL: it has replied. */
json_t *sandbox_body(struct http_request *request);
/* 400: there is a field in it that is not among these, which end with NULL. */
bool sandbox_body_knows(struct http_request *request, const json_t *body, const char *const *known);
/* Takes the object; NULL: out of memory. */
void sandbox_reply(struct http_request *request, int status, json_t *object);
/* A word of the body: NULL where it is not there. `*bad`: it is there and is no text; it has replied. */
const char *sandbox_text(struct http_request *request, const json_t *body, const char *field, bool *bad);
/* The name of a job or a session, which is a part of paths: 0, or -EINVAL and err. */
int sandbox_check_name(const char *field, const char *name, struct hc_err *err);

/* routes_sessions.c: a call of a shell that keeps its state. */
void handle_session_call(struct gateway *gateway, struct http_request *request, struct sandbox *sandbox,
                         const json_t *body, const char *session);

/* Events of a gateway's sandboxes: logged, counted and audited. */
int gateway_sandboxes_new(struct gateway *gateway, struct hc_err *err);

#endif
