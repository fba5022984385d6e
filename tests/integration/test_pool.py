"""What waits for runs, as the server tells of it: the pool of cells, interpreters that are started ahead, and how each run came to start. That
a program cannot tell the difference is another file's business.
"""

import os
import shutil
import signal
import time

import pytest
from cells import SLOW
from server import Server, start_server  # noqa: F401
from test_info import Contract

EMPTY = {"ready": 0, "building": 0, "target": 0, "hits": 0, "misses": 0, "zygotes": 0, "primed": 0}


def pool_of(server):
    return server.get("/v1/stats").json["pool"]


def wait_for(what, within=30):
    deadline = time.monotonic() + within * SLOW
    while not (result := what()):
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)
    return result


def start_of(server, **request):
    result = server.run(**request).json
    assert result["status"] == "completed", result
    return result["timing"]["start"]


def wait_until_warm(server, **request):
    wait_for(lambda: start_of(server, **request) == "warm")


def values(server, name):
    """Prometheus' lines of that name: {labels: value}."""
    rows = (line.rpartition(" ") for line in server.get("/metrics").text.splitlines() if line.startswith(name))
    return {row[0].removeprefix(name): float(row[2]) for row in rows}


@pytest.fixture(scope="module")
def server():
    with Server() as one:
        wait_for(lambda: pool_of(one)["zygotes"] >= 1)
        # Its first runs are its own, to learn the versions; sh has none, and is before typescript.
        wait_for(lambda: all(it["version"] or not it["available"] for it in one.get("/v1/languages").json if it["name"] != "sh"))
        yield one


# ---- cells ----


def test_cells_wait_and_each_that_is_taken_is_counted(server):
    wait_for(lambda: (pool := pool_of(server))["ready"] >= 2 and pool["ready"] == pool["target"])
    before = pool_of(server)
    assert server.run(command=["/bin/true"]).json["status"] == "completed"
    after = wait_for(lambda: (pool := pool_of(server))["hits"] > before["hits"] and pool)
    assert after["misses"] == before["misses"]
    assert values(server, "hotcell_pool_hits_total")[""] >= after["hits"]
    wait_for(lambda: values(server, "hotcell_pool_ready")[""] == values(server, "hotcell_pool_target")[""] >= 2)


def test_a_cell_of_another_shape_is_not_the_pools(server):
    before = pool_of(server)
    assert server.run(command="touch /usr/x && echo made", read_only=False).json["stdout"] == "made\n"
    time.sleep(0.3)
    after = pool_of(server)
    assert (after["hits"], after["misses"]) == (before["hits"], before["misses"])


def test_a_disk_of_its_own_size_can_be_had_from_the_pool(server):
    wait_for(lambda: pool_of(server)["ready"] >= 2)
    before = pool_of(server)["hits"]
    full = server.run(command="head -c 3000000 /dev/zero > big; wc -c < big; df -k /workspace | tail -1", limits={"disk": "2m"}).json
    assert 1000000 < int(full["stdout"].split()[0]) <= 2097152, full["stdout"]
    wait_for(lambda: pool_of(server)["hits"] > before)


def test_a_server_without_a_pool_serves_as_well(start_server):  # noqa: F811
    server = start_server("[pool]\nmax = 0\n[warm]\nenabled = false\n")
    assert start_of(server, code="print(42)") == "cold"
    assert pool_of(server) == EMPTY
    assert {language["start"] for language in server.get("/v1/languages").json} == {"cold"}
    assert server.get("/v1/stats").json["runs"]["by_start"] == {"warm": 0, "primed": 0, "cached": 0, "cold": 1}


# ---- interpreters ----


def test_a_plain_program_starts_warm_and_everything_says_so(server):
    before = server.get("/v1/stats").json["runs"]["by_start"]["warm"]
    result = server.run(code="print(42)").json
    assert (result["stdout"], result["timing"]["start"]) == ("42\n", "warm")
    timing = result["timing"]
    assert 0 < timing["prepare_ms"] + timing["run_ms"] <= timing["total_ms"] + 0.01
    stats = Contract(server.get("/openapi.json").json).check("GET", "/v1/stats", server.get("/v1/stats")).json
    assert stats["runs"]["by_start"]["warm"] > before
    assert stats["latencies"]["python"]["warm"]["count"] > before
    assert values(server, "hotcell_run_starts_total")['{start="warm"}'] > before
    assert server.get(f"/v1/runs/{result['id']}").json["timing"]["start"] == "warm"
    started = {language["name"]: language["start"] for language in server.get("/v1/languages").json}
    assert (started["python"], started["bash"], started["sh"]) == ("warm", "primed", "cold")


@pytest.mark.parametrize("language,code", [("perl", "print 42"), ("php", "<?php echo 42;"), ("ruby", "print 42")])
def test_children_of_each_zygote_wait_for_their_program(start_server, language, code):  # noqa: F811
    """Programs run all the same where none does, from a fork of their own: only the stock tells."""
    if not shutil.which(language, path="/usr/bin"):
        pytest.skip(f"{language} is not installed")
    server = start_server('[warm]\nstart = []\nprimed_min = 2\n')
    assert server.run(language=language, code=code).json["stdout"] == "42"
    wait_for(lambda: pool_of(server)["primed"] >= 2)
    assert start_of(server, language=language, code=code) == "warm"
    wait_for(lambda: pool_of(server)["primed"] >= 2)


def test_what_cannot_be_told_from_a_cold_start_is_cold(server):
    assert start_of(server, code="print(1)", env={"PLAIN": "1"}) == "warm"
    assert start_of(server, code="print(1)", env={"PYTHONHASHSEED": "random"}) == "cold"
    assert start_of(server, code="print(1)", entry="other.py") == "cold"


def test_a_program_after_stages_and_each_test_start_warm(server):
    result = server.run(code="print(open('x').read())", stages=[{"command": ["/bin/sh", "-c", "echo y > x"]}]).json
    assert (result["stdout"], result["timing"]["start"]) == ("y\n\n", "warm")
    result = server.run(code="print(input())", tests=[{"stdin": "1\n", "expect_stdout": "1\n"}, {"stdin": "2\n", "expect_stdout": "2\n"}]).json
    assert [test["verdict"] for test in result["tests"]] == ["passed", "passed"] and result["timing"]["start"] == "warm"


def test_modules_that_the_code_imports_are_waited_with_once_they_were_asked_for(server):
    code = "import json, sys\nprint(json.dumps([1]))"
    before = pool_of(server)["zygotes"]
    wait_until_warm(server, code=code)
    assert pool_of(server)["zygotes"] >= before


# ---- what goes wrong ----


def test_a_new_warden_is_told_what_to_start(start_server):  # noqa: F811
    server = start_server()
    wait_until_warm(server, code="print(1)")
    os.kill(server.process_of("hotcell-warden"), signal.SIGKILL)
    wait_for(lambda: server.get("/readyz").status == 200 and server.run(code="print(1)").json["timing"]["start"] == "warm")
    wait_for(lambda: pool_of(server)["zygotes"] >= 1)


def test_a_reload_leaves_programs_warm(start_server):  # noqa: F811
    server = start_server("[limits]\nmemory = \"200m\"\n")
    wait_until_warm(server, code="print(1)")
    server.configure("[limits]\nmemory = \"100m\"\n")
    server.process.send_signal(signal.SIGHUP)
    wait_for(lambda: any("the configuration was read again" in line for line in server.log))
    result = server.run(code="print(1)").json
    assert result["timing"]["start"] == "warm" and result["stages"][0]["limits"]["memory"] == 100 << 20
    server.configure("[warm]\nenabled = false\n")
    server.process.send_signal(signal.SIGHUP)
    wait_for(lambda: start_of(server, code="print(1)") == "cold")


def test_a_server_whose_library_is_gone_starts_cold_and_says_why(start_server, tmp_path):  # noqa: F811
    libexec = tmp_path / "libexec"
    libexec.mkdir()
    program = os.path.dirname(os.path.realpath(os.environ.get("HOTCELL", "build/hotcell")))
    for name in ("hotcell-full", "hotcell-warden", "hotcell-init", "hotcell-gateway"):
        (libexec / name).symlink_to(os.path.join(program, name))
    server = start_server(env={"HOTCELL_LIBEXEC": str(libexec)})
    assert start_of(server, code="print(42)") == "cold"
    assert any("every program will start cold" in line for line in server.log), server.log
    assert pool_of(server)["zygotes"] == 0
