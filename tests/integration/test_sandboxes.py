"""Sandboxes: made, listed, looked at, paused, kept, ended; states, limits of counts and times, usage, and who may see them."""

import json
import subprocess
import time

import pytest

from cells import HOTCELL, MIB, SLOW
from openapi import Contract
from sandboxes import ROOT, Sandbox, box, contract, guests, wait_for  # noqa: F401  (fixtures)
from server import server, start_server  # noqa: F401  (fixtures)

NO_SUCH = "sbx_00000000000000000000000000"


def audit(server, identity):
    lines = (server.state / "audit.log").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry.get("run") == identity or entry.get("id") == identity or identity in json.dumps(entry)]


def bearer(server, tenant, *words):
    done = subprocess.run([HOTCELL, "key", "create", tenant, *words, "--state", str(server.state)], capture_output=True, text=True, timeout=30, check=True)
    return {"Authorization": f"Bearer {done.stdout.strip()}"}


def running(server):
    return {one["id"] for one in server.get(f"{ROOT}?state=running").json["sandboxes"]}


# ---- making ----


def test_a_sandbox_is_made_looked_at_and_ended(server, contract):
    box = Sandbox(server, contract=contract, metadata={"for": ["tests"]}, limits={"memory": "128m", "pids": 50, "timeout": 5}, env={"A": "1"})
    made = box.made.json
    assert box.made.headers["location"] == f"{ROOT}/{box.id}"
    assert (made["state"], made["reason"], made["work_dir"], made["read_only"]) == ("running", None, "/workspace", True)
    assert made["limits"]["memory"] == 128 * MIB and made["limits"]["pids"] == 50 and made["limits"]["timeout"] == 5
    assert made["metadata"] == {"for": ["tests"]} and made["env"] == {"A": "1"} and made["idle_timeout"] == 3600 and made["max_lifetime"] is None
    listed = contract.check("GET", ROOT, server.get(ROOT)).json
    assert listed["sandboxes"][0]["id"] == box.id and listed["count"] == len(listed["sandboxes"]) and listed["limit"] == 100
    assert box.delete().status == 204
    assert box.ask("GET").status == 404 and box.delete().status == 404
    wait_for(lambda: box.id not in server.get(ROOT).text)


def test_its_first_files_are_there(server, contract):
    box = Sandbox(server, contract=contract, files={"a/b.txt": "text", "run": {"base64": "IyEvYmluL3NoCmVjaG8gcmFuCg==", "executable": True}})
    try:
        assert box.out("cat a/b.txt; ./run") == "textran\n"
    finally:
        box.delete()


def test_files_that_do_not_fit_make_no_sandbox(server, contract):
    before = running(server)
    answer = contract.check("POST", ROOT, server.post(ROOT, {"limits": {"disk": "64k"}, "files": {"big": "x" * 200000}}))
    assert answer.status in (400, 507), answer
    assert running(server) == before


def test_a_writable_root_is_private(server, contract):
    first, second = (Sandbox(server, contract=contract, read_only=False) for _ in range(2))
    try:
        assert first.made.json["read_only"] is False
        assert first.out("echo mine > /etc/own; echo more >> /etc/passwd; cat /etc/own") == "mine\n"
        assert second.exec("cat /etc/own").json["exit_code"] != 0 and "more" not in second.out("cat /etc/passwd")
    finally:
        first.delete()
        second.delete()


def test_wrong_orders_are_named_and_make_nothing(server, contract):
    before = running(server)
    for order, field in (({"limit": {}}, "limit"), ({"limits": {"memory": "lots"}}, "limits.memory"), ({"idle_timeout": "soon"}, "idle_timeout"),
                         ({"idle_timeout": -1}, "idle_timeout"), ({"max_lifetime": []}, "max_lifetime"), ({"recover": "yes"}, "recover"), ({"env": 1}, "env"),
                         ({"metadata": []}, "metadata"), ({"code": "print(1)"}, "code"), ({"command": "true"}, "command"), ({"network": "host"}, "network"),
                         ({"image": "debian:12"}, "image"), ({"files": {"../x": ""}}, "files"), ({"stages": []}, "stages")):
        answer = contract.check("POST", ROOT, server.post(ROOT, order))
        assert answer.status == 400 and field in answer.json["detail"] + answer.json.get("field", ""), (order, answer)
    for body in (b"[]", b"{", b'"text"', b"{}x"):
        assert server.post(ROOT, body, headers={"Content-Type": "application/json"}).status == 400, body
    assert server.post(ROOT, b"{}", headers={"Content-Type": "text/plain"}).status == 415
    assert server.post(ROOT, {"mounts": [{"host": "/etc", "path": "/data"}]}).status == 403
    assert running(server) == before


def test_the_list_can_be_filtered_by_state(server, contract, box):
    box.ask("POST", "/pause")
    assert [one["id"] for one in server.get(f"{ROOT}?state=paused").json["sandboxes"]] == [box.id]
    assert box.id not in server.get(f"{ROOT}?state=running").text
    assert contract.check("GET", ROOT, server.get(f"{ROOT}?stat=x")).status == 400


# ---- usage ----


def test_usage_is_real(server, contract):
    box = Sandbox(server, contract=contract)
    try:
        before = box.look()["usage"]
        assert before["pids"] == 0 and before["memory"] < 20 * MIB and before["disk"]["limit"] == 100 * MIB
        box.out("head -c 5000000 /dev/urandom > data; for i in $(seq 20); do : > f$i; done; i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
        job = box.detach(["/usr/bin/python3", "-c", "x = b'x' * (40 << 20); print(len(x), flush=True); import time; time.sleep(60)"])
        wait_for(lambda: box.job(job)["stdout"])
        after = box.look()["usage"]
        assert after["memory"] > 40 * MIB and after["memory_peak"] >= after["memory"] and after["pids"] == 1
        assert 4_900_000 < after["disk"]["used"] - before["disk"]["used"] < 6_000_000 and after["disk"]["inodes"] - before["disk"]["inodes"] == 21
        assert after["cpu_ms"] - before["cpu_ms"] > 20 and after["age_s"] > before["age_s"] and after["idle_s"] == 0
    finally:
        box.delete()


def test_looking_is_not_using(box):
    box.out("true")
    used = box.look()["last_used_at"]
    time.sleep(0.3)
    first = box.look()["usage"]["idle_s"]
    assert box.look()["last_used_at"] == used and box.look()["usage"]["idle_s"] > first >= 0.3
    box.ask("POST", "/keepalive")
    assert box.look()["last_used_at"] > used


# ---- pause ----


def test_a_paused_sandbox_stands_still_and_refuses_work(server, box):
    job = box.detach("while :; do echo tick; sleep 0.02; done")
    context = box.context("bash")
    box.shell("x=1")
    wait_for(lambda: box.job(job)["stdout"])
    answer = box.ask("POST", "/pause")
    assert answer.status == 200 and answer.json["state"] == "paused" and answer.json["expires_at"] is None
    time.sleep(0.2)  # what was in the pipe
    end = box.job(job)["offset"]["stdout"]
    time.sleep(0.4)
    assert box.job(job)["offset"]["stdout"] == end
    for method, below, body in (("POST", "/exec", {"command": "true"}), ("POST", "/exec", {"command": "true", "session": "main"}), ("POST", "/contexts", {}),
                                ("POST", f"/contexts/{context}/execute", {"code": "1"}), ("GET", "/files", None), ("PUT", "/files/x", b"x")):
        answer = server.request(method, f"{ROOT}/{box.id}{below}", body)
        assert answer.status == 409 and "paused" in answer.json["detail"] and "resume" in answer.json["remedy"], (below, answer)
    assert box.look()["usage"]["disk"] is None and box.look()["usage"]["pids"] >= 2
    assert box.ask("POST", "/pause").status == 200
    assert box.ask("POST", "/resume").json["state"] == "running" and box.ask("POST", "/resume").status == 200
    wait_for(lambda: box.job(job)["offset"]["stdout"] > end)
    assert box.shell("echo $x").json["stdout"] == "1\n"


def test_a_paused_sandbox_can_be_deleted(server, box):
    mark = f"sleep 60 # {box.id}"
    box.detach(["/bin/sh", "-c", mark + "\ntrue"])
    wait_for(lambda: guests(server, mark))
    box.ask("POST", "/pause")
    assert box.delete().status == 204
    wait_for(lambda: not guests(server, mark))


# ---- times ----


def test_an_idle_sandbox_is_reaped_and_a_busy_one_never(start_server):
    server = start_server("[sandboxes]\ncleanup_interval = \"1s\"\n")
    contract = Contract(server.get("/openapi.json").json)
    idle, busy, kept, session = (Sandbox(server, contract=contract, idle_timeout=2) for _ in range(4))
    job = busy.detach("sleep 12")
    session.shell("sleep 30 &")
    assert idle.made.json["expires_at"] is not None and busy.look()["expires_at"] is None
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        kept.ask("POST", "/keepalive")
        idle.ask("GET")
        time.sleep(0.5)
    assert idle.ask("GET").status == 404, "looking has kept it"
    assert session.ask("GET").status == 404, "a shell that waits is idle"
    assert kept.state == "running" and busy.state == "running" and busy.job(job)["state"] == "running"
    assert any(entry["event"] == "sandbox_expired" for entry in audit(server, idle.id))
    wait_for(lambda: busy.ask("GET").status == 404 and kept.ask("GET").status == 404, within=30)


def test_a_lifetime_ends_even_a_busy_one(start_server):
    server = start_server("[sandboxes]\ncleanup_interval = \"1s\"\nmax_lifetime = \"2s\"\n")
    short = Sandbox(server)
    long = Sandbox(server, max_lifetime="10m")
    short.detach("sleep 60")
    assert short.made.json["max_lifetime"] == 2 and short.look()["expires_at"] is not None
    wait_for(lambda: short.ask("GET").status == 404, within=15)
    assert long.state == "running"


def test_the_server_may_forbid_long_lives(start_server):
    server = start_server("[sandboxes]\nlongest_lifetime = \"1h\"\n")
    contract = Contract(server.get("/openapi.json").json)
    for field in ("idle_timeout", "max_lifetime"):
        for value in (0, None, 7200, "2h"):
            answer = contract.check("POST", ROOT, server.post(ROOT, {field: value}))
            assert answer.status == 400 and answer.json["field"] == field, (field, value, answer)
    assert Sandbox(server, idle_timeout="30m").made.json["idle_timeout"] == 1800


def test_without_times_it_never_expires(server, contract):
    box = Sandbox(server, contract=contract, idle_timeout=0, max_lifetime=None)
    try:
        assert (box.made.json["idle_timeout"], box.made.json["max_lifetime"], box.made.json["expires_at"]) == (None, None, None)
    finally:
        box.delete()


# ---- counts ----


def test_too_many_are_429(start_server):
    server = start_server("[sandboxes]\nmax = 3\nmax_per_tenant = 2\n")
    ada, bob = bearer(server, "ada"), bearer(server, "bob")
    contract = Contract(server.get("/openapi.json").json)
    made = [Sandbox(server, headers=ada, contract=contract) for _ in range(2)]
    answer = contract.check("POST", ROOT, server.post(ROOT, {}, headers=ada))
    assert answer.status == 429 and answer.json["code"] == "quota_exceeded" and "one tenant" in answer.json["detail"], answer
    assert server.get(ROOT, headers=ada).json["limit"] == 2
    Sandbox(server, headers=bob, contract=contract)
    answer = contract.check("POST", ROOT, server.post(ROOT, {}, headers=bob))
    assert answer.status == 429 and "this server" in answer.json["detail"], answer
    made[0].delete()
    wait_for(lambda: server.post(ROOT, {}, headers=bob).status == 201)


# ---- whose ----


def test_a_sandbox_of_another_tenant_is_404_and_so_is_all_below_it(start_server):
    server = start_server()
    ada, eve = bearer(server, "ada"), bearer(server, "eve")
    contract = Contract(server.get("/openapi.json").json)
    box = Sandbox(server, headers=ada, contract=contract, files={"secret": "s"})
    job, context = box.detach("sleep 60", name="named"), box.context("bash")
    box.shell("x=1")
    names = {"{job}": job, "{context}": context, "{name}": "main", "{path}": "secret", "{terminal}": "term_" + "0" * 26, "{port}": "80", "{rest}": "x"}
    asked = 0
    for pattern, methods in contract.document["paths"].items():
        if not pattern.startswith(ROOT + "/{id}"):
            continue
        for method in methods:
            for identity in (box.id, NO_SUCH):
                path = pattern.replace("{id}", identity)
                for name, value in names.items():
                    path = path.replace(name, value)
                answer = server.request(method.upper(), path, {} if method == "post" else b"x" if method == "put" else None, headers=eve)
                assert answer.status == 404 and answer.json["code"] == "not_found", (method, path, answer)
                assert answer.json["detail"] == f'there is no sandbox "{identity}"', answer
                asked += 1
    assert asked > 60
    assert server.get(ROOT, headers=eve).json["sandboxes"] == [] and server.get(ROOT).status == 401
    assert box.state == "running" and box.job(job)["state"] == "running" and box.shell("echo $x").json["stdout"] == "1\n"
    seen = server.get(f"{ROOT}/{box.id}", unix=True).json
    assert seen["tenant"] == "ada" and server.get(ROOT, unix=True).json["count"] == 1


def test_what_is_not_there_in_ones_own_is_404(server, box):
    for method, below, names in (("GET", "/jobs/{job}", {"job": "job_x"}), ("DELETE", "/jobs/{job}", {"job": "x"}), ("GET", "/jobs/{job}/events", {"job": "x"}),
                                 ("DELETE", "/sessions/{name}", {"name": "x"}), ("POST", "/sessions/{name}/interrupt", {"name": "x"}),
                                 ("GET", "/contexts/{context}", {"context": "x"}), ("DELETE", "/contexts/{context}", {"context": "x"}),
                                 ("POST", "/contexts/{context}/interrupt", {"context": "x"}), ("GET", "/files/{path}", {"path": "x"}),
                                 ("DELETE", "/terminals/{terminal}", {"terminal": "x"})):
        answer = box.ask(method, below, **names)
        assert answer.status == 404 and answer.json["code"] == "not_found", (below, answer)


# ---- told ----


def test_every_change_of_state_is_logged_and_audited(server, contract):
    box = Sandbox(server, contract=contract)
    box.ask("POST", "/pause")
    box.ask("POST", "/resume")
    box.delete()
    wanted = ["sandbox_created", "sandbox_paused", "sandbox_resumed", "sandbox_deleted"]
    assert [entry["event"] for entry in audit(server, box.id)] == wanted
    wait_for(lambda: [json.loads(line)["message"] for line in server.log if box.id in line and '"sandbox_' in line] == wanted)


def test_the_end_of_the_server_is_audited_for_each_sandbox_that_was_there(start_server):
    server = start_server()
    boxes = [Sandbox(server) for _ in range(2)]
    gone = Sandbox(server)
    gone.delete()
    wait_for(lambda: gone.ask("GET").status == 404)
    server.stop()
    for box in boxes:
        told = [entry for entry in audit(server, box.id) if entry["event"] == "sandbox_deleted"]
        assert len(told) == 1 and "the server stopped" in json.dumps(told), told
    assert len([entry for entry in audit(server, gone.id) if entry["event"] == "sandbox_deleted"]) == 1


# ---- its end by itself ----


def test_a_sandbox_whose_pid_1_dies_has_failed_and_says_why(server, contract):
    box = Sandbox(server, contract=contract)
    try:
        mark = f"mark-{box.id}"
        job = box.detach(["/bin/sh", "-c", f"echo before; sleep 60; : {mark}"])
        wait_for(lambda: box.job(job)["stdout"] and guests(server, mark))
        inside = guests(server, mark)[0]
        parent = next(pid for pid in server.descendants() if pid_of_namespace(pid) == 1 and same_namespace(pid, inside))
        subprocess.run(["kill", "-KILL", str(parent)], check=True)
        wait_for(lambda: box.state == "failed")
        assert box.look()["reason"] and box.look()["usage"] is None
        answer = box.exec("true")
        assert answer.status == 409 and "failed" in answer.json["detail"], answer
        assert box.job(job)["state"] == "ended" and box.job(job)["stdout"] == "before\n"
        assert any(entry["event"] == "sandbox_failed" for entry in audit(server, box.id))
    finally:
        assert box.delete().status == 204
        assert box.ask("GET").status == 404


def pid_of_namespace(pid):
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
            return int(next(line for line in status if line.startswith("NSpid:")).split()[-1])
    except (OSError, StopIteration):
        return -1


def same_namespace(pid, other):
    def of(one):
        return subprocess.run(["readlink", f"/proc/{one}/ns/pid"], capture_output=True, text=True, check=False).stdout
    return of(pid) == of(other) != ""


@pytest.mark.parametrize("number", [1, 25])
def test_creation_is_a_matter_of_milliseconds(start_server, number):
    server = start_server("[sandboxes]\nmax = 60\n")
    time.sleep(0.5)  # the pool fills
    took = []
    for _ in range(number):
        begun = time.monotonic()
        assert server.post(ROOT, {}).status == 201
        took.append(time.monotonic() - begun)
    assert sorted(took)[number // 2] < 0.25 * SLOW, took
