"""hotcell.compat.nemo, as clients of POST /execute call it: the documented request formats, answers and defaults."""

import asyncio
import inspect

import pytest

import hotcell
from hotcell.compat.nemo import LocalSandbox, Sandbox, execute_code, get_sandbox


def run(code, server, **options):
    return asyncio.run(LocalSandbox(uri=server.url).execute_code(code, **options))


def test_the_documented_example(server):
    result = execute_code("print('Hello from Python!')", uri=server.url)
    assert result == {"process_status": "completed", "stdout": "Hello from Python!\n", "stderr": ""}


def test_defaults():
    parameters = inspect.signature(Sandbox.execute_code).parameters
    assert [(name, parameter.default) for name, parameter in list(parameters.items())[1:]] == [
        ("generated_code", inspect.Parameter.empty), ("timeout_seconds", 10.0), ("language", "python"), ("max_output_characters", 1000)]
    assert inspect.signature(execute_code).parameters["timeout"].default == 30


@pytest.mark.parametrize("code, said", [
    ("import math\nprint(math.prod([1, 2, 3]))", "6\n"),
    ("{'generated_code': 'print(\"Hello from dict format\")'}", "Hello from dict format\n"),
    ("```python\nprint('Hello from markdown')\n```", "Hello from markdown\n"),
    ("python = 5\nprint(python)", "5\n"),
    ("print('a ``` inside')", "a ``` inside\n"),
    ("", "")])
def test_every_format(server, code, said):
    assert run(code, server) == {"process_status": "completed", "stdout": said, "stderr": ""}


def test_errors_keep_what_was_printed(server):
    result = run("print('before')\nraise ValueError('no')", server)
    assert result["process_status"] == "error" and result["stdout"] == "before\n" and result["stderr"].startswith("Traceback")
    assert run("def f(:", server)["process_status"] == "error"
    assert run("import sys\nsys.exit(3)", server)["process_status"] == "error"
    assert run("import os\nos._exit(0)", server)["process_status"] == "completed"


def test_timeouts(server):
    result = run("print(1, flush=True)\nimport time\ntime.sleep(30)", server, timeout_seconds=0.5)
    assert result == {"process_status": "timeout", "stdout": "1\n", "stderr": "Timed out\n"}
    assert run("print(1)", server, timeout_seconds=0)["process_status"] == "timeout"


def test_output_is_cut_at_its_maximum(server):
    assert run("print('a' * 5000)", server)["stdout"] == "a" * 1000 + "<output cut>"
    assert len(run("print('a' * 5000)", server, max_output_characters=10 ** 6)["stdout"]) == 5001
    assert len(run("print('a' * 100_000)", server, max_output_characters=10 ** 6)["stdout"]) == 100_001


def test_other_languages(server):
    assert run("echo $((1 + 2))", server, language="bash")["stdout"] == "3\n"
    refused = run("1", server, language="cobol")
    assert refused["process_status"] == "error" and refused["stderr"].startswith("Only python execution is supported")


def test_a_lone_surrogate_is_no_fault_of_the_server(server):
    assert run("print('\ud800')", server)["process_status"] in ("completed", "error")


def test_files_stay_from_call_to_call(server):
    run("open('kept.txt', 'w').write('here')", server)
    assert run("print(open('kept.txt').read())", server)["stdout"] == "here\n"


def test_where_the_server_is(server, monkeypatch, compat):
    assert LocalSandbox(uri=server.url).url == f"{server.url}/execute" == LocalSandbox(uri=f"{server.url}/").url
    monkeypatch.setenv("SANDBOX_PORT", str(server.port))
    assert get_sandbox("local").url == f"http://127.0.0.1:{server.port}/execute"
    assert execute_code("print(1)")["stdout"] == "1\n"
    monkeypatch.delenv("SANDBOX_PORT")
    assert get_sandbox().url == f"{server.url}/execute"  # what hotcell.compat.configure says
    with pytest.raises(KeyError):
        get_sandbox("piston")


def test_a_server_that_is_not_there():
    with pytest.raises(hotcell.ConnectionFailedError):
        asyncio.run(LocalSandbox(uri="http://127.0.0.1:1").execute_code("1"))


def test_one_is_started_where_none_runs(private):
    assert execute_code("print(42)")["stdout"] == "42\n"
