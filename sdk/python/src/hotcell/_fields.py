"""Arguments in, fields of a request out."""

from __future__ import annotations

import base64
import os
from typing import Any, Dict, Iterable, Mapping, Optional, Union

from .errors import InvalidRequestError

#: A file for a run or a sandbox: text, bytes, or the path of a file of this machine.
FileContent = Union[str, bytes, "os.PathLike[str]", Mapping[str, Any]]


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


def run_fields(code: Union[str, bytes, None], language: Optional[str], options: Mapping[str, Any]) -> Dict[str, Any]:
    """The body of POST /v1/runs. `options` are those of Client.run."""
    options = dict(options)
    timeout, limits, files = options.pop("timeout", None), options.pop("limits", None), options.pop("files", None)
    command, stdin = options.pop("command", None), options.pop("stdin", None)
    unknown = sorted(set(options) - RUN_OPTIONS)
    if unknown:
        raise InvalidRequestError(f"{unknown[0]!r} is no option of a run; there are: {', '.join(sorted(RUN_OPTIONS))}", field=unknown[0])
    return given(code=None if code is None else text_or_base64(code), language=language, command=words(command),
                 stdin=None if stdin is None else text_or_base64(stdin), files=files_field(files), limits=limits_field(limits, timeout),
                 **{name: list(value) if name in LISTS and value is not None else value for name, value in options.items()})


RUN_OPTIONS = {"entry", "args", "env", "stdin_open", "read_only", "mounts", "stages", "tests", "collect", "metadata", "network", "image", "cache"}
LISTS = {"args", "mounts", "stages", "tests", "collect"}


def exec_fields(command: Any, options: Mapping[str, Any]) -> Dict[str, Any]:
    """The body of POST …/exec."""
    options = dict(options)
    code, stdin, args = options.pop("code", None), options.pop("stdin", None), options.pop("args", None)
    unknown = sorted(set(options) - EXEC_OPTIONS)
    if unknown:
        raise InvalidRequestError(f"{unknown[0]!r} is no option of an exec; there are: {', '.join(sorted(EXEC_OPTIONS))}", field=unknown[0])
    return given(command=words(command), code=None if code is None else text_or_base64(code), args=words(args),
                 stdin=None if stdin is None else text_or_base64(stdin), **options)


EXEC_OPTIONS = {"language", "env", "cwd", "timeout", "output", "session", "detach", "stdin_open", "name", "metadata"}


def answer_time(fields: Mapping[str, Any], patience: Optional[float]) -> Optional[float]:
    """How long an answer may take that comes when a program has ended: None, for ever, unless one knows how long it may run."""
    limits = fields.get("limits") or {}
    timeout = limits.get("timeout", fields.get("timeout"))
    if patience is None or not isinstance(timeout, (int, float)) or fields.get("stages") or fields.get("tests"):
        return None
    return float(timeout) + max(patience, 60.0) + 60.0  # its turn may take a while to come, and so may a compiler
