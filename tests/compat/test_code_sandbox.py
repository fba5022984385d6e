"""hotcell.compat.code_sandbox, as users of CodeSandbox call it: the documented examples, and what was wrong put right."""

import json
import threading
import time
from datetime import datetime

import pytest

from cells import SLOW
from hotcell.compat.code_sandbox import AutoDebuggerIntegration, CodeSandbox, ExecutionResult, ResourceLimits


@pytest.fixture
def sandbox(compat):
    return CodeSandbox()


# ---- the documented examples ----

def test_simple_execution(sandbox):
    result = sandbox.execute("print('Hello, World!')", "python")
    assert result.success and result.stdout == "Hello, World!\n" and result.exit_code == 0 and 0 < result.execution_time < 30
    assert result.timeout is False and result.error_message is None and result.container_id and isinstance(result.timestamp, datetime)
    assert result.language.startswith("python (Python 3.")


def test_data_processing(sandbox):
    code = '\nimport json\ndata = {"items": [1, 2, 3, 4, 5]}\nresult = {"sum": sum(data["items"])}\nprint(json.dumps(result))\n'
    assert json.loads(sandbox.execute(code, "python").stdout) == {"sum": 15}


def test_multiple_files(sandbox):
    files = {"config.json": '{"setting": "value"}', "utils.py": "def helper(): return 42"}
    code = ("\nimport json\nfrom utils import helper\nwith open('/sandbox/config.json') as f:\n    config = json.load(f)\n"
            "print(f\"Config: {config}, Helper: {helper()}\")\n")
    assert sandbox.execute(code, "python", files=files).stdout == "Config: {'setting': 'value'}, Helper: 42\n"


def test_error_handling(sandbox):
    result = sandbox.execute("raise ValueError('Test error')", "python")
    analysis = AutoDebuggerIntegration.analyze_error(result)
    assert analysis["error_type"] == "python_exception" and analysis["is_error"] is True
    assert analysis["exception"] == "ValueError: Test error" and analysis["suggestion"]


def test_timeout_enforcement(sandbox):
    result = sandbox.execute("\nimport time\nprint(1, flush=True)\ntime.sleep(10)\n", "python", limits=ResourceLimits(timeout_seconds=2))
    assert result.timeout is True and result.exit_code == 124 and not result.success
    assert result.error_message == "Execution timed out after 2s" and result.stdout == "1\n"
    report = AutoDebuggerIntegration.create_debug_report(result)
    assert report["error_type"] == "timeout" and report["error_message"] == "Execution timed out after 2s"
    assert AutoDebuggerIntegration.analyze_error(result)["error_type"] == "timeout"


def test_hardened_and_reused(compat):
    sandbox = CodeSandbox(default_limits=ResourceLimits(memory_limit="128m", timeout_seconds=5, cpu_quota=50000, pids_limit=25))
    for number in range(3):
        assert sandbox.execute(f"print({number})", language="python", network_enabled=False, read_only=True).stdout == f"{number}\n"
    assert len(sandbox.get_execution_history()) == 3


# ---- languages ----

@pytest.mark.parametrize("language, code", [("python", "print(42)"), ("python3", "print(42)"), (" PYTHON ", "print(42)"),
                                            ("javascript", "console.log(42)"), ("js", "console.log(42)"), ("Bash", "echo 42"), ("sh", "echo 42"),
                                            ("ruby", "puts 42"), ("go", 'package main\nimport "fmt"\nfunc main() { fmt.Println(42) }')])
def test_every_language(sandbox, language, code):
    result = sandbox.execute(code, language)
    assert result.success and result.stdout == "42\n", result


def test_unsupported_languages_are_not_in_the_history(sandbox):
    result = sandbox.execute("x", "cobol")
    assert result.exit_code == -1 and not result.success and result.error_message.startswith("Unsupported language: cobol. Supported: python, ")
    assert sandbox.get_execution_history() == []
    assert AutoDebuggerIntegration.analyze_error(result)["error_type"] == "sandbox_error"


def test_list_of_languages(sandbox):
    found = sandbox.list_supported_languages()
    assert [one["language"] for one in found] == ["python", "python3", "javascript", "js", "bash", "sh", "ruby", "go"]
    assert all(set(one) == {"language", "runtime", "extension", "image", "description"} for one in found)
    assert found[0]["runtime"].startswith("Python 3.") and found[2]["runtime"].startswith("Node.js ")


# ---- limits ----

def test_defaults_of_limits():
    assert ResourceLimits() == ResourceLimits("512m", None, 100000, 100000, 1024, 100, 30)


@pytest.mark.parametrize("fields", [{"memory_limit": "lots"}, {"timeout_seconds": 0}, {"cpu_quota": -1}, {"pids_limit": 0}])
def test_limits_that_are_none(fields):
    with pytest.raises(ValueError, match=next(iter(fields))):
        ResourceLimits(**fields)


def test_swap_counts_memory_as_well():
    assert ResourceLimits(memory_limit="512m", memory_swap="1g").fields()["swap"] == 512 << 20
    with pytest.raises(ValueError, match="memory_swap"):
        ResourceLimits(memory_limit="512m", memory_swap="256m").fields()
    assert ResourceLimits(cpu_quota=50000).fields()["cpus"] == 0.5


def test_memory_is_told_from_a_crash(sandbox):
    out = sandbox.execute("x = bytearray(10 ** 9)", "python", limits=ResourceLimits(memory_limit="64m"))
    assert out.exit_code == 137 and "memory" in out.error_message and out.resource_usage["status"] == "oom"
    crash = sandbox.execute("import os\nos.kill(os.getpid(), 9)", "python")
    assert crash.exit_code == 137 and crash.resource_usage["status"] != "oom"
    assert "memory_limit" in AutoDebuggerIntegration.analyze_error(out)["suggestion"]


# ---- what was wrong ----

@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x"])
def test_files_do_not_leave_their_folder(sandbox, name):
    result = sandbox.execute("print(1)", "python", files={name: "x"})
    assert not result.success and result.exit_code == -1 and name in result.error_message


def test_input_arrives(sandbox):
    assert sandbox.execute_with_input("print(input()[::-1])", "python", "abc\n").stdout == "cba\n"


def test_usage_is_measured(sandbox):
    result = sandbox.execute("x = bytearray(50 << 20)\nsum(range(10 ** 6))", "python")
    assert result.memory_used > 50 << 20 and result.cpu_percent > 0 and result.resource_usage["memory_peak"] == result.memory_used
    assert sandbox.get_resource_usage(result.container_id)["cpu_ms"] > 0
    assert CodeSandbox().get_resource_usage(result.container_id)["cpu_ms"] > 0, "another object asks the server"
    assert sandbox.get_resource_usage("run_00000000000000000000000000") == {}


def test_nothing_of_the_standard_library_is_shadowed(sandbox):
    assert sandbox.execute("import code\nprint(code.__name__, hasattr(code, 'InteractiveConsole'))", "python").stdout == "code True\n"


def test_a_file_that_is_called_main(sandbox):
    assert sandbox.execute("import main\nprint(main.x)", "python", files={"main.py": "x = 42"}).stdout == "42\n"


def test_environment_and_roots(sandbox):
    assert sandbox.execute("import os\nprint(os.environ['K'])", "python", env_vars={"K": "V"}).stdout == "V\n"
    assert not sandbox.execute("open('/usr/x', 'w')", "python").success
    assert sandbox.execute("import os\nos.makedirs('/opt/x')", "python", read_only=False).success
    refused = sandbox.execute("print(1)", "python", network_enabled=True)
    assert refused.exit_code == -1 and "network" in refused.error_message


def test_collected_files(sandbox):
    assert sandbox.execute("open('out.txt', 'w').write('x')", "python", collect=["*.txt"]).output_files == {"out.txt": b"x"}


# ---- tests, history, reports ----

def test_tests_as_code_and_as_cases(sandbox):
    assert sandbox.execute_tests("def add(a, b): return a + b", "assert add(1, 2) == 3\nprint('ok')", "python").stdout == "ok\n"
    assert not sandbox.execute_tests("def add(a, b): return a - b", "assert add(1, 2) == 3", "python").success
    cases = [{"stdin": "2", "expect_stdout": "4\n"}, {"stdin": "3", "expect_stdout": "6\n"}]
    assert sandbox.execute_tests("print(int(input()) * 2)", cases, "python").success
    failed = sandbox.execute_tests("print(int(input()) + 2)", cases, "python")
    assert not failed.success and failed.error_message == "1 of 2 tests passed"


def test_history(sandbox):
    for code in ("print(1)", "1/0", "print(3)"):
        sandbox.execute(code, "python")
    history = sandbox.get_execution_history()
    assert [entry["success"] for entry in history] == [True, False, True]
    assert all(set(entry) == {"timestamp", "language", "success", "exit_code", "execution_time", "container_id"} for entry in history)
    assert sandbox.get_execution_history(limit=2) == history[-2:] and sandbox.get_execution_history(limit=0) == []


def test_reports(sandbox):
    good = AutoDebuggerIntegration.create_debug_report(sandbox.execute("print(1)", "python"))
    assert good["status"] == "success" and good["output"] == {"stdout": "1\n", "stderr": ""} and "error_type" not in good
    bad = AutoDebuggerIntegration.create_debug_report(sandbox.execute("import sys\nsys.exit(3)", "python"))
    assert bad["status"] == "failure" and bad["exit_code"] == 3 and bad["error_type"] == "execution_error" and bad["error_message"]
    assert {"status", "exit_code", "execution_time", "timestamp", "language", "container_id", "output", "resource_usage"} <= set(bad)
    json.dumps(bad)
    analyze = AutoDebuggerIntegration.analyze_error
    assert analyze(sandbox.execute("exit 3", "bash"))["error_type"] == "execution_failure"
    assert analyze(sandbox.execute("print(1)", "python"))["is_error"] is False
    assert analyze(ExecutionResult(False, 0, "", "", 0.0, container_id="x"))["error_type"] == "unknown"


def test_cleanup_ends_what_runs(sandbox):
    found = []
    thread = threading.Thread(target=lambda: found.append(sandbox.execute("import time\ntime.sleep(25)", "python")))
    thread.start()
    deadline = time.monotonic() + 20 * SLOW
    while not sandbox._running and time.monotonic() < deadline:
        time.sleep(0.01)
    sandbox.cleanup_all_containers()
    thread.join(20 * SLOW)
    assert found and not found[0].success and found[0].execution_time < 20 * SLOW


def test_a_server_is_started_where_none_runs(private):
    assert CodeSandbox().execute("print(42)", "python").stdout == "42\n"
