"""bench/run.py --trace: where the time of a cold run goes.

Three views: what hotcell says of itself (`timing` of --json), samples of the processor (perf), and the course of a run
(timeline.py). Where perf cannot have the last, strace shows the calls of one run; it slows each call that it stops at,
so that view is for order and counts, not for time.
"""

import collections
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile

import timeline
from contenders import SEARCH, install, progress

RUNS = 30
LINE = re.compile(r"^(\d+) +(\d+\.\d+) (?:<\.\.\. (\w+) resumed>|(\w+)\()?(.*)$")
SPENT = re.compile(r"<(\d+\.\d+)>$")


def show(hotcell, launcher, environment):
    if not os.access(hotcell, os.X_OK):
        raise SystemExit(f"bench: {hotcell} is not built")
    commands = {"/bin/true": ["--", "/bin/true"], "print(42)": ["-c", "print(42)"]}
    for title, argv in commands.items():
        own_timing(title, [hotcell, "run", "--local", "--json", *argv], environment)
    command = [hotcell, "run", "--local", *commands["/bin/true"]]
    perf = shutil.which("perf", path=SEARCH)
    if perf is None:
        print("\nno perf here: install linux-perf for a profile and a timeline")
    else:
        samples(perf, command, environment)
    if perf is None or not timeline.show(perf, launcher, command, environment):
        every_call(command, environment)


def own_timing(title, command, environment):
    values = collections.defaultdict(list)
    for _ in range(RUNS):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=environment, check=True)
        for name, value in json.loads(done.stdout)["timing"].items():
            if isinstance(value, (int, float)):
                values[name].append(value)
    shown = ", ".join(f"{name} {statistics.median(taken):.2f}" for name, taken in values.items())
    print(f"timing of {title} by hotcell's own account, median of {RUNS}: {shown}")


def samples(perf, command, environment):
    """perf's view: which process, and which of its functions, had the processor while many runs went by."""
    loop = ["/bin/sh", "-c", f'i=0; while [ $i -lt {RUNS * 5} ]; do "$@"; i=$((i + 1)); done', "loop", *command]
    with tempfile.TemporaryDirectory(prefix="hotcell-bench-") as folder:
        data = os.path.join(folder, "perf.data")
        record = [perf, "record", "-q", "-e", "cpu-clock", "-F", "20000", "-g", "-o", data, "--", *loop]
        progress(f"perf over {RUNS * 5} runs")
        done = subprocess.run(record, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment,
                              check=False)
        if done.returncode != 0:
            print(f"\nperf does not work here: {' '.join(done.stderr.split())[:200]}")
            return
        report = [perf, "report", "--stdio", "-i", data, "-g", "none"]
        for title, options, count in (
                ("processes by processor time", ["--no-children", "--sort", "comm"], 10),
                ("functions by processor time, callees included", ["--children", "--sort", "comm,symbol"], 60)):
            shown = subprocess.run(report + options, capture_output=True, text=True, check=False).stdout
            lines = [line.rstrip(" -") for line in shown.splitlines() if line.strip() and not line.startswith("#")]
            print(f"\n{title}:")
            print("\n".join([line for line in lines if "swapper" not in line][:count]))


def traced(command, environment):
    """[(pid, time, call, rest)] of one run."""
    with tempfile.TemporaryDirectory(prefix="hotcell-bench-") as folder:
        path = os.path.join(folder, "strace")
        strace = shutil.which("strace", path=SEARCH)
        subprocess.run([strace, "-f", "-ttt", "-T", "-s", "64", "-o", path, *command],
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment, check=True)
        with open(path, encoding="utf-8", errors="replace") as lines:
            found = [LINE.match(line.rstrip("\n")) for line in lines]
    return [(int(m[1]), float(m[2]), m[3] or m[4], m[5]) for m in found if m]


def name_processes(events):
    """Puts a name in the pid's place: the program that it runs just then, with a + for each fork since its exec."""
    names, asked, cloner = {}, {}, None
    for pid, when, call, rest in events:
        if pid not in names:
            names[pid] = f"{names[cloner]}+" if cloner in names else "?"
        target = re.match(r'(?:\d+, )?"([^"]*)", \["([^"]*)"', rest) if call in ("execve", "execveat") else None
        if target:
            asked[pid] = os.path.basename(target[1] or target[2])
        if call in ("execve", "execveat") and " = 0" in rest:
            names[pid] = asked[pid]
        if call in ("clone", "clone3", "vfork", "fork"):
            cloner = pid
        yield names[pid], when, call, rest


def every_call(command, environment):
    if not shutil.which("strace", path=SEARCH):
        failure = install("strace")
        if failure:
            raise SystemExit(f"bench: no strace: {failure}")
    count, spent = collections.Counter(), collections.Counter()
    per_process = collections.Counter()
    for name, _, call, rest in name_processes(traced(command, environment)):
        took = SPENT.search(rest)
        if call and took:
            count[name, call] += 1
            per_process[name] += 1
            spent[name, call] += float(took[1])
    print("\nsystem calls of one run, by process: " + ", ".join(f"{name} {n}" for name, n in per_process.most_common()))
    print("by time inside the kernel as strace saw it (waiting included), the longest first:")
    for (name, call), seconds in spent.most_common(40):
        print(f"  {seconds * 1e3:8.3f} ms  {count[name, call]:4d} ×  {name}: {call}")
