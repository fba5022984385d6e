/* hotcell serve: the server. This reads the command line; serve/ does the rest. */
#include "serve/serve.h"
#include "cli/full.h"
#include "cli/full_verbs.h"
#include "cli/help.h"
#include "cli/message.h"
#include <errno.h>
#include <stdio.h>

enum { MAX_LISTEN = 15, MAX_SETTINGS = 8 };

struct line {
    struct serve_options options;
    const char *listen[MAX_LISTEN];
    struct serve_setting settings[MAX_SETTINGS];
};

static int add_setting(struct line *line, const char *key, const char *value, struct hc_err *err)
{
    if (line->options.setting_count == MAX_SETTINGS)
        return hc_fail(err, HC_CLASS_REQUEST, E2BIG, "too many options: \"%s\" is one too many", key);
    line->settings[line->options.setting_count++] = (struct serve_setting){key, value};
    return 0;
}

static int take(struct cli *cli, struct line *line, const struct option *option, const char *value, struct hc_err *err)
{
    switch (option->id) {
    case OPTION_LISTEN:
        if (line->options.listen_count == MAX_LISTEN)
            return hc_fail(err, HC_CLASS_REQUEST, E2BIG, "--listen can be given %d times at most", MAX_LISTEN);
        line->listen[line->options.listen_count++] = value;
        return 0;
    case OPTION_STATE:
        line->options.state = value;
        return 0;
    case OPTION_CONFIG:
        line->options.config = value;
        return 0;
    case OPTION_WORKSPACE:
        return add_setting(line, "server.workspace", value, err);
    case OPTION_CONCURRENT:
        return add_setting(line, "server.concurrent", value, err);
    case OPTION_WEAK:
        return add_setting(line, "isolation.allow_weak", "true", err);
    case OPTION_CHECK:
        line->options.check = true;
        return 0;
    case OPTION_JSON:
        cli->json = true;
        return 0;
    default:
        return 0;
    }
}

int full_serve(struct cli *cli, int argc, char **argv)
{
    struct line line = {0};
    struct options options;
    const struct option *option;
    const char *value;
    struct hc_err err = {0};
    int found;
    line.options.listen = line.listen;
    line.options.settings = line.settings;
    options_start(&options, verb_serve.options, argc, argv);
    while ((found = options_next(&options, &option, &value, &err)) > 0) {
        if (option->id == OPTION_HELP) {
            help_verb(&verb_serve);
            return EXIT_OK;
        }
        found = take(cli, &line, option, value, &err);
        if (found < 0)
            break;
    }
    if (found == 0 && options.next < argc)
        found = hc_fail(&err, HC_CLASS_REQUEST, EINVAL, "hotcell serve takes no arguments, but there is \"%s\"",
                        argv[options.next]);
    if (found == 0)
        found = serve(&line.options, &err);
    if (found < 0) {
        cli->json = options_want_json(argc, argv);
        message_error(cli, &err);
        return hc_class_info(err.class)->exit_code;
    }
    if (line.options.check)
        puts(cli->json ? "{\"ok\":true}" : "The configuration is fine; nothing was started.");
    return EXIT_OK;
}
