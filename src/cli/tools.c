/* hotcell tools: the schemas of the tools, without a server. */
#include "run/tools.h"
#include "base/fd.h"
#include "cli/full.h"
#include "cli/help.h"
#include "cli/json.h"
#include "cli/mcp_verbs.h"
#include "cli/message.h"
#include "text/json.h"
#include <errno.h>
#include <string.h>

static int show(const char *format, struct hc_err *err)
{
    hc_cleanup_json json_t *tools = tools_load(), *list = NULL;

    if (!tools)
        return hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    int status = tools_format(tools, format, &list, err);
    hc_cleanup_free char *text = status == 0 ? hc_json_write(list, false) : NULL;
    if (status == 0 && !text)
        status = hc_fail(err, HC_CLASS_OURS, ENOMEM, "out of memory");
    if (status == 0 && json_show(text) < 0)
        status = hc_fail_errno(err, HC_CLASS_HOST, errno, "cannot write the list");
    return status;
}

int full_tools(struct cli *cli, int argc, char **argv)
{
    const char *format = "json", *value;
    const struct option *option;
    struct options options;
    struct hc_err err = {0};
    int found;

    options_start(&options, verb_tools.options, argc, argv);
    while ((found = options_next(&options, &option, &value, &err)) > 0) {
        if (option->id == OPTION_HELP) {
            help_verb(&verb_tools);
            return EXIT_OK;
        }
        format = value;
    }
    if (found == 0 && options.next < argc)
        found = hc_fail(&err, HC_CLASS_REQUEST, EINVAL, "hotcell tools takes no arguments, but there is \"%s\"",
                        argv[options.next]);
    if (found == 0)
        found = show(format, &err);
    return found < 0 ? message_error(cli, &err) : EXIT_OK;
}
