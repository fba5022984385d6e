"""hotcell.local(): a server of this machine, or a private one that does not outlive its process."""

import glob
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import pytest

import hotcell
from cells import SLOW, machine_is_weak
from hotcell import _local as local_module

SOURCE = pathlib.Path(hotcell.__file__).resolve().parents[1]
WEAK = {"allow_weak": True} if machine_is_weak() else {}
STARTED = f"""
import os, sys, time
import hotcell
client = hotcell.local(**{WEAK!r})
assert client.run("print(1)").stdout == "1\\n"
print(client.address, flush=True)
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch, program):
    monkeypatch.setenv("HOTCELL", program)
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    yield
    hotcell.stop_local()


def socket_of(address):
    return address.removeprefix("unix:")


def until_gone(path):
    deadline = time.monotonic() + 30 * SLOW
    while os.path.exists(os.path.dirname(path)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not os.path.exists(os.path.dirname(path))


def test_a_private_server_is_shared_and_ends(tmp_path):
    first, second = hotcell.local(**WEAK), hotcell.local(**WEAK)
    assert first.address == second.address and first.run("print(1)").success
    assert oct(os.stat(socket_of(first.address)).st_mode & 0o777) == "0o600"
    hotcell.stop_local()
    assert not os.path.exists(os.path.dirname(socket_of(first.address)))
    again = hotcell.local(**WEAK)
    assert again.address != first.address and again.run("print(2)").success


def test_a_private_server_opens_no_port(monkeypatch):
    monkeypatch.setenv("SANDBOX_PORT", "1")  # which would not even be allowed
    with hotcell.LocalServer(**WEAK) as server:
        assert [line for line in server.log if line.startswith("listening on")] == [f"listening on {server.address}"]


@pytest.mark.parametrize("end", ["", "os._exit(3)", "raise SystemExit(4)", "os.kill(os.getpid(), 9)", "os.abort()", "1/0"])
def test_it_ends_with_its_process_however_that_ends(end):
    process = subprocess.run([sys.executable, "-c", STARTED + end], capture_output=True, text=True, timeout=60 * SLOW, check=False)
    address = process.stdout.strip()
    assert address.startswith("unix:"), process
    assert until_gone(socket_of(address)), f"the server outlives its process: {address}"


def test_it_ends_with_its_process_though_a_child_lives_on():
    code = STARTED + "child = os.fork()\nif child == 0:\n    time.sleep(600)\nprint(child, flush=True)\nos._exit(0)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    address, child = process.stdout.readline().strip(), int(process.stdout.readline())
    try:
        process.wait(30 * SLOW)
        assert until_gone(socket_of(address))
    finally:
        os.kill(child, signal.SIGKILL)
        process.stdout.close()


def test_it_is_out_of_reach_of_the_terminals_ctrl_c():
    with hotcell.LocalServer(**WEAK) as server:
        assert os.getsid(server._process.pid) != os.getsid(0)


def test_a_server_that_died_is_replaced():
    first = hotcell.local(**WEAK)
    server = next(iter(local_module._private.values()))
    children = pathlib.Path(f"/proc/{server._process.pid}/task/{server._process.pid}/children").read_text().split()
    for pid in children:
        os.kill(int(pid), signal.SIGTERM)
    deadline = time.monotonic() + 30 * SLOW
    while server.alive and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not server.alive
    assert hotcell.local(**WEAK).run("print(1)").success and hotcell.local(**WEAK).address != first.address


def test_the_server_of_the_environment_is_used(server, monkeypatch):
    monkeypatch.setenv("HOTCELL_SERVER", server.url)
    assert hotcell.find_local() == server.url and hotcell.local().address == server.url


def test_a_socket_in_its_usual_place_is_found(server, monkeypatch):
    monkeypatch.setenv("HOTCELL_CLIENT_LOCAL_SERVER", "true")
    monkeypatch.setattr(local_module, "_sockets", lambda: [("/nonexistent", 0), (server.unix, os.geteuid())])
    assert hotcell.find_local() == f"unix:{server.unix}" and hotcell.local(start=False).run("print(1)").success
    monkeypatch.setattr(local_module, "_sockets", lambda: [(server.unix, os.geteuid() + 1)])
    assert hotcell.find_local() is None  # somebody else's


def test_the_usual_places(monkeypatch):
    monkeypatch.delenv("HOTCELL_CLIENT_LOCAL_SERVER")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    monkeypatch.setattr(os, "geteuid", lambda: 7)
    assert local_module._sockets() == [("/run/user/7/hotcell.sock", 7), ("/run/hotcell/hotcell.sock", 0)]
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert local_module._sockets() == [("/run/hotcell/hotcell.sock", 0)]
    monkeypatch.setenv("HOTCELL_CLIENT_LOCAL_SERVER", "false")
    assert local_module._sockets() == []


def test_without_starting_there_must_be_one():
    with pytest.raises(hotcell.LocalServerError, match="hotcell serve"):
        hotcell.local(start=False)


def test_folders_of_this_machine():
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        pathlib.Path(folder, "a \"file\"").write_text("seen")
        client = hotcell.local(allow_read=[folder], **WEAK)
        result = client.run("import os\nprint(open('/data/' + os.listdir('/data')[0]).read())", mounts=[{"host": folder, "path": "/data"}])
        assert result.stdout == "seen\n", result
        with pytest.raises(hotcell.PermissionDeniedError):
            client.run("1", mounts=[{"host": "/etc", "path": "/data"}])


def test_what_goes_wrong_is_said():
    before = set(glob.glob(os.path.join(tempfile.gettempdir(), "hotcell-private-*")))
    with pytest.raises(hotcell.LocalServerError, match="no-such-program"):
        hotcell.LocalServer(program="no-such-program")
    with pytest.raises(hotcell.LocalServerError, match="nonsense"):
        hotcell.LocalServer(config="[server.nonsense]\nx = 1\n")
    with pytest.raises(hotcell.LocalServerError):
        hotcell.LocalServer(program="/bin/true")
    assert set(glob.glob(os.path.join(tempfile.gettempdir(), "hotcell-private-*"))) <= before
