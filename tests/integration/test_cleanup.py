"""Nothing is left behind: no process, control group, mount or file, after any end of hotcell, its warden or its cells, at any instant.

What a killed hotcell could not remove itself (its control groups) is removed by the next one that starts. Each hotcell here is known by its
pid, which is in the names of its groups, and its guest by a word on its command line, so that other runs on the machine do not disturb.

When `hotcell run` returns, every process of the cell is dead. Its keeper and empty control groups may be there for some milliseconds more.
"""

import ctypes
import os
import pathlib
import random
import re
import signal
import subprocess
import time

import cells
import pytest
from cells import SLOW

pytestmark = pytest.mark.skipif(not cells.user_namespaces(), reason="no user namespaces: hotcell refuses to run at all")
essential = pytest.mark.essential
ALONE = "HOTCELL_VM" in os.environ  # nobody else mounts or writes here
FOLDERS = ("/tmp", "/var/tmp", "/run", "/dev/shm", "/workspace")


def mounts():
    return sorted(line.split(" ", 1)[1] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines())


def files():
    return sorted(str(path) for folder in FOLDERS if os.path.isdir(folder) for path in pathlib.Path(folder).iterdir())


class Watch:
    """What the machine was like before; and whether it is like that again."""

    def __init__(self, folder):
        self.folder, self.mounts, self.files = folder, mounts(), files()
        # Whatever hotcell would keep in a place that the environment names, it would keep here.
        self.environment = {**os.environ, "TMPDIR": str(folder), "XDG_RUNTIME_DIR": str(folder), "XDG_STATE_HOME": str(folder)}

    def start(self, *arguments):
        return cells.start(*arguments, env=self.environment)

    def assert_clean(self, pid, tree=None, word=None, groups=True):
        """`groups`: whether hotcell itself had the chance to remove its control groups."""
        assert cells.until(lambda: not cells.alive(tree or {})), f"still alive: {describe(cells.alive(tree))}"
        if word:
            assert cells.until(lambda: not cells.processes_with(word)), "the guest lives on"
        populated = [group for group in cells.groups_of(pid) if processes_in(group)]
        assert cells.until(lambda: not any(processes_in(group) for group in populated)), f"processes in {populated}"
        if not groups:
            assert cells.run("--", "/bin/true", env=self.environment).status == "completed"
        assert cells.until(lambda: cells.groups_of(pid) == []), cells.groups_of(pid)
        assert cells.until(lambda: mounts() == self.mounts), set(mounts()) ^ set(self.mounts)
        assert list(self.folder.iterdir()) == []
        if ALONE:
            assert files() == self.files


def processes_in(group):
    found = []
    for path, _, names in os.walk(group):
        if "cgroup.procs" in names:
            try:
                found += pathlib.Path(path, "cgroup.procs").read_text().split()
            except OSError:
                pass  # removed while we looked
    return found


def describe(pids):
    lines = []
    for pid in pids:
        try:
            lines.append(f"{pid} {pathlib.Path(f'/proc/{pid}/cmdline').read_bytes()!r}")
        except OSError:
            pass
    return lines


@pytest.fixture
def watch(tmp_path):
    folder = tmp_path / "places"
    folder.mkdir()
    return Watch(folder)


def ended(watch, *arguments, word=None):
    process = watch.start(*arguments)
    run = cells.finish(process, time.monotonic())
    watch.assert_clean(process.pid, word=word)
    return run


LINGER = "sh -c 'sleep 1000; :' {0} & (setsid sh -c 'sleep 1000; :' {0} &) ; sleep 0.2; "


ENDS = {  # what the program does after that, and how the run ends then
    "success": ("true", [], "completed"),
    "failure": ("exit 3", [], "error"),
    "signal": ("kill -SEGV $$", [], "error"),
    "timeout": ("sleep 1000", ["--timeout", "1"], "timeout"),
    "flood": ("cat /dev/zero", ["--output", "1k"], "output_limit"),
    "files": ("mkdir -p a/b/c; mkfifo f; ln -s /etc l; echo x >a/b/c/d; true", ["--read-only=false"], "completed"),
}


@pytest.mark.parametrize("script, options, status", [
    pytest.param(*end, id=name, marks=essential if name in ("success", "timeout", "files") else ()) for name, end in ENDS.items()])
def test_nothing_is_left_after_each_kind_of_end(watch, script, options, status):
    """Each program leaves two processes behind, one of them in a session of its own."""
    word = cells.token()
    run = ended(watch, *options, "--", "/bin/sh", "-c", LINGER.format(word) + script, word=word)
    assert run.status == status, run


def test_every_guest_is_dead_when_hotcell_returns():
    """At once, and not after a while."""
    for _ in range(10):
        word = cells.token()
        done = subprocess.run([cells.HOTCELL, "run", "--local", "--allow-weak", "--", "/bin/sh", "-c", LINGER.format(word)],
                              stdin=subprocess.DEVNULL, capture_output=True, check=False)
        # The keeper, a fork of hotcell, has its command line.
        assert [pid for pid in cells.processes_with(word) if cells.program(pid) not in ("hotcell", None)] == []
        assert done.returncode == 0, done


# Pid 1 of a container that is just any program: it does not wait for what it inherits.
CARELESS = """
import pathlib, subprocess, sys, time
def dead():
    fields = [path.read_text().rsplit(")", 1)[1].split() for path in pathlib.Path("/proc").glob("[0-9]*/stat")]
    return sum(1 for field in fields if field[0] == "Z" and field[1] == "1")
for count in range(4):
    subprocess.run([sys.argv[1], "run", "--local", "--allow-weak", "--", "/bin/true"], check=True)
    time.sleep(2.5 if count == 0 else 0.2)
print(dead())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a /proc of its own")
def test_keepers_are_waited_for_where_pid_1_does_not():
    """One is left, and the next runs know by it."""
    command = ["unshare", "--pid", "--fork", "--mount-proc", "/usr/bin/python3", "-c", CARELESS, cells.HOTCELL]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.stdout in ("0\n", "1\n"), done


@pytest.mark.skipif("memory" not in cells.controllers(), reason="this machine has no memory controller")
def test_nothing_is_left_after_oom(watch):
    word = cells.token()
    run = ended(watch, "--memory", "32m", "--", "/bin/sh", "-c", LINGER.format(word) + "head -c 80m /dev/zero >/tmp/x", word=word)
    assert run.status == "oom", run


def test_nothing_is_left_after_a_program_that_does_not_exist(watch):
    run = ended(watch, "--", "/no/such/program")
    assert run.exit == 127, run


def started(watch, *options, script=""):
    """A hotcell whose guest is certainly running, with the processes that belong to it."""
    word = cells.token()
    process = watch.start(*options, "--", "/bin/sh", "-c", LINGER.format(word) + script + "sleep 1000")
    seen = []
    cells.until(lambda: seen.append(len(cells.guests_with(word))) or seen[-1] >= 3 or process.poll() is not None, within=10)
    if seen[-1] < 3:  # not counted again: one that is between fork and exec is there, and then not, and then is
        process.kill()
        raise AssertionError(f"the guest did not start: {process.communicate()}")
    return process, cells.tree_of(process.pid), word


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=essential), signal.SIGINT, signal.SIGHUP])
def test_nothing_is_left_after_a_signal(watch, number):
    process, tree, word = started(watch)
    begin = time.monotonic()
    process.send_signal(number)
    run = cells.finish(process, begin)
    assert run.seconds < 2 * SLOW
    assert run.exit == 128 + number, run
    watch.assert_clean(process.pid, tree, word)


@essential
def test_nothing_is_left_after_kill_9_of_hotcell(watch):
    process, tree, word = started(watch)
    process.kill()
    process.communicate()
    assert cells.until(lambda: not cells.alive(tree), within=1), describe(cells.alive(tree))
    watch.assert_clean(process.pid, tree, word, groups=False)


def named(tree, name):
    """The members of a tree whose program has this name; the kernel cuts a name to 15 bytes."""
    found = []
    for pid in tree:
        try:
            if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == name[:15]:
                found.append(pid)
        except OSError:
            pass
    return found


@essential
@pytest.mark.parametrize("name", ["hotcell-warden", "hotcell-init"])
def test_nothing_is_left_after_kill_9_of_a_part(watch, name):
    """The run ends, with an error that is hotcell's own and not the program's, and is not waited for until the timeout."""
    process, tree, word = started(watch)
    part = named(tree, name)
    assert part, describe(tree)
    begin = time.monotonic()
    os.kill(part[0], signal.SIGKILL)
    run = cells.finish(process, begin)
    assert run.seconds < 3 * SLOW
    # When init goes, the kernel kills the program with it, and that is what its exit status then says.
    assert run.exit in ((125,) if name == "hotcell-warden" else (125, 137)), run
    watch.assert_clean(process.pid, tree, word)


def test_nothing_is_left_when_the_reader_of_the_output_goes_away(watch):
    word = cells.token()
    arguments = [argument for argument in cells.command("--", "/bin/sh", "-c", f"yes {word}") if argument != "--json"]
    process = subprocess.Popen(arguments, env=watch.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL)
    process.stdout.read(10)
    process.stdout.close()
    process.wait(timeout=20 * SLOW)
    watch.assert_clean(process.pid, word=word)


def duration_of_a_run(watch):
    begin = time.monotonic()
    assert cells.run("--", "/bin/true", env=watch.environment).status == "completed"
    return time.monotonic() - begin


def kill_at(watch, delay, victim):
    """Start a run, wait, kill the victim, and see that nothing remains."""
    word = cells.token()
    process = watch.start("--", "/bin/sh", "-c", LINGER.format(word) + "sleep 1000")
    time.sleep(delay)
    tree = cells.tree_of(process.pid)
    targets = [process.pid] if victim == "hotcell" else named(tree, "hotcell-warden")
    for pid in targets or [process.pid]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    try:
        process.communicate(timeout=20 * SLOW)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise AssertionError(f"hotcell lived on after its warden was killed at {delay * 1000:.1f} ms") from None
    watch.assert_clean(process.pid, tree, word, groups=process.returncode != -signal.SIGKILL)


@pytest.mark.parametrize("victim", ["hotcell", "warden"])
def test_nothing_is_left_after_kill_9_at_random_instants(watch, victim):
    """Sixty instants, most of them while the cell is being built."""
    length, seed = duration_of_a_run(watch), random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for number in range(60 if SLOW < 2 else 12):
        kill_at(watch, chance.uniform(0, length * (1.2 if number % 4 else 3)), victim)


@essential
def test_many_runs_at_a_time_do_not_disturb_each_other(watch):
    """One that starts clears what dead ones left, and must not take a living one for dead."""
    rounds, width = (6, 12) if SLOW < 2 else (1, 6)
    for _ in range(rounds):
        begin = time.monotonic()
        processes = [watch.start("--", "/bin/echo", index) for index in range(width)]
        for index, process in enumerate(processes):
            run = cells.finish(process, begin)
            assert run.status == "completed" and run.stdout == f"{index}\n", run
    for process in processes:
        watch.assert_clean(process.pid)


def groups_of_any(pids):
    paths = (path for folder in set(cells.cgroup_mounts().values()) for path, _, _ in os.walk(folder))
    owned = ((path, re.match(r"hotcell-(\d+)-", os.path.basename(path))) for path in paths)
    return [path for path, owner in owned if owner and int(owner[1]) in pids]


def test_a_thousand_runs_leave_no_trace(watch):
    count = 1000 if SLOW < 2 else 60
    pids = set()
    for _ in range(count):
        process = watch.start("--", "/bin/true")
        out, err = process.communicate(timeout=60 * SLOW)
        assert process.returncode == 0, (out, err)
        pids.add(process.pid)
    assert groups_of_any(pids) == []
    watch.assert_clean(process.pid)
    assert set(cells.tree_of(os.getpid())) == {os.getpid()}


GROWTH = """
import ctypes, os, sys
lib = ctypes.CDLL(sys.argv[1])
config, engine, error = (ctypes.c_void_p() for _ in range(3))
for name in ("hc_request_new",):
    getattr(lib, name).restype = ctypes.c_void_p
for name in ("hc_error_message", "hc_result_status"):
    getattr(lib, name).restype = ctypes.c_char_p
def must(status):
    if status:
        sys.exit(lib.hc_error_message(error).decode())
must(lib.hc_config_load(None, ctypes.byref(config), ctypes.byref(error)))
must(lib.hc_engine_open(config, ctypes.byref(engine), ctypes.byref(error)))
def measure():
    memory = int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    children = open("/proc/self/task/%d/children" % os.getpid()).read().split()
    return len(os.listdir("/proc/self/fd")), memory, len(children)
def one():
    request, result = ctypes.c_void_p(lib.hc_request_new()), ctypes.c_void_p()
    lib.hc_request_allow_weak(request, int(sys.argv[3]))
    must(lib.hc_request_add_command(request, b"/bin/true", ctypes.byref(error)))
    must(lib.hc_run(engine, request, ctypes.byref(result), ctypes.byref(error)))
    assert lib.hc_result_status(result) == b"completed", lib.hc_result_status(result)
    lib.hc_result_free(result)
    lib.hc_request_free(request)
for _ in range(20):
    one()
before = measure()
for _ in range(int(sys.argv[2])):
    one()
after = measure()
print(*before, *after)
lib.hc_engine_close(engine)
lib.hc_config_free(config)
"""


def test_a_caller_of_the_library_does_not_grow(watch):
    """The same engine again and again: its fds, memory and children after hundreds of runs are those of before."""
    library = pathlib.Path(cells.HOTCELL).with_name("libhotcell.so")
    assert library.exists()
    ctypes.CDLL(str(library))  # that it loads at all is not what is tested below
    count = 500 if SLOW < 2 else 30
    done = subprocess.run(["/usr/bin/python3", "-c", GROWTH, str(library), str(count), str(int(cells.machine_is_weak()))], text=True,
                          capture_output=True, timeout=300 * SLOW, env=watch.environment, check=False)
    assert done.returncode == 0, done.stderr
    fds, memory, children, fds_after, memory_after, children_after = map(int, done.stdout.split())
    assert (fds_after, children_after) == (fds, children)
    assert memory_after - memory < 2**20, f"{(memory_after - memory) / count:.0f} bytes a run"
