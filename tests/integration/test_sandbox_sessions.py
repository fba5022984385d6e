"""Shell sessions: state between calls, exact output, timeouts, interrupts, ends."""

import base64
import http.client
import json
import secrets
import threading
import time

import pytest

from cells import SLOW
from sandboxes import ROOT, Sandbox, box, contract, guests, wait_for  # noqa: F401  (fixtures)
from server import server, start_server  # noqa: F401  (fixtures)


def out(box, command, **fields):
    answer = box.shell(command, **fields)
    assert answer.status == 200, answer
    return answer.json["stdout"]


def test_cwd_variables_functions_options_and_aliases_stay(box):
    out(box, "mkdir -p a/b; cd a/b; x=5; export y=6; list=(1 2 3); f() { echo f:$1; }; set -o pipefail; shopt -s nullglob; umask 077; trap 'echo bye' EXIT")
    assert out(box, "pwd; echo $x $y ${list[1]}; f z; false | true; echo $?; echo *; umask") == "/workspace/a/b\n5 6 2\nf:z\n1\n\n0077\n"
    assert box.shell("sh -c 'echo $x$y'").json["stdout"] == "6\n"


def test_exit_codes_and_streams_are_exact(box):
    answer = box.shell("echo out; echo err >&2; (exit 42)").json
    assert (answer["exit_code"], answer["stdout"], answer["stderr"]) == (42, "out\n", "err\n")
    assert (answer["status"], answer["session"], answer["session_state"]) == ("error", "main", "alive")
    assert box.shell("echo $?").json["stdout"] == "42\n"
    assert box.shell("true").json["exit_code"] == 0


@pytest.mark.parametrize("text", ["1\n2\n3\n", "\n\n\n", "", "no newline", "0\n", "$ \n> \nbash-5.2$ \n", "  spaces  \n\ttabs\n", "é漢字\n"])
def test_output_is_exactly_what_was_written(box, text):
    assert out(box, "printf %s " + "'" + text + "'") == text


def test_binary_output_is_exact(box):
    answer = box.shell("head -c 4096 /dev/urandom | tee /tmp/r; printf '\\0\\377'").json
    assert answer["output_encoding"] == "base64"
    wanted = base64.b64decode(box.exec("base64 -w0 /tmp/r").json["stdout"]) + b"\0\xff"
    assert base64.b64decode(answer["stdout"]) == wanted


def test_multi_line_input_here_documents_and_quotes(box):
    assert out(box, "for i in 1 2; do\n  echo \"$i\n\"\ndone\ncat <<'X'\n$not `this`\nX\ncat <<<here") == "1\n\n2\n\n$not `this`\nhere\n"
    assert out(box, "if true; then\n\n# comment\necho 'a;b'\nfi") == "a;b\n"
    assert out(box, "echo one\r\n".replace("\r", "")) == "one\n"


def test_a_syntax_error_is_the_call_s_and_not_the_session_s(box):
    out(box, "x=1")
    answer = box.shell("if then").json
    assert answer["exit_code"] != 0 and "syntax error" in answer["stderr"] and answer["session_state"] == "alive"
    answer = box.shell("echo 'unfinished").json
    assert answer["exit_code"] != 0 and answer["session_state"] == "alive"
    assert out(box, "echo $x") == "1\n"


def test_set_e_ends_the_session_as_it_would_a_shell_or_not_at_all(box):
    out(box, "set -e")
    answer = box.shell("false; echo not reached").json
    assert answer["exit_code"] == 1 and "not reached" not in answer["stdout"]


def test_stdin_is_the_call_s_own(box):
    assert out(box, "read a; echo got $a; cat", stdin="one\ntwo\nthree\n") == "got one\ntwo\nthree\n"
    assert out(box, "cat; echo over") == "over\n"


def test_background_jobs_live_between_calls(server, box):
    mark = f"marker{secrets.token_hex(6)}"
    out(box, f"sh -c 'sleep 60; : {mark}' & echo $! > /tmp/pid")
    wait_for(lambda: guests(server, mark))
    assert out(box, "jobs -r | wc -l; kill -0 $(cat /tmp/pid) && echo alive") == "1\nalive\n"
    assert out(box, "kill %1; wait %1; echo $?") == "143\n"
    wait_for(lambda: not guests(server, mark))


def test_what_the_background_writes_later_is_not_in_the_next_call(box):
    out(box, "(sleep 0.3; echo late; echo late >&2) &")
    time.sleep(0.6)
    answer = box.shell("echo mine").json
    assert (answer["stdout"], answer["stderr"]) == ("mine\n", "")


def test_after_a_timeout_the_session_lives_and_the_next_call_sees_nothing_of_the_old(server, box):
    mark = f"marker{secrets.token_hex(6)}"
    out(box, "cd /tmp; x=kept")
    answer = box.shell(f"echo begun; sh -c 'while :; do echo noise; sleep 0.01; done; : {mark}'", timeout=0.6).json
    assert (answer["status"], answer["timed_out"], answer["exit_code"], answer["session_state"]) == ("timeout", True, 124, "alive"), answer
    assert answer["stdout"].startswith("begun\nnoise\n")
    wait_for(lambda: not guests(server, mark))
    for _ in range(3):
        answer = box.shell("echo $x; pwd").json
        assert (answer["stdout"], answer["stderr"], answer["exit_code"]) == ("kept\n/tmp\n", "", 0), answer


@pytest.mark.parametrize("command", ["while :; do :; done", "sleep 60", "sleep 60 | cat", "y=$(sleep 60)", "read x < /dev/zero", "trap '' INT; sleep 60", "(trap '' INT TERM; sleep 60)"])
def test_whatever_hangs_is_ended_by_its_time(box, command):
    out(box, "x=kept")
    begun = time.monotonic()
    answer = box.shell(command, timeout=0.4).json
    assert answer["status"] == "timeout" and time.monotonic() - begun < 8 * SLOW, answer
    assert out(box, "echo ${x-lost}") == ("kept\n" if answer["session_state"] == "alive" else "lost\n")


def test_exit_ends_the_session_and_the_next_call_begins_a_new_one(box):
    out(box, "x=1; cd /tmp")
    answer = box.shell("echo last; exit 7").json
    assert (answer["stdout"], answer["exit_code"], answer["session_state"]) == ("last\n", 7, "ended")
    assert box.ask("GET", "/sessions").json["sessions"] == []
    assert out(box, "echo ${x-new}; pwd") == "new\n/workspace\n"


def test_exec_of_another_program_ends_it_clearly(box):
    answer = box.shell("exec /bin/echo replaced").json
    assert answer["stdout"] == "replaced\n" and answer["session_state"] == "ended" and answer["exit_code"] == 0, answer
    assert out(box, "echo on") == "on\n"


def test_a_shell_that_is_killed_ends_its_session(box):
    answer = box.shell("echo before; kill -KILL $$").json
    assert (answer["stdout"], answer["session_state"], answer["signal"], answer["exit_code"]) == ("before\n", "ended", 9, 137)
    assert out(box, "echo on") == "on\n"


def test_one_call_at_a_time(box):
    out(box, "true")
    thread = threading.Thread(target=lambda: box.shell("sleep 1; echo slow"))
    thread.start()
    wait_for(lambda: box.ask("GET", "/sessions").json["sessions"][0]["state"] == "busy")
    answer = box.shell("echo second")
    assert answer.status == 409 and answer.json["code"] == "conflict", answer
    assert box.shell("echo other", session="other").json["stdout"] == "other\n"
    thread.join()
    assert out(box, "echo third") == "third\n"


def test_an_interrupt_stops_the_call_and_keeps_the_state(box):
    out(box, "x=kept")
    answers = []
    thread = threading.Thread(target=lambda: answers.append(box.shell("echo begun; sleep 60; echo not reached").json))
    thread.start()
    wait_for(lambda: (found := box.ask("GET", "/sessions").json["sessions"]) and found[0]["state"] == "busy")
    time.sleep(0.2)
    assert box.ask("POST", "/sessions/{name}/interrupt", name="main").status == 202
    thread.join(20)
    assert answers[0]["exit_code"] == 130 and "not reached" not in answers[0]["stdout"] and answers[0]["session_state"] == "alive", answers
    assert out(box, "echo $x") == "kept\n"


def test_a_client_that_hangs_up_interrupts_its_call_and_the_shell_lives(server, box):
    out(box, "x=kept")
    mark = f"marker{secrets.token_hex(6)}"
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("POST", f"{ROOT}/{box.id}/exec", json.dumps({"command": f"sh -c 'sleep 60; : {mark}'", "session": "main"}), {"Content-Type": "application/json"})
    wait_for(lambda: guests(server, mark))
    connection.close()
    wait_for(lambda: not guests(server, mark))
    wait_for(lambda: box.ask("GET", "/sessions").json["sessions"][0]["state"] == "idle")
    assert out(box, "echo $x") == "kept\n"


def test_sessions_are_listed_ended_and_apart(server, contract):
    box = Sandbox(server, contract=contract)
    try:
        out(box, "x=1", session="a")
        assert out(box, "echo ${x-none}", session="b") == "none\n"
        listed = {one["name"]: one for one in box.ask("GET", "/sessions").json["sessions"]}
        assert set(listed) == {"a", "b"} and listed["a"]["calls"] == 1 and listed["a"]["state"] == "idle"
        assert box.look()["sessions"] == 2
        assert box.ask("DELETE", "/sessions/{name}", name="a").status == 204
        wait_for(lambda: [one["name"] for one in box.ask("GET", "/sessions").json["sessions"]] == ["b"])
        assert out(box, "echo ${x-none}", session="a") == "none\n"
    finally:
        box.delete()


def test_a_session_begins_in_its_cwd_and_with_the_sandbox_s_variables(server, contract):
    box = Sandbox(server, contract=contract, env={"A": "one two"}, files={"sub/x": ""})
    try:
        assert out(box, "pwd; echo $A", cwd="/tmp", session="absolute") == "/tmp\none two\n"
        assert out(box, "pwd", cwd="sub", session="relative") == "/workspace/sub\n"
        answer = box.ask("POST", "/exec", {"command": "pwd", "cwd": "/tmp", "session": "relative"})
        assert answer.status == 400 and answer.json["field"] == "cwd", answer
        answer = box.ask("POST", "/exec", {"command": "pwd", "cwd": "/nowhere", "session": "lost"})
        assert answer.status == 400 and answer.json["field"] == "cwd" and "/nowhere" in answer.json["detail"], answer
    finally:
        box.delete()


def test_events_of_a_call(box):
    found = box.events({"command": "echo one; sleep 0.2; echo two >&2; exit 3", "session": "s"}, schema="SessionEvent")
    assert [event.name for event in found] == ["start", "stdout", "stderr", "result"] and found[-1].data["exit_code"] == 3


def test_much_output_is_cut_and_a_flood_is_ended(box):
    answer = box.shell("head -c 5000 /dev/zero | tr '\\0' x", output=1000).json
    assert answer["truncated"]["stdout"] == 4000 and answer["status"] == "completed"
    answer = box.shell("yes", output=1000, timeout=20).json
    assert answer["status"] == "output_limit" and answer["session_state"] == "alive", answer
    assert out(box, "echo on") == "on\n"


def test_a_session_that_is_out_of_memory_ends_alone(server, contract):
    box = Sandbox(server, contract=contract, limits={"memory": "64m"})
    try:
        answer = box.shell("x=x; while :; do x=$x$x; done", timeout=20).json
        assert answer["status"] in ("oom", "error") and answer["session_state"] in ("ended", "alive"), answer
        assert box.state == "running" and out(box, "echo on") == "on\n"
    finally:
        box.delete()


def test_calls_are_in_the_history(server, box):
    identity = box.shell("echo remembered").json["id"]
    assert wait_for(lambda: {row["id"]: row for row in server.get("/v1/runs").json["runs"]}.get(identity))["kind"] == "session"
    assert box.contract.check("GET", "/v1/runs/{id}", server.get(f"/v1/runs/{identity}")).json["stdout"] == "remembered\n"


def test_wrong_calls_are_named(box):
    for fields, field in (({"command": ["a"], "session": "s"}, "command"), ({"code": "1", "session": "s"}, "code"), ({"command": "true", "session": ""}, "session"),
                          ({"command": "true", "session": "x" * 65}, "session"), ({"command": "true", "session": "s", "detach": True}, "detach"),
                          ({"command": "true", "session": "s", "timeout": "x"}, "timeout"), ({"command": "true", "session": "s", "stdin": 1}, "stdin")):
        answer = box.ask("POST", "/exec", fields)
        assert answer.status == 400 and answer.json["field"] == field, (fields, answer)


def test_a_shell_that_is_stopped_times_out_cleanly(box):
    out(box, "x=1")
    answer = box.shell("kill -STOP $$", timeout=0.5).json
    assert answer["status"] == "timeout" and answer["session_state"] == "ended", answer
    assert out(box, "echo ${x-new}") == "new\n"
