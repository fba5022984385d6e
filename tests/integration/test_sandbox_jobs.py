"""Detached jobs of a sandbox: later output, waiting, events, signals, input, ends."""

import secrets
import threading
import time

from cells import SLOW
from sandboxes import ROOT, Sandbox, box, contract, guests, wait_for  # noqa: F401  (fixtures)
from server import server, start_server  # noqa: F401  (fixtures)


def test_a_job_is_started_and_waited_for(box):
    job = box.detach("echo out; sleep 0.3; echo err >&2; exit 5", name="build", metadata={"a": 1})
    assert box.job(job)["state"] == "running" and box.job(job)["result"] is None
    begun = time.monotonic()
    ended = box.job(job, "?wait=20")
    assert time.monotonic() - begun < 10 * SLOW
    assert (ended["state"], ended["status"], ended["exit_code"]) == ("ended", "error", 5)
    assert (ended["stdout"], ended["stderr"], ended["offset"]) == ("out\n", "err\n", {"stdout": 4, "stderr": 4})
    assert ended["result"]["success"] is False and ended["result"]["usage"]["wall_ms"] >= 300
    listed = box.ask("GET", "/jobs").json["jobs"]
    assert listed[0]["id"] == job and listed[0]["exit_code"] == 5 and listed[0]["ended_at"] > listed[0]["started_at"]


def test_waiting_ends_with_its_time(box):
    job = box.detach("sleep 60")
    begun = time.monotonic()
    assert box.job(job, "?wait=0.4")["state"] == "running"
    assert 0.35 < time.monotonic() - begun < 5 * SLOW
    for wrong in ("wait=soon", "wait=-1", "wait=1e9", "stdout_from=x", "what=1"):
        assert box.ask("GET", f"/jobs/{{job}}?{wrong}", job=job).status == 400, wrong


def test_output_is_read_from_where_one_was(box):
    job = box.detach("printf abc; sleep 0.4; printf defg; printf x >&2")
    first = wait_for(lambda: (found := box.job(job))["stdout"] and found)
    assert first["stdout"] == "abc"
    rest = box.job(job, f"?wait=20&stdout_from={first['offset']['stdout']}")
    assert (rest["stdout"], rest["stderr"], rest["offset"]["stdout"]) == ("defg", "x", 7)
    assert box.job(job, "?stdout_from=7&stderr_from=1")["stdout"] == ""
    assert box.job(job, "?stdout_from=99999")["stdout"] == ""


def test_the_last_of_much_output_is_remembered_and_the_rest_is_told(box):
    job = box.detach("seq 1 20000; printf 'the end'", output="8k")
    ended = box.job(job, "?wait=20")
    assert ended["stdout"].endswith("20000\nthe end") and len(ended["stdout"]) == 8192
    assert ended["truncated"]["stdout"] == ended["offset"]["stdout"] - 8192 and ended["status"] == "completed"


def test_binary_output_is_base64(box):
    job = box.detach("printf '\\377\\376'")
    ended = box.job(job, "?wait=20")
    assert (ended["output_encoding"], ended["stdout"]) == ("base64", "//4=")


def test_without_a_timeout_it_goes_on_and_with_one_it_ends(server, contract):
    box = Sandbox(server, contract=contract, limits={"timeout": 0.5})
    try:
        free, bound = box.detach("sleep 60"), box.detach("sleep 60", timeout=0.6)
        ended = box.job(bound, "?wait=20")
        assert (ended["status"], ended["exit_code"], ended["result"]["timed_out"]) == ("timeout", 124, True)
        assert box.job(free)["state"] == "running"
    finally:
        box.delete()


def test_events_of_a_job_can_be_gone_on_with(box):
    job = box.detach("echo one; sleep 0.2; echo two >&2; sleep 0.2; echo three; exit 2")
    found = box.job_events(job)
    assert [event.name for event in found] == ["start", "stdout", "stderr", "stdout", "result"]
    assert found[-1].data["exit_code"] == 2 and found[3].data["offset"] == 4
    again = box.job_events(job, last=found[1].id)
    assert [(event.name, event.data.get("text")) for event in again[:-1]] == [("stdout", "three\n"), ("stderr", "two\n")]
    assert box.job_events(job, last=found[-1].id) == []
    assert box.server.get(f"{ROOT}/{box.id}/jobs/{job}/events", headers={"Last-Event-ID": "nonsense"}).status == 400


def test_events_carry_much_output_to_a_slow_reader(box):
    job = box.detach("seq 1 200000; sleep 0.2", output="4m")
    found = box.job_events(job)
    text = "".join(event.data["text"] for event in found if event.name == "stdout")
    assert text == "".join(f"{number}\n" for number in range(1, 200001)) and found[-1].name == "result"


def test_several_readers_see_the_same(box):
    job = box.detach("for i in 1 2 3 4 5; do echo $i; sleep 0.1; done")
    seen = []
    threads = [threading.Thread(target=lambda: seen.append("".join(event.data["text"] for event in box.job_events(job) if event.name == "stdout")))
               for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == ["1\n2\n3\n4\n5\n"] * 4


def test_a_signal_reaches_the_process_group(box):
    job = box.detach("trap 'echo got; exit 9' TERM; echo ready; while :; do sleep 0.05; done")
    wait_for(lambda: box.job(job)["stdout"])
    for wrong in ({"signal": "NOPE"}, {"signal": 0}, {"signal": 65}, {"signal": None}, {}, {"signal": "TERM", "more": 1}):
        assert box.ask("POST", "/jobs/{job}/signal", wrong, job=job).status == 400, wrong
    assert box.ask("POST", "/jobs/{job}/signal", {"signal": "TERM"}, job=job).status == 200
    ended = box.job(job, "?wait=20")
    assert (ended["exit_code"], ended["stdout"]) == (9, "ready\ngot\n")
    assert box.ask("POST", "/jobs/{job}/signal", {"signal": "TERM"}, job=job).status == 409
    job = box.detach("sleep 60")
    assert box.ask("POST", "/jobs/{job}/signal", {"signal": 15}, job=job).status == 200
    ended = box.job(job, "?wait=20")
    assert (ended["exit_code"], ended["result"]["signal"]) == (143, 15)


def test_input_goes_to_an_open_job(box):
    job = box.detach("while read -r line; do echo \"got $line\"; done; echo over", stdin_open=True)
    assert box.ask("POST", "/jobs/{job}/stdin", b"one\n", job=job).status == 204
    wait_for(lambda: box.job(job)["stdout"] == "got one\n")
    assert box.ask("POST", "/jobs/{job}/stdin?end=true", b"two\n", job=job).status == 204
    assert box.job(job, "?wait=20")["stdout"] == "got one\ngot two\nover\n"
    assert box.ask("POST", "/jobs/{job}/stdin", b"x", job=job).status == 409


def test_input_of_a_job_that_reads_nothing_is_not_waited_for(box):
    job = box.detach("sleep 60", stdin_open=True)
    answer = box.ask("POST", "/jobs/{job}/stdin", b"x" * 1000000, job=job)
    assert answer.status == 429 and "bytes were taken" in answer.json["detail"], answer
    assert box.exec("echo on").json["stdout"] == "on\n"
    closed = box.detach("sleep 60")
    assert box.ask("POST", "/jobs/{job}/stdin", b"x", job=closed).status == 409


def test_a_kill_takes_all_descendants_and_those_left_behind(server, box):
    mark = f"marker{secrets.token_hex(6)}"
    job = box.detach(f"(setsid sh -c 'sleep 60; : {mark}' &); sh -c 'sleep 60; : {mark}'")
    wait_for(lambda: len(guests(server, mark)) >= 2)
    assert box.ask("DELETE", "/jobs/{job}", job=job).status == 202
    ended = box.job(job, "?wait=20")
    assert ended["status"] == "killed"
    wait_for(lambda: not guests(server, mark))
    job = box.detach(f"setsid sh -c 'sleep 60; : {mark}' & echo left")
    assert box.job(job, "?wait=20")["status"] == "completed" and guests(server, mark)
    assert box.ask("DELETE", "/jobs/{job}", job=job).status == 202
    wait_for(lambda: not guests(server, mark))
    assert box.state == "running"


def test_the_newest_of_a_name_stands_for_its_id(box):
    box.job(box.detach("echo old", name="same"), "?wait=20")
    second = box.detach("echo new", name="same")
    assert box.job("same", "?wait=20")["id"] == second and box.job("same")["stdout"] == "new\n"


def test_a_hundred_that_have_ended_are_remembered(server, contract):
    box = Sandbox(server, contract=contract)
    try:
        jobs = [box.detach(["/bin/true"]) for _ in range(104)]
        wait_for(lambda: all(one["state"] == "ended" for one in box.ask("GET", "/jobs").json["jobs"]))
        listed = [one["id"] for one in box.ask("GET", "/jobs").json["jobs"]]
        assert listed == jobs[:3:-1] and box.ask("GET", "/jobs/{job}", job=jobs[0]).status == 404
    finally:
        box.delete()


def test_what_is_compiled_cannot_be_detached(box):
    answer = box.exec(code="int main(void){return 0;}", language="c", detach=True)
    assert answer.status == 400 and answer.json["field"] == "detach" and answer.json["remedy"], answer
    job = box.exec(code="print(6*7)", language="python", detach=True).json["id"]
    assert box.job(job, "?wait=20")["stdout"] == "42\n"
    wait_for(lambda: ".hc_" not in box.out("ls -A"))  # the file of the code goes with it


def test_who_waits_or_watches_and_hangs_up_harms_nothing(server, box):
    job = box.detach("sleep 1; echo done")
    for path in (f"{ROOT}/{box.id}/jobs/{job}?wait=20", f"{ROOT}/{box.id}/jobs/{job}/events"):
        connection = server.connect()
        connection.request("GET", path)
        time.sleep(0.1)
        connection.close()
    assert box.job(job, "?wait=20")["stdout"] == "done\n"


def test_a_sandbox_that_goes_ends_those_who_wait_for_its_jobs(server, contract):
    box = Sandbox(server, contract=contract)
    job = box.detach("echo some; sleep 60")
    wait_for(lambda: box.job(job)["stdout"])
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(box.job(job, "?wait=20")["state"])),
               threading.Thread(target=lambda: answers.append(box.job_events(job)[-1].data["state"]))]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    box.delete()
    for thread in threads:
        thread.join(20)
    assert answers == ["ended", "ended"]
