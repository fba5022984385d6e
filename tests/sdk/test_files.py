"""The Python client and the files of a sandbox."""

import asyncio
import hashlib
import io
import os
import time

import pytest

import hotcell
from cells import SLOW
from test_sandboxes import in_loop, sandbox  # noqa: F401 pylint: disable=unused-import


def test_bytes_and_text(sandbox):
    files = sandbox.files
    files.write("deep/er/a.txt", "text ä")
    assert files.read_text("deep/er/a.txt") == "text ä" and files.read("/workspace/deep/er/a.txt") == "text ä".encode()
    files.write("b", bytes(range(256)), mode=0o750)
    assert files.read("b", start=10, end=20) == bytes(range(10, 20)) and files.read("b", start=250) == bytes(range(250, 256))
    facts = files.stat("b")
    assert (facts.name, facts.type, facts.size, facts.mode) == ("b", "file", 256, "0750") and not facts.is_dir
    files.write("b", b"more", append=True)
    assert files.stat("b").size == 260 and files.exists("b") and not files.exists("nothing")
    files.write("/tmp/absolute", "x")
    assert sandbox.exec("cat /tmp/absolute").stdout == "x"
    with pytest.raises(hotcell.NotFoundError):
        files.read("nothing")
    with pytest.raises(hotcell.ConflictError):
        files.read("deep")


@pytest.mark.parametrize("name", ["search", "watch", "move", "mkdir", "a b", "ünï", "a?b#c%d&e=f", "$(x)", "tmp/x", "usr", "new\nline", "-x"])
def test_names_of_every_kind(sandbox, name):
    sandbox.files.write(name, "content")
    assert sandbox.files.read_text(name) == "content" and sandbox.exec(["cat", "--", f"/workspace/{name}"]).stdout == "content"
    sandbox.files.delete(name)
    assert not sandbox.files.exists(name)


def test_folders(sandbox):
    files = sandbox.files
    files.mkdir("a/b/c")
    files.write("a/file", "x")
    assert sorted((entry.name, entry.type) for entry in files.list("a")) == [("b", "directory"), ("file", "file")]
    files.move("a/file", "a/b/renamed")
    assert files.exists("a/b/renamed") and not files.exists("a/file")
    files.write("other", "y")
    with pytest.raises(hotcell.ConflictError):
        files.move("other", "a/b/renamed")
    files.move("other", "a/b/renamed", overwrite=True)
    assert files.read_text("a/b/renamed") == "y"
    with pytest.raises(hotcell.ConflictError):
        files.delete("a")
    files.delete("a", recursive=True)
    assert files.list() == []


def test_a_folder_with_more_than_one_page(sandbox):
    sandbox.exec("mkdir many; cd many; for i in $(seq 1 1500); do : > f$i; done")
    assert len({entry.name for entry in sandbox.files.list("many")}) == 1500
    assert len(sandbox.files.list("many", limit=10)) == 10


def test_search(sandbox):
    sandbox.files.write("src/a.py", "one\ntwo needle\n")
    sandbox.files.write("src/b.txt", "needle\n")
    assert sorted(match.path.rsplit("/", 1)[-1] for match in sandbox.files.search(name="*.py")) == ["a.py"]
    found = sandbox.files.search(content="needle", name="*.py")
    assert [(match.line, match.text) for match in found] == [(2, "two needle")]


def test_large_files_there_and_back(sandbox, tmp_path):
    source = tmp_path / "source"
    with open(source, "wb") as file:
        for _ in range(40):
            file.write(os.urandom(1 << 20))
    sandbox.files.upload(source, "big")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    assert sandbox.exec("sha256sum big").stdout.split()[0] == digest
    assert sandbox.files.download("big", tmp_path / "copy") == 40 << 20
    assert hashlib.sha256((tmp_path / "copy").read_bytes()).hexdigest() == digest
    into = io.BytesIO()
    sandbox.files.download("big", into)
    assert hashlib.sha256(into.getvalue()).hexdigest() == digest
    sandbox.files.write("pieces", (b"x" * 1000 for _ in range(1000)))
    assert sandbox.files.stat("pieces").size == 1000000


def test_no_room(client):
    with client.create_sandbox(limits={"disk": "10m"}) as small:
        with pytest.raises(hotcell.SandboxResourceError) as caught:
            small.files.write("big", bytes(20 << 20))
        assert caught.value.status == 507 and isinstance(caught.value, hotcell.DiskFullError)
        small.files.write("small", b"x")


def test_trees_there_and_back(sandbox, tmp_path):
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "deep" / "file").write_bytes(os.urandom(100000))
    (tmp_path / "tree" / "link").symlink_to("deep/file")
    (tmp_path / "tree" / "tool").write_text("#!/bin/sh\necho ran")
    (tmp_path / "tree" / "tool").chmod(0o755)
    sandbox.files.mkdir("copy")
    sandbox.files.upload_folder(tmp_path / "tree", "copy")
    assert sandbox.exec("./copy/tool; cmp copy/link copy/deep/file && echo same").stdout == "ran\nsame\n"
    sandbox.files.download_folder("copy", tmp_path / "back")
    assert (tmp_path / "back" / "link").read_bytes() == (tmp_path / "tree" / "deep" / "file").read_bytes()
    assert b"".join(sandbox.files.archive("copy"))[257:262] == b"ustar"


def test_archives_that_lead_elsewhere(sandbox, tmp_path):
    sandbox.exec(f"mkdir evil; ln -s {tmp_path} evil/a; ln -s ../.. evil/b")
    with pytest.raises(hotcell.UnsafeArchiveError):
        sandbox.files.download_folder("evil", tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_watching(sandbox):
    with sandbox.files.watch(".") as events:
        sandbox.files.write("seen.txt", "x")
        deadline = time.monotonic() + 20 * SLOW
        for event in events:
            if event.data.get("path", "").endswith("seen.txt") or event.data.get("to", "").endswith("seen.txt"):
                break
            assert time.monotonic() < deadline
    assert event.name in ("created", "moved", "modified")


def test_asyncio(server):
    async def work(box):
        await box.files.write("a", "text")

        async def pieces():
            for _ in range(10):
                await asyncio.sleep(0)
                yield b"y" * 100
        await box.files.write("b", pieces())
        return await box.files.read_text("a"), len(await box.files.read("b")), sorted(entry.name for entry in await box.files.list())
    assert in_loop(server, work) == ("text", 1000, ["a", "b"])
