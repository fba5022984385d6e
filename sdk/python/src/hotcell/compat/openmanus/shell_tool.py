"""The tool that runs commands in a sandbox, and looks after those that go on."""

from __future__ import annotations

import posixpath
import uuid
from typing import Any, Dict, Optional

from ..._async.sandbox import AsyncSandbox
from ...errors import NotFoundError, SandboxError
from ...models import JobInfo
from .tools import SandboxTool, ToolResult

ACTIONS = ["execute_command", "check_command_output", "terminate_command", "list_commands"]
DETACHED_SECONDS = 24 * 3600  # a server that was started shall go on
MERGED = "exec 2>&1\n"


class SandboxShellTool(SandboxTool):
    """Runs commands. One that does not block goes on under its `session_name`."""

    name: str = "sandbox_shell"
    description: str = ("Execute a shell command in the workspace. Commands go on in the background unless `blocking` is true; ask for their output "
                        "with check_command_output, end them with terminate_command, list them with list_commands.")
    parameters: Dict[str, Any] = {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": ACTIONS, "description": "The shell action to perform"},
            "command": {"type": "string", "description": "The shell command to execute. Chain several with && or ;."},
            "folder": {"type": "string", "description": "Optional path, relative to the workspace, of the folder to run it in."},
            "session_name": {"type": "string", "description": "Optional name under which the command goes on."},
            "blocking": {"type": "boolean", "description": "Whether to wait for the command's end.", "default": False},
            "timeout": {"type": "integer", "description": "Seconds that a blocking command may take.", "default": 60},
            "kill_session": {"type": "boolean", "description": "Whether to end the command after its output was looked at.", "default": False},
        },
        "required": ["action"],
    }

    async def execute(self, action: str, command: Optional[str] = None, folder: Optional[str] = None,  # type: ignore[override]
                      session_name: Optional[str] = None, blocking: bool = False, timeout: int = 60, kill_session: bool = False) -> ToolResult:
        """One of the actions. What goes wrong is in `error`, and is no exception."""
        if action not in ACTIONS:
            return self.fail_response(f"Unknown action: {action}")
        if action == "execute_command" and not command:
            return self.fail_response("command is required for execute_command")
        if action in ("check_command_output", "terminate_command") and not session_name:
            return self.fail_response(f"session_name is required for {action}")
        try:
            container = await self._container()
            if action == "execute_command":
                return await self._execute(container, command or "", folder, session_name, blocking, timeout)
            if action == "check_command_output":
                return await self._check(container, session_name or "", kill_session)
            if action == "terminate_command":
                return await self._terminate(container, session_name or "")
            return await self._list(container)
        except (SandboxError, RuntimeError, ValueError) as wrong:
            return self.fail_response(f"Error executing shell action: {wrong}")

    def _folder(self, folder: Optional[str]) -> str:
        if folder and ".." in folder.split("/"):
            raise ValueError(f"the folder {folder!r} leads out of the workspace")
        return posixpath.join(self.work_dir, (folder or "").strip("/")).rstrip("/")

    async def _execute(self, container: AsyncSandbox, command: str, folder: Optional[str], name: Optional[str], blocking: bool,
                       timeout: int) -> ToolResult:
        name, cwd = name or f"session_{uuid.uuid4().hex[:8]}", self._folder(folder)
        if any(job.name == name and job.running for job in await container.jobs()):
            return self.fail_response(f"Session '{name}' already runs a command; check or terminate it, or use another session_name")
        # bash, as people write commands for it; one pipe for both streams keeps their order.
        job = await container.start(["bash", "-c", MERGED + command], cwd=cwd, name=name, timeout=timeout if blocking else DETACHED_SECONDS)
        if not blocking:
            return self.success_response({"session_name": name, "cwd": cwd, "completed": False, "message": f"Command sent to session '{name}'. "
                                          "Use check_command_output to view results."})
        await job.wait()
        info = await job.info()
        answer: Dict[str, Any] = {"output": _output(info), "session_name": name, "cwd": cwd, "completed": True, "exit_code": info.exit_code}
        if info.result is not None and info.result.status == "timeout":
            return self.fail_response(f"Command timed out after {timeout} seconds and was ended. Output so far: {answer['output']}")
        return self.success_response(answer)

    async def _check(self, container: AsyncSandbox, name: str, kill: bool) -> ToolResult:
        try:
            info = await container.job(name).info()
        except NotFoundError:
            return self.fail_response(f"Session '{name}' does not exist.")
        answer: Dict[str, Any] = {"output": _output(info), "session_name": name, "completed": not info.running}
        if info.running and kill:
            await container.job(name).kill()
            answer["status"] = "Session terminated."
        else:
            answer["status"] = "Session still running." if info.running else "Session ended."
        if info.exit_code is not None:
            answer["exit_code"] = info.exit_code
        return self.success_response(answer)

    async def _terminate(self, container: AsyncSandbox, name: str) -> ToolResult:
        try:
            info = await container.job(name).info()
            if info.running:
                await container.job(name).kill()
        except NotFoundError:
            return self.fail_response(f"Session '{name}' does not exist.")
        return self.success_response({"message": f"Session '{name}' terminated successfully."})

    async def _list(self, container: AsyncSandbox) -> ToolResult:
        found = [{"session_name": job.name or job.id, "command": _command(job), "started_at": job.started_at}
                 for job in await container.jobs() if job.running]
        message = f"Found {len(found)} active sessions." if found else "No active sessions found."
        return self.success_response({"message": message, "sessions": found, "count": len(found)})


def _output(info: JobInfo) -> str:
    return info.stdout + info.stderr


def _command(job: JobInfo) -> str:
    text = job.command if isinstance(job.command, str) else " ".join(map(str, job.command or []))
    return text.partition(MERGED)[2] or text
