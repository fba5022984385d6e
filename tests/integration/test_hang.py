"""A warden or a gateway that hangs is no better than a dead one: it is noticed, and replaced. SIGSTOP stands for every way to hang."""

import contextlib
import os
import pathlib
import platform
import signal
import threading
import time

import pytest

from cells import SLOW, start_time, token, until
from server import start_server  # noqa: F401 (fixture)
from test_serve import answers, end_process, ended, guests, run_or_nothing, running, submit

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has processes with uids of their own")

SENDMSG = {"x86_64": 46, "aarch64": 211}[platform.machine()]
QUICK = "[server]\nhang_time = '2s'\n"


def replaced(server, name, pid, began):
    """Another process of that name is there, and the old one is gone, not merely hidden by a number that came round again."""
    new = server.process_of(name)
    return new is not None and new != pid and start_time(pid) != began


def is_sending(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/syscall").read_text().split()[0] == str(SENDMSG)
    return False


def test_a_warden_that_hangs_is_replaced_and_its_runs_say_so(start_server):
    server = start_server(QUICK)
    word = token()
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(server.run(command=["/bin/sh", "-c", f"sleep 600 # {word}\n:"])))
    thread.start()
    assert until(lambda: guests(word))
    warden = server.process_of("hotcell-warden")
    began = start_time(warden)
    begin = time.monotonic()
    end_process(warden, signal.SIGSTOP)
    assert until(lambda: server.get("/readyz").status == 503, 10), "it is called ready although nothing can run"
    not_ready = server.get("/readyz")
    assert not_ready.status == 200 or not_ready.json["warden"] is False, not_ready
    waiting = submit(server, code="print('went on')")
    assert until(lambda: replaced(server, "hotcell-warden", warden, began), 20), server.log[-5:]
    assert time.monotonic() - begin < 8 * SLOW
    thread.join(20 * SLOW)
    assert outcome and outcome[0].json.get("status") in ("internal", 500) and "warden" in outcome[0].text, outcome
    assert not guests(word)
    assert until(lambda: answers(server), 10)
    assert ended(server, waiting)["stdout"] == "went on\n", "what waited for its turn is not harmed"
    assert any("the warden has not answered" in line for line in server.log), server.log


def test_a_gateway_that_hangs_is_replaced(start_server):
    server = start_server(QUICK)
    first = server.run(code="print(1)").json
    word = token()
    run = submit(server, command=["/bin/sh", "-c", f"sleep 600 # {word}\n:"])
    running(server, run)
    gateway, warden = server.process_of("hotcell-gateway"), server.process_of("hotcell-warden")
    began = start_time(gateway)
    end_process(gateway, signal.SIGSTOP)
    assert until(lambda: replaced(server, "hotcell-gateway", gateway, began), 20), server.log[-5:]
    assert until(lambda: answers(server), 10)
    assert server.process_of("hotcell-warden") == warden, "the warden did not hang"
    assert server.get(f"/v1/runs/{first['id']}").json == first
    assert ended(server, run)["status"] == "internal"
    assert server.run(code="print(2)").json["stdout"] == "2\n"
    assert any("the gateway has not answered" in line for line in server.log), server.log


def test_a_warden_that_waits_for_a_gateway_that_hangs_is_not_blamed(start_server):
    """It has more to tell than their socket holds, and so waits for a gateway that does not read."""
    server = start_server("[server]\nhang_time = '6s'\nconcurrent = 200\nqueue = 512\n")
    warden, gateway = server.process_of("hotcell-warden"), server.process_of("hotcell-gateway")
    began = start_time(gateway)
    word = token()
    for _ in range(120):
        submit(server, command=["/bin/sh", "-c", f"sleep 600 # {word}\n:"])
    assert until(lambda: server.get("/v1/stats").json["runs"]["running"] == 120 and len(guests(word)) >= 120, 30)
    end_process(gateway, signal.SIGSTOP)
    for pid in guests(word):
        end_process(pid)
    assert until(lambda: is_sending(warden), 5), "the warden has nothing to wait for"
    assert until(lambda: replaced(server, "hotcell-gateway", gateway, began), 20), server.log[-5:]
    assert until(lambda: answers(server), 20)
    assert server.process_of("hotcell-warden") == warden, server.log[-5:]
    assert not any("the warden" in line for line in server.log), server.log
    assert server.run(code="print(2)").json["stdout"] == "2\n"


def test_a_hang_that_passes_harms_nobody(start_server):
    server = start_server("[server]\nhang_time = '10s'\n")
    word = token()
    run = submit(server, command=["/bin/sh", "-c", f"sleep 4; echo done # {word}\n:"], limits={"timeout": 30})
    assert until(lambda: guests(word))
    warden, gateway = server.process_of("hotcell-warden"), server.process_of("hotcell-gateway")
    for pid in (warden, gateway):
        end_process(pid, signal.SIGSTOP)
        time.sleep(3)
        end_process(pid, signal.SIGCONT)
    assert until(lambda: answers(server), 10)
    assert ended(server, run)["stdout"] == "done\n"
    assert (server.process_of("hotcell-warden"), server.process_of("hotcell-gateway")) == (warden, gateway)


def test_without_a_hang_time_nobody_is_replaced(start_server):
    server = start_server("[server]\nhang_time = 0\n")
    gateway = server.process_of("hotcell-gateway")
    outcome = []
    end_process(gateway, signal.SIGSTOP)
    thread = threading.Thread(target=lambda: outcome.append(run_or_nothing(server, "echo later")))
    thread.start()
    time.sleep(1.5)
    assert server.process_of("hotcell-gateway") == gateway
    end_process(gateway, signal.SIGCONT)
    thread.join(20 * SLOW)
    assert outcome[0].json["stdout"] == "later\n"


def test_the_time_can_be_changed_by_a_reload(start_server):
    server = start_server("[server]\nhang_time = 0\n")
    server.configure("[server]\nhang_time = '1s'\n")
    server.process.send_signal(signal.SIGHUP)
    assert until(lambda: any("read again" in line for line in server.log), 10), server.log
    assert until(lambda: answers(server), 10)
    gateway = server.process_of("hotcell-gateway")
    began = start_time(gateway)
    end_process(gateway, signal.SIGSTOP)
    assert until(lambda: replaced(server, "hotcell-gateway", gateway, began), 20), server.log[-5:]
    assert until(lambda: answers(server), 10)
