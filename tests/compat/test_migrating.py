"""docs/MIGRATING.md: what it says to import is there, and its examples are Python."""

import ast
import pathlib
import re

import pytest

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "MIGRATING.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
IMPORTS = [block.partition("# after\n")[2] for block in BLOCKS if "# after\n" in block]


def test_every_module_has_a_before_and_an_after():
    text = "".join(IMPORTS)
    assert len(IMPORTS) == 4 and all(f"hotcell.compat.{name} " in text for name in ("openmanus", "nemo", "runner", "code_sandbox"))


@pytest.mark.parametrize("code", IMPORTS)
def test_what_comes_after_can_be_imported(code):
    exec(code, {})  # pylint: disable=exec-used


@pytest.mark.parametrize("code", BLOCKS)
def test_examples_are_python(code):
    compile(code, "MIGRATING.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
