"""Shell sessions and contexts of a server's sandboxes, as far as it is their drivers that decide: what is left of a call that took too long, and
whether a context is forked from a zygote."""

import time

import pytest
from cells import SLOW
from server import Server

STUBBORN = ["sleep 100; echo never", "while :; do sleep 1; done", "while :; do /bin/true; done", "while :; do :; done", "(trap '' INT; sleep 100); echo never",
            "python3 -c 'import signal, time; signal.signal(2, lambda *_: 0); time.sleep(100); time.sleep(100)'; echo never", "y=$(sleep 100); echo never",
            "sleep 100 | cat; echo never", "trap '' INT; while :; do sleep 1; done", "sleep 50 & wait; echo never"]
CONTEXTS = {
    "python": ("x = 40", "print(input()); x + 2", "42", "while True: pass"),
    "javascript": ("const x = 40", "console.log(fs.readFileSync(0, 'utf8')); x + 2", "42", "while (true) {}"),
    "ruby": ("x = 40", "puts gets; x + 2", "42", "loop {}"),
    "r": ("x <- 40", "cat(readline()); x + 2", "[1] 42", "repeat {}"),
}


@pytest.fixture(scope="module")
def sandbox():
    with Server('[warm]\nstart = ["python/common", "python/data", "ruby"]\n') as server:
        deadline = time.monotonic() + 30 * SLOW
        while (answer := server.post("/v1/sandboxes", {"limits": {"memory": "1g", "pids": 200}})).status == 503 and time.monotonic() < deadline:
            time.sleep(0.2)
        assert answer.status == 201, answer
        yield lambda path, body: server.post(f"/v1/sandboxes/{answer.json['id']}{path}", body, within=120)


@pytest.mark.parametrize("command", STUBBORN)
def test_a_shell_goes_on_with_its_state_after_a_timeout_and_with_nothing_of_the_call(sandbox, command):
    run = lambda text, seconds: sandbox("/exec", {"command": text, "session": "shell", "timeout": seconds}).json  # noqa: E731
    run("cd /tmp; x=kept", 30)
    result = run(command, 0.5)
    assert (result["status"], result["stdout"], result["session_state"]) == ("timeout", "", "alive"), result
    result = run("echo $x $PWD", 30)
    assert (result["stdout"], result["stderr"], result["exit_code"]) == ("kept /tmp\n", "", 0)


@pytest.mark.parametrize("language", CONTEXTS)
def test_a_context_keeps_its_variables_also_after_a_timeout(sandbox, language):
    first, second, value, loop = CONTEXTS[language]
    made = sandbox("/contexts", {"language": language})
    assert made.status == 201, made
    execute = lambda code, seconds: sandbox(f"/contexts/{made.json['id']}/execute", {"code": code, "stdin": "input", "timeout": seconds}).json  # noqa: E731
    assert execute(first, 30)["status"] == "completed"
    result = execute(loop, 1)
    assert (result["status"], result["context_state"]) == ("timeout", "idle"), result
    result = execute(second, 30)
    assert [entry["data"] for entry in result["results"]] == [value] and result["stdout"].strip() == "input"


@pytest.mark.parametrize("language, preload, code", [("python", None, "import json; 42"), ("python", "data", "import pandas as pd; pd.Series([42]).sum()"), ("ruby", None, "6 * 7")])
def test_a_context_is_forked_from_a_zygote(sandbox, language, preload, code):
    deadline = time.monotonic() + 60 * SLOW
    while (made := sandbox("/contexts", {"language": language, **({"preload": preload} if preload else {})}).json)["start"] != "warm":
        assert time.monotonic() < deadline, made
        time.sleep(0.3)
    result = sandbox(f"/contexts/{made['id']}/execute", {"code": code}).json
    assert [entry["data"] for entry in result["results"]] == ["42"], result
