"""Folders as tar archives: packed while they are sent, unpacked without trust in who made them."""

from __future__ import annotations

import os
import stat
import tarfile
from typing import IO, Iterator, List

from .errors import UnsafeArchiveError

_PIECE = 256 << 10


def _entry(path: str, name: str) -> tarfile.TarInfo:
    info = os.lstat(path)
    entry = tarfile.TarInfo(name)
    entry.mode, entry.mtime = stat.S_IMODE(info.st_mode) & 0o777, int(info.st_mtime)
    if stat.S_ISDIR(info.st_mode):
        entry.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(info.st_mode):
        entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(path)
    elif stat.S_ISREG(info.st_mode):
        entry.size = info.st_size
    else:
        raise UnsafeArchiveError(f"{path} is neither a file, a folder nor a link, and cannot be sent")
    return entry


def _file(path: str, entry: tarfile.TarInfo) -> Iterator[bytes]:
    """Exactly as many bytes as the entry says, though the file may change meanwhile."""
    left = entry.size
    with open(path, "rb") as file:
        while left:
            piece = file.read(min(_PIECE, left)) or bytes(min(_PIECE, left))
            left -= len(piece)
            yield piece
    yield bytes(-entry.size % tarfile.BLOCKSIZE)


def pack(folder: str) -> Iterator[bytes]:
    """What is in a folder, as the pieces of a tar."""
    for parent, folders, names in os.walk(folder):
        linked = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        for name in sorted(folders) + sorted(names):
            path = os.path.join(parent, name)
            entry = _entry(path, os.path.relpath(path, folder))
            yield entry.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
            if entry.isreg():
                yield from _file(path, entry)
        folders[:] = [name for name in folders if name not in linked]
    yield bytes(2 * tarfile.BLOCKSIZE)


def _parts(name: str) -> List[str]:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise UnsafeArchiveError(f"the archive has an entry that leads elsewhere: {name!r}")
    return parts


def _enter(root: int, parts: List[str]) -> int:
    """A descriptor of the folder, which is made on the way. No link is followed."""
    current = os.dup(root)
    try:
        for part in parts:
            try:
                os.mkdir(part, 0o755, dir_fd=current)
            except FileExistsError:
                pass
            try:
                below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
            except OSError as wrong:
                raise UnsafeArchiveError(f"the archive has an entry below {part!r}, which is no folder: {wrong}") from wrong
            os.close(current)
            current = below
        return current
    except BaseException:
        os.close(current)
        raise


def _place(root: int, archive: tarfile.TarFile, entry: tarfile.TarInfo) -> None:
    parts = _parts(entry.name)
    if entry.isdir():
        os.close(_enter(root, parts))
        return
    if not parts or not (entry.isreg() or entry.issym() or entry.islnk()):
        raise UnsafeArchiveError(f"the archive has an entry that is neither a file, a folder nor a link: {entry.name!r}")
    folder = _enter(root, parts[:-1])
    try:
        try:
            os.unlink(parts[-1], dir_fd=folder)  # what is there may be a link
        except FileNotFoundError:
            pass
        if entry.issym():
            inner = os.path.normpath(os.path.join("/".join(parts[:-1]), entry.linkname))
            if entry.linkname.startswith("/") or inner == ".." or inner.startswith("../"):
                raise UnsafeArchiveError(f"the archive has a link that leads elsewhere: {entry.name!r} to {entry.linkname!r}")
            os.symlink(entry.linkname, parts[-1], dir_fd=folder)
            return
        source = archive.extractfile(entry)  # a hard link's is the file that it means, out of the archive itself
        if source is None:
            raise UnsafeArchiveError(f"the archive has a link to nothing: {entry.name!r}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with source, os.fdopen(os.open(parts[-1], flags, 0o600, dir_fd=folder), "wb") as file:
            while True:
                piece = source.read(_PIECE)
                if not piece:
                    break
                file.write(piece)
            os.fchmod(file.fileno(), 0o644 | (entry.mode & 0o111))
    finally:
        os.close(folder)


def unpack(file: IO[bytes], folder: str) -> None:
    """Unpacks a tar below a folder, which is made. Nothing is written outside of it, whatever the archive says."""
    os.makedirs(folder, exist_ok=True)
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with tarfile.open(fileobj=file, mode="r:", errorlevel=1) as archive:
            for entry in archive:
                _place(root, archive, entry)
    except tarfile.TarError as wrong:
        raise UnsafeArchiveError(f"the archive cannot be read: {wrong}") from wrong
    finally:
        os.close(root)
