"""Processes and namespaces: 13–21."""

import os
import signal
import subprocess
import time

from suite import SLOW, case
from watch import command


def wait_for(condition, seconds=5):
    deadline = time.monotonic() + seconds * SLOW
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)


def stand_in(trial, *words):
    """A process that a control may do harm to; it ends with the worker."""
    process = subprocess.Popen(list(words) or ["sleep", "60"], stdin=subprocess.DEVNULL)
    time.sleep(0.05)
    return process


def stubborn_outside(trial, *arguments):
    """Start stubborn on the host, kill its main process, and say whether something of it lives on. Everything is ended afterwards."""
    before = trial.watch.leftovers()
    process = subprocess.Popen([trial.program("stubborn"), *arguments], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    wait_for(lambda: len(trial.watch.leftovers() - before) > 1)  # it has children
    time.sleep(0.3)  # and they are what they are to be
    process.kill()
    process.wait()
    time.sleep(0.1)
    lived = trial.watch.leftovers() - before
    for _ in range(200):
        left = trial.watch.leftovers() - before
        if not left:
            break
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        time.sleep(0.005)
    return bool(lived)


def gone_within(trial, seconds):
    """Whether all of hotcell's processes are gone by then."""
    deadline = time.monotonic() + seconds * SLOW
    while trial.watch.leftovers():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@case(13, "kill(-1), kill the canary's pid")
def kill(trial):
    victim = stand_in(trial)
    outside = trial.outside("signals", "pids", victim.pid)
    trial.control(outside.probes.get(str(victim.pid)) == "OK" and victim.wait() == -signal.SIGKILL, "a pid is killed outside")
    group = trial.outside("/bin/sh", "-c", 'sleep 20 & "$1" all; wait $!; echo ended=$?', "sh",
                          trial.program("signals"), wrap=["unshare", "-p", "-f"])
    trial.control("ended=137" in group.text, "kill(-1) ends all in a pid namespace")
    beside = trial.start("--", "./stubborn", "sleep", files=["stubborn"], options=["--timeout", str(3 * SLOW)])
    time.sleep(0.4)
    pids = [str(pid) for pid in (trial.watch.process.pid, os.getpid(), os.getppid(), beside.pid)]
    inside = trial.inside("signals", "pids", *pids)
    trial.check(all(inside.probes.get(pid) in ("ESRCH", "EPERM") for pid in pids), "host pids: %s" %
                ", ".join(sorted({inside.probes.get(pid, "?") for pid in pids})))
    every = trial.inside("signals", "all")
    trial.check(every.status in ("completed", "error"), "kill(-1) is within the cell")
    trial.check(beside.poll() is None, "the run beside it lives")
    trial.finish(beside)


@case(14, "ptrace, read, signal, SIGKILL pid 1")
def init(trial):
    victim = stand_in(trial)
    outside = trial.outside("signals", "init", victim.pid)
    trial.control(outside.probes.get("ptrace_seize") == "OK" and victim.wait() < 0, "a stand-in is traced and killed outside")
    inside = trial.inside("signals", "init")
    found = inside.probes
    trial.check(all(found.get(name, "?") not in ("OK", "?") for name in ("pidfd_getfd", "mem", "process_vm_readv", "ptrace_seize")),
                "no trace, no memory")
    trial.check(found.get("state_after") in ("S", "R", "D") and found.get("alive") == "yes" and inside.status == "completed",
                "pid 1 goes on (state %s)" % found.get("state_after"))
    trial.check(found.get("environ") != "OK" and found.get("maps") != "OK", "no environ, no maps")


@case(15, "every CLONE_NEW* by unshare, clone, clone3")
def namespaces(trial):
    outside = trial.outside("namespaces", wrap=["unshare", "-m"])
    inside = trial.inside("namespaces")
    trial.doors(inside.probes, outside.probes)
    trial.check(all(value == "ENOSYS" for name, value in inside.probes.items() if name.startswith("clone3")), "clone3: ENOSYS")


@case(16, "setns to /proc/*/ns/*")
def setns(trial):
    target = stand_in(trial, "unshare", "-m", "-u", "-i", "-n", "-C", "-p", "-U", "sleep", "60")
    wait_for(lambda: command(target.pid) == "sleep 60")
    outside = trial.outside("joins", target.pid)
    target.kill()
    target.wait()
    for pid in ("1", "self", str(trial.watch.process.pid)):
        inside = trial.inside("joins", pid)
        trial.doors(inside.probes, outside.probes)


@case(17, "a double-forked daemon outlives main")
def daemon(trial):
    trial.control(stubborn_outside(trial, "daemon"), "it lives on outside")
    started = time.monotonic()
    inside = trial.inside("stubborn", "daemon")
    trial.check(inside.status == "completed" and time.monotonic() - started < 5 * SLOW, "the run ends with main")
    trial.check(gone_within(trial, 1), "gone within 1 s")


@case(18, "fork race against the kill")
def race(trial):
    trial.control(stubborn_outside(trial, "chain", "500"), "the chain outlives its first process outside")
    for _ in range(3):
        inside = trial.inside("stubborn", "chain", options=["--timeout", "1"])
        ended = gone_within(trial, 1)
        trial.check(inside.status in ("timeout", "completed") and ended, "%s, empty within 1 s" % inside.status if ended else "still there after 1 s")


@case(19, "block all signals; SIGSTOP oneself")
def block(trial):
    process = subprocess.Popen([trial.program("stubborn"), "block"], stdout=subprocess.PIPE)
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    trial.control(process.poll() is None, "SIGTERM does nothing outside")
    process.kill()
    process.communicate()
    for mode in ("block", "stop"):
        inside = trial.inside("stubborn", mode, options=["--timeout", "1"])
        trial.check(inside.status == "timeout" and inside.code == 124 and inside.seconds < 1 + 1.5 * SLOW, "%s: timeout" % mode
                    if inside.status == "timeout" else "%s: %s" % (mode, inside))


@case(20, "subreaper with a cleared death signal")
def subreaper(trial):
    trial.control(stubborn_outside(trial, "reaper"), "the grandchildren live on outside")
    inside = trial.inside("stubborn", "reaper", options=["--timeout", "1"])
    trial.check(inside.status == "timeout" and gone_within(trial, 1), "timeout, gone within 1 s")
    process = trial.start("--", "./stubborn", "reaper", files=["stubborn"])
    time.sleep(0.7)
    trial.check(process.poll() is None, "runs until hotcell is killed")
    process.kill()
    trial.finish(process)
    trial.check(gone_within(trial, 2), "gone within 2 s of hotcell's own death")


@case(21, "main exits, a child holds stdout")
def hold(trial):
    process = subprocess.Popen([trial.program("stubborn"), "hold"], stdout=subprocess.PIPE)
    process.wait()
    try:
        process.communicate(timeout=0.5)
        held = False
    except subprocess.TimeoutExpired:
        held = True
    trial.control(held, "a reader waits for the child outside")
    for pid in trial.watch.leftovers():
        os.kill(pid, signal.SIGKILL)
    inside = trial.inside("stubborn", "hold", options=["--timeout", "3"])
    trial.check(inside.status in ("completed", "timeout") and inside.seconds < 3 + SLOW, "answer after %.2f s: %s" % (inside.seconds, inside.status))
    trial.check(gone_within(trial, 1), "gone within 1 s")
