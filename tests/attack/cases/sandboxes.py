"""Sandboxes that live on: other tenants' ids, guests against the file helper, doors, archives, limits of many jobs, five hundred at once: 401–409."""

import base64
import contextlib
import http.client
import io
import json
import os
import re
import subprocess
import tarfile
import threading
import time

from service import Service
from suite import SLOW, Stop, case

MIB = 1 << 20
ROOT = "/v1/sandboxes"


def bearer(token):
    return {"Authorization": "Bearer " + token}


class Box:
    """A sandbox of a Service."""

    def __init__(self, server, headers=None, **fields):
        self.server, self.headers = server, headers or {}
        made = server.post(ROOT, fields, headers=self.headers)
        if made.status != 201:
            raise Stop("no sandbox: %s" % made)
        self.id = made.json["id"]

    def ask(self, method, below, body=None, within=60):
        return self.server.request(method, "%s/%s%s" % (ROOT, self.id, below), body, headers=self.headers, within=within)

    def exec(self, command, **fields):
        return self.ask("POST", "/exec", {"command": command, **fields})

    def python(self, code, **fields):
        return self.exec(["/usr/bin/python3", "-c", code], **fields)

    def detach(self, command):
        return self.exec(command, detach=True).json.get("id", "")

    def ready(self, job, text):
        """Whether a job has written this."""
        return until(lambda: text in self.ask("GET", "/jobs/" + job).json.get("stdout", ""))

    def works(self):
        return self.exec("echo on").text == "on\n" and self.ask("GET", "").json.get("state") == "running"


def until(what, within=20):
    deadline = time.monotonic() + within * SLOW
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.03)
    return None


def archive(*members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def member(name, kind=tarfile.REGTYPE, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@case(401, "another tenant's sandbox, by every route")
def tenants(trial):
    with Service(trial) as server:
        ada, bob = bearer(server.key("ada")), bearer(server.key("bob"))
        word = "of-ada-%d" % os.getpid()
        box = Box(server, ada, files={"secret": word}, metadata={"word": word})
        job = box.detach("echo %s; sleep 60" % word)
        context = box.ask("POST", "/contexts", {"language": "bash"}).json.get("id", "")
        box.exec("x=%s" % word, session="main")
        trial.control(box.ask("GET", "/files/secret").body == word.encode() and box.ready(job, word), "its owner reads it")
        names = {"{id}": box.id, "{job}": job, "{context}": context, "{name}": "main", "{path}": "secret", "{terminal}": "x", "{port}": "80", "{rest}": "x"}
        wrong, count = [], 0
        for pattern, methods in server.get("/openapi.json").json["paths"].items():
            if not pattern.startswith(ROOT + "/{id}"):
                continue
            for name, value in names.items():
                pattern = pattern.replace(name, value)
            for method in methods:
                for path in (pattern, pattern.replace(box.id, box.id.upper()), pattern.replace(box.id, box.id + "%20")):
                    answer = server.request(method.upper(), path, {"command": "true", "code": "1"} if method == "post" else b"x" if method == "put" else None, headers=bob)
                    count += 1
                    if answer.status not in (400, 404) or word.encode() in answer.body:
                        wrong.append("%s %s: %s" % (method, path, answer.status))
        trial.check(not wrong and count > 90, "%d tries: 404" % count if not wrong else "; ".join(wrong[:3]))
        theirs, absent = (server.get("%s/%s" % (ROOT, identity), headers=bob).body.replace(identity.encode(), b"") for identity in (box.id, "sbx_" + "0" * 26))
        trial.check(theirs == absent, "like one that is not there")
        trial.check(word.encode() not in server.get(ROOT, headers=bob).body, "not listed")
        trial.check(box.works() and box.ask("GET", "/jobs/" + job).json.get("state") == "running" and box.exec("echo $x", session="main").text == word + "\n", "and all of it lives")


# Swaps a folder and a link to /etc, or a file and a link, as fast as it can.
SWAP = """
import os
os.makedirs('/workspace/d/real', exist_ok=True); open('/workspace/d/real/passwd', 'w').write('inside')
try: os.symlink('/etc', '/workspace/d/link')
except FileExistsError: pass
print('swapping', flush=True)
while True:
    os.rename('/workspace/d/real', '/workspace/d/x'); os.rename('/workspace/d/link', '/workspace/d/real')
    os.rename('/workspace/d/real', '/workspace/d/link'); os.rename('/workspace/d/x', '/workspace/d/real')
"""


@case(402, "guests that fight the file helper", seconds=120)
def helper(trial):
    with Service(trial) as server:
        box = Box(server)
        job = box.detach(["/usr/bin/python3", "-c", SWAP])
        trial.control(box.ready(job, "swapping"), "links and folders are swapped")
        statuses, leaked = set(), []
        host = open("/etc/passwd", "rb").read()
        for turn in range(60):
            for method, below, body in (("GET", "/files/d/real/passwd", None), ("PUT", "/files/d/real/new%d" % turn, b"x"), ("GET", "/archive?path=d", None),
                                        ("GET", "/files/search?path=d&content=root", None), ("DELETE", "/files/d/real/new%d" % turn, None)):
                answer = box.ask(method, below, body)
                statuses.add(answer.status)
                if host in answer.body:
                    leaked.append(below)
        trial.check(not leaked and statuses <= {200, 201, 204, 400, 403, 404, 409}, "300 requests beside it: %s" % sorted(statuses))
        box.ask("DELETE", "/jobs/" + job)
        # fifos, devices and endless files where a file is expected
        box.exec("mkfifo fifo; ln -s /dev/zero zero; ln -s /proc/self/mem mem; ln -s self self; ln -s /dev/stdin in")
        begun = time.monotonic()
        found = {name: box.ask("GET", "/files/" + name, within=20).status for name in ("fifo", "zero", "mem", "self", "in")}
        trial.check(all(status in (400, 403, 404, 409) for status in found.values()) and time.monotonic() - begun < 15 * SLOW, "fifos and devices: %s" % found)
        # killing, stopping and tracing the helper
        hunt = """
import os, signal, ctypes
libc = ctypes.CDLL(None, use_errno=True)
print('hunting', flush=True)
me = os.getpid()
while True:
    for name in os.listdir('/proc'):
        if name.isdigit() and int(name) not in (1, me):
            for number in (signal.SIGSTOP, signal.SIGKILL):
                try: os.kill(int(name), number)
                except OSError: pass
            libc.ptrace(16, int(name), 0, 0)
"""
        job = box.detach(["/usr/bin/python3", "-c", hunt])
        trial.control(box.ready(job, "hunting"), "a guest signals whatever it sees")
        begun, statuses = time.monotonic(), []
        for turn in range(10):
            with contextlib.suppress(OSError, http.client.HTTPException):
                statuses.append(box.ask("PUT", "/files/w%d" % turn, b"x" * 100000, within=45).status)
        trial.check(len(statuses) == 10 and all(status in (201, 204, 500, 502, 503, 504) for status in statuses), "under fire each request is answered: %s" % sorted(set(statuses)))
        other = Box(server)
        trial.check(other.works(), "and another sandbox works meanwhile")
        box.ask("DELETE", "/jobs/" + job)
        until(lambda: box.ask("GET", "/jobs/" + job).json.get("state") == "ended")
        trial.check(box.works() and box.ask("PUT", "/files/after", b"x").status in (201, 204), "then all is as before")


@case(403, "many jobs cannot have more than one sandbox", seconds=120)
def limits(trial):
    eat = "x = bytearray(40 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint('held', flush=True)\nimport time; time.sleep(30)"
    outside = subprocess.run(["/usr/bin/python3", "-c", eat.replace("sleep(30)", "sleep(0)")], capture_output=True, text=True, timeout=30)
    trial.control("held" in outside.stdout, "each takes 40 MiB where it can")
    with Service(trial) as server:
        box = Box(server, limits={"memory": "100m", "pids": 30, "disk": "10m"})
        jobs = [box.detach(["/usr/bin/python3", "-c", eat]) for _ in range(6)]
        until(lambda: sum(box.ask("GET", "/jobs/" + job).json.get("state") == "ended" for job in jobs) >= 3)
        usage = box.ask("GET", "").json["usage"]
        states = [box.ask("GET", "/jobs/" + job).json for job in jobs]
        trial.check(usage["memory"] <= 101 * MIB and usage["memory_peak"] <= 101 * MIB, "six of them: %d MiB at most" % (usage["memory_peak"] >> 20))
        trial.check(any(state.get("status") == "oom" for state in states), "some were ended for it")
        for job in jobs:
            box.ask("DELETE", "/jobs/" + job)
        for _ in range(8):
            box.detach("for i in 1 2 3 4 5 6 7 8; do sleep 20 & done; wait")
        time.sleep(0.5)
        usage = box.ask("GET", "").json["usage"]
        trial.check(usage["pids"] <= 30, "eight jobs of nine processes: %d" % usage["pids"])
        for path in ("/workspace/a", "/tmp/a", "/dev/shm/a"):
            box.exec("head -c 20000000 /dev/zero > %s" % path)
        trial.check(box.ask("GET", "").json["state"] == "running", "and it lives")


@case(404, "a guest that floods or forges its door", seconds=120)
def door(trial):
    frame = b'{"event":"done","id":1,"status":"completed","exit_code":0}'
    attacks = {
        "forged ends": "while True: DOOR(struct.pack('<I', %d) + %r)" % (len(frame), frame),
        "64 MiB frames": "for i in range(3): DOOR(struct.pack('<I', 64 << 20) + b'x' * (64 << 20))",
        "a length of 4 GiB": "DOOR(b'\\xff\\xff\\xff\\xff' + b'x' * 100000)",
        "not JSON": "DOOR(struct.pack('<I', 9) + b'not JSON!')",
        "a deep frame": "DOOR(struct.pack('<I', 200000) + b'[' * 200000)",
        "not UTF-8": "DOOR(struct.pack('<I', 4) + b'\\xff\\xfe\\x00\\x01')",
        "half a frame": "DOOR(struct.pack('<I', 1000) + b'{')",
        "empty frames": "DOOR(b'\\0' * 4000000)",
        "closing it": "os.close(DOORFD)",
        "a million displays": "f = b'{\"event\":\"display\",\"id\":0,\"entries\":[]}'\nwhile True: DOOR((struct.pack('<I', len(f)) + f) * 1000)",
    }
    with Service(trial) as server:
        box = Box(server)
        prelude = ("import os, socket, struct, stat\n"
                   "DOORFD = next(fd for fd in range(4096) if os.path.exists('/proc/self/fd/%d' % fd) and stat.S_ISSOCK(os.stat('/proc/self/fd/%d' % fd).st_mode))\n"
                   "def DOOR(data):\n    view = memoryview(data)\n    while view: view = view[os.write(DOORFD, view):]\n")
        context = box.ask("POST", "/contexts", {"language": "python"}).json["id"]
        seen = box.ask("POST", "/contexts/%s/execute" % context, {"code": prelude + "DOORFD"})
        trial.control(seen.json.get("status") == "completed", "the program has its door in hand: %s" % (seen.json.get("results") or seen))
        before, wrong = server.part("gateway"), []
        most = 0
        for name, attack in attacks.items():
            context = box.ask("POST", "/contexts", {"language": "python"}).json.get("id", "none")
            begun = time.monotonic()
            answer = box.ask("POST", "/contexts/%s/execute" % context, {"code": prelude + attack + "\nprint('went on')", "timeout": 4}, within=60)
            most = max(most, server.memory())
            if answer.status != 200 or time.monotonic() - begun > 15 * SLOW or not box.works():
                wrong.append("%s: %s" % (name, answer))
            box.ask("DELETE", "/contexts/" + context)
        trial.check(not wrong, "%d attacks answered in time" % len(attacks) if not wrong else "; ".join(wrong[:2]))
        trial.check(server.part("gateway") == before, "by one and the same gateway")
        trial.check(most < 400 * MIB, "which had %d MiB at most" % (most >> 20))
        # a background process that keeps the door of a shell open
        answer = box.exec("(exec sleep 30) & exit 0", session="held")
        trial.check(answer.status == 200 and answer.json.get("session_state") == "ended", "a door that is held open by another: its session ends all the same")
        trial.check(box.exec("echo new", session="held").text == "new\n", "and begins anew")


@case(405, "shells and interpreters that are stopped")
def stopped(trial):
    with Service(trial) as server:
        box = Box(server)
        context = box.ask("POST", "/contexts", {"language": "python"}).json["id"]
        trial.control(box.exec("kill -STOP $BASHPID & wait -n; kill -CONT %1; echo stopped", session="x", timeout=5).status == 200, "a process can be stopped")
        begun = time.monotonic()
        first = box.exec("kill -STOP $$", session="main", timeout=1).json
        second = box.ask("POST", "/contexts/%s/execute" % context, {"code": "import os; os.kill(os.getpid(), 19)", "timeout": 1}).json
        trial.check((first.get("status"), second.get("status")) == ("timeout", "timeout") and time.monotonic() - begun < 15 * SLOW, "both time out")
        trial.check(first.get("session_state") == "ended" and second.get("context_state") == "ended", "and are ended")
        trial.check(box.works() and box.exec("echo new", session="main").text == "new\n", "the sandbox works")


@case(406, "archive bombs and entries that lead elsewhere", seconds=120)
def archives(trial):
    with Service(trial, "[sandboxes]\nfile_bytes = \"64m\"\n") as server:
        box = Box(server, limits={"disk": "8m", "inodes": 200})
        good = archive((member("a"), b"x"))
        trial.control(box.ask("PUT", "/archive?path=in", good).status == 200 and box.exec("cat in/a").text == "x", "a plain one is unpacked")
        wrong, escapes = [], {
            "up": [(member("../../tmp/out"), b"x")], "absolute": [(member("/tmp/out"), b"x")], "link": [(member("l", tarfile.SYMTYPE, "/tmp"), b""), (member("l/out"), b"x")],
            "hard": [(member("h", tarfile.LNKTYPE, "/etc/passwd"), b"")], "device": [(member("dev", tarfile.CHRTYPE), b"")]}
        for name, members in escapes.items():
            answer = box.ask("PUT", "/archive?path=in", archive(*members))
            if answer.status == 200 and answer.json.get("entries"):
                wrong.append("%s: %s" % (name, answer))
        trial.check(not wrong and box.exec("ls /tmp/out 2>&1").json.get("exit_code"), "%d ways out: refused" % len(escapes) if not wrong else "; ".join(wrong))
        sparse = member("sparse")
        sparse.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(1 << 50), "GNU.sparse.name": "sparse"}
        huge = member("huge").tobuf()
        huge = huge[:124] + b"\x80" + (1 << 60).to_bytes(11, "big") + huge[136:]
        head = bytearray(huge)
        head[148:156] = b"        "
        head[148:156] = b"%06o\0 " % sum(head)
        bombs = {"more bytes than there are": archive((member("big"), b"\0" * (20 * MIB))), "more files": archive(*[(member("f%d" % number), b"") for number in range(3000)]),
                 "a size of 2^60": bytes(head) + b"x" * 1000, "a size of 2^50, sparse": archive((sparse, b"1\n0\n512\n" + b"x" * 504)),
                 "a hundred thousand folders deep": archive((member("d/" * 100000 + "f"), b""))}
        statuses = {}
        for name, data in bombs.items():
            begun = time.monotonic()
            statuses[name] = box.ask("PUT", "/archive?path=bomb", data, within=60).status
            if time.monotonic() - begun > 20 * SLOW or not box.works():
                statuses[name] = 0
            box.ask("DELETE", "/files/bomb?recursive=true")
        trial.check(all(status in (200, 400, 413, 507) for status in statuses.values()), "bombs: %s" % statuses)
        used = box.ask("GET", "").json["usage"]["disk"]["used"]
        trial.check(used < MIB, "nothing of them is left")


@case(407, "five hundred sandboxes at once", seconds=240, alone=True)
def many(trial):
    wanted = 500
    with Service(trial, "[sandboxes]\nmax = 600\nmax_per_tenant = 600\n") as server:
        begun, made, lock = time.monotonic(), [], threading.Lock()

        def make(count):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120 * SLOW)
            for _ in range(count):
                connection.request("POST", ROOT, "{}", {"Content-Type": "application/json"})
                answer = connection.getresponse()
                body = answer.read()
                with lock:
                    made.append(json.loads(body)["id"] if answer.status == 201 else None)
            connection.close()

        threads = [threading.Thread(target=make, args=(wanted // 10,)) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.monotonic() - begun
        good = [identity for identity in made if identity]
        trial.control(len(good) == wanted, "%d were made" % len(good))
        trial.check(took < 60 * SLOW, "in %.1f s" % took)
        wrong = [identity for identity in good[::25] if server.post("%s/%s/exec" % (ROOT, identity), {"command": "echo $$ > own; ls"}).text != "own\n"]
        trial.check(not wrong, "each works, and is its own")
        charged = sorted(server.get("%s/%s" % (ROOT, identity)).json["usage"]["memory"] for identity in good[1::25])
        pss = statistics_of_pids(server)
        trial.check(charged[len(charged) // 2] < 6 * MIB, "an idle one: %d KiB charged, %d KiB PSS" % (charged[len(charged) // 2] >> 10, pss >> 10))
        begun = time.monotonic()
        for identity in good:
            server.request("DELETE", "%s/%s" % (ROOT, identity))
        gone = until(lambda: server.get(ROOT).json["count"] == 0, within=60)
        trial.check(bool(gone), "all are gone %.1f s after that was asked for" % (time.monotonic() - begun))
        trial.check(server.memory() < 200 * MIB and server.descriptors() < 200, "the gateway has %d MiB and %d fds" % (server.memory() >> 20, server.descriptors()))


def statistics_of_pids(server):
    """The median PSS of pid 1 of the cells."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError):
            with open("/proc/%s/comm" % name) as file:
                if not file.read().startswith("hotcell-init"):
                    continue
            with open("/proc/%s/smaps_rollup" % name) as file:
                found.append(int(re.search(r"^Pss:\s+(\d+)", file.read(), re.M)[1]) * 1024)
    return sorted(found)[len(found) // 2] if found else 0


@case(408, "floods: output, jobs, sessions, contexts, watches", seconds=180)
def floods(trial):
    with Service(trial) as server:
        box, other = Box(server), Box(server)
        job = box.detach("yes")
        trial.control(bool(until(lambda: box.ask("GET", "/jobs/%s?stdout_from=999999999999" % job).json.get("offset", {}).get("stdout", 0) > 10 * MIB)), "a job writes without end")
        before = server.memory()
        time.sleep(1)
        trial.check(server.memory() - before < 20 * MIB, "the gateway does not grow by it")
        trial.check(other.works(), "and another sandbox works")
        box.ask("DELETE", "/jobs/" + job)
        statuses = {}
        for what, fields in (("jobs", {"command": "sleep 60", "detach": True}),):
            for _ in range(150):
                status = box.exec(**fields).status
                statuses[(what, status)] = statuses.get((what, status), 0) + 1
        for number in range(60):
            status = box.exec("sleep 60 &", session="s%d" % number, timeout=5).status
            statuses[("sessions", status)] = statuses.get(("sessions", status), 0) + 1
        trial.check(all(status in (200, 202, 400, 409, 429, 500, 503) for _, status in statuses), "more than it may have: %s" % statuses)
        until(lambda: box.ask("GET", "").json["usage"]["pids"] <= 100)  # one that is on its way in is counted before it is refused
        usage = box.ask("GET", "").json["usage"]
        trial.check(usage["pids"] <= 100, "its processes are limited: %d" % usage["pids"])
        trial.check(other.works(), "and another sandbox works")
        trial.check(box.ask("DELETE", "").status == 204, "it can be ended")


@case(409, "the supervisor's groups, from inside", seconds=60)
def groups(trial):
    """A job must not move into another's group, make groups, or thaw itself."""
    with Service(trial) as server:
        box = Box(server)
        script = ("for f in $(find / -name cgroup.procs -not -path '/proc/*/task/*' 2>/dev/null | head -50); do echo $$ > $f && echo open=$f; done 2>/dev/null; "
                  "mkdir /sys/fs/cgroup/x 2>/dev/null && echo open=mkdir; mount -t cgroup2 none /mnt 2>/dev/null && echo open=mount; cat /proc/self/cgroup")
        outside = os.path.isdir("/sys/fs/cgroup") and any("cgroup.procs" in files for _, _, files in os.walk("/sys/fs/cgroup"))
        trial.control(outside, "the host has groups to join")
        inside = box.exec(script).text
        trial.check("open=" not in inside, "none of them is there" if "open=" not in inside else inside[:200])
        trial.check("hotcell-" not in inside, "and their names are not told")
