"""The units of packaging/systemd under systemd itself, in a virtual machine in which it is process 1."""

import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests" / "integration"))

from cells import HOTCELL, SLOW, until  # noqa: E402
from server import Answer, UnixConnection  # noqa: E402

UNITS = pathlib.Path("/run/systemd/system")
GROUP = pathlib.Path("/sys/fs/cgroup/system.slice/hotcell.service")
SOCKET = "/run/hotcell/hotcell.sock"
CONFIG = pathlib.Path("/etc/hotcell/config.toml")


def systemctl(*words, check=True):
    done = subprocess.run(["systemctl", *words], capture_output=True, text=True, timeout=60 * SLOW, check=False)
    assert not check or done.returncode == 0, f"{done}\n{journal()}"
    return done


def journal():
    return subprocess.run(["journalctl", "-u", "hotcell", "--no-pager", "-n", "30"], capture_output=True, text=True, check=False).stdout


def is_active():
    return systemctl("is-active", "hotcell.service", check=False).stdout.strip() == "active"


def main_pid():
    return int(systemctl("show", "-p", "MainPID", "--value", "hotcell.service").stdout)


def ask(method, path, body=None, port=7600, unix=False):
    connection = UnixConnection(SOCKET, 30 * SLOW) if unix else http.client.HTTPConnection("127.0.0.1", port, timeout=30 * SLOW)
    with contextlib.closing(connection):
        connection.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return Answer(response, response.read())


def run(code="print(42)", **options):
    limits = options.pop("limits", {"timeout": 60})
    return ask("POST", "/v1/runs", {"code": code, "limits": limits}, **options).json


def execute(code):
    return ask("POST", "/execute", {"generated_code": code, "timeout": 60}, port=6000).json


@pytest.fixture(autouse=True, scope="module")
def units():
    UNITS.mkdir(parents=True, exist_ok=True)
    CONFIG.parent.mkdir(exist_ok=True)
    CONFIG.write_text("[server]\nqueue = 9\n")
    text = (SOURCE / "packaging/systemd/hotcell.service.in").read_text()
    (UNITS / "hotcell.service").write_text(text.replace("@bindir@", os.path.dirname(HOTCELL)))
    (UNITS / "hotcell.socket").write_text((SOURCE / "packaging/systemd/hotcell.socket").read_text())
    systemctl("daemon-reload")


@pytest.fixture
def service():
    systemctl("reset-failed", "hotcell.service", check=False)
    systemctl("start", "hotcell.service")
    yield
    systemctl("stop", "hotcell.service")


@pytest.fixture
def drop_in():
    """drop_in("MemoryMax=100M") before the service is started."""
    folder = UNITS / "hotcell.service.d"

    def write(text):
        folder.mkdir(exist_ok=True)
        (folder / "test.conf").write_text(f"[Service]\n{text}\n")
        systemctl("daemon-reload")

    yield write
    systemctl("stop", "hotcell.socket", "hotcell.service", check=False)
    (folder / "test.conf").unlink()
    systemctl("daemon-reload")


def test_the_service_is_ready_when_systemd_says_so(service):
    assert is_active()
    result = run()
    assert result["stdout"] == "42\n" and result["isolation"]["level"] == "full", result
    assert "Status: \"serving\"" in systemctl("status", "hotcell.service").stdout


def test_cells_stay_in_the_group_of_the_service(service):
    work = threading.Thread(target=run, args=("import time; time.sleep(5)",))
    work.start()
    guest = until(lambda: next((path for path in GROUP.glob("hotcell-*/cell*/cgroup.procs") if path.read_text()), None), 20)
    assert guest, subprocess.run(["find", "/sys/fs/cgroup", "-name", "hotcell-*"], capture_output=True, text=True, check=False).stdout
    assert (GROUP / "keeper/cgroup.procs").read_text().split()[0] == str(main_pid())
    assert not list(pathlib.Path("/sys/fs/cgroup").glob("hotcell-*")), "nothing at the top of the tree"
    work.join()


def test_what_execute_keeps_is_there_after_a_restart(service):
    assert execute("open('kept', 'w').write('x'); print('written')")["stdout"] == "written\n"
    systemctl("restart", "hotcell.service")
    assert execute("print(open('kept').read())")["stdout"] == "x\n"


def test_a_cell_without_memory_is_a_result_and_not_a_failure_of_the_service(service):
    assert run("x = b'x' * 10**9", limits={"memory": "64m", "timeout": 60})["status"] == "oom"
    assert is_active() and run()["stdout"] == "42\n"


def test_a_reload_is_taken_or_fails(service):
    CONFIG.write_text("[server]\nqueue = 11\n")
    systemctl("reload", "hotcell.service")
    assert until(lambda: ask("GET", "/v1/stats").json["limits"]["server"]["queue"] == 11)
    CONFIG.write_text("[server]\nqueue = 12\nnonsense = 1\n")
    assert systemctl("reload", "hotcell.service", check=False).returncode != 0
    assert f"{CONFIG}:3" in journal()
    assert is_active() and ask("GET", "/v1/stats").json["limits"]["server"]["queue"] == 11
    CONFIG.write_text("[server]\nqueue = 9\n")


@pytest.mark.parametrize("name", ["hotcell-gateway", "hotcell-warden"])
def test_a_part_that_dies_is_started_again_by_the_keeper(service, name):
    keeper, part = main_pid(), int(subprocess.run(["pgrep", "-o", "-x", name[:15]], capture_output=True, text=True, check=True).stdout)
    os.kill(part, signal.SIGKILL)
    assert until(lambda: answers() and run()["stdout"] == "42\n", 20)
    assert main_pid() == keeper


def answers():
    with contextlib.suppress(OSError):
        return ask("GET", "/readyz").status == 200
    return False


def test_a_keeper_that_dies_is_started_again_by_systemd(service):
    keeper = main_pid()
    execute("open('kept', 'w').write('x')")
    os.kill(keeper, signal.SIGKILL)
    assert until(lambda: main_pid() not in (0, keeper) and answers(), 30), journal()
    assert run()["stdout"] == "42\n"


def test_stopping_lets_a_run_end_and_leaves_nothing(service):
    results = []
    work = threading.Thread(target=lambda: results.append(run("import time; time.sleep(4); print('to the end')")))
    work.start()
    until(lambda: ask("GET", "/v1/runs?status=running").json["runs"], 20)
    systemctl("stop", "hotcell.service")
    work.join()
    assert results[0]["stdout"] == "to the end\n"
    shown = systemctl("show", "-p", "Result,ExecMainStatus", "hotcell.service").stdout
    assert "Result=success" in shown and "ExecMainStatus=0" in shown
    assert not GROUP.exists() and not os.path.exists(SOCKET)


def test_the_first_request_starts_the_server_and_the_socket_stays():
    systemctl("start", "hotcell.socket")
    try:
        assert not is_active() and os.stat(SOCKET).st_mode & 0o777 == 0o600
        assert run()["stdout"] == "42\n" and is_active()
        assert execute("print(1)")["stdout"] == "1\n"
        assert run(unix=True)["stdout"] == "42\n"
        begin = time.monotonic()
        early = []
        systemctl("stop", "hotcell.service", check=False)  # the socket starts it again
        for _ in range(3):
            early.append(run()["stdout"])
        assert early == ["42\n"] * 3 and time.monotonic() - begin < 60 * SLOW
        systemctl("restart", "hotcell.service")
        assert run(unix=True)["stdout"] == "42\n"
    finally:
        systemctl("stop", "hotcell.socket", "hotcell.service")
    assert not os.path.exists(SOCKET)


def test_limits_of_the_unit_hold_for_all_cells_together(drop_in):
    drop_in("MemoryMax=150M")
    systemctl("start", "hotcell.service")
    result = run("x = b'x' * 400_000_000", limits={"memory": "2g", "timeout": 60})
    assert result["status"] in ("oom", "killed", "internal"), result
    assert until(lambda: answers() and run()["stdout"] == "42\n", 30), journal()


def test_with_its_sockets_from_systemd_it_needs_no_network(drop_in):
    drop_in("PrivateNetwork=yes")
    systemctl("start", "hotcell.socket")
    assert run()["stdout"] == "42\n"


def test_no_option_of_the_unit_is_unknown(service):
    warnings = subprocess.run(["journalctl", "--no-pager", "_PID=1"], capture_output=True, text=True, check=False).stdout
    assert not re.search(r"hotcell\.(service|socket):\d+:", warnings), warnings
