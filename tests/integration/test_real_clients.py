"""Clients that people have already, as they are: httpx, with and without asyncio, and wrk, which keeps many connections busy at once. What a
library or a load generator makes of our answers is not what our own small client makes of them."""

import asyncio
import json
import re
import shutil
import subprocess

import pytest

from cells import SLOW
from server import server  # noqa: F401

httpx = pytest.importorskip("httpx", reason="python3-httpx: tools/deps test")
wrk = pytest.mark.skipif(not shutil.which("wrk"), reason="wrk: tools/deps test")

POST_RUN = """
wrk.method = "POST"
wrk.path = "/v1/runs"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"language":"bash","code":"echo 42"}'
"""


def events_of(lines):
    """(name, data) of each event in lines of text/event-stream."""
    name, found = None, []
    for line in lines:
        field, _, value = line.rstrip("\r\n").partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            found.append((name, json.loads(value)))
    return found


def check_events(events):
    names = [name for name, _ in events]
    assert names[0] == "start" and names[-1] == "result", names
    assert events[-1][1]["stdout"] == "1\n2\n" and events[-1][1]["status"] == "completed", events
    assert "".join(data["text"] for name, data in events if name == "stdout") == "1\n2\n", events


# ---- httpx ----

def test_httpx_runs_and_asks_over_one_connection(server):  # noqa: F811
    with httpx.Client(base_url=server.url, timeout=60 * SLOW) as client:
        done = client.post("/v1/runs", json={"language": "python", "code": "print(6 * 7)"})
        assert done.status_code == 200 and done.json()["stdout"] == "42\n", done.text
        again = client.get(f"/v1/runs/{done.json()['id']}")
        assert again.status_code == 200 and again.json()["stdout"] == "42\n", again.text
        wrong = client.post("/v1/runs", json={"langage": "python"})
        assert wrong.status_code == 400 and wrong.headers["content-type"] == "application/problem+json", wrong.text
        assert client.get("/v1/languages").status_code == 200, "the connection goes on after an error"


def test_httpx_streams_a_run(server):  # noqa: F811
    body = {"language": "bash", "code": "echo 1; sleep 0.2; echo 2"}
    with httpx.Client(base_url=server.url, timeout=60 * SLOW) as client:
        with client.stream("POST", "/v1/runs", json=body, headers={"Accept": "text/event-stream"}) as response:
            assert response.status_code == 200 and response.headers["content-type"].startswith("text/event-stream")
            check_events(events_of(response.iter_lines()))


def test_httpx_async_runs_side_by_side_and_streams(server):  # noqa: F811
    async def stream(client):
        body = {"language": "bash", "code": "echo 1; sleep 0.2; echo 2"}
        async with client.stream("POST", "/v1/runs", json=body, headers={"Accept": "text/event-stream"}) as response:
            assert response.status_code == 200
            return events_of([line async for line in response.aiter_lines()])

    async def all_of_them():
        async with httpx.AsyncClient(base_url=server.url, timeout=60 * SLOW) as client:
            runs = [client.post("/v1/runs", json={"language": "bash", "code": f"echo {n}"}) for n in range(4)]
            return await asyncio.gather(stream(client), *runs)

    events, *answers = asyncio.run(all_of_them())
    check_events(events)
    assert [answer.json()["stdout"] for answer in answers] == [f"{n}\n" for n in range(4)]


# ---- wrk ----

def load(server, path, *words):  # noqa: F811
    """Two seconds of it. The number of requests that were answered; it names errors only when there are some."""
    done = subprocess.run(["wrk", "-t1", "-c8", "-d2s", "--timeout", f"{int(30 * SLOW)}s", *words, server.url + path], capture_output=True,
                          text=True, timeout=60 * SLOW, check=False)
    assert done.returncode == 0, done
    assert "Non-2xx" not in done.stdout and "Socket errors" not in done.stdout, done.stdout
    return int(re.search(r"(\d+) requests in", done.stdout)[1])


@wrk
def test_wrk_finds_no_error_in_small_answers(server):  # noqa: F811
    assert load(server, "/v1/languages") > 100


@wrk
def test_wrk_finds_no_error_in_runs(server, tmp_path):  # noqa: F811
    script = tmp_path / "run.lua"
    script.write_text(POST_RUN)
    assert load(server, "/v1/runs", "-s", str(script)) > 8, "each connection is used again"
    counted = server.get("/v1/stats").json["runs"]
    assert counted["running"] <= 8, counted
