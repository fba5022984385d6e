"""What HTTP and server-sent events look like on the wire, without any input or output: the same for both kinds of client."""

from __future__ import annotations

import json
import os
import urllib.parse
from typing import Any, AsyncIterable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple, Union

from .errors import InvalidRequestError, ProtocolError

HEAD_BYTES = 64 << 10  # status line and headers of an answer
LINE_BYTES = 256 << 20  # one line of an event stream: a result with its files is one
ANSWER_BYTES = 512 << 20  # an answer that is read whole
PIECE = 64 << 10

Body = Union[bytes, Iterable[bytes], AsyncIterable[bytes], None]
#: For Request.wait: as long as the client waits for anything.
USUAL = -1.0


class Request(NamedTuple):
    """One request. `wait` is how many seconds the answer may take to begin, None for ever. `safe`: doing it twice is as doing it once."""

    method: str
    path: str
    query: Mapping[str, Any] = {}
    headers: Mapping[str, str] = {}
    body: Body = None
    length: Optional[int] = None
    safe: bool = False
    wait: Optional[float] = USUAL


def json_request(method: str, path: str, fields: Optional[Mapping[str, Any]] = None, **options: Any) -> Request:
    """A request with a JSON body. GET, HEAD and DELETE are safe to repeat."""
    headers = dict(options.pop("headers", {}))
    body = None
    if fields is not None:
        try:
            body = json.dumps(fields, separators=(",", ":"), allow_nan=False).encode()
        except (TypeError, ValueError) as wrong:
            raise InvalidRequestError(f"the request cannot be written as JSON: {wrong}") from None
        headers["Content-Type"] = "application/json"
    options.setdefault("safe", method in ("GET", "HEAD", "DELETE"))
    return Request(method, path, headers=headers, body=body, **options)


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def target(prefix: str, request: Request) -> str:
    """The request line's path."""
    query = {name: _words(value) for name, value in request.query.items() if value is not None}
    text = prefix + request.path
    return f"{text}{'&' if '?' in text else '?'}{urllib.parse.urlencode(query, quote_via=urllib.parse.quote)}" if query else text


def segment(text: str) -> str:
    """One segment of a path. Ids and names come from the caller: what they hold must not make another path of it."""
    if not text or text in (".", ".."):
        raise InvalidRequestError(f"{text!r} is no name of anything")
    return urllib.parse.quote(text, safe="")


def write_head(request: Request, prefix: str, headers: Mapping[str, str]) -> Tuple[bytes, bool]:
    """The head of a request, and whether its body goes in chunks."""
    lines = [f"{request.method} {target(prefix, request)} HTTP/1.1"]
    for name, value in {**headers, **request.headers}.items():
        if any(char in name + value for char in "\r\n\0"):
            raise InvalidRequestError(f"the header {name!r} has a line break in it", field=name)
        lines.append(f"{name}: {value}")
    chunked = False
    if isinstance(request.body, (bytes, bytearray, memoryview)):
        lines.append(f"Content-Length: {len(request.body)}")
    elif request.body is not None and request.length is not None:
        lines.append(f"Content-Length: {request.length}")
    elif request.body is not None:
        chunked = True
        lines.append("Transfer-Encoding: chunked")
    elif request.method in ("POST", "PUT"):
        lines.append("Content-Length: 0")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "strict"), chunked


class Head(NamedTuple):
    """Status and headers of an answer, names in lower case."""

    status: int
    headers: Dict[str, str]

    @property
    def keeps(self) -> bool:
        return "close" not in self.headers.get("connection", "").lower()

    @property
    def retry_after(self) -> Optional[float]:
        text = self.headers.get("retry-after", "")
        return float(text) if text.isdigit() else None


def parse_head(data: bytes) -> Head:
    """`data` ends before the empty line."""
    lines = data.decode("latin-1").split("\r\n")
    words = lines[0].split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not (words[1].isdigit() and len(words[1]) == 3):
        raise ProtocolError(f"the answer does not begin like HTTP: {lines[0][:100]!r}")
    headers: Dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or name != name.strip():
            raise ProtocolError(f"a header of the answer has no name: {line[:100]!r}")
        name, value = name.lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return Head(int(words[1]), headers)


def parse_json(data: bytes, what: str) -> Any:
    try:
        return json.loads(data)
    except ValueError as wrong:
        raise ProtocolError(f"the answer to {what} is not JSON ({wrong}): {data[:200]!r}") from None


def problem_of(head: Head, data: bytes) -> Dict[str, Any]:
    """The problem object of an error, whatever it came as."""
    try:
        value = json.loads(data)
    except ValueError:
        value = None
    if isinstance(value, dict):
        if "process_status" in value:  # POST /execute says it in its own way
            return {"status": head.status, "detail": value.get("stderr")}
        return value
    text = data[:500].decode("utf-8", "replace").strip()
    return {"status": head.status, "detail": text or f"the server answered {head.status}"}


class EventDecoder:
    """Server-sent events out of pieces of bytes."""

    def __init__(self) -> None:
        self._rest: List[bytes] = []  # of a line that has not ended; a result with files is one long line
        self._length = 0
        self._name, self._id, self._data = "message", None, []  # type: str, Optional[str], List[str]

    def feed(self, data: bytes) -> List[Tuple[str, Optional[str], Any]]:
        """Each whole event, as its name, its id and its data."""
        if b"\n" in data:
            lines = (b"".join(self._rest) + data).split(b"\n")
            self._rest = [lines.pop()]
            self._length = len(self._rest[0])
        else:
            lines = []
            self._rest.append(data)
            self._length += len(data)
        if self._length > LINE_BYTES:
            raise ProtocolError(f"an event of the server is longer than {LINE_BYTES} bytes")
        found = []
        for raw in lines:
            event = self._line(raw.rstrip(b"\r").decode("utf-8", "replace"))
            if event is not None:
                found.append(event)
        return found

    def _line(self, line: str) -> Optional[Tuple[str, Optional[str], Any]]:
        if not line:
            name, data = self._name, self._data
            self._name, self._data = "message", []
            if not data:
                return None
            return name, self._id, parse_json("\n".join(data).encode("utf-8", "surrogatepass"), "an event stream")
        field, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if field == "event":
            self._name = value
        elif field == "id":
            self._id = value
        elif field == "data":
            self._data.append(value)
        return None


#: What a server says that refuses a request before anything came of it. A 503 that says something else may come from a run that had begun.
_REFUSED = ("are waiting already", "is stopping", "is starting", "too many connections", "being uploaded at this moment")


def may_repeat(request: Request, head: Head, problem: Mapping[str, Any]) -> bool:
    """Whether a request that was answered in this way can be sent again without being done twice."""
    if head.status not in (429, 503) or head.retry_after is None or not isinstance(request.body, (bytes, type(None))):
        return False
    if request.safe or head.status == 429:
        return True
    return any(words in str(problem.get("detail")) for words in _REFUSED)


def read_pieces(file: Any, size: int = PIECE) -> Iterable[bytes]:
    """The rest of an open file."""
    while True:
        piece = file.read(size)
        if not piece:
            return
        yield piece.encode() if isinstance(piece, str) else piece


def length_of(file: Any) -> Optional[int]:
    """How many bytes the rest of an open file has, where that can be known."""
    try:
        if not os.path.isfile(f"/proc/self/fd/{file.fileno()}"):
            return None
        return max(0, os.fstat(file.fileno()).st_size - int(file.tell()))
    except (OSError, AttributeError, ValueError):
        return None
