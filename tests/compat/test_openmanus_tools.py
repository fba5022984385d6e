"""hotcell.compat.openmanus: the tools that an agent's model calls."""

import asyncio
import inspect
import json
import time

import pytest

from cells import SLOW
from hotcell.compat.openmanus import DockerSandbox, NormalPythonExecute, PythonExecute, SandboxFilesTool, SandboxShellTool


@pytest.fixture(autouse=True)
def at_the_server(compat):
    yield


def with_tool(kind, work):
    async def main():
        async with DockerSandbox() as sandbox:
            return await work(kind(sandbox), sandbox)
    return asyncio.run(main())


def python(code, tool=None, **options):
    return asyncio.run((tool or PythonExecute()).execute(code, **options))


# ---- Python ----

def test_python():
    assert python("print('Hello')") == {"observation": "Hello\n", "success": True}
    assert inspect.signature(PythonExecute.execute).parameters["timeout"].default == 5
    assert asyncio.run(PythonExecute()(code="print(1)"))["success"]
    described = PythonExecute().to_param()
    assert described["type"] == "function" and described["function"]["name"] == "python_execute" and described["function"]["parameters"]["required"] == ["code"]


def test_python_keeps_what_was_printed_before_an_exception():
    result = python("print('before')\n1 / 0")
    assert not result["success"] and result["observation"].startswith("before\nTraceback") and "division by zero" in result["observation"]


def test_python_timeouts():
    began = time.monotonic()
    assert python("while True: pass", timeout=1) == {"observation": "Execution timeout after 1 seconds", "success": False}
    assert time.monotonic() - began < 20 * SLOW


def test_python_is_not_on_the_host(tmp_path):
    assert not python(f"open({str(tmp_path / 'x')!r}, 'w').write('x')")["success"] and not (tmp_path / "x").exists()
    assert not python("import os\nos.kill(os.getppid(), 9)\nprint(open('/etc/shadow').read())")["success"]


def test_python_limits_are_said():
    result = python("x = bytearray(2 * 10 ** 9)")
    assert not result["success"] and "memory" in result["observation"].lower()


def test_python_in_a_sandbox():
    async def work(tool, sandbox):
        assert (await tool.execute("open('kept.txt', 'w').write('x')"))["success"]
        assert await sandbox.run_command("cat kept.txt") == "x"
        return await tool.execute("print(open('kept.txt').read())")
    assert with_tool(PythonExecute, work) == {"observation": "x\n", "success": True}


@pytest.mark.parametrize("kind", [None, "process", "report", "others"])
def test_normal_python(kind):
    assert python("print(1)", NormalPythonExecute(), code_type=kind) == {"observation": "1\n", "success": True}


def test_normal_python_knows_its_kinds():
    assert NormalPythonExecute.parameters["properties"]["code_type"]["enum"] == ["process", "report", "others"]
    assert "process, report, others" in python("print(1)", NormalPythonExecute(), code_type="chart")["observation"]


# ---- the shell ----

def test_commands_that_block():
    async def work(tool, _):
        answer = json.loads((await tool.execute("execute_command", command="echo out; echo err >&2; echo $PWD; exit 3", blocking=True)).output)
        assert answer["output"] == "out\nerr\n/workspace\n" and answer["completed"] and answer["exit_code"] == 3
        await tool.execute("execute_command", command="mkdir -p sub/folder", blocking=True)
        answer = json.loads((await tool.execute("execute_command", command="pwd", folder="sub/folder", blocking=True)).output)
        assert answer["output"] == "/workspace/sub/folder\n" and answer["cwd"] == "/workspace/sub/folder"
        late = await tool.execute("execute_command", command="echo begun; sleep 30", blocking=True, timeout=1)
        assert "timed out after 1 seconds" in late.error and "begun" in late.error
    with_tool(SandboxShellTool, work)


def test_commands_that_go_on():
    async def work(tool, _):
        begun = json.loads((await tool.execute("execute_command", command="echo begun; sleep 60", session_name="web")).output)
        assert begun["session_name"] == "web" and not begun["completed"]
        again = await tool.execute("execute_command", command="true", session_name="web")
        assert "already runs" in again.error
        deadline = time.monotonic() + 20 * SLOW
        seen = {}
        while "begun" not in seen.get("output", "") and time.monotonic() < deadline:
            seen = json.loads((await tool.execute("check_command_output", session_name="web")).output)
        assert seen["output"] == "begun\n" and not seen["completed"] and seen["status"] == "Session still running."
        listed = json.loads((await tool.execute("list_commands")).output)
        assert listed["count"] == 1 and listed["sessions"][0]["session_name"] == "web" and listed["sessions"][0]["command"] == "echo begun; sleep 60"
        assert "terminated" in (await tool.execute("terminate_command", session_name="web")).output
        while json.loads((await tool.execute("list_commands")).output)["count"] and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        assert json.loads((await tool.execute("list_commands")).output)["message"] == "No active sessions found."
        ended = json.loads((await tool.execute("check_command_output", session_name="web")).output)
        assert ended["completed"] and ended["output"] == "begun\n"
    with_tool(SandboxShellTool, work)


def test_wrong_calls_of_the_shell():
    async def work(tool, _):
        for arguments in ({"action": "nonsense"}, {"action": "execute_command"}, {"action": "check_command_output"},
                          {"action": "terminate_command"}, {"action": "check_command_output", "session_name": "unknown"},
                          {"action": "terminate_command", "session_name": "unknown"},
                          {"action": "execute_command", "command": "pwd", "folder": "../.."}):
            result = await tool.execute(**arguments)
            assert result.error and not result.output, arguments
            assert str(result).startswith("Error: ")
    with_tool(SandboxShellTool, work)
    parameters = inspect.signature(SandboxShellTool.execute).parameters
    assert (parameters["blocking"].default, parameters["timeout"].default) == (False, 60) and SandboxShellTool.name == "sandbox_shell"


def test_a_sandbox_of_its_own():
    async def work():
        tool = SandboxShellTool()
        try:
            return json.loads((await tool.execute("execute_command", command="echo hello", blocking=True)).output)["output"]
        finally:
            await tool.cleanup()
    assert asyncio.run(work()) == "hello\n"


# ---- files ----

def test_files():
    async def work(tool, sandbox):
        assert (await tool.execute("create_file", "src/main.py", "print('a')\nprint('b')\n", permissions="755")).output == "File 'src/main.py' created successfully."
        assert await sandbox.run_command("stat -c %a src/main.py") == "755"
        assert "already exists" in (await tool.execute("create_file", "src/main.py", "x")).error
        assert (await tool.execute("str_replace", "/workspace/src/main.py", old_str="'a'", new_str="'c'")).output.startswith("Replacement successful.")
        assert await sandbox.run_command("python3 src/main.py; stat -c %a src/main.py") == "c\nb\n755"
        assert (await tool.execute("str_replace", "src/main.py", old_str="print", new_str="x")).error.startswith("Multiple occurrences found in lines [1, 2].")
        assert (await tool.execute("str_replace", "src/main.py", old_str="nowhere", new_str="x")).error == "String 'nowhere' not found in file"
        assert "does not exist" in (await tool.execute("str_replace", "missing", old_str="a", new_str="b")).error
        assert "rewritten" in (await tool.execute("full_file_rewrite", "src/main.py", "print('new')")).output
        assert await sandbox.read_file("src/main.py") == "print('new')"
        assert "does not exist" in (await tool.execute("full_file_rewrite", "missing", "x")).error
        assert (await tool.execute("delete_file", "src/main.py")).output == "File 'src/main.py' deleted successfully."
        assert "does not exist" in (await tool.execute("delete_file", "src/main.py")).error
    with_tool(SandboxFilesTool, work)


def test_wrong_calls_of_files():
    async def work(tool, _):
        for arguments in ({"action": "nonsense"}, {"action": "create_file"}, {"action": "create_file", "file_path": "x"},
                          {"action": "str_replace", "file_path": "x", "old_str": "a"}, {"action": "create_file", "file_path": "../x", "file_contents": ""},
                          {"action": "create_file", "file_path": "x", "file_contents": "", "permissions": "99"}, {"action": "delete_file", "file_path": "/"}):
            assert (await tool.execute(**arguments)).error, arguments
    with_tool(SandboxFilesTool, work)
    assert SandboxFilesTool.name == "sandbox_files" and inspect.signature(SandboxFilesTool.execute).parameters["permissions"].default == "644"
