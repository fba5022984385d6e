"""A private server for a case: started with the canary's token in its environment, its answers searched for it, and gone when the case ends.

    with Service(trial, "[server]\\nqueue = 4\\n") as server:
        answer = server.run(command=["/bin/echo", "fine"])

The rest is HTTP over plain sockets, because attacks are made of what a client library would not send.
"""

import base64
import contextlib
import http.client
import json
import os
import re
import resource
import signal
import socket
import subprocess
import threading
import time
import urllib.parse

from suite import SLOW, Stop
from watch import LIBC, descendants, parents, parents

PR_CAPBSET_DROP, CAP_SYS_RESOURCE = 24, 24
LISTENING = re.compile(rb"listening on (http://\S+)")


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {"list": found}

    def stream(self, name):
        text = self.json.get(name) or ""
        return base64.b64decode(text) if self.json.get("output_encoding") == "base64" else text.encode()

    @property
    def text(self):
        """The program's stdout."""
        return self.stream("stdout").decode(errors="replace")

    @property
    def run_status(self):
        """A result's status; None for a problem."""
        return self.json.get("status") if "success" in self.json else None

    @property
    def probes(self):
        pairs = (line.partition("=") for line in self.text.splitlines())
        return {name: value for name, equals, value in pairs if equals and " " not in name}

    def __str__(self):
        return "%s %s" % (self.status, self.body[-300:].decode(errors="replace"))


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Service:
    def __init__(self, trial, config="", state=None, libexec=None, name="server", descriptors=None):
        """descriptors: how many each of its processes may have open, and cannot change."""
        self.trial, self.limit = trial, descriptors
        self.folder = trial.scratch(name)
        self.state = state or os.path.join(self.folder, "state")
        self.socket = os.path.join(self.folder, "hotcell.sock")
        self.config = os.path.join(self.folder, "config.toml")
        line = 'socket = "%s"\nexecute_listen = ""\n' % self.socket
        if "[server]\n" not in config:
            config += "\n[server]\n"
        with open(self.config, "w") as file:
            file.write(config.replace("[server]\n", "[server]\n" + line, 1))
        self.words = [trial.hotcell, "serve", "--config", self.config, "--state", self.state, "--listen", "127.0.0.1:0"]
        self.environment = dict(trial.environment, **({"HOTCELL_LIBEXEC": libexec} if libexec else {}))
        self.process, self.port, self.log, self.reader = None, 0, b"", None

    # ---- life ----

    def start(self, within=20):
        log = open(os.path.join(self.folder, "log"), "wb")
        self.process = subprocess.Popen(self.words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=self.environment,
                                        preexec_fn=self.narrow if self.limit else None)
        log.close()
        deadline = time.monotonic() + within * SLOW
        os.set_blocking(self.process.stdout.fileno(), False)
        text = b""
        while not (found := LISTENING.search(text)):
            text += self.process.stdout.read1(4096) or b"" if self.process.poll() is None else b""
            if self.process.poll() is not None or time.monotonic() > deadline:
                why = self.words_of_log()[-200:]
                self.kill()
                raise Stop("the server did not come up: " + why)
            time.sleep(0.005)
        self.port = urllib.parse.urlsplit(found[1].decode()).port
        while not self.answers():
            if time.monotonic() > deadline:
                raise Stop("the server does not get ready: " + self.words_of_log()[-200:])
            time.sleep(0.02)
        return self

    def narrow(self):
        resource.setrlimit(resource.RLIMIT_NOFILE, (self.limit, self.limit))
        LIBC.prctl(PR_CAPBSET_DROP, CAP_SYS_RESOURCE, 0, 0, 0)

    def words_of_log(self):
        with open(os.path.join(self.folder, "log"), errors="replace") as file:
            return file.read()

    def answers(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.get("/readyz", within=5).status == 200
        return False

    def stop(self, within=30):
        """SIGTERM. The exit code; None when it had to be killed."""
        if self.process is None:
            return 0
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(within * SLOW)
        except subprocess.TimeoutExpired:
            self.kill()
            return None
        self.forget()
        return code

    def kill(self):
        """kill -9 of the keeper alone: the rest must follow by itself."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.forget()

    def forget(self):
        self.process.stdout.close()
        self.process = None
        words = self.words_of_log()
        self.trial.watch.outputs.append(words.encode())
        for sign in ("ERROR: AddressSanitizer", ": runtime error: "):
            if sign in words:
                self.trial.check(False, words[words.index(sign):][:300])

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, *_):
        if kind is None:
            code = self.stop()
            self.trial.check(code == 0, "the server stops" if code == 0 else "the server does not stop: %s" % code)
        else:
            self.kill()

    def part(self, name):
        """The pid of its warden or gateway; 0 while there is none. Both are the keeper's own children; further down are jobs that have not begun
        their program yet, and still have the warden's name."""
        for pid, (parent, state) in parents().items():
            with contextlib.suppress(OSError), open("/proc/%d/comm" % pid) as file:
                if parent == self.process.pid and state not in (b"Z", b"X") and file.read().strip() == "hotcell-" + name:
                    return pid
        return 0

    def memory(self, name="gateway"):
        """What it has now, in bytes."""
        with contextlib.suppress(OSError), open("/proc/%d/status" % self.part(name)) as file:
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS")), 0)
        return 0

    def descriptors(self, name="gateway"):
        with contextlib.suppress(OSError):
            return len(os.listdir("/proc/%d/fd" % self.part(name)))
        return 0

    # ---- requests ----

    def request(self, method, path, body=None, headers=None, unix=False, within=30):
        headers = dict(headers or {})
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        connection = UnixConnection(self.socket, within * SLOW) if unix else http.client.HTTPConnection("127.0.0.1", self.port, timeout=within * SLOW)
        with contextlib.closing(connection):
            connection.request(method, path, body=body.encode() if isinstance(body, str) else body, headers=headers)
            response = connection.getresponse()
            answer = Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())
        self.trial.watch.outputs.append(answer.body[:1 << 20] + answer.stream("stdout") + answer.stream("stderr"))
        return answer

    def get(self, path, **how):
        return self.request("GET", path, **how)

    def post(self, path, body, **how):
        return self.request("POST", path, body, **how)

    def run(self, headers=None, within=30, unix=False, **fields):
        return self.post("/v1/runs", fields, headers=headers, within=within, unix=unix)

    def submit(self, headers=None, **fields):
        """An asynchronous run's id; None when it was not accepted."""
        answer = self.run(headers=headers, **fields, **{"async": True})
        return answer.json["id"] if answer.status == 202 else None

    def program(self, name, *arguments, files=None, **fields):
        """One of the suite's programs in a cell."""
        with open(self.trial.program(name), "rb") as file:
            content = {"base64": base64.b64encode(file.read()).decode()}
        script = 'chmod +x "$1"; exec "./$@"'
        return self.run(command=["/bin/sh", "-c", script, "sh", name, *map(str, arguments)], files={name: content, **(files or {})}, **fields)

    def raw(self, data, within=10, half_close=False):
        """Bytes as they are; every byte that came back, and whether the server closed the connection."""
        reply, closed = b"", False
        with socket.create_connection(("127.0.0.1", self.port), timeout=within * SLOW) as client:
            with contextlib.suppress(OSError):
                client.sendall(data)
                if half_close:
                    client.shutdown(socket.SHUT_WR)
            try:
                while True:
                    block = client.recv(65536)
                    if not block:
                        closed = True
                        break
                    reply += block
            except TimeoutError:
                pass
            except OSError:
                closed = True
        self.trial.watch.outputs.append(reply)
        return reply, closed

    def key(self, name, *words):
        done = subprocess.run([self.trial.hotcell, "key", "create", name, *words, "--state", self.state], capture_output=True, text=True, timeout=30,
                              env=self.trial.environment)
        if done.returncode:
            raise Stop("no key: " + done.stderr)
        return done.stdout.strip()

    def count(self):
        """How many runs it was asked for and took."""
        return self.get("/v1/stats", unix=True).json["runs"]["started"]

    def ended(self, run, within=20, headers=None):
        deadline = time.monotonic() + within * SLOW
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, http.client.HTTPException):
                answer = self.get("/v1/runs/%s" % run, headers=headers, within=5)
                if answer.run_status or answer.status == 404:
                    return answer
            time.sleep(0.02)
        return Answer(0, {}, b"")

    # ---- the neighbour (outcome P) ----

    def pace(self, count=12):
        """The 95th percentile, in ms, of short runs one after the other, as their client sees it."""
        times = []
        for _ in range(count):
            begin = time.monotonic()
            answer = self.run(command=["/bin/true"])
            if answer.run_status != "completed":
                return None
            times.append((time.monotonic() - begin) * 1000)
        return sorted(times)[int(len(times) * 0.95) - 1]

    def unaffected(self, beside, what):
        """While `beside()` (a context manager) is going on, runs take at most twice as long. The machine is shared: three tries."""
        seen = []
        for _ in range(3):
            alone = max(self.pace() or 0, 15)
            with beside():
                during = self.pace()
            seen.append("%.0f→%s ms" % (alone, "refused" if during is None else "%.0f" % during))
            if during is not None and during <= 2 * alone:
                break
        self.trial.check(during is not None and during <= 2 * alone, "%s: a run beside it %s" % (what, ", ".join(seen)))


@contextlib.contextmanager
def doing(function, *arguments):
    """The function in a thread, as often as it can, until the block ends."""
    stop = threading.Event()

    def work():
        while not stop.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                function(*arguments)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30 * SLOW)
