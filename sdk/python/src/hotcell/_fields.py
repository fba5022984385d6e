"""Arguments in, fields of a request out."""

from __future__ import annotations

import base64
import os
from typing import Any, Dict, Iterable, List, Mapping, Optional, TypedDict, Union

from .errors import InvalidRequestError

#: A file for a run or a sandbox: text, bytes, or the path of a file of this machine.
FileContent = Union[str, bytes, "os.PathLike[str]", Mapping[str, Any]]

#: A size: bytes, or text such as "512m".
Size = Union[int, str]


class Limits(TypedDict, total=False):
    """Limits of a run or a sandbox."""

    timeout: Union[float, str]
    cpu_time: Union[float, str, None]
    memory: Size
    swap: Size
    cpus: float
    cpu_shares: int
    pids: int
    output: Size
    disk: Size
    inodes: int
    files_open: int


class RunOptions(TypedDict, total=False):
    """Options of Client.run and its kin. None is as if it were not given."""

    command: Union[str, Iterable[str], None]
    entry: Optional[str]
    files: Optional[Mapping[str, FileContent]]
    stdin: Union[str, bytes, None]
    stdin_open: Optional[bool]
    args: Optional[Iterable[str]]
    env: Optional[Mapping[str, str]]
    limits: Optional[Limits]
    timeout: Optional[float]
    read_only: Optional[bool]
    mounts: Optional[Iterable[Mapping[str, Any]]]
    stages: Optional[Iterable[Mapping[str, Any]]]
    tests: Optional[Iterable[Mapping[str, Any]]]
    collect: Optional[Iterable[str]]
    metadata: Optional[Mapping[str, Any]]
    network: Optional[str]
    image: Optional[str]
    cache: Optional[bool]


class ExecOptions(TypedDict, total=False):
    """Options of Sandbox.exec and its kin. None is as if it were not given."""

    code: Union[str, bytes, None]
    language: Optional[str]
    args: Optional[Iterable[str]]
    stdin: Union[str, bytes, None]
    stdin_open: Optional[bool]
    env: Optional[Mapping[str, str]]
    cwd: Optional[str]
    timeout: Optional[float]
    output: Optional[Size]
    session: Optional[str]
    name: Optional[str]
    metadata: Optional[Mapping[str, Any]]


def text_or_base64(value: Union[str, bytes]) -> Any:
    """Text stays text; bytes, and text that UTF-8 cannot say, become base64."""
    if isinstance(value, (bytes, bytearray)):
        return {"base64": base64.b64encode(bytes(value)).decode()}
    try:
        value.encode()
    except UnicodeEncodeError:
        return {"base64": base64.b64encode(value.encode("utf-8", "surrogatepass")).decode()}
    return value


def files_field(files: Optional[Mapping[str, FileContent]]) -> Optional[Dict[str, Any]]:
    if files is None:
        return None
    found: Dict[str, Any] = {}
    for name, content in files.items():
        if isinstance(content, Mapping):
            found[name] = dict(content)
        elif isinstance(content, (str, bytes, bytearray)):
            found[name] = text_or_base64(content if isinstance(content, str) else bytes(content))
        elif isinstance(content, os.PathLike):
            with open(content, "rb") as file:
                found[name] = {"base64": base64.b64encode(file.read()).decode(), "executable": bool(os.fstat(file.fileno()).st_mode & 0o100)}
        else:
            raise InvalidRequestError(f"the file {name!r} is {type(content).__name__}; it must be str, bytes or a path", field=f"files.{name}")
    return found


def limits_field(limits: Optional[Mapping[str, Any]], timeout: Optional[float]) -> Optional[Dict[str, Any]]:
    if timeout is None:
        return dict(limits) if limits is not None else None
    return {**(limits or {}), "timeout": timeout}


def given(**fields: Any) -> Dict[str, Any]:
    """Those that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def words(value: Union[str, Iterable[str], None]) -> Any:
    return value if value is None or isinstance(value, str) else list(value)


def _check_names(options: Mapping[str, Any], kind: Any, what: str) -> None:
    unknown = sorted(set(options) - set(kind.__annotations__))
    if unknown:
        raise InvalidRequestError(f"{unknown[0]!r} is no option of {what}; there are: {', '.join(sorted(kind.__annotations__))}", field=unknown[0])


def run_fields(code: Union[str, bytes, None], language: Optional[str], options: Mapping[str, Any]) -> Dict[str, Any]:
    """The body of POST /v1/runs."""
    _check_names(options, RunOptions, "a run")
    fields = dict(options)
    timeout, limits, files = fields.pop("timeout", None), fields.pop("limits", None), fields.pop("files", None)
    command, stdin = fields.pop("command", None), fields.pop("stdin", None)
    lists: List[str] = ["args", "mounts", "stages", "tests", "collect"]
    fields.update({name: list(fields[name]) for name in lists if fields.get(name) is not None})
    return given(code=None if code is None else text_or_base64(code), language=language, command=words(command),
                 stdin=None if stdin is None else text_or_base64(stdin), files=files_field(files), limits=limits_field(limits, timeout), **fields)


def exec_fields(command: Any, options: Mapping[str, Any]) -> Dict[str, Any]:
    """The body of POST …/exec."""
    _check_names(options, ExecOptions, "an exec")
    fields = dict(options)
    code, stdin, args = fields.pop("code", None), fields.pop("stdin", None), fields.pop("args", None)
    return given(command=words(command), code=None if code is None else text_or_base64(code), args=None if args is None else list(args),
                 stdin=None if stdin is None else text_or_base64(stdin), **fields)


def answer_time(fields: Mapping[str, Any], patience: Optional[float]) -> Optional[float]:
    """How long an answer may take that comes when a program has ended: None, for ever, unless one knows how long it may run."""
    limits = fields.get("limits") or {}
    timeout = limits.get("timeout", fields.get("timeout"))
    if patience is None or not isinstance(timeout, (int, float)) or fields.get("stages") or fields.get("tests"):
        return None
    return float(timeout) + max(patience, 60.0) + 60.0  # its turn may take a while to come, and so may a compiler
