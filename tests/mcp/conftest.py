"""The fixtures of the integration tests, and clients of the Model Context Protocol: the official ones, from npm.

The packages are those of package.json, by name and version, installed once into build/mcp-modules.
"""

import fcntl
import importlib.util
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
from cells import HOTCELL  # noqa: E402 pylint: disable=wrong-import-position
from mcp_client import Client  # noqa: E402 pylint: disable=wrong-import-position

PLACE = HERE.parents[1] / "build" / "mcp-modules"


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


@pytest.fixture
def connect(modules, server):
    """connect("v1", "http") -> a Client of the file's server by that library and transport."""

    def make(generation, transport, key=None):
        if transport == "http":
            return Client(modules, generation, "http", server.url + "/mcp", *([key] if key else []))
        return Client(modules, generation, "stdio", HOTCELL, "mcp", "--server", f"unix:{server.unix}")

    return make
