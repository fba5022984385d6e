# Made from _async/sandbox.py by generate.py: change that one.
"""A sandbox that lives on: commands, jobs, shells and previews. Files, interpreters and terminals are in files.py, contexts.py and terminal.py."""

from __future__ import annotations

import urllib.parse
from typing import TYPE_CHECKING, Any, Iterable, List, Mapping, Optional, Union

from .._fields import ExecOptions, answer_time, exec_fields, given
from .._wire import Body, Request, json_request, problem_of, segment
from ..errors import NotFoundError, SandboxTimeoutError, error_of
from ..models import JobInfo, Link, Result, SandboxInfo, link_of
from .contexts import Context
from .events import EventStream
from .files import Files
from .http import Http, Response
from .stream import sleep
from .terminal import Terminal

if TYPE_CHECKING:
    from typing_extensions import Unpack

HELD = 30.0
Command = Union[str, Iterable[str], None]


class Sandbox:
    """A cell that stays. `info` is what the server said of it last, `files` are its files."""

    def __init__(self, http: Http, info: SandboxInfo) -> None:
        self._http, self.info = http, info
        self._path = f"/v1/sandboxes/{segment(info.id)}"
        self.files = Files(http, self._path, info.work_dir)

    @property
    def id(self) -> str:
        """Its id."""
        return self.info.id

    @property
    def state(self) -> str:
        """running, paused, failed or stopping, as of the last answer; `refresh()` asks again."""
        return self.info.state

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.state}>"

    # ---- life ----

    def refresh(self) -> SandboxInfo:
        """How it is now, with live usage. This is no use of it: its idle clock goes on."""
        self.info = SandboxInfo.of(self._http.json(json_request("GET", self._path)))
        return self.info

    def delete(self) -> None:
        """Ends it, and all in it. One that is gone already is no error."""
        try:
            self._http.nothing(json_request("DELETE", self._path))
        except NotFoundError:
            pass

    def _post(self, verb: str) -> None:
        answer = self._http.json(json_request("POST", f"{self._path}/{verb}", safe=True))
        if isinstance(answer, dict) and answer.get("id") == self.id:
            self.info = SandboxInfo.of(answer)
        else:
            self.refresh()

    def pause(self) -> None:
        """Freezes everything in it."""
        self._post("pause")

    def resume(self) -> None:
        """Lets it go on."""
        self._post("resume")

    def keepalive(self) -> None:
        """Sets its idle clock back."""
        self._post("keepalive")

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_: Any) -> None:
        self.delete()

    # ---- exec ----

    def exec(self, command: Command = None, *, check: bool = False, **options: Unpack[ExecOptions]) -> Result:
        """Runs a command (a list is executed, a string goes to the shell), or `code` in a `language`, and waits for its result.

        Options: `args`, `stdin`, `env`, `cwd`, `timeout`, `output`, `session`, `stdin_open`, `name`, `metadata`. A timeout ends this command and
        all that it started; the sandbox goes on.
        """
        fields = exec_fields(command, options)
        wait = answer_time(fields, self._http.timeout)
        result = Result.of(self._http.json(json_request("POST", f"{self._path}/exec", fields, wait=wait)))
        return result.check() if check else result

    def stream(self, command: Command = None, **options: Unpack[ExecOptions]) -> EventStream[Result]:
        """The same, as events while it runs. Leaving early ends it."""
        request = json_request("POST", f"{self._path}/exec", exec_fields(command, options), wait=None)
        return EventStream(self._http, request, Result.of, self._events_path)

    def _events_path(self, job: str) -> str:
        """A server may call what it waits for a run."""
        return f"/v1/runs/{segment(job)}/events" if job.startswith("run_") else f"{self._path}/jobs/{segment(job)}/events"

    def start(self, command: Command = None, **options: Unpack[ExecOptions]) -> "Job":
        """Starts it and comes back at once, with a job to ask later. `name` may stand in for its id."""
        fields = {**exec_fields(command, options), "detach": True}
        answer = self._http.json(json_request("POST", f"{self._path}/exec", fields))
        return Job(self._http, self._path, answer["id"])

    def job(self, job: str) -> "Job":
        """A job by its id, or by its name where it is the newest with that name."""
        return Job(self._http, self._path, job)

    def jobs(self) -> List[JobInfo]:
        """What runs, and what has run lately."""
        answer = self._http.json(json_request("GET", f"{self._path}/jobs"))
        return [JobInfo.of(one) for one in answer["jobs"]]

    # ---- sessions ----

    def session(self, name: str) -> "Session":
        """A shell that keeps its state from call to call. The first call makes it."""
        return Session(self, name)

    def sessions(self) -> List[Mapping[str, Any]]:
        """The shells that there are."""
        return (self._http.json(json_request("GET", f"{self._path}/sessions")))["sessions"]  # type: ignore[no-any-return]

    # ---- interpreters ----

    def context(self, language: str = "python", *, cwd: Optional[str] = None, env: Optional[Mapping[str, str]] = None,
                      preload: Optional[str] = None) -> Context:
        """An interpreter that keeps its variables. With `with`, it is ended at the end."""
        fields = given(language=language, cwd=cwd, env=env, preload=preload)
        return Context(self._http, self._path, self._http.json(json_request("POST", f"{self._path}/contexts", fields)))

    def contexts(self) -> List[Context]:
        """Those that there are."""
        answer = self._http.json(json_request("GET", f"{self._path}/contexts"))
        return [Context(self._http, self._path, one) for one in answer["contexts"]]

    # ---- terminals ----

    def terminal(self, command: Optional[str] = None, *, cols: int = 80, rows: int = 24, cwd: Optional[str] = None,
                 id: Optional[str] = None) -> Terminal:
        """A terminal. With `id`, one that is there already: what it wrote last comes first.

            with sandbox.terminal() as terminal:
                terminal.write(b"echo hello\\n")
                print(terminal.read())
        """
        return Terminal(self._http, f"{self._path}/terminal", given(command=command, cols=cols, rows=rows, cwd=cwd, id=id))

    def terminals(self) -> List[Mapping[str, Any]]:
        """Those that there are."""
        return (self._http.json(json_request("GET", f"{self._path}/terminals")))["terminals"]  # type: ignore[no-any-return]

    def delete_terminal(self, terminal: str) -> None:
        """Ends one."""
        self._http.nothing(json_request("DELETE", f"{self._path}/terminals/{segment(terminal)}"))

    # ---- previews ----

    def preview_path(self, port: int, path: str = "/") -> str:
        """The path, on the server, of something that listens on a port of the sandbox."""
        return f"{self._path}/ports/{int(port)}/{path.lstrip('/')}"

    def preview_url(self, port: int, path: str = "/") -> str:
        """The same with the server's address. For unix sockets there is none that a browser opens: the path alone."""
        address = self._http.address
        return self.preview_path(port, path) if address.unix is not None else address.text.rstrip("/") + self.preview_path(port, path)

    def preview(self, port: int, path: str = "/", *, method: str = "GET", headers: Optional[Mapping[str, str]] = None,
                      body: Body = None) -> Response:
        """A request to what listens on a port of the sandbox. Any status it answers is given back; PreviewError when nothing listens."""
        safe_path = urllib.parse.quote(path, safe="/?&=%:@!$'()*+,;~-._")
        request = Request(method, self.preview_path(port, safe_path), headers=headers or {}, body=body, wait=None)
        response = self._http._once(request)
        if response.status == 502 and "problem+json" in response.headers.get("content-type", ""):
            raise error_of(response.status, problem_of(response.head, response.read(1 << 20)))
        return response

    def preview_link(self, port: int, expires_in: Optional[float] = None) -> Link:
        """A link that opens without a key, for a time."""
        return link_of(self._http.json(json_request("POST", f"{self._path}/ports/{int(port)}", given(expires_in=expires_in))))


class Job:
    """A command that was started and goes on by itself."""

    def __init__(self, http: Http, sandbox: str, job: str) -> None:
        self._http, self.id = http, job
        self._path = f"{sandbox}/jobs/{segment(job)}"

    def info(self, *, wait: Optional[float] = None, stdout_from: Optional[int] = None, stderr_from: Optional[int] = None) -> JobInfo:
        """How it is now, with its output, from these offsets on. `wait` holds the answer until it ends, for so many seconds at most."""
        patience = None if self._http.timeout is None else (wait or 0) + self._http.timeout
        query = given(wait=wait, stdout_from=stdout_from, stderr_from=stderr_from)
        return JobInfo.of(self._http.json(json_request("GET", self._path, query=query, wait=patience)))

    def wait(self, timeout: Optional[float] = None) -> Result:
        """Its result, when it has ended. SandboxTimeoutError when that takes longer; it goes on then."""
        left = timeout
        while True:
            held = HELD if left is None else max(0.0, min(HELD, left))
            info = self.info(wait=held)
            if info.result is not None:
                return info.result
            if left is not None:
                left -= held
                if left <= 0:
                    raise SandboxTimeoutError(f"{self.id} has not ended within {timeout:g} s")
            sleep(0)

    def events(self, last_event_id: Optional[str] = None) -> EventStream[Result]:
        """Its events, as they happen or afterwards."""
        path = f"{self._path}/events"
        events: EventStream[Result] = EventStream(self._http, Request("GET", path, safe=True, wait=None), Result.of, lambda _: path)
        events.id, events.last_event_id = self.id, last_event_id
        return events

    def signal(self, signal: str = "TERM") -> None:
        """A signal to its whole process group."""
        self._http.nothing(json_request("POST", f"{self._path}/signal", {"signal": signal}))

    def kill(self) -> None:
        """Kills it with all that it started."""
        self._http.nothing(json_request("DELETE", self._path, safe=False))

    def send_input(self, data: Union[str, bytes] = b"", end: bool = False) -> None:
        """More input for it, if it was started with `stdin_open`."""
        body = data.encode() if isinstance(data, str) else bytes(data)
        self._http.nothing(Request("POST", f"{self._path}/stdin", {"end": end or None}, {"Content-Type": "application/octet-stream"}, body,
                                         wait=None))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"


class Session:
    """A shell in a sandbox. Working directory, variables, functions and options are there for the next call."""

    def __init__(self, sandbox: Sandbox, name: str) -> None:
        self._sandbox, self.name = sandbox, name
        self._path = f"{sandbox._path}/sessions/{segment(name)}"

    def exec(self, command: str, *, check: bool = False, **options: Unpack[ExecOptions]) -> Result:
        """Runs a piece of shell. `session_state` of the result says whether the shell goes on."""
        options["session"] = self.name
        return self._sandbox.exec(command, check=check, **options)

    def stream(self, command: str, **options: Unpack[ExecOptions]) -> EventStream[Result]:
        """The same, as events while it runs."""
        options["session"] = self.name
        return self._sandbox.stream(command, **options)

    def interrupt(self) -> None:
        """Stops what it does; its state stays."""
        self._sandbox._http.nothing(json_request("POST", f"{self._path}/interrupt"))

    def delete(self) -> None:
        """Ends it. One that is gone already is no error."""
        try:
            self._sandbox._http.nothing(json_request("DELETE", self._path))
        except NotFoundError:
            pass

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: Any) -> None:
        self.delete()
