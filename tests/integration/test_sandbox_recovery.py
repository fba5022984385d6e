"""Sandboxes that come back (`recover`) after their pid 1 or the warden was killed, and those that do not."""

import concurrent.futures
import contextlib
import os
import pathlib
import re
import signal
import time

import pytest

from cells import SLOW
from sandboxes import ROOT, Sandbox, guests, wait_for
from server import start_server  # noqa: F401  (fixtures)

SETTINGS = {"env": {"E": "value"}, "metadata": {"a": [1]}, "limits": {"memory": "300m", "pids": 60}, "files": {"given": "at first"}, "max_lifetime": "5h"}


def first_process(box):
    """The cell's pid 1 as the host sees it: the warden's child that is the first in the pid namespace of the cell's programs."""
    mark = f"sleep 471{time.monotonic_ns()}"
    job = box.detach(f"{mark}; true")
    space = os.readlink(f"/proc/{wait_for(lambda: guests(box.server, mark))[0]}/ns/pid")
    warden, found = box.server.process_of("hotcell-warden"), []
    for pid in box.server.descendants():
        with contextlib.suppress(OSError):
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            if os.readlink(f"/proc/{pid}/ns/pid") == space and re.search(rf"^PPid:\t{warden}$", status, re.M) and re.search(r"^NSpid:.*\t1$", status, re.M):
                found.append(pid)
    box.ask("DELETE", "/jobs/{job}", job=job)
    assert len(found) == 1, found
    return found[0]


def kill_first_process(box):
    os.kill(first_process(box), signal.SIGKILL)


def kill_warden(box):
    os.kill(box.server.process_of("hotcell-warden"), signal.SIGKILL)


def change_files(box):
    """And wait for what is kept of them, which is made a moment after the last use."""
    box.out("echo changed > given; mkdir -p deep/er; printf '\\0\\377' > deep/er/bytes; ln -s deep link; echo '#!/bin/sh' > run; chmod 751 run; echo gone > /tmp/outside")
    time.sleep(1.5 * SLOW)


def check(box, times):
    before = box.made.json
    answer = wait_for(lambda: (one := box.exec("cat given; od -An -tx1 link/er/bytes; stat -c %a run; echo $E; ls /tmp")).status == 200 and one)
    assert answer.headers.get("hotcell-recovered") == "true", answer
    assert answer.json["stdout"] == "changed\n 00 ff\n751\nvalue\n", answer
    after = box.look()
    for field in ("id", "limits", "env", "metadata", "read_only", "max_lifetime", "recover", "created_at"):
        assert after[field] == before[field], field
    assert (after["state"], after["recovered"], after["reason"]) == ("running", times, None)
    assert "hotcell-recovered" not in box.exec("true").headers  # only once


@pytest.mark.parametrize("kill", (kill_first_process, kill_warden))
def test_one_that_recovers_is_there_again_with_its_files_and_settings(start_server, kill):
    box = Sandbox(start_server(), recover=True, **SETTINGS)
    for times in (1, 2):
        change_files(box)
        kill(box)
        wait_for(lambda: box.state == "failed")
        check(box, times)


def test_what_could_not_be_kept_is_counted_and_told(start_server):
    server = start_server()
    box = Sandbox(server, recover=True, limits={"disk": "64m"})
    box.out("mkfifo fifo; echo x > closed; chmod 0 closed; mkdir -m 0 hidden; echo kept > kept; for i in 1 2 3 4 5; do truncate -s 60M s$i; echo end >> s$i; done; mkdir -m 500 own; touch -d @77 own")
    time.sleep(1.5 * SLOW)
    kill_first_process(box)
    wait_for(lambda: box.state == "failed")
    answer = wait_for(lambda: (one := box.exec("cat kept; ls | grep -v '^s'; tail -qc4 s? | uniq -c; stat -c '%s' s? | uniq -c; stat -c '%a %Y' own")).status == 200 and one)
    assert answer.json["stdout"] == f"kept\nkept\nown\n      4 end\n      4 {(60 << 20) + 4}\n500 77\n", answer.json
    assert (answer.headers["hotcell-recovered"], answer.headers["hotcell-skipped"]) == ("true", "4")
    assert "hotcell-skipped" not in box.exec("true").headers
    wait_for(lambda: any("sandbox_recovered" in line and "4 of the files" in line for line in server.log))


@pytest.mark.parametrize("kill, word", ((kill_first_process, "pid 1"), (kill_warden, "warden")))
def test_one_that_does_not_is_failed_and_says_why(start_server, kill, word):
    server = start_server()
    box = Sandbox(server, **SETTINGS)
    box.shell("x=1")
    kill(box)
    wait_for(lambda: box.state == "failed")
    facts = box.look()
    assert word in facts["reason"] and facts["recovered"] == 0
    for answer in (box.exec("true"), box.shell("true"), box.ask("POST", "/contexts", {"language": "bash"}), box.facts("/workspace"), box.ask("POST", "/pause")):
        assert answer.status == 409 and "hotcell-recovered" not in answer.headers, answer
    assert word in box.exec("true").json["detail"]
    assert [one["id"] for one in server.get(ROOT + "?state=failed").json["sandboxes"]] == [box.id]
    assert box.delete().status == 204
    wait_for(lambda: box.ask("GET").status == 404)  # 503 while the next warden starts


def begin_to_kill(box):
    """As kill_first_process, and back as soon as pid 1 has begun to go: before that a helper may be killed in the middle of its answer."""
    first = first_process(box)
    os.kill(first, signal.SIGKILL)
    with contextlib.suppress(OSError):
        while int(pathlib.Path(f"/proc/{first}/stat").read_text().rpartition(") ")[2].split()[6]) & 4 == 0:  # PF_EXITING
            pass


def test_a_request_for_files_right_after_the_death_of_pid_1_is_answered_by_the_new_one(start_server):
    box = Sandbox(start_server(), recover=True, files={"given": "at first"})
    for times in range(1, 5):
        box.shell("sleep 100 & true")  # what is in it has to go before pid 1 does
        begin_to_kill(box)
        answer = box.get("given") if times % 2 else box.facts("/workspace")
        assert answer.status == 200 and answer.headers.get("hotcell-recovered") == "true", answer
        assert box.look()["recovered"] == times


def test_a_request_for_files_right_after_the_death_of_pid_1_says_that_the_sandbox_failed(start_server):
    server = start_server()
    for _ in range(3):
        box = Sandbox(server, files={"given": "at first"})
        box.shell("sleep 100 & true")
        begin_to_kill(box)
        answer = box.get("given")
        assert answer.status == 409 and "failed: pid 1" in answer.json["detail"], answer


def test_an_exec_under_way_says_that_pid_1_died(start_server):
    box = Sandbox(start_server())
    first = first_process(box)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(box.exec, "echo before; sleep 100")
        time.sleep(0.5 * SLOW)
        os.kill(first, signal.SIGKILL)
        result = answer.result().json
    assert (result["status"], result["stdout"]) == ("internal", "before\n"), result
    assert "pid 1 of the cell died" in result["diagnosis"]["message"] and "hotcell did not" not in str(result), result
