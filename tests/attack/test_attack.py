"""The attack suite for pytest: the runner goes once, and each of its rows is a test."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

RUN = str(pathlib.Path(__file__).with_name("run"))
LIST = subprocess.run([sys.executable, RUN, "--list"], capture_output=True, text=True, check=True).stdout
CASES = {int(line.split()[0]): line.split(None, 2)[2] for line in LIST.splitlines()}


@pytest.fixture(scope="session")
def rows():
    environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run([sys.executable, RUN, "--json"], stdout=subprocess.PIPE, text=True, env=environment)
    assert done.stdout, "the runner gave no answer (exit status %d)" % done.returncode
    return {row["number"]: row for row in json.loads(done.stdout)["cases"]}


@pytest.mark.parametrize("number", CASES, ids=lambda number: "%03d %s" % (number, CASES[number]))
def test_attack(rows, number):
    row = rows[number]
    assert row["verdict"] == "passed", "control: %s\noutcome: %s" % (row["control"], row["outcome"])
