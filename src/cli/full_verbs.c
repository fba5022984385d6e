/*
 * What the verbs of hotcell-full are called, and what their help says. They have no `run`: the functions are in files
 * that `hotcell` does not have.
 */
#include "cli/full_verbs.h"

#include "cli/verbs.h"

const struct verb verb_serve = {
    .name = "serve",
    .summary = "serve runs by HTTP, until SIGTERM",
    .synopsis = "serve [--listen ADDRESS:PORT]… [--state DIR] [options]",
    .details =
        "Serves the HTTP API on 127.0.0.1:7600, POST /execute of older clients also on 127.0.0.1:6000 (SANDBOX_HOST, "
        "SANDBOX_PORT), and everything on a unix socket. Prints where it listens once it is ready. Without keys "
        "(hotcell key create) only loopback addresses and the socket are served. With --listen it is a private "
        "instance: only those addresses, and the socket in its state folder; port 0 picks a free one.\n\n"
        "SIGHUP reads the configuration again without dropping a run. SIGTERM lets what runs finish, for as long as "
        "server.drain_time says; a second one does not wait.",
    .options =
        (const struct option[]){
            {OPTION_LISTEN, 'l', "listen", "ADDRESS:PORT", false, NULL, "listen here and nowhere else; repeatable"},
            {OPTION_STATE, 0, "state", "DIR", false, NULL, "keep history, keys and the audit log in this folder"},
            {OPTION_WORKSPACE, 0, "workspace", "DIR", false, NULL,
             "what POST /execute keeps as /workspace (OUTPUT_DATA_PATH)"},
            {OPTION_CONCURRENT, 0, "concurrent", "N", false, NULL,
             "runs at once; 0: 16 for each processor, if memory allows"},
            {OPTION_WEAK, 0, "allow-weak", NULL, false, NULL,
             "serve even where this machine cannot enforce every layer"},
            {OPTION_CHECK, 0, "check", NULL, false, NULL, "check the configuration, start nothing"},
            OPTION_ROW_CONFIG,
            OPTION_ROW_JSON("errors, and the answer of --check, as a JSON object"),
            OPTION_ROW_HELP,
            {0}},
    .examples = (const struct example[]){{"hotcell serve", "the usual addresses"},
                                         {"hotcell serve --listen 127.0.0.1:0 --state /tmp/mine", "a private instance"},
                                         {"hotcell serve --check --config new.toml", "before a reload"},
                                         {0}},
    .program = PROGRAM_FULL,
};

const struct verb verb_languages = {
    .name = "languages",
    .summary = "list the languages, their versions, and what to install",
    .synopsis = "languages [--json] [--names] [OPTION…]",
    .details =
        "A language is a TOML file. One that is not installed is listed with the package that brings it. START "
        "is warm where a child of an interpreter that waits becomes the program, primed where an interpreter waits "
        "in a cell of its own for one program, and cold where it is started by it.",
    .options = (const struct option[]){OPTION_ROW_JSON("as a JSON list"),
                                       {OPTION_NAMES, 0, "names", NULL, false, NULL, "the names alone, one on a line"},
                                       OPTION_ROW_CONFIG,
                                       OPTION_ROW_SERVER,
                                       OPTION_ROW_CA,
                                       OPTION_ROW_KEY_FILE,
                                       OPTION_ROW_HELP,
                                       {0}},
    .examples = (const struct example[]){{"hotcell languages", "a table"},
                                         {"hotcell languages --json | jq -r '.[] | select(.available).name'",
                                          "those that can be run here"},
                                         {0}},
    .remote = true,
    .program = PROGRAM_FULL,
};

const struct verb verb_doctor = {
    .name = "doctor",
    .summary = "check what this machine enforces, and say how to fix the rest",
    .synopsis = "doctor [--json] [--config FILE]",
    .details = "Tries every layer of a cell on this machine. The exit code is 0 when runs are safe, 1 when they are "
               "possible only with --allow-weak, 3 when none is possible.",
    .options = (const struct option[]){OPTION_ROW_JSON("as a JSON object"), OPTION_ROW_CONFIG, OPTION_ROW_HELP, {0}},
    .examples = (const struct example[]){{"hotcell doctor", "a table"},
                                         {"hotcell doctor --json >/dev/null && hotcell run job.py",
                                          "run only where it is safe"},
                                         {0}},
    .program = PROGRAM_FULL,
};

const struct verb verb_config = {
    .name = "config",
    .summary = "show the configuration in force, and where each value came from",
    .synopsis = "config [--json] [--config FILE]",
    .details = "Settings are read from /etc/hotcell/config.toml, then from hotcell/config.toml in $XDG_CONFIG_HOME (or "
               "~/.config), then from the file given by --config. The later one wins.",
    .options = (const struct option[]){OPTION_ROW_JSON("as a JSON list"), OPTION_ROW_CONFIG, OPTION_ROW_HELP, {0}},
    .examples =
        (const struct example[]){{"hotcell config", "a table"},
                                 {"hotcell config --config ./hotcell.toml", "try a file before it is installed"},
                                 {0}},
    .program = PROGRAM_FULL,
};
