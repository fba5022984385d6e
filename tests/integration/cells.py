"""What the tests of limits, layers, cleanup and rootless runs share: start hotcell, read its result, look at the machine from outside.

The program is $HOTCELL, or build/hotcell. HOTCELL_SLOW is how many times slower than a real machine this one is (an emulated one is ten
times): upper bounds of time are multiplied by it, lower bounds never.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import secrets
import subprocess
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
HOTCELL = os.environ.get("HOTCELL", str(SOURCE / "build" / "hotcell"))
SLOW = float(os.environ.get("HOTCELL_SLOW", "1"))
KIB, MIB = 1 << 10, 1 << 20
ALL_LAYERS = ["user", "mount", "pid", "net", "ipc", "uts", "cgroup", "memory", "cpu", "pids", "seccomp", "landlock"]


# ---- this machine ----

def cgroup_mounts():
    """Where each hierarchy is mounted: {"": folder of version 2, "memory": …, "cpu": …, "pids": …}, only what is there."""
    found = {}
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        left, right = line.split(" - ")
        kind, _, options = right.split(" ")[:3]
        folder = pathlib.Path(left.split(" ")[4])
        if kind == "cgroup2":
            found.setdefault("", folder)
        elif kind == "cgroup":
            for name in options.split(","):
                if name in ("memory", "cpu", "cpuacct", "pids", "freezer"):
                    found.setdefault(name, folder)
    return found


def controllers():
    """Which of memory, cpu and pids this machine has, in whichever version."""
    mounts = cgroup_mounts()
    names = set(mounts) & {"memory", "cpu", "pids"}
    if not names and "" in mounts:
        names = set((mounts[""] / "cgroup.controllers").read_text().split()) & {"memory", "cpu", "pids"}
    return names


def landlock_abi():
    """The kernel's Landlock ABI, 0 without: landlock_create_ruleset(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION)."""
    return max(0, ctypes.CDLL(None, use_errno=True).syscall(444, None, 0, 1))


def user_namespaces():
    return int(pathlib.Path("/proc/sys/user/max_user_namespaces").read_text()) > 0


def machine_layers():
    """The layers that root's cells have on this machine, in the order of a result's list."""
    missing = {"memory", "cpu", "pids"} - controllers()
    if not landlock_abi():
        missing.add("landlock")
    return [layer for layer in ALL_LAYERS if layer not in missing]


def machine_is_weak():
    return machine_layers() != ALL_LAYERS


def swap_free():
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("SwapFree:"):
            return int(line.split()[1]) * KIB
    return 0


# ---- runs ----

class Run:
    """What came of one `hotcell run`: the parsed result where there is one, and what a caller of the program saw."""

    def __init__(self, process, out, err, seconds):
        self.pid, self.exit, self.out, self.err, self.seconds = process.pid, process.returncode, out, err, seconds
        self.result = None
        with contextlib.suppress(ValueError):
            self.result = json.loads(out)

    def __getattr__(self, name):
        if self.result is None or name not in self.result:
            raise AttributeError(f"no {name} in the result; exit {self.exit}, stdout {self.out[:2000]!r}, stderr {self.err[:2000]!r}")
        return self.result[name]

    def __repr__(self):
        short = {k: (v[:300] + "…" if isinstance(v, str) and len(v) > 300 else v) for k, v in (self.result or {}).items()}
        return f"<run: exit {self.exit} after {self.seconds:.2f} s, stderr {self.err[-2000:]!r}, result {short}>"


def command(*arguments, weak=None):
    """The words of `hotcell run --json …`. On a machine that cannot enforce every layer, tests of what it can enforce say so."""
    weak = machine_is_weak() if weak is None else weak
    return [HOTCELL, "run", "--json", *(["--allow-weak"] if weak else []), *map(str, arguments)]


def start(*arguments, weak=None, **options):
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen(command(*arguments, weak=weak), **options)


def finish(process, begin, data=None, within=60):
    """Wait for a started hotcell. One that does not end in time is a failure, and is not left behind."""
    try:
        out, err = process.communicate(data, timeout=within * SLOW)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise AssertionError(f"hotcell did not end within {within * SLOW:.0f} s: {process.args}") from None
    return Run(process, out.decode(errors="replace"), err.decode(errors="replace"), time.monotonic() - begin)


def run(*arguments, weak=None, data=None, within=60, **options):
    """Run to the end and parse the result."""
    begin = time.monotonic()
    if data is not None:
        options["stdin"] = subprocess.PIPE
    return finish(start(*arguments, weak=weak, **options), begin, data, within)


def python(code, *arguments, **options):
    """The same for a Python program as a plain command: no language stage is between the limits and the program."""
    return run(*arguments, "--", "/usr/bin/python3", "-SsE", "-c", code, **options)


def shell(script, *arguments, **options):
    return run(*arguments, "--", "/bin/sh", "-c", script, **options)


# ---- the machine's processes and groups, from outside ----

def token():
    return "hotcell-test-" + secrets.token_hex(8)


def processes_with(word):
    """Pids whose command line has `word` in it, this very process left out."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if word.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def guests_with(word):
    """The same, only programs that a cell has exec'ed: `word` is on the command line of the hotcell that was asked to as well."""
    return [pid for pid in processes_with(word) if command_line(pid)[0] in (b"/bin/sh", b"sh")]


def command_line(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return [b""]


def program(pid):
    """The name that a process goes by; None when it is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().rstrip("\n")
    except OSError:
        return None


def start_time(pid):
    """The kernel's own stamp of when a process began, so that a pid is not taken for another's; None when it is gone or a zombie."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def tree_of(pid):
    """A process and all that descend from it, as {pid: start time}."""
    children = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    tree, queue = {}, [pid]
    while queue:
        one = queue.pop()
        tree[one] = start_time(one)
        queue += children.get(one, [])
    return {one: began for one, began in tree.items() if began is not None}


def alive(tree):
    return [pid for pid, began in tree.items() if start_time(pid) == began]


def groups_of(pid):
    """Every control group folder that hotcell process `pid` made: they are named after it."""
    found = []
    for folder in set(cgroup_mounts().values()):
        for path, names, _ in os.walk(folder):
            mine = [name for name in names if name.startswith(f"hotcell-{pid}-")]
            found += [os.path.join(path, name) for name in mine]
    return found


def limit_in_force(pid, version2, version1, slot):
    """The smallest value of a limit from a process's group up to the top, as the kernel has it; None without one."""
    mounts, values = cgroup_mounts(), []
    for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        hierarchy = next((name for name in names.split(",") if name in mounts), None)
        if hierarchy is None or (names and slot not in names.split(",")):
            continue
        folder, name = mounts[hierarchy] / path.lstrip("/"), version1 if names else version2
        while folder != mounts[hierarchy].parent:
            with contextlib.suppress(OSError):
                values.append((folder / name).read_text().split())
            folder = folder.parent
    numbers = [int(value[0]) for value in values if value[0].lstrip("-").isdigit()]
    return min((number for number in numbers if number >= 0), default=None)


def throttled(pid):
    """How often the kernel made a process's groups wait for their quota to be filled again."""
    mounts, count = cgroup_mounts(), 0
    for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        hierarchy = next((name for name in names.split(",") if name in mounts), None)
        if hierarchy is None:
            continue
        for part in (pathlib.Path(path), *pathlib.Path(path).parents):
            with contextlib.suppress(OSError):
                stat = (mounts[hierarchy] / str(part).lstrip("/") / "cpu.stat").read_text().split()
                count += int(dict(zip(stat[::2], stat[1::2])).get("nr_throttled", 0))
    return count


def cpu_seconds(pid):
    """The CPU time of one process, children left out."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def until(condition, within=5.0, every=0.01):
    """Wait for a condition; its last value. Time is stretched on a slow machine."""
    deadline = time.monotonic() + within * SLOW
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(every)
    return value
