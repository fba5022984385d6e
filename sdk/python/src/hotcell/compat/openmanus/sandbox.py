"""A sandbox as a container's user knows it."""

from __future__ import annotations

import contextlib
import os
import posixpath
from typing import Any, Callable, Dict, Iterator, List, Optional

from ..._async.client import AsyncClient
from ..._async.sandbox import AsyncSandbox
from ...errors import NotFoundError, SandboxError, SandboxTimeoutError
from .. import async_client
from .settings import SandboxSettings
from .terminal import AsyncDockerizedTerminal

UNSAFE = "Path contains potentially unsafe patterns"


class DockerSandbox:
    """One sandbox. `volume_bindings` are {folder of the host: folder in the sandbox}, writable, where the server's mount policy allows them.

    `container` is the hotcell.AsyncSandbox behind it, `terminal` its shell.
    """

    def __init__(self, config: Optional[SandboxSettings] = None, volume_bindings: Optional[Dict[str, str]] = None) -> None:
        self.config = config or SandboxSettings()
        self.volume_bindings = volume_bindings or {}
        self.client: Optional[AsyncClient] = None
        self.container: Optional[AsyncSandbox] = None
        self.terminal: Optional[AsyncDockerizedTerminal] = None
        self._calls = 0
        self._on_use: Optional[Callable[[], None]] = None

    # ---- life ----

    async def create(self) -> "DockerSandbox":
        """Makes it. RuntimeError("Failed to create sandbox: …") where that fails, and nothing is left then."""
        try:
            folders = sorted(os.path.realpath(path) for path in self.volume_bindings)
            self.client = async_client(**({"allow_write": folders} if folders else {}))
            config = self.config
            self.container = await self.client.create_sandbox(
                limits={"memory": config.memory_limit, "cpus": config.cpu_limit, "timeout": config.timeout}, read_only=False,
                mounts=self._mounts() or None, network="internet" if config.network_enabled else None)
            if posixpath.normpath(config.work_dir) != self.container.info.work_dir:
                await self.container.files.mkdir(config.work_dir)
                self.container.files.work_dir = config.work_dir
            self.terminal = AsyncDockerizedTerminal(self.container, config.work_dir, default_timeout=config.timeout)
            await self.terminal.init()
        except (SandboxError, RuntimeError, OSError) as wrong:
            with contextlib.suppress(SandboxError):  # why it failed is worth more
                await self.cleanup()
            raise RuntimeError(f"Failed to create sandbox: {wrong}") from wrong
        return self

    def _mounts(self) -> List[Dict[str, Any]]:
        return [{"host": os.path.realpath(host), "path": path, "read_only": False} for host, path in self.volume_bindings.items()]

    async def cleanup(self) -> None:
        """Ends it, and all in it."""
        container, client = self.container, self.client
        self.container = self.client = self.terminal = None
        try:
            if container is not None:
                await container.delete()
        finally:
            if client is not None:
                await client.aclose()

    async def __aenter__(self) -> "DockerSandbox":
        return await self.create()

    async def __aexit__(self, *_: Any) -> None:
        await self.cleanup()

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way."""
        return self._calls > 0

    @contextlib.contextmanager
    def _use(self) -> Iterator[AsyncSandbox]:
        """Around every call: the sandbox must be there, and is not idle meanwhile."""
        if self.container is None:
            raise RuntimeError("Sandbox not initialized")
        self._calls += 1
        try:
            yield self.container
        finally:
            self._calls -= 1
            if self._on_use is not None:
                self._on_use()

    # ---- commands ----

    async def run_command(self, cmd: str, timeout: Optional[int] = None) -> str:
        """Runs a piece of shell and gives its output. The shell is always the same one: `cd` and `export` stay."""
        with self._use():
            if self.terminal is None:
                raise RuntimeError("Sandbox not initialized")
            seconds = timeout or self.config.timeout
            try:
                return await self.terminal.run_command(cmd, seconds)
            except TimeoutError as wrong:
                if isinstance(wrong, SandboxError):
                    raise  # the server did not answer
                raise SandboxTimeoutError(f"Command execution timed out after {seconds} seconds") from None

    async def get_preview_link(self, port: int, expires_in: Optional[float] = None) -> str:
        """A link to what listens on a port of the sandbox, such as 8080 or 6080. It opens without a key, for a time."""
        with self._use() as container:
            link = await container.preview_link(port, expires_in)
            address = container._http.address
            return link.url if address.unix is not None or "://" in link.url else address.text.rstrip("/") + link.url

    # ---- files ----

    def _resolve(self, path: str) -> str:
        """An absolute path in the sandbox. A component `..` is refused."""
        if ".." in path.split("/"):
            raise ValueError(UNSAFE)
        return path if posixpath.isabs(path) else posixpath.join(self.config.work_dir, path)

    async def read_file(self, path: str) -> str:
        """A file's text."""
        with self._use() as container:
            try:
                return await container.files.read_text(self._resolve(path))
            except NotFoundError:
                raise FileNotFoundError(f"File not found: {path}") from None
            except (SandboxError, ValueError) as wrong:
                raise RuntimeError(f"Failed to read file: {wrong}") from wrong

    async def write_file(self, path: str, content: str) -> None:
        """Writes a file's text. Folders on the way are made."""
        with self._use() as container:
            try:
                await container.files.write(self._resolve(path), content)
            except (SandboxError, ValueError) as wrong:
                raise RuntimeError(f"Failed to write file: {wrong}") from wrong

    async def copy_to(self, src_path: str, dst_path: str) -> None:
        """A file or a folder of the host into the sandbox. `dst_path` is its name there, or a folder that ends with / or exists."""
        with self._use() as container:
            if not os.path.exists(src_path):
                raise FileNotFoundError(f"Source file not found: {src_path}")
            try:
                target = self._resolve(dst_path)
                if dst_path.endswith("/") or (not os.path.isdir(src_path) and await self._is_folder(container, target)):
                    target = posixpath.join(target, os.path.basename(os.path.abspath(src_path)))
                if os.path.isdir(src_path):
                    await container.files.mkdir(target)
                    await container.files.upload_folder(src_path, target)
                else:
                    await container.files.upload(src_path, target)
            except (SandboxError, OSError, ValueError) as wrong:
                raise RuntimeError(f"Failed to copy file: {wrong}") from wrong

    @staticmethod
    async def _is_folder(container: AsyncSandbox, path: str) -> bool:
        try:
            return (await container.files.stat(path)).is_dir
        except NotFoundError:
            return False

    async def copy_from(self, src_path: str, dst_path: str) -> None:
        """A file or a folder of the sandbox onto the host. Folders on the way are made there. Into a folder that exists, it goes by its own name."""
        with self._use() as container:
            try:
                source = self._resolve(src_path)
                folder = (await container.files.stat(source)).is_dir
                if os.path.isdir(dst_path):
                    dst_path = os.path.join(dst_path, posixpath.basename(source.rstrip("/")))
                parent = os.path.dirname(os.path.abspath(dst_path))
                os.makedirs(parent, exist_ok=True)
                if folder:
                    await container.files.download_folder(source, dst_path)
                else:
                    await container.files.download(source, dst_path)
            except NotFoundError:
                raise FileNotFoundError(f"Source file not found: {src_path}") from None
            except (SandboxError, OSError, ValueError) as wrong:
                raise RuntimeError(f"Failed to copy file: {wrong}") from wrong
