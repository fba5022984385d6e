"""Volumes of a server: 330–332. What a guest may leave in one, whether a server that was killed leaves one behind, and whether a full one hurts anybody else."""

import contextlib
import glob
import os
import time

from service import Service
from suite import SLOW, case

DOORS = r'''
import ctypes, errno, os, stat, sys
folder = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
path = folder + "/program"
open(path, "w").write("#!/bin/sh\nid -u\n")
os.chmod(path, 0o755)

def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "failed")

def any_loop():
    for number in range(8):
        os.close(os.open(f"/dev/loop{number}", os.O_RDONLY))

doors = {
    "setuid": lambda: os.chmod(path, 0o4755),
    "setgid": lambda: os.chmod(path, 0o2755),
    "root's": lambda: os.chown(path, 0, 0),
    "capabilities": lambda: os.setxattr(path, "security.capability", bytes.fromhex("0100000200200000000000000000000000000000")),
    "trusted": lambda: os.setxattr(path, "trusted.x", b"x"),
    "device": lambda: os.mknod(folder + "/null", stat.S_IFCHR | 0o666, os.makedev(1, 3)),
    "disk": lambda: os.mknod(folder + "/loop", stat.S_IFBLK | 0o666, os.makedev(7, 0)),
    "loop": any_loop,
    "remount": lambda: checked(libc.mount(None, b"/", None, 32 | 4096, None)),
}
for name, act in doors.items():
    try:
        act()
        print(f"{name}=OK")
    except OSError as wrong:
        print(f"{name}={errno.errorcode.get(wrong.errno, wrong.errno)}")
    except ValueError as wrong:
        print(f"{name}={wrong}")
'''


def attached(folder):
    """Loop devices whose file is below this folder."""
    found = []
    for name in glob.glob("/sys/block/loop*/loop/backing_file"):
        with contextlib.suppress(OSError), open(name) as file:
            if file.read().startswith(os.path.realpath(folder)):
                found.append(name)
    return found


def make(trial, server, name, size="16m"):
    answer = server.request("POST", "/v1/volumes", {"name": name, "size": size})
    trial.need(answer.status == 201, "a volume is made" if answer.status == 201 else str(answer))


def sandbox(trial, server, name, **more):
    answer = server.request("POST", "/v1/sandboxes", {"volumes": [{"name": name, "path": "/data", **more}]})
    trial.need(answer.status == 201, "a sandbox has it" if answer.status == 201 else str(answer))
    return answer.json["id"]


def execute(server, box, *words, **more):
    return server.request("POST", "/v1/sandboxes/%s/exec" % box, {"command": list(words), **more})


@case(330, "a volume: set-uid files, devices, its disk")
def leavings(trial):
    folder = trial.scratch("outside")
    outside = trial.outside("/usr/bin/python3", "-c", DOORS, folder, wrap=["unshare", "-m"])
    with Service(trial) as server:
        make(trial, server, "doors")
        box = sandbox(trial, server, "doors")
        inside = execute(server, box, "/usr/bin/python3", "-c", DOORS, "/data")
        trial.doors(inside.probes, outside.probes)
        found = execute(server, box, "/bin/sh", "-c", "grep -c 'nosuid,nodev.* /data\\| /data .*nosuid,nodev' /proc/self/mountinfo; id -u; /data/program")
        trial.check(found.text.split() == ["1", "1000", "1000"], "nosuid, nodev, the guest's" if found.text.split() == ["1", "1000", "1000"] else str(found))
        seen = execute(server, box, "/bin/sh", "-c", "ls %s /state 2>&1; find / -xdev -name '*.img' 2>/dev/null; cat /proc/self/mountinfo" % server.state)
        trial.check(".img" not in seen.text and server.state + "/" not in seen.text, "no image is seen from inside" if ".img" not in seen.text else seen.text[:200])


@case(331, "volumes after a server was killed", later=True)
def killed(trial):
    room = trial.scratch("mounted")
    outside = trial.outside("/bin/sh", "-c", 'truncate -s 16M "$1/i" && mkfs.ext4 -qF "$1/i" && mkdir "$1/m" && mount -o loop "$1/i" "$1/m" && losetup -j "$1/i" | wc -l; '
                            'umount "$1/m"', "sh", room, wrap=["unshare", "-m"])
    trial.control(outside.text.strip() == "1", "a loop device that is mounted stays" if outside.text.strip() == "1" else str(outside))
    state = os.path.join(trial.scratch("kept"), "state")
    for turn in range(4):
        server = Service(trial, state=state, name="server%d" % turn).start()
        if turn == 0:
            make(trial, server, "kept", "64m")
        box = sandbox(trial, server, "kept")
        execute(server, box, "/bin/sh", "-c", "echo %d >> /data/turns; sync /data/turns" % turn)
        execute(server, box, "/bin/sh", "-c", "while :; do cat /usr/bin/env > /data/noise; done", detach=True)
        time.sleep(0.05 * turn)
        server.kill()  # the next one starts while the cells of this one still go
    server = Service(trial, state=state, name="last")
    with server:
        box = sandbox(trial, server, "kept")
        turns = execute(server, box, "/bin/cat", "/data/turns").text.split()
        trial.check(turns == ["0", "1", "2", "3"], "what was synced is there after each" if turns == ["0", "1", "2", "3"] else str(turns))
    deadline = time.monotonic() + 5 * SLOW
    while attached(state) and time.monotonic() < deadline:
        time.sleep(0.05)
    trial.check(not attached(state), "no loop device is left" if not attached(state) else str(attached(state)))
    faults = [fault for fault in trial.watch.settle(2) if "mounts" in fault]
    trial.check(not faults, "no mount is left" if not faults else faults[0])


@case(332, "a volume that is filled")
def filled(trial):
    with Service(trial) as server:
        make(trial, server, "full", "32m")
        box, other = sandbox(trial, server, "full"), sandbox(trial, server, "full", read_only=True)
        sound = execute(server, box, "/bin/sh", "-c", "head -c 8M /dev/zero > /data/small && stat -c %s /data/small")
        trial.control(sound.text.strip() == str(8 << 20), "what fits is written")
        flood = execute(server, box, "/bin/sh", "-c", "head -c 1G /dev/zero > /data/large; i=0; while mkdir /data/d$i 2>/dev/null; do i=$((i+1)); done; truncate -s 1T /data/sparse",
                        timeout=60)
        trial.check(b"No space left" in flood.body, "no space left" if b"No space left" in flood.body else str(flood))
        image = os.stat(os.path.join(server.state, "volumes/local/full.img"))
        trial.check(image.st_blocks * 512 <= (32 << 20) + (1 << 20), "its image has %d MiB" % (image.st_blocks >> 11))
        denied = execute(server, other, "/bin/rm", "-f", "/data/small")
        trial.check(denied.json.get("exit_code") not in (0, None), "who reads it cannot make room")
        plain = server.run(command=["/bin/sh", "-c", "head -c 8M /dev/zero > f && echo fine"])
        trial.check(plain.text == "fine\n", "others have their disk" if plain.text == "fine\n" else str(plain))
