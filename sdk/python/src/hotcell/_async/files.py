"""Files of a sandbox."""

from __future__ import annotations

import os
import posixpath
import tempfile
from typing import Any, AsyncIterator, BinaryIO, List, Mapping, Optional, Union

from .._fields import given
from .._tar import pack, unpack
from .._wire import Body, Request, json_request, length_of, read_pieces
from ..errors import NotFoundError
from ..models import FileInfo, Match, match_of
from .events import AsyncEventStream
from .http import AsyncHttp

PathText = Union[str, "os.PathLike[str]"]
#: What can be written: text, bytes, an open file, or pieces of bytes.
Content = Union[str, bytes, BinaryIO, Body]


class AsyncFiles:
    """The files of one sandbox. A path is absolute, or below the working directory."""

    def __init__(self, http: AsyncHttp, sandbox: str, work_dir: str) -> None:
        self._http, self._sandbox, self.work_dir = http, sandbox, work_dir

    def _absolute(self, path: PathText) -> str:
        text = os.fspath(path)
        return self.work_dir if text in ("", ".") else posixpath.join(self.work_dir, text)

    @property
    def _content(self) -> str:
        """Where the bytes of files are. The path goes as a query, which can say every name, and takes none for a folder of the root."""
        return f"{self._sandbox}/files/"

    # ---- looking ----

    async def list(self, path: PathText = ".", *, depth: Optional[int] = None, limit: Optional[int] = None,
                   after: Optional[str] = None) -> List[FileInfo]:
        """What is in a folder. Without `limit`, all of it."""
        found: List[FileInfo] = []
        while True:
            query = given(path=self._absolute(path), depth=depth, limit=limit, after=after)
            answer = await self._http.json(json_request("GET", f"{self._sandbox}/files", query=query))
            entries = answer.get("entries")
            if entries is None:
                return [FileInfo.of(answer)]
            found += [FileInfo.of(one) for one in entries]
            if limit is not None or not answer.get("truncated") or not entries or depth not in (None, 1):
                return found
            after = found[-1].name

    async def stat(self, path: PathText) -> FileInfo:
        """The facts of one file or folder."""
        return FileInfo.of(await self._http.json(json_request("GET", f"{self._sandbox}/files", query={"path": self._absolute(path), "limit": 1})))

    async def exists(self, path: PathText) -> bool:
        """Whether there is such a file or folder."""
        try:
            await self.stat(path)
        except NotFoundError:
            return False
        return True

    async def search(self, path: PathText = ".", *, name: Optional[str] = None, content: Optional[str] = None, regex: Optional[bool] = None,
                     limit: Optional[int] = None) -> List[Match]:
        """Files by a pattern of their name, by a text in them, or both."""
        query = given(path=self._absolute(path), name=name, content=content, regex=regex, limit=limit)
        answer = await self._http.json(json_request("GET", f"{self._sandbox}/files/search", query=query))
        return [match_of(one) for one in answer["matches"]]

    def watch(self, path: PathText = ".", *, recursive: Optional[bool] = None) -> AsyncEventStream[Mapping[str, Any]]:
        """Changes as they happen: events created, modified, deleted and moved."""
        query = given(path=self._absolute(path), recursive=recursive)
        return AsyncEventStream(self._http, Request("GET", f"{self._sandbox}/files/watch", query, safe=True, wait=None), dict, last=None)

    # ---- reading ----

    async def pieces(self, path: PathText, *, start: Optional[int] = None, end: Optional[int] = None) -> AsyncIterator[bytes]:
        """A file in pieces, as they come; from byte `start` to before byte `end`."""
        headers = {} if start is None and end is None else {"Range": f"bytes={start or 0}-{'' if end is None else end - 1}"}
        response = await self._http.send(Request("GET", self._content, {"path": self._absolute(path)},
                                                 {"Accept": "application/octet-stream", **headers}, safe=True))
        try:
            async for piece in response.pieces():
                yield piece
        finally:
            await response.aclose()

    async def read(self, path: PathText, *, start: Optional[int] = None, end: Optional[int] = None) -> bytes:
        """A file's bytes."""
        found = bytearray()
        async for piece in self.pieces(path, start=start, end=end):
            found += piece
        return bytes(found)

    async def read_text(self, path: PathText, encoding: str = "utf-8", errors: str = "strict") -> str:
        """A file's text."""
        return (await self.read(path)).decode(encoding, errors)

    async def download(self, path: PathText, to: Union[PathText, BinaryIO]) -> int:
        """A file into one of this machine, or into an open one, however large it is. Gives its size."""
        if isinstance(to, (str, os.PathLike)):
            with open(to, "wb") as file:
                return await self._copy(path, file)
        return await self._copy(path, to)

    async def _copy(self, path: PathText, file: BinaryIO) -> int:
        size = 0
        async for piece in self.pieces(path):
            file.write(piece)
            size += len(piece)
        return size

    # ---- writing ----

    async def write(self, path: PathText, content: Content, *, mode: Union[int, str, None] = None, append: Optional[bool] = None) -> None:
        """Writes a file: text, bytes, an open file, or pieces of bytes. Folders on the way are made."""
        length: Optional[int] = None
        if isinstance(content, str):
            content = content.encode()
        elif hasattr(content, "read"):
            length, content = length_of(content), read_pieces(content)
        query = given(path=self._absolute(path), mode=f"{mode:04o}" if isinstance(mode, int) else mode, append=append)
        await self._http.nothing(Request("PUT", self._content, query, {"Content-Type": "application/octet-stream"},
                                         content, length, safe=not append))

    async def upload(self, source: PathText, path: PathText, *, mode: Union[int, str, None] = None) -> None:
        """A file of this machine into the sandbox, however large it is. Its mode goes along."""
        with open(source, "rb") as file:
            await self.write(path, file, mode=os.fstat(file.fileno()).st_mode & 0o777 if mode is None else mode)

    async def delete(self, path: PathText, *, recursive: Optional[bool] = None) -> None:
        """Removes a file or a folder."""
        await self._http.nothing(Request("DELETE", self._content, given(path=self._absolute(path), recursive=recursive)))

    async def move(self, source: PathText, to: PathText, *, overwrite: bool = False) -> None:
        """Gives a file or a folder another name."""
        fields = {"from": self._absolute(source), "to": self._absolute(to), "overwrite": overwrite}
        await self._http.nothing(json_request("POST", f"{self._sandbox}/files/move", fields))

    async def mkdir(self, path: PathText, *, parents: bool = True, mode: Union[int, str, None] = None) -> None:
        """Makes a folder."""
        fields = given(path=self._absolute(path), parents=parents, mode=f"{mode:04o}" if isinstance(mode, int) else mode)
        await self._http.nothing(json_request("POST", f"{self._sandbox}/files/mkdir", fields, safe=parents))

    # ---- archives ----

    async def archive(self, path: PathText = ".") -> AsyncIterator[bytes]:
        """A folder as a tar, in pieces."""
        response = await self._http.send(Request("GET", f"{self._sandbox}/archive", {"path": self._absolute(path)}, safe=True))
        try:
            async for piece in response.pieces():
                yield piece
        finally:
            await response.aclose()

    async def unpack(self, archive: Content, path: PathText = ".") -> None:
        """Unpacks a tar (bytes, an open file, or pieces) into a folder. Entries that lead elsewhere are refused, and nothing is written."""
        length = None
        if hasattr(archive, "read"):
            length, archive = length_of(archive), read_pieces(archive)
        await self._http.nothing(Request("PUT", f"{self._sandbox}/archive", {"path": self._absolute(path)}, {"Content-Type": "application/x-tar"},
                                         archive, length, wait=None))  # type: ignore[arg-type]

    async def upload_folder(self, source: PathText, path: PathText = ".") -> None:
        """A folder of this machine, with all that is in it, into the sandbox."""
        await self.unpack(pack(os.fspath(source)), path)

    async def download_folder(self, path: PathText, to: PathText) -> None:
        """A folder of the sandbox into one of this machine. What the sandbox sends is not trusted: an entry that leads out of `to` is an
        UnsafeArchiveError, and links, devices and set-uid bits do not come along in a way that could hurt."""
        with tempfile.TemporaryFile() as spool:
            async for piece in self.archive(path):
                spool.write(piece)
            spool.seek(0)
            unpack(spool, os.fspath(to))
