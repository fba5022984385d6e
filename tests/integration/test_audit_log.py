"""The audit log of a server is the keeper's. What a gateway that was taken over could do to it, done with the gateway's own descriptors and uid."""

import ctypes
import errno
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys

import pytest

from cells import HOTCELL, until
from server import start_server  # noqa: F401 (fixture)
from test_serve import answers, audit_is_whole, open_files, sockets, status

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has processes with uids of their own")

PIDFD_OPEN, PIDFD_GETFD = 434, 438
QUESTION = struct.Struct("=IIq")  # protocol, length, where the file ends
PROTOCOL = 1


def take_fd(pid, number):
    """A copy of another process's descriptor: what whoever took it over would have."""
    libc = ctypes.CDLL(None, use_errno=True)
    process = libc.syscall(PIDFD_OPEN, pid, 0)
    taken = libc.syscall(PIDFD_GETFD, process, number, 0)
    os.close(process)
    assert taken >= 0, os.strerror(ctypes.get_errno())
    return taken


def numbers_of(gateway):
    """The gateway's descriptors of the log, and of the socket by which it appends, which came right behind it in the keeper's first message."""
    files, kinds = open_files(gateway), sockets()
    log = next(fd for fd, target in files.items() if target.endswith("/audit.log"))
    return log, min(fd for fd, target in files.items() if kinds.get(target) == "pair" and fd > log)


class Taken:
    """A gateway that was taken over, as far as the log goes."""

    def __init__(self, server):
        self.server, self.log = server, server.state / "audit.log"
        self.gateway = server.process_of("hotcell-gateway")
        self.file, number = numbers_of(self.gateway)
        self.line = socket.socket(fileno=take_fd(self.gateway, number))
        self.line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", 10, 0))  # settimeout would change the gateway's as well

    @staticmethod
    def ask(line, content, end, length=None, protocol=PROTOCOL):
        line.send(QUESTION.pack(protocol, len(content) if length is None else length, end) + content)
        answer = line.recv(100)
        return struct.unpack("=i", answer)[0] if answer else None


@pytest.fixture
def taken(start_server):
    server = start_server()
    server.post("/v1/runs", {"code": 1, "nonsense": True})
    one = Taken(server)
    yield one
    one.line.close()


def as_uid(uid, gid, code):
    """What Python code says when it is run by that uid."""
    def become():
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)

    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, preexec_fn=become, timeout=30)


def test_its_descriptor_cannot_write_or_cut(taken):
    before = taken.log.read_bytes()
    assert before
    fd = take_fd(taken.gateway, taken.file)
    for change in (lambda: os.ftruncate(fd, 0), lambda: os.write(fd, b"x"), lambda: os.pwrite(fd, b"x", 0)):
        with pytest.raises(OSError) as refused:
            change()
        assert refused.value.errno in (errno.EBADF, errno.EINVAL)
    os.close(fd)
    assert taken.log.read_bytes() == before


def test_its_uid_cannot_open_the_file_for_writing(taken):
    fields = status(taken.gateway)
    code = f"open({str(taken.log)!r}, 'r+')"
    done = as_uid(int(fields["Uid"][0]), int(fields["Gid"][0]), code)
    assert done.returncode == 1 and "PermissionError" in done.stderr, done
    done = as_uid(int(fields["Uid"][0]), int(fields["Gid"][0]), f"import os; os.unlink({str(taken.log)!r})")
    assert done.returncode == 1 and "PermissionError" in done.stderr, done


def test_what_it_may_do_is_append(taken):
    before = taken.log.read_bytes()
    assert taken.ask(taken.line, b"what is not true\n", end=len(before)) == 0
    assert taken.log.read_bytes() == before + b"what is not true\n"
    whole, words = audit_is_whole(taken.server)
    assert not whole and f"line {before.count(10) + 1}" in words, "and whoever verifies it finds where that began"


@pytest.mark.parametrize("end", [0, 1, 10 ** 9, -1])
def test_it_cannot_write_anywhere_else(taken, end):
    before = taken.log.read_bytes()
    assert taken.ask(taken.line, b"{}\n", end=end) == -errno.EAGAIN
    assert taken.log.read_bytes() == before


@pytest.mark.parametrize(("content", "options"), [
    (b"", {}),
    (b"no newline", {}),
    (b"{}\n", {"length": 2}),
    (b"{}\n", {"length": 4}),
    (b"{}\n", {"length": 0xffffffff}),
    (b"{}\n", {"protocol": 2}),
    (b"x" * (64 * 1024) + b"\n", {}),
], ids=["nothing", "no newline", "short", "long", "very long", "another protocol", "too large"])
def test_what_is_not_well_formed_is_not_written_and_ends_the_line(taken, content, options):
    before = taken.log.read_bytes()
    try:
        answer = taken.ask(taken.line, content, end=len(before), **options)
    except OSError as wrong:
        answer = wrong
    assert answer is None or isinstance(answer, (ConnectionError, BrokenPipeError)), answer
    assert taken.log.read_bytes() == before
    assert answers(taken.server), "the keeper is not troubled"
    assert taken.server.run(code="print(1)").json["stdout"] == "1\n"


def test_keys_that_are_made_meanwhile_do_not_break_the_chain(start_server):
    """`hotcell key` appends as well, while the server does."""
    server = start_server()
    makers = [subprocess.Popen([HOTCELL, "key", "create", f"name{i}", "--state", str(server.state)], stdout=subprocess.DEVNULL) for i in range(5)]
    for i in range(30):
        server.post("/v1/runs", {"command": ["/bin/true"], "unknown": i})
    assert [maker.wait(60) for maker in makers] == [0] * 5
    whole, words = audit_is_whole(server)
    assert whole, words
    entries = [json.loads(line)["event"] for line in (server.state / "audit.log").read_text().splitlines()]
    assert entries.count("key_created") == 5 and "server_started" in entries


def test_a_lock_that_somebody_holds_does_not_hold_the_keeper_up(start_server):
    server = start_server()
    code = ("import fcntl, sys, time; file = open(sys.argv[1], 'r+'); fcntl.lockf(file, fcntl.LOCK_EX); print('held', flush=True); time.sleep(60)")
    with subprocess.Popen([sys.executable, "-c", code, str(server.state / "audit.log")], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout.readline() == "held\n"
            refused = server.post("/v1/runs", {"command": ["/bin/true"], "unknown": 1}, within=20)
            assert refused.status == 400
            assert until(lambda: any("was not written" in line for line in server.log), 10), server.log
            gateway = server.process_of("hotcell-gateway")
            os.kill(gateway, signal.SIGKILL)
        finally:
            holder.kill()
    assert until(lambda: answers(server), 20), server.log
    assert re.search("gateway_died", (server.state / "audit.log").read_text())
    assert pathlib.Path(f"/proc/{server.process.pid}").exists()
