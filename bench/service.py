"""The cases of `hotcell serve`: what it adds to a run, how many runs 32 clients get, its memory, and its HTTP alone.

Each case starts private servers (bench/server.py) and asks them with bench/clients.c over connections that are kept.
Contenders take turns: in blocks of a few requests where single runs are timed, in slices of a few seconds where runs
are counted.
"""

import collections
import contextlib
import json
import os
import re
import resource
import shutil
import subprocess
import tempfile
import time

import report
from contenders import SEARCH, progress
from server import NoServer, Server, file_system_of

CASES = ("server-adds", "server-load", "server-memory", "server-http")
DISK, MEMORY = "/var/tmp", "/dev/shm"
BLOCK, PAUSE_US = 10, 10000
CLIENTS = 32
SYNC_BYTES = 32768
WARM_UP = 300  # runs, by which SQLite's log has its full size and is written over: a file that grows is slower to sync
BETWEEN = 0.5  # seconds between two slices, so that what the kernel still clears up falls on nobody else
SUCCESS = '"success":true'
TRUE = {"command": ["/bin/true"]}
PRINT = {"language": "python", "code": "print(42)"}
NODE = """require("http").createServer((request, reply) => reply.end("ok\\n"))
    .listen(0, "127.0.0.1", function () { console.log(this.address().port) })"""

NOTES = {
    "adds": f"""
        One client on one connection over loopback, with a pause of {PAUSE_US // 1000} ms before each run. Subtracted is
        `timing.total_ms` less `timing.queue_ms` of the same result; what is left is HTTP, JSON, the plan, the record on
        disk before the answer, and the client. The server has had {WARM_UP} runs before. GET /healthz is a whole round
        trip without a run. The last row is what a commit asks of the disk, by itself: {SYNC_BYTES >> 10} KiB written
        over others, and fdatasync.""",
    "run": "The same runs. Inside: from the beginning of the drive to its end.",
    "load": f"""
        bare: {CLIENTS} processes that start the program again and again. hotcell serve: {CLIENTS} clients that ask
        again and again, with `server.concurrent = {CLIENTS}`, so that as many run at once as do bare. The last row is a
        server with twice as many at once as there are processors; the other clients wait in its queue. bare is
        measured twice in each turn: how far its ratio to itself is from 1 is the noise. The same holds for the next
        cases.""",
    "memory": f"""
        The runs are of python print(42), {CLIENTS} clients at a time; the rest after them is longer than the minute for
        which a run that is over is remembered. RSS counts the pages of shared libraries in full, PSS shares them out
        among all processes that map them.""",
    "http": """
        GET /healthz of hotcell serve, whose gateway has one thread for HTTP. For a measure: a server in node that
        answers "ok" to everything, one thread as well. wrk has one thread.""",
}
NOTES = {name: " ".join(text.split()) for name, text in NOTES.items()}


class Service:
    """`compile`: makes a program of one of bench's sources. `environment`: of what runs bare."""

    def __init__(self, options, compile_source, environment):
        self.options, self.environment = options, environment
        self.compile = compile_source
        self.steps = {"server-adds": self.adds, "server-load": self.load, "server-memory": self.memory,
                      "server-http": self.http}

    def cases(self, name):
        """The cases of one step. Where there can be no server, one that says why."""
        try:
            return self.steps[name]()
        except NoServer as failure:
            case = report.Case(name, "hotcell serve", "–", "–")
            case.lacks("hotcell serve", str(failure))
            return [case]

    def server(self, concurrent, parent=DISK):
        return Server(self.options.hotcell, parent, concurrent)

    def command(self, program, *words):
        """The lines that a program printed, and why it failed, if it did."""
        done = subprocess.run([program, *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              env=self.environment, check=False)
        if done.returncode == 0:
            return done.stdout.splitlines(), None
        before, _, said = done.stdout.rpartition("fail ")
        return before.splitlines(), " ".join((said or f"exit status {done.returncode}: {done.stderr}").split())[:300]

    # What the server adds.

    def adds(self):
        clients = self.compile("clients.c")
        adds = report.Case("server-adds", "what the server adds: a client's time less what the run took inside", "ms",
                           "/bin/true", note=NOTES["adds"])
        whole = report.Case("server-run", "a run through the server, as its client sees it", "ms", "/bin/true",
                            note=NOTES["run"])
        with contextlib.ExitStack() as stack:
            disk = stack.enter_context(self.server(0))
            blocks = {"/bin/true": (disk, TRUE), "python print(42)": (disk, PRINT), "GET /healthz": (disk, None)}
            try:
                if file_system_of(MEMORY) != "tmpfs":
                    raise NoServer(f"{MEMORY} is not a tmpfs")
                memory = stack.enter_context(self.server(0, MEMORY))
                blocks |= {f"{label}, history in memory": (memory, blocks[label][1])
                           for label in ("/bin/true", "python print(42)")}
            except (OSError, NoServer) as failure:
                adds.lacks("history in memory", str(failure))
            for server in {server for server, _ in blocks.values()}:
                self.command(clients, "-c", CLIENTS, "-n", WARM_UP, server.port, "POST", "/v1/runs", json.dumps(TRUE))
            sync = stack.enter_context(tempfile.TemporaryFile(dir=disk.folder))
            sync_time(sync)
            count = max(1, self.options.rounds // 3)
            progress(f"server-adds: {', '.join(blocks)}; {count} blocks of {BLOCK}; history on {disk.file_system}")
            added, taken = collections.defaultdict(list), collections.defaultdict(list)
            for _ in range(count):
                for label, (server, body) in blocks.items():
                    self.block(clients, label, server.port, body, added, taken, adds)
                added["write and fdatasync"] += [sync_time(sync) for _ in range(BLOCK)]
        for label, values in added.items():
            adds.add(label, values)
        for label, values in taken.items():
            whole.add(label, values)
        for label in ("/bin/true", "python print(42)"):
            adds.target_value(label, 1.0)
        return [adds, whole]

    def block(self, clients, label, port, body, added, taken, case):
        """One block of requests on a connection of its own; the first is for warming up."""
        ask = ["POST", "/v1/runs", json.dumps(body)] if body else ["GET", "/healthz"]
        words = ["-w", SUCCESS] if body else []
        lines, failure = self.command(clients, "-n", BLOCK + 1, "-g", PAUSE_US, *words, port, *ask)
        if failure:
            case.failures.setdefault(label, []).append(failure)
        for line in lines[1:]:
            _, nanoseconds, text = line.split(" ", 2)
            milliseconds = int(nanoseconds) / 1e6
            if body is None:
                added[label].append(milliseconds)
                continue
            timing = json.loads(text)["timing"]
            inside = timing["total_ms"] - timing["queue_ms"]
            added[label].append(milliseconds - inside)
            taken[label].append(milliseconds)
            taken[f"{label}, inside"].append(inside)

    # Many clients.

    def load(self):
        loops, clients = self.compile("loops.c"), self.compile("clients.c")
        turns = perl_turns(self.environment)
        work = f"my $x = 0; $x += $_ for 1..{turns}"
        programs = {
            "true": ("/bin/true", ["/bin/true"], TRUE),
            "python": ("python print(42)", ["/usr/bin/python3", "-c", "print(42)"], PRINT),
            "cpu": ("50 ms of CPU", ["/usr/bin/perl", "-e", work], {"command": ["/usr/bin/perl", "-e", work]}),
            "sleep": ("a sleep of 100 ms", ["/bin/sleep", "0.1"], {"command": ["/bin/sleep", "0.1"]}),
        }
        few = 2 * len(os.sched_getaffinity(0))
        with self.server(CLIENTS) as many, self.server(few) as narrow:
            cases = [self.load_of(f"server-load-{name}", *program, loops, clients, many, narrow, few)
                     for name, program in programs.items()]
        cases[0].note = NOTES["load"]
        return cases

    def load_of(self, name, title, argv, body, loops, clients, many, narrow, few):
        case = report.Case(name, f"{title}: runs a second for {CLIENTS} clients", "runs/s", "bare", True)
        ask = ["-c", CLIENTS, "-s", self.options.slice, "-w", SUCCESS]
        post = ["POST", "/v1/runs", json.dumps(body)]
        contenders = {
            "bare": [loops, CLIENTS, self.options.slice, *argv],
            "hotcell serve": [clients, *ask, many.port, *post],
            "bare again": [loops, CLIENTS, self.options.slice, *argv],
            f"hotcell serve, {few} at once": [clients, *ask, narrow.port, *post],
        }
        progress(f"{name}: {', '.join(contenders)}; {self.options.slices} slices of {self.options.slice:g} s")
        rates = collections.defaultdict(list)
        for _ in range(self.options.slices):
            for label, words in contenders.items():
                time.sleep(BETWEEN)
                lines, failure = self.command(*words)
                if failure:
                    case.failures.setdefault(label, []).append(failure)
                    continue
                runs, nanoseconds = map(int, lines[-1].split()[1:])
                rates[label].append(runs / (nanoseconds / 1e9))
        for label, taken in rates.items():
            case.add(label, taken)
        case.target_at_least("hotcell serve", 1.0, "bare")
        return case

    # Memory.

    def memory(self):
        clients = self.compile("clients.c")
        runs, rest = self.options.memory_runs, self.options.rest
        total = f"all, RSS, after {runs} runs and a rest"
        case = report.Case("server-memory", "memory of an idle server", "MiB", "all, RSS, after start",
                           note=NOTES["memory"])
        with self.server(CLIENTS) as server:
            time.sleep(2)
            self.memory_rows(case, server, "after start", True)
            progress(f"server-memory: {runs} runs, then a rest of {rest} s")
            ask = ["POST", "/v1/runs", json.dumps(PRINT)]
            _, failure = self.command(clients, "-c", CLIENTS, "-n", runs, "-w", SUCCESS, server.port, *ask)
            if failure:
                case.failures["hotcell serve"] = [failure]
            self.memory_rows(case, server, f"at once after {runs} runs", False)
            time.sleep(rest)
            self.memory_rows(case, server, f"after {runs} runs and a rest", True)
        case.target_value(total, 16.0)
        return [case]

    @staticmethod
    def memory_rows(case, server, when, each):
        samples = []
        for _ in range(5):
            samples.append(server.memory())
            time.sleep(0.1)
        for kind in ("rss", "pss"):
            for part in samples[0] if each else ():
                case.add(f"{part}, {kind.upper()}, {when}", [sample[part][kind] for sample in samples])
            case.add(f"all, {kind.upper()}, {when}",
                     [sum(part[kind] for part in sample.values()) for sample in samples])

    # HTTP alone.

    def http(self):
        case = report.Case("server-http", f"requests a second on {CLIENTS} connections, by wrk", "requests/s",
                           "hotcell serve", True, NOTES["http"])
        wrk = shutil.which("wrk", path=SEARCH)
        if wrk is None:
            case.lacks("hotcell serve", "wrk is not installed")
            return [case]
        with contextlib.ExitStack() as stack:
            urls = {"hotcell serve": f"http://127.0.0.1:{stack.enter_context(self.server(0)).port}/healthz"}
            try:
                urls["node"] = f"http://127.0.0.1:{stack.enter_context(node_server())}/"
            except NoServer as failure:
                case.lacks("node", str(failure))
            progress(f"server-http: {', '.join(urls)}; {self.options.slices} slices of {self.options.slice:g} s")
            rates = collections.defaultdict(list)
            for _ in range(self.options.slices):
                for label, url in urls.items():
                    time.sleep(BETWEEN)
                    lines, _ = self.command(wrk, "-t1", f"-c{CLIENTS}", f"-d{max(1, round(self.options.slice))}s", url)
                    self.wrk_rate(case, label, "\n".join(lines), rates)
        for label, taken in rates.items():
            case.add(label, taken)
        return [case]

    @staticmethod
    def wrk_rate(case, label, said, rates):
        rate = re.search(r"^Requests/sec:\s+([\d.]+)", said, re.M)
        wrong = re.search(r"(Non-2xx or 3xx responses: .*|Socket errors: .*)", said)
        if rate is None or wrong:
            case.failures.setdefault(label, []).append(wrong[0] if wrong else said[-300:])
        else:
            rates[label].append(float(rate[1]))


def sync_time(stream):
    """Milliseconds that the disk takes for a write over what is there, and fdatasync."""
    block = os.urandom(SYNC_BYTES)
    begun = time.perf_counter_ns()
    os.pwrite(stream.fileno(), block, 0)
    os.fdatasync(stream.fileno())
    return (time.perf_counter_ns() - begun) / 1e6


def perl_turns(environment):
    """How many turns of a loop are 50 ms of CPU here, with perl's start."""
    def cost(turns):
        def once():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(["/usr/bin/perl", "-e", f"my $x = 0; $x += $_ for 1..{turns}"], env=environment, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return min(once() for _ in range(5))

    start, sample = cost(1), 1000000
    return round(sample * (0.050 - start) / (cost(sample) - start))


@contextlib.contextmanager
def node_server():
    program = shutil.which("node", path=SEARCH)
    if program is None:
        raise NoServer("not installed")
    process = subprocess.Popen([program, "-e", NODE], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        port = process.stdout.readline()
        if not port:
            raise NoServer("it does not start")
        yield int(port)
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
