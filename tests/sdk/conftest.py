"""The fixtures of the integration tests, and the Python client of the source tree."""

import importlib.util
import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
INTEGRATION = ROOT / "tests" / "integration"
sys.path.insert(0, str(INTEGRATION))
sys.path.insert(0, str(ROOT / "sdk" / "python" / "src"))

# By its path, because this file has the same name.
spec = importlib.util.spec_from_file_location("integration_conftest", INTEGRATION / "conftest.py")
integration = importlib.util.module_from_spec(spec)
spec.loader.exec_module(integration)

program, nothing_is_left = integration.program, integration.nothing_is_left
for name in ("HOTCELL_SERVER", "HOTCELL_KEY", "HOTCELL_CA"):
    os.environ.pop(name, None)

import hotcell  # noqa: E402 pylint: disable=wrong-import-position
from server import server, start_server  # noqa: E402,F401 pylint: disable=wrong-import-position,unused-import


@pytest.fixture
def client(server):
    with hotcell.Client(server.url) as one:
        yield one


@pytest.fixture(scope="session", autouse=True)
def no_private_server_is_left(nothing_is_left):
    yield
    hotcell.stop_local()
