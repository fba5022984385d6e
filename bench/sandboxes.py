"""The cases of sandboxes that live on: made, worked in, left idle, filled with files; against docker where it has such.

Requests go over HTTP on connections that are kept, from Python (bench/talk.py); what a command line takes is measured
by bench/launch.c, from the spawn to its end. Within a case all take turns in an order that is shuffled in each round.
"""

import ast
import collections
import contextlib
import json
import os
import random
import statistics
import time

import idle
import report
from contenders import progress
from dockerd import IMAGE
from server import Server, children_of
from talk import Refused, Talk, all_of

CASES = ("sandbox-create", "sandbox-exec", "sandbox-context", "sandbox-idle", "sandbox-files")
WITH_DOCKER = CASES[:2]
DISK, MEMORY = "/var/tmp", "/dev/shm"
ROUTE = "/v1/sandboxes"
TRUE = {"command": ["/bin/true"]}
PAUSE = 0.01
WARM_UP = 2
MANY, CONNECTIONS = 500, 8
REST = 3  # seconds, by which the pool is full again
OWN_LIMIT = 301 << 20
MIB = 1 << 20
SMALL, LARGE = 1 << 10, 100 << 20

NOTES = {
    "create": f"""
        hotcell: POST {ROUTE} and POST …/exec of /bin/true, one after the other on one connection; docker: docker run
        -d of /bin/sleep, then docker exec of /bin/true. What is removed afterwards is not timed. The other rows are the
        parts, and the same by hotcell's own command line.""",
    "exec": """
        hotcell: POST …/exec in a sandbox that stays; docker exec: in a container that stays. For a measure: the same on
        a server whose history, which has an exec before its answer is sent, is in memory and not on disk; by hotcell's
        command line; a call of a shell session; and the bare program.""",
    "context": """
        POST …/contexts/{context}/execute of 1+1, again and again in one context. Its pure evaluation is what the bare
        interpreter takes to parse, compile and evaluate it and to make the text of its value, in a loop; the second row
        is the first less its median. Inside: timing.total_ms of the same answers. GET /healthz is a round trip without
        any work.""",
    "make": """
        POST …/contexts, each in a sandbox in which others were made before; they are deleted outside of the time. bare
        is an interpreter that imports what the set has.""",
    "memory": f"""
        {MANY} sandboxes in which nothing was done yet; the fourth row is after an exec of /bin/true in each. PSS is
        that of their processes, kernel memory what their control groups are charged for; averages are over all of them.
        The kernel does not charge all that it takes: the last rows are by how much the machine's own figures
        ({', '.join(idle.MACHINE)}) and the server's processes grew, shared out among the sandboxes; whatever else the
        machine did meanwhile is in the former.""",
    "many": f"""
        One client with {CONNECTIONS} connections, each of which has one request at a time. Removed: from the first
        DELETE until no process and no control group of any of them is left.""",
    "files": "Bytes that are random, in a sandbox of its own; a file is written over, and is read with one request.",
}
NOTES = {name: " ".join(text.split()) for name, text in NOTES.items()}


class Sandboxes:
    """`bench`: what has the launcher, the contenders and the folder."""

    def __init__(self, bench):
        self.bench, self.options, self.server = bench, bench.options, None
        self.steps = {"sandbox-create": self.create, "sandbox-exec": self.exec, "sandbox-context": self.context,
                      "sandbox-idle": self.idle, "sandbox-files": self.files}

    def cases(self, name):
        if self.server is None:
            self.server = Server(self.options.hotcell, DISK, 0, f"[sandboxes]\nmax = {2 * MANY}\n")
            self.server.start()
        return self.steps[name]()

    def close(self):
        if self.server is not None:
            self.server.stop()
            self.server = None

    # What the cases share.

    def rounds(self, case, steps, count):
        """Does every step once a round. A step returns {row: value}; one that fails is put down, and not timed."""
        progress(f"{case.name}: {'; '.join(steps)}: {count} rounds")
        values = collections.defaultdict(list)
        for turn in range(count + WARM_UP):
            for label in random.sample(list(steps), len(steps)) if turn else steps:  # the first makes the rows' order
                time.sleep(PAUSE)
                try:
                    taken = steps[label]()
                except Refused as failure:
                    case.failures.setdefault(label, []).append(str(failure))
                    continue
                for row, value in taken.items():
                    values[row] += [value] if turn >= WARM_UP else []
        for row, taken in values.items():
            if taken:
                case.add(row, taken)

    def command(self, *argv):
        """(milliseconds, [line]) of a command that was run once."""
        socket = {"HOTCELL_SERVER_SOCKET": os.path.join(self.server.folder, "socket")}
        runs, failures = self.bench.launch({"it": list(argv)}, 1, ["-o"], socket)
        if failures["it"]:
            raise Refused(failures["it"][0])
        nanoseconds, _, lines = runs["it"][0]
        return nanoseconds / 1e6, lines

    def make(self, talk, **fields):
        taken, made = talk.json("POST", ROUTE, fields, (201,))
        return taken, f"{ROUTE}/{made['id']}"

    def docker(self, case, *labels):
        """The client's command line, or None, after the rows have been put down as missing."""
        contender = self.bench.field.all["docker"]
        if contender.reason is None:
            return self.bench.field.docker.client
        for label in labels:
            case.lacks(label, contender.reason)
        return None

    # Created, and the first answer.

    def create(self):
        both = "docker run -d + docker exec"
        case = report.Case("sandbox-create", "from nothing to the first exec's answer", "ms", both,
                           note=NOTES["create"])
        client = self.docker(case, both)
        with Talk(self.server.port) as talk:
            steps = {"hotcell": lambda: self.create_by_http(talk), "hotcell sandbox": self.create_by_command}
            if client is not None:
                steps[both] = lambda: self.create_by_docker(client, both)
            self.rounds(case, steps, self.options.rounds)
        case.target_faster("hotcell", 40, both)
        return [case]

    def create_by_http(self, talk):
        created, path = self.make(talk)
        try:
            first, answer = talk.json("POST", f"{path}/exec", TRUE)
            must_succeed(answer)
        finally:
            talk.ask("DELETE", path, wanted=(204,))
        return {"hotcell": created + first, "hotcell, create alone": created, "hotcell, exec alone": first}

    def create_by_command(self):
        hotcell = self.options.hotcell
        created, lines = self.command(hotcell, "sandbox", "create")
        try:
            first, _ = self.command(hotcell, "sandbox", "exec", lines[0], "--", "/bin/true")
        finally:
            self.command(hotcell, "sandbox", "rm", lines[0])
        return {"hotcell sandbox": created + first}

    def create_by_docker(self, client, label):
        created, lines = self.command(*client, "run", "-d", "--network", "none", IMAGE, "/bin/sleep", "1000000")
        try:
            first, _ = self.command(*client, "exec", lines[0], "/bin/true")
        finally:
            self.command(*client, "rm", "-f", lines[0])
        return {label: created + first, "docker run -d alone": created, "docker exec alone": first}

    # Exec.

    def exec(self):
        case = report.Case("sandbox-exec", "an exec of /bin/true in a sandbox that stays", "ms", "docker exec",
                           note=NOTES["exec"])
        client = self.docker(case, "docker exec")
        with contextlib.ExitStack() as stack:
            talk = stack.enter_context(Talk(self.server.port))
            _, path = self.make(talk)
            memory = stack.enter_context(Talk(stack.enter_context(Server(self.options.hotcell, MEMORY, 0)).port))
            _, in_memory = self.make(memory)
            steps = {
                "hotcell": lambda: {"hotcell": succeed(talk, f"{path}/exec", TRUE)},
                "hotcell, history in memory": lambda: {
                    "hotcell, history in memory": succeed(memory, f"{in_memory}/exec", TRUE)},
                "hotcell, session": lambda: {
                    "hotcell, session": succeed(talk, f"{path}/exec", {"command": "true", "session": "one"})},
                "hotcell sandbox exec": lambda: {"hotcell sandbox exec": self.command(
                    self.options.hotcell, "sandbox", "exec", os.path.basename(path), "--", "/bin/true")[0]},
                "bare": lambda: {"bare": self.command("/bin/true")[0]},
            }
            container = None
            if client is not None:
                _, lines = self.command(*client, "run", "-d", "--network", "none", IMAGE, "/bin/sleep", "1000000")
                container = lines[0]
                steps["docker exec"] = lambda: {"docker exec": self.command(*client, "exec", container, "/bin/true")[0]}
            try:
                self.rounds(case, steps, self.options.rounds)
            finally:
                talk.ask("DELETE", path, wanted=(204,))
                if container is not None:
                    self.command(*client, "rm", "-f", container)
        case.target_faster("hotcell", 20, "docker exec")
        return [case]

    # Contexts.

    def context(self):
        with Talk(self.server.port) as talk:
            _, path = self.make(talk, limits={"memory": "1g"})
            try:
                return [self.evaluate(talk, path), *self.make_contexts(talk, path)]
            finally:
                talk.ask("DELETE", path, wanted=(204,))

    def evaluate(self, talk, path):
        whole, over = "1+1", "1+1, less its pure evaluation"
        case = report.Case("sandbox-context", "1+1 in a python context", "ms", whole, note=NOTES["context"])
        _, context = talk.json("POST", f"{path}/contexts", {"language": "python"}, (201,))
        execute = f"{path}/contexts/{context['id']}/execute"
        pure = pure_evaluation()

        def one():
            taken, answer = talk.json("POST", execute, {"code": "1+1"})
            must_succeed(answer)
            if answer["results"][0]["data"] != "2":
                raise Refused(f"1+1 is {answer['results']}")
            return {whole: taken, over: taken - pure, "1+1, inside": answer["timing"]["total_ms"]}

        steps = {whole: one,
                 "a session's true": lambda: {
                     "a session's true": succeed(talk, f"{path}/exec", {"command": "true", "session": "one"})},
                 "GET /healthz": lambda: {"GET /healthz": talk.ask("GET", "/healthz")[0]}}
        self.rounds(case, steps, self.options.warm_rounds)
        case.add("its pure evaluation", [pure])
        case.target_value(over, 2)
        return case

    def make_contexts(self, talk, path):
        case = report.Case("sandbox-context-make", "making a python context", "ms", "python", note=NOTES["make"])
        sets = {"python": {"language": "python"}, "python, set data": {"language": "python", "preload": "data"}}
        steps, starts = {}, {label: collections.Counter() for label in sets}
        for label, body in sets.items():
            steps[label] = lambda label=label, body=body: make_context(talk, path, label, body, starts[label])
            try:
                for _ in range(10):
                    time.sleep(0.3)
                    steps[label]()
            except Refused as failure:
                case.lacks(label, str(failure)[:300])
                del steps[label]
            starts[label].clear()
        if "python, set data" in steps:
            bare = ["/usr/bin/python3", "-c", "import numpy, pandas"]
            steps["bare, numpy and pandas"] = lambda: {"bare, numpy and pandas": self.command(*bare)[0]}
        self.rounds(case, steps, max(3, self.options.rounds // 2))
        shown = "; ".join(f"{label}: " + ", ".join(f"{count} {kind}" for kind, count in counted.most_common())
                          for label, counted in starts.items() if counted)
        case.note += f" Starts by the server's own account, those of the first rounds included: {shown}."
        return [case]

    # Many that do nothing.

    def idle(self):
        memory = report.Case("sandbox-memory", "what an idle sandbox costs", "MiB", "PSS and kernel memory, average",
                             note=NOTES["memory"])
        many = report.Case("sandbox-many", f"{MANY} sandboxes", "s", "started", note=NOTES["many"])
        values, times = collections.defaultdict(list), collections.defaultdict(list)
        repeats = self.options.slices
        progress(f"sandbox-idle: {MANY} sandboxes on {CONNECTIONS} connections; {repeats} times")
        for _ in range(repeats):
            time.sleep(REST)
            try:
                self.idle_once(values, times)
            except Refused as failure:
                many.failures.setdefault("started", []).append(str(failure))
                self.remove_all()
                break
        for case, measured in ((memory, values), (many, times)):
            for label, taken in measured.items():
                case.add(label, taken)
        memory.target_value("PSS and kernel memory, average", 1.5)
        many.target_value("started", 5)
        return [memory, many]

    def idle_once(self, values, times):
        before, machine = self.server.memory(), idle.machine()
        body = json.dumps({"limits": {"memory": OWN_LIMIT}}).encode()
        taken, answers = all_of(self.server.port, CONNECTIONS, [("POST", ROUTE, body)] * MANY, (201,))
        times["started"].append(taken)
        time.sleep(REST)
        grown, after = (idle.machine() - machine) / MANY / MIB, self.server.memory()
        found = idle.sandboxes_with(self.descendants(), OWN_LIMIT)
        if len(found) != MANY:
            raise Refused(f"{len(found)} control groups of {MANY} sandboxes have been found")
        costs = [idle.cost(group, pids) for group, pids in found.items()]
        values["PSS"] += [pss / MIB for pss, _ in costs]
        values["kernel memory"] += [kernel / MIB for _, kernel in costs]
        values["PSS and kernel memory, average"].append(statistics.mean(map(sum, costs)) / MIB)
        paths = [f"{ROUTE}/{json.loads(answer)['id']}" for answer in answers]
        self.idle_after_exec(found, paths, values, times)
        values["the machine, by each"].append(max(0.0, grown))
        for part in ("gateway", "warden"):
            values[f"{part}'s PSS, by each"].append(max(0.0, after[part]["pss"] - before[part]["pss"]) / MANY)
        begun = time.perf_counter()
        answered, _ = all_of(self.server.port, CONNECTIONS, [("DELETE", path, b"") for path in paths], (204,))
        times["removal, answered"].append(answered)
        wait_until_gone(found)
        times["removed"].append(time.perf_counter() - begun)

    def idle_after_exec(self, found, paths, values, times):
        body = json.dumps(TRUE).encode()
        requests = [("POST", f"{path}/exec", body) for path in paths]
        taken, answers = all_of(self.server.port, CONNECTIONS, requests, (200,))
        for answer in answers:
            must_succeed(json.loads(answer))
        times["an exec of /bin/true in each"].append(taken)
        time.sleep(1)
        costs = [sum(idle.cost(group, pids)) for group, pids in found.items()]
        values["the same, after an exec"].append(statistics.mean(costs) / MIB)

    def descendants(self):
        found, left = [], [self.server.process.pid]
        while left:
            try:
                left += children_of(left[0])
            except OSError:
                pass  # it has ended meanwhile
            found.append(left.pop(0))
        return found

    def remove_all(self):
        with Talk(self.server.port) as talk:
            _, listed = talk.json("GET", ROUTE)
            for one in listed["sandboxes"]:
                talk.ask("DELETE", f"{ROUTE}/{one['id']}", wanted=(204, 404))

    # Files.

    def files(self):
        small = report.Case("sandbox-files", "a file of 1 KiB", "ms", "PUT", note=NOTES["files"])
        large = report.Case("sandbox-files-large", "a file of 100 MiB", "MB/s", "PUT", True)
        with Talk(self.server.port) as talk:
            _, path = self.make(talk, limits={"disk": "300m", "memory": "1g"})
            try:
                for case, size, count in ((small, SMALL, self.options.warm_rounds),
                                          (large, LARGE, max(3, self.options.rounds // 10))):
                    self.transfer(case, talk, f"{path}/files/of-{size}", os.urandom(size), count)
            finally:
                talk.ask("DELETE", path, wanted=(204,))
        return [small, large]

    def transfer(self, case, talk, path, content, count):
        def unit(milliseconds):
            return len(content) / 1e6 / (milliseconds / 1e3) if case.higher_is_better else milliseconds

        def get():
            taken, got = talk.ask("GET", path)
            if bytes(got) != content:
                raise Refused(f"GET {path}: what came back is not what was sent")
            return {"GET": unit(taken)}

        def put():
            return {"PUT": unit(talk.ask("PUT", path, content, (201, 204))[0])}

        put()
        self.rounds(case, {"PUT": put, "GET": get}, count)


def must_succeed(answer):
    if not answer["success"]:
        raise Refused(f"{answer['id']} {answer['status']}: {answer.get('error') or answer.get('diagnosis')}")


def succeed(talk, path, body):
    """Milliseconds of a request whose answer is a result of something that went well."""
    taken, answer = talk.json("POST", path, body)
    must_succeed(answer)
    return taken


def make_context(talk, path, label, body, starts):
    taken, made = talk.json("POST", f"{path}/contexts", body, (201,))
    starts[made["start"]] += 1
    talk.ask("DELETE", f"{path}/contexts/{made['id']}", wanted=(204,))
    return {label: taken}


def pure_evaluation(turns=1000):
    """Milliseconds that this interpreter takes for 1+1, from its text to the text of its value."""
    taken = []
    for _ in range(turns):
        begun = time.perf_counter_ns()
        repr(eval(compile(ast.parse("1+1", mode="eval"), "cell", "eval"), {}))  # pylint: disable=eval-used
        taken.append((time.perf_counter_ns() - begun) / 1e6)
    return statistics.median(taken)


def wait_until_gone(found, patience=60):
    """Until none of {group: [pid]} is left."""
    deadline = time.monotonic() + patience
    left = list(found)
    pids = [pid for pids in found.values() for pid in pids]
    while left or pids:
        left = [group for group in left if os.path.exists(group)]
        pids = [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
        if time.monotonic() > deadline:
            raise Refused(f"{len(left)} control groups and {len(pids)} processes are left after {patience} s")
        time.sleep(0.005)
