"""Terminals of sandboxes, with a WebSocket client that others wrote (python3-websockets)."""

import asyncio
import contextlib
import json
import os
import pathlib
import re
import signal
import time
import urllib.parse

import pytest

from cells import SLOW
from sandboxes import ROOT, Sandbox, box, contract, guests, wait_for  # noqa: F401  (fixtures)
from server import server, start_server  # noqa: F401  (fixtures)
from test_sandbox_life import kill_gateway

websockets = pytest.importorskip("websockets", reason="python3-websockets is not installed")


class Terminal:
    """One client. It reads only when it is asked for something, so one that is not asked is a slow one."""

    def __init__(self, box, origin=None, **query):
        self.loop, self.seen, self.texts = asyncio.new_event_loop(), b"", []
        words = urllib.parse.urlencode(query)
        self.url = f"ws://127.0.0.1:{box.server.port}{ROOT}/{box.id}/terminal" + ("?" + words if words else "")
        try:
            self.socket = self.run(self.connect(origin))
            self.ready = json.loads(self.run(self.socket.recv()))
        except BaseException:
            self.loop.close()
            raise
        self.id = self.ready.get("id")

    async def connect(self, origin):
        return await websockets.connect(self.url, origin=origin, max_size=None, max_queue=1, read_limit=65536, ping_interval=None)

    def run(self, coroutine, within=20):
        return self.loop.run_until_complete(asyncio.wait_for(coroutine, within * SLOW))

    def take(self):
        frame = self.run(self.socket.recv())
        if isinstance(frame, str):
            self.texts.append(json.loads(frame))
        else:
            self.seen += frame

    def until(self, text):
        """All that came up to `text` and it; what came after it is kept for the next call."""
        text = text.encode() if isinstance(text, str) else text
        while text not in self.seen:
            self.take()
        before, self.seen = self.seen.split(text, 1)
        return before + text

    def end(self):
        """All that comes before the server closes; the code that it closes with."""
        pieces = [self.seen]
        with contextlib.suppress(websockets.ConnectionClosed):
            while True:
                self.seen = b""
                self.take()
                pieces.append(self.seen)
        return b"".join(pieces), self.socket.close_code

    def send(self, data):
        self.run(self.socket.send(data.encode() if isinstance(data, str) else data))

    def resize(self, **fields):
        self.run(self.socket.send(json.dumps({"type": "resize", **fields})))

    def close(self):
        with contextlib.suppress(Exception):
            self.run(self.socket.close())
        self.loop.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def terminals(box):
    return box.ask("GET", "/terminals").json["terminals"]


def test_a_real_terminal_of_the_size_asked_for_that_can_be_resized(box):
    with Terminal(box, cols=97, rows=31) as terminal:
        assert terminal.ready == {"type": "ready", "id": terminal.id, "replay": 0} and terminal.id.startswith("term_")
        terminal.send("tty; echo $TERM; stty size\r")
        assert re.search(rb"/dev/pts/\d+\r\nxterm-256color\r\n$", terminal.until("31 97\r\n").removesuffix(b"31 97\r\n"))
        terminal.send("trap 'echo re''sized' WINCH; echo tra''pped\r")
        terminal.until("trapped\r\n")
        terminal.until("$ ")  # readline, before it prompts, reads the size and sets it again (rltty.c): what comes between is undone
        terminal.resize(cols=120, rows=40)
        terminal.send("true\r")
        terminal.until("resized\r\n")
        terminal.send("stty size\r")
        terminal.until("40 120\r\n")
        assert [(one["id"], one["cols"], one["rows"], one["attached"]) for one in terminals(box)] == [(terminal.id, 120, 40, True)]
        assert box.look()["terminals"] == 1
        for cols, rows in ((0, 24), (80, 1001), (-1, 24), ("80", 24), (10**30, 24)):
            terminal.resize(cols=cols, rows=rows)
            while not terminal.texts:
                terminal.take()
            assert terminal.texts.pop()["type"] == "error"
        terminal.send("stty size\r")
        terminal.until("40 120\r\n")


def test_a_command_and_a_folder_may_be_named(box):
    with Terminal(box, command="pwd; echo $HOME >&2; exit 4", cwd="/tmp") as terminal:
        output, code = terminal.end()
        assert output.startswith(b"/tmp\r\n") and code == 1000
        assert terminal.texts == [{"type": "exit", "exit_code": 4, "signal": None}]
    with Terminal(box, command="no-such-program") as terminal:
        assert terminal.end()[1] == 1011
        assert [one["type"] for one in terminal.texts] == ["error"] and "no-such-program" in terminal.texts[0]["message"]
    with Terminal(box, cwd="/nowhere") as terminal:
        assert terminal.end()[1] == 1011
        assert terminal.ready["type"] == "error" and "/nowhere" in terminal.ready["message"]
    assert terminals(box) == []


def test_utf_8_and_control_c_and_the_end(box):
    with Terminal(box) as terminal:
        terminal.send("echo 'grüße 日本 🙂' | tr -d ' '\r")
        terminal.until("grüße日本🙂\r\n")
        terminal.send("echo be''gun; sleep 100\r")
        terminal.until("begun\r\n")
        time.sleep(0.2)
        terminal.send(b"\x03")
        terminal.send("echo code $?\r")
        terminal.until("code 130\r\n")
        terminal.send("exit 7\r")
        assert terminal.end()[1] == 1000
        assert terminal.texts == [{"type": "exit", "exit_code": 7, "signal": None}]
    with Terminal(box) as terminal:
        terminal.send("kill -9 $$\r")
        assert terminal.end()[1] == 1000
        assert terminal.texts[0]["exit_code"] == 137 and "KILL" in terminal.texts[0]["signal"]


def test_bytes_pass_as_they_are(box):
    every = bytes(range(256)) * 3 + b"\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b[?1049h\x1b[6n\xff\xfe"
    assert box.put("bytes", every).status == 201
    with Terminal(box, command="stty raw -echo; cat bytes; head -c 768 > back; printf END") as terminal:
        found = terminal.until(every)
        assert found == every
        terminal.send(every[:768])
        assert terminal.end()[0] == b"END"
    assert box.get("back").body == every[:768]


def test_one_that_was_left_is_found_again_with_what_it_wrote(box):
    with Terminal(box) as first:
        first.send("secret=42; echo one''two; (sleep 0.5; echo la''ter) &\r")
        first.until("onetwo\r\n")
    wait_for(lambda: not terminals(box)[0]["attached"])
    time.sleep(0.8)
    with Terminal(box, id=first.id, cols=70, rows=20) as again:
        again.until("later\r\n")
        assert again.ready["id"] == first.id and again.ready["replay"] > len("onetwolater")
        again.send("echo $secret; stty size\r")
        again.until("42\r\n20 70\r\n")
        again.send("clear; head -c 400000 /dev/zero | tr '\\0' x; echo EN''D\r")
        again.until("END\r\n")
    with Terminal(box, id=first.id) as third:
        assert 200000 < third.ready["replay"] <= 256 << 10
        third.take()
        assert len(third.seen) >= third.ready["replay"] and b"xxxEND\r\n" in third.seen


def test_a_second_client_takes_it_over(box):
    with Terminal(box) as first:
        first.send("echo first''ly\r")
        first.until("firstly\r\n")
        with Terminal(box, id=first.id) as second:
            assert first.end()[1] == 4001
            second.until("firstly\r\n")
            second.send("echo second''ly\r")
            second.until("secondly\r\n")
            assert len(terminals(box)) == 1


def test_several_are_listed_and_deleted_each(box):
    with Terminal(box) as one, Terminal(box, command="cat") as other:
        assert {(entry["id"], entry["command"]) for entry in terminals(box)} == {(one.id, "bash"), (other.id, "cat")}
        assert box.ask("DELETE", "/terminals/{terminal}", terminal=one.id).status == 204
        assert one.end()[1] == 1000 and one.texts[0]["exit_code"] == 137
        assert [entry["id"] for entry in terminals(box)] == [other.id]
        assert box.ask("DELETE", "/terminals/{terminal}", terminal=one.id).status == 404
        other.send("still here\r")
        other.until("still here\r\nstill here\r\n")


def resident(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) << 10


def test_a_flood_to_a_slow_reader_takes_no_memory_and_loses_nothing(server, box):
    gateway = server.process_of("hotcell-gateway")
    before = resident(gateway)
    with Terminal(box, command="stty -opost; yes | head -c 20000000; printf 'THE END'") as terminal:
        time.sleep(1)
        assert resident(gateway) - before < 6 << 20
        assert box.out("echo meanwhile") == "meanwhile\n"
        output, code = terminal.end()
        assert resident(gateway) - before < 6 << 20
    assert len(output) == 20000000 + len("THE END") and output.endswith(b"y\ny\nTHE END") and code == 1000
    assert terminal.texts == [{"type": "exit", "exit_code": 0, "signal": None}]


UNTIL_BLOCKED = r"""
import os, time, tty
tty.setraw(1)
os.set_blocking(1, False)
count, since = 0, time.monotonic()
while time.monotonic() < since + 0.5:
    try:
        count += os.write(1, b"%07d\n" % (count // 8) * 16)
        since = time.monotonic()
    except BlockingIOError:
        time.sleep(0.01)
open("count", "w").write(str(count))
time.sleep(1)
"""


def test_what_a_program_wrote_last_reaches_a_client_that_is_behind(server, box):
    box.put("write.py", UNTIL_BLOCKED.encode())
    gateway = server.process_of("hotcell-gateway")
    with Terminal(box, command="python3 write.py") as terminal:
        count = int(wait_for(lambda: (answer := box.get("count")).status == 200 and answer.body))
        os.kill(gateway, signal.SIGSTOP)  # so that it hears of the end and of the last bytes at once
        time.sleep(1.5)
        os.kill(gateway, signal.SIGCONT)
        output, code = terminal.end()
    assert len(output) == count and code == 1000
    assert terminal.texts == [{"type": "exit", "exit_code": 0, "signal": None}]


def test_it_outlives_the_gateway_with_its_shell(start_server):
    server = start_server()
    box = Sandbox(server)
    with Terminal(box, cols=90, rows=25) as terminal:
        terminal.send("x=kept; echo be''fore\r")
        terminal.until("before\r\n")
        kill_gateway(server)
    with Terminal(box, id=terminal.id, cols=91, rows=26) as again:
        again.until("before\r\n")
        again.send("echo $x; stty size\r")
        again.until("kept\r\n26 91\r\n")


def test_what_is_wrong_is_refused_before_anything_starts(box):
    for query in ({"cols": 0}, {"cols": 1001}, {"cols": "x"}, {"rows": -1}, {"rows": ""}, {"rows": "9" * 40}, {"colour": 1}, {"command": "x" * 600}):
        answer = box.ask("GET", "/terminal?" + urllib.parse.urlencode(query))
        assert answer.status == 400, (query, answer)
        with pytest.raises(websockets.InvalidStatusCode) as refused:
            Terminal(box, **query)
        assert refused.value.status_code == 400, query
    assert box.ask("GET", "/terminal").status in (400, 426)
    assert box.ask("GET", "/terminal?id=term_none").status == 404
    for origin in ("http://evil.example", "null"):
        with pytest.raises(websockets.InvalidStatusCode) as refused:
            Terminal(box, origin=origin)
        assert refused.value.status_code == 403
    assert terminals(box) == []


def test_one_that_nobody_attaches_to_ends_after_terminal_time(start_server):
    server = start_server('[sandboxes]\nterminal_time = "1s"\n')
    box = Sandbox(server)
    with Terminal(box, command="sleep 4711"), Terminal(box, command="sleep 4712"):
        wait_for(lambda: guests(server, "4712"))
    with Terminal(box, command="sleep 4713") as kept:
        wait_for(lambda: not guests(server, "4712") and not guests(server, "4711"))
        time.sleep(0.5)
        assert [one["id"] for one in terminals(box)] == [kept.id] and guests(server, "4713")
