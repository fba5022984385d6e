# Made from _async/events.py by generate.py: change that one.
"""Streams of events that go on by themselves after a broken connection."""

from __future__ import annotations

from typing import Any, Iterator, Callable, Generic, List, Optional, TypeVar

from .._wire import EventDecoder, Request
from ..errors import ConnectionFailedError, ProtocolError, error_of
from ..models import Event
from .http import Http, Response
from .stream import sleep

Kind = TypeVar("Kind")
RECONNECTS = 5


class EventStream(Generic[Kind]):
    """Iterates over events. `result` is there when the last one has come; `id` as soon as the first one has.

    Use it with `with`, so that a stream that is left early is closed: that ends the program, unless it was started to go on by itself.
    """

    def __init__(self, http: Http, request: Request, make: Callable[[Any], Kind], again: Optional[Callable[[str], str]] = None,
                 last: Optional[str] = "result") -> None:
        self._http, self._request, self._make, self._again, self._last = http, request, make, again, last
        self._response: Optional[Response] = None
        self._pieces: Optional[Iterator[bytes]] = None
        self._decoder = EventDecoder()
        self._waiting: List[Event] = []
        self._ended = False
        self.id: Optional[str] = None
        self.last_event_id: Optional[str] = None
        self.result: Optional[Kind] = None

    def open(self) -> "EventStream[Kind]":
        """Sends the request. Iterating does it as well."""
        if self._response is None and not self._ended:
            self._connect(self._request)
        return self

    def _connect(self, request: Request) -> None:
        headers = {**request.headers, "Accept": "text/event-stream"}
        if self.last_event_id is not None:
            headers["Last-Event-ID"] = self.last_event_id
        self._response = self._http.send(request._replace(headers=headers))
        self._response._timeout = None  # an event may take as long as it takes
        self._pieces = self._response.pieces()
        self._decoder = EventDecoder()
        self._ended = self._response.status == 204  # there is nothing after the last event

    def _next_piece(self) -> bytes:
        assert self._pieces is not None
        for piece in self._pieces:
            return piece
        return b""

    def _fill(self) -> None:
        """Reads until there is an event, or the end."""
        broken = 0
        while not self._waiting and not self._ended:
            try:
                if self._response is None:
                    self._connect(self._request if self.id is None else self._resumed())
                    continue
                piece = self._next_piece()
                if not piece:
                    if self._last is None:
                        self._ended = True
                        return
                    raise ConnectionFailedError("the stream of events ended before the result came")
            except ConnectionFailedError:
                self._drop()
                broken += 1
                if self.id is None or self._again is None or broken > RECONNECTS:
                    raise
                sleep(min(2.0, 0.05 * 2 ** broken))
                continue
            for name, number, data in self._decoder.feed(piece):
                if not isinstance(data, dict):
                    raise ProtocolError(f"the event {name!r} is not an object")
                self._waiting.append(Event(name, number, data))

    def _resumed(self) -> Request:
        assert self._again is not None and self.id is not None
        return Request("GET", self._again(self.id), safe=True)

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        if not self._waiting:
            self._fill()
        if not self._waiting:
            self.close()
            raise StopIteration
        event = self._waiting.pop(0)
        self.last_event_id = event.id if event.id is not None else self.last_event_id
        if event.name == "start" and self.id is None:
            self.id = event.data.get("id")
        if event.name == "error":
            self.close()
            raise error_of(int(event.data.get("status") or 500), event.data)
        if self._last is not None and event.name == self._last:
            self.result = self._make(event.data)
            self._ended = True
            self._drop()
        return event

    def wait(self) -> Kind:
        """Reads to the end and gives the result."""
        for _ in self:
            pass
        if self.result is None:
            raise ConnectionFailedError("the stream of events ended before the result came")
        return self.result

    def _drop(self) -> None:
        response, self._response, self._pieces = self._response, None, None
        if response is not None:
            response.close()

    def close(self) -> None:
        self._ended = True
        self._waiting.clear()
        self._drop()

    def __enter__(self) -> "EventStream[Kind]":
        return self.open()

    def __exit__(self, *_: Any) -> None:
        self.close()
