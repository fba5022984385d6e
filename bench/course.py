"""make bench-trace: where the time of a warm run goes, step by step.

The steps are told apart by what the kernel sees of the server's processes (perf's tracepoints of system calls, forks
and exits), so the server that is measured is the one that is installed, with nothing compiled in for it. Each event
costs about a microsecond; the table says how much longer the traced runs took than others. Needs root and perf.
"""

import bisect
import collections
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time

import timeline
from contenders import SEARCH
from server import Server, children_of

RUNS, BEFORE, PAUSE_US, DISK = 60, 20, "20000", "/var/tmp"
SUCCESS = '"success":true'
SCRIPT = timeline.SCRIPT.replace(">/dev/null || exit 1", '>"$folder/out" || exit 1')
NUMBER = re.compile(r"NR (\d+) (?:\(([0-9a-f]+)|= (-?\d+))")
STEPS = {
    "parse": "from the client's send to the gateway's first message to the warden: HTTP, JSON, the plan",
    "queue": "of that, the time in the queue, by the result's own account",
    "take": "until what waits for the program has been woken: a ready cell is taken, its limits are written",
    "enter": "until the interpreter has the program's arguments: in its cell, sealed, files in place",
    "first byte": "until the program writes",
    "exit": "until its process has said its last word, or has ended",
    "collect": "until the gateway has heard of it from the warden",
    "answer": "until the client has read the answer: the result as JSON, its record on the disk, HTTP",
}


class Trace:
    """The events of all runs: by thread, in the order of time."""

    def __init__(self, path):
        self.calls = collections.defaultdict(list)  # tid: [(time, "enter" or "exit", number, first argument or result)]
        self.forks, self.ends = [], {}
        with open(path, encoding="utf-8", errors="replace") as lines:
            found = [match for match in map(timeline.LINE.match, lines) if match]
        for match in sorted(found, key=lambda one: float(one[3])):
            tid, when, event, rest = int(match[2]), float(match[3]), match[4], match[5]
            if event == "sched:sched_process_fork":
                self.forks.append((when, tid, int(re.search(r"child_pid=(\d+)", rest)[1])))
            elif event == "sched:sched_process_exit":
                self.ends[tid] = when
            elif call := NUMBER.search(rest):
                way = "enter" if event.endswith("enter") else "exit"
                value = int(call[2], 16) if call[2] is not None else int(call[3] or 0)
                self.calls[tid].append((when, way, int(call[1]), value))

    def first(self, tid, way, numbers, after, fits=lambda value: True):
        return self._find(tid, way, numbers, after, None, fits, False)

    def last(self, tid, way, numbers, after, before, fits=lambda value: True):
        return self._find(tid, way, numbers, after, before, fits, True)

    def end(self, tid, before):
        """When it ended. One that said its last word (cell/warm_last.c) waits in a call that its filter holds: such a
        call is traced when it goes on, so what is seen is the call before it."""
        ended, calls = self.ends.get(tid), self.calls.get(tid, [])
        if ended is not None and ended < before:
            return ended
        place = bisect.bisect_left(calls, (before,))
        return calls[place - 1][0] if place else None

    def _find(self, tid, way, numbers, after, before, fits, last):
        events, found = self.calls.get(tid, []), None
        for when, this, number, value in events[bisect.bisect_left(events, (after,)):]:
            if before is not None and when > before:
                break
            if this == way and number in numbers and fits(value):
                found = when
                if not last:
                    break
        return found


def numbers():
    """{"sendmsg": 46, …} of this machine."""
    return {name: int(number) for number, name in timeline.call_names().items()}


def some(value):
    return value > 0


def family_of(trace, members):
    """All that descends from these processes, by the forks that were seen."""
    family = set(members)
    for _, parent, child in trace.forks:
        if parent in family:
            family.add(child)
    return family


def writer_of(trace, family, call, asked, answered):
    """The process that wrote to its stdout between two times, and when."""
    found = ((trace.first(pid, "enter", [call["write"]], asked, lambda fd: fd == 1), pid)
             for pid in family if pid in trace.calls)
    wrote, program = min(((when, pid) for when, pid in found if when), default=(None, None))
    return (wrote, program) if wrote and wrote < answered else (None, None)


def steps_of(trace, asked, answered, gateway, warden, family, call):
    """{step: seconds} of the run between two times, or None where it was none that began warm."""
    receive = [call["recvmsg"], call["recvfrom"]]
    told = trace.first(gateway, "enter", [call["sendmsg"]], asked)
    wrote, program = writer_of(trace, family, call, asked, answered)
    if told is None or program is None:
        return None
    # It waited in its cell, or it was born for this run of one that waited outside.
    woken = trace.last(program, "exit", receive, asked, wrote, some)
    born = next(((when, parent) for when, parent, child in trace.forks if child == program and when > asked), None)
    if born:
        woken = trace.last(born[1], "exit", receive, asked, born[0], some)
    # The library reads by position (pread64); the first plain read is the driver's, of its arguments.
    entered = woken and trace.first(program, "enter", [call["read"]], woken)
    ended = trace.end(program, answered)
    reported = ended and trace.first(warden, "enter", [call["sendmsg"]], ended)
    heard = reported and trace.first(gateway, "exit", receive, reported, some)
    marks = [asked, told, woken, entered, wrote, ended, heard, answered]
    if None in marks or sorted(marks) != marks:
        return None
    names = [name for name in STEPS if name != "queue"]
    return {name: after - before for name, before, after in zip(names, marks, marks[1:])}


def runs_of(trace, client, call):
    """[(asked, answered)]: the client's send, and the end of its last read before the next one."""
    sends = [when for when, way, number, _ in trace.calls[client] if (way, number) == ("enter", call["sendto"])]
    for begin, end in zip(sends, [*sends[1:], float("inf")]):
        answered = trace.last(client, "exit", [call["read"]], begin, end, some)
        if answered:
            yield begin, answered


def parts_of(server):
    found = {}
    for pid in children_of(server.process.pid):
        with open(f"/proc/{pid}/comm", encoding="utf-8") as comm:
            found[comm.read().strip()] = pid
    return found["hotcell-gateway"], found["hotcell-warden"]


def plain(launcher, server, body, environment):
    """Results and times (ms) of untraced runs; the first are for warming up."""
    post = ["@post", str(server.port), SUCCESS, body]
    argv = [launcher, "-o", "-g", PAUSE_US, str(RUNS + BEFORE), *post]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, env=environment)
    lines = done.stdout.splitlines()
    if any(line.startswith("fail") for line in lines):
        raise SystemExit(f"bench: {next(line for line in lines if line.startswith('fail'))[:500]}")
    results = [json.loads(line.split(" ", 2)[2]) for line in lines if line.startswith("out ")]
    return results[BEFORE:], [int(line.split()[2]) / 1e6 for line in lines if line.startswith("run ")][BEFORE:]


def traced(perf, launcher, server, body, environment):
    with tempfile.TemporaryDirectory(prefix="hotcell-bench-") as folder:
        post = ["@post", str(server.port), SUCCESS, body]
        argv = ["unshare", "-m", "/bin/sh", "-c", SCRIPT, "course", perf, folder, launcher, "-g", PAUSE_US, str(RUNS),
                *post]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              env={**environment, "EVENTS": timeline.EVENTS})
        if done.returncode != 0:
            raise SystemExit(f"bench: perf cannot read tracepoints here: {' '.join(done.stderr.split())[-300:]}")
        with open(f"{folder}/text", encoding="utf-8", errors="replace") as lines:
            matches = filter(None, map(timeline.LINE.match, lines))
            client = next((int(match[2]) for match in matches if match[1] == "launch"), None)
        return Trace(f"{folder}/text"), client


def show(hotcell, launcher, program, environment):
    """`program`: a warm.Program."""
    perf = shutil.which("perf", path=SEARCH)
    if perf is None or os.geteuid() != 0:
        raise SystemExit("bench: a trace needs root and perf (linux-perf)")
    call = numbers()
    with Server(hotcell, DISK, 0) as server:
        time.sleep(2)
        results, untraced = plain(launcher, server, program.body(), environment)
        gateway, warden = parts_of(server)
        members = {warden, *children_of(warden)}
        threads = [int(name) for name in os.listdir(f"/proc/{gateway}/task")]
        trace, client = traced(perf, launcher, server, program.body(), environment)
    family = family_of(trace, members) - {warden}
    windows = list(runs_of(trace, client, call))
    found = [(answered - asked, steps_of(trace, asked, answered, gateway, warden, family, call))
             for asked, answered in windows]
    whole = [steps for _, steps in found if steps]
    if not whole:
        kinds = collections.Counter(result["timing"]["start"] for result in results)
        raise SystemExit(f"bench: none of {len(found)} traced runs began warm; untraced: {dict(kinds)}")
    disk = [disk_time(trace, threads, call, answered - steps["answer"], answered)
            for (_, answered), (_, steps) in zip(windows, found) if steps]
    took = statistics.median(took for took, steps in found if steps) * 1e3
    print(f"A warm run of {program.title}, by step: medians of the traced runs that began warm, "
          f"{len(whole)} of {len(found)}.")
    print(f"As the client sees it: {statistics.median(untraced):.2f} ms; while it is traced {took:.2f} ms.\n")
    print_table(whole, results, statistics.median(disk))


def disk_time(trace, threads, call, begin, end):
    """Seconds between two times in which a thread of the gateway's was in fdatasync."""
    spent = 0.0
    for tid in threads:
        entered = None
        for when, way, number, _ in trace.calls.get(tid, []):
            if number == call["fdatasync"] and way == "enter":
                entered = when
            elif number == call["fdatasync"] and entered is not None:
                spent += max(0.0, min(when, end) - max(entered, begin))
                entered = None
    return spent


def print_table(whole, results, disk):
    medians = {name: statistics.median(steps[name] for steps in whole) * 1e6 for name in STEPS if name != "queue"}
    queue = statistics.median(result["timing"]["queue_ms"] for result in results) * 1e3
    medians["parse"] = max(0.0, medians["parse"] - queue)
    medians["queue"] = queue
    total = sum(medians.values())
    print(f"  {'step':<12}{'p50 µs':>9}{'share':>8}  what")
    for name, what in STEPS.items():
        print(f"  {name:<12}{medians[name]:>9.0f}{medians[name] / total:>8.0%}  {what}")
    print(f"  {'sum':<12}{total:>9.0f}")
    print(f"\nOf the answer, {disk * 1e6:.0f} µs were spent waiting for fdatasync.")
