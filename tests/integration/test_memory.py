"""The gateway's memory: what all runs write and collect together is bounded (server.result_total), whatever they do."""

import base64
import concurrent.futures
import contextlib
import pathlib
import re
import socket

import pytest

from cells import KIB, MIB, until
from server import start_server  # noqa: F401 (fixture)

BASE = 48 * MIB  # an idle gateway, its allocator's slack, SQLite's cache
TEXT = 4 / 3     # base64


def memory_of(server, name):
    """VmHWM: the most that the gateway had; VmRSS: what it has."""
    text = pathlib.Path(f"/proc/{server.process_of('hotcell-gateway')}/status").read_text()
    return int(re.search(rf"^{name}:\s+(\d+)", text, re.M)[1]) * KIB


def results(server):
    return server.get("/v1/stats").json["process"]["result_bytes"]


def at_once(calls):
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(lambda call: call(), calls))


def check_refusal(answer):
    assert answer.status == 503 and int(answer.headers["retry-after"]) >= 1, answer
    assert answer.json["code"] == "overloaded" and "memory" in answer.json["detail"], answer


def test_many_runs_that_collect_much_at_once_stay_within_the_bound(start_server):
    size, bound = 60 * MIB, 256 * MIB
    server = start_server("[server]\nresult_total = '256m'\nconcurrent = 6\n")
    assert server.get("/v1/stats").json["limits"]["server"]["result_total"] == bound
    script = f"head -c {size} /dev/zero > big"
    limits = {"disk": 100 * MIB, "memory": 300 * MIB, "timeout": 60}

    def run():
        answer = server.run(command=["/bin/sh", "-c", script], collect=["big"], limits=limits, within=180)
        if answer.status == 200:
            file = answer.json["files"][0]
            return file["truncated"], len(base64.b64decode(file["base64"]))
        check_refusal(answer)
        return None

    outcome = at_once([run] * 6)
    assert (False, size) in outcome, "not even one had room"
    assert all(one in ((False, size), None) for one in outcome), outcome
    # Beside the bound, one result at a time is being written: its files and their text.
    assert memory_of(server, "VmHWM") < bound + size * (1 + TEXT) + BASE, memory_of(server, "VmHWM") / MIB
    assert until(lambda: results(server) < 40 * MIB, 20), results(server)
    assert server.run(code="print(1)").json["stdout"] == "1\n"
    refused = [row for row in server.get("/v1/runs?limit=50").json["runs"] if row["status"] == "internal"]
    assert len(refused) == outcome.count(None)
    for row in refused:
        record = server.get(f"/v1/runs/{row['id']}").json
        assert "memory" in record["diagnosis"]["message"] and record["files"] == [], record


def test_output_counts_and_small_runs_do_not_suffer(start_server):
    server = start_server("[server]\nresult_total = '16m'\nconcurrent = 8\n[ceilings]\noutput = '32m'\n")
    loud = {"command": ["/bin/sh", "-c", f"head -c {24 * MIB} /dev/zero | tr '\\0' x"], "limits": {"output": 32 * MIB, "timeout": 30}}
    answers = at_once([lambda: server.run(**loud), *[lambda: server.run(code="print('small')")] * 6])
    check_refusal(answers[0])
    assert [answer.json["stdout"] for answer in answers[1:]] == ["small\n"] * 6
    loud["command"][2] = f"head -c {2 * MIB} /dev/zero | tr '\\0' x"
    for _ in range(3):
        assert len(server.run(**loud).json["stdout"]) == 2 * MIB, "runs that are over give way to those that need the memory"


def test_what_only_grows_when_it_is_written_down_counts(start_server):
    """A NUL is one byte of output and six of JSON."""
    server = start_server("[server]\nresult_total = '20m'\n[ceilings]\noutput = '8m'\n")
    answer = server.run(command=["/bin/sh", "-c", f"head -c {4 * MIB} /dev/zero"], limits={"output": 8 * MIB})
    check_refusal(answer)
    answer = server.run(command=["/bin/sh", "-c", f"head -c {4 * MIB} /dev/zero | tr '\\0' x"], limits={"output": 8 * MIB})
    assert answer.status == 200 and len(answer.json["stdout"]) == 4 * MIB


def test_an_asynchronous_run_without_memory_says_so_in_its_record(start_server):
    server = start_server("[server]\nresult_total = '8m'\n")
    script = f"head -c {12 * MIB} /dev/zero > big; echo made"
    run = server.run(command=["/bin/sh", "-c", script], collect=["big"], limits={"disk": 50 * MIB}, **{"async": True}).json["id"]
    assert until(lambda: "success" in server.get(f"/v1/runs/{run}").json, 20)
    record = server.get(f"/v1/runs/{run}").json
    assert record["status"] == "internal" and "memory that this server has for results" in record["diagnosis"]["message"], record


def test_what_stages_leave_for_tests_counts(start_server):
    server = start_server("[server]\nresult_total = '8m'\n")
    stage = {"name": "make", "command": ["/bin/sh", "-c", f"head -c {30 * MIB} /dev/zero > big"]}
    answer = server.run(command=["/bin/sh", "-c", "ls"], stages=[stage], tests=[{}], limits={"disk": 100 * MIB})
    check_refusal(answer)


def test_replies_that_nobody_reads_are_bounded(start_server):
    """Readers of one large record that stop reading hold a copy each, until there is no memory for another."""
    server = start_server("[server]\nresult_total = '64m'\nwrite_time = '60s'\n[ceilings]\noutput = '16m'\n")
    run = server.run(command=["/bin/sh", "-c", f"head -c {8 * MIB} /dev/zero | tr '\\0' x"], limits={"output": 8 * MIB}).json["id"]
    with contextlib.ExitStack() as held:
        for _ in range(20):
            client = held.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", server.port))
            client.sendall(f"GET /v1/runs/{run} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert until(lambda: results(server) > 48 * MIB, 10), results(server)
        check_refusal(server.get(f"/v1/runs/{run}"))
        assert results(server) <= 64 * MIB
        assert memory_of(server, "VmRSS") < (64 + 3 * 8) * MIB + BASE
        assert server.run(code="print(1)").json["stdout"] == "1\n", "small answers have room"
    assert until(lambda: server.get(f"/v1/runs/{run}").status == 200, 10)


@pytest.mark.parametrize("word", ["100", "64k"])
def test_the_smallest_bound_still_lets_small_runs_through(start_server, word):
    server = start_server(f"[server]\nresult_total = '{word}'\n")
    assert [server.run(code=f"print({i})").json["stdout"] for i in range(3)] == ["0\n", "1\n", "2\n"]
