/*
 * From the command line to the verb. All three programs begin here; they differ in `full` and `client` alone.
 */
#include "cli/verbs.h"

#include "base/suggest.h"
#include "cli/help.h"
#include "cli/message.h"
#include "run/locate.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct verb *const VERBS[] = {
    &verb_run,      &verb_sandbox, &verb_shell,     &verb_cp,     &verb_volume, &verb_serve,   &verb_mcp,
    &verb_mcp_wrap, &verb_tools,   &verb_languages, &verb_doctor, &verb_config, &verb_history, &verb_show,
    &verb_why,      &verb_cancel,  &verb_stats,     &verb_key,    &verb_audit,  &verb_version, &verb_help,
};

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

const struct verb *verb_act(const struct verb *verb, const char *word, struct hc_err *err)
{
    enum { MOST = 16 };
    const char *names[MOST];
    size_t count = 0;
    char list[128] = "";

    for (const struct verb *const *act = verb->acts; *act && count < MOST; act++) {
        const char *name = strchr((*act)->name, ' ') + 1;
        if (strcmp(word, name) == 0 || ((*act)->also && strcmp(word, (*act)->also) == 0))
            return *act;
        size_t length = strlen(list);
        snprintf(list + length, sizeof list - length, "%s%s", count ? ", " : "", name);
        names[count++] = name;
    }
    if (word[0])
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "hotcell %s cannot \"%s\"", verb->name, word);
    else
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "hotcell %s needs a word that says what to do", verb->name);
    const char *nearest = hc_suggest(word, names, count);
    if (nearest)
        hc_err_remedy(err, "did you mean \"hotcell %s %s\"?", verb->name, nearest);
    else
        hc_err_remedy(err, "hotcell %s does these: %s", verb->name, list);
    return NULL;
}

bool cli_common_option(struct cli *cli, const struct option *option, const char *value)
{
    switch (option->id) {
    case OPTION_JSON:
        cli->json = true;
        return true;
    case OPTION_SERVER:
        cli->server = value[0] ? value : NULL;
        return true;
    case OPTION_CA:
        cli->ca = value;
        return true;
    case OPTION_KEY_FILE:
        cli->key_file = value;
        return true;
    default:
        return false;
    }
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
        if (!cli_common_option(cli, option, value) && option->id == OPTION_CONFIG && config_path)
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

int cli_handover(const struct cli *cli, enum program program)
{
    const char *name = program == PROGRAM_FULL ? "hotcell-full" : "hotcell-client";
    char folder[PATH_MAX], path[PATH_MAX];
    struct hc_err err = {0};

    if (locate_libexec(folder, sizeof folder, &err) < 0)
        return message_error(cli, &err);
    errno = ENAMETOOLONG;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path)
        execv(path, cli->argv);
    hc_fail_errno(&err, HC_CLASS_OURS, errno, "cannot start %s in %s", name, folder);
    hc_err_remedy(&err, "reinstall hotcell, or set HOTCELL_LIBEXEC to the folder that has it");
    return message_error(cli, &err);
}

/* A file opened while 0, 1 or 2 is closed would take that number, and the program's output would go into it. */
static int fill_standard_fds(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", fd ? O_WRONLY : O_RDONLY) != fd)
            return -EBADF;
    return 0;
}

static bool is_one_of(const struct option *table, const char *word)
{
    if (strncmp(word, "--", 2) != 0)
        return false;
    size_t length = strcspn(word + 2, "=");
    for (; table->name; table++)
        if (strncmp(word + 2, table->name, length) == 0 && table->name[length] == '\0')
            return true;
    return false;
}

/* The options that may stand before the verb; anything else that begins with a dash is --help or the like, which are
 * verbs. The index of the verb, or -EINVAL. */
static int read_leading(struct cli *cli, int argc, char **argv, struct hc_err *err)
{
    static const struct option table[] = {OPTION_ROW_SERVER, OPTION_ROW_CA, OPTION_ROW_KEY_FILE, {0}};
    const struct option *option;
    struct options options;
    const char *value;

    options_start(&options, table, argc, argv);
    while (options.next < argc && is_one_of(table, argv[options.next])) {
        int found = options_next(&options, &option, &value, err);
        if (found < 0)
            return found;
        cli_common_option(cli, option, value);
    }
    return options.next;
}

static int start_verb(struct cli *cli, int argc, char **argv)
{
    struct hc_err err = {0};
    int first = read_leading(cli, argc, argv, &err);

    if (first < 0)
        return message_error(cli, &err);
    if (first >= argc) {
        help_short(stderr);
        return EXIT_USAGE;
    }
    const struct verb *verb = verb_find(cli, argv[first]);
    if (!verb)
        return EXIT_USAGE;
    if (first > 1 && !verb->remote) {
        hc_fail(&err, HC_CLASS_REQUEST, EINVAL, "hotcell %s is about this machine, and takes no %s", verb->name,
                argv[1]);
        return message_error(cli, &err);
    }
    argc -= first;
    argv += first;
    if (verb->run)
        return verb->run(cli, argc, argv);
    if (verb->program == PROGRAM_FULL && cli->full)
        return cli->full->verb(cli, verb, argc, argv);
    if (verb->program == PROGRAM_CLIENT && cli->client)
        return cli->client->verb(cli, verb, argc, argv);
    return cli_handover(cli, verb->program);
}

int cli_main(int argc, char **argv, const struct full *full, const struct client *client)
{
    const char *server = getenv("HOTCELL_SERVER");
    struct cli cli = {.full = full, .client = client, .argv = argv, .server = server && server[0] ? server : NULL};

    if (fill_standard_fds() < 0)
        return EXIT_OURS;
    int code = start_verb(&cli, argc, argv);
    if (fflush(stdout) != 0 || ferror(stdout))
        return message_cannot_write(-errno);
    return code;
}
