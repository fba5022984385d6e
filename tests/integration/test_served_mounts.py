"""Host folders in the cells of a server (ATTACKS.md 95 to 100, over HTTP), and the folder that all requests to /execute share.

The server's own side has no folder of the host: what is refused here is refused by name, or by whoever mounts, which follows no symlink and
enters no other mount on the way. The control is each test's own: the same request with what is allowed shows the token."""

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading
import time

import pytest

from cells import token, until
from server import Server

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives each cell uids of its own")

TOKEN = "token-3c1e"
SECRET = "secret-91aa"
OWNER = 54321  # of the folders; nobody's on this machine


class World:
    """data/ (read-only for cells, with ref/, a file, a socket, and symlinks), out/ (writable; with sealed/, which is not), secret/ (not allowed),
    and a server that allows the first two."""

    def __init__(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="hotcell-mounts-", dir="/var/tmp"))
        self.root.chmod(0o755)
        for name in ("data", "data/ref", "data/ref/deep", "data-x", "out", "out/sub", "out/sealed", "out/roots", "secret", "everything", "everything/state",
                     "everything/fine", "everything/forbidden/inner"):
            (self.root / name).mkdir(parents=True)
        for name in ("data/file", "data/ref/file", "data/ref/deep/file", "data-x/file", "out/file", "out/sealed/file", "everything/fine/file"):
            (self.root / name).write_text(TOKEN)
        for name in ("secret/file", "everything/forbidden/inner/file"):
            (self.root / name).write_text(SECRET)
        (self.root / "data" / "escape").symlink_to(self.root / "secret")
        (self.root / "data" / "inside").symlink_to("ref")
        (self.root / "data" / "private").write_text(TOKEN)
        self.give(OWNER)
        (self.root / "data" / "private").chmod(0o600)
        self.server = Server(self.config(), state=self.root / "everything" / "state")

    def config(self):
        read = [self.root / "data", self.root / "out" / "sealed", self.root / "everything"]
        return (f"[mounts]\nallowed_read_paths = {[str(path) for path in read]}\nallowed_write_paths = ['{self.root}/out']\n"
                f"forbidden_paths = ['{self.root}/everything/forbidden/inner']\n[server]\nsocket = '{self.root}/everything/server.sock'\n")

    def give(self, uid):
        for path in (self.root / "data", self.root / "out", self.root / "data-x"):
            for folder, names, files in os.walk(path):
                for one in (folder, *(os.path.join(folder, name) for name in names + files)):
                    os.lchown(one, uid, uid)


@pytest.fixture(scope="module")
def world():
    one = World()
    try:
        with one.server:
            yield one
    finally:
        shutil.rmtree(one.root)


@pytest.fixture
def mount(world):
    """mount("data", path="/data", script="cat /data/file", read_only=True) -> the answer. A host that begins with / is taken as it is."""
    def call(*hosts, path="/data", script="cat /data/file", read_only=True, **fields):
        mounts = []
        for host in hosts:
            one = {"host": host if isinstance(host, str) and host.startswith("/") else f"{world.root}/{host}", "path": path}
            if read_only is not None:
                one["read_only"] = read_only
            mounts.append(one)
        return world.server.run(command=["/bin/sh", "-c", script], mounts=mounts, **fields)
    return call


def assert_shown(answer, text=TOKEN):
    assert answer.status == 200 and answer.json["status"] == "completed" and answer.json["stdout"] == text, answer


def assert_refused(answer, status, *words):
    """Before anything was started."""
    assert answer.status == status, answer
    assert answer.json["code"] == {400: "invalid_request", 403: "forbidden"}[status], answer
    assert TOKEN not in answer.text and SECRET not in answer.text
    for word in words:
        assert word in answer.json["detail"], answer


# ---- what works ----

def test_a_folder_is_shown_and_nothing_in_it_can_be_changed(mount, world):
    assert_shown(mount("data"))
    script = "echo x > /data/file; echo x > /data/new; rm /data/file; mkdir /data/d; chmod 777 /data/file; mount -o remount,rw /data; cat /data/file"
    answer = mount("data", script=script)
    assert answer.json["stdout"] == TOKEN and "Read-only file system" in answer.json["stderr"], answer
    assert (world.root / "data" / "file").read_text() == TOKEN and not (world.root / "data" / "new").exists()


def test_read_only_is_what_is_meant_when_nothing_is_said(mount):
    answer = mount("out", read_only=None, script="cat /data/file; echo x > /data/new")
    assert answer.json["stdout"] == TOKEN and "Read-only" in answer.json["stderr"], answer


def test_the_owner_of_a_folder_is_the_guest(mount, world):
    answer = mount("data", script="id -u; stat -c %u /data /data/file /data/private; cat /data/private")
    lines = answer.json["stdout"].splitlines()
    assert len(set(lines[:4])) == 1 and lines[4] == TOKEN, answer


def test_what_a_guest_writes_belongs_to_the_folders_owner(mount, world):
    script = "umask 022; echo made > /data/new; mkdir /data/folder; echo below > /data/folder/file; ln -s /etc/passwd /data/link; stat -c %u /data/new; id -u"
    answer = mount("out/sub", read_only=False, script=script)
    assert answer.json["status"] == "completed" and len(set(answer.json["stdout"].split())) == 1, answer
    out = world.root / "out" / "sub"
    for name in ("new", "folder", "folder/file", "link"):
        status = os.lstat(out / name)
        assert (status.st_uid, status.st_gid) == (OWNER, OWNER), name
    assert (out / "folder" / "file").read_text() == "below\n"
    assert_shown(mount("out/sub", script="cat /data/new"), "made\n")
    assert mount("out/sub", read_only=False, script="rm -r /data/new /data/folder /data/link").json["status"] == "completed"
    assert not (out / "folder").exists() and not (out / "link").is_symlink()


def test_what_is_written_cannot_be_run_with_other_rights(mount, world):
    script = "cp /bin/sh /data/sh && chmod 6755 /data/sh && stat -c %a /data/sh; mknod /data/device c 1 3; chown 0:0 /data/sh; ls -ln /data/sh"
    mount("out/sub", read_only=False, script=script)
    program = world.root / "out" / "sub" / "sh"
    try:
        status = os.lstat(program)
        assert status.st_uid == OWNER and not status.st_mode & 0o6000, oct(status.st_mode)
        assert not (world.root / "out" / "sub" / "device").exists()
    finally:
        program.unlink()


def test_what_belongs_to_somebody_else_is_a_strangers(mount, world):
    (world.root / "data" / "roots").write_text(SECRET)
    (world.root / "data" / "roots").chmod(0o600)
    try:
        answer = mount("data", script="stat -c %u /data/roots; cat /data/roots")
        assert SECRET not in answer.text and answer.json["stdout"] == "65534\n", answer
    finally:
        (world.root / "data" / "roots").unlink()


def test_a_writable_folder_of_roots_is_not_the_guests(mount, world):
    """A guest must not leave files that are root's."""
    os.chown(world.root / "out" / "roots", 0, 0)
    answer = mount("out/roots", read_only=False, script="echo x > /data/new; stat -c %u /data; ls /data")
    assert answer.json["stdout"] == "65534\n" and not (world.root / "out" / "roots" / "new").exists(), answer


def test_folders_and_files_below_an_allowed_folder(mount):
    assert_shown(mount("data/ref"))
    assert_shown(mount("data/ref/deep"))
    assert_shown(mount("data/file", path="/in/a/file", script="cat /in/a/file; ls /in/a"), TOKEN + "file\n")
    assert_shown(mount("data/ref", path="/workspace/ref", script="cat ref/file"))


def test_several_folders_in_one_cell(world):
    mounts = [{"host": f"{world.root}/data", "path": "/a"}, {"host": f"{world.root}/data/ref", "path": "/b/c"},
              {"host": f"{world.root}/out/sub", "path": "/w", "read_only": False}]
    answer = world.server.run(command=["/bin/sh", "-c", "cat /a/file /b/c/file; echo x > /w/x && rm /w/x; echo x > /a/x"], mounts=mounts)
    assert answer.json["stdout"] == TOKEN * 2 and "/a/x" in answer.json["stderr"], answer


@pytest.mark.parametrize("host", ["data//", "data/.", "/./data", "data/./ref/..2/../", "data//ref/", "data/ref/."])
def test_other_spellings_are_the_same_folder_or_refused(mount, world, host):
    answer = mount(f"{world.root}{host}" if host.startswith("/") else host)
    if ".." in host:
        assert_refused(answer, 400)
    else:
        assert_shown(answer)


def test_two_cells_in_one_folder_at_the_same_time(world):
    """Each sees its own uid as the owner, and what the other wrote."""
    word = token()
    script = (f"id -u > /w/$1; echo $1 > /w/{word}-$1; n=0; while [ ! -e /w/{word}-$2 ] && [ $n -lt 200 ]; do sleep 0.05; n=$((n+1)); done; "
              f"cat /w/{word}-$2; stat -c %u /w/{word}-1 /w/{word}-2; id -u")
    answers = {}

    def one(own, other):
        answers[own] = world.server.run(command=["/bin/sh", "-c", script, "sh", own, other], limits={"timeout": 20},
                                        mounts=[{"host": f"{world.root}/out/sub", "path": "/w", "read_only": False}])

    threads = [threading.Thread(target=one, args=pair) for pair in (("1", "2"), ("2", "1"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for own, other in (("1", "2"), ("2", "1")):
        lines = answers[own].json["stdout"].split()
        assert lines[0] == other and len(set(lines[1:])) == 1, answers[own]
    for name in ("1", "2", f"{word}-1", f"{word}-2"):
        assert (world.root / "out" / "sub" / name).stat().st_uid == OWNER
        (world.root / "out" / "sub" / name).unlink()


# ---- what is refused: 95 to 98 ----

@pytest.mark.parametrize("host", ["/", "//", "/.", "/proc", "/proc/", "/proc/self/root", "/proc/self/root/etc", "/proc/1/root", "/proc/self/cwd",
                                  "/dev/fd/0", "/dev/fd/3", "/dev/shm", "/proc/self/fd/3", "/run", "/var/run", "/run/docker.sock",
                                  "/var/run/docker.sock", "/sys", "/dev", "/etc", "/etc/shadow", "/etc//shadow", "/etc/./shadow", "/root", "/root/",
                                  "/root/.ssh", "/boot", "/home", "/var", "/var/lib/docker", "/var/lib/hotcell", "/usr", "/state", "/languages"])
def test_what_is_never_mounted(mount, host):
    for read_only in (True, False):
        assert_refused(mount(host, read_only=read_only), 403)


@pytest.mark.parametrize("host", ["", "data", "relative/path", "/data/../etc", "/..", "/proc/../root", "/data\n", "/data\tx", "~"])
def test_what_is_no_absolute_path_is_refused(world, host):
    answer = world.server.run(command=["/bin/true"], mounts=[{"host": host, "path": "/data"}])
    assert_refused(answer, 400)


@pytest.mark.parametrize("host", ["", "data-x", "secret", "data/../secret/", "Data", "DATA", "dat", "data\u0301", "d\u0430ta"])
def test_what_is_not_allowed_is_refused(mount, host):
    assert_refused(mount(host), 400 if ".." in host else 403)


def test_the_servers_own_folder_and_socket_are_never_mounted(mount, world):
    """Also where they lie in a folder that is allowed: from its socket a guest would be the operator."""
    assert_shown(mount("everything/fine"))
    for host in ("everything", "everything/", "everything/state", "everything/state/workspace", "everything/state/history.db", "everything/state/audit.log",
                 "everything/server.sock"):
        assert_refused(mount(host), 403)


def test_forbidden_beats_allowed_and_covers_its_parents(mount):
    for host in ("everything/forbidden/inner", "everything/forbidden/inner/file", "everything/forbidden", "everything/forbidden/."):
        assert_refused(mount(host), 403)


def test_a_symlink_on_the_way_is_refused(mount, world):
    for host in ("data/escape", "data/escape/file", "data/inside", "data/inside/file"):
        assert_refused(mount(host), 403, "symlink")
    (world.root / "data" / "proc").symlink_to("/proc/self/root")
    try:
        assert_refused(mount("data/proc/etc"), 403, "symlink")
    finally:
        (world.root / "data" / "proc").unlink()


def test_a_symlink_inside_a_mount_leads_nowhere_outside(mount):
    answer = mount("data", script="cat /data/escape/file; cat /data/../secret/file; ls /data/..")
    assert SECRET not in answer.text and "data-x" not in answer.text, answer


def test_a_folder_that_changes_into_a_symlink_never_shows_the_other(mount, world):
    """The way is gone once, by whoever mounts; there is no moment between looking and mounting."""
    folder, link, other = (world.root / "out" / name for name in ("flip", "flip-link", "flip-folder"))
    stop = threading.Event()
    folder.mkdir()
    (folder / "file").write_text(TOKEN)
    link.symlink_to(world.root / "secret")

    def switch():
        while not stop.is_set():
            for source, target in ((folder, other), (link, folder), (folder, link), (other, folder)):
                with contextlib.suppress(OSError):
                    source.rename(target)

    thread = threading.Thread(target=switch)
    thread.start()
    try:
        answers = [mount("out/flip") for _ in range(30)]
    finally:
        stop.set()
        thread.join()
        for path in (folder, link, other):
            if path.is_symlink():
                path.unlink()
            elif path.exists():
                shutil.rmtree(path)
    assert not any(SECRET in answer.text for answer in answers)
    assert any(answer.status == 200 and answer.json["stdout"] == TOKEN for answer in answers), answers[0]


def test_a_cell_takes_no_mount_of_the_host_along_when_it_goes(world):
    """Mounts are shared where systemd is pid 1: what is let go of in a clone of one would go from the host too."""
    inner = world.root / "data" / "shared"
    inner.mkdir()
    other = Server(world.config().replace("everything/server.sock", "other.sock"))
    script = 'mount --make-rshared / && mount -t tmpfs none "$0" && echo "$1" > "$0/file" && shift && exec "$@"'
    other.words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, str(inner), TOKEN, *other.words]
    with other:
        shown = pathlib.Path(f"/proc/{other.process.pid}/mountinfo").read_text
        assert f" {inner} " in shown() and " shared:" in shown(), "the control: there is one, and it is shared"
        for _ in range(3):
            answer = other.run(command=["/bin/cat", "/data/file"], mounts=[{"host": f"{world.root}/data", "path": "/data"}])
            assert answer.json["stdout"] == TOKEN, answer
        time.sleep(0.3)
        assert f" {inner} " in shown()
        assert pathlib.Path(f"/proc/{other.process.pid}/root{inner}/file").read_text() == TOKEN + "\n"
    inner.rmdir()


def test_another_mount_inside_an_allowed_folder_is_refused_with_what_to_do(mount, world):
    """Which file system is where is the operator's word to say. (The mount is made before a server starts, which is when it looks.)"""
    inner = world.root / "data" / "inner"
    inner.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", inner], check=True)
    try:
        (inner / "file").write_text(TOKEN)
        (inner / "below").mkdir()
        with Server(world.config().replace("everything/server.sock", "other.sock")) as other:
            for host in (inner, inner / "below"):
                answer = other.run(command=["/bin/true"], mounts=[{"host": str(host), "path": "/data"}])
                assert_refused(answer, 403, "another file system", "operator")
            answer = other.run(command=["/bin/cat", "/data/file"], mounts=[{"host": f"{world.root}/data", "path": "/data"}])
            assert answer.json["stdout"] == TOKEN, answer
        named = world.config().replace("everything/server.sock", "other.sock").replace("allowed_read_paths = [", f"allowed_read_paths = ['{inner}', ")
        with Server(named) as other:
            answer = other.run(command=["/bin/cat", "/data/file"], mounts=[{"host": str(inner), "path": "/data"}])
            assert answer.json["stdout"] == TOKEN, answer
    finally:
        subprocess.run(["umount", "-l", inner], check=True)
        inner.rmdir()


def test_what_does_not_exist_is_told(mount):
    assert_refused(mount("data/absent"), 403, "No such file")


def test_sockets_fifos_and_devices_are_not_mounted(mount, world):
    folder = world.root / "data" / "odd"
    folder.mkdir()
    try:
        os.mkfifo(folder / "fifo")
        os.mknod(folder / "null", 0o666 | 0o020000, os.makedev(1, 3))
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder / "docker.sock"))
            for name in ("fifo", "null", "docker.sock"):
                assert mount(f"data/odd/{name}", path="/odd", script="echo started").status in (400, 403), name
    finally:
        shutil.rmtree(folder)


# ---- targets: 99; writing: 100 ----

@pytest.mark.parametrize("path", ["/", "//", "/.", "/proc", "/proc/x", "/proc/self", "/dev", "/dev/null", "/sys", "/etc", "/etc/passwd", "/usr", "/usr/bin",
                                  "/bin", "/lib64", "../x", "x", "", "/data/../etc", "/../x", "/" + "x" * 300, "/data\n", "/data\u0000"])
def test_targets_that_are_the_cells_own(mount, path):
    assert_refused(mount("data", path=path), 400)


def test_what_is_allowed_for_reading_is_never_writable(mount, world):
    assert_refused(mount("data", read_only=False, script="echo x > /data/file"), 403, "read-only")
    assert_refused(mount("data/ref", read_only=False), 403, "read-only")
    assert_refused(mount("out/sealed", read_only=False), 403, "read-only")
    assert_refused(mount("out/sealed/file", read_only=False), 403, "read-only")
    assert (world.root / "data" / "file").read_text() == TOKEN
    assert_shown(mount("out/sealed"))


def test_a_writable_folder_that_holds_a_read_only_one_is_refused(mount, world):
    assert_refused(mount("out", read_only=False, script="echo x > /data/sealed/file"), 403, "holds")
    assert (world.root / "out" / "sealed" / "file").read_text() == TOKEN
    assert_shown(mount("out"))


def test_one_refused_mount_among_good_ones_stops_the_run(world):
    mounts = [{"host": f"{world.root}/data", "path": "/a"}, {"host": f"{world.root}/secret", "path": "/b"}]
    assert_refused(world.server.run(command=["/bin/echo", "started"], mounts=mounts), 403)


def test_more_mounts_than_there_are_places_are_refused(world):
    mounts = [{"host": f"{world.root}/data", "path": f"/m{i}"} for i in range(40)]
    assert_refused(world.server.run(command=["/bin/true"], mounts=mounts), 400)


def test_refused_mounts_are_in_the_audit_log(mount, world):
    time.sleep(1.1)  # so many are written in a second, and no more
    assert_refused(mount("/etc/shadow"), 403)
    assert_refused(mount("data/escape"), 403)
    assert until(lambda: "a symlink is on the way" in (world.server.state / "audit.log").read_text())
    assert until(lambda: "mount_denied" in (world.server.state / "audit.log").read_text() and
                 "/etc/shadow" in (world.server.state / "audit.log").read_text())


def test_nothing_of_a_mount_is_left_on_the_host(mount, world):
    before = pathlib.Path("/proc/self/mountinfo").read_text().count("hotcell-mounts-")
    for _ in range(5):
        mount("data")
        mount("data/escape")
    assert pathlib.Path("/proc/self/mountinfo").read_text().count("hotcell-mounts-") == before
    keeper = world.server.process.pid
    assert until(lambda: not any(str(world.root / "data") in os.readlink(f"/proc/{keeper}/fd/{fd}") for fd in os.listdir(f"/proc/{keeper}/fd")))


# ---- the folder that requests to /execute share ----

def execute(world, code, timeout=20):
    answer = world.server.post("/execute", {"generated_code": code, "language": "python", "timeout": timeout})
    assert answer.status == 200, answer
    return answer.json


SHARE = """
import os, time
word, number = WORD, NUMBER
with open(f'/workspace/{number}-{word}', 'w') as file:
    file.write(str(number))
os.rename(f'/workspace/{number}-{word}', f'/workspace/{word}-{number}')
end = time.time() + 15
while time.time() < end:
    found = sorted('/workspace/' + name for name in os.listdir('/workspace') if name.startswith(word))
    if len(found) == 4:
        break
    time.sleep(0.02)
print([open(name).read() for name in found], {os.stat(name).st_uid for name in found} == {os.getuid()})
"""


def test_requests_at_the_same_time_share_one_workspace(world):
    word, answers = token(), {}

    def one(number):
        answers[number] = execute(world, SHARE.replace("WORD", repr(word)).replace("NUMBER", str(number)))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answers[number]["stdout"] for number in range(4)] == ["['0', '1', '2', '3'] True\n"] * 4, answers
    folder = world.server.state / "workspace"
    owners = {(path.stat().st_uid, path.stat().st_gid) for path in folder.iterdir() if path.name.startswith(word)}
    assert owners == {(folder.stat().st_uid, folder.stat().st_gid)} and owners.isdisjoint({(0, 0)}), owners


def test_the_shared_workspace_is_not_in_an_ordinary_run(world):
    execute(world, f"open('/workspace/shared-only', 'w').write('{SECRET}')")
    answer = world.server.run(command=["/bin/sh", "-c", "ls -a /workspace; cat /workspace/shared-only"])
    assert SECRET not in answer.text and "shared-only\n" not in answer.json["stdout"], answer
    assert execute(world, "print(open('/workspace/shared-only').read())")["stdout"].strip() == SECRET


def test_traps_that_a_guest_leaves_in_the_shared_workspace_catch_nobody(world):
    """Symlinks at names that a server might write or give away, in the one folder that outlives a run."""
    victim = world.root / "secret" / "file"
    before = (victim.read_text(), victim.stat().st_uid, victim.stat().st_mode)
    names = ["main.py", "code.py", "main", "output", "stdin", "history.db", "audit.log", ".hotcell"]
    execute(world, f"import os\nfor name in {names}:\n    os.path.lexists(name) or os.symlink('{victim}', name)\nos.mkfifo('fifo')")
    assert execute(world, "print('still')")["stdout"] == "still\n"
    world.server.stop()
    world.server.start()
    assert execute(world, "print('after')")["stdout"] == "after\n"
    assert (victim.read_text(), victim.stat().st_uid, victim.stat().st_mode) == before
    folder = world.server.state / "workspace"
    assert all((folder / name).is_symlink() for name in names)
    execute(world, f"import os\nfor name in {names} + ['fifo']: os.unlink(name)")
