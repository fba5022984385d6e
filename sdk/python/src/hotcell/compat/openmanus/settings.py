"""The settings of a sandbox."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Dict


@dataclass
class SandboxSettings:
    """`image` is taken and means nothing: the system in a cell is the server's own. `timeout` is of a command, in seconds."""

    use_sandbox: bool = False
    image: str = "python:3.12-slim"
    work_dir: str = "/workspace"
    memory_limit: str = "512m"
    cpu_limit: float = 1.0
    timeout: int = 300
    network_enabled: bool = False

    def model_dump(self) -> Dict[str, Any]:
        """As a dictionary."""
        return asdict(self)
