"""Filesystem escape: 1–12."""

import os
import subprocess

from suite import case


@case(1, "read /etc/shadow and a file of /root")
def secrets(trial):
    paths = ["/etc/shadow", trial.watch.root_file, trial.watch.file, "/etc/ssh/ssh_host_ed25519_key", "/etc/gshadow", "/var/log/wtmp", "/var/log/dpkg.log"]
    outside = trial.outside("peek", *paths)
    trial.control(trial.watch.token in outside.text, "the token is read outside")
    inside = trial.inside("peek", *paths)
    opened = [path for path in paths if inside.probes.get(path) == "OK"]
    trial.check(inside.status == "completed" and not opened, "absent" if not opened else "opened: " + " ".join(opened))


@case(2, "climb ../ x 64, and out of a chroot")
def climb(trial):
    outside = trial.outside("climb", trial.watch.root_file)
    trial.control(outside.probes.get("relative") == "OK" and outside.probes.get("chroot_escape") == "OK"
                  and trial.watch.token in outside.text, "both ways read the token outside")
    inside = trial.inside("climb", trial.watch.root_file).probes
    trial.check(inside.get("own_root") == "yes", "64 times up is the cell's own root")
    trial.check(inside.get("relative") in ("ENOENT", "EACCES") and inside.get("chroot") == "EPERM", "file absent, chroot refused")


@case(3, "/proc/*/root and /proc/*/cwd")
def proc_roots(trial):
    outside = trial.outside("procroots", trial.watch.root_file)
    trial.control(trial.watch.token in outside.text, "they lead to the token outside")
    inside = trial.inside("procroots", trial.watch.root_file)
    opened = [name for name, value in inside.probes.items() if value == "OK"]
    trial.check(len(inside.probes) >= 8 and not opened, "%d ways, none leads out" % len(inside.probes)
                if not opened else "opened: " + " ".join(opened[:3]))


@case(4, "inherited descriptors and /proc/self/fd")
def descriptors(trial):
    folder = os.open(os.path.dirname(trial.watch.root_file), os.O_RDONLY | os.O_DIRECTORY)
    file = os.open(trial.watch.root_file, os.O_RDWR)
    outside = trial.outside("fds", trial.watch.root_file, fds=(folder, file))
    trial.control(trial.watch.token in outside.text, "two lead to the token outside")
    inside = trial.inside("fds", trial.watch.root_file, fds=(folder, file))
    trial.check(inside.probes.get("open") == "3" and inside.probes.get("foreign") == "0", "only 0–2 are open inside: %s" %
                inside.probes.get("open"))
    os.close(folder)
    os.close(file)


@case(5, "write to /usr, /etc, /dev, /")
def writes(trial):
    outside = trial.throwaway("writes", "")
    inside = trial.inside("writes", "")
    trial.doors(inside.probes, outside.probes)
    trial.check(all(inside.probes.get(name) == "EROFS" for name in ("create_usr", "create_etc", "truncate")), "EROFS")


@case(6, "remount, bind, unmount, pivot_root")
def remount(trial):
    outside = trial.throwaway("remount", "/etc", "/", "/sealed")
    outside_pivot = dict(outside.probes, pivot_root="OK" if outside.probes.get("pivot_root") in ("OK", "EBUSY", "EINVAL") else "?")
    inside = trial.inside("remount", "/etc", "/", "/usr")
    trial.doors(inside.probes, outside_pivot)
    masks = trial.inside("remount", "/tmp", "/workspace", "/proc/kcore")
    trial.doors(masks.probes, outside_pivot)


@case(7, "device nodes: the disk, zero, kmsg")
def nodes(trial):
    device = os.stat("/").st_dev
    arguments = [str(os.major(device)), str(os.minor(device))]
    outside = trial.outside("nodes", *arguments)
    inside = trial.inside("nodes", *arguments)
    trial.doors(inside.probes, outside.probes, names=["disk", "zero", "kmsg"])
    writable = trial.inside("nodes", *arguments, options=["--read-only=false"])
    trial.doors(writable.probes, outside.probes, names=["disk", "zero", "kmsg"])


@case(8, "setuid files: one's own, the system's")
def setuid(trial):
    scratch = trial.scratch()
    copy = scratch + "/setuid-copy"
    subprocess.run(["cp", trial.program("setuid"), copy], check=True)
    os.chmod(copy, 0o4755)
    os.chmod(trial.folder, 0o755)
    outside = trial.outside("setuid", "/usr/bin/su", wrap=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"])
    own = trial.outside(copy, wrap=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"])
    trial.control(outside.probes.get("system_euid") == "0" and own.probes.get("euid") == "0", "both give euid 0 outside")
    inside = trial.inside("setuid", "/usr/bin/su", "./setuid-copy", files=[copy])
    found = inside.probes
    trial.check(found.get("own_euid") == found.get("system_euid") == found.get("euid") == "1000", "euid stays 1000")
    trial.check(found.get("chmod_setuid") != "OK", "chmod 4755: %s" % found.get("chmod_setuid"))


@case(9, "overwrite /proc/self/exe, /proc/1/exe")
def exe(trial):
    victim = trial.scratch() + "/victim"
    subprocess.run(["cp", "/bin/sleep", victim], check=True)
    process = subprocess.Popen([victim, "30"])
    trial.outside("exe", process.pid, "kill")
    process.wait()
    with open(victim, "rb") as file:
        trial.control(file.read(6) == b"attack", "a running program is overwritten outside")
    inside = trial.inside("exe", "1")
    found = inside.probes
    trial.check(found.get("write_running", "?") != "OK" and found.get("write_held", "ENOENT") != "OK",
                "pid 1's program: %s" % found.get("hold"))
    trial.check(found.get("self") == "ETXTBSY", "one's own: %s" % found.get("self"))
    # CVE-2019-5736: have hotcell's own helper executed by the entry, then write to it through the process.
    for command in (["/proc/self/exe"], ["/proc/1/exe"]):
        trial.cell("--timeout", "3", "--", *command)
    script = trial.scratch() + "/script"
    with open(script, "w") as file:
        file.write("#!/proc/self/exe\n")
    os.chmod(script, 0o755)
    run = trial.cell("--timeout", "3", "--", "./script", files=[script])
    trial.check(run.status != "completed" or not run.bytes, "#!/proc/self/exe gives nothing")


@case(10, "write a read-only file of the image")
def image(trial):
    scratch = trial.scratch()
    target = scratch + "/target"
    with open(target, "wb") as file:
        file.write(os.urandom(16384))
    outside = trial.outside("imagewrite", target, "rw")
    trial.control(outside.probes.get("changed") == "yes", "a writable file is changed outside")
    for path in ("/usr/bin/env", "/etc/passwd"):
        inside = trial.inside("imagewrite", path, "ro")
        trial.doors(inside.probes, outside.probes, names=["mmap_shared", "mprotect", "mem_shared", "splice", "sendfile",
                                                          "copy_file_range", "fallocate", "ftruncate"])
        trial.check(inside.probes.get("changed") == "no", "bytes unchanged inside")
        trial.check(trial.inside("imagewrite", path, "rw").probes.get("open") in ("EROFS", "EACCES"), "does not open for writing")


@case(11, "fsopen, open_tree, move_mount, mount_setattr")
def new_mounts(trial):
    outside = trial.throwaway("newmount", "/tmp")
    inside = trial.inside("newmount", "/tmp")
    trial.doors(inside.probes, outside.probes)


@case(12, "rename, link, truncate outside the workspace")
def outside_workspace(trial):
    def fill(name):
        folder = trial.scratch(name)
        os.chmod(folder, 0o777)
        for file in ("canary", "spare"):
            with open(folder + "/" + file, "w") as out:
                out.write(file + "\n")
            os.chmod(folder + "/" + file, 0o666)
        return folder

    outside = trial.outside("outside", fill("open"))
    shared = fill("shared")
    config = trial.scratch("config") + "/config.toml"
    with open(config, "w") as file:
        file.write('[mounts]\nallowed_read_paths = ["%s"]\n' % trial.folder)
    inside = trial.inside("outside", "/data", options=["--config", config, "--mount", shared + ":/data:ro"])
    trial.doors(inside.probes, outside.probes, allowed=["open_folder"])
    with open(shared + "/canary") as file:
        trial.check(file.read() == "canary\n" and sorted(os.listdir(shared)) == ["canary", "spare"], "host folder unchanged")
