#!/usr/bin/python3
"""A server under use and abuse for a long time: nothing may be lost, left behind or grow.

    tests/soak/soak.py                   the short form: some hundred runs, as part of `make test`
    tests/soak/soak.py --runs 100000     what `make soak` does
    tests/soak/soak.py --seed 7          the same order of things again, as far as the machine allows

A private server, a few clients that do everything that clients do (wait, stream, submit and come back, cancel, hang up, read slowly, send half
a request, run out of time, memory and output), and somebody who reads the configuration again and kills the gateway and the warden. There are
two parts, because a process that is killed has no memory to watch: in the first third of the runs gateway and warden are killed again and
again; in the rest they live, and what they hold is measured at pauses in which nothing runs.

What is checked: each answer is what it should be, or excused by a kill at that moment; each accepted asynchronous run ends with a record; at
every pause there is no process, control group, mount, fd or file that was not there at the first one; the resident memory of keeper, warden and
gateway, rested, is in the last tenths what it was in the first tenths of the second part; the history stays within its limit; and when the server has ended,
nothing of it is left, its database is whole, and its audit log verifies.

Ends with a table, and "N passed, M failed". Exit status 1 when something failed.
"""

import argparse
import collections
import contextlib
import http.client
import json
import os
import pathlib
import random
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import threading
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests" / "integration"))
SHORT = 600
FULL = 20000  # from here on there are enough runs for the strict limit on memory
DRIFT = 0.01  # of resident memory, over the second part
SETTLE = 64 << 10  # bytes by which one process alone may be more: the keeper reads its configuration a hundred times, and its allocator comes to rest at the 250th
REST = 65  # seconds after which a server that rests has given back what it kept of runs that are over: they are remembered for a minute
BUSY_MOST = 64 << 20  # resident bytes of the three together while it is busy: 32 MiB of runs that are over, and what they are made of
KEEP_BYTES = 4 << 20
PAUSES = 10
PARTS = ("keeper", "warden", "gateway")


class Wrong(Exception):
    """What a client saw and should not have."""


class Soak:
    """What the threads share."""

    def __init__(self, server, runs, seed):
        self.server, self.runs, self.seed = server, runs, seed
        self.lock = threading.Condition()
        self.done = 0  # runs, of any end
        self.busy = 0  # clients that are in the middle of something
        self.paused = self.over = False
        self.kinds, self.outcomes, self.wrong = collections.Counter(), collections.Counter(), []
        self.kills = []  # when, for the excuses
        self.faults = collections.Counter()

    def note_wrong(self, text):
        with self.lock:
            self.wrong.append(text)
            if len(self.wrong) <= 20:
                print(f"   wrong: {text}"[:600], flush=True)

    def excused(self, begin):
        """Whether a gateway or a warden was killed since then, or just before: what was under way went with it."""
        return any(when > begin - 3 for when in self.kills)

    def pause(self):
        """Clients stop, each where it is done with what it does; then the server has nothing to do."""
        with self.lock:
            self.paused = True
            if not self.lock.wait_for(lambda: self.busy == 0, 180):
                raise Wrong("clients do not come to an end")
        deadline, calm = time.monotonic() + 60, 0
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, http.client.HTTPException):
                stats = self.server.get("/v1/stats", unix=True).json
                # A gateway that has begun, or read its configuration again, asks the languages for their versions, in cells that are nobody's
                # runs, one after the other: it is at rest when it stays so.
                rests = (stats["runs"]["running"] == stats["runs"]["queued"] == 0 and stats["http"]["connections"] <= 1
                         and len(self.server.descendants()) == len(PARTS))
                calm = calm + 1 if rests else 0
                if calm == 16:
                    return
            time.sleep(0.05)
        raise Wrong(f"the server does not come to rest: {stats['runs']}, {stats['http']}, processes {self.server.descendants()}")

    def resume(self):
        with self.lock:
            self.paused = False
            self.lock.notify_all()


# ---- what clients do ----

class Client(threading.Thread):
    def __init__(self, soak, number):
        super().__init__(daemon=True)
        self.soak, self.server = soak, soak.server
        self.random = random.Random(f"{soak.seed} {number}")
        self.number, self.count = number, 0

    def run(self):
        soak = self.soak
        names, weights = [name for name, _ in KINDS], [weight for _, weight in KINDS]
        while True:
            with soak.lock:
                soak.lock.wait_for(lambda: not soak.paused or soak.over)
                if soak.over:
                    return
                soak.busy += 1
            name = self.random.choices(names, weights)[0]
            begin = time.monotonic()
            try:
                outcome = getattr(self, name)()
            except (OSError, http.client.HTTPException, ValueError) as wrong:
                outcome = "cut off"
                if not soak.excused(begin):
                    soak.note_wrong(f"{name}: {type(wrong).__name__}: {wrong}")
            except Wrong as wrong:
                outcome = "wrong"
                if soak.excused(begin):
                    outcome = "excused"
                else:
                    soak.note_wrong(f"{name}: {wrong}")
            with soak.lock:
                soak.busy -= 1
                soak.done += 1
                soak.kinds[name] += 1
                soak.outcomes[outcome] += 1
                soak.lock.notify_all()

    def post(self, fields, **options):
        """A run, waited for. 503 is an answer too: the queue is short on purpose, and a gateway that has just begun has no warden yet."""
        answer = self.server.run(**fields, **options)
        if answer.status == 503:
            if "retry-after" not in answer.headers:
                raise Wrong(f"503 without Retry-After: {answer!r}")
            time.sleep(0.05)
            return None
        if answer.status not in (200, 202):
            raise Wrong(repr(answer))
        return answer.json

    def expect(self, fields, status, **members):
        result = self.post(fields)
        if result is None:
            return "refused"
        if result["status"] != status or any(result[name] != value for name, value in members.items()):
            raise Wrong(f"expected {status} {members}, got {json.dumps(result)[:800]}")
        return status

    def plain(self):
        self.count += 1
        word = f"{self.number}-{self.count}"
        return self.expect({"command": ["/bin/echo", word]}, "completed", stdout=word + "\n")

    def python(self):
        return self.expect({"code": "import sys; print(sum(range(1000))); sys.exit(3)"}, "error", exit_code=3, stdout="499500\n")

    def files(self):
        return self.expect({"command": "cp in.txt out.txt && cat out.txt", "files": {"in.txt": "x" * 2000}, "collect": ["out.txt"]},
                           "completed", stdout="x" * 2000)

    def timeout(self):
        return self.expect({"command": "echo first; while :; do :; done", "limits": {"timeout": 0.2}}, "timeout", stdout="first\n")

    def memory(self):
        return self.expect({"code": "x = b'x' * 10**9", "limits": {"memory": "24m"}}, "oom")

    def flood(self):
        result = self.post({"command": "head -c 3000000 /dev/zero | tr '\\0' y", "limits": {"output": "64k"}})
        if result is None:
            return "refused"
        if result["status"] not in ("output_limit", "completed") or result["truncated"]["stdout"] == 0 or len(result["stdout"]) > 70_000:
            raise Wrong(f"a flood: {result['status']}, {result['truncated']}, {len(result['stdout'])}")
        return result["status"]

    def execute(self):
        name = f"f{self.number}"
        answer = self.server.post("/execute", {"generated_code": f"open('{name}', 'w').write('x'); print(open('{name}').read())", "timeout": 20})
        if answer.status == 503:
            return "refused"
        if answer.json.get("stdout") != "x\n":
            raise Wrong(f"execute: {answer!r}")
        return answer.json["process_status"]

    def streamed(self):
        with self.server.events("/v1/runs", {"command": "echo a; sleep 0.02; echo b"}) as stream:
            if stream.status == 503:
                return "refused"
            events = list(stream)
        if not events or events[-1].name != "result" or events[-1].data["stdout"] != "a\nb\n":
            raise Wrong(f"stream: {events}")
        return "completed"

    def submitted(self, cancel=False):
        """Accepted is accepted: whatever dies meanwhile, there is a record at the end."""
        accepted = self.post({"command": "sleep 20" if cancel else "sleep 0.05; echo done", "async": True})
        if accepted is None:
            return "refused"
        run, deadline = accepted["id"], time.monotonic() + 90
        while time.monotonic() < deadline:
            try:
                if cancel:
                    self.server.delete(f"/v1/runs/{run}")
                answer = self.server.get(f"/v1/runs/{run}?wait=5")
            except (OSError, http.client.HTTPException, ValueError):
                time.sleep(0.1)
                continue
            if answer.status == 404:
                self.soak.note_wrong(f"the accepted run {run} has vanished")  # no kill is an excuse for this
                return "lost"
            if answer.status == 200 and "success" in answer.json:
                return answer.json["status"]
            if answer.status not in (200, 503):
                raise Wrong(repr(answer))
        self.soak.note_wrong(f"the accepted run {run} has no end")
        return "lost"

    def cancelled(self):
        return self.submitted(cancel=True)

    def hang_up(self):
        connection = self.server.connect(within=10)
        connection.request("POST", "/v1/runs", json.dumps({"command": "sleep 20"}), {"Content-Type": "application/json"})
        time.sleep(self.random.uniform(0, 0.1))
        connection.close()
        return "left"

    def slow_reader(self):
        """Asks for much, reads nothing, and leaves after a while."""
        connection = self.server.connect(within=10)
        connection.connect()
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.request("POST", "/v1/runs", json.dumps({"command": "head -c 900000 /dev/zero | tr '\\0' z"}),
                           {"Content-Type": "application/json", "Accept": "text/event-stream"})
        time.sleep(self.random.uniform(0, 1))
        connection.close()
        return "left"

    def slow_sender(self):
        """Half a request, then silence: the server's own deadline ends it, or the client leaves first."""
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=10) as client:
            client.sendall(b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{\"code\":")
            time.sleep(self.random.choice((0.05, 0.3, 1.5)))
        return "left"

    def nonsense(self):
        path, body, status = self.random.choice((("/v1/runs", {"code": 1}, 400), ("/v1/runs", {"command": ["x"], "mounts": [{"host": "/etc"}]}, 400),
                                                 ("/v1/nothing", {}, 404), ("/v1/runs", {"code": "1", "language": "klingon"}, 400)))
        answer = self.server.post(path, body)
        if answer.status not in (status, 503):
            raise Wrong(f"nonsense: {answer!r}")
        return "refused"

    def reader(self):
        for path in ("/v1/runs?limit=20", "/v1/stats", "/metrics", "/v1/languages"):
            answer = self.server.get(path)
            if answer.status not in (200, 503):
                raise Wrong(repr(answer))
        return "read"


KINDS = (("plain", 70), ("python", 5), ("files", 3), ("timeout", 1), ("memory", 1), ("flood", 1), ("execute", 3), ("streamed", 4), ("submitted", 5),
         ("cancelled", 1), ("hang_up", 1), ("slow_reader", 0.5), ("slow_sender", 0.5), ("nonsense", 2), ("reader", 2))


# ---- what the operator and bad luck do ----

CONFIG = f"""[server]
queue = 64
write_time = '2s'
body_time = '1s'
write_backlog = '256k'
drain_time = '5s'
[history]
keep_bytes = {KEEP_BYTES}
[log]
level = 'error'
[limits]
pids = %d
# Nothing in stock: what is there at rest is then known to the last process, group and fd.
[pool]
max = 0
[warm]
enabled = false
[compile_cache]
prepare = false
"""


def trouble(soak, part_one):
    """Kills in the first part, reloads in both, at places spread over the runs; at least some of each, however few runs there are."""
    chance = random.Random(f"{soak.seed} trouble")
    kills = max(3, part_one // 800)
    reloads = max(4, soak.runs // 1000)
    plan = [(part_one * (i + chance.random()) / kills, name) for name in ("gateway", "warden") for i in range(kills)]
    plan += [(soak.runs * (i + chance.random()) / reloads, "reload") for i in range(reloads)]
    for when, what in sorted(plan):
        with soak.lock:
            soak.lock.wait_for(lambda: (soak.done >= when and not soak.paused) or soak.over)  # noqa: B023
            if soak.over:
                return
        if what == "reload":
            soak.server.configure(CONFIG % chance.randint(80, 120))
            soak.server.process.send_signal(signal.SIGHUP)
        else:
            while (pid := soak.server.process_of(f"hotcell-{what}")) is None and not soak.over:  # it has just been killed
                time.sleep(0.01)
            if pid is None:
                return
            soak.kills.append(time.monotonic())
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            soak.kills.append(time.monotonic())
        soak.faults[what] += 1


# ---- what is measured at a pause ----

class Measure:
    """The server at rest."""

    def __init__(self, soak):
        server = soak.server
        self.runs = soak.done
        family = server.descendants()
        self.pids = {"keeper": server.process.pid, "warden": server.process_of("hotcell-warden"),
                     "gateway": server.process_of("hotcell-gateway")}
        self.rss = {name: resident(pid) for name, pid in self.pids.items()}
        self.fds = {name: len(os.listdir(f"/proc/{pid}/fd")) for name, pid in self.pids.items()}
        self.mounts = {name: len(mounts_of(pid, server if name == "keeper" else None)) for name, pid in self.pids.items()}
        self.processes = len(family)
        self.groups = sum(1 for folder in soak.groups_of(family) for _ in os.walk(folder))
        self.history = sum(path.stat().st_size for path in server.state.glob("history.db*"))
        self.files = sorted(path.name for path in server.state.iterdir())
        self.work = len(list((server.state / "workspace").iterdir()))

    def leaks(self, first):
        """What is here and was not at the first pause."""
        for name in PARTS:
            if self.pids[name] == first.pids[name] and self.fds[name] > first.fds[name]:
                yield f"the {name} has {self.fds[name]} fds, and had {first.fds[name]}"
            if self.mounts[name] > first.mounts[name]:
                yield f"the {name} sees {self.mounts[name]} mounts, and saw {first.mounts[name]}"
        if self.processes != first.processes:
            yield f"{self.processes} processes, and there were {first.processes}"
        if self.groups > first.groups:
            yield f"{self.groups} control groups, and there were {first.groups}"
        if self.files != first.files:
            yield f"the state folder has {self.files}, and had {first.files}"


def mounts_of(pid, server=None):
    """The lines of its mountinfo. The keeper shares its namespace with the rest of the machine, other servers of other tests among it: of that,
    what names this server's own folders."""
    lines = pathlib.Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    own = [str(server.state), str(server.folder)] if server else [""]
    return [line for line in lines if any(name in line for name in own)]


def resident(pid):
    """Bytes; the middle of a few looks, because the kernel counts in batches."""
    def look():
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Rss:"):
                return int(line.split()[1]) * 1024
        raise Wrong(f"no resident memory of {pid}")
    return int(statistics.median(look() for _ in range(3)))


def wait_runs(soak, wanted, began):
    """Until so many runs are done, with a line of progress now and then."""
    shown = time.monotonic()
    while True:
        with soak.lock:
            if soak.lock.wait_for(lambda: soak.done >= wanted, 5):
                return
            done, wrong, before = soak.done, len(soak.wrong), getattr(soak, "seen", -1)
        if done == before and time.monotonic() - soak.moved > 120:
            raise Wrong(f"nothing has moved for two minutes, at run {done}")
        if done != before:
            soak.seen, soak.moved = done, time.monotonic()
        if time.monotonic() - shown >= 10:
            shown = time.monotonic()
            print(f"   {done} of {soak.runs} runs, {done / (shown - began):.0f} a second, "
                  f"{dict(soak.faults)}, {wrong} wrong", flush=True)


def measure(soak, measures, rested):
    soak.pause()
    if rested:
        time.sleep(REST)
        soak.moved = time.monotonic()
    measures.append(Measure(soak))
    measures[-1].rested = rested
    soak.resume()


# ---- the whole ----

class Verdicts:
    def __init__(self):
        self.passed = self.failed = 0

    def add(self, text, faults):
        faults = [faults] if isinstance(faults, str) else list(faults)
        self.passed += not faults
        self.failed += bool(faults)
        print(f"{'ok  ' if not faults else 'FAIL'} {text}" + "".join(f"\n       {fault}"[:600] for fault in faults[:10]), flush=True)


def drift_faults(first, last):
    """The middle of three at each end: what a database holds in memory at a moment differs by more than a hundredth."""
    for name in (*PARTS, "whole"):
        before, after = (statistics.median(sum(each.rss.values()) if name == "whole" else each.rss[name] for each in three) for three in (first, last))
        change = (after - before) / before
        if change >= DRIFT and (name == "whole" or after - before > SETTLE):
            yield f"the {name} grew by {change:.2%}, from {before / 1024:.0f} to {after / 1024:.0f} KiB"


def database_faults(state):
    with contextlib.closing(sqlite3.connect(f"file:{state}/history.db?mode=ro", uri=True)) as database:
        answer = database.execute("PRAGMA integrity_check").fetchone()[0]
        if answer != "ok":
            yield answer
        open_runs = database.execute("SELECT count(*) FROM runs WHERE status IN ('queued', 'running')").fetchone()[0]
        if open_runs:
            yield f"{open_runs} runs have no end"


def audit_faults(program, state):
    done = subprocess.run([program, "audit", "verify", "--state", str(state)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        yield done.stdout + done.stderr


def show(measures):
    print("\n      runs   keeper   warden  gateway   KiB resident   fds          processes  groups  history KiB")
    for each in measures:
        print(f"{each.runs:10}" + "".join(f"{each.rss[name] / 1024:9.0f}" for name in PARTS)
              + "                  " + "/".join(f"{each.fds[name]}" for name in PARTS)
              + f"{each.processes:14}{each.groups:8}{each.history / 1024:13.0f}" + ("   rested" if each.rested else ""))
    print(flush=True)


def play(soak, clients):
    """The two parts. Returns what was measured in the second one."""
    began, part_one, measures = time.monotonic(), soak.runs // 3, []
    soak.seen, soak.moved = -1, began
    threads = [Client(soak, number) for number in range(clients)]
    for thread in [*threads, threading.Thread(target=trouble, args=(soak, part_one), daemon=True)]:
        thread.start()
    wait_runs(soak, part_one, began)
    print(f"== {soak.done} runs with kills; the rest without", flush=True)
    for step in range(1, PAUSES + 1):
        wait_runs(soak, part_one + (soak.runs - part_one) * step // PAUSES, began)
        measure(soak, measures, soak.runs >= FULL)
    with soak.lock:
        soak.over = True
        soak.lock.notify_all()
    for thread in threads:
        thread.join(120)
    seconds = time.monotonic() - began
    print(f"== {soak.done} runs in {seconds:.0f} s, {soak.done / seconds:.0f} a second")
    return measures


def judge(soak, measures, verdicts):
    first = measures[0]
    verdicts.add(f"answers: {dict(soak.outcomes.most_common())}", soak.wrong)
    verdicts.add(f"faults: {dict(soak.faults)}", [] if min(soak.faults[name] for name in ("gateway", "warden", "reload")) >= 3
                 else "there were too few of them")
    verdicts.add("nothing is left at a pause", [f"at run {each.runs}: {leak}" for each in measures[1:] for leak in each.leaks(first)])
    verdicts.add(f"memory stays below {BUSY_MOST >> 20} MiB", [f"{sum(each.rss.values()) >> 20} MiB at run {each.runs}" for each in measures
                                                              if sum(each.rss.values()) > BUSY_MOST])
    if measures[-1].rested:
        verdicts.add(f"memory grows by less than {DRIFT:.0%} from the first tenths to the last", drift_faults(measures[:3], measures[-3:]))
    bound = KEEP_BYTES + (12 << 20)  # what comes in between two looks, and SQLite's log
    verdicts.add("the history stays within its limit", [f"{each.history >> 10} KiB at run {each.runs}" for each in measures
                                                        if each.history > bound])


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=SHORT)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--program", help="default: $HOTCELL, or build/hotcell")
    options = parser.parse_args(arguments)
    if options.program:
        os.environ["HOTCELL"] = str(pathlib.Path(options.program).resolve())
    from server import Server, alive, groups_of  # they look at $HOTCELL
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # so that the server goes as well
    verdicts = Verdicts()
    server = Server(CONFIG % 100)
    mounts = mounts_of("self", server)
    print(f"== soak: {options.runs} runs, {options.clients} clients, seed {options.seed}", flush=True)
    soak = Soak(server, options.runs, options.seed)
    soak.groups_of = groups_of
    try:
        server.start()
        measures = play(soak, options.clients)
        show(measures)
        judge(soak, measures, verdicts)
        family = server.descendants()
        try:
            server.stop()
            verdicts.add("the server ends, and its processes and control groups with it", [])
        except AssertionError as wrong:
            verdicts.add("the server ends, and its processes and control groups with it", str(wrong))
        verdicts.add("no process, mount or socket is left", [f"process {pid}" for pid in family if alive(pid)]
                     + [f"mount {line}" for line in mounts_of("self", server) if line not in mounts]
                     + ([server.unix] if os.path.exists(server.unix) else []))
        verdicts.add("the database is whole, and no run in it is open", database_faults(server.state))
        verdicts.add("the audit log verifies", audit_faults(os.environ.get("HOTCELL", str(SOURCE / "build" / "hotcell")), server.state))
    except (Wrong, AssertionError) as wrong:
        verdicts.add("the soak came to its end", f"{wrong}; the server's log ends with {server.log[-10:]}")
    finally:
        server.kill()
        server.remove()
    print(f"{verdicts.passed} passed, {verdicts.failed} failed")
    return 1 if verdicts.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
