"""A private `hotcell serve` for the benchmark: its own state folder and port, stopped by SIGTERM when it is left."""

import os
import queue
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

LISTENING = re.compile(r"listening on (http://127\.0\.0\.1:(\d+))")
START_TIME, STOP_TIME = 30, 60
PARTS = {"hotcell": "keeper", "hotcell-warden": "warden", "hotcell-gateway": "gateway"}


class NoServer(Exception):
    """The server cannot be had here, and why."""


def file_system_of(folder):
    """The type of file system that a folder is on, such as "ext4"."""
    best, kind = "", "unknown"
    folder = os.path.realpath(folder)
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        for line in mounts:
            _, point, this, *_ = line.split()
            inside = folder == point or folder.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, kind = point, this
    return kind


class Server:
    """`parent`: where its folder is made, which is the file system that its history is on. `more`: configuration."""

    def __init__(self, program, parent, concurrent, more=""):
        self.program = program
        self.folder = tempfile.mkdtemp(prefix="hotcell-bench-", dir=parent)
        self.file_system = file_system_of(self.folder)
        self.process, self.port, self.said = None, None, []
        with open(os.path.join(self.folder, "config.toml"), "w", encoding="utf-8") as config:
            config.write(f'[server]\nsocket = "{self.folder}/socket"\nexecute_listen = ""\nconcurrent = {concurrent}\n'
                         + more)

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        if not os.access(self.program, os.X_OK):
            raise NoServer(f"{self.program} is not built")
        command = [self.program, "serve", "--config", f"{self.folder}/config.toml", "--state", f"{self.folder}/state",
                   "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, errors="replace")
        lines = queue.Queue()
        threading.Thread(target=self._listen, args=(self.process.stdout, lines), daemon=True).start()
        deadline = time.monotonic() + START_TIME
        while self.port is None:
            try:
                line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                line = None
            if line is None:
                raise NoServer(f"hotcell serve does not start: {' '.join(self.said)}"[:300])
            if found := LISTENING.search(line):
                self.port = int(found[2])
        while not self._is_ready():
            if time.monotonic() > deadline:
                raise NoServer(f"hotcell serve does not become ready: {' '.join(self.said)}"[:300])
            time.sleep(0.02)

    def _listen(self, stream, lines):
        """The log is read to its end, as a full pipe would hold the server up; its last lines are kept."""
        for line in stream:
            self.said = [*self.said[-19:], line.strip()]
            if self.port is None:
                lines.put(line)
        lines.put(None)

    def _is_ready(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5) as answer:
                return answer.status == 200
        except urllib.error.HTTPError:
            return False

    def stop(self):
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_TIME)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def memory(self):
        """{"keeper": {"rss": MiB, "pss": MiB}, "warden": …, "gateway": …} as they are at this moment."""
        found = {}
        for pid in (self.process.pid, *children_of(self.process.pid)):
            with open(f"/proc/{pid}/comm", encoding="utf-8") as comm:
                part = PARTS.get(comm.read().strip())
            if part is not None:
                with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as rollup:
                    sizes = dict(re.findall(r"^(Rss|Pss):\s+(\d+) kB", rollup.read(), re.M))
                found[part] = {"rss": int(sizes["Rss"]) / 1024, "pss": int(sizes["Pss"]) / 1024}
        return found


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as children:
        return [int(child) for child in children.read().split()]
