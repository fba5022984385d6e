"""hotcell shell on a terminal: a pty that a test holds the other end of, and tmux, which shows what a person would see."""

import base64
import contextlib
import fcntl
import hashlib
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import termios
import threading
import time

import pytest

from cells import HOTCELL, SLOW
from server import server, start_server  # noqa: F401  fixtures
from test_client import TlsServer, certificate  # noqa: F401  fixtures

PROMPT = b"$ "


class Terminal:
    """A command on a pty of its own, as its controlling terminal. `before` is how the terminal was set when it began."""

    def __init__(self, words, rows=30, cols=100):
        self.leader, self.follower = os.openpty()
        self.resize(rows, cols)
        self.before = self.settings()
        self.process = subprocess.Popen(words, stdin=self.follower, stdout=self.follower, stderr=self.follower, preexec_fn=self.own)
        self.shown = b""

    def own(self):
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def settings(self):
        return termios.tcgetattr(self.follower)

    def resize(self, rows, cols):
        fcntl.ioctl(self.follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def read(self, within=0.1):
        if select.select([self.leader], [], [], within)[0]:
            self.shown += os.read(self.leader, 65536)

    def expect(self, want, within=20):
        """What was shown up to and with `want`, which is taken away."""
        deadline, seen = time.monotonic() + within * SLOW, 0
        while self.shown.find(want, max(0, seen - len(want))) < 0:
            assert time.monotonic() < deadline, (want, self.shown[-2000:], self.process.poll())
            seen = len(self.shown)
            self.read()
        found, self.shown = self.shown.split(want, 1)
        return found + want

    def type(self, keys):
        os.write(self.leader, keys)

    def command(self, line, want):
        self.type(line + b"\r")
        return self.expect(want)

    def wait(self, within=20):
        """The exit code; what it writes meanwhile is taken, or it could not end."""
        deadline = time.monotonic() + within * SLOW
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.shown
            self.read(0.02)
        self.read()
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.leader)
        os.close(self.follower)


@pytest.fixture
def box(server):  # noqa: F811
    made = server.post("/v1/sandboxes", {}, unix=True).json["id"]
    yield made
    server.delete(f"/v1/sandboxes/{made}", unix=True)


@pytest.fixture
def shell(server, box):  # noqa: F811
    """shell(command…, options=…) -> hotcell shell in the box, once it has shown `ready`."""
    open_ones = []

    def start(*words, ready=PROMPT, address=None, options=(), **more):
        one = Terminal([HOTCELL, "--server", address or "unix:" + server.unix, "shell", *options, box, *words], **more)
        open_ones.append(one)
        if ready:
            one.expect(ready)
        return one

    yield start
    for one in open_ones:
        one.close()


def test_a_shell_with_its_size_job_control_and_exit_code(shell):
    terminal = shell()
    assert terminal.settings() != terminal.before, "raw"
    terminal.command(b"stty size", b"30 100\r\n")
    terminal.resize(41, 123)
    deadline = time.monotonic() + 10 * SLOW
    while b"41 123\r\n" not in terminal.command(b"stty size; echo e''nd", b"end\r\n"):
        assert time.monotonic() < deadline
    terminal.type(b"sleep 1000\r")
    time.sleep(0.5)
    terminal.type(b"\x03")
    terminal.command(b"echo al''ive $?", b"alive 130\r\n")
    terminal.type(b"sleep 1000\r")
    time.sleep(0.5)
    terminal.type(b"\x1a")
    terminal.expect(b"Stopped")
    terminal.command("printf '%s' 'ü€' | wc -c".encode(), b"5\r\n")
    terminal.type(b"kill %1; exit 7\r")
    terminal.expect(b"exit")
    terminal.type(b"exit 7\r")
    assert terminal.wait() == 7
    assert terminal.settings() == terminal.before


def test_a_command_instead_of_the_shell(shell):
    terminal = shell("python3", ready=b">>> ")
    terminal.command(b"6 * 7", b"42\r\n")
    terminal.type(b"exit(3)\r")
    assert terminal.wait() == 3
    terminal = shell("sh", "-c", "'echo $((40 + 2))'", ready=b"42\r\n")
    assert terminal.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL])
def test_the_terminal_is_put_right_whatever_signal_ends_it(shell, number):
    terminal = shell()
    os.kill(terminal.process.pid, number)
    code = terminal.wait()
    assert code == (128 + number if number != signal.SIGKILL else -signal.SIGKILL)
    deadline = time.monotonic() + 5 * SLOW
    while terminal.settings() != terminal.before:  # after SIGKILL it is the other process that does it
        assert time.monotonic() < deadline
        terminal.read(0.02)
    terminal.expect(b"hotcell shell --attach term_")


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSYS, signal.SIGKILL])
def test_the_terminal_is_put_right_after_a_fault(shell, number):
    terminal = shell()
    child = int(pathlib.Path(f"/proc/{terminal.process.pid}/task/{terminal.process.pid}/children").read_text())
    os.kill(child, number)
    assert terminal.wait() == 128 + number
    assert terminal.settings() == terminal.before
    assert b"was ended by" in terminal.shown


def test_stopped_and_continued(shell):
    terminal = shell()
    os.kill(terminal.process.pid, signal.SIGTSTP)
    deadline = time.monotonic() + 10 * SLOW
    while terminal.settings() != terminal.before:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(terminal.process.pid, signal.SIGCONT)
    while terminal.settings() == terminal.before:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    terminal.command(b"echo ba''ck", b"back\r\n")


def test_leaving_and_taking_it_up_again(shell):
    terminal = shell()
    terminal.command(b"echo a~b; kept=he''re", b"a~b\r\n")
    terminal.expect(PROMPT)
    terminal.type(b"\r")
    terminal.expect(PROMPT)
    terminal.type(b"~.")
    found = re.search(rb"--attach (term_\w+) ", terminal.expect(b"\r\n", 20) + terminal.expect(b"sbx_"))
    assert terminal.wait() == 0 and terminal.settings() == terminal.before
    again = shell(options=["--attach", found[1].decode()], ready=b"a~b\r\n")
    again.command(b"echo $kept", b"here\r\n")
    third = shell(options=["--attach", found[1].decode()])
    assert again.wait() == 125 and b"taken" in again.shown and again.settings() == again.before
    third.type(b"exit\r")
    assert third.wait() == 0


@pytest.mark.parametrize("leave", [b"exit\r", b"~."])
def test_what_a_program_did_to_the_screen_and_the_keys_is_undone(shell, leave):
    terminal = shell()
    terminal.command(b"printf '\\033[5;10r\\033[?1h\\033='; echo se''t", b"set\r\n")
    terminal.expect(PROMPT)
    terminal.type(b"\r")
    terminal.expect(PROMPT)
    terminal.type(leave)
    assert terminal.wait() == 0 and terminal.settings() == terminal.before
    for code in (b"\033[r", b"\033[?1l", b"\033>", b"\033[?25h"):
        assert code in terminal.shown, (code, terminal.shown)


def test_a_tilde_is_a_tilde(shell):
    terminal = shell()
    terminal.type(b"\r")
    terminal.expect(PROMPT)
    terminal.command(b"~~", b"~")
    terminal.type(b"\x03")
    terminal.command(b"echo ~/x ~.y", b"/x ~.y\r\n")


def test_over_tcp(server, shell):  # noqa: F811
    terminal = shell(address=server.url)
    terminal.command(b"seq 1 20000 | tail -1", b"20000\r\n")
    terminal.type(b"exit 2\r")
    assert terminal.wait() == 2


def test_a_large_paste_arrives_whole(shell):
    terminal = shell()
    terminal.command(b"stty raw -echo; echo g''o; head -c 1000000 | md5sum; stty sane", b"go")
    terminal.expect(b"\n")
    data, sent = b"0123456789" * 100000, 0
    while sent < len(data):
        if select.select([], [terminal.leader], [], 0.1)[1]:
            sent += os.write(terminal.leader, data[sent:sent + 2000])
        terminal.read(0)
    terminal.expect(hashlib.md5(data).hexdigest().encode(), 60)


def test_much_output_while_typing(shell):
    terminal = shell()
    terminal.type(b"head -c 2000000 /dev/zero | tr '\\0' x | fold; echo do''ne\r")
    terminal.expect(b"done\r\n", 60)
    terminal.command(b"echo st''ill", b"still\r\n")


def test_a_sandbox_that_goes_takes_its_terminal_along(server, box, shell):  # noqa: F811
    terminal = shell()
    server.delete(f"/v1/sandboxes/{box}", unix=True)
    assert terminal.wait() in (125, 137) and terminal.settings() == terminal.before


def test_a_server_that_dies_leaves_the_terminal_right(start_server):  # noqa: F811
    server = start_server()  # noqa: F811
    made = server.post("/v1/sandboxes", {}, unix=True).json["id"]
    terminal = Terminal([HOTCELL, "--server", "unix:" + server.unix, "shell", made])
    with contextlib.closing(terminal):
        terminal.expect(PROMPT)
        os.kill(server.process_of("hotcell-gateway"), signal.SIGKILL)
        assert terminal.wait() == 125 and terminal.settings() == terminal.before
        assert b"connection" in terminal.shown and b"--attach" in terminal.shown


def test_refusals_leave_the_terminal_alone(server, shell, box):  # noqa: F811
    terminal = Terminal([HOTCELL, "--server", "unix:" + server.unix, "shell", "zzzzzz"])
    assert terminal.wait() == 2 and b"there is no sandbox" in terminal.shown
    terminal.close()
    terminal = Terminal([HOTCELL, "--server", "unix:" + server.unix, "shell", "--attach", "term_x", box])
    assert terminal.wait() == 2 and b"no such terminal" in terminal.shown and terminal.settings() == terminal.before
    terminal.close()


class Impostor:
    """A server of one answer, on a unix socket: `reply` is given the request's head, and says what is sent back."""

    def __init__(self, path, reply):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()
        self.reply = reply
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        peer, _ = self.listener.accept()
        with peer:
            head = b""
            while b"\r\n\r\n" not in head:
                head += peer.recv(65536)
            peer.sendall(self.reply(head))
            peer.recv(65536)


def upgraded(head, key=None):
    key = key or re.search(rb"Sec-WebSocket-Key: (\S+)", head)[1]
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    return b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n"


@pytest.mark.parametrize("reply, said", [
    (lambda head: upgraded(head, b"another key"), b"no WebSocket"),
    (lambda head: b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", b"200"),
    (lambda head: b"nonsense\r\n\r\n", b"no WebSocket"),
    (lambda head: upgraded(head) + b"\x81\x85abcdhello", b"is masked"),
    (lambda head: upgraded(head) + b"\xff\x00", b"reserved bit"),
    (lambda head: upgraded(head) + b"\x88\x02\x03\xf3", b"ended the connection"),
    (lambda head: upgraded(head) + b"\x81\x02{]", b"no JSON"),
])
def test_what_is_no_terminal_of_a_server_is_refused(tmp_path, reply, said):
    Impostor(str(tmp_path / "s"), reply)
    terminal = Terminal([HOTCELL, "--server", f"unix:{tmp_path}/s", "shell", "sbx_" + "0" * 26])
    with contextlib.closing(terminal):
        assert terminal.wait() in (2, 125) and said in terminal.shown, terminal.shown
        assert terminal.settings() == terminal.before


def test_a_server_that_does_not_answer_can_be_left(tmp_path):
    asked = threading.Event()
    Impostor(str(tmp_path / "s"), lambda head: asked.set() or b"HTTP/1.1 101 ")
    terminal = Terminal([HOTCELL, "--server", f"unix:{tmp_path}/s", "shell", "sbx_" + "0" * 26])
    with contextlib.closing(terminal):
        assert asked.wait(20 * SLOW)
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.wait() == 128 + signal.SIGTERM and terminal.settings() == terminal.before


def test_over_tls(certificate):
    good, key = certificate("good", "IP:127.0.0.1")
    with TlsServer(f"[server]\ntls_certificate = '{good}'\ntls_key = '{key}'\n") as server:  # noqa: F811
        made = server.post("/v1/sandboxes", {}, unix=True).json["id"]
        terminal = Terminal([HOTCELL, "--server", server.url, "--ca", str(good), "shell", made])
        with contextlib.closing(terminal):
            terminal.expect(PROMPT)
            terminal.command(b"stty raw -echo; echo g''o; head -c 300000 | md5sum; stty sane", b"go")
            data, sent = b"0123456789" * 30000, 0
            while sent < len(data):
                sent += os.write(terminal.leader, data[sent:sent + 2000])
            terminal.expect(hashlib.md5(data).hexdigest().encode(), 60)
            terminal.command(b"seq 1 50000 | tail -1", b"50000\r\n")
            terminal.type(b"exit 5\r")
            assert terminal.wait() == 5


# ---- programs that draw ----

class Screen:
    """tmux with hotcell shell in it: what is on the screen is what tmux makes of the codes."""

    def __init__(self, folder, words, rows=30, cols=100):
        self.socket = str(folder / "tmux")
        subprocess.run(self.words("-f", "/dev/null", "new-session", "-d", "-x", str(cols), "-y", str(rows), *words), check=True,
                       env={**os.environ, "TERM": "xterm-256color"})

    def words(self, *words):
        return ["tmux", "-S", self.socket, *words]

    def keys(self, *keys):
        subprocess.run(self.words("send-keys", *keys), check=True)

    def lines(self):
        return subprocess.run(self.words("capture-pane", "-p"), capture_output=True, text=True, check=False).stdout.splitlines()

    def expect(self, fits, within=20):
        deadline = time.monotonic() + within * SLOW
        while not fits(lines := self.lines()):
            assert time.monotonic() < deadline, "\n".join(lines)
            time.sleep(0.05)
        return lines

    def close(self):
        subprocess.run(self.words("kill-server"), capture_output=True, check=False)


@pytest.fixture
def screen(server, box, tmp_path):  # noqa: F811
    if not shutil.which("tmux"):
        pytest.skip("tmux is not installed")
    one = Screen(tmp_path, [HOTCELL, "--server", "unix:" + server.unix, "shell", box])
    one.expect(lambda lines: any(line.endswith("$") for line in lines))
    yield one
    one.close()


def needs(program):
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed")


def test_vim_edits_a_file(screen, server, box):  # noqa: F811
    needs("vim")
    screen.keys(os.path.realpath(shutil.which("vim")) + " -u NONE note.txt", "Enter")
    screen.expect(lambda lines: lines[1:3] == ["~", "~"] and "note.txt" in lines[-1])
    screen.keys("i", "hello from vim", "Enter", "second line", "Escape")
    screen.expect(lambda lines: lines[:2] == ["hello from vim", "second line"])
    screen.keys("k", "0", "x", ":wq", "Enter")
    screen.expect(lambda lines: any("vim -u NONE" in line or "vim.basic -u NONE" in line for line in lines))
    assert server.get(f"/v1/sandboxes/{box}/files/note.txt", unix=True).body == b"ello from vim\nsecond line\n"


def test_top_fills_the_window_and_quits(screen):
    needs("top")
    screen.keys("top -d 0.5", "Enter")
    screen.expect(lambda lines: any(re.match(r" *PID USER", line) for line in lines) and any(re.search(r"\btop$", line) for line in lines))
    screen.keys("q")
    screen.expect(lambda lines: "".join(lines).rstrip().endswith("$"))  # top throws away what was typed before it has ended
    screen.keys("echo ov''er", "Enter")
    screen.expect(lambda lines: "over" in lines)


def test_pythons_prompt_edits_and_remembers_lines(screen):
    screen.keys("python3", "Enter")
    screen.expect(lambda lines: any(line.strip() == ">>>" for line in lines))
    screen.keys("6 * 8", "BSpace", "7", "Enter")
    screen.expect(lambda lines: "42" in lines)
    screen.keys("Up", " + 1", "Enter")
    screen.expect(lambda lines: "43" in lines)
