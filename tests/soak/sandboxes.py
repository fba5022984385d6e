#!/usr/bin/python3
"""Sandboxes under use and abuse: made, used in every way, forgotten and killed; nothing may be lost, left behind or grow.

    tests/soak/sandboxes.py                   the short form, as part of `make test`
    tests/soak/sandboxes.py --seconds 3600    what `make soak` does
    tests/soak/sandboxes.py --seed 7          the same order of things again, as far as the machine allows

A private server and a few clients. Each makes a sandbox, works in it for a while (commands, detached jobs, shell sessions, contexts, files, pauses), and
deletes it or forgets it. Somebody kills the gateway, the warden, and pid 1 of cells. What is checked: each answer is what it should be, or excused by a
kill at that moment; a sandbox that outlived a gateway has the variables of its shells and the output of its jobs; when all have gone there is no
process, control group or fd more than there was, and memory is what it was.

Ends with a table, and "N passed, M failed". Exit status 1 when something failed.
"""

import argparse
import collections
import contextlib
import http.client
import itertools
import os
import pathlib
import random
import signal
import sys
import threading
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests" / "integration"))
SHORT = 12  # seconds of use
CLIENTS = 4
GROWTH = 24 << 20  # bytes that gateway and warden together may have more at the end than after the first turn
ROOT = "/v1/sandboxes"


class Wrong(Exception):
    """What a client saw and should not have."""


class Soak:
    def __init__(self, server, seed):
        self.server, self.seed = server, seed
        self.lock, self.over = threading.Lock(), threading.Event()
        self.done, self.kills, self.wrong = collections.Counter(), [], []

    def note(self, word):
        with self.lock:
            self.done[word] += 1

    def excused(self, begin):
        return any(when > begin - 3 for when, _ in self.kills)


class Client(threading.Thread):
    """One sandbox after the other."""

    def __init__(self, soak, number):
        super().__init__(daemon=True)
        self.soak, self.server, self.random = soak, soak.server, random.Random(f"{soak.seed} {number}")
        self.id, self.count, self.context, self.job = None, 0, None, None

    def run(self):
        while not self.soak.over.is_set():
            begin = time.monotonic()
            try:
                self.life()
            except (OSError, http.client.HTTPException, ValueError, KeyError, Wrong) as wrong:
                excused = self.soak.excused(begin)
                self.soak.note("excused" if excused else "wrong")
                if not excused:
                    with self.soak.lock:
                        self.soak.wrong.append(f"{type(wrong).__name__}: {wrong}"[:500])
                if self.id:
                    with contextlib.suppress(OSError, http.client.HTTPException):
                        self.server.delete(f"{ROOT}/{self.id}")
                time.sleep(0.2)

    def life(self):
        made = self.server.post(ROOT, {"limits": {"memory": "128m", "disk": "16m"}, "idle_timeout": 5, "files": {"first": "1"}})
        if made.status in (429, 503):
            self.soak.note("refused")
            time.sleep(0.2)
            return
        self.expect(made.status == 201, made)
        self.id, self.count, self.context, self.job = made.json["id"], 0, None, None
        for _ in range(self.random.randrange(1, 15)):
            name = self.random.choice(WORKS)
            getattr(self, name)()
            self.soak.note(name)
            if self.soak.over.is_set():
                break
        if self.random.random() < 0.7:
            self.ask("DELETE", "", wanted=(204,))
            self.soak.note("deleted")
        else:
            self.soak.note("forgotten")
        self.id = None

    @staticmethod
    def expect(good, what):
        if not good:
            raise Wrong(repr(what))

    def ask(self, method, below, body=None, wanted=(200,), within=40):
        answer = self.server.request(method, f"{ROOT}/{self.id}{below}", body, within=within)
        self.expect(answer.status in wanted, (method, below, answer))
        return answer

    # ---- what is done with one ----

    def command(self):
        word = str(self.random.random())
        answer = self.ask("POST", "/exec", {"command": f"echo {word}; cat first"}).json
        self.expect(answer["stdout"] == f"{word}\n1", answer)

    def failing(self):
        command, wanted = self.random.choice((("exit 3", "error"), ("sleep 9", "timeout"), ("kill -SEGV $$", "error")))
        self.expect(self.ask("POST", "/exec", {"command": command, "timeout": 0.3}).json["status"] == wanted, command)

    def session(self):
        self.count += 1
        answer = self.ask("POST", "/exec", {"command": "n=$((n + 1)); echo $n", "session": "s"}).json
        self.expect(answer["stdout"] == f"{self.count}\n", (answer, self.count))

    def interpreter(self):
        if self.context is None:
            self.context = self.ask("POST", "/contexts", {"language": "python"}, wanted=(201,)).json["id"]
            self.ask("POST", f"/contexts/{self.context}/execute", {"code": "x = 5"})
        answer = self.ask("POST", f"/contexts/{self.context}/execute", {"code": "x"}).json
        self.expect(answer["results"][0]["data"] == "5", answer)

    def detached(self):
        if self.job is None:
            self.job = self.ask("POST", "/exec", {"command": "for i in 1 2 3 4 5; do echo $i; sleep 0.1; done; sleep 1 & exit 7", "detach": True}, wanted=(202,)).json["id"]
            return
        answer = self.ask("GET", f"/jobs/{self.job}?wait=20").json
        self.expect(answer["stdout"] == "1\n2\n3\n4\n5\n" and answer["exit_code"] == 7, answer)
        self.job = None

    def killed_job(self):
        job = self.ask("POST", "/exec", {"command": "setsid sleep 30 & sleep 30", "detach": True}, wanted=(202,)).json["id"]
        self.ask("DELETE", f"/jobs/{job}", wanted=(202,))

    def file(self):
        data = os.urandom(self.random.choice((0, 10, 100000)))
        self.ask("PUT", "/files/f", data, wanted=(201, 204))
        self.expect(self.ask("GET", "/files/f").body == data, len(data))
        self.ask("GET", "/files?path=/workspace")

    def archive(self):
        tar = self.ask("GET", "/archive?path=first" if self.random.random() < 0.2 else "/archive?path=/workspace", wanted=(200, 409)).body
        if tar:
            self.ask("PUT", "/archive?path=/workspace/in", tar, wanted=(200, 400, 409))

    def pause(self):
        self.ask("POST", "/pause")
        self.ask("POST", "/exec", {"command": "true"}, wanted=(409,))
        self.ask("POST", "/resume")

    def hang_up(self):
        connection = self.server.connect()
        connection.request("POST", f"{ROOT}/{self.id}/exec", '{"command": "sleep 20"}', {"Content-Type": "application/json"})
        time.sleep(self.random.random() / 10)
        connection.close()

    def look(self):
        self.expect(self.ask("GET", "").json["state"] == "running", "state")


WORKS = ["command", "command", "failing", "session", "session", "interpreter", "interpreter", "detached", "detached", "killed_job", "file", "archive", "pause", "hang_up", "look"]


class Killer(threading.Thread):
    """Of the server's processes, and of the cells'."""

    def __init__(self, soak, pause):
        super().__init__(daemon=True)
        self.soak, self.pause, self.random = soak, pause, random.Random(f"{soak.seed} killer")
        self.turns = itertools.cycle(("hotcell-gateway", "cell", "hotcell-warden", "guest"))

    def victim(self):
        name = next(self.turns)
        if name.startswith("hotcell"):
            return name, self.soak.server.process_of(name)
        cells, guests = [], []
        for pid in self.soak.server.descendants()[1:]:
            with contextlib.suppress(OSError, IndexError):
                inside = pathlib.Path(f"/proc/{pid}/status").read_text().split("NSpid:")[1].splitlines()[0].split()
                (cells if len(inside) > 2 and inside[-1] == "1" else guests if len(inside) > 2 else []).append(pid)
        found = cells if name == "cell" else guests
        return name, self.random.choice(found) if found else None

    def run(self):
        while not self.soak.over.wait(self.pause * (0.5 + self.random.random())):
            name, pid = self.victim()
            if pid:
                self.soak.kills.append((time.monotonic(), name))
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                self.soak.note(f"killed: {name}")


def rest(server, within=60):
    """All sandboxes are gone, and nothing is left but the server itself."""
    from server import groups_of

    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, http.client.HTTPException):
            listed = server.get(ROOT, unix=True).json["sandboxes"]
            for one in listed:
                server.delete(f"{ROOT}/{one['id']}", unix=True)
            processes = server.descendants()
            if not listed and len(processes) == 3:
                break
        time.sleep(0.1)
    else:
        raise Wrong(f"the server does not come to rest: {listed}, processes {processes}")
    parts = {name: server.process_of(f"hotcell-{name}") for name in ("gateway", "warden")}
    return {"groups": len(groups_of({server.process.pid})), "memory": sum(resident(pid) for pid in parts.values()),
            **{f"fds of the {name}": len(os.listdir(f"/proc/{pid}/fd")) for name, pid in parts.items()}}


def resident(pid):
    return int(pathlib.Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]) * 1024


def turn(soak, seconds, pause):
    soak.over.clear()
    threads = [Client(soak, number) for number in range(CLIENTS)] + ([Killer(soak, pause)] if pause else [])
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    soak.over.set()
    for thread in threads:
        thread.join(120)
        if thread.is_alive():
            soak.wrong.append("a client does not come to an end")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SHORT)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program", help="the hotcell to use: $HOTCELL, or build/hotcell")
    options = parser.parse_args()
    if options.program:
        os.environ["HOTCELL"] = os.path.abspath(options.program)
    from server import Server

    # No cells and interpreters wait: what is there at rest is the server's own.
    server = Server("[pool]\nmin = 0\nmax = 0\n[warm]\nenabled = false\n[sandboxes]\ncleanup_interval = \"1s\"\n")
    failed, checks = [], 0
    with server:
        soak = Soak(server, options.seed)
        turn(soak, options.seconds / 4, 0)
        first = rest(server)
        turn(soak, options.seconds / 2, max(0.7, options.seconds / 200))
        time.sleep(1)
        rest(server)
        before = rest(server)
        turn(soak, options.seconds / 4, 0)
        last = rest(server)
        for name in last:
            checks += 1
            most = before[name] + (GROWTH if name == "memory" else 3 if name.startswith("fds") else 0)
            if last[name] > most:
                failed.append(f"{name}: {before[name]} before, {last[name]} after")
        print(f"{'':24}{'first':>12}{'after kills':>12}{'last':>12}")
        for name in last:
            print(f"{name:24}{first[name]:>12}{before[name]:>12}{last[name]:>12}")
        checks += 1
        failed += soak.wrong[:10]
        checks += 1
        if soak.done["excused"] > soak.done["command"] + soak.done["session"]:
            failed.append("more was excused than was done")
        audit = (server.state / "audit.log").read_text()
        checks += 1
        if audit.count('"sandbox_created"') == 0 or audit.count('"sandbox_expired"') + audit.count('"sandbox_deleted"') == 0:
            failed.append("nothing of it is in the audit log")
        print(", ".join(f"{count} {name}" for name, count in sorted(soak.done.items())))
    for one in failed:
        print(f"FAILED: {one}")
    print(f"{max(0, checks - len(failed))} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
