"""Fixtures for every integration test: the program, and the promise that nothing of it is left when the session ends.

The program is $HOTCELL, or build/hotcell in the source tree. A session of tests is a child subreaper, so a process that hotcell loses becomes a
child of the session and is found, however many copies of the tests run beside this one.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SLOW = float(os.environ.get("HOTCELL_SLOW", "1"))
PR_SET_CHILD_SUBREAPER = 36


# A server that happens to run on this machine is no part of a test: test_local_server.py starts its own and turns this around.
os.environ["HOTCELL_CLIENT_LOCAL_SERVER"] = "false"


def stopped(*_):
    raise KeyboardInterrupt  # which pytest ends by the fixtures' own clearing up


def pytest_configure(config):
    signal.signal(signal.SIGTERM, stopped)
    config.addinivalue_line("markers", "essential: part of the short form that runs in a virtual machine")


class Outcome:
    """What a caller of the program saw."""

    def __init__(self, arguments, process):
        self.arguments = arguments
        self.returncode, self.stdout, self.stderr = process.returncode, process.stdout, process.stderr

    @property
    def json(self):
        try:
            return json.loads(self.stdout)
        except ValueError as wrong:
            raise AssertionError(f"stdout is not JSON: {self!r}") from wrong

    def __repr__(self):
        return f"<hotcell {' '.join(self.arguments)}: exit {self.returncode}\nstdout: {self.stdout[-3000:]}\nstderr: {self.stderr[-3000:]}>"


@pytest.fixture(scope="session")
def program():
    path = pathlib.Path(os.environ.get("HOTCELL", SOURCE / "build" / "hotcell"))
    if not path.exists():
        pytest.exit(f"{path} does not exist: run `make`, or set HOTCELL", returncode=2)
    return str(path.resolve())


@pytest.fixture(scope="session")
def hotcell(program):
    """hotcell("run", "-c", "print(1)", stdin="", env={"K": "V"}) -> Outcome. Text in and out; `env` adds to the environment."""

    def call(*arguments, stdin="", env=None, cwd=None, within=120):
        words = [str(word) for word in arguments]
        process = subprocess.run([program, *words], input=stdin, text=True, errors="replace", capture_output=True,
                                 env={**os.environ, **(env or {})}, cwd=cwd, timeout=within * SLOW)
        return Outcome(words, process)

    return call


def children():
    """Living children of this process, as "pid name"."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
            state, parent = rest.split()[:2]
            if int(parent) == os.getpid() and state not in "ZX":
                found.append(f"{entry.name} {name}")
    return set(found)


def dead_groups():
    """Control groups that are named after a hotcell that is no longer alive."""
    found = set()
    mounts = re.findall(r"^\S+ (\S+) cgroup2? ", pathlib.Path("/proc/self/mounts").read_text(), re.M)
    for mount in mounts:
        for folder, names, _ in os.walk(mount):
            for name in names:
                owner = re.match(r"hotcell-(\d+)-", name)
                if owner and not os.path.exists(f"/proc/{owner[1]}"):
                    found.add(os.path.join(folder, name))
    return found


def mounts():
    return {line.split(" - ")[0].split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
            if "hotcell" in line}


def left_behind(before):
    return sorted(children() - before[0]) + sorted(dead_groups() - before[1]) + sorted(mounts() - before[2])


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left(program):
    """A hotcell that was killed is allowed to leave its groups to the next start, so a last run comes before the verdict."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before = children(), dead_groups(), mounts()
    yield
    deadline = time.monotonic() + 10 * SLOW
    while True:
        subprocess.run([program, "run", "--allow-weak", "--", "/bin/true"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        found = left_behind(before)
        if not found or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    assert not found, f"left behind by the tests: {found}"
