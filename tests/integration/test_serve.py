"""The three processes of a server: what each may do, read from /proc; and what becomes of everything when one of them is killed or stopped."""

import contextlib
import os
import pathlib
import pwd
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

from cells import HOTCELL, SLOW, processes_with, start_time, token, tree_of, until
from cells import alive as alive_in
from server import Server, groups_of, start_server  # noqa: F401 (fixture)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has processes with uids of their own")

CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
ONE_AT_A_TIME = "[server]\nconcurrent = 1\n"
COLD = "[pool]\nmax = 0\n[warm]\nenabled = false\n"  # for tests that count cells and processes: none but those of runs
SLEEP = "import time; time.sleep(60)"


# ---- what /proc says ----

def status(pid, thread=None):
    text = pathlib.Path(f"/proc/{pid}/task/{thread}/status" if thread else f"/proc/{pid}/status").read_text()
    return {line.split(":")[0]: line.split(":", 1)[1].split() for line in text.splitlines()}


def spaces(pid):
    return {name: os.readlink(f"/proc/{pid}/ns/{name}") for name in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")}


def open_files(pid):
    """What a process has open: {fd: what /proc calls it}."""
    found = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            found[int(name)] = os.readlink(f"/proc/{pid}/fd/{name}")
    return found


def sockets():
    """What this machine's sockets are: {"socket:[inode]": "listener", "pair" (no name, keeps messages apart) or "stream"}."""
    found = {}
    for name in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            found[f"socket:[{fields[9]}]"] = "listener" if fields[3] == "0A" else "stream"
    for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        kind = "pair" if fields[4] == "0005" and len(fields) == 7 else "stream"
        found[f"socket:[{fields[6]}]"] = "listener" if int(fields[3], 16) & 0x10000 else kind
    return found


def kinds_of(pid):
    """The same with sockets by what they are, and without numbers that are different each time."""
    known = sockets()
    return sorted(re.sub(r"\[\d+\]$", "", known.get(target, target)) for target in open_files(pid).values())


class Processes:
    def __init__(self, server, guest):
        self.keeper, self.guest = server.process.pid, guest
        self.warden, self.gateway = server.process_of("hotcell-warden"), server.process_of("hotcell-gateway")
        self.inits = [pid for pid in server.descendants() if name_of(pid) == "hotcell-init"]


def name_of(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


@pytest.fixture(scope="module")
def busy():
    """A server in which one run waits."""
    with Server(COLD) as server:
        word = token()
        run = submit(server, command=["/bin/sh", "-c", f"sleep 600 # {word}\n:"])
        assert until(lambda: guests(word)), "the run does not start"
        quiet(server, 1)
        until(lambda: server.get("/v1/stats").json["runs"]["running"] == 1)
        server.processes = Processes(server, guests(word)[0])
        yield server
        server.delete(f"/v1/runs/{run}")


@pytest.fixture(scope="module")
def processes(busy):
    return busy.processes


def test_the_gateway_has_a_uid_that_nobody_else_has(processes):
    fields = status(processes.gateway)
    assert len(set(fields["Uid"])) == 1 and len(set(fields["Gid"])) == 1 and fields["Groups"] == []
    uid = int(fields["Uid"][0])
    assert uid != 0 and int(fields["Gid"][0]) != 0
    others = {pid: status(pid)["Uid"][0] for pid in (processes.keeper, processes.warden, processes.guest, *processes.inits)}
    assert str(uid) not in others.values(), others
    with pytest.raises(KeyError):
        pwd.getpwuid(uid)


def test_the_gateway_has_no_capability_and_no_way_to_one(processes):
    for thread in os.listdir(f"/proc/{processes.gateway}/task"):
        fields = status(processes.gateway, thread)
        assert {name: int(fields[name][0], 16) for name in CAPABILITIES} == dict.fromkeys(CAPABILITIES, 0)
        assert fields["NoNewPrivs"] == ["1"]


def test_every_thread_of_the_gateway_has_its_filter(processes):
    threads = os.listdir(f"/proc/{processes.gateway}/task")
    assert len(threads) >= 2, "the store has a thread of its own"
    for thread in threads:
        assert status(processes.gateway, thread)["Seccomp"] == ["2"]


def test_the_gateway_is_in_namespaces_of_its_own(processes):
    gateway, host, warden, guest = map(spaces, (processes.gateway, processes.keeper, processes.warden, processes.guest))
    for name in ("mnt", "net", "ipc", "uts"):
        assert gateway[name] not in (host[name], warden[name], guest[name]), name
    assert spaces("self") == host


def test_the_gateways_network_has_nothing_in_it(processes):
    lines = pathlib.Path(f"/proc/{processes.gateway}/net/dev").read_text().splitlines()[2:]
    assert [line.split(":")[0].strip() for line in lines] == ["lo"]
    assert pathlib.Path(f"/proc/{processes.gateway}/net/route").read_text().splitlines()[1:] == []


def test_the_gateways_root_has_only_what_it_needs(busy, processes):
    root = pathlib.Path(f"/proc/{processes.gateway}/root")
    links = {name for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32") if os.path.lexists(f"/{name}")}
    alternatives = os.path.isdir("/etc/alternatives")
    assert set(os.listdir(root)) == {"usr", "state", "languages", "proc", "dev"} | links | ({"etc"} if alternatives else set())
    assert not alternatives or os.listdir(root / "etc") == ["alternatives"]
    assert os.listdir(root / "dev") == ["null"] and os.listdir(root / "proc") == ["self"] and os.listdir(root / "languages") == ["0"]
    assert set(os.listdir(root / "state")) == set(os.listdir(busy.state))
    mounts = {}
    for line in pathlib.Path(f"/proc/{processes.gateway}/mountinfo").read_text().splitlines():
        fields = line.split()
        mounts[fields[4]] = set(fields[5].split(","))
    assert set(mounts) >= {"/", "/usr", "/state", "/proc/self", "/languages/0", "/dev/null"}
    assert {path for path, options in mounts.items() if "rw" in options} == {"/state", "/dev/null"}
    assert all("nosuid" in options and "nodev" in options for path, options in mounts.items() if path != "/dev/null"), mounts
    assert "noexec" in mounts["/state"]


def test_the_gateway_cannot_replace_the_audit_log(busy, processes):
    folder, log = busy.state.stat(), (busy.state / "audit.log").stat()
    assert folder.st_uid == 0 and folder.st_mode & 0o1000, "the folder is sticky, and not the gateway's"
    assert log.st_uid == 0 and log.st_mode & 0o077 == 0
    number = next(fd for fd, target in open_files(processes.gateway).items() if target.endswith("/audit.log"))
    flags = re.search(r"^flags:\s+(\d+)", pathlib.Path(f"/proc/{processes.gateway}/fdinfo/{number}").read_text(), re.M)[1]
    assert int(flags, 8) & os.O_ACCMODE == os.O_RDONLY, "it can read the log, and the keeper appends"


def test_the_gateway_has_open_what_it_was_given_and_its_own_files(busy, processes):
    for _ in range(3):
        assert busy.run(command=["/bin/true"]).status == 200
    expected = {"/dev/null", "pair", "listener", "anon_inode:[eventpoll]", "anon_inode:[timerfd]", "anon_inode:[eventfd]", "pipe:",
                "/proc/self/statm", "/proc/self/fd", "/state/history.db", "/state/history.db-wal", "/state/history.db-shm", "/state/history.db-runs",
                f"{busy.state}/audit.log", "/memfd:hotcell (deleted)"}
    assert until(lambda: set(kinds_of(processes.gateway)) <= expected), set(kinds_of(processes.gateway)) - expected
    kinds = kinds_of(processes.gateway)
    assert kinds.count("pair") == 3, "the keeper, the keeper for the audit log, and the warden"
    assert kinds.count("listener") == 2, "the address and the unix socket"


def test_the_warden_is_root_only_in_a_namespace_of_its_own(processes):
    fields = status(processes.warden)
    assert "0" not in fields["Uid"] + fields["Gid"] and fields["Groups"] == [] and fields["NoNewPrivs"] == ["1"]
    host, warden = spaces(processes.keeper), spaces(processes.warden)
    assert all(warden[name] != host[name] for name in ("user", "mnt", "pid"))
    for name in ("uid_map", "gid_map"):
        inside, outside, count = map(int, pathlib.Path(f"/proc/{processes.warden}/{name}").read_text().split())
        assert inside == 0 and outside >= 1 << 16 and outside + count <= 1 << 32, name
    assert pathlib.Path(f"/proc/{processes.warden}/environ").read_bytes() == b""


def test_the_warden_has_no_listener_no_database_and_no_host_folder(busy, processes):
    targets, kinds = open_files(processes.warden), kinds_of(processes.warden)
    assert "listener" not in kinds and "stream" not in kinds
    assert kinds.count("pair") == 3, "the gateway, the keeper, and the keeper for host folders"
    counters = r"cpu\.stat|memory\.(max_usage_in_bytes|oom_control|peak|events)|pids\.(peak|events|current)"  # of a cell's own group
    own = (r"(/dev)?/null|socket:.*|pipe:.*|anon_inode:\[(eventpoll|timerfd|eventfd|pidfd)\]|pid:\[\d+\]|/|"
           rf"/cell\d+(\.\d+)?(/({counters}))?|/memfd:hotcell-book.*|.*/hotcell-init")
    others = {fd: target for fd, target in targets.items() if not re.fullmatch(own, target)}
    assert not others, others
    base = f"/proc/{processes.warden}/fd"
    for fd, target in targets.items():
        if os.path.isdir(f"{base}/{fd}"):
            assert "etc" not in os.listdir(f"{base}/{fd}" + "/.." * 32), f"{target} leads up to the host"
    assert {os.path.basename(targets[fd]) for fd in (0, 1, 2)} == {"null"}, "nothing of the keeper's terminal"
    assert not any(str(busy.state) in target for target in targets.values())


def test_the_keeper_listens_and_keeps_the_state(busy, processes):
    kinds = kinds_of(processes.keeper)
    assert kinds.count("listener") == 2
    assert kinds.count(str(busy.state)) == 1 and kinds.count(f"{busy.state}/audit.log") == 1
    own = r"/dev/null|pipe:|listener|pair|stream|anon_inode:\[(eventpoll|timerfd|signalfd|pidfd)\]|/sys/fs/cgroup(/.*)?|.*/cgroup/.*"
    own += r"|.*/hotcell-(warm|session|door)\.so|.*/languages/warm/.*"  # what the next warden's root is made with
    others = [kind for kind in kinds if not re.fullmatch(own, kind) and not kind.startswith(str(busy.state))]
    assert not others, others
    assert kinds.count("stream") <= 1, "the uid range is held by one name"


def test_neither_warden_nor_gateway_inherits_the_environment(start_server):
    secret = token()
    server = start_server(env={"HOTCELL_TEST_SECRET": secret})
    for name in ("hotcell-warden", "hotcell-gateway"):
        assert secret.encode() not in pathlib.Path(f"/proc/{server.process_of(name)}/environ").read_bytes(), name
    assert secret.encode() in pathlib.Path(f"/proc/{server.process.pid}/environ").read_bytes()


def test_each_cell_has_uids_of_its_own(start_server):
    server = start_server(COLD + "[server]\nconcurrent = 3\n")
    word = token()
    runs = [submit(server, command=["/bin/sh", "-c", f"sleep 600 # {word}\n:"]) for _ in range(3)]
    assert until(lambda: len(guests(word)) == 3)
    quiet(server, 3)
    seen = []
    for pid in server.descendants()[1:]:
        fields = status(pid)
        if fields["Name"][0] != "sleep":  # the shell's child, which is its uid as well
            seen.append((fields["Uid"][0], fields["Name"][0]))
    assert sorted(name for _, name in seen) == ["hotcell-gateway", *["hotcell-init"] * 3, "hotcell-warden", *["sh"] * 3], seen
    assert len({uid for uid, _ in seen}) == len(seen) and not any(uid == "0" for uid, _ in seen), seen
    for run in runs:
        server.delete(f"/v1/runs/{run}")


def test_guests_get_nothing_of_how_the_server_was_started(start_server):
    """Its terminal, blocked signals, a fixed address layout, a priority: none of it is for guests."""
    server = start_server()
    plain = server.run(command=["/bin/sh", "-c", "grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status; cat /proc/self/personality"]).json["stdout"]
    assert re.search(r"^SigBlk:\t0+$", plain, re.M) and re.search(r"^SigIgn:\t0+$", plain, re.M), plain
    odd = Server()
    odd.words = ["setarch", "-R", *(["chrt", "-r", "1"] if can_be_real_time() else []), "/usr/bin/python3", "-c", IGNORE_ALL, *odd.words]
    with odd:
        ignored = odd.run(command=["/bin/sh", "-c", "grep ^SigIgn /proc/self/status"]).json["stdout"]
        assert re.fullmatch(r"SigIgn:\t0+\n", ignored), ignored
        stacks = {odd.run(command=["/bin/sh", "-c", "grep stack /proc/self/maps"]).json["stdout"] for _ in range(3)}
        assert len(stacks) == 3, stacks
        scheduler = odd.run(code="import os; print(os.sched_getscheduler(0) == os.SCHED_OTHER)").json["stdout"]
        assert scheduler == "True\n"
        session = pathlib.Path(f"/proc/{odd.process_of('hotcell-warden')}/stat").read_text().rpartition(")")[2].split()[3]
        assert int(session) != os.getsid(odd.process.pid)


# By the system call, so that those which a C library keeps for itself (32 to 34) are ignored as well.
IGNORE_ALL = """
import ctypes, os, sys
action = (ctypes.c_uint64 * 4)(1)
for number in range(1, 65):
    if number not in (9, 15, 17, 19):
        ctypes.CDLL(None).syscall(13, number, action, None, 8)
os.execv(sys.argv[1], sys.argv[1:])
"""


def can_be_real_time():
    return subprocess.run(["chrt", "-r", "1", "true"], capture_output=True, check=False).returncode == 0


# ---- what is used below ----

def quiet(server, cells):
    """Languages are asked for their versions in cells, one after the other, when a server has started. Waits until only so many are there."""
    def counted():
        return sum(name_of(pid) == "hotcell-init" for pid in server.descendants()) == cells

    def stays():
        return all(counted() and not time.sleep(0.1) for _ in range(4))

    assert until(stays, 60), [name_of(pid) for pid in server.descendants()]


def submit(server, **fields):
    answer = server.run(**fields, **{"async": True})
    assert answer.status == 202, answer
    return answer.json["id"]


def guests(word):
    """Shells in cells with this word on their command line."""
    return [pid for pid in processes_with(word) if name_of(pid) == "sh"]


def answer_of(server, run):
    """A run's answer; None while there is no gateway to give it."""
    with contextlib.suppress(OSError, AssertionError):
        answer = server.get(f"/v1/runs/{run}", within=5)
        return answer.json if answer.status == 200 else None
    return None


def ended(server, run, within=30):
    def look():
        result = answer_of(server, run)
        return result if result and "success" in result else None

    assert until(look, within), f"{run} does not end: {answer_of(server, run)}, log {server.log[-10:]}"
    return look()


def running(server, run):
    assert until(lambda: (answer_of(server, run) or {}).get("status") == "running", 20), answer_of(server, run)


def end_process(pid, number=signal.SIGKILL):
    assert pid is not None
    os.kill(pid, number)


def answers(server):
    with contextlib.suppress(OSError, AssertionError):
        return server.get("/readyz", within=2).status == 200
    return False


class Knocking:
    """A client that goes on opening connections: none may be refused, and how long it took to be answered is remembered."""

    def __init__(self, server):
        self.server, self.refused, self.waits, self.lost = server, [], [], 0
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.work, daemon=True)

    def work(self):
        while not self.stop.is_set():
            begin = time.monotonic()
            try:
                self.knock(begin)
            except OSError as wrong:
                self.refused.append(wrong)
            time.sleep(0.005)

    def knock(self, begin):
        for kind, address in ((socket.AF_INET, ("127.0.0.1", self.server.port)), (socket.AF_UNIX, self.server.unix)):
            with socket.socket(kind) as client:
                client.settimeout(10 * SLOW)
                client.connect(address)
                try:
                    client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                    reply = client.recv(100)
                except OSError:
                    reply = b""
                if reply.startswith(b"HTTP/1.1 200"):
                    self.waits.append(time.monotonic() - begin)
                else:
                    self.lost += 1  # it was accepted by the one that died

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join(20 * SLOW)


def create_key(server, name, *words):
    done = subprocess.run([HOTCELL, "key", "create", name, *words, "--state", str(server.state)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done
    return done.stdout.strip()


def audit_is_whole(server):
    done = subprocess.run([HOTCELL, "audit", "verify", "--state", str(server.state)], capture_output=True, text=True, timeout=30)
    return done.returncode == 0, done.stdout + done.stderr


def history(server, **options):
    found, before = [], ""
    while True:
        page = server.get(f"/v1/runs?limit=100{before}", **options).json
        found += page["runs"]
        if not page["next"]:
            return {row["id"]: row for row in found}
        before = f"&before={page['next']}"


# ---- the gateway dies ----

def test_a_gateway_that_is_killed_is_back_within_a_second(start_server):
    server = start_server()
    time.sleep(0.7)
    first = server.process_of("hotcell-gateway")
    with Knocking(server) as knocking:
        time.sleep(0.2)
        begin = time.monotonic()
        end_process(first)
        assert until(lambda: server.process_of("hotcell-gateway") not in (None, first) and answers(server), 10)
        took = time.monotonic() - begin
        time.sleep(0.2)
    assert took < 1 * SLOW, took
    assert not knocking.refused, knocking.refused
    assert len(knocking.waits) > 10 and max(knocking.waits) < 1.5 * SLOW, (len(knocking.waits), max(knocking.waits))
    assert any("gateway died" in line for line in server.log), server.log


def test_the_death_of_the_gateway_loses_nothing_that_was_accepted(start_server):
    server = start_server(ONE_AT_A_TIME)
    key = {"Authorization": f"Bearer {create_key(server, 'ada')}"}
    before = [server.run(command=["/bin/echo", str(i)], headers=key).json for i in range(5)]
    word = token()
    first = submit(server, command=["/bin/sh", "-c", f"echo begun; sleep 600 # {word}\n:"], headers=key)
    queued = [submit(server, code=f"print('went on {i}')", headers=key) for i in range(6)]
    assert until(lambda: guests(word))
    time.sleep(0.3)
    end_process(server.process_of("hotcell-gateway"))
    assert until(lambda: not guests(word), 2), "a cell outlives its gateway"
    assert until(lambda: answers(server), 10)
    rows = {}
    for run in (first, *queued):
        assert until(lambda run=run: "success" in server.get(f"/v1/runs/{run}", headers=key).json, 20), server.log[-5:]
        rows[run] = server.get(f"/v1/runs/{run}", headers=key).json
    assert rows[first]["status"] == "internal" and "stopped" in rows[first]["diagnosis"]["message"], rows[first]
    assert [rows[run]["stdout"] for run in queued] == [f"went on {i}\n" for i in range(6)]
    assert server.get("/v1/runs", headers={"Authorization": "Bearer nonsense"}).status == 401
    assert all(server.get(f"/v1/runs/{run['id']}", headers=key).json == run for run in before)
    assert set(history(server, headers=key)) == {run["id"] for run in before} | {first, *queued}
    whole, words = audit_is_whole(server)
    assert whole, words


def test_a_synchronous_run_is_recorded_although_its_gateway_died(start_server):
    server = start_server()
    word = token()
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(run_or_nothing(server, f"sleep 600 # {word}\n:")))
    thread.start()
    assert until(lambda: guests(word))
    time.sleep(0.2)
    end_process(server.process_of("hotcell-gateway"))
    thread.join(20)
    assert outcome == [None]
    assert until(lambda: answers(server), 10)
    assert until(lambda: [row["status"] for row in history(server).values()] == ["internal"], 5), history(server)


def run_or_nothing(server, script):
    with contextlib.suppress(OSError, Exception):
        return server.run(command=["/bin/sh", "-c", script])
    return None


def test_a_gateway_that_is_killed_again_and_again_loses_nothing(start_server):
    server = start_server(ONE_AT_A_TIME)
    accepted, killed = {}, set()
    with Knocking(server) as knocking:
        for turn in range(8):
            for i in range(3):
                with contextlib.suppress(OSError, AssertionError):
                    accepted[submit(server, code=f"import time; time.sleep(0.05); print('turn {turn} run {i}')")] = f"turn {turn} run {i}\n"
            gateway = server.process_of("hotcell-gateway")
            if gateway:
                killed.add(gateway)
                with contextlib.suppress(OSError):
                    end_process(gateway)
            assert until(lambda: answers(server), 10), server.log[-10:]
    assert len(killed) >= 6 and len(accepted) >= 12 and not knocking.refused, (len(killed), len(accepted), knocking.refused[:3])
    for run, text in accepted.items():
        result = ended(server, run)
        assert result["stdout"] == text or (result["status"] == "internal" and result["diagnosis"]["message"]), result
    assert set(accepted) <= set(history(server))
    whole, words = audit_is_whole(server)
    assert whole, words


def test_a_stream_goes_on_after_the_gateway_died(start_server):
    """Not its run, which is over; its reader is told how it ended."""
    server = start_server()
    run = submit(server, code="import time\nprint('first', flush=True)\ntime.sleep(60)")
    with server.events(f"/v1/runs/{run}/events") as stream:
        for event in stream:
            if event.name == "stdout":
                break
        end_process(server.process_of("hotcell-gateway"))
        with contextlib.suppress(OSError, Exception):
            list(stream)
    assert until(lambda: answers(server), 10)
    with server.events(f"/v1/runs/{run}/events") as stream:
        assert list(stream)[-1].data["status"] == "internal"


# ---- the warden dies ----

def test_the_death_of_the_warden_ends_every_cell_at_once_and_the_queue_goes_on(start_server):
    server = start_server("[server]\nconcurrent = 3\n")
    word, daemon = token(), token()
    script = f"(setsid sh -c 'sleep 600 # {daemon}\n:' &) ; (setsid sh -c 'sleep 600 # {daemon}\n:' &) ; sleep 600 # {word}\n:"
    runs = [submit(server, command=["/bin/sh", "-c", script]) for _ in range(3)]
    queued = [submit(server, code=f"print({i})") for i in range(5)]
    assert until(lambda: len(guests(daemon)) >= 6 and len(guests(word)) >= 3)
    for run in runs:
        running(server, run)
    old = server.process_of("hotcell-warden")
    family = tree_of(old)
    groups = set(groups_of({server.process.pid}))
    assert groups and len(family) >= 12, (groups, family)
    begin = time.monotonic()
    end_process(old)
    assert until(lambda: not alive_in(family), 2, every=0.001), [name_of(pid) for pid in alive_in(family)]
    took = time.monotonic() - begin
    for run in runs:
        result = ended(server, run)
        assert result["status"] == "internal" and "warden" in result["diagnosis"]["message"], result
    assert [ended(server, run)["stdout"] for run in queued] == [f"{i}\n" for i in range(5)]
    assert took < 0.5 * SLOW, took
    new = server.process_of("hotcell-warden")
    assert new not in (None, old)
    assert not groups & set(groups_of({server.process.pid})), "groups of the dead warden are left"
    assert not guests(daemon) and not guests(word)


def test_a_waiting_client_is_told_of_the_wardens_death(start_server):
    server = start_server()
    word = token()
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(server.run(command=["/bin/sh", "-c", f"echo begun; sleep 600 # {word}\n:"])))
    thread.start()
    assert until(lambda: guests(word))
    time.sleep(0.2)
    end_process(server.process_of("hotcell-warden"))
    thread.join(20 * SLOW)
    assert outcome and outcome[0].json.get("status") in ("internal", 500), outcome
    assert "warden" in outcome[0].text
    assert until(lambda: answers(server), 10)
    assert server.run(code="print(1)").json["stdout"] == "1\n"


def test_a_warden_that_is_killed_again_and_again_is_replaced(start_server):
    server = start_server()
    seen = set()
    for _ in range(6):
        warden = server.process_of("hotcell-warden")
        assert warden not in seen
        seen.add(warden)
        end_process(warden)
        assert until(lambda: server.deaths() == len(seen) and answers(server), 10), server.log[-5:]
        assert server.run(code="print(1)").json["stdout"] == "1\n"
    bases = {pathlib.Path(path).name for path in groups_of({server.process.pid})}
    assert len({name for name in bases if re.fullmatch(r"hotcell-\d+-\w+", name)}) == 1, bases


def test_both_die_at_the_same_time(start_server):
    server = start_server(ONE_AT_A_TIME)
    running_one = submit(server, code=SLEEP)
    queued = [submit(server, code=f"print({i})") for i in range(3)]
    running(server, running_one)
    for name in ("hotcell-warden", "hotcell-gateway"):
        end_process(server.process_of(name))
    assert until(lambda: answers(server), 10), server.log[-5:]
    assert ended(server, running_one)["status"] == "internal"
    # One may have begun when the gateway died, with the warden that had just come; those before it were through by then.
    results = [ended(server, run) for run in queued]
    assert sum(run["status"] == "internal" for run in results) <= 1, results
    assert all(run["stdout"] == f"{i}\n" for i, run in enumerate(results) if run["status"] != "internal"), results


# ---- the keeper dies ----

def test_the_death_of_the_keeper_ends_everything_and_the_next_start_recovers(start_server, tmp_path):
    (tmp_path / "state").mkdir()
    server = start_server(ONE_AT_A_TIME, state=tmp_path / "state")
    word = token()
    done = server.run(code="print('done')").json
    first = submit(server, command=["/bin/sh", "-c", f"(setsid sh -c 'sleep 600 # {word}\n:' &) ; sleep 600 # {word}\n:"])
    queued = [submit(server, code=f"print({i})") for i in range(4)]
    assert until(lambda: len(guests(word)) >= 2)
    running(server, first)
    keeper, family = server.process.pid, tree_of(server.process.pid)
    assert groups_of({keeper}) and len(family) >= 6
    port = server.port
    end_process(keeper)
    server.process.wait()
    assert until(lambda: not alive_in(family), 2, every=0.005), [name_of(pid) for pid in alive_in(family)]
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        pass
    server.settle()
    server.start()
    assert until(lambda: not groups_of({keeper}), 5), groups_of({keeper})
    assert server.get(f"/v1/runs/{done['id']}").json == done
    result = ended(server, first)  # told by the next server, or still by the old one, which saw its warden go first
    assert result["status"] == "internal" and re.search("stopped unexpectedly|warden died", result["diagnosis"]["message"]), result
    assert [ended(server, run)["stdout"] for run in queued] == [f"{i}\n" for i in range(4)]
    whole, words = audit_is_whole(server)
    assert whole, words


def test_a_keeper_that_dies_at_once_leaves_nothing_to_the_next(start_server, tmp_path):
    """Killed in the middle of its own start, at several instants."""
    (tmp_path / "state").mkdir()
    dead = set()
    for wait in (0.0, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05):
        half = Server(state=tmp_path / "state")
        with subprocess.Popen(half.words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            time.sleep(wait)
            family = tree_of(process.pid)
            process.kill()
            process.wait()
        dead.add(process.pid)
        assert until(lambda family=family: not [pid for pid in alive_in(family) if start_time(pid)], 2)
        half.remove()
    server = start_server(state=tmp_path / "state")
    assert server.run(code="print(1)").json["stdout"] == "1\n"
    assert until(lambda: not groups_of(dead), 5), groups_of(dead)


# ---- one is stopped ----

def test_a_server_whose_warden_hangs_can_be_stopped(start_server):
    server = start_server("[server]\ndrain_time = '300ms'\n")
    running_one = submit(server, code=SLEEP)
    running(server, running_one)
    end_process(server.process_of("hotcell-warden"), signal.SIGSTOP)
    begin = time.monotonic()
    server.stop(within=20)
    assert time.monotonic() - begin < 12 * SLOW


def test_a_gateway_that_hangs_holds_nobody_else_up(start_server):
    """A stopped gateway is no dead one: cells keep their deadlines, and it goes on where it was."""
    server = start_server()
    word = token()
    run = submit(server, command=["/bin/sh", "-c", f"sleep 600 # {word}\n:"], limits={"timeout": 1})
    assert until(lambda: guests(word))
    gateway = server.process_of("hotcell-gateway")
    end_process(gateway, signal.SIGSTOP)
    try:
        assert until(lambda: not guests(word), 5), "its deadline did not hold"
    finally:
        end_process(gateway, signal.SIGCONT)
    assert ended(server, run)["status"] == "timeout"
