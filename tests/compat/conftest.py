"""The fixtures of the integration tests, for tests that stand in for the clients of another sandbox."""

import importlib.util
import os
import pathlib
import sys

import pytest

INTEGRATION = pathlib.Path(__file__).resolve().parents[1] / "integration"
sys.path.insert(0, str(INTEGRATION))

# By its path, because this file has the same name.
spec = importlib.util.spec_from_file_location("integration_conftest", INTEGRATION / "conftest.py")
integration = importlib.util.module_from_spec(spec)
spec.loader.exec_module(integration)

for variable in ("HOTCELL_SERVER", "HOTCELL_KEY", "HOTCELL_CA"):
    os.environ.pop(variable, None)

program, nothing_is_left = integration.program, integration.nothing_is_left

sys.path.insert(0, str(INTEGRATION.parents[1] / "sdk" / "python" / "src"))

import hotcell.compat  # noqa: E402 pylint: disable=wrong-import-position
from cells import machine_is_weak  # noqa: E402 pylint: disable=wrong-import-position
from server import server, start_server  # noqa: E402,F401 pylint: disable=wrong-import-position,unused-import


@pytest.fixture
def compat(server):
    """hotcell.compat, at the server of the test."""
    hotcell.compat.configure(server.url)
    yield hotcell.compat
    hotcell.compat.configure()


@pytest.fixture
def private(program):
    """hotcell.compat, at private servers that are started for it, as they are where no server runs."""
    hotcell.compat.configure(program=program, **({"allow_weak": True} if machine_is_weak() else {}))
    yield hotcell.compat
    hotcell.compat.configure()
    hotcell.stop_local()
