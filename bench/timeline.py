"""The course of a cold run by the kernel's own tracepoints: who forked, exec'ed and ended when, and what calls took.

perf writes the events to memory, which costs about a microsecond for each, so the order and the shares are those of an
untraced run. Needs root and perf. Where tracefs is not mounted, it is mounted in a mount namespace of our own.
"""

import collections
import os
import re
import statistics
import subprocess
import tempfile

RUNS = 40
PAUSE_US = "10000"
EVENTS = ("raw_syscalls:sys_enter,raw_syscalls:sys_exit,"
          "sched:sched_process_exec,sched:sched_process_fork,sched:sched_process_exit")
SCRIPT = """
[ -e /sys/kernel/tracing/events ] || mount -t tracefs none /sys/kernel/tracing || exit 1
perf=$1; folder=$2; shift 2
"$perf" record -q -a -m 8M -e "$EVENTS" --exclude-perf -o "$folder/data" -- "$@" >/dev/null || exit 1
"$perf" script -i "$folder/data" --ns -F comm,tid,cpu,time,event,trace >"$folder/text"
"""
LINE = re.compile(r"^\s*(.+?)\s+(\d+)\s+(?:\[\d+\]\s+)?(\d+\.\d+):\s+(\S+):\s(.*)$")
CALL_NUMBER = re.compile(r"^#define __NR_(\w+)\s+(\d+)$")


class Run:
    """One run of the command: its processes by number of birth, what they did when, and the time of their calls."""

    def __init__(self, pid, begun):
        self.begun = begun
        self.births = {pid: 0}
        self.milestones = []
        self.open_calls = {}
        self.spent, self.count = collections.Counter(), collections.Counter()

    def note(self, tid, comm, when, event, rest):
        who = f"{comm}#{self.births[tid]}"
        milestone = None
        if event == "sched:sched_process_fork":
            child = int(re.search(r"child_pid=(\d+)", rest)[1])
            self.births[child] = len(self.births)
            milestone = f"{who} forks #{self.births[child]}"
        elif event == "sched:sched_process_exec":
            milestone = f"#{self.births[tid]} execs {comm}"
        elif event == "sched:sched_process_exit":
            milestone = f"{who} ends"
        elif event == "raw_syscalls:sys_enter":
            self.open_calls[tid] = (when, rest.split()[1])
        elif tid in self.open_calls:
            entered, number = self.open_calls.pop(tid)
            self.spent[who, number] += when - entered
            self.count[who, number] += 1
        if milestone:
            self.milestones.append((milestone, when - self.begun))


def call_names():
    """{"59": "execve", …} from the kernel's header; numbers are shown where it is missing."""
    for path in ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm-generic/unistd.h"):
        if os.path.exists(path):
            with open(path, encoding="utf-8") as lines:
                return {m[2]: m[1] for m in map(CALL_NUMBER.match, lines) if m}
    return {}


def read_runs(path):
    """The runs that `launch` started, each with its tree of processes."""
    events = []
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            match = LINE.match(line)
            if match:
                events.append((float(match[3]), match[1], int(match[2]), match[4], match[5]))
    runs, member = [], {}
    for when, comm, tid, event, rest in sorted(events, key=lambda found: found[0]):
        if event == "sched:sched_process_fork" and comm == "launch":
            child = int(re.search(r"child_pid=(\d+)", rest)[1])
            runs.append(Run(child, when))
            member[child] = runs[-1]
        elif tid in member:
            run = member[tid]
            run.note(tid, comm, when, event, rest)
            for pid in list(run.births)[-1:]:
                member.setdefault(pid, run)
    return runs


def medians(per_run, least):
    """{key: median} of the keys that at least `least` runs have."""
    values = collections.defaultdict(list)
    for found in per_run:
        for key, value in found.items():
            values[key].append(value)
    return {key: statistics.median(taken) for key, taken in values.items() if len(taken) >= least}


def show(perf, launcher, command, environment):
    """Prints the timeline. Returns False, having said why, where it cannot be had."""
    with tempfile.TemporaryDirectory(prefix="hotcell-bench-") as folder:
        argv = ["unshare", "-m", "/bin/sh", "-c", SCRIPT, "timeline", perf, folder, launcher, "-g", PAUSE_US, str(RUNS),
                *command]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              env={**environment, "EVENTS": EVENTS})
        if done.returncode != 0:
            print(f"\nno timeline: perf cannot read tracepoints here: {' '.join(done.stderr.split())[-200:]}")
            return False
        runs = read_runs(os.path.join(folder, "text"))
    print(f"\ntimeline, in ms since the spawn, median of {len(runs)} runs (#1 is the first process that was forked):")
    last = 0
    seen = medians([dict(run.milestones) for run in runs], len(runs) / 2)
    for what, when in sorted(seen.items(), key=lambda milestone: milestone[1]):
        print(f"  {when * 1e3:8.3f}  +{(when - last) * 1e3:7.3f}  {what}")
        last = when
    names = call_names()
    counts = medians([run.count for run in runs], len(runs) / 2)
    print("\nsystem calls by time, waiting included, median of the runs:")
    taken = medians([run.spent for run in runs], len(runs) / 2)
    for (who, number), seconds in sorted(taken.items(), key=lambda item: -item[1])[:60]:
        print(f"  {seconds * 1e6:9.1f} µs  {counts[who, number]:4.0f} ×  {who}: {names.get(number, number)}")
    return True
