"""TOML 1.0 conformance: the project's own cases in tests/toml, and the public toml-test cases where they are at hand.

A case under valid/ is a .toml with a .json beside it that says what it means (toml-test's tagged JSON). A case under invalid/
must be refused, with the line named. The helper program is beside hotcell in the build tree. TOML_TEST_DIR names a folder of
toml-test cases, by default ../shared/toml-test next to the checkout.
"""

import json
import math
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HELPER = Path(os.environ.get("HOTCELL", ROOT / "build" / "hotcell")).resolve().parent / "toml_to_json"
PUBLIC = Path(os.environ.get("TOML_TEST_DIR", ROOT.parent / "shared" / "toml-test"))
FOLDERS = [ROOT / "tests" / "toml"] + ([PUBLIC] if PUBLIC.is_dir() else [])


def cases(kind):
    for folder in FOLDERS:
        for path in sorted((folder / kind).rglob("*.toml")):
            yield pytest.param(path, id=f"{folder.name}/{path.relative_to(folder)}")


def convert(document, **env):
    return subprocess.run([HELPER], input=document, capture_output=True, timeout=60, check=False, env={**os.environ, **env})


def same_scalar(kind, wanted, got):
    if kind == "float":
        left, right = float(wanted), float(got)
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    if kind in ("datetime", "datetime-local", "time-local"):
        return strip_zeros(wanted) == strip_zeros(got)
    return wanted == got


def strip_zeros(text):
    """Fractions mean the same with and without trailing zeros."""
    return re.sub(r"\.(\d*?)0*(?=$|[Z+-])", lambda match: "." + match[1] if match[1] else "", text)


def is_tagged(value):
    return isinstance(value, dict) and set(value) == {"type", "value"} and isinstance(value["value"], str)


def same(wanted, got):
    if is_tagged(wanted):
        return is_tagged(got) and wanted["type"] == got["type"] and same_scalar(
            wanted["type"], wanted["value"], got["value"])
    if isinstance(wanted, dict):
        return isinstance(got, dict) and set(wanted) == set(got) and all(same(wanted[key], got[key]) for key in wanted)
    return isinstance(got, list) and len(wanted) == len(got) and all(map(same, wanted, got))


@pytest.mark.parametrize("path", cases("valid"))
def test_valid_document_means_what_its_json_says(path):
    result = convert(path.read_bytes())
    assert result.returncode == 0, result.stderr.decode()
    wanted = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    got = json.loads(result.stdout)
    assert same(wanted, got), f"wanted {wanted}, got {got}"


@pytest.mark.parametrize("path", cases("invalid"))
def test_invalid_document_is_refused_with_its_line(path):
    document = path.read_bytes()
    result = convert(document)
    assert result.returncode == 1, f"accepted as {result.stdout.decode()}; stderr: {result.stderr.decode(errors='replace')}"
    match = re.match(rb"stdin:(\d+):(\d+): \S", result.stderr)
    assert match, result.stderr
    assert 1 <= int(match[1]) <= document.count(b"\n") + 1
    wanted = path.with_suffix(".line")
    if wanted.exists():
        assert int(match[1]) == int(wanted.read_text(encoding="ascii")), result.stderr


def test_decimal_point_does_not_follow_the_locale(tmp_path):
    made = subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", tmp_path / "de_DE.UTF-8"], capture_output=True, check=False)
    if made.returncode != 0:
        pytest.skip("this machine cannot make a locale with a decimal comma")
    comma = {"LOCPATH": str(tmp_path), "LC_ALL": "de_DE.UTF-8"}
    shown = subprocess.run(["/usr/bin/printf", "%.1f", "0,5"], capture_output=True, env={**os.environ, **comma}, check=False)
    assert shown.stdout == b"0,5"  # the control: other programs do follow it
    result = convert(b"half = 0.5\n", **comma)
    assert json.loads(result.stdout)["half"] == {"type": "float", "value": "0.5"}


def test_comparison_tells_documents_apart():
    """The control of the cases above: a wrong value, type, key or length is noticed."""
    document = {"a": {"type": "float", "value": "1.5"}, "b": [{"type": "string", "value": "x"}]}
    assert same(document, document)
    for other in (
        {"a": {"type": "float", "value": "1.6"}, "b": document["b"]},
        {"a": {"type": "string", "value": "1.5"}, "b": document["b"]},
        {"a": document["a"]},
        {"a": document["a"], "b": []},
        {"a": document["a"], "b": [{"type": "string", "value": "y"}]},
    ):
        assert not same(document, other)
    assert not same({"t": {"type": "time-local", "value": "10:00:00.5"}}, {"t": {"type": "time-local", "value": "10:00:00.6"}})
