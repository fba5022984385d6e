"""A server on this machine: the one that runs, or a private one that lives as long as this process.

A private server listens on a unix socket that only this user can open, and on no port. It is the child of a small shell that waits for the end of
a pipe, whose other end this process holds: however this process ends, by itself, by a crash or by SIGKILL, the kernel closes the pipe, and the
shell ends the server and removes its files.
"""

from __future__ import annotations

import atexit
import collections
import os
import shutil
import stat
import subprocess
import tempfile
import threading
import time
from typing import Any, Deque, Dict, Iterable, List, Optional, Tuple

from ._async.client import AsyncClient
from ._sync.client import Client
from .errors import LocalServerError, SandboxError

_START_SECONDS = 60.0
_STOP_SECONDS = 60.0
# $1 and $2 are the folders to remove, the rest is the server. Its output is the only use of stdout, so that its end is seen there.
_WATCHER = """
exec 3<&0 </dev/null
config=$1 state=$2; shift 2
"$@" 3<&- & server=$!
exec >/dev/null 2>&1
trap '' INT TERM HUP
read -r line <&3
kill -TERM "$server"
wait "$server"
rm -rf -- "$config" "$state"
"""


def _toml(values: Iterable[str]) -> str:
    """A TOML array of strings."""
    return "[" + ", ".join('"' + "".join(_escaped(char) for char in value) + '"' for value in values) + "]"


def _escaped(char: str) -> str:
    return f"\\u{ord(char):04x}" if char in '"\\' or ord(char) < 32 or ord(char) == 127 else char


def _find_program(program: Optional[str]) -> str:
    wanted = program or os.environ.get("HOTCELL") or "hotcell"
    found = shutil.which(wanted)
    if found is None:
        raise LocalServerError(f"there is no program {wanted!r}: install hotcell, or name it with program= or $HOTCELL")
    return found


class LocalServer:
    """A private `hotcell serve`. `address` is its unix socket.

    `allow_read` and `allow_write` are the folders of this machine that runs may mount. `allow_weak` starts it also where this machine cannot
    enforce every layer of isolation. `config` is more configuration, as TOML.
    """

    def __init__(self, *, program: Optional[str] = None, allow_weak: bool = False, allow_read: Iterable[str] = (),
                 allow_write: Iterable[str] = (), config: str = "") -> None:
        self._program = _find_program(program)
        self._lines: Deque[str] = collections.deque(maxlen=100)
        self._ready = threading.Event()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._process: Optional["subprocess.Popen[str]"] = None
        self._pipe: Optional[int] = None
        self._folder = tempfile.mkdtemp(prefix="hotcell-config-")
        self._state = tempfile.mkdtemp(prefix="hotcell-private-")
        self.address = f"unix:{self._state}/hotcell.sock"
        words = ["[server]", "listen = []", 'execute_listen = ""', f"socket = {_toml([self._state + '/hotcell.sock'])[1:-1]}", 'drain_time = "0s"',
                 "[log]", 'level = "warning"', "[mounts]", f"allowed_read_paths = {_toml(allow_read)}",
                 f"allowed_write_paths = {_toml(allow_write)}"]
        if allow_weak:
            words += ["[isolation]", "allow_weak = true"]
        try:
            with open(os.path.join(self._folder, "config.toml"), "w", encoding="utf-8") as file:
                file.write("\n".join(words) + "\n" + config)
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        # SANDBOX_PORT would open a port, which a private server has none of.
        env = {name: value for name, value in os.environ.items() if name not in ("SANDBOX_HOST", "SANDBOX_PORT")}
        words = [self._program, "serve", "--config", os.path.join(self._folder, "config.toml"), "--state", self._state]
        read, write = os.pipe()
        self._pipe = write
        _pipes.add(write)
        try:
            self._process = subprocess.Popen(["/bin/sh", "-c", _WATCHER, "hotcell-private", self._folder, self._state, *words], stdin=read,
                                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, text=True, errors="replace",
                                             start_new_session=True)  # Ctrl-C in a terminal is for the program, not for its server
        finally:
            os.close(read)
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()
        deadline = time.monotonic() + _START_SECONDS
        while not self._ready.wait(0.05):
            if self._ended.is_set() or time.monotonic() > deadline:
                raise LocalServerError(f"{self._program} serve did not start: {self._said()}")
        with Client(self.address, retries=0) as client:
            while True:
                try:
                    client.ready()
                    return
                except SandboxError as wrong:
                    if self._ended.is_set() or time.monotonic() > deadline:
                        raise LocalServerError(f"{self._program} serve is not ready: {wrong} {' '.join(self._lines)}") from wrong
                    time.sleep(0.02)

    def _said(self) -> str:
        """Its last words: from where it speaks for itself, and not by its log."""
        lines = list(self._lines)
        start = next((number for number, line in enumerate(lines) if line.startswith("hotcell: ")), 0)
        text = " ".join(lines[start:]) or "it said nothing"
        return text + ("; in Python: allow_weak=True" if "allow_weak" in text else "")

    def _listen(self, stream: Any) -> None:
        with stream:
            for line in stream:
                self._lines.append(line.strip())
                if line.startswith("listening on unix:"):
                    self._ready.set()
        self._ended.set()

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._pipe is not None and not self._ended.is_set()

    @property
    def log(self) -> List[str]:
        """The last lines that it said."""
        return list(self._lines)

    def stop(self) -> None:
        """Ends it, and everything that runs in it."""
        with self._lock:
            pipe, self._pipe = self._pipe, None
            process, self._process = self._process, None
        if pipe is not None:
            _pipes.discard(pipe)
            os.close(pipe)
        if process is not None:
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()
        for folder in (self._folder, self._state):
            shutil.rmtree(folder, ignore_errors=True)

    def __enter__(self) -> "LocalServer":
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()


_private: Dict[Tuple[Any, ...], LocalServer] = {}
_private_lock = threading.Lock()
_pipes: "set[int]" = set()


def _let_go() -> None:
    """In a child that was forked: the server is the parent's, and lives as long as the parent."""
    global _private_lock
    _private_lock = threading.Lock()
    for pipe in list(_pipes):
        os.close(pipe)
    _pipes.clear()
    for server in _private.values():
        server._pipe = server._process = None
    _private.clear()


os.register_at_fork(after_in_child=_let_go)


@atexit.register
def stop_local() -> None:
    """Ends the private servers that `local()` started. It is done at exit as well."""
    with _private_lock:
        servers = list(_private.values())
        _private.clear()
    for server in servers:
        server.stop()


def _sockets() -> List[Tuple[str, int]]:
    """Where a server of this machine may listen, and whose it must be. The places are those that `hotcell run` looks at."""
    if os.environ.get("HOTCELL_CLIENT_LOCAL_SERVER", "").lower() in ("false", "0", "no"):
        return []
    me, found = os.geteuid(), []
    if me != 0:
        runtime, state = os.environ.get("XDG_RUNTIME_DIR", ""), os.environ.get("XDG_STATE_HOME", "")
        if runtime.startswith("/"):
            found.append((f"{runtime}/hotcell.sock", me))
        elif state.startswith("/"):
            found.append((f"{state}/hotcell/hotcell.sock", me))
        else:
            found.append((os.path.expanduser("~/.local/state/hotcell/hotcell.sock"), me))
    found.append(("/run/hotcell/hotcell.sock", 0))
    return found


def find_local() -> Optional[str]:
    """The address of a server that runs on this machine and is ready: $HOTCELL_SERVER, or a unix socket in one of the usual places."""
    if os.environ.get("HOTCELL_SERVER"):
        return os.environ["HOTCELL_SERVER"]
    for path, owner in _sockets():
        try:
            facts = os.stat(path)
        except OSError:
            continue
        if not stat.S_ISSOCK(facts.st_mode) or facts.st_uid != owner:
            continue
        try:
            with Client(f"unix:{path}", timeout=5, retries=0) as client:
                client.ready()
            return f"unix:{path}"
        except SandboxError:
            continue
    return None


def local_address(*, start: bool = True, **options: Any) -> str:
    """The address of a server on this machine: one that runs, unless options of LocalServer say that it must be like this; or a private one,
    which the first call starts and later calls with the same options share."""
    wanted = {name: tuple(value) if isinstance(value, (list, tuple, set)) else value for name, value in options.items()}
    found = None if {name for name, value in wanted.items() if value} - {"allow_weak", "program"} else find_local()
    if found is not None:
        return found
    if not start:
        raise LocalServerError("no hotcell server runs on this machine; start one with `hotcell serve`")
    key = tuple(sorted((name, value) for name, value in wanted.items() if value))
    with _private_lock:
        server = _private.get(key)
        if server is None or not server.alive:
            if server is not None:
                server.stop()
            server = _private[key] = LocalServer(**wanted)
        return server.address


def local(*, start: bool = True, timeout: Optional[float] = 60.0, **options: Any) -> Client:
    """A client for a server on this machine; a private one is started when none runs, and ends with this process.

    With `start` False there must be one. The other options are those of LocalServer: `program`, `allow_weak`, `allow_read`, `allow_write`, `config`.
    """
    return Client(local_address(start=start, **options), timeout=timeout)


def local_async(*, start: bool = True, timeout: Optional[float] = 60.0, **options: Any) -> AsyncClient:
    """The same for asyncio. Starting a server takes a moment, for which the event loop waits."""
    return AsyncClient(local_address(start=start, **options), timeout=timeout)
