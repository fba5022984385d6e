"""A private `hotcell serve` for tests: its own state folder, a port of its own choosing, stopped and looked after when the test ends.

    from server import Server, server, start_server

    def test_something(server):                      # one server for all tests of the file
        assert server.run(code="print(42)").json["stdout"] == "42\\n"

    def test_small_queue(start_server):              # one for this test, with a configuration of its own
        server = start_server("[server]\\nqueue = 1\\n")

The program is $HOTCELL, or build/hotcell. Stopping is by SIGTERM, and it is a failure when the program does not end in time, ends with another
code than 0, or leaves a process, a control group or a mount.
"""

import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse

import pytest

from cells import HOTCELL, SLOW, machine_is_weak, tree_of
from cells import alive as alive_in

LISTENING = re.compile(r"listening on (http://\S+)")


class Answer:
    """One reply: status, headers (names in lower case), body."""

    def __init__(self, response, body):
        self.status, self.body = response.status, body
        self.headers = {name.lower(): value for name, value in response.getheaders()}

    @property
    def text(self):
        return self.body.decode()

    @property
    def json(self):
        try:
            return json.loads(self.body)
        except ValueError as wrong:
            raise AssertionError(f"not JSON: {self!r}") from wrong

    def __repr__(self):
        return f"<{self.status} {self.headers}: {self.body[:3000]!r}>"


class Event:
    """One server-sent event. `data` is parsed."""

    def __init__(self, name, number, data):
        self.name, self.id, self.data = name, number, json.loads(data)

    def __repr__(self):
        return f"<{self.name} id={self.id} {str(self.data)[:300]}>"


class Stream:
    """An open stream of events. Iterating yields each Event as it comes; comments and `retry:` are kept in `other`."""

    def __init__(self, connection, response):
        self.connection, self.response, self.other = connection, response, []
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}

    def __iter__(self):
        name, number, data = "message", None, []
        while line := self.response.readline():
            line = line.decode().rstrip("\r\n")
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if line == "":
                if data:
                    yield Event(name, number, "\n".join(data))
                name, data = "message", []
            elif field == "event":
                name = value
            elif field == "id":
                number = value
            elif field == "data":
                data.append(value)
            else:
                self.other.append(line)

    def close(self):
        self.response.close()
        self.connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Server:
    """One instance. `urls` are the addresses that it printed, `url` the first of them, `unix` its socket, `state` its folder."""

    def __init__(self, config="", arguments=(), env=None, state=None, listen=("127.0.0.1:0",)):
        self.owned = state is None
        self.state = pathlib.Path(state or tempfile.mkdtemp(prefix="hotcell-state-"))
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hotcell-test-"))
        self.unix = str(self.folder / "hotcell.sock")
        self.config_file = self.folder / "config.toml"
        self.configure(config)
        self.words = [HOTCELL, "serve", "--config", str(self.config_file), "--state", str(self.state), *map(str, arguments)]
        for address in listen:
            self.words += ["--listen", address]
        self.env = {**os.environ, **(env or {})}
        self.process, self.urls, self.lines, self.log, self.threads = None, [], [], [], []
        self.listeners = len(listen)
        self.popen = {}  # more for subprocess.Popen

    def configure(self, config):
        """Writes the configuration: `config` is TOML, to which what every private instance needs is added where it says nothing of it."""
        wanted = {"server": {"socket": json.dumps(self.unix), "execute_listen": '""'}, "isolation": {}}
        if machine_is_weak():
            wanted["isolation"]["allow_weak"] = "true"
        for table, keys in wanted.items():
            lines = "".join(f"{key} = {value}\n" for key, value in keys.items() if not re.search(rf"^{key}\s*=", config, re.M))
            header = f"[{table}]\n"
            if header in config:
                config = config.replace(header, header + lines, 1)
            elif lines:
                config += f"\n{header}{lines}"
        self.config_file.write_text(config)

    # ---- life ----

    def start(self, within=20):
        self.process = subprocess.Popen(self.words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        errors="replace", env=self.env, **self.popen)
        self.urls, self.lines, self.log = [], [], []
        self.threads = [threading.Thread(target=self.gather, args=pair, daemon=True)
                        for pair in ((self.process.stdout, self.lines), (self.process.stderr, self.log))]
        for thread in self.threads:
            thread.start()
        deadline = time.monotonic() + within * SLOW
        while len(self.urls) < self.listeners:
            self.urls = [match[1] for line in self.lines for match in LISTENING.finditer(line)]
            if self.process.poll() is not None or time.monotonic() > deadline:
                if self.process.poll() is not None:
                    for thread in self.threads:  # what it has said may still be on its way
                        thread.join(10)
                why = f"exit {self.process.poll()}, stdout {self.lines}, stderr {self.log}"
                self.kill()
                raise AssertionError(f"the server did not come up: {why}")
            time.sleep(0.01)
        self.wait_ready(deadline)
        return self

    def wait_ready(self, deadline):
        while self.get("/readyz").status != 200:
            if time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the server is up and not ready: {self.log}")
            time.sleep(0.02)

    @staticmethod
    def gather(stream, lines):
        for line in stream:
            lines.append(line.rstrip("\n"))

    @property
    def url(self):
        return self.urls[0]

    @property
    def port(self):
        return urllib.parse.urlsplit(self.url).port

    def descendants(self):
        """The pids of every process under the server, itself included, those nearest to it first."""
        parents = {}
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                rest = (entry / "stat").read_text().rpartition(")")[2].split()
                if rest[0] not in "ZX":
                    parents[int(entry.name)] = int(rest[1])
        found = level = [self.process.pid]
        while level := [pid for pid, parent in parents.items() if parent in level and pid not in found]:
            found = found + level
        return found

    def process_of(self, name):
        """The pid of a process under the server by its program's name, such as hotcell-gateway. A job that has not begun its own program
        yet still has the warden's name, and a lower pid when pids have wrapped, so the nearest one counts."""
        for pid in self.descendants():
            with contextlib.suppress(OSError):
                if os.path.basename(os.readlink(f"/proc/{pid}/exe")).split(" ")[0] == name:
                    return pid
                if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == name[:15]:
                    return pid
        return None

    def deaths(self):
        """How many deaths of a warden the gateway has noticed. A run that is sent before that may still be given to the dead one."""
        return (self.state / "audit.log").read_text().count('"event":"warden_died"')

    def stop(self, within=40):
        """SIGTERM, and what must be true after it."""
        if self.process is None:
            return
        keeper, family = self.process.pid, tree_of(self.process.pid)
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(within * SLOW)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the server did not end after SIGTERM: {self.log[-20:]}") from None
        self.settle()
        deadline = time.monotonic() + 5 * SLOW
        while (left := alive_in(family)) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert code == 0, f"exit {code} after SIGTERM: {self.log[-20:]}"
        faults = [line for line in self.log if "ERROR: AddressSanitizer" in line or ": runtime error: " in line]
        assert not faults, self.log[-60:]
        assert not left, f"processes outlive the server: {left}"
        groups = groups_of({keeper})
        assert not groups, f"control groups outlive the server: {groups}"

    def kill(self):
        """For a server that cannot be stopped: by pid, with what it started."""
        if self.process is None:
            return
        for pid in self.descendants():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.settle()

    def settle(self):
        for thread in self.threads:
            thread.join(5)
        self.process.stdout.close()
        self.process.stderr.close()
        self.process = None

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.owned:
            shutil.rmtree(self.state, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self.stop()
            else:
                self.kill()
        finally:
            self.remove()

    # ---- requests ----

    def connect(self, unix=False, within=60):
        if unix:
            return UnixConnection(self.unix, within * SLOW)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=within * SLOW)

    def request(self, method, path, body=None, headers=None, unix=False, within=60):
        """`body`: bytes or text as they are, anything else as JSON."""
        headers = dict(headers or {})
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        with contextlib.closing(self.connect(unix, within)) as connection:
            connection.request(method, path, body=body.encode() if isinstance(body, str) else body, headers=headers)
            response = connection.getresponse()
            return Answer(response, response.read())

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, path, body=None, **options):
        return self.request("POST", path, body, **options)

    def delete(self, path, **options):
        return self.request("DELETE", path, **options)

    def run(self, headers=None, unix=False, within=60, **fields):
        """POST /v1/runs with these fields."""
        return self.post("/v1/runs", fields, headers=headers, unix=unix, within=within)

    def events(self, path, body=None, headers=None, unix=False, within=60):
        """An open Stream: GET, or POST when there is a body."""
        connection = self.connect(unix, within)
        headers = {"Accept": "text/event-stream", **(headers or {})}
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
            body = json.dumps(body).encode()
        connection.request("GET" if body is None else "POST", path, body=body, headers=headers)
        return Stream(connection, connection.getresponse())


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def groups_of(pids):
    """Control groups that are named after one of these processes."""
    found = []
    for mount in re.findall(r"^\S+ (\S+) cgroup2? ", pathlib.Path("/proc/self/mounts").read_text(), re.M):
        for folder, names, _ in os.walk(mount):
            for name in names:
                owner = re.match(r"hotcell-(\d+)-", name)
                if owner and int(owner[1]) in pids:
                    found.append(os.path.join(folder, name))
    return found


@pytest.fixture(scope="module")
def server():
    """One server for all tests of a file."""
    with Server() as one:
        yield one


@pytest.fixture
def start_server():
    """start_server(config, **options of Server) -> a running server of this test's own; any number of them."""
    running = []

    def start(config="", **options):
        one = Server(config, **options)
        running.append(one)
        return one.start()

    yield start
    failures = []
    for one in running:
        try:
            one.stop()
        except AssertionError as wrong:
            failures.append(wrong)
        finally:
            one.remove()
    assert not failures, failures
