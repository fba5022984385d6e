/*
 * The part of include/hotcell.h that reads or writes JSON. Apart from api.c, so that a program that needs none of it
 * does without Jansson: the command line's `hotcell run` is one.
 */
#include "run/engine.h"

#include <stdlib.h>

char *hc_config_json(const hc_config *config)
{
    return config_to_json(config->config);
}

int hc_request_load(hc_request *request, const char *json, size_t length, hc_error **error)
{
    struct hc_err err = {0};
    return request_from_json(request->request, json, length, &err) < 0 ? engine_give_error(error, &err) : 0;
}

int hc_request_set_metadata(hc_request *request, const char *json, size_t length, hc_error **error)
{
    struct hc_err err = {0};
    return request_set_metadata(request->request, json, length, &err) < 0 ? engine_give_error(error, &err) : 0;
}

const char *hc_result_json(const hc_result *result, int pretty)
{
    hc_result *own = (hc_result *)result;
    if (own->language && !own->result.version[0])
        language_version(own->language, own->result.version, sizeof own->result.version);
    if (own->kept && !own->result.diagnosis)
        result_explain_kept(&own->result, own->language, own->kept);
    free(own->json);
    own->json = result_to_json(&result->result, pretty != 0);
    return own->json;
}
