"""Files of sandboxes over HTTP: lists, bytes, ranges, moves, searches, watches, archives, strange names, huge files, full disks."""

import base64
import contextlib
import io
import json
import os
import pathlib
import socket
import tarfile
import threading
import time
import urllib.parse

import pytest

from cells import MIB, SLOW
from sandboxes import ROOT, Sandbox, box, contract, wait_for  # noqa: F401  (fixtures)
from server import server, start_server  # noqa: F401  (fixtures)

GIB = 1 << 30


def names(answer):
    return [entry.get("name", entry.get("name_base64")) for entry in answer.json["entries"]]


def archive(*members):
    """A tar of (name, bytes) or TarInfo members."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
                continue
            info = tarfile.TarInfo(member[0])
            info.size = len(member[1])
            tar.addfile(info, io.BytesIO(member[1]))
    return out.getvalue()


def link(name, target, kind=tarfile.SYMTYPE):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


# ---- bytes ----


def test_a_file_is_written_read_replaced_and_deleted(box):
    assert box.put("a/b/c.txt", b"hello").status == 201 and box.put("a/b/c.txt", b"again").status == 204
    answer = box.get("a/b/c.txt")
    assert (answer.body, answer.headers["content-length"], answer.headers["hotcell-mode"]) == (b"again", "5", "0644")
    assert box.out("stat -c '%U %a' a/b/c.txt") == "sandbox 644\n"
    assert box.put("program", b"#!/bin/sh\necho ran\n", "?mode=0755").status == 201 and box.out("./program") == "ran\n"
    assert box.put("a/b/c.txt", b"+", "?append=true").status == 204 and box.get("a/b/c.txt").body == b"again+"
    assert box.ask("DELETE", "/files/{path}", path="a/b/c.txt").status == 204
    assert box.get("a/b/c.txt").status == 404 and box.ask("DELETE", "/files/{path}", path="a/b/c.txt").status == 404


def test_a_path_is_absolute_by_its_first_name_or_below_the_working_directory(box):
    box.put("tmp/x", b"1")
    box.put("other/x", b"2")
    box.put("workspace/y", b"3")
    assert box.out("cat /tmp/x /workspace/other/x /workspace/y") == "123"
    answer = box.ask("PUT", "/files?path=" + urllib.parse.quote("/tmp/a b?"), b"4")
    assert answer.status == 201 and box.out("cat '/tmp/a b?'") == "4"
    assert box.ask("DELETE", "/files?path=" + urllib.parse.quote("/tmp/a b?")).status == 204
    assert box.ask("PUT", "/files", b"x").status == 400


def test_head_has_the_facts_and_no_bytes(box):
    box.put("x", b"12345")
    answer = box.ask("HEAD", "/files/{path}", path="x")
    assert (answer.status, answer.body, answer.headers["content-length"], answer.headers["accept-ranges"]) == (200, b"", "5", "bytes")
    assert "last-modified" in answer.headers
    assert box.ask("HEAD", "/files/{path}", path="no").status == 404 and box.ask("HEAD", "/files/{path}", path="tmp").status == 409


@pytest.mark.parametrize(("asked", "status", "part", "where"), [
    ("bytes=0-3", 206, b"0123", "bytes 0-3/10"), ("bytes=5-", 206, b"56789", "bytes 5-9/10"), ("bytes=-3", 206, b"789", "bytes 7-9/10"), ("bytes=8-99", 206, b"89", "bytes 8-9/10"),
    ("bytes=-99", 206, b"0123456789", "bytes 0-9/10"), ("bytes=10-", 416, None, "bytes */10"), ("bytes=99-100", 416, None, "bytes */10"),
    ("bytes=0-1,3-4", 200, b"0123456789", None), ("bytes=3-1", 200, b"0123456789", None), ("lines=1-2", 200, b"0123456789", None), ("bytes=+1-2", 200, b"0123456789", None),
    ("bytes= 1-2", 200, b"0123456789", None), ("bytes=-", 200, b"0123456789", None), ("bytes=99999999999999999999-", 200, b"0123456789", None)])
def test_ranges(box, asked, status, part, where):
    box.put("digits", b"0123456789")
    answer = box.get("digits", headers={"Range": asked})
    assert answer.status == status and answer.headers.get("content-range") == where, answer
    assert part is None or answer.body == part


def test_an_empty_file_has_no_range(box):
    box.put("empty", b"")
    assert box.get("empty").body == b"" and box.get("empty", headers={"Range": "bytes=0-"}).status == 416


def test_what_is_no_file_is_409(box):
    box.out("mkdir d; mkfifo p; ln -s /dev/null n; ln -s nowhere s; ln -s loop loop")
    for name in ("d", "p", "n"):
        begun = time.monotonic()
        answer = box.get(name)
        assert answer.status == 409 and answer.json["code"] == "conflict" and time.monotonic() - begun < 5 * SLOW, (name, answer)
    assert box.get("s").status == 404 and box.get("loop").status in (404, 409, 400)
    assert box.put("d", b"x").status == 409
    assert box.put("p", b"x").status == 409 and box.out("test -p p && echo still") == "still\n"


def test_what_the_guest_may_not_the_interface_may_not(box):
    assert box.put("etc/passwd", b"x").status == 403 and box.put("usr/bin/x", b"x").status == 403
    assert box.get("proc/1/environ").status == 403 and box.ask("DELETE", "/files/{path}", path="etc/passwd").status == 403
    box.out("echo s > secret; chmod 000 secret")
    assert box.get("secret").status == 403
    assert box.get("etc/shadow").status in (403, 404)


def test_wrong_parameters_are_named(box):
    for method, below, names_, body in (("PUT", "/files/{path}?mode=999", {"path": "x"}, b""), ("PUT", "/files/{path}?what=1", {"path": "x"}, b""), ("GET", "/files?limit=x", {}, None),
                                        ("GET", "/files?limit=99999", {}, None), ("GET", "/files?depth=17", {}, None), ("GET", "/files?nope=1", {}, None), ("POST", "/files/move", {}, {"from": "x"}),
                                        ("POST", "/files/move", {}, {"from": "x", "to": 5}), ("POST", "/files/mkdir", {}, {}), ("POST", "/files/mkdir", {}, {"path": "x", "parents": "yes"}),
                                        ("GET", "/files/search", {}, None), ("GET", "/files/search?content=(&regex=true", {}, None), ("GET", "/files/watch?x=1", {}, None), ("GET", "/archive?x=1", {}, None)):
        answer = box.ask(method, below, body, **names_)
        assert answer.status == 400 and answer.json["code"] == "invalid_request", (below, body, answer)


# ---- folders ----


def test_a_folder_is_listed_with_kinds_sizes_modes_and_times(box):
    box.out("mkdir d; printf 123 > f; chmod 640 f; ln -s f l; mkfifo p; touch -d 2020-01-02T03:04:05Z d")
    answer = box.facts("/workspace")
    entries = {entry["name"]: entry for entry in answer.json["entries"]}
    assert (answer.json["path"], answer.json["truncated"]) == ("/workspace", False)
    assert {name: entry["type"] for name, entry in entries.items()} == {"d": "directory", "f": "file", "l": "symlink", "p": "fifo"}
    assert (entries["f"]["size"], entries["f"]["mode"], entries["l"]["target"]) == (3, "0640", "f") and entries["d"]["modified_at"].startswith("2020-01-02T03:04:05")
    assert box.facts("f").json["size"] == 3 and box.facts("nope").status == 404
    assert {entry["name"]: entry["type"] for entry in box.facts("/dev").json["entries"]}["null"] == "char"


def test_long_lists_go_on_after_a_name_and_deep_ones_by_depth(box):
    box.out("for i in $(seq -w 1 250); do : > n$i; done; mkdir -p x/y/z; : > x/y/z/f")
    first = box.facts("", "&limit=100")
    assert first.json["truncated"] is True and names(first) == [f"n{number:03}" for number in range(1, 101)]
    rest = box.facts("", "&limit=1000&after=n200")
    assert names(rest)[:50] == [f"n{number:03}" for number in range(201, 251)] and rest.json["truncated"] is False
    assert names(box.facts("x", "&depth=16")) == ["y", "y/z", "y/z/f"] and names(box.facts("x")) == ["y"]


@pytest.mark.parametrize("name", ["new\nline", "a\\b", "%41", "tab\there", "\x7f", "\x1b[31m"])
def test_names_that_http_paths_cannot_have_go_by_the_query(box, name):
    query = "?path=" + urllib.parse.quote(name, safe="")
    assert box.put(name, b"").status == 400
    assert box.ask("PUT", "/files" + query, b"data").status == 201 and names(box.facts("")) == [name]
    assert box.server.get(f"{ROOT}/{box.id}/files/{query}").body == b"data"
    assert box.ask("DELETE", "/files" + query).status == 204 and names(box.facts("")) == []


@pytest.mark.parametrize("name", ["with space", "é漢字", "-rf", "*?[x]", "a'b\"c", ".hidden", "x" * 255, "#?&=+;"])
def test_strange_names_go_in_and_come_out(box, name):
    assert box.put(name, b"data").status == 201
    assert names(box.facts("")) == [name] and box.get(name).body == b"data"
    assert box.out("ls -A | wc -l; cat ./*" if not name.startswith(".") else "ls -A | wc -l; cat ./.h*")[-4:] == "data"
    assert box.ask("DELETE", "/files/{path}", path=name).status == 204 and names(box.facts("")) == []


def test_a_name_that_is_not_utf_8_is_told_and_asked_for_in_base64(box):
    box.out("printf data > \"$(printf 'b\\377d')\"")
    entry = box.facts("").json["entries"][0]
    assert base64.b64decode(entry["name_base64"]) == b"b\xffd"
    query = "?path_base64=" + urllib.parse.quote(entry["name_base64"])
    assert box.ask("GET", "/files" + query).json["type"] == "file"
    assert box.server.get(f"{ROOT}/{box.id}/files/{query}").body == b"data"
    assert box.ask("PUT", "/files" + query, b"more").status == 204 and box.out("cat b*") == "more"
    for wrong in ("?path_base64=x", "?path_base64=AA==", "?path=a&path_base64=YQ=="):
        assert box.ask("GET", "/files" + wrong).status == 400, wrong
    assert box.ask("DELETE", "/files" + query).status == 204


def test_a_name_that_is_too_long_or_has_a_nul_is_refused(box):
    assert box.put("x" * 256, b"").status == 400
    assert box.server.request("PUT", f"{ROOT}/{box.id}/files/" + "d/" * 3000 + "x", b"").status in (400, 404, 414, 431)
    assert box.server.request("PUT", f"{ROOT}/{box.id}/files/a%00b", b"").status == 400
    assert names(box.facts("")) == []


def test_dots_lead_nowhere_else(box):
    for path in ("../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "a/../../etc/passwd"):
        answer = box.server.get(f"{ROOT}/{box.id}/files/{path}")
        assert answer.status in (400, 404), (path, answer)
    inside = box.server.get(f"{ROOT}/{box.id}/files/?path=../../../etc/passwd").text
    assert inside == box.out("cat /etc/passwd") != pathlib.Path("/etc/passwd").read_text()


def test_folders_are_made_moved_and_deleted(box):
    assert box.ask("POST", "/files/mkdir", {"path": "a/b/c", "mode": "0700"}).status == 201
    assert box.ask("POST", "/files/mkdir", {"path": "a/b/c"}).status == 204
    assert box.ask("POST", "/files/mkdir", {"path": "q/r", "parents": False}).status == 404
    for path in ("/etc/z", "/etc/z/y"):
        refused = box.ask("POST", "/files/mkdir", {"path": path})
        assert refused.status == 403 and "Read-only file system" in refused.json["detail"], refused
    assert box.ask("POST", "/files/mkdir", {"path": "/etc"}).status == 204 and box.ask("POST", "/files/mkdir", {"path": "/etc", "parents": False}).status == 409
    assert box.out("stat -c %a a/b/c") == "700\n"
    box.put("a/b/c/f", b"1")
    assert box.ask("POST", "/files/move", {"from": "a", "to": "z"}).status == 200 and box.get("z/b/c/f").body == b"1"
    box.put("g", b"2")
    assert box.ask("POST", "/files/move", {"from": "g", "to": "z/b/c/f"}).status == 409
    assert box.ask("POST", "/files/move", {"from": "g", "to": "z/b/c/f", "overwrite": True}).status == 200 and box.get("z/b/c/f").body == b"2"
    assert box.ask("POST", "/files/move", {"from": "z", "to": "/tmp/z"}).json["copied"] in (True, False) and box.out("cat /tmp/z/b/c/f") == "2"
    box.put("f2", b"3")
    assert box.ask("POST", "/files/move", {"from": "f2", "to": "new/par/f"}).status == 200 and box.get("new/par/f").body == b"3"
    refused = box.ask("POST", "/files/move", {"from": "/etc/passwd", "to": "deep/pw"})
    assert refused.status == 403 and box.facts("deep").status == 404
    assert box.ask("DELETE", "/files/{path}", path="tmp/z").status == 409
    assert box.ask("DELETE", "/files/{path}?recursive=true", path="tmp/z").status == 204
    assert box.facts("/tmp/z").status == 404


def test_a_deep_tree_is_listed_packed_and_deleted(box):
    box.out("d=/workspace/t; i=0; mkdir t; cd t; while [ $i -lt 300 ]; do mkdir dddddddddddddddd; cd dddddddddddddddd; i=$((i+1)); done; echo end > f")
    assert box.ask("GET", "/archive?path=t").status == 200
    assert box.ask("DELETE", "/files/{path}?recursive=true", path="t").status == 204 and box.facts("t").status == 404


# ---- searching and watching ----


def test_search_by_name_and_by_content(box):
    box.out("mkdir -p src/deep; printf 'one\\ntwo needle\\n' > src/a.py; printf 'needle' > src/deep/b.py; printf 'needle' > src/c.txt; printf 'nee\\000dle' > src/bin")
    found = box.ask("GET", "/files/search?path=src&name=*.py&content=needle").json
    assert sorted((match["path"], match["line"], match["column"]) for match in found["matches"]) == [("src/a.py", 2, 5), ("src/deep/b.py", 1, 1)]
    assert sorted(match["path"] for match in box.ask("GET", "/files/search?name=*.py").json["matches"]) == ["src/a.py", "src/deep/b.py"]
    assert len(box.ask("GET", "/files/search?content=n[e]%2Bdle&regex=true").json["matches"]) == 3
    limited = box.ask("GET", "/files/search?content=needle&limit=1").json
    assert len(limited["matches"]) == 1 and limited["truncated"] is True


def test_changes_are_told_as_they_happen(server, box):
    seen = []
    stream = server.events(f"{ROOT}/{box.id}/files/watch?path=/workspace&recursive=true")
    assert stream.status == 200 and stream.headers["content-type"] == "text/event-stream"

    def gather():
        with contextlib.suppress(OSError, ValueError):
            for event in stream:
                if event.name != "start":
                    box.contract.validate(event.data, "WatchEvent")
                seen.append((event.name, event.data.get("path"), event.data.get("to")))

    thread = threading.Thread(target=gather, daemon=True)
    thread.start()
    wait_for(lambda: seen)
    box.out("echo 1 > f; mkdir d; sleep 0.2; echo 2 > d/g; mv f h; sleep 0.2; rm d/g")
    wanted = [("created", "f"), ("created", "d"), ("moved", "f"), ("deleted", "d/g")]
    wait_for(lambda: all(any(name == one and (path or "").endswith(where) for one, path, _ in seen) for name, where in wanted))
    assert any(name == "modified" for name, _, _ in seen)
    assert box.look()["usage"]["idle_s"] == 0
    stream.connection.sock.shutdown(socket.SHUT_RDWR)
    thread.join(10)
    wait_for(lambda: box.look()["usage"]["pids"] == 0)


# ---- archives ----


def test_a_tree_goes_in_and_comes_out_as_a_tar(box):
    tar = archive(("dir/a.txt", b"A" * 1000), ("dir/sub/b", b""), link("dir/l", "a.txt"))
    answer = box.ask("PUT", "/archive?path=/workspace/in", tar)
    assert answer.status == 200 and answer.json["entries"] == 3 and answer.json["bytes"] == 1000, answer
    assert box.out("cat in/dir/l | wc -c; readlink in/dir/l") == "1000\na.txt\n"
    box.out("mkfifo in/dir/p; chmod 750 in/dir/sub")
    answer = box.ask("GET", "/archive?path=in")
    with tarfile.open(fileobj=io.BytesIO(answer.body)) as back:
        members = {member.name.removeprefix("./"): member for member in back.getmembers()}
        assert back.extractfile(members["dir/a.txt"] if "dir/a.txt" in members else members["in/dir/a.txt"]).read() == b"A" * 1000
    assert any(member.issym() for member in members.values()) and answer.headers["hotcell-skipped"] == "1"


@pytest.mark.parametrize("members", [[("../out", b"x")], [("/workspace/out", b"x")], [("a/../../out", b"x")], [link("l", "/tmp"), ("l/out", b"x")],
                                     [link("l", ".."), ("l/tmp/out", b"x")], [link("h", "/etc/passwd", tarfile.LNKTYPE)], [link("h", "../../etc/passwd", tarfile.LNKTYPE)]],
                         ids=["up", "absolute", "up inside", "through a link", "through a link up", "hard link", "hard link up"])
def test_entries_that_lead_elsewhere_are_400_and_nothing_of_them_is_written(box, members):
    answer = box.ask("PUT", "/archive?path=/workspace/in", archive(("good", b"1"), *members))
    assert answer.status == 400, answer
    assert box.out("ls -A /tmp | grep -v '^.hotcell$'; ls -A /workspace | grep -v '^in$'; find /workspace/in -name out -o -name h; ls -d /out 2>/dev/null; true") == ""


@pytest.mark.parametrize("junk", [b"", b"not a tar" * 200, b"\0" * 100, archive(("a", b"1" * 5000))[:1000]], ids=["nothing", "text", "short", "cut"])
def test_what_is_no_archive_is_400_or_nothing(box, junk):
    answer = box.ask("PUT", "/archive?path=/workspace/in", junk)
    assert answer.status == 400 or (answer.status == 200 and answer.json["entries"] == 0), answer


# ---- limits ----


def test_a_full_disk_is_507_and_leaves_nothing_behind(server, contract):
    box = Sandbox(server, contract=contract, limits={"disk": "4m", "inodes": 100})
    try:
        box.put("keep", b"old")
        assert box.put("big", os.urandom(6 * MIB)).status == 507 and box.facts("big").status == 404
        assert box.put("keep", os.urandom(6 * MIB)).status == 507 and box.get("keep").body == b"old"
        assert box.ask("PUT", "/archive?path=x", archive(("big", b"x" * 6 * MIB))).status == 507
        assert box.ask("PUT", "/archive?path=y", archive(*[(f"f{number}", b"") for number in range(200)])).status == 507
        box.ask("DELETE", "/files/{path}?recursive=true", path="x")
        box.ask("DELETE", "/files/{path}?recursive=true", path="y")
        assert box.out("find /workspace /tmp -type f") == "/workspace/keep\n"
        assert box.look()["usage"]["disk"]["used"] < MIB
    finally:
        box.delete()


def test_more_than_the_server_takes_is_413(start_server):
    server = start_server("[sandboxes]\nfile_bytes = \"1m\"\n")
    box = Sandbox(server)
    assert box.put("x", b"x" * MIB).status == 201
    assert box.put("y", b"x" * (MIB + 1)).status == 413 and box.facts("y").status == 404
    box.out("head -c 2000000 /dev/zero > big")
    assert box.ask("GET", "/archive?path=").status == 413


def test_a_body_that_breaks_off_changes_nothing(server, box):
    box.put("x", b"old")
    connection = server.connect()
    connection.putrequest("PUT", f"{ROOT}/{box.id}/files/x")
    connection.putheader("Content-Length", "1000000")
    connection.endheaders()
    connection.send(b"y" * 500000)
    time.sleep(0.2)
    connection.close()
    time.sleep(0.3)
    assert box.get("x").body == b"old"
    wait_for(lambda: names(box.facts("")) == ["x"])


def test_a_reader_that_hangs_up_ends_the_helper(server, box):
    box.out("head -c 50000000 /dev/zero > big")
    connection = server.connect()
    connection.request("GET", f"{ROOT}/{box.id}/files/big")
    connection.getresponse().read(1000)
    connection.close()
    wait_for(lambda: box.look()["usage"]["pids"] == 0)


def resident(server):
    status = pathlib.Path(f"/proc/{server.process_of('hotcell-gateway')}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


def test_a_gibibyte_goes_in_and_comes_out_and_the_gateway_does_not_grow(start_server):
    server = start_server()
    box = Sandbox(server, limits={"disk": "1200m", "memory": "1500m"})
    block = os.urandom(MIB)
    before, most, wrong = resident(server), 0, 0
    with contextlib.closing(server.connect(within=300)) as connection:
        connection.putrequest("PUT", f"{ROOT}/{box.id}/files/big")
        connection.putheader("Content-Length", str(GIB))
        connection.endheaders()
        for number in range(GIB // MIB):
            connection.send(block)
            if number % 64 == 0:
                most = max(most, resident(server))
        assert connection.getresponse().status == 201
    with contextlib.closing(server.connect(within=300)) as connection:
        connection.request("GET", f"{ROOT}/{box.id}/files/big")
        response = connection.getresponse()
        assert int(response.headers["Content-Length"]) == GIB
        for number in range(GIB // MIB):
            wrong += response.read(MIB) != block
            if number % 64 == 0:
                most = max(most, resident(server))
    assert wrong == 0
    assert most - before < 24 * MIB, (before, most)
    assert box.get("big", headers={"Range": f"bytes={GIB - 5}-"}).body == block[-5:]


def test_a_sparse_file_is_read_by_ranges(box):
    box.out("truncate -s 90M sparse; printf end | dd of=sparse bs=1 seek=94371837 conv=notrunc 2>/dev/null")
    assert box.facts("sparse").json["size"] == 90 * MIB and box.look()["usage"]["disk"]["used"] < MIB
    assert box.get("sparse", headers={"Range": "bytes=-3"}).body == b"end"
    assert box.get("sparse", headers={"Range": "bytes=50000000-50000009"}).body == b"\0" * 10
    assert "File size limit" in box.exec("truncate -s 1T sparse").json["stderr"]


def test_many_at_once(box):
    wrong = []

    def work(number):
        data = json.dumps([number] * 1000).encode()
        for turn in range(5):
            if box.put(f"f{number}-{turn}", data).status != 201 or box.get(f"f{number}-{turn}").body != data:
                wrong.append((number, turn))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and len(names(box.facts(""))) == 40
