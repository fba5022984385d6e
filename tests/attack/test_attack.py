"""The attack suite for pytest: each case is a test. `-k` chooses among them, and so does $ATTACK_ONLY (numbers, as for `run --only`). The runner
goes once, for those that were chosen, and says each row as it is done, so that a test ends when its case does and a case that hangs is known by
its name."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

RUN = str(pathlib.Path(__file__).with_name("run"))
LIST = subprocess.run([sys.executable, RUN, "--list", "--only", os.environ.get("ATTACK_ONLY", "")], capture_output=True, text=True, check=True).stdout
CASES = {int(line.split()[0]): line.split(None, 2)[2] for line in LIST.splitlines()}


class Rows:
    """What the runner has said so far. Two cases run at a time, so a row may come before those of smaller numbers."""

    def __init__(self, numbers):
        command = [sys.executable, RUN, "--rows", "--only", ",".join(map(str, numbers))]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"))
        self.found = {}

    def of(self, number):
        while number not in self.found:
            line = self.process.stdout.readline()
            assert line, "the runner ended (exit status %s) without a word of this case" % self.process.wait()
            row = json.loads(line)
            self.found[row["number"]] = row
        return self.found[number]

    def close(self):
        self.process.terminate()  # nothing, if it has ended; else it stops its cases, which clear up
        self.process.stdout.read()
        self.process.wait()


@pytest.fixture(scope="session")
def rows(request):
    chosen = [item.callspec.params["number"] for item in request.session.items if getattr(item, "originalname", "") == "test_attack"]
    found = Rows(chosen)
    yield found
    found.close()


@pytest.mark.parametrize("number", CASES, ids=lambda number: "%03d %s" % (number, re.sub(r"[^\x20-\x7e]", "-", CASES[number])))
def test_attack(rows, number):
    row = rows.of(number)
    print("control: %s\noutcome: %s (%s s)" % (row["control"], row["outcome"], row["seconds"]))
    assert row["verdict"] == "passed", "control: %s\noutcome: %s" % (row["control"], row["outcome"])
