"""Modules that stand in for other sandboxes: a program that was written for one of them changes an import, and nothing else.

    hotcell.compat.openmanus       DockerSandbox, SandboxManager, LocalSandboxClient, PythonExecute, the shell and files tools
    hotcell.compat.nemo            LocalSandbox, execute_code
    hotcell.compat.runner          SandboxRunner, SandboxConfig, MountPolicy, validate_mount
    hotcell.compat.code_sandbox    CodeSandbox, ResourceLimits, ExecutionResult, AutoDebuggerIntegration

All of them use the server of $HOTCELL_SERVER, or one that runs on this machine, or a private one that is started for this process. `configure()`
names another.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Dict, Optional

from .._async.client import AsyncClient
from .._sync.client import Client
from .._local import local_address

_lock = threading.Lock()
_settings: Dict[str, Any] = {}


def configure(address: Optional[str] = None, **options: Any) -> None:
    """Which server these modules use from now on. `options` are those of hotcell.Client (`key`, `key_file`, `ca`, `timeout`); without an
    address, those of hotcell.LocalServer (`program`, `allow_weak`, `config`) are taken as well."""
    with _lock:
        _settings.clear()
        _settings.update(address=address, **options)


_CLIENT_OPTIONS = ("key", "key_file", "ca", "timeout", "retries", "max_retry_wait")


def _arguments(needed: Dict[str, Any]) -> Dict[str, Any]:
    """Of a Client. `needed` is what a private server must have: folders to mount."""
    with _lock:
        settings = dict(_settings)
    address = settings.pop("address", None)
    found = {name: settings.pop(name) for name in _CLIENT_OPTIONS if name in settings}
    found["address"] = address or os.environ.get("HOTCELL_SERVER") or local_address(**settings, **needed)
    return found


def client(**needed: Any) -> Client:
    """A client for the configured server."""
    return Client(**_arguments(needed))


def async_client(**needed: Any) -> AsyncClient:
    """The same for asyncio."""
    return AsyncClient(**_arguments(needed))
