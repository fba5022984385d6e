/*
 * What the verbs of hotcell-client are called, and what their help says. They have no `run`: the functions are in
 * client_*.c, which only that program has.
 */
#include "cli/client_verbs.h"

#include "cli/verbs.h"

#define ROW_STATE                                                                                                      \
    {                                                                                                                  \
        CLIENT_STATE, 0, "state", "DIR", false, NULL, "the server's state folder (default: the one it would use)"      \
    }
#define ROW_LIMIT(text)                                                                                                \
    {                                                                                                                  \
        CLIENT_LIMIT, 0, "limit", "N", false, NULL, text                                                               \
    }
#define HEADING(text)                                                                                                  \
    {                                                                                                                  \
        OPTION_HEADING, 0, NULL, NULL, false, NULL, text                                                               \
    }
#define ROWS_PLACE                                                                                                     \
    HEADING("Where"), OPTION_ROW_SERVER, OPTION_ROW_CA, OPTION_ROW_KEY_FILE, ROW_STATE, OPTION_ROW_CONFIG,             \
        OPTION_ROW_HELP,                                                                                               \
    {                                                                                                                  \
        0                                                                                                              \
    }
#define ROWS_FOLDER                                                                                                    \
    HEADING("Where"), ROW_STATE, OPTION_ROW_CONFIG, OPTION_ROW_HELP,                                                   \
    {                                                                                                                  \
        0                                                                                                              \
    }

const struct verb verb_history = {
    .name = "history",
    .summary = "list the runs of a server, newest first",
    .synopsis = "history [OPTION…]",
    .details = "Lists the runs that a server has recorded, with how each ended and what it used. Without --server, the "
               "state folder of this machine's server is read; the server need not be running.",
    .options =
        (const struct option[]){
            HEADING("Which"),
            ROW_LIMIT("at most so many (default 20)"),
            {CLIENT_LANGUAGE, 'l', "language", "LANG", false, NULL, "only runs in this language"},
            {CLIENT_STATUS, 0, "status", "STATUS", false, NULL, "only runs that ended so, such as timeout"},
            {CLIENT_BEFORE, 0, "before", "ID", false, NULL, "only runs older than this one: the next page"},
            HEADING("Kinds of failures instead of runs"),
            {CLIENT_ERRORS, 0, "errors", NULL, false, NULL, "what failed, how often, and which later run put it right"},
            {CLIENT_ERROR_TYPE, 0, "error-type", "TYPE", false, NULL,
             "of --errors: only of this type, such as KeyError"},
            {CLIENT_FINGERPRINT, 0, "fingerprint", "HEX", false, NULL, "of --errors: only this one"},
            HEADING("What comes back"),
            OPTION_ROW_JSON("as a JSON object"),
            ROWS_PLACE,
        },
    .examples =
        (const struct example[]){
            {"hotcell history", "the last twenty"},
            {"hotcell history --status timeout --language python", "those that took too long"},
            {"hotcell history --errors --language python", "what fails most lately, and what fixed it"},
            {"hotcell --server http://127.0.0.1:7600 history --json | jq '.runs[].id'", "of a server, by its address"},
            {0}},
    .remote = true,
    .program = PROGRAM_CLIENT,
};

const struct verb verb_show = {
    .name = "show",
    .summary = "show one run of a server: result, usage, output",
    .synopsis = "show [OPTION…] ID",
    .details = "Shows what became of one run. Without --server, the state folder of this machine's server is read; the "
               "server need not be running.",
    .options =
        (const struct option[]){
            HEADING("What"),
            {CLIENT_REPORT, 0, "report", NULL, false, NULL, "everything that helps to find a fault, as one text"},
            OPTION_ROW_JSON("the result as a JSON object; with --report, the report as one"),
            ROWS_PLACE,
        },
    .examples =
        (const struct example[]){{"hotcell show run_01kc2v9zq4m8e0t6b3x5y7w9ad", "one run"},
                                 {"hotcell show --json run_01kc2v9zq4m8e0t6b3x5y7w9ad | jq .usage", "its figures"},
                                 {0}},
    .remote = true,
    .program = PROGRAM_CLIENT,
};

const struct verb verb_why = {
    .name = "why",
    .summary = "explain why a run failed, and what to do about it",
    .synopsis = "why [OPTION…] [ID]",
    .details = "Shows the diagnosis of a run: what failed, where, of which category, what proves it, one remedy, and "
               "whether it failed so before. Without an ID, of the last run that failed. Without --server, the state "
               "folder of this machine's server is read; the server need not be running.",
    .options = (const struct option[]){HEADING("What"), OPTION_ROW_JSON("as a JSON object"), ROWS_PLACE},
    .examples = (const struct example[]){{"hotcell why", "the last one that failed"},
                                         {"hotcell why --json run_01kc2v9zq4m8e0t6b3x5y7w9ad | jq -r .diagnosis.hint",
                                          "the remedy alone"},
                                         {0}},
    .remote = true,
    .program = PROGRAM_CLIENT,
};

const struct verb verb_cancel = {
    .name = "cancel",
    .summary = "end a run of a server",
    .synopsis = "cancel [OPTION…] ID",
    .details = "Ends a run that waits or is under way; its status becomes killed. Without --server, this machine's "
               "server is asked through its unix socket. A run that has ended is an error.",
    .options = (const struct option[]){HEADING("What"), OPTION_ROW_JSON("the answer as a JSON object"), ROWS_PLACE},
    .examples = (const struct example[]){{"hotcell cancel run_01kc2v9zq4m8e0t6b3x5y7w9ad", "by its id"}, {0}},
    .remote = true,
    .program = PROGRAM_CLIENT,
};

const struct verb verb_stats = {
    .name = "stats",
    .summary = "count what a server has run, and how fast",
    .synopsis = "stats [OPTION…]",
    .details =
        "Counts runs by how they ended, and what they used. With --server it also tells what the server is doing "
        "now: queue, latencies, limits in force.",
    .options = (const struct option[]){HEADING("What"), OPTION_ROW_JSON("as a JSON object"), ROWS_PLACE},
    .examples = (const struct example[]){{"hotcell stats", "what this machine's server has recorded"},
                                         {"hotcell --server unix:/run/hotcell/hotcell.sock stats", "and what it does"},
                                         {0}},
    .remote = true,
    .program = PROGRAM_CLIENT,
};

const struct verb verb_key = {
    .name = "key",
    .summary = "make, list and revoke the keys of a server",
    .synopsis = "key create NAME [OPTION…] | key list | key revoke NAME",
    .details = "A key is a name and a secret token. Whoever sends the token sees the runs of that name and no others, "
               "within its quotas. create prints the token, this once: only its hash is kept. A running server notices "
               "at once.",
    .options =
        (const struct option[]){
            HEADING("Quotas of a new key (0, the default: none)"),
            {CLIENT_RUNS_PER_MINUTE, 0, "runs-per-minute", "N", false, NULL, "runs that may begin in a minute"},
            {CLIENT_CONCURRENT, 0, "concurrent", "N", false, NULL, "runs at one time"},
            {CLIENT_CPU_SECONDS, 0, "cpu-seconds-per-day", "N", false, NULL, "CPU time in a day, by UTC"},
            HEADING("Others of a new key"),
            {CLIENT_NO_COMPILE_CACHE, 0, "no-compile-cache", NULL, false, NULL, "keep nothing that its runs compile"},
            HEADING("What comes back"),
            OPTION_ROW_JSON("as JSON"),
            ROWS_FOLDER,
        },
    .examples = (const struct example[]){{"hotcell key create ada --runs-per-minute 60 --concurrent 4 >ada.key",
                                          "a key with quotas"},
                                         {"hotcell key list", "names and quotas, never the tokens"},
                                         {"hotcell key revoke ada", "from now on it opens nothing"},
                                         {0}},
    .program = PROGRAM_CLIENT,
};

const struct verb verb_audit = {
    .name = "audit",
    .summary = "check and read the audit log of a server",
    .synopsis = "audit verify [OPTION…] | audit list [OPTION…]",
    .details =
        "Each line of the audit log carries the hash of the one before, so a line that was changed, removed or "
        "moved is found. verify exits with 0 when the chain holds, and with 1 when it does not, naming the first "
        "bad line.",
    .options =
        (const struct option[]){
            HEADING("What to verify"),
            {CLIENT_KEPT, 0, "kept", "HASH", false, NULL,
             "the last hash of an earlier time, which must be in the chain: else something was cut off"},
            HEADING("What to list"),
            {CLIENT_EVENT, 0, "event", "EVENT", false, NULL, "only such events, such as key_created"},
            ROW_LIMIT("only the last so many (default 50)"),
            OPTION_ROW_JSON("as JSON"),
            ROWS_FOLDER,
        },
    .examples = (const struct example[]){{"hotcell audit verify", "is the log whole?"},
                                         {"hotcell audit list --event mount_denied", "who asked for what"},
                                         {0}},
    .program = PROGRAM_CLIENT,
};
