"""Attacks on whoever reads the answer: 74–82; requests: 89, 90; and two of our own: 110, 111."""

import base64
import fcntl
import json
import os
import re
import signal
import stat
import subprocess
import termios

from suite import SLOW, case

MIB = 1 << 20


def request(trial, **fields):
    """`hotcell run --request` with this object."""
    return trial.cell("--request", "-", stdin=json.dumps(fields).encode())


def request_text(trial, text):
    return trial.cell("--request", "-", stdin=text.encode())


def refused(run):
    """The request was turned down before anything ran, as the request's own fault."""
    error = (run.result or {}).get("error")
    return run.code not in (0, None) and isinstance(error, dict) and error.get("code") in ("invalid_request", "forbidden")


def python(code):
    return ("-l", "python", "-c", code)


NASTY = [b"\0\0nul\0", b"\xff\xfe\xc3\x28 invalid", b"\x1b[2J\x1b]0;title\x07 ansi", b"\xe2\x82", b"\xed\xa0\x80 surrogate", b'"}\n{"status":"x"}',
         b"\xf0\x9f\x98\x80" * 10, b"y" * (MIB - 100), b"\r\n\x85\xe2\x80\xa8", b"\\u0000\\"]


@case(74, "NUL, invalid UTF-8, ANSI, a line of 1 MB")
def nasty(trial):
    for data in NASTY:
        path = trial.scratch() + "/nasty"
        with open(path, "wb") as file:
            file.write(data)
        outside = trial.outside("/bin/cat", path)
        trial.control(outside.bytes == data, "cat gives the same bytes outside")
        run = trial.cell("--output", "2m", "--", "/bin/sh", "-c", "cat nasty; cat nasty >&2", files=[path])
        trial.check(run.result is not None and run.bytes == data and run._stream("stderr") == data, "valid JSON, exact bytes"
                    if run.result and run.bytes == data else "%r… came out as %r… (%s)" % (data[:12], run.bytes[:12], run.err[:80]))
        raw = trial.cell("-q", "--output", "2m", "--", "/bin/cat", "nasty", files=[path], json_result=False)
        trial.check(raw.out == data, "streamed byte for byte")


@case(75, "forged results and protocol messages on stdout")
def forged(trial):
    fake = json.dumps({"id": "run_fake", "status": "oom", "exit_code": 0, "success": True})
    frame = b"\x01\0\0\0\x09\0\0\0" * 64 + b"Content-Length: 20\r\n\r\n" + json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}}).encode()
    path = trial.scratch() + "/frame"
    with open(path, "wb") as file:
        file.write(frame)
    script = "cat frame; echo '%s'; echo '%s' >&2; exit 3" % (fake, fake)
    outside = trial.outside("/bin/sh", "-c", script, cwd=trial.scratch())
    trial.control(fake in outside.text and outside.code == 3, "the same text outside")
    run = trial.cell("--", "/bin/sh", "-c", script, files=[path])
    trial.check(run.status == "error" and run.code == 3 and run.result["exit_code"] == 3 and not run.result["success"], "the true status")
    trial.check(run.bytes == frame + fake.encode() + b"\n", "plain data")


@case(76, "a result that is a symlink to a secret")
def symlink(trial):
    secret = trial.watch.root_file
    script = "mkdir out; ln -s %s out/a; ln -s ../../../../../..%s out/b; ln -s /proc/self/environ out/c; ln -s /etc/passwd out/d; " \
             "ln -s /proc/1/environ out/e; ln -s / out/f; echo fine > out/g" % (secret, secret)
    scratch = trial.scratch("links")
    subprocess.run(["/bin/sh", "-c", script], cwd=scratch, check=True)
    with open(scratch + "/out/a") as file:
        trial.control(trial.watch.token in file.read(), "it is read through the link outside")
    target = trial.scratch("collected")
    run = trial.cell("--collect", "out/*", "--collect", "out/f/etc/*", "--", "/bin/sh", "-c", script)
    files = {entry["path"]: entry for entry in (run.result or {}).get("files") or []}
    trial.check(files.get("out/g", {}).get("size") == 5, "a plain file is collected")
    wrong = [path for path, entry in files.items() if path != "out/g" and (entry.get("type") != "symlink" or "root:" in json.dumps(entry))]
    trial.check("out/a" in files and not wrong, "%d are typed as symlinks" % (len(files) - 1) if not wrong else "not typed: %s" % wrong)
    trial.check(not any(path.startswith("out/f/") for path in files), "no folder is followed")
    # In a folder of the host, a link that points out of it must not be followed by what is written after it.
    trial.cell("--collect", "out/*", "--collect", "link*", "--collect-to", target, "--", "/bin/sh", "-c",
               script + "; ln -s %s link" % os.path.dirname(trial.watch.file), json_result=False)
    followed = []
    for folder, _, names in os.walk(target):
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                with open(path, "rb") as file:
                    content = file.read()
                if b"root:" in content or trial.watch.token.encode() in content or len(content) > 200:
                    followed.append(name)
    trial.check(os.path.exists(target + "/out/g") and not followed, "none is followed on the way to a folder of the host"
                if not followed else "followed: %s" % followed)


@case(77, "fifo, socket, device as a result")
def special(trial):
    script = "import os,socket; os.mkdir('out'); os.mkfifo('out/fifo'); s=socket.socket(socket.AF_UNIX); s.bind('out/sock'); " \
             "open('out/plain','w').write('x')"
    scratch = trial.scratch("fifo")
    os.mkfifo(scratch + "/fifo")
    reader = subprocess.Popen(["cat", scratch + "/fifo"], stdout=subprocess.DEVNULL)
    try:
        reader.wait(0.5)
        stuck = False
    except subprocess.TimeoutExpired:
        stuck = True
    reader.kill()
    reader.wait()
    trial.control(stuck, "a plain reader hangs on it outside")
    plain = trial.cell("--collect", "out/*", *python("import os; os.mkdir('out'); open('out/plain','w').write('x')"))
    run = trial.cell("--collect", "out/*", *python(script))
    paths = [entry["path"] for entry in (run.result or {}).get("files") or []]
    trial.check(run.status == "completed" and paths == ["out/plain"], "skipped: only %s" % paths)
    trial.check(run.seconds < plain.seconds + 0.5 * SLOW, "%.0f ms against %.0f ms without them" % (run.seconds * 1000, plain.seconds * 1000))


@case(78, "a symlink at a name that hotcell writes")
def written_names(trial):
    scratch = trial.scratch("writes")
    with open(scratch + "/victim", "w") as file:
        file.write("mine")
    os.symlink(scratch + "/victim", scratch + "/main.py")
    with open(scratch + "/main.py", "w") as file:  # as one who writes the program where the guest could be before him
        file.write("print('second')")
    with open(scratch + "/victim") as file:
        trial.control(file.read() == "print('second')", "a plain writer overwrites what it leads to outside")
    plant = "ln -sf %s main.c; ln -sf %s main; ln -sf %s a.out; ln -sf /etc/passwd main.py; ln -sfn %s out; rm -r data; ln -s / data" % (
        trial.watch.file, trial.watch.root_file, trial.watch.root_file, os.path.dirname(trial.watch.file))
    run = request(trial, language="python", code="print('second')", files={"data/x": "y"},
                  stages=[{"command": ["/bin/sh", "-c", plant]}], collect=["*"])
    followed = [entry["path"] for entry in (run.result or {}).get("files") or [] if entry["type"] != "symlink"]
    trial.check(run.status == "error" and not followed, "a stage planted links: %s, and they are collected as links" % run.status
                if not followed else "followed: %s" % followed)
    # What a stage left is put into the cell of each test anew: names that are links by then, and one whose folder is.
    plant = "mkdir -p a; echo x > a/b; ln -sf %s victim; ln -s / root" % trial.watch.file
    again = request(trial, language="python", code="import os; print(os.path.islink('victim'), os.listdir('a'), open('main.py').read()[:6])",
                    stages=[{"command": ["/bin/sh", "-c", plant]}], tests=[{"expect_stdout": "True ['b'] import\n"}] * 2)
    verdicts = [test["verdict"] for test in (again.result or {}).get("tests") or []]
    trial.check(verdicts == ["passed", "passed"], "links stay links in the cells of tests: %s" % verdicts)
    test = request(trial, language="python", code="import os\nos.path.exists('stdin') or os.symlink('%s','stdin')\nprint(input())" % trial.watch.file,
                   tests=[{"stdin": "1\n", "expect_stdout": "1\n"}, {"stdin": "2\n", "expect_stdout": "2\n"}])
    verdicts = [test["verdict"] for test in (test.result or {}).get("tests") or []]
    trial.check(verdicts == ["passed", "passed"], "and a test that plants one: %s" % verdicts)


@case(79, "a symlink where hotcell cleans up or sets owners")
def cleaned(trial):
    shared = trial.scratch("shared")
    os.chmod(shared, 0o777)
    config = trial.scratch("config") + "/config.toml"
    with open(config, "w") as file:
        file.write('[mounts]\nallowed_read_paths = ["%s"]\nallowed_write_paths = ["%s"]\n' % (shared, shared))
    victim = trial.scratch("victim")
    with open(victim + "/file", "w") as file:
        file.write("x")
    decoy = trial.scratch("decoy")
    with open(decoy + "/file", "w") as file:
        file.write("x")
    os.symlink(decoy, trial.scratch("loose") + "/link")
    subprocess.run(["chmod", "-R", "700", trial.folder + "/loose/link/"], check=True)
    followed = os.stat(decoy + "/file").st_mode & 0o777 == 0o700
    subprocess.run(["find", "-L", trial.folder + "/loose", "-type", "f", "-delete"], check=True)
    trial.control(followed and not os.path.exists(decoy + "/file"), "who follows it sets the file's mode and removes it outside")
    owners = {path: (os.stat(path).st_uid, os.stat(path).st_gid, os.stat(path).st_mode) for path in (victim, victim + "/file", trial.watch.file)}
    script = "for d in /workspace /tmp /data; do ln -s %s $d/link; ln -s %s $d/file; ln -s / $d/root; mkdir -p $d/deep/er; chmod 000 $d/deep; done" % (
        victim, trial.watch.file)
    run = trial.cell("--config", config, "--mount", shared + ":/data:rw", "--", "/bin/sh", "-c", script)
    trial.check(run.status in ("completed", "error") and os.path.islink(shared + "/link"), "links planted, also in a host folder")
    after = {path: (os.stat(path).st_uid, os.stat(path).st_gid, os.stat(path).st_mode) for path in owners}
    trial.check(after == owners and os.listdir(victim) == ["file"], "owners, modes and files unchanged")
    setuid = trial.cell("--config", config, "--mount", shared + ":/data:rw", "--", "/bin/sh", "-c",
                        "cp /bin/sh /data/sh; chmod 6755 /data/sh; stat -c %a /data/sh")
    modes = [os.lstat(shared + "/" + name).st_mode for name in os.listdir(shared)]
    trial.check(not any(stat.S_ISREG(mode) and mode & 0o6000 for mode in modes), "no setuid file in a host folder (%s)" % setuid.text.strip())


@case(80, "hard links; a sparse result of 1 TB")
def sparse(trial):
    scratch = trial.scratch("sparse")
    subprocess.run(["truncate", "-s", "1T", scratch + "/big"], check=True)
    trial.control(os.path.getsize(scratch + "/big") == 1 << 40, "a terabyte that takes no room is made outside")
    run = trial.cell("--disk", "200m", "--collect", "*", "--timeout", "20", "--", "/bin/sh", "-c",
                     "truncate -s 1T big; truncate -s 150M sparse; echo x > one; ln one two; ln /etc/passwd three; ln -s big four")
    files = {entry["path"]: entry for entry in (run.result or {}).get("files") or []}
    trial.check(run.code is not None and run.peak < 256 * MIB, "hotcell stays at %d MiB" % (run.peak // MIB))
    trial.check("three" not in files, "a hard link to the image is not had")
    trial.check({"one", "two"} <= set(files), "one's own are two files")
    total = sum(len(entry.get("base64") or entry.get("text") or "") for entry in files.values())
    trial.check(total < 200 * MIB, "%d MiB come back" % (total // MIB))
    many = trial.cell("--collect", "*", "--inodes", "20000", "--timeout", "20", *python("for i in range(9000): open('f%d' % i, 'w').close()"))
    trial.check(many.code is not None and many.seconds < 20 * SLOW and many.peak < 256 * MIB, "9000 files: %.1f s" % many.seconds)
    deep = trial.cell("--collect", "**", "--collect", "*/*", "--timeout", "20", *python(
        "import os\nfor i in range(1500):\n os.mkdir('d'); os.chdir('d')\nopen('x','w').close()"))
    trial.check(deep.code is not None and deep.seconds < 15 * SLOW, "1500 folders deep: %.1f s" % deep.seconds)


@case(81, "every exit code and signal; lies about the cause", seconds=120)
def codes(trial):
    trial.control(trial.outside("crash", "exit", "77").code == 77 and trial.outside("crash", "signal", "10").code == -10, "both end so outside")
    wrong = []
    for code in [0, 1, 2, 3, 42, 63, 64, 77, *range(120, 145), 159, 160, 191, 192, 200, 254, 255]:
        run = trial.inside("crash", "exit", str(code))
        if run.code != code or run.status != ("error" if code else "completed") or run.result["exit_code"] != code or run.result["signal"]:
            wrong.append("exit %d: %s" % (code, run))
    ignored = {signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH, signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
    for number in [*(number for number in range(1, 32) if number not in ignored), 34, 50, 64]:
        run = trial.inside("crash", "signal", str(number))
        if run.code != 128 + number or run.status != "error" or run.result["signal"] != number:
            wrong.append("signal %d: %s" % (number, run))
    trial.check(not wrong, "all true" if not wrong else "; ".join(wrong[:3]))
    for lie in ("Out of memory: Killed process", "hotcell: timeout", "timed out; killed: used more than 64 MiB of memory", "MemoryError"):
        run = trial.inside("crash", "say", lie, "1")
        trial.check(run.status == "error" and not run.result["timed_out"], "text is not believed")
    for code, status in ((137, "error"), (124, "error"), (125, "error"), (0, "completed")):
        run = trial.inside("crash", "say", "oom", str(code))
        trial.check(run.status == status, "exit %d is %s" % (code, run.status))
    kill = trial.cell("--", "/bin/sh", "-c", "kill -9 $$")
    trial.check(kill.status == "error" and kill.result["signal"] == 9, "a SIGKILL of its own making is an error")


ROGUE_PATHS = ["../escape", "/absolute", "a/../../b", "..", ".", "", "a//b", "a/./b", "a/", "nul\0byte", "x" * 5000, "/workspace/../../etc/x", "./../x"]


@case(82, "file names that lead out, bombs")
def archives(trial):
    scratch = trial.scratch("open")
    with open(scratch + "/../escape", "w") as file:
        file.write("x")
    trial.control(os.path.exists(trial.folder + "/escape"), "a plain writer writes above its folder")
    good = request(trial, command=["cat", "a/b"], files={"a/b": "inside"})
    trial.control(good.text == "inside", "a clean name is accepted")
    for path in ROGUE_PATHS:
        run = request(trial, command=["true"], files={path: "x"})
        trial.check(refused(run), "refused" if refused(run) else "%r: %s" % (path[:20], run))
    for path in ("../escape", "/absolute", "a/../../b"):
        run = trial.cell("--file", trial.watch.file + ":" + path, "--", "true")
        trial.check(refused(run), "--file refused" if refused(run) else "--file %s: %s" % (path, run))
    both = request(trial, command=["true"], files={"a": "file", "a/b": "below a file"})
    trial.check(both.status != "completed", "a file below a file: %s" % (both.status or "refused"))
    link = request(trial, command=["true"], files={"a": {"symlink": "/etc"}, "a/b": "x"})
    trial.check(refused(link), "a symlink in a request is refused")
    bomb = trial.cell("--disk", "1m", "--request", "-", stdin=json.dumps(
        {"command": ["true"], "files": {"big": {"base64": base64.b64encode(bytes(20 * MIB)).decode()}}}).encode())
    trial.check(bomb.status != "completed", "20 MiB into a disk of 1 MiB: %s" % (bomb.status or "refused"))
    many = request(trial, command=["true"], files={"f%d" % i: "" for i in range(5000)})
    trial.check(refused(many), "5000 files are refused")
    for text, why in (('{"command":["true"],"files":{"a":"1","a":"2"}}', "duplicate keys"), ("[" * 100000, "deep nesting"),
                      ('{"command":["true"]} trailing', "trailing text"), ('{"command":["true"],"stdin":"\\ud800"}', "a lone surrogate"),
                      ('', "nothing"), ('null', "null"), ('[]', "a list"), ('{"command":["tr\\u0000ue"]}', "NUL in an argument"),
                      ('{"command":["true"],"files":{"a":{"base64":"!!!"}}}', "bad base64")):
        run = request_text(trial, text)
        trial.check(refused(run) and run.seconds < 5 * SLOW, "%s: refused" % why if refused(run) else "%s: %s" % (why, run))


LIMITS = ["timeout", "cpu_time", "memory", "swap", "cpus", "cpu_shares", "pids", "output", "disk", "inodes", "files_open"]
ROGUE_VALUES = ["-1", "-0.5", "9223372036854775808", "18446744073709551616", "1e300", "NaN", "inf", "", "lots", "1 2", "0x10", "1m2",
                "99999999999999999999999g", "-9223372036854775808"]
ROGUE_JSON = ["-1", "9223372036854775808", "1e400", "true", "[]", "{}", '"NaN"', '"-1"', '"lots"', '""', "-0.001"]


@case(89, "limits: negative, 2^63, NaN, wrong types", seconds=120)
def rogue_limits(trial):
    good = request(trial, command=["echo", "fine"], limits={"timeout": 5, "memory": "64m", "pids": 10})
    trial.control(good.text == "fine\n", "sound limits are accepted")
    accepted, tried = [], 0
    for name in LIMITS:
        for value in ROGUE_VALUES:
            run = trial.cell("--%s=%s" % (name.replace("_", "-"), value), "--", "true")
            tried += 1
            if not refused(run):
                accepted.append("--%s=%s" % (name, value))
        for value in ROGUE_JSON:
            run = request_text(trial, '{"command":["true"],"limits":{"%s":%s}}' % (name, value))
            tried += 1
            if not refused(run):
                accepted.append("%s: %s" % (name, value))
    trial.check(not accepted, "%d refused" % tried if not accepted else "accepted: " + ", ".join(accepted[:8]))
    for name in ("memory", "pids", "disk", "inodes", "files_open", "timeout", "output", "cpus"):
        run = trial.cell("--%s=0" % name.replace("_", "-"), "--", "true")
        trial.check(refused(run), "0 is never unlimited" if refused(run) else "--%s=0 is accepted: %s" % (name, run.status))


@case(90, "unknown fields and options")
def unknown(trial):
    good = request(trial, command=["echo", "fine"], env={"A": "b"}, metadata={"privileged": True})
    trial.control(good.text == "fine\n", "known fields are accepted")
    for field, value in (("privileged", True), ("preload", ["os"]), ("allow_weak", True), ("user", "root"), ("uid", 0), ("seccomp", "off"),
                         ("capabilities", ["all"]), ("Command", ["true"]), ("__proto__", {}), ("config", "/etc/x")):
        run = request(trial, **{"command": ["true"], field: value})
        text = (run.out + run.err).decode(errors="replace")
        trial.check(refused(run) and field in text, "refused, and named" if refused(run) else "%s: %s" % (field, run))
    for where, value in (("limits", {"privileged": 1}), ("mounts", [{"host": "/tmp", "path": "/x", "propagation": "shared"}]),
                         ("stages", [{"command": ["true"], "user": "root"}]), ("tests", [{"stdin": "", "privileged": True}])):
        run = request(trial, **{"command": ["true"], where: value})
        trial.check(refused(run), "refused within %s" % where if refused(run) else "%s: %s" % (where, run))
    for option in ("--privileged", "--preload=os", "--user=0", "--no-seccomp"):
        run = trial.cell(option, "--", "true")
        trial.check(refused(run), "options too" if refused(run) else "%s: %s" % (option, run))
    network = request(trial, command=["true"], network="host")
    trial.check(refused(network), "network host is refused" if refused(network) else "network host: %s" % network)


@case(110, "a leftover process lies in wait for the next job")
def ambush(trial):
    secret = trial.watch.root_file
    outside = trial.outside("/bin/sh", "-c", '"$1" "$2" look; sleep 0.3; cat found', "sh", trial.program("ambush"), secret, seconds=10)
    trial.control(trial.watch.token in outside.text, "it gets through a process of its own rights outside")
    for pid in trial.watch.leftovers():
        os.kill(pid, signal.SIGKILL)
    with open(trial.program("ambush"), "rb") as file:
        program = {"base64": base64.b64encode(file.read()).decode()}
    for mode in ("look", "stop", "kill"):
        run = request(trial, language="python", code="import time; time.sleep(0.2); print(open('found').read())", files={"ambush": program},
                      stages=[{"command": ["/bin/sh", "-c", "chmod +x ambush; ./ambush %s %s" % (secret, mode)]}], collect=["found"],
                      limits={"timeout": 3})
        found = json.dumps((run.result or {}).get("files")) + run.text
        trial.check(run.code is not None and run.seconds < 12 * SLOW, "%s: %s after %.1f s" % (mode, run.status, run.seconds))
        seen = [line for line in found.splitlines() if "is to be seen" in line and not re.search(r"-> (/workspace|/usr|/tmp|/dev/null|pipe:|$)", line)]
        trial.check(not seen, "%s: no descriptor of it is seen" % mode if not seen else "seen: %s" % seen[:2])
        alone = trial.inside("ambush", secret, mode, options=["--timeout", "3", "--collect", "found"])
        trial.check(alone.code is not None and alone.seconds < 8 * SLOW, "%s, then collect: %s after %.1f s" % (mode, alone.status, alone.seconds))


@case(111, "stdin that is a folder, a writable file, a terminal")
def standard_streams(trial):
    secret = trial.watch.root_file

    def with_stdin(fd, *command):
        process = subprocess.Popen([*command, secret], stdin=fd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=trial.environment,
                                   cwd=trial.scratch())
        return trial.finish(process, 20) if command[0] == trial.hotcell else process.communicate(timeout=20)[0].decode()

    cell = [trial.hotcell, "run", "--json", "--timeout", "5", "--file", trial.program("inherit"), "--", "./inherit"]
    folder = os.open(os.path.dirname(secret), os.O_RDONLY | os.O_DIRECTORY)
    trial.control(trial.watch.token in with_stdin(folder, trial.program("inherit")), "the folder leads to the token outside")
    run = with_stdin(folder, *cell)
    trial.check(run.code is not None and run.probes.get("climb_0", "refused") not in ("OK",), "from a folder: %s" % run.probes.get("climb_0", run.status or "refused"))
    os.close(folder)

    for mode in (os.O_RDWR, os.O_RDONLY):
        path = trial.scratch("stdin") + "/file"
        for where in ("outside", "inside"):
            with open(path, "w") as file:
                file.write("as it was\n")
            os.chmod(path, 0o666)
            fd = os.open(path, mode)
            if where == "outside":
                with_stdin(fd, trial.program("inherit"))
            else:
                run = with_stdin(fd, *cell)
            os.close(fd)
            with open(path) as file:
                same = file.read() == "as it was\n"
            if where == "outside":
                trial.control(not same, "the file behind stdin is changed outside")
            else:
                trial.check(same, "a file behind stdin is not changed inside")

    master, slave = os.openpty()
    process = subprocess.Popen([*cell, secret], stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=trial.environment,
                               start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    run = trial.finish(process, 20)
    found = run.probes
    typed = [name for name in ("type_0", "type_1", "type_2", "controlling", "terminal_0") if found.get(name) == "OK"]
    trial.check(found.get("type_0") and not typed, "no terminal of the host inside" if not typed else "the host's terminal: %s" % typed)
    os.close(master)
    os.close(slave)
