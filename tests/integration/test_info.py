"""What a server says of itself: languages, stats, health, readiness, metrics, and the contract that all of it keeps."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

import pytest

from cells import SLOW
from openapi import Contract, Invalid
from server import server, start_server  # noqa: F401  (fixtures)

RUN_TIMES = ("hotcell_run_seconds", "hotcell_run_queue_seconds", "hotcell_run_prepare_seconds", "hotcell_run_program_seconds")


@pytest.fixture(scope="module")
def contract(server):
    return Contract(server.get("/openapi.json").json)


def wait_for(what, within=30):
    deadline = time.monotonic() + within * SLOW
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)
    return found


# ---- the contract ----


def test_the_validator_finds_faults(contract):
    good = {"status": "ready", "isolation": "full", "warden": True, "store": True, "draining": False}
    contract.validate(good, "Ready")
    for bad in ({**good, "status": "maybe"}, {**good, "more": 1}, {**good, "warden": 1}, {key: good[key] for key in list(good)[1:]}, [], None):
        with pytest.raises(Invalid):
            contract.validate(bad, "Ready")


def test_every_route_that_needs_nothing_answers_as_described(server, contract):
    for pattern in ("/", "/v1/runs", "/v1/languages", "/v1/stats", "/healthz", "/readyz", "/metrics", "/openapi.json"):
        answer = contract.check("GET", pattern, server.get(pattern))
        assert answer.status == 200, answer


def test_a_result_is_as_described(server, contract):
    for fields in ({"code": "print(42)"}, {"command": ["/bin/false"]}, {"command": "echo out; echo err >&2; kill -SEGV $$"},
                   {"code": "import time; time.sleep(9)", "limits": {"timeout": 0.2}}, {"code": "print(", "metadata": {"a": [1, None]}},
                   {"command": "printf '\\377'; mkdir out; echo 1 >out/a", "collect": ["out/*"]},
                   {"language": "c", "code": "#warning w\nint main(void){return 0;}"}, {"language": "c", "code": "nonsense"},
                   {"code": "print(input())", "tests": [{"stdin": "1\n", "expect_stdout": "1\n"}, {"stdin": "2\n", "expect_stdout": "3\n"}]}):
        contract.validate(fields, "RunRequest")
        answer = contract.check("POST", "/v1/runs", server.run(**fields))
        assert answer.status == 200, answer
        identity = answer.json["id"]
        contract.check("GET", "/v1/runs/{id}", server.get(f"/v1/runs/{identity}"))
        contract.check("GET", "/v1/runs/{id}/report", server.get(f"/v1/runs/{identity}/report"))
    contract.check("GET", "/v1/runs", server.get("/v1/runs"))


def test_events_are_as_described(server, contract):
    with server.events("/v1/runs", {"command": "echo out; echo err >&2; printf '\\377'"}) as stream:
        assert stream.status == 200
        events = list(stream)
    assert [event.name for event in events][0] == "start"
    assert [event.name for event in events][-1] == "result"
    for event in events:
        contract.check_event(event)


def test_an_async_run_is_as_described(server, contract):
    answer = contract.check("POST", "/v1/runs", server.run(command=["/bin/sleep", "0.5"], **{"async": True}))
    assert answer.status == 202
    where = answer.headers["location"]
    contract.check("GET", "/v1/runs/{id}", server.get(where))
    contract.check("GET", "/v1/runs/{id}", server.get(where + "?wait=10"))
    answer = contract.check("POST", "/v1/runs", server.run(command=["/bin/sleep", "30"], **{"async": True}))
    contract.check("DELETE", "/v1/runs/{id}", server.delete(answer.headers["location"]))
    wait_for(lambda: contract.check("GET", "/v1/runs/{id}", server.get(answer.headers["location"])).json["status"] == "killed")


def test_execute_is_as_described(server, contract):
    body = {"generated_code": "print(42)", "timeout": 10}
    contract.validate(body, "Execute")
    assert contract.check("POST", "/execute", server.post("/execute", body)).json["stdout"] == "42\n"
    assert contract.check("POST", "/execute", server.post("/execute", {"timeout": 1})).status == 400


def test_problems_are_as_described(server, contract):
    assert contract.check("POST", "/v1/runs", server.run(nonsense=1)).status == 400
    assert contract.check("GET", "/v1/runs/{id}", server.get("/v1/runs/run_00000000000000000000000000")).status == 404
    assert contract.check("GET", "/v1/runs/{id}/report", server.get("/v1/runs/run_00000000000000000000000000/report")).status == 404
    assert contract.check("GET", "/v1/runs/{id}/events", server.get("/v1/runs/run_00000000000000000000000000/events")).status == 404
    assert contract.check("DELETE", "/v1/runs/{id}", server.delete("/v1/runs/run_00000000000000000000000000")).status == 404
    assert contract.check("GET", "/v1/runs", server.get("/v1/runs?limit=x")).status == 400
    assert contract.check("GET", "/v1/stats", server.get("/v1/stats", headers={"Origin": "http://evil.example"})).status == 403


def test_what_is_wrong_decides_the_status(start_server):
    with tempfile.TemporaryDirectory(prefix="hotcell-languages-") as folder:
        os.chmod(folder, 0o755)
        (pathlib.Path(folder) / "lolcode.toml").write_text(
            'name = "lolcode"\ntitle = "LOLCODE"\nextensions = [".lol"]\nfile = "main.lol"\npackage = "lci"\nneeds = ["/usr/bin/lci-that-is-not-there"]\n'
            '[version]\ncommand = ["/usr/bin/lci-that-is-not-there"]\npattern = "([0-9]+)"\n[run]\ncommand = ["/usr/bin/lci-that-is-not-there", "{entry}"]\n')
        server = start_server(f'[languages]\npaths = ["{folder}"]\n[ceilings]\nmemory = "64m"\n[server]\nbody_bytes = 4096\n')
        contract = Contract(server.get("/openapi.json").json)
        for fields, status, code, words in (
                ({"command": ["/bin/true"], "limits": {"memory": "65m"}}, 400, "invalid_request", "64 MiB"),
                ({"code": "1", "language": "klingon"}, 400, "invalid_request", "klingon"),
                ({"code": "1", "language": "lolcode"}, 400, "language_unavailable", "lci"),
                ({"entry": "nothing.py"}, 400, "invalid_request", "nothing.py"),
                ({"command": ["/bin/true"], "image": "debian"}, 400, "invalid_request", "debian"),
                ({"command": ["/bin/true"], "network": "host"}, 400, "invalid_request", "network"),
                ({}, 400, "invalid_request", "nothing to run"),
                ({"command": ["/bin/true"], "mounts": [{"host": "/etc", "path": "/x"}]}, 403, "forbidden", "mount"),
                ({"command": ["/bin/true"], "mounts": [{"host": "/there/is/none", "path": "/x"}]}, 403, "forbidden", "mount"),
                ({"code": "x" * 5000}, 413, "too_large", "4096 bytes (server.body_bytes)")):
            answer = contract.check("POST", "/v1/runs", server.run(**fields))
            assert (answer.status, answer.json["code"]) == (status, code), answer
            assert words in answer.json["detail"], answer
        assert [one["available"] for one in server.get("/v1/languages").json if one["name"] == "lolcode"] == [False]


def test_a_value_that_is_not_good_is_named_with_those_that_are(start_server):
    server = start_server("[server]\nheader_bytes = 4096\nheader_count = 20\n")
    run = server.run(code="1").json["id"]
    for path, headers, status, words in (
            (f"/v1/runs/{run}?wait=abc", {}, 400, ['"abc"', "seconds"]),
            ("/v1/runs?status=foo", {}, 400, ['"foo"', "queued, running, completed", "killed and internal"]),
            ("/v1/runs", {"X-Long": "x" * 5000}, 431, ["4096 bytes (server.header_bytes)"]),
            ("/v1/runs", {f"X-{n}": "1" for n in range(30)}, 431, ["20 (server.header_count)"])):
        answer = server.get(path, headers=headers)
        assert answer.status == status, answer
        assert all(word in answer.json["detail"] for word in words), answer


# ---- routes ----


def test_an_unknown_path_suggests_the_nearest(server, contract):
    answer = server.get("/v1/run")
    assert answer.status == 404 and answer.headers["content-type"] == "application/problem+json"
    contract.validate(answer.json, "Problem")
    assert answer.json["code"] == "not_found" and "/v1/runs" in answer.json["detail"]


def test_another_method_is_405_and_tells_which(server, contract):
    answer = server.get("/execute")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    contract.validate(answer.json, "Problem")
    assert server.request("PUT", "/v1/runs", b"").status == 405
    assert server.request("PATCH", "/healthz").headers["allow"] == "GET, HEAD"


def test_head_has_the_headers_of_get_and_no_body(server):
    for path in ("/healthz", "/openapi.json", "/v1/languages"):
        got, head = server.get(path), server.request("HEAD", path)
        assert (head.status, head.body) == (200, b"")
        assert head.headers["content-type"] == got.headers["content-type"]
        assert head.headers["content-length"] == got.headers["content-length"]
    assert server.request("HEAD", "/execute").status == 405


# ---- languages ----


def test_languages_are_those_of_the_command_line_with_versions_from_cells(server):
    def known():
        languages = server.get("/v1/languages").json
        return languages if all(one["version"] for one in languages if one["name"] in ("python", "bash")) else None

    languages = {one["name"]: one for one in wait_for(known)}
    python = languages["python"]
    host = subprocess.run(["/usr/bin/python3", "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    assert python["version"] == host and python["available"] and "py" in python["aliases"] and python["extension"] == ".py"
    assert [one for one in languages] == sorted(languages)
    assert server.run(code="print(1)").json["language_version"] == host


def test_versions_are_found_although_the_warden_died_meanwhile(start_server):
    server = start_server()
    os.kill(server.process_of("hotcell-warden"), signal.SIGKILL)

    def known():
        return {one["name"]: one["version"] for one in server.get("/v1/languages").json}.get("python")

    wait_for(known)


# ---- stats ----


def test_stats_count_what_was_done(start_server):
    server = start_server("[server]\nconcurrent = 3\nqueue = 7\nbody_bytes = 1048576\n[limits]\nmemory = \"128m\"\n[ceilings]\ntimeout = 20\n")
    contract = Contract(server.get("/openapi.json").json)
    server.run(code="print(1)")
    server.run(command=["/bin/false"])
    stats = contract.check("GET", "/v1/stats", server.get("/v1/stats")).json
    assert stats["runs"]["by_status"]["completed"] == 1 and stats["runs"]["by_status"]["error"] == 1
    assert (stats["runs"]["queued"], stats["runs"]["running"]) == (0, 0)
    assert (stats["history"]["of"], stats["history"]["runs"]) == ("local", 2)
    assert stats["history"]["by_status"]["completed"] == 1
    ((how, python),) = stats["latencies"]["python"].items()
    assert python["count"] == 1 and python["total_ms"]["p50"] > 0 and stats["latencies"]["command"]["cold"]["count"] == 1
    assert stats["runs"]["by_start"][how] >= 1 and sum(stats["runs"]["by_start"].values()) == 2
    assert set(stats["pool"]) == {"ready", "building", "target", "hits", "misses", "zygotes", "primed"}
    limits = stats["limits"]
    assert limits["defaults"]["memory"] == 128 << 20 and limits["defaults"]["timeout"] == 20
    assert limits["ceilings"]["timeout"] == 20 and limits["ceilings"]["memory"] is None
    assert (limits["server"]["concurrent"], limits["server"]["queue"], limits["server"]["body_bytes"]) == (3, 7, 1048576)
    assert stats["process"]["resident_bytes"] > 100_000 and stats["process"]["open_files"] > 3
    assert stats["isolation"]["level"] in ("full", "weak") and "pid" in stats["isolation"]["layers"]
    assert not stats["draining"] and stats["uptime_ms"] > 0
    assert server.get("/v1/stats", unix=True).json["history"]["of"] == "everyone"


# ---- health and readiness ----


def test_health_and_readiness(server):
    assert server.get("/healthz").json == {"status": "ok"}
    ready = server.get("/readyz")
    assert ready.status == 200 and ready.json["status"] == "ready" and ready.json["warden"] and ready.json["store"]


def test_the_successor_of_a_dead_warden_is_ready(start_server):
    server = start_server()
    warden = server.process_of("hotcell-warden")
    os.kill(warden, signal.SIGKILL)
    assert server.get("/healthz").status == 200
    wait_for(lambda: server.deaths() == 1 and server.get("/readyz").status == 200)
    assert server.run(code="print(1)").json["status"] == "completed"


def test_one_that_is_ready_makes_sandboxes(start_server):
    """Which it can when it knows those that are there already: something to be heard after the warden's first word."""
    server = start_server()

    def ready():
        with contextlib.suppress(OSError):
            return server.get("/readyz").status == 200

    for _ in range(40):
        assert server.post("/v1/sandboxes", {}).status == 201
    for _ in range(5):
        gateway = server.process_of("hotcell-gateway")
        os.kill(gateway, signal.SIGKILL)
        deadline = time.monotonic() + 30 * SLOW
        while os.path.exists(f"/proc/{gateway}") or not ready():  # without a pause: the moment is short
            assert time.monotonic() < deadline
        made = server.post("/v1/sandboxes", {})
        assert made.status == 201, made


# ---- metrics ----


def parse_metrics(text):
    """{name{labels}: value}, having checked the format: a TYPE before each family, no sample twice, numbers that are numbers."""
    kinds, samples = {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds and kind in ("counter", "gauge", "histogram"), line
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            match = re.fullmatch(r'([a-z_]+)(\{(?:[a-z]+="(?:[^"\\\n]|\\.)*",?)*\})? (\S+)', line)
            assert match, f"not a sample: {line!r}"
            family = re.sub(r"_(bucket|sum|count)$", "", match[1])
            assert match[1] in kinds or kinds.get(family) == "histogram", line
            assert match[1] + (match[2] or "") not in samples, line
            samples[match[1] + (match[2] or "")] = float(match[3])
    return samples


def test_metrics_are_prometheus_text_and_add_up(start_server):
    server = start_server()
    before = parse_metrics(server.get("/metrics").text)
    for _ in range(3):
        server.run(code="echo 1", language="sh")  # which always starts cold
    server.get("/nowhere")
    answer = server.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    after = parse_metrics(answer.text)
    assert after['hotcell_runs_total{status="completed"}'] - before['hotcell_runs_total{status="completed"}'] == 3
    assert after['hotcell_http_replies_total{route="/v1/runs",status="200"}'] == 3
    assert after['hotcell_http_replies_total{route="none",status="404"}'] == 1
    labels = '{language="sh",start="cold"'
    for name in RUN_TIMES:
        buckets = [value for sample, value in after.items() if sample.startswith(f"{name}_bucket{labels}")]
        assert buckets == sorted(buckets) and len(buckets) > 10
        assert buckets[-1] == after[f"{name}_count{labels}}}"] == 3
    assert after[f"hotcell_run_seconds_sum{labels}}}"] > after[f"hotcell_run_program_seconds_sum{labels}}}"] > 0
    assert after["process_resident_memory_bytes"] > 100_000
    assert after["process_open_fds"] > 3
    assert (after["hotcell_runs_running"], after["hotcell_runs_queued"], after["hotcell_warden_up"]) == (0, 0, 1)
    assert after["hotcell_http_connections"] >= 1
