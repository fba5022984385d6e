"""An asynchronous run is begun at most once, whenever the server dies: what it does outside its cell is not done twice."""

import contextlib
import os
import pathlib
import shutil
import signal
import sqlite3
import tempfile
import time

import pytest

from cells import until
from server import Server
from test_serve import answers, ended

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has processes with uids of their own")

OWNER = 54321


@pytest.fixture
def out():
    """A host folder in which each run leaves a line of its own."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hotcell-once-", dir="/var/tmp"))
    folder.chmod(0o755)
    os.chown(folder, OWNER, OWNER)
    yield folder
    shutil.rmtree(folder)


def submit(server, out, name, more=":"):
    fields = {"command": ["/bin/sh", "-c", f"echo once >> /out/{name}; {more}"], "async": True, "limits": {"timeout": 20},
              "mounts": [{"host": str(out), "path": "/out", "read_only": False}]}
    answer = server.run(**fields)
    assert answer.status == 202, answer
    return answer.json["id"]


@pytest.mark.parametrize("concurrent", [1, 4], ids=["queued", "at once"])
def test_a_run_is_not_begun_again_however_soon_the_gateway_dies_after_its_start(out, concurrent):
    config = f"[mounts]\nallowed_write_paths = ['{out}']\n[server]\nconcurrent = {concurrent}\n"
    runs = {}
    with Server(config) as server:
        for turn in range(6):
            names = [f"{turn}-{i}" for i in range(3)]
            for name in names:
                with contextlib.suppress(OSError):
                    runs[submit(server, out, name)] = name
            # The instant at which the first has begun is the dangerous one: has the disk heard of it?
            last = out / names[0]
            deadline = time.monotonic() + 10
            while not last.exists() and time.monotonic() < deadline:
                time.sleep(0.0002)
            os.kill(server.process_of("hotcell-gateway"), signal.SIGKILL)
            assert until(lambda: answers(server), 20), server.log[-5:]
        for run, name in runs.items():
            result = ended(server, run)
            lines = (out / name).read_text().splitlines() if (out / name).exists() else []
            assert len(lines) <= 1, f"{name} was run {len(lines)} times: {result}"
            assert lines or result["status"] == "internal", result
            assert result["status"] in ("completed", "internal"), result
            assert result["status"] != "internal" or "stopped" in result["diagnosis"]["message"], result
        assert len(runs) >= 15


def test_a_run_that_the_journal_alone_knows_to_have_begun_is_not_begun_again(out):
    """Somebody else has the database for a while, so that nothing gets into it; in it a run ends, another begins, and the gateway dies."""
    with Server(f"[mounts]\nallowed_write_paths = ['{out}']\n[server]\nconcurrent = 1\n") as server:
        first = submit(server, out, "first", "while test ! -e /out/go; do sleep 0.01; done")
        second = submit(server, out, "second", "sleep 10")
        assert until(lambda: (out / "first").exists() and server.get("/v1/stats").json["runs"]["queued"] == 1)
        with contextlib.closing(sqlite3.connect(server.state / "history.db", isolation_level=None, timeout=10)) as database:
            database.execute("BEGIN IMMEDIATE")
            (out / "go").touch()
            assert until((out / "second").exists)
            rows = dict(database.execute("SELECT id, status FROM runs"))
            assert rows[second] == "queued", "the database has not heard of it"
            os.kill(server.process_of("hotcell-gateway"), signal.SIGKILL)
            database.execute("ROLLBACK")
        assert until(lambda: answers(server), 20), server.log[-5:]
        assert ended(server, first)["status"] in ("completed", "internal")
        result = ended(server, second)
        assert result["status"] == "internal" and "stopped" in result["diagnosis"]["message"], result
        assert (out / "second").read_text() == "once\n"


def test_a_run_that_is_cancelled_while_it_starts_ends_as_killed(out):
    with Server(f"[mounts]\nallowed_write_paths = ['{out}']\n[server]\nconcurrent = 1\n") as server:
        runs = [submit(server, out, str(i), "sleep 0.01") for i in range(30)]
        for run in runs[1::2]:
            server.delete(f"/v1/runs/{run}")
        results = [ended(server, run) for run in runs]
        assert all(result["status"] in ("completed", "killed") for result in results), results
        assert all(result["status"] == "completed" for result in results[0::2])
        stats = server.get("/v1/stats").json["runs"]
        assert (stats["queued"], stats["running"]) == (0, 0), stats


def test_runs_that_start_while_the_warden_dies_go_on_or_say_why(out):
    with Server(f"[mounts]\nallowed_write_paths = ['{out}']\n[server]\nconcurrent = 2\n") as server:
        runs = {}
        for turn in range(6):
            for i in range(4):
                runs[submit(server, out, f"{turn}-{i}", "sleep 0.02")] = f"{turn}-{i}"
            warden = server.process_of("hotcell-warden")
            os.kill(warden, signal.SIGKILL)
            assert until(lambda turn=turn: server.deaths() == turn + 1 and answers(server), 20), server.log[-5:]
        for run, name in runs.items():
            result = ended(server, run)
            lines = (out / name).read_text().splitlines() if (out / name).exists() else []
            assert len(lines) <= 1 and result["status"] in ("completed", "internal"), (result, lines)
        assert sum(ended(server, run)["status"] == "completed" for run in runs) >= len(runs) // 3
