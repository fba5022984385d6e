"""The sandbox, its manager and its tools, for agents that were written with containers.

    before: from app.sandbox.core.sandbox import DockerSandbox
            from app.sandbox.core.manager import SandboxManager
            from app.sandbox.client import LocalSandboxClient, create_sandbox_client
            from app.tool.python_execute import PythonExecute
    after:  from hotcell.compat.openmanus import DockerSandbox, SandboxManager, LocalSandboxClient, create_sandbox_client, PythonExecute

The same names, arguments, messages and exceptions. What differs is what was wrong: Python of the tool runs in a cell and not on the host, and keeps
what it printed before an exception; output is exact (digits, blank lines, no prompts), and after a timeout nothing of the old command comes with the
next one; nothing is privileged; paths are never part of a shell's command line; what comes out of a sandbox cannot be written elsewhere on the
host; a sandbox that is busy is not idle. `SandboxSettings.image` names no image: the system in a cell is the server's own.
"""

from ...errors import SandboxError, SandboxResourceError, SandboxTimeoutError
from .client import SANDBOX_CLIENT, BaseSandboxClient, LocalSandboxClient, SandboxFileOperations, create_sandbox_client
from .files_tool import SandboxFilesTool
from .manager import SandboxManager
from .python_execute import NormalPythonExecute, PythonExecute
from .sandbox import DockerSandbox
from .settings import SandboxSettings
from .shell_tool import SandboxShellTool
from .terminal import AsyncDockerizedTerminal
from .tools import BaseTool, ToolResult

__all__ = ["AsyncDockerizedTerminal", "BaseSandboxClient", "BaseTool", "DockerSandbox", "LocalSandboxClient", "NormalPythonExecute", "PythonExecute",
           "SANDBOX_CLIENT", "SandboxError", "SandboxFileOperations", "SandboxFilesTool", "SandboxManager", "SandboxResourceError",
           "SandboxSettings", "SandboxShellTool", "SandboxTimeoutError", "ToolResult", "create_sandbox_client"]
