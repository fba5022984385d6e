"""The Python client and sandboxes: life, commands, jobs, shells. Both kinds of client, against a real server."""

import asyncio
import time

import pytest

import hotcell
from cells import SLOW


@pytest.fixture
def sandbox(client):
    with client.create_sandbox() as one:
        yield one


def in_loop(server, work):
    async def main():
        async with hotcell.AsyncClient(server.url) as client, await client.create_sandbox() as sandbox:
            return await work(sandbox)
    return asyncio.run(main())


# ---- life ----

def test_life(client):
    sandbox = client.create_sandbox(limits={"memory": "256m", "pids": 40}, env={"K": "V"}, files={"a.txt": "text", "b": b"\xff"}, idle_timeout="10m",
                                    metadata={"who": "me"})
    assert sandbox.id.startswith("sbx_") and sandbox.state == "running" and sandbox.info.limits["memory"] == 256 << 20
    assert sandbox.info.metadata == {"who": "me"} and sandbox.info.idle_timeout == 600
    assert sandbox.exec("echo $K; cat a.txt").stdout == "V\ntext"
    assert client.get_sandbox(sandbox.id).info.created_at == sandbox.info.created_at
    assert sandbox.id in [one.id for one in client.list_sandboxes(state="running")]
    assert sandbox.refresh().usage["memory"] >= 0
    sandbox.pause()
    assert sandbox.state == "paused"
    with pytest.raises(hotcell.ConflictError):
        sandbox.exec("true")
    sandbox.resume()
    sandbox.keepalive()
    assert sandbox.exec("true").success
    sandbox.delete()
    sandbox.delete()
    with pytest.raises(hotcell.NotFoundError):
        client.get_sandbox(sandbox.id)


def test_leaving_deletes_it(client):
    with pytest.raises(ValueError), client.create_sandbox() as sandbox:
        raise ValueError
    with pytest.raises(hotcell.NotFoundError):
        sandbox.refresh()


def test_wrong_requests(client, sandbox):
    with pytest.raises(hotcell.InvalidRequestError, match="limits.memroy"):
        client.create_sandbox(limits={"memroy": "1m"})
    with pytest.raises(hotcell.InvalidRequestError, match="'comand' is no option of an exec"):
        sandbox.exec("true", comand=1)
    with pytest.raises(hotcell.InvalidRequestError):
        sandbox.exec()


# ---- exec ----

def test_exec(sandbox):
    result = sandbox.exec(["sh", "-c", "echo $0 $1; cat; echo err >&2; exit 3", "a", "b c"], stdin="in\n")
    assert (result.stdout, result.stderr, result.exit_code, result.status) == ("a b c\nin\n", "err\n", 3, "error")
    assert result.sandbox == sandbox.id
    assert sandbox.exec("pwd; echo $X", cwd="/tmp", env={"X": "y"}).stdout == "/tmp\ny\n"
    assert sandbox.exec(code="print(6 * 7)", language="python").stdout == "42\n"
    with pytest.raises(hotcell.ExecutionError):
        sandbox.exec("exit 1", check=True)


def test_a_timeout_ends_the_job_and_not_the_sandbox(sandbox):
    began = time.monotonic()
    result = sandbox.exec("echo so far; sleep 60", timeout=0.5)
    assert result.timed_out and result.stdout == "so far\n" and time.monotonic() - began < 20 * SLOW
    assert sandbox.exec("echo on").stdout == "on\n"


def test_events(sandbox):
    with sandbox.stream("for i in 1 2 3; do echo $i; sleep .05; done") as events:
        text = "".join(event.text for event in events if event.name == "stdout")
    assert text == "1\n2\n3\n" and events.result.success


def test_asyncio(server):
    async def work(sandbox):
        results = await asyncio.gather(*(sandbox.exec(f"echo {number}") for number in range(8)))
        async with sandbox.stream("echo streamed") as events:
            text = "".join([event.text async for event in events if event.name == "stdout"])
        job = await sandbox.start("echo job")
        session = sandbox.session("main")
        await session.exec("x=1")
        return [result.stdout for result in results], text, (await job.wait()).stdout, (await session.exec("echo $x")).stdout
    assert in_loop(server, work) == ([f"{number}\n" for number in range(8)], "streamed\n", "job\n", "1\n")


# ---- jobs ----

def test_jobs(sandbox):
    job = sandbox.start("echo begun; read line; echo got $line; sleep 60", name="long", stdin_open=True)
    deadline = time.monotonic() + 20 * SLOW
    while (info := job.info()).stdout != "begun\n" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert info.running and info.name == "long" and sandbox.job("long").info().id == job.id
    job.send_input("this\n")
    while (info := job.info(stdout_from=6)).stdout != "got this\n" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert info.stdout == "got this\n" and info.offset["stdout"] == 15
    with pytest.raises(hotcell.SandboxTimeoutError):
        job.wait(timeout=0.1)
    assert [one.id for one in sandbox.jobs() if one.running] == [job.id]
    job.kill()
    result = job.wait(timeout=20 * SLOW)
    assert not result.success and result.stdout == "begun\ngot this\n"
    assert not job.info().running


def test_signals_and_events_of_jobs(sandbox):
    job = sandbox.start("trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep .05; done")
    with job.events() as events:
        for event in events:
            if event.name == "stdout" and "ready" in event.text:
                job.signal("TERM")
    assert events.result.exit_code == 5
    assert job.wait().exit_code == 5
    with pytest.raises(hotcell.NotFoundError):
        sandbox.job("unknown").info()


# ---- shells ----

def test_shells_keep_their_state(sandbox):
    with sandbox.session("main") as shell:
        shell.exec("cd /tmp; export A=1; B=2; f() { echo f $1; }; set -o pipefail")
        result = shell.exec("pwd; echo $A $B; f x; false | true")
        assert (result.stdout, result.exit_code, result.session_state) == ("/tmp\n1 2\nf x\n", 1, "alive")
        assert [one["name"] for one in sandbox.sessions()] == ["main"]
        late = shell.exec("echo old; sleep 60", timeout=0.5)
        assert late.timed_out and late.session_state == "alive"
        assert shell.exec("echo new $A").stdout == "new 1\n"
        ended = shell.exec("exit 7")
        assert ended.exit_code == 7 and ended.session_state == "ended"
        assert shell.exec("echo ${A-none}").stdout == "none\n"
        with shell.stream("echo a; sleep .1; echo b") as events:
            assert "".join(event.text for event in events if event.name == "stdout") == "a\nb\n"
    deadline = time.monotonic() + 10 * SLOW
    while sandbox.sessions() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert sandbox.sessions() == []


def test_shells_and_interpreters_under_a_writable_root(client):
    with client.create_sandbox(read_only=False) as box:
        assert box.session("main").exec("mkdir /opt/mine && echo made").stdout == "made\n"
        assert box.context("python").execute("1 + 1").value == "2"
        refused = box.exec("mv /.hotcell /opt/; touch /.hotcell/x /.hotcell/warm/x; ls -A /.hotcell/warm | wc -l")
        assert int(refused.stdout) > 0 and "Read-only file system" in refused.stderr and not box.files.exists("/.hotcell/warm/x")


def test_interrupting_a_shell(server):
    async def work(sandbox):
        shell = sandbox.session("main")
        await shell.exec("x=kept")
        call = asyncio.ensure_future(shell.exec("sleep 60", timeout=90))
        await asyncio.sleep(0.5)
        with pytest.raises(hotcell.ConflictError):
            await shell.exec("true")
        await shell.interrupt()
        await asyncio.wait_for(call, 20 * SLOW)
        return (await shell.exec("echo $x")).stdout
    assert in_loop(server, work) == "kept\n"
