"""The processes around a cell, read from /proc while a run is under way: what each may do, and what it could reach if it were taken over."""

import contextlib
import os
import time

import pytest

import cells

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="reads other users' /proc entries")


def descendants(pid):
    found, waiting = [], [pid]
    while waiting:
        current = waiting.pop()
        try:
            tasks = os.listdir(f"/proc/{current}/task")
        except FileNotFoundError:
            continue
        for task in tasks:
            try:
                with open(f"/proc/{current}/task/{task}/children") as file:
                    children = [int(word) for word in file.read().split()]
            except (FileNotFoundError, ProcessLookupError):
                continue
            found += children
            waiting += children
    return found


def named(pids, name):
    for pid in pids:
        try:
            with open(f"/proc/{pid}/comm") as file:
                if file.read().strip() == name:
                    return pid
        except (FileNotFoundError, ProcessLookupError):  # it went before it was opened, or between that and the reading
            pass
    return None


def status(pid):
    with open(f"/proc/{pid}/status") as file:
        return {line.split(":")[0]: line.split(":", 1)[1].split() for line in file}


@pytest.fixture
def around():
    """A run that waits: the pids of the warden, of the cell's init and of the program."""
    process = cells.start("--", "/bin/sleep", "60")
    pids = {}
    for _ in range(400):
        below = descendants(process.pid)
        pids = {name: named(below, name) for name in ("hotcell-warden", "hotcell-init", "sleep")}
        if all(pids.values()):
            break
        time.sleep(0.02)
    assert all(pids.values()), pids
    yield pids
    process.terminate()
    process.communicate(timeout=30)


def test_the_warden_is_nobody_on_the_host(around):
    fields = status(around["hotcell-warden"])
    assert "0" not in fields["Uid"] and "0" not in fields["Gid"]
    assert fields["Groups"] == []
    assert fields["NoNewPrivs"] == ["1"]


def test_every_process_of_a_cell_has_a_uid_of_its_own(around):
    uids = [status(around[name])["Uid"][0] for name in around]
    assert len(set(uids)) == 3


def test_init_and_program_have_no_capability(around):
    for name in ("hotcell-init", "sleep"):
        fields = status(around[name])
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(fields[kind][0], 16) == 0, (name, kind)
        assert fields["NoNewPrivs"] == ["1"]


def test_the_wardens_root_has_nothing_of_the_host_but_the_image(around):
    root = f"/proc/{around['hotcell-warden']}/root"
    assert set(os.listdir(root)) <= {"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "dev", "proc", "tmp", "workspace",
                                     "sandbox", "run", "var", "root", "home", "opt", "srv", "mnt", ".hotcell"}
    for folder in ("home", "root", "run", "opt", "tmp", ".hotcell/host"):
        assert os.listdir(f"{root}/{folder}") == [], folder
    assert not os.path.exists(f"{root}/etc/shadow")


def test_no_open_folder_of_the_warden_leads_up_to_the_host(around):
    base = f"/proc/{around['hotcell-warden']}/fd"
    folders = [name for name in os.listdir(base) if os.path.isdir(f"{base}/{name}")]
    for name in folders:
        above = f"{base}/{name}" + "/.." * 32
        assert "etc" not in os.listdir(above), os.readlink(f"{base}/{name}")


def test_init_and_program_hold_no_fd_but_their_own(around):
    deadline = time.monotonic() + 5 * cells.SLOW
    while len(os.listdir(f"/proc/{around['sleep']}/fd")) > 3 and time.monotonic() < deadline:
        time.sleep(0.01)  # it is still loading its libraries
    assert sorted(os.listdir(f"/proc/{around['sleep']}/fd")) == ["0", "1", "2"]
    init = f"/proc/{around['hotcell-init']}/fd"
    while time.monotonic() < deadline:  # it has just said that it runs, and is about to close the pipe in which it did
        with contextlib.suppress(FileNotFoundError):
            held = {os.readlink(f"{init}/{fd}") for fd in os.listdir(init)}
            if held == {"/dev/null"}:
                break
        time.sleep(0.01)
    assert held == {"/dev/null"}


def test_each_part_is_in_namespaces_of_its_own(around):
    def spaces(pid):
        return {name: os.readlink(f"/proc/{pid}/ns/{name}") for name in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")}

    host, warden, init, program = spaces("self"), *(spaces(around[name]) for name in ("hotcell-warden", "hotcell-init", "sleep"))
    assert all(warden[name] != host[name] for name in ("user", "mnt", "pid"))
    assert all(init[name] != host[name] for name in host)
    assert all(init[name] != warden[name] for name in ("user", "mnt", "pid", "ipc", "uts", "cgroup"))
    assert program == init
