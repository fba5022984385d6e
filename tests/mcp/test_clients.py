"""The official TypeScript clients against a real server, by both transports: @modelcontextprotocol/sdk (revisions until 2025-11-25) and
@modelcontextprotocol/client (2026-07-28)."""

import json
import os
import pathlib
import signal
import subprocess
import time

import pytest
from mcp_client import PRIVATE, Client, Failure

from cells import HOTCELL, SLOW
from server import alive

WAYS = [("v1", "http"), ("v1", "stdio"), ("v2", "http"), ("v2", "stdio")]
TOOLS = """run_code run_command create_sandbox list_sandboxes delete_sandbox run_in_context read_file write_file edit_file list_files search_files
start_command check_command stop_command get_preview_url list_languages get_history""".split()
VERSIONS = {"v1": "2025-11-25", "v2": "2026-07-28"}


@pytest.fixture(params=WAYS, ids=lambda way: "-".join(way))
def way(request):
    return request.param


@pytest.fixture
def client(connect, way):
    with connect(*way) as one:
        yield one


def text_of(result):
    return "".join(part["text"] for part in result["content"] if part["type"] == "text")


def test_the_newest_version_that_both_speak_is_used(client, way):
    about = client.do("about")
    assert about["server"]["name"] == "hotcell"
    assert way == ("v1", "stdio") or about["version"] == VERSIONS[way[0]]  # that one does not tell
    assert "sandbox" in about["instructions"]
    assert set(about["capabilities"]) == {"tools", "resources"}


def test_every_tool_is_listed_with_its_schemas(client):
    tools = {tool["name"]: tool for tool in client.do("tools")}
    assert list(tools) == TOOLS
    for name, tool in tools.items():
        assert tool["inputSchema"]["type"] == "object", name
        assert tool["outputSchema"]["type"] == "object", name
        assert len(tool["description"]) > 20 and tool["title"], name
        assert "readOnlyHint" in tool["annotations"], name
    assert tools["read_file"]["annotations"]["readOnlyHint"] and not tools["run_code"]["annotations"]["readOnlyHint"]


def test_code_is_run_and_its_result_is_structured(client):
    result = client.call("run_code", language="python", code="import sys; print(6 * 7); print('oops', file=sys.stderr)")
    assert result["structuredContent"]["stdout"] == "42\n"
    assert result["structuredContent"]["stderr"] == "oops\n"
    assert result["structuredContent"]["success"] is True
    assert not result.get("isError")
    assert text_of(result) == "42\n[stderr]\noops\n"


def test_a_program_that_fails_is_a_result_and_not_an_error_of_the_tool(client):
    result = client.call("run_code", language="python", code="raise SystemExit(3)")
    assert not result.get("isError")
    assert result["structuredContent"]["exit_code"] == 3 and result["structuredContent"]["success"] is False
    assert "exit code 3" in text_of(result)


def test_a_command_gets_its_files_and_input(client):
    result = client.call("run_command", command="cat a.txt - && printf $NAME", files={"a.txt": "from a file\n"}, stdin="from stdin\n", env={"NAME": "ada"})
    assert text_of(result) == "from a file\nfrom stdin\nada"


def test_wrong_arguments_are_told_so_that_a_model_can_mend_them(client):
    for arguments, words in (
        ({"language": "python"}, ["code", "missing"]),
        ({"language": "python", "code": "1", "timout": 3}, ["timout", 'did you mean "timeout"']),
        ({"language": "python", "code": 7}, ["code", "string", "integer"]),
        ({"language": "python", "code": "1", "timeout": 0}, ["timeout", "more than 0"]),
        ({"language": "klingon", "code": "1"}, ["klingon"]),
        ({"language": "python", "code": "1", "memory": "lots"}, ["memory"]),
        ({"language": "python", "code": "1", "sandbox": "../../v1/runs"}, ["sandbox", "no id"]),
    ):
        result = client.do("call", name="run_code", arguments=arguments)
        assert result["isError"] is True, arguments
        for word in words:
            assert word in text_of(result), (arguments, text_of(result))


def test_an_unknown_tool_is_an_error_of_the_protocol(client):
    with pytest.raises(Failure) as caught:
        client.call("run_coed")
    assert caught.value.code == -32602
    assert "run_coed" in str(caught.value)


def test_an_image_comes_back_as_an_image(client):
    png = ("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
    code = f"import base64; open('a.png','wb').write(base64.b64decode('{png}')); open('b.txt','w').write('hello'); open('c.bin','wb').write(bytes(range(256)))"
    result = client.call("run_code", language="python", code=code, collect=["*.png", "*.txt", "*.bin"])
    parts = {part["type"] if part["type"] != "resource" else part["resource"]["uri"].rpartition("/")[2]: part for part in result["content"]}
    assert parts["image"]["mimeType"] == "image/png" and parts["image"]["data"] == png
    assert parts["b.txt"]["resource"]["text"] == "hello"
    assert "blob" in parts["c.bin"]["resource"]
    uri = parts["b.txt"]["resource"]["uri"]
    assert client.do("read", uri=uri)[0]["text"] == "hello"
    assert sorted(file["path"] for file in result["structuredContent"]["files"]) == ["a.png", "b.txt", "c.bin"]


def test_output_so_far_comes_as_progress(client):
    result = client.call("run_command", progress=True, command="for i in 1 2 3; do echo line $i; sleep 0.4; done")
    told = result["progress"]
    assert [note["progress"] for note in told] == sorted({note["progress"] for note in told}), told
    assert told[-1]["progress"] == len("line 1\n") * 3
    assert "".join(note["message"] for note in told) == "line 1\nline 2\nline 3\n"
    assert text_of(result) == "line 1\nline 2\nline 3\n"


def test_cancelling_ends_the_run(client, server):
    started = time.monotonic()
    with pytest.raises(Failure):
        client.do("call", name="run_command", arguments={"command": "echo begun; sleep 300", "timeout": 600}, progress=True, cancel_at=1)
    assert time.monotonic() - started < 30 * SLOW
    deadline = time.monotonic() + 10 * SLOW
    while (newest := server.get("/v1/runs?limit=1", unix=True).json["runs"][0])["status"] != "killed":
        assert time.monotonic() < deadline, newest
        time.sleep(0.05)
    assert text_of(client.call("run_command", command="echo still here")) == "still here\n"


def test_requests_run_beside_each_other(client):
    started = time.monotonic()
    for i in range(4):
        client.do("call", start=str(i), name="run_command", arguments={"command": f"sleep 1; echo {i}"})
    assert [text_of(client.do("await", of=str(i))) for i in range(4)] == [f"{i}\n" for i in range(4)]
    assert time.monotonic() - started < 3.5 * SLOW


def test_a_resource_that_is_not_there_is_an_error(client):
    assert any("hotcell://sandbox/" in template["uriTemplate"] for template in client.do("templates"))
    assert client.do("resources")["resources"] == []
    for uri in ("hotcell://sandbox/sbx_nobody/workspace/a", "hotcell://run/run_nobody/a", "file:///etc/passwd", "hotcell://sandbox/../../v1/runs"):
        with pytest.raises(Failure):
            client.do("read", uri=uri)


def test_history_and_languages_are_there(client):
    client.call("run_code", language="python", code="print('for the history')")
    runs = client.call("get_history", limit=3)["structuredContent"]["runs"]
    assert runs[0]["language"] == "python"
    one = client.call("get_history", run=runs[0]["id"])
    assert one["structuredContent"]["run"]["stdout"] == "for the history\n"
    assert "python" in text_of(client.call("list_languages"))


# ---- stdio without a server ----


def children_of(pid):
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(entry.name))
        except (OSError, IndexError):
            continue
    return found + [below for child in found for below in children_of(child)]


def test_a_private_server_is_started_and_ends_with_the_client(modules):
    with Client(modules, "v1", "stdio", HOTCELL, "mcp", *PRIVATE) as client:
        assert text_of(client.call("run_code", language="python", code="print(1)")) == "1\n"
        family = children_of(client.do("about")["pid"])
        assert family
    deadline = time.monotonic() + 20 * SLOW
    while (left := [pid for pid in family if alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def test_a_private_server_does_not_outlive_a_relay_that_is_killed():
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}}
    with subprocess.Popen([HOTCELL, "mcp", *PRIVATE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process.stdin.write(json.dumps(hello) + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["result"]["protocolVersion"] == "2025-06-18"
        family = children_of(process.pid)
        folder = next(word for pid in family for word in pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0") if "hotcell-mcp-" in word)
        process.send_signal(signal.SIGKILL)
        assert process.stdout.read() == ""  # the pipe ends with the relay: nobody else has it
    deadline = time.monotonic() + 30 * SLOW
    while (left := [pid for pid in family if alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left
    assert not pathlib.Path(folder).parent.exists()


def test_a_server_that_was_started_anew_is_not_noticed(start_server, modules):
    server = start_server()
    with Client(modules, "v1", "stdio", HOTCELL, "mcp", "--server", f"unix:{server.unix}") as client:
        assert text_of(client.call("run_command", command="echo 1")) == "1\n"
        os.kill(server.process_of("hotcell-gateway"), signal.SIGKILL)
        deadline = time.monotonic() + 20 * SLOW
        while True:
            try:
                if server.get("/readyz", unix=True).status == 200:
                    break
            except OSError:
                pass
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert text_of(client.call("run_command", command="echo 2")) == "2\n"


def test_nonsense_on_stdin_is_answered_and_the_rest_is_heard(server):
    lines = ["{", "[]", '{"jsonrpc": "1.0", "id": 1, "method": "ping"}', '{"jsonrpc": "2.0", "id": 7, "method": "ping"}', ""]
    outcome = subprocess.run([HOTCELL, "mcp", "--server", f"unix:{server.unix}"], input="\n".join(lines), capture_output=True, text=True, timeout=60 * SLOW, check=False)
    answers = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert outcome.returncode == 0
    assert {"jsonrpc": "2.0", "id": 7, "result": {}} in answers
    assert sorted(answer["error"]["code"] for answer in answers if "error" in answer) == [-32700, -32600, -32600]
