"""What tools of an agent have in common."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, Optional, Union

from ..._async.sandbox import AsyncSandbox
from .sandbox import DockerSandbox


@dataclass
class ToolResult:
    """What a tool says. It is true when there is anything in it."""

    output: Any = None
    error: Optional[str] = None
    base64_image: Optional[str] = None
    system: Optional[str] = None

    def __bool__(self) -> bool:
        return any((self.output, self.error, self.base64_image, self.system))

    def __str__(self) -> str:
        return f"Error: {self.error}" if self.error else str(self.output)


class BaseTool:
    """A tool by its name, description and parameters (a JSON schema)."""

    name: str = ""
    description: str = ""
    parameters: Dict[str, Any] = {}

    async def execute(self, **kwargs: Any) -> Any:
        """Does it."""
        raise NotImplementedError(f"{type(self).__name__} does nothing")

    async def __call__(self, **kwargs: Any) -> Any:
        return await self.execute(**kwargs)

    def to_param(self) -> Dict[str, Any]:
        """As a function that a model can call."""
        return {"type": "function", "function": {"name": self.name, "description": self.description, "parameters": self.parameters}}

    @staticmethod
    def success_response(data: Union[Dict[str, Any], str]) -> ToolResult:
        return ToolResult(output=data if isinstance(data, str) else json.dumps(data, indent=2))

    @staticmethod
    def fail_response(message: str) -> ToolResult:
        return ToolResult(error=message)


class SandboxTool(BaseTool):
    """A tool that works in a sandbox: a DockerSandbox, a hotcell.AsyncSandbox, or one of its own, which the first call makes."""

    work_dir = "/workspace"

    def __init__(self, sandbox: Union[DockerSandbox, AsyncSandbox, None] = None) -> None:
        self.sandbox = sandbox
        self._own = sandbox is None

    async def _container(self) -> AsyncSandbox:
        if self.sandbox is None:
            self.sandbox = await DockerSandbox().create()
        inner = self.sandbox.container if isinstance(self.sandbox, DockerSandbox) else self.sandbox
        if inner is None:
            raise RuntimeError("Sandbox not initialized")
        self.work_dir = self.sandbox.config.work_dir if isinstance(self.sandbox, DockerSandbox) else inner.info.work_dir
        return inner

    async def cleanup(self) -> None:
        """Ends the sandbox, if it is the tool's own."""
        if self._own and isinstance(self.sandbox, DockerSandbox):
            sandbox, self.sandbox = self.sandbox, None
            await sandbox.cleanup()
