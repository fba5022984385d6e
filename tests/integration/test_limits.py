"""Each limit below, at and over it, as the program inside sees it and as the result tells it.

The same file runs on cgroup v1, hybrid and v2, and on machines that lack a controller: there the limits that need it are skipped by
name, and test_layers.py shows that such a machine refuses to run anything unless told to.
"""

import contextlib
import errno
import json
import os
import signal
import time

import cells
import pytest
from cells import KIB, MIB, SLOW

pytestmark = pytest.mark.skipif(not cells.user_namespaces(), reason="no user namespaces: hotcell refuses to run at all")
essential = pytest.mark.essential


def needs(*names):
    missing = set(names) - cells.controllers()
    return pytest.mark.skipif(bool(missing), reason=f"this machine has no {' or '.join(sorted(missing))} controller")


def assert_status(run, status, exit_code):
    """The status is one and the same in the result, its decisive stage and the exit status of the program."""
    assert (run.status, run.exit_code, run.exit) == (status, exit_code, exit_code), run
    assert run.success == (status == "completed")
    assert run.timed_out == (status == "timeout")
    assert run.stages[-1]["status"] == status
    if status == "completed":
        assert run.diagnosis is None


def assert_diagnosis(run, category, **evidence):
    """The diagnosis rests on figures of the kernel; `evidence` gives the lowest and highest value of some."""
    assert run.diagnosis["category"] == category, run
    for name, (low, high) in evidence.items():
        assert low <= run.diagnosis["evidence"][name] <= high, (name, run.diagnosis)


# ---- processors ----


@essential
def test_a_program_may_use_the_processors_that_hotcell_may():
    """Whoever starts a cell says where its processes begin (src/kernel/place.c), and nothing of that may be left. A kernel
    before 6.2 gives a process that joins a group all the processors of that group."""
    ask = "import os; print(*os.sched_getaffinity(0))"
    allowed = os.sched_getaffinity(0)
    for some in (allowed, {min(allowed)}, {max(allowed)}):
        run = cells.python(ask, preexec_fn=lambda chosen=some: os.sched_setaffinity(0, chosen))
        assert some <= set(map(int, run.stdout.split())) <= allowed, run


# ---- memory ----

# Touches memory a MiB at a time and says how far it came, so that the point of death is known.
EAT = """
import mmap, os, sys
kept = []
for i in range(int(sys.argv[1])):
    block = mmap.mmap(-1, 1 << 20)
    for offset in range(0, 1 << 20, 4096):
        block[offset] = 1
    kept.append(block)
    os.write(1, b"%d\\n" % (i + 1))
"""


def eat(megabytes, *limits):
    return cells.run(*limits, "--", "/usr/bin/python3", "-SsE", "-c", EAT, megabytes)


def eaten(run):
    lines = run.stdout.split()
    return int(lines[-1]) if lines else 0


@needs("memory")
def test_memory_below_the_limit_is_usable():
    run = eat(40, "--memory", "64m")
    assert_status(run, "completed", 0)
    assert eaten(run) == 40
    assert 40 * MIB <= run.usage["memory_peak"] <= 64 * MIB


@essential
@needs("memory")
def test_memory_over_the_limit_is_oom():
    run = eat(200, "--memory", "64m")
    assert_status(run, "oom", 137)
    assert run.signal == signal.SIGKILL
    assert_diagnosis(run, "memory", oom_kills=(1, 100), memory_limit=(64 * MIB, 64 * MIB))
    # At the limit and not before or after it: the interpreter itself has its share of the 64 MiB.
    assert 40 <= eaten(run) < 64
    assert 60 * MIB <= run.usage["memory_peak"] <= 64 * MIB
    assert "raise --memory" in run.err or run.diagnosis["hint"] is not None


@needs("memory")
def test_memory_limit_counts_all_processes_together():
    hold = EAT + "import time; time.sleep(1000)"
    run = cells.shell(f"for i in 1 2 3; do python3 -SsE -c '{hold}' 30 >/dev/null & done; wait", "--memory", "64m")
    assert run.status == "oom", run
    assert run.usage["memory_peak"] <= 64 * MIB


@needs("memory")
def test_files_in_memory_count_as_memory():
    run = cells.shell("head -c 90m /dev/zero >/workspace/file; echo written", "--memory", "32m", "--disk", "100m")
    assert run.status == "oom", run
    assert "written" not in run.stdout


@needs("memory")
def test_oom_ends_the_whole_run_and_not_one_process_of_it():
    word = cells.token()
    script = f"sh -c 'sleep 1000; :' {word} & python3 -SsE -c '{EAT}' 200 >/dev/null; sleep 1000"
    run = cells.shell(script, "--memory", "64m", "--timeout", 50)
    assert_status(run, "oom", 137)
    assert run.seconds < 10 * SLOW
    assert not cells.guests_with(word)


@needs("memory")
def test_output_before_oom_is_kept():
    run = cells.python("import sys; sys.stdout.write('before\\n'); sys.stdout.flush(); x = bytearray(300 << 20)", "--memory", "64m")
    assert run.status == "oom" and run.stdout == "before\n", run


@essential
@needs("memory")
def test_swap_is_off_unless_asked_for():
    """On a machine with swap, memory that does not fit is not swapped out: it is refused."""
    run = eat(100, "--memory", "48m")
    assert_status(run, "oom", 137)
    assert eaten(run) < 48


@needs("memory")
@pytest.mark.skipif(cells.swap_free() < 100 * MIB, reason="this machine has no swap")
def test_swap_that_was_asked_for_is_usable_and_limited():
    run = eat(80, "--memory", "48m", "--swap", "64m")
    assert_status(run, "completed", 0)
    run = eat(200, "--memory", "48m", "--swap", "64m")
    assert_status(run, "oom", 137)
    assert 80 <= eaten(run) < 112


# ---- CPU ----

# Burns CPU in N processes for a while of wall-clock time.
BURN = """
import os, sys, time
count, seconds = int(sys.argv[1]), float(sys.argv[2])
end = time.monotonic() + seconds
for _ in range(count - 1):
    if os.fork() == 0:
        break
while time.monotonic() < end:
    pass
"""


def burn(count, seconds, *limits, **options):
    return cells.run(*limits, "--", "/usr/bin/python3", "-SsE", "-c", BURN, count, seconds, **options)


@essential
@needs("cpu")
def test_cpus_throttles_to_the_quota():
    run = burn(1, 3, "--cpus", "0.5")
    assert_status(run, "completed", 0)
    assert 0.01 <= run.usage["cpu_ms"] / run.usage["wall_ms"] <= 0.6, run.usage


# Does a fixed amount of work, in seconds of CPU time, in each of N processes. What it takes in wall-clock time is up to the quota.
WORK = """
import os, sys, time
count, seconds = int(sys.argv[1]), float(sys.argv[2])
for _ in range(count):
    if os.fork() == 0:
        while time.process_time() < seconds:
            pass
        os._exit(0)
for _ in range(count):
    os.wait()
used = os.times()
print(used.user + used.system + used.children_user + used.children_system)
"""


def work(count, seconds, *limits):
    run = cells.run(*limits, "--", "/usr/bin/python3", "-SsE", "-c", WORK, count, seconds)
    assert_status(run, "completed", 0)
    return run


@needs("cpu")
@pytest.mark.parametrize("cpus, waits", [("0.2", True), ("1.5", False)])
def test_cpus_throttles_over_the_quota_and_never_below(cpus, waits):
    """The kernel's own counter of how often the program had to wait, after half a second of CPU time in one process."""
    with a_run_that_waits("--cpus", cpus, script="while :; do :; done") as pid:
        assert cells.until(lambda: cells.cpu_seconds(pid) >= 0.5, within=40)
        assert (cells.throttled(pid) > 0) == waits


@needs("cpu")
@pytest.mark.skipif(os.cpu_count() < 2, reason="one CPU")
def test_one_cpu_is_shared_by_all_processes_of_a_run():
    run = work(3, 0.8)
    assert run.usage["cpu_ms"] / run.usage["wall_ms"] <= 1.15, run.usage


# Burns CPU from one instant to another, which are the same for every run, and says how much it got.
COMPETE = """
import sys, time
start, end = float(sys.argv[1]), float(sys.argv[2])
time.sleep(max(0, start - time.monotonic()))
before = time.process_time()
while time.monotonic() < end:
    pass
print(time.process_time() - before)
"""


@needs("cpu")
@pytest.mark.skipif(os.cpu_count() < 2, reason="one CPU")
def test_cpu_shares_decide_between_runs_when_cpus_are_scarce():
    """Four runs that each want a whole CPU, on two; those with eight times the shares get the larger part."""
    def bind():
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    begin = time.monotonic()
    start = begin + (1 if SLOW < 2 else 8)
    started = [cells.start("--cpu-shares", shares, "--", "/usr/bin/python3", "-SsE", "-c", COMPETE, start, start + 4, preexec_fn=bind)
               for shares in (2048, 256, 2048, 256)]
    runs = [cells.finish(process, begin) for process in started]
    assert [run.status for run in runs] == ["completed"] * 4
    large, small = (sum(float(run.stdout) for run in runs[first::2]) for first in (0, 1))
    assert large > 2 * small, (large, small)


def test_cpu_time_below_the_limit_is_not_touched():
    """Sleeping uses no CPU time, however long it takes."""
    run = cells.shell("sleep 2; echo done", "--cpu-time", "1" if SLOW < 2 else "2")
    assert_status(run, "completed", 0)
    assert run.stdout == "done\n"


@essential
def test_cpu_time_over_the_limit_is_a_timeout():
    run = burn(1, 50, "--cpu-time", "1", "--timeout", "55")
    assert_status(run, "timeout", 124)
    assert_diagnosis(run, "timeout", cpu_ms=(990, 1000 + 1000 * SLOW))
    assert run.diagnosis["error_type"] == "cpu_time"
    assert run.seconds < 1 + 5 * SLOW


@needs("cpu")
def test_cpu_time_counts_all_processes_together():
    run = burn(4, 50, "--cpu-time", "1", "--timeout", "55", "--cpus", "2")
    assert_status(run, "timeout", 124)
    assert 990 <= run.usage["cpu_ms"] <= 1000 + 1000 * SLOW


# ---- time ----

def test_timeout_below_the_limit_is_not_touched():
    run = cells.shell("sleep 0.5; echo done", "--timeout", 2 * SLOW)
    assert_status(run, "completed", 0)
    assert run.stdout == "done\n"
    assert run.usage["wall_ms"] >= 500


@essential
def test_timeout_over_the_limit_keeps_partial_output():
    run = cells.shell("echo out; echo err >&2; sleep 1000; echo never", "--timeout", 1)
    assert_status(run, "timeout", 124)
    assert run.stdout == "out\n"
    assert run.result["stderr"] == "err\n"
    assert 1 <= run.seconds < 1 + 1 * SLOW
    assert_diagnosis(run, "timeout", wall_ms=(999, 1000 + 1000 * SLOW), timeout_ms=(1000, 1000))


def test_timeout_reaches_a_process_that_ignores_signals_and_stops_itself():
    code = ("import os, signal\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n    except Exception: pass\n"
            "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65)); os.kill(os.getpid(), signal.SIGSTOP)")
    run = cells.python(code, "--timeout", 1)
    assert_status(run, "timeout", 124)
    assert run.seconds < 1 + 1 * SLOW


def test_timeout_takes_fractions_of_a_second():
    run = cells.shell("sleep 1000", "--timeout", "300ms")
    assert_status(run, "timeout", 124)
    assert 0.3 <= run.seconds < 0.3 + 1 * SLOW


def test_a_child_that_holds_the_output_does_not_hold_the_run():
    """The program is over when its first process is: what it left behind goes with the cell."""
    word = cells.token()
    run = cells.shell(f"sh -c 'sleep 1000; :' {word} & echo done", "--timeout", 20)
    assert_status(run, "completed", 0)
    assert run.stdout == "done\n" and run.seconds < 10 * SLOW
    assert not cells.guests_with(word)


@essential
def test_timeout_ends_the_last_process_of_a_fork_bomb_within_a_second():
    """Every process that is born says so with a byte, which shows that the bomb went off."""
    word = cells.token()
    code = "import os\nwhile True:\n    try: os.fork() or os.write(1, b'.')\n    except OSError: pass"
    begin, limit = time.monotonic(), 2 if SLOW < 2 else 6
    process = cells.start("--timeout", limit, "--pids", 100, "--", "/usr/bin/python3", "-SsE", "-c", code, word)
    run = cells.finish(process, begin)
    ended = cells.until(lambda: not cells.processes_with(word), within=0.1)
    over = time.monotonic() - begin - run.timing["prepare_ms"] / 1000 - limit
    assert_status(run, "timeout", 124)
    assert ended, f"{len(cells.processes_with(word))} processes live on"
    assert over < 1 * SLOW, f"the last process ended {over:.2f} s after the deadline"
    assert len(run.stdout) >= 20, "the bomb never went off, so nothing was shown"
    if "pids" in cells.controllers():
        assert run.usage["pids_peak"] <= 100


# ---- processes ----

# Starts processes (or threads) until that fails or there are enough, and prints how many there were and which error ended it.
SPAWN = """
import errno, os, sys, threading, time
want, kind, count, error = int(sys.argv[1]), sys.argv[2], 1, "none"
stop = threading.Event()
try:
    while count < want:
        if kind == "thread":
            threading.Thread(target=stop.wait, daemon=True).start()
        elif os.fork() == 0:
            time.sleep(1000)
        count += 1
except (OSError, RuntimeError) as e:
    error = errno.errorcode[e.errno] if isinstance(e, OSError) else "EAGAIN"
print(count, error, flush=True)
os._exit(int(sys.argv[3]))
"""


def spawn(want, kind, exit_code, *limits):
    return cells.run(*limits, "--", "/usr/bin/python3", "-SsE", "-c", SPAWN, want, kind, exit_code)


@needs("pids")
@pytest.mark.parametrize("kind", ["process", "thread"])
def test_pids_below_the_limit_are_usable(kind):
    run = spawn(15, kind, 0, "--pids", 20)
    assert_status(run, "completed", 0)
    assert run.stdout == "15 none\n"
    assert run.usage["pids_peak"] >= 15


@essential
@needs("pids")
@pytest.mark.parametrize("kind", ["process", "thread"])
def test_pids_over_the_limit_is_eagain_and_no_fault_by_itself(kind):
    run = spawn(40, kind, 0, "--pids", 20)
    assert_status(run, "completed", 0)
    assert run.stdout == "20 EAGAIN\n", "the limit is exact: the program itself and 19 more"
    assert run.usage["pids_peak"] == 20


@needs("pids")
def test_pids_at_the_limit_is_no_error():
    run = spawn(20, "process", 0, "--pids", 20)
    assert_status(run, "completed", 0)
    assert run.stdout == "20 none\n"


@essential
@needs("pids")
def test_pids_limit_is_the_status_where_the_program_then_fails():
    run = spawn(40, "process", 3, "--pids", 20)
    assert_status(run, "pids_limit", 3)
    assert_diagnosis(run, "pids", pids_denied=(1, 10), pids_limit=(20, 20), pids_peak=(20, 20))


@needs("pids")
def test_a_failure_without_a_refused_fork_is_not_pids_limit():
    run = spawn(20, "process", 3, "--pids", 20)
    assert_status(run, "error", 3)


# ---- output ----

def write(count, *limits, stream=1, exit_code=0):
    """Write `count` bytes of numbered lines, sixteen bytes each, and then one word to the other stream."""
    code = f"""
import os
data = b"".join(b"%015d\\n" % i for i in range({count} // 16 + 1))[:{count}]
at = 0
while at < len(data):
    at += os.write({stream}, data[at:at + 65536])
os.write({3 - stream}, b"end")
os._exit({exit_code})
"""
    return cells.python(code, *limits)


@pytest.mark.parametrize("stream, name, other", [(1, "stdout", "stderr"), (2, "stderr", "stdout")])
def test_output_at_the_limit_is_whole(stream, name, other):
    run = write(64 * KIB, "--output", "64k", stream=stream)
    assert_status(run, "completed", 0)
    assert len(run.result[name]) == 64 * KIB and run.truncated == {"stdout": 0, "stderr": 0}
    assert run.result[other] == "end"


@essential
@pytest.mark.parametrize("stream, name, other", [(1, "stdout", "stderr"), (2, "stderr", "stdout")])
def test_output_over_the_limit_keeps_head_and_tail_and_counts_the_rest(stream, name, other):
    run = write(64 * KIB + 16 * 1000, "--output", "64k", stream=stream)
    assert_status(run, "completed", 0)
    assert run.truncated == {name: 16000, other: 0}
    assert run.result[other] == "end", "the program goes on"
    text = run.result[name]
    marker = "\n[hotcell: 16000 bytes left out]\n"
    assert text.count("[hotcell:") == 1
    head, tail = text.split(marker)
    assert (len(head), len(tail)) == (32 * KIB, 32 * KIB)
    assert head.startswith("%015d\n" % 0) and tail.endswith("%015d\n" % (4096 + 1000 - 1))


def test_output_one_byte_over_the_limit_is_said():
    run = write(64 * KIB + 1, "--output", "64k")
    assert_status(run, "completed", 0)
    assert run.truncated["stdout"] == 1
    assert run.stdout.count("[hotcell: 1 byte") == 1


def test_output_below_sixteen_times_the_limit_is_let_run():
    run = write(15 * 16 * KIB, "--output", "16k", exit_code=7)
    assert_status(run, "error", 7)
    assert run.truncated["stdout"] == 14 * 16 * KIB


@essential
@pytest.mark.parametrize("stream", [1, 2])
def test_output_flood_ends_the_run(stream):
    run = cells.shell(f"cat /dev/zero >&{stream}", "--output", "16k", "--timeout", 50)
    assert_status(run, "output_limit", 137)
    assert run.seconds < 20 * SLOW
    name = {1: "stdout", 2: "stderr"}[stream]
    assert run.truncated[name] >= 15 * 16 * KIB
    assert_diagnosis(run, "output", output_limit=(16 * KIB, 16 * KIB))
    assert run.diagnosis["evidence"][name + "_bytes"] > 16 * 16 * KIB


# ---- disk ----

# Writes to a file until the disk is full; prints the bytes that went in and the error.
FILL = """
import errno, os, sys
total, error = 0, "none"
for path in sys.argv[2:]:
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        while total < int(sys.argv[1]):
            total += os.write(fd, b"x" * min(65536, int(sys.argv[1]) - total))
    except OSError as e:
        error = errno.errorcode[e.errno]
print(total, error)
"""


def fill(count, paths, *limits):
    run = cells.run(*limits, "--", "/usr/bin/python3", "-SsE", "-c", FILL, count, *paths)
    assert_status(run, "completed", 0)
    total, error = run.stdout.split()
    return int(total), error


@pytest.mark.parametrize("folder", ["/workspace", "/tmp", "/dev/shm"])
def test_disk_below_the_limit_is_usable(folder):
    assert fill(8 * MIB, [folder + "/file"], "--disk", "10m") == (8 * MIB, "none")


@pytest.mark.parametrize("folder", ["/workspace", pytest.param("/tmp", marks=essential), "/dev/shm"])
def test_disk_over_the_limit_is_enospc(folder):
    total, error = fill(12 * MIB, [folder + "/file"], "--disk", "10m")
    assert error == "ENOSPC" and 9 * MIB <= total <= 10 * MIB


def test_disk_at_the_limit_has_room_for_all_but_the_folders():
    total, error = fill(10 * MIB - 64 * KIB, ["/workspace/file"], "--disk", "10m")
    assert (total, error) == (10 * MIB - 64 * KIB, "none")


def test_disk_limit_is_for_all_folders_together():
    total, error = fill(30 * MIB, ["/workspace/a", "/tmp/b", "/dev/shm/c"], "--disk", "10m")
    assert error == "ENOSPC" and total <= 10 * MIB


@essential
def test_disk_limit_holds_for_a_writable_root():
    script = "echo >/home/made && echo made; for i in 1 2 3; do head -c 8m /dev/zero >/workspace/$i; done; cat /workspace/? | wc -c"
    run = cells.shell(script, "--disk", "10m", "--read-only=false")
    made, size = run.stdout.split()
    assert made == "made" and int(size) <= 10 * MIB, run
    assert "No space" in run.result["stderr"]


def test_a_sparse_file_over_the_limit_is_refused():
    run = cells.python("import os; f = os.open('/workspace/x', os.O_CREAT | os.O_RDWR)\ntry: os.ftruncate(f, 1 << 50); print('made')\n"
                       "except OSError as e: print(e.strerror)", "--disk", "10m")
    # Python ignores SIGXFSZ, so it sees EFBIG; other programs are ended by the signal.
    assert run.stdout == "File too large\n", run


MANY = """
import errno, os, sys
count, error = 0, "none"
try:
    while count < int(sys.argv[1]):
        os.close(os.open("/workspace/%d" % count, os.O_CREAT | os.O_WRONLY))
        count += 1
except OSError as e:
    error = errno.errorcode[e.errno]
print(count, error)
"""


def test_inodes_below_the_limit_are_usable():
    run = cells.run("--inodes", 200, "--", "/usr/bin/python3", "-SsE", "-c", MANY, 150)
    assert run.stdout == "150 none\n", run


@essential
def test_inodes_over_the_limit_are_enospc():
    run = cells.run("--inodes", 200, "--", "/usr/bin/python3", "-SsE", "-c", MANY, 400)
    assert_status(run, "completed", 0)
    count, error = run.stdout.split()
    assert error == "ENOSPC" and 200 <= int(count) <= 208


# ---- open files ----

OPEN = """
import errno, os, sys
error = "none"
try:
    for i in range(int(sys.argv[1])):
        last = os.open("/dev/null", os.O_RDONLY)
except OSError as e:
    error = errno.errorcode[e.errno]
print(last, error)
"""


def test_open_files_below_the_limit_are_usable():
    run = cells.run("--files-open", 40, "--", "/usr/bin/python3", "-SsE", "-c", OPEN, 37)
    assert run.stdout == "39 none\n", "37 besides the three streams: no other fd was inherited"


@essential
def test_open_files_over_the_limit_are_emfile():
    run = cells.run("--files-open", 40, "--", "/usr/bin/python3", "-SsE", "-c", OPEN, 100)
    assert_status(run, "completed", 0)
    assert run.stdout == "39 EMFILE\n"


def test_open_files_limit_cannot_be_raised_inside():
    run = cells.python("import resource as r\ntry: r.setrlimit(r.RLIMIT_NOFILE, (4096, 4096)); print('raised')\n"
                       "except (ValueError, PermissionError): print('refused')", "--files-open", 40)
    assert run.stdout == "refused\n", run


# ---- what holds when nothing is asked for ----

@essential
def test_defaults_are_in_the_result():
    limits = cells.run("--", "/bin/true").stages[-1]["limits"]
    wanted = {"timeout": 30, "cpu_time": None, "memory": 512 * MIB, "swap": 0, "cpus": 1.0, "cpu_shares": 1024, "pids": 100,
              "output": 1 * MIB, "disk": 100 * MIB, "files_open": 256}
    assert {name: limits[name] for name in wanted} == wanted


@contextlib.contextmanager
def a_run_that_waits(*arguments, script="while :; do sleep 1; done"):
    """A running cell, and its program's pid as the host sees it."""
    word = cells.token()
    process = cells.start(*arguments, "--", "/bin/sh", "-c", script, word)
    try:
        cells.until(lambda: cells.guests_with(word) or process.poll() is not None, within=10)
        found = cells.guests_with(word)
        assert found, "the program did not start"
        yield found[0]
    finally:
        process.terminate()
        process.communicate(timeout=20 * SLOW)


@essential
@needs("memory", "cpu", "pids")
def test_defaults_are_in_the_kernel():
    """Read from outside, in the group that the program is truly in, while it runs."""
    with a_run_that_waits() as pid:
        assert cells.limit_in_force(pid, "memory.max", "memory.limit_in_bytes", "memory") == 512 * MIB
        assert cells.limit_in_force(pid, "pids.max", "pids.max", "pids") in (100, 101)  # with or without the cell's own
        assert cells.limit_in_force(pid, "cpu.max", "cpu.cfs_quota_us", "cpu") in (100000, 10000, 20000, 50000)
        if cells.cgroup_mounts().keys() & {"memory"}:
            assert cells.limit_in_force(pid, "", "memory.memsw.limit_in_bytes", "memory") in (512 * MIB, None)
        else:
            assert cells.limit_in_force(pid, "memory.swap.max", "", "memory") == 0


@essential
def test_defaults_are_what_the_program_sees():
    code = """
import json, os, resource, socket
facts = {"files": resource.getrlimit(resource.RLIMIT_NOFILE), "core": resource.getrlimit(resource.RLIMIT_CORE)}
disk = os.statvfs("/workspace")
facts["disk"] = disk.f_blocks * disk.f_frsize
for path in ("/new", "/usr/new", "/etc/new"):
    try:
        open(path, "w"); facts[path] = "made"
    except OSError as e:
        facts[path] = e.errno
facts["interfaces"] = [line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line]
s = socket.socket(); s.settimeout(2)
try:
    s.connect(("192.0.2.1", 80)); facts["network"] = "connected"
except OSError as e:
    facts["network"] = e.errno
print(json.dumps(facts))
"""
    run = cells.python(code)
    assert_status(run, "completed", 0)
    facts = json.loads(run.stdout)
    assert facts["files"] == [256, 256] and facts["core"] == [0, 0]
    assert facts["disk"] == 100 * MIB
    for path in ("/new", "/usr/new", "/etc/new"):
        assert facts[path] in (errno.EROFS, errno.EACCES), (path, facts)
    assert facts["interfaces"] == ["lo"]
    assert facts["network"] == errno.ENETUNREACH


@pytest.mark.skipif(SLOW > 2, reason="takes 30 s, and says nothing about the kernel that other tests here do not")
def test_default_timeout_is_thirty_seconds():
    run = cells.shell("sleep 1000")
    assert_status(run, "timeout", 124)
    assert 30 <= run.seconds < 31


@essential
def test_usage_is_the_kernels_count_of_the_whole_run():
    """Compared with what the program itself measured: itself and its children, who did all the work."""
    run = work(2, 0.5, "--cpus", "2")
    usage, inside = run.usage, 1000 * float(run.stdout)
    assert inside >= 950 and usage["wall_ms"] >= 500  # the program counts in clock ticks of 10 ms
    assert 0.9 * inside <= usage["cpu_ms"] <= 1.3 * inside + 20 * SLOW, (usage, inside)
    assert abs(usage["user_ms"] + usage["system_ms"] - usage["cpu_ms"]) <= max(20, 0.1 * usage["cpu_ms"])
    if "pids" in cells.controllers():
        assert usage["pids_peak"] == 3
    if "memory" in cells.controllers():
        assert MIB <= usage["memory_peak"] <= 100 * MIB


def test_usage_begins_with_the_program():
    """However late the warden looks: what a program did that was over by then is counted, in each of many runs."""
    used = sorted(cells.shell("i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done").usage["cpu_ms"] for _ in range(25))
    assert used[0] > used[12] / 3, used


@needs("cpu")
def test_usage_counts_children_that_nobody_waited_for():
    run = cells.shell("(while :; do :; done) & sleep 2; exit 0", "--cpus", "1")
    assert_status(run, "completed", 0)
    assert run.usage["cpu_ms"] >= 100, run.usage
