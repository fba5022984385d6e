# Made from _async/http.py by generate.py: change that one.
"""HTTP/1.1 for one server: connections that are kept, answers that are read as they come, and requests that are repeated where that is safe."""

from __future__ import annotations

import time
from typing import Any, Iterator, Dict, List, Mapping, Optional

from .._address import Address
from .._wire import ANSWER_BYTES, HEAD_BYTES, PIECE, USUAL, Head, Request, may_repeat, parse_head, parse_json, problem_of, write_head
from ..errors import ConnectionFailedError, ProtocolError, TooLargeError, error_of
from .stream import ByteStream, pieces_of, sleep

IDLE_CONNECTIONS = 16
IDLE_SECONDS = 45.0  # less than a server keeps one
BACKOFF = 0.15


class Connection:
    """One connection, with one request at a time."""

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream
        self.rested = time.monotonic()
        self.heard = False  # whether anything of an answer has come
        self._buffer = bytearray()

    def send(self, request: Request, prefix: str, headers: Mapping[str, str], timeout: Optional[float]) -> None:
        head, chunked = write_head(request, prefix, headers)
        body = request.body
        if body is None or isinstance(body, (bytes, bytearray, memoryview)):
            self.stream.send(head + bytes(body or b""), timeout)
            return
        self.stream.send(head, timeout)
        for piece in pieces_of(body):
            self._send_piece(piece, chunked, timeout)
        if chunked:
            self.stream.send(b"0\r\n\r\n", timeout)

    def _send_piece(self, piece: bytes, chunked: bool, timeout: Optional[float]) -> None:
        if piece:
            self.stream.send(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece, timeout)

    def more(self, timeout: Optional[float]) -> bool:
        """Reads something into the buffer. False at the end."""
        data = self.stream.receive(PIECE, timeout)
        self._buffer += data
        self.heard = self.heard or bool(data)
        return bool(data)

    def read_until(self, mark: bytes, limit: int, timeout: Optional[float]) -> bytes:
        """What comes before `mark`, which is taken as well."""
        while True:
            at = self._buffer.find(mark)
            if at >= 0:
                found = bytes(self._buffer[:at])
                del self._buffer[:at + len(mark)]
                return found
            if len(self._buffer) > limit:
                raise ProtocolError(f"the head of an answer is longer than {limit} bytes")
            if not self.more(timeout):
                raise ConnectionFailedError("the server hung up before its answer was whole")

    def read_some(self, most: int, timeout: Optional[float]) -> bytes:
        """At most so many bytes; none at the end."""
        if not self._buffer and not self.more(timeout):
            return b""
        found = bytes(self._buffer[:most])
        del self._buffer[:most]
        return found

    def read_head(self, timeout: Optional[float]) -> Head:
        while True:
            head = parse_head(self.read_until(b"\r\n\r\n", HEAD_BYTES, timeout))
            if head.status >= 200 or head.status == 101:
                return head

    def close(self) -> None:
        self.stream.close()


class Response:
    """An answer. Its body is read by `read()` or `pieces()`; either way, or by `close()`, the connection is given back."""

    def __init__(self, http: "Http", connection: Connection, head: Head, has_body: bool, timeout: Optional[float]) -> None:
        self.status, self.headers, self.head = head.status, head.headers, head
        self._http, self._timeout = http, timeout
        self._connection: Optional[Connection] = connection
        self._has_body = has_body

    def pieces(self) -> Iterator[bytes]:
        """The body, as it comes."""
        connection = self._connection
        if connection is None:
            return
        whole = False
        try:
            if not self._has_body:
                pass
            elif "chunked" in self.headers.get("transfer-encoding", "").lower():
                for piece in self._chunks(connection):
                    yield piece
            elif "content-length" in self.headers:
                for piece in self._counted(connection, self.headers["content-length"]):
                    yield piece
            else:
                while True:
                    piece = connection.read_some(PIECE, self._timeout)
                    if not piece:
                        return
                    yield piece
            whole = True
        finally:
            self._done(reuse=whole and self.head.keeps)

    def _counted(self, connection: Connection, length: str) -> Iterator[bytes]:
        if not length.isdigit():
            raise ProtocolError(f"the length of an answer is no number: {length[:40]!r}")
        left = int(length)
        while left > 0:
            piece = connection.read_some(min(left, PIECE), self._timeout)
            if not piece:
                raise ConnectionFailedError(f"the answer ends {left} bytes too soon")
            left -= len(piece)
            yield piece

    def _chunks(self, connection: Connection) -> Iterator[bytes]:
        while True:
            line = (connection.read_until(b"\r\n", 4096, self._timeout)).split(b";")[0].strip()
            try:
                left = int(line, 16)
            except ValueError:
                raise ProtocolError(f"a chunk of an answer has no size: {line[:40]!r}") from None
            if left == 0:
                while connection.read_until(b"\r\n", 4096, self._timeout):
                    pass  # trailers
                return
            while left > 0:
                piece = connection.read_some(min(left, PIECE), self._timeout)
                if not piece:
                    raise ConnectionFailedError("the answer ends within a chunk")
                left -= len(piece)
                yield piece
            connection.read_until(b"\r\n", 2, self._timeout)

    def read(self, limit: int = ANSWER_BYTES) -> bytes:
        """The whole body."""
        found = bytearray()
        for piece in self.pieces():
            found += piece
            if len(found) > limit:
                self._done(reuse=False)
                raise TooLargeError(f"the answer is longer than {limit} bytes; read it in pieces")
        return bytes(found)

    def json(self) -> Any:
        return parse_json(self.read(), "this request")

    def _done(self, reuse: bool) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._http.give_back(connection, reuse)

    def close(self) -> None:
        """Lets go of it, however much has been read. What runs for it at the server is ended by that."""
        self._done(reuse=False)

    def __enter__(self) -> "Response":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Http:
    """Requests to one server."""

    def __init__(self, address: Address, headers: Mapping[str, str], timeout: Optional[float], retries: int, max_retry_wait: float) -> None:
        self.address, self.timeout, self.retries, self.max_retry_wait = address, timeout, retries, max_retry_wait
        self.headers: Dict[str, str] = {"Host": address.host_header, "Accept": "application/json, */*;q=0.5", **headers}
        self._idle: List[Connection] = []

    # ---- connections ----

    def connect(self) -> Connection:
        """A new one."""
        return Connection(ByteStream.open(self.address, self.timeout))

    def _take(self) -> Connection:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if time.monotonic() - connection.rested < IDLE_SECONDS and connection.stream.is_usable():
                return connection
            connection.close()
        return self.connect()

    def give_back(self, connection: Connection, reuse: bool) -> None:
        if reuse and len(self._idle) < IDLE_CONNECTIONS:
            connection.rested, connection.heard = time.monotonic(), False
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    # ---- requests ----

    def _once(self, request: Request) -> Response:
        connection = self._take()
        wait = self.timeout if request.wait == USUAL else request.wait
        try:
            try:
                connection.send(request, self.address.prefix, self.headers, self.timeout)
            except ConnectionFailedError:
                # A server may refuse a body before it has all of it, and hang up: what it said is worth more than that it did.
                try:
                    head = connection.read_head(1.0)
                except (ConnectionFailedError, ProtocolError):
                    head = None
                if head is None:
                    raise
            else:
                head = connection.read_head(wait)
        except BaseException:
            connection.close()
            raise
        has_body = request.method != "HEAD" and head.status not in (204, 304)
        return Response(self, connection, head, has_body, self.timeout)

    def send(self, request: Request) -> Response:
        """The answer, if it is no error. What is safe is sent again when the connection breaks or the server says that it is busy."""
        attempt = 0
        while True:
            try:
                response = self._once(request)
            except ConnectionFailedError as wrong:
                again = (request.safe or not wrong.begun) and isinstance(request.body, (bytes, type(None)))
                if not again or attempt >= self.retries or isinstance(wrong.__cause__, FileNotFoundError):
                    raise
                delay = BACKOFF * 3 ** attempt
            else:
                if response.status < 400:
                    return response
                data = response.read(1 << 20)
                problem = problem_of(response.head, data)
                error = error_of(response.status, problem, response.head.retry_after)
                again = may_repeat(request, response.head, problem) and (error.retry_after or 0) <= self.max_retry_wait
                if not again or attempt >= self.retries:
                    raise error
                delay = error.retry_after or 0.0
            attempt += 1
            sleep(delay)

    def json(self, request: Request) -> Any:
        """The answer's JSON; None where it has no body."""
        response = self.send(request)
        data = response.read()
        return parse_json(data, f"{request.method} {request.path}") if data else None

    def nothing(self, request: Request) -> None:
        """For requests whose answer says nothing."""
        response = self.send(request)
        response.read()
