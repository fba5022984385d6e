/*
 * hotcell, the command line. It is written on include/hotcell.h, the public library, and on src/base: what it can do,
 * any program can. This file finds the verb; each verb is a file.
 */
#include "base/suggest.h"
#include "cli/help.h"
#include "cli/message.h"
#include "cli/verbs.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct verb *const VERBS[] = {&verb_run,    &verb_languages, &verb_doctor,
                                           &verb_config, &verb_version,   &verb_help};

enum { VERB_COUNT = sizeof VERBS / sizeof VERBS[0] };

const struct verb *verb_at(size_t index)
{
    return index < VERB_COUNT ? VERBS[index] : NULL;
}

const struct verb *verb_find(const struct cli *cli, const char *name)
{
    /* What other programs call these. */
    static const struct {
        const char *word;
        const struct verb *verb;
    } also[] = {{"--help", &verb_help}, {"-h", &verb_help}, {"--version", &verb_version}, {"-V", &verb_version}};
    const char *names[VERB_COUNT];
    struct hc_err err = {0};

    for (size_t i = 0; i < VERB_COUNT; i++) {
        names[i] = VERBS[i]->name;
        if (strcmp(name, names[i]) == 0)
            return VERBS[i];
    }
    for (size_t i = 0; i < sizeof also / sizeof *also; i++)
        if (strcmp(name, also[i].word) == 0)
            return also[i].verb;

    hc_fail(&err, HC_CLASS_REQUEST, EINVAL, "there is no verb \"%s\"", name);
    const char *nearest = hc_suggest(name, names, VERB_COUNT);
    if (nearest)
        hc_err_remedy(&err, "did you mean \"hotcell %s\"?", nearest);
    else if (access(name, F_OK) == 0)
        hc_err_remedy(&err, "to run a file: hotcell run %s", name);
    else
        hc_err_remedy(&err, "hotcell help lists the verbs");
    message_error(cli, &err);
    return NULL;
}

int verb_plain_options(struct cli *cli, const struct verb *verb, int argc, char **argv, const char **config_path)
{
    struct options options;
    const struct option *option;
    const char *value;
    struct hc_err err = {0};
    int found;

    options_start(&options, verb->options, argc, argv);
    while ((found = options_next(&options, &option, &value, &err)) > 0) {
        if (option->id == OPTION_HELP) {
            help_verb(verb);
            return 0;
        }
        if (option->id == OPTION_JSON)
            cli->json = true;
        else if (option->id == OPTION_CONFIG && config_path)
            *config_path = value;
    }
    if (found == 0 && options.next < argc)
        found = hc_fail(&err, HC_CLASS_REQUEST, EINVAL, "hotcell %s takes no arguments, but there is \"%s\"",
                        verb->name, argv[options.next]);
    if (found < 0) {
        cli->json = options_want_json(argc, argv);
        message_error(cli, &err);
        return found;
    }
    return 1;
}

/* A file opened while 0, 1 or 2 is closed would take that number, and the program's output would go into it. */
static int fill_standard_fds(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", fd ? O_WRONLY : O_RDONLY) != fd)
            return -EBADF;
    return 0;
}

int main(int argc, char **argv)
{
    struct cli cli = {0};

    if (fill_standard_fds() < 0)
        return EXIT_OURS;
    if (argc < 2) {
        help_short(stderr);
        return EXIT_USAGE;
    }
    const struct verb *verb = verb_find(&cli, argv[1]);
    if (!verb)
        return EXIT_USAGE;

    int code = verb->run(&cli, argc - 1, argv + 1);
    if (fflush(stdout) != 0 || ferror(stdout))
        return message_cannot_write(-errno);
    return code;
}
