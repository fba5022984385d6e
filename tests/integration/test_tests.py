"""Tests in a request: the program compiled once, then run once for each test, in a cell of its own; and the stages before it."""

import json

import pytest

from server import server  # noqa: F401  (fixture)

ADD = r"""
#include <stdio.h>
int main(void) { int a, b; if (scanf("%d %d", &a, &b) != 2) return 4; printf("%d\n", a + b); return 0; }
"""


@pytest.fixture
def judge(hotcell, tmp_path):
    """judge(language="c", code=…, tests=[…]) -> the Outcome of hotcell run --json."""

    def run(*options, **request):
        path = tmp_path / "request.json"
        path.write_text(json.dumps(request))
        return hotcell("run", "--json", "--request", path, *options)

    return run


def verdicts(outcome):
    return [test["verdict"] for test in outcome.json["tests"]]


def test_a_program_is_compiled_once_and_run_for_each_test(judge):
    done = judge(language="c", code=ADD, tests=[{"stdin": f"{n} 1\n", "expect_stdout": f"{n + 1}\n"} for n in range(5)])
    result = done.json
    assert [stage["name"] for stage in result["stages"]] == ["compile"], done
    assert verdicts(done) == ["passed"] * 5, done
    assert [test["stdout"] for test in result["tests"]] == [f"{n + 1}\n" for n in range(5)]
    assert (result["status"], result["success"], result["exit_code"], done.returncode) == ("completed", True, 0, 0)
    assert (result["tests_passed"], result["tests_total"]) == (5, 5)
    assert (result["stdout"], result["stderr"]) == ("", "")
    assert all(test["usage"]["wall_ms"] > 0 for test in result["tests"])


def test_every_test_has_the_verdict_of_its_own_end(judge):
    code = r"""
import os, sys, time
kind = sys.argv[1]
if kind == "right": print("hello")
elif kind == "spaces": print("hello  \r\n\n")
elif kind == "wrong": print("goodbye")
elif kind == "error": print("hello"); sys.exit(3)
elif kind == "crash": os.abort()
elif kind == "slow": print("hello", flush=True); time.sleep(60)
elif kind == "hungry": x = b"x" * (512 << 20)
elif kind == "flood":
    while True: sys.stdout.write("x" * 65536)
"""
    kinds = ["right", "spaces", "wrong", "error", "crash", "slow", "hungry", "flood", "right"]
    tests = [{"name": kind, "args": [kind], "expect_stdout": "hello\n"} for kind in kinds]
    tests[kinds.index("slow")]["limits"] = {"timeout": 0.5}
    tests[kinds.index("hungry")]["limits"] = {"memory": "64m"}
    tests[kinds.index("flood")]["limits"] = {"output": "1k"}
    done = judge(language="python", code=code, tests=tests)
    result = done.json
    assert verdicts(done) == ["passed", "passed", "failed", "error", "error", "timeout", "oom", "output_limit", "passed"], done
    assert [test["match"] for test in result["tests"]] == ["exact", "whitespace", None, "exact", None, "exact", None, None, "exact"]
    assert [test["name"] for test in result["tests"]] == kinds
    assert [test["exit_code"] for test in result["tests"]][3:8] == [3, 134, 124, 137, 137]
    assert result["tests"][5]["stdout"] == "hello\n"
    assert result["tests"][5]["limits"]["timeout"] == 0.5
    assert result["tests"][7]["truncated"]["stdout"] > 0
    assert result["tests"][6]["diagnosis"]["category"] == "memory"
    # The first that did not complete says what the run's status is: a wrong answer completes.
    assert (result["status"], result["success"], result["exit_code"]) == ("error", False, 3)
    assert (result["tests_passed"], result["tests_total"]) == (3, 9)


def test_wrong_output_alone_is_a_run_that_completed_without_success(judge, hotcell, tmp_path):
    request = dict(command=["cat"], tests=[{"stdin": "1", "expect_stdout": "1"}, {"name": "two", "stdin": "1", "expect_stdout": "2"}])
    done = judge(**request)
    assert verdicts(done) == ["passed", "failed"]
    assert (done.json["status"], done.json["success"], done.json["exit_code"], done.returncode) == ("completed", False, 1, 1)
    path = tmp_path / "plain.json"
    path.write_text(json.dumps(request))
    plain = hotcell("run", "--request", path)
    assert "1 of 2 passed" in plain.stderr and '"two"' in plain.stderr, plain


@pytest.mark.parametrize("language", ["python", "c"])
def test_no_test_meets_what_another_left(judge, language):
    """Files in the workspace and in /tmp, shared memory and processes: each test finds none, though the one before made them."""
    script = "ls -A /dev/shm; for f in left /tmp/left; do [ -e $f ] && echo met $f; done; touch left /tmp/left /dev/shm/left; ps -e | grep -c sleep; sleep 1000 &"
    code = {"python": f"import subprocess; subprocess.run(['sh', '-c', '''{script}'''])",
            "c": '#include <stdlib.h>\nint main(void) { return system("%s") < 0; }' % script.replace('"', '\\"')}[language]
    done = judge(language=language, code=code, tests=[{}, {}, {"limits": {"timeout": "10s"}}])
    assert verdicts(done) == ["passed"] * 3, done
    assert [test["stdout"] for test in done.json["tests"]] == ["0\n"] * 3, done


def test_a_test_inherits_what_it_does_not_say(judge):
    done = judge(command=["sh", "-c", "echo $1; cat", "sh"], args=["mine"], stdin="ours", limits={"pids": 50}, env={"K": "V"},
                 tests=[{}, {"args": []}, {"stdin": ""}, {"limits": {"pids": 20}}])
    tests = done.json["tests"]
    assert [test["stdout"] for test in tests] == ["mine\nours", "\nours", "mine\n", "mine\nours"], done
    assert [test["limits"]["pids"] for test in tests] == [50, 50, 50, 20]
    assert [test["name"] for test in tests] == ["test 1", "test 2", "test 3", "test 4"]


def test_what_does_not_compile_is_tested_not_at_all(judge):
    done = judge(language="c", code="int main(void) { return x; }", tests=[{}, {}])
    result = done.json
    assert (result["status"], result["success"]) == ("compile_error", False), done
    assert result["tests"] == [] and (result["tests_passed"], result["tests_total"]) == (0, 2)
    assert "undeclared" in result["stderr"]


def test_stages_have_names_limits_and_usage_of_their_own_and_tests_begin_with_what_they_left(judge):
    done = judge(
        command=["./bin/show"], limits={"timeout": 20, "disk": "50m"},
        stages=[{"name": "make", "command": ["sh", "-c", "mkdir bin; printf '#!/bin/sh\\ncat data link; stat -c %%a data bin/show\\n' >bin/show; "
                                                         "chmod 750 bin/show; echo built"], "timeout": 5},
                {"command": "echo content >data; chmod 640 data; ln -s data link; head -c 3m /dev/zero >big", "limits": {"memory": "64m"}}],
        tests=[{}, {"limits": {"disk": "1m"}}])
    result = done.json
    assert verdicts(done) == ["passed", "passed"], done
    assert [test["stdout"] for test in result["tests"]] == ["content\ncontent\n640\n750\n"] * 2
    assert [stage["name"] for stage in result["stages"]] == ["make", "stage2"]
    assert [stage["limits"]["timeout"] for stage in result["stages"]] == [5, 20]
    assert result["stages"][1]["limits"]["memory"] == 64 << 20
    assert result["stages"][0]["output"] == "built\n"
    assert all(stage["usage"]["wall_ms"] > 0 for stage in result["stages"])


def test_a_stage_that_fails_ends_the_run_before_the_program(judge):
    done = judge(command=["echo", "never"], stages=[{"name": "first", "command": "echo no; exit 7"}, {"command": ["true"]}])
    result = done.json
    assert (result["status"], result["exit_code"], result["stderr"]) == ("compile_error", 7, "no\n"), done
    assert [stage["name"] for stage in result["stages"]] == ["first"]


def test_a_stage_has_its_own_timeout(judge):
    done = judge(command=["true"], stages=[{"name": "slow", "command": ["sleep", "60"], "timeout": 0.3}])
    assert (done.json["status"], done.json["exit_code"]) == ("timeout", 124), done
    assert done.json["diagnosis"]["message"].startswith("slow: timed out after 300 ms")


def test_the_disk_of_a_test_is_its_own_besides_what_it_begins_with(judge):
    done = judge(language="c", code='#include <stdlib.h>\nint main(void) { return system("head -c 3m /dev/zero >x") != 0; }', tests=[
        {"limits": {"disk": "1m"}}, {"limits": {"disk": "8m"}}])
    assert verdicts(done) == ["error", "passed"], done


def test_a_workspace_that_is_too_large_to_move_is_said_so(judge):
    done = judge(command=["true"], limits={"disk": "1g", "memory": "1g"}, tests=[{}],
                 stages=[{"name": "fill", "command": "truncate -s 300m sparse"}])
    result = done.json
    assert (result["status"], result["success"], result["tests"]) == ("error", False, []), done
    assert result["stages"][-1]["name"] == "workspace"
    assert "sparse" in result["diagnosis"]["message"] and "256 MiB" in result["diagnosis"]["message"]
    assert result["diagnosis"]["error_type"] == "workspace_too_large"


@pytest.mark.parametrize("request_, field", [
    ({"command": ["true"], "collect": ["x"], "tests": [{}]}, "collect"),
    ({"command": ["true"], "tests": [{"limits": {"memory": "2t"}}]}, "tests[0].limits.memory"),
    ({"command": ["true"], "stages": [{"command": ["true"], "memory": "2t"}]}, "stages[0].limits.memory"),
])
def test_what_cannot_be_is_refused_by_name(hotcell, tmp_path, request_, field):
    config, path = tmp_path / "config.toml", tmp_path / "request.json"
    config.write_text('[ceilings]\nmemory = "1g"\n')
    path.write_text(json.dumps(request_))
    done = hotcell("run", "--json", "--config", config, "--request", path)
    assert done.returncode == 2 and done.json["error"]["field"] == field, done


def test_a_run_without_tests_has_none(hotcell):
    result = hotcell("run", "--json", "--", "/bin/true").json
    assert result["tests"] is None and "tests_total" not in result


def test_tests_with_a_folder_of_the_host_each_may_write_to_it(judge, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    config = tmp_path / "config.toml"
    config.write_text(f'[mounts]\nallowed_write_paths = ["{shared}"]\n')
    done = judge("--config", str(config), command="echo x >>/data/log; wc -l </data/log",
                 mounts=[{"host": str(shared), "path": "/data", "read_only": False}], tests=[{"expect_stdout": str(n)} for n in (1, 2, 3)])
    assert verdicts(done) == ["passed"] * 3, done


def test_a_server_runs_tests_too_and_tells_each_as_a_stage(server):
    tests = [{"name": f"n{n}", "stdin": f"{n} 1", "expect_stdout": str(n + 1)} for n in range(4)] + [{"stdin": "x"}]
    result = server.run(language="c", code=ADD, tests=tests).json
    assert [test["verdict"] for test in result["tests"]] == ["passed"] * 4 + ["error"], result
    assert (result["status"], result["exit_code"], result["tests_passed"], result["tests_total"]) == ("error", 4, 4, 5)
    assert result["timing"]["run_ms"] > 0 and result["timing"]["prepare_ms"] > 0
    used = sum(part["usage"]["cpu_ms"] for part in result["stages"] + result["tests"])
    assert result["usage"]["cpu_ms"] == pytest.approx(used)
    events = list(server.events("/v1/runs", {"language": "c", "code": ADD, "tests": tests}))
    assert [event.data["name"] for event in events if event.name == "stage"] == ["compile", "n0", "n1", "n2", "n3", "test 5"]
    assert [event.data["text"] for event in events if event.name == "stdout"] == ["1\n", "2\n", "3\n", "4\n"]


def test_processes_of_one_stage_are_ended_before_the_next(judge):
    left = "(setsid sh -c 'while :; do echo late > /tmp/late; sleep 0.005; done' >/dev/null 2>&1 &); sleep 0.05"
    done = judge(command=["/bin/sh", "-c", "rm -f /tmp/late; sleep 0.1; ls /tmp; cat /proc/[0-9]*/comm"],
                 stages=[{"command": ["/bin/sh", "-c", left]}])
    assert done.json["stdout"].split() == ["hotcell-init", "sh"], done
