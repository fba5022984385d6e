"""The fixtures of the integration tests, and clients of the Model Context Protocol: the official ones, from npm.

The packages are those of package.json, by name and version, installed once into build/mcp-modules.
"""

import contextlib
import fcntl
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
INTEGRATION = HERE.parent / "integration"
sys.path.insert(0, str(INTEGRATION))

# By its path, because this file has the same name.
spec = importlib.util.spec_from_file_location("integration_conftest", INTEGRATION / "conftest.py")
integration = importlib.util.module_from_spec(spec)
spec.loader.exec_module(integration)

program, nothing_is_left = integration.program, integration.nothing_is_left

from server import server, start_server  # noqa: E402,F401 pylint: disable=wrong-import-position,unused-import
from cells import HOTCELL, SLOW, machine_is_weak  # noqa: E402 pylint: disable=wrong-import-position

PLACE = HERE.parents[1] / "build" / "mcp-modules"
# A private server on a machine that cannot enforce every layer is one that says so.
PRIVATE = ["--private", *(["--allow-weak"] if machine_is_weak() else [])]


@pytest.fixture(scope="session")
def modules():
    """The folder with the node_modules. Two copies of the tests that need it at once make it once."""
    PLACE.mkdir(parents=True, exist_ok=True)
    with (PLACE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = (HERE / "package-lock.json").read_text()
        done = PLACE / "installed.json"
        if not done.exists() or done.read_text() != wanted:
            for name in ("package.json", "package-lock.json"):
                shutil.copy(HERE / name, PLACE / name)
            subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=PLACE, check=True, timeout=600, stdout=subprocess.DEVNULL)
            done.write_text(wanted)
    return PLACE


class Failure(Exception):
    """What the client's library threw."""

    def __init__(self, outcome):
        super().__init__(outcome["error"])
        self.code = outcome["code"]


class Client:
    """driver.mjs, one step at a time: client.do("call", name="run_code", arguments={…})."""

    def __init__(self, modules, generation, *transport):
        words = ["node", str(HERE / "driver.mjs"), str(modules), generation, *map(str, transport)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"})

    def do(self, what, **step):
        self.process.stdin.write(json.dumps({"do": what, **step}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the client has ended: {self.process.wait(10)}"
        outcome = json.loads(line)
        if "error" in outcome:
            raise Failure(outcome)
        return outcome["ok"]

    def call(self, name, /, progress=False, **arguments):
        return self.do("call", name=name, arguments=arguments, progress=progress)

    def close(self):
        if self.process is None:
            return
        self.process.stdin.close()
        code = self.process.wait(30 * SLOW)
        self.process.stdout.close()
        self.process = None
        assert code == 0, f"the client ended with {code}"

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.close()
        else:
            with contextlib.suppress(OSError):
                self.process.kill()
            self.process.wait()


@pytest.fixture
def connect(modules, server):
    """connect("v1", "http") -> a Client of the file's server by that library and transport."""

    def make(generation, transport, key=None):
        if transport == "http":
            return Client(modules, generation, "http", server.url + "/mcp", *([key] if key else []))
        return Client(modules, generation, "stdio", HOTCELL, "mcp", "--server", f"unix:{server.unix}")

    return make
