/*
 * One thing done with the files of a sandbox for a request: an errand, the pipe of its body, and the carrier between
 * that pipe and the request. What always holds: whoever hangs up ends the helper; a body that was cut off is never
 * taken for a whole one; nothing is held but a pipe and HTTP_PIECE bytes.
 */
#ifndef HC_GATEWAY_FILE_VISIT_H
#define HC_GATEWAY_FILE_VISIT_H

#include "gateway/carry.h"
#include "gateway/sandboxes.h"
#include "sandbox/errand.h"

enum file_body { FILE_NO_BODY, FILE_BODY_IN, FILE_BODY_OUT };

struct file_visit {
    struct sandbox_waiter waiter; /* first */
    bool waits;
    struct gateway *gateway;
    struct http_request *request;
    struct sandbox *sandbox;
    struct errand *errand;
    enum file_body body;
    int fd; /* our end of the body's pipe */
    struct carry_in *in;
    struct carry_out *out;
    struct hc_watch *watch; /* of a reader of its own */
    struct hc_buf line;
    bool answered, carried;
    /* The head was good: the visit's own way to answer. After it the request may be gone. */
    void (*answer)(struct file_visit *visit, const json_t *head);
};

/* Takes the words. Whatever happens it replies, now or later. `time`: µs for the helper; 0: as long as it takes. */
void file_visit(struct gateway *gateway, struct http_request *request, struct sandbox *sandbox, struct words *words,
                enum file_body body, uint64_t time, void (*answer)(struct file_visit *visit, const json_t *head));
/* For `answer`: the body follows as a stream, of so many bytes or HTTP_LENGTH_UNKNOWN. */
void file_visit_stream(struct file_visit *visit, int status, const char *type, uint64_t length);
/* For `answer`: that is all, and the request can be replied to. */
struct http_request *file_visit_done(struct file_visit *visit);

#endif
