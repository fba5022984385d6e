"""Crashes and faults: 101–109 as they apply to `hotcell run`."""

import errno
import fcntl
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from cases.kernel import namespace_words
from suite import SLOW, case, fetch, probes
from watch import descendants


def kill_all(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass


def gone(trial, seconds):
    deadline = time.monotonic() + seconds * SLOW
    while trial.watch.leftovers() and time.monotonic() < deadline:
        time.sleep(0.005)
    return not trial.watch.leftovers()


@case(101, "kill -9 at random instants", seconds=120, later=True)
def killed(trial):
    process = subprocess.Popen([trial.program("stubborn"), "reaper"], stdout=subprocess.PIPE)
    process.stdout.readline()
    process.kill()
    process.wait()
    time.sleep(0.05)
    left = descendants(os.getpid()) - trial.watch.baseline
    trial.control(left, "children outlive a kill -9 outside")
    kill_all(left)
    process.stdout.close()
    chance = random.Random(7)
    late, rounds, kinds = [], 0, {"hotcell": 0, "one of its helpers": 0, "all but the guests": 0}
    end = time.monotonic() + 30
    while rounds < 120 and time.monotonic() < end:
        victim = list(kinds)[rounds % 3]
        process = trial.start("--", "./stubborn", "many", "5", files=["stubborn"], options=["--timeout", "20"])
        time.sleep(chance.uniform(0, 0.08))
        below = sorted(descendants(process.pid))
        if victim == "hotcell" or not below:
            kill_all([process.pid])
        elif victim == "one of its helpers":
            kill_all([chance.choice(below)])
            time.sleep(0.05)
            kill_all([process.pid])
        else:
            kill_all([process.pid, *below[:2]])
        fetch(process, 5)
        if not gone(trial, 2):
            late.append("%s in round %d" % (victim, rounds))
            kill_all(trial.watch.leftovers())
        kinds[victim] += 1
        rounds += 1
    trial.check(rounds >= 40 and not late, "%d rounds, all gone within 2 s" % rounds if not late else "still there: " + ", ".join(late[:4]))
    trial.check(trial.passes(), "the next run passes")
    faults = trial.watch.settle()
    trial.check(not faults, "and has cleared what was left" if not faults else "; ".join(faults))


@case(102, "no room for caches and temporary files")
def no_space(trial):
    room = trial.scratch("full")
    script = 'mount -t tmpfs -o size=4k,nr_inodes=3 none "$1" && (cat /dev/zero > "$1/fill" || true) 2>/dev/null; shift; "$@"'
    wrap = ["unshare", "-m", "sh", "-c", script, "sh", room]
    environment = {"HOME": room, "XDG_CACHE_HOME": room, "XDG_STATE_HOME": room, "XDG_RUNTIME_DIR": room, "TMPDIR": room, "XDG_CONFIG_HOME": room}
    outside = trial.outside("/bin/sh", "-c", 'echo x > "$TMPDIR/new"', wrap=wrap, env=environment)
    trial.control(outside.code != 0, "a plain program cannot write there")
    run = trial.outside(trial.hotcell, "run", "--json", "-l", "python", "-c", "print(42)", wrap=wrap, env=environment)
    trial.check(run.text == "42\n" or run.code == 125, "a run: %s" % (run.status or "exit %s" % run.code))
    with open("/dev/full", "wb") as full:
        process = subprocess.Popen([trial.hotcell, "run", "--", "/bin/echo", "hello"], stdout=full, stderr=subprocess.PIPE, env=trial.environment)
        _, err = process.communicate(timeout=20)
    trial.check(process.returncode not in (0, None) and process.returncode > 0, "output that cannot be written is told: exit %d" % process.returncode)


@case(103, "no more file descriptors", later=True)
def no_descriptors(trial):
    outside = trial.outside("objects", "100", wrap=["unshare", "-i"], limits={resource.RLIMIT_NOFILE: 20})
    trial.control("EMFILE" in outside.text, "a plain program gets EMFILE")
    wrong, worked, refused = [], 0, 0
    for count in (*range(3, 40), 48, 64, 128):
        process = subprocess.Popen([trial.hotcell, "run", "--json", "--timeout", "5", "--", "/bin/echo", "fine"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=trial.environment,
                                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count)))
        run = trial.finish(process, 10)
        if run.status == "completed" and run.text == "fine\n":
            worked += 1
        elif run.code in (125, 126, 127) and (run.err or run.out):
            refused += 1
        else:
            wrong.append("%d: %s" % (count, run))
    trial.check(not wrong, "%d limits refused with a message, %d worked" % (refused, worked) if not wrong else "; ".join(wrong[:3]))


# ---- 104: every system call of the setup fails once ----

# Calls that only memory, looking, loading and waiting are made of; their failure is tried by samples, unless $ATTACK_EVERY asks for each of them.
# Whatever changes something (mount, write, openat, prctl, …) is made to fail at every place where it is called.
COMMON = {"read", "mmap", "munmap", "mprotect", "fstat", "stat", "newfstatat", "pread64", "lseek", "ppoll", "poll", "epoll_wait", "epoll_pwait",
          "futex", "getrandom", "rt_sigaction", "rt_sigprocmask", "clock_gettime", "fcntl", "sigaltstack", "rseq", "getdents64", "readlink",
          "access", "wait4", "waitid", "epoll_ctl", "statx", "fstatfs", "statfs"}
SAMPLES = 4
# These cannot fail, or their failure ends a program before its first line. close gives the descriptor back whatever it answers (close(2)), and one
# that was not made does not: it would keep a socket open that the kernel would not.
NEVER = {"close", "exit", "exit_group", "rt_sigreturn", "restart_syscall", "execve", "brk", "geteuid", "getuid", "getegid", "getgid", "getpid", "getppid",
         "gettid", "umask", "arch_prctl", "set_tid_address"}
# A kernel without these answers so, which must not be taken for leave to do without.
LAYERS = {"seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "close_range", "mount_setattr", "clone3", "open_tree",
          "move_mount", "unshare", "setns", "capset", "setresuid", "setresgid", "setgroups", "pivot_root", "keyctl", "prlimit64"}


def call_names():
    with open("/usr/include/x86_64-linux-gnu/asm/unistd_64.h") as file:
        return {int(number): name for name, number in re.findall(r"#define __NR_(\w+) (\d+)", file.read())}


def injected_run(trial, what, seconds=12):
    """A run of sealed.c under inject.c. Returns the run and what the injector wrote."""
    log = os.path.join(trial.scratch("traces"), "log-%d-%d" % (os.getpid(), random.getrandbits(40)))
    line = [trial.program("inject"), log, *map(str, what), trial.hotcell, "run", "--json", "--memory", "48m", "--pids", "20", "--cpus", "0.5",
            "--timeout", "10", "--file", trial.program("sealed"), "--", "./sealed", *namespace_words(), "pids=20", "cpus=500", "memory=80"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=trial.environment,
                               start_new_session=True)
    run = trial.finish(process, seconds * SLOW)
    try:
        with open(log) as file:
            written = file.read()
        os.unlink(log)
    except OSError:
        written = ""
    return run, written


def faults_to_try(listed, names):
    """Each (process, call, which of them, errno), by a list of the calls that a run makes before its guest begins."""
    counts = Counter(tuple(map(int, line.split())) for line in listed.splitlines())
    tries = []
    for (process, call), count in sorted(counts.items()):
        name = names.get(call, str(call))
        numbers = list(range(1, count + 1)) if name not in NEVER else []
        if name in COMMON and count > SAMPLES and not os.environ.get("ATTACK_EVERY"):  # the first, the last, and some between
            numbers = sorted({1, count, *random.Random(count).sample(numbers[1:-1], SAMPLES - 2)})
        for number in numbers:
            tries += [(process, call, number, error) for error in ((errno.EIO, errno.ENOSYS) if name in LAYERS else (errno.EIO,))]
    return tries


def judge(run, without=()):
    """What was open in a guest that started, but for the names in `without`; an empty set when it never started."""
    return {"%s %s" % (name, value) for name, value in probes(run.text).items() if value.startswith("OPEN") and name not in without}


@case(104, "every setup system call fails once", seconds=600, alone=True, later=True)
def injected(trial):
    outside = trial.outside("sealed", *namespace_words()).text
    trial.control(outside.count("=OPEN") > 30, "sealed.c finds %d seals open outside" % outside.count("=OPEN"))
    plain, listed = injected_run(trial, ["list"], seconds=60)
    trial.need(plain.probes.get("verdict") == "seen" and plain.probes.get("limit_pids") == "sealed" and plain.status == "oom",
               "a run without faults is sealed and limited" if plain.status == "oom" else "without faults: %s" % plain)
    before = {word.split()[0] for word in judge(plain)}  # case 33 is the one to complain of these
    names = call_names()
    kinds = {names.get(int(line.split()[1])) for line in listed.splitlines()}
    needed = {"mount", "pivot_root", "setns", "prctl", "close_range", "setresuid", "capset", "seccomp", "landlock_restrict_self"}
    trial.check(needed <= kinds, "%d kinds of calls" % len(kinds) if needed <= kinds else "not seen: %s" % (needed - kinds))
    tries = faults_to_try(listed, names)
    fired, sealed, wrong, hung = 0, 0, [], []
    with ThreadPoolExecutor(2) as pool:
        for what, (run, written) in pool.map(lambda what: (what, injected_run(trial, what)), tries):
            process, call, number, error = what
            word = "process %d, %s %d: %s" % (process, names.get(call, call), number, errno.errorcode[error])
            fault = judge(run, before)
            fired += written == "fired\n"
            sealed += "verdict" in probes(run.text)
            if fault:
                wrong.append("%s: %s" % (word, "; ".join(sorted(fault)[:4])))
            if run.code is None:
                hung.append(word)
    # A few calls are made once more or less often from run to run.
    # On a busy machine calls of the set-up differ from run to run (waits, retries), and the nth may not be made. What counts is how many did fail.
    trial.check(fired > 400 and fired >= 0.6 * len(tries), "%d of %d faults happened: %d times no guest, %d sealed whole" % (
        fired, len(tries), len(tries) - sealed, sealed))
    trial.check(not wrong, "none under-sealed" if not wrong else "UNDER-SEALED: " + " | ".join(wrong[:5]))
    trial.check(not hung, "none hung" if not hung else "hung: " + ", ".join(hung[:5]))
    if hung:
        kill_all(trial.watch.leftovers())


@case(105, "every nth allocation fails", seconds=90, later=True)
def no_memory(trial):
    library = trial.program("libfailmalloc.so")
    outside = [trial.outside("/bin/sh", "-c", "echo fine", env={"LD_PRELOAD": library, "FAIL_AT": str(number)}).code for number in range(1, 30)]
    trial.control(any(outside), "a plain program fails by it")
    # The program is static, and an allocator cannot be put before it; the example beside it is the same library as a shared object.
    example = os.path.join(os.path.dirname(trial.hotcell), "example-run")
    linked = subprocess.run(["ldd", example], capture_output=True, text=True).stdout
    trial.need("libhotcell.so" in linked, "the example is linked to libhotcell.so")
    if "libasan" in linked:
        trial.check(True, "an ASan build brings its own allocator")
        return
    wrong, failed, worked = [], 0, 0
    for number in [*range(1, 60), *range(60, 400, 7), *range(400, 2000, 97)]:
        process = subprocess.Popen([example, "print(42)"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                   cwd=trial.folder, env=dict(trial.environment, LD_PRELOAD=library, FAIL_AT=str(number)))
        run = trial.finish(process, 15)
        if run.code == 0 and run.out == b"42\n":
            worked += 1
        elif run.code in (2, 125, 126, 127) and (run.out or run.err):
            failed += 1
        else:
            wrong.append("%d: %s" % (number, run))
    trial.check(failed > 0 and not wrong, "%d clean errors, %d worked" % (failed, worked) if not wrong else
                "%d of %d: %s" % (len(wrong), failed + worked + len(wrong), "; ".join(wrong[:3])))


@case(106, "stale and busy control groups")
def stale_groups(trial):
    own = trial.watch.groups.own
    parents = [path for path in own if "/pids/" in path or "/memory/" in path or "/unified/" in path]
    if not parents:  # one version 2 tree: hotcell's groups are at the top of it
        parents = [root for root in trial.watch.groups.roots if os.path.exists(root + "/cgroup.controllers")]
    trial.need(parents, "there are control groups" if parents else "there are no control groups here")
    stale, held, locks = [], [], []
    victim = subprocess.Popen(["sleep", "60"])
    for parent in parents:
        for name, kind in (("hotcell-4190001-a1", stale), ("hotcell-4190002-a2", held)):
            os.makedirs(parent + "/" + name + "/cell", exist_ok=True)
            kind.append(parent + "/" + name)
        locks.append(os.open(parent + "/hotcell-4190002-a2", os.O_RDONLY | os.O_DIRECTORY))
        fcntl.flock(locks[-1], fcntl.LOCK_EX)
        with open(stale[-1] + "/cell/cgroup.procs", "w") as file:
            file.write(str(victim.pid))
    for parent in [path for path in parents if "/pids/" in path]:  # a part in one hierarchy alone, as a keeper leaves it that fails half-way
        stale.append(parent + "/hotcell-4190003-a3")
        os.mkdir(stale[-1])
    trial.control(all(map(os.path.isdir, stale)) and victim.poll() is None, "they stay, and their process lives, while no hotcell starts")
    run = trial.cell("--", "/bin/echo", "fine")
    trial.check(run.text == "fine\n", "a run beside them passes" if run.text == "fine\n" else str(run))
    trial.check(not any(map(os.path.isdir, stale)) and victim.wait(2) is not None, "stale ones are cleared, with what lives in them"
                if not any(map(os.path.isdir, stale)) else "left: %s" % [path for path in stale if os.path.isdir(path)])
    trial.check(all(map(os.path.isdir, held)), "one that is held is left alone")
    for lock, path in zip(locks, held):
        os.close(lock)
        for folder in (path + "/cell", path):
            if os.path.isdir(folder):
                os.rmdir(folder)
    trial.passes()


@case(107, "mounts after a kill -9", later=True)
def stale_mounts(trial):
    room = trial.scratch("mounted")
    script = 'mount -t tmpfs none "$1"; sleep 5 & kill -9 $!; wait; grep -c " $1 " /proc/self/mountinfo'
    outside = trial.outside("/bin/sh", "-c", script, "sh", room, wrap=["unshare", "-m"])
    trial.control(outside.text.strip() == "1", "a mount outlives a process outside")
    for wait in (0.005, 0.01, 0.02, 0.03, 0.05, 0.2):
        process = trial.start("--", "./stubborn", "sleep", files=["stubborn"])
        time.sleep(wait)
        below = descendants(process.pid)
        kill_all([process.pid, *below])
        fetch(process, 5)
    trial.check(gone(trial, 2), "six killed with everything below them")
    faults = [fault for fault in trial.watch.settle(1) if "mounts" in fault]
    trial.check(not faults, "no mount is left" if not faults else faults[0])
    trial.passes()


def with_fault(trial, *injections, options=()):
    line = ["strace", "-f", "-qq", "-o", "/dev/null"]
    for injection in injections:
        line += ["-e", "inject=" + injection]
    process = subprocess.Popen([*line, trial.hotcell, "run", "--json", *options, "--", "/bin/echo", "fine"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=trial.environment)
    return trial.finish(process, 20)


@case(108, "no user namespaces, Landlock, seccomp, cgroups")
def missing(trial):
    trial.need(shutil.which("strace"), "strace is installed")
    plain = with_fault(trial, "getppid:error=EIO")
    trial.control(plain.text == "fine\n", "runs when nothing is missing")
    for name, injections in (("user namespaces", ["clone3:error=ENOSPC", "clone:error=ENOSPC", "unshare:error=ENOSPC"]),
                             ("seccomp", ["seccomp:error=EINVAL"]), ("no_new_privs", ["prctl:error=EINVAL"]),
                             ("pivot_root", ["pivot_root:error=ENOSYS"])):
        for options in ([], ["--allow-weak"]):
            run = with_fault(trial, *injections, options=options)
            trial.check(run.text != "fine\n" and run.code not in (0, None), "no %s: refused" % name if run.text != "fine\n" else "no %s: RAN %s" % (name, options))
    run = with_fault(trial, "landlock_create_ruleset:error=ENOSYS")
    trial.check(run.text != "fine\n" and run.code not in (0, None), "no Landlock: refused" if run.text != "fine\n" else "no Landlock: RAN")
    run = with_fault(trial, "landlock_create_ruleset:error=ENOSYS", options=["--allow-weak"])
    stated = run.result and run.result.get("isolation", {})
    trial.check(run.text == "fine\n" and stated["level"] != "full" and "landlock" not in stated["layers"], "or, allowed, stated as %s" %
                (stated or {}).get("level") if run.text == "fine\n" else "no Landlock, allowed: %s" % run)
    hide = 'for m in $(grep cgroup /proc/self/mounts | cut -d" " -f2 | sort -r); do umount "$m"; done; "$@"'
    wrap = ["unshare", "-m", "sh", "-c", hide, "sh"]
    run = trial.outside(trial.hotcell, "run", "--json", "--", "/bin/echo", "fine", wrap=wrap)
    trial.check(run.text != "fine\n" and run.code not in (0, None), "no control groups: refused" if run.text != "fine\n" else "no control groups: RAN")
    run = trial.outside(trial.hotcell, "run", "--json", "--allow-weak", "--", "/bin/echo", "fine", wrap=wrap)
    stated = (run.result or {}).get("isolation", {})
    trial.check(run.text == "fine\n" and stated.get("level") != "full" and "memory" not in stated.get("layers", []),
                "or, allowed, stated as %s" % stated.get("level") if run.text == "fine\n" else "no control groups, allowed: %s" % run)


@case(109, "SIGTERM to many runs at once")
def terminated(trial):
    process = subprocess.Popen([trial.program("stubborn"), "block"], stdout=subprocess.PIPE)
    process.stdout.readline()
    process.terminate()
    time.sleep(0.1)
    trial.control(process.poll() is None, "the same program ignores SIGTERM outside")
    process.kill()
    process.communicate()
    runs = [trial.start("--", "./stubborn", "block", files=["stubborn"]) for _ in range(16)]
    time.sleep(1.5 * SLOW)
    trial.check(all(run.poll() is None for run in runs), "16 at a time")
    started = time.monotonic()
    for run in runs:
        run.terminate()
    ends = [trial.finish(run, 10 * SLOW) for run in runs]
    took = time.monotonic() - started
    trial.check(took < 4 * SLOW and gone(trial, 1), "all gone after %.1f s" % took)
    statuses = {(end.code, end.status) for end in ends}
    trial.check(all(code == 143 for code, _ in statuses), "exit 143: %s" % sorted(map(str, statuses)))


@case(112, "many runs start at the same time")
def crowd(trial):
    """Each start clears what dead ones left: it must not take a living one, half made, for dead."""
    with ThreadPoolExecutor(16) as pool:
        outside = list(pool.map(lambda _: trial.outside("crash", "exit", "0").code, range(32)))
        trial.control(set(outside) == {0}, "32 plain programs start at the same time")
        runs = list(pool.map(lambda _: trial.cell("--", "/bin/echo", "fine"), range(150)))
    wrong = [str(run) for run in runs if run.text != "fine\n"]
    trial.check(not wrong, "150 of 150" if not wrong else "%d of 150 failed: %s" % (len(wrong), wrong[0]))
