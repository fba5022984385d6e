# Made from _async/client.py by generate.py: change that one.
"""The client: runs, and the way to sandboxes."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING, Any, Iterator, Dict, List, Mapping, Optional, Sequence, Union

from .._address import auth_headers, find_key, parse_address
from .._fields import FileContent, Limits, RunOptions, answer_time, files_field, given, run_fields
from .._version import __version__
from .._wire import Request, json_request, segment
from ..errors import SandboxTimeoutError
from ..models import HistoryPage, Language, Result, SandboxInfo, language_of
from .events import EventStream
from .http import Http
from .sandbox import Sandbox
from .stream import sleep

if TYPE_CHECKING:
    from typing_extensions import Unpack

HELD = 30.0  # seconds that one question for a result is held


class Client:
    """A hotcell server.

    `address` is http://HOST:PORT, https://HOST:PORT or unix:PATH; without one it is $HOTCELL_SERVER, or http://127.0.0.1:7600. `hotcell.local()`
    finds or starts a server on this machine. A key is `key`, the first line of `key_file`, or $HOTCELL_KEY. With https, `ca` names a file of
    certificates to trust ($HOTCELL_CA).

    `timeout` is how many seconds the server may be silent. The time that a program runs is not part of it. `retries` is how often a request is
    repeated: only one that changes nothing when done twice, or that the server refused with Retry-After (and not longer than `max_retry_wait`).
    A run that may have begun is never sent again.
    """

    def __init__(self, address: Optional[str] = None, *, key: Optional[str] = None, key_file: Union[str, "os.PathLike[str]", None] = None,
                 ca: Optional[str] = None, timeout: Optional[float] = 60.0, retries: int = 2, max_retry_wait: float = 10.0) -> None:
        place = parse_address(address, ca)
        token = find_key(key, key_file)
        headers = {"User-Agent": f"hotcell-python/{__version__} ({platform.python_implementation()} {platform.python_version()})"}
        self._http = Http(place, {**headers, **auth_headers(token)}, timeout, retries, max_retry_wait)

    @property
    def address(self) -> str:
        """Where the server is."""
        return self._http.address.text

    def close(self) -> None:
        """Closes the connections that are kept. The client can still be used."""
        self._http.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # ---- runs ----

    def run(self, code: Union[str, bytes, None] = None, language: Optional[str] = None, *, check: bool = False,
                  **options: Unpack[RunOptions]) -> Result:
        """Runs something in a fresh cell and waits for its result.

        `code`, `command` (a list, or a string for the shell) or `entry` (one of `files`) says what to run. The options are those of
        POST /v1/runs: `files` ({name: text, bytes or a pathlib.Path}), `stdin`, `args`, `env`, `limits` ({"memory": "256m", …}), `timeout` (short
        for limits["timeout"]), `read_only`, `mounts`, `stages`, `tests`, `collect`, `metadata`, `network`, `image`, `cache`.

        A program that fails is a result with `success` False. With `check`, it is SandboxTimeoutError, SandboxResourceError or ExecutionError.
        """
        fields = run_fields(code, language, options)
        request = json_request("POST", "/v1/runs", fields, wait=answer_time(fields, self._http.timeout))
        result = Result.of(self._http.json(request))
        return result.check() if check else result

    def stream(self, code: Union[str, bytes, None] = None, language: Optional[str] = None, **options: Unpack[RunOptions]) -> EventStream[Result]:
        """The same, as events while it runs: start, stage, stdout, stderr, result.

            with client.stream("print(42)") as events:
                for event in events:
                    print(event.name, event.text)
            print(events.result.status)

        Leaving early ends the run.
        """
        fields = run_fields(code, language, options)
        request = json_request("POST", "/v1/runs", fields, wait=None)
        return EventStream(self._http, request, Result.of, lambda run: f"/v1/runs/{segment(run)}/events")

    def run_async(self, code: Union[str, bytes, None] = None, language: Optional[str] = None, **options: Unpack[RunOptions]) -> "Run":
        """Starts a run and comes back at once, with a handle to it. It goes on whatever becomes of this client."""
        fields = {**run_fields(code, language, options), "async": True}
        answer = self._http.json(json_request("POST", "/v1/runs", fields))
        return Run(self, answer["id"])

    def get_run(self, run: str) -> "Run":
        """A handle to a run by its id."""
        return Run(self, run)

    def describe_run(self, run: str) -> Mapping[str, Any]:
        """A run as it is now: its state (`queued`, `running`), or its result."""
        return self._http.json(json_request("GET", f"/v1/runs/{segment(run)}"))  # type: ignore[no-any-return]

    def wait(self, run: str, timeout: Optional[float] = None) -> Result:
        """The result of a run, when it has ended. SandboxTimeoutError when that takes longer than `timeout`; the run goes on then."""
        left = timeout
        while True:
            held = HELD if left is None else max(0.0, min(HELD, left))
            wait = None if self._http.timeout is None else held + self._http.timeout
            answer = self._http.json(json_request("GET", f"/v1/runs/{segment(run)}", query={"wait": f"{held:g}"}, wait=wait))
            if answer.get("status") not in ("queued", "running"):
                return Result.of(answer)
            if left is not None:
                left -= held
                if left <= 0:
                    raise SandboxTimeoutError(f"{run} has not ended within {timeout:g} s")
            sleep(0)

    def cancel(self, run: str) -> None:
        """Ends a run. ConflictError when it has ended already."""
        self._http.nothing(json_request("DELETE", f"/v1/runs/{segment(run)}", safe=False))

    def events(self, run: str, last_event_id: Optional[str] = None) -> EventStream[Result]:
        """The events of a run, from the beginning or from after `last_event_id`. Leaving early does not end it."""
        path = f"/v1/runs/{segment(run)}/events"
        events: EventStream[Result] = EventStream(self._http, Request("GET", path, safe=True, wait=None), Result.of, lambda _: path)
        events.id, events.last_event_id = run, last_event_id
        return events

    def send_input(self, run: str, data: Union[str, bytes] = b"", end: bool = False) -> None:
        """More input for a run that was started with `stdin_open`."""
        body = data.encode() if isinstance(data, str) else bytes(data)
        self._http.nothing(Request("POST", f"/v1/runs/{segment(run)}/stdin", {"end": end or None},
                                         {"Content-Type": "application/octet-stream"}, body, wait=None))

    # ---- what has been ----

    def history(self, limit: Optional[int] = None, before: Optional[str] = None, language: Optional[str] = None,
                      status: Optional[str] = None) -> HistoryPage:
        """A page of the history, newest first. `next` of a page is `before` of the next one."""
        answer = self._http.json(json_request("GET", "/v1/runs", query=given(limit=limit, before=before, language=language, status=status)))
        return HistoryPage(list(answer.get("runs") or []), answer.get("next"), answer)

    def iter_history(self, language: Optional[str] = None, status: Optional[str] = None,
                           page: int = 100) -> Iterator[Mapping[str, Any]]:
        """All of the history, page after page."""
        before: Optional[str] = None
        while True:
            found = self.history(page, before, language, status)
            for row in found.runs:
                yield row
            before = found.next
            if not before or not found.runs:
                return

    def report(self, run: str, format: str = "json") -> Any:
        """The debug report of a run: a dictionary, or text for the formats markdown and text."""
        accepted = {"json": "application/json", "markdown": "text/markdown", "text": "text/plain"}[format]
        response = self._http.send(Request("GET", f"/v1/runs/{segment(run)}/report", headers={"Accept": accepted}, safe=True))
        return response.json() if format == "json" else (response.read()).decode()

    def languages(self) -> List[Language]:
        """What can be run there."""
        answer = self._http.json(json_request("GET", "/v1/languages"))
        return [language_of(one) for one in (answer["languages"] if isinstance(answer, dict) else answer)]

    def stats(self) -> Dict[str, Any]:
        """Live counts, the pool, latencies, limits in force."""
        return self._http.json(json_request("GET", "/v1/stats"))  # type: ignore[no-any-return]

    def ready(self) -> Dict[str, Any]:
        """Readiness, with the level of isolation. OverloadedError while it is not ready."""
        return self._http.json(json_request("GET", "/readyz"))  # type: ignore[no-any-return]

    def openapi(self) -> Dict[str, Any]:
        """The interface, as a machine reads it."""
        return self._http.json(json_request("GET", "/openapi.json"))  # type: ignore[no-any-return]

    def execute(self, generated_code: str, timeout: float = 10, language: str = "python") -> Dict[str, str]:
        """POST /execute: code in the workspace that all such requests share. Gives `process_status`, `stdout` and `stderr`."""
        fields = {"generated_code": generated_code, "timeout": timeout, "language": language}
        wait = None if self._http.timeout is None else max(0.0, timeout) + 60.0 + self._http.timeout
        return self._http.json(json_request("POST", "/execute", fields, wait=wait))  # type: ignore[no-any-return]

    # ---- sandboxes ----

    def create_sandbox(self, *, limits: Optional[Limits] = None, env: Optional[Mapping[str, str]] = None,
                             files: Optional[Mapping[str, FileContent]] = None, read_only: Optional[bool] = None,
                             mounts: Optional[Sequence[Mapping[str, Any]]] = None, volumes: Optional[Sequence[Mapping[str, Any]]] = None,
                             idle_timeout: Union[float, str, None] = None, max_lifetime: Union[float, str, None] = None,
                             recover: Optional[bool] = None, network: Optional[str] = None, image: Optional[str] = None,
                             metadata: Optional[Mapping[str, Any]] = None) -> Sandbox:
        """Makes a sandbox that lives until it is deleted, forgotten for too long, or too old. With `with`, it is deleted at the end."""
        fields = given(limits=limits, env=env, files=files_field(files), read_only=read_only, mounts=mounts, volumes=volumes,
                       idle_timeout=idle_timeout, max_lifetime=max_lifetime, recover=recover, network=network, image=image, metadata=metadata)
        return Sandbox(self._http, SandboxInfo.of(self._http.json(json_request("POST", "/v1/sandboxes", fields))))

    def get_sandbox(self, sandbox: str) -> Sandbox:
        """One that exists, by its id."""
        return Sandbox(self._http, SandboxInfo.of(self._http.json(json_request("GET", f"/v1/sandboxes/{segment(sandbox)}"))))

    def list_sandboxes(self, state: Optional[str] = None) -> List[Sandbox]:
        """All of them, newest first."""
        answer = self._http.json(json_request("GET", "/v1/sandboxes", query=given(state=state)))
        return [Sandbox(self._http, SandboxInfo.of(one)) for one in answer["sandboxes"]]

    # ---- volumes ----

    def create_volume(self, name: str, size: Union[int, str]) -> Mapping[str, Any]:
        """Makes a folder that outlives sandboxes."""
        return self._http.json(json_request("POST", "/v1/volumes", {"name": name, "size": size}))  # type: ignore[no-any-return]

    def list_volumes(self) -> List[Mapping[str, Any]]:
        """Those that exist."""
        return (self._http.json(json_request("GET", "/v1/volumes")))["volumes"]  # type: ignore[no-any-return]

    def delete_volume(self, name: str) -> None:
        """Removes one. ConflictError while a sandbox has it."""
        self._http.nothing(json_request("DELETE", f"/v1/volumes/{segment(name)}", safe=False))


class Run:
    """A run that was started with `run_async`, or any other by its id."""

    def __init__(self, client: Client, run: str) -> None:
        self._client, self.id = client, run

    def status(self) -> str:
        """queued, running, or what it ended with."""
        return str((self._client.describe_run(self.id)).get("status"))

    def wait(self, timeout: Optional[float] = None) -> Result:
        """Its result, when it has ended."""
        return self._client.wait(self.id, timeout)

    def cancel(self) -> None:
        """Ends it."""
        self._client.cancel(self.id)

    def events(self, last_event_id: Optional[str] = None) -> EventStream[Result]:
        """Its events, as they happen or afterwards."""
        return self._client.events(self.id, last_event_id)

    def send_input(self, data: Union[str, bytes] = b"", end: bool = False) -> None:
        """More input for it, if it was started with `stdin_open`."""
        self._client.send_input(self.id, data, end)

    def report(self, format: str = "json") -> Any:
        """Its debug report."""
        return self._client.report(self.id, format)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"
