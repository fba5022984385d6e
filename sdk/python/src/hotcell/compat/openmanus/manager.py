"""Several sandboxes, with a limit to their number and an end for those that are forgotten."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from typing import Any, AsyncIterator, Dict, Optional

from .sandbox import DockerSandbox
from .settings import SandboxSettings

logger = logging.getLogger(__name__)


class SandboxManager:
    """`idle_timeout` and `cleanup_interval` are seconds. A sandbox with a call or an operation under way is never idle."""

    def __init__(self, max_sandboxes: int = 100, idle_timeout: int = 3600, cleanup_interval: int = 300) -> None:
        self.max_sandboxes = max_sandboxes
        self.idle_timeout = idle_timeout
        self.cleanup_interval = cleanup_interval
        self._sandboxes: Dict[str, DockerSandbox] = {}
        self._last_used: Dict[str, float] = {}
        self._active_operations: Dict[str, int] = {}
        self._being_made = 0
        self._is_shutting_down = False
        self._cleanup_task: Optional["asyncio.Task[None]"] = None
        self.start_cleanup_task()

    async def __aenter__(self) -> "SandboxManager":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.cleanup()

    # ---- the end of those that are forgotten ----

    def start_cleanup_task(self) -> None:
        """Begins to look for idle sandboxes, in the event loop that runs. It is done by the first call as well."""
        if self._cleanup_task is not None and not self._cleanup_task.done():
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # there will be one when the first sandbox is made
        self._cleanup_task = loop.create_task(self._clean_up_again_and_again())

    async def _clean_up_again_and_again(self) -> None:
        while not self._is_shutting_down:
            await asyncio.sleep(self.cleanup_interval)
            try:
                await self._cleanup_idle_sandboxes()
            except Exception as wrong:  # the next round may do better, and nobody waits for this one
                logger.error("Error in cleanup loop: %s", wrong)

    def _is_idle(self, sandbox_id: str, now: float) -> bool:
        sandbox = self._sandboxes.get(sandbox_id)
        busy = sandbox_id in self._active_operations or (sandbox is not None and sandbox.is_busy)
        return not busy and now - self._last_used.get(sandbox_id, now) > self.idle_timeout

    async def _cleanup_idle_sandboxes(self) -> None:
        """Deletes those that nobody has used for `idle_timeout`."""
        now = time.monotonic()
        for sandbox_id in [one for one in self._sandboxes if self._is_idle(one, now)]:
            if self._is_idle(sandbox_id, time.monotonic()):  # it may be in use since
                await self.delete_sandbox(sandbox_id)

    # ---- sandboxes ----

    async def ensure_image(self, image: str) -> bool:
        """There is no image that would have to be fetched."""
        return True

    async def create_sandbox(self, config: Optional[SandboxSettings] = None, volume_bindings: Optional[Dict[str, str]] = None) -> str:
        """Makes a sandbox and gives its id. RuntimeError("Maximum number of sandboxes (N) reached") over the limit."""
        if self._is_shutting_down:
            raise RuntimeError("Failed to create sandbox: the manager is shutting down")
        if len(self._sandboxes) + self._being_made >= self.max_sandboxes:
            raise RuntimeError(f"Maximum number of sandboxes ({self.max_sandboxes}) reached")
        self.start_cleanup_task()
        sandbox_id = str(uuid.uuid4())
        self._being_made += 1
        try:
            sandbox = await DockerSandbox(config, volume_bindings).create()
        finally:
            self._being_made -= 1
        sandbox._on_use = lambda: self._touch(sandbox_id)
        self._sandboxes[sandbox_id] = sandbox
        self._last_used[sandbox_id] = time.monotonic()
        return sandbox_id

    def _touch(self, sandbox_id: str) -> None:
        if sandbox_id in self._sandboxes:
            self._last_used[sandbox_id] = time.monotonic()

    @contextlib.asynccontextmanager
    async def sandbox_operation(self, sandbox_id: str) -> AsyncIterator[DockerSandbox]:
        """A sandbox for the time of a block, during which it is not idle."""
        sandbox = self._sandboxes.get(sandbox_id)
        if sandbox is None:
            raise KeyError(f"Sandbox {sandbox_id} not found")
        self._active_operations[sandbox_id] = self._active_operations.get(sandbox_id, 0) + 1
        self._touch(sandbox_id)
        try:
            yield sandbox
        finally:
            left = self._active_operations.get(sandbox_id, 1) - 1
            if left > 0:
                self._active_operations[sandbox_id] = left
            else:
                self._active_operations.pop(sandbox_id, None)
            self._touch(sandbox_id)

    async def get_sandbox(self, sandbox_id: str) -> DockerSandbox:
        """A sandbox by its id. KeyError("Sandbox <id> not found") for one that is not known."""
        async with self.sandbox_operation(sandbox_id) as sandbox:
            return sandbox

    async def delete_sandbox(self, sandbox_id: str) -> None:
        """Deletes one. An unknown id is no error."""
        sandbox = self._sandboxes.pop(sandbox_id, None)
        self._last_used.pop(sandbox_id, None)
        if sandbox is None:
            return
        try:
            await sandbox.cleanup()
        except Exception as wrong:  # the others shall be deleted all the same; the server ends it when it is idle
            logger.error("Error deleting sandbox %s: %s", sandbox_id, wrong)

    async def cleanup(self) -> None:
        """Deletes all of them, and makes no more."""
        self._is_shutting_down = True
        task, self._cleanup_task = self._cleanup_task, None
        if task is not None and not task.get_loop().is_closed():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, RuntimeError):
                await task
        await asyncio.gather(*(self.delete_sandbox(one) for one in list(self._sandboxes)))
        self._active_operations.clear()

    def get_stats(self) -> Dict[str, Any]:
        """Counts and settings."""
        return {"total_sandboxes": len(self._sandboxes), "active_operations": len(self._active_operations), "max_sandboxes": self.max_sandboxes,
                "idle_timeout": self.idle_timeout, "cleanup_interval": self.cleanup_interval, "is_shutting_down": self._is_shutting_down}
