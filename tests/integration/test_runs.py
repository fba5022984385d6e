"""Runs of a server, over HTTP: waited for, streamed, asynchronous, cancelled, listed, reported; and what happens when much comes at once, when
a client leaves, and when the server stops."""

import base64
import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import threading
import time

import pytest

from cells import HOTCELL, SLOW, start_time
from server import server, start_server  # noqa: F401 (fixtures)

ONE_AT_A_TIME = "[server]\nconcurrent = 1\nqueue = 4\n"


def wait_until(condition, within=20, every=0.02):
    deadline = time.monotonic() + within * SLOW
    while not (found := condition()):
        assert time.monotonic() < deadline, f"did not happen within {within * SLOW:.0f} s: {condition}"
        time.sleep(every)
    return found


def ended(one, run, **options):
    """The result of a run, once there is one."""
    def look():
        answer = one.get(f"/v1/runs/{run}?wait=10", **options)
        assert answer.status == 200, answer
        return answer.json if "success" in answer.json else None
    return wait_until(look)


def submit(one, **fields):
    """An asynchronous run's id."""
    answer = one.run(**fields, **{"async": True})
    assert answer.status == 202, answer
    return answer.json["id"]


class Behind:
    """Something that is done in a thread of its own; `result()` waits for it."""

    def __init__(self, function, *arguments, **options):
        self.value = self.wrong = None

        def work():
            try:
                self.value = function(*arguments, **options)
            except BaseException as wrong:  # told by result()
                self.wrong = wrong

        self.thread = threading.Thread(target=work, daemon=True)
        self.thread.start()

    def result(self, within=60):
        self.thread.join(within * SLOW)
        assert not self.thread.is_alive(), "it does not end"
        if self.wrong:
            raise self.wrong
        return self.value


def output_of(events, stream):
    """The bytes of a stream, per stage, put together from events, each of which must begin where the one before ended."""
    stages, parts = [], []
    for event in events:
        if event.name == "stage":
            stages.append(event.data["name"])
            parts.append(b"")
        elif event.name == stream:
            piece = event.data["text"].encode() if "text" in event.data else base64.b64decode(event.data["base64"])
            assert event.data["offset"] == len(parts[-1]), event
            parts[-1] += piece
    return parts


# ---- synchronous ----

def test_a_run_answers_with_its_result(server):
    answer = server.run(code="print(6 * 7)", language="python", metadata={"who": "me"})
    assert answer.status == 200 and answer.headers["content-type"] == "application/json", answer
    result = answer.json
    assert result["stdout"] == "42\n" and result["status"] == "completed" and result["success"] is True
    assert re.fullmatch(r"run_[0-9A-Za-z]{26}", result["id"])
    assert result["language"] == "python" and result["metadata"] == {"who": "me"}
    assert result["timing"]["start"] in ("warm", "cold") and result["timing"]["total_ms"] >= result["timing"]["run_ms"] > 0
    assert result["isolation"]["layers"]


def test_the_result_is_the_same_when_it_is_looked_up(server):
    result = server.run(code="import sys; print('o'); print('e', file=sys.stderr); sys.exit(3)").json
    assert result["status"] == "error" and result["exit_code"] == 3
    assert server.get(f"/v1/runs/{result['id']}").json == result


def test_a_command_files_and_stdin(server):
    result = server.run(command=["/bin/cat", "a.txt", "-"], files={"a.txt": "from a file\n"}, stdin="from stdin\n").json
    assert result["stdout"] == "from a file\nfrom stdin\n" and result["language"] is None


def test_wrapped_code_is_unwrapped(server):
    assert server.run(code="```python\nprint(1)\n```").json["stdout"] == "1\n"
    assert server.run(code='{"code": "print(2)"}').json["stdout"] == "2\n"
    assert server.run(code="```bash\necho $((1+2))\n```").json["stdout"] == "3\n"


def test_a_timeout_keeps_partial_output(server):
    result = server.run(code="print('first', flush=True)\nwhile True: pass", limits={"timeout": 0.5}).json
    assert result["status"] == "timeout" and result["stdout"] == "first\n" and result["exit_code"] == 124


@pytest.mark.parametrize("body, word", [
    ('{"code": "1", "nonsense": 1}', "nonsense"),
    ('{"code": 1}', "code"),
    ("{}", "code"),
    ("[]", "object"),
    ("{", "JSON"),
    ("", "JSON"),
    ('{"code": "1", "code": "2"}', "code"),
    ('{"code": "1", "limits": {"memory": "much"}}', "limits.memory"),
    ('{"code": "1", "language": "klingon"}', "klingon"),
])
def test_a_bad_request_is_told_what_is_wrong(server, body, word):
    answer = server.post("/v1/runs", body, headers={"Content-Type": "application/json"})
    assert answer.status == 400 and answer.headers["content-type"] == "application/problem+json", answer
    assert answer.json["code"] == "invalid_request" and word.lower() in answer.json["detail"].lower(), answer


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None])
def test_only_json_runs_anything(server, kind):
    before = server.get("/v1/runs?limit=1").json["runs"]
    headers = {"Content-Type": kind} if kind else {}
    answer = server.post("/v1/runs", '{"code": "print(1)"}', headers=headers)
    assert answer.status == 415 and answer.json["code"] == "invalid_request", answer
    assert server.get("/v1/runs?limit=1").json["runs"] == before


def test_a_mount_that_is_not_allowed_is_forbidden(server):
    answer = server.run(code="1", mounts=[{"host": "/etc", "path": "/data", "read_only": True}])
    assert answer.status == 403 and answer.json["code"] == "forbidden", answer


# ---- asynchronous ----

def test_an_asynchronous_run_is_there_at_once_and_ends_later(server):
    answer = server.run(code="import time; time.sleep(0.3); print('done')", **{"async": True})
    assert answer.status == 202, answer
    run = answer.json["id"]
    assert answer.headers["location"] == f"/v1/runs/{run}" and answer.json["status"] in ("queued", "running")
    look = server.get(f"/v1/runs/{run}").json
    assert look["id"] == run and (look["status"] in ("queued", "running") or look["stdout"] == "done\n")
    result = server.get(f"/v1/runs/{run}?wait=20").json
    assert result["status"] == "completed" and result["stdout"] == "done\n"


def test_prefer_respond_async(server):
    answer = server.run(code="print(1)", headers={"Prefer": "wait=5, respond-async"})
    assert answer.status == 202 and answer.headers["preference-applied"] == "respond-async", answer
    assert ended(server, answer.json["id"])["stdout"] == "1\n"


def test_waiting_ends_when_the_time_is_over(server):
    run = submit(server, code="import time; time.sleep(20)")
    begin = time.monotonic()
    answer = server.get(f"/v1/runs/{run}?wait=0.3")
    assert answer.status == 200 and answer.json["status"] in ("queued", "running"), answer
    assert 0.3 <= time.monotonic() - begin < 5 * SLOW
    assert server.delete(f"/v1/runs/{run}").status == 202


def test_waiting_is_capped_by_the_operator(start_server):
    one = start_server("[server]\nwait_time = '200ms'\n")
    run = submit(one, code="import time; time.sleep(20)")
    begin = time.monotonic()
    assert one.get(f"/v1/runs/{run}?wait=600").json["status"] in ("queued", "running")
    assert time.monotonic() - begin < 10 * SLOW
    one.delete(f"/v1/runs/{run}")


@pytest.mark.parametrize("query", ["wait=soon", "wait=-1", "wait=1&wait=2", "unknown=1"])
def test_a_bad_wait_is_refused(server, query):
    answer = server.get(f"/v1/runs/run_00000000000000000000000000?{query}")
    assert answer.status == 400, answer


# ---- cancelling ----

def test_a_running_run_can_be_cancelled(server):
    run = submit(server, code="import time; print('here', flush=True); time.sleep(60)")
    wait_until(lambda: server.get(f"/v1/runs/{run}").json["status"] == "running")
    answer = server.delete(f"/v1/runs/{run}")
    assert answer.status == 202 and answer.json["id"] == run, answer
    assert ended(server, run)["status"] == "killed"
    assert server.delete(f"/v1/runs/{run}").status == 409


def test_a_queued_run_can_be_cancelled(start_server):
    one = start_server(ONE_AT_A_TIME)
    first = submit(one, code="import time; time.sleep(60)")
    second = submit(one, code="print('never')")
    assert one.get(f"/v1/runs/{second}").json["status"] == "queued"
    assert one.delete(f"/v1/runs/{second}").status == 202
    result = ended(one, second)
    assert result["status"] == "killed" and result["stdout"] == ""
    one.delete(f"/v1/runs/{first}")
    ended(one, first)


def test_what_is_not_there_is_not_found(server):
    for path in ("run_00000000000000000000000000", "run_x", "%2e%2e", "x" * 300):
        for method, tail in (("GET", ""), ("DELETE", ""), ("GET", "/events"), ("GET", "/report")):
            assert server.request(method, f"/v1/runs/{path}{tail}").status in (400, 404), (method, path, tail)
    assert server.get("/v1/runs/run_00000000000000000000000000").json["code"] == "not_found"


# ---- events ----

def test_a_streamed_run_tells_what_happens_as_it_happens(server):
    code = "import os, time\nos.write(1, b'one\\n')\ntime.sleep(0.7)\nos.write(2, b'two\\n')\n"
    with server.events("/v1/runs", {"code": code}) as stream:
        assert stream.status == 200 and stream.headers["content-type"] == "text/event-stream"
        times, events = {}, []
        for event in stream:
            events.append(event)
            times[event.name] = time.monotonic()
    assert [event.name for event in events] == ["start", "stage", "stdout", "stderr", "result"], events
    assert events[2].data == {"text": "one\n", "offset": 0} and events[3].data == {"text": "two\n", "offset": 0}
    assert times["stderr"] - times["stdout"] > 0.4
    assert events[4].data["id"] == events[0].data["id"] and events[4].data["stdout"] == "one\n"
    assert any(line.startswith("retry:") for line in stream.other)


def test_a_compiled_program_has_two_stages(server):
    code = '#include <stdio.h>\nint main(void) { puts("hi"); }\n'
    with server.events("/v1/runs", {"code": code, "language": "c"}) as stream:
        events = list(stream)
    assert [event.data["name"] for event in events if event.name == "stage"] == ["compile", "run"], events
    assert output_of(events, "stdout") == [b"", b"hi\n"]


def test_bytes_that_are_not_text_come_as_base64(server):
    code = "import sys; sys.stdout.buffer.write(bytes(range(256))); sys.stdout.buffer.flush()"
    with server.events("/v1/runs", {"code": code}) as stream:
        events = list(stream)
    assert b"".join(output_of(events, "stdout")) == bytes(range(256))
    assert any("base64" in event.data for event in events if event.name == "stdout")


def test_characters_are_not_cut_in_two(server):
    code = ("import os, time\nfor byte in '\\u20ac\\U0001f600'.encode():\n"
            "    os.write(1, bytes([byte])); time.sleep(0.02)\n")
    with server.events("/v1/runs", {"code": code}) as stream:
        pieces = [event.data for event in stream if event.name == "stdout"]
    assert all("text" in piece for piece in pieces), pieces
    assert "".join(piece["text"] for piece in pieces) == "\u20ac\U0001f600"


def test_a_reader_goes_on_after_any_event_with_nothing_lost_or_repeated(server):
    code = ("import os, time\nfor i in range(40):\n    os.write(1 + i % 2, (str(i) + ' \\u20ac\\n').encode())\n"
            "    time.sleep(0.01)\n")
    run = submit(server, code=code)
    with server.events(f"/v1/runs/{run}/events") as stream:
        whole = list(stream)
    assert whole[-1].name == "result" and whole[-1].data["status"] == "completed"
    for cut in range(len(whole) - 1):
        with server.events(f"/v1/runs/{run}/events", headers={"Last-Event-ID": whole[cut].id}) as stream:
            rest = whole[:cut + 1] + list(stream)
        for name in ("stdout", "stderr"):
            assert output_of(rest, name) == output_of(whole, name)
        assert [event.name for event in rest].count("start") == 1 and rest[-1].data == whole[-1].data
    last = server.get(f"/v1/runs/{run}/events?last_event_id={whole[-1].id}")
    assert last.status == 204


def test_readers_that_come_and_go_do_not_end_a_run(server):
    run = submit(server, code="import time\nfor i in range(30): print(i, flush=True); time.sleep(0.05)")
    seen, last = [], None
    while True:
        headers = {"Last-Event-ID": last} if last else {}
        with server.events(f"/v1/runs/{run}/events", headers=headers) as stream:
            for count, event in enumerate(stream):
                seen.append(event)
                last = event.id
                if count == 3:
                    break
        if seen[-1].name == "result":
            break
    assert b"".join(output_of(seen, "stdout")) == "".join(f"{i}\n" for i in range(30)).encode()
    assert seen[-1].data["status"] == "completed"


@pytest.mark.parametrize("bad", ["nonsense", "0-1", "7-0-0", "0-99999-0", "-1-0-0"])
def test_an_id_that_is_not_of_this_run_is_refused(server, bad):
    run = server.run(code="print(1)").json["id"]
    assert server.get(f"/v1/runs/{run}/events", headers={"Last-Event-ID": bad}).status == 400


def test_a_slow_reader_of_much_output_gets_all_of_it(start_server):
    one = start_server("[server]\nwrite_backlog = '256k'\n")
    size = 1 << 20
    code = f"import sys; sys.stdout.buffer.write(bytes(i * 7 % 256 for i in range({size})))"
    run = one.run(code=code, limits={"output": "2m"}).json["id"]
    with one.events(f"/v1/runs/{run}/events") as stream:
        time.sleep(0.5)
        events = list(stream)
    assert b"".join(output_of(events, "stdout")) == bytes(i * 7 % 256 for i in range(size))
    assert events[-1].name == "result"


def test_large_files_come_with_the_streamed_result(server):
    code = "open('big', 'wb').write(b'x' * 12_000_000)"
    with server.events("/v1/runs", {"code": code, "collect": ["big"]}) as stream:
        result = list(stream)[-1]
    assert result.name == "result" and len(base64.b64decode(result.data["files"][0]["base64"])) == 12_000_000


# ---- history ----

def test_the_history_is_listed_newest_first_by_pages(start_server):
    one = start_server()
    runs = [one.run(command=["/bin/true"]).json["id"] for _ in range(5)]
    runs.append(one.run(code="import sys; sys.exit(1)").json["id"])
    first = one.get("/v1/runs?limit=4").json
    assert [run["id"] for run in first["runs"]] == runs[:1:-1] and first["next"] == runs[2]
    rest = one.get(f"/v1/runs?limit=4&before={first['next']}").json
    assert [run["id"] for run in rest["runs"]] == [runs[1], runs[0]] and rest["next"] is None
    assert [run["id"] for run in one.get("/v1/runs?status=error").json["runs"]] == runs[5:]
    assert [run["id"] for run in one.get("/v1/runs?language=Python3").json["runs"]] == runs[5:]
    row = first["runs"][0]
    assert row["status"] == "error" and row["exit_code"] == 1 and row["language"] == "python" and row["wall_ms"] > 0


def test_a_run_that_somebody_waits_for_is_listed_while_it_goes_on_and_once(start_server):
    """The store hears of it after a moment; of one that is over by then it hears once."""
    one = start_server("[server]\nconcurrent = 1\nqueue = 4\n")
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(one.run(command=["/bin/sleep", "2"], metadata={"a": 1}))) for _ in range(2)]
    for thread in threads:
        thread.start()
    wait_until(lambda: sorted(run["status"] for run in one.get("/v1/runs").json["runs"]) == ["queued", "running"])
    listed = {run["id"]: run for run in one.get("/v1/runs").json["runs"]}
    assert all((run["started_at"] is None) == (run["status"] == "queued") and run["ended_at"] is None for run in listed.values()), listed
    for thread in threads:
        thread.join()
    assert {answer.json["id"] for answer in answers} == set(listed)
    short = one.run(command=["/bin/true"]).json["id"]
    rows = one.get("/v1/runs").json["runs"]
    assert [row["status"] for row in rows] == ["completed"] * 3 and len({row["id"] for row in rows}) == 3 and rows[0]["id"] == short
    assert all(row["started_at"] and row["ended_at"] for row in rows)
    assert one.get("/v1/stats").json["history"]["by_status"]["running"] == 0


@pytest.mark.parametrize("query, word", [
    ("limit=0", "limit"), ("limit=1001", "limit"), ("limit=many", "limit"), ("status=great", "status"), ("before=1;2", "before"),
    ("colour=red", "colour"), ("limit=1&limit=2", "limit"),
])
def test_a_bad_filter_is_named(server, query, word):
    answer = server.get(f"/v1/runs?{query}")
    assert answer.status == 400 and word in answer.json["detail"], answer


def test_history_and_events_survive_a_restart(start_server, tmp_path):
    (tmp_path / "state").mkdir()
    one = start_server(state=tmp_path / "state")
    plain = one.run(code="print('kept')").json
    code = "import sys; sys.stdout.buffer.write(b'0123456789' * 1000); sys.stderr.write('and this')"
    long = one.run(code=code, limits={"output": 4096}).json
    tests = one.run(code="print(input())", tests=[{"stdin": "a\n", "expect_stdout": "a\n"}, {"stdin": "b\n"}]).json
    told = {}
    for run in (plain, long, tests):
        with one.events(f"/v1/runs/{run['id']}/events") as stream:
            told[run["id"]] = list(stream)
    one.stop()
    one.start()
    for run in (plain, long, tests):
        assert one.get(f"/v1/runs/{run['id']}").json == run
        before = told[run["id"]]
        for cut in range(-1, len(before) - 1):
            headers = {"Last-Event-ID": before[cut].id} if cut >= 0 else {}
            with one.events(f"/v1/runs/{run['id']}/events", headers=headers) as stream:
                again = before[:cut + 1] + list(stream)
            for name in ("stdout", "stderr"):
                assert output_of(again, name) == output_of(before, name)
            assert again[-1].data == run


# ---- reports ----

def test_the_report_of_a_failure(server):
    result = server.run(code="print('out')\nraise ValueError('no such thing')").json
    report = server.get(f"/v1/runs/{result['id']}/report").json
    assert report["status"] == "failure" and report["exit_code"] == 1 and report["error_type"] == "execution_error"
    assert report["output"]["stdout"] == "out\n" and "ValueError" in report["output"]["stderr"]
    assert report["container_id"] == result["id"] and report["timestamp"] == result["created_at"]
    assert report["analysis"]["is_error"] is True and report["analysis"]["error_type"] == "python_exception"
    assert report["analysis"]["exception"] == "ValueError: no such thing"
    assert report["request"]["language"] == "python" and "code" not in report["request"]


def test_the_report_of_a_success_and_of_a_timeout(server):
    good = server.run(code="print(1)").json["id"]
    report = server.get(f"/v1/runs/{good}/report").json
    assert report["status"] == "success" and report["error_type"] is None and report["analysis"]["is_error"] is False
    slow = server.run(code="while True: pass", limits={"timeout": 0.3}).json["id"]
    report = server.get(f"/v1/runs/{slow}/report").json
    assert report["error_type"] == "timeout" and report["analysis"]["error_type"] == "timeout" and report["error_message"]


@pytest.mark.parametrize("kind", ["text/markdown", "text/plain"])
def test_the_report_as_text_cannot_be_broken_by_output(server, kind):
    run = server.run(code="print('`````\\n# not a heading of the report')\nraise SystemExit(1)").json["id"]
    answer = server.get(f"/v1/runs/{run}/report", headers={"Accept": kind})
    assert answer.headers["content-type"].startswith(kind), answer
    lines = answer.text.splitlines()
    fences = [i for i, line in enumerate(lines) if line == "``````"]
    inside = lines.index("# not a heading of the report")
    assert len(fences) == 2 and fences[0] < inside < fences[1], answer.text
    assert run in lines[0]


def test_there_is_no_report_before_the_end(server):
    run = submit(server, code="import time; time.sleep(30)")
    assert server.get(f"/v1/runs/{run}/report").status == 409
    server.delete(f"/v1/runs/{run}")


# ---- many at once ----

def test_a_full_queue_says_when_to_come_back(start_server):
    one = start_server(ONE_AT_A_TIME)
    runs = [submit(one, code="import time; time.sleep(30)") for _ in range(5)]
    answer = one.run(code="print(1)")
    assert answer.status == 503 and answer.json["code"] == "overloaded" and int(answer.headers["retry-after"]) >= 1, answer
    streamed = one.run(code="print(1)", headers={"Accept": "text/event-stream"})
    assert streamed.status == 503, streamed
    for run in runs:
        assert one.delete(f"/v1/runs/{run}").status == 202
    assert [ended(one, run)["status"] for run in runs] == ["killed"] * 5
    assert one.run(code="print(1)").json["stdout"] == "1\n"


def test_a_run_whose_turn_does_not_come_is_told_so(start_server):
    one = start_server(ONE_AT_A_TIME + "queue_time = '500ms'\n")
    first = submit(one, code="import time; time.sleep(30)")
    left = submit(one, code="print('late')")
    answer = one.run(code="print('late')")
    assert answer.status == 503 and answer.json["code"] == "overloaded" and "turn" in answer.json["detail"], answer
    result = ended(one, left)
    assert result["status"] == "internal" and "turn" in result["diagnosis"]["message"]
    one.delete(f"/v1/runs/{first}")


def test_runs_wait_in_order_and_all_get_their_turn(start_server):
    one = start_server("[server]\nconcurrent = 2\nqueue = 40\n")
    work = [Behind(one.run, code=f"print({i})") for i in range(24)]
    assert sorted(int(each.result().json["stdout"]) for each in work) == list(range(24))


def test_a_client_that_leaves_ends_its_run(server):
    for streamed in (False, True):
        mark = f"left-{streamed}-{time.monotonic_ns()}"
        connection = server.connect()
        connection.request("POST", "/v1/runs", json.dumps({"code": "import time; time.sleep(60)", "metadata": {"mark": mark}}),
                           {"Content-Type": "application/json", **({"Accept": "text/event-stream"} if streamed else {})})
        run = wait_until(lambda: next((run for run in server.get("/v1/runs?limit=5").json["runs"] if run["status"] == "running"), None))
        connection.close()
        result = ended(server, run["id"])
        assert result["status"] == "killed" and result["metadata"]["mark"] == mark


def test_a_reader_of_a_synchronous_run_does_not_end_it(server):
    work = Behind(server.run, code="import time; print('a', flush=True); time.sleep(1.5); print('b')")
    run = wait_until(lambda: next((run for run in server.get("/v1/runs?limit=5").json["runs"] if run["status"] == "running"), None))
    with server.events(f"/v1/runs/{run['id']}/events") as stream:
        next(iter(stream))
    assert work.result().json["stdout"] == "a\nb\n"


def test_a_silent_run_is_told_to_be_alive(server):
    run = submit(server, code="import time; time.sleep(40)", limits={"timeout": 60})
    with server.events(f"/v1/runs/{run}/events", within=40) as stream:
        seen = Behind(list, stream)
        wait_until(lambda: any(line.startswith(":") for line in stream.other), within=25)
        server.delete(f"/v1/runs/{run}")
        assert seen.result()[-1].data["status"] == "killed"


# ---- a full disk ----

@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=0755", "tmpfs", str(folder)], check=True)
    (folder / "state").mkdir()
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_refuses_runs_and_room_brings_them_back(small_disk, start_server):
    one = start_server(state=small_disk / "state")
    before = one.run(code="print('before')").json
    filler = small_disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    large = "print('y' * 500_000)" + 100_000 * "#"  # more than the journal takes, which has its room already
    refused = [one.run(code=large) for _ in range(3)] + [one.run(code=large, **{"async": True})]
    assert all(answer.status == 503 and "history" in answer.json["detail"] for answer in refused[1:]), refused
    assert one.get(f"/v1/runs/{before['id']}").json == before
    filler.unlink()
    wait_until(lambda: one.run(code="print('after')").status == 200)
    assert one.run(code=large).json["stdout"] == "y" * 500_000 + "\n"


# ---- stopping ----

def test_a_server_that_stops_lets_running_ones_end_and_refuses_the_others(start_server, tmp_path):
    (tmp_path / "state").mkdir()
    one = start_server(ONE_AT_A_TIME, state=tmp_path / "state")
    running = Behind(one.run, code="import time; time.sleep(1.5); print('to the end')")
    wait_until(lambda: any(run["status"] == "running" for run in one.get("/v1/runs").json["runs"]))
    waiting = Behind(one.run, code="print('never')")
    kept = submit(one, code="print('later')")
    one.stop()
    assert running.result().json["stdout"] == "to the end\n"
    assert waiting.result().status == 503
    one.start()
    assert ended(one, kept)["stdout"] == "later\n"


def test_a_run_that_outlives_the_drain_is_ended_and_recorded(start_server, tmp_path):
    (tmp_path / "state").mkdir()
    one = start_server("[server]\ndrain_time = '500ms'\n", state=tmp_path / "state")
    run = submit(one, code="import time; time.sleep(60)")
    wait_until(lambda: one.get(f"/v1/runs/{run}").json["status"] == "running")
    one.stop()
    one.start()
    result = ended(one, run)
    assert result["status"] == "killed"
    assert result["diagnosis"]["message"] == "killed: the server stopped" and result["diagnosis"]["error_type"] == "shutdown", result["diagnosis"]


def test_the_death_of_the_gateway_loses_no_record(start_server):
    one = start_server(ONE_AT_A_TIME)
    running = submit(one, code="import time; time.sleep(60)")
    queued = submit(one, code="print('went on')")
    wait_until(lambda: one.get(f"/v1/runs/{running}").json["status"] == "running")
    gateway = one.process_of("hotcell-gateway")
    kill_process(gateway)
    wait_until(lambda: answers(one))
    result = ended(one, running)
    assert result["status"] == "internal" and "stopped" in result["diagnosis"]["message"]
    assert ended(one, queued)["stdout"] == "went on\n"


def test_what_the_death_of_the_gateway_or_the_warden_ended_keeps_its_metadata_and_its_isolation(start_server):
    one = start_server()
    other = one.run(code="print(1)").json["isolation"]

    def both():
        kept = submit(one, code="import time; time.sleep(60)", metadata={"who": "async"})
        Behind(one.run, code="import time; time.sleep(60)", metadata={"who": "waits"})
        wait_until(lambda: sum(run["status"] == "running" for run in one.get("/v1/runs").json["runs"]) == 2)
        waits = next(run["id"] for run in one.get("/v1/runs").json["runs"] if run["status"] == "running" and run["id"] != kept)
        return kept, waits

    for name in ("hotcell-gateway", "hotcell-warden"):
        kept, waits = both()
        kill_process(one.process_of(name))
        wait_until(lambda: answers(one))
        for run, who in ((kept, "async"), (waits, "waits")):
            result = ended(one, run)
            assert result["status"] == "internal" and result["metadata"] == {"who": who}, result
            assert result["isolation"] == other, result
        wait_until(lambda: one.get("/readyz").status == 200)


def test_the_death_of_the_warden_ends_what_runs_and_the_rest_goes_on(start_server):
    one = start_server(ONE_AT_A_TIME)
    running = submit(one, code="import time; time.sleep(60)")
    queued = submit(one, code="print('went on')")
    wait_until(lambda: one.get(f"/v1/runs/{running}").json["status"] == "running")
    kill_process(one.process_of("hotcell-warden"))
    result = ended(one, running)
    assert result["status"] == "internal" and "warden" in result["diagnosis"]["message"]
    assert ended(one, queued)["stdout"] == "went on\n"


def kill_process(pid):
    began = start_time(pid)
    assert began is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: start_time(pid) != began)


def answers(one):
    with contextlib.suppress(OSError):
        return one.get("/readyz").status == 200
    return False


# ---- audit, log ----

def test_limits_that_are_met_are_in_the_audit_log(start_server):
    one = start_server()
    run = one.run(code="while True: pass", limits={"timeout": 0.3}).json["id"]
    one.run(code="1", mounts=[{"host": "/etc/shadow", "path": "/data"}])
    one.run(code="1", nonsense=1)
    lines = [json.loads(line) for line in (one.state / "audit.log").read_text().splitlines()]
    hits = [line for line in lines if line["event"] == "limit_hit"]
    assert [(hit["run"], hit["detail"]["reason"]) for hit in hits] == [(run, "timeout")]
    assert any(line["event"] == "mount_denied" for line in lines)
    assert any(line["event"] == "request_refused" and "nonsense" in line["detail"]["reason"] for line in lines)


def test_a_limit_that_one_of_the_tests_met_is_in_the_audit_log(start_server):
    one = start_server()
    tests = [{"stdin": "go on"}, {"stdin": "loop"}]
    run = one.run(code="if input() == 'loop':\n    while True: pass", tests=tests, limits={"cpu_time": 0.3, "timeout": 20}).json
    assert [test["verdict"] for test in run["tests"]] == ["passed", "timeout"], run
    lines = [json.loads(line) for line in (one.state / "audit.log").read_text().splitlines()]
    assert [(line["run"], line["detail"]["reason"]) for line in lines if line["event"] == "limit_hit"] == [(run["id"], "cpu_time")]


def test_each_run_has_one_line_in_the_log(start_server):
    one = start_server()
    run = one.run(code="print(1)").json["id"]
    wait_until(lambda: any(run in line for line in one.log))
    lines = [line for line in one.log if run in line]
    assert len(lines) == 1
    for word in ("tenant", "python", "completed", "wall_ms", "cpu_ms", "memory_peak", "queue_ms"):
        assert word in lines[0], lines


def test_the_history_keeps_no_code(start_server):
    one = start_server()
    one.run(code="print(len('a-secret-in-the-code'))", env={"TOKEN": "a-secret-in-env"}, stdin="a-secret-in-stdin")
    run = submit(one, code="print(len('a-secret-in-the-code'))")
    ended(one, run)
    databases = list(one.state.glob("*.db")) + list(one.state.glob("*.sqlite*"))
    assert databases
    for path in databases:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            dump = "\n".join(database.iterdump())
            assert "a-secret" not in dump


# ---- tenants ----

def make_key(one, name, *options):
    """A key of this server, made by the command line beside it."""
    made = subprocess.run([HOTCELL, "key", "create", name, "--state", str(one.state), *options], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made
    return {"Authorization": "Bearer " + re.search(r"hc_[A-Za-z0-9_-]{43}", made.stdout)[0]}


def test_a_tenant_sees_its_own_runs_alone(start_server):
    one = start_server()
    ann, bob = make_key(one, "ann"), make_key(one, "bob")
    run = one.run(code="print('of ann')", headers=ann).json["id"]
    live = one.run(code="import time; time.sleep(30)", headers=ann, **{"async": True}).json["id"]
    for path in (run, live):
        assert one.get(f"/v1/runs/{path}", headers=ann).status == 200
        for method, tail in (("GET", ""), ("DELETE", ""), ("GET", "/events"), ("GET", "/report"), ("GET", "?wait=1")):
            answer = one.request(method, f"/v1/runs/{path}{tail}", headers=bob)
            assert answer.status == 404 and answer.json["code"] == "not_found", (method, tail, answer)
    assert one.get("/v1/runs", headers=bob).json["runs"] == []
    assert {row["id"] for row in one.get("/v1/runs", headers=ann).json["runs"]} == {run, live}
    assert one.get("/v1/runs").status == 401
    assert one.delete(f"/v1/runs/{live}", unix=True).status == 202
    assert ended(one, live, headers=ann)["status"] == "killed"


def test_tenants_take_turns(start_server):
    one = start_server("[server]\nconcurrent = 1\nqueue = 64\n")
    ann, bob = make_key(one, "ann"), make_key(one, "bob")
    first = one.run(code="import time; time.sleep(1.5)", headers=ann, **{"async": True}).json["id"]
    many = [one.run(command=["/bin/true"], headers=ann, **{"async": True}).json["id"] for _ in range(12)]
    few = [one.run(command=["/bin/true"], headers=bob, **{"async": True}).json["id"] for _ in range(3)]
    ended(one, many[-1], unix=True)
    rows = sorted(one.get("/v1/runs", unix=True).json["runs"], key=lambda row: row["ended_at"])
    order = [row["id"] for row in rows if row["id"] != first]
    assert [order.index(run) for run in few] == [1, 3, 5] or [order.index(run) for run in few] == [0, 2, 4], order


def test_quotas_of_a_key(start_server):
    one = start_server()
    key = make_key(one, "few", "--concurrent", "1")
    run = one.run(code="import time; time.sleep(30)", headers=key, **{"async": True}).json["id"]
    answer = one.run(code="print(1)", headers=key)
    assert answer.status == 429 and answer.json["code"] == "quota_exceeded" and int(answer.headers["retry-after"]) >= 1, answer
    one.delete(f"/v1/runs/{run}", headers=key)
    ended(one, run, headers=key)
    assert one.run(code="print(1)", headers=key).json["stdout"] == "1\n"


def test_the_operator_sees_whose_run_it_is(server):
    run = server.run(code="print(1)").json["id"]
    row = next(row for row in server.get("/v1/runs", unix=True).json["runs"] if row["id"] == run)
    assert row["tenant"] == "local"
    assert server.get(f"/v1/runs/{run}", unix=True).status == 200
