"""A server's clients: 83–94 (92 is about MCP, which there is not yet), and 89 and 90 over HTTP: 289, 290."""

import contextlib
import json
import os
import re
import resource
import shutil
import socket
import statistics
import subprocess
import threading
import time

from cases.supervisor import LIMITS, ROGUE_JSON
from service import Service, doing
from suite import SLOW, case

MIB = 1 << 20
BODY = json.dumps({"command": ["/bin/echo", "fine"]}).encode()
HEAD = b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
GOOD = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY


def status_of(reply):
    parts = reply.split(b" ", 2)
    return int(parts[1]) if reply.startswith(b"HTTP/1.1 ") and len(parts) > 1 and parts[1].isdigit() else 0


def bearer(token):
    return {"Authorization": "Bearer " + token}


@case(83, "missing, shortened, wrong key")
def keys(trial):
    with Service(trial) as server:
        token = server.key("ada")
        trial.control(server.get("/v1/runs", headers=bearer(token)).status == 200, "the key opens")
        wrong = [None, "", " ", token[:-1], token[:10], token + "x", token.upper(), "x" * 3000, token[:-1] + ("a" if token[-1] != "a" else "b"), "*", "%", "' or 1=1 --"]
        opened = []
        for word in wrong:
            headers = {} if word is None else bearer(word)
            for method, path in (("GET", "/v1/runs"), ("POST", "/v1/runs"), ("GET", "/v1/stats"), ("GET", "/metrics"), ("POST", "/execute")):
                answer = server.request(method, path, {"command": ["true"]} if method == "POST" else None, headers=headers)
                if answer.status != 401:
                    opened.append("%s %s with %r: %d" % (method, path, word, answer.status))
        for header in ("Basic " + token, "bearer" + token, token, "Bearer  ", "Bearer " + token + " extra"):
            if server.get("/v1/runs", headers={"Authorization": header}).status != 401:
                opened.append(header[:12])
        for path in ("/v1/runs?key=" + token, "/v1/runs?access_token=" + token):
            if server.get(path).status not in (400, 401):
                opened.append(path[:14])
        trial.check(not opened, "%d tries: 401" % (len(wrong) * 5 + 7) if not opened else "; ".join(opened[:3]))
        early, late = ("A" if token[3] != "A" else "B").join((token[:3], token[4:])), token[:-1] + ("A" if token[-1] != "A" else "B")
        times = {early: [], late: []}
        for turn in range(240):
            for word in ((early, late) if turn % 2 else (late, early)):
                begin = time.perf_counter()
                server.get("/v1/stats", headers=bearer(word))
                times[word].append(time.perf_counter() - begin)
        first, last = (statistics.median(times[word]) * 1e6 for word in (early, late))
        trial.check(abs(first - last) < 0.15 * max(first, last), "wrong in its first or last letter: %.0f, %.0f µs" % (first, last))


@case(84, "another tenant's run")
def tenants(trial):
    with Service(trial) as server:
        ada, bob = bearer(server.key("ada")), bearer(server.key("bob"))
        word = "of-ada-%d" % os.getpid()
        done = server.run(headers=ada, command=["/bin/echo", word]).json["id"]
        lives = server.submit(headers=ada, command=["/bin/sh", "-c", "echo %s; sleep 20" % word])
        trial.control(word in server.get("/v1/runs/%s" % done, headers=ada).text, "its owner reads it")
        wrong = []
        for run in (done, lives, done.upper(), done + "%20", done + "/", "../runs/" + done):
            for method, tail in (("GET", ""), ("DELETE", ""), ("GET", "/events"), ("GET", "/report"), ("GET", "?wait=0")):
                answer = server.request(method, "/v1/runs/%s%s" % (run, tail), headers=bob)
                if answer.status not in (400, 404) or word.encode() in answer.body:
                    wrong.append("%s %s: %s" % (method, tail, answer.status))
        absent = server.get("/v1/runs/run_" + "0" * 26, headers=bob)
        theirs = server.get("/v1/runs/%s" % done, headers=bob)
        trial.check(not wrong, "404 for every route" if not wrong else "; ".join(wrong[:3]))
        trial.check(theirs.body.replace(done.encode(), b"") == absent.body.replace(b"run_" + b"0" * 26, b""), "like one that is not there")
        listed = server.get("/v1/runs", headers=bob).body + server.get("/v1/runs?before=%s" % done, headers=bob).body
        trial.check(done.encode() not in listed and word.encode() not in listed, "not listed")
        trial.check(server.get("/v1/runs/%s" % lives, headers=ada).json.get("status") == "running", "and not ended")
        server.request("DELETE", "/v1/runs/%s" % lives, headers=ada)


@case(85, "paths: encoded, doubled, NUL")
def paths(trial):
    with Service(trial) as server:
        run = server.run(command=["/bin/echo", "fine"]).json["id"]
        trial.control(server.get("/v1/runs/" + run).status == 200 and server.get("/v1/runs/%s" % run.replace("r", "%72", 1)).status == 200,
                      "the plain path, and one with a letter encoded, are found")
        wrong, tried = [], 0
        for path in ("/%2e%2e%2f%2e%2e%2fetc/passwd", "/v1/runs/..%2f..%2fstate/history.db", "/v1/runs/%00", "/v1/runs/" + run + "%00", "/v1/runs/%252e%252e",
                     "//v1/runs", "/v1//runs", "/v1/runs/../runs", "/v1/./runs", "/v1/runs/%2e%2e/stats", "/v1/runs/" + run + "%2freport", "/v1/runs/%c0%af",
                     "/v1/runs/%", "/v1/runs/%zz", "/v1/runs/%2", "/../../etc/passwd", "/v1/runs;x=1", "\\v1\\runs", "/v1/runs/" + "x" * 9000, "/state/history.db",
                     "/proc/self/environ", "/v1/runs/\x7f", "http://evil/v1/runs", "*", "/v1/runs\t", "/v1/runs/é"):
            reply, _ = server.raw(b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path.encode())
            tried += 1
            if status_of(reply) not in (400, 403, 404, 414, 431) or b"root:" in reply or b"SQLite" in reply:
                wrong.append("%s: %s" % (path[:30], reply[:20]))
        trial.check(not wrong, "%d refused" % tried if not wrong else "; ".join(wrong[:4]))


SMUGGLED = b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
REPLY = re.compile(rb"HTTP/1\.1 \d{3} [A-Z][A-Za-z -]+\r\n")
CHUNKED = b"Transfer-Encoding: chunked\r\n"


def ambiguous():
    """Requests that two servers could read in two ways; each is followed by one that must not be taken for a request."""
    size = b"Content-Length: %d\r\n" % len(BODY)
    heads = {
        "CL and TE": size + CHUNKED, "TE and CL": CHUNKED + size, "two CL": size + b"Content-Length: 5\r\n", "two equal CL": size + size, "CL list": b"Content-Length: 5, 5\r\n",
        "CL +5": b"Content-Length: +5\r\n", "CL -1": b"Content-Length: -1\r\n", "CL 0x5": b"Content-Length: 0x5\r\n", "CL 5 5": b"Content-Length: 5 5\r\n",
        "CL 2^64": b"Content-Length: 18446744073709551621\r\n", "CL empty": b"Content-Length: \r\n", "space before colon": b"Content-Length : 5\r\n",
        "folded": b"X: a\r\n b\r\n" + size, "TE identity": b"Transfer-Encoding: identity\r\n" + size, "TE twice": CHUNKED + CHUNKED,
        "TE xchunked": b"Transfer-Encoding: xchunked\r\n" + size, "TE gzip, chunked": b"Transfer-Encoding: gzip, chunked\r\n", "TE tab": b"Transfer-Encoding:\tchunked, identity\r\n",
        "NUL in header": b"X: a\0b\r\n" + size, "bare CR": b"X: a\rContent-Length: 0\r\n" + size, "no colon": b"Nonsense\r\n" + size, "empty name": b": x\r\n" + size,
        "two Host": b"Host: other\r\n" + size, "name with space": b"A B: c\r\n" + size,
    }
    for name, lines in heads.items():
        yield name, HEAD + lines + b"\r\n" + BODY
    yield "bare LF", GOOD.replace(b"\r\n", b"\n")
    yield "bare LF in headers", HEAD + b"X: a\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
    for name, chunks in {"chunk 2^64": b"10000000000000005\r\nhello\r\n0\r\n\r\n", "chunk -1": b"-1\r\nhello\r\n0\r\n\r\n", "chunk 0x5": b"0x5\r\nhello\r\n0\r\n\r\n",
                         "chunk without CRLF": b"5\r\nhelloX0\r\n\r\n", "chunk LF": b"5\nhello\n0\n\n", "chunk empty size": b"\r\nhello\r\n0\r\n\r\n",
                         "chunk long size": b"0" * 500 + b"5\r\nhello\r\n0\r\n\r\n", "chunk spaces": b"5 5\r\nhello\r\n0\r\n\r\n",
                         "endless extension": b"5;" + b"x" * 70000 + b"\r\nhello\r\n0\r\n\r\n"}.items():
        yield name, HEAD + CHUNKED + b"\r\n" + chunks
    yield "HTTP/1.1 without Host", GOOD.replace(b"Host: localhost\r\n", b"")
    yield "HTTP/9.9", GOOD.replace(b"HTTP/1.1", b"HTTP/9.9")
    yield "two spaces", GOOD.replace(b"POST /v1/runs ", b"POST  /v1/runs  ")
    yield "lower case", GOOD.replace(b"POST", b"post")
    yield "no version", GOOD.replace(b" HTTP/1.1", b"")


@case(86, "request smuggling")
def smuggling(trial):
    with Service(trial) as server:
        before = server.count()
        reply, _ = server.raw(GOOD + SMUGGLED.replace(b"Host: localhost", b"Host: localhost\r\nConnection: close"))
        trial.control(reply.count(b"HTTP/1.1 200") == 2 and server.count() == before + 2, "two sound requests on one connection run twice")
        chunked = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (BODY[:7], BODY[7:])) + b"0\r\n\r\n"
        reply, _ = server.raw(HEAD + CHUNKED + b"Connection: close\r\n\r\n" + chunked)
        trial.control(status_of(reply) == 200, "so does a sound body in chunks")
        before, wrong, tried = server.count(), [], 0
        for name, data in ambiguous():
            reply, closed = server.raw(data + SMUGGLED, within=5)
            tried += 1
            if not 400 <= status_of(reply) < 510 or not closed or len(REPLY.findall(reply)) != 1:
                wrong.append("%s: %s%s" % (name, reply[:30], "" if closed else ", open"))
        ran = server.count() - before
        trial.check(not wrong, "%d: one refusal each, then closed" % tried if not wrong else "; ".join(wrong[:4]))
        trial.check(ran == 0, "nothing ran" if ran == 0 else "%d RAN" % ran)


def slow(server, *words, seconds=6):
    """slowhttptest with 200 connections: whether the server had closed all of them before its time was over."""
    done = subprocess.run(["slowhttptest", *words, "-c", "200", "-r", "200", "-l", str(seconds), "-u", "http://127.0.0.1:%d/v1/runs" % server.port],
                          capture_output=True, text=True, timeout=60 * SLOW)
    return "No open connections left" in done.stdout


@case(87, "slow headers, bodies and readers", seconds=90)
def slowly(trial):
    trial.need(shutil.which("slowhttptest"), "slowhttptest is installed" if shutil.which("slowhttptest") else "slowhttptest is not installed: apt-get install slowhttptest")
    patient = Service(trial, "[server]\nheader_time = '60s'\n", name="patient")
    with patient:
        trial.control(not slow(patient, "-H", "-i", "1", seconds=4), "a patient server keeps 200 of them")
    quick = "[server]\nheader_time = '1500ms'\nbody_time = '1500ms'\nidle_time = '2s'\nwrite_time = '1500ms'\n"
    with Service(trial, quick) as server:
        base = server.descriptors()
        for kind, words in (("headers", ["-H", "-i", "1"]), ("bodies", ["-B", "-i", "1", "-s", "8192", "-t", "POST", "-f", "application/json"])):
            result = []
            with contextlib.ExitStack() as stack:
                thread = threading.Thread(target=lambda words=words: result.append(slow(server, *words)))
                stack.callback(thread.join)
                thread.start()
                time.sleep(0.6)
                pace = server.pace(8)
            trial.check(result == [True], "slow %s: 200 closed in time" % kind if result == [True] else "slow %s: NOT closed in time" % kind)
            trial.check(pace is not None and pace < 1000 * SLOW, "a run beside them: %s ms" % (pace and round(pace)))
        big = server.run(command=["/bin/sh", "-c", "head -c 900000 /dev/zero | tr '\\0' x"]).json["id"]
        readers = []
        for _ in range(100):  # ask for a megabyte, and read nothing of it
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            client.settimeout(5)
            client.connect(("127.0.0.1", server.port))
            client.sendall(b"GET /v1/runs/%s HTTP/1.1\r\nHost: localhost\r\n\r\n" % big.encode() * 4)
            readers.append(client)
        held = server.descriptors()
        trial.check(server.pace(4) is not None, "runs go on beside 100 readers who do not read")
        deadline = time.monotonic() + 8 * SLOW
        while (now := server.descriptors()) > base + 10 and time.monotonic() < deadline:
            held = max(held, now)
            time.sleep(0.1)
        trial.check(held >= base + 20 and now <= base + 10, "slow reading: closed by the deadline (%d → %d)" % (held, now))
        for client in readers:
            client.close()
        trial.check(server.memory() < 64 * MIB, "the gateway has %d MiB" % (server.memory() // MIB))


def many_bodies(server, count=60):
    """Each within its limit, all of them beyond what bodies may have together. The most memory that was seen."""
    clients = []
    for _ in range(count):
        client = socket.create_connection(("127.0.0.1", server.port), timeout=5)
        client.setblocking(False)
        with contextlib.suppress(OSError):
            client.send(HEAD + b"Content-Length: 4000000\r\n\r\n" + b"x" * 3900000)
        clients.append(client)
    time.sleep(0.3)
    most = server.memory()
    for client in clients:
        client.close()
    deadline = time.monotonic() + 5 * SLOW
    while server.descriptors() > 60 and time.monotonic() < deadline:
        time.sleep(0.02)
    return most


@case(88, "10 GB of body, a million headers", alone=True)
def huge(trial):
    with Service(trial, "[server]\nbody_bytes = '4m'\nbody_total = '32m'\n") as server:
        before = server.memory()
        fits = {"command": ["/bin/cat"], "stdin": "x" * (3 * MIB)}
        trial.control(server.run(**fits, limits={"output": "4m"}).run_status == "completed", "3 MiB are taken")
        reply, closed = server.raw(HEAD + b"Content-Length: 10737418240\r\n\r\n" + b"x" * 65536)
        trial.check(status_of(reply) == 413 and closed, "10 GB announced: 413")
        reply, closed = server.raw(HEAD + b"Content-Length: 10737418240\r\nExpect: 100-continue\r\n\r\n")
        trial.check(status_of(reply) in (413, 417) and closed, "and asked first: %d" % status_of(reply))
        reply, closed = server.raw(HEAD + CHUNKED + b"\r\n" + (b"10000\r\n" + b"x" * 65536 + b"\r\n") * 160)
        trial.check(status_of(reply) == 413 and closed, "in chunks, unannounced: %d" % status_of(reply))
        reply, closed = server.raw(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(1000000)))
        trial.check(status_of(reply) == 431 and closed, "a million headers: %d" % status_of(reply))
        reply, closed = server.raw(b"GET /" + b"x" * (8 * MIB) + b" HTTP/1.1\r\n\r\n")
        trial.check(status_of(reply) in (414, 431) and closed, "a line of 8 MiB: %d" % status_of(reply))
        reply, closed = server.raw(b"x" * (8 * MIB))
        trial.check(status_of(reply) in (400, 414, 431) and closed, "8 MiB of nothing: %d" % status_of(reply))
        peaks, rests = [], []
        for _ in range(4):
            peaks.append(many_bodies(server))
            rests.append(server.memory())
        trial.check(max(peaks) < before + 4 * 32 * MIB, "60 bodies of 4 MB at once, 32 MiB allowed: %d MiB of memory" % (max(peaks) // MIB))
        trial.check(max(rests[2:]) <= 1.25 * rests[0] + 4 * MIB, "flat: after each of four times %s MiB" % ", ".join(str(rest // MIB) for rest in rests))
        trial.check(server.run(command=["/bin/echo", "fine"]).text == "fine\n", "and it goes on")


@case(289, "rogue limits over HTTP")
def rogue_limits(trial):
    with Service(trial, "[ceilings]\nmemory = '1g'\ntimeout = '60s'\npids = 200\n") as server:
        good = server.run(command=["/bin/echo", "fine"], limits={"timeout": 5, "memory": "64m", "pids": 10})
        trial.control(good.text == "fine\n", "sound limits are accepted")
        before, accepted, tried = server.count(), [], 0
        headers = {"Content-Type": "application/json"}
        for name in LIMITS:
            for value in [*ROGUE_JSON, "NaN", "-Infinity", "18446744073709551616", "1e308", '"9223372036854775808"', "-9223372036854775809"]:
                answer = server.post("/v1/runs", '{"command":["true"],"limits":{"%s":%s}}' % (name, value), headers=headers)
                tried += 1
                if answer.status != 400:
                    accepted.append("%s: %s → %d" % (name, value, answer.status))
        for name in ("memory", "pids", "disk", "inodes", "files_open", "timeout", "output", "cpus"):
            answer = server.run(command=["true"], limits={name: 0})
            tried += 1
            if answer.status != 400:
                accepted.append("%s: 0" % name)
        trial.check(not accepted, "%d: 400" % tried if not accepted else "; ".join(accepted[:6]))
        over = [server.run(command=["true"], limits=limits) for limits in ({"memory": "2g"}, {"timeout": 61}, {"pids": 201})]
        named = all(answer.status == 400 and word in answer.body for answer, word in zip(over, (b"memory", b"timeout", b"pids")))
        trial.check(named, "over a ceiling: 400, and named")
        trial.check(server.count() == before, "nothing ran")


@case(290, "unknown fields over HTTP")
def unknown(trial):
    with Service(trial) as server:
        trial.control(server.run(command=["/bin/echo", "fine"], metadata={"privileged": True}).text == "fine\n", "known fields are accepted")
        before, wrong = server.count(), []
        for field, value in (("privileged", True), ("preload", ["os"]), ("allow_weak", True), ("user", "root"), ("uid", 0), ("seccomp", "off"), ("capabilities", ["all"]),
                             ("Command", ["true"]), ("__proto__", {}), ("config", "/etc/x"), ("tenant", "ada"), ("id", "run_1"), ("status", "completed"), ("kind", "execute"),
                             ("shared_workspace", True)):
            answer = server.run(**{"command": ["true"], field: value})
            if answer.status != 400 or field.encode() not in answer.body:
                wrong.append("%s: %d" % (field, answer.status))
        for field, value in (("limits", {"privileged": 1}), ("mounts", [{"host": "/tmp", "path": "/x", "propagation": "shared"}]), ("stages", [{"command": ["true"], "user": "root"}]),
                             ("tests", [{"stdin": "", "privileged": True}]), ("files", {"a": {"symlink": "/etc/passwd"}}), ("network", "host"), ("image", "/")):
            answer = server.run(**{"command": ["true"], field: value})
            if answer.status != 400:
                wrong.append("%s: %d" % (field, answer.status))
        trial.check(not wrong, "22: 400" if not wrong else "; ".join(wrong[:5]))
        trial.check(server.count() == before, "nothing ran")


@case(91, "foreign Origin, rebound Host, plain text")
def browsers(trial):
    with Service(trial) as server:
        local = "127.0.0.1:%d" % server.port
        trial.control(server.run(command=["/bin/echo", "fine"], headers={"Origin": "http://" + local}).text == "fine\n", "its own origin is served")
        before, wrong = server.count(), []
        for origin in ("http://evil.example", "https://127.0.0.1.evil.example", "null", "http://127.0.0.1:1", "http://evil.example:%d" % server.port, "file://", "http://localhost.evil.example",
                       "http://%s@evil.example" % local, "HTTP://EVIL"):
            for path in ("/v1/runs", "/execute"):
                answer = server.post(path, {"command": ["true"], "generated_code": "1"}, headers={"Origin": origin})
                if answer.status != 403 or "access-control-allow-origin" in answer.headers:
                    wrong.append("Origin %s: %d" % (origin, answer.status))
            answer = server.request("OPTIONS", "/v1/runs", headers={"Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"})
            if answer.status < 400 or "access-control-allow-origin" in answer.headers:
                wrong.append("preflight %s: %d" % (origin, answer.status))
        for host in ("evil.example", "evil.example:%d" % server.port, "127.0.0.1.evil.example", "169.254.169.254", "localhost.evil", "0.0.0.0", "[::ffff:1.2.3.4]", ""):
            reply, _ = server.raw(GOOD.replace(b"Host: localhost", b"Host: " + host.encode() + b"\r\nConnection: close"))
            if status_of(reply) not in (400, 403):
                wrong.append("Host %s: %s" % (host, reply[:20]))
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain; x=application/json", ""):
            for path in ("/v1/runs", "/execute"):
                answer = server.post(path, BODY, headers={"Content-Type": kind} if kind else {})
                if answer.status not in (400, 403, 415):
                    wrong.append("%s %s: %d" % (path, kind, answer.status))
        trial.check(not wrong, "all refused" if not wrong else "; ".join(wrong[:4]))
        trial.check(server.count() == before, "nothing ran")


@case(93, "a request that names a URL")
def callbacks(trial):
    watch = trial.watch
    sink = "http://127.0.0.1:%d/latest/meta-data" % watch.tcp.getsockname()[1]
    subprocess.run(["curl", "-s", "-m", "1", sink], capture_output=True)
    trial.control(watch.contacts() == 1, "the sink is reached by curl")
    with Service(trial) as server:
        wrong = []
        for field in ("callback", "callback_url", "webhook", "url", "stdin_url", "additional_files_url"):
            if server.run(**{"command": ["true"], field: sink}).status != 400:
                wrong.append(field)
        for fields in ({"image": sink}, {"files": {"a": {"url": sink}}}, {"mounts": [{"host": sink, "path": "/x"}]}, {"language": sink}, {"network": sink},
                       {"collect": [sink], "metadata": {"url": sink}}):
            answer = server.run(**{"command": ["true"], **fields})
            if answer.status != 400 and "collect" not in fields:
                wrong.append("%s: %d" % (list(fields)[0], answer.status))
        server.raw(b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % sink.encode())
        server.raw(b"CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n")
        trial.check(not wrong, "refused" if not wrong else "taken: %s" % wrong)
        trial.check(watch.contacts() == 0, "the sinks are silent")


def idle_connections(server, count):
    clients = []
    for i in range(count):
        client = socket.socket()
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            client.connect(("127.0.0.1", server.port))
        clients.append(client)
        if i % 500 == 499:
            time.sleep(0.05)  # so that the backlog is never full
    return clients


@case(94, "10 000 connections, a flood of the queue", seconds=120, alone=True)
def flood(trial):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 14000), max(hard, 14000)))
    count = 10000
    with Service(trial, "[server]\nconcurrent = 4\nqueue = 16\nidle_time = '120s'\nheader_time = '120s'\n") as server:
        base = server.memory()

        @contextlib.contextmanager
        def crowd():
            clients = idle_connections(server, count)
            deadline = time.monotonic() + 10 * SLOW
            while server.descriptors() < count * 0.99 and time.monotonic() < deadline:
                time.sleep(0.05)
            crowd.held, crowd.memory = max(crowd.held, server.descriptors()), server.memory()
            yield
            for client in clients:
                client.close()

        crowd.held = crowd.memory = 0
        server.unaffected(crowd, "beside %d idle connections" % count)
        trial.control(crowd.held >= count * 0.99, "%d are held open" % crowd.held)
        trial.check(crowd.memory < base + 64 * MIB, "with %d MiB of memory" % (crowd.memory // MIB))
        deadline = time.monotonic() + 10 * SLOW
        while server.descriptors() > 200 and time.monotonic() < deadline:
            time.sleep(0.05)
        trial.check(server.descriptors() <= 200, "and let go of")

        codes, lock = {}, threading.Lock()

        def push():
            answer = server.run(command=["/bin/sleep", "0.05"])
            with lock:
                codes[answer.status] = codes.get(answer.status, 0) + 1
                if answer.status in (429, 503) and "retry-after" not in answer.headers:
                    codes["no Retry-After"] = 1

        ada = {}
        with contextlib.ExitStack() as stack:
            for _ in range(40):
                stack.enter_context(doing(push))
            time.sleep(1)
            for _ in range(10):
                answer = server.run(command=["/bin/echo", "fine"], headers=ada, within=10)
                with lock:
                    codes["beside %s" % answer.status] = codes.get("beside %s" % answer.status, 0) + 1
        full = codes.get(503, 0) + codes.get(429, 0)
        trial.check(codes.get(200, 0) > 20 and full > 20 and set(map(str, codes)) <= {"200", "429", "503", "beside 200", "beside 429", "beside 503"},
                    "a flood: %s" % ", ".join("%s ×%d" % pair for pair in sorted(codes.items(), key=str)))
        trial.check(server.pace(4) is not None, "afterwards runs pass")

    with Service(trial, "[server]\nconcurrent = 2\nqueue = 32\n", name="fair") as server:
        ada, bob = bearer(server.key("ada")), bearer(server.key("bob"))

        def flood_as_ada():
            server.run(headers=ada, command=["/bin/sleep", "0.1"], within=20)

        with contextlib.ExitStack() as stack:
            for _ in range(24):
                stack.enter_context(doing(flood_as_ada))
            time.sleep(0.5)
            times = []
            for _ in range(6):
                begin = time.monotonic()
                answer = server.run(headers=bob, command=["/bin/true"])
                times.append((time.monotonic() - begin) if answer.run_status == "completed" else 99)
        trial.check(max(times) < 1.0 * SLOW, "another tenant's run beside one tenant's flood: %.0f ms at most" % (max(times) * 1000))
