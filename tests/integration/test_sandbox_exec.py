"""POST /v1/sandboxes/{id}/exec: commands and code, whole and streamed, side by side, and how they end."""

import contextlib
import http.client
import json
import secrets
import threading
import time

import pytest
from cells import MIB, SLOW
from sandboxes import ROOT, Sandbox, box, contract, guests, wait_for  # noqa: F401  (fixtures)
from server import server, start_server  # noqa: F401  (fixtures)

essential = pytest.mark.essential


def word():
    return f"marker{secrets.token_hex(6)}"


def test_a_command_is_executed_or_goes_to_the_shell(box):
    assert box.out(["/bin/echo", "a  b", "$HOME"]) == "a  b $HOME\n"
    assert box.out("echo a | tr a b; pwd") == "b\n/workspace\n"
    answer = box.exec("echo out; echo err >&2; exit 7").json
    assert (answer["status"], answer["exit_code"], answer["stdout"], answer["stderr"]) == ("error", 7, "out\n", "err\n")
    assert answer["id"].startswith("run_") and answer["sandbox"] == box.id


def test_what_one_leaves_the_next_one_finds(box):
    box.out("echo kept > note; mkdir -p deep/er; echo $$ > /tmp/pid")
    assert box.out("cat note; ls -d deep/er; test -s /tmp/pid && echo there") == "kept\ndeep/er\nthere\n"


def test_code_of_any_language_leaves_no_file_of_its_own(box):
    assert box.exec(code="import sys; print(sys.argv[1:], input())", args=["x", "y"], stdin="line\n").json["stdout"] == "['x', 'y'] line\n"
    assert box.exec(code="echo $((6*7))", language="bash").json["stdout"] == "42\n"
    assert box.exec(code="int main(void){return 3;}", language="c").json["exit_code"] == 3
    wait_for(lambda: box.out("find /workspace /tmp -type f") == "")


def test_stdin_env_and_cwd_are_the_exec_s_own(server, contract):
    box = Sandbox(server, contract=contract, env={"A": "sandbox", "B": "sandbox"})
    try:
        assert box.out("cat; echo $A $B", stdin="in\n", env={"B": "exec"}) == "in\nsandbox exec\n"
        assert box.out("echo $B") == "sandbox\n"
        box.out("mkdir sub")
        assert box.out("pwd", cwd="sub") == "/workspace/sub\n"
        assert box.out("pwd", cwd="/tmp") == "/tmp\n"
        answer = box.exec("pwd", cwd="/nowhere")
        found = answer.json["diagnosis"]
        assert (answer.json["status"], answer.json["exit_code"], found["error_type"]) == ("error", 126, "no_working_directory"), answer
        assert 'cwd "/nowhere": No such file' in found["message"] and "make that folder" in found["hint"], answer
    finally:
        box.delete()


def test_events_come_as_they_happen(box):
    found = box.events({"command": "echo one; sleep 0.3; echo two >&2; exit 4"})
    assert [event.name for event in found] == ["start", "stage", "stdout", "stderr", "result"]
    assert found[2].data["text"] == "one\n" and found[3].data["text"] == "two\n" and found[4].data["exit_code"] == 4


def test_binary_output_is_exact(box):
    answer = box.exec("printf '\\377\\000\\n'").json
    assert answer["output_encoding"] == "base64" and answer["stdout"] == "/wAK"


def test_output_beyond_the_limit_is_cut_and_told(box):
    answer = box.exec("head -c 5000 /dev/zero | tr '\\0' x", output=1000).json
    assert answer["truncated"]["stdout"] == 4000 and len(answer["stdout"]) < 1200
    assert box.exec("yes", output=1000, timeout=20).json["status"] == "output_limit"
    assert box.out("echo on") == "on\n"


@essential
def test_a_timeout_ends_the_job_with_all_descendants_but_not_the_sandbox(server, box):
    mark, other = word(), word()
    stays = box.detach(["/bin/sh", "-c", f"sleep 60 # {other}; true"])
    begun = time.monotonic()
    answer = box.exec(f"(setsid sh -c 'sleep 60; : {mark}' &) ; (nohup sh -c 'sleep 60; : {mark}' &) ; sh -c 'sleep 60; : {mark}'", timeout=0.7).json
    assert (answer["status"], answer["timed_out"], answer["exit_code"]) == ("timeout", True, 124)
    assert time.monotonic() - begun < 10 * SLOW
    wait_for(lambda: not guests(server, mark))
    assert guests(server, other) and box.job(stays)["state"] == "running" and box.state == "running"
    assert box.out("echo on") == "on\n"


def test_a_client_that_hangs_up_ends_its_job(server, box):
    mark = word()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("POST", f"{ROOT}/{box.id}/exec", json.dumps({"command": f"sleep 60; : {mark}"}), {"Content-Type": "application/json"})
    wait_for(lambda: guests(server, mark))
    connection.close()
    wait_for(lambda: not guests(server, mark))
    assert box.state == "running"


def test_what_is_left_in_the_background_lives_on(server, box):
    mark = word()
    answer = box.exec(f"sh -c 'while :; do echo tick; sleep 0.05; done; : {mark}' & echo begun").json
    assert answer["status"] == "completed" and "begun\n" in answer["stdout"]  # a tick may come first
    time.sleep(0.5)  # it has written to a pipe that nobody waits for any more
    assert guests(server, mark) and box.out("echo on") == "on\n"
    box.delete()
    wait_for(lambda: not guests(server, mark))


def test_several_run_at_once(box):
    answers = {}

    def one(number):
        answers[number] = box.exec(f"sleep 0.5; echo {number}").json["stdout"]

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    assert box.look()["jobs"] >= 4
    for thread in threads:
        thread.join()
    assert answers == {number: f"{number}\n" for number in range(8)}
    assert time.monotonic() - begun < 3.5 * SLOW


@essential
def test_a_job_that_is_out_of_memory_leaves_the_sandbox(server, contract):
    box = Sandbox(server, contract=contract, limits={"memory": "64m"})
    try:
        stays = box.detach("sleep 60")
        answer = box.exec(["/usr/bin/python3", "-c", "x = b'x' * 10**9"]).json
        assert answer["status"] == "oom", answer
        assert box.state == "running" and box.out("echo on") == "on\n" and box.job(stays)["state"] == "running"
    finally:
        box.delete()


def test_memory_is_the_sandbox_s_as_a_whole(server, contract):
    """Two jobs that have 64 MiB together cannot have 50 each."""
    box = Sandbox(server, contract=contract, limits={"memory": "64m"})
    try:
        hold = "x = b'x' * (50 << 20); print('held', flush=True); import time; time.sleep(20)"
        first = box.detach(["/usr/bin/python3", "-c", hold])
        wait_for(lambda: box.job(first)["stdout"])
        second = box.exec(["/usr/bin/python3", "-c", hold.replace("sleep(20)", "sleep(1)")]).json
        assert "oom" in (second["status"], box.job(first)["status"]), (second, box.job(first))
    finally:
        box.delete()


@essential
def test_processes_are_limited_for_all_jobs_together(server, contract):
    box = Sandbox(server, contract=contract, limits={"pids": 20})
    try:
        for _ in range(3):
            box.detach("for i in 1 2 3 4; do sleep 60 & done; wait")
        answer = box.exec("for i in 1 2 3 4 5 6 7 8; do sleep 5 & done; echo made; kill $(jobs -p)").json
        assert answer["status"] != "completed" or "fork" in answer["stderr"], answer
        assert box.look()["usage"]["pids"] <= 20
    finally:
        box.delete()


def test_programs_that_enter_are_counted_as_well(server, contract):
    """With cgroup version 1 a process may join a group that is full: each job and session was one more than the limit."""
    box = Sandbox(server, contract=contract, limits={"pids": 12})
    try:
        jobs = [box.detach(["/bin/sleep", "60"]) for _ in range(20)]
        wait_for(lambda: sum(box.job(job)["state"] == "ended" for job in jobs) >= 8)
        assert box.look()["usage"]["pids"] <= 12
        answer = box.shell("true", session="one more", timeout=5)
        assert answer.status == 503 and "limits.pids" in answer.json["detail"], answer
        answer = box.exec(["/bin/true"])
        assert answer.status == 503 or answer.json["status"] != "completed", answer
        assert box.facts("/workspace").status == 200, "files can be looked at all the same"
    finally:
        box.delete()


def test_the_disk_is_limited(server, contract):
    box = Sandbox(server, contract=contract, limits={"disk": "2m", "inodes": 64})
    try:
        assert "No space left" in box.exec("head -c 3000000 /dev/zero > big").json["stderr"]
        assert box.put("big", b"x" * 3 * MIB).status == 507
        box.out("rm -f big")
        assert "No space left" in box.exec("for i in $(seq 100); do : > f$i; done").json["stderr"]
        usage = box.look()["usage"]["disk"]
        assert usage["limit"] == 2 * MIB and usage["inodes"] >= 60
    finally:
        box.delete()


def test_groups_of_jobs_that_have_ended_are_removed(server, contract):
    box = Sandbox(server, contract=contract)
    try:
        before = box.groups()
        with contextlib.closing(server.connect()) as connection:
            for _ in range(300):
                connection.request("POST", f"{ROOT}/{box.id}/exec", '{"command": ["/bin/true"]}', {"Content-Type": "application/json"})
                answer = connection.getresponse()
                assert answer.status == 200 and b'"completed"' in answer.read()
        assert len(box.groups() - before) <= 2
    finally:
        box.delete()


def test_an_exec_is_in_the_history_with_its_kind(server, box):
    identity = box.exec("echo remembered").json["id"]
    assert wait_for(lambda: {row["id"]: row for row in server.get("/v1/runs").json["runs"]}.get(identity))["kind"] == "exec"
    answer = box.contract.check("GET", "/v1/runs/{id}", server.get(f"/v1/runs/{identity}"))
    assert answer.json["stdout"] == "remembered\n" and answer.json["sandbox"] == box.id
    box.contract.check("GET", "/v1/runs/{id}/report", server.get(f"/v1/runs/{identity}/report"))


def test_wrong_fields_are_named(server, box):
    for fields, field in (({"command": "true", "comand": 1}, "comand"), ({"command": "true", "timeout": "soon"}, "timeout"), ({"command": 5}, "command"),
                          ({"command": "true", "cwd": 5}, "cwd"), ({"command": "true", "detach": "yes"}, "detach"), ({"command": "true", "env": []}, "env"),
                          ({"code": "1", "language": "klingon"}, "language"), ({"command": "true", "metadata": 1}, "metadata"),
                          *(({"command": "true", "detach": True, "name": name}, "name") for name in ("", "a/b", "..", "x" * 65, "a\nb")),
                          *(({"command": "true", "session": name}, "session") for name in ("", "a/b", ".", "x" * 65))):
        answer = box.ask("POST", "/exec", fields)
        assert answer.status == 400 and field in answer.json["detail"] + answer.json.get("field", ""), (fields, answer)
    for both in ({}, {"code": "1", "command": "true"}):
        answer = box.ask("POST", "/exec", both)
        assert answer.status == 400 and answer.json["remedy"] == "give one of code and command", answer
    assert "stdin_open" in box.ask("POST", "/exec", {"command": "true", "comand": 1}).json["remedy"]
    for path, body, word in (("/jobs/{job}/signal", {"signal": "NOPE"}, "NOPE"), ("/jobs/{job}?wait=abc", None, '"abc"')):
        answer = box.ask("POST" if body else "GET", path, body, job=box.detach("true"))
        assert answer.status == 400 and word in answer.json["detail"], answer
    answer = server.get(ROOT + "?state=foo")
    assert answer.status == 400 and '"foo"' in answer.json["detail"], answer
    answer = server.post(ROOT, {"idle_timeout": 1e12})
    assert answer.status == 400 and "31622400" in answer.json["detail"], answer
    answer = server.get(f"{ROOT}/{box.id}/ports/nine/")
    assert answer.status == 400 and '"nine"' in answer.json["detail"], answer
    answer = server.post(f"{ROOT}/{box.id}/exec", "{}", headers={"Content-Type": "text/plain"})
    assert answer.status == 415
    assert box.ask("POST", "/exec", b'[1]', headers={"Content-Type": "application/json"}).status == 400


def test_a_program_that_is_not_there_says_so(box):
    answer = box.exec(["/no/such/program"]).json
    assert answer["exit_code"] == 127 and "no such program" in (json.dumps(answer)).lower().replace("/", " "), answer
