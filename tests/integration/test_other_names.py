"""Folders that a server allows and that are another name of what is forbidden. Its gateway compares names alone, so the keeper compares what they are,
at start and at every reload. The bind mounts are made in a mount namespace of each server's own, and end with it."""

import contextlib
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import tempfile

import pytest

from cells import HOTCELL, machine_is_weak, until
from server import Server

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")

SECRET = "secret-77d1"


@pytest.fixture
def world():
    root = pathlib.Path(tempfile.mkdtemp(prefix="hotcell-names-", dir="/var/tmp"))
    root.chmod(0o755)
    for name in ("data", "forbidden/inner", "other", "state"):
        (root / name).mkdir(parents=True)
    (root / "data" / "file").write_text("fine")
    (root / "forbidden" / "inner" / "file").write_text(SECRET)
    yield root
    shutil.rmtree(root)


def start(world, binds, forbidden, allowed="data", check=False):
    """What `hotcell serve` says, where `binds` is {target: source}; None when it serves."""
    weak = "[isolation]\nallow_weak = true\n" if machine_is_weak() else ""
    (world / "config.toml").write_text(f"[mounts]\nallowed_read_paths = ['{world}/{allowed}']\nforbidden_paths = {[str(path) for path in forbidden]}\n"
                                       f"[server]\nexecute_listen = ''\n{weak}")
    mounts = "".join(f"mount --bind {shlex.quote(str(source))} {shlex.quote(str(target))} && " for target, source in binds.items())
    words = [HOTCELL, "serve", "--config", world / "config.toml", "--state", world / "state", "--listen", "127.0.0.1:0", *(["--check"] if check else [])]
    script = mounts + "exec " + " ".join(shlex.quote(str(word)) for word in words)
    process = subprocess.Popen(["unshare", "--mount", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if not check and process.stdout.readline().startswith("listening"):
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == 0
        return None
    _, said = process.communicate(timeout=60)
    if check and process.returncode == 0:
        return None
    assert process.returncode == 2, (process.returncode, said)
    return said


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(("source", "words"), [
    ("forbidden/inner", "is another name of"),
    ("forbidden", "is another name of a parent of"),
])
def test_a_bind_mount_of_a_forbidden_folder_is_refused_and_both_are_named(world, source, words, check):
    said = start(world, {world / "data": world / source}, [world / "forbidden" / "inner"], check=check)
    assert said and words in said and f"{world}/data" in said and f"{world}/forbidden/inner" in said, said
    assert "mounts.allowed_read_paths" in said


def test_a_folder_below_another_name_of_a_forbidden_one_is_refused(world):
    (world / "forbidden" / "inner" / "deep").mkdir()
    said = start(world, {world / "data": world / "forbidden" / "inner"}, [world / "forbidden" / "inner"], allowed="data/deep")
    assert said and "is under another name of" in said, said


def test_the_built_in_list_and_the_servers_own_folder_count(world):
    said = start(world, {world / "data": "/etc"}, [])
    assert said and "/etc/" in said and f"{world}/data" in said, said
    said = start(world, {world / "data": world / "state"}, [])
    assert said and f"{world}/state" in said and "this server's own" in said, said


def test_what_is_mounted_from_elsewhere_is_fine(world):
    assert start(world, {world / "data": world / "other"}, [world / "forbidden" / "inner"]) is None
    assert start(world, {}, [world / "forbidden" / "inner"], allowed=".") is None, "above it by name: names tell which part may be had"


def test_a_reload_that_forbids_what_an_allowed_folder_shows_is_refused(world):
    """And what was in force stays."""
    subprocess.run(["mount", "--bind", world / "forbidden" / "inner", world / "data"], check=True)
    try:
        os.chown(world / "forbidden" / "inner", 54321, 54321)
        allowed = f"[mounts]\nallowed_read_paths = ['{world}/data']\n"
        with Server(allowed) as server:
            mounts = [{"host": f"{world}/data", "path": "/data"}]
            assert server.run(command=["/bin/cat", "/data/file"], mounts=mounts).json["stdout"] == SECRET, "nothing forbids it yet"
            server.configure(allowed + f"forbidden_paths = ['{world}/forbidden/inner']\n[server]\nqueue = 7\n")
            server.process.send_signal(signal.SIGHUP)
            assert until(lambda: any("stays as it was" in line for line in server.log), 10), server.log
            said = next(line for line in server.log if "stays as it was" in line)
            assert f"{world}/data" in said and f"{world}/forbidden" in said, said
            assert server.get("/v1/stats").json["limits"]["server"]["queue"] == 256
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            subprocess.run(["umount", world / "data"], check=True)
