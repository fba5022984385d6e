"""Who is compared: how each is found, installed where it is missing, and told to run a command.

Every contender gets the same job in the same surroundings: the host's /usr read-only, its own user, mount, pid, net,
ipc, uts and cgroup namespaces, an empty network, in-memory /tmp and /workspace. One that cannot be had stays in the
list with the reason.
"""

import json
import os
import shutil
import subprocess
import sys

from dockerd import Docker, Unavailable

PACKAGES = {"bwrap": "bubblewrap", "runc": "runc", "dockerd": "docker.io"}
SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
USR_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
NAMESPACES = ("user", "pid", "network", "ipc", "uts", "mount", "cgroup")


def progress(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def usr_links():
    """The links of a merged /usr: [("usr/bin", "/bin"), …], as this machine has them."""
    return [(os.readlink(f"/{name}"), f"/{name}") for name in USR_LINKS if os.path.islink(f"/{name}")]


class Contender:
    """A way to run a command. `prefix` + the command is what is started; `reason` says why there is none."""

    def __init__(self, name, note):
        self.name, self.note = name, note
        self.prefix, self.version, self.reason = None, None, None

    def command(self, *argv):
        return self.prefix + list(argv)

    def as_json(self):
        shown = None if self.prefix is None else " ".join(self.prefix) or "(nothing)"
        return {"name": self.name, "note": self.note, "available": self.reason is None, "reason": self.reason,
                "version": self.version, "prefix": shown}


class Runc(Contender):
    """runc takes its command from a file, so each command has a bundle of its own, with a name of its own."""

    def __init__(self, name, note, program, folder, cgroup_parent):
        super().__init__(name, note)
        self.prefix = [program, "--root", f"{folder}/runc-state", "run", "--bundle"]
        self.folder, self.cgroup_parent, self.count = folder, cgroup_parent, 0

    def command(self, *argv):
        self.count += 1
        name = f"bench-{os.getpid()}-{self.count}"
        bundle = os.path.join(self.folder, f"bundle{self.count}")
        rootfs = os.path.join(bundle, "rootfs")
        for part in ("usr", "proc", "dev", "tmp", "workspace"):
            os.makedirs(os.path.join(rootfs, part))
        for target, link in usr_links():
            os.symlink(target, rootfs + link)
        with open(os.path.join(bundle, "config.json"), "w", encoding="utf-8") as config:
            json.dump(runc_config(argv, f"{self.cgroup_parent}/{name}"), config)
        return self.prefix + [bundle, name]


def runc_config(argv, cgroup):
    own = ["nosuid", "nodev"]
    mapping = [{"containerID": 0, "hostID": 100000, "size": 65536}]
    return {
        "ociVersion": "1.0.2",
        "process": {"terminal": False, "user": {"uid": 1000, "gid": 1000}, "args": list(argv), "cwd": "/workspace",
                    "env": ["PATH=/usr/bin:/bin", "LANG=C.UTF-8"], "noNewPrivileges": True, "capabilities": {}},
        "root": {"path": "rootfs", "readonly": True},
        "hostname": "cell",
        "mounts": [
            {"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro", *own]},
            {"destination": "/proc", "type": "proc", "source": "proc", "options": [*own, "noexec"]},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=64k"]},
            {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": [*own, "mode=1777"]},
            {"destination": "/workspace", "type": "tmpfs", "source": "tmpfs", "options": [*own, "mode=1777"]},
        ],
        "linux": {
            "cgroupsPath": cgroup,
            "namespaces": [{"type": name} for name in NAMESPACES],
            "uidMappings": mapping, "gidMappings": mapping,
            "resources": {"memory": {"limit": 512 << 20}, "pids": {"limit": 100},
                          "cpu": {"quota": 100000, "period": 100000}},
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sysrq-trigger"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"],
        },
    }


class Field:
    """All contenders of one benchmark run, and what they leave behind."""

    def __init__(self, hotcell, folder, install, environment):
        self.folder, self.install, self.environment = folder, install, environment
        self.cgroup_parent = f"/bench-{os.getpid()}"
        self.docker = None
        self.all = {}
        for made in (self._bare(), self._hotcell(hotcell), self._bubblewrap(), self._runc(), self._docker()):
            self._probe(made)
            self.all[made.name] = made

    def available(self, *names):
        return [self.all[name] for name in names if self.all[name].reason is None]

    def _bare(self):
        bare = Contender("bare", "the command itself, no sandbox")
        bare.prefix = []
        return bare

    def _hotcell(self, program):
        made = Contender("hotcell", "hotcell run, cold, default limits")
        if not os.access(program, os.X_OK):
            made.reason = f"{program} is not built"
            return made
        made.prefix = [program, "run", "--local"]
        made.version = first_line([program, "version"])
        return made

    def _bubblewrap(self):
        made = Contender("bubblewrap", "the same namespaces and layout; no cgroup limits, seccomp or Landlock")
        program, made.reason = self._find("bwrap")
        if program is None:
            return made
        links = [word for target, link in usr_links() for word in ("--symlink", target, link)]
        made.prefix = [
            program, "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts",
            "--unshare-cgroup", "--uid", "1000", "--gid", "1000", "--ro-bind", "/usr", "/usr", *links,
            "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/workspace", "--chdir", "/workspace",
            "--new-session", "--die-with-parent", "--",
        ]
        made.version = first_line([program, "--version"])
        return made

    def _runc(self):
        program, reason = self._find("runc")
        made = Runc("runc", "OCI bundle: the host's /usr, the same namespaces and cgroup limits; no seccomp", program,
                    self.folder, self.cgroup_parent)
        made.reason = reason
        if program is not None:
            made.version = first_line([program, "--version"])
        return made

    def _docker(self):
        made = Contender("docker", "docker run --rm --network none, private daemon, image made of the host's python3")
        dockerd, made.reason = self._find("dockerd")
        if dockerd is None:
            return made
        docker = shutil.which("docker", path=SEARCH)
        if docker is None:
            made.reason = "dockerd is here but the docker command is not"
        elif os.geteuid() != 0:
            made.reason = "a private dockerd needs root"
        if made.reason:
            return made
        progress("starting a private dockerd and importing an image of the host's python3")
        daemon = Docker(docker, dockerd, self.folder, self.cgroup_parent)
        try:
            daemon.start()
        except Unavailable as failure:
            made.reason = str(failure)
            return made
        self.docker = daemon
        made.prefix, made.version = daemon.command(), daemon.version()
        return made

    def _find(self, program):
        """(path, None), after an attempt to install it, or (None, why not)."""
        path = shutil.which(program, path=SEARCH)
        if path:
            return path, None
        failure = install(PACKAGES[program]) if self.install else "not installed, and --no-install was given"
        path = shutil.which(program, path=SEARCH)
        return (path, None) if path else (None, failure or f"{PACKAGES[program]} brought no {program}")

    def _probe(self, made):
        """A contender counts only when it has run a program to its end here."""
        if made.reason is not None:
            return
        program = ["/usr/bin/python3", "-c", "pass"] if made.name == "docker" else ["/bin/true"]
        separator = ["--"] if made.name == "hotcell" else []
        tried = subprocess.run(made.command(*separator, *program), stdin=subprocess.DEVNULL, capture_output=True,
                               text=True, env=self.environment, check=False)
        if tried.returncode != 0:
            made.reason = (f"exit status {tried.returncode}: " + " ".join(tried.stderr.split()))[:300]

    def close(self):
        if self.docker:
            progress("stopping dockerd")
            self.docker.stop()
            self.docker = None
        remove_cgroups(self.cgroup_parent)


def remove_cgroups(name):
    """runc and docker remove their own folders, but not the parent that they were given."""
    for root, folders, _ in os.walk("/sys/fs/cgroup"):
        if root.count("/") > 4:
            folders.clear()
        elif name.lstrip("/") in folders:
            for inner, _, _ in os.walk(os.path.join(root, name.lstrip("/")), topdown=False):
                try:
                    os.rmdir(inner)
                except OSError as failure:
                    progress(f"cannot remove {inner}: {failure.strerror}")


def first_line(command):
    shown = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return (shown.stdout.strip() or "unknown").splitlines()[0]


def install(*packages):
    """Installs Debian packages. Returns None, or why it could not."""
    if not shutil.which("apt-get", path=SEARCH):
        return f"not installed, and there is no apt-get to install {' '.join(packages)} with"
    command = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    if os.geteuid() != 0:
        if not shutil.which("sudo", path=SEARCH):
            return f"not installed; needs root: {' '.join(command)}"
        command = ["sudo", "-n", *command]
    progress(f"installing: {' '.join(command)}")
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                          env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    if done.returncode == 0:
        return None
    last = (done.stderr.strip() or "no message").splitlines()[-1]
    return f"not installed, and `{' '.join(command)}` failed: {last}"
