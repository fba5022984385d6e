"""The tool that makes and changes files in a sandbox."""

from __future__ import annotations

import posixpath
import re
from typing import Any, Dict, List, Optional

from ..._async.sandbox import AsyncSandbox
from ...errors import NotFoundError, SandboxError
from .tools import SandboxTool, ToolResult

ACTIONS = ["create_file", "str_replace", "full_file_rewrite", "delete_file"]
_NEEDED: Dict[str, List[str]] = {"create_file": ["file_contents"], "str_replace": ["old_str", "new_str"],
                                 "full_file_rewrite": ["file_contents"], "delete_file": []}
SNIPPET_LINES = 4


class SandboxFilesTool(SandboxTool):
    """Files of the workspace, by paths relative to it."""

    name: str = "sandbox_files"
    description: str = ("Create, change and delete files in the workspace. All paths are relative to it. str_replace needs a string that is in "
                        "the file exactly once.")
    parameters: Dict[str, Any] = {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": ACTIONS, "description": "The file operation to perform"},
            "file_path": {"type": "string", "description": "Path of the file, relative to the workspace"},
            "file_contents": {"type": "string", "description": "Content of the file, for create_file and full_file_rewrite"},
            "old_str": {"type": "string", "description": "Text to be replaced; it must be in the file exactly once"},
            "new_str": {"type": "string", "description": "Text to put in its place"},
            "permissions": {"type": "string", "description": "Permissions of the file in octal, e.g. '644'", "default": "644"},
        },
        "required": ["action", "file_path"],
    }

    async def execute(self, action: str, file_path: Optional[str] = None, file_contents: Optional[str] = None,  # type: ignore[override]
                      old_str: Optional[str] = None, new_str: Optional[str] = None, permissions: Optional[str] = "644") -> ToolResult:
        """One of the actions. What goes wrong is in `error`, and is no exception."""
        if action not in ACTIONS:
            return self.fail_response(f"Unknown action: {action}")
        given = {"file_contents": file_contents, "old_str": old_str, "new_str": new_str}
        missing = [name for name in ["file_path", *_NEEDED[action]] if (file_path if name == "file_path" else given[name]) is None]
        if missing:
            return self.fail_response(f"{missing[0]} is required for {action}")
        mode = permissions or "644"
        if not re.fullmatch(r"0?[0-7]{3}", mode):
            return self.fail_response(f"permissions is {permissions!r}; it must be three octal digits, such as '644'")
        try:
            container = await self._container()
            name, path = self._clean(file_path or "")
            if action == "create_file":
                return await self._create(container, name, path, file_contents or "", mode)
            if action == "str_replace":
                return await self._replace(container, name, path, old_str or "", new_str or "")
            if action == "full_file_rewrite":
                return await self._rewrite(container, name, path, file_contents or "", mode)
            return await self._delete(container, name, path)
        except (SandboxError, RuntimeError, ValueError) as wrong:
            return self.fail_response(f"Error executing file action: {wrong}")

    def _clean(self, path: str) -> "tuple[str, str]":
        """The path below the workspace, and the whole of it."""
        name = path[len(self.work_dir):] if path == self.work_dir or path.startswith(self.work_dir + "/") else path
        name = name.lstrip("/")
        if not name or ".." in name.split("/") or "\0" in name:
            raise ValueError("Path contains potentially unsafe patterns")
        return name, posixpath.join(self.work_dir, name)

    async def _create(self, container: AsyncSandbox, name: str, path: str, content: str, mode: str) -> ToolResult:
        if await container.files.exists(path):
            return self.fail_response(f"File '{name}' already exists. Use full_file_rewrite to modify existing files.")
        await container.files.write(path, content, mode=f"0{mode[-3:]}")
        return self.success_response(f"File '{name}' created successfully.")

    async def _replace(self, container: AsyncSandbox, name: str, path: str, old: str, new: str) -> ToolResult:
        try:
            text = await container.files.read_text(path)
            mode = (await container.files.stat(path)).mode
        except NotFoundError:
            return self.fail_response(f"File '{name}' does not exist")
        count = text.count(old) if old else 0
        if count == 0:
            return self.fail_response(f"String '{old}' not found in file")
        before = text[:text.index(old)].count("\n")
        if count > 1:
            lines = [number for number, line in enumerate(text.split("\n"), 1) if old.split("\n")[0] in line]
            return self.fail_response(f"Multiple occurrences found in lines {lines}. Please ensure string is unique")
        changed = text.replace(old, new)
        await container.files.write(path, changed, mode=mode or None)
        snippet = changed.split("\n")[max(0, before - SNIPPET_LINES):before + SNIPPET_LINES + new.count("\n") + 1]
        return self.success_response("Replacement successful.\nSnippet of changes:\n" + "\n".join(snippet))

    async def _rewrite(self, container: AsyncSandbox, name: str, path: str, content: str, mode: str) -> ToolResult:
        if not await container.files.exists(path):
            return self.fail_response(f"File '{name}' does not exist. Use create_file to create a new file.")
        await container.files.write(path, content, mode=f"0{mode[-3:]}")
        return self.success_response(f"File '{name}' completely rewritten successfully.")

    async def _delete(self, container: AsyncSandbox, name: str, path: str) -> ToolResult:
        try:
            await container.files.delete(path)
        except NotFoundError:
            return self.fail_response(f"File '{name}' does not exist")
        return self.success_response(f"File '{name}' deleted successfully.")
