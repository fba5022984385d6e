"""The other end of a driver's door: what the gateway does with a shell session or a context, without a server or a cell.

The driver is started as a job is: a session of its own, fds 0 to 2 at /dev/null (or pipes, for drivers that cannot receive fds), the door as
fd 3, nothing else.
"""

import array
import contextlib
import json
import os
import pathlib
import selectors
import signal
import socket
import struct
import subprocess
import time
import tomllib

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HOTCELL", SOURCE / "build" / "hotcell")).resolve().parent
SLOW = float(os.environ.get("HOTCELL_SLOW", "1"))
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", "TERM": "dumb"}


def command_of(language, places=None):
    """As its file has it, with the drivers of the source tree."""
    words = tomllib.loads((SOURCE / "languages" / f"{language}.toml").read_text())["context"]["command"]
    for place, value in {**(places or {}), "{driver}": str(SOURCE / "languages" / "warm" / language)}.items():
        words = [word.replace(place, value) for word in words]
    return words


class Ended(Exception):
    """The driver closed its door."""


class Result:
    def __init__(self, identifier):
        self.id = identifier
        self.stdout = self.stderr = b""
        self.displays, self.done = [], None

    def __getattr__(self, name):
        return self.done[name]

    @property
    def value(self):
        """The text of the last expression's value, or None."""
        for display in self.displays:
            if display["value"]:
                return self.forms(display).get("text/plain")
        return None

    @staticmethod
    def forms(display):
        return {entry["type"]: entry["data"] for entry in display["entries"]}

    def __repr__(self):
        return f"<done {self.done} stdout {self.stdout[-2000:]!r} stderr {self.stderr[-2000:]!r} displays {str(self.displays)[:2000]}>"


def memory_file(data):
    fd = os.memfd_create("code")
    os.write(fd, data)
    return fd


class Driver:
    def __init__(self, command, cwd, env=None):
        self.door, theirs = socket.socketpair()
        self.number, self.fds = 0, True
        self.left_over = []
        self.process_pipes = [os.pipe(), os.pipe()]

        def place():  # in the child
            high = [os.dup2(fd, 50 + i) for i, fd in enumerate((theirs.fileno(), self.process_pipes[0][1], self.process_pipes[1][1]))]
            for fd, to in zip(high, (3, 1, 2)):
                os.dup2(fd, to)
            os.closerange(4, 1024)

        self.process = subprocess.Popen(command, cwd=cwd, env={**ENV, **(env or {})}, stdin=subprocess.DEVNULL, preexec_fn=place, close_fds=False,
                                        start_new_session=True)
        theirs.close()
        for _, write in self.process_pipes:
            os.close(write)
        self.outs = [read for read, _ in self.process_pipes]
        self.buffer = b""
        self.ready = self.receive(10 * SLOW)
        assert self.ready["event"] == "ready", self.ready
        self.fds = self.ready["fds"]

    def receive(self, timeout):
        """One frame."""
        deadline = time.monotonic() + timeout
        while True:
            if len(self.buffer) >= 4:
                (length,) = struct.unpack_from("<I", self.buffer)
                if len(self.buffer) >= 4 + length:
                    frame, self.buffer = self.buffer[4:4 + length], self.buffer[4 + length:]
                    return json.loads(frame)
            self.door.settimeout(max(deadline - time.monotonic(), 0.001))
            part = self.door.recv(1 << 20)
            if not part:
                raise Ended
            self.buffer += part

    def send(self, frame, fds=()):
        data = json.dumps(frame).encode() if isinstance(frame, dict) else frame
        data = struct.pack("<I", len(data)) + data
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        sent = self.door.sendmsg([data], rights)
        self.door.settimeout(60)
        if sent < len(data):
            self.door.sendall(data[sent:])

    def begin(self, code, stdin=b""):
        """Sends a call; what finish takes."""
        code = code if isinstance(code, bytes) else code.encode()
        stdin = stdin if isinstance(stdin, bytes) else stdin.encode()
        self.number += 1
        result = Result(self.number)
        if self.fds:
            (out, theirs_out), (error, theirs_error) = os.pipe(), os.pipe()
            given = [memory_file(code), memory_file(stdin), theirs_out, theirs_error]
            os.lseek(given[1], 0, os.SEEK_SET)
            self.send({"op": "execute", "id": self.number}, given)
            for fd in given:
                os.close(fd)
            result.outs = [out, error]
        else:
            self.send({"op": "execute", "id": self.number, "code": code.decode(), "stdin": stdin.decode()})
            result.outs = self.outs
        for fd in result.outs:
            os.set_blocking(fd, False)
        return result

    def finish(self, result, timeout=20.0):
        """Until it is done. Its pipes are then read as far as they are full, and closed later: what is left behind goes on writing to them."""
        deadline = time.monotonic() + timeout * SLOW
        with selectors.DefaultSelector() as selector:
            for fd in (self.door, *result.outs):
                selector.register(fd, selectors.EVENT_READ)
            while result.done is None:
                assert time.monotonic() < deadline, f"no answer in time: {result!r}"
                for key, _ in selector.select(0.1):
                    if key.fileobj is self.door:
                        self.take(result)
                    elif not self.drain(result, key.fd):
                        selector.unregister(key.fd)
        for fd in result.outs:
            while self.drain(result, fd):
                pass
        if self.fds:
            self.left_over += result.outs
        return result

    def take(self, result):
        first = True
        while first or len(self.buffer) >= 4 + struct.unpack("<I", self.buffer.ljust(4)[:4])[0]:
            first = False
            frame = self.receive(30)
            assert frame["id"] == result.id, frame
            if frame["event"] == "display":
                result.displays.append(frame)
            else:
                assert result.done is None
                result.done = frame

    @staticmethod
    def drain(result, fd):
        try:
            data = os.read(fd, 1 << 20)
        except BlockingIOError:
            return False
        if fd == result.outs[0]:
            result.stdout += data
        else:
            result.stderr += data
        return bool(data)

    def run(self, code, stdin=b"", timeout=20.0):
        return self.finish(self.begin(code, stdin), timeout)

    def interrupt(self):
        """As the gateway does it: the shell is told to mean it, then the whole group gets what a terminal would send."""
        os.kill(self.process.pid, signal.SIGURG)
        os.killpg(self.process.pid, signal.SIGINT)

    def exit_code(self, timeout=10.0):
        return self.process.wait(timeout * SLOW)

    def close(self):
        self.door.close()
        try:
            self.process.wait(3 * SLOW)
        except subprocess.TimeoutExpired:
            pass
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for fd in (*self.outs, *self.left_over):
            os.close(fd)
