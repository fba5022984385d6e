"""The client of a code execution sandbox with the one route POST /execute.

    before: from aiq.tool.code_execution.code_sandbox import LocalSandbox, get_sandbox
    after:  from hotcell.compat.nemo import LocalSandbox, get_sandbox

The answer is always {"process_status", "stdout", "stderr"}, with `process_status` one of completed, error and timeout. What differs: every language
of the server is taken; the dictionary and markdown forms work, because the server unwraps them; code that merely begins with the word python is left
alone; `max_output_characters` is respected; without `uri` a server is found, or started.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Optional
from urllib.parse import urljoin

from .._async.client import AsyncClient
from .._sync.client import Client
from ..errors import InvalidRequestError, OverloadedError, QuotaError, RequestTimeoutError, TooLargeError
from . import _arguments

TIMED_OUT = {"process_status": "timeout", "stdout": "", "stderr": "Timed out\n"}
CUT = "<output cut>"
#: Refused requests, which the route answers in its own form.
_REFUSED = (InvalidRequestError, TooLargeError, QuotaError, OverloadedError)


def _default_uri() -> Optional[str]:
    host, port = os.environ.get("SANDBOX_HOST"), os.environ.get("SANDBOX_PORT")
    if not host and not port:
        return None
    host = host or "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port or 6000}"


def _client_arguments(uri: Optional[str]) -> Dict[str, Any]:
    return {"address": uri} if uri else _arguments({})


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + CUT


class Sandbox:
    """A sandbox behind POST /execute. `uri` is where the server is; without it $SANDBOX_HOST and $SANDBOX_PORT, or a server of this machine."""

    def __init__(self, *, uri: Optional[str] = None) -> None:
        base = str(uri) if uri is not None else _default_uri()
        self._arguments = _client_arguments(base.rstrip("/") if base else None)
        self.url = urljoin(self._arguments["address"].rstrip("/") + "/", "execute")

    async def execute_code(self, generated_code: str, timeout_seconds: float = 10.0, language: str = "python",
                           max_output_characters: int = 1000) -> Dict[str, str]:
        """Runs code, raw or as a dictionary or a markdown block. Output over `max_output_characters` is cut."""
        async with AsyncClient(**self._arguments) as client:
            try:
                answer = await client.execute(generated_code, timeout_seconds, language)
            except RequestTimeoutError:
                return dict(TIMED_OUT)
            except _REFUSED as wrong:
                return {"process_status": "error", "stdout": "", "stderr": str(wrong)}
        return {"process_status": answer["process_status"], "stdout": _cut(answer["stdout"], max_output_characters),
                "stderr": _cut(answer["stderr"], max_output_characters)}


class LocalSandbox(Sandbox):
    """Locally hosted sandbox."""


def get_sandbox(sandbox_type: str = "local", **kwargs: Any) -> Sandbox:
    """A sandbox by the name of its kind, of which there is one: local."""
    kinds = {"local": LocalSandbox}
    if sandbox_type.lower() not in kinds:
        raise KeyError(f"there is no sandbox of the type {sandbox_type!r}; there is: {', '.join(kinds)}")
    return kinds[sandbox_type.lower()](**kwargs)


def execute_code(code: str, timeout: float = 30, language: str = "python", uri: Optional[str] = None) -> Dict[str, str]:
    """The documented call without asyncio: posts the code, gives the answer."""
    with Client(**_client_arguments(uri or _default_uri())) as client:
        try:
            return client.execute(code, timeout, language)
        except RequestTimeoutError:
            return dict(TIMED_OUT)
        except _REFUSED as wrong:
            return {"process_status": "error", "stdout": "", "stderr": str(wrong)}
