#include "gateway/sandboxes.h"
void handle_session_call(struct gateway *gateway, struct http_request *request, struct sandbox *sandbox,
                         const json_t *body, const char *session)
{
    (void)gateway, (void)sandbox, (void)body, (void)session;
    reply_problem(request, 400, "invalid_request", "sessions are not there yet");
}
