"""[mcp.servers] of the configuration: MCP servers from npm, and some that misbehave, each in a cell of its own behind hotcell's endpoint."""

import json
import re
import signal
import subprocess
import time

import pytest
from mcp_client import Client

from cells import SLOW

# Speaks the protocol as far as it must, and then does what its first argument says.
STRANGE = r'''
import json, os, sys, time
how = sys.argv[1]
def say(message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
if how == "noise": print("Welcome to my server!", flush=True); time.sleep(60)
if how == "silent": time.sleep(600)
if how == "flood":
    while True: sys.stdout.write("x" * 65536)
for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if method == "initialize":
        say({"id": number, "result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}})
        say({"id": "theirs", "method": "roots/list"})
        say({"id": 999, "result": {"content": []}})
    elif method == "tools/list":
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("hello", "die", "sleep", "secret", "bad name", "nonsense")]
        say({"id": number, "result": {"tools": tools + [{"name": "no_schema"}]}})
    elif method == "tools/call":
        name = message["params"]["name"]
        if name == "die": print("I am going", file=sys.stderr, flush=True); os._exit(3)
        if name == "sleep": continue
        if name == "nonsense": print("{", flush=True); continue
        say({"id": number, "result": {"content": [{"type": "text", "text": f"hello from {os.getpid()}"}]}})
'''


@pytest.fixture(scope="module")
def strange(tmp_path_factory):
    folder = tmp_path_factory.mktemp("strange")
    folder.chmod(0o755)
    (folder / "strange.py").write_text(STRANGE)
    return folder


def rpc(server, method, **params):
    return server.post("/mcp", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, headers={"Accept": "application/json, text/event-stream"}).json["result"]


def names(server):
    return [tool["name"] for tool in rpc(server, "tools/list")["tools"]]


def call(server, name, **arguments):
    return rpc(server, "tools/call", name=name, arguments=arguments)


def text_of(result):
    return "".join(part["text"] for part in result["content"])


def wait_for(what, seconds=20):
    deadline = time.monotonic() + seconds * SLOW
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def attached(name, folder, how, more=""):
    return f'[mcp.servers.{name}]\ncommand = ["python3", "/strange/strange.py", "{how}"]\nmounts = ["{folder}:/strange"]\n{more}\n'


def mounts(*folders):
    return f"[mounts]\nallowed_read_paths = {json.dumps([str(folder) for folder in folders])}\n"


def test_tools_of_real_servers_are_offered_under_a_prefix(start_server, modules):
    node = "/srv/mcp/node_modules/@modelcontextprotocol"
    server = start_server(
        mounts(modules)
        + f'[mcp.servers.every]\ncommand = ["node", "{node}/server-everything/dist/index.js", "stdio"]\nmounts = ["{modules}:/srv/mcp"]\n'
        + 'env = { COLOUR = "blue" }\nlimits = { memory = "300m", pids = 60 }\ntools = ["echo", "get-env", "trigger-long-running-operation"]\n'
        + f'[mcp.servers.files]\ncommand = ["node", "{node}/server-filesystem/dist/index.js", "/workspace"]\nmounts = ["{modules}:/srv/mcp"]\n')
    wait_for(lambda: "every__echo" in names(server) and "files__write_file" in names(server), 60)
    listed = names(server)
    assert listed[:17] == names(server)[:17] and "run_code" in listed
    assert sorted(name for name in listed if name.startswith("every__")) == ["every__echo", "every__get-env", "every__trigger-long-running-operation"]
    with Client(modules, "v1", "http", server.url + "/mcp") as client:
        assert client.call("every__echo", message="hi")["content"][0]["text"] == "Echo: hi"
        assert json.loads(client.call("every__get-env")["content"][0]["text"])["COLOUR"] == "blue"
        client.call("files__write_file", path="/workspace/a.txt", content="kept in its own cell")
        assert "kept in its own cell" in json.dumps(client.call("files__read_text_file", path="/workspace/a.txt"))
        assert client.call("files__read_text_file", path="/etc/passwd")["isError"]
        result = client.call("every__trigger-long-running-operation", progress=True, duration=1, steps=3)
        assert [note["progress"] for note in result["progress"]] == [1, 2, 3]
    answer = server.post("/v1/tools/every__echo", {"message": "by HTTP"}).json
    assert answer["text"] == "Echo: by HTTP" and not answer["is_error"]


def test_only_what_is_allowed_and_well_formed_is_offered(start_server, strange):
    server = start_server(mounts(strange) + attached("one", strange, "good") + attached("two", strange, "good", 'tools = ["hello", "missing"]')
                          + attached("three", strange, "good", "tools = []"))
    wait_for(lambda: "two__hello" in names(server) and "one__hello" in names(server))
    offered = [name for name in names(server) if "__" in name]
    assert sorted(offered) == ["one__die", "one__hello", "one__nonsense", "one__secret", "one__sleep", "two__hello"]
    assert text_of(call(server, "one__hello")) != ""
    refused = server.post("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "two__secret"}}).json
    assert refused["error"]["code"] == -32602


def test_one_that_dies_is_started_again_and_its_call_fails_cleanly(start_server, strange):
    server = start_server(mounts(strange) + attached("one", strange, "good"))
    wait_for(lambda: "one__hello" in names(server))
    result = call(server, "one__die")
    assert result["isError"] and "has ended" in text_of(result) and "I am going" in text_of(result)
    assert "one__hello" not in names(server)
    wait_for(lambda: "one__hello" in names(server))
    assert "hello from" in text_of(call(server, "one__hello"))


@pytest.mark.parametrize("how", ["noise", "flood"])
def test_one_that_speaks_nonsense_is_stopped_and_harms_nobody(start_server, strange, how):
    server = start_server(mounts(strange) + attached("bad", strange, how) + attached("good", strange, "good"))
    wait_for(lambda: "good__hello" in names(server))
    wait_for(lambda: any('the MCP server \\"bad\\" has ended' in line or 'the MCP server "bad" has ended' in line for line in server.log))
    assert not [name for name in names(server) if name.startswith("bad__")]
    assert server.run(code="print(42)").json["stdout"] == "42\n"


def test_nonsense_in_the_middle_ends_the_call(start_server, strange):
    server = start_server(mounts(strange) + attached("one", strange, "good"))
    wait_for(lambda: "one__nonsense" in names(server))
    result = call(server, "one__nonsense")
    assert result["isError"] and "no JSON" in text_of(result)


def test_a_call_that_is_not_answered_ends_in_time(start_server, strange):
    server = start_server(mounts(strange) + attached("one", strange, "good", "call_timeout = 1"))
    wait_for(lambda: "one__sleep" in names(server))
    result = call(server, "one__sleep")
    assert result["isError"] and "not answered in time" in text_of(result)
    assert "hello from" in text_of(call(server, "one__hello"))


def test_a_reload_starts_and_ends_them(start_server, strange):
    server = start_server(mounts(strange) + attached("one", strange, "good"))
    wait_for(lambda: "one__hello" in names(server))
    before = text_of(call(server, "one__hello"))
    server.configure(mounts(strange) + attached("one", strange, "good") + attached("two", strange, "good"))
    server.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "two__hello" in names(server))
    assert text_of(call(server, "one__hello")) == before  # it was not touched
    server.configure(mounts(strange) + attached("two", strange, "good"))
    server.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "one__hello" not in names(server))
    assert "two__hello" in names(server)


def test_one_that_may_not_have_its_folder_is_not_started(start_server, strange):
    server = start_server(attached("one", strange, "good"))
    wait_for(lambda: any("cannot be started" in line for line in server.log))
    assert not [name for name in names(server) if "__" in name]


@pytest.mark.parametrize("config, words", [
    ('[mcp.servers.one]\n', ["mcp.servers.one.command"]),
    ('[mcp.servers."a b"]\ncommand = ["x"]\n', ["a b", "no name"]),
    ('[mcp.servers.one]\ncommand = ["x"]\ntool = []\n', ["mcp.servers.one.tool", 'did you mean "tools"']),
    ('[mcp.servers.one]\ncommand = [1]\n', ["command", "list of strings"]),
    ('[mcp.servers.one]\ncommand = ["x"]\nenv = ["A=1"]\n', ["env", "table"]),
    ('[mcp]\nserver = 1\n', ["mcp.servers.NAME"]),
])
def test_a_wrong_configuration_is_named(program, tmp_path, config, words):
    path = tmp_path / "config.toml"
    path.write_text(config)
    outcome = subprocess.run([program, "serve", "--check", "--config", str(path), "--state", str(tmp_path / "state")], capture_output=True, text=True, timeout=60, check=False)
    assert outcome.returncode != 0
    for word in words:
        assert word in outcome.stderr, outcome.stderr
    assert re.search(r"config\.toml:\d+", outcome.stderr)
