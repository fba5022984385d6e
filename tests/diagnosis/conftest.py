"""The fixtures of the integration tests, for the corpus of failing programs."""

import importlib.util
import pathlib
import sys

INTEGRATION = pathlib.Path(__file__).resolve().parents[1] / "integration"
sys.path.insert(0, str(INTEGRATION))

# By its path, because this file has the same name.
spec = importlib.util.spec_from_file_location("integration_conftest", INTEGRATION / "conftest.py")
integration = importlib.util.module_from_spec(spec)
spec.loader.exec_module(integration)

program, nothing_is_left = integration.program, integration.nothing_is_left

from server import server, start_server  # noqa: E402,F401 pylint: disable=wrong-import-position,unused-import
