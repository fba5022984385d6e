"""The Python client and runs: results, streams, what has been. Both kinds of client, against a real server."""

import asyncio
import threading
import time

import pytest

import hotcell
from cells import SLOW


def in_loop(server, work):
    """Runs a coroutine function with an AsyncClient."""
    async def main():
        async with hotcell.AsyncClient(server.url) as client:
            return await work(client)
    return asyncio.run(main())


def test_a_result_has_everything(client):
    result = client.run("print(6 * 7)")
    assert (result.stdout, result.stderr, result.status, result.success, result.exit_code) == ("42\n", "", "completed", True, 0)
    assert result.id.startswith("run_") and result.language == "python" and result.usage.wall_ms > 0 and result.timing.start
    assert result.isolation["level"] and result.diagnosis is None and result.check() is result


def test_asyncio_gives_the_same(server):
    result = in_loop(server, lambda client: client.run("print(6 * 7)"))
    assert result.stdout == "42\n" and result.success


def test_many_at_once(server):
    async def work(client):
        return await asyncio.gather(*(client.run(f"print({number})") for number in range(30)))
    assert [result.stdout for result in in_loop(server, work)] == [f"{number}\n" for number in range(30)]


def test_one_async_client_in_several_loops(server):
    client = hotcell.AsyncClient(server.url)
    assert [asyncio.run(client.run(f"print({number})")).stdout for number in range(3)] == ["0\n", "1\n", "2\n"]


def test_one_client_in_several_threads(client):
    found = {}
    threads = [threading.Thread(target=lambda number=number: found.update({number: client.run(f"print({number})").stdout})) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: f"{number}\n" for number in range(12)}


def test_a_failing_program_is_a_result_and_check_makes_an_error_of_it(client):
    result = client.run("print(1)\nraise ValueError('no')")
    assert not result.success and result.exit_code == 1 and "ValueError: no" in result.stderr
    with pytest.raises(hotcell.ExecutionError) as caught:
        result.check()
    assert caught.value.result is result and isinstance(caught.value, hotcell.SandboxError)


def test_check_tells_limits_apart(client):
    with pytest.raises(hotcell.SandboxTimeoutError) as caught:
        client.run("print(1, flush=True)\nwhile True: pass", timeout=0.3, check=True)
    assert caught.value.result.stdout == "1\n" and caught.value.result.exit_code == 124
    with pytest.raises(hotcell.SandboxResourceError):
        client.run("x = bytearray(10 ** 9)", limits={"memory": "64m"}, check=True)


def test_files_of_every_kind_go_in_and_come_out(client, tmp_path):
    (tmp_path / "tool").write_text("#!/bin/sh\necho from the tool")
    (tmp_path / "tool").chmod(0o755)
    result = client.run("import subprocess\nprint(open('a.txt').read(), open('b.bin', 'rb').read())\n"
                        "print(subprocess.run('./tool', capture_output=True).stdout)\nopen('out.bin', 'wb').write(bytes(range(256)))",
                        files={"a.txt": "text", "b.bin": b"\xff\0", "tool": tmp_path / "tool"}, collect=["out.bin"])
    assert result.stdout == "text b'\\xff\\x00'\nb'from the tool\\n'\n", result
    assert [(one.path, one.content) for one in result.files] == [("out.bin", bytes(range(256)))]


def test_output_that_is_not_text_is_exact(client):
    result = client.run("import os\nos.write(1, bytes(range(256)))")
    assert result.stdout_bytes == bytes(range(256)) and "\ufffd" in result.stdout


def test_input_arguments_environment_and_commands(client):
    result = client.run("import sys, os\nprint(sys.stdin.read(), sys.argv[1:], os.environ['K'])", stdin="in", args=["a", "b"], env={"K": "V"})
    assert result.stdout == "in ['a', 'b'] V\n"
    assert client.run(command=["echo", "a b"]).stdout == "a b\n"
    assert client.run(command="echo $((1 + 2))").stdout == "3\n"
    assert client.run("puts 1", "ruby").stdout == "1\n"


def test_tests_of_a_program(client):
    result = client.run("print(int(input()) * 2)", tests=[{"stdin": "1", "expect_stdout": "2\n"}, {"stdin": "2", "expect_stdout": "5\n"}])
    assert [one["verdict"] for one in result.tests] == ["passed", "failed"]


def test_wrong_requests_name_the_field(client):
    with pytest.raises(hotcell.InvalidRequestError, match="'tiemout' is no option of a run") as caught:
        client.run("1", tiemout=3)
    assert caught.value.field == "tiemout"
    with pytest.raises(hotcell.InvalidRequestError) as caught:
        client.run("1", limits={"memroy": "1m"})
    wrong = caught.value
    assert (wrong.status, wrong.code, wrong.field) == (400, "invalid_request", "limits.memroy") and "memory" in wrong.remedy and wrong.problem
    with pytest.raises(hotcell.InvalidRequestError, match="it must be str, bytes or a path"):
        client.run("1", files={"a": 1})
    with pytest.raises(hotcell.NotFoundError):
        client.wait("run_00000000000000000000000000")
    with pytest.raises(hotcell.InvalidRequestError):
        client.wait("..")


# ---- streams ----

COUNTING = "import time\nfor i in range(4): print(i, flush=True); time.sleep(.05)"


def test_events_as_they_happen(client):
    with client.stream(COUNTING) as events:
        first = next(iter(events))
        found = [first] + list(events)
    assert first.name == "start" and events.id == first.data["id"]
    assert "".join(event.text for event in found if event.name == "stdout") == "0\n1\n2\n3\n"
    assert found[-1].name == "result" and events.result.success and events.result.stdout == "0\n1\n2\n3\n"


def test_events_in_asyncio(server):
    async def work(client):
        text = ""
        async with client.stream(COUNTING) as events:
            async for event in events:
                text += event.text if event.name == "stdout" else ""
        return text, events.result
    text, result = in_loop(server, work)
    assert text == result.stdout == "0\n1\n2\n3\n"


def test_a_stream_without_with(client):
    assert client.stream("print(1)").wait().stdout == "1\n"


def test_leaving_a_stream_ends_its_run(client):
    with client.stream("import time\nprint(1, flush=True)\ntime.sleep(60)", timeout=90) as events:
        for event in events:
            if event.name == "stdout":
                break
    result = client.wait(events.id, timeout=20 * SLOW)
    assert result.status == "killed"


def test_wrong_requests_of_streams(client):
    with pytest.raises(hotcell.InvalidRequestError):
        with client.stream("1", limits={"nothing": 1}):
            pass


def test_events_of_a_run_from_anywhere(client):
    run = client.run_async(COUNTING)
    everything = list(run.events())
    again = list(client.events(run.id, last_event_id=everything[-3].id))
    assert [event.id for event in again] == [event.id for event in everything[-2:]]
    assert list(client.events(run.id, last_event_id=everything[-1].id)) == []


# ---- runs to come back for ----

def test_run_and_come_back(client):
    run = client.run_async("import time\ntime.sleep(.2)\nprint(1)")
    with pytest.raises(hotcell.SandboxTimeoutError):
        run.wait(timeout=0.01)
    result = run.wait()
    assert result.stdout == "1\n" and run.status() == "completed" and client.get_run(run.id).wait().id == run.id


def test_cancel(client):
    run = client.run_async("import time\ntime.sleep(60)", timeout=90)
    run.cancel()
    assert run.wait(timeout=20 * SLOW).status == "killed"
    with pytest.raises(hotcell.ConflictError):
        run.cancel()


def test_input_while_it_runs(client):
    run = client.run_async("for line in open(0): print('got', line.strip(), flush=True)", stdin_open=True)
    run.send_input("one\n")
    run.send_input(b"two\n", end=True)
    assert run.wait().stdout == "got one\ngot two\n"


def test_history_page_by_page(client):
    ids = [client.run(f"print({number})", metadata={"number": number}).id for number in range(5)]
    page = client.history(limit=3)
    assert [row["id"] for row in page.runs] == ids[:1:-1] and page.next
    assert [row["id"] for row in client.history(limit=2, before=page.next).runs] == ids[1::-1]
    assert [row["id"] for row in client.iter_history(page=2)][:5] == ids[::-1]
    assert all(row["status"] == "error" for row in client.history(status="error").runs)


def test_report_languages_stats(client):
    result = client.run("1/0")
    assert client.report(result.id)["error_type"] == "execution_error"
    assert "ZeroDivisionError" in client.report(result.id, "markdown") and "ZeroDivisionError" in client.report(result.id, "text")
    names = {language.name: language for language in client.languages()}
    assert names["python"].available and "py" in names["python"].aliases
    assert client.stats()["version"] == hotcell.__version__ and client.ready() and "/v1/runs" in client.openapi()["paths"]


def test_execute(client):
    assert client.execute("print(1)") == {"process_status": "completed", "stdout": "1\n", "stderr": ""}
    with pytest.raises(hotcell.InvalidRequestError, match="Only python execution is supported"):
        client.execute("1", language="cobol")


def test_connections_are_kept(server):
    with hotcell.Client(server.url) as client:
        client.stats()
        kept = client._http._idle[0]
        began = time.monotonic()
        for _ in range(20):
            client.stats()
        assert client._http._idle == [kept], time.monotonic() - began
