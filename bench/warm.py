"""The cases of warm starts: a program that is sent to `hotcell serve` against the same program started by hand.

Requests go over HTTP on a connection that is kept, one at a time, in turn with the bare command and the other sandboxes
(bench/launch.c). The server is a private one with its default configuration and its history on disk. Programs that are
compiled differ in each request by a comment with a number, so that no compiler and no cache has seen them before.
"""

import collections
import json
import os
import shlex
import shutil
import time
import tomllib

import report
from contenders import progress
from server import Server

DISK = "/var/tmp"
CLIENTS, FEW = 32, 4
PAUSE_US = 10000
SUCCESS = '"success":true'
HERE = os.path.dirname(os.path.abspath(__file__))
LANGUAGES = os.path.join(os.path.dirname(HERE), "languages")

GROUP_BY = """import numpy, pandas
frame = pandas.DataFrame({"key": numpy.arange(30) % 3, "value": numpy.arange(30)})
print(frame.groupby("key")["value"].sum().to_dict())"""
TYPESCRIPT = """// @COUNT@
const answer: number = 42;
console.log(answer);
"""
JAVA = """// @COUNT@
public class Main {
    public static void main(String[] words) {
        System.out.println(42);
    }
}
"""
GO = """// @COUNT@
package main

import "fmt"

func main() {
\tfmt.Println(42)
}
"""
C = """// @COUNT@
#include <stdio.h>

int main(void)
{
    puts("42");
}
"""

NOTES = {
    "python": """
        hotcell is a request to the server, hotcell run the command line that finds that server by itself, hotcell run
        --local a cell of its own without it.""",
    "typescript": """
        bare is what a run without a warm start does: the compiler of languages/typescript.toml in node, then node on
        what it made.""",
    "go": "bare is go build with the standard library in its cache, then the program.",
    "c": "bare is gcc with the options of languages/c.toml, then the program.",
    "tail": f"""
        python print(42), asked for again and again without a pause: by one client, and by {FEW} at once. The target is
        for the ninety-ninth percentile against the median of the same row.""",
    "load": f"""
        python print(42). bare is started again and again by as many processes as there are processors, and by
        {CLIENTS}; the target is against the one of these that gets further.""",
}
NOTES = {name: " ".join(text.split()) for name, text in NOTES.items()}


def shell(script, *words):
    return ["/bin/sh", "-c", script, "sh", *words]


def typescript_bare(folder):
    """The commands of the language's own file, one after the other, without what a server has prepared."""
    with open(os.path.join(LANGUAGES, "typescript.toml"), "rb") as source:
        language = tomllib.load(source)
    places = {"{out}": f"{folder}/out", "{dir}": folder, "{cache}": f"{folder}/none", "{sources}": "main.ts",
              "{entry}": "main.ts"}
    lines = []
    for stage in ("compile", "run"):
        words = language[stage]["command"]
        for place, value in places.items():
            words = [word.replace(place, value) for word in words]
        lines.append(shlex.join(words))
    return shell(f'cd "$1" && {lines[0]} && exec {lines[1]}', folder)


def java_bare(folder):
    return ["/usr/bin/java", f"{folder}/Main.java"]


def go_bare(folder):
    return shell('cd "$1" && HOME=$1 GOFLAGS=-buildvcs=false CGO_ENABLED=1 /usr/bin/go build -o x main.go && exec ./x',
                 folder)


def c_bare(folder):
    return shell('cd "$1" && /usr/bin/gcc -std=gnu17 -O2 -pipe -pthread -o x main.c -lm && exec ./x', folder)


class Program:
    """`bare`: the command, or what makes it of a folder in which `file` is. `limit`: of the ratio to it."""

    def __init__(self, title, language, code, bare, limit, needs, file=None, others=()):
        self.title, self.language, self.code, self.bare, self.limit = title, language, code, bare, limit
        self.needs, self.file, self.others = needs, file, others

    def body(self, code=None):
        return json.dumps({"language": self.language, "code": code or self.code})


PYTHON, RUBY, PERL, PHP, NODE, BASH = (f"/usr/bin/{name}" for name in ("python3", "ruby", "perl", "php", "node", "bash"))
BOX = ("bubblewrap",)
PROGRAMS = {
    "python": Program("python print(42)", "python", "print(42)", [PYTHON, "-c", "print(42)"], 0.25, [PYTHON],
                      others=("bubblewrap", "runc", "docker")),
    "data": Program("python with numpy, pandas and a group-by", "python", GROUP_BY, [PYTHON, "-c", GROUP_BY], 0.02,
                    [PYTHON]),
    "ruby": Program("ruby hello", "ruby", "puts 42", [RUBY, "-e", "puts 42"], 0.5, [RUBY], others=BOX),
    "perl": Program("perl hello", "perl", 'print "42\\n"', [PERL, "-e", 'print "42\\n"'], 0.5, [PERL], others=BOX),
    "php": Program("php hello", "php", '<?php echo 42, "\\n";', [PHP, "-r", 'echo 42, "\\n";'], 0.5, [PHP], others=BOX),
    "node": Program("node hello", "javascript", "console.log(42)", [NODE, "-e", "console.log(42)"], 0.35, [NODE],
                    others=BOX),
    "typescript": Program("typescript hello, not seen before", "typescript", TYPESCRIPT, typescript_bare, 0.35,
                          [NODE, "/usr/bin/tsc"], "main.ts"),
    "java": Program("java hello from source, not seen before", "java", JAVA, java_bare, 0.5,
                    ["/usr/bin/java", "/usr/bin/javac"], "Main.java"),
    "go": Program("go hello, not seen before", "go", GO, go_bare, 1.1, ["/usr/bin/go"], "main.go"),
    "c": Program("c hello, not seen before", "c", C, c_bare, 1.25, ["/usr/bin/gcc"], "main.c"),
    "bash": Program("bash echo", "bash", "echo 42", [BASH, "-c", "echo 42"], 1.5, [BASH], others=BOX),
}
CASES = tuple(f"warm-{name}" for name in (*PROGRAMS, "tail", "load"))


class Warm:
    """`bench`: what has the launcher, the contenders and the folder."""

    def __init__(self, bench):
        self.bench, self.options = bench, bench.options
        self.server, self.no_server = None, None

    def cases(self, name):
        what = name.removeprefix("warm-")
        if self.server is None:
            self.server = Server(self.options.hotcell, DISK, 0)
            self.server.start()
        if what == "tail":
            return [self.tail()]
        return [self.load() if what == "load" else self.start(what, PROGRAMS[what])]

    def close(self):
        if self.server is not None:
            self.server.stop()
            self.server = None

    # One program, once.

    def warm_up(self, case, program):
        """Until it is no longer started cold, or it is clear that it always will be. False: it does not run at all."""
        launcher, kinds = self.bench.launcher, []
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and kinds[-3:] != ["warm"] * 3:
            body = program.body(program.code.replace("@COUNT@", f"before {time.monotonic_ns()}"))
            post = ["@post", self.server.port, SUCCESS, body]
            lines, failure = self.bench.service.command(launcher, "-o", "-g", "100000", "1", *post)
            said = next((line.split(" ", 2)[2] for line in lines if line.startswith("out ")), None)
            if said is None:
                case.lacks("hotcell", (failure or " ".join(lines))[:300])
                return False
            kinds.append("warm" if start_of(said) != "cold" else "cold")
            if len(kinds) >= 10 and "warm" not in kinds:
                break
        return True

    def start(self, name, program):
        case = report.Case(f"warm-{name}", program.title, "ms", "bare", note=NOTES.get(name))
        missing = [path for path in program.needs if shutil.which(path) is None]
        if missing:
            case.lacks("bare", f"{', '.join(missing)} is not installed")
        elif self.works(case, program) and self.warm_up(case, program):
            self.measure(case, program, *self.commands(case, name, program))
        case.target_at_most("hotcell", program.limit, "bare")
        if name == "python":
            case.target_faster("hotcell", 60, "docker")
        return case

    def works(self, case, program):
        """Whether the bare program can be run at all: without pandas there is nothing to compare."""
        _, files, bare = self.bare(program)
        lines, failure = self.bench.service.command(self.bench.launcher, *files, "1", *bare)
        wrong = failure or next((line for line in lines if line.startswith("fail")), None)
        if wrong:
            case.lacks("bare", wrong[:300])
        return not wrong

    def bare(self, program):
        """The folder, the launcher's options that put the program there, and the command."""
        if program.file is None:
            return None, [], program.bare
        folder = os.path.join(self.bench.folder, program.language)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "template"), "w", encoding="utf-8") as template:
            template.write(program.code)
        return folder, ["-f", f"{folder}/template:{folder}/{program.file}"], program.bare(folder)

    def commands(self, case, name, program):
        _, files, bare = self.bare(program)
        post = ["@post", str(self.server.port), SUCCESS]
        commands = {"bare": bare, "hotcell": [*post, program.body()]}
        if program.file is not None:
            commands["hotcell, seen before"] = [*post, program.body(program.code.replace("@COUNT@", "the same"))]
        for made in program.others:
            contender = self.bench.field.all[made]
            if contender.reason is None:
                # The others have no /etc/alternatives.
                commands[made] = contender.command(os.path.realpath(bare[0]), *bare[1:])
            else:
                case.lacks(made, contender.reason)
        if name == "python":
            commands["hotcell run"] = [self.options.hotcell, "run", "-c", program.code]
            commands["hotcell run --local"] = [self.options.hotcell, "run", "--local", "-c", program.code]
        return files, commands

    def measure(self, case, program, files, commands):
        rounds, before = self.options.warm_rounds, 3
        progress(f"{case.name}: {', '.join(commands)}; {rounds} rounds")
        socket = {"HOTCELL_SERVER_SOCKET": os.path.join(self.server.folder, "socket")}
        runs, failures = self.bench.launch(commands, rounds + before, ["-o", "-g", str(PAUSE_US), *files], socket)
        case.failures |= {label: [brief(text) for text in said] for label, said in failures.items()}
        kinds = collections.Counter()
        for label, samples in runs.items():
            if len(samples) > before:
                case.add(label, [sample[0] / 1e6 for sample in samples[before:]])
            if label == "hotcell":
                kinds.update(start_of(sample[2][0]) for sample in samples[before:])
        shown = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        case.note = " ".join(filter(None, [case.note, f"Starts of hotcell, by its own account: {shown}."]))

    # Many.

    def tail(self):
        case = report.Case("warm-tail", f"python print(42) without a pause, 1 and {FEW} clients", "ms", "1 client",
                           note=NOTES["tail"])
        clients, program = self.bench.compile("clients.c"), PROGRAMS["python"]
        if not self.warm_up(case, program):
            return case
        ask = ["-w", SUCCESS, self.server.port, "POST", "/v1/runs", program.body()]
        blocks = {"1 client": ["-a", "-c", 1], f"{FEW} clients": ["-a", "-c", FEW]}
        size, count = max(10, self.options.warm_rounds), 5
        progress(f"{case.name}: {', '.join(blocks)}; {count} blocks of {size} answers")
        taken = collections.defaultdict(list)
        for _ in range(count):
            for label, words in blocks.items():
                time.sleep(0.5)
                lines, failure = self.bench.service.command(clients, *words, "-n", size, *ask)
                if failure:
                    case.failures.setdefault(label, []).append(failure)
                taken[label] += [int(line.split()[1]) / 1e6 for line in lines if line.startswith("answer ")]
        for label, values in taken.items():
            case.add(label, values)
        case.target_tail(f"{FEW} clients", 3)
        return case

    def load(self):
        case = report.Case("warm-load", f"python print(42): runs a second for {CLIENTS} clients", "runs/s", "bare", True,
                           NOTES["load"])
        loops, clients, program = self.bench.compile("loops.c"), self.bench.compile("clients.c"), PROGRAMS["python"]
        if not self.warm_up(case, program):
            return case
        cores, slice_time = len(os.sched_getaffinity(0)), self.options.slice
        bare = {f"bare, {width} at once": [loops, width, slice_time, *program.bare] for width in (cores, CLIENTS)}
        post = [self.server.port, "POST", "/v1/runs", program.body()]
        contenders = {**bare, "hotcell": [clients, "-c", CLIENTS, "-s", slice_time, "-w", SUCCESS, *post]}
        progress(f"{case.name}: {', '.join(contenders)}; {self.options.slices} slices of {slice_time:g} s")
        rates = collections.defaultdict(list)
        for _ in range(self.options.slices):
            for label, words in contenders.items():
                time.sleep(1)
                lines, failure = self.bench.service.command(*words)
                if failure:
                    case.failures.setdefault(label, []).append(failure)
                    continue
                runs, nanoseconds = map(int, lines[-1].split()[1:])
                rates[label].append(runs / (nanoseconds / 1e9))
        for label, values in rates.items():
            case.add(label, values)
        case.baseline = max(set(bare) & set(case.rows), key=lambda label: case.rows[label]["p50"], default="bare")
        case.target_at_least("hotcell", 2.5, case.baseline)
        return case


def brief(failure):
    """What became of a run that failed, without the rest of its result."""
    try:
        result = json.loads(failure[failure.index("{"):])
        return f"{result['id']} {result['status']}: {(result['diagnosis'] or {}).get('message')}"
    except (ValueError, KeyError):
        return failure[:300]


def start_of(result):
    return json.loads(result)["timing"]["start"]
