"""A runner of code in fresh containers, with a policy for mounts.

    before: from sandbox import SandboxRunner, validate_mount, MountPolicy
    after:  from hotcell.compat.runner import SandboxRunner, validate_mount, MountPolicy

The same names and answers. What differs: a mount that the policy refuses is a MountRefusedError and not left out in silence; a path that may be read
is not mounted writable; the parent of a forbidden path is forbidden; a timeout ends everything that the code started, and what it printed until then
is in `stdout`; there is no image to build, so `image_name` means nothing.

With a server of somebody else's, its own mount policy counts as well. A private server (the default where none runs) gets the allowed paths of the
configuration.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional

from .._fields import Limits
from ..models import Result
from . import async_client

logger = logging.getLogger(__name__)

# What must never be mounted, nor any folder that it is in.
FORBIDDEN_PATHS = [
    "/etc/shadow", "/etc/passwd", "/etc/sudoers", "/root", "/proc", "/sys", "/dev", "/var/run/docker.sock",
    os.path.expanduser("~/.ssh"), os.path.expanduser("~/.aws"), os.path.expanduser("~/.gnupg"), os.path.expanduser("~/.config"),
]


class MountRefusedError(PermissionError):
    """A mount that the policy does not allow."""


@dataclass
class SandboxConfig:
    """Limits, and what may be mounted."""

    image_name: str = "aod-sandbox:latest"
    memory_limit: str = "512m"
    cpu_limit: float = 1.0
    timeout_seconds: int = 60
    pids_limit: int = 50
    network_enabled: bool = False
    allowed_read_paths: List[str] = field(default_factory=list)
    allowed_write_paths: List[str] = field(default_factory=list)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


@dataclass
class MountPolicy:
    """Which folders of this machine may be seen. Symlinks are resolved; forbidden beats allowed; what is not allowed is refused."""

    allowed_read_paths: List[str] = field(default_factory=list)
    allowed_write_paths: List[str] = field(default_factory=list)
    forbidden_paths: List[str] = field(default_factory=lambda: FORBIDDEN_PATHS.copy())

    def is_allowed(self, host_path: str, writable: bool = False) -> bool:
        """Whether a path may be mounted; `writable` asks for more."""
        resolved = str(Path(host_path).resolve())
        for forbidden in self.forbidden_paths:
            banned = str(Path(forbidden).resolve())
            if _is_below(resolved, banned) or _is_below(banned, resolved):
                return False
        allowed = self.allowed_write_paths if writable else self.allowed_read_paths + self.allowed_write_paths
        return any(_is_below(resolved, str(Path(path).resolve())) for path in allowed)


def validate_mount(host_path: str, policy: MountPolicy, writable: bool = False) -> bool:
    """Whether the policy allows a mount. What does not exist is refused."""
    return os.path.exists(host_path) and policy.is_allowed(host_path, writable)


class SandboxResult:
    """What became of it."""

    def __init__(self, stdout: str, stderr: str, exit_code: int, timed_out: bool = False):
        self.stdout = stdout
        self.stderr = stderr
        self.exit_code = exit_code
        self.timed_out = timed_out
        self.success = exit_code == 0 and not timed_out

    def __str__(self) -> str:
        if self.timed_out:
            return f"Execution timed out.\nStdout: {self.stdout}\nStderr: {self.stderr}"
        if not self.success:
            return f"Exit code {self.exit_code}.\nStdout: {self.stdout}\nStderr: {self.stderr}"
        return self.stdout

    def __repr__(self) -> str:
        return f"<SandboxResult exit_code={self.exit_code} timed_out={self.timed_out}>"


def _answer(result: Result) -> SandboxResult:
    if result.timed_out or result.status == "timeout":
        return SandboxResult(result.stdout, "Execution timed out", -1, timed_out=True)
    stderr, code = result.stderr, result.exit_code if result.exit_code is not None else -1
    if not result.success and code == 0:
        code = 1  # ended by a limit, though its last word was 0
    if result.status not in ("completed", "error") and result.diagnosis is not None and result.diagnosis.message:
        stderr += f"{'' if not stderr or stderr.endswith(chr(10)) else chr(10)}{result.diagnosis.message}\n"
    return SandboxResult(result.stdout, stderr, code)


class SandboxRunner:
    """Runs code, each time in a fresh cell."""

    def __init__(self, config: Optional[SandboxConfig] = None):
        self.config = config or SandboxConfig()
        self.mount_policy = MountPolicy(allowed_read_paths=self.config.allowed_read_paths, allowed_write_paths=self.config.allowed_write_paths)

    async def run_code(self, code: str, language: str = "python", extra_mounts: Optional[List[Dict[str, Any]]] = None) -> SandboxResult:
        """Runs `code`, which is /workspace/code in the cell, read-only.

        `extra_mounts` are [{"host_path", "container_path", "readonly"}]; one that the policy refuses is a MountRefusedError, and nothing is run.
        """
        mounts = [self._mount(mount) for mount in extra_mounts or []]
        config = self.config
        needed = {"allow_read": self._real(config.allowed_read_paths), "allow_write": self._real(config.allowed_write_paths)} if mounts else {}
        async with async_client(**needed) as client:
            return _answer(await client.run(mounts=mounts or None, limits=self._limits(), network="internet" if config.network_enabled else None,
                                            **self._placing(code, language)))

    async def run_command(self, command: str) -> SandboxResult:
        """Runs a piece of shell."""
        return await self.run_code(command, language="bash")

    @staticmethod
    def _placing(code: str, language: str) -> Dict[str, Any]:
        """The two interpreters get the file by its name, as they did. Compilers go by the extension, so other languages keep their own name."""
        interpreters = {"python": "python3", "bash": "bash"}
        if language not in interpreters:
            return {"code": code, "language": language}
        return {"files": {"code": code}, "command": [interpreters[language], "/workspace/code"],
                "stages": [{"command": ["chmod", "0444", "/workspace/code"], "timeout": 10}]}

    def _limits(self) -> Limits:
        config = self.config
        return {"memory": config.memory_limit, "cpus": config.cpu_limit, "timeout": config.timeout_seconds, "pids": config.pids_limit,
                "disk": "100m"}

    @staticmethod
    def _real(paths: List[str]) -> List[str]:
        return sorted({str(Path(path).resolve()) for path in paths if os.path.exists(path)})

    def _mount(self, mount: Dict[str, Any]) -> Dict[str, Any]:
        host, readonly = mount["host_path"], bool(mount.get("readonly", True))
        if not validate_mount(host, self.mount_policy, writable=not readonly):
            logger.warning("Mount rejected by policy: %s", host)
            raise MountRefusedError(f"Mount rejected by policy: {host}")
        return {"host": str(Path(host).resolve()), "path": mount["container_path"], "read_only": readonly}
