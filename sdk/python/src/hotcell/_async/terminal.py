"""Terminals of a sandbox, over a WebSocket."""

from __future__ import annotations

import json
import time
from typing import Any, List, Mapping, Optional, Union

from .._frames import BINARY, CLOSE, PING, PONG, TEXT, FrameDecoder, frame, new_key
from .._wire import PIECE, Request, problem_of
from ..errors import ConnectionFailedError, ProtocolError, RequestTimeoutError, SandboxTimeoutError, error_of
from .http import AsyncConnection, AsyncHttp, AsyncResponse


class AsyncTerminal:
    """A terminal. `id` is there once it is open, and attaches to it again after a broken connection; `exit_code` and `signal` when it has ended.

    What it writes is read by `read()`, what it shall read is written by `write()`. Closing does not end it: `exit` does, or a signal.
    """

    def __init__(self, http: AsyncHttp, path: str, query: Mapping[str, Any]) -> None:
        self._http, self._path, self._query = http, path, query
        self._connection: Optional[AsyncConnection] = None
        self._decoder = FrameDecoder()
        self._output: List[bytes] = []
        self.id: Optional[str] = None
        self.replay = 0
        self.ended = False
        self.exit_code: Optional[int] = None
        self.signal: Optional[str] = None

    async def open(self) -> "AsyncTerminal":
        """Connects, and waits until it is ready."""
        key, answer = new_key()
        headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key}
        connection = await self._http.connect()
        try:
            await connection.send(Request("GET", self._path, self._query), self._http.address.prefix, {**self._http.headers, **headers},
                                  self._http.timeout)
            head = await connection.read_head(self._http.timeout)
            if head.status != 101:
                response = AsyncResponse(self._http, connection, head, True, self._http.timeout)
                raise error_of(head.status, problem_of(head, await response.read(1 << 20)), head.retry_after)
            if head.headers.get("sec-websocket-accept") != answer:
                raise ProtocolError("the answer to the WebSocket handshake is not one to ours")
            self._connection = connection
            while self.id is None and not self.ended:
                await self._receive(self._http.timeout)
        except BaseException:
            self._connection = None
            connection.close()
            raise
        return self

    async def _receive(self, timeout: Optional[float]) -> None:
        """Takes in what comes next."""
        connection = self._connection
        if connection is None:
            raise ConnectionFailedError("the terminal is not open")
        data = await connection.read_some(PIECE, timeout)
        if not data:
            await self.aclose()
            if not self.ended:
                raise ConnectionFailedError("the connection to the terminal broke; it can be attached to again by its id")
            return
        for message in self._decoder.feed(data):
            if message.kind == BINARY:
                self._output.append(message.data)
            elif message.kind == TEXT:
                self._told(message.data)
            elif message.kind == PING:
                await connection.stream.send(frame(PONG, message.data), self._http.timeout)
            elif message.kind == CLOSE:
                self.ended = True

    def _told(self, data: bytes) -> None:
        try:
            said = json.loads(data)
        except ValueError:
            raise ProtocolError(f"a text frame of a terminal is not JSON: {data[:100]!r}") from None
        if said.get("type") == "ready":
            self.id, self.replay = said.get("id"), int(said.get("replay") or 0)
        elif said.get("type") == "exit":
            self.ended, self.exit_code, self.signal = True, said.get("exit_code"), said.get("signal")

    async def read(self, timeout: Optional[float] = None) -> bytes:
        """What it wrote since; waits for something. Nothing at its end. SandboxTimeoutError when nothing comes within `timeout`."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._output and not self.ended:
            left = None if until is None else max(0.001, until - time.monotonic())
            try:
                await self._receive(left)
            except RequestTimeoutError:
                if until is not None and time.monotonic() >= until:
                    raise SandboxTimeoutError(f"the terminal wrote nothing within {timeout:g} s") from None
        found, self._output = b"".join(self._output), []
        return found

    async def read_until(self, mark: Union[str, bytes], timeout: Optional[float] = 30.0) -> bytes:
        """What it wrote, up to where `mark` has come (and whatever came with it). SandboxTimeoutError otherwise."""
        wanted = mark.encode() if isinstance(mark, str) else mark
        found, until = b"", None if timeout is None else time.monotonic() + timeout
        while wanted not in found:
            if self.ended and not self._output:
                raise ConnectionFailedError(f"the terminal ended before {mark!r} came: {found[-500:]!r}")
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise SandboxTimeoutError(f"{mark!r} did not come within {timeout:g} s: {found[-500:]!r}")
            try:
                found += await self.read(left)
            except SandboxTimeoutError:
                continue
        return found

    async def write(self, data: Union[str, bytes]) -> None:
        """Input for it, as if typed."""
        await self._send(BINARY, data.encode() if isinstance(data, str) else bytes(data))

    async def resize(self, cols: int, rows: int) -> None:
        """Tells it its size."""
        await self._send(TEXT, json.dumps({"type": "resize", "cols": cols, "rows": rows}).encode())

    async def _send(self, kind: int, data: bytes) -> None:
        if self._connection is None:
            raise ConnectionFailedError("the terminal is not open")
        await self._connection.stream.send(frame(kind, data), self._http.timeout)

    async def wait(self, timeout: Optional[float] = None) -> Optional[int]:
        """Its exit code, when it has ended. What it writes meanwhile is thrown away."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self.ended:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise SandboxTimeoutError(f"the terminal has not ended within {timeout:g} s")
            try:
                await self.read(left)
            except SandboxTimeoutError:
                continue
        return self.exit_code

    async def aclose(self) -> None:
        """Hangs up. The terminal goes on for a while, and can be attached to again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                await connection.stream.send(frame(CLOSE, b"\x03\xe8"), 1.0)
            except ConnectionFailedError:
                pass
            connection.close()

    async def __aenter__(self) -> "AsyncTerminal":
        return await self.open()

    async def __aexit__(self, *_: Any) -> None:
        await self.aclose()
