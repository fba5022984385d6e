"""The file helper of sandboxes (src/cell/files.h), as a program: what each operation does, says and refuses, with the system call filter
and Landlock that a guest has, on the disk and from one file system to another."""

import base64
import contextlib
import errno
import io
import os
import pathlib
import random
import shutil
import socket
import stat
import subprocess
import tarfile
import threading
import time

import pytest

from conftest import SLOW, SOURCE
from files_helper import HELPER, Answer, call, elsewhere, folder, make_deep  # noqa: F401 (fixtures)

STRANGE = [b"new\nline", b'quo"te', b"back\\slash", b"\xff\xfe-not-utf8", b"-rf", b"n" * 255, "\N{SNOWMAN}".encode(), b" ", b"a=b", b"\x7f", b"..."]


# ---- words ----

@pytest.mark.parametrize("keys", [{"nonsense": "1"}, {"limit": "-1"}, {"limit": "0"}, {"limit": "10001"}, {"depth": "17"}, {"limit": "1e3"}])
def test_words_that_make_no_sense_are_refused_by_name(call, keys):
    answer = call("list", **keys)
    assert answer.code == "invalid_request" and next(iter(keys)) in answer.head["message"] and answer.status == 0 and answer.body == b""


def test_an_operation_that_does_not_exist_is_refused(call):
    assert call("frobnicate").code == "invalid_request"


def test_a_path_longer_than_paths_can_be_is_refused(call):
    for operation in ("list", "read", "write", "stat", "delete", "mkdir", "pack", "watch"):
        assert call(operation, path="a" * 5000).code == "invalid_request", operation
        assert call(operation, path="a" * 256).code in ("invalid_request", "not_found"), operation


def test_every_operation_says_that_what_is_not_there_is_not_found(call):
    for operation in ("list", "read", "stat", "delete", "pack", "watch", "disk"):
        assert call(operation, path="missing").code == "not_found", operation
    assert call("search", path="missing", name="*").code == "not_found"
    assert call("move", from_="missing", to="x").code == "not_found"


# ---- list ----

def test_a_list_is_in_bytewise_order_with_facts(call, folder):
    (folder / "b").write_text("12345")
    (folder / "b").chmod(0o640)
    os.utime(folder / "b", (0, 1.5))
    (folder / "B").mkdir()
    (folder / "link").symlink_to("b")
    os.mkfifo(folder / "fifo")
    with socket.socket(socket.AF_UNIX) as end:
        os.chdir(folder)
        end.bind("socket")
    os.chdir(SOURCE)
    answer = call("list").json
    assert answer["path"] == str(folder) and answer["type"] == "directory" and answer["truncated"] is False
    assert [entry["name"] for entry in answer["entries"]] == ["B", "b", "fifo", "link", "socket"]
    assert [entry["type"] for entry in answer["entries"]] == ["directory", "file", "fifo", "symlink", "socket"]
    assert answer["entries"][1] == {"name": "b", "type": "file", "size": 5, "mode": "0640", "modified_at": "1970-01-01T00:00:01.500Z"}
    assert answer["entries"][3]["target"] == "b"


def test_strange_names_come_back_and_can_be_used(call, folder):
    for name in STRANGE:
        assert call("write", stdin=name, path=name).ok
    entries = call("list").json["entries"]
    names = [base64.b64decode(entry["name_base64"]) if "name_base64" in entry else entry["name"].encode() for entry in entries]
    assert names == sorted(STRANGE)
    assert sum("name_base64" in entry for entry in entries) == 1
    for name in names:
        assert call("read", path=name).body == name
        assert call("delete", path=name).ok
    assert os.listdir(folder) == []


def test_a_large_folder_is_listed_page_by_page(call, folder):
    names = sorted(f"{number:05}" for number in random.Random(5).sample(range(100000), 3000))
    for name in names:
        (folder / name).touch()
    seen, after = [], {}
    while True:
        page = call("list", limit=700, **after).json
        assert len(page["entries"]) <= 700
        seen += [entry["name"] for entry in page["entries"]]
        if not page["truncated"]:
            break
        after = {"after": seen[-1]}
    assert seen == names


def test_a_list_of_a_huge_folder_takes_bounded_memory(folder):
    os.chdir(folder)
    for number in range(100000):
        os.close(os.open(f"file-with-a-name-{number:06}", os.O_CREAT | os.O_WRONLY))
    os.chdir(SOURCE)
    script = 'ulimit -v 24000; exec "$0" list limit=10'
    process = subprocess.run(["sh", "-c", script, HELPER], cwd=folder, capture_output=True, timeout=60 * SLOW)
    answer = Answer(process).json
    assert [entry["name"] for entry in answer["entries"]] == [f"file-with-a-name-{number:06}" for number in range(10)]


def test_depth_lists_folders_before_what_is_in_them(call, folder):
    for path in ("a/b/c/d", "a!", "ab/x", "a/z"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("")
    names = [entry["name"] for entry in call("list", depth=3).json["entries"]]
    assert names == ["a", "a/b", "a/b/c", "a/z", "a!", "ab", "ab/x"]
    page = call("list", depth=16, limit=3, after="a/b").json
    assert [entry["name"] for entry in page["entries"]] == ["a/b/c", "a/b/c/d", "a/z"] and page["truncated"]
    assert [entry["name"] for entry in call("list", depth=16, after="a/z").json["entries"]] == ["a!", "ab", "ab/x"]


def test_a_list_of_what_is_no_folder_is_its_facts(call, folder):
    (folder / "file").write_text("abc")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "sub").mkdir()
    (folder / "to-sub").symlink_to("sub")
    assert call("list", path="file").json["size"] == 3
    assert call("list", path="dangling").json["target"] == "nowhere"
    assert call("list", path="to-sub").json["entries"] == []
    assert call("list", path="file/x").code in ("conflict", "not_found")


def test_stat_follows_a_link_unless_told_otherwise(call, folder):
    (folder / "file").write_text("abc")
    (folder / "link").symlink_to("file")
    assert call("stat", path="link").head["type"] == "file"
    head = call("stat", path="link", follow="false").head
    assert head["type"] == "symlink" and head["target"] == "file" and head["path"] == str(folder / "link")


# ---- read ----

def test_read_gives_bytes_and_ranges(call, folder):
    (folder / "file").write_bytes(bytes(range(256)) * 1000)
    whole = (folder / "file").read_bytes()
    answer = call("read", path="file")
    assert answer.body == whole and answer.head["size"] == answer.head["length"] == len(whole) and answer.head["mode"] == "0644"
    assert answer.head["mtime"] == int((folder / "file").stat().st_mtime)
    for keys, expected in [({"offset": 5, "length": 7}, whole[5:12]), ({"offset": 255990}, whole[255990:]), ({"suffix": 3}, whole[-3:]),
                           ({"suffix": 10**9}, whole), ({"offset": 255999, "length": 10**9}, whole[-1:])]:
        answer = call("read", path="file", **keys)
        assert answer.body == expected and answer.head["offset"] == len(whole) - len(expected) or keys.get("offset") == 5
    answer = call("read", path="file", offset=len(whole))
    assert answer.code == "invalid_request" and answer.head["errno"] == errno.ERANGE and answer.head["size"] == len(whole)


def test_an_empty_file_is_read_and_has_no_ranges(call, folder):
    (folder / "empty").touch()
    assert call("read", path="empty").head["length"] == 0
    assert call("read", path="empty", offset=0, length=1).head["errno"] == errno.ERANGE


def test_what_is_no_regular_file_is_not_read(call, folder):
    os.mkfifo(folder / "fifo")
    with socket.socket(socket.AF_UNIX) as end:
        os.chdir(folder)
        end.bind("socket")
        os.chdir(SOURCE)
    (folder / "to-fifo").symlink_to("fifo")
    for path in ("fifo", "socket", "to-fifo", ".", "/dev/zero", "/dev/null"):
        began = time.monotonic()
        answer = call("read", path=path)
        assert answer.code == "conflict" and answer.body == b"" and time.monotonic() - began < 5 * SLOW, path
        if path != ".":
            assert call("write", stdin=b"x", path=path).code == "conflict", path


def test_whoever_waits_at_a_fifo_is_not_disturbed(call, folder):
    os.mkfifo(folder / "fifo")
    with subprocess.Popen(["sh", "-c", "echo text > fifo"], cwd=folder) as writer:
        time.sleep(0.2 * SLOW)
        for operation, keys in (("read", {"path": "fifo"}), ("write", {"path": "fifo"}), ("pack", {}), ("list", {}), ("search", {"content": "x"})):
            call(operation, **keys)
        assert writer.poll() is None and (folder / "fifo").read_text() == "text\n"


def test_a_loop_of_links_is_a_conflict(call, folder):
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    for operation in ("read", "write", "stat"):
        assert call(operation, path="a").code == "conflict", operation


def test_files_without_a_size_are_read(call):
    answer = call("read", path="/proc/self/status")
    assert answer.body.startswith(b"Name:") and answer.head["size"] == len(answer.body)


def test_a_huge_sparse_file_is_read_where_it_is_asked_for(call, folder):
    with open(folder / "sparse", "wb") as file:
        file.truncate(1 << 42)
        file.seek(1 << 41)
        file.write(b"needle")
    answer = call("read", path="sparse", offset=(1 << 41) - 1, length=8)
    assert answer.body == b"\0needle\0" and answer.head["size"] == 1 << 42


def test_a_reader_that_hangs_up_ends_a_read(folder):
    with open(folder / "sparse", "wb") as file:
        file.truncate(1 << 42)
    with subprocess.Popen([HELPER, "--sealed", "read", "path=sparse"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.read(10) == b"\0" * 10
        process.stdout.close()
        assert process.wait(10 * SLOW) == 1


def test_a_file_that_shrinks_while_it_is_read_is_cut_short_and_that_is_told(folder):
    with open(folder / "file", "wb") as file:
        file.truncate(50 << 20)
    with subprocess.Popen([HELPER, "--sealed", "read", "path=file"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.read(1 << 20)
        os.truncate(folder / "file", 1000)
        rest = process.stdout.read()
        assert len(rest) < 49 << 20 and process.wait(10 * SLOW) == 1


# ---- write ----

def test_write_makes_parents_and_sets_modes(call, folder):
    answer = call("write", stdin=b"hello", path="a/b/c.txt")
    assert answer.head == {"ok": True, "size": 5, "created": True}
    assert (folder / "a/b/c.txt").read_bytes() == b"hello" and stat.S_IMODE((folder / "a/b/c.txt").stat().st_mode) == 0o644
    assert call("write", stdin=b"#!", path="a/b/c.txt", mode="0755").head["created"] is False
    assert call("write", stdin=b"again", path="a/b/c.txt").ok
    assert stat.S_IMODE((folder / "a/b/c.txt").stat().st_mode) == 0o755, "an existing file keeps its mode"
    assert call("write", stdin=b"x", path="x/y", parents="false").code == "not_found"
    assert call("write", stdin=b"x", path="a/b/c.txt/d").code == "conflict"
    assert call("write", stdin=b"x", path="a/b").code == "conflict"
    for mode in ("4755", "2755", "888", "", "07777777"):
        assert call("write", stdin=b"x", path="m", mode=mode).code == "invalid_request"
    assert sorted(os.listdir(folder / "a/b")) == ["c.txt"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(call, folder):
    (folder / "file").write_text("old")
    assert call("write", stdin=b"x" * 100001, path="file", limit=100000).code == "too_large"
    assert call("write", stdin=b"x" * 10, path="file", length=20).code == "invalid_request"
    assert call("write", stdin=b"x" * 10, path="file", length=20, limit=15).code == "too_large"
    assert call("write", stdin=b"x" * 10, path="new", length=20).code == "invalid_request"
    assert (folder / "file").read_text() == "old" and os.listdir(folder) == ["file"]
    assert call("write", stdin=b"x" * 100000, path="file", limit=100000).ok


def test_a_write_larger_than_files_may_be_is_too_large(folder):
    process = subprocess.run(["sh", "-c", 'ulimit -f 8; exec "$0" --sealed write path=file', HELPER], cwd=folder, input=b"x" * 100000,
                             capture_output=True, timeout=60 * SLOW)
    assert Answer(process).code == "too_large" and os.listdir(folder) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_a_full_disk_is_told_and_nothing_is_left(folder):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=20", "tmpfs", folder], check=True)
    try:
        def run(*words, stdin):
            return Answer(subprocess.run([HELPER, "--sealed", *words], cwd=folder, input=stdin, capture_output=True, timeout=60 * SLOW))

        assert run("write", "path=file", stdin=b"x" * (2 << 20)).code == "no_space"
        assert run("write", "path=file", "append=true", stdin=b"x" * (2 << 20)).code == "no_space"
        assert os.listdir(folder) == []
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for number in range(50):
                tar.addfile(tarfile.TarInfo(f"f{number}"))
        assert run("unpack", stdin=archive.getvalue()).code == "no_space"
        disk = run("disk", stdin=b"").head
        assert disk["limit"] == 1 << 20 and disk["inodes_limit"] == 20 == disk["inodes"] and disk["used"] < 1 << 20
        assert run("write", "path=one-more", stdin=b"").code == "no_space"
        assert run("mkdir", "path=one-more", stdin=b"").code == "no_space"
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_write_through_a_link_changes_its_target(call, folder):
    (folder / "sub").mkdir()
    (folder / "sub/file").write_text("old")
    (folder / "link").symlink_to("sub/file")
    (folder / "new").symlink_to("sub/new")
    assert call("write", stdin=b"text", path="link").head["created"] is False
    assert (folder / "link").is_symlink() and (folder / "sub/file").read_text() == "text"
    assert call("write", stdin=b"text", path="new").head["created"] is True
    assert (folder / "sub/new").read_text() == "text"


def test_append_appends_and_is_undone_when_it_fails(call, folder):
    assert call("write", stdin=b"one", path="log", append="true").head == {"ok": True, "size": 3, "created": True}
    assert call("write", stdin=b"two", path="log", append="true").head == {"ok": True, "size": 6, "created": False}
    assert call("write", stdin=b"x" * 200000, path="log", append="true", limit=100000).code == "too_large"
    assert (folder / "log").read_text() == "onetwo"
    assert call("write", stdin=b"x" * 200000, path="other", append="true", limit=100000).code == "too_large"
    assert os.listdir(folder) == ["log"]


def test_a_write_that_is_killed_leaves_nothing(folder):
    with subprocess.Popen([HELPER, "--sealed", "write", "path=file"], cwd=folder, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdin.write(b"x" * 200000)
        process.stdin.flush()
        process.kill()
        process.wait()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    assert os.listdir(folder) == []


def test_readers_see_the_old_or_the_new_file_and_nothing_between(call, folder):
    contents = [letter * 300000 for letter in (b"a", b"b")]
    (folder / "file").write_bytes(contents[0])
    over, seen = threading.Event(), set()

    def read():
        while not over.is_set():
            seen.add((folder / "file").read_bytes())

    thread = threading.Thread(target=read)
    thread.start()
    for number in range(30):
        assert call("write", stdin=contents[number % 2], path="file").ok
    over.set()
    thread.join()
    assert seen <= set(contents)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes somebody else")
def test_what_the_guest_may_not_do_is_forbidden(folder):
    folder.chmod(0o755)
    for parent in folder.parents:
        if parent != pathlib.Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    (folder / "secret").write_text("x")
    (folder / "secret").chmod(0o600)
    (folder / "closed").mkdir(mode=0o700)
    copy = folder / "helper"
    shutil.copy(HELPER, copy)

    def run(*words, stdin=b""):
        return Answer(subprocess.run(["setpriv", "--reuid", "65534", "--clear-groups", copy, "--sealed", *words], cwd=folder, input=stdin,
                                     capture_output=True, timeout=60 * SLOW)).code

    assert run("read", "path=secret") == "forbidden"
    assert run("write", "path=new") == "forbidden"
    assert run("write", "path=closed/new") == "forbidden"
    assert run("list", "path=closed") == "forbidden"
    assert run("mkdir", "path=new") == "forbidden"
    assert run("delete", "path=secret") == "forbidden"
    assert run("delete", "path=closed", "recursive=true") == "forbidden"
    assert run("move", "from=secret", "to=other") == "forbidden"


# ---- delete ----

def test_delete_takes_away_files_and_empty_folders_and_trees_only_when_asked(call, folder):
    (folder / "file").touch()
    (folder / "empty").mkdir()
    (folder / "tree/a/b").mkdir(parents=True)
    (folder / "tree/a/file").touch()
    assert call("delete", path="file").head == {"ok": True, "deleted": 1}
    assert call("delete", path="empty/").ok
    answer = call("delete", path="tree")
    assert answer.code == "conflict" and "recursive" in answer.head["remedy"]
    assert call("delete", path="tree", recursive="true").head["deleted"] == 4
    assert os.listdir(folder) == []


def test_delete_never_follows_links(call, folder, elsewhere):
    (folder / "kept").mkdir()
    (folder / "kept/file").touch()
    (folder / "tree/in").mkdir(parents=True)
    (folder / "tree/in/link").symlink_to(folder / "kept")
    (folder / "link").symlink_to("kept")
    assert call("delete", path="tree", recursive="true").ok
    assert call("delete", path="link", recursive="true").ok
    assert (folder / "kept/file").exists() and not (folder / "link").is_symlink()


def test_the_working_directory_and_what_it_is_in_are_not_deleted(call, folder):
    (folder / "file").touch()
    for path in (".", "", str(folder), "..", "/", str(folder.parent)):
        assert call("delete", path=path, recursive="true").code == "conflict", path
    assert (folder / "file").exists()


# Landlock looks at every folder above the one at hand, so a sealed helper takes time that grows with the square of the depth.
@pytest.mark.parametrize(("levels", "sealed"), [(10000, False), (1000, True)])
def test_deep_trees_are_searched_packed_moved_and_deleted(call, folder, elsewhere, levels, sealed):
    make_deep(elsewhere, levels)

    def limited(operation, **keys):
        return call(operation, sealed=sealed, before=("sh", "-c", 'ulimit -n 16; ulimit -s 1024; exec "$0" "$@"'), **keys)

    found = limited("search", path=elsewhere, name="bottom", time=60000).json
    assert len(found["matches"]) == 1 and found["matches"][0]["path"].endswith("d/d/bottom")
    archive = limited("pack", path=elsewhere)
    assert archive.head["entries"] == levels + 1 and archive.head["skipped"] == 0
    target = elsewhere / "again"
    assert limited("unpack", stdin=archive.body, path=target).head == {"ok": True, "entries": levels + 1, "bytes": 4}
    assert limited("delete", path=target, recursive="true").head["deleted"] == levels + 2
    if sealed:  # to the disk, whose journal others wait for too
        assert limited("move", from_=elsewhere / "d", to="d").head["copied"] is True
        assert limited("delete", path="d", recursive="true").head["deleted"] == levels + 1
    else:
        assert limited("delete", path=elsewhere / "d", recursive="true").head["deleted"] == levels + 1


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_delete_does_not_go_into_another_file_system(call, folder):
    (folder / "tree/volume").mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder / "tree/volume"], check=True)
    try:
        (folder / "tree/volume/kept").touch()
        assert call("delete", path="tree", recursive="true").code == "conflict"
        assert (folder / "tree/volume/kept").exists()
    finally:
        subprocess.run(["umount", folder / "tree/volume"], check=True)


# ---- move, mkdir ----

def test_move_renames_and_overwrites_only_when_asked(call, folder):
    (folder / "a").write_text("a")
    (folder / "b").write_text("b")
    (folder / "tree/in").mkdir(parents=True)
    answer = call("move", from_="a", to="b")
    assert answer.code == "conflict" and "overwrite" in answer.head["remedy"] and (folder / "b").read_text() == "b"
    assert call("move", from_="a", to="b", overwrite="true").head == {"ok": True, "copied": False}
    assert (folder / "b").read_text() == "a" and not (folder / "a").exists()
    assert call("move", from_="tree", to="other").ok and (folder / "other/in").is_dir()
    assert call("move", from_="b", to="x/y/b", parents="false").code == "not_found"
    assert call("move", from_="b", to="x/y/b").ok and (folder / "x/y/b").read_text() == "a"
    assert call("move", from_="x", to="other", overwrite="true").code == "conflict"
    assert call("move", to="x").code == "invalid_request"


def test_a_folder_is_not_moved_into_itself_and_both_are_named(call, folder):
    (folder / "n/in").mkdir(parents=True)
    (folder / "link").symlink_to("n/in")
    for source, to in (("n", "n/x"), ("n", "n/new/par/x"), ("n", "./link/x"), (".", "x"), ("n", folder / "n/in/x"), ("/", "/x")):
        answer = call("move", from_=source, to=to)
        assert answer.code in ("invalid_request", "forbidden") and source in answer.head["message"], answer.head
        assert answer.code == "forbidden" or str(to) in answer.head["message"] and "inside" in answer.head["message"], answer.head
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) == ["link", "n", "n/in"]
    assert call("move", from_="n/in", to="nn").ok and call("move", from_="nn", to="n/nn").ok and call("move", from_="n/nn", to="n2/nn").ok


def test_a_move_to_another_file_system_copies_whole_trees(call, folder, elsewhere):
    (folder / "tree/in").mkdir(parents=True)
    (folder / "tree/in/file").write_text("text")
    (folder / "tree/in/file").chmod(0o750)
    os.utime(folder / "tree/in/file", (5, 5))
    (folder / "tree/link").symlink_to("in/nowhere")
    os.mkfifo(folder / "tree/fifo")
    with open(folder / "tree/sparse", "wb") as file:
        file.truncate(1 << 40)
        file.seek(1 << 39)
        file.write(b"x")
    (folder / "tree/in").chmod(0o555)
    answer = call("move", from_="tree", to=elsewhere / "tree")
    assert answer.head == {"ok": True, "copied": True} and not (folder / "tree").exists()
    tree = elsewhere / "tree"
    assert (tree / "in/file").read_text() == "text" and stat.S_IMODE((tree / "in/file").stat().st_mode) == 0o750
    assert (tree / "in/file").stat().st_mtime == 5 and stat.S_IMODE((tree / "in").stat().st_mode) == 0o555
    assert os.readlink(tree / "link") == "in/nowhere" and stat.S_ISFIFO((tree / "fifo").stat().st_mode)
    assert (tree / "sparse").stat().st_size == 1 << 40 and (tree / "sparse").stat().st_blocks < 1000
    assert os.listdir(elsewhere) == ["tree"]


def test_a_move_to_another_file_system_that_fails_changes_nothing(call, folder, elsewhere):
    (folder / "tree").mkdir()
    (folder / "tree/file").write_text("text")
    os.chdir(folder / "tree")
    with socket.socket(socket.AF_UNIX) as end:
        end.bind("socket")
    os.chdir(SOURCE)
    assert call("move", from_="tree", to=elsewhere / "tree").code == "conflict"
    assert sorted(os.listdir(folder / "tree")) == ["file", "socket"] and os.listdir(elsewhere) == []
    (elsewhere / "taken").write_text("old")
    assert call("move", from_="tree/file", to=elsewhere / "taken").code == "conflict"
    assert call("move", from_="tree/file", to=elsewhere / "taken", overwrite="true").ok
    assert (elsewhere / "taken").read_text() == "text"


def test_a_move_of_what_cannot_be_deleted_leaves_no_copy(folder, elsewhere):
    for path in (folder, *folder.parents[:-1]):
        path.chmod(path.stat().st_mode | 0o055)
    elsewhere.chmod(0o777)
    for name, mode in (("closed", 0o755), ("sticky", 0o1777)):
        (folder / name / "tree").mkdir(parents=True)
        (folder / name / "file").write_text("text")
        (folder / name / "tree/in").write_text("text")
        (folder / name).chmod(mode)
    copy = folder / "helper"
    shutil.copy(HELPER, copy)
    for source in ("closed/file", "closed/tree", "sticky/file", "sticky/tree"):
        words = ["move", f"from={source}", f"to={elsewhere}/sub/x", "parents=true"]
        answer = Answer(subprocess.run(["setpriv", "--reuid", "65534", "--clear-groups", copy, "--sealed", *words], cwd=folder, capture_output=True, timeout=60 * SLOW))
        assert answer.code == "forbidden" and (folder / source).exists(), source
        assert os.listdir(elsewhere) == ([] if source.startswith("closed") else ["sub"]) and not (elsewhere / "sub/x").exists(), source


def test_mkdir_makes_parents_when_asked(call, folder):
    assert call("mkdir", path="a/b").code == "not_found"
    assert call("mkdir", path="a/b/c", parents="true", mode="1777").head["created"] is True
    assert stat.S_IMODE((folder / "a/b/c").stat().st_mode) == 0o1777 and stat.S_IMODE((folder / "a").stat().st_mode) == 0o755
    assert call("mkdir", path="a/b/c", parents="true").head["created"] is False
    assert call("mkdir", path="a").code == "conflict"
    (folder / "file").touch()
    assert call("mkdir", path="file", parents="true").code == "conflict"
    assert call("mkdir", path="file/x", parents="true").code == "conflict"
    assert call("mkdir", path="/proc/x").code in ("not_found", "forbidden")
