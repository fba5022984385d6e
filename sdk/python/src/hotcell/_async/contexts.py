"""Interpreters in a sandbox that keep their variables."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from .._fields import answer_time, given
from .._wire import json_request, segment
from ..errors import NotFoundError
from ..models import Execution, context_fields
from .events import AsyncEventStream
from .http import AsyncHttp


class AsyncContext:
    """One interpreter."""

    def __init__(self, http: AsyncHttp, sandbox: str, raw: Mapping[str, Any]) -> None:
        self._http, self.raw = http, raw
        fields = context_fields(raw)
        self.id: str = fields["id"]
        self.language: Optional[str] = fields["language"]
        self.language_version: Optional[str] = fields["language_version"]
        self._path = f"{sandbox}/contexts/{segment(self.id)}"

    def _fields(self, code: str, stdin: Optional[str], timeout: Optional[float], output: Any) -> Mapping[str, Any]:
        return given(code=code, stdin=stdin, timeout=timeout, output=output)

    async def execute(self, code: str, *, stdin: Optional[str] = None, timeout: Optional[float] = None, output: Any = None,
                      check: bool = False) -> Execution:
        """Runs a piece of code. What it showed is in `results`, the last expression's value in `value`; `stdin` answers `input()`."""
        fields = self._fields(code, stdin, timeout, output)
        request = json_request("POST", f"{self._path}/execute", fields, wait=answer_time(fields, self._http.timeout))
        execution = Execution.of(await self._http.json(request))
        return execution.check() if check else execution

    def stream(self, code: str, *, stdin: Optional[str] = None, timeout: Optional[float] = None, output: Any = None) -> AsyncEventStream[Execution]:
        """The same, as events while it runs: start, stdout, stderr, display, result."""
        request = json_request("POST", f"{self._path}/execute", self._fields(code, stdin, timeout, output), wait=None)
        return AsyncEventStream(self._http, request, Execution.of)

    async def describe(self) -> Mapping[str, Any]:
        """How it is now."""
        return await self._http.json(json_request("GET", self._path))  # type: ignore[no-any-return]

    async def interrupt(self) -> None:
        """Stops what it does; the variables stay."""
        await self._http.nothing(json_request("POST", f"{self._path}/interrupt"))

    async def delete(self) -> None:
        """Ends it. One that is gone already is no error."""
        try:
            await self._http.nothing(json_request("DELETE", self._path))
        except NotFoundError:
            pass

    async def __aenter__(self) -> "AsyncContext":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.delete()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.language}>"
