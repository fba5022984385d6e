"""The Python client, interpreters that keep their variables, terminals and previews."""

import asyncio
import time

import pytest

import hotcell
from cells import SLOW
from test_sandboxes import in_loop, sandbox  # noqa: F401 pylint: disable=unused-import


# ---- contexts ----

def test_variables_stay_and_values_are_shown(sandbox):
    with sandbox.context("python") as python:
        assert python.id.startswith("ctx_") and python.language == "python"
        first = python.execute("x = 20\nprint('printed')")
        assert first.stdout == "printed\n" and first.value is None and first.success
        assert python.execute("x + 1").value == "21"
        assert [one.id for one in sandbox.contexts()] == [python.id]
        assert python.describe()["executions"] == 2
    deadline = time.monotonic() + 10 * SLOW
    while sandbox.contexts() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert sandbox.contexts() == []
    with pytest.raises(hotcell.NotFoundError):
        python.execute("1")


def test_errors_of_code(sandbox):
    with sandbox.context() as python:
        failed = python.execute("x = 1\ny = 0\nx / y")
        assert not failed.success and failed.error.type == "ZeroDivisionError" and failed.error.line == 3
        with pytest.raises(hotcell.ExecutionError, match="ZeroDivisionError"):
            failed.check()
        late = python.execute("import time\nkept = 1\ntime.sleep(60)", timeout=1)
        assert late.status == "timeout"
        assert python.execute("kept").value == "1"


def test_input_and_events(sandbox):
    with sandbox.context() as python:
        assert python.execute("input()", stdin="answer\n").value == "'answer'"
        with python.stream("print('a')\n6 * 7") as events:
            names = [event.name for event in events]
        assert names[-1] == "result" and "stdout" in names and events.result.value == "42"


def test_interrupting(server):
    async def work(box):
        python = await box.context("python")
        await python.execute("x = 'kept'")
        call = asyncio.ensure_future(python.execute("import time\ntime.sleep(60)", timeout=90))
        await asyncio.sleep(0.7)
        await python.interrupt()
        done = await asyncio.wait_for(call, 20 * SLOW)
        return done.success, (await python.execute("x")).value
    assert in_loop(server, work) == (False, "'kept'")


def test_unknown_languages(sandbox):
    with pytest.raises(hotcell.InvalidRequestError):
        sandbox.context("cobol")
