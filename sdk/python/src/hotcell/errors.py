"""The errors of hotcell. `SandboxError` is the base of all of them.

An answer of the server that is an error carries what the server said (RFC 9457): `status`, `code`, `title`, `detail`, `field`, `remedy` and
`retry_after`. Which class it is follows from the status, so a program can catch what it can do something about:

    SandboxError
     ├─ ExecutionError            the program failed, and `check()` was called on its result
     ├─ SandboxTimeoutError       it ran into its time limit
     ├─ SandboxResourceError      it ran into another limit: memory, processes, output, disk
     │   └─ DiskFullError         507: there is no room in the sandbox
     ├─ InvalidRequestError       400, 405, 412, 415: the request is wrong, and `field` says where
     │   ├─ LanguageUnavailableError   the language is not installed there
     │   └─ UnsafeArchiveError    an archive has entries that lead out of its folder
     ├─ AuthenticationError       401: a key is needed, or this one is not valid
     ├─ PermissionDeniedError     403: not allowed
     ├─ NotFoundError             404: there is no such run, sandbox, file …
     ├─ ConflictError             409: not in this state
     ├─ TooLargeError             413
     ├─ QuotaError                429: a quota is used up; `retry_after` says for how long
     ├─ OverloadedError           503: the server is busy; `retry_after`
     ├─ ServerError               any other 5xx: a fault of the server's
     │   └─ PreviewError          502: what listens in the sandbox does not answer, or nothing listens
     ├─ ConnectionFailedError     the server could not be reached, or the connection broke (also a ConnectionError)
     │   └─ RequestTimeoutError   it did not answer in time (also a TimeoutError)
     ├─ ProtocolError             what came back is not what a hotcell server says
     └─ LocalServerError          a private server could not be started
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Type


class SandboxError(Exception):
    """Something went wrong. The fields are None where they do not apply."""

    status: Optional[int] = None
    code: Optional[str] = None
    title: Optional[str] = None
    detail: Optional[str] = None
    field: Optional[str] = None
    remedy: Optional[str] = None
    retry_after: Optional[float] = None
    #: The result of the program, on errors that `Result.check()` raises.
    result: Any = None
    #: The whole problem object of the server.
    problem: Mapping[str, Any] = {}

    def __init__(self, message: str = "", **fields: Any) -> None:
        super().__init__(message)
        for name, value in fields.items():
            setattr(self, name, value)


class ExecutionError(SandboxError):
    """The program ended in another way than by success. `result` is its result."""


class SandboxTimeoutError(SandboxError):
    """The program ran into its time limit."""


class SandboxResourceError(SandboxError):
    """The program ran into a limit other than time."""


class DiskFullError(SandboxResourceError):
    """There is no room left in the sandbox's files (507)."""


class InvalidRequestError(SandboxError):
    """The request is wrong; `field` and `remedy` say where and what to do."""


class LanguageUnavailableError(InvalidRequestError):
    """The server knows the language, and it is not installed there."""


class UnsafeArchiveError(InvalidRequestError):
    """An archive has an entry that leads out of the folder that it is unpacked to."""


class AuthenticationError(SandboxError):
    """A key is needed, or the one that was sent is not valid (401)."""


class PermissionDeniedError(SandboxError):
    """It is not allowed (403)."""


class NotFoundError(SandboxError):
    """There is no such thing, or it is another tenant's (404)."""


class ConflictError(SandboxError):
    """Not in this state: it has ended, is paused, is busy, exists already (409)."""


class TooLargeError(SandboxError):
    """More than the server takes (413)."""


class QuotaError(SandboxError):
    """A quota is used up (429)."""


class OverloadedError(SandboxError):
    """The server is busy, or stops (503)."""


class ServerError(SandboxError):
    """A fault of the server's (5xx)."""


class PreviewError(ServerError):
    """Nothing listens on that port of the sandbox, or what it says is not HTTP (502)."""


class ConnectionFailedError(SandboxError, ConnectionError):
    """The server could not be reached, or the connection broke. `begun` is False where it is certain that the request was not acted on."""

    begun: bool = True


class RequestTimeoutError(ConnectionFailedError, TimeoutError):
    """The server did not answer in time."""


class ProtocolError(SandboxError):
    """The answer is not one of a hotcell server's."""


class LocalServerError(SandboxError):
    """`hotcell.local()` found no server and could not start one."""


_BY_STATUS: Dict[int, Type[SandboxError]] = {
    400: InvalidRequestError, 401: AuthenticationError, 403: PermissionDeniedError, 404: NotFoundError, 405: InvalidRequestError,
    409: ConflictError, 412: InvalidRequestError, 413: TooLargeError, 415: InvalidRequestError, 416: InvalidRequestError, 429: QuotaError,
    431: TooLargeError, 502: PreviewError, 503: OverloadedError, 507: DiskFullError,
}
_BY_CODE: Dict[str, Type[SandboxError]] = {"language_unavailable": LanguageUnavailableError, "quota_exceeded": QuotaError}


def error_of(status: int, problem: Mapping[str, Any], retry_after: Optional[float] = None) -> SandboxError:
    """The error for an answer with this status and problem object."""
    code = problem.get("code") if isinstance(problem.get("code"), str) else None
    kind = _BY_CODE.get(code or "") or _BY_STATUS.get(status) or (ServerError if status >= 500 else InvalidRequestError)
    detail = problem.get("detail") or problem.get("title") or f"the server answered {status}"
    return kind(str(detail), status=status, code=code, title=problem.get("title"), detail=problem.get("detail"), field=problem.get("field"),
                remedy=problem.get("remedy"), retry_after=retry_after, problem=dict(problem))
