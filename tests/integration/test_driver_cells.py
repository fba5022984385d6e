"""The drivers of sessions and contexts where they belong: in a cell of a server, sealed as every cell is, with the files that the keeper put there."""

import json
import pathlib
import tomllib

import pytest
from cells import SLOW
from server import Server

SOURCE = pathlib.Path(__file__).resolve().parents[2]
FOLDER = "/.hotcell/warm"
# What is run, and what must come of it: the value, or, of a shell, what it prints.
CALLS = {
    "bash": [("cd /tmp; x=$((40 + 2))", ""), ("echo $x $PWD; cat", "42 /tmp\ninput")],
    "python": [("import os\nx = 40", None), ("print(input()); x + 2", "42")],
    "javascript": [("const x = 40", None), ("console.log(fs.readFileSync(0, 'utf8')); x + 2", "42")],
    "ruby": [("x = 40", None), ("puts gets; x + 2", "42")],
    "r": [("x <- 40", None), ("cat(readline(), '\\n'); x + 2", "[1] 42")],
}
PROGRAM = """
import json, sys
sys.path.append('tests/integration')
import drivers
command, calls = json.load(open('task.json'))
driver = drivers.Driver(command, '/workspace')
for code, _ in calls:
    result = driver.run(code, 'input')
print(json.dumps([result.status, result.stdout.decode(), result.value, result.stderr.decode()]))
driver.close()
"""


@pytest.fixture(scope="module")
def served():
    with Server("") as server:
        yield server


@pytest.mark.parametrize("language", CALLS)
def test_a_driver_works_in_a_cell(served, language):
    words = tomllib.loads((SOURCE / "languages" / f"{language}.toml").read_text())["context"]["command"]
    command = [word.replace("{driver}", f"{FOLDER}/{language}") for word in words]
    files = {"tests/integration/drivers.py": (SOURCE / "tests" / "integration" / "drivers.py").read_text(), "task.json": json.dumps([command, CALLS[language]])}
    answer = served.run(language="python", code=PROGRAM, files=files, limits={"timeout": 60 * SLOW}).json
    assert answer["status"] == "completed", answer["stderr"]
    status, stdout, value, stderr = json.loads(answer["stdout"])
    expected = CALLS[language][-1][1]
    assert (status, stderr) == ("completed", "") and (stdout if language == "bash" else value) == expected
    assert "input" in stdout
