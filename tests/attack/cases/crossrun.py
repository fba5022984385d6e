"""From one run to the next: 66–71. (72 and 73 are about zygotes.)"""

import os
import re

from suite import case


@case(66, "leftover file, shm, queue, socket, process")
def leftovers(trial):
    for _ in range(3):  # the process it leaves may not have its name yet, on a busy machine
        outside = trial.throwaway("leftovers", "pair", trial.watch.token).probes
        all_found = (int(outside.get("files", "0")) >= 5 and outside.get("process") == "yes"
                     and outside.get("shm") == outside.get("mqueue") == outside.get("abstract") == "OK")
        if all_found:
            break
    trial.control(all_found, "all are found within one namespace")
    token = "left-" + trial.watch.token[-12:]
    left = trial.inside("leftovers", "leave", token).probes
    trial.check(int(left.get("left_files", "0")) >= 3, "%s files were left inside" % left.get("left_files"))
    writable = trial.inside("leftovers", "leave", token, options=["--read-only=false"]).probes
    trial.check(int(writable.get("left_files", "0")) >= 3, "%s in a writable root" % writable.get("left_files"))
    for options in ([], ["--read-only=false"]):
        run = trial.inside("leftovers", "find", options=options)
        found = run.probes
        trial.check(found.get("files") == "0" and found.get("process") == "no" and token not in run.text and
                    all(found.get(name, "OK") != "OK" for name in ("shm", "mqueue", "abstract")), "the next run finds none")
    beside = trial.start("--", "./stubborn", "sleep", files=["stubborn"], options=["--timeout", "2"])
    trial.finish(beside)


@case(67, "the keyring of the run before")
def keyring(trial):
    outside = trial.outside("keyring", "pair", "key-token").text
    trial.control("key=key-token" in outside, "a key is found by the next process outside")
    left = trial.inside("keyring", "leave", "key-token").probes
    found = trial.inside("keyring", "find")
    trial.check(left.get("leave") != "OK" and found.probes.get("find", "OK") != "OK" and "key-token" not in found.text,
                "absent (%s)" % found.probes.get("find"))


PATCH = """
import os, site, sys, sysconfig
folders = [site.getusersitepackages(), sysconfig.get_paths()['stdlib'], sysconfig.get_paths()['purelib'],
           os.path.expanduser('~'), '/workspace', '/tmp', '.'] + [p for p in sys.path if p]
written = 0
for folder in folders:
    for name in ('usercustomize.py', 'sitecustomize.py', 'json.py', 'attack.pth'):
        try:
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, name), 'w') as file:
                file.write('import builtins; builtins.ATTACKED = True\\n')
            written += 1
        except OSError:
            pass
print('written=%d' % written)
"""
LOOK = "import builtins, sys, json; print('attacked=%s' % hasattr(builtins, 'ATTACKED')); print('json=%s' % json.__file__)"


@case(68, "patched modules, startup files, __pycache__")
def patched(trial):
    home = trial.scratch("pyhome")
    environment = {"HOME": home, "PYTHONPATH": home + "/path"}
    os.makedirs(home + "/path")
    with open(home + "/path/sitecustomize.py", "w") as file:
        file.write("import builtins; builtins.ATTACKED = True\n")
    outside = trial.outside("/usr/bin/python3", "-c", LOOK, env=environment)
    trial.control("attacked=True" in outside.text, "a startup file works on the next python outside")
    first = trial.cell("-l", "python", "-c", PATCH)
    trial.check(int(first.probes.get("written", "0")) > 0, "%s files were planted" % first.probes.get("written"))
    second = trial.cell("-l", "python", "-c", LOOK)
    trial.check(second.probes.get("attacked") == "False" and second.probes.get("json", "").startswith("/usr/"), "the next run is clean")


@case(69, "write to descriptors 3–1023")
def descriptors(trial):
    file = os.open(trial.watch.root_file, os.O_RDWR)
    high = os.dup2(file, 900)
    outside = trial.outside("fds", "/nonexistent", fds=(file, high))
    trial.control(int(outside.probes.get("not_ebadf", "0")) >= 2, "two can be written outside")
    run = trial.inside("fds", "/nonexistent", fds=(file, high), options=["--files-open", "1024"])
    trial.check(run.probes.get("not_ebadf") == "0", "all 1021: EBADF")
    os.close(high)
    os.close(file)


RANDOM = """
import random, uuid, tempfile, os, ssl, secrets
print(random.random(), uuid.uuid4(), tempfile.mktemp(), os.urandom(8).hex(), ssl.RAND_bytes(8).hex(), secrets.token_hex(8))
"""


@case(70, "random numbers, uuids, TLS, temporary names")
def random(trial):
    seeded = "import random; random.seed(1)\n" + "print(random.random())"
    same = [trial.outside("/usr/bin/python3", "-c", seeded).text for _ in range(2)]
    trial.control(same[0] == same[1], "a copied state gives the same numbers")
    rows = [trial.cell("-l", "python", "-c", RANDOM).text.split() for _ in range(4)]
    trial.check(all(len(row) == 6 for row in rows), "four runs")
    repeated = [column for column in range(6) if len({row[column] for row in rows if len(row) == 6}) != 4]
    trial.check(not repeated, "all distinct" if not repeated else "columns repeat: %s" % repeated)


def first_maps(text):
    return re.findall(r"^([0-9a-f]+)-[0-9a-f]+ .*(?:stack|heap|vdso|cat|libc)", text, re.M)


@case(71, "address layout of two runs")
def maps(trial):
    fixed = [first_maps(trial.outside("/usr/bin/setarch", "-R", "cat", "/proc/self/maps").text) for _ in range(2)]
    trial.control(fixed[0] and fixed[0] == fixed[1], "equal without randomisation")
    runs = [first_maps(trial.cell("--", "/bin/cat", "/proc/self/maps").text) for _ in range(3)]
    trial.check(all(runs), "maps are read")
    shared = set(runs[0]) & set(runs[1]) | set(runs[0]) & set(runs[2])
    trial.check(not shared, "no address in common" if not shared else "%d addresses in common" % len(shared))
