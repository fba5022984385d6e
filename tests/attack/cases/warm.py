"""Programs that are started ahead: 72 and 73 of the list, and what is particular to zygotes and to programs that wait. That the other attacks fail
just as in a cold start is shown by rows of their own (warm.py, beside this folder)."""

import base64
import concurrent.futures
import contextlib
import errno
import os
import re
import signal
import subprocess
import threading
import time
from collections import Counter

from cases.faults import call_names, faults_to_try, judge
from cases.kernel import namespace_words
from service import Service
from suite import SLOW, Stop, case
from warm import BY_PYTHON as ENTER
from watch import descendants

SECCOMP, PRLIMIT, RECVMSG = 317, 302, 47  # the last of a seal but for the limit of open files
CONFIG = '[warm]\nstart = ["python/common"]\nforks = 100000\n'


def ready(server, language="python", code="1", start="warm"):
    """The first answer of a program that was started ahead."""
    deadline = time.monotonic() + 60 * SLOW
    while (answer := server.run(language=language, code=code)).json.get("timing", {}).get("start") != start:
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return answer


def zygotes(server):
    """Interpreters outside of any cell: the warden's children in its own pid namespace."""
    warden, found = server.part("warden"), set()
    for pid in descendants(warden):
        with contextlib.suppress(OSError, StopIteration), open("/proc/%d/status" % pid) as file:
            fields = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
            if fields["Name"].startswith("python3") and int(fields["PPid"]) == warden and len(fields["NSpid"].split()) == 2:
                found.add(pid)
    return found


def serving(server):
    """Those of them that wait at their door, in recvmsg: one that is stopped while it boots is given a minute."""
    found = set()
    for pid in zygotes(server):
        with contextlib.suppress(OSError), open("/proc/%d/syscall" % pid) as file:
            if file.read().split()[0] == str(RECVMSG):
                found.add(pid)
    return found


def zombies(server):
    found = []
    for pid in os.listdir("/proc"):
        with contextlib.suppress(OSError, IndexError), open("/proc/%s/stat" % pid) as file:
            fields = file.read().rpartition(")")[2].split()
            if fields[0] == "Z" and int(fields[1]) == server.part("warden"):
                found.append(pid)
    return found


def settled(server, within=5):
    """No child of the warden is dead and not waited for."""
    deadline = time.monotonic() + within * SLOW
    while (left := zombies(server)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not left


def start_of(answer):
    return answer.json.get("timing", {}).get("start")


@case(72, "crashes of a zygote's children", seconds=120)
def crashes(trial):
    outside = trial.outside("/usr/bin/python3", "-c", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    trial.control(outside.code == -signal.SIGSEGV, "it crashes outside")
    ways = ["os.kill(os.getpid(), signal.SIGSEGV)", "os.abort()", "os.kill(os.getpid(), signal.SIGKILL)", "ctypes.string_at(1)"]
    answers = []

    def crash(first):
        for i in range(first, 1000, 4):
            answers.append(server.run(language="python", code="import ctypes, os, signal\n" + ways[i % len(ways)]))

    with Service(trial, CONFIG) as server:
        ready(server)
        before = zygotes(server)
        threads = [threading.Thread(target=crash, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        after = zygotes(server)
        ends = {answer.json.get("signal") for answer in answers}
        warm = sum(start_of(answer) == "warm" for answer in answers)
        trial.check(len(answers) == 1000 and all(answer.run_status in ("error", "oom") for answer in answers), "1000 crashes: signals %s" % sorted(
            ends - {None}))
        trial.check(warm >= 900, "%d of them warm" % warm)
        trial.check(before and before <= after, "the zygote is alive" if before and before <= after else "zygotes: %s, later %s" % (before, after))
        trial.check(settled(server), "nothing is left of them")
        trial.check(ready(server, code="print(6 * 7)").text == "42\n", "the next run passes")


@case(73, "signal the zygote's pid")
def signal_zygote(trial):
    victim = subprocess.Popen(["sleep", "60"])
    outside = trial.outside("signals", "pids", victim.pid)
    trial.control(outside.probes.get(str(victim.pid)) == "OK", "a pid is killed outside")
    victim.wait()
    with Service(trial, CONFIG) as server:
        ready(server)
        before = zygotes(server)
        pids = sorted(before | {server.part("warden"), server.process.pid})
        code = ("import os\nfor pid in %r + list(range(3, 400)):\n    try:\n        os.kill(pid, 9)\n        print('%%d=OK' %% pid)\n"
                "    except OSError as error:\n        print('%%d=%%d' %% (pid, error.errno))\n" % pids)
        answer = server.run(language="python", code=code)
        values = set(answer.probes.values())
        trial.check(start_of(answer) == "warm" and len(answer.probes) >= 397 and values == {"3"}, "by any number: ESRCH"
                    if values == {"3"} else "%s: %s" % (start_of(answer), answer.probes))
        trial.check(before and zygotes(server) == before, "the zygote is alive")


@case(113, "a child for the warden (CLONE_PARENT)", seconds=150)
def clone_parent(trial):
    outside = trial.outside("parent")
    trial.control(outside.probes.get("clone_parent") == "OK", "a sibling is had outside")
    inside = trial.inside("parent")
    trial.check(inside.probes.get("clone_parent") == "EPERM" and inside.probes.get("clone3_parent") == "ENOSYS", "EPERM, ENOSYS")
    with Service(trial, CONFIG) as server:
        for _ in range(3):
            answer = server.program("parent")
            trial.check(answer.probes.get("clone_parent") == "EPERM", "in a server's cell: %s" % answer.probes.get("clone_parent"))
        trial.check(settled(server), "the warden has no dead children")


# What matches is never in the program itself.
SCAN = r"""
import re, sys
wanted = re.compile(rb'(LEFT-BY-%s|SECRET-)[0-9a-f]{12,32}' % sys.argv[1].encode())
found, size = set(), 0
for line in open('/proc/self/maps'):
    area, mode = line.split()[:2]
    if mode[0] != 'r' or '[v' in line:
        continue
    first, last = (int(word, 16) for word in area.split('-'))
    with open('/proc/self/mem', 'rb', 0) as memory:
        memory.seek(first)
        while first < last:
            try:
                block = memory.read(min(1 << 20, last - first))
            except OSError:
                break
            if not block:
                break
            first += len(block)
            size += len(block)
            found |= {match.group(0)[-8:] for match in wanted.finditer(block)}
print('scanned=%d' % size)
print('found=%d' % len(found))
"""


def run_warm(server, **fields):
    """On a busy machine what waits may be used up, and a run start cold: that proves nothing here, and is asked for again."""
    for _ in range(10):
        answer = server.run(**fields)
        if start_of(answer) == "warm":
            break
        time.sleep(0.2)
    return answer


@case(120, "another run in the memory of a zygote's child")
def memory(trial):
    outside = trial.outside("/usr/bin/python3", "-c", SCAN, "anyone", env={"A": "LEFT-BY-anyone0123456789abcdef"})
    trial.control(int(outside.probes.get("found", "0")) >= 1, "found in a process that has it")
    left = "LEFT-BY-anyone" + "0123456789abcdef"
    with Service(trial, CONFIG) as server:
        ready(server)
        for i in range(5):
            answer = run_warm(server, language="python", code="import sys\nkept = '%s' * 100\nprint(len(sys.stdin.read()), len(sys.argv))\n" % left, stdin=left * 1000,
                                args=[left], env={"LEFT": left}, files={"left": left * 1000, left: "x"})
            trial.check(start_of(answer) == "warm" and answer.run_status == "completed", "a run leaves its words behind")
            scan = run_warm(server, language="python", code=SCAN, args=["anyone"], limits={"timeout": 20})
            trial.check(start_of(scan) == "warm" and scan.probes.get("found") == "0", "%s MiB scanned, %s found" % (
                int(scan.probes.get("scanned", "0")) >> 20, scan.probes.get("found", scan)))


HAS = r"""
import os, re, resource
def show(name, value):
    print('%s=%s' % (name, value))
maps = open('/proc/self/maps').read()
show('shared_writable', len(re.findall(r'^\S+ .w.s', maps, re.M)))
show('shared_memory', len(re.findall(r'^\S+ ...s \S+ 00:00 ', maps, re.M)))
show('others_files', len([line for line in maps.splitlines() if 'memfd' in line or '/workspace' in line]))
show('fds', ','.join(sorted(os.listdir('/proc/self/fd'))[:-1]))
show('parent', os.getppid())
show('own_session', os.getsid(0) == os.getpid() == os.getpgid(0))
show('names', ','.join(sorted(name for name in os.environ if name.startswith(('HOTCELL', 'LD_')))))
show('environ', open('/proc/self/environ').read() == ''.join('%s=%s\0' % pair for pair in os.environ.items()))
show('cmdline', open('/proc/self/cmdline').read().split('\0')[0])
show('oom', open('/proc/self/oom_score_adj').read().strip())
status = dict(line.rstrip('\n').split(':\t', 1) for line in open('/proc/self/status') if ':\t' in line)
for name in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb'):
    show(name, int(status[name], 16))
show('seal', status['NoNewPrivs'] + status['Seccomp'] + status['Uid'].split('\t')[0])
show('groups', status['Groups'].strip())
show('signals', [int(status[name], 16) for name in ('SigBlk', 'SigPnd', 'ShdPnd')])
show('threads', status['Threads'])
show('limits', [resource.getrlimit(which) for which in range(16)])
show('cgroup', open('/proc/self/cgroup').read().replace('\n', ' '))
show('timer', max(os.times()[:2]) < 5 and open('/proc/self/timers').read())
for name in ('mnt', 'uts', 'ipc', 'user', 'pid', 'net', 'cgroup'):
    show('ns_' + name, os.stat('/proc/self/ns/' + name).st_ino)
"""


@case(121, "what a zygote's child has from the zygote")
def inheritance(trial):
    holder = "import mmap, os\nkept = mmap.mmap(-1, 4096)\nos.dup(1)\n"
    outside = trial.outside("/usr/bin/python3", "-c", holder + HAS).probes
    trial.control(outside.get("shared_writable") != "0" and outside.get("fds") != "0,1,2", "shared memory and an fd are seen where there are some")
    with Service(trial, CONFIG) as server:
        ready(server, code="import re, resource")  # the set that this program's modules are in
        # At the same time: the number of a namespace that has gone is given to another.
        with concurrent.futures.ThreadPoolExecutor(2) as both:
            warm, again = both.map(lambda _: server.run(language="python", code=HAS + "\nimport time\ntime.sleep(1)"), range(2))
        cold = server.run(language="python", code=HAS, env={"PYTHONHASHSEED": "0"})
        trial.check([start_of(one) for one in (warm, again, cold)] == ["warm", "warm", "cold"], "two warm runs and a cold one")
        found, other = warm.probes, cold.probes
        trial.check(found.get("shared_writable") == found.get("shared_memory") == found.get("others_files") == "0", "no memory that two could write")
        trial.check(found.get("fds") == "0,1,2" and found.get("names") == "", "no fd or variable of the zygote's")
        host = {name: os.stat("/proc/%d/ns/%s" % (server.part("warden"), name)).st_ino for name in ("mnt", "uts", "ipc", "user", "pid", "net", "cgroup")}
        same = [name for name, inode in host.items() if found.get("ns_" + name, str(inode)) == str(inode) or found["ns_" + name] == again.probes["ns_" + name]]
        trial.check(not same, "namespaces of its own" if not same else "shared namespaces: %s" % same)
        differ = [name for name in other if not name.startswith("ns_") and found.get(name) != other[name]]
        trial.check(len(other) >= 25 and not differ, "%d things as in a cold start" % len(other)
                    if not differ else "; ".join("%s: %s, cold %s" % (name, found.get(name), other[name]) for name in differ[:3]))


WRITE = r"""
import ctypes, os
found, tried = [], 0
own = os.stat('/tmp').st_dev  # the cell's own space
for top, folders, files in os.walk('/'):
    if top in ('/proc', '/dev') or os.stat(top).st_dev == own:
        folders.clear()
        continue
    if top.startswith('/usr/') and top.count('/') > 3:
        folders.clear()
    for path in [top] + [os.path.join(top, name) for name in files[:20]]:
        if os.path.realpath(path) == '/dev/null':  # a link to it, as systemd has for a unit that is masked
            continue
        tried += 1
        try:
            if os.path.isdir(path):
                os.close(os.open(path + '/attack', os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
                os.unlink(path + '/attack')
            else:
                os.close(os.open(path, os.O_WRONLY))
            found.append(path)
        except OSError:
            pass
for path in ('/proc/self/exe', '/proc/1/exe', '/.hotcell/warm/hotcell-warm.so', '/.hotcell/warm/python/sitecustomize.py'):
    for act in (lambda: os.truncate(path, 0), lambda: os.chmod(path, 0o777), lambda: os.utime(path), lambda: os.unlink(path),
                lambda: os.setxattr(path, 'user.attack', b'1'), lambda: os.rename(path, path + '2'), lambda: os.close(os.open(path, os.O_RDWR))):
        tried += 1
        try:
            act()
            found.append(path)
        except OSError:
            pass
maps = os.listdir('/proc/self/map_files')
for name in maps:
    tried += 1
    try:
        os.close(os.open('/proc/self/map_files/' + name, os.O_RDWR))
        found.append(name)
    except OSError:
        pass
print('tried=%d' % tried)
print('written=%s' % ','.join(found[:5]))
"""


BY_NODE = "console.log(String(require('child_process').spawnSync('/usr/bin/python3', ['write.py']).stdout))"


@case(122, "poison the driver, the library or the next run", seconds=90)
def poison(trial):
    folder = trial.scratch("drivers")
    outside = trial.outside("/usr/bin/python3", "-c", "import os\nos.close(os.open('driver.py', os.O_WRONLY | os.O_CREAT))\nprint('written=driver.py')", cwd=folder)
    trial.control(os.path.exists(folder + "/driver.py") and "driver.py" in outside.text, "a driver is written outside")
    with Service(trial, CONFIG) as server:
        for language, start in (("python", "warm"), ("javascript", "primed")):
            program = WRITE if language == "python" else BY_NODE
            ready(server, language, "1", start)
            answer = server.run(language=language, code=program, files={"write.py": WRITE}, limits={"timeout": 20 * SLOW})
            trial.check(int(answer.probes.get("tried", "0")) > 100 and answer.probes.get("written") == "", "%s: %s places, none writable" % (
                start_of(answer), answer.probes.get("tried")) if answer.probes.get("written") == "" else "%s can write to %s: %s" % (language, answer.probes.get("written"), answer))
        patch = ("import builtins, json, sys, gc\nbuiltins.ATTACKED = json.ATTACKED = 1\nsys.modules['re'] = None\nsys.path.insert(0, '/tmp')\n"
                 "[one.update(ATTACKED=1) for one in gc.get_objects() if type(one) is dict and '__name__' in one]\nprint('patched=1')\n")
        look = "import builtins, json, re, sys\nprint('attacked=%s' % (hasattr(builtins, 'ATTACKED') or hasattr(json, 'ATTACKED') or '/tmp' in sys.path))\n"
        ready(server, code="import json, re")
        for _ in range(3):
            first, second = server.run(language="python", code=patch), server.run(language="python", code=look)
            trial.check(start_of(first) == start_of(second) == "warm" and first.probes.get("patched") == "1" and second.probes.get("attacked") == "False",
                        "what one patches the next does not see")


MAPS = "print(*sorted(line.split('-')[0] for line in open('/proc/self/maps') if '[stack]' in line or 'libc.so' in line or '[vdso]' in line))"


@case(123, "address layout of a zygote's children")
def layout(trial):
    fixed = [trial.outside("/usr/bin/setarch", "-R", "/usr/bin/python3", "-c", MAPS).text for _ in range(2)]
    trial.control(fixed[0] and fixed[0] == fixed[1], "equal without randomisation")
    with Service(trial, '[warm]\nstart = ["python/common"]\nforks = 3\n') as server:
        ready(server)
        generations, runs, deadline = {}, 0, time.monotonic() + 20 * SLOW  # how many runs pass while the next one is booted says nothing
        while runs < 40 or (len(generations) < 3 and time.monotonic() < deadline):
            runs += 1
            answer = server.run(language="python", code=MAPS)
            if start_of(answer) == "warm":
                generations[answer.text] = generations.get(answer.text, 0) + 1
        trial.check(len(generations) >= 3, "%d layouts in %d warm runs: rotation bounds what one can learn of another" % (
            len(generations), sum(generations.values())))
        cold = server.run(language="python", code=MAPS, env={"PYTHONHASHSEED": "0"}).text
        trial.check(cold and cold not in generations, "a cold run has a layout of its own")


@case(124, "a zygote that is killed, stopped, or dies in the middle", seconds=240)
def faults(trial):
    answers, stop = [], threading.Event()

    def work():
        while not stop.is_set():
            answers.append(server.run(language="python", code="print('once')", limits={"disk": "20m"} if len(answers) % 2 else {}))

    with Service(trial, CONFIG) as server:
        ready(server)
        victim = subprocess.Popen(["sleep", "60"])
        victim.kill()
        trial.control(victim.wait() == -signal.SIGKILL, "a process is killed by the same call")
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        hit = 0
        for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGKILL, "sendmsg", signal.SIGTERM, "sendmsg", signal.SIGSTOP):
            deadline = time.monotonic() + 12 * SLOW
            while not (found := serving(server)) and time.monotonic() < deadline:
                time.sleep(0.02)
            for pid in found:
                with contextlib.suppress(OSError, subprocess.TimeoutExpired):  # gone, or one that nobody asks any more
                    if number == "sendmsg":  # it has made the child, and is about to say so
                        subprocess.run(["strace", "-qq", "-o", "/dev/null", "-p", str(pid), "-e", "trace=sendmsg", "-e", "inject=sendmsg:signal=KILL"],
                                       timeout=4 * SLOW, stderr=subprocess.DEVNULL, check=False)
                    else:
                        os.kill(pid, number)
                    hit += 1
            time.sleep(0.3)
        stop.set()
        for thread in threads:
            thread.join()
        bad = [answer for answer in answers if answer.run_status != "completed" or answer.text != "once\n"]
        starts = {start: sum(start_of(answer) == start for answer in answers) for start in ("warm", "cold")}
        trial.check(hit >= 5 and starts["warm"] and not bad, "%d zygotes ended; %d runs warm, %d cold, all passed, each once" % (hit, starts["warm"], starts["cold"])
                    if not bad else "%d of %d failed: %s" % (len(bad), len(answers), bad[0]))
        trial.check(settled(server), "the warden has no dead children")
        trial.check(start_of(ready(server)) == "warm", "another zygote serves")


def under_fault(trial, server, what):
    """A run of sealed.c as a zygote's child, with inject.c attached to the zygotes. Returns the answer and what the injector of the one that served
    has written."""
    deadline = time.monotonic() + 20 * SLOW
    while start_of(server.run(language="python", code=ENTER, args=["/bin/true"])) != "warm":  # the one before may have died of its fault
        if time.monotonic() > deadline:
            raise Stop("no zygote serves")
        time.sleep(0.02)
    folder = trial.scratch("traces")
    logs = [os.path.join(folder, str(pid)) for pid in zygotes(server)]
    injectors = [subprocess.Popen([trial.program("inject"), log, *map(str, what), "-p", os.path.basename(log)], stderr=subprocess.DEVNULL) for log in logs]
    while any(injector.poll() is None and not (os.path.exists(log) and os.path.getsize(log)) for injector, log in zip(injectors, logs)):
        time.sleep(0.002)
    with open(trial.program("sealed"), "rb") as file:
        program = {"base64": base64.b64encode(file.read()).decode(), "executable": True}
    answer = server.run(language="python", code=ENTER, files={"sealed": program}, within=30 * SLOW,
                        args=["./sealed", *namespace_words(), "pids=20", "cpus=500", "memory=80"], limits={"memory": "48m", "pids": 20, "cpus": 0.5, "timeout": 10})
    written = []
    for injector, log in zip(injectors, logs):
        injector.terminate()
        injector.wait()
        with contextlib.suppress(OSError), open(log) as file:
            written.append(file.read())
            os.unlink(log)
    return answer, max(written, key=len, default="")


@case(126, "every system call of a zygote's child fails once", seconds=600, alone=True, later=True)
def faults_of_a_child(trial):
    """As 104: what the child does until its seal is complete, and what the zygote does for it."""
    outside = trial.outside("sealed", *namespace_words()).text
    trial.control(outside.count("=OPEN") > 30, "sealed.c finds %d seals open outside" % outside.count("=OPEN"))
    names = call_names()
    with Service(trial, CONFIG) as server:
        answer, listed = under_fault(trial, server, ["list"])
        trial.need(start_of(answer) == "warm" and answer.run_status == "oom" and answer.probes.get("verdict") == "seen", "sealed without faults: %s" % start_of(answer))
        before = {word.split()[0] for word in judge(answer)}
        calls = [line for line in listed.splitlines() if line != "ready"]
        last = max(at for at, line in enumerate(calls) if line == "1 %d" % SECCOMP)
        last = next(at for at, line in enumerate(calls) if at > last and line == "1 %d" % PRLIMIT)
        tries = faults_to_try("\n".join(calls[:last + 1]), names)
        fired, starts, wrong, silent = 0, Counter(), [], []
        for what in tries:
            answer, written = under_fault(trial, server, what)
            word = "process %d, %s %d: %s" % (what[0], names.get(what[1], what[1]), what[2], errno.errorcode[what[3]])
            fault = judge(answer, before)
            fired += "fired" in written
            starts["%s %s" % (start_of(answer), answer.run_status)] += 1
            if fault:
                wrong.append("%s: %s" % (word, "; ".join(sorted(fault)[:4])))
            if answer.status != 200:
                silent.append("%s: %s" % (word, answer.status))
        # On a busy machine calls of the set-up differ from run to run (waits, retries), and the nth may not be made. What counts is how many did fail.
        trial.check(fired > 80 and fired >= 0.6 * len(tries), "%d of %d faults happened: %s" % (fired, len(tries), ", ".join("%d %s" % (n, word) for word, n in starts.most_common())))
        trial.check(not wrong, "none under-sealed" if not wrong else "UNDER-SEALED: " + " | ".join(wrong[:5]))
        trial.check(not silent, "each is answered" if not silent else "not answered: " + ", ".join(silent[:5]))


@case(125, "a program that waits for the next stage, and an earlier one", seconds=90)
def stages(trial):
    """The compile stage of one primed cell cannot reach the interpreter that waits there for the run stage."""
    victim = subprocess.Popen(["sleep", "60"])
    with open("/proc/%d/mem" % victim.pid, "rb+", 0) as memory:
        trial.control(memory.writable(), "a sibling's memory is opened outside")
    victim.kill()
    victim.wait()
    with Service(trial, CONFIG + "[compile_cache]\nsize = 0\n") as server:
        answer = ready(server, "typescript", "const a: number = 6; console.log(a * 7)", "primed")
        trial.check(start_of(answer) == "primed" and answer.text == "42\n", "two stages, both primed: %s" % start_of(answer))
        again = server.run(language="typescript", code="import * as fs from 'fs'; console.log('pids=' + fs.readdirSync('/proc').filter(n => /^[0-9]+$/.test(n)).length)")
        trial.check(int(again.probes.get("pids", "9")) <= 2, "%s processes are in the cell of the second" % again.probes.get("pids", again))
