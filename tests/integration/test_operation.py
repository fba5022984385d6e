"""What an operator does with a server: start it, hand it sockets, reload it, stop it, start it beside another. The tests play systemd's part
where there is none: they listen on NOTIFY_SOCKET and pass sockets by LISTEN_FDS."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time

import pytest

from cells import HOTCELL, SLOW, machine_is_weak, tree_of, until
from cells import alive as alive_in
from server import Server, server, start_server  # noqa: F401 (fixtures)

SOURCE = pathlib.Path(__file__).resolve().parents[2]
MIB = 1 << 20


@pytest.fixture
def folder(tmp_path):
    """A folder with a short path: a socket's address has room for 107 bytes."""
    short = pathlib.Path("/tmp") / f"hotcell-op-{os.getpid()}-{time.monotonic_ns() % 10**9}"
    short.mkdir()
    yield short
    shutil.rmtree(short)


@pytest.fixture
def hold():
    """hold(server) -> the same, stopped or killed and removed when the test ends, whichever way."""
    held = []

    def keep(one):
        held.append(one)
        return one

    yield keep
    for one in held:
        one.kill()
        one.remove()


class Behind(threading.Thread):
    """Something that is done meanwhile; `result()` waits for it."""

    def __init__(self, function, *arguments, **options):
        super().__init__(daemon=True)
        self.work, self.value, self.wrong = lambda: function(*arguments, **options), None, None
        self.start()

    def run(self):
        try:
            self.value = self.work()
        except BaseException as wrong:  # told by result()
            self.wrong = wrong

    def result(self, within=60):
        self.join(within * SLOW)
        assert not self.is_alive(), "it does not end"
        if self.wrong:
            raise self.wrong
        return self.value


def serve(*words, env=None, within=30):
    """`hotcell serve …` that is expected to end by itself."""
    weak = ["--allow-weak"] if machine_is_weak() else []
    return subprocess.run([HOTCELL, "serve", *weak, *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          env={**os.environ, **(env or {})}, timeout=within * SLOW, check=False)


def running(one):
    return [run["id"] for run in one.get("/v1/runs?status=running", unix=True).json["runs"]]


def said(one, text):
    """A line of the server's log with this in it, once there is one."""
    found = until(lambda: [line for line in one.log if text in line], 10)
    assert found, f"nothing about {text!r} in {one.log}"
    return found[-1]


def can_connect(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5 * SLOW):
        return True
    return False


def key(state, name):
    made = subprocess.run([HOTCELL, "key", "create", name, "--state", str(state)], capture_output=True, text=True, check=True)
    return {"Authorization": "Bearer " + re.search(r"hc_[A-Za-z0-9_-]{43}", made.stdout)[0]}


# ---- sd_notify ----

class Manager:
    """systemd's end of sd_notify(3)."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(path)
        self.socket.settimeout(20 * SLOW)

    def next(self):
        """The next message, as a dictionary."""
        return dict(line.split("=", 1) for line in self.socket.recv(4096).decode().splitlines())

    def silent(self):
        self.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            self.next()
        self.socket.settimeout(20 * SLOW)


@pytest.mark.parametrize("abstract", [False, True])
def test_the_service_manager_is_told_of_every_change(hold, folder, abstract):
    path = f"\0hotcell-notify-{os.getpid()}" if abstract else str(folder / "notify")
    manager = Manager(path)
    one = hold(Server(env={"NOTIFY_SOCKET": path.replace("\0", "@")})).start()
    assert manager.next() == {"READY": "1", "STATUS": "serving"}
    assert one.get("/readyz").status == 200
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    one.process.send_signal(signal.SIGHUP)
    reloading = manager.next()
    assert reloading.pop("RELOADING") == "1" and before <= int(reloading.pop("MONOTONIC_USEC")) and not reloading
    assert manager.next() == {"READY": "1", "STATUS": "serving"}
    one.configure("[server]\nnonsense = 1\n")
    one.process.send_signal(signal.SIGHUP)
    assert "RELOADING" in manager.next()
    assert manager.next() == {"READY": "1", "STATUS": "serving with the old configuration"}
    os.kill(one.process_of("hotcell-gateway"), signal.SIGKILL)
    said(one, "serves again")
    manager.silent()
    one.process.send_signal(signal.SIGTERM)
    assert manager.next() == {"STOPPING": "1"}
    assert one.process.wait(20 * SLOW) == 0
    one.settle()


def test_nothing_is_ready_before_it_serves(folder):
    """A configuration that cannot be served: no READY=1, whatever was opened before."""
    manager = Manager(str(folder / "notify"))
    done = serve("--listen", "0.0.0.0:0", "--state", folder / "state", env={"NOTIFY_SOCKET": str(folder / "notify")})
    assert done.returncode != 0
    manager.silent()


# ---- socket activation ----

# What systemd does between fork and exec: the sockets are 3, 4, …, and LISTEN_PID is the process itself.
LAUNCHER = """import fcntl, os, sys
fds = [fcntl.fcntl(int(word), fcntl.F_DUPFD_CLOEXEC, 100) for word in sys.argv[1].split(",")]
for place, fd in enumerate(fds):
    os.dup2(fd, 3 + place)
os.environ.update(LISTEN_FDS=str(len(fds)), LISTEN_PID=str(os.getpid() + int(os.environ.pop("WRONG", "0"))))
os.execv(sys.argv[2], sys.argv[2:])
"""


def activated(one, sockets):
    """A server that gets these sockets, as from systemd: blocking ones, at fds of no meaning."""
    high = [os.dup(each.fileno()) for each in sockets]
    one.popen["pass_fds"] = high
    one.words = [sys.executable, "-c", LAUNCHER, ",".join(map(str, high)), *one.words]
    one.listeners = sum(each.family != socket.AF_UNIX for each in sockets)
    return one


def test_sockets_of_the_service_manager_are_served_and_outlive_the_server(hold, folder):
    path = str(folder / "given.sock")
    with contextlib.ExitStack() as stack:
        tcp = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        local = stack.enter_context(socket.socket(socket.AF_UNIX))
        local.bind(path)
        local.listen()
        one = activated(hold(Server("[server]\nlisten = ['127.0.0.1:1']\n", listen=())), [*tcp, local]).start()
        ports = [each.getsockname()[1] for each in tcp]
        assert one.urls == [f"http://127.0.0.1:{port}" for port in ports], "only what was given is listened on"
        assert not os.path.exists(one.unix)
        one.unix = path
        for port in ports:
            one.urls = [f"http://127.0.0.1:{port}"]
            assert one.run(code="print(42)").json["stdout"] == "42\n"
        assert one.run(code="print(42)", unix=True).json["stdout"] == "42\n"
        one.stop()
        # systemd still has them: who connects now waits for the next start, and is answered.
        assert os.path.exists(path), "a socket that was given is not ours to remove"
        early = Behind(one.run, code="print('patient')")
        time.sleep(0.2)
        one.start()
        assert early.result().json["stdout"] == "patient\n"
        one.stop()


def test_sockets_that_are_meant_for_another_process_are_left_alone(hold):
    with socket.create_server(("127.0.0.1", 0)) as given:
        one = activated(hold(Server(env={"WRONG": "1"})), [given])
        one.start()
        assert one.port != given.getsockname()[1]
        assert one.run(code="print(1)").json["stdout"] == "1\n"
        one.stop()


def test_a_given_socket_that_is_not_loopback_needs_a_key(hold):
    with socket.create_server(("0.0.0.0", 0)) as given:
        one = activated(hold(Server()), [given])
        with pytest.raises(AssertionError, match="did not come up.*hotcell key create"):
            one.start()


# ---- reload ----

def test_a_reload_changes_a_limit_without_dropping_the_run_under_way(start_server):
    one = start_server("[limits]\nmemory = '128m'\n")
    gateway = one.process_of("hotcell-gateway")
    before = Behind(one.run, code="import time; print('a', flush=True); time.sleep(1.5); print('b')")
    until(lambda: running(one))
    one.configure("[limits]\nmemory = '96m'\n[ceilings]\ntimeout = '5s'\n[server]\nqueue = 7\n")
    one.process.send_signal(signal.SIGHUP)
    said(one, "was read again")
    assert running(one), "the run under way goes on"
    after = one.run(code="print('c')").json
    assert after["stages"][-1]["limits"]["memory"] == 96 * MIB
    assert one.run(code="1", limits={"timeout": 6}).status == 400
    assert one.get("/v1/stats").json["limits"]["server"]["queue"] == 7
    result = before.result().json
    assert result["stdout"] == "a\nb\n" and result["stages"][-1]["limits"]["memory"] == 128 * MIB
    assert one.process_of("hotcell-gateway") == gateway
    # A warden and a gateway that are started later begin with the configuration as it is now.
    for name in ("hotcell-warden", "hotcell-gateway"):
        old = one.process_of(name)
        os.kill(old, signal.SIGKILL)
        until(lambda: one.process_of(name) not in (None, old) and (name != "hotcell-warden" or one.deaths() == 1))
        until(lambda: ready(one))
        assert one.run(code="print('d')").json["stages"][-1]["limits"]["memory"] == 96 * MIB


def ready(one):
    with contextlib.suppress(OSError):
        return one.get("/readyz").status == 200
    return False


def test_many_reloads_while_runs_go_through(start_server):
    one = start_server()
    work = [Behind(lambda: [one.run(code=f"print({i})").json["stdout"] for i in range(10)]) for _ in range(2)]
    for number in range(20):
        one.configure(f"[limits]\npids = {50 + number}\n")
        one.process.send_signal(signal.SIGHUP)
        time.sleep(0.05)
    for each in work:
        assert each.result() == [f"{i}\n" for i in range(10)]
    until(lambda: one.run(code="1").json["stages"][-1]["limits"]["pids"] == 69)
    assert one.run(code="1").json["stages"][-1]["limits"]["pids"] == 69


def test_a_bad_configuration_is_refused_and_the_old_one_stays(start_server):
    one = start_server("[limits]\npids = 33\n")
    one.configure("[limits]\npids = 44\n\n[server]\nqueue = 'many'\n")
    number = one.config_file.read_text().splitlines().index("queue = 'many'") + 1
    one.process.send_signal(signal.SIGHUP)
    line = said(one, "stays as it was")
    assert f"{one.config_file}:{number}: server.queue" in line and "whole number" in line, line
    assert one.run(code="1").json["stages"][-1]["limits"]["pids"] == 33
    one.config_file.unlink()
    one.process.send_signal(signal.SIGHUP)
    assert str(one.config_file) in said(one, "No such file")
    assert one.run(code="1").json["stages"][-1]["limits"]["pids"] == 33


def test_a_reload_says_what_it_cannot_change(start_server, tmp_path):
    one = start_server()
    one.configure(f"[server]\nlisten = ['127.0.0.1:1']\n[mounts]\nallowed_read_paths = ['{tmp_path}']\n[limits]\npids = 44\n")
    one.process.send_signal(signal.SIGHUP)
    line = said(one, "only after a restart")
    assert "server.listen" in line and "mounts.allowed_read_paths" in line and "limits" not in line
    said(one, "was read again")
    assert one.run(code="1").json["stages"][-1]["limits"]["pids"] == 44


def test_the_log_level_is_changed_by_a_reload(start_server):
    one = start_server("[log]\nlevel = 'error'\n")
    one.run(code="print('silent')")
    one.configure("[log]\nlevel = 'info'\nformat = 'text'\n")
    one.process.send_signal(signal.SIGHUP)
    assert said(one, "was read again").startswith("hotcell: info: "), one.log
    run = one.run(code="print('heard')").json["id"]
    assert said(one, run).startswith("hotcell: info: run ")
    assert not any("silent" in line for line in one.log)


def test_keeper_and_gateway_log_in_one_form(start_server):
    one = start_server()
    one.run(code="1")
    os.kill(one.process_of("hotcell-gateway"), signal.SIGKILL)
    said(one, "serves again")
    assert one.log and all(line.startswith('{"at":"') for line in one.log), one.log


# ---- stop ----

def test_sigterm_lets_a_run_end_and_refuses_new_ones(hold):
    one = hold(Server()).start()
    work = Behind(one.run, code="import time; time.sleep(2); print('to the end')")
    until(lambda: running(one))
    kept = one.connect()
    kept.request("GET", "/readyz")
    assert kept.getresponse().read()
    one.process.send_signal(signal.SIGTERM)
    assert until(lambda: not can_connect(one.port)), "a new connection must be refused, and not left waiting"
    assert not os.path.exists(one.unix)
    assert work.is_alive(), "the run goes on meanwhile"
    assert work.result().json["stdout"] == "to the end\n"
    assert one.process.wait(20 * SLOW) == 0
    one.settle()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_drain_ends_at_its_deadline(hold, number):
    one = hold(Server("[server]\ndrain_time = '700ms'\n")).start()
    work = Behind(one.run, code="import time; time.sleep(60)")
    until(lambda: running(one))
    begin = time.monotonic()
    one.process.send_signal(number)
    assert one.process.wait(20 * SLOW) == 0
    assert 0.7 <= time.monotonic() - begin < 5 * SLOW
    with contextlib.suppress(OSError):
        answer = work.result()
        assert answer.status == 503 or answer.json["status"] == "killed", answer
    one.settle()


def test_a_second_sigterm_does_not_wait(hold):
    one = hold(Server("[server]\ndrain_time = '60s'\n")).start()
    answer = one.run(code="import time; time.sleep(60)", **{"async": True})
    until(lambda: running(one))
    family = tree_of(one.process.pid)
    one.process.send_signal(signal.SIGTERM)
    said(one, "draining")
    assert one.process.poll() is None
    begin = time.monotonic()
    one.process.send_signal(signal.SIGTERM)
    assert one.process.wait(20 * SLOW) == 0
    assert time.monotonic() - begin < 5 * SLOW
    one.settle()
    assert until(lambda: not alive_in(family))
    one.start()
    result = one.get(f"/v1/runs/{answer.json['id']}?wait=10").json
    assert result["status"] in ("internal", "killed"), result
    one.stop()


def test_a_server_whose_keeper_was_killed_takes_the_rest_along_and_starts_again(hold):
    one = hold(Server()).start()
    done = one.run(code="print('kept')").json
    lost = one.run(code="import time; time.sleep(60)", **{"async": True}).json["id"]
    until(lambda: running(one))
    family = tree_of(one.process.pid)
    one.process.kill()
    one.process.wait()
    one.settle()
    assert until(lambda: not alive_in(family)), "nothing of it may go on without its keeper"
    assert os.path.exists(one.unix), "it had no time to remove its socket"
    one.start()
    assert one.get(f"/v1/runs/{done['id']}").json == done
    result = one.get(f"/v1/runs/{lost}?wait=10", unix=True).json
    assert result["status"] == "internal" and result["diagnosis"]["message"], result
    one.stop()


# ---- what is refused, and how it is said ----

def test_a_good_configuration_is_fine_and_nothing_is_made(folder):
    (folder / "good.toml").write_text("[server]\nqueue = 3\nlisten = ['127.0.0.1:7600', '[::1]:7600']\n")
    done = serve("--check", "--config", folder / "good.toml", "--state", folder / "state")
    assert done.returncode == 0 and "fine" in done.stdout and done.stderr == ""
    assert serve("--check", "--json", "--config", folder / "good.toml", "--state", folder / "state").stdout == '{"ok":true}\n'
    assert not (folder / "state").exists()


def test_a_check_can_be_made_while_the_server_runs(server):
    done = serve("--check", "--config", server.config_file, "--state", server.state)
    assert done.returncode == 0, done


@pytest.mark.parametrize("text, line, words", [
    ("[server]\nqueu = 1\n", 2, ["unknown key 'queu'", "did you mean 'queue'"]),
    ("[servr]\n", 1, ["servr", "server"]),
    ("\n[server]\nqueue = 'many'\n", 3, ["server.queue", "whole number", "many"]),
    ("[server]\ndrain_time = '5 fortnights'\n", 2, ["server.drain_time", "fortnights"]),
    ("[server]\nbody_bytes = true\n", 2, ["server.body_bytes", "number of bytes", "true"]),
    ("[server]\nqueue = \n", 2, []),
    ("[server]\n\nlisten = ['localhost:99999']\n", 3, ["server.listen", "127.0.0.1:7600", "localhost:99999"]),
    ("[server]\nlisten = ['example.org:80']\n", 2, ["server.listen", "example.org"]),
    ("[server]\nexecute_listen = 'here'\n", 2, ["server.execute_listen", "here"]),
    ("[log]\nlevel = 'loud'\n", 2, ["log.level", "loud", '"error", "warning", "info" or "debug"']),
    ("[warm]\nstart = ['pythn']\n", 2, ["warm.start", "pythn", 'did you mean "python"?']),
    ("[warm]\nstart = ['python', 'python/date']\n", 2, ["warm.start", "python has no set of modules", "date"]),
    ("[warm]\nstart = ['lua']\n", 2, ["warm.start", "lua always start cold"]),
    ("[languages]\ndefault = 'rubby'\n", 2, ["languages.default", "rubby", 'did you mean "ruby"?']),
    ("[server]\ntls_certificate = '/nonexistent/c.pem'\ntls_key = '/nonexistent/k.pem'\n", 2, ["server.tls_certificate", "No such file"]),
    ("[mounts]\nallowed_read_paths = ['/nonexistent']\n", 2, ["mounts.allowed_read_paths", "/nonexistent"]),
    ("[server]\nconnections = 0\n", 2, ["server.connections", "0 is too little", "use 8 or more"]),
    ("[server]\nheader_bytes = 10\n", 2, ["server.header_bytes", "10 bytes is too little", "use 1k or more"]),
    ("[server]\nheader_time = '1ms'\n", 2, ["server.header_time", "1 ms is too little", "use 100ms or more"]),
    ("[server]\nhang_time = '1ms'\n", 2, ["server.hang_time", "or 0"]),
])
def test_a_bad_configuration_is_named_by_file_and_line(folder, text, line, words):
    path = folder / "bad.toml"
    path.write_text(text)
    done = serve("--check", "--config", path, "--state", folder / "state")
    assert done.returncode == 2 and done.stdout == ""
    assert f"{path}:{line}:" in done.stderr, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def test_a_certificate_without_a_key_is_refused(folder):
    (folder / "bad.toml").write_text("[server]\ntls_certificate = '/etc/hostname'\n")
    done = serve("--check", "--config", folder / "bad.toml", "--state", folder / "state")
    assert done.returncode == 2 and "server.tls_certificate" in done.stderr and "both" in done.stderr


def make_certificate(folder, name):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost", "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem"], capture_output=True, check=True)


@pytest.mark.parametrize("certificate, key, words", [
    ("one.pem", "one.key", []),
    ("one.key", "one.pem", ["server.tls_certificate", "not PEM"]),
    ("one.pem", "two.key", ["server.tls_key", "does not fit"]),
    ("one.pem", "one.pem", ["server.tls_key", "not a PEM key"]),
])
def test_a_check_finds_a_certificate_that_a_start_would_refuse(folder, certificate, key, words):
    for name in ("one", "two"):
        make_certificate(folder, name)
    config = folder / "tls.toml"
    config.write_text(f"[server]\ntls_certificate = '{folder}/{certificate}'\ntls_key = '{folder}/{key}'\n")
    done = serve("--check", "--config", config, "--state", folder / "state")
    assert done.returncode == (2 if words else 0), done
    assert all(word in done.stderr for word in words), done.stderr


def test_a_check_says_that_an_address_needs_a_key(folder):
    (folder / "open.toml").write_text("[server]\nlisten = ['0.0.0.0:7600']\n")
    done = serve("--check", "--config", folder / "open.toml", "--state", folder / "state")
    assert done.returncode == 0 and "hotcell key create" in done.stderr, done
    done = serve("--check", "--listen", "127.0.0.1:0", "--config", folder / "open.toml", "--state", folder / "state")
    assert done.returncode == 0 and done.stderr == "", done


def test_a_bad_address_on_the_command_line_is_named(folder):
    done = serve("--check", "--listen", "everywhere", "--state", folder / "state")
    assert done.returncode == 2 and '"everywhere"' in done.stderr and "127.0.0.1:7600" in done.stderr


@pytest.mark.parametrize("words, env, said", [
    (["--listen", "everywhere"], {}, ["--listen: ", '"everywhere"', "localhost"]),
    (["--listen", "192.0.2.1:0"], {}, ["--listen: ", "192.0.2.1:0", "ip address"]),
    (["--listen", "127.0.0.1:0"], {"SANDBOX_PORT": "many"}, ["SANDBOX_PORT: ", '"127.0.0.1:many"']),
    (["--listen", "127.0.0.1:0"], {"SANDBOX_PORT": "0", "SANDBOX_HOST": "0.0.0.0"}, ["(SANDBOX_HOST and SANDBOX_PORT)", "0.0.0.0:", "hotcell key create"]),
    (["--listen", "0.0.0.0:0"], {}, ["(--listen)", "0.0.0.0:", "hotcell key create"]),
    (["--listen", "127.0.0.1:{port}", "--listen", "127.0.0.1:{port}"], {}, ["--listen: ", "127.0.0.1:{port}", "already", "leave one of them out"]),
    (["--listen", "127.0.0.1:{port}"], {"SANDBOX_PORT": "{port}"}, ["SANDBOX_PORT: ", "by --listen", "execute_listen"]),
])
def test_an_address_that_cannot_be_is_named_with_who_named_it(folder, words, env, said):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    done = serve(*(word.replace("{port}", port) for word in words), "--state", folder / "state",
                 env={name: value.replace("{port}", port) for name, value in env.items()})
    assert done.returncode in (2, 125) and done.stdout == "", done
    assert "another program" not in done.stderr and "server.listen:" not in done.stderr, done.stderr
    for text in said:
        assert text.replace("{port}", port) in done.stderr, done.stderr


def test_a_port_that_is_taken_is_answered_with_what_to_do(folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = serve("--listen", f"127.0.0.1:{port}", "--state", folder / "state")
        assert done.returncode == 125 and done.stdout == ""
        assert f"listening on 127.0.0.1:{port}: Address already in use" in done.stderr
        assert f"sport = :{port}" in done.stderr and "--listen" in done.stderr
        done = serve("--listen", "127.0.0.1:0", "--state", folder / "state", env={"SANDBOX_PORT": str(port)})
        assert done.returncode == 125 and "SANDBOX_PORT" in done.stderr, done


def test_a_state_folder_has_one_server(server):
    done = serve("--listen", "127.0.0.1:0", "--state", server.state)
    assert done.returncode == 125 and "another server uses the state folder" in done.stderr and "--state" in done.stderr
    assert server.run(code="print(1)").json["stdout"] == "1\n"


def test_a_socket_that_somebody_answers_at_is_not_taken_away(server, folder):
    (folder / "config.toml").write_text(f"[server]\nsocket = '{server.unix}'\n")
    done = serve("--listen", "127.0.0.1:0", "--state", folder / "state", "--config", folder / "config.toml")
    assert done.returncode == 125 and "another server answers at" in done.stderr
    assert server.get("/healthz", unix=True).status == 200


def test_a_key_that_was_revoked_is_none_for_an_address_that_is_not_loopback(hold, folder):
    headers = key(folder / "state", "ada")
    one = hold(Server(state=folder / "state", listen=("0.0.0.0:0",)))
    one.wait_ready = lambda deadline: None
    one.start()
    assert one.run(code="print(1)", headers=headers).status == 200
    subprocess.run([HOTCELL, "key", "revoke", "ada", "--state", folder / "state"], check=True, capture_output=True)
    os.kill(one.process_of("hotcell-gateway"), signal.SIGKILL)
    said(one, "the gateway serves again")  # a server that runs does not end with its last key
    assert one.run(code="print(1)", headers=headers).status == 401
    one.stop()
    done = serve("--listen", "0.0.0.0:0", "--state", folder / "state")
    assert done.returncode == 2 and "none is in force" in done.stderr and "hotcell key create" in done.stderr, done


def test_an_address_that_is_not_loopback_needs_a_key(hold, folder):
    done = serve("--listen", "0.0.0.0:0", "--state", folder / "state")
    assert done.returncode == 2 and "hotcell key create" in done.stderr, done
    headers = key(folder / "state", "ada")
    one = hold(Server(state=folder / "state", listen=("0.0.0.0:0",)))
    one.wait_ready = lambda deadline: None
    one.start()
    assert until(lambda: one.get("/readyz").status == 200), "health needs no key"
    assert one.run(code="print(1)").status == 401
    assert one.get("/v1/runs").status == 401
    assert one.run(code="print(1)", headers=headers).json["stdout"] == "1\n"
    assert one.run(code="print(1)", unix=True).json["stdout"] == "1\n", "the socket is the operator's"
    one.stop()


# ---- side by side, and afterwards ----

def test_private_instances_do_not_see_each_other(start_server):
    first, second = start_server(), start_server()
    assert first.port != second.port and first.port != 0
    mine = first.run(code="print('first')").json["id"]
    assert second.get(f"/v1/runs/{mine}").status == 404
    assert second.run(code="print('second')").json["stdout"] == "second\n"
    first.stop()
    assert second.run(code="print('still')").json["stdout"] == "still\n"


def test_a_private_instance_has_its_socket_in_its_state_folder(folder):
    process = subprocess.Popen([HOTCELL, "serve", "--listen", "127.0.0.1:0", "--state", str(folder / "state"),
                                *(["--allow-weak"] if machine_is_weak() else [])], stdout=subprocess.PIPE, text=True)
    try:
        lines = [process.stdout.readline().strip() for _ in range(3)]
        assert re.fullmatch(r"listening on http://127\.0\.0\.1:[1-9]\d*", lines[0])
        path = folder / "state" / "hotcell.sock"
        assert lines[1] == f"listening on unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_ISSOCK(path.stat().st_mode)
        assert lines[2].startswith("try: curl ")
        words = lines[2].removeprefix("try: ")
        answer = subprocess.run(["sh", "-c", words], capture_output=True, text=True, timeout=30 * SLOW, check=True).stdout
        assert '"stdout":"42\\n"' in answer, "the line that is printed works when it is pasted"
    finally:
        process.terminate()
        process.wait(40 * SLOW)
        process.stdout.close()
    assert process.returncode == 0
    assert not path.exists()
    assert sorted(entry.name for entry in (folder / "state").iterdir()) == ["audit.log", "cache", "history.db", "history.db-runs", *(["volumes"] if os.geteuid() == 0 else []), "workspace"]


def paste(server, env=None):
    """What the line that a server printed for pasting answers, and the lines that it printed."""
    until(lambda: server.lines and server.lines[-1].startswith("try: "))
    done = subprocess.run(["sh", "-c", server.lines[-1].removeprefix("try: ")], env={**os.environ, **(env or {})}, capture_output=True, text=True,
                          timeout=30 * SLOW, check=False)
    return done.stdout, server.lines


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_the_line_to_paste_works_where_keys_are_needed_on_all_interfaces(hold, folder, address):
    secret = key(folder / "state", "ada")["Authorization"].removeprefix("Bearer ")
    one = hold(Server(state=folder / "state", listen=(address,)))
    one.wait_ready = lambda deadline: None
    one.start()
    answer, lines = paste(one, {"HOTCELL_KEY": secret})
    assert '"stdout":"42\\n"' in answer, (answer, lines)
    assert f"http://localhost:{one.port}/v1/runs" in lines[-1] and "hotcell key create" in lines[-2], lines
    assert secret not in "".join(lines)
    one.stop()


def test_the_line_to_paste_works_with_a_certificate(hold, folder):
    place = folder / "it's mine"
    place.mkdir()
    make_certificate(place, "one")
    one = hold(Server(f'[server]\ntls_certificate = "{place}/one.pem"\ntls_key = "{place}/one.key"\n', listen=("127.0.0.1:0",)))
    one.listeners = 0
    one.wait_ready = lambda deadline: None
    one.start()
    answer, lines = paste(one)
    assert '"stdout":"42\\n"' in answer and "--cacert" in lines[-1], (answer, lines)
    one.stop()


def test_nothing_is_left_when_a_server_has_ended(hold):
    mounts = pathlib.Path("/proc/self/mountinfo").read_text()
    one = hold(Server()).start()
    uid = os.stat(f"/proc/{one.process_of('hotcell-gateway')}").st_uid
    one.run(code="import time; time.sleep(60)", **{"async": True})
    until(lambda: running(one))
    one.configure("[server]\ndrain_time = '100ms'\n")
    one.process.send_signal(signal.SIGHUP)
    said(one, "was read again")
    one.stop()  # processes and control groups are its to look for
    assert pathlib.Path("/proc/self/mountinfo").read_text() == mounts
    assert not os.path.exists(one.unix)
    if uid != 0 and os.geteuid() == 0:
        block = (uid - 0x70000000) // 65536
        held = pathlib.Path("/proc/net/unix").read_text().split()
        assert f"@hotcell-uids-{block}" not in held, "its range of uids is free again"


# ---- the documents ----

def test_the_manual_for_operators_has_every_key_with_its_default(hotcell):
    text = (SOURCE / "docs/SERVER.md").read_text()
    shown = hotcell("config", env={"HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent"}).stdout
    keys = [row["key"] for row in hotcell("config", "--json").json if row["key"].split(".")[0] in ("server", "history", "pool", "warm", "log")]
    assert len(keys) > 20
    for key in keys:
        default, summary = re.search(rf"^{re.escape(key)} +(.*?)  +default +(.*)$", shown, re.M).groups()
        row = f"| `{key}` | {'empty' if default == '-' else f'`{default}`'} | {summary} |"
        assert row in text, f"docs/SERVER.md should have: {row}"


def test_the_manual_for_users_has_every_route(server):
    text = (SOURCE / "docs/API.md").read_text()
    for path, methods in server.get("/openapi.json").json["paths"].items():
        for method in methods:
            if method != "parameters" and path != "/":
                assert f"`{method.upper()} {path}`" in text, (method, path)


def test_the_examples_of_the_readme_work(start_server, tmp_path):
    """Each curl line of the server's section, against a private server, as a shell reads it."""
    section = (SOURCE / "README.md").read_text().split("\n## Server\n")[1].split("\n## ")[0]
    server = start_server()
    token = key(server.state, "ada")["Authorization"].removeprefix("Bearer ")
    (tmp_path / "ada.key").write_text(token + "\n")
    lines = [line for line in section.splitlines() if line.startswith("curl")]
    assert len(lines) == 6
    for line in lines:
        words = re.sub(r"127\.0\.0\.1:[67]\d00", "http://localhost", line)
        if "Bearer" in line:
            words = re.sub(r"127\.0\.0\.1:7600", f"127.0.0.1:{server.port}", line)
        else:
            words = words.replace("curl ", f"curl --unix-socket {server.unix} ", 1)
        words = f"json='Content-Type: application/json'\n{words}"
        done = subprocess.run(["sh", "-c", words], cwd=tmp_path, capture_output=True, text=True, timeout=60 * SLOW, check=True)
        wanted = '"code":"not_found"' if "wait=30" in line else '"status":"queued"' if "async" in line else "42"
        assert wanted in done.stdout, (words, done)


# ---- the units ----

@pytest.fixture
def units(folder, program):
    """The units as they are installed, with a program that is there."""
    service = (SOURCE / "packaging/systemd/hotcell.service.in").read_text()
    (folder / "hotcell.service").write_text(service.replace("@bindir@", os.path.dirname(program)))
    shutil.copy(SOURCE / "packaging/systemd/hotcell.socket", folder)
    return folder


def analyze(*words):
    if not shutil.which("systemd-analyze"):
        pytest.fail("systemd-analyze is missing: tools/deps test")
    return subprocess.run(["systemd-analyze", *map(str, words)], capture_output=True, text=True, timeout=60 * SLOW, check=False)


def test_systemd_understands_the_units(units):
    done = analyze("verify", "--man=no", units / "hotcell.service", units / "hotcell.socket")
    assert done.returncode == 0 and done.stderr.strip() == "", done


def test_the_units_hold_what_the_server_needs(units):
    text = (units / "hotcell.service").read_text()
    settings = dict(line.split("=", 1) for line in text.splitlines() if re.match(r"\w+=", line))
    for name, value in {"Type": "notify", "Delegate": "yes", "KillMode": "mixed", "RuntimeDirectory": "hotcell",
                        "RuntimeDirectoryPreserve": "yes", "OOMPolicy": "continue"}.items():
        assert settings[name] == value
    for name in ("RestrictNamespaces", "ProtectControlGroups", "ProtectKernelTunables", "ProtectProc", "ProtectKernelLogs", "ProtectHostname",
                 "MemoryDenyWriteExecute", "PrivateUsers"):
        assert name not in settings, f"cells cannot be made with {name}="
    assert "StateDirectory" not in settings, "systemd would take the workspace from the guests at each start"
    addresses = re.findall(r"^ListenStream=(.*)$", (units / "hotcell.socket").read_text(), re.M)
    assert addresses == ["127.0.0.1:7600", "127.0.0.1:6000", "/run/hotcell/hotcell.sock"]


def test_the_service_is_no_more_exposed_than_it_has_to_be(units):
    done = analyze("security", "--offline=yes", "--no-pager", units / "hotcell.service")
    level = re.search(r"Overall exposure level for hotcell\.service: ([\d.]+)", done.stdout)
    assert level and float(level[1]) <= 5.8, done.stdout[-3000:]


# The keeper's bounding set, as in the unit. The rest of its options needs systemd itself.
def test_the_capabilities_of_the_unit_are_enough(hold, units):
    if os.geteuid() != 0:
        pytest.skip("capabilities are root's to give up")
    names = re.search(r"^CapabilityBoundingSet=(.*)$", (units / "hotcell.service").read_text(), re.M)[1]
    wanted = ",".join("+" + name.removeprefix("CAP_").lower() for name in names.split())
    one = hold(Server())
    one.words = ["setpriv", "--bounding-set", f"-all,{wanted}", "--no-new-privs", *one.words]
    one.start()
    assert one.run(code="open('a', 'w').write('x'); print(6 * 7)", collect=["a"]).json["stdout"] == "42\n"
    answer = one.post("/execute", {"generated_code": "open('kept', 'w').write('x'); print(open('kept').read())", "timeout": 20})
    assert answer.json["process_status"] == "completed", answer
    for name in ("hotcell-gateway", "hotcell-warden"):
        old = one.process_of(name)
        os.kill(old, signal.SIGKILL)
        until(lambda: one.process_of(name) not in (None, old) and (name != "hotcell-warden" or one.deaths() == 1))
        assert until(lambda: ready(one))
        assert one.run(code="print(43)").json["stdout"] == "43\n"
    one.stop()
