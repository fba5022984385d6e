"""hotcell started by an ordinary user: one without an account, and one with a range of subordinate uids; with and without a delegated
control group.

Each test has a uid of its own that nobody else on the machine uses, so that whatever it leaves behind is known by its owner. Root sets the
stage (control groups handed over by chown, made-up account files mounted over /etc's in a private mount namespace) and then
drops to that uid; everything after that is the user's.
"""

import json
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import time

import cells
import pytest
from cells import MIB, SLOW

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can set the stage for another user"),
    pytest.mark.skipif(not cells.user_namespaces(), reason="no user namespaces: hotcell refuses to run at all"),
]
essential = pytest.mark.essential
SUBORDINATE = 3000000  # the first uid of the made-up range; far from what Debian hands out
RANGE = 65536
CONTROLLER_LAYERS = {"memory", "cpu", "pids"}
delegation_only = pytest.mark.skipif(cells.controllers() != CONTROLLER_LAYERS, reason="this machine lacks a controller to delegate")


class Delegation:
    """Control groups that belong to the user, as Delegate=yes of systemd gives them: the folder, and what one needs to divide it."""

    def __init__(self, name, uid):
        self.folders = []
        mounts = cells.cgroup_mounts()
        for folder in sorted({str(mounts[key]) for key in mounts}):
            path = pathlib.Path(folder, name)
            if folder == str(mounts.get("")) and not mounts.keys() & CONTROLLER_LAYERS:
                control = pathlib.Path(folder, "cgroup.subtree_control")
                control.write_text("+memory +cpu +pids")
            path.mkdir()
            self.folders.append(path)
            for owned in (path, *(path / file for file in ("cgroup.procs", "tasks", "cgroup.threads", "cgroup.subtree_control"))):
                if owned.exists():
                    os.chown(owned, uid, uid)

    def enter(self):
        for folder in self.folders:
            (folder / "cgroup.procs").write_text("0")

    def children(self):
        return [str(path) for folder in self.folders for path in folder.iterdir() if path.is_dir()]

    def remove(self):
        for folder in self.folders:
            for path, _, _ in os.walk(folder, topdown=False):
                cells.until(lambda path=path: not pathlib.Path(path, "cgroup.procs").read_text(), within=2)
                os.rmdir(path)


class User:
    """An ordinary user of this machine, as far as the kernel is concerned."""

    def __init__(self, folder, tree, subordinate=False, delegated=False):
        self.uid = random.randrange(1_000_000, 2_000_000)
        self.folder, self.program = folder, str(tree / "build/hotcell")
        self.home = folder / "home"
        self.home.mkdir()
        os.chown(self.home, self.uid, self.uid)
        self.subordinate = subordinate
        if subordinate:
            for name, text in (("passwd", f"root:x:0:0::/root:/bin/sh\nguest:x:{self.uid}:{self.uid}::{self.home}:/bin/sh\n"),
                               ("group", f"root:x:0:\nguest:x:{self.uid}:\n"),
                               ("subuid", f"guest:{SUBORDINATE}:{RANGE}\n"), ("subgid", f"guest:{SUBORDINATE}:{RANGE}\n")):
                (folder / name).write_text(text)
        self.delegation = Delegation(f"delegated-{self.uid}", self.uid) if delegated else None

    def command(self, *words):
        """`words` as this user: a private mount namespace, then the account files, then the uid."""
        script = ""
        if self.subordinate:
            names = ("passwd", "group", "subuid", "subgid")
            missing = [name for name in names if not os.path.exists(f"/etc/{name}")]
            assert not missing, f"/etc/{missing[0]} is missing, so nothing can be mounted over it"
            script = "".join(f"mount --bind {self.folder}/{name} /etc/{name} && " for name in names)
        script += f"exec setpriv --reuid {self.uid} --regid {self.uid} --clear-groups -- \"$@\""
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *words]

    def environment(self):
        return {"PATH": "/usr/bin:/bin", "HOME": str(self.home), "LANG": "C.UTF-8", "TMPDIR": str(self.home)}

    def start(self, *words):
        return subprocess.Popen(self.command(*words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/",
                                env=self.environment(), preexec_fn=self.delegation.enter if self.delegation else None)

    def hotcell(self, *arguments):
        """`hotcell …` as this user; the words are the caller's own."""
        begin = time.monotonic()
        return cells.finish(self.start(self.program, *map(str, arguments)), begin)

    def run(self, *arguments):
        weak = [] if self.delegation and not cells.machine_is_weak() else ["--allow-weak"]
        return self.hotcell("run", "--json", *weak, *arguments)

    def processes(self):
        """Whatever runs as this user."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if entry.stat().st_uid == self.uid and cells.start_time(int(entry.name)) is not None:
                        found.append((entry.name, (entry / "cmdline").read_bytes()))
                except OSError:
                    pass
        return found

    def assert_clean(self):
        assert cells.until(lambda: not self.processes()), self.processes()
        if self.delegation:
            assert self.delegation.children() == []
        left = [str(path) for folder in ("/tmp", "/var/tmp", "/run", "/dev/shm") for path in pathlib.Path(folder).glob("*")
                if path.lstat().st_uid == self.uid]
        assert left == [] and list(self.home.iterdir()) == []

    def close(self):
        if self.delegation:
            self.delegation.remove()
        shutil.rmtree(self.folder)


def open_folder():
    """A temporary folder that every user can enter, unlike pytest's own."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hotcell-test."))
    folder.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def tree():
    """The built programs where every user can read them, as in an installed tree."""
    folder = open_folder()
    (folder / "build").mkdir()
    build = pathlib.Path(cells.HOTCELL).parent
    for path in (*build.glob("hotcell*"), *build.glob("libhotcell.so*")):
        if path.is_file():
            shutil.copy2(path, folder / "build" / path.name)
    shutil.copytree(cells.SOURCE / "languages", folder / "languages")
    subprocess.run(["chmod", "-R", "go+rX", folder], check=True)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def make_user(tree):
    users = []

    def make(**options):
        users.append(User(open_folder(), tree, **options))
        return users[-1]
    yield make
    for user in users:
        user.close()


KINDS = [pytest.param({}, id="no-account"), pytest.param({"subordinate": True}, id="subordinate-uids")]


# ---- without a delegated control group ----

@essential
@pytest.mark.parametrize("kind", KINDS)
def test_without_delegation_a_run_is_refused_with_the_remedy(make_user, kind):
    user = make_user(**kind)
    run = user.hotcell("run", "--", "/bin/echo", "started")
    assert run.exit == 125 and "started" not in run.out, run
    for word in ("memory", "cpu", "pids", "--allow-weak"):
        assert word in run.err, run.err
    assert "Delegate=yes" in run.err or "delegate" in run.err.lower(), "the remedy is not named"
    user.assert_clean()


@essential
@pytest.mark.parametrize("kind", KINDS)
def test_without_delegation_a_run_that_was_accepted_says_that_it_is_weak(make_user, kind):
    user = make_user(**kind)
    run = user.run("--", "/bin/echo", "started")
    assert (run.status, run.stdout) == ("completed", "started\n"), run
    assert run.isolation["level"] == "weak"
    assert run.isolation["layers"] == [layer for layer in cells.machine_layers() if layer not in CONTROLLER_LAYERS]
    user.assert_clean()


def test_without_delegation_doctor_says_what_is_missing(make_user):
    user = make_user()
    run = user.hotcell("doctor")
    assert run.exit != 0 and "memory" in run.out + run.err, run
    user.assert_clean()


def test_what_needs_no_control_group_holds_without_one(make_user):
    user = make_user()
    run = user.run("--timeout", 1, "--", "/bin/sh", "-c", "echo before; (setsid sleep 1000 &); sleep 1000")
    assert (run.status, run.exit, run.stdout) == ("timeout", 124, "before\n"), run
    run = user.run("--disk", "10m", "--", "/bin/sh", "-c", "head -c 12m /dev/zero >/workspace/file; stat -c %s file")
    assert 9 * MIB <= int(run.stdout) <= 10 * MIB, run
    run = user.run("--output", "16k", "--", "/bin/cat", "/dev/zero")
    assert run.status == "output_limit", run
    run = user.run("--cpu-time", 1, "--timeout", 50, "--", "/bin/sh", "-c", "while :; do :; done")
    assert (run.status, run.diagnosis["error_type"]) == ("timeout", "cpu_time"), run
    user.assert_clean()


def test_a_fork_bomb_without_a_pids_controller_is_held_and_ended(make_user):
    """Without a group, what stands in for the limit is the kernel's count of the uid's processes (RLIMIT_NPROC)."""
    user = make_user()
    code = ("import os, time\nfor i in range(1000):\n    try: os.fork() or time.sleep(1000)\n    except OSError: break\n"
            "print(i, flush=True)\ntime.sleep(1000)")
    begin = time.monotonic()
    run = user.run("--timeout", 3, "--pids", 50, "--", "/usr/bin/python3", "-SsE", "-c", code)
    assert run.status == "timeout", (run, run.result["stderr"])
    assert 40 <= int(run.stdout) <= 50
    assert time.monotonic() - begin < 3 + 2 * SLOW
    user.assert_clean()


# ---- with one ----

@essential
@delegation_only
@pytest.mark.parametrize("kind", KINDS)
def test_with_delegation_a_run_is_as_good_as_roots(make_user, kind):
    user = make_user(delegated=True, **kind)
    run = user.run("--", "/bin/echo", "started")
    assert (run.status, run.stdout) == ("completed", "started\n"), run
    assert run.isolation["layers"] == cells.machine_layers()
    assert run.isolation["level"] == ("weak" if cells.machine_is_weak() else "full")
    user.assert_clean()


EAT = "import sys\nx = bytearray(200 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint('fits')"
FORK = ("import os, time\ntry:\n    for i in range(50):\n        if os.fork() == 0: time.sleep(1000)\n"
        "except OSError as e: print(i + 1, e.errno, flush=True); os._exit(5)")
BURN = "import time\nend = time.monotonic() + 2\nwhile time.monotonic() < end: pass"


@delegation_only
@pytest.mark.parametrize("kind", KINDS)
def test_with_delegation_the_limits_hold(make_user, kind):
    user = make_user(delegated=True, **kind)
    run = user.run("--memory", "64m", "--", "/usr/bin/python3", "-SsE", "-c", EAT)
    assert (run.status, run.exit) == ("oom", 137), run
    assert run.usage["memory_peak"] <= 64 * MIB
    run = user.run("--pids", 20, "--", "/usr/bin/python3", "-SsE", "-c", FORK)
    assert (run.status, run.exit, run.stdout) == ("pids_limit", 5, "20 11\n"), run
    run = user.run("--cpus", "0.5", "--", "/usr/bin/python3", "-SsE", "-c", BURN)
    assert 0.01 <= run.usage["cpu_ms"] / run.usage["wall_ms"] <= 0.6, run.usage
    user.assert_clean()


@delegation_only
def test_with_delegation_many_runs_one_after_the_other(make_user):
    user = make_user(delegated=True)
    for _ in range(4):
        run = user.run("--", "/bin/true")
        assert run.status == "completed" and run.isolation["layers"] == cells.machine_layers(), run
    user.assert_clean()


@delegation_only
def test_with_delegation_runs_at_a_time_are_whole_or_refused(make_user):
    """Version 2 lets nobody divide a group that others are in, so one may be refused there; none may run with less than it says."""
    user = make_user(delegated=True)
    weak = ["--allow-weak"] if cells.machine_is_weak() else []
    begin = time.monotonic()
    started = []
    for _ in range(4):
        try:
            started.append(user.start(user.program, "run", "--json", *weak, "--", "/bin/true"))
        except subprocess.SubprocessError:  # the group is divided already, and a process cannot be put into it from outside
            assert not cells.cgroup_mounts().keys() & CONTROLLER_LAYERS
    runs = [cells.finish(process, begin) for process in started]
    for run in runs:
        if run.exit == 0:
            assert run.isolation["layers"] == cells.machine_layers() or weak, run
        else:
            assert run.exit == 125 and not cells.cgroup_mounts().keys() & CONTROLLER_LAYERS, run
    assert any(run.exit == 0 for run in runs), runs
    user.assert_clean()


# ---- whose cell it is ----

INSIDE = """
import json, os, pathlib
facts = {"uid": os.getuid(), "gid": os.getgid(), "groups": os.getgroups(), "root": sorted(os.listdir("/")), "pids": [],
         "caps": [line.split()[1] for line in open("/proc/self/status") if line.startswith("Cap")],
         "map": open("/proc/self/uid_map").read().split()}
facts["pids"] = [int(name) for name in os.listdir("/proc") if name.isdigit()]
for path in ("/etc/shadow", "/root", os.environ.get("PROBE", "/nothing")):
    try:
        os.listdir(path) if os.path.isdir(path) else open(path).read(); facts[path] = "read"
    except OSError as e:
        facts[path] = e.strerror
print(json.dumps(facts))
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_users_cell_is_sealed(make_user, kind):
    user = make_user(**kind)
    secret = user.home / "secret"
    secret.write_text("canary")
    os.chown(secret, user.uid, user.uid)
    run = user.run("--env", f"PROBE={secret}", "--", "/usr/bin/python3", "-SsE", "-c", INSIDE)
    facts = json.loads(run.stdout)
    assert (facts["uid"], facts["gid"]) == (1000, 1000)
    assert facts["caps"] == ["0000000000000000"] * 5
    assert max(facts["pids"]) < 20, "the host's processes are not to be seen"
    assert facts[str(secret)] != "read" and "canary" not in run.out, "the user's own files are not the guest's"
    assert facts["/etc/shadow"] != "read"
    secret.unlink()
    user.assert_clean()


def test_with_subordinate_uids_the_guest_is_not_the_user(make_user):
    """Seen from outside, the program runs as a uid of the range, which owns nothing on the machine."""
    user = make_user(subordinate=True)
    word = cells.token()
    process = user.start(user.program, "run", "--json", "--allow-weak", "--timeout", "20", "--", "/bin/sh", "-c",
                         "sleep 1000; :", word)
    found = cells.until(lambda: [pid for pid in cells.guests_with(word) if cells.command_line(pid)[0] == b"/bin/sh"], within=10)
    try:
        assert found, "the program did not start"
        # A process that is not dumpable shows as root's in /proc; its status tells its uid.
        status = pathlib.Path(f"/proc/{found[0]}/status").read_text()
        uid = int(status.split("Uid:")[1].split()[0])
        assert SUBORDINATE <= uid < SUBORDINATE + RANGE
    finally:
        process.terminate()
        process.communicate(timeout=20 * SLOW)
    assert not cells.guests_with(word)
    user.assert_clean()


@delegation_only
def test_kill_9_of_a_users_hotcell_leaves_nothing_after_the_next_start(make_user):
    user = make_user(delegated=True)
    word = cells.token()
    weak = ["--allow-weak"] if cells.machine_is_weak() else []
    process = user.start(user.program, "run", *weak, "--", "/bin/sh", "-c", f"sh -c 'sleep 1000; :' {word} & sleep 1000; :")
    assert cells.until(lambda: len(cells.guests_with(word)) >= 2, within=10), "the program did not start"
    tree = cells.tree_of(process.pid)
    process.kill()
    process.communicate()
    assert cells.until(lambda: not cells.alive(tree), within=1)
    assert user.run("--", "/bin/true").status == "completed"
    user.assert_clean()
