"""The disk of the test machine: an ext4 image with part of this host's Debian packages and the built tree.

It is a disk rather than an initramfs, because pivot_root refuses to work on the kernel's initial root, and because a cell's overlay is to
have a real filesystem under it, as on a real machine. ext4 and NVMe are built into Debian's cloud kernel; overlay is a module.
Nothing here is downloaded: a package that this host does not have is left out of the image.
"""

import glob
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess

# What the machine and the tests themselves need, and what the whole form adds for the languages and the attack suite.
BASE = ("base-files", "bash", "coreutils", "dash", "findutils", "gawk", "mawk", "grep", "hostname", "kmod", "libc-bin", "mount", "passwd",
        "perl-base", "procps", "python3", "python3-pytest", "sed", "systemd", "tar", "uidmap", "util-linux")
LANGUAGES = ("gcc", "g++", "gzip", "libc6-dev", "lua5.4", "make", "nodejs", "perl", "php-cli", "ruby", "strace", "stress-ng",
             "tzdata", "dpkg", "e2fsprogs")
# And on a disk of its own what is large, and what a server would start ahead: emulated, that takes its time from all other tests.
COMPILERS = ("default-jdk-headless", "golang-go", "node-typescript", "r-base-core", "rustc")
OPTIONAL = {"gawk", "mawk"}

# (The changelog of dash is where its version is found.)
LEFT_OUT = re.compile(r"^/usr/share/(doc(?!/dash/)|man|info|locale|lintian|bug|i18n|ri|nodejs/.*/docs)/|^/usr/include/node/|^/var/"
                      r"|^/usr/lib/python3(\.11)?/(idlelib|lib2to3|test|ensurepip)/|^/etc/(init\.d|cron|rc|systemd|default)")
ETC = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group",
       "/var/lib/dpkg/status", "/etc/R/Renviron")  # the last is made when R is installed
MADE = ("/etc/php",)  # folders that are made when a package is installed: without its conf.d, php has no FFI
FOLDERS = ("dev", "proc", "sys", "run", "tmp", "mnt", "root", "var/tmp", "var/lib", "etc", "home")


class ImageError(Exception):
    """Something that the image is made of is missing; the text says what to do."""


def installed_packages():
    """name → (its direct dependencies as alternatives), for each installed package; provided names point to who provides them."""
    rows = subprocess.run(["dpkg-query", "-W", "-f", "${Package}\t${db:Status-Status}\t${Depends}, ${Pre-Depends}\t${Provides}\n"],
                          check=True, text=True, capture_output=True).stdout
    depends, provides = {}, {}
    for row in rows.splitlines():
        name, status, wanted, provided = row.split("\t")
        if status != "installed":
            continue
        depends[name] = [[re.sub(r"[ :(].*", "", one.strip()) for one in group.split("|")]
                         for group in wanted.split(",") if group.strip()]
        for one in provided.split(","):
            if one.strip():
                provides.setdefault(re.sub(r"[ (].*", "", one.strip()), name)
    return depends, provides


def package_closure(wanted):
    """The wanted packages that this host has and all that they depend on."""
    depends, provides = installed_packages()
    closure, queue = set(), list(wanted)
    while queue:
        name = queue.pop()
        name = name if name in depends else provides.get(name)
        if name is None or name in closure:
            continue
        closure.add(name)
        for alternatives in depends[name]:
            queue += [one for one in alternatives if one in depends or one in provides][:1]
    return closure


def package_files(packages):
    """Every path of the packages that exists here, by its true place under the merged /usr, with Python's compiled files."""
    text = subprocess.run(["dpkg-query", "-L", *sorted(packages)], check=True, text=True, capture_output=True).stdout
    paths, parents = set(), {}
    for line in set(text.splitlines()):
        if not line.startswith("/") or line == "/." or LEFT_OUT.search(line + "/"):
            continue
        parent, name = os.path.split(line)
        parent = parents.setdefault(parent, os.path.realpath(parent))
        path = os.path.join(parent, name)
        if LEFT_OUT.search(path + "/") or not os.path.lexists(path) or path in ("/bin", "/sbin", "/lib", "/lib64"):
            continue
        paths.add(path)
        if path.endswith(".py"):
            # dpkg does not list these, and compiling them anew under emulation takes longer than the tests.
            compiled = os.path.join(parent, "__pycache__", name[:-3] + ".cpython-311.pyc")
            if os.path.exists(compiled):
                paths.add(compiled)
    return paths


def alternatives_of(paths):
    """The links to programs and libraries that lead through /etc/alternatives to something in the image (awk, cc, libblas.so.3)."""
    for folder in ("/usr/bin", *glob.glob("/usr/lib/*-linux-gnu")):
        for entry in os.scandir(folder):
            if entry.is_symlink() and os.readlink(entry.path).startswith("/etc/alternatives/"):
                if os.path.realpath(entry.path) in paths:
                    yield entry.path


def libraries_of(programs):
    """The shared libraries that the built programs load, with the links that name them."""
    for program in programs:
        listed = subprocess.run(["ldd", program], text=True, capture_output=True, check=False).stdout
        for path in re.findall(r"(/\S+) \(0x", listed):
            link = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
            if str(program.parent) not in link:
                yield link
                yield os.path.realpath(link)


def copy_tree(source, staging, build):
    """The source tree's part that the tests use, with the programs in build/, as in a checkout."""
    target = staging / "hotcell"
    (target / "build").mkdir(parents=True)
    for item in sorted(build.iterdir()):
        if item.is_file() and (os.access(item, os.X_OK) or item.name.startswith("libhotcell.so")):
            shutil.copy2(item, target / "build" / item.name, follow_symlinks=False)
    if (build / "tests").is_dir():
        shutil.copytree(build / "tests", target / "build/tests", symlinks=True, ignore=shutil.ignore_patterns("*.p", "*.o", "fuzz*"))
    for item in source.iterdir():
        if item.is_file():
            shutil.copy2(item, target / item.name)
    ignore = shutil.ignore_patterns("__pycache__", ".pytest_cache", "corpus")
    for folder in ("languages", "tests", "include", "src", "examples", "docs", "tools", "packaging"):
        if (source / folder).is_dir():
            shutil.copytree(source / folder, target / folder, symlinks=True, ignore=ignore)


def make(path, source, build, kernel_version, plans, more):
    """Write the image to `path`, with `plans` (what to run on which variant) and packages besides BASE in it. The folder beside it is the
    caller's to remove."""
    staging = pathlib.Path(str(path) + ".root")
    staging.mkdir()
    os.chmod(staging, 0o755)
    for folder in FOLDERS:
        (staging / folder).mkdir(parents=True)
    for folder in ("tmp", "var/tmp"):
        os.chmod(staging / folder, 0o1777)
    for name in ("etc/subuid", "etc/subgid", "etc/shadow"):
        (staging / name).touch(0o644 if name != "etc/shadow" else 0o600)
    for name in ("bin", "sbin", "lib", "lib64"):
        os.symlink("usr/" + name, staging / name)

    packages = package_closure(BASE + more)
    missing = [name for name in BASE if name not in packages and name not in OPTIONAL]
    if missing:
        raise ImageError("the image needs packages that are not installed: apt-get install " + " ".join(missing))
    paths = package_files(packages)
    programs = [path for path in build.glob("*hotcell*") if path.is_file()]
    # The package list is what tells the version of a program that does not tell it itself.
    paths |= set(alternatives_of(paths)) | set(libraries_of(programs)) | set(ETC)
    paths |= {os.path.join(folder, name) for made in MADE for folder, folders, files in os.walk(made) for name in (".", *folders, *files)}
    listed = "\0".join(sorted(p[1:] for p in paths if os.path.lexists(p)))
    pack = subprocess.Popen(["tar", "-C", "/", "--null", "--no-recursion", "-T", "-", "-cf", "-"], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE)
    unpack = subprocess.Popen(["tar", "-C", staging, "-xpf", "-"], stdin=pack.stdout)
    pack.stdout.close()
    pack.stdin.write(listed.encode())
    pack.stdin.close()
    if pack.wait() or unpack.wait():
        raise ImageError("tar could not copy the packages' files")
    shutil.copytree("/etc/alternatives", staging / "etc/alternatives", symlinks=True, dirs_exist_ok=True)
    copy_tree(source, staging, build)
    (staging / "hotcell/vm-request.json").write_text(json.dumps(plans))
    if any("ATTACK_PROGRAMS" in plan["environment"] for plan in plans.values()):
        programs = staging / "hotcell/attack-programs"  # compiled here, where it takes seconds and not minutes
        programs.mkdir()
        if subprocess.run([source / "tests/attack/run", "--compile", programs], check=False).returncode != 0:
            raise ImageError("the attack suite's programs cannot be compiled: apt-get install gcc libc6-dev")
    module = pathlib.Path("/lib/modules", kernel_version, "kernel/fs/overlayfs/overlay.ko")
    if not module.exists():
        raise ImageError(f"{module} is missing: apt-get install --reinstall linux-image-{kernel_version}")
    shutil.copy2(module, staging / "overlay.ko")
    # Copied files keep this host's owners; what the tests' user must read is readable by all.
    size = sum(4096 + (p.lstat().st_size if stat.S_ISREG(p.lstat().st_mode) else 0) for p in staging.rglob("*"))
    megabytes = int(size * 1.15 / 2**20) + 400  # room for a swap file and for what the tests write
    subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-O", "^has_journal", "-i", "8192", "-d", staging, path,
                    f"{megabytes}M"], check=True, stdout=subprocess.DEVNULL)
    return megabytes
