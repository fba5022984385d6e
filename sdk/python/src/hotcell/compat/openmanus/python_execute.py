"""The tools that run Python."""

from __future__ import annotations

from typing import Any, Dict, Optional, Union

from ..._async.sandbox import AsyncSandbox
from ...errors import SandboxError
from ...models import Result
from .. import async_client
from .sandbox import DockerSandbox
from .tools import BaseTool


class PythonExecute(BaseTool):
    """Runs Python code and gives what it printed. Each time in a fresh cell, or, with a `sandbox`, there, where files stay."""

    name: str = "python_execute"
    description: str = ("Executes Python code string. Note: Only print outputs are visible, function return values are not captured. "
                        "Use print statements to see results.")
    parameters: Dict[str, Any] = {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "The Python code to execute."}},
        "required": ["code"],
    }

    def __init__(self, sandbox: Union[DockerSandbox, AsyncSandbox, None] = None) -> None:
        self.sandbox = sandbox

    async def _run(self, code: str, timeout: float) -> Result:
        inner = self.sandbox.container if isinstance(self.sandbox, DockerSandbox) else self.sandbox
        if self.sandbox is not None and inner is None:
            raise RuntimeError("Sandbox not initialized")
        if inner is not None:
            return await inner.exec(code=code, language="python", timeout=timeout)
        async with async_client() as client:
            return await client.run(code, "python", timeout=timeout)

    async def execute(self, code: str, timeout: int = 5) -> Dict[str, Any]:  # type: ignore[override]
        """{"observation", "success"}. After an exception the observation is what was printed before it, and then the traceback."""
        try:
            result = await self._run(code, timeout)
        except SandboxError as wrong:
            return {"observation": str(wrong), "success": False}
        if result.timed_out or result.status == "timeout":
            return {"observation": f"Execution timeout after {timeout} seconds", "success": False}
        if result.success:
            return {"observation": result.stdout, "success": True}
        why = result.stderr or (result.diagnosis.message if result.diagnosis else None) or f"exit code {result.exit_code}"
        if result.status not in ("error", "completed") and result.diagnosis is not None and result.diagnosis.message:
            why = f"{result.stderr}{result.diagnosis.message}\n"
        return {"observation": result.stdout + why, "success": False}


class NormalPythonExecute(PythonExecute):
    """The same for the analysis of data; `code_type` says what for."""

    name: str = "python_execute"
    description: str = "Execute Python code for in-depth data analysis / data report(task conclusion) / other normal task without direct visualization."
    parameters: Dict[str, Any] = {
        "type": "object",
        "properties": {
            "code_type": {"type": "string", "description": "code type, data process / data report / others", "default": "process",
                          "enum": ["process", "report", "others"]},
            "code": {"type": "string", "description": "Python code to execute. Print what shall be seen; save files below the working directory."},
        },
        "required": ["code"],
    }

    async def execute(self, code: str, code_type: Optional[str] = None, timeout: int = 5) -> Dict[str, Any]:  # type: ignore[override]
        kinds = self.parameters["properties"]["code_type"]["enum"]
        if code_type is not None and code_type not in kinds:
            return {"observation": f"code_type is {code_type!r}; it must be one of {', '.join(kinds)}", "success": False}
        return await super().execute(code, timeout)
