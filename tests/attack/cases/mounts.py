"""Mount policy: 95–100. Whatever the allow-list says, these are refused; the control is a folder that is allowed."""

import os
import subprocess

from cases.supervisor import refused
from suite import case


def config(trial, read=(), write=(), extra=""):
    path = trial.scratch("config") + "/config.toml"
    with open(path, "w") as file:
        file.write("[mounts]\nallowed_read_paths = [%s]\nallowed_write_paths = [%s]\n%s\n" % (
            ", ".join('"%s"' % word for word in read), ", ".join('"%s"' % word for word in write), extra))
    return path


def mount(trial, settings, source, target="/data", mode="ro", script="ls -a /data"):
    return trial.cell("--config", settings, "--mount", "%s:%s:%s" % (source, target, mode), "--", "/bin/sh", "-c", script)


def allowed(trial, everything=True):
    """A folder of our own that may be mounted, and the settings that allow it (and, with it, all there is)."""
    folder = trial.scratch("shared")
    os.chmod(folder, 0o755)
    with open(folder + "/hello", "w") as file:
        file.write("hello from the host\n")
    settings = config(trial, ["/"] if everything else [folder], ["/"] if everything else [folder])
    run = mount(trial, settings, folder, script="cat /data/hello")
    trial.control(run.text == "hello from the host\n", "a plain folder is mounted" if run.result else str(run))
    return folder, settings


def all_refused(trial, settings, sources, mode="ro"):
    opened = []
    for source in sources:
        run = mount(trial, settings, source, mode=mode)
        if not refused(run):
            opened.append("%s (%s)" % (source, run.status or run.err[-80:]))
    trial.check(not opened, "%d refused" % len(sources) if not opened else "mounted: " + ", ".join(opened[:5]))


def existing(*paths):
    return [path for path in paths if os.path.lexists(path)]


@case(95, "mount /, /proc, /run, docker.sock, state")
def forbidden(trial):
    _, settings = allowed(trial)
    sources = ["/"] + existing("/proc", "/sys", "/dev", "/run", "/var/run", "/boot", "/root", "/etc/shadow", "/etc/passwd", "/etc/ssh", "/etc/sudoers",
                               "/dev/shm", "/run/docker.sock", "/var/run/docker.sock", "/var/lib/docker", "/proc/self", "/proc/1/root",
                               "/sys/fs/cgroup", "/var/lib/hotcell", "/etc/hotcell", trial.watch.root_file)
    all_refused(trial, settings, sources)
    all_refused(trial, settings, sources, "rw")
    none = config(trial)
    run = mount(trial, none, trial.folder + "/shared")
    trial.check(refused(run), "an empty allow-list allows nothing" if refused(run) else "empty allow-list: %s" % run)
    nothing = trial.cell("--mount", trial.folder + "/shared:/data", "--", "true")
    trial.check(refused(nothing), "nor does none at all")


@case(96, "parents of forbidden paths, odd spellings")
def spellings(trial):
    folder, settings = allowed(trial)
    all_refused(trial, settings, ["/etc", "/var", "/home", "//", "/.", "/./", "/..", "/root/", "/root/.", "//root", "/./root", "/tmp/../root",
                                  "/usr/../root/.", "/etc/../etc/shadow", "/proc/", "//proc//self", "/root//", "/dev/../proc", "relative", "."])
    run = mount(trial, settings, folder + "//.", script="cat /data/hello")
    trial.control(run.text == "hello from the host\n", "odd spellings of what is allowed are fine")
    inner = trial.scratch("forbidden-inner/deep")
    secret = config(trial, ["/"], [], 'forbidden_paths = ["%s"]' % inner)
    all_refused(trial, secret, [inner, inner + "/", os.path.dirname(inner), os.path.dirname(inner) + "/.", trial.folder])


@case(97, "/proc/self/root, /dev/fd/N, symlinks")
def indirect(trial):
    folder, settings = allowed(trial)
    links = trial.scratch("links")
    for name, target in (("root", "/root"), ("slash", "/"), ("proc", "/proc"), ("chain", "root"), ("magic", "/proc/self/root"), ("shadow", "/etc/shadow")):
        os.symlink(target, links + "/" + name)
    os.symlink(folder, links + "/fine")
    run = mount(trial, settings, links + "/fine", script="cat /data/hello")
    trial.control(run.text == "hello from the host\n", "a link to what is allowed is fine")
    all_refused(trial, settings, [links + "/" + name for name in ("root", "slash", "proc", "chain", "magic", "shadow")])
    all_refused(trial, settings, ["/proc/self/root", "/proc/self/cwd", "/proc/self/root/root", "/proc/1/root/root", "/dev/fd/0", "/proc/self/fd/0",
                                  "/proc/thread-self/root/root"])
    narrow = config(trial, [links], [links])
    all_refused(trial, narrow, [links + "/fine"])
    # The path is checked once and held: a link that changes meanwhile leads to the one or to a refusal, never to the other.
    flip = links + "/flip"
    stop = trial.folder + "/stop"
    flipper = subprocess.Popen(["/bin/sh", "-c", 'while [ ! -e "$3" ]; do ln -sfn "$1" "$2"; ln -sfn "$4" "$2"; done', "sh", folder, flip, stop,
                                os.path.dirname(trial.watch.root_file)])
    leaked = 0
    for _ in range(25):
        run = mount(trial, settings, flip, script="ls -a /data; cat /data/.hotcell-attack-*")
        leaked += trial.watch.token in run.text
    with open(stop, "w"):
        pass
    flipper.wait()
    trial.check(leaked == 0, "25 races against a changing link, none won" if not leaked else "%d races were won" % leaked)
    bind = trial.scratch("bound")
    run = trial.outside("/usr/bin/unshare", "-m", "sh", "-c",
                        'mount --bind /root "$1" && exec "$2" run --json --config "$3" --mount "$1:/data:ro" -- /bin/ls -a /data', "sh", bind,
                        trial.hotcell, settings)
    trial.watch.outputs.append(run.out)
    trial.check(refused(run), "a bind mount of a forbidden folder is refused" if refused(run) else "bind mount: %s" % run)


@case(98, "case and Unicode variants")
def variants(trial):
    _, settings = allowed(trial)
    run = subprocess.run(["mkfs.ext4", "-V"], capture_output=True)
    image, folder = trial.folder + "/casefold.img", trial.scratch("casefold")
    made = run.returncode == 0 and subprocess.run(
        ["sh", "-c", 'truncate -s 16M "$1" && mkfs.ext4 -q -O casefold -E encoding=utf8 "$1"', "sh", image], capture_output=True).returncode == 0
    words = ["/Root", "/ROOT", "/PROC", "/Etc/Shadow", "/ETC", "/roo\u0074\u0301", "/\uff52oot"]
    for word in words:  # on a file system that knows cases, these do not exist; nothing may be mounted for them
        run = mount(trial, settings, word)
        trial.check(refused(run), "absent or refused" if refused(run) else "%s: %s" % (word, run))
    if not made:
        return
    script = 'mount -o loop "$1" "$2" && mkdir "$2/secret" && chattr +F "$2/secret" && mkdir "$2/secret/key" && echo open > "$2/secret/key/f" && ' \
             'ls "$2/secret/KEY" && exec "$3" run --json --config "$4" --mount "$2/secret/KEY:/data:ro" -- /bin/ls /data'
    secret = config(trial, ["/"], [], 'forbidden_paths = ["%s/secret/key"]' % folder)
    run = trial.outside("/usr/bin/unshare", "-m", "sh", "-c", script, "sh", image, folder, trial.hotcell, secret)
    if run.out.startswith(b"f\n"):  # the kernel can: the other spelling opens the folder
        rest = run.out[2:]
        trial.check(b'"error"' in rest and b'"status"' not in rest, "another spelling on a case-folding file system is refused"
                    if b'"error"' in rest else "casefold: %s" % run)


@case(99, "targets /, /proc, ../x")
def targets(trial):
    folder, settings = allowed(trial)
    opened = []
    words = ["/", "/proc", "/proc/sys", "/proc/self", "../x", "x", "/../x", "/data/../../proc", "/dev", "/dev/null", "/sys", "/usr", "/usr/bin",
             "/etc", "/etc/passwd", "/etc/ld.so.preload", "/bin", "/lib", "/lib64", "/sbin", "//", "/.", "/./proc", "/workspace/../proc", "/proc/",
             "/" + "x" * 300, "/data\n", ""]
    for target in words:
        run = mount(trial, settings, folder, target, script="true")
        if not refused(run):
            opened.append("%s (%s)" % (target, run.status))
    trial.check(not opened, "%d refused" % len(words) if not opened else "accepted: " + ", ".join(opened))
    twice = trial.cell("--config", settings, "--mount", folder + ":/data", "--mount", folder + ":/data/", "--", "true")
    trial.check(twice.code is not None, "the same target twice: %s" % (twice.status or "refused"))


@case(100, "write where only reading is allowed")
def writing(trial):
    folder, settings = allowed(trial)
    os.chmod(folder, 0o777)
    narrow = config(trial, [folder], [])
    run = mount(trial, narrow, folder, mode="rw", script="true")
    trial.check(refused(run), "rw is refused where only ro is allowed" if refused(run) else "rw: %s" % run)
    run = mount(trial, narrow, folder, script="echo x > /data/hello; echo y > /data/new; rm -f /data/hello; mount -o remount,rw /data; ls /data")
    with open(folder + "/hello") as file:
        trial.check(file.read() == "hello from the host\n" and os.listdir(folder) == ["hello"], "ro: the host's folder is unchanged")
    free = config(trial, [folder], [folder])
    run = mount(trial, free, folder, mode="rw", script="echo y > /data/new && echo done")
    trial.control(run.text == "done\n" and os.path.exists(folder + "/new"), "rw works where it is allowed" if run.text == "done\n" else str(run))
    inner = trial.scratch("shared/inner")
    script = 'mount -t tmpfs none "$1" && echo secret > "$1/f" && exec "$2" run --json --config "$3" --mount "$4:/data:ro" -- /bin/sh -c "echo x > /data/inner/f"'
    run = trial.outside("/usr/bin/unshare", "-m", "sh", "-c", script + '; cat "$1/f"', "sh", inner, trial.hotcell, narrow, folder)
    trial.check(run.result is not None and run.status != "completed", "a mount below it is read-only or absent as well")
    usr = trial.cell("--read-only=false", "--", "/bin/sh", "-c", "touch /usr/attack; rm -f /usr/bin/env; ls /usr/bin/env")
    trial.check(usr.code is not None and not os.path.exists("/usr/attack") and os.path.exists("/usr/bin/env"), "a writable root is a copy")
