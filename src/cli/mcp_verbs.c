/* What the verbs for models and their clients are called, and what their help says. */
#include "cli/mcp_verbs.h"

#include "cli/run.h"
#include "cli/verbs.h"

const struct verb verb_mcp = {
    .name = "mcp",
    .summary = "be a server of the Model Context Protocol, on stdin and stdout",
    .synopsis = "mcp [OPTION…]",
    .details =
        "Gives a client of the Model Context Protocol (Claude, Cursor, VS Code, …) the tools run_code, run_command, "
        "create_sandbox and so on; `hotcell tools` lists them. Messages are JSON, one on a line. What is done is done "
        "by "
        "a server: the one of --server, else the one that runs on this machine, else a private one, which is started "
        "with this program, keeps its history in a folder of its own, and ends with it, however it ends.",
    .options = (const struct option[]){{MCP_PRIVATE, 0, "private", NULL, false, NULL,
                                        "start a private server even where one is running"},
                                       {MCP_WEAK, 0, "allow-weak", NULL, false, NULL,
                                        "of a private server: run even where this machine cannot enforce every layer"},
                                       OPTION_ROW_SERVER,
                                       OPTION_ROW_CA,
                                       OPTION_ROW_KEY_FILE,
                                       OPTION_ROW_HELP,
                                       {0}},
    .examples = (const struct example[]){{"hotcell mcp", "what a client's configuration says, without more"},
                                         {"hotcell mcp --server https://cells.example --key-file cells.key",
                                          "the tools of another machine"},
                                         {0}},
    .remote = true,
    .program = PROGRAM_CLIENT,
};

/* clang-format off */
static const struct option WRAP_OPTIONS[] = {
    {OPTION_HEADING, 0, NULL, NULL, false, NULL,
     "Limits (a SIZE is 65536, 64k, 512m or 1.5g; a TIME is 2, 1.5s, 500ms or 2m)"},
    {RUN_FIELD, 0, "timeout", "TIME", false, "limits.timeout", "end it after this time by the clock (default: never)"},
    {RUN_FIELD, 0, "cpu-time", "TIME", false, "limits.cpu_time", "end it after this much CPU time (default: no limit)"},
    {RUN_FIELD, 0, "memory", "SIZE", false, "limits.memory", "memory of all its processes and files (default 512m)"},
    {RUN_FIELD, 0, "cpus", "NUMBER", false, "limits.cpus", "how many CPUs, such as 0.5 (default 1.0)"},
    {RUN_FIELD, 0, "pids", "NUMBER", false, "limits.pids", "processes and threads at one time (default 100)"},
    {RUN_FIELD, 0, "disk", "SIZE", false, "limits.disk", "bytes in all the files it writes (default 100m)"},
    {RUN_FIELD, 0, "files-open", "NUMBER", false, "limits.files_open",
     "files each process may have open (default 256)"},
    {OPTION_HEADING, 0, NULL, NULL, false, NULL, "What it sees"},
    {RUN_ENV, 0, "env", "K=V", false, NULL, "set a variable; K alone passes on the value it has here"},
    {RUN_FILE, 0, "file", "PATH[:NAME]", false, NULL, "put a copy of a file or folder into the working directory"},
    {RUN_MOUNT, 0, "mount", "HOST:PATH[:ro|rw]", false, NULL,
     "show a folder of this machine at PATH (default ro); the configuration says which are allowed"},
    {RUN_ALLOW_WEAK, 0, "allow-weak", NULL, false, NULL,
     "run even where this machine cannot enforce every layer; see hotcell doctor"},
    {OPTION_HEADING, 0, NULL, NULL, false, NULL, "Others"},
    {RUN_QUIET, 'q', "quiet", NULL, false, NULL, "say nothing about how it ended"},
    OPTION_ROW_CONFIG,
    OPTION_ROW_HELP,
    {0},
};
/* clang-format on */

static int wrap(struct cli *cli, int argc, char **argv)
{
    return run_served(cli, &verb_mcp_wrap, argc, argv);
}

const struct verb verb_mcp_wrap = {
    .name = "mcp-wrap",
    .summary = "run somebody else's MCP server in a cell",
    .synopsis = "mcp-wrap [OPTION…] -- COMMAND [ARG…]",
    .details =
        "Runs a server of the Model Context Protocol that speaks on stdin and stdout, and that nobody has read, in a "
        "sealed "
        "cell: it has no network, and sees of this machine what --mount and --file show it. What it reads and writes "
        "passes through byte for byte. It has no time limit, and ends when its client closes its stdin, or with this "
        "program. Where its own files are not below /usr, they must be mounted: for a package of npm, its "
        "node_modules.",
    .options = WRAP_OPTIONS,
    .examples =
        (const struct example[]){
            {"hotcell mcp-wrap --mount /srv/mcp:/srv/mcp -- node /srv/mcp/server.js", "a package of npm"},
            {"hotcell mcp-wrap --mount ~/notes:/notes:rw --memory 256m -- notes-server /notes", "one folder"},
            {0}},
    .run = wrap,
};

const struct verb verb_tools = {
    .name = "tools",
    .summary = "print the tools for models, with their schemas",
    .synopsis = "tools [--format json|openai|anthropic]",
    .details =
        "The tools that `hotcell mcp` and POST /mcp offer, for who gives tools to a model by hand. A call of one is "
        "POST /v1/tools/NAME with its arguments as a JSON object.",
    .options =
        (const struct option[]){{TOOLS_FORMAT, 0, "format", "FORMAT", false, NULL,
                                 "json (default): as the Model Context Protocol has them; openai: functions of its "
                                 "chat interface; anthropic: tools of its messages"},
                                OPTION_ROW_HELP,
                                {0}},
    .examples = (const struct example[]){{"hotcell tools | jq -r '.[].name'", "their names"},
                                         {"hotcell tools --format anthropic >tools.json", "for a request to a model"},
                                         {0}},
    .program = PROGRAM_FULL,
};
