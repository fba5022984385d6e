"""Contexts: interpreters that keep their variables, in every language that has them."""

import base64
import http.client
import json
import threading
import time
import tomllib

import pytest

from cells import SLOW, SOURCE
from sandboxes import ROOT, Sandbox, contract, wait_for  # noqa: F401  (fixtures)
from server import server  # noqa: F401  (fixtures)

# By language: what sets x to 5, shows x + 1 on stdout, writes to both streams, fails on line 2, never ends, reads a line, shows a marker after it.
WORDS = {
    "python": ("x = 5", "print(x + 1)", "import sys; print('out'); print('err', file=sys.stderr)", "y = 1\nraise ValueError('nope')", "while True: pass", "print('got ' + input())"),
    "javascript": ("var x = 5", "console.log(x + 1)", "console.log('out'); console.error('err')", "var y = 1\nthrow new Error('nope')", "while (true) {}", None),
    "ruby": ("x = 5", "puts x + 1", "puts 'out'; $stderr.puts 'err'", "y = 1\nraise 'nope'", "loop {}", "puts 'got ' + gets"),
    "bash": ("x=5", "echo $((x + 1))", "echo out; echo err >&2", "y=1\nnosuchcommand", "while :; do :; done", "read l; echo got $l"),
    "r": ("x <- 5", "cat(x + 1, '\\n', sep='')", "cat('out\\n'); cat('err\\n', file=stderr())", "y <- 1\nstop('nope')", "repeat {}", None),
}
LANGUAGES = [file.stem for file in sorted((SOURCE / "languages").glob("*.toml")) if "context" in tomllib.loads(file.read_text())]


@pytest.fixture(scope="module")
def shared(server, contract):
    """One sandbox for all tests of this file: a context is its own."""
    one = Sandbox(server, contract=contract)
    yield one
    server.delete(f"{ROOT}/{one.id}")


def run(box, context, code, **fields):
    return box.run(context, code, **fields).json


def test_every_language_with_contexts_is_tested():
    assert "python" in LANGUAGES and "bash" in LANGUAGES and set(LANGUAGES) <= set(WORDS)


# ---- every language ----


@pytest.mark.parametrize("language", LANGUAGES)
def test_variables_stay_streams_are_apart_and_errors_are_told(shared, language):
    keep, show, both, fail, _, read = WORDS[language]
    context = shared.context(language)
    made = shared.ask("GET", "/contexts/{context}", context=context).json
    assert (made["language"], made["state"], made["executions"]) == (language, "idle", 0) and made["language_version"]
    assert run(shared, context, keep)["status"] == "completed"
    answer = run(shared, context, show)
    assert (answer["stdout"], answer["execution"], answer["context"], answer["context_state"]) == ("6\n", 2, context, "idle")
    answer = run(shared, context, both)
    assert (answer["stdout"], answer["stderr"]) == ("out\n", "err\n")
    answer = run(shared, context, fail)
    assert answer["status"] == "error" and answer["success"] is False and answer["exit_code"] != 0
    assert "nope" in json.dumps(answer["error"]) if language != "bash" else "nosuchcommand" in answer["stderr"], answer
    if read:
        assert run(shared, context, read, stdin="a line\n")["stdout"] == "got a line\n"
    assert run(shared, context, show)["stdout"] == "6\n"
    assert shared.ask("DELETE", "/contexts/{context}", context=context).status == 204
    wait_for(lambda: shared.ask("GET", "/contexts/{context}", context=context).status == 404)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_timeout_and_an_interrupt_keep_the_variables(shared, language):
    keep, show, _, _, hang, _ = WORDS[language]
    context = shared.context(language)
    run(shared, context, keep)
    begun = time.monotonic()
    answer = run(shared, context, hang, timeout=0.5)
    assert (answer["status"], answer["timed_out"], answer["exit_code"]) == ("timeout", True, 124), answer
    assert answer["context_state"] == "idle" and time.monotonic() - begun < 10 * SLOW, answer
    assert run(shared, context, show)["stdout"] == "6\n"
    answers = []
    thread = threading.Thread(target=lambda: answers.append(run(shared, context, hang)))
    thread.start()
    wait_for(lambda: shared.ask("GET", "/contexts/{context}", context=context).json["state"] == "busy")
    time.sleep(0.3)
    assert shared.run(context, "1").status == 409
    assert shared.ask("POST", "/contexts/{context}/interrupt", context=context).status == 202
    thread.join(20)
    assert answers[0]["status"] in ("killed", "error") and answers[0]["exit_code"] != 0, answers
    assert run(shared, context, show)["stdout"] == "6\n"
    shared.ask("DELETE", "/contexts/{context}", context=context)


@pytest.mark.parametrize("language", LANGUAGES)
def test_contexts_are_apart_and_begin_where_they_are_told(shared, language):
    pwd = {"python": "import os; print(os.getcwd(), os.environ['A'])", "javascript": "console.log(process.cwd(), process.env.A)", "ruby": "puts Dir.pwd + ' ' + ENV['A']",
           "bash": "echo $PWD $A", "r": "cat(getwd(), Sys.getenv('A')); cat('\\n')"}[language]
    shared.out("mkdir -p sub")
    first, second = shared.context(language, cwd="sub", env={"A": "1"}), shared.context(language, cwd="/tmp", env={"A": "2"})
    assert run(shared, first, pwd)["stdout"] == "/workspace/sub 1\n" and run(shared, second, pwd)["stdout"] == "/tmp 2\n"
    listed = [one["id"] for one in shared.ask("GET", "/contexts").json["contexts"]]
    assert listed.index(second) < listed.index(first)
    for context in (first, second):
        shared.ask("DELETE", "/contexts/{context}", context=context)


# ---- python ----


@pytest.fixture
def python(shared):
    context = shared.context("python")
    yield context
    shared.ask("DELETE", "/contexts/{context}", context=context)


def test_the_last_expression_s_value_is_a_result(shared, python):
    answer = run(shared, python, "1 + 1")
    assert answer["results"] == [{"type": "text/plain", "data": "2", "value": True, "of": 1}] and answer["stdout"] == ""
    assert run(shared, python, "x = 1")["results"] == [] and run(shared, python, "None")["results"] == []
    assert shared.value(python, "[x] * 3") == "[1, 1, 1]"


def test_display_shows_every_form(shared, python):
    answer = run(shared, python, "class A:\n    def _repr_html_(self): return '<b>x</b>'\n    def __repr__(self): return 'plain'\ndisplay(A()); display(7)\n8")
    shown = [(one["type"], one["data"], one["of"], one.get("value", False)) for one in answer["results"]]
    assert ("text/html", "<b>x</b>", 1, False) in shown and ("text/plain", "plain", 1, False) in shown
    assert ("text/plain", "7", 2, False) in shown and ("text/plain", "8", 3, True) in shown


def test_tracebacks_have_the_cell_s_lines(shared, python):
    answer = run(shared, python, "a = 1\nb = 2\n1 / 0")
    error = answer["error"]
    assert (error["type"], error["message"], error["line"]) == ("ZeroDivisionError", "division by zero", 3) and "line 3" in error["traceback"]
    answer = run(shared, python, "def f():\n    return 1 +\n")
    assert answer["error"]["type"] == "SyntaxError" and answer["error"]["line"] == 2


def test_input_is_answered_from_the_request_and_await_works(shared, python):
    assert run(shared, python, "a, b = input('? '), input()\nprint(a + b)", stdin="1\n2\n")["stdout"].endswith("12\n")
    assert run(shared, python, "input()")["error"]["type"] == "EOFError"
    assert shared.value(python, "import asyncio\nawait asyncio.sleep(0.01, 'slept')") == "'slept'"


def test_figures_are_shown_without_asking(shared, python):
    pytest.importorskip("matplotlib")
    answer = run(shared, python, "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3]);", timeout=60)
    png = [one for one in answer["results"] if one["type"] == "image/png"]
    assert len(png) == 1 and base64.b64decode(png[0]["data"]).startswith(b"\x89PNG\r\n"), answer


def test_tables_are_html_and_text(shared, python):
    pytest.importorskip("pandas")
    answer = run(shared, python, "import pandas as pd\npd.DataFrame({'a': [1, 2]})", timeout=60)
    types = {one["type"]: one["data"] for one in answer["results"]}
    assert "<table" in types["text/html"] and "a\n0  1" in types["text/plain"], answer


def test_a_context_with_modules_loaded_comes_from_a_zygote(shared):
    def warm():
        made = shared.ask("POST", "/contexts", {"language": "python"}).json
        shared.ask("DELETE", "/contexts/{context}", context=made["id"])
        return made["start"] == "warm"

    wait_for(warm, within=30, every=0.5)
    answer = shared.ask("POST", "/contexts", {"language": "python", "preload": "nonsense"})
    assert answer.status == 400 and answer.json["field"] == "preload", answer


def test_a_module_of_the_folder_goes_before_one_that_was_loaded(shared):
    shared.out("mkdir -p own; echo 'value = \"own\"' > own/statistics.py")
    context = shared.context("python", cwd="own")
    assert run(shared, context, "import statistics; print(statistics.value)")["stdout"] == "own\n"
    shared.ask("DELETE", "/contexts/{context}", context=context)


def test_warm_and_cold_contexts_have_the_same_rights(shared):
    """What a zygote's child may do and see is what an exec'ed program may."""
    look = "import os\nprint(sorted(os.listdir('/proc/self/fd'))[:0], os.getuid(), open('/proc/self/status').read().split('CapEff:')[1].split()[0], os.getcwd(), sorted(os.listdir('/')))"
    context = shared.context("python")
    inside = run(shared, context, look)["stdout"]
    assert inside == shared.exec(["/usr/bin/python3", "-c", look]).json["stdout"]
    shared.ask("DELETE", "/contexts/{context}", context=context)


def test_streams_of_events(shared, python):
    found = shared.events({"code": "print(1, flush=True); import time; time.sleep(0.2); display(2)\n3"}, f"/contexts/{python}/execute", "ContextEvent")
    assert [event.name for event in found] == ["start", "stdout", "display", "display", "result"]
    assert found[-1].data["results"][-1]["data"] == "3"


def test_binary_and_much_output(shared, python):
    answer = run(shared, python, "import os; os.write(1, b'\\xff\\x00')\nNone")
    assert (answer["output_encoding"], answer["stdout"]) == ("base64", "/wA=")
    answer = run(shared, python, "print('x' * 5000)", output=1000)
    assert answer["truncated"]["stdout"] == 4001
    answer = run(shared, python, "while True: print('x' * 1000)", output=1000, timeout=20)
    assert answer["status"] == "output_limit" and answer["context_state"] == "idle", answer
    assert shared.value(python, "1") == "1"


def test_what_cannot_be_interrupted_ends_the_context_and_then_it_is_404(shared):
    context = shared.context("python")
    answer = run(shared, context, "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", timeout=0.5)
    assert (answer["status"], answer["context_state"]) == ("timeout", "ended"), answer
    assert shared.run(context, "1").status == 404


def test_a_context_that_exits_or_dies_says_so(shared):
    context = shared.context("python")
    answer = run(shared, context, "import os; print('before', flush=True); os._exit(3)")
    assert (answer["stdout"], answer["exit_code"], answer["context_state"]) == ("before\n", 3, "ended"), answer
    assert answer["error"]["message"] == "python exited with 3" and "new context" in answer["error"]["remedy"], answer
    answer = run(shared, shared.context(), "import ctypes; ctypes.string_at(0)")
    assert (answer["signal"], answer["error"]["message"]) == (11, "python was ended by signal 11 (SIGSEGV)"), answer
    context = shared.context("python")
    answer = run(shared, context, "import os; os.kill(os.getpid(), 9)")
    assert (answer["signal"], answer["exit_code"], answer["context_state"]) == (9, 137, "ended"), answer


def test_a_context_that_is_out_of_memory_ends_alone(server, contract):
    box = Sandbox(server, contract=contract, limits={"memory": "96m"})
    try:
        context, other = box.context("python"), box.context("bash")
        run(box, other, "x=5")
        answer = run(box, context, "x = b'x' * 10**9")
        assert answer["status"] in ("oom", "error") and box.state == "running", answer
        assert run(box, other, "echo $x")["stdout"] == "5\n"
    finally:
        box.delete()


def test_a_client_that_hangs_up_interrupts_and_the_variables_stay(server, shared, python):
    run(shared, python, "x = 5")
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("POST", f"{ROOT}/{shared.id}/contexts/{python}/execute", json.dumps({"code": "while True: pass"}), {"Content-Type": "application/json"})
    wait_for(lambda: shared.ask("GET", "/contexts/{context}", context=python).json["state"] == "busy")
    connection.close()
    wait_for(lambda: shared.ask("GET", "/contexts/{context}", context=python).json["state"] == "idle")
    assert shared.value(python, "x") == "5"


def test_wrong_requests_are_named(shared, python):
    for fields, field in (({"language": "klingon"}, "language"), ({"language": "c"}, "language"), ({"env": 1}, "env"), ({"env": {"A": 1}}, "env.A"), ({"cwd": 1}, "cwd"), ({"cwd": "/nowhere"}, "cwd"), ({"lang": "x"}, "lang")):
        answer = shared.ask("POST", "/contexts", fields)
        assert answer.status == 400 and answer.json["field"] == field, (fields, answer)
    for fields, field in (({}, "code"), ({"code": 1}, "code"), ({"code": "1", "timeout": "x"}, "timeout"), ({"code": "1", "stdin": 5}, "stdin"), ({"code": "1", "more": 5}, "more")):
        answer = shared.ask("POST", "/contexts/{context}/execute", fields, context=python)
        assert answer.status == 400 and answer.json["field"] == field, (fields, answer)


def test_executions_are_in_the_history(server, shared, python):
    identity = run(shared, python, "print('remembered')")["id"]
    assert wait_for(lambda: {row["id"]: row for row in server.get("/v1/runs").json["runs"]}.get(identity))["kind"] == "context"
    assert shared.contract.check("GET", "/v1/runs/{id}", server.get(f"/v1/runs/{identity}")).json["stdout"] == "remembered\n"
