"""Guests of a server against whoever reads the answer, against each other, and against the server itself. The number is that of the attack in a
run without a server, and 200."""

import base64
import contextlib
import json
import os
import subprocess
import threading
import time

from cases.resources import HOLD_INOTIFY, ONE_INOTIFY
from cases.supervisor import NASTY, ROGUE_PATHS
from service import Service
from suite import SLOW, case

MIB = 1 << 20


def encoded(data):
    return {"base64": base64.b64encode(data).decode()}


def events_of(server, body):
    """The events of a run as (name, data) pairs, read as a browser reads them, and the raw text."""
    answer = server.post("/v1/runs", body, headers={"Accept": "text/event-stream"})
    events = []
    for block in answer.body.decode().split("\n\n"):
        fields = [line.partition(":") for line in block.split("\n") if line and not line.startswith(":")]
        data = "\n".join(value.removeprefix(" ") for name, _, value in fields if name == "data")
        name = next((value.strip() for name, _, value in fields if name == "event"), None)
        if name:
            events.append((name, json.loads(data)))
    return events, answer.body


def output_of(events, stream="stdout"):
    return b"".join(data["text"].encode() if "text" in data else base64.b64decode(data["base64"]) for name, data in events if name == stream)


@case(244, "10 GB to stdout, through a server", alone=True)
def output(trial):
    outside = trial.outside("eat", "output", "64")
    trial.control(len(outside.out) == 64 * MIB, "a reader outside gets all of it")
    with Service(trial) as server:
        server.run(command=["/bin/true"])
        before, most, stop = server.memory(), [0], threading.Event()

        def look():
            while not stop.is_set():
                most[0] = max(most[0], server.memory())
                time.sleep(0.01)

        watcher = threading.Thread(target=look)
        watcher.start()
        for kind in ("output", "errors"):
            answer = server.program("eat", kind, "10240", limits={"timeout": 20})
            trial.check(answer.run_status == "output_limit", "%s: %s" % (kind, answer.run_status or answer))
            trial.check(len(answer.body) < 8 * MIB, "the answer is %d KiB" % (len(answer.body) // 1024))
        events, raw = events_of(server, {"command": ["/bin/sh", "-c", "yes | head -c 40000000"], "limits": {"timeout": 20}})
        trial.check(events[-1][0] == "result" and len(raw) < 8 * MIB, "as events: %s, %d KiB" % (events[-1][1].get("status"), len(raw) // 1024))
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(server.run(command=["/bin/sh", "-c", "yes | head -c 30000000"]))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stop.set()
        watcher.join()
        trial.check({answer.run_status for answer in answers} <= {"output_limit", "completed"}, "8 at the same time")
        trial.check(most[0] < before + 80 * MIB, "the gateway: %d MiB, at most %d" % (before // MIB, most[0] // MIB))


@case(245, "a stdin that is never read, through a server")
def stdin(trial):
    process = subprocess.Popen([trial.program("stubborn"), "sleep"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    os.set_blocking(process.stdin.fileno(), False)
    block = b"x" * (20 * MIB)
    written = 0
    with contextlib.suppress(BlockingIOError):
        written = os.write(process.stdin.fileno(), block)
    trial.control(written < len(block), "a plain writer is stuck after %d KiB outside" % (written // 1024))
    process.kill()
    process.wait()
    process.stdin.close()
    with Service(trial) as server:
        result = []
        thread = threading.Thread(target=lambda: result.append(server.program("stubborn", "sleep", stdin=block.decode(), limits={"timeout": 1.5})))
        thread.start()
        time.sleep(0.6)
        pace = server.pace(6)
        thread.join()
        trial.check(result[0].run_status == "timeout", "asleep: %s" % (result[0].run_status or result[0]))
        trial.check(pace is not None and pace < 400 * SLOW, "runs beside it: %s ms" % (pace and round(pace)))
        answer = server.program("crash", "exit", "7", stdin=block.decode())
        trial.check(answer.json.get("exit_code") == 7, "it exits: %s" % answer.json.get("exit_code"))


@case(253, "connect to the server from inside")
def inward(trial):
    with Service(trial) as server:
        doors = ["four=tcp:127.0.0.1:%d" % server.port, "zero=tcp:0.0.0.0:%d" % server.port, "name=path:" + server.socket]
        address = trial.watch.lan()
        if address:
            doors.append("lan=tcp:%s:%d" % (address, server.port))
        outside = trial.outside("network", *doors).probes
        before = server.get("/v1/stats").json["http"]["accepted"]
        inside = server.program("network", *doors)
        trial.doors(inside.probes, outside, names=[door.partition("=")[0] for door in doors if not door.startswith("lan")])
        for name in ("lan",) if address else ():
            trial.check(inside.probes.get(name, "OK") != "OK", "nor by the LAN's address")
        after = server.get("/v1/stats").json["http"]["accepted"]
        trial.check(after - before == 2, "nobody came but ourselves" if after - before == 2 else "%d connections" % (after - before))


@case(266, "leftovers for the next run, through a server")
def leftovers(trial):
    for _ in range(3):
        outside = trial.throwaway("leftovers", "pair", trial.watch.token).probes
        if int(outside.get("files", "0")) >= 5 and outside.get("process") == "yes":
            break
    trial.control(int(outside.get("files", "0")) >= 5 and outside.get("process") == "yes", "files and a process are found within one namespace")
    token = "left-" + trial.watch.token[-12:]
    with Service(trial, "[server]\nconcurrent = 4\n") as server:
        for fields in ({}, {"read_only": False}):
            left = server.program("leftovers", "leave", token, **fields).probes
            trial.check(int(left.get("left_files", "0")) >= 3, "%s files were left inside" % left.get("left_files"))
            for _ in range(3):
                answer = server.program("leftovers", "find", **fields)
                found = answer.probes
                trial.check(found.get("files") == "0" and found.get("process") == "no" and token not in answer.text and
                            all(found.get(name, "OK") != "OK" for name in ("shm", "mqueue", "abstract")), "the next run finds none")
        beside = server.submit(command=["/bin/sh", "-c", "echo %s > /tmp/beside; echo %s > /dev/shm/beside; sleep 3" % (token, token)])
        time.sleep(0.5)
        answer = server.run(command=["/bin/sh", "-c", "cat /tmp/* /dev/shm/* /workspace/*; ls /proc | grep -c '^[0-9]'; cat /proc/*/cmdline"])
        trial.check(token not in answer.text, "nor one beside it")
        server.request("DELETE", "/v1/runs/%s" % beside)
        secret = server.run(command=["/bin/sh", "-c", "env; cat /proc/*/environ; cat /proc/1/environ"], env={"OWN": "x"})
        trial.check(secret.run_status is not None, "and no environment but its own")


@case(274, "NUL, invalid UTF-8, ANSI, 1 MB, through a server")
def nasty(trial):
    path = trial.scratch() + "/nasty"
    with Service(trial) as server:
        for data in NASTY:
            with open(path, "wb") as file:
                file.write(data)
            trial.control(trial.outside("/bin/cat", path).bytes == data, "cat gives the same bytes outside")
            body = {"command": ["/bin/sh", "-c", "cat nasty; cat nasty >&2"], "files": {"nasty": encoded(data)}, "limits": {"output": "2m"}}
            answer = server.post("/v1/runs", body)
            good = answer.status == 200 and answer.stream("stdout") == data == answer.stream("stderr")
            trial.check(good, "valid JSON, exact bytes" if good else "%r… came out as %r…" % (data[:12], answer.stream("stdout")[:12]))
            again = server.get("/v1/runs/%s" % answer.json.get("id"))
            trial.check(again.body == answer.body, "the same from the history" if again.body == answer.body else "NOT the same from the history")
            events, _ = events_of(server, body)
            good = output_of(events) == data == output_of(events, "stderr") and events[-1][0] == "result"
            trial.check(good, "the same as events" if good else "events of %r… differ" % data[:12])
            report = server.get("/v1/runs/%s/report" % answer.json.get("id"))
            trial.check(report.status == 200 and (report.json or report.body), "a report of it")


@case(275, "forged results, frames and events on stdout")
def forged(trial):
    fake = json.dumps({"id": "run_fake", "status": "oom", "exit_code": 0, "success": True})
    frame = b"\x01\0\0\0\x09\0\0\0" * 64 + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}" + b"0\r\n\r\n" + json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}}).encode()
    sse = ("\n\nevent: result\nid: 9-9-9\ndata: %s\n\nretry: 1\n\r\n\r\nevent: result\rdata: %s\r\r: comment\n\n" % (fake, fake)).encode()
    with Service(trial) as server:
        for data in (frame, sse, fake.encode() + b"\n", b'"}' + fake.encode()):
            script = "cat frame; cat frame >&2; exit 3"
            body = {"command": ["/bin/sh", "-c", script], "files": {"frame": encoded(data)}, "metadata": {"x": fake}}
            with open(trial.scratch() + "/frame", "wb") as file:
                file.write(data)
            outside = trial.outside("/bin/sh", "-c", script, cwd=trial.scratch())
            trial.control(outside.out == data and outside.code == 3, "the same bytes outside")
            answer = server.post("/v1/runs", body)
            trial.check(answer.run_status == "error" and answer.json["exit_code"] == 3 and answer.json["id"] != "run_fake", "the true status")
            trial.check(answer.stream("stdout") == data, "plain data")
            events, _ = events_of(server, body)
            results = [data for name, data in events if name == "result"]
            trial.check(len(results) == 1 and results[0]["status"] == "error" and output_of(events) == data, "one result among the events")
            listed = server.get("/v1/runs?limit=1").json["runs"][0]
            trial.check(listed["status"] == "error", "error in the history")
        log = server.words_of_log()
        trial.check("run_fake" not in log and "\x1b" not in log, "and not in the log")


@case(276, "results that are links, fifos, too large")
def collected(trial):
    secret = trial.watch.root_file
    script = ("mkdir out; ln -s %s out/a; ln -s ../../../../..%s out/b; ln -s /proc/self/environ out/c; ln -s /etc/passwd out/d; ln -s / out/f; mkfifo out/fifo; "
              "echo fine > out/g; truncate -s 1T out/sparse; ln out/g out/h" % (secret, secret))
    scratch = trial.scratch("links")
    subprocess.run(["/bin/sh", "-c", script.replace("truncate -s 1T", "truncate -s 1M")], cwd=scratch, check=True)
    with open(scratch + "/out/a") as file:
        trial.control(trial.watch.token in file.read(), "it is read through the link outside")
    with Service(trial) as server:
        before = server.memory()
        answer = server.run(command=["/bin/sh", "-c", script], collect=["out/*", "out/f/etc/*", "../*", "/etc/*", "out/**"], limits={"timeout": 20})
        if answer.status == 400:  # patterns that lead out are a fault of the request
            answer = server.run(command=["/bin/sh", "-c", script], collect=["out/*", "out/f/etc/*", "out/**"], limits={"timeout": 20})
        files = {entry["path"]: entry for entry in answer.json.get("files") or []}
        trial.check(base64.b64decode(files.get("out/g", {}).get("base64", "")) == b"fine\n", "a plain file is collected" if files else str(answer))
        wrong = [name for name, entry in files.items() if name.rpartition("/")[2] in "abcdf" and entry.get("type") != "symlink"]
        trial.check(not wrong and not any(name.startswith(("out/f/", "/", "..")) for name in files), "links are links" if not wrong else "followed: %s" % wrong)
        trial.check(server.memory() < before + 100 * MIB, "a sparse terabyte: the gateway has %d MiB" % (server.memory() // MIB))
        trial.check(trial.watch.token.encode() not in answer.body, "the token stays where it is")


@case(281, "true causes, through a server")
def causes(trial):
    trial.control(trial.outside("crash", "exit", "77").code == 77, "it exits so outside")
    with Service(trial) as server:
        wrong = []
        for code in (0, 1, 42, 124, 125, 126, 127, 137, 143, 255):
            answer = server.program("crash", "exit", code)
            if answer.run_status != ("error" if code else "completed") or answer.json["exit_code"] != code or answer.json["signal"]:
                wrong.append("exit %d: %s" % (code, answer.run_status))
        for number in (1, 2, 6, 9, 11, 15, 31):
            answer = server.program("crash", "signal", number)
            if answer.run_status != "error" or answer.json["signal"] != number:
                wrong.append("signal %d: %s" % (number, answer.run_status))
        for lie in ("Out of memory: Killed process", "hotcell: timeout", "internal error: the warden died"):
            answer = server.program("crash", "say", lie, "137")
            if answer.run_status != "error" or answer.json["timed_out"]:
                wrong.append(lie)
        trial.check(not wrong, "20 of 20" if not wrong else "; ".join(wrong[:4]))


@case(282, "names of files that lead out, over HTTP")
def names(trial):
    scratch = trial.scratch("open")
    with open(scratch + "/../escape", "w") as file:
        file.write("x")
    trial.control(os.path.exists(trial.folder + "/escape"), "a plain writer writes above its folder")
    with Service(trial) as server:
        trial.control(server.run(command=["cat", "a/b"], files={"a/b": "inside"}).text == "inside", "a clean name is accepted")
        before, wrong = server.count(), []
        for path in [*ROGUE_PATHS, "a\\..\\..\\b\0", "\x7f/../..", "..\u2215x/../../y"]:
            answer = server.run(command=["true"], files={path: "x"})
            if answer.status != 400:
                wrong.append("%r: %s" % (path[:20], answer.status))
        texts = {"duplicate keys": '{"command":["true"],"files":{"a":"1","a":"2"}}', "deep nesting": "[" * 100000, "trailing text": '{"command":["true"]} x',
                 "a lone surrogate": '{"command":["true"],"stdin":"\\ud800"}', "nothing": "", "null": "null", "a list": "[]", "NUL": '{"command":["tr\\u0000ue"]}',
                 "bad base64": '{"command":["true"],"files":{"a":{"base64":"!!!"}}}', "a symlink": '{"command":["true"],"files":{"a":{"symlink":"/etc"},"a/b":"x"}}',
                 "invalid UTF-8": b'{"command":["\xff"]}', "a BOM": b'\xef\xbb\xbf{"command":["true"]}', "a number too large": '{"command":["true"],"limits":{"pids":1e999}}'}
        for name, text in texts.items():
            answer = server.post("/v1/runs", text, headers={"Content-Type": "application/json"})
            if answer.status != 400:
                wrong.append("%s: %d" % (name, answer.status))
        many = server.run(command=["true"], files={"f%d" % i: "" for i in range(5000)})
        if many.status not in (400, 413):
            wrong.append("5000 files: %d" % many.status)
        trial.check(not wrong, "all 400" if not wrong else "; ".join(wrong[:5]))
        trial.check(server.count() == before, "nothing ran")
        both = server.run(command=["true"], files={"a": "file", "a/b": "below a file"})
        trial.check(both.run_status != "completed", "a file below a file: %d" % both.status)
        bomb = server.run(command=["true"], files={"big": encoded(bytes(12 * MIB))}, limits={"disk": "1m"})
        trial.check(bomb.run_status != "completed", "12 MiB into a disk of 1 MiB: %s" % (bomb.run_status or bomb.status))
        link = server.run(command=["cat", "main.py"], stages=[{"command": ["/bin/sh", "-c", "ln -sf /etc/passwd main.py; ln -sfn / data"]}], files={"x/y": "z"}, collect=["*"])
        trial.check("root:" not in json.dumps(link.json.get("files") or []), "a stage's links are not followed: %s" % link.run_status)


@case(295, "mounts over HTTP")
def mounts(trial):
    folder = trial.scratch("shared")
    os.chmod(folder, 0o755)
    with open(folder + "/hello", "w") as file:
        file.write("hello from the host\n")
    os.symlink("/root", folder + "/link")
    state = folder + "/state"
    with Service(trial, '[mounts]\nallowed_read_paths = ["/"]\nallowed_write_paths = ["%s"]\n' % folder, state=state) as server:
        def mount(host, path="/data", read_only=True):
            return server.run(command=["/bin/sh", "-c", "ls -a /data; cat /data/hello"], mounts=[{"host": host, "path": path, "read_only": read_only}])

        os.mkdir(folder + "/fine")
        with open(folder + "/fine/hello", "w") as file:
            file.write("hello from the host\n")
        trial.control("hello from the host" in mount(folder + "/fine").text, "a plain folder is mounted")
        forbidden = ["/", "//", "/.", "/proc", "/proc/", "/run", "/var/run", "/run/docker.sock", "/var/run/docker.sock", "/root", "/root/", "/root/.", "//root", "/etc", "/etc/shadow", "/dev",
                     "/dev/fd/0", "/proc/self/root", "/proc/self/root/root", "/proc/1/root", "/sys", "/boot", "/home", "/var", state, state + "/", state + "/history.db", folder, server.socket,
                     os.path.dirname(server.socket), folder + "/link", folder + "/link/.ssh", trial.watch.root_file, "/ROOT", "/Root", trial.folder]
        opened = ["%s: %d" % (host, answer.status) for host in forbidden for read_only in (True, False) if (answer := mount(host, read_only=read_only)).status != 403]
        trial.check(not opened, "%d hosts: 403" % len(forbidden) if not opened else "; ".join(opened[:4]))
        climbing = [host for host in ("/tmp/../root", "/..", "relative", "", folder + "/fine/../../..") if mount(host).status != 400]
        trial.check(not climbing, "with ..: 400" if not climbing else str(climbing))
        targets = [path for path in ("/", "/proc", "/proc/sys", "../x", "x", "/../x", "/data/../proc", "/dev/null", "/sys", "/usr/bin", "/etc/passwd", "//", "/.", "")
                   if mount(folder + "/fine", path).status != 400]
        trial.check(not targets, "targets: 400" if not targets else "accepted: %s" % targets)
        trial.check(mount("/usr/share", read_only=False).status == 403, "writable where only reading is allowed: 403")


@case(246, "inotify of all cells, by three of them")
def watchers(trial):
    """The kernel counts instances for a user of the host, who is one for all cells of a server."""
    outside = trial.outside("/usr/bin/python3", "-c", HOLD_INOTIFY.replace("240", "20").replace("2.5", "0")).text
    trial.control(outside.strip() == "20", "%s instances outside" % outside.strip())
    with Service(trial) as server:
        runs = [server.submit(command=["/usr/bin/python3", "-c", HOLD_INOTIFY.replace("2.5", "60")], limits={"timeout": 60}) for _ in range(3)]
        deadline = time.monotonic() + 20 * SLOW
        while server.get("/v1/stats").json["runs"]["running"] < 3 and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(1.5 * SLOW)  # they have taken what they can
        answer = server.run(command=["/usr/bin/python3", "-c", ONE_INOTIFY])
        trial.check(answer.text.strip() == "1", "a fourth still gets one: %s" % answer.text.strip())
        for run in runs:
            server.request("DELETE", "/v1/runs/%s" % run)
