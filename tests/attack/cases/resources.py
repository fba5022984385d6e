"""Resource exhaustion: 37–52."""

import os
import resource
import shutil
import signal
import subprocess
import time

from suite import SLOW, case

MIB = 1 << 20


def still_runs(trial, seconds, program, *arguments):
    """Whether the program, outside, is still at it after that time; it is ended."""
    process = subprocess.Popen([trial.program(program), *arguments], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    time.sleep(seconds)
    alive = process.poll() is None
    process.kill()
    process.wait()
    return alive


@case(37, "threads that spin", alone=True)
def spin(trial):
    trial.control(still_runs(trial, 1.3, "spin", "4", "5"), "they go on past the deadline outside")
    run = trial.neighbour(lambda: trial.start("--", "./spin", "8", "20", files=["spin"], options=["--timeout", "2", "--cpus", "1"]))
    trial.check(run.status == "timeout", "timeout")
    used = run.result["usage"]["cpu_ms"] if run.result else 0
    trial.check(100 < used < 2600, "%.0f ms of CPU in 2 s of one CPU" % used)


@case(38, "sleep forever")
def sleep(trial):
    trial.control(still_runs(trial, 1.3, "stubborn", "sleep"), "it sleeps on outside")
    for _ in range(3):  # a busy machine is late; the cell is not judged by one late answer
        run = trial.inside("stubborn", "sleep", options=["--timeout", "1"])
        wall = run.result["usage"]["wall_ms"] if run.result else 0
        if 999 <= wall <= 1000 + 100 * SLOW:
            break
    trial.check(run.status == "timeout" and run.code == 124, "timeout")
    trial.check(999 <= wall <= 1000 + 100 * SLOW, "after %.1f ms of 1000" % wall)


@case(39, "touch memory without end", alone=True)
def memory(trial):
    for kind in ("memory", "shared", "memfd"):
        outside = trial.outside("eat", kind, "96")
        trial.control(outside.probes.get("got") == "96", "96 MiB are had outside")
        run = trial.inside("eat", kind, options=["--memory", "64m", "--disk", "200m", "--timeout", "20"])
        trial.check(run.status == "oom", "%s: oom" % kind if run.status == "oom" else "%s: %s" % (kind, run))
        peak = run.result["usage"]["memory_peak"] if run.result else 0
        trial.check(peak <= 65 * MIB, "at most 64 MiB: %d MiB" % (peak // MIB))
    fill = trial.inside("eat", "disk", "0", "/tmp", options=["--memory", "64m", "--disk", "200m", "--timeout", "20"])
    trial.check(fill.status == "oom", "files in /tmp count: %s" % fill.status)
    children = trial.inside("eat", "children", "80", options=["--memory", "64m", "--timeout", "20"])
    trial.check(children.status == "oom", "children's memory counts: %s" % children.status)
    pipes = trial.inside("eat", "pipes", options=["--memory", "32m", "--timeout", "20", "--files-open", "1024"])
    got = int(pipes.probes.get("got", "0"))
    trial.check(pipes.status == "oom" or got < 1024, "pipe buffers are bounded: %s after %d" % (pipes.status, got))
    run = trial.neighbour(lambda: trial.start("--", "./eat", "memory", files=["eat"], options=["--memory", "256m"]))
    trial.check(run.status == "oom", "oom beside a neighbour")


@case(40, "fork bomb, thread bomb", seconds=90, alone=True)
def bombs(trial):
    for kind in ("forks", "threads"):
        outside = trial.outside("eat", kind, "200")
        trial.control(outside.probes.get("got") == "200", "200 are had outside")
        run = trial.inside("eat", kind, options=["--pids", "40", "--timeout", "20"])
        trial.check(run.probes.get("stop") == "EAGAIN" and int(run.probes.get("got", "999")) <= 40, "%s: EAGAIN after %s" %
                    (kind, run.probes.get("got")))
    run = trial.neighbour(lambda: trial.start("--", "./bomb", "inside", files=["bomb"], options=["--timeout", "2", "--pids", "100"]))
    trial.check(run.status in ("timeout", "pids_limit"), "the bomb: %s" % run.status)
    deadline = time.monotonic() + SLOW
    while trial.watch.leftovers() and time.monotonic() < deadline:
        time.sleep(0.01)
    trial.check(not trial.watch.leftovers(), "its last process is gone within 1 s")


@case(41, "fill the disk")
def disk(trial):
    outside = trial.outside("eat", "disk", "30", trial.scratch())
    trial.control(outside.probes.get("got") == "30", "30 MiB are had outside")
    for folder in ("/workspace", "/tmp", "/dev/shm"):
        run = trial.inside("eat", "disk", "0", folder, options=["--disk", "20m"])
        got = int(run.probes.get("got", "-1"))
        trial.check(run.probes.get("stop") in ("ENOSPC", "EFBIG") and 0 <= got <= 20, "%s: %s after %d MiB" %
                    (folder, run.probes.get("stop"), got))
    script = "for d in /workspace /tmp /dev/shm; do ./eat disk 0 $d keep; done; du -sm /workspace /tmp /dev/shm"
    run = trial.cell("--disk", "20m", "--", "/bin/sh", "-c", script, files=["eat"])
    total = sum(int(line.split()[0]) for line in run.text.splitlines() if "\t" in line)
    trial.check(0 < total <= 24, "20 MiB in the three together: %d" % total)
    wide = trial.cell("--disk", "20m", "--read-only=false", "--", "/bin/sh", "-c", "./eat disk 0 /var/tmp keep || ./eat disk 0 /usr keep",
                      files=["eat"])
    got = int(wide.probes.get("got", "0"))
    trial.check(got <= 20, "a writable root is limited too: %d MiB" % got)


@case(42, "fill the inodes")
def inodes(trial):
    outside = trial.outside("eat", "inodes", "3000")
    trial.control(outside.probes.get("got") == "3000", "3000 files are made outside")
    run = trial.inside("eat", "inodes", options=["--inodes", "1000"])
    trial.check(run.probes.get("stop") == "ENOSPC" and int(run.probes.get("got", "9999")) <= 1016, "ENOSPC after %s" % run.probes.get("got"))
    plain = trial.inside("eat", "inodes", "2000000", options=["--timeout", "20"])
    trial.check(plain.probes.get("stop") == "ENOSPC" or plain.status in ("oom", "timeout"), "the default is a limit as well: %s" %
                plain.probes.get("got"))


@case(43, "a sparse file of 1 EiB, fallocate")
def sparse(trial):
    scratch = "/dev/shm/hotcell-attack-%d" % os.getpid()
    os.mkdir(scratch)
    try:
        outside = trial.outside("sparse", str(1 << 60), cwd=scratch)
    finally:
        shutil.rmtree(scratch)
    trial.control(outside.probes.get("ftruncate") == "OK", "1 EiB is had outside")
    run = trial.inside("sparse", str(1 << 60))
    trial.doors(run.probes, outside.probes, names=["ftruncate", "pwrite", "fallocate", "keep_size"])


@case(44, "10 GB to stdout and stderr", alone=True)
def output(trial):
    outside = trial.outside("eat", "output", "64")
    trial.control(len(outside.out) == 64 * MIB, "a reader outside gets all of it")
    for kind in ("output", "errors"):
        run = trial.inside("eat", kind, "10240", options=["--output", "1m", "--timeout", "20"])
        trial.check(run.status == "output_limit", "%s: output_limit" % kind if run.status == "output_limit" else "%s: %s" % (kind, run.status))
        trial.check(run.peak < 64 * MIB, "hotcell stays at %d MiB" % (run.peak // MIB))
        trial.check(len(run.out) < 4 * MIB, "the answer is %d KiB" % (len(run.out) // 1024))


@case(45, "huge stdin that is never read")
def stdin(trial):
    block = b"x" * (64 * MIB)
    process = subprocess.Popen([trial.program("stubborn"), "sleep"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    os.set_blocking(process.stdin.fileno(), False)
    try:
        written = os.write(process.stdin.fileno(), block)
    except BlockingIOError:
        written = 0
    trial.control(written < len(block), "a plain writer is stuck after %d KiB outside" % (written // 1024))
    process.kill()
    process.wait()
    process.stdin.close()
    run = trial.inside("stubborn", "sleep", options=["--timeout", "1"], stdin=block)
    trial.check(run.status == "timeout" and run.seconds < 1 + 2 * SLOW, "asleep: timeout after %.1f s" % run.seconds)
    run = trial.inside("crash", "exit", "7", stdin=block)
    trial.check(run.code == 7 and run.seconds < 3 * SLOW, "it exits: 7 after %.1f s" % run.seconds)
    trial.check(run.peak < 64 * MIB, "hotcell stays at %d MiB" % (run.peak // MIB))


@case(46, "timers, timerfds, epolls, inotify to the limit", alone=True)
def objects(trial):
    outside = trial.outside("objects", "3000", wrap=["unshare", "-i"], limits={resource.RLIMIT_NOFILE: 4096}).probes
    kinds = ["timerfd", "epoll", "eventfd", "timer"]
    trial.control(all(outside.get(kind, "").startswith("3000 ") for kind in kinds), "3000 of each outside")
    inside = trial.inside("objects", "3000", options=["--timeout", "20"]).probes
    for kind in kinds + ["inotify"]:
        got, stop = (inside.get(kind, "9999 ?") + " ?").split()[:2]
        trial.check(int(got) < 1025 and stop in ("EMFILE", "EAGAIN", "ENOMEM", "EPERM"), "%s: %s after %s" % (kind, stop, got))
    # inotify is counted for a user of the host: what one cell takes must not be missing in another
    holder = trial.start("--", "/usr/bin/python3", "-c", HOLD_INOTIFY, options=["--timeout", "4"])
    time.sleep(1.2)
    beside = trial.cell("--", "/usr/bin/python3", "-c", ONE_INOTIFY)
    trial.finish(holder)
    trial.check(beside.text.strip() == "1", "a neighbour still gets an inotify: %s" % beside.text.strip())


HOLD_INOTIFY = """
import ctypes, time
libc = ctypes.CDLL(None)
print(sum(libc.inotify_init1(0) >= 0 for _ in range(240)), flush=True)
time.sleep(2.5)
"""
ONE_INOTIFY = "import ctypes; print(int(ctypes.CDLL(None).inotify_init1(0) >= 0))"


@case(47, "message queues and SysV objects")
def ipc(trial):
    outside = trial.outside("objects", "2000", wrap=["unshare", "-i"], limits={resource.RLIMIT_NOFILE: 4096}).probes
    trial.control(outside.get("shm", "").startswith("2000 "), "2000 shared memories outside")
    first = trial.inside("objects", "40000", "leave", options=["--timeout", "20", "--memory", "256m"])
    trial.check(first.status in ("completed", "oom", "error"), "a run that takes all it can: %s" % first.status)
    for kind in ("mqueue", "shm", "sem", "msg"):
        got, stop = (first.probes.get(kind, "0 oom") + " ?").split()[:2]
        trial.check(int(got) < 40000, "%s: %s after %s" % (kind, stop, got))
    second = trial.inside("leftovers", "find").probes
    trial.check(second.get("shm") != "OK" and second.get("mqueue") != "OK", "absent in the next run")
    with open("/proc/sysvipc/shm") as file:
        trial.check(not any(line.split()[0] == str(0x5afe) for line in file), "absent on the host")


def key_users():
    with open("/proc/key-users") as file:
        return {line.split(":")[0].strip(): int(line.split()[1].split("/")[0]) for line in file}


@case(48, "fill the keyring quota")
def quota(trial):
    before = key_users().get("0", 0)
    process = subprocess.Popen([trial.program("keyring"), "fill", "50", "1500"], stdout=subprocess.PIPE)
    process.stdout.readline()
    during = key_users().get("0", 0)
    process.kill()
    process.communicate()
    trial.control(during >= before + 50, "50 keys are counted outside")
    users = set(key_users())
    run = trial.inside("keyring", "fill", "100000")
    trial.check(run.probes.get("keys") == "0", "none is made inside")
    trial.check(not set(key_users()) - users or all(key_users()[user] <= 4 for user in set(key_users()) - users), "quotas unchanged")


@case(49, "read /dev/urandom, /dev/zero forever")
def devices(trial):
    trial.control(trial.outside("eat", "zero", "256").probes.get("got") == "256" and
                  trial.outside("eat", "urandom", "16").probes.get("got") == "16", "they never end outside")
    for kind in ("zero", "urandom"):
        run = trial.inside("eat", kind, options=["--timeout", "1"])
        trial.check(run.status == "timeout" and run.probes.get("opened") == "yes", "%s: %s" % (kind, run.status))


def log_size():
    total = 0
    for folder, _, files in os.walk("/var/log"):
        for name in files:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except OSError:
                pass
    kernel = subprocess.run(["dmesg"], capture_output=True).stdout
    return total, len(kernel)


def core_files():
    found = set()
    for folder in ("/", "/tmp", "/var/crash", "/var/lib/systemd/coredump", "/var/tmp", os.getcwd()):
        try:
            found |= {folder + "/" + name for name in os.listdir(folder) if name.startswith("core")}
        except OSError:
            pass
    return found


@case(50, "1000 crashes", seconds=90)
def crashes(trial):
    scratch = trial.scratch("cores")
    outside = trial.outside("crash", "many", "6", cwd=scratch, limits={resource.RLIMIT_CORE: resource.RLIM_INFINITY})
    shutil.rmtree(scratch)
    trial.control(int(outside.probes.get("cores", "0")) > 0, "cores are written outside")
    logs, cores = log_size(), core_files()
    inside = trial.inside("crash", "many", "1000", options=["--timeout", "30"])
    trial.check(inside.probes.get("crashed") == "1000" and inside.probes.get("cores") == "0", "1000 in one cell: no core")
    for _ in range(10):
        run = trial.inside("crash", "signal", "11")
        trial.check(run.status == "error" and run.result["signal"] == 11, "main crashes: signal 11")
    after = log_size()
    trial.check(core_files() == cores, "no core on the host")
    trial.check(after[0] - logs[0] < MIB and after[1] - logs[1] < MIB, "logs grew by %d bytes" % (after[0] - logs[0] + after[1] - logs[1]))


STRESS = [("memory", ["--vm", "2", "--vm-bytes", "80%", "--malloc", "2", "--mmap", "1", "--brk", "1"]),
          ("vm", ["--mremap", "1", "--mlock", "1", "--shm", "1", "--memfd", "1", "--userfaultfd", "1", "--madvise", "1"]),
          ("filesystem", ["--hdd", "1", "--hdd-bytes", "200m", "--fallocate", "1", "--dentry", "1", "--link", "1", "--fiemap", "1"])]


@case(51, "stress-ng: memory, vm, filesystem", seconds=120, alone=True)
def stress(trial):
    program = shutil.which("stress-ng")
    trial.need(program, "stress-ng is installed (Debian package stress-ng)" if program else "stress-ng is not installed: apt-get install stress-ng")
    outside = trial.outside(program, "--vm", "1", "--vm-bytes", "16m", "-t", "1", "--metrics-brief", "--temp-path", trial.scratch())
    trial.control(outside.code == 0, "stress-ng works outside")
    for name, words in STRESS:
        run = trial.neighbour(lambda words=words: trial.start("--", program, *words, "-t", "3", "--temp-path", "/workspace",
                                                              options=["--timeout", "5", "--memory", "256m"]))
        trial.check(run.status in ("completed", "error", "timeout", "oom", "output_limit"), "%s: %s" % (name, run.status))


@case(52, "infinite recursion")
def recursion(trial):
    outside = trial.outside("crash", "recurse", limits={resource.RLIMIT_CORE: 0})
    trial.control(outside.code == -signal.SIGSEGV, "SIGSEGV outside")
    run = trial.inside("crash", "recurse")
    trial.check(run.status == "error" and run.result["signal"] == signal.SIGSEGV and run.code == 139, "error, signal 11, exit 139")


AIO = """
import ctypes
libc, context = ctypes.CDLL(None, use_errno=True), ctypes.c_ulong(0)
result = libc.syscall(206, 16, ctypes.byref(context))  # io_setup
print("aio=%s" % ("OK" if result == 0 else ctypes.get_errno()))
"""


@case(114, "asynchronous I/O, of which the whole machine has one quota")
def asynchronous(trial):
    outside = trial.outside("/usr/bin/python3", "-c", AIO).probes
    trial.control(outside.get("aio") == "OK", "io_setup works outside")
    inside = trial.cell("--", "/usr/bin/python3", "-c", AIO).probes
    trial.check(inside.get("aio") == "38", "io_setup: errno %s" % inside.get("aio"))


# As much as fits into sockets of its own: at most 100 MiB, so that the control hurts nobody. How much one takes, and how many one process may have,
# differs by kernel: so several processes, one after the other, hold what they have.
SOCKETS = """
import os, signal, socket
MOST = 100 << 20

def fill(most):
    keep, held = [], 0
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    while len(keep) < 200 and held < most:
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        one.settimeout(2)
        try:
            one.connect(listener.getsockname())
            other = listener.accept()[0]
            one.setblocking(False)
            keep += [one, other]
            while held < most:
                held += one.send(b"x" * 65536)
        except OSError:
            pass
    return keep, held

total, workers = 0, []
while total < MOST and len(workers) < 6:
    ends = os.pipe()
    workers.append(os.fork())
    if workers[-1] == 0:
        keep, held = fill(MOST - total)
        os.write(ends[1], str(held).encode())
        signal.pause()
    os.close(ends[1])
    total += int(os.read(ends[0], 20) or 0)
print("held=%d" % (total >> 20), flush=True)
for worker in workers:
    os.kill(worker, signal.SIGKILL)
"""


@case(115, "memory that lies in sockets")
def sockets(trial):
    outside = trial.outside("/usr/bin/python3", "-c", SOCKETS).probes
    trial.control(int(outside.get("held", "0")) >= 90, "%s MiB outside" % outside.get("held"))
    run = trial.cell("--", "/usr/bin/python3", "-c", SOCKETS, options=["--memory", "64m", "--timeout", str(20 * SLOW)])
    held = run.probes.get("held")
    trial.check(run.status == "oom" or (held is not None and int(held) < 64), "%s, %s MiB with a limit of 64" % (run.status, held))
