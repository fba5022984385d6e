"""A private Docker daemon for the benchmark, and an image made of this machine's own files.

Nothing of an installed Docker is touched: the daemon has its own data, state, pid file and socket, all in the
benchmark's temporary folder, no bridge and no firewall rules. It is stopped by its pid. The image needs no network: it
is the interpreter, its standard library and its shared objects, and true and sleep, packed into a tar and imported.
"""

import json
import os
import re
import subprocess
import sys
import tarfile
import time

IMAGE = "hotcell-bench:host"
SMALL = ("/usr/bin/true", "/usr/bin/sleep")  # for containers that stay, and what is executed in them
START_SECONDS = 30
STOP_SECONDS = 20


class Unavailable(Exception):
    """A contender that cannot be had, and why."""


class Docker:
    def __init__(self, docker, dockerd, folder, cgroup_parent):
        self.folder = os.path.join(folder, "docker")
        self.socket = f"unix://{self.folder}/sock"
        self.client = [docker, "-H", self.socket]
        self.daemon = None
        self.log_path = os.path.join(self.folder, "dockerd.log")
        self.start_command = [
            dockerd, "-H", self.socket, "--data-root", f"{self.folder}/data", "--exec-root", f"{self.folder}/exec",
            "--pidfile", f"{self.folder}/pid", "--iptables=false", "--ip6tables=false", "--bridge=none",
            "--cgroup-parent", cgroup_parent, "--config-file", f"{self.folder}/daemon.json",
        ]

    def start(self):
        """Starts the daemon and imports the image. Raises Unavailable, and leaves nothing running, when it cannot."""
        os.makedirs(self.folder)
        with open(os.path.join(self.folder, "daemon.json"), "w", encoding="utf-8") as config:
            json.dump({}, config)
        with open(self.log_path, "wb") as log:
            self.daemon = subprocess.Popen(self.start_command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                           start_new_session=True)
        try:
            self._wait_until_up()
            self._import_image()
        except BaseException:
            self.stop()
            raise

    def _wait_until_up(self):
        deadline = time.monotonic() + START_SECONDS
        while True:
            if self.daemon.poll() is not None:
                raise Unavailable(f"dockerd ended at start: {self._last_error()}")
            if subprocess.run(self.client + ["version"], capture_output=True, check=False).returncode == 0:
                return
            if time.monotonic() > deadline:
                raise Unavailable(f"dockerd did not answer within {START_SECONDS} s: {self._last_error()}")
            time.sleep(0.2)

    def _last_error(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            lines = [line.strip() for line in log if line.strip()]
        wrong = [line for line in lines if "level=error" in line or "level=fatal" in line or "failed" in line]
        return (wrong or lines or ["no output"])[-1][-300:]

    def _import_image(self):
        archive = os.path.join(self.folder, "image.tar")
        pack_host_python(archive)
        done = subprocess.run(self.client + ["import", archive, IMAGE], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, check=False)
        os.unlink(archive)
        if done.returncode != 0:
            raise Unavailable(f"docker import: {done.stderr.strip()[-300:]}")

    def command(self, *argv):
        return self.client + ["run", "--rm", "--network", "none", IMAGE, *argv]

    def version(self):
        shown = subprocess.run(self.client + ["version", "--format", "{{.Client.Version}}, server {{.Server.Version}}"],
                               capture_output=True, text=True, check=False)
        return shown.stdout.strip()

    def stop(self):
        if self.daemon is None:
            return
        self.daemon.terminate()
        try:
            self.daemon.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            print(f"bench: dockerd did not stop within {STOP_SECONDS} s, killing it", file=sys.stderr)
            self.daemon.kill()
            self.daemon.wait()
        self.daemon = None
        self._unmount_rest()

    def _unmount_rest(self):
        """The daemon may leave its network namespace and storage mounts behind; the folder could not be removed."""
        with open("/proc/self/mountinfo", encoding="utf-8") as table:
            points = [re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), line.split()[4]) for line in table]
        for point in reversed(points):
            if point.startswith(self.folder + "/"):
                subprocess.run(["umount", "-l", point], check=False)


def pack_host_python(archive):
    """Writes a tar with python3, its standard library and its libraries, at the paths that they have here."""
    program = os.path.realpath("/usr/bin/python3")
    asked = subprocess.run([program, "-I", "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"],
                           capture_output=True, text=True, check=True)
    library = asked.stdout.strip()
    wanted = [program, *SMALL] + shared_objects([program, *SMALL] + extension_modules(library))
    with tarfile.open(archive, "w") as tar:
        for name in ("bin", "lib", "lib64"):
            if os.path.islink(f"/{name}"):
                tar.add(f"/{name}", arcname=name, recursive=False)
        for path in wanted:
            tar.add(os.path.realpath(path), arcname=real_parent(path).lstrip("/"))
        link = tarfile.TarInfo("usr/bin/python3")
        link.type, link.linkname = tarfile.SYMTYPE, os.path.basename(program)
        tar.addfile(link)
        tar.add(library, arcname=library.lstrip("/"), filter=keep)


def extension_modules(library):
    folder = os.path.join(library, "lib-dynload")
    return [os.path.join(folder, name) for name in os.listdir(folder)] if os.path.isdir(folder) else []


def shared_objects(programs):
    listed = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    return sorted(set(re.findall(r"(?:=> |^\s)(/\S+) \(0x", listed, re.MULTILINE)))


def real_parent(path):
    """/lib64/ld-linux.so → /usr/lib64/ld-linux.so where /lib64 is a symbolic link: the tar holds that link already."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def keep(entry):
    return None if os.path.basename(entry.name) in ("test", "idlelib", "tkinter", "ensurepip") else entry
