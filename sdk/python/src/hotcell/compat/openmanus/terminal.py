"""A shell that keeps its state, in a sandbox."""

from __future__ import annotations

import asyncio
import shlex
import time
import uuid
from typing import Any, Dict, Optional

from ..._async.sandbox import AsyncSandbox, AsyncSession
from ...errors import ConflictError, SandboxError, SandboxResourceError
from ...models import Result

BUSY_SECONDS = 15.0


class AsyncDockerizedTerminal:
    """`container` is a sandbox: hotcell.AsyncSandbox, or a DockerSandbox that has been created."""

    def __init__(self, container: Any, working_dir: str = "/workspace", env_vars: Optional[Dict[str, str]] = None, default_timeout: int = 60) -> None:
        self.container = container
        self.working_dir = working_dir
        self.env_vars = env_vars or {}
        self.default_timeout = default_timeout
        self._session: Optional[AsyncSession] = None
        self._lock: Optional[asyncio.Lock] = None
        self._lock_loop: Optional[asyncio.AbstractEventLoop] = None
        #: The exit code of the last command.
        self.last_exit_code: Optional[int] = None

    def _sandbox(self) -> AsyncSandbox:
        inner = getattr(self.container, "container", self.container)
        if not isinstance(inner, AsyncSandbox):
            raise RuntimeError(f"a terminal needs a sandbox that has been created, not {type(self.container).__name__}")
        return inner

    async def init(self) -> None:
        """Starts the shell, in its folder and with its variables. RuntimeError where that fails."""
        session = self._sandbox().session(f"terminal-{uuid.uuid4().hex[:12]}")
        lines = [f"export {name}={shlex.quote(value)}" for name, value in self.env_vars.items()]
        lines.append(f"cd -- {shlex.quote(self.working_dir)}")
        try:
            result = await session.exec(" && ".join(lines), timeout=self.default_timeout)
        except SandboxError as wrong:
            raise RuntimeError(f"Failed to initialize terminal: {wrong}") from wrong
        if not result.success:
            raise RuntimeError(f"Failed to initialize terminal: {result.stderr.strip() or result.status}")
        self._session = session

    async def run_command(self, cmd: str, timeout: Optional[int] = None) -> str:
        """Runs a piece of shell. Gives what it wrote to stdout and stderr, in order, without blanks at the ends. TimeoutError at its time."""
        return (await self.run(cmd, timeout)).stdout.strip()

    async def run(self, cmd: str, timeout: Optional[int] = None) -> Result:
        """The same, with all there is to know: its exit code above all."""
        seconds = timeout or self.default_timeout
        async with self._turn():
            if self._session is None:
                raise RuntimeError("Terminal not initialized")
            result = await self._call(self._session, cmd, seconds)
            return await self._judge(result, seconds)

    def _turn(self) -> asyncio.Lock:
        """One command at a time. A lock belongs to an event loop, and a program may have several, one after the other."""
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock_loop is not loop:
            self._lock, self._lock_loop = asyncio.Lock(), loop
        return self._lock

    @staticmethod
    async def _call(session: AsyncSession, cmd: str, seconds: float) -> Result:
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                # One pipe for both streams keeps their order; eval keeps the piece in this shell, whatever is in it.
                return await session.exec(f"eval -- {shlex.quote(cmd)} 2>&1", timeout=seconds)
            except ConflictError:  # a command before this one was given up, and is being ended
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.02)

    async def _judge(self, result: Result, seconds: float) -> Result:
        self.last_exit_code = result.exit_code
        if result.timed_out or result.status == "timeout":
            raise TimeoutError(f"Command execution timed out after {seconds} seconds")
        if result.session_state == "ended":
            await self._begin_again(result)
        return result

    async def _begin_again(self, result: Result) -> None:
        """The shell is gone: by `exit`, or because there was no more memory. The next command gets a new one, in the same folder."""
        self._session = None
        await self.init()
        if result.status == "oom":
            raise SandboxResourceError("the command and its shell ran out of memory", result=result)

    async def close(self) -> None:
        """Ends the shell."""
        session, self._session = self._session, None
        if session is not None:
            await session.delete()
