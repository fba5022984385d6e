"""One sandbox behind a small interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Dict, Optional, Protocol

from .sandbox import DockerSandbox
from .settings import SandboxSettings


class SandboxFileOperations(Protocol):
    """What can be done with a sandbox's files."""

    async def copy_from(self, container_path: str, local_path: str) -> None: ...

    async def copy_to(self, local_path: str, container_path: str) -> None: ...

    async def read_file(self, path: str) -> str: ...

    async def write_file(self, path: str, content: str) -> None: ...


class BaseSandboxClient(ABC):
    """What a client of a sandbox can do."""

    @abstractmethod
    async def create(self, config: Optional[SandboxSettings] = None, volume_bindings: Optional[Dict[str, str]] = None) -> None:
        """Makes the sandbox."""

    @abstractmethod
    async def run_command(self, command: str, timeout: Optional[int] = None) -> str:
        """Runs a command."""

    @abstractmethod
    async def copy_from(self, container_path: str, local_path: str) -> None:
        """A file out of it."""

    @abstractmethod
    async def copy_to(self, local_path: str, container_path: str) -> None:
        """A file into it."""

    @abstractmethod
    async def read_file(self, path: str) -> str:
        """A file's text."""

    @abstractmethod
    async def write_file(self, path: str, content: str) -> None:
        """Writes a file's text."""

    @abstractmethod
    async def cleanup(self) -> None:
        """Ends the sandbox."""


class LocalSandboxClient(BaseSandboxClient):
    """A client with one sandbox. Before `create`, every call is RuntimeError("Sandbox not initialized")."""

    def __init__(self) -> None:
        self.sandbox: Optional[DockerSandbox] = None

    def _sandbox(self) -> DockerSandbox:
        if self.sandbox is None:
            raise RuntimeError("Sandbox not initialized")
        return self.sandbox

    async def create(self, config: Optional[SandboxSettings] = None, volume_bindings: Optional[Dict[str, str]] = None) -> None:
        await self.cleanup()
        self.sandbox = await DockerSandbox(config, volume_bindings).create()

    async def run_command(self, command: str, timeout: Optional[int] = None) -> str:
        return await self._sandbox().run_command(command, timeout)

    async def copy_from(self, container_path: str, local_path: str) -> None:
        await self._sandbox().copy_from(container_path, local_path)

    async def copy_to(self, local_path: str, container_path: str) -> None:
        await self._sandbox().copy_to(local_path, container_path)

    async def read_file(self, path: str) -> str:
        return await self._sandbox().read_file(path)

    async def write_file(self, path: str, content: str) -> None:
        await self._sandbox().write_file(path, content)

    async def cleanup(self) -> None:
        sandbox, self.sandbox = self.sandbox, None
        if sandbox is not None:
            await sandbox.cleanup()


def create_sandbox_client() -> LocalSandboxClient:
    """A client of its own."""
    return LocalSandboxClient()


SANDBOX_CLIENT = create_sandbox_client()
