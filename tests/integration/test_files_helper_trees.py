"""The file helper of sandboxes (src/cell/files.h), as a program: searches, watches, archives, and guests that work against it."""

import base64
import contextlib
import io
import json
import os
import pathlib
import select
import socket
import subprocess
import tarfile
import threading
import time

import pytest

from conftest import SLOW, SOURCE
from files_helper import HELPER, Answer, call, elsewhere, folder, words_of  # noqa: F401 (fixtures)


# ---- search ----

def paths(answer):
    return sorted(match["path"] for match in answer.json["matches"])


def test_search_by_name_finds_names_and_paths(call, folder):
    for path in ("a.py", "sub/b.py", "sub/c.txt", "sub/deep/d.py"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("")
    assert paths(call("search", name="*.py")) == ["a.py", "sub/b.py", "sub/deep/d.py"]
    assert paths(call("search", name="sub/*.py")) == ["sub/b.py"]
    assert paths(call("search", path="sub", name="*.py")) == ["sub/b.py", "sub/deep/d.py"]
    assert paths(call("search", path=folder / "sub", name="deep")) == [str(folder / "sub/deep")]
    assert call("search").code == "invalid_request"


def test_search_by_content_tells_line_and_column(call, folder):
    (folder / "a.txt").write_text("one\ntwo needle\r\nthree\nneedle needle")
    (folder / "b.md").write_text("needle")
    answer = call("search", content="needle", name="*.txt").json
    assert answer["matches"] == [{"path": "a.txt", "line": 2, "column": 5, "text": "two needle"},
                                 {"path": "a.txt", "line": 4, "column": 1, "text": "needle needle"}]
    assert answer["truncated"] is False and answer["skipped"] == 0
    assert paths(call("search", path="b.md", content="needle")) == ["b.md"]


def test_search_by_regular_expression(call, folder):
    (folder / "a.txt").write_text("def run(x):\n    return x\nclass Run:\n")
    assert [match["line"] for match in call("search", content="^(def|class) +[A-Za-z]+", regex="true").json["matches"]] == [1, 3]
    assert call("search", content="^(def", regex="false").json["matches"] == []
    for pattern in ("(", "[a", "(a)\\1", "((a{100}){100}){100}", "a{1,99999}", "x" * 2000):
        assert call("search", content=pattern, regex="true").code == "invalid_request", pattern


def test_a_regular_expression_that_blows_up_elsewhere_is_over_in_time(call, folder):
    (folder / "a.txt").write_text(("a" * 5000 + "b\n") * 20)
    began = time.monotonic()
    call("search", content="^(a+)+$", regex="true", time=2000)
    assert time.monotonic() - began < 10 * SLOW


def test_search_stops_at_its_limit_and_says_so(call, folder):
    (folder / "a.txt").write_text("x\n" * 10)
    assert call("search", content="x", limit=10).json["truncated"] is False
    answer = call("search", content="x", limit=9).json
    assert len(answer["matches"]) == 9 and answer["truncated"] is True
    for number in range(5):
        (folder / f"f{number}").touch()
    assert call("search", name="f?", limit=5).json["truncated"] is False
    assert call("search", name="f?", limit=4).json["truncated"] is True


def test_search_passes_over_what_it_cannot_use_and_counts_it(call, folder):
    (folder / "binary").write_bytes(b"needle\0needle")
    (folder / "large").write_bytes(b"needle\n" * 1000)
    with open(folder / "sparse", "wb") as file:
        file.truncate(1 << 42)
    os.mkfifo(folder / "fifo")
    (folder / "link").symlink_to("text")
    (folder / "loop").symlink_to(".")
    (folder / "text").write_bytes(b"\xff needle\n")
    answer = call("search", content="needle", max_size=1000).json
    assert answer["matches"] == [{"path": "text", "line": 1, "column": 3, "text": "\ufffd needle"}]
    assert answer["skipped"] == 3


def test_search_shows_part_of_a_long_line(call, folder):
    (folder / "a").write_text("é" * 50000 + "needle" + "ü" * 300000 + "second")
    match = call("search", content="needle").json["matches"][0]
    assert match["column"] == 100001 and "needle" in match["text"] and len(match["text"].encode()) <= 400 and "\ufffd" not in match["text"]
    assert len(call("search", content="second").json["matches"]) == 1


def test_search_ends_when_its_time_is_over(call, folder):
    for number in range(300):
        (folder / f"f{number}").write_bytes(b"some text\n" * 200000)
    began = time.monotonic()
    answer = call("search", content="not there", time=50).json
    assert answer["truncated"] is True and time.monotonic() - began < 5 * SLOW


# ---- watch ----

class Watch:
    def __init__(self, folder, **keys):
        self.process = subprocess.Popen([HELPER, "--sealed", *words_of("watch", keys)], cwd=folder, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)
        self.head = json.loads(self.process.stderr.readline())
        self.rest = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()

    def next(self, within=5):
        deadline = time.monotonic() + within * SLOW
        while b"\n" not in self.rest:
            if not select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
                return None
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                return None
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        return json.loads(line)

    def short(self):
        """The next event as a tuple."""
        event = self.next()
        return event and tuple(event[key] for key in ("event", "path", "to") if key in event)


def test_watch_tells_what_happens(folder):
    with Watch(folder) as watch:
        assert watch.head == {"ok": True}
        (folder / "a").write_text("x")
        assert watch.next() == {"event": "created", "path": "a", "type": "file"}
        assert watch.short() == ("modified", "a")
        (folder / "a").rename(folder / "b\n")
        assert watch.short() == ("moved", "a", "b\n")
        (folder / "b\n").unlink()
        assert watch.short() == ("deleted", "b\n")
        (folder / "sub").mkdir()
        assert watch.next() == {"event": "created", "path": "sub", "type": "directory"}
        (folder / "sub/unseen").touch()
        (folder / os.fsdecode(b"\xff")).touch()
        assert base64.b64decode(watch.next()["path_base64"]) == b"\xff"


def test_a_move_out_is_a_deletion_and_a_move_in_a_creation(folder, elsewhere):
    (folder / "in").mkdir()
    (folder / "file").touch()
    with Watch(folder, path=folder / "in") as watch:
        (folder / "file").rename(folder / "in/file")
        assert watch.short() == ("created", str(folder / "in/file"))
        (folder / "in/file").rename(folder / "file")
        assert watch.short() == ("deleted", str(folder / "in/file"))


def test_a_program_that_writes_byte_by_byte_makes_few_lines(folder):
    with Watch(folder) as watch, open(folder / "log", "wb", buffering=0) as file:
        assert watch.short() == ("created", "log")
        end = time.monotonic() + 1
        while time.monotonic() < end:
            file.write(b"x")
        file.write(b"last")
        lines = 0
        while watch.next(within=0.5):
            lines += 1
        assert 1 <= lines <= 12


def test_a_recursive_watch_follows_new_and_moved_folders(folder):
    (folder / "old/deep").mkdir(parents=True)
    with Watch(folder, recursive="true") as watch:
        (folder / "old/deep/file").touch()
        assert watch.short() == ("created", "old/deep/file")
        (folder / "old").rename(folder / "new")
        assert watch.short() == ("moved", "old", "new")
        (folder / "new/deep/file").unlink()
        assert watch.short() == ("deleted", "new/deep/file")
        (folder / "x/y/z").mkdir(parents=True)
        assert [watch.short() for _ in range(3)] == [("created", "x"), ("created", "x/y"), ("created", "x/y/z")]
        time.sleep(0.2)
        (folder / "x/y/z/file").touch()
        assert watch.short() == ("created", "x/y/z/file")


def test_a_watch_ends_when_nobody_reads_it(folder):
    with Watch(folder) as watch:
        watch.process.stdout.close()
        assert watch.process.wait(5 * SLOW) == 0


def test_a_watch_ends_when_what_it_watches_is_gone(folder):
    (folder / "sub").mkdir()
    (folder / "file").touch()
    with Watch(folder, path="sub") as watch:
        (folder / "sub").rmdir()
        assert watch.short() == ("deleted", "sub") and watch.process.wait(5 * SLOW) == 0
    with Watch(folder, path="file") as watch:
        (folder / "file").write_text("x")
        assert watch.short() == ("modified", "file")
        (folder / "file").unlink()
        assert watch.short() == ("deleted", "file") and watch.process.wait(5 * SLOW) == 0


def test_watches_are_bounded_and_lost_events_are_told(call, folder):
    for number in range(10):
        (folder / f"d{number}").mkdir()
    answer = call("watch", recursive="true", watches=5)
    assert answer.code == "too_large" and "recursive" in answer.head["remedy"]
    with Watch(folder, recursive="true", watches=11) as watch:
        (folder / "one-more").mkdir()
        assert watch.short() == ("created", "one-more") and watch.next() == {"event": "overflow"}


def test_a_flood_of_events_is_an_overflow_and_not_the_end(folder):
    limit = int(pathlib.Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    with Watch(folder) as watch:
        os.kill(watch.process.pid, 19)  # SIGSTOP
        for number in range(limit // 2 + 100):
            (folder / f"{number}").touch()
            (folder / f"{number}").unlink()
        os.kill(watch.process.pid, 18)
        events = set()
        while "overflow" not in events:
            event = watch.next()
            assert event is not None, "no overflow was told"
            events.add(event["event"])
        (folder / "after").touch()
        while (event := watch.next()) and event.get("path") != "after":
            pass
        assert event


# ---- archives out ----

def test_a_folder_is_packed_with_modes_times_and_links(call, folder):
    (folder / "sub").mkdir(mode=0o750)
    (folder / "sub/file").write_bytes(b"text")
    (folder / "sub/file").chmod(0o600)
    os.utime(folder / "sub/file", (7, 7))
    os.link(folder / "sub/file", folder / "hard")
    (folder / "link").symlink_to("/etc/passwd")
    os.mkfifo(folder / "fifo")
    os.chdir(folder)
    with socket.socket(socket.AF_UNIX) as end:
        end.bind("socket")
    os.chdir(SOURCE)
    answer = call("pack")
    assert answer.head == {"ok": True, "entries": 4, "bytes": 8, "skipped": 2} and answer.status == 0
    with tarfile.open(fileobj=io.BytesIO(answer.body)) as tar:
        assert sorted(tar.getnames()) == ["hard", "link", "sub", "sub/file"]
        file = tar.getmember("sub/file")
        assert file.isreg() and file.mode == 0o600 and file.mtime == 7 and tar.extractfile(file).read() == b"text"
        assert tar.getmember("hard").isreg() and tar.getmember("link").linkname == "/etc/passwd" and tar.getmember("sub").mode == 0o750
    with tarfile.open(fileobj=io.BytesIO(call("pack", path="sub/file").body)) as tar:
        assert tar.getnames() == ["file"]
    assert call("pack", path="fifo").code == "conflict"


def test_names_of_every_kind_go_out_and_come_in_again(call, folder):
    names = [b"n" * 255, b"\xff\xfe", b"new\nline", "\N{SNOWMAN}".encode(), b"-x", b"a" * 99, b"a" * 100, b"a" * 101, b"x y"]
    os.makedirs(folder / "from" / ("d" * 150) / ("e" * 120))
    for name in names:
        for place in (b"from", b"from/" + b"d" * 150, b"from/" + b"d" * 150 + b"/" + b"e" * 120):
            (folder / os.fsdecode(place + b"/" + name)).write_bytes(name)
    (folder / "from/link").symlink_to("t" * 200)
    os.utime(folder / "from/x y", (-5, -5))
    os.utime(folder / "from/-x", (2**33 + 10, 2**33 + 10))
    archive = call("pack", path="from")
    assert call("unpack", stdin=archive.body, path="to").head["entries"] == archive.head["entries"] == 30
    subprocess.run(["diff", "-r", "--no-dereference", "from", "to"], cwd=folder, check=True)
    assert (folder / "to/x y").stat().st_mtime == -5 and (folder / "to/-x").stat().st_mtime == 2**33 + 10
    (folder / "other").mkdir()
    subprocess.run(["tar", "-x", "-C", "other"], cwd=folder, input=archive.body, check=True)
    subprocess.run(["diff", "-r", "--no-dereference", "from", "other"], cwd=folder, check=True)


def test_an_archive_that_would_be_too_large_is_refused_before_its_first_byte(call, folder):
    with open(folder / "sparse", "wb") as file:
        file.truncate(1 << 43)
    answer = call("pack", limit=1 << 30)
    assert answer.code == "too_large" and answer.body == b""


def test_a_file_of_more_than_8_gib_is_announced_as_such(folder):
    with open(folder / "sparse", "wb") as file:
        file.truncate(9 << 30)
    with subprocess.Popen([HELPER, "--sealed", "pack"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        start = process.stdout.read(2048)
        process.stdout.close()
        assert process.wait(10 * SLOW) == 1
    with tarfile.open(fileobj=io.BytesIO(start), mode="r|") as tar:
        assert tar.next().size == 9 << 30


def test_files_that_change_while_they_are_packed_do_not_spoil_the_archive(folder):
    for number in range(3):
        (folder / f"shrinks{number}").write_bytes(b"s" * (8 << 20))
        (folder / f"grows{number}").write_bytes(b"g" * 1000)
    with subprocess.Popen([HELPER, "--sealed", "pack"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        data = process.stdout.read(1 << 20)
        for number in range(3):
            os.truncate(folder / f"shrinks{number}", 10)
            with open(folder / f"grows{number}", "ab") as file:
                file.write(b"g" * 100000)
        data += process.stdout.read()
        assert process.wait(10 * SLOW) == 0
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        contents = {member.name: tar.extractfile(member).read() for member in tar}
    assert len(contents) == 6
    for name, content in contents.items():
        assert set(content.rstrip(b"\0")) == {ord(name[0])}
    assert [content for content in contents.values() if content.endswith(b"\0" * 1000)], "none was being read when it shrank"


# ---- archives in ----

def archive_of(*entries, form=tarfile.PAX_FORMAT):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=form) as tar:
        for name, kind, value in entries:
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.mtime = kind, 0o640, 9
            if kind == tarfile.REGTYPE:
                info.size = len(value)
            else:
                info.linkname = value
            tar.addfile(info, io.BytesIO(value) if kind == tarfile.REGTYPE else None)
    return data.getvalue()


FILE, DIR, LINK, HARD = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


def test_folders_and_links_come_back_with_their_modes_and_times(call, folder):
    for path in ("from/closed/in/deep", "from/plain", "from/unseen"):
        (folder / path).mkdir(parents=True)
    (folder / "from/closed/in/deep/file").write_text("text")
    (folder / "from/plain/link").symlink_to("nowhere")
    os.utime(folder / "from/plain/link", (11, 11), follow_symlinks=False)
    modes = {"closed/in/deep": 0o555, "closed/in": 0o500, "closed": 0o500, "plain": 0o1777, "unseen": 0o400}
    for at, (path, mode) in enumerate(modes.items()):
        os.utime(folder / "from" / path, (20 + at, 20 + at))
        (folder / "from" / path).chmod(mode)
    guest = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]  # not even root goes everywhere then
    archive = call("pack", path="from")
    answer = call("unpack", stdin=archive.body, path="to", before=guest)
    assert answer.ok and archive.head["skipped"] == 0 and answer.head["entries"] == archive.head["entries"], answer.head
    for at, (path, mode) in enumerate(modes.items()):
        facts = (folder / "to" / path).stat()
        assert (facts.st_mode & 0o7777, facts.st_mtime) == (mode, 20 + at), path
    assert (folder / "to/plain/link").lstat().st_mtime == 11 and (folder / "to/closed/in/deep/file").read_text() == "text"
    assert call("unpack", stdin=archive.body[:-1024 - 100], path="cut").ok is False
    assert (folder / "cut/closed").stat().st_mode & 0o7777 == 0o500


def test_of_what_is_recovered_as_much_is_there_as_fits(call, folder):
    (folder / "from").mkdir()
    (folder / "from/small").write_text("x" * 100)
    with open(folder / "from/sparse", "wb") as file:
        file.truncate(8 << 20)
        file.seek(4 << 20)
        file.write(b"middle")
    assert call("pack", path="from", limit=200).code == "too_large"
    archive = call("pack", path="from", limit=200, recover="true")
    assert (archive.head["entries"], archive.head["skipped"]) == (1, 1)
    archive = call("pack", path="from", recover="true")
    assert archive.head["skipped"] == 0
    assert call("unpack", stdin=archive.body, path="to", recover="true").head["skipped"] == 0
    subprocess.run(["diff", "-r", "from", "to"], cwd=folder, check=True)
    assert (folder / "to/sparse").stat().st_blocks * 512 < 1 << 20
    few = call("unpack", stdin=archive.body, path="few", recover="true", before=["prlimit", "--fsize=1000000"])
    assert few.head["skipped"] == 1 and os.listdir(folder / "few") == ["small"]
    assert call("unpack", stdin=archive.body, path="none", before=["prlimit", "--fsize=1000000"]).code == "too_large"


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_archives_of_every_form_are_unpacked(call, folder, form):
    long = "d" * 90 + "/" + "e" * 90
    entries = [("./", DIR, ""), ("sub/", DIR, ""), ("sub/a", FILE, b"text"), ("./sub//b", FILE, b""), ("link", LINK, "../anywhere"),
               ("hard", HARD, "sub/a"), (long, FILE, b"long")]
    if form != tarfile.USTAR_FORMAT:
        entries += [("x" * 101 + "/" + "y" * 250, FILE, b"longer"), ("to-long", LINK, "z" * 300), ("\N{SNOWMAN}", FILE, b"snow")]
    answer = call("unpack", stdin=archive_of(*entries, form=form), path="new/place")
    assert answer.head["ok"] is True, answer.head
    place = folder / "new/place"
    assert (place / "sub/a").read_bytes() == b"text" and (place / "hard").stat().st_ino == (place / "sub/a").stat().st_ino
    assert (place / "sub/a").stat().st_mode & 0o7777 == 0o640 and (place / "sub/a").stat().st_mtime == 9
    assert os.readlink(place / "link") == "../anywhere" and (place / long).read_bytes() == b"long"
    if form != tarfile.USTAR_FORMAT:
        assert (place / ("x" * 101) / ("y" * 250)).read_bytes() == b"longer" and os.readlink(place / "to-long") == "z" * 300
        assert (place / "\N{SNOWMAN}").read_bytes() == b"snow"


@pytest.mark.parametrize("flags", [["--format=gnu"], ["--format=v7"], ["--format=ustar"], ["--format=pax"], ["--format=oldgnu"]])
def test_what_gnu_tar_writes_is_read(call, folder, flags):
    (folder / "from/sub").mkdir(parents=True)
    (folder / "from/sub/file").write_bytes(b"x" * 100000)
    (folder / "from/link").symlink_to("sub")
    data = subprocess.run(["tar", *flags, "-c", "-C", folder / "from", "."], stdout=subprocess.PIPE, check=True).stdout
    assert call("unpack", stdin=data, path="to").ok
    subprocess.run(["diff", "-r", "--no-dereference", "from", "to"], cwd=folder, check=True)


@pytest.mark.parametrize(("entries", "word"), [
    ([("../evil", FILE, b"x")], "../evil"),
    ([("a/../../evil", FILE, b"x")], "a/../../evil"),
    ([("/tmp/evil-absolute", FILE, b"x")], "/tmp/evil-absolute"),
    ([("out", LINK, "/tmp"), ("out/evil", FILE, b"x")], "out/evil"),
    ([("out", LINK, ".."), ("out/sub/evil", FILE, b"x")], "out/sub/evil"),
    ([("out", LINK, "/tmp"), ("out", DIR, "")], "out"),
    ([("evil", HARD, "../secret")], "../secret"),
    ([("evil", HARD, "/etc/passwd")], "/etc/passwd"),
    ([("out", LINK, "/etc"), ("evil", HARD, "out/passwd")], "evil"),
    ([("out", LINK, "/etc/passwd"), ("evil", HARD, "out")], "evil"),
    ([("evil", HARD, "nowhere")], "evil"),
    ([("evil", tarfile.CHRTYPE, "")], "evil"),
    ([("evil", tarfile.BLKTYPE, "")], "evil"),
    ([("evil", tarfile.FIFOTYPE, "")], "evil"),
    ([("evil", tarfile.GNUTYPE_SPARSE, "")], "evil"),
    ([("", FILE, b"x")], "name"),
])
def test_an_entry_that_leads_elsewhere_is_refused_by_name_and_not_written(call, folder, entries, word):
    (folder / "secret").write_text("secret")
    (folder / "place").mkdir()
    answer = call("unpack", stdin=archive_of(("before", FILE, b"stays"), *entries, ("after", FILE, b"")), path="place")
    assert answer.code == "invalid_request" and word in answer.head["message"]
    found = {path.name for path in folder.rglob("*")}
    assert found <= {"secret", "place", "before", "out"} and "before" in found
    assert not os.path.lexists("/tmp/evil") and not os.path.lexists("/tmp/evil-absolute")


def test_what_is_in_the_way_is_replaced_but_never_followed(call, folder):
    (folder / "secret").write_text("secret")
    (folder / "place/is-folder").mkdir(parents=True)
    (folder / "place/link").symlink_to("../secret")
    (folder / "place/file").write_text("old")
    assert call("unpack", stdin=archive_of(("link", FILE, b"new"), ("file", LINK, "x"), ("is-folder", DIR, "")), path="place").ok
    assert (folder / "secret").read_text() == "secret" and (folder / "place/link").read_text() == "new"
    assert os.readlink(folder / "place/file") == "x"
    for kind, value in ((FILE, b"x"), (LINK, "x")):
        assert call("unpack", stdin=archive_of(("is-folder", kind, value)), path="place").code == "conflict"
    assert call("unpack", stdin=archive_of(("link/x", FILE, b"")), path="place").code == "conflict"
    assert sorted(os.listdir(folder / "place")) == ["file", "is-folder", "link"]


def test_what_is_no_tar_is_refused_with_a_remedy(call, folder):
    data = archive_of(("a", FILE, b"x" * 1000))
    for program in (["gzip", "-c"], ["xz", "-c"], ["bzip2", "-c"]):
        packed = subprocess.run(program, input=data, stdout=subprocess.PIPE, check=True).stdout
        answer = call("unpack", stdin=packed, path="place")
        assert answer.code == "invalid_request" and program[0] in answer.head["message"] and "send the .tar" in answer.head["remedy"]
    for rubbish in (b"", b"hello", b"x" * 5000, data[:100], data[:700]):
        assert call("unpack", stdin=rubbish, path="place").code == "invalid_request", rubbish[:20]
    assert os.listdir(folder / "place") == []


def test_an_archive_that_is_cut_short_leaves_only_whole_files(call, folder):
    data = archive_of(("a", FILE, b"a" * 1000), ("b", FILE, b"b" * 100000))
    for cut in (600, 1500, 2600, 60000):
        assert call("unpack", stdin=data[:cut], path="place").code == "invalid_request"
        for name in os.listdir(folder / "place"):
            assert name == "a" and (folder / "place/a").stat().st_size == 1000


def test_limits_on_bytes_and_entries_hold(call, folder):
    data = archive_of(*((f"f{number}", FILE, b"x" * 1000) for number in range(10)))
    assert call("unpack", stdin=data, path="a", limit=10000, entries=10).head == {"ok": True, "entries": 10, "bytes": 10000}
    answer = call("unpack", stdin=data, path="b", limit=9999)
    assert answer.code == "too_large" and "f9" in answer.head["message"] and len(os.listdir(folder / "b")) == 9
    assert call("unpack", stdin=data, path="c", entries=9).code == "too_large" and len(os.listdir(folder / "c")) == 9


def test_a_gigabyte_goes_in_and_out_without_memory(folder):
    with open(folder / "file", "wb") as file:
        file.truncate(1 << 30)
    script = 'ulimit -v 24000; "$0" pack path=file 2>out-head | "$0" unpack path=new'
    process = subprocess.run(["sh", "-c", script, HELPER], cwd=folder, capture_output=True, timeout=120 * SLOW)
    assert Answer(process).head == {"ok": True, "entries": 1, "bytes": 1 << 30}
    assert (folder / "new/file").stat().st_size == 1 << 30


# ---- guests that work against it ----

@contextlib.contextmanager
def mischief(*acts):
    """Each act, over and over, beside what is tested."""
    over = threading.Event()

    def repeat(act):
        while not over.is_set():
            with contextlib.suppress(OSError):
                act()

    threads = [threading.Thread(target=repeat, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_folders_that_move_while_they_are_walked_neither_hang_nor_crash_it(call, folder):
    for number in range(20):
        (folder / f"tree/{number}/a/b").mkdir(parents=True)
        (folder / f"tree/{number}/a/b/file").write_text("text")

    def swap():
        for number in range(20):
            (folder / f"tree/{number}/a").rename(folder / f"tree/{number}/moved")
            (folder / f"tree/{number}/a").symlink_to("/")
            (folder / f"tree/{number}/moved/b").rename(folder / f"tree/b{number}")
            (folder / f"tree/b{number}").rename(folder / f"tree/{number}/moved/b")
            (folder / f"tree/{number}/a").unlink()
            (folder / f"tree/{number}/moved").rename(folder / f"tree/{number}/a")

    with mischief(swap):
        for _ in range(15):
            assert call("search", content="text", within=20).ok
            answer = call("pack", path="tree", within=20)
            assert answer.ok and answer.status == 0
            with tarfile.open(fileobj=io.BytesIO(answer.body)) as tar:
                assert not [name for name in tar.getnames() if name.endswith("passwd")]
            assert call("list", depth=16, within=20).ok
    with mischief(swap):
        answer = call("delete", path="tree", recursive="true", within=20)
        assert answer.ok or answer.code in ("conflict", "not_found", "forbidden")
    assert os.path.exists("/etc/passwd")


def test_a_folder_that_is_moved_away_while_it_is_walked_does_not_lead_the_walk_astray(folder):
    """The way back up from it, "..", is another folder then, with the same names in it."""
    for name in ("x", "y"):
        (folder / "tree/a" / name).mkdir(parents=True)
        (folder / "tree/a" / name / "large").write_bytes(b"l" * (1 << 20))
        (folder / "outside" / name).mkdir(parents=True)
        (folder / "outside" / name / "evil").touch()
    with subprocess.Popen([HELPER, "--sealed", "pack", "path=tree"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        data = process.stdout.read(2048)  # the helper waits, in the middle of the first large file
        first, other = ("x", "y") if b"a/x/" in data else ("y", "x")
        (folder / "outside" / first / "evil").unlink()
        (folder / "outside" / first).rmdir()
        (folder / "tree/a" / first).rename(folder / "outside" / first)
        data += process.stdout.read()
        assert process.wait(10 * SLOW) == 0
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert sorted(tar.getnames()) == sorted(["a", f"a/{first}", f"a/{first}/large", f"a/{other}", f"a/{other}/large"])


def test_a_folder_that_is_filled_while_it_is_deleted_ends_one_way_or_the_other(call, folder):
    (folder / "tree/sub").mkdir(parents=True)
    number = [0]

    def fill():
        number[0] += 1
        (folder / "tree/sub").mkdir(parents=True, exist_ok=True)
        (folder / f"tree/sub/{number[0]}").touch()

    with mischief(fill):
        answer = call("delete", path="tree", recursive="true", within=30)
        assert answer.ok or answer.code == "conflict"


def test_a_file_that_becomes_a_fifo_or_a_link_while_it_is_used_does_not_hang(call, folder):
    def swap():
        path = folder / "file"
        path.write_text("text")
        path.unlink()
        os.mkfifo(path)
        path.unlink()
        path.symlink_to("/dev/zero")
        path.unlink()
        path.mkdir()
        path.rmdir()

    with mischief(swap):
        for _ in range(25):
            for operation, keys in (("read", {"path": "file"}), ("write", {"path": "file"}), ("write", {"path": "file", "append": "true"}),
                                    ("stat", {"path": "file"}), ("list", {}), ("search", {"content": "x"}), ("pack", {})):
                answer = call(operation, stdin=b"new", within=20, **keys)
                assert answer.ok or answer.code in ("not_found", "conflict", "forbidden"), (operation, answer.head)
        call("delete", path="file", recursive="true")
    assert not [name for name in os.listdir(folder) if name.startswith(".hotcell")]


def test_a_place_that_becomes_a_link_while_an_archive_is_unpacked_is_not_followed(call, folder):
    (folder / "secret").mkdir()
    data = archive_of(*((f"sub/f{number}", FILE, b"x" * 2000) for number in range(200)))

    def swap():
        (folder / "place/sub").rename(folder / "place/away")
        (folder / "place/sub").symlink_to(folder / "secret")
        (folder / "place/sub").unlink()
        (folder / "place/away").rename(folder / "place/sub")

    with mischief(swap):
        for _ in range(10):
            answer = call("unpack", stdin=data, path="place", within=20)
            assert answer.ok or answer.code in ("invalid_request", "conflict", "not_found"), answer.head
    assert os.listdir(folder / "secret") == []
