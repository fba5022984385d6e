"""Crashes and faults of a server: 101–109 where they differ from a run without one, and 200."""

import contextlib
import fcntl
import http.client
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import threading
import time

from cases.faults import gone, kill_all
from service import Service
from suite import SLOW, Stop, case
from watch import descendants

ROUNDS = int(os.environ["ATTACK_ROUNDS"])  # of 301: --rounds
ENDS = ("completed", "error", "timeout", "internal", "killed")


def accepted(server, runs, word, script="sleep 0.03; echo fine"):
    """One more asynchronous run, if the server is there to take it; its id is then one that must not be lost."""
    with contextlib.suppress(OSError, http.client.HTTPException, KeyError):
        run = server.submit(command=["/bin/sh", "-c", script + " # " + word])
        if run:
            runs.append(run)


def audit_is_whole(trial, server):
    done = subprocess.run([trial.hotcell, "audit", "verify", "--state", server.state], capture_output=True, text=True, env=trial.environment, timeout=60)
    return done.returncode == 0, (done.stdout + done.stderr).strip()


def lost(server, runs):
    """Those that were accepted and of which nothing is known, or not how they ended."""
    wrong = []
    for run in runs:
        answer = server.ended(run, within=30)
        if answer.run_status not in ENDS or (answer.run_status == "internal" and not answer.json.get("diagnosis")):
            wrong.append("%s: %s" % (run, answer))
    return wrong


@case(301, "kill -9 of keeper, warden, gateway at random instants", seconds=60 + 3 * ROUNDS, later=True)
def killed(trial):
    process = subprocess.Popen([trial.program("stubborn"), "reaper"], stdout=subprocess.PIPE)
    process.stdout.readline()
    process.kill()
    process.wait()
    time.sleep(0.05)
    left = descendants(os.getpid()) - trial.watch.baseline
    trial.control(left, "children outlive a kill -9 outside")
    kill_all(left)
    process.stdout.close()
    chance = random.Random(int(os.environ.get("ATTACK_SEED", "11")))
    server = Service(trial, "[server]\nconcurrent = 4\n")
    runs, late, kinds = [], [], {"keeper": 0, "warden": 0, "gateway": 0}
    server.start()
    for turn in range(ROUNDS):
        victim = list(kinds)[turn % 3]
        for _ in range(3):
            accepted(server, runs, "x")
        accepted(server, runs, "x", "(setsid sleep 60 &) ; sleep 60")
        time.sleep(chance.uniform(0, 0.12))
        if victim == "keeper":
            server.kill()
            if not gone(trial, 2):
                late.append("keeper in round %d" % turn)
                kill_all(trial.watch.leftovers())
            server.start()
        else:
            target = server.part(victim)
            cells = descendants(target) if victim == "warden" and target else set()
            kill_all([target] if target else [])
            deadline = time.monotonic() + 2 * SLOW
            while cells & descendants(os.getpid()) and time.monotonic() < deadline:
                time.sleep(0.005)
            if cells & descendants(os.getpid()):
                late.append("warden in round %d" % turn)
            deadline = time.monotonic() + 10 * SLOW
            while not server.answers():
                if time.monotonic() > deadline:
                    raise Stop("the server is not back after its %s was killed" % victim)
                time.sleep(0.02)
        for run in runs[-4:]:  # those that sleep are ended, so that the next ones get their turn
            with contextlib.suppress(OSError, http.client.HTTPException):
                server.request("DELETE", "/v1/runs/%s" % run)
        kinds[victim] += 1
    trial.check(not late, "%s killed: guests gone within 2 s" % ", ".join("%s ×%d" % pair for pair in kinds.items()) if not late else "LATE: %s" % late[:4])
    wrong = lost(server, runs)
    trial.check(len(runs) > ROUNDS and not wrong, "%d accepted, none lost" % len(runs) if not wrong else "%d LOST: %s" % (len(wrong), wrong[:2]))
    trial.check(server.run(command=["/bin/echo", "fine"]).text == "fine\n", "the next run passes")
    whole, words = audit_is_whole(trial, server)
    trial.check(whole, "the audit log is whole" if whole else words[-200:])
    trial.check(server.stop() == 0, "it stops")
    faults = trial.watch.settle(3)
    trial.check(not faults, "nothing is left" if not faults else "; ".join(faults))


@case(302, "no room in the state folder", later=True)
def no_space(trial):
    room = trial.scratch("small")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m,mode=0755", "none", room], check=True)
    try:
        os.mkdir(room + "/state")
        with Service(trial, state=room + "/state") as server:
            before = server.run(command=["/bin/echo", "before"])
            trial.control(before.text == "before\n" and server.submit(command=["/bin/true"]), "runs are accepted while there is room")
            with contextlib.suppress(OSError), open(room + "/fill", "wb", buffering=0) as file:
                while True:
                    file.write(b"x" * 4096)
            codes, accepted = {}, []
            for turn in range(16):
                answer = server.run(command=["/bin/sh", "-c", "head -c 200000 /dev/urandom"], **({"async": True} if turn % 2 else {}))
                codes[answer.status] = codes.get(answer.status, 0) + 1
                if answer.status == 202:  # the journal has its room already: that it was accepted is on disk
                    accepted.append(answer.json["id"])
            trial.check(codes.get(503, 0) >= 8 and set(codes) <= {200, 202, 503}, "full: %s" % codes)
            trial.check(server.get("/v1/runs/%s" % before.json["id"]).body == before.body, "what was there is still read")
            trial.check(server.get("/healthz").status == 200, "it is alive")
            kill_all([server.part("gateway")])
            time.sleep(1.0 * SLOW)
            os.unlink(room + "/fill")
            deadline = time.monotonic() + 15 * SLOW
            back = False
            while not back and time.monotonic() < deadline:
                with contextlib.suppress(OSError, http.client.HTTPException):
                    back = server.run(command=["/bin/echo", "after"]).text == "after\n"
                time.sleep(0.1)
            trial.check(back, "room, and a gateway killed meanwhile: runs pass again" if back else "does NOT recover: " + server.words_of_log()[-200:])
            trial.check(server.get("/v1/runs/%s" % before.json["id"]).body == before.body, "what was answered is there")
            ends = [server.ended(one).run_status for one in accepted]
            trial.check(set(ends) <= {"completed", "internal"}, "%d accepted meanwhile, none lost" % len(ends) if None not in ends else "LOST: %s" % ends)
            whole, words = audit_is_whole(trial, server)
            trial.check(whole, "the audit log is whole" if whole else words[-200:])
        with open(room + "/fill", "wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 4096)
        full = Service(trial, state=room + "/other", name="full")
        try:
            full.start(within=10)
            trial.check(full.run(command=["/bin/echo", "x"]).status in (200, 503), "a start without room serves or says no")
            full.stop()
        except Stop as told:
            words = str(told)
            trial.check("space" in words or "state" in words or "full" in words, "a start without room says why: %s" % words[-80:])
    finally:
        subprocess.run(["umount", "-l", room], check=True)


@case(303, "no more descriptors in the gateway")
def no_descriptors(trial):
    outside = trial.outside("objects", "100", wrap=["unshare", "-i"], limits={resource.RLIMIT_NOFILE: 20})
    trial.control("EMFILE" in outside.text, "a plain program gets EMFILE")
    told, codes, wrong = 0, {}, []
    for most in (20, 32, 44, 48, 52, 56, 60, 64, 72, 84):
        server = Service(trial, name="narrow-%d" % most, descriptors=most)
        try:
            server.start(within=10)
        except Stop:
            told += 1
            continue
        clients = []
        with contextlib.suppress(OSError):
            for _ in range(80):
                clients.append(socket.create_connection(("127.0.0.1", server.port), timeout=2))
        time.sleep(0.1)
        gateway, busy = server.part("gateway"), cpu_of(server.part("gateway"))
        try:
            answer = server.run(command=["/bin/echo", "fine"], within=1)
            word = answer.run_status or str(answer.status)
        except (OSError, http.client.HTTPException) as why:
            word = "waits" if isinstance(why, TimeoutError) else "closed"
        codes[word] = codes.get(word, 0) + 1
        used = cpu_of(gateway) - busy
        if used > 0.4:
            wrong.append("%d: spins, %.1f s of CPU" % (most, used))
        for client in clients:
            client.close()
        back = False
        deadline = time.monotonic() + 5 * SLOW
        while not back and time.monotonic() < deadline:
            with contextlib.suppress(OSError, http.client.HTTPException):
                answer = server.run(command=["/bin/echo", "fine"], within=5)
                back = answer.text == "fine\n"
        if not back or server.part("gateway") != gateway:
            wrong.append("%d: does not recover" % most)
        if server.stop() != 0:
            wrong.append("%d: does not stop" % most)
    trial.check(set(codes) <= {"completed", "503", "waits", "closed"} and codes, "80 connections and a run: %s; %d starts refused" %
                (", ".join("%s ×%d" % pair for pair in codes.items()), told))
    trial.check(not wrong, "each recovers, and none spins meanwhile" if not wrong else "; ".join(wrong[:4]))


def cpu_of(pid):
    with open("/proc/%d/stat" % pid) as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def starving(trial):
    """A libexec folder whose gateway is started with an allocation that fails, and the folder of languages that holds the real one."""
    binaries = os.path.dirname(trial.hotcell)
    libexec, languages = trial.scratch("libexec"), trial.scratch("languages")
    for name in os.listdir(binaries):
        if name.startswith("hotcell-") and os.path.isfile(os.path.join(binaries, name)):
            shutil.copy(os.path.join(binaries, name), libexec)
    shutil.copy(trial.program("starve"), libexec + "/hotcell-gateway")
    shutil.copy(os.path.join(binaries, "hotcell-gateway"), languages)
    shutil.copy(trial.program("libfailmalloc.so"), languages)
    for folder in (libexec, languages):
        os.chmod(folder, 0o755)
    return libexec, languages


ASK = [
    lambda server: server.run(command=["/bin/echo", "fine"], files={"a": "b"}, within=10),
    lambda server: server.post("/execute", {"generated_code": "print('fine')", "language": "python", "timeout": 10}, within=10),
    lambda server: server.run(**{"command": ["/bin/echo", "fine"], "async": True}, within=10),
    lambda server: server.post("/v1/runs", {"command": ["/bin/echo", "fine"]}, headers={"Accept": "text/event-stream"}, within=10),
    lambda server: server.get("/v1/runs", within=10),
    lambda server: server.run(command=["/bin/sh", "-c", "echo fine > a; echo fine"], collect=["a"], within=10),
    lambda server: server.post("/v1/runs", "{nonsense", headers={"Content-Type": "application/json"}, within=10),
    lambda server: server.get("/metrics", within=10),
    lambda server: server.get("/openapi.json", within=10),
]


def goes_on(server):
    with contextlib.suppress(OSError, http.client.HTTPException):
        return server.run(command=["/bin/echo", "fine"]).text == "fine\n"
    return False


def starved(trial, folders, number):
    """A server whose gateway's nth allocation fails, or why it did not start."""
    libexec, languages = folders
    with open(languages + "/fail_at", "w") as file:
        file.write(str(number))
    real = os.path.realpath(os.path.join(os.path.dirname(trial.hotcell), os.pardir, "languages"))  # libexec's neighbours are not there
    server = Service(trial, '[languages]\npaths = ["%s", "%s"]\n' % (languages, real), libexec=libexec, name="starved-%d" % number)
    try:
        server.start(within=10)
    except Stop as stop:
        return None, str(stop).strip()
    return server, ""


def allocations_until_ready(trial, folders):
    """About where failures stop to keep a gateway from reading its languages, whose files decide how many it makes until then."""
    low, high = 1, 1 << 21
    while high - low > 256:
        middle = (low + high) // 2
        server, _ = starved(trial, folders, middle)
        if server:
            high = middle
            server.stop()
        else:
            low = middle
    return low


@case(305, "the gateway's nth allocation fails", seconds=180, later=True)
def no_memory(trial):
    outside = [trial.outside("/bin/sh", "-c", "echo fine", env={"LD_PRELOAD": trial.program("libfailmalloc.so"), "FAIL_AT": str(number)}).code for number in range(1, 30)]
    trial.control(any(outside), "a plain program fails by it")
    gateway = os.path.join(os.path.dirname(trial.hotcell), "hotcell-gateway")
    if "libasan" in subprocess.run(["ldd", gateway], capture_output=True, text=True).stdout:
        trial.check(True, "an ASan build brings its own allocator")
        return
    told, died, fine, wrong = 0, 0, 0, []
    chance = random.Random(5)
    folders = starving(trial)
    ready = allocations_until_ready(trial, folders)
    # It opens its database after the languages, with some thousands; a request is some hundred.
    numbers = sorted({*chance.sample(range(1, ready), 8), *chance.sample(range(ready, ready + 16000), 20)})
    end = time.monotonic() + 100 * SLOW
    for number in numbers:
        if time.monotonic() > end:
            break
        server, why = starved(trial, folders, number)
        if server is None:
            told += 1
            if not why:
                wrong.append("%d: silent" % number)
            continue
        first = server.part("gateway")
        for ask in ASK:
            with contextlib.suppress(OSError, http.client.HTTPException):
                answer = ask(server)
                if answer.run_status == "completed" and "fine" not in answer.text:
                    wrong.append("%d: %s" % (number, answer))
        if not any(goes_on(server) for _ in range(2)):  # one allocation fails, and no more
            wrong.append("%d: does not go on: %s" % (number, server.words_of_log()[-150:]))
        if server.part("gateway") != first:
            died += 1
            wrong.append("%d: the gateway died: %s" % (number, server.words_of_log()[-150:]))
        else:
            fine += 1
        if server.stop() != 0:
            wrong.append("%d: does not stop" % number)
    trial.check(told >= 5 and fine >= 5, "%d failed allocations: %d starts that said why, %d gateways that went on, %d that died" % (told + fine + died, told, fine, died))
    trial.check(not wrong, "clean" if not wrong else "%d WRONG: %s" % (len(wrong), "; ".join(wrong[:3])))


@case(306, "stale and busy control groups before a server starts")
def stale_groups(trial):
    parents = [path for path in trial.watch.groups.own if "/pids/" in path or "/memory/" in path or "/unified/" in path]
    if not parents:
        parents = [root for root in trial.watch.groups.roots if os.path.exists(root + "/cgroup.controllers")]
    trial.need(parents, "there are control groups" if parents else "there are no control groups here")
    stale, held, locks = [], [], []
    victim = subprocess.Popen(["sleep", "60"])
    for parent in parents:
        for name, kind in (("hotcell-4190011-b1", stale), ("hotcell-4190012-b2", held)):
            os.makedirs(parent + "/" + name + "/cell", exist_ok=True)
            kind.append(parent + "/" + name)
        locks.append(os.open(held[-1], os.O_RDONLY | os.O_DIRECTORY))
        fcntl.flock(locks[-1], fcntl.LOCK_EX)
        with open(stale[-1] + "/cell/cgroup.procs", "w") as file:
            file.write(str(victim.pid))
    trial.control(all(map(os.path.isdir, stale)) and victim.poll() is None, "they stay, and their process lives, while no hotcell starts")
    with Service(trial) as server:
        trial.check(server.run(command=["/bin/echo", "fine"]).text == "fine\n", "a server beside them passes")
        left = [path for path in stale if os.path.isdir(path)]
        trial.check(not left and victim.wait(2) is not None, "stale ones are cleared, with what lives in them" if not left else "left: %s" % left)
        trial.check(all(map(os.path.isdir, held)), "one that is held is left alone")
        beside = Service(trial, name="beside")
        with beside:
            trial.check(server.run(command=["/bin/echo", "fine"]).text == "fine\n" == beside.run(command=["/bin/echo", "fine"]).text, "two servers leave each other's alone")
    for lock, path in zip(locks, held):
        os.close(lock)
        for folder in (path + "/cell", path):
            if os.path.isdir(folder):
                os.rmdir(folder)


@case(307, "mounts after a server was killed", later=True)
def stale_mounts(trial):
    room = trial.scratch("mounted")
    outside = trial.outside("/bin/sh", "-c", 'mount -t tmpfs none "$1"; sleep 5 & kill -9 $!; wait; grep -c " $1 " /proc/self/mountinfo', "sh", room, wrap=["unshare", "-m"])
    trial.control(outside.text.strip() == "1", "a mount outlives a process outside")
    folder = trial.scratch("shared")
    os.chmod(folder, 0o755)
    with open(folder + "/hello", "w") as file:
        file.write("hello\n")
    config = '[mounts]\nallowed_read_paths = ["%s"]\n' % folder
    for turn in range(3):
        server = Service(trial, config).start()
        for _ in range(3):
            server.submit(command=["/bin/sleep", "60"], mounts=[{"host": folder, "path": "/data"}], read_only=turn != 1)
        time.sleep(0.05 * turn)
        if turn == 2:
            kill_all([server.part("warden"), server.part("gateway")])
        server.kill()
        trial.check(gone(trial, 2), "killed with its cells, %d times" % (turn + 1) if not trial.watch.leftovers() else "still there after 2 s")
    with Service(trial, config) as server:
        answer = server.run(command=["/bin/cat", "/data/hello"], mounts=[{"host": folder, "path": "/data"}])
        trial.check(answer.text == "hello\n", "the next start serves")
    faults = [fault for fault in trial.watch.settle(2) if "mounts" in fault]
    trial.check(not faults, "no mount is left" if not faults else faults[0])


@case(309, "SIGTERM with 100 runs")
def terminated(trial):
    process = subprocess.Popen([trial.program("stubborn"), "block"], stdout=subprocess.PIPE)
    process.stdout.readline()
    process.terminate()
    time.sleep(0.1)
    trial.control(process.poll() is None, "the same program ignores SIGTERM outside")
    process.kill()
    process.communicate()
    count = max(10, int(100 / SLOW))  # what the second of a drain and the keeper's five after it are enough for
    server = Service(trial, "[server]\nconcurrent = %d\nqueue = 100\ndrain_time = '1s'\n" % count).start()
    runs = [server.submit(command=["/bin/sh", "-c", "trap '' TERM INT HUP; while :; do sleep 1; done"], limits={"memory": "32m", "timeout": 60}) for _ in range(count)]
    waited = []
    threads = [threading.Thread(target=lambda: waited.append(server.run(command=["/bin/sh", "-c", "sleep 30"]))) for _ in range(4)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 20 * SLOW
    while server.get("/v1/stats").json["runs"]["running"] < count and time.monotonic() < deadline:
        time.sleep(0.05)
    going = server.get("/v1/stats").json["runs"]["running"]
    trial.check(all(runs) and going == count, "%d at a time" % going)
    begin = time.monotonic()
    code = server.stop(within=20)
    took = time.monotonic() - begin
    for thread in threads:
        thread.join()
    trial.check(code == 0 and took < 6 * SLOW and gone(trial, 1), "drained after %.1f s, 1 s allowed: exit %s" % (took, code))
    trial.check({answer.run_status or answer.status for answer in waited} <= {"killed", 503}, "those that waited are told: %s" % sorted({str(answer.run_status or answer.status) for answer in waited}))
    server.start()
    ends = {}
    for run in runs:
        word = server.ended(run).run_status
        ends[word] = ends.get(word, 0) + 1
    trial.check(ends == {"killed": count}, "recorded: %s" % ends)
    trial.check(server.stop() == 0, "it stops again")


@case(310, "a storm of SIGHUP while runs go on")
def storm(trial):
    sleeper = subprocess.Popen(["sleep", "30"])
    sleeper.send_signal(signal.SIGHUP)
    trial.control(sleeper.wait(2) == -signal.SIGHUP, "a plain program dies of one")
    with Service(trial) as server:
        stop = threading.Event()

        def shake():
            while not stop.is_set():
                server.process.send_signal(signal.SIGHUP)
                time.sleep(0.003)

        thread = threading.Thread(target=shake)
        thread.start()
        ends = [server.run(command=["/bin/sh", "-c", "sleep 0.02; echo fine"]).text for _ in range(20)]
        stop.set()
        thread.join()
        trial.check(ends == ["fine\n"] * 20, "20 runs pass through some hundred reloads")
        trial.check(server.part("gateway") and "died" not in server.words_of_log(), "nobody died")
