"""The watcher: canaries outside the cell, and what must be the same before and after a case.

Each case has a worker process of its own, which is a child subreaper: whatever hotcell leaves behind becomes its descendant and is found. It
also has control groups of its own where the hierarchies allow it (hotcell makes its groups below the caller's), so that another copy of this suite
does not count.
"""

import ctypes
import fcntl
import glob
import hashlib
import os
import secrets
import shutil
import socket
import subprocess
import time

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_CHILD_SUBREAPER = 36
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x00020000, 16384, 1 << 18


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def parents():
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name, "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
                table[int(name)] = (int(fields[1]), fields[0])
            except (OSError, IndexError):
                pass
    return table


def descendants(root):
    """Living processes below `root`. The dead that wait to be collected do not count: orphans come to us, and nobody collects them."""
    table, found = parents(), set()
    wave = {root}
    while wave:
        wave = {pid for pid, (parent, _) in table.items() if parent in wave} - found
        found |= wave
    return {pid for pid in found if table[pid][1] not in (b"Z", b"X")}


def command(pid):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace").strip()[:80] or "[%d]" % pid
    except OSError:
        return "[%d]" % pid


def is_a_servers(pid):
    """Whether it is a process of a server, or an interpreter that waits there: a guest's has the name of its attack program."""
    try:
        with open("/proc/%d/comm" % pid) as file:
            return file.read().startswith(("hotcell", "python3", "node", "sh\n"))
    except OSError:
        return True


def own_mounts():
    """A mount namespace of our own: what others mount meanwhile is not hotcell's, and what hotcell leaves is ours to see."""
    if LIBC.unshare(CLONE_NEWNS) < 0 or LIBC.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) < 0:
        raise OSError(ctypes.get_errno(), "no mount namespace of our own")


def mounts():
    with open("/proc/self/mountinfo") as file:
        return {" ".join(line.split()[2:5]) for line in file}


class Groups:
    """One control group for the worker in every hierarchy that lets us, so that hotcell's own lie below it."""

    def __init__(self, name):
        self.roots, self.own = [], []
        with open("/proc/self/mountinfo") as file:
            for line in file:
                fields, _, tail = line.partition(" - ")
                if tail.split()[0] in ("cgroup", "cgroup2"):
                    self.roots.append(fields.split()[4])
        if not os.path.exists("/sys/fs/cgroup/cgroup.controllers"):  # one v2 tree: a group with a process in it cannot hand out controllers
            for root in self.roots:
                if not set(os.path.basename(root).split(",")) & {"memory", "cpu", "cpuacct", "pids", "unified"}:
                    continue  # hotcell has no business in the others
                path = root + self._current(root) + "/" + name
                try:
                    os.mkdir(path)
                    self.own.append(path)
                    with open(path + "/cgroup.procs", "w") as file:
                        file.write(str(os.getpid()))
                except OSError:
                    pass

    @staticmethod
    def _current(root):
        kind = os.path.basename(root)
        with open("/proc/self/cgroup") as file:
            for line in file:
                _, controllers, path = line.rstrip("\n").split(":", 2)
                if kind in controllers.replace("name=", "").split(",") or (kind == "unified" and not controllers):
                    return "" if path == "/" else path
        return ""

    def left(self):
        """Folders that are hotcell's, and nobody's any more: below our own, all of them; elsewhere, those whose lock nobody holds."""
        found = [path for own in self.own for path in glob.glob(own + "/*/")]
        if not self.own:
            for root in self.roots:
                for path in glob.glob(root + "/hotcell-*/") + glob.glob(root + "/*/hotcell-*/"):
                    found += [path] if unlocked(path) else []
        return found

    def close(self):
        for own in self.own:
            for folder, _, _ in os.walk(own, topdown=False):
                try:
                    with open(folder + "/cgroup.procs") as file:
                        for pid in file.read().split():
                            with open(os.path.dirname(own) + "/cgroup.procs", "w") as parent:
                                parent.write(pid)
                    os.rmdir(folder)
                except OSError:
                    pass


def unlocked(path):
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


class Watch:
    def __init__(self, folder, binaries):
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        own_mounts()
        self.token = "SECRET-" + secrets.token_hex(16)
        self.outputs = []
        self.folder = folder
        self.groups = Groups("attack-" + secrets.token_hex(6))
        name = "hotcell-attack-" + secrets.token_hex(6)
        self.root_file = "/root/." + name if os.access("/root", os.W_OK) else folder + "/" + name
        self.file = folder + "/canary"
        for path in (self.root_file, self.file):
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write("canary " + self.token + "\n")
        self.files = {path: digest(path) for path in [self.root_file, self.file, *binaries,
                                                      "/etc/passwd", "/etc/shadow", "/etc/hosts", "/usr/bin/env"] if os.path.isfile(path)}
        self.stats = {path: self._stat(path) for path in self.files}
        self.process = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL,
                                        env={"CANARY_" + self.token: self.token})
        self.abstract_name = name
        self._sockets()
        self.hostname = os.uname().nodename
        self.before_mounts = mounts()
        self.baseline = descendants(os.getpid())
        self.tolerated = set()
        self.serving = False  # a server is there meanwhile, with what it has ready: warm.py

    @staticmethod
    def _stat(path):
        info = os.stat(path)
        return info.st_mode, info.st_uid, info.st_gid, info.st_ino, info.st_size

    def _sockets(self):
        self.tcp = socket.socket()
        self.tcp.bind(("0.0.0.0", 0))
        self.tcp6 = socket.socket(socket.AF_INET6)
        self.udp = socket.socket(type=socket.SOCK_DGRAM)
        self.udp.bind(("0.0.0.0", 0))
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind("\0" + self.abstract_name)
        self.path_socket = socket.socket(socket.AF_UNIX)
        self.path = self.folder + "/socket"
        self.path_socket.bind(self.path)
        os.chmod(self.path, 0o777)
        self.listeners = [self.tcp, self.abstract, self.path_socket]
        try:
            self.tcp6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            self.tcp6.bind(("::", 0))
            self.listeners.append(self.tcp6)
        except OSError:
            self.tcp6 = None
        for listener in self.listeners:
            listener.listen(64)
            listener.setblocking(False)
        self.udp.setblocking(False)

    def contacts(self):
        """How many connections and datagrams came in since the last call."""
        count = 0
        for listener in self.listeners:
            while True:
                try:
                    listener.accept()[0].close()
                    count += 1
                except OSError:
                    break
        while True:
            try:
                self.udp.recv(4096)
                count += 1
            except OSError:
                return count

    def lan(self):
        """An address of this machine that is not loopback, or None."""
        with socket.socket(type=socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(("192.0.2.1", 9))
                address = probe.getsockname()[0]
            except OSError:
                return None
        return None if address.startswith("127.") else address

    # ---- afterwards ----

    def leftovers(self):
        left = descendants(os.getpid()) - self.baseline - self.tolerated
        return {pid for pid in left if not is_a_servers(pid)} if self.serving else left

    def settle(self, seconds=2.0):
        """Wait for the counts to be back at the baseline. Returns what is still over, as sentences."""
        deadline = time.monotonic() + seconds * float(os.environ.get("HOTCELL_SLOW", "1"))
        while True:
            faults = []
            left = self.leftovers()
            if left:
                faults.append("processes left: " + ", ".join(command(pid) for pid in sorted(left)[:4]))
            groups = [] if self.serving else self.groups.left()
            if groups:
                faults.append("control groups left: " + ", ".join(groups[:3]))
            more = mounts() - self.before_mounts
            if more:
                faults.append("mounts left: " + ", ".join(sorted(more)[:3]))
            if not faults or time.monotonic() > deadline:
                return faults
            time.sleep(0.02)

    def faults(self):
        """What a canary shows, as sentences; none is what we want."""
        found = []
        for path, before in self.files.items():
            try:
                if digest(path) != before:
                    found.append("%s was changed" % path)
                elif self._stat(path) != self.stats[path]:
                    found.append("%s has another owner, mode or size" % path)
            except OSError as error:
                found.append("%s: %s" % (path, error.strerror))
        if self.process.poll() is not None:
            found.append("the canary process is dead")
        if self.contacts():
            found.append("a sink was reached")
        if os.uname().nodename != self.hostname:
            found.append("the host's name was changed")
        if any(self.token.encode() in output for output in self.outputs):
            found.append("the secret token came out")
        return found

    def end_leftovers(self):
        """So that one failed case does not spoil the next."""
        for pid in self.leftovers():
            try:
                os.kill(pid, 9)
            except OSError:
                pass

    def close(self):
        self.process.kill()
        self.process.wait()
        for path in (self.root_file, self.file, self.path):
            try:
                os.unlink(path)
            except OSError:
                pass
        self.groups.close()
        shutil.rmtree(self.folder, ignore_errors=True)

