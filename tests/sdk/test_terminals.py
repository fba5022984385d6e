"""The Python client, terminals and previews of a sandbox."""

import asyncio
import time

import pytest

import hotcell
from cells import SLOW
from test_sandboxes import in_loop, sandbox  # noqa: F401 pylint: disable=unused-import

WEB = ["python3", "-m", "http.server", "8000", "--bind", "127.0.0.1"]
UNTIL_THERE = ("python3 -c \"\nimport socket, time\nwhile True:\n    try: socket.create_connection(('127.0.0.1', 8000)); break\n"
               "    except OSError: time.sleep(.05)\"")


def test_a_terminal(sandbox):
    with sandbox.terminal(cols=100, rows=30) as terminal:
        assert terminal.id.startswith("term_")
        terminal.write("stty size; tty | cut -c1-5\n")
        assert b"30 100" in terminal.read_until("/dev/", 20 * SLOW)
        terminal.resize(120, 40)
        terminal.write("stty size\n")
        terminal.read_until("40 120", 20 * SLOW)
        with pytest.raises(hotcell.SandboxTimeoutError):
            terminal.read_until("never", 0.3)
        terminal.write("sleep 100; echo over\n")
        terminal.read_until("over\r\n", 20 * SLOW)  # the echo of what was typed
        time.sleep(0.3)
        terminal.write(b"\x03")
        terminal.read_until("$ ", 20 * SLOW)
        terminal.write("echo $((6 * 7))x\n")
        terminal.read_until("42x", 20 * SLOW)
        terminal.write("exit 3\n")
        assert terminal.wait(20 * SLOW) == 3 and terminal.exit_code == 3


def test_attaching_again(sandbox):
    with sandbox.terminal() as first:
        first.write("echo $((1000 + 1))\n")
        first.read_until("1001", 20 * SLOW)
    with sandbox.terminal(id=first.id) as second:
        assert second.id == first.id and second.replay > 0
        assert b"1001" in second.read_until("1001", 20 * SLOW)
        second.write("exit\n")
        second.wait(20 * SLOW)
    with pytest.raises(hotcell.NotFoundError):
        sandbox.terminal(id="term_00000000000000000000000000").open()


def test_asyncio(server):
    async def work(box):
        async with box.terminal() as terminal:
            await terminal.write("echo $((6 * 7))x\n")
            found = await asyncio.wait_for(terminal.read_until("42x"), 20 * SLOW)
            listed = await box.terminals()
            return b"42x" in found, [one["id"] for one in listed] == [terminal.id]
    assert in_loop(server, work) == (True, True)


def test_previews(sandbox, server):
    sandbox.files.write("index.html", "<p>hello")
    sandbox.start(WEB, name="web")
    assert sandbox.exec(UNTIL_THERE).success
    with sandbox.preview(8000, "/index.html?x=1") as answer:
        assert answer.status == 200 and answer.read() == b"<p>hello"
    assert sandbox.preview(8000, "/missing").status == 404
    assert sandbox.preview_url(8000, "/a").startswith(f"{server.url}/v1/sandboxes/{sandbox.id}/ports/8000/a")
    with pytest.raises(hotcell.PreviewError):
        sandbox.preview(8001)
    link = sandbox.preview_link(8000, expires_in=60)
    assert link.expires_at and server.get(f"{link.url.removeprefix(server.url)}index.html").body == b"<p>hello"
