"""Refused calls that a server writes down: 127–129. Who counts them is pid 1 of the cell (src/cell/witness.h)."""

import base64
import json
import os
import signal
import subprocess
import threading
import time

from cases.warm import ready
from service import Service
from suite import SLOW, case

REPORTED = {"mount", "umount2", "bpf", "unshare", "setns", "ptrace", "keyctl", "init_module", "open_by_handle_at", "userfaultfd", "perf_event_open",
            "pidfd_getfd", "socket"}
CONFIG = '[warm]\nstart = ["python/common", "javascript"]\nprimed_min = 1\n[pool]\nmin = 1\n'
BY_PYTHON = "import os\nos.chmod('witness', 0o755)\nos.execv('./witness', ['witness', *%r])\n"
BY_NODE = "const fs = require('fs'); fs.chmodSync('witness', 0o755); process.stdout.write(require('child_process').spawnSync('./witness', %s).stdout)"
MOST = 1000  # REPORTED_MOST


def written(server, run=None):
    """The audit log's entries of blocked calls, as [(run, {name: count})]."""
    with open(os.path.join(server.state, "audit.log")) as file:
        entries = [json.loads(line) for line in file]
    found = [(entry["run"], {call["name"]: call["count"] for call in entry["detail"].get("calls", [])}) for entry in entries if entry["event"] == "blocked_call"]
    return [calls for name, calls in found if name == run] if run else found


def cpu_of(pid):
    """Seconds."""
    with open("/proc/%d/stat" % pid) as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ignore_signals():
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)


@case(127, "refused calls are written down, however the program was started", seconds=90)
def are_written(trial):
    outside = trial.outside("witness", "calls", wrap=["unshare", "-m"])
    trial.control(outside.probes.get("mount") == "OK" and outside.probes.get("unshare") == "OK", "mount and unshare are open outside")
    with Service(trial, CONFIG) as server:
        with open(trial.program("witness"), "rb") as file:
            files = {"witness": {"base64": base64.b64encode(file.read()).decode()}}
        quiet = server.run(command=["/bin/sh", "-c", "echo quiet; ls /proc/self/fd | tr '\\n' ' '"])
        trial.control(quiet.text.startswith("quiet") and not written(server, quiet.json["id"]), "a run without such calls leaves no entry")
        answers = {"cold": server.program("witness", "calls")}
        for start, language, code in (("warm", "python", BY_PYTHON % (["calls"],)), ("primed", "javascript", BY_NODE % "['calls']")):
            ready(server, language=language, start=start)
            deadline = time.monotonic() + 30 * SLOW
            while (answer := server.run(language=language, code=code, files=files)).json["timing"]["start"] != start and time.monotonic() < deadline:
                time.sleep(0.5)  # the one that waited has just been used
            answers[start] = answer
        for start, answer in answers.items():
            same = answer.json["timing"]["start"] == start
            shut = {name: value for name, value in answer.probes.items() if value not in ("EPERM", "EAFNOSUPPORT")}
            trial.check(same and len(answer.probes) == 16 and not shut, "%s: all refused" % start if not shut else "%s: %s" % (start, shut))
            entries = written(server, answer.json["id"])
            wanted = dict.fromkeys(REPORTED, 1) | {"socket": 2}
            trial.check(entries == [wanted], "%s: %d calls in one entry" % (start, len(wanted)) if entries == [wanted] else "%s: %s" % (start, entries))


@case(128, "a flood of refused calls", seconds=120)
def flood(trial):
    outside = trial.outside("witness", "flood", 1000, wrap=["unshare", "-m"])
    trial.control(outside.probes.get("other") == "1000", "mount answers otherwise outside")

    def beat(server, times=40):
        took = []
        for _ in range(times):
            started = time.monotonic()
            trial.check(server.run(command=["/bin/true"]).run_status == "completed", "runs beside it pass")
            took.append(time.monotonic() - started)
        return sorted(took)[int(len(took) * 0.95) - 1]

    with Service(trial, "[pool]\nmin = 2\n") as server:
        warden = server.part("warden")
        beat(server, 5)
        seen = []
        for _ in range(3):  # the machine is shared: one good figure shows that the cell holds it back
            alone = max(beat(server), 0.004)
            answers = []
            thread = threading.Thread(target=lambda: answers.append(server.program("witness", "flood", 1000000, limits={"cpus": 1, "timeout": 60}, within=90 * SLOW)))
            spent, started = cpu_of(warden), time.monotonic()
            thread.start()
            time.sleep(0.05)
            beside = beat(server, 20)
            thread.join()
            took = time.monotonic() - started
            alone = max(alone, beat(server))
            seen.append("%.1f→%.1f ms" % (alone * 1000, beside * 1000))
            if beside <= 2 * alone:
                break
        answer = answers[0]
        trial.check(beside <= 2 * alone, "neighbour's p95 " + ", ".join(seen))
        trial.check(answer.probes.get("other") == "0", "a million calls refused in %.1f s" % took if answer.probes.get("other") == "0" else str(answer))
        trial.check(written(server, answer.json["id"]) == [{"mount": MOST}], "written down once, as %d or more" % MOST)
        spent = cpu_of(warden) - spent
        trial.check(spent < 0.5 * SLOW, "%.2f s of the warden's time, with 60 other runs" % spent)
        trial.check(server.part("warden") == warden and server.run(command=["/bin/true"]).run_status == "completed", "the next run passes")


@case(129, "a guest against who counts its calls", seconds=120)
def against(trial):
    victim = subprocess.Popen(["sleep", "60"], preexec_fn=ignore_signals)
    outside = trial.outside("witness", "against", victim.pid, wrap=["unshare", "-m"])
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    doors = [name for name, value in outside.probes.items() if value == "OK"]
    needed = {"stop", "pidfd_stop", "limit", "nice", "ptrace", "proc_mem", "proc_fd", "listener", "mount", "kill"}
    trial.control(needed <= set(doors), "%d doors to a process are open outside" % len(doors)
                  if needed <= set(doors) else "shut outside: %s" % sorted(needed - set(doors)))
    with Service(trial, CONFIG) as server:
        answer = server.program("witness", "against", 1, limits={"timeout": 20})
        inside = answer.probes
        opened = sorted(name for name, value in inside.items() if value == "OK" and name not in ("asks", "traces", "allows", "logs"))
        trial.check(len(inside) >= 30 and not opened, "%d doors to pid 1 are shut" % len(inside) if not opened else "open: %s" % opened)
        trial.check(inside.get("listener") == "EBUSY", "no listener of its own: %s" % inside.get("listener"))
        # Its own filters can ask nobody, and refuse more; what they let pass ours refuses.
        own = {name: inside.get(name + "_mount") for name in ("asks", "traces", "allows", "logs")}
        trial.check(own == {"asks": "ENOSYS", "traces": "EPERM", "allows": "EPERM", "logs": "EPERM"}, "beside filters of its own: %s" % own)
        trial.check(inside.get("mount") == inside.get("mount_after") == "EPERM", "refused before and after")
        entries = written(server, answer.json["id"])
        trial.check(len(entries) == 1 and entries[0].get("mount") == 5 and entries[0].get("pidfd_getfd") == 4, "written down: %s" % entries)
        # A sandbox's later programs are counted whatever its earlier ones did, and have on the way.
        box = server.post("/v1/sandboxes", {}).json["id"]
        with open(trial.program("witness"), "rb") as file:
            server.request("PUT", "/v1/sandboxes/%s/files/witness" % box, file.read())
        server.post("/v1/sandboxes/%s/exec" % box, {"command": "chmod +x witness"})
        first = server.post("/v1/sandboxes/%s/exec" % box, {"command": "./witness against 1; sleep 60", "detach": True})
        deadline = time.monotonic() + 20 * SLOW
        later = {}
        while "mount" not in later and time.monotonic() < deadline:
            time.sleep(0.3)
            later = server.post("/v1/sandboxes/%s/exec" % box, {"command": "./witness calls"})
            entries, later = written(server, later.json.get("id")), later.probes
        trial.check(first.status == 202 and later.get("mount") == "EPERM" and len(entries) == 1 and entries[0].get("mount") == 1,
                    "in a sandbox the next program is counted: %s" % entries)
        server.request("DELETE", "/v1/sandboxes/%s" % box)
        deadline = time.monotonic() + 10 * SLOW
        while not (told := any("mount" in calls for name, calls in written(server) if name is None)) and time.monotonic() < deadline:
            time.sleep(0.05)
        trial.check(told, "and so is the job, when the sandbox goes")
