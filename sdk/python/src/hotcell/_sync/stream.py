"""A connection as bytes, by sockets. `_async/stream.py` is the same by asyncio; everything above the two is written once."""

from __future__ import annotations

import select
import socket
import ssl
import time
from typing import Any, Iterator, Optional

from .._address import Address
from ..errors import ConnectionFailedError, InvalidRequestError, RequestTimeoutError

sleep = time.sleep


def pieces_of(body: Any) -> Iterator[bytes]:
    """A body, piece by piece."""
    if hasattr(body, "__aiter__"):
        raise InvalidRequestError("the content is of asyncio's kind; use AsyncClient, or give bytes, a file, or an iterable of bytes")
    yield from body


class ByteStream:
    """An open connection. Timeouts are seconds, None for ever."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    @classmethod
    def open(cls, address: Address, timeout: Optional[float]) -> "ByteStream":
        try:
            if address.unix is not None:
                sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                try:
                    sock.settimeout(timeout)
                    sock.connect(address.unix)
                except BaseException:
                    sock.close()
                    raise
            else:
                sock = socket.create_connection((address.host, address.port), timeout)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a run may be silent for long
                if address.tls:
                    sock = address.tls.wrap_socket(sock, server_hostname=address.host)
        except socket.timeout:
            raise RequestTimeoutError(f"{address.text} did not answer within {timeout} s", begun=False) from None
        except OSError as wrong:
            raise ConnectionFailedError(f"{address.text} cannot be reached: {wrong}", begun=False) from wrong
        return cls(sock)

    def send(self, data: bytes, timeout: Optional[float]) -> None:
        try:
            self._socket.settimeout(timeout)
            self._socket.sendall(data)
        except socket.timeout:
            raise RequestTimeoutError(f"the server took nothing for {timeout} s") from None
        except OSError as wrong:
            raise ConnectionFailedError(f"the connection broke: {wrong}") from wrong

    def receive(self, size: int, timeout: Optional[float]) -> bytes:
        """Some bytes; none at the end."""
        try:
            self._socket.settimeout(timeout)
            return self._socket.recv(size)
        except socket.timeout:
            raise RequestTimeoutError(f"the server said nothing for {timeout:g} s") from None
        except OSError as wrong:
            raise ConnectionFailedError(f"the connection broke: {wrong}") from wrong

    def is_usable(self) -> bool:
        """Whether a connection that rested can be used again: nothing came meanwhile, not even the end."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return False
        poll = select.poll()
        try:
            poll.register(self._socket, select.POLLIN)
        except (OSError, ValueError):
            return False
        return not poll.poll(0)

    def close(self) -> None:
        self._socket.close()
