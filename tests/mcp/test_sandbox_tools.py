"""The tools for sandboxes, as a client of the Model Context Protocol uses them: both libraries, over HTTP and over stdio."""

import base64
import json
import time

import pytest
from mcp_client import Failure

from cells import SLOW

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture(params=[("v1", "http"), ("v2", "http"), ("v1", "stdio")], ids="-".join)
def client(request, connect):
    with connect(*request.param) as one:
        yield one


@pytest.fixture
def sandbox(client):
    made = client.call("create_sandbox", files={"hello.py": "print('hello')\n"}, metadata={"for": "tests"})["structuredContent"]
    yield made["id"]
    client.call("delete_sandbox", sandbox=made["id"])


def text_of(result):
    return "".join(part["text"] for part in result["content"] if part["type"] == "text")


def test_a_sandbox_keeps_its_files_and_is_listed_and_deleted(client):
    made = client.call("create_sandbox", memory="256m", idle_timeout=600, metadata={"task": "one"})
    name = made["structuredContent"]["id"]
    assert name in text_of(made)
    assert made["structuredContent"]["limits"]["memory"] == 256 << 20
    client.call("run_command", sandbox=name, command="echo kept > file")
    assert text_of(client.call("run_command", sandbox=name, command=["cat", "file"])) == "kept\n"
    assert text_of(client.call("run_code", sandbox=name, language="python", code="print(open('file').read(), end='')")) == "kept\n"
    listed = client.call("list_sandboxes", state="running")["structuredContent"]["sandboxes"]
    assert [one["metadata"] for one in listed if one["id"] == name] == [{"task": "one"}]
    client.call("delete_sandbox", sandbox=name)
    gone = client.call("run_command", sandbox=name, command="true")
    assert gone["isError"] and name in text_of(gone)


def test_files_are_written_read_edited_listed_and_searched(client, sandbox):
    assert text_of(client.call("read_file", sandbox=sandbox, path="hello.py")) == "print('hello')\n"
    client.call("write_file", sandbox=sandbox, path="src/deep/a b+c%.txt", content="one\ntwo\nthree\n")
    part = client.call("read_file", sandbox=sandbox, path="/workspace/src/deep/a b+c%.txt", offset=2, limit=1)
    assert text_of(part) == "two\n" and part["structuredContent"]["lines"] == 3
    client.call("write_file", sandbox=sandbox, path="src/deep/a b+c%.txt", content="four\n", append=True)
    edited = client.call("edit_file", sandbox=sandbox, path="src/deep/a b+c%.txt", old_text="two", new_text="2 ½")
    assert edited["structuredContent"]["line"] == 2
    assert text_of(client.call("read_file", sandbox=sandbox, path="src/deep/a b+c%.txt")) == "one\n2 ½\nthree\nfour\n"
    entries = client.call("list_files", sandbox=sandbox, path="src/deep")["structuredContent"]["entries"]
    assert [entry["name"] for entry in entries] == ["a b+c%.txt"]
    found = client.call("search_files", sandbox=sandbox, content="thr", name="*.txt")["structuredContent"]["matches"]
    assert found[0]["line"] == 3 and found[0]["text"] == "three"


def test_an_edit_needs_exactly_one_match(client, sandbox):
    client.call("write_file", sandbox=sandbox, path="f", content="aaa\nb\nb\n")
    for old, count in (("b", 2), ("nothing", 0), ("aa", 2)):
        result = client.call("edit_file", sandbox=sandbox, path="f", old_text=old, new_text="x")
        assert result["isError"] and f"{count} times" in text_of(result), text_of(result)
    assert text_of(client.call("read_file", sandbox=sandbox, path="f")) == "aaa\nb\nb\n"


def test_bytes_go_in_and_images_come_out(client, sandbox):
    client.call("write_file", sandbox=sandbox, path="p.png", content=PNG, encoding="base64")
    result = client.call("read_file", sandbox=sandbox, path="p.png")
    assert result["content"] == [{"type": "image", "data": PNG, "mimeType": "image/png"}]
    assert result["structuredContent"]["size"] == len(base64.b64decode(PNG))
    wrong = client.call("write_file", sandbox=sandbox, path="q", content="not base64!", encoding="base64")
    assert wrong["isError"]


def test_an_interpreter_keeps_its_variables(client, sandbox):
    first = client.call("run_in_context", sandbox=sandbox, code="x = 41")
    context = first["structuredContent"]["context"]
    assert context in text_of(first)
    second = client.call("run_in_context", sandbox=sandbox, context=context, code="print('now'); x + 1")
    assert second["structuredContent"]["results"][0]["data"] == "42"
    assert "now" in text_of(second) and "42" in text_of(second)
    failed = client.call("run_in_context", sandbox=sandbox, context=context, code="1 / 0")
    assert failed["structuredContent"]["error"]["type"] == "ZeroDivisionError" and not failed.get("isError")


def test_a_command_is_started_checked_and_stopped(client, sandbox):
    started = client.call("start_command", sandbox=sandbox, command="echo begun; sleep 300", name="sleeper")["structuredContent"]
    deadline = time.monotonic() + 20 * SLOW
    while "begun" not in (seen := client.call("check_command", sandbox=sandbox, job="sleeper"))["structuredContent"]["stdout"]:
        assert time.monotonic() < deadline, seen
        time.sleep(0.1)
    assert seen["structuredContent"]["state"] == "running" and "still running" in text_of(seen)
    client.call("stop_command", sandbox=sandbox, job=started["id"])
    ended = client.call("check_command", sandbox=sandbox, job=started["id"], wait=10)["structuredContent"]
    assert ended["state"] == "ended" and ended["result"]["status"] == "killed"


def test_files_of_sandboxes_are_resources(client, sandbox):
    client.call("write_file", sandbox=sandbox, path="docs/read me.txt", content="hello")
    uris, cursor = {}, None
    while True:
        page = client.do("resources", **({"cursor": cursor} if cursor else {}))
        uris.update({one["uri"]: one for one in page["resources"]})
        if not (cursor := page.get("nextCursor")):
            break
    uri = f"hotcell://sandbox/{sandbox}/workspace/docs/read%20me.txt"
    assert uri in uris, list(uris)
    assert client.do("read", uri=uri)[0]["text"] == "hello"
    client.call("write_file", sandbox=sandbox, path="p.png", content=PNG, encoding="base64")
    assert client.do("read", uri=f"hotcell://sandbox/{sandbox}/workspace/p.png")[0] == {
        "uri": f"hotcell://sandbox/{sandbox}/workspace/p.png", "mimeType": "image/png", "blob": PNG}
    with pytest.raises(Failure):
        client.do("read", uri=f"hotcell://sandbox/{sandbox}/workspace/missing")


def test_progress_and_cancel_work_in_a_sandbox(client, sandbox, server):
    result = client.call("run_command", progress=True, sandbox=sandbox, command="for i in 1 2 3; do echo $i; sleep 0.3; done")
    assert "".join(note["message"] for note in result["progress"]) == "1\n2\n3\n"
    with pytest.raises(Failure):
        client.do("call", name="run_command", arguments={"sandbox": sandbox, "command": "echo begun; sleep 300", "timeout": 300}, progress=True, cancel_at=1)
    deadline = time.monotonic() + 10 * SLOW
    while "sleep 300" in (seen := text_of(client.call("run_command", sandbox=sandbox, command="cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -v grep || true"))):
        assert time.monotonic() < deadline, seen
        time.sleep(0.1)


def test_a_path_cannot_leave_its_sandbox(client, sandbox):
    for path in ("/etc/shadow", "../../../etc/shadow", "/proc/1/root/etc/shadow"):
        result = client.call("read_file", sandbox=sandbox, path=path)
        assert result["isError"], path
        assert "root:" not in json.dumps(result)
    for name in ("..", "a/b", "sbx_x/../../runs", "%2e%2e"):
        result = client.call("list_files", sandbox=name)
        assert result["isError"], name
