"""make bench-trace finds the steps of a warm run in what perf tells: of runs that were made up, and of a real server's."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENT, GATEWAY, WARDEN, PROGRAM = 11, 12, 13, 14
NAMES = {CLIENT: "launch", GATEWAY: "hotcell-gateway", WARDEN: "hotcell-warden", PROGRAM: "perl"}


@pytest.fixture(name="course")
def course_module(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    monkeypatch.delitem(sys.modules, "server", raising=False)  # the tests have another one
    spec = importlib.util.spec_from_file_location("course", ROOT / "bench" / "course.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def trace_of(course, folder, events):
    """events: (ms, tid, event, rest), or (ms, tid, "enter" or "exit", call, argument or result)."""
    number, lines = course.numbers(), []
    for when, tid, event, *rest in events:
        if event in ("enter", "exit"):
            call, value = rest
            text = f"NR {number[call]} ({value:x}, 0, 0, 0, 0, 0)" if event == "enter" else f"NR {number[call]} = {value}"
            event, rest = f"raw_syscalls:sys_{event}", [text]
        lines.append(f"  {NAMES[tid]:>16} {tid} {7 + when / 1000:.9f}: {event:>26}: {rest[0]}\n")
    path = folder / "text"
    path.write_text("".join(lines))
    return course.Trace(path)


BEGINNING = [
    (0.0, CLIENT, "enter", "sendto", 3),
    (0.2, GATEWAY, "enter", "sendmsg", 4),
    (0.3, WARDEN, "exit", "recvmsg", 2256),
    (0.4, PROGRAM, "exit", "recvmsg", 268),
    (0.5, PROGRAM, "enter", "read", 3),
    (0.6, PROGRAM, "enter", "write", 1),
]
END = [
    (0.9, WARDEN, "enter", "sendmsg", 3),
    (1.0, GATEWAY, "exit", "recvmsg", 2256),
    (1.3, CLIENT, "exit", "read", 1166),
]


@pytest.mark.parametrize("last", [
    # It says its last word, in a call that is seen when it goes on, long after the warden has told of it.
    [(0.65, PROGRAM, "enter", "close_range", 0), (0.7, PROGRAM, "exit", "close_range", 0),
     (5.0, PROGRAM, "exit", "exit_group", 0), (5.1, PROGRAM, "sched:sched_process_exit", "comm=perl pid=14")],
    [(0.7, PROGRAM, "sched:sched_process_exit", "comm=perl pid=14")],
], ids=["last-word", "exit"])
def test_a_run_has_all_its_steps_however_its_program_ends(course, tmp_path, last):
    trace = trace_of(course, tmp_path, BEGINNING + last + END)
    call = course.numbers()
    ((asked, answered),) = course.runs_of(trace, CLIENT, call)
    steps = course.steps_of(trace, asked, answered, GATEWAY, WARDEN, {PROGRAM}, call)
    assert {name: round(seconds * 1e3, 3) for name, seconds in steps.items()} == {
        "parse": 0.2, "take": 0.2, "enter": 0.1, "first byte": 0.1, "exit": 0.1, "collect": 0.3, "answer": 0.3}


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("perf") is None, reason="needs root and perf")
@pytest.mark.parametrize("case", ["warm-python", "warm-perl"])
def test_a_trace_of_a_server_tells_most_runs_apart(case):
    done = subprocess.run([sys.executable, ROOT / "bench" / "run.py", "--no-install", "--trace-warm", case],
                          capture_output=True, text=True, timeout=300, check=False)
    if "perf cannot read tracepoints" in done.stderr:
        pytest.skip(done.stderr.strip())
    found = re.search(r"traced runs that began warm, (\d+) of 60", done.stdout)
    assert found, done.stdout + done.stderr
    assert int(found[1]) >= 20
    for step in ("parse", "queue", "take", "enter", "first byte", "exit", "collect", "answer", "sum"):
        assert re.search(rf"^  {step} +\d+", done.stdout, re.M), done.stdout


def test_a_trace_of_something_else_names_what_there_is():
    done = subprocess.run([sys.executable, ROOT / "bench" / "run.py", "--trace-warm", "warm-tail"],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "--trace-warm shows one of warm-python," in done.stderr
