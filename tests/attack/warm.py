"""The same attacks on programs that were started ahead. In these rows every `hotcell run` of a case goes to a private server, as a program in a
language whose interpreter waits there. Its one act is to exec the attack program: the process stays the one that the server started
ahead, with its seal, its pid, its fds and its namespaces. A row passes only if every result says that it was started so.

What differs between warm and cold can only be about seals, fds, namespaces, /proc, memory, uids, limits and what is left over. What is about
time beside a neighbour, or about whoever reads the answer, is not tried again.
"""

import time

from service import Service
from suite import SLOW, CASES, Stop

# Python's own settings and the signals that it ignores are not what the cold program has.
BY_PYTHON = """
import os, signal, sys
for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONHASHSEED"):
    os.environ.pop(name)
for number in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_DFL)
try:
    os.execvp(sys.argv[1], sys.argv[1:])
except OSError as error:
    sys.exit("%s: %s" % (sys.argv[1], error.strerror))
"""
BY_NODE = "process.env.ENTER = process.argv.slice(2).join('\\x1f'); process.dlopen({exports: {}}, '/workspace/libenter.so')"

# With these a request is for another cell or another interpreter than the one that waits in its cell, and starts cold.
UNLIKE = ("--disk", "--inodes", "--memory", "--files-open")

MODES = {
    "warm": {"offset": 1000, "language": "python", "start": "python/common", "code": BY_PYTHON, "files": [], "unlike": (),
             "numbers": [*range(1, 12), *range(13, 37), *range(38, 45), 47, 48, 50, *range(52, 58), 59, *range(60, 65), *range(66, 72)]},
    "primed": {"offset": 2000, "language": "javascript", "start": "javascript", "code": BY_NODE, "files": ["libenter.so"], "unlike": UNLIKE,
               "numbers": [1, 3, 4, 9, 10, 13, 14, 15, 16, 17, 20, 21, *range(22, 26), 28, 29, 30, *range(33, 37), 40, 43, 56, 61, 62,
                           64, 66, 69]},
}


def entries():
    """Rows of their own, by the numbers of the cold ones and 1000 or 2000."""
    found = []
    for mode, how in MODES.items():
        for entry in CASES:
            if entry["number"] in how["numbers"]:
                found.append(dict(entry, number=entry["number"] + how["offset"], name=entry["name"] + ", " + mode, mode=mode,
                                  seconds=entry["seconds"] + int(90 * SLOW)))
    return found


class Warm:
    """The server of such a row."""

    def __init__(self, trial, mode):
        self.trial, self.mode, self.how = trial, mode, MODES[mode]
        self.starts, self.expected = [], []
        self.service = Service(trial, '[warm]\nstart = ["%s"]\nprimed_min = 2\n[pool]\nmin = 1\n' % self.how["start"], name="warm")
        trial.watch.serving = True
        self.service.start()
        trial.warm = self
        deadline = time.monotonic() + 30 * SLOW
        while self.first() != mode:
            if time.monotonic() > deadline:
                raise Stop("nothing waits for programs: " + self.service.words_of_log()[-200:])
            time.sleep(0.05)

    def first(self):
        run = self.trial.cell("--", "/bin/true")
        if not run.result:
            raise Stop("the server does not run programs: %s" % run)
        self.starts.clear()
        self.expected.clear()
        return run.result["timing"]["start"]

    def line(self, words):
        """The words of `hotcell run`, for this server: what would be the command is started by the interpreter."""
        line = ["--server", "unix:" + self.service.socket]
        for name in self.how["files"]:
            line += ["--file", self.trial.program(name)]
        other = any(word in self.how["unlike"] or word.startswith("--read-only") for word in words) or "--" not in words
        self.expected.append(self.mode if self.mode == "warm" or not other else None)
        if "--" not in words:
            return line + list(words)  # it is a program in a language already
        at = words.index("--")
        return line + list(words[:at]) + ["-l", self.how["language"], "-c", self.how["code"]] + list(words[at + 1:])

    def await_one(self):
        """One waits, or a zygote is there: what has just been used is replaced in a moment. The figure may be a little old."""
        deadline = time.monotonic() + 40 * SLOW  # what waits boots with the least weight there is
        seen, times = 0, 1 if self.mode == "warm" else 3
        while seen < times and time.monotonic() < deadline:
            pool = self.service.get("/v1/stats", unix=True).json.get("pool", {})
            seen = seen + 1 if pool.get("zygotes" if self.mode == "warm" else "primed") else 0
            if seen < times:
                time.sleep(0.08 if seen else 0.02)

    def heard(self, run):
        if run.result and "timing" in run.result:
            self.starts.append(run.result["timing"]["start"])
        elif self.mode in self.expected:
            self.expected.remove(self.mode)  # its client was killed, and nobody knows

    def stop(self):
        """What the server says of itself is checked like everything else."""
        trial = self.trial
        wanted, got = self.expected.count(self.mode), self.starts.count(self.mode)
        trial.check(0 < wanted <= got, "%d of %d runs %s" % (got, len(self.starts), self.mode))
        code = self.service.stop()
        trial.check(code == 0, "the server stops" if code == 0 else "the server does not stop: %s" % code)
        trial.warm, trial.watch.serving = None, False

