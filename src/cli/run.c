/*
 * hotcell run. The command line is read twice: first whole, so that a mistake in its last word is found before anything
 * happens; then to make the request. After hc_run returns, nobody is in the cell any more, whatever was the reason.
 */
#include "cli/run.h"

#include "base/fd.h"
#include "base/signame.h"
#include "cli/help.h"
#include "cli/interrupt.h"
#include "cli/message.h"
#include "cli/remote.h"
#include "cli/run_options.h"
#include "cli/stream.h"
#include "cli/verbs.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int usage(const struct cli *cli, struct run_line *line, struct hc_err *err)
{
    const bool chosen = line->code || line->shell || line->entry || line->request;
    const bool operands = line->operand < line->argc;

    if (line->local && cli->server)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "--local is for a run without a server, but %s was named",
                       cli->server);
    if (line->code && line->shell)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "-c and --shell are two programs; give one");
    if (!chosen && !operands) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "there is nothing to run");
        return hc_err_remedy(err, "give a FILE, -c CODE, or -- COMMAND; see hotcell help run");
    }
    line->command = line->command && !chosen;
    if (line->command && line->language) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "-l %s names a language, but what follows -- is a command",
                line->language);
        return hc_err_remedy(err, "leave out the --, or the language");
    }
    return 0;
}

static void note_option(struct cli *cli, struct run_line *line, const struct option *option, const char *value)
{
    if (cli_common_option(cli, option, value))
        return;
    switch (option->id) {
    case OPTION_CONFIG:
        line->config = value;
        break;
    case RUN_CODE:
        line->code = value;
        break;
    case RUN_LANGUAGE:
        line->language = value;
        break;
    case RUN_ENTRY:
        line->entry = value;
        break;
    case RUN_SHELL:
        line->shell = value;
        break;
    case RUN_REQUEST:
        line->request = value;
        break;
    case RUN_STDIN:
        line->stdin_path = value;
        break;
    case RUN_ALLOW_WEAK:
        line->allow_weak = true;
        break;
    case RUN_LOCAL:
        line->local = true;
        break;
    case RUN_MOUNT:
        line->mounts = true;
        break;
    case RUN_COLLECT:
        line->collect = true;
        break;
    case RUN_COLLECT_TO:
        line->collect_to = value;
        break;
    case RUN_FORCE:
        line->force = true;
        break;
    case RUN_QUIET:
        cli->quiet = true;
        break;
    case RUN_VERBOSE:
        cli->verbose = true;
        break;
    default:
        break;
    }
}

/* 1: go on; 0: help was asked for; -errno: wrong usage. */
static int read_line(struct cli *cli, struct run_line *line, struct hc_err *err)
{
    struct options options;
    const struct option *option;
    const char *value;
    int found;

    options_start(&options, line->table, line->argc, line->argv);
    while ((found = options_next(&options, &option, &value, err)) > 0) {
        if (option->id == OPTION_HELP)
            return 0;
        note_option(cli, line, option, value);
    }
    if (found < 0) {
        cli->json = options_want_json(line->argc, line->argv);
        return found;
    }
    line->command = options.dashes;
    line->operand = options.next;
    int status = usage(cli, line, err);
    return status < 0 ? status : 1;
}

static void show_summary(const struct cli *cli, const struct stream *stream, const char *summary)
{
    if (cli->quiet || !summary[0])
        return;
    stream_end_line(stream);
    message_summary(summary);
}

int run_interrupted(const struct cli *cli, const struct stream *stream)
{
    char summary[64];

    snprintf(summary, sizeof summary, "killed: hotcell was ended by %s", hc_signal_name(interrupt_caught()));
    show_summary(cli, stream, summary);
    return 128 + interrupt_caught();
}

int run_cannot_write(const struct cli *cli, const struct stream *stream)
{
    struct hc_err err = {0};

    if (stream->status == -EPIPE)
        return 128 + SIGPIPE;
    hc_fail_errno(&err, HC_CLASS_HOST, -stream->status, "cannot write to %s", stream->fd == 1 ? "stdout" : "stderr");
    const struct cli plain = {.quiet = cli->quiet}; /* an object would go to the same stdout */
    return message_error(stream->fd == 1 ? &plain : cli, &err);
}

int run_report(const struct cli *cli, const struct run_line *line, const struct run_outcome *outcome,
               struct stream *stream)
{
    if (cli->json) {
        const char *text = outcome->json(outcome->data, isatty(STDOUT_FILENO));
        if (!text)
            return message_no_memory(cli);
        stream_output(stream, STDOUT_FILENO, text, strlen(text));
        if (stream->status == 0 && stream->middle[STDOUT_FILENO])
            stream_output(stream, STDOUT_FILENO, "\n", 1);
    }
    if (stream->status && stream->status != -EINTR)
        return run_cannot_write(cli, stream);
    if (interrupt_caught())
        return run_interrupted(cli, stream);
    show_summary(cli, stream, outcome->summary);
    if (cli->verbose)
        cli->full->measures(outcome);
    if (line->collect_fd >= 0 && outcome->file_count == 0 && !cli->quiet)
        message_note(
            "nothing was collected: no file matches --collect, or the cell was ended before they could be read");
    if (line->collect_fd >= 0 &&
        collect_write(line->collect_fd, outcome->files, outcome->file_count, line->force, cli->verbose) < 0 &&
        outcome->exit_code == 0)
        return EXIT_OURS;
    return outcome->exit_code;
}

static int report_result(const struct cli *cli, const struct run_line *line, const hc_result *result,
                         struct stream *stream)
{
    size_t count = line->collect_fd >= 0 ? hc_result_file_count(result) : 0;
    hc_cleanup_free struct run_file *files = count > 0 ? calloc(count, sizeof *files) : NULL;

    if (count > 0 && !files)
        return message_no_memory(cli);
    for (size_t i = 0; i < count; i++) {
        files[i].path = hc_result_file(result, i, &files[i].content, &files[i].length);
        files[i].type = hc_result_file_type(result, i);
    }
    struct run_outcome outcome = {.exit_code = hc_result_exit_code(result),
                                  .summary = hc_result_summary(result),
                                  .files = files,
                                  .file_count = count,
                                  .alone = line->alone,
                                  .data = result,
                                  .json = cli->full ? cli->full->result : NULL};
    return run_report(cli, line, &outcome, stream);
}

/* Everything is in place: the engine, the cell, the program, and its end. */
static int execute(const struct cli *cli, const struct run_line *line, const hc_config *config, hc_request *request)
{
    hc_engine *engine = NULL;
    hc_result *result = NULL;
    hc_error *error = NULL;
    struct stream stream = {0};
    int status = -EINTR, code;

    if (!cli->json)
        hc_request_on_output(request, stream_output, &stream);
    hc_request_endless(request, line->endless);
    interrupt_begin();
    if (hc_engine_open(config, &engine, &error) < 0)
        return interrupt_caught() ? run_interrupted(cli, &stream) : message_library(cli, error);
    interrupt_target(engine);
    hc_engine_single(engine);
    if (!interrupt_caught())
        status = hc_run(engine, request, &result, &error);
    interrupt_target(NULL);
    if (status != 0) { /* whatever there is ends now, and not when somebody has read what we say of it */
        hc_engine_close(engine);
        engine = NULL;
    }

    if (status == 0)
        code = report_result(cli, line, result, &stream);
    else if (stream.status && stream.status != -EINTR)
        code = run_cannot_write(cli, &stream);
    else if (interrupt_caught())
        code = run_interrupted(cli, &stream);
    else
        return message_library(cli, error);
    hc_error_free(error);
    hc_result_free(result);
    hc_engine_leave(engine);
    return code;
}

/* Before the run, so that a folder that cannot be written is not found out after it. With --json the files are in the
 * result, unless a folder was named. */
static int open_folder(const struct cli *cli, struct run_line *line, struct hc_err *err)
{
    if (line->collect_to && !line->collect && !line->request) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "--collect-to says where files go, and nothing says which");
        return hc_err_remedy(err, "add --collect GLOB, such as --collect '*.png'");
    }
    if (!line->collect_to && (!line->collect || cli->json))
        return 0;
    line->collect_fd = collect_open(line->collect_to ? line->collect_to : ".", err);
    return line->collect_fd < 0 ? line->collect_fd : 0;
}

static int execute_on_server(const struct cli *cli, struct run_line *line, hc_request *request)
{
    struct remote_place place = {0};
    struct hc_err err = {0};

    if (server_find(cli, &place.server, &err) < 0)
        return message_error(cli, &err);
    return remote_run(cli, line, request, &place);
}

/* Where: on the server that was named, on one of this machine, or without any. */
static int execute_somewhere(const struct cli *cli, struct run_line *line, hc_request *request)
{
    hc_config *config = NULL;
    hc_error *error = NULL;

    if (cli->server)
        return execute_on_server(cli, line, request);
    if (hc_config_load(line->config, &config, &error) < 0)
        return message_library(cli, error);
    int code = local_run(cli, line, config, request, line->alone, sizeof line->alone);
    if (code == REMOTE_DECLINED)
        code = execute(cli, line, config, request);
    hc_config_free(config);
    return code;
}

static int prepare_and_execute(const struct cli *cli, struct run_line *line)
{
    struct hc_err err = {0};

    hc_request *request = hc_request_new();
    int status =
        request ? request_build(cli, line, request, &err) : hc_fail(&err, HC_CLASS_OURS, ENOMEM, "out of memory");
    if (status == 0)
        status = open_folder(cli, line, &err);
    int code = status < 0 ? message_error(cli, &err) : execute_somewhere(cli, line, request);
    hc_request_free(request);
    return code;
}

static int run_run(struct cli *cli, int argc, char **argv)
{
    struct run_line line = {.table = verb_run.options,
                            .argc = argc,
                            .argv = argv,
                            .operand = argc,
                            .stdin_fd = -1,
                            .input_fd = -1,
                            .collect_fd = -1};
    struct hc_err err = {0};

    int go_on = read_line(cli, &line, &err);
    if (go_on == 0) {
        help_verb(&verb_run);
        return EXIT_OK;
    }
    if (go_on < 0)
        return message_error(cli, &err);
    if (cli->server && !cli->client && !url_is_local(cli->server))
        return cli_handover(cli, PROGRAM_CLIENT);
    if ((cli->json || cli->verbose || line.request) && !cli->full)
        return cli_handover(cli, PROGRAM_FULL);
    int code = prepare_and_execute(cli, &line);
    hc_close(line.stdin_fd);
    hc_close(line.collect_fd);
    return code;
}

/* What serves others is not handed to a server that happens to run: it is this program's child, and ends with it. */
int run_served(struct cli *cli, const struct verb *verb, int argc, char **argv)
{
    struct run_line line = {.table = verb->options,
                            .argc = argc,
                            .argv = argv,
                            .operand = argc,
                            .endless = true,
                            .stdin_fd = -1,
                            .input_fd = -1,
                            .collect_fd = -1};
    struct hc_err err = {0};

    cli->server = NULL;
    int go_on = read_line(cli, &line, &err);
    if (go_on == 0) {
        help_verb(verb);
        return EXIT_OK;
    }
    line.command = line.local = true;
    return go_on < 0 ? message_error(cli, &err) : prepare_and_execute(cli, &line);
}

/* clang-format off */
static const struct option OPTIONS[] = {
    {OPTION_HEADING, 0, NULL, NULL, false, NULL, "What to run"},
    {RUN_CODE, 'c', "code", "CODE", false, NULL, "run this text"},
    {RUN_LANGUAGE, 'l', "language", "LANG", false, "language",
     "its language; without it, what FILE's name says, or python for -c"},
    {RUN_ENTRY, 0, "entry", "NAME", false, "entry",
     "start this one of the files given by --file; with -c, the name that the code gets"},
    {RUN_SHELL, 0, "shell", "STRING", false, "shell", "run this command line with sh"},
    {RUN_REQUEST, 0, "request", "FILE", false, NULL,
     "take a whole request from this JSON file ('-': stdin); other options change it"},

    {OPTION_HEADING, 0, NULL, NULL, false, NULL,
     "Limits (a SIZE is 65536, 64k, 512m or 1.5g; a TIME is 2, 1.5s, 500ms or 2m)"},
    {RUN_FIELD, 0, "timeout", "TIME", false, "limits.timeout",
     "end the run after this time by the clock (default 30s)"},
    {RUN_FIELD, 0, "cpu-time", "TIME", false, "limits.cpu_time",
     "end it after this much CPU time of all its processes (default: no limit)"},
    RUN_ROWS_LIMITS,

    {OPTION_HEADING, 0, NULL, NULL, false, NULL, "What it sees"},
    {RUN_ENV, 0, "env", "K=V", false, NULL, "set a variable; K alone passes on the value it has here"},
    {RUN_FILE, 0, "file", "PATH[:NAME]", false, NULL,
     "put a file, or a folder with all that is in it, into the working directory"},
    {RUN_MOUNT, 0, "mount", "HOST:PATH[:ro|rw]", false, NULL,
     "show a folder of this machine at PATH (default ro); the configuration says which are allowed"},
    {RUN_STDIN, 0, "stdin", "FILE", false, NULL, "its standard input; without it, hotcell's own"},
    {RUN_READ_ONLY, 0, "read-only", "BOOL", true, "read_only",
     "whether the root filesystem is read-only (default true); false gives it a copy in memory to write to"},
    {RUN_FIELD, 0, "network", "NAME", false, "network", "a network policy (default none)"},
    {RUN_FIELD, 0, "image", "NAME", false, "image", "a root filesystem (default host: this machine's own /usr)"},
    {RUN_ALLOW_WEAK, 0, "allow-weak", NULL, false, NULL,
     "run even where this machine cannot enforce every layer; see hotcell doctor"},

    {OPTION_HEADING, 0, NULL, NULL, false, NULL, "What comes back"},
    {RUN_COLLECT, 0, "collect", "GLOB", false, NULL, "bring back the files of the working directory that match"},
    {RUN_COLLECT_TO, 0, "collect-to", "DIR", false, NULL, "write them below this folder (default: the current one)"},
    {RUN_FORCE, 0, "force", NULL, false, NULL, "let them replace files that exist"},
    OPTION_ROW_JSON("the result as a JSON object on stdout, with the output and the collected files in it"),
    {RUN_QUIET, 'q', "quiet", NULL, false, NULL, "say nothing about how it ended"},
    {RUN_VERBOSE, 'v', "verbose", NULL, false, NULL, "say what it used, and which files were written"},

    {OPTION_HEADING, 0, NULL, NULL, false, NULL, "Others"},
    {RUN_LOCAL, 0, "local", NULL, false, NULL,
     "start a cell for this run, also where a server runs on this machine that has one ready"},
    OPTION_ROW_CONFIG,
    OPTION_ROW_SERVER,
    OPTION_ROW_CA,
    OPTION_ROW_KEY_FILE,
    OPTION_ROW_HELP,
    {0},
};
/* clang-format on */

static const struct example EXAMPLES[] = {
    {"hotcell run -c 'print(42)'", "python, unless another is named"},
    {"hotcell run -l ruby -c 'puts 42'", "another language"},
    {"hotcell run main.go a b", "a file, with arguments"},
    {"hotcell run -l c prog.c < input.txt", "stdin passes through"},
    {"hotcell run --memory 64m --timeout 2 --cpus 0.5 job.py", "limits"},
    {"hotcell run --file utils.py --file data.csv job.py", "more files beside it"},
    {"hotcell run --collect 'out/*.png' --collect-to results job.py", "files come back"},
    {"hotcell run --json -c 'print(42)' | jq .usage", "the whole result"},
    {"hotcell run --file . -- make test", "a command, in a copy of this folder"},
    {"hotcell --server http://127.0.0.1:7600 run job.py", "on a server, just so"},
    {"hotcell run --read-only=false -l bash -c 'touch /usr/x'", "a root it may write to, which is thrown away"},
    {0},
};

const struct verb verb_run = {
    .name = "run",
    .summary = "run code or a command in a fresh cell",
    .synopsis = "run [OPTION…] [--] [FILE|COMMAND] [ARG…]",
    .details = "Runs one program in a sealed cell that is made for it and destroyed after it. FILE is a program in any "
               "of the languages ('-': from stdin); what follows -- is a command; with -c, --entry, --shell or "
               "--request the operands are all arguments. Options end at the first operand. Output is live, stdin "
               "passes through, and the exit code is the program's; 124 after a timeout, 125 when hotcell itself "
               "failed, 126 and 127 as in a shell, 128 plus the signal that ended it.\n\n"
               "Where a server of yours or of root's runs on this machine, it runs the program, in a cell that it has "
               "ready; nothing else is different. --local, --config and --mount do without it, and so does a run that "
               "it refuses. -v says who ran it.",
    .options = OPTIONS,
    .examples = EXAMPLES,
    .remote = true,
    .run = run_run,
};
