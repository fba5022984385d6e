/* What is in struct full: which function does each verb, and how hotcell run reads and shows JSON. */
#include "cli/full.h"

#include "base/size.h"
#include "cli/json.h"
#include "cli/message.h"
#include "cli/run.h"
#include "text/json.h"
#include <string.h>

static const struct {
    const struct verb *verb;
    int (*run)(struct cli *cli, int argc, char **argv);
} RUN[] = {
    {&verb_serve, full_serve},   {&verb_languages, full_languages}, {&verb_doctor, full_doctor},
    {&verb_config, full_config}, {&verb_tools, full_tools},
};

static int full_verb(struct cli *cli, const struct verb *verb, int argc, char **argv)
{
    for (size_t i = 0; i < sizeof RUN / sizeof *RUN; i++)
        if (RUN[i].verb == verb)
            return RUN[i].run(cli, argc, argv);
    return EXIT_OURS;
}

static const char *json_of_result(const void *result, bool pretty)
{
    return hc_result_json(result, pretty);
}

static char *pretty(const char *json)
{
    json_cleanup json_t *root = json_loads(json, JSON_ALLOW_NUL, NULL);

    return root ? hc_json_write(root, true) : strdup(json);
}

/* "a warm start, by the server at /run/hotcell/hotcell.sock" */
static void way(const struct run_outcome *outcome, const json_t *root)
{
    const char *start = json_text(json_object_get(root, "timing"), "start");

    if (outcome->server)
        message_note("a %s start, by the server at %s", start, outcome->server);
    else
        message_note("a %s start, without a server%s%s", start, outcome->alone ? ": " : "",
                     outcome->alone ? outcome->alone : "");
}

/* "completed in 21.3 ms: 18.1 ms of CPU, at most 9 MiB of memory, isolation full" */
static void measures(const struct run_outcome *outcome)
{
    const char *text = outcome->json(outcome->data, false);
    json_cleanup json_t *root = text ? json_loads(text, JSON_ALLOW_NUL, NULL) : NULL;
    const json_t *used = json_object_get(root, "usage");
    char memory[32];

    way(outcome, root);
    message_note(
        "%s in %.1f ms: %.1f ms of CPU, at most %s of memory, isolation %s", json_text(root, "status"),
        json_number_value(json_object_get(used, "wall_ms")), json_number_value(json_object_get(used, "cpu_ms")),
        hc_format_size((uint64_t)json_number_value(json_object_get(used, "memory_peak")), memory, sizeof memory),
        json_text(json_object_get(root, "isolation"), "level"));
}

const struct full full_functions = {
    .verb = full_verb,
    .load = hc_request_load,
    .result = json_of_result,
    .pretty = pretty,
    .measures = measures,
};
