"""A sandbox for pieces of code in several languages, with a history and debug reports.

    before: from autonomous.code_sandbox import CodeSandbox, ResourceLimits, AutoDebuggerIntegration
    after:  from hotcell.compat.code_sandbox import CodeSandbox, ResourceLimits, AutoDebuggerIntegration

The same names and answers. What differs: `files` cannot lead out of the folder; standard input arrives; `resource_usage`, `memory_used` and
`cpu_percent` are measured; running out of memory is told from a crash (`error_message`); the code's own file is named main, so that it shadows
nothing of the standard library; timeouts may be longer than 30 s. There are no images: languages are those of the server's machine.
"""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Dict, List, Mapping, Optional, Union

from .._sync.client import Client
from ..errors import NotFoundError, SandboxError
from ..models import Result
from . import client as compat_client

TIMEOUT_EXIT_CODE = 124
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def _bytes(text: str, name: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([bkmgt]?)(?:i?b)?", str(text).strip().lower())
    if not match:
        raise ValueError(f"{name} is {text!r}; it must be a size such as 512m")
    return int(float(match[1]) * _UNITS[match[2]])


@dataclass
class ResourceLimits:
    """What a piece of code may use. `memory_swap` is memory and swap together, as docker counts."""

    memory_limit: str = "512m"
    memory_swap: Optional[str] = None
    cpu_quota: int = 100000
    cpu_period: int = 100000
    cpu_shares: int = 1024
    pids_limit: int = 100
    timeout_seconds: int = 30

    def __post_init__(self) -> None:
        _bytes(self.memory_limit, "memory_limit")
        for name in ("cpu_quota", "cpu_period", "cpu_shares", "pids_limit", "timeout_seconds"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or value <= 0:
                raise ValueError(f"{name} is {value!r}; it must be a number above 0")

    def fields(self) -> Dict[str, Any]:
        """As limits of a run."""
        memory = _bytes(self.memory_limit, "memory_limit")
        found: Dict[str, Any] = {"memory": memory, "cpus": self.cpu_quota / self.cpu_period, "cpu_shares": self.cpu_shares,
                                 "pids": self.pids_limit, "timeout": self.timeout_seconds}
        if self.memory_swap is not None:
            swap = _bytes(self.memory_swap, "memory_swap") - memory
            if swap < 0:
                raise ValueError(f"memory_swap is {self.memory_swap!r}; it counts memory as well, and must be at least {self.memory_limit}")
            found["swap"] = swap
        return found


@dataclass
class ExecutionResult:
    """What became of a piece of code."""

    success: bool
    exit_code: int
    stdout: str
    stderr: str
    execution_time: float
    timeout: bool = False
    error_message: Optional[str] = None
    container_id: Optional[str] = None
    language: Optional[str] = None
    timestamp: datetime = field(default_factory=datetime.now)
    resource_usage: Dict[str, Any] = field(default_factory=dict)
    output_files: Dict[str, bytes] = field(default_factory=dict)
    memory_used: Optional[int] = None
    cpu_percent: Optional[float] = None


# Name, the server's name, how its runtime is called and how much of the version belongs to that, extension, description.
_LANGUAGES = {
    "python": ("python", "Python", 2, ".py", "Python code"),
    "python3": ("python", "Python", 2, ".py", "Python code"),
    "javascript": ("javascript", "Node.js", 1, ".js", "JavaScript code for Node.js"),
    "js": ("javascript", "Node.js", 1, ".js", "JavaScript code for Node.js"),
    "bash": ("bash", "Bash", 1, ".sh", "Bash scripts"),
    "sh": ("sh", "POSIX shell", 0, ".sh", "Shell scripts"),
    "ruby": ("ruby", "Ruby", 2, ".rb", "Ruby code"),
    "go": ("go", "Go", 2, ".go", "Go programs"),
}


class CodeSandbox:
    """Runs pieces of code, each in a fresh cell. `use_docker_api` is taken and means nothing."""

    def __init__(self, default_limits: Optional[ResourceLimits] = None, use_docker_api: bool = True) -> None:
        self.default_limits = default_limits or ResourceLimits()
        self.use_docker_api = use_docker_api
        self._history: List[Dict[str, Any]] = []
        self._usage: Dict[str, Dict[str, Any]] = {}
        self._running: Dict[str, Client] = {}
        self._versions: Dict[str, str] = {}
        self._lock = threading.Lock()

    # ---- languages ----

    def _version(self, language: str) -> str:
        """The version of one of the server's languages. A server that has just started finds versions out one after the other."""
        deadline = time.monotonic() + 5
        while language not in self._versions:
            with compat_client() as client:
                for one in client.languages():
                    if one.version or not one.available or time.monotonic() > deadline:
                        self._versions.setdefault(one.name, one.version or "")
            if language not in self._versions and time.monotonic() > deadline:
                return ""
            if language not in self._versions:
                time.sleep(0.05)
        return self._versions[language]

    def _runtime(self, name: str) -> str:
        server_name, runtime, parts, _, _ = _LANGUAGES[name]
        version = ".".join(self._version(server_name).split(".")[:parts])
        return f"{runtime} {version}".strip()

    def list_supported_languages(self) -> List[Dict[str, str]]:
        """Each with language, runtime, extension, image and description."""
        return [{"language": name, "runtime": self._runtime(name), "extension": facts[3], "image": "host", "description": facts[4]}
                for name, facts in _LANGUAGES.items()]

    # ---- running ----

    def execute(self, code: str, language: str, limits: Optional[ResourceLimits] = None, network_enabled: bool = False,
                env_vars: Optional[Dict[str, str]] = None, files: Optional[Dict[str, str]] = None, read_only: bool = True,
                **more: Any) -> ExecutionResult:
        """Runs a piece of code. `files` lie beside it, in /sandbox. More options are those of hotcell.Client.run, such as `collect`."""
        name = language.strip().lower() if isinstance(language, str) else ""
        if name not in _LANGUAGES:
            message = f"Unsupported language: {language}. Supported: {', '.join(_LANGUAGES)}"
            return ExecutionResult(False, -1, "", message, 0.0, error_message=message, language=str(language))
        server_name, _, _, extension, _ = _LANGUAGES[name]
        limits = limits or self.default_limits
        entry = f"sandbox_main{extension}" if f"main{extension}" in (files or {}) else None
        begun = time.monotonic()
        try:
            result = self._run(code, server_name, limits=limits.fields(), network="internet" if network_enabled else None, env=env_vars,
                               files=files, read_only=read_only, entry=entry, **more)
        except (SandboxError, ValueError) as wrong:
            return ExecutionResult(False, -1, "", str(wrong), time.monotonic() - begun, error_message=str(wrong), language=name)
        answer = self._answer(result, f"{name} ({self._runtime(name)})", limits)
        self._remember(answer)
        return answer

    def _run(self, code: str, language: str, **options: Any) -> Result:
        """As a stream, which tells the run's id at once, so that another thread can end it."""
        with compat_client() as client, client.stream(code, language, **options) as events:
            try:
                for event in events:
                    if event.name == "start":
                        with self._lock:
                            self._running[event.data["id"]] = client
            finally:
                with self._lock:
                    self._running.pop(events.id or "", None)
            if events.result is None:
                raise SandboxError("the server gave no result")
            return events.result

    def _answer(self, result: Result, language: str, limits: ResourceLimits) -> ExecutionResult:
        usage, error, stderr, code = result.usage, None, result.stderr, result.exit_code
        if result.timed_out or result.status == "timeout":
            error, code = f"Execution timed out after {limits.timeout_seconds}s", TIMEOUT_EXIT_CODE
            stderr += f"{'' if not stderr or stderr.endswith(chr(10)) else chr(10)}{error}"
        elif not result.success:
            last = stderr.strip().rsplit("\n", 1)[-1]
            message = result.diagnosis.message if result.diagnosis is not None else None
            error = (message or last or f"exit code {code}") if result.status != "error" else (last or message or f"exit code {code}")
        facts: Dict[str, Any] = {**(result.raw.get("usage") or {}), "status": result.status}
        if result.tests is not None:
            facts["tests"] = result.tests
        return ExecutionResult(
            result.success, code if code is not None else -1, result.stdout, stderr, usage.wall_ms / 1000, timeout=error is not None and
            code == TIMEOUT_EXIT_CODE and (result.timed_out or result.status == "timeout"), error_message=error, container_id=result.id,
            language=language, resource_usage=facts, output_files={one.path: one.content for one in result.files}, memory_used=usage.memory_peak,
            cpu_percent=round(100 * usage.cpu_ms / usage.wall_ms, 1) if usage.wall_ms else 0.0)

    def execute_with_input(self, code: str, language: str, stdin: str = "", **options: Any) -> ExecutionResult:
        """The same, with something to read."""
        return self.execute(code, language, stdin=stdin, **options)

    def execute_tests(self, code: str, tests: Union[str, List[Mapping[str, Any]]], language: str, **options: Any) -> ExecutionResult:
        """Tests of a piece of code. Text is more code, which is put below it and run with it. A list has [{"stdin", "expect_stdout"}]: the program
        is run once for each, success is when all pass, and `resource_usage["tests"]` has each verdict."""
        if isinstance(tests, str):
            return self.execute(f"{code}\n\n{tests}\n", language, **options)
        answer = self.execute(code, language, tests=[dict(test) for test in tests], **options)
        verdicts = [one.get("verdict") for one in answer.resource_usage.get("tests") or []]
        if answer.container_id is not None and any(verdict != "passed" for verdict in verdicts):
            answer.success = False
            answer.error_message = f"{verdicts.count('passed')} of {len(verdicts)} tests passed"
        return answer

    # ---- what has been ----

    def _remember(self, answer: ExecutionResult) -> None:
        with self._lock:
            self._history.append({"timestamp": answer.timestamp.isoformat(), "language": answer.language, "success": answer.success,
                                  "exit_code": answer.exit_code, "execution_time": answer.execution_time, "container_id": answer.container_id})
            if answer.container_id:
                self._usage[answer.container_id] = answer.resource_usage

    def get_execution_history(self, limit: Optional[int] = None) -> List[Dict[str, Any]]:
        """What this object has run, oldest first; with `limit`, the last so many."""
        with self._lock:
            found = [dict(entry) for entry in self._history]
        return found if limit is None else (found[-limit:] if limit > 0 else [])

    def get_resource_usage(self, container_id: str) -> Dict[str, Any]:
        """What a run used, by its id. Empty for one that is not known."""
        with self._lock:
            known = self._usage.get(container_id)
        if known is not None:
            return dict(known)
        try:
            with compat_client() as client:
                return dict(client.describe_run(container_id).get("usage") or {})
        except NotFoundError:
            return {}

    def cleanup_all_containers(self) -> None:
        """Ends what other threads run by this object at this moment. Nothing else is ever left."""
        with self._lock:
            running = list(self._running)
        for run in running:
            try:
                with compat_client() as client:
                    client.cancel(run)
            except SandboxError:
                continue  # it has ended meanwhile


class AutoDebuggerIntegration:
    """Reports for whoever shall mend the code."""

    @staticmethod
    def create_debug_report(result: ExecutionResult) -> Dict[str, Any]:
        """The facts of a result."""
        report: Dict[str, Any] = {
            "status": "success" if result.success else "failure", "exit_code": result.exit_code, "execution_time": result.execution_time,
            "timestamp": result.timestamp.isoformat(), "language": result.language, "container_id": result.container_id,
            "output": {"stdout": result.stdout, "stderr": result.stderr}, "resource_usage": dict(result.resource_usage),
        }
        if not result.success:
            report["error_type"] = "timeout" if result.timeout else "execution_error"
            report["error_message"] = result.error_message or result.stderr.strip() or f"exit code {result.exit_code}"
        return report

    @staticmethod
    def analyze_error(result: ExecutionResult) -> Dict[str, Any]:
        """What kind of failure it was: timeout, execution_failure, python_exception, sandbox_error or unknown."""
        if result.success:
            return {"is_error": False, "error_type": None, "error": None, "suggestion": None}
        found: Dict[str, Any] = {"is_error": True, "error_type": "unknown", "error": result.error_message or result.stderr.strip() or None,
                                 "suggestion": "Look at stdout and stderr."}
        lines = result.stderr.strip().splitlines()
        status = result.resource_usage.get("status")
        if result.timeout:
            found.update(error_type="timeout", suggestion="Give it more time with timeout_seconds, or look for a loop that does not end.")
        elif result.container_id is None:
            found.update(error_type="sandbox_error", suggestion="The code was not run: see the message.")
        elif status in ("oom", "pids_limit", "output_limit"):
            name = {"oom": "memory_limit", "pids_limit": "pids_limit", "output_limit": "what the code prints"}[status]
            found.update(error_type="execution_failure", suggestion=f"The code ran into a limit: {name}.")
        elif "Traceback (most recent call last)" in result.stderr or re.match(r"^\w*(Error|Exception)\b", lines[-1] if lines else ""):
            exception = lines[-1]
            found.update(error_type="python_exception", exception=exception, error=exception,
                         suggestion=f"Mend what raises {exception.split(':')[0]}; the traceback in stderr says where.")
        elif result.exit_code != 0:
            found.update(error_type="execution_failure", suggestion=f"The program ended with exit code {result.exit_code}; stderr may say why.")
        return found
