"""A connection as bytes, by asyncio. `_sync/stream.py` is the same by sockets; everything above the two is written once."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, AsyncIterator, Optional

from .._address import Address
from ..errors import ConnectionFailedError, RequestTimeoutError

sleep = asyncio.sleep


async def pieces_of(body: Any) -> AsyncIterator[bytes]:
    """A body of either kind, piece by piece."""
    if hasattr(body, "__aiter__"):
        async for piece in body:
            yield piece
    else:
        for piece in body:
            yield piece


class ByteStream:
    """An open connection. Timeouts are seconds, None for ever."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._loop = asyncio.get_running_loop()
        sock = writer.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a run may be silent for long

    @classmethod
    async def open(cls, address: Address, timeout: Optional[float]) -> "ByteStream":
        try:
            if address.unix is not None:
                opening = asyncio.open_unix_connection(address.unix)
            else:
                opening = asyncio.open_connection(address.host, address.port, ssl=address.tls,
                                                  server_hostname=address.host if address.tls else None)
            reader, writer = await asyncio.wait_for(opening, timeout)
        except asyncio.TimeoutError:
            raise RequestTimeoutError(f"{address.text} did not answer within {timeout} s", begun=False) from None
        except OSError as wrong:
            raise ConnectionFailedError(f"{address.text} cannot be reached: {wrong}", begun=False) from wrong
        return cls(reader, writer)

    async def send(self, data: bytes, timeout: Optional[float]) -> None:
        try:
            self._writer.write(data)
            await asyncio.wait_for(self._writer.drain(), timeout)
        except asyncio.TimeoutError:
            raise RequestTimeoutError(f"the server took nothing for {timeout} s") from None
        except OSError as wrong:
            raise ConnectionFailedError(f"the connection broke: {wrong}") from wrong

    async def receive(self, size: int, timeout: Optional[float]) -> bytes:
        """Some bytes; none at the end."""
        try:
            if timeout is None:
                return await self._reader.read(size)
            return await asyncio.wait_for(self._reader.read(size), timeout)
        except asyncio.TimeoutError:
            raise RequestTimeoutError(f"the server said nothing for {timeout:g} s") from None
        except OSError as wrong:
            raise ConnectionFailedError(f"the connection broke: {wrong}") from wrong

    def is_usable(self) -> bool:
        """Whether a connection that rested can be used again: it is of this event loop, and the server has not hung up."""
        return self._loop is asyncio.get_running_loop() and not self._reader.at_eof() and not self._writer.is_closing()

    def close(self) -> None:
        if self._loop.is_closed():
            return  # its sockets went with it
        try:
            if self._loop is asyncio.get_running_loop():
                self._writer.transport.abort() if self._writer.is_closing() else self._writer.close()
                return
        except RuntimeError:
            pass  # no loop runs here
        self._loop.call_soon_threadsafe(self._writer.close)
