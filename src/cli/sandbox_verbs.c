/*
 * What hotcell sandbox, shell, cp and volume are called, and what their help says. They have no `run`: the functions
 * are in files that only hotcell-client has.
 */
#include "cli/sandbox_verbs.h"

#include "cli/run_options.h"

/* clang-format off */
#define ROWS_PLACE                                                                                                     \
    RUN_HEADING("Where"), OPTION_ROW_SERVER, OPTION_ROW_CA, OPTION_ROW_KEY_FILE,                                       \
    {SANDBOX_STATE, 0, "state", "DIR", false, NULL, "the state folder of this machine's server"},                      \
    OPTION_ROW_CONFIG, OPTION_ROW_HELP, {0}
#define ROW_ENV(text) {RUN_ENV, 'e', "env", "K=V", false, NULL, text}

static const struct option CREATE_OPTIONS[] = {
    RUN_HEADING("Limits of the whole sandbox (a SIZE is 65536, 64k, 512m or 1.5g; a TIME is 2, 1.5s, 500ms or 2m)"),
    RUN_ROWS_LIMITS,
    {RUN_FIELD, 0, "timeout", "TIME", false, "limits.timeout", "of an exec that does not say (default 30s)"},
    RUN_HEADING("How long it stays"),
    {SANDBOX_IDLE_TIMEOUT, 0, "idle-timeout", "TIME", false, NULL,
     "end it when it was not used for so long (default 1h, or what the server says); 0: never"},
    {SANDBOX_MAX_LIFETIME, 0, "max-lifetime", "TIME", false, NULL, "end it at this age, used or not (default: never)"},
    {SANDBOX_RECOVER, 0, "recover", NULL, false, NULL, "if it dies, let a new one with the same files take its place"},
    RUN_HEADING("What is in it"),
    ROW_ENV("set a variable for all that is started in it; K alone passes on the value it has here"),
    {RUN_FILE, 0, "file", "PATH[:NAME]", false, NULL,
     "put a file, or a folder with all that is in it, into the working directory"},
    {RUN_MOUNT, 0, "mount", "HOST:PATH[:ro|rw]", false, NULL,
     "show a folder of the server's machine at PATH (default ro); its configuration says which are allowed"},
    {SANDBOX_VOLUME, 0, "volume", "NAME:PATH[:ro|rw]", false, NULL,
     "show a volume at PATH (default rw); see hotcell volume"},
    {RUN_READ_ONLY, 0, "read-only", "BOOL", true, "read_only",
     "whether the root filesystem is read-only (default true); false gives it a layer of its own to write to"},
    {RUN_FIELD, 0, "network", "NAME", false, "network", "a network policy (default none)"},
    {RUN_FIELD, 0, "image", "NAME", false, "image", "a root filesystem (default host: that machine's own /usr)"},
    {SANDBOX_METADATA, 0, "metadata", "K=V", false, NULL, "a word of your own about it, which inspect shows"},
    RUN_HEADING("What comes back"),
    OPTION_ROW_JSON("the whole answer as a JSON object, instead of the id"),
    ROWS_PLACE,
};

static const struct option EXEC_OPTIONS[] = {
    RUN_HEADING("What to run"),
    {RUN_CODE, 'c', "code", "CODE", false, NULL, "run this text; the operands are its arguments"},
    {RUN_LANGUAGE, 'l', "language", "LANG", false, "language", "the language of the text (default python)"},
    {RUN_SHELL, 0, "shell", "STRING", false, "shell", "run this command line with sh"},
    {SANDBOX_SESSION, 's', "session", "NAME", false, NULL,
     "run it in this shell, which keeps its folder, variables and functions from call to call"},
    RUN_HEADING("How"),
    {SANDBOX_INTERACTIVE, 'i', "interactive", NULL, false, NULL,
     "pass stdin on also when it is a terminal, or when the job is detached or a session's"},
    ROW_ENV("set a variable; K alone passes on the value it has here"),
    {SANDBOX_CWD, 'w', "cwd", "DIR", false, NULL, "start it in this folder (default: the working directory)"},
    {RUN_FIELD, 0, "timeout", "TIME", false, "limits.timeout", "end it after this time by the clock"},
    {RUN_FIELD, 0, "output", "SIZE", false, "limits.output", "bytes of stdout, and of stderr"},
    {SANDBOX_DETACH, 'd', "detach", NULL, false, NULL, "print the id of the job and leave it running"},
    {SANDBOX_NAME, 0, "name", "NAME", false, NULL, "a name that stands for that id"},
    RUN_HEADING("What comes back"),
    OPTION_ROW_JSON("the result as a JSON object on stdout, with the output in it"),
    {RUN_QUIET, 'q', "quiet", NULL, false, NULL, "say nothing about how it ended"},
    {RUN_VERBOSE, 'v', "verbose", NULL, false, NULL, "say what it used"},
    ROWS_PLACE,
};

static const struct option CP_OPTIONS[] = {
    RUN_HEADING("How"),
    {RUN_QUIET, 'q', "quiet", NULL, false, NULL, "show no progress"},
    OPTION_ROW_JSON("what was copied as a JSON object"),
    ROWS_PLACE,
};

static const struct option PLAIN_OPTIONS[] = {
    RUN_HEADING("What comes back"), OPTION_ROW_JSON("the answer as a JSON object"), ROWS_PLACE};
/* clang-format on */

const struct verb act_create = {
    .name = "sandbox create",
    .summary = "make one, and print its id",
    .synopsis = "sandbox create [OPTION…]",
    .details = "Makes a sandbox and prints its id, alone, on stdout. It lives until it is removed, was not used for "
               "--idle-timeout, or is as old as --max-lifetime.",
    .options = CREATE_OPTIONS,
    .examples =
        (const struct example[]){
            {"id=$(hotcell sandbox create)", "one with the usual limits"},
            {"hotcell sandbox create --memory 2g --cpus 2 --idle-timeout 10m", "limits"},
            {"hotcell sandbox create --file . --env CI=1 --metadata job=42", "with a copy of this folder"},
            {"hotcell sandbox create --read-only=false --volume cache:/cache", "a root to write to, and a volume"},
            {0}},
    .remote = true,
    .program = PROGRAM_CLIENT,
};

const struct verb act_list = {
    .name = "sandbox list",
    .also = "ls",
    .summary = "list them, newest first",
    .synopsis = "sandbox list [OPTION…]",
    .details = "Lists the sandboxes of a server, newest first.",
    .options =
        (const struct option[]){
            RUN_HEADING("Which"),
            {SANDBOX_STATUS, 0, "status", "STATE", false, NULL,
             "only those in this state: running, paused, failed, stopping"},
            {SANDBOX_IDS, 'q', "ids", NULL, false, NULL, "the ids alone, one on a line"},
            OPTION_ROW_JSON("as a JSON object"),
            ROWS_PLACE,
        },
    .examples = (const struct example[]){{"hotcell sandbox list", "a table"},
                                         {"hotcell sandbox ls -q --status paused | xargs -r hotcell sandbox rm",
                                          "remove those that are paused"},
                                         {0}},
    .remote = true,
    .program = PROGRAM_CLIENT,
};

const struct verb act_inspect = {
    .name = "sandbox inspect",
    .summary = "show one, with what it uses",
    .synopsis = "sandbox inspect [OPTION…] ID",
    .details = "Shows one sandbox: state, limits, and what it uses now. To look at it is not to use it.",
    .options = PLAIN_OPTIONS,
    .examples = (const struct example[]){{"hotcell sandbox inspect $id", "a table"},
                                         {"hotcell sandbox inspect --json $id | jq .usage", "its figures"},
                                         {0}},
    .remote = true,
    .program = PROGRAM_CLIENT,
};

const struct verb act_exec = {
    .name = "sandbox exec",
    .summary = "run a command or code in one",
    .synopsis = "sandbox exec [OPTION…] ID [--] COMMAND [ARG…]",
    .details =
        "Runs a command in a sandbox. Output is live, stdin passes through when it is a pipe or a file, and the exit "
        "code is the program's; 124 after a timeout, 125 when hotcell itself failed, 126 and 127 as in a shell, 128 "
        "plus the signal that ended it. Ctrl-C ends the job, not the sandbox. Options end at the first word of the "
        "command. With --session the words are joined with blanks and read by the session's shell, as ssh does.",
    .options = EXEC_OPTIONS,
    .examples = (const struct example[]){{"hotcell sandbox exec $id -- make test", "a command"},
                                         {"hotcell sandbox exec $id -c 'print(42)'", "code, python unless -l says"},
                                         {"hotcell sandbox exec -s main $id 'cd src && x=1'", "in a shell that stays"},
                                         {"hotcell sandbox exec -d --name web $id -- python3 -m http.server",
                                          "a job that goes on; see logs"},
                                         {"tar c . | hotcell sandbox exec $id -- tar x", "stdin passes through"},
                                         {0}},
    .remote = true,
    .program = PROGRAM_CLIENT,
};

#define CP_DETAILS                                                                                                     \
    "Copies a file, or a folder with all that is in it, into a sandbox or out of one. One of the two is ID:PATH; a "   \
    "PATH that does not begin with a slash is below the working directory. As with cp: a destination that is a "       \
    "folder, or ends in a slash, takes what is copied under its own name; otherwise it gets the new name. Modes, "     \
    "times of change and symbolic links are kept; nothing is written through a link. With '-' as the source, stdin "   \
    "is a file's bytes, or, where PATH ends in a slash, a tar that is unpacked there; with '-' as the destination, a " \
    "file's bytes, or a folder as a tar, go to stdout."

const struct verb act_cp = {
    .name = "sandbox cp",
    .summary = "copy files and folders into one and out of it",
    .synopsis = "sandbox cp [OPTION…] SOURCE… DESTINATION",
    .details = CP_DETAILS,
    .options = CP_OPTIONS,
    .examples = (const struct example[]){{"hotcell sandbox cp data.csv $id:", "into the working directory"},
                                         {"hotcell sandbox cp $id:/workspace/out ./results", "a folder, out of it"},
                                         {0}},
    .remote = true,
    .program = PROGRAM_CLIENT,
};

const struct verb act_logs = {
    .name = "sandbox logs",
    .summary = "list its detached jobs, or show what one of them wrote",
    .synopsis = "sandbox logs [OPTION…] ID [JOB]",
    .details =
        "Without JOB, lists the detached jobs of a sandbox. With the id or the name of one, prints what it wrote "
        "to stdout and stderr, as far as it is remembered. With -f, goes on until the job ends; Ctrl-C ends the "
        "looking, not the job.",
    .options =
        (const struct option[]){
            RUN_HEADING("What"),
            {SANDBOX_FOLLOW, 'f', "follow", NULL, false, NULL, "show more as it comes, until the job ends"},
            OPTION_ROW_JSON("the jobs, or the job with its output, as a JSON object"),
            ROWS_PLACE,
        },
    .examples = (const struct example[]){{"hotcell sandbox logs $id", "the jobs"},
                                         {"hotcell sandbox logs -f $id web", "what one writes, as it comes"},
                                         {0}},
    .remote = true,
    .program = PROGRAM_CLIENT,
};

const struct verb act_pause = {
    .name = "sandbox pause",
    .summary = "freeze all that is in it",
    .synopsis = "sandbox pause [OPTION…] ID…",
    .details = "Freezes everything in a sandbox: it keeps its memory and uses no CPU. Work in it is refused until it "
               "is resumed.",
    .options = PLAIN_OPTIONS,
    .examples = (const struct example[]){{"hotcell sandbox pause $id", "for now"}, {0}},
    .remote = true,
    .program = PROGRAM_CLIENT,
};

const struct verb act_resume = {
    .name = "sandbox resume",
    .summary = "let a paused one go on",
    .synopsis = "sandbox resume [OPTION…] ID…",
    .details = "Lets a paused sandbox go on where it was.",
    .options = PLAIN_OPTIONS,
    .examples = (const struct example[]){{"hotcell sandbox resume $id", "as if nothing had been"}, {0}},
    .remote = true,
    .program = PROGRAM_CLIENT,
};

const struct verb act_rm = {
    .name = "sandbox rm",
    .also = "delete",
    .summary = "end it, with all that is in it",
    .synopsis = "sandbox rm [OPTION…] ID…",
    .details = "Ends sandboxes, with every process and file that is in them. Volumes stay.",
    .options =
        (const struct option[]){
            RUN_HEADING("Which"),
            {SANDBOX_ALL, 'a', "all", NULL, false, NULL, "all that you have"},
            OPTION_ROW_JSON("the ids of those that were ended, as a JSON object"),
            ROWS_PLACE,
        },
    .examples = (const struct example[]){{"hotcell sandbox rm $id", "one"}, {"hotcell sandbox rm --all", "all"}, {0}},
    .remote = true,
    .program = PROGRAM_CLIENT,
};

const struct verb verb_sandbox = {
    .name = "sandbox",
    .summary = "make sandboxes that live on, and work in them",
    .synopsis = "sandbox create|list|inspect|exec|cp|logs|pause|resume|rm [OPTION…] [ID] …",
    .details = "A sandbox is a cell that stays, under an id: commands, files and shells are in it until it is removed "
               "or forgotten. It lives on a server (hotcell serve): the one that --server names, or that of this "
               "machine. An id may be abbreviated to its beginning or its end where that is unique.",
    .options = (const struct option[]){OPTION_ROW_HELP, {0}},
    .examples = (const struct example[]){{"id=$(hotcell sandbox create)", "make one"},
                                         {"hotcell sandbox exec $id -- uname -a", "run a command in it"},
                                         {"hotcell cp report.csv $id:", "put a file into it"},
                                         {"hotcell shell $id", "a terminal in it"},
                                         {"hotcell sandbox rm $id", "end it"},
                                         {0}},
    .acts = (const struct verb *const[]){&act_create, &act_list, &act_inspect, &act_exec, &act_cp, &act_logs,
                                         &act_pause, &act_resume, &act_rm, NULL},
    .remote = true,
    .program = PROGRAM_CLIENT,
};

const struct verb verb_cp = {
    .name = "cp",
    .summary = "copy files and folders into a sandbox and out of it",
    .synopsis = "cp [OPTION…] SOURCE… DESTINATION",
    .details = CP_DETAILS,
    .options = CP_OPTIONS,
    .examples = (const struct example[]){{"hotcell cp data.csv $id:", "a file, into the working directory"},
                                         {"hotcell cp src $id:/workspace/", "a folder: /workspace/src"},
                                         {"hotcell cp $id:/workspace/out .", "a folder, out of it: ./out"},
                                         {"hotcell cp $id:log.txt - | less", "a file to stdout"},
                                         {"hotcell cp $id:/workspace - | tar t", "a folder to stdout, as a tar"},
                                         {"tar c . | hotcell cp - $id:/workspace/", "a tar from stdin, unpacked"},
                                         {0}},
    .remote = true,
    .program = PROGRAM_CLIENT,
};

const struct verb verb_shell = {
    .name = "shell",
    .summary = "a terminal in a sandbox",
    .synopsis = "shell [OPTION…] ID [COMMAND]",
    .details =
        "Opens a terminal in a sandbox, and in it a shell, or COMMAND. It takes the size of your own, and follows it. "
        "The exit code is the shell's. Enter, ~ and . leave it; if the connection breaks or hotcell is ended, it goes "
        "on "
        "for a while as well: --attach takes it up again, with what it showed last.",
    .options =
        (const struct option[]){
            RUN_HEADING("What"),
            {SANDBOX_ATTACH, 'a', "attach", "TERMINAL", false, NULL, "take up this terminal, by its id"},
            {SANDBOX_CWD, 'w', "cwd", "DIR", false, NULL, "start in this folder (default: the working directory)"},
            {RUN_QUIET, 'q', "quiet", NULL, false, NULL, "say nothing of your own"},
            OPTION_ROW_JSON("errors as a JSON object"),
            ROWS_PLACE,
        },
    .examples = (const struct example[]){{"hotcell shell $id", "a shell"},
                                         {"hotcell shell $id python3", "python's prompt"},
                                         {"hotcell shell --attach term_01m7gvvrkm9f5shkdetwf4jf0a $id", "again"},
                                         {0}},
    .remote = true,
    .program = PROGRAM_CLIENT,
};

const struct verb act_volume_create = {
    .name = "volume create",
    .summary = "make one",
    .synopsis = "volume create [OPTION…] NAME",
    .details = "Makes a volume: a folder of a fixed size that sandboxes can show at a path of theirs.",
    .options =
        (const struct option[]){
            RUN_HEADING("What"),
            {SANDBOX_SIZE, 0, "size", "SIZE", false, NULL, "how much it holds, such as 512m or 1g"},
            OPTION_ROW_JSON("the answer as a JSON object"),
            ROWS_PLACE,
        },
    .examples = (const struct example[]){{"hotcell volume create cache --size 1g", "a gibibyte"}, {0}},
    .remote = true,
    .program = PROGRAM_CLIENT,
};

const struct verb act_volume_list = {
    .name = "volume list",
    .also = "ls",
    .summary = "list them",
    .synopsis = "volume list [OPTION…]",
    .details = "Lists the volumes, with how full each is and which sandboxes have it.",
    .options = PLAIN_OPTIONS,
    .examples = (const struct example[]){{"hotcell volume list", "a table"}, {0}},
    .remote = true,
    .program = PROGRAM_CLIENT,
};

const struct verb act_volume_remove = {
    .name = "volume remove",
    .also = "rm",
    .summary = "remove one, with all that is in it",
    .synopsis = "volume remove [OPTION…] NAME…",
    .details = "Removes volumes, with all that is in them. One that a sandbox has is kept, and that is an error.",
    .options = PLAIN_OPTIONS,
    .examples = (const struct example[]){{"hotcell volume remove cache", "for good"}, {0}},
    .remote = true,
    .program = PROGRAM_CLIENT,
};

const struct verb verb_volume = {
    .name = "volume",
    .summary = "make, list and remove folders that outlive sandboxes",
    .synopsis = "volume create NAME [OPTION…] | volume list | volume remove NAME…",
    .details = "A volume is a folder that outlives the sandboxes that show it: hotcell sandbox create --volume.",
    .options = (const struct option[]){OPTION_ROW_HELP, {0}},
    .examples = (const struct example[]){{"hotcell volume create cache --size 1g", "make one"},
                                         {"hotcell sandbox create --volume cache:/cache", "a sandbox that has it"},
                                         {0}},
    .acts = (const struct verb *const[]){&act_volume_create, &act_volume_list, &act_volume_remove, NULL},
    .remote = true,
    .program = PROGRAM_CLIENT,
};
