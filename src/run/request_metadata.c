/* Metadata: a JSON object that hotcell hands back with the result and never looks into. It is kept as text. */
#include "run/request_metadata.h"

#include "run/request_fields.h"
#include "text/json.h"
#include <stdlib.h>
#include <string.h>

enum { METADATA_MAX = 64 * 1024, METADATA_DEPTH = 32 };

int request_take_metadata(struct request *request, const json_t *object, struct hc_err *err)
{
    if (!json_is_object(object))
        return request_fail(err, "metadata", "must be an object");
    char *text = hc_json_write(object, false);
    if (!text)
        return request_no_memory(err);
    if (strlen(text) > METADATA_MAX) {
        free(text);
        return request_fail(err, "metadata", "is larger than 64 KiB");
    }
    free(request->metadata);
    request->metadata = text;
    return 0;
}

int request_set_metadata(struct request *request, const char *json, size_t length, struct hc_err *err)
{
    hc_cleanup_json json_t *object = NULL;

    int status = hc_json_read(json, length, METADATA_DEPTH, &object, err);
    if (status < 0) {
        hc_err_context(err, "metadata");
        hc_err_field(err, "metadata");
        return status;
    }
    return request_take_metadata(request, object, err);
}
