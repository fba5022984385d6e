"""The examples of the client's README are programs, and work."""

import pathlib
import re

import pytest

import hotcell
from cells import machine_is_weak

README = pathlib.Path(__file__).resolve().parents[2] / "sdk" / "python" / "README.md"
BLOCKS = re.findall(r"^```python ?(\w*)\n(.*?)^```$", README.read_text(), re.M | re.S)


def test_there_are_examples():
    assert len(BLOCKS) >= 12 and [kind for kind, _ in BLOCKS].count("skip") == 1


@pytest.mark.parametrize("number", [number for number, (kind, _) in enumerate(BLOCKS) if kind != "skip"])
def test_example(number, program, monkeypatch):
    monkeypatch.setenv("HOTCELL", program)
    if machine_is_weak():
        monkeypatch.setenv("HOTCELL_ISOLATION_ALLOW_WEAK", "true")
    names = {"hotcell": hotcell, "client": hotcell.local()}
    exec(compile(BLOCKS[number][1], f"README.md, example {number}", "exec"), names)  # pylint: disable=exec-used
