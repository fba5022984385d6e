"""hotcell: run code that nobody trusts.

    import hotcell

    with hotcell.local() as client:                    # a server on this machine; one is started when none runs
        print(client.run("print(6 * 7)").stdout)       # 42

        with client.create_sandbox() as sandbox:       # one that lives on
            sandbox.exec("echo hello > note")
            print(sandbox.files.read_text("note"))

`Client` is for ordinary programs, `AsyncClient` for asyncio; they have the same methods. `hotcell.compat` has modules that stand in for other
sandboxes.
"""

from ._async.client import AsyncClient, AsyncRun
from ._async.contexts import AsyncContext
from ._async.events import AsyncEventStream
from ._async.files import AsyncFiles
from ._async.sandbox import AsyncJob, AsyncSandbox, AsyncSession
from ._async.terminal import AsyncTerminal
from ._sync.client import Client, Run
from ._sync.contexts import Context
from ._sync.events import EventStream
from ._sync.files import Files
from ._sync.sandbox import Job, Sandbox, Session
from ._sync.terminal import Terminal
from ._version import __version__
from .errors import (AuthenticationError, ConflictError, ConnectionFailedError, DiskFullError, ExecutionError, InvalidRequestError,
                     LanguageUnavailableError, LocalServerError, NotFoundError, OverloadedError, PermissionDeniedError, PreviewError,
                     ProtocolError, QuotaError, RequestTimeoutError, SandboxError, SandboxResourceError, SandboxTimeoutError, ServerError,
                     TooLargeError, UnsafeArchiveError)
from ._local import LocalServer, find_local, local, local_async, stop_local
from .models import (CellError, CollectedFile, Diagnosis, Event, Execution, FileInfo, HistoryPage, JobInfo, Language, Link, Match, Result,
                     SandboxInfo, Shown, Timing, Usage)

__all__ = [
    "AsyncClient", "AsyncContext", "AsyncEventStream", "AsyncFiles", "AsyncJob", "AsyncRun", "AsyncSandbox", "AsyncSession", "AsyncTerminal",
    "AuthenticationError", "CellError", "Client", "CollectedFile", "ConflictError", "ConnectionFailedError", "Context", "Diagnosis",
    "DiskFullError", "Event", "EventStream", "Execution", "ExecutionError", "FileInfo", "Files", "HistoryPage", "InvalidRequestError", "Job",
    "JobInfo", "Language", "LanguageUnavailableError", "Link", "LocalServer", "LocalServerError", "Match", "NotFoundError", "OverloadedError",
    "PermissionDeniedError", "PreviewError", "ProtocolError", "QuotaError", "RequestTimeoutError", "Result", "Run", "Sandbox", "SandboxError",
    "SandboxInfo", "SandboxResourceError", "SandboxTimeoutError", "ServerError", "Session", "Shown", "Terminal", "Timing", "TooLargeError",
    "UnsafeArchiveError", "Usage", "__version__", "find_local", "local", "local_async", "stop_local",
]
