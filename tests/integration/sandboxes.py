"""What the tests of sandboxes share: one sandbox of a private server, whose every answer is checked against /openapi.json.

    from sandboxes import Sandbox, box, contract                # with `server` or `start_server` of server.py

    def test_something(box):
        assert box.exec("echo hello").json["stdout"] == "hello\\n"
"""

import contextlib
import os
import pathlib
import re
import time
import urllib.parse

import pytest

from cells import SLOW
from openapi import Contract

ROOT = "/v1/sandboxes"


def wait_for(what, within=20, every=0.05):
    """What `what` returns, once that is true."""
    deadline = time.monotonic() + within * SLOW
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(every)
    return found


class Sandbox:
    """One of them. `headers` go with every request; a method returns the Answer, which has been checked."""

    def __init__(self, server, headers=None, contract=None, **fields):
        self.server, self.headers = server, headers or {}
        self.contract = contract or Contract(server.get("/openapi.json").json)
        self.contract.validate(fields, "SandboxRequest")
        self.made = self.contract.check("POST", ROOT, server.post(ROOT, fields, headers=self.headers))
        assert self.made.status == 201, self.made
        self.id = self.made.json["id"]

    def ask(self, method, below="", body=None, headers=None, within=60, **names):
        """`below` is a pattern of the document's after {id}, with its {names} given by keyword and a query behind it."""
        pattern, _, query = below.partition("?")
        path = ROOT + f"/{self.id}" + pattern
        for name, value in names.items():
            path = path.replace("{" + name + "}", urllib.parse.quote(value, safe="/" if name == "path" else ""))
        answer = self.server.request(method, path + ("?" + query if query else ""), body, headers={**self.headers, **(headers or {})}, within=within)
        if method != "HEAD":
            self.contract.check(method, ROOT + "/{id}" + pattern, answer)
        return answer

    # ---- life ----

    def look(self):
        return self.ask("GET").json

    @property
    def state(self):
        return self.look()["state"]

    def delete(self):
        return self.ask("DELETE")

    # ---- exec ----

    def exec(self, command=None, within=60, **fields):
        if command is not None:
            fields["command"] = command
        self.contract.validate(fields, "ExecRequest")
        return self.ask("POST", "/exec", fields, within=within)

    def out(self, command, **fields):
        """The stdout of a command that must succeed."""
        answer = self.exec(command, **fields)
        assert answer.status == 200 and answer.json["status"] == "completed", answer
        return answer.json["stdout"]

    def events(self, fields, below="/exec", schema="Event"):
        with self.server.events(f"{ROOT}/{self.id}{below}", fields, headers=self.headers) as stream:
            assert stream.status == 200, stream.response.read()
            found = list(stream)
        for event in found:
            self.contract.check_event(event, schema)
        return found

    def detach(self, command, **fields):
        """The id of a job."""
        answer = self.exec(command, detach=True, **fields)
        assert answer.status == 202, answer
        assert answer.headers["location"] == f"{ROOT}/{self.id}/jobs/{answer.json['id']}"
        return answer.json["id"]

    def job(self, job, query="", within=60):
        return self.ask("GET", "/jobs/{job}" + query, job=job, within=within).json

    def job_events(self, job, last=None):
        headers = {**self.headers, **({"Last-Event-ID": last} if last else {})}
        with self.server.events(f"{ROOT}/{self.id}/jobs/{job}/events", headers=headers) as stream:
            assert stream.status in (200, 204), stream.response.read()
            found = list(stream)
        for event in found:
            self.contract.check_event(event, "JobEvent")
        return found

    # ---- sessions and contexts ----

    def shell(self, command, session="main", **fields):
        return self.exec(command, session=session, **fields)

    def context(self, language="python", **fields):
        """The id of a new one."""
        answer = self.ask("POST", "/contexts", {"language": language, **fields})
        assert answer.status == 201, answer
        return answer.json["id"]

    def run(self, context, code, within=60, **fields):
        fields = {"code": code, **fields}
        self.contract.validate(fields, "ContextExecute")
        return self.ask("POST", "/contexts/{context}/execute", fields, context=context, within=within)

    def value(self, context, code):
        """The text of the last expression's value."""
        answer = self.run(context, code)
        assert answer.json["status"] == "completed", answer
        return next(one["data"] for one in answer.json["results"] if one.get("value") and one["type"] == "text/plain")

    # ---- files ----

    def put(self, path, data, query=""):
        return self.ask("PUT", "/files/{path}" + query, data, path=path)

    def get(self, path, headers=None):
        return self.ask("GET", "/files/{path}", path=path, headers=headers)

    def facts(self, path, more=""):
        return self.ask("GET", "/files?path=" + urllib.parse.quote(path, safe="") + more)

    # ---- from outside ----

    def groups(self):
        """The control groups of its jobs that are there, wherever this machine has them."""
        found = set()
        for mount in {line.split()[1] for line in pathlib.Path("/proc/self/mounts").read_text().splitlines() if " cgroup" in line}:
            for folder, groups, _ in os.walk(mount):  # other tests' groups go meanwhile
                if f"hotcell-{self.server.process.pid}-" in folder:
                    found |= {os.path.join(folder, group) for group in groups if re.match("job[0-9]", group)}
        return found


@pytest.fixture(scope="module")
def contract(server):
    return Contract(server.get("/openapi.json").json)


@pytest.fixture
def box(server, contract):
    """A sandbox of its own for one test."""
    one = Sandbox(server, contract=contract)
    yield one
    with contextlib.suppress(OSError):
        server.delete(f"{ROOT}/{one.id}")


def guests(server, word):
    """The pids of processes under a server whose command line has `word`."""
    found = []
    for pid in server.descendants():
        with contextlib.suppress(OSError):
            if word.encode() in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found
