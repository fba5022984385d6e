"""What the server's answers are in Python. Each has `raw`, the answer as it came: fields that are newer than this module are there."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional

from .errors import ExecutionError, SandboxResourceError, SandboxTimeoutError

Raw = Mapping[str, Any]
_LIMITS = {"oom": "memory", "pids_limit": "processes", "output_limit": "output"}


@dataclass(frozen=True)
class Usage:
    """What a program used. Times in milliseconds, memory in bytes."""

    wall_ms: float = 0.0
    cpu_ms: float = 0.0
    user_ms: float = 0.0
    system_ms: float = 0.0
    memory_peak: Optional[int] = None
    pids_peak: Optional[int] = None


@dataclass(frozen=True)
class Timing:
    """Where the time of a run went. `start` is warm, primed, cached or cold."""

    start: Optional[str] = None
    queue_ms: float = 0.0
    prepare_ms: float = 0.0
    run_ms: float = 0.0
    total_ms: float = 0.0


@dataclass(frozen=True)
class Diagnosis:
    """Why a program failed, as far as it is known."""

    category: Optional[str] = None
    error_type: Optional[str] = None
    message: Optional[str] = None
    file: Optional[str] = None
    line: Optional[int] = None
    column: Optional[int] = None
    hint: Optional[str] = None
    evidence: Any = None
    raw: Raw = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class CollectedFile:
    """A file that came back with a run."""

    path: str
    content: bytes = field(repr=False)

    @property
    def size(self) -> int:
        return len(self.content)


def _known(kind: Any, raw: Any) -> Any:
    """A dataclass of those of the fields that it has."""
    raw = raw if isinstance(raw, Mapping) else {}
    names = kind.__dataclass_fields__
    values = {name: raw[name] for name in names if name != "raw" and raw.get(name) is not None}
    if "raw" in names:
        values["raw"] = raw
    return kind(**values)


def _stream(raw: Raw, name: str) -> bytes:
    text = raw.get(name) or ""
    return base64.b64decode(text) if raw.get("output_encoding") == "base64" else text.encode("utf-8", "surrogatepass")


@dataclass(frozen=True)
class Result:
    """What became of a program. A program that fails is a result and no exception; `check()` makes one of it."""

    id: str
    status: str
    success: bool
    exit_code: Optional[int]
    signal: Optional[str]
    timed_out: bool
    #: Text. Where it is not UTF-8, `stdout_bytes` has it exactly, and this has U+FFFD for what is none.
    stdout: str
    stderr: str
    stdout_bytes: bytes = field(repr=False)
    stderr_bytes: bytes = field(repr=False)
    #: Bytes that are left out of each stream, because of the output limit.
    truncated: Mapping[str, int]
    language: Optional[str]
    language_version: Optional[str]
    usage: Usage
    timing: Timing
    isolation: Raw
    stages: List[Raw]
    tests: Optional[List[Raw]]
    files: List[CollectedFile]
    diagnosis: Optional[Diagnosis]
    created_at: Optional[str]
    metadata: Raw
    #: Of an exec: the sandbox, and whether its session goes on ("alive") or not ("ended").
    sandbox: Optional[str]
    session_state: Optional[str]
    raw: Raw = field(repr=False)

    @classmethod
    def of(cls, raw: Raw) -> "Result":
        out, err = _stream(raw, "stdout"), _stream(raw, "stderr")
        diagnosis = raw.get("diagnosis")
        return cls(id=raw.get("id", ""), status=raw.get("status", ""), success=bool(raw.get("success")), exit_code=raw.get("exit_code"),
                   signal=raw.get("signal"), timed_out=bool(raw.get("timed_out")), stdout=out.decode("utf-8", "replace"),
                   stderr=err.decode("utf-8", "replace"), stdout_bytes=out, stderr_bytes=err,
                   truncated=raw.get("truncated") or {"stdout": 0, "stderr": 0}, language=raw.get("language"),
                   language_version=raw.get("language_version"), usage=_known(Usage, raw.get("usage")), timing=_known(Timing, raw.get("timing")),
                   isolation=raw.get("isolation") or {}, stages=list(raw.get("stages") or []), tests=raw.get("tests"),
                   files=[CollectedFile(one["path"], base64.b64decode(one.get("base64", ""))) for one in raw.get("files") or []],
                   diagnosis=_known(Diagnosis, diagnosis) if diagnosis else None, created_at=raw.get("created_at"),
                   metadata=raw.get("metadata") or {}, sandbox=raw.get("sandbox"), session_state=raw.get("session_state"), raw=raw)

    def check(self) -> "Result":
        """Itself if the program succeeded. Otherwise SandboxTimeoutError, SandboxResourceError or ExecutionError, with `result`."""
        if self.success:
            return self
        why = (self.diagnosis.message if self.diagnosis else None) or self.stderr.strip()[-500:] or f"exit code {self.exit_code}"
        if self.status == "timeout" or self.timed_out:
            raise SandboxTimeoutError(f"the program ran into its time limit: {why}", result=self)
        if self.status in _LIMITS:
            raise SandboxResourceError(f"the program ran into its limit of {_LIMITS[self.status]}: {why}", result=self)
        raise ExecutionError(f"the program ended with {self.status}: {why}", result=self)


@dataclass(frozen=True)
class Event:
    """One event: start, stage, stdout, stderr, display, result; of a watch created, modified, deleted, moved."""

    name: str
    id: Optional[str]
    data: Raw

    @property
    def bytes(self) -> bytes:
        """What a stdout or stderr event brought, exactly."""
        if "base64" in self.data:
            return base64.b64decode(self.data["base64"])
        return str(self.data.get("text", "")).encode("utf-8", "surrogatepass")

    @property
    def text(self) -> str:
        """The same as text."""
        return self.bytes.decode("utf-8", "replace")


@dataclass(frozen=True)
class HistoryPage:
    """A page of the history, newest first. `next` is `before` of the next page, None at the end."""

    runs: List[Raw]
    next: Optional[str]
    raw: Raw = field(repr=False)


@dataclass(frozen=True)
class Language:
    """A language of the server."""

    name: str
    available: bool = False
    aliases: List[str] = field(default_factory=list)
    version: Optional[str] = None
    extension: Optional[str] = None
    start: Optional[str] = None
    package: Optional[str] = None
    raw: Raw = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class SandboxInfo:
    """A sandbox as the server describes it."""

    id: str
    state: str = ""
    reason: Optional[str] = None
    image: Optional[str] = None
    network: Optional[str] = None
    read_only: bool = True
    work_dir: str = "/workspace"
    limits: Raw = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: List[Raw] = field(default_factory=list)
    volumes: List[Raw] = field(default_factory=list)
    idle_timeout: Optional[float] = None
    max_lifetime: Optional[float] = None
    recover: bool = False
    recovered: int = 0
    metadata: Raw = field(default_factory=dict)
    created_at: Optional[str] = None
    last_used_at: Optional[str] = None
    expires_at: Optional[str] = None
    jobs: int = 0
    sessions: int = 0
    contexts: int = 0
    terminals: int = 0
    isolation: Raw = field(default_factory=dict)
    usage: Raw = field(default_factory=dict)
    raw: Raw = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, raw: Raw) -> "SandboxInfo":
        return _known(cls, raw)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class JobInfo:
    """A job of a sandbox. `offset` is how far `stdout` and `stderr` go: give it to the next question to get only what is new."""

    id: str
    name: Optional[str]
    state: str
    command: Any
    started_at: Optional[str]
    ended_at: Optional[str]
    exit_code: Optional[int]
    stdout: str
    stderr: str
    stdout_bytes: bytes = field(repr=False)
    stderr_bytes: bytes = field(repr=False)
    offset: Mapping[str, int]
    result: Optional[Result]
    raw: Raw = field(repr=False)

    @classmethod
    def of(cls, raw: Raw) -> "JobInfo":
        out, err, result = _stream(raw, "stdout"), _stream(raw, "stderr"), raw.get("result")
        code = raw.get("exit_code")
        if result:  # what stands beside it belongs to it
            result = {**{name: raw[name] for name in ("id", "stdout", "stderr", "output_encoding", "truncated") if name in raw}, **result}
        return cls(id=raw.get("id", ""), name=raw.get("name"), state=raw.get("state", ""), command=raw.get("command"),
                   started_at=raw.get("started_at"), ended_at=raw.get("ended_at"),
                   exit_code=code if code is not None or not result else result.get("exit_code"), stdout=out.decode("utf-8", "replace"),
                   stderr=err.decode("utf-8", "replace"), stdout_bytes=out, stderr_bytes=err,
                   offset=raw.get("offset") or {"stdout": 0, "stderr": 0}, result=Result.of(result) if result else None, raw=raw)

    @property
    def running(self) -> bool:
        return self.state != "ended"


@dataclass(frozen=True)
class Shown:
    """One form of a thing that code in a context showed: a value, a figure, a table."""

    type: str
    #: Text, or base64 where the type is binary; `content` is either as bytes.
    data: Any
    #: The last expression's value.
    value: bool = False
    #: Forms of the same thing have the same number.
    of: Optional[int] = None

    @property
    def content(self) -> bytes:
        if not isinstance(self.data, str):
            raise TypeError(f"the data of a {self.type} is no text, but {type(self.data).__name__}")
        if self.type.startswith("image/") and self.type != "image/svg+xml" or self.type in ("application/pdf", "application/octet-stream"):
            return base64.b64decode(self.data)
        return self.data.encode()


@dataclass(frozen=True)
class CellError:
    """An exception of code in a context."""

    type: Optional[str] = None
    message: Optional[str] = None
    traceback: Optional[str] = None
    line: Optional[int] = None
    raw: Raw = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Execution:
    """What a piece of code did in a context."""

    id: str
    status: str
    success: bool
    execution: int
    stdout: str
    stderr: str
    results: List[Shown]
    error: Optional[CellError]
    context_state: Optional[str]
    truncated: Mapping[str, int]
    timing: Timing
    raw: Raw = field(repr=False)

    @classmethod
    def of(cls, raw: Raw) -> "Execution":
        error = raw.get("error")
        return cls(id=raw.get("id", ""), status=raw.get("status", ""), success=bool(raw.get("success")), execution=raw.get("execution") or 0,
                   stdout=_stream(raw, "stdout").decode("utf-8", "replace"), stderr=_stream(raw, "stderr").decode("utf-8", "replace"),
                   results=[_known(Shown, one) for one in raw.get("results") or []], error=_known(CellError, error) if error else None,
                   context_state=raw.get("context_state"), truncated=raw.get("truncated") or {"stdout": 0, "stderr": 0},
                   timing=_known(Timing, raw.get("timing")), raw=raw)

    @property
    def value(self) -> Optional[str]:
        """The last expression's value as text, or None."""
        values = [one for one in self.results if one.value]
        plain = [one.data for one in values if one.type == "text/plain"]
        return plain[0] if plain else (str(values[0].data) if values else None)

    @property
    def images(self) -> List[bytes]:
        """The figures, as PNG."""
        return [one.content for one in self.results if one.type == "image/png"]

    def check(self) -> "Execution":
        """Itself if the code succeeded; otherwise an error as of Result.check()."""
        if self.success:
            return self
        why = f"{self.error.type}: {self.error.message}" if self.error else self.status
        if self.status == "timeout":
            raise SandboxTimeoutError(f"the code ran into its time limit: {why}", result=self)
        if self.status == "oom":
            raise SandboxResourceError(f"the code ran into its limit of memory: {why}", result=self)
        raise ExecutionError(why, result=self)


@dataclass(frozen=True)
class FileInfo:
    """A file or folder in a sandbox."""

    name: str
    type: str
    size: int
    mode: str
    modified_at: Optional[str]
    target: Optional[str]
    raw: Raw = field(repr=False)

    @classmethod
    def of(cls, raw: Raw) -> "FileInfo":
        name = raw.get("name")
        if name is None and "name_base64" in raw:
            name = base64.b64decode(raw["name_base64"]).decode("utf-8", "surrogateescape")
        if name is None:
            name = str(raw.get("path", "")).rsplit("/", 1)[-1]
        return cls(name=name, type=raw.get("type", ""), size=raw.get("size") or 0, mode=raw.get("mode", ""), modified_at=raw.get("modified_at"),
                   target=raw.get("target"), raw=raw)

    @property
    def is_dir(self) -> bool:
        return self.type == "directory"


@dataclass(frozen=True)
class Match:
    """A place that a search found."""

    path: str
    line: Optional[int] = None
    column: Optional[int] = None
    text: Optional[str] = None


@dataclass(frozen=True)
class Link:
    """A signed link to a port of a sandbox; it opens without a key until `expires_at`."""

    url: str
    expires_at: Optional[str] = None


def language_of(raw: Raw) -> Language:
    return _known(Language, raw)  # type: ignore[no-any-return]


def match_of(raw: Raw) -> Match:
    return _known(Match, raw)  # type: ignore[no-any-return]


def link_of(raw: Raw) -> Link:
    return _known(Link, raw)  # type: ignore[no-any-return]


def context_fields(raw: Raw) -> Dict[str, Any]:
    return {name: raw.get(name) for name in ("id", "language", "language_version", "state", "start", "created_at", "executions")}
