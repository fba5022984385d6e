"""The conformance suite of the Model Context Protocol against a real server. Most of its scenarios call tools, prompts and resources of a
server that was written for the suite (test_simple_text and the like); those that a real server can pass must pass, and the rest are named here with
the reason, so that a new one is noticed."""

import re
import subprocess

import pytest

from cells import SLOW

APPLY = ["server-initialize", "ping", "tools-list", "resources-list", "server-sse-multiple-streams", "dns-rebinding-protection"]
FIXTURE = "calls a tool that only the suite's own server has; test_clients.py has the like of it with real tools"
RESOURCE = "reads a resource that only the suite's own server has; test_sandbox_tools.py reads files of sandboxes"
UNDECLARED = "a capability that hotcell does not declare"
ASKS = "the server asks its client for something, which hotcell never does"
DO_NOT = {
    "tools-call-simple-text": FIXTURE,
    "tools-call-image": FIXTURE,
    "tools-call-audio": FIXTURE,
    "tools-call-embedded-resource": FIXTURE,
    "tools-call-mixed-content": FIXTURE,
    "tools-call-error": FIXTURE,
    "tools-call-with-progress": FIXTURE,
    "json-schema-2020-12": FIXTURE,
    "server-sse-polling": "a stream that is taken up again after a break: hotcell's are not, because a client that hangs up ends its run",
    "tools-call-with-logging": UNDECLARED,
    "logging-set-level": UNDECLARED,
    "completion-complete": UNDECLARED,
    "tools-call-sampling": ASKS,
    "tools-call-elicitation": ASKS,
    "elicitation-sep1034-defaults": ASKS,
    "elicitation-sep1330-enums": ASKS,
    "resources-read-text": RESOURCE,
    "resources-read-binary": RESOURCE,
    "resources-templates-read": RESOURCE,
    "resources-subscribe": UNDECLARED,
    "resources-unsubscribe": UNDECLARED,
    "prompts-list": UNDECLARED,
    "prompts-get-simple": UNDECLARED,
    "prompts-get-with-args": UNDECLARED,
    "prompts-get-embedded-resource": UNDECLARED,
    "prompts-get-with-image": UNDECLARED,
}


def conformance(modules, *words):
    return subprocess.run(["node", "node_modules/@modelcontextprotocol/conformance/dist/index.js", *words], cwd=modules, capture_output=True, text=True,
                          timeout=120 * SLOW, check=False)


def test_every_scenario_of_the_suite_is_accounted_for(modules):
    listed = conformance(modules, "list", "--server").stdout
    assert set(re.findall(r"^\s+- (\S+)", listed, re.M)) == {*APPLY, *DO_NOT}


@pytest.mark.parametrize("scenario", APPLY)
def test_scenario_passes(modules, server, scenario):
    outcome = conformance(modules, "server", "--url", f"{server.url}/mcp", "--scenario", scenario)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert re.search(r"Passed: [1-9]\d*/", outcome.stdout) or " 0 failed" in outcome.stdout, outcome.stdout
