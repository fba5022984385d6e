"""The parts of the Python client that neither send nor receive: events, frames, heads, archives."""

import io
import os
import tarfile

import pytest

import hotcell
from hotcell import _frames as frames
from hotcell import _tar as tar
from hotcell import _wire as wire
from hotcell.models import Event, Execution, FileInfo, Result, Shown

STREAM = 'id: a\nevent: stdout\ndata: {"text":"ä\\n"}\n\n: comment\nretry: 5\nevent: result\r\ndata: {"a":\r\ndata: 1}\r\n\r\n'.encode()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_in_pieces_of_any_size(size):
    decoder, found = wire.EventDecoder(), []
    for start in range(0, len(STREAM), size):
        found += decoder.feed(STREAM[start:start + size])
    assert found == [("stdout", "a", {"text": "ä\n"}), ("result", "a", {"a": 1})]


def test_events_that_are_not_json():
    with pytest.raises(hotcell.ProtocolError):
        wire.EventDecoder().feed(b"data: {\n\n")


def test_event_text_and_bytes():
    assert Event("stdout", None, {"base64": "/w=="}).bytes == b"\xff" and Event("stdout", None, {"text": "ä"}).text == "ä"


def test_heads():
    head = wire.parse_head(b"HTTP/1.1 200 OK\r\nA: 1\r\na: 2\r\nRetry-After: 3\r\nConnection: Close")
    assert head.status == 200 and head.headers["a"] == "1, 2" and head.retry_after == 3.0 and not head.keeps
    with pytest.raises(hotcell.ProtocolError):
        wire.parse_head(b"HTTP/2 200")


def test_header_values_cannot_make_headers():
    with pytest.raises(hotcell.InvalidRequestError):
        wire.write_head(wire.Request("GET", "/", headers={"A": "b\r\nC: d"}), "", {})


@pytest.mark.parametrize("name", ["a/../../b", "x?y", "x#y", "a b", "%2e"])
def test_names_stay_one_segment(name):
    assert not set("/?# ") & set(wire.segment(name))


@pytest.mark.parametrize("status, detail, safe, again", [
    (503, "256 runs are waiting already, and there is no room for more", False, True),
    (503, "the memory that this server has for results (512 MiB) is used up", False, False),
    (503, "the memory that this server has for results (512 MiB) is used up", True, True),
    (429, "the quota of runs a minute", False, True), (500, "x", True, False), (409, "x", True, False)])
def test_what_may_be_sent_again(status, detail, safe, again):
    head = wire.Head(status, {"retry-after": "1"})
    assert wire.may_repeat(wire.Request("POST", "/v1/runs", body=b"{}", safe=safe), head, {"detail": detail}) is again
    assert not wire.may_repeat(wire.Request("POST", "/", body=iter([b""]), safe=True), head, {"detail": detail})
    assert not wire.may_repeat(wire.Request("POST", "/", body=b"", safe=True), wire.Head(status, {}), {"detail": detail})


# ---- frames ----

def from_server(kind, data, final=True):
    """A frame as a server sends it: without a mask."""
    first, size = (0x80 if final else 0) | kind, len(data)
    if size < 126:
        return bytes([first, size]) + data
    return bytes([first, 126]) + size.to_bytes(2, "big") + data if size < 1 << 16 else bytes([first, 127]) + size.to_bytes(8, "big") + data


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, 200000])
def test_frames_of_every_size(size):
    data = os.urandom(size)
    decoder, whole = frames.FrameDecoder(), from_server(frames.BINARY, data)
    step = max(1, len(whole) // 50)
    found = [message for start in range(0, len(whole), step) for message in decoder.feed(whole[start:start + step])]
    assert found == [frames.Message(frames.BINARY, data)]
    sent = frames.frame(frames.BINARY, data)
    mask = 2 + (0 if size < 126 else 2 if size < 1 << 16 else 8)
    assert sent[1] & 0x80 and frames._masked(sent[mask + 4:], sent[mask:mask + 4]) == data


def test_fragments_with_a_ping_between_them():
    data = from_server(frames.TEXT, b"a", False) + from_server(frames.PING, b"p") + from_server(frames.CONTINUATION, b"b")
    assert frames.FrameDecoder().feed(data) == [frames.Message(frames.PING, b"p"), frames.Message(frames.TEXT, b"ab")]


@pytest.mark.parametrize("data", [b"\x82\x81abcd1", b"\xc2\x00", b"\x80\x00", b"\x83\x00", b"\x89\x7e\x00\x80", b"\x09\x00",
                                  b"\x82\x7f" + b"\x7f" * 8, from_server(frames.TEXT, b"a", False) * 2])
def test_frames_that_are_wrong(data):
    with pytest.raises(hotcell.ProtocolError):
        frames.FrameDecoder().feed(data)


def test_the_handshake_of_the_rfc(monkeypatch):
    monkeypatch.setattr(os, "urandom", lambda size: b"the sample nonce")
    assert frames.new_key() == ("dGhlIHNhbXBsZSBub25jZQ==", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")


# ---- archives ----

def archive(*entries):
    """(name, kind, content or link)"""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as made:
        for name, kind, content in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = kind, 0o6755
            if kind == tarfile.REGTYPE:
                entry.size = len(content)
                made.addfile(entry, io.BytesIO(content))
            else:
                entry.linkname = content
                made.addfile(entry)
    file.seek(0)
    return file


def test_a_folder_there_and_back(tmp_path):
    source = tmp_path / "source"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "empty").mkdir()
    (source / "deep" / "er" / "file").write_bytes(os.urandom(70000))
    (source / ("n" * 200)).write_text("long")
    (source / "ünï\n").write_text("strange")
    (source / "deep" / "link").symlink_to("er/file")
    (source / "tool").write_text("x")
    (source / "tool").chmod(0o755)
    tar.unpack(io.BytesIO(b"".join(tar.pack(str(source)))), str(tmp_path / "copy"))
    copy = tmp_path / "copy"
    assert sorted(path.relative_to(copy) for path in copy.rglob("*")) == sorted(path.relative_to(source) for path in source.rglob("*"))
    assert (copy / "deep" / "link").read_bytes() == (source / "deep" / "er" / "file").read_bytes()
    assert os.access(copy / "tool", os.X_OK) and not os.access(copy / "ünï\n", os.X_OK)


@pytest.mark.parametrize("entries", [
    [("../out", tarfile.REGTYPE, b"x")], [("/out", tarfile.REGTYPE, b"x")], [("a/../../out", tarfile.REGTYPE, b"x")],
    [("link", tarfile.SYMTYPE, "/etc")], [("link", tarfile.SYMTYPE, "..")], [("a/link", tarfile.SYMTYPE, "../../out")],
    [("dev", tarfile.CHRTYPE, "")], [("fifo", tarfile.FIFOTYPE, "")],
    [("here", tarfile.SYMTYPE, "."), ("here/out", tarfile.REGTYPE, b"x")]])
def test_entries_that_lead_elsewhere_are_refused(entries, tmp_path):
    with pytest.raises(hotcell.UnsafeArchiveError):
        tar.unpack(archive(*entries), str(tmp_path / "inside"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inside"]


def test_a_link_that_lies_there_already_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "inside").mkdir()
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "inside" / "file").symlink_to(tmp_path / "precious")
    tar.unpack(archive(("file", tarfile.REGTYPE, b"theirs")), str(tmp_path / "inside"))
    assert (tmp_path / "precious").read_text() == "mine" and (tmp_path / "inside" / "file").read_text() == "theirs"
    assert (tmp_path / "inside" / "file").stat().st_mode & 0o7777 == 0o755


def test_archives_that_are_none(tmp_path):
    with pytest.raises(hotcell.UnsafeArchiveError):
        tar.unpack(io.BytesIO(b"x" * 2000), str(tmp_path / "inside"))


# ---- answers ----

def test_answers_with_fields_that_are_newer_or_missing():
    result = Result.of({"id": "run_1", "status": "completed", "newer": 1, "usage": {"wall_ms": 1, "newer": 2}})
    assert result.usage.wall_ms == 1 and result.raw["newer"] == 1 and result.stdout == ""
    assert FileInfo.of({"name_base64": "/w==", "type": "file"}).name.encode("utf-8", "surrogateescape") == b"\xff"


def test_what_a_context_showed():
    execution = Execution.of({"status": "completed", "success": True, "results": [
        {"type": "image/png", "data": "iVBO"}, {"type": "text/html", "data": "<b>", "of": 1, "value": True},
        {"type": "text/plain", "data": "b", "of": 1, "value": True}]})
    assert execution.value == "b" and execution.images == [b"\x89PN"] and execution.results[1] == Shown("text/html", "<b>", True, 1)
    failed = Execution.of({"status": "error", "error": {"type": "ValueError", "message": "no", "line": 3}})
    with pytest.raises(hotcell.ExecutionError, match="ValueError: no"):
        failed.check()
