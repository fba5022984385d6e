"""What the cases share: how a program is run in a cell and outside it, and how a verdict comes about.

A case is a function with the decorator @case(number, name). It gets a Trial, and says what it found with two words:

    trial.control(condition, text)   the attack works where there is no cell (or without the one layer that stops it)
    trial.check(condition, text)     what holds inside the cell

A case passes when it has at least one of each, all of them are true, every canary is as it was, nothing is left over, and the next
run works. A control that is false makes the verdict `void`: the case proved nothing. That counts as a failure.
"""

import base64
import json
import os
import resource
import subprocess
import threading
import time

CASES = []
SLOW = float(os.environ.get("HOTCELL_SLOW", "1"))  # how many times slower than a real machine this one is


class Stop(Exception):
    """A check failed in such a way that the rest of the case makes no sense."""


# A root of its own in memory, which a control may spoil. The new root has no shell, so coreutils' chroot enters it with the program.
THROWAWAY_ROOT = """
set -e
mount -t tmpfs none "$ROOM"
cd "$ROOM"
mkdir -p usr/bin/empty etc dev/shm tmp var/tmp run home root proc sealed workspace
echo env > usr/bin/env
echo passwd > etc/passwd
mount -t tmpfs -o ro none sealed
mount -t proc none proc
cp "$1" workspace/program
shift
exec chroot . /workspace/program "$@"
"""


def case(number, name, seconds=60, alone=False, later=False):
    """seconds: what it may take at most. alone: it measures, so nothing runs beside it. later: hotcell itself is killed or crippled, so what it leaves may
    wait for the next start."""
    def add(function):
        CASES.append({"number": number, "name": name, "function": function, "seconds": int(seconds * SLOW), "alone": alone, "later": later,
                      "module": function.__module__})
        return function
    return add


def probes(text):
    """The `name=value` lines of an attack program. A name that comes twice keeps the last value."""
    found = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and " " not in name:
            found[name] = value
    return found


class Run:
    """What became of one command: raw bytes, and for `hotcell run --json` the result object."""

    def __init__(self, code, out, err, seconds, peak):
        self.code, self.out, self.err, self.seconds, self.peak = code, out, err, seconds, peak
        self.result = None
        try:
            self.result = json.loads(out)
        except ValueError:
            pass
        if not isinstance(self.result, dict):
            self.result = None

    def _stream(self, name):
        if not self.result or self.result.get(name) is None:
            return b""
        text = self.result[name]
        return base64.b64decode(text) if self.result.get("output_encoding") == "base64" else text.encode()

    @property
    def bytes(self):
        """The program's own stdout."""
        return self._stream("stdout") if self.result else self.out

    @property
    def text(self):
        return self.bytes.decode(errors="replace")

    @property
    def errors(self):
        return (self._stream("stderr") if self.result else self.err).decode(errors="replace")

    @property
    def status(self):
        return self.result.get("status") if self.result else None

    @property
    def probes(self):
        return probes(self.text)

    def __str__(self):
        return "exit %s, status %s: %s %s" % (self.code, self.status, self.text[-160:].strip(),
                                              self.err.decode(errors="replace")[-300:].strip())


def memory_peak(pid):
    """The most that this process had at one time, in bytes. (What wait4 says counts the memory of whoever started it.)"""
    try:
        with open("/proc/%d/status" % pid) as file:
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM")), 0)
    except OSError:
        return 0


def fetch(process, seconds, stdin=None, reader=None):
    """Feed, read and wait for a process with a deadline. Returns code, out, err, peak memory; code None means that it had to be killed."""
    chunks = {"out": [], "err": []}

    def drain(stream, into):
        while True:
            block = stream.read1(1 << 20)
            if not block:
                return
            if reader:
                reader(into, block)
            else:
                chunks[into].append(block)

    def feed():
        try:
            process.stdin.write(stdin)
            process.stdin.close()
        except (BrokenPipeError, OSError):
            pass

    threads = [threading.Thread(target=drain, args=(process.stdout, "out"), daemon=True),
               threading.Thread(target=drain, args=(process.stderr, "err"), daemon=True)]
    if stdin is not None:
        threads.append(threading.Thread(target=feed, daemon=True))
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds * SLOW
    peak, pause = 0, 0.001
    while (code := process.poll()) is None and time.monotonic() < deadline:
        peak = max(peak, memory_peak(process.pid))
        time.sleep(pause)
        pause = min(pause * 1.5, 0.01)
    if code is None:
        process.kill()
        process.wait()
    for thread in threads[:2]:
        thread.join(max(0.5, deadline - time.monotonic()) if code is not None else 0.5)
    return code, b"".join(chunks["out"]), b"".join(chunks["err"]), peak


class Trial:
    def __init__(self, number, name, hotcell, programs, watch, folder):
        self.number, self.name = number, name
        self.hotcell, self.programs, self.watch, self.folder = hotcell, programs, watch, folder
        self.controls, self.checks = [], []
        self.warm = None  # a server on which the runs of this row are started ahead: warm.py
        self.environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": folder + "/home", "LANG": "C.UTF-8",
            "XDG_CONFIG_HOME": folder + "/home/config", "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", folder + "/cache"),
            "HOTCELL_ATTACK_SECRET": watch.token, "HOTCELL_CLIENT_LOCAL_SERVER": "false",
        }
        os.makedirs(folder + "/home", exist_ok=True)

    # ---- what was found ----

    def control(self, condition, text):
        self.controls.append((bool(condition), text))
        return bool(condition)

    def check(self, condition, text):
        self.checks.append((bool(condition), text))
        return bool(condition)

    def need(self, condition, text):
        if not self.check(condition, text):
            raise Stop(text)

    def doors(self, inside, outside, allowed=(), expect=None, names=None):
        """Every door that the control opened must be shut in the cell, and every other as well.

        inside, outside: probes. allowed: names that may be OK inside. expect: the errnos that count as shut (default: any). A door that
        is shut outside too (this kernel lacks it) is demanded to be shut inside but proves nothing.
        """
        names = list(names or outside)
        opened = [name for name in names if outside.get(name) == "OK"]
        self.control(opened, "%d of %d open outside" % (len(opened), len(names)))
        missing = [name for name in names if name not in inside]
        wrong = ["%s=%s" % (name, inside[name]) for name in names if name in inside and name not in allowed
                 and (inside[name] == "OK" or (expect and inside[name] not in expect))]
        self.check(not missing, "all tried inside" if not missing else "not tried inside: " + " ".join(missing[:4]))
        kinds = sorted({inside[name] for name in names if name in inside and name not in allowed})
        self.check(not wrong, "all shut (%s)" % ", ".join(kinds) if not wrong else "OPEN: " + " ".join(wrong[:6]))

    # ---- running ----

    def program(self, name):
        return os.path.join(self.programs, name)

    def start(self, *words, options=(), files=(), env=None, fds=(), json_result=True, **popen):
        """Start `hotcell run` and return the process."""
        line = [self.hotcell, "run"] + (["--json"] if json_result else [])
        for name in files:
            line += ["--file", self.program(name) if "/" not in name else name]
        words = [*options, *words]
        if self.warm:
            words = self.warm.line(words)
        line += words
        popen.setdefault("stdin", subprocess.DEVNULL)
        popen.setdefault("cwd", self.folder)
        return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=dict(self.environment, **(env or {})), pass_fds=fds, **popen)

    def finish(self, process, seconds=40, stdin=None, reader=None, started=None):
        started = started or time.monotonic()
        code, out, err, peak = fetch(process, seconds, stdin, reader)
        run = Run(code, out, err, time.monotonic() - started, peak)
        self.watch.outputs.append(out + err + run.bytes + run.errors.encode(errors="replace"))
        if self.warm:
            self.warm.heard(run)
        if code is None:
            self.check(False, "hotcell did not end within %d s" % seconds)
        return run

    def cell(self, *words, seconds=40, stdin=None, reader=None, **how):
        """`hotcell run --json …` to its end. Its whole output is searched for the secret tokens when the case ends."""
        if self.warm:
            self.warm.await_one()
        started = time.monotonic()
        if stdin is not None:
            how["stdin"] = subprocess.PIPE
        return self.finish(self.start(*words, **how), seconds, stdin, reader, started)

    def inside(self, program, *arguments, options=(), files=(), **how):
        """An attack program in a cell of its own."""
        return self.cell(*options, "--", "./" + program, *arguments, files=[program, *files], **how)

    def outside(self, program, *arguments, wrap=(), seconds=30, cwd=None, stdin=None, env=None, fds=(), limits=None):
        """The same program without a cell. wrap: words that go before it, such as `unshare -m`."""
        words = [program if "/" in program else self.program(program), *map(str, arguments)]

        def prepare():
            for which, value in (limits or {}).items():
                resource.setrlimit(which, (value, value))

        started = time.monotonic()
        process = subprocess.Popen([*wrap, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd or self.scratch(),
                                   stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
                                   env=dict(self.environment, **(env or {})), pass_fds=fds, preexec_fn=prepare if limits else None)
        code, out, err, peak = fetch(process, seconds, stdin)
        return Run(code, out, err, time.monotonic() - started, peak)

    def throwaway(self, program, *arguments, **how):
        """The program as root in new namespaces, in a root that is thrown away with them."""
        room = self.scratch("room")
        return self.outside("/usr/bin/unshare", "-m", "-i", "-u", "-p", "-f", "sh", "-c", THROWAWAY_ROOT, "sh",
                            self.program(program), *arguments, env={"ROOM": room}, **how)

    def scratch(self, name="scratch"):
        path = os.path.join(self.folder, name)
        os.makedirs(path, exist_ok=True)
        return path

    def passes(self):
        """The next run passes."""
        run = self.cell("--", "/bin/echo", "next")
        return run.status == "completed" and run.text == "next\n"

    # ---- the neighbour (outcome P) ----

    def beat(self, count=80):
        run = self.inside("beat", str(count), options=["--timeout", "20"])
        found = run.probes
        if "p95" not in found:
            raise Stop("the neighbour did not run: %s" % run)
        return int(found["p95"])

    def neighbour(self, attack, times=3):
        """Run `attack` (which starts a process and returns it) beside a neighbour; its p95 must not be more than twice what it is alone.

        The machine is shared with other tests, so a bad figure is tried again; one good one shows that the cell holds it back. Where programs are
        started ahead it is the attack alone that counts: groups and limits are the same."""
        if self.warm:
            return self.finish(attack())
        seen = []
        for _ in range(times):  # the last word has the best of them
            alone = max(self.beat(40), 3000)
            process = attack()
            time.sleep(0.3)
            beside = self.beat()
            run = self.finish(process)
            alone = max(alone, self.beat(40))  # others may have come meanwhile
            seen.append("%.1f→%.1f ms" % (alone / 1000, beside / 1000))
            if beside <= 2 * alone:
                break
        self.check(beside <= 2 * alone, "neighbour's p95 " + ", ".join(seen))
        return run


def report(trial, watch, error):
    """The row of the table."""
    controls, checks = trial.controls, trial.checks
    bad_controls = [text for good, text in controls if not good]
    bad_checks = [text for good, text in checks if not good]
    if error and error not in bad_checks:
        bad_checks.append(error)
    if not controls:
        bad_controls.append("there is no control")
    if not checks and not error:
        bad_checks.append("there is no check")
    verdict = "FAILED" if bad_checks else "void" if bad_controls else "passed"
    return {"number": trial.number, "name": trial.name,
            "control": "NOT: " + "; ".join(bad_controls) if bad_controls else "; ".join(dict.fromkeys(t for _, t in controls)),
            "outcome": "NOT: " + "; ".join(bad_checks) if bad_checks else "; ".join(dict.fromkeys(t for _, t in checks)),
            "verdict": verdict}
