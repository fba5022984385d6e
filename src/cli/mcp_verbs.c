/* What the verbs for models and their clients are called, and what their help says. */
#include "cli/mcp_verbs.h"

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
    .examples = (const struct example[]){{"claude mcp add hotcell -- hotcell mcp", "give it to Claude Code"},
                                         {"hotcell mcp --server https://cells.example --key-file ~/cells.key",
                                          "the tools of another machine"},
                                         {0}},
    .remote = true,
    .program = PROGRAM_CLIENT,
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
