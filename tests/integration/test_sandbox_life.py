"""What survives what: a gateway that is killed, a warden that is killed, pid 1 of a cell, the server's end."""

import os
import pathlib
import signal
import subprocess
import time

from cells import SLOW, SOURCE
from sandboxes import ROOT, Sandbox, guests, wait_for
from server import Server, alive, groups_of, start_server  # noqa: F401  (fixtures)
from test_sandbox_contexts import LANGUAGES, WORDS


def kill_gateway(server):
    old = server.process_of("hotcell-gateway")
    os.kill(old, signal.SIGKILL)
    wait_for(lambda: server.process_of("hotcell-gateway") not in (None, old))

    def ready():
        try:
            return server.get("/readyz").status == 200 and server.get(f"{ROOT}/none").status == 404
        except OSError:
            return False

    wait_for(ready)


def test_sandboxes_jobs_sessions_and_contexts_outlive_the_gateway(start_server):
    server = start_server()
    box = Sandbox(server, metadata={"a": 1}, limits={"memory": "400m"}, files={"f": "kept"}, env={"E": "v"}, idle_timeout=1800, max_lifetime="5h")
    paused = Sandbox(server)
    paused.ask("POST", "/pause")
    counting = box.detach("i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo line $i; sleep 0.001; done; exit 3", name="counting")
    reading = box.detach("while read -r l; do echo \"got $l\"; done; echo over", stdin_open=True)
    over = box.detach("echo done before")
    assert box.job(over, "?wait=20")["state"] == "ended"
    box.shell("cd /tmp; x=5; f() { echo f$1; }", session="s")
    contexts = {language: box.context(language) for language in LANGUAGES}
    for language, context in contexts.items():
        assert box.run(context, WORDS[language][0]).json["status"] == "completed"
    box.ask("POST", "/jobs/{job}/stdin", b"one\n", job=reading)
    before = box.look()
    for _ in range(2):
        kill_gateway(server)
        after = box.look()
        for field in ("id", "state", "metadata", "limits", "env", "created_at", "idle_timeout", "max_lifetime", "sessions", "contexts"):
            assert after[field] == before[field], field
        assert paused.state == "paused"
        answer = box.shell("echo $x; pwd; f 1", session="s").json
        assert (answer["stdout"], answer["session_state"]) == ("5\n/tmp\nf1\n", "alive")
        for language, context in contexts.items():
            assert box.run(context, WORDS[language][1]).json["stdout"] == "6\n", language
        assert box.out("cat f; echo $E") == "keptv\n"
    ended = box.job("counting", "?wait=30")
    assert ended["id"] == counting and ended["exit_code"] == 3 and ended["truncated"]["stdout"] == 0
    assert ended["stdout"] == "".join(f"line {number}\n" for number in range(1, 2001))
    assert box.ask("POST", "/jobs/{job}/stdin?end=true", b"two\n", job=reading).status == 204
    assert box.job(reading, "?wait=20")["stdout"] == "got one\ngot two\nover\n"
    paused.ask("POST", "/resume")
    assert paused.out("echo on") == "on\n"


def test_a_job_that_ends_while_there_is_no_gateway_is_not_lost(start_server):
    server = start_server()
    box = Sandbox(server)
    job = box.detach("sleep 0.4; echo the last words; exit 9")
    gateway = server.process_of("hotcell-gateway")
    os.kill(gateway, signal.SIGSTOP)  # it hears nothing, and then it is gone
    time.sleep(0.8)
    os.kill(gateway, signal.SIGKILL)
    wait_for(lambda: server.process_of("hotcell-gateway") not in (None, gateway))
    wait_for(lambda: server.get(f"{ROOT}/none").status == 404)
    ended = box.job(job, "?wait=20")
    assert (ended["exit_code"], ended["stdout"]) == (9, "the last words\n")


def test_execs_that_nobody_waits_for_any_more_are_ended_with_their_gateway(start_server):
    server = start_server()
    box = Sandbox(server)
    mark = f"sleep 61 # {box.id}"
    connection = server.connect()
    connection.request("POST", f"{ROOT}/{box.id}/exec", '{"command": ["/bin/sh", "-c", "%s\\ntrue"]}' % mark, {"Content-Type": "application/json"})
    wait_for(lambda: guests(server, mark))
    kill_gateway(server)
    connection.close()
    wait_for(lambda: not guests(server, mark))
    assert box.state == "running" and box.out("echo on") == "on\n" and box.look()["jobs"] == 0


def test_a_killed_warden_fails_all_sandboxes_and_says_so(start_server):
    server = start_server()
    first, second = Sandbox(server), Sandbox(server)
    job = first.detach("echo before; sleep 60")
    wait_for(lambda: first.job(job)["stdout"])
    os.kill(server.process_of("hotcell-warden"), signal.SIGKILL)
    wait_for(lambda: first.state == "failed" and second.state == "failed")
    assert "warden" in first.look()["reason"] and first.job(job)["stdout"] == "before\n" and first.job(job)["state"] == "ended"
    answer = second.exec("true")
    assert answer.status == 409 and "warden" in answer.json["detail"], answer
    wait_for(lambda: server.get("/readyz").status == 200)
    third = wait_for(lambda: server.post(ROOT, {}).status == 201 and Sandbox(server))
    assert third.out("echo on") == "on\n"
    assert first.delete().status == 204 and first.ask("GET").status == 404


def mounts():
    return {line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()}


def test_the_server_s_end_leaves_nothing(start_server):
    before = mounts()
    server = Server().start()
    pid = server.process.pid
    boxes = [Sandbox(server) for _ in range(4)]
    for box in boxes:
        box.detach("setsid sleep 300 & sleep 300")
        box.shell("sleep 300 &")
        box.context("bash")
    boxes[0].ask("POST", "/pause")
    family = server.descendants()
    assert len(family) > 12
    begun = time.monotonic()
    server.stop()
    assert time.monotonic() - begun < 15 * SLOW
    assert not [one for one in family if alive(one)] and not groups_of({pid}) and mounts() <= before
    server.remove()


def test_a_server_that_is_killed_leaves_nothing_either(start_server):
    server = Server().start()
    pid = server.process.pid
    boxes = [Sandbox(server) for _ in range(3)]
    for box in boxes:
        box.detach("setsid sleep 300 & sleep 300")
    family = server.descendants()
    os.kill(pid, signal.SIGKILL)
    server.process.wait()
    wait_for(lambda: not [one for one in family if alive(one)])
    server.settle()
    server.remove()
    with Server() as again:  # what is left of a killed one is cleared by the next
        assert again.post(ROOT, {}).status == 201
    wait_for(lambda: not groups_of({pid}))


def test_the_example_of_the_manual_works(start_server):
    server = start_server()
    text = (SOURCE / "docs/SANDBOXES.md").read_text().split("```sh\n")[1].split("```")[0]
    script = text.replace("http://127.0.0.1:7600", server.url)
    done = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, timeout=60 * SLOW, check=True)
    assert '"stdout":"hello\\n"' in done.stdout and done.stdout.endswith("hello\n"), done
