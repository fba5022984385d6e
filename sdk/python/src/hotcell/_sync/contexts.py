# Made from _async/contexts.py by generate.py: change that one.
"""Interpreters in a sandbox that keep their variables."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from .._fields import answer_time, given
from .._wire import json_request, segment
from ..errors import NotFoundError
from ..models import Execution, context_fields
from .events import EventStream
from .http import Http


class Context:
    """One interpreter."""

    def __init__(self, http: Http, sandbox: str, raw: Mapping[str, Any]) -> None:
        self._http, self.raw = http, raw
        fields = context_fields(raw)
        self.id: str = fields["id"]
        self.language: Optional[str] = fields["language"]
        self.language_version: Optional[str] = fields["language_version"]
        self._path = f"{sandbox}/contexts/{segment(self.id)}"

    def _fields(self, code: str, stdin: Optional[str], timeout: Optional[float], output: Any) -> Mapping[str, Any]:
        return given(code=code, stdin=stdin, timeout=timeout, output=output)

    def execute(self, code: str, *, stdin: Optional[str] = None, timeout: Optional[float] = None, output: Any = None,
                      check: bool = False) -> Execution:
        """Runs a piece of code. What it showed is in `results`, the last expression's value in `value`; `stdin` answers `input()`."""
        fields = self._fields(code, stdin, timeout, output)
        request = json_request("POST", f"{self._path}/execute", fields, wait=answer_time(fields, self._http.timeout))
        execution = Execution.of(self._http.json(request))
        return execution.check() if check else execution

    def stream(self, code: str, *, stdin: Optional[str] = None, timeout: Optional[float] = None, output: Any = None) -> EventStream[Execution]:
        """The same, as events while it runs: start, stdout, stderr, display, result."""
        request = json_request("POST", f"{self._path}/execute", self._fields(code, stdin, timeout, output), wait=None)
        return EventStream(self._http, request, Execution.of)

    def describe(self) -> Mapping[str, Any]:
        """How it is now."""
        return self._http.json(json_request("GET", self._path))  # type: ignore[no-any-return]

    def interrupt(self) -> None:
        """Stops what it does; the variables stay."""
        self._http.nothing(json_request("POST", f"{self._path}/interrupt"))

    def delete(self) -> None:
        """Ends it. One that is gone already is no error."""
        try:
            self._http.nothing(json_request("DELETE", self._path))
        except NotFoundError:
            pass

    def __enter__(self) -> "Context":
        return self

    def __exit__(self, *_: Any) -> None:
        self.delete()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.language}>"
