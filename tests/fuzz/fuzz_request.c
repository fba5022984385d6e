/*
 * Feeds bytes to the request reader. Besides what the sanitizers see, it checks what the header promises: a refusal is
 * the request's fault and has a message; what is accepted has limits within their bounds, clean paths, and lists that
 * end in NULL.
 */
#include "cell/archive.h"
#include "run/request.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void check(int holds)
{
    if (!holds)
        abort();
}

static void check_words(const struct words *words)
{
    check(words->count <= REQUEST_MAX_WORDS);
    for (size_t i = 0; i < words->count; i++)
        check(words->item[i] != NULL);
    check(words->count == 0 || words->item[words->count] == NULL);
}

static void check_limits(const struct limits *limits)
{
    for (int id = 0; id < LIMIT_COUNT; id++) {
        check(limits->set[id] || limits->value[id] == 0);
        check(!limits->set[id] || limits->value[id] >= limit_table[id].low);
        check(!limits->set[id] || limits->value[id] <= limit_table[id].high);
    }
}

static void check_request(const struct request *request)
{
    check(request->allow_weak == -1); /* only the operator says this */
    check_limits(&request->limits);
    check_words(&request->command);
    check_words(&request->args);
    check_words(&request->env);
    check_words(&request->collect);
    for (size_t i = 0; i < request->env.count; i++)
        check(strchr(request->env.item[i], '=') > request->env.item[i]);
    for (size_t i = 0; i < request->collect.count; i++)
        check(archive_path_check(request->collect.item[i], strlen(request->collect.item[i])) == 0);
    for (size_t i = 0; i < request->file_count; i++) {
        check(archive_path_check(request->files[i].path, strlen(request->files[i].path)) == 0);
        check(request->files[i].content.data[request->files[i].content.length] == '\0');
    }
    for (size_t i = 0; i < request->stage_count; i++) {
        check(request->stages[i].command.count > 0);
        check_words(&request->stages[i].command);
        check_limits(&request->stages[i].limits);
    }
    for (size_t i = 0; i < request->test_count; i++)
        check_limits(&request->tests[i].limits);
    if (request->metadata) { /* what was written can be read again */
        struct request *again = request_new();
        check(again && request_set_metadata(again, request->metadata, strlen(request->metadata), NULL) == 0);
        check(strcmp(again->metadata, request->metadata) == 0);
        request_free(again);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct request *request = request_new();
    struct hc_err err = {0};
    check(request != NULL);
    if (request_from_json(request, (const char *)data, size, &err) < 0)
        check(err.class == HC_CLASS_REQUEST && err.code > 0 && err.message[0] != '\0');
    else
        check_request(request);
    request_free(request);
    return 0;
}
