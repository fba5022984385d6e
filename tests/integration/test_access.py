"""Who may ask, and for what: keys, tenants, quotas, Host and Origin, paths and fields that are not what they seem."""

import contextlib
import json
import pathlib
import socket
import subprocess
import time

import pytest

from cells import HOTCELL
from openapi import Contract
from server import server, start_server  # noqa: F401  (fixtures)

PATHS = ("/v1/runs", "/v1/languages", "/v1/stats", "/metrics", "/v1/runs/run_00000000000000000000000000")


def key(server, *words):
    """`hotcell key …` on the server's state folder; its stdout."""
    done = subprocess.run([HOTCELL, "key", *words, "--state", str(server.state)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done
    return done.stdout.strip()


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def audit(server, event):
    lines = (server.state / "audit.log").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry["event"] == event]


def raw(server, text):
    """Sends bytes as they are; the status of the answer, and whether the connection was closed after it."""
    with contextlib.closing(socket.create_connection(("127.0.0.1", server.port), timeout=10)) as client:
        client.sendall(text if isinstance(text, bytes) else text.encode())
        client.shutdown(socket.SHUT_WR)
        reply = b""
        while piece := client.recv(65536):
            reply += piece
    assert reply.startswith(b"HTTP/1.1 "), reply
    return int(reply.split(b" ", 2)[1])


# ---- attack 83: keys ----


def test_without_keys_loopback_is_served(server):
    for path in PATHS[:4]:
        assert server.get(path).status == 200


def test_missing_prefix_and_wrong_tokens_are_401(start_server):
    server = start_server()
    contract = Contract(server.get("/openapi.json").json)
    token = key(server, "create", "ada")
    wrong = [None, "", token[:-1], token + "x", token[:8], token.swapcase(), "hc_" + "A" * 43, "x" * 4000, token[:-1] + chr(ord(token[-1]) ^ 1)]
    for path in PATHS:
        for guess in wrong:
            answer = server.get(path, headers=bearer(guess) if guess is not None else {})
            assert answer.status == 401, (path, guess, answer)
            assert answer.headers["www-authenticate"].startswith("Bearer")
            contract.validate(answer.json, "Problem")
            assert answer.json["code"] == "unauthorized" and token not in answer.text
    for headers in ({"Authorization": token}, {"Authorization": f"Basic {token}"}, {"Authorization": f"Bearer{token}"}, {"Cookie": f"key={token}"}):
        assert server.get("/v1/stats", headers=headers).status == 401, headers
    assert server.get(f"/v1/stats?key={token}").status == 401
    assert server.post("/execute", {"generated_code": "print(1)", "timeout": 5}).status == 401
    assert server.run(code="print(1)").status == 401
    for headers in (bearer(token), {"authorization": f"bearer  {token}"}, {"X-API-Key": token}):
        assert server.get("/v1/stats", headers=headers).status == 200, headers
    assert server.run(code="print(1)", headers=bearer(token)).json["stdout"] == "1\n"


def test_open_routes_need_no_key_and_the_socket_is_the_operators(start_server):
    server = start_server()
    key(server, "create", "ada")
    for path in ("/healthz", "/readyz", "/openapi.json", "/"):
        assert server.get(path).status == 200, path
    for path in PATHS[:4]:
        assert server.get(path, unix=True).status == 200, path


def test_a_revoked_key_ends_at_once_and_keys_are_still_needed(start_server):
    server = start_server()
    token = key(server, "create", "ada")
    assert server.get("/v1/stats", headers=bearer(token)).status == 200
    key(server, "revoke", "ada")
    assert server.get("/v1/stats", headers=bearer(token)).status == 401
    assert server.get("/v1/stats").status == 401


def test_a_token_is_nowhere_in_the_state(start_server):
    server = start_server()
    token = key(server, "create", "ada")
    assert server.run(code="print(1)", headers=bearer(token)).status == 200
    for path in pathlib.Path(server.state).rglob("*"):
        if path.is_file():
            assert token.encode() not in path.read_bytes(), path
    assert not [line for line in server.log + server.lines if token in line]


def test_wrong_keys_are_audited_and_cannot_flood_the_log(start_server):
    server = start_server()
    key(server, "create", "ada")
    for _ in range(200):
        server.get("/v1/stats", headers=bearer("hc_wrong"))
    entries = audit(server, "unauthorized")
    assert 1 <= len(entries) <= 40
    detail = entries[0]["detail"]
    assert detail["path"] == "/v1/stats" and detail["peer"].startswith("127.0.0.1:") and "hc_wrong" not in json.dumps(entries)
    checked = subprocess.run([HOTCELL, "audit", "verify", "--state", str(server.state)], capture_output=True, text=True, timeout=30)
    assert checked.returncode == 0, checked


# ---- attack 84: tenants ----


def test_another_tenants_run_does_not_exist(start_server):
    server = start_server()
    ada, bob = bearer(key(server, "create", "ada")), bearer(key(server, "create", "bob"))
    identity = server.run(code="print('secret')", headers=ada).json["id"]
    started = server.run(command=["/bin/sleep", "5"], headers=ada, **{"async": True}).json["id"]
    nobody = "run_00000000000000000000000000"
    for method, path in (("GET", "/v1/runs/{}"), ("DELETE", "/v1/runs/{}"), ("GET", "/v1/runs/{}/events"), ("GET", "/v1/runs/{}/report")):
        unknown = server.request(method, path.format(nobody), headers=bob)
        assert unknown.status == 404
        for one in (identity, started):
            answer = server.request(method, path.format(one), headers=bob)
            assert answer.status == 404, answer
            assert answer.body.replace(one.encode(), b"") == unknown.body.replace(nobody.encode(), b"")
    assert server.get("/v1/runs", headers=bob).text.count("run_") == 0
    assert server.get("/v1/stats", headers=bob).json["history"]["runs"] == 0
    assert server.get(f"/v1/runs?before={started}", headers=bob).text.count("run_") == 0
    assert server.get(f"/v1/runs/{started}", headers=ada).json["status"] in ("queued", "running")
    assert server.get(f"/v1/runs/{identity}", headers=ada).json["stdout"] == "secret\n"
    assert server.get(f"/v1/runs/{identity}", unix=True).json["stdout"] == "secret\n"
    assert server.get("/v1/stats", headers=ada).json["history"]["of"] == "ada"


# ---- quotas ----


def check_quota(answer, contract, words):
    assert answer.status == 429, answer
    contract.validate(answer.json, "Problem")
    assert answer.json["code"] == "quota_exceeded" and words in answer.json["detail"]
    return int(answer.headers["retry-after"])


def test_runs_a_minute(start_server):
    server = start_server()
    contract = Contract(server.get("/openapi.json").json)
    ada = bearer(key(server, "create", "ada", "--runs-per-minute", "3"))
    bob = bearer(key(server, "create", "bob"))
    for _ in range(3):
        assert server.run(command=["/bin/true"], headers=ada).status == 200
    assert 50 <= check_quota(server.run(command=["/bin/true"], headers=ada), contract, "runs a minute") <= 61
    assert server.run(command=["/bin/true"], headers=bob).status == 200
    assert server.get("/v1/runs", headers=ada).status == 200


def test_a_quota_that_is_used_up_is_in_the_audit_log_once_however_often_it_is_met(start_server):
    server = start_server()
    ada = bearer(key(server, "create", "ada", "--runs-per-minute", "1"))
    assert [server.run(command=["/bin/true"], headers=ada).status for _ in range(5)] == [200, 429, 429, 429, 429]
    entries = [json.loads(line) for line in (server.state / "audit.log").read_text().splitlines()]
    met = [entry for entry in entries if entry["event"] == "limit_hit"]
    assert [(entry["tenant"], entry["detail"]["reason"]) for entry in met] == [("ada", "this key's quota of 1 runs a minute is used up")]


def test_runs_at_once(start_server):
    server = start_server()
    contract = Contract(server.get("/openapi.json").json)
    ada = bearer(key(server, "create", "ada", "--concurrent", "1"))
    first = server.run(command=["/bin/sleep", "30"], headers=ada, **{"async": True})
    assert first.status == 202
    check_quota(server.run(command=["/bin/true"], headers=ada), contract, "runs at once")
    server.delete(first.headers["location"], headers=ada)
    server.get(first.headers["location"] + "?wait=20", headers=ada)
    assert server.run(command=["/bin/true"], headers=ada).status == 200


def test_cpu_seconds_a_day_outlive_a_restart(start_server):
    server = start_server()
    contract = Contract(server.get("/openapi.json").json)
    ada = bearer(key(server, "create", "ada", "--cpu-seconds-per-day", "1"))
    answer = server.run(code="import time\nwhile time.process_time() < 1.2: pass", headers=ada)
    assert answer.json["usage"]["cpu_ms"] >= 1000
    left = 86400 - time.time() % 86400
    retry = check_quota(server.run(command=["/bin/true"], headers=ada), contract, "CPU seconds a day")
    assert abs(retry - left) < 60 or retry > 86000
    server.stop()
    server.start()
    check_quota(server.run(command=["/bin/true"], headers=ada), contract, "CPU seconds a day")


# ---- attack 85: paths ----


@pytest.mark.parametrize("path", ["/v1/runs/%2e%2e%2fstats", "/v1/../v1/stats", "/v1/%2e%2e/stats", "/v1/runs/%00", "//v1/stats", "/v1//stats",
                                  "/v1/runs/..%2f..%2fetc%2fpasswd", "/v1/runs/a%2fb", "/v1/runs/%zz", "/v1/runs/%", "/v1/./stats", "/v1/runs/%2e",
                                  "/v1/runs/%c0%ae%c0%ae", "/%2e%2e/%2e%2e/etc/passwd"])
def test_paths_that_two_parsers_could_read_in_two_ways_are_400(server, path):
    assert raw(server, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n") == 400


@pytest.mark.parametrize("path", ["/v1/runs/%252e%252e%252fstats", "/v1/runs/..%252f", "/V1/STATS", "/v1/stats;x=1"])
def test_what_is_encoded_twice_is_decoded_once(server, path):
    assert raw(server, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n") in (400, 404)


# ---- attacks 89 and 90: fields ----

NAMES = ("timeout", "cpu_time", "memory", "swap", "cpus", "cpu_shares", "pids", "output", "disk", "inodes", "files_open")


@pytest.mark.parametrize("name", NAMES)
def test_limits_that_are_no_limits_are_400(server, name):
    for value in ("-1", "9223372036854775808", "18446744073709551616", "1e400", "NaN", "Infinity", "-Infinity", '"-1"', '"NaN"', '"inf"', '"unlimited"',
                  '"9223372036854775808"', '""', "true", "[]", "{}", "1e308"):
        answer = server.post("/v1/runs", f'{{"command":["/bin/true"],"limits":{{"{name}":{value}}}}}', headers={"Content-Type": "application/json"})
        assert answer.status == 400, (value, answer)
        assert answer.json["code"] == "invalid_request"


@pytest.mark.parametrize("field", ["privileged", "preload", "user", "uid", "cap_add", "allow_weak", "__proto__", "Code", "code "])
def test_unknown_fields_are_400_and_named(server, field):
    answer = server.run(**{"command": ["/bin/true"], field: True})
    assert answer.status == 400 and field.strip() in answer.json["detail"], answer


def test_unknown_fields_further_in_are_named_too(server):
    for fields, name in (({"limits": {"memroy": 1}}, "memroy"), ({"mounts": [{"host": "/tmp", "path": "/x", "suid": True}]}, "suid"),
                         ({"tests": [{"stdim": ""}]}, "stdim"), ({"stages": [{"command": ["true"], "root": 1}]}, "root")):
        answer = server.run(command=["/bin/true"], **fields)
        assert answer.status == 400 and name in answer.json["detail"], answer


def test_a_field_that_is_given_twice_is_400(server):
    body = '{"command":["/bin/true"],"limits":{"pids":1},"limits":{"pids":9}}'
    assert server.post("/v1/runs", body, headers={"Content-Type": "application/json"}).status == 400


# ---- attack 91: browsers ----

RUN = {"command": ["/bin/true"]}
EXECUTE = {"generated_code": "open('/workspace/csrf', 'w')", "timeout": 5}


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost", "https://127.0.0.1:1", "file://", "http://127.0.0.1.evil.example"])
def test_a_foreign_origin_is_403(server, origin):
    for method, path, body in (("GET", "/v1/runs", None), ("POST", "/v1/runs", RUN), ("POST", "/execute", EXECUTE), ("OPTIONS", "/v1/runs", None)):
        answer = server.request(method, path, body, headers={"Origin": origin})
        assert answer.status == 403, answer
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example", "169.254.169.254", "0.0.0.0"])
def test_a_rebound_host_is_403(server, host):
    for method, path, body in (("GET", "/v1/runs", None), ("POST", "/v1/runs", RUN), ("POST", "/execute", EXECUTE), ("GET", "/healthz", None)):
        answer = server.request(method, path, body, headers={"Host": host})
        assert answer.status == 403 and answer.json["code"] == "forbidden", answer
    assert audit(server, "request_refused")


def test_what_is_no_request_is_in_the_audit_log(start_server):
    server = start_server()
    sent = {b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n": 400,
            b"GET /v1/../v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n": 400,
            b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X: y\r\n" * 5000 + b"\r\n": 431}
    for text, status in sent.items():
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(text)
            assert client.recv(65536).startswith(b"HTTP/1.1 %d " % status), text[:60]
    found = [entry["detail"] for entry in audit(server, "request_refused")]
    assert [one["status"] for one in found] == [400, 400, 431] and all(one["why"] and one["peer"] for one in found), found


def test_loopback_names_are_served(server):
    for host in ("localhost", f"localhost:{server.port}", "127.0.0.1", f"127.0.0.1:{server.port}", "[::1]", "LOCALHOST:1"):
        assert server.get("/v1/stats", headers={"Host": host}).status == 200, host


@pytest.mark.parametrize("kind", ["text/plain", "text/plain;charset=UTF-8", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", None])
def test_a_body_that_a_page_may_send_without_asking_runs_nothing(server, kind):
    before = server.get("/v1/stats").json["history"]["runs"]
    headers = {"Content-Type": kind} if kind else {}
    for path, body in (("/v1/runs", RUN), ("/execute", EXECUTE)):
        answer = server.post(path, json.dumps(body), headers=headers)
        assert 400 <= answer.status < 500, answer
        assert server.post(path, json.dumps(body), headers={**headers, "Origin": "http://evil.example"}).status == 403
    assert server.get("/v1/stats").json["history"]["runs"] == before


def test_configured_hosts_and_origins_are_served_with_cors(start_server):
    server = start_server('[server]\nhosts = ["box.example"]\norigins = ["https://app.example"]\n')
    assert server.get("/v1/stats", headers={"Host": "box.example:81"}).status == 200
    page = {"Origin": "https://app.example"}
    answer = server.run(command=["/bin/true"], headers=page)
    assert answer.status == 200 and answer.headers["access-control-allow-origin"] == "https://app.example"
    assert "origin" in answer.headers["vary"].lower()
    ask = {**page, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type, authorization"}
    answer = server.request("OPTIONS", "/v1/runs", headers=ask)
    assert answer.status == 204 and answer.headers["access-control-allow-origin"] == "https://app.example"
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert "authorization" in answer.headers["access-control-allow-headers"].lower()
    assert server.get("/v1/stats", headers={"Origin": "https://other.example"}).status == 403


def test_the_same_origin_is_served(server):
    assert server.get("/v1/stats", headers={"Origin": f"http://127.0.0.1:{server.port}"}).status == 200
