"""Where a server is, and how to show oneself to it."""

from __future__ import annotations

import os
import ssl
import urllib.parse
from typing import Dict, NamedTuple, Optional, Union

from .errors import InvalidRequestError

DEFAULT = "http://127.0.0.1:7600"


class Address(NamedTuple):
    """`unix` is the path of a socket, or None for TCP. `prefix` is what stands before every path."""

    text: str
    host: str
    port: int
    unix: Optional[str]
    tls: Optional[ssl.SSLContext]
    prefix: str

    @property
    def host_header(self) -> str:
        if self.unix is not None:
            return "localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


def _tls(ca: Optional[str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def parse_address(text: Optional[str], ca: Optional[str] = None) -> Address:
    """http://HOST:PORT, https://HOST:PORT or unix:PATH. None: $HOTCELL_SERVER, or http://127.0.0.1:7600."""
    text = text or os.environ.get("HOTCELL_SERVER") or DEFAULT
    if text.startswith("unix:"):
        path = text[len("unix:"):]
        if path.startswith("//"):
            path = path[2:]
        if not path:
            raise InvalidRequestError(f"the address {text!r} has no path; write unix:/run/hotcell/hotcell.sock", field="address")
        return Address(text, "localhost", 0, path, None, "")
    parts = urllib.parse.urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidRequestError(f"the address {text!r} is neither http://HOST:PORT, https://HOST:PORT nor unix:PATH", field="address")
    if parts.username or parts.query or parts.fragment:
        raise InvalidRequestError(f"the address {text!r} has more than a host, a port and a path; a key is given as key=", field="address")
    try:
        port = parts.port
    except ValueError as wrong:
        raise InvalidRequestError(f"the address {text!r} has a port that is none: {wrong}", field="address") from None
    secure = parts.scheme == "https"
    context = _tls(ca or os.environ.get("HOTCELL_CA") or None) if secure else None
    return Address(text, parts.hostname, port or (443 if secure else 80), None, context, parts.path.rstrip("/"))


def find_key(key: Optional[str], key_file: Union[str, "os.PathLike[str]", None]) -> Optional[str]:
    """The key itself, the first line of a file, or $HOTCELL_KEY."""
    if key is not None and key_file is not None:
        raise InvalidRequestError("key and key_file are both given; one of them is enough", field="key")
    if key_file is not None:
        with open(key_file, encoding="ascii", errors="strict") as file:
            key = file.readline(4096).strip()
        if not key:
            raise InvalidRequestError(f"the key file {os.fspath(key_file)!r} is empty", field="key_file")
    if key is None:
        key = os.environ.get("HOTCELL_KEY") or None
    if key is not None and (not key.isascii() or not key.isprintable() or " " in key):
        raise InvalidRequestError("the key has characters that no key has", field="key")
    return key


def auth_headers(key: Optional[str]) -> Dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}
