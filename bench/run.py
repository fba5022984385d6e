#!/usr/bin/python3
"""make bench: hotcell against bare programs, bubblewrap, runc and docker; hotcell serve against bare programs;
sandboxes that stay against docker's containers.

All contenders of a case are measured in one interleaved run (bench/launch.c; for the server, bench/service.py; for
sandboxes, bench/sandboxes.py), so a ratio between them means something even where a time does not. The result is a
table on stdout and bench/out/bench.json; `--write-docs` makes docs/BENCHMARKS.md of that file. A missed target is
marked and does not fail the run: a busy machine is not a broken program.
"""

import argparse
import collections
import datetime
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

import breakdown
import course
import plot
import report
import sandboxes
import service
import warm
from contenders import SEARCH, Field, install, progress
from server import NoServer
from talk import Refused

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(HERE)
JSON_PATH = os.path.join(HERE, "out", "bench.json")
DOCS_PATH = os.path.join(TOP, "docs", "BENCHMARKS.md")
PLOT_PATH = os.path.join(TOP, "docs", "benchmarks.svg")
PYTHON = "/usr/bin/python3"
CASES = (*warm.CASES, "true", "python", "cpu", "syscalls", "throughput", *sandboxes.CASES, *service.CASES)
GROUPS = {"warm": warm.CASES, "server": service.CASES, "sandboxes": sandboxes.CASES,
          "cold": ("true", "python", "cpu", "syscalls", "throughput")}
PAUSE_US = 10000
WARM_UP = 3
CALLS = {"getppid": "getppid", "clock_gettime": "clock_gettime", "read": "read of a byte of /dev/zero",
         "stat": "stat of /dev/null", "stat-usr": "stat of a file in /usr, which the loop above leaves out,"}
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": os.environ.get("HOME", "/")}


def compile_program(folder, source, no_install):
    compiler = shutil.which("cc", path=SEARCH) or shutil.which("gcc", path=SEARCH)
    if compiler is None:
        failure = None if no_install else install("gcc", "libc6-dev")
        compiler = shutil.which("gcc", path=SEARCH)
        if compiler is None:
            raise SystemExit(f"bench: no C compiler: {failure or 'install gcc and libc6-dev'}")
    program = os.path.join(folder, os.path.basename(source)[: -len(".c")])
    subprocess.run([compiler, "-std=gnu11", "-O2", "-static", "-o", program, f"{HERE}/{source}"], check=True)
    return program


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.launcher = self.compile("launch.c")
        self.steps = {"true": self.start_true, "python": self.start_python, "cpu": self.processor,
                      "syscalls": self.system_calls, "throughput": self.throughput}
        self.service = service.Service(options, self.compile, ENVIRONMENT)
        self.warm = warm.Warm(self)
        self.sandboxes = sandboxes.Sandboxes(self)
        # These cases have no other sandbox in them, and a docker daemon that idles is not wanted then.
        needed = set(options.cases) - set(service.CASES) - (set(sandboxes.CASES) - set(sandboxes.WITH_DOCKER))
        self.field = Field(options.hotcell, folder, not options.no_install, ENVIRONMENT) if needed else None

    def compile(self, source):
        return compile_program(self.folder, source, self.options.no_install)

    def contenders(self):
        return self.field.all.values() if self.field else ()

    def close(self):
        self.warm.close()
        self.sandboxes.close()
        if self.field:
            self.field.close()

    def launch(self, commands, rounds, options=(), environment=None):
        """Runs {label: command} in turn. Returns {label: [(ns, rss_kib, [output line])]} and {label: [failure]}."""
        labels = list(commands)
        argv = [self.launcher, *options, str(rounds)]
        for index, label in enumerate(labels):
            argv += ([":::"] if index else []) + commands[label]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env={**ENVIRONMENT, **(environment or {})}, cwd=self.folder, check=False)
        if done.returncode != 0:
            raise SystemExit(f"bench: {done.stderr.strip()}")
        runs, failures = {label: [] for label in labels}, collections.defaultdict(list)
        for line in done.stdout.splitlines():
            kind, index, rest = line.split(" ", 2)
            if kind == "run":
                nanoseconds, rss = rest.split()
                runs[labels[int(index)]].append((int(nanoseconds), int(rss), []))
            elif kind == "fail":
                failures[labels[int(index)]].append(rest)
            else:
                runs[labels[int(index)]][-1][2].append(rest)
        return runs, failures

    def working(self, case, commands):
        """Those commands that work; the others are put down as missing, with what they said."""
        for label, command in list(commands.items()):
            tried = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=ENVIRONMENT,
                                   cwd=self.folder, check=False)
            if tried.returncode != 0:
                case.lacks(label, f"exit status {tried.returncode}: {' '.join(tried.stderr.split())}"[:300])
                del commands[label]
        return commands

    def latency(self, case, commands):
        """Start to end, in milliseconds, as a caller sees it. Also returns each contender's peak RSS in MiB."""
        commands = self.working(case, commands)
        progress(f"{case.name}: {', '.join(commands)}; {self.options.rounds} rounds")
        runs, failures = self.launch(commands, self.options.rounds + WARM_UP, ["-g", str(PAUSE_US)])
        case.failures |= failures
        rss = {}
        for label, samples in runs.items():
            if len(samples) <= WARM_UP:
                continue
            case.add(label, [sample[0] / 1e6 for sample in samples[WARM_UP:]])
            rss[label] = [sample[1] / 1024 for sample in samples[WARM_UP:]]
        return rss

    def commands(self, case, names, argv, hotcell_argv):
        """{contender: command} of those that can be had; the others are put down as missing."""
        for name in names:
            if self.field.all[name].reason is not None:
                case.lacks(name, self.field.all[name].reason)
        return {made.name: made.command(*(hotcell_argv if made.name == "hotcell" else argv))
                for made in self.field.available(*names)}

    # The cases.

    def start_true(self):
        case = report.Case("true", "start and end of /bin/true", "ms", "bubblewrap")
        names = ("bare", "hotcell", "bubblewrap", "runc")
        rss = self.latency(case, self.commands(case, names, ["/bin/true"], ["--", "/bin/true"]))
        case.target_at_most("hotcell", 1.0, "bubblewrap")
        memory = report.Case("rss", "peak resident memory of the largest process around /bin/true", "MiB", "bubblewrap")
        for label, values in rss.items():
            memory.add(label, values)
        return [case, memory]

    def start_python(self):
        case = report.Case("python", "cold start of python3 -c 'print(42)'", "ms", "bare")
        names = ("bare", "hotcell", "bubblewrap", "runc", "docker")
        self.latency(case, self.commands(case, names, [PYTHON, "-c", "print(42)"], ["-c", "print(42)"]))
        case.target_at_most("hotcell", 1.4, "bare")
        case.target_faster("hotcell", 8, "docker")
        return [case]

    def guest(self, program, *extra):
        """The command that runs one of bench/guest's programs in hotcell: it goes in as a file of the run."""
        name = os.path.basename(program)
        return self.field.all["hotcell"].command(*extra, "--file", program, "--", "/bin/sh", "-c",
                                                 f"chmod 755 {name} && exec ./{name}")

    def guest_commands(self, case, program, variants):
        """The same program bare, in hotcell (in each of its variants) and in bubblewrap."""
        commands = {"bare": [program]}
        if self.field.available("hotcell"):
            commands |= {label: self.guest(program, *extra) for label, extra in variants.items()}
        else:
            case.lacks("hotcell", self.field.all["hotcell"].reason)
        if self.field.available("bubblewrap"):
            prefix = self.field.all["bubblewrap"].prefix[:-1]
            commands["bubblewrap"] = prefix + ["--ro-bind", program, "/workspace/guest", "--", "/workspace/guest"]
        else:
            case.lacks("bubblewrap", self.field.all["bubblewrap"].reason)
        return commands

    def guest_values(self, case, commands):
        """Runs programs that time themselves: {word: {label: [value]}} from their "WORD VALUE …" lines."""
        commands = self.working(case, commands)
        progress(f"{case.name}: {', '.join(commands)}; {self.options.guest_rounds} rounds")
        values = collections.defaultdict(lambda: collections.defaultdict(list))
        runs, failures = self.launch(commands, self.options.guest_rounds + 1, ["-o", "-g", str(PAUSE_US)])
        case.failures |= failures
        for label, samples in runs.items():
            for _, _, lines in samples[1:]:
                for line in lines:
                    word, value = line.split()[:2]
                    values[word][label].append(float(value))
        return values

    def processor(self):
        case = report.Case("cpu", "a CPU-bound guest, timed by itself", "ms", "bare")
        more = f"hotcell --cpus {max(2, os.cpu_count() or 1)}"
        variants = {"hotcell": [], more: more.split()[1:]}
        values = self.guest_values(case, self.guest_commands(case, self.compile("guest/cpu.c"), variants))
        for label, taken in values["cpu"].items():
            case.add(label, [value / 1e6 for value in taken])
        for label in variants:
            case.target_at_most(label, 1.02, "bare")
        return [case]

    def system_calls(self):
        first = report.Case("syscalls", "a loop of cheap system calls", "ns a call", "bare")
        commands = self.guest_commands(first, self.compile("guest/syscalls.c"), {"hotcell": []})
        values = self.guest_values(first, commands)
        cases = [first]
        for word, by_label in values.items():
            case = first
            if word != "mix":
                case = report.Case(f"syscall-{word}", f"{CALLS[word]} alone", "ns a call", "bare")
                case.missing = first.missing
                cases.append(case)
            for label, taken in by_label.items():
                case.add(label, taken)
        first.target_at_most("hotcell", 1.15, "bare")
        return cases

    def throughput(self):
        width = os.cpu_count() or 1
        case = report.Case("throughput", f"runs of /bin/true a second, {width} at a time", "runs/s", "bubblewrap", True)
        commands = self.commands(case, ("bare", "hotcell", "bubblewrap"), ["/bin/true"], ["--", "/bin/true"])
        commands = self.working(case, commands)
        blocks, size = 5, max(20, self.options.rounds)
        progress(f"throughput: {', '.join(commands)}; {blocks} blocks of {size} runs")
        rates = collections.defaultdict(list)
        for _ in range(blocks):
            for label, command in commands.items():
                argv = [self.launcher, "-p", str(width), str(size), *command]
                done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=ENVIRONMENT,
                                      check=False)
                if done.returncode != 0:
                    case.failures.setdefault(label, []).append(done.stdout.strip() or done.stderr.strip())
                    continue
                rates[label].append(size / (int(done.stdout.split()[1]) / 1e9))
        for label, taken in rates.items():
            case.add(label, taken)
        return [case]

    def all_cases(self):
        """Those without docker come last, when the docker daemon of the others has gone."""
        cases = []
        for name in self.options.cases:
            if name in warm.CASES:
                cases += having_server(self.warm, name, "warm starts")
        self.warm.close()
        for name in self.options.cases:
            if name in self.steps:
                cases += self.steps[name]()
        with_docker = [name for name in self.options.cases if name in sandboxes.WITH_DOCKER]
        for name in with_docker:
            cases += having_server(self.sandboxes, name, "sandboxes")
        self.close()
        for name in self.options.cases:
            if name in sandboxes.CASES and name not in with_docker:
                cases += having_server(self.sandboxes, name, "sandboxes")
        self.sandboxes.close()
        for name in self.options.cases:
            if name in service.CASES:
                cases += self.service.cases(name)
        return cases


def having_server(group, name, title):
    """The cases of one step of a group. Where there can be no server, or it refuses to begin, one that says why."""
    try:
        return group.cases(name)
    except (NoServer, Refused) as failure:
        case = report.Case(name, title, "–", "–")
        case.lacks("hotcell", str(failure))
        return [case]


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*",
                        help=f"{', '.join(CASES)}; {', '.join(GROUPS)} for all of a kind; default: all")
    parser.add_argument("--hotcell", default=os.environ.get("HOTCELL", os.path.join(TOP, "build", "hotcell")),
                        help="the program to measure (default: $HOTCELL, then build/hotcell)")
    parser.add_argument("--rounds", type=int, default=60, help="rounds of the cases that time whole runs")
    parser.add_argument("--warm-rounds", type=int, default=200, help="rounds of the cases of warm starts")
    parser.add_argument("--guest-rounds", type=int, default=9, help="rounds of the programs that time themselves")
    parser.add_argument("--slices", type=int, default=5, help="slices of the server's cases that count runs")
    parser.add_argument("--slice", type=float, default=3, help="seconds of a slice")
    parser.add_argument("--memory-runs", type=int, default=1000, help="runs between two looks at the server's memory")
    # A run that is over is remembered for a minute; after it the server has nothing to hold.
    parser.add_argument("--rest", type=float, default=75, help="seconds of rest after them")
    parser.add_argument("--quick", action="store_true", help="few and short rounds: to see that it works, not how fast")
    parser.add_argument("--no-install", action="store_true", help="install nothing; list what is missing")
    parser.add_argument("--output", default=JSON_PATH, help="where the JSON file goes")
    parser.add_argument("--write-docs", action="store_true",
                        help="write docs/BENCHMARKS.md and its plot from the file, then stop")
    parser.add_argument("--trace", action="store_true", help="show where the time of a cold run goes, then stop")
    parser.add_argument("--trace-warm", action="store_true",
                        help="show where the time of a warm run goes, then stop; of warm-python, or of the case named")
    options = parser.parse_args(argv)
    if options.quick:
        options.rounds, options.guest_rounds, options.warm_rounds = 3, 2, 10
        options.slices, options.slice, options.memory_runs, options.rest = 1, 1, 50, 3
    options.cases = [name for word in options.cases for name in GROUPS.get(word, (word,))]
    unknown = set(options.cases) - set(CASES)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    if options.trace_warm:
        options.cases = options.cases or ["warm-python"]
        if len(options.cases) > 1 or options.cases[0].removeprefix("warm-") not in warm.PROGRAMS:
            parser.error(f"--trace-warm shows one of {', '.join(f'warm-{name}' for name in warm.PROGRAMS)}")
    options.cases = options.cases or list(CASES)
    options.hotcell = os.path.abspath(options.hotcell)
    return options


def measure(options, command):
    with tempfile.TemporaryDirectory(prefix="hotcell-bench-") as folder:
        # Contenders run as other users and must be able to reach the programs and bundles in here.
        os.chmod(folder, 0o755)
        host = report.machine()
        if host["load"] > host["cores"] / 4:
            progress(f"the machine is busy (load {host['load']}): the ratios will be rough")
        bench = Bench(options, folder)
        try:
            for made in bench.contenders():
                progress(f"{made.name}: " + (made.reason or made.version or "ready"))
            cases = bench.all_cases()
        finally:
            bench.close()
        result = {
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "command": command,
            "commit": report.commit(TOP),
            "machine": host,
            "contenders": [made.as_json() for made in bench.contenders()],
            "cases": [case.as_json() for case in cases],
        }
    report.write_json(options.output, result)
    sys.stdout.write(report.as_text(result))
    progress(f"written to {os.path.relpath(options.output)}")


def main(argv):
    options = parse(argv)
    # A plain exit on SIGTERM lets the finally clauses stop the daemon and remove the temporary folder.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if options.write_docs:
        with open(options.output, encoding="utf-8") as source:
            measured = json.load(source)
        drawn = plot.draw(measured)
        if drawn:
            with open(PLOT_PATH, "w", encoding="utf-8") as picture:
                picture.write(drawn)
        with open(DOCS_PATH, "w", encoding="utf-8") as page:
            page.write(report.as_markdown(measured, os.path.basename(PLOT_PATH) if drawn else None))
        progress(f"written: {os.path.relpath(DOCS_PATH)}")
    elif options.trace_warm:
        with tempfile.TemporaryDirectory(prefix="hotcell-bench-") as folder:
            program = warm.PROGRAMS[options.cases[0].removeprefix("warm-")]
            course.show(options.hotcell, compile_program(folder, "launch.c", options.no_install), program, ENVIRONMENT)
    elif options.trace:
        with tempfile.TemporaryDirectory(prefix="hotcell-bench-") as folder:
            breakdown.show(options.hotcell, compile_program(folder, "launch.c", options.no_install), ENVIRONMENT)
    else:
        measure(options, shlex.join(["bench/run.py", *argv]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
