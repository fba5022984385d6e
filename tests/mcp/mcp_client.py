"""An official client of the Model Context Protocol, driven from Python: driver.mjs, one step at a time."""

import contextlib
import json
import os
import pathlib
import subprocess

from cells import SLOW, machine_is_weak

HERE = pathlib.Path(__file__).resolve().parent
# A private server on a machine that cannot enforce every layer is one that says so.
PRIVATE = ["--private", *(["--allow-weak"] if machine_is_weak() else [])]


class Failure(Exception):
    """What the client's library threw."""

    def __init__(self, outcome):
        super().__init__(outcome["error"])
        self.code = outcome["code"]


class Client:
    """driver.mjs, one step at a time: client.do("call", name="run_code", arguments={…})."""

    def __init__(self, modules, generation, *transport):
        words = ["node", str(HERE / "driver.mjs"), str(modules), generation, *map(str, transport)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"})

    def do(self, what, **step):
        self.process.stdin.write(json.dumps({"do": what, **step}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the client has ended: {self.process.wait(10)}"
        outcome = json.loads(line)
        if "error" in outcome:
            raise Failure(outcome)
        return outcome["ok"]

    def call(self, name, /, progress=False, **arguments):
        return self.do("call", name=name, arguments=arguments, progress=progress)

    def close(self):
        if self.process is None:
            return
        self.process.stdin.close()
        code = self.process.wait(30 * SLOW)
        self.process.stdout.close()
        self.process = None
        assert code == 0, f"the client ended with {code}"

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.close()
        else:
            with contextlib.suppress(OSError):
                self.process.kill()
            self.process.wait()
