"""WebSocket frames (RFC 6455), without any input or output: the client's side of it."""

from __future__ import annotations

import base64
import hashlib
import os
import struct
from typing import List, NamedTuple, Optional, Tuple

from .errors import ProtocolError

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
CONTINUATION = 0
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
MESSAGE_BYTES = 64 << 20


def new_key() -> Tuple[str, str]:
    """A key for the handshake, and the answer that it must get."""
    key = base64.b64encode(os.urandom(16))
    return key.decode(), base64.b64encode(hashlib.sha1(key + _GUID).digest()).decode()


def _masked(data: bytes, mask: bytes) -> bytes:
    if not data:
        return b""
    whole = (mask * (len(data) // 4 + 1))[:len(data)]
    return (int.from_bytes(data, "big") ^ int.from_bytes(whole, "big")).to_bytes(len(data), "big")


def frame(kind: int, data: bytes) -> bytes:
    """One whole frame of a client."""
    size = len(data)
    if size < 126:
        head = struct.pack(">BB", 0x80 | kind, 0x80 | size)
    elif size < 1 << 16:
        head = struct.pack(">BBH", 0x80 | kind, 0x80 | 126, size)
    else:
        head = struct.pack(">BBQ", 0x80 | kind, 0x80 | 127, size)
    mask = os.urandom(4)
    return head + mask + _masked(data, mask)


class Message(NamedTuple):
    kind: int
    data: bytes


class FrameDecoder:
    """Messages out of pieces of bytes. Fragments are put together; control frames come by themselves."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._kind = 0
        self._parts = bytearray()

    def feed(self, data: bytes) -> List[Message]:
        self._buffer += data
        found: List[Message] = []
        while True:
            taken = self._take()
            if taken is None:
                return found
            message = self._join(*taken)
            if message is not None:
                found.append(message)

    def _take(self) -> Optional[Tuple[bool, int, bytes]]:
        """One frame: (final, kind, payload), or None if it is not whole."""
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        first, second = buffer[0], buffer[1]
        size, start = second & 0x7F, 2
        if first & 0x70 or second & 0x80:
            raise ProtocolError("a WebSocket frame of the server is masked, or has bits that nobody asked for")
        if size >= 126:
            width = 2 if size == 126 else 8
            if len(buffer) < 2 + width:
                return None
            size, start = int.from_bytes(buffer[2:2 + width], "big"), 2 + width
        if size > MESSAGE_BYTES or (first & 0x08 and (size > 125 or not first & 0x80)):
            raise ProtocolError(f"a WebSocket frame of {size} bytes is too large")
        if len(buffer) < start + size:
            return None
        payload = bytes(buffer[start:start + size])
        del buffer[:start + size]
        return bool(first & 0x80), first & 0x0F, payload

    def _join(self, final: bool, kind: int, payload: bytes) -> Optional[Message]:
        if kind & 0x08:
            return Message(kind, payload)
        if (kind == CONTINUATION) != bool(self._kind):
            raise ProtocolError("the fragments of a WebSocket message are out of order")
        if kind != CONTINUATION:
            if kind not in (TEXT, BINARY):
                raise ProtocolError(f"a WebSocket frame of the unknown kind {kind}")
            self._kind = kind
        self._parts += payload
        if len(self._parts) > MESSAGE_BYTES:
            raise ProtocolError(f"a WebSocket message of more than {MESSAGE_BYTES} bytes")
        if not final:
            return None
        message = Message(self._kind, bytes(self._parts))
        self._kind, self._parts = 0, bytearray()
        return message
