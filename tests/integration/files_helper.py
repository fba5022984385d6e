"""What the tests of the file helper share: calling it (tests/unit/files_helper_main.c), and places for it to work in."""

import json
import os
import pathlib
import subprocess
import tempfile

import pytest

from conftest import SLOW, SOURCE

# The one beside the program, or another build of it.
BESIDE = pathlib.Path(os.environ.get("HOTCELL", SOURCE / "build" / "hotcell")).resolve().parent / "files_helper"
HELPER = pathlib.Path(os.environ.get("HOTCELL_FILES_HELPER", BESIDE))


class Answer:
    def __init__(self, process):
        lines = process.stderr.decode().splitlines()
        assert len(lines) == 1, (process.returncode, process.stderr)
        self.head, self.body, self.status = json.loads(lines[0]), process.stdout, process.returncode

    @property
    def ok(self):
        return self.head["ok"]

    @property
    def code(self):
        assert self.head["ok"] is False and self.head["errno"] > 0 and self.head["message"], self.head
        return self.head["code"]

    @property
    def json(self):
        assert self.ok and self.status == 0, self.head
        return json.loads(self.body)


def words_of(operation, keys):
    return [operation, *(os.fsencode(key.rstrip("_")) + b"=" + (value if isinstance(value, bytes) else os.fsencode(str(value)))
                         for key, value in keys.items())]


@pytest.fixture
def folder(tmp_path):
    yield tmp_path
    subprocess.run(["chmod", "-R", "u+rwx", tmp_path], stderr=subprocess.DEVNULL, check=False)
    subprocess.run(["rm", "-rf", tmp_path], check=True)  # which knows about deep trees, as pytest does not


@pytest.fixture
def call(folder):
    """call("read", path="a") -> Answer. The helper runs in `folder`."""

    def run(operation, stdin=b"", within=60, sealed=True, before=(), **keys):
        process = subprocess.run([*before, HELPER, *(["--sealed"] if sealed else []), *words_of(operation, keys)], cwd=folder, input=stdin,
                                 capture_output=True, timeout=within * SLOW)
        return Answer(process)

    return run


@pytest.fixture
def elsewhere():
    """A folder on another file system."""
    path = pathlib.Path(tempfile.mkdtemp(dir="/dev/shm", prefix="hotcell-files-"))
    yield path
    subprocess.run(["rm", "-rf", path], check=True)


def make_deep(folder, levels):
    """levels folders in each other, with a file at the bottom."""
    before = os.open(".", os.O_RDONLY)
    os.chdir(folder)
    for _ in range(levels):
        os.mkdir("d")
        os.chdir("d")
    pathlib.Path("bottom").write_text("here")
    os.fchdir(before)
    os.close(before)
