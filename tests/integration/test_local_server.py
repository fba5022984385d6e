"""hotcell run where a server runs on this machine: the same words, the same output, the same exit code, sooner.

Each test has a server of its own, whose socket HOTCELL_SERVER_SOCKET names as a configuration would. What can be wrong with such a socket is
played by a few lines of Python that answer as a broken, foreign, busy or older server would.
"""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import threading
import time

import pytest

from cells import HOTCELL, SLOW, machine_is_weak, until
from server import Server, server, start_server  # noqa: F401  fixtures
from test_client import RUNS, folder, home, said, shape, wait_for_status, without_figures  # noqa: F401  fixtures

NOBODY = 65534


def environment(path, **more):
    return {**os.environ, "HOTCELL_CLIENT_LOCAL_SERVER": "true", "HOTCELL_SERVER_SOCKET": str(path), **more}


def hotcell(path, *words, stdin=b"", cwd=None, **more):
    return subprocess.run([HOTCELL, *map(os.fspath, words)], input=stdin, capture_output=True, timeout=60 * SLOW, check=False, cwd=cwd,
                          env=environment(path, **more))


def start(path, *words, **options):
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen([HOTCELL, *words], env=environment(path), preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
                            **options)


def served(done):
    """Who ran it, by what --verbose says: the server's socket, or None and the reason."""
    line = next(line for line in done.stderr.decode().splitlines() if " start, " in line)
    if "by the server at " in line:
        return line.partition("by the server at ")[2]
    assert "without a server" in line, done
    return None


def newest(server):
    return server.get("/v1/runs?limit=1", unix=True).json["runs"][0]


def under_way(server):
    """The id of the one run that is. What a program prints can be heard a moment before the history has it."""
    found = until(lambda: [row["id"] for row in server.get("/v1/runs?limit=1", unix=True).json["runs"] if row["status"] == "running"], 10)
    assert found
    return found[0]


# ---- it is used ----

@pytest.mark.parametrize("words", RUNS.values(), ids=RUNS.keys())
def test_run_is_the_same_as_without_the_server(server, folder, words):
    here = hotcell(server.unix, "run", "--local", *words, stdin=b"abc", cwd=folder)
    there = hotcell(server.unix, "run", *words, stdin=b"abc", cwd=folder)
    assert (there.returncode, there.stdout) == (here.returncode, here.stdout), (here, there)
    assert said(without_figures(there.stderr)) == without_figures(here.stderr)


def test_server_is_used_and_verbose_says_so(server):
    done = hotcell(server.unix, "run", "-v", "-c", "print(42)")
    assert (done.returncode, done.stdout, served(done)) == (0, b"42\n", server.unix)
    assert newest(server)["status"] == "completed"


def test_json_is_the_servers_result(server):
    done = hotcell(server.unix, "run", "--json", "-c", "print(42)")
    result = json.loads(done.stdout)
    assert result["stdout"] == "42\n" and result["id"] == newest(server)["id"]
    alone = json.loads(hotcell(server.unix, "run", "--local", "--json", "-c", "print(42)").stdout)
    assert {**shape(result), "language_version": 0} == {**shape(alone), "language_version": 0}


def test_collected_files_are_written(server, tmp_path):
    done = hotcell(server.unix, "run", "-v", "--collect", "out/*", "-c", "import os; os.mkdir('out'); open('out/a', 'wb').write(b'\\xff\\0')",
                   cwd=tmp_path)
    assert done.returncode == 0 and served(done) == server.unix, done
    assert (tmp_path / "out" / "a").read_bytes() == b"\xff\0"


def test_async_in_a_request_changes_nothing(server, tmp_path):
    (tmp_path / "request.json").write_text('{"code": "print(42)", "async": true}')
    done = hotcell(server.unix, "run", "-v", "--request", tmp_path / "request.json")
    assert (done.returncode, done.stdout, served(done)) == (0, b"42\n", server.unix)


# ---- stdin ----

def test_input_is_passed_on_as_it_comes(server):
    code = "import sys\nfor line in sys.stdin: print(line.upper(), end='', flush=True)\nprint('end')"
    process = start(server.unix, "run", "-v", "-c", code, stdin=subprocess.PIPE)
    for word in (b"one\n", b"two\n"):
        process.stdin.write(word)
        process.stdin.flush()
        assert process.stdout.readline() == word.upper()
    out, err = process.communicate(timeout=30 * SLOW)
    assert (process.returncode, out) == (0, b"end\n") and b"by the server" in err


def test_terminal_is_the_programs_input(server):
    leader, follower = os.openpty()
    process = start(server.unix, "run", "-v", "-c", "print('?', flush=True); print(input() + '!')", stdin=follower)
    assert process.stdout.readline() == b"?\n"
    os.write(leader, b"typed\n")
    out, err = process.communicate(timeout=30 * SLOW)
    os.close(leader)
    os.close(follower)
    assert (process.returncode, out) == (0, b"typed!\n") and b"by the server" in err


def test_much_input_arrives_whole(server, tmp_path):
    data = os.urandom(3 << 20)
    (tmp_path / "data").write_bytes(data)
    words = ["run", "-v", "-c", "import hashlib, sys; print(hashlib.sha1(sys.stdin.buffer.read()).hexdigest())"]
    expected = subprocess.run(["sha1sum"], input=data, capture_output=True, check=True).stdout.split()[0] + b"\n"
    for done in (hotcell(server.unix, *words, stdin=data), hotcell(server.unix, *words, "--stdin", tmp_path / "data")):
        if done.stdout != expected:  # options end at the code's own arguments
            done = hotcell(server.unix, "run", "--stdin", tmp_path / "data", *words[1:])
        assert (done.returncode, done.stdout, served(done)) == (0, expected, server.unix)


def test_program_that_does_not_read_is_heard_all_the_same(server):
    source = subprocess.Popen(["yes"], stdout=subprocess.PIPE)
    try:
        process = start(server.unix, "run", "-c", "import time\nfor i in range(3): print(i, flush=True); time.sleep(.1)", stdin=source.stdout)
        out, _ = process.communicate(timeout=30 * SLOW)
        assert (process.returncode, out) == (0, b"0\n1\n2\n")
    finally:
        source.stdout.close()
        source.kill()
        source.wait()


# ---- signals ----

@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_the_run(server, number, code):
    process = start(server.unix, "run", "-l", "bash", "-c", "echo up; sleep 60")
    assert process.stdout.readline() == b"up\n"
    run = under_way(server)
    process.send_signal(number)
    _, err = process.communicate(timeout=20 * SLOW)
    assert process.returncode == code and b"was ended by " + number.name.encode() in err
    wait_for_status(server, run, "killed")


def test_server_that_dies_under_way_is_an_error(start_server):
    server = start_server()
    process = start(server.unix, "run", "-l", "bash", "-c", "echo up; sleep 60")
    assert process.stdout.readline() == b"up\n"
    keeper = server.process.pid
    os.kill(keeper, signal.SIGKILL)
    try:
        _, err = process.communicate(timeout=60 * SLOW)
        assert process.returncode == 125 and b"run_" in err, "what has happened to the program is not known, so it is not run again"
    finally:
        server.kill()


# ---- it is not used ----

ALONE = {
    "--local": (["--local"], {}),
    "the configuration's word": ([], {"HOTCELL_CLIENT_LOCAL_SERVER": "false"}),
    "no socket": ([], {"HOTCELL_SERVER_SOCKET": "none"}),
    "limits of the environment": ([], {"HOTCELL_LIMITS_TIMEOUT": "7"}),
    "languages of the environment": ([], {"HOTCELL_LANGUAGES": str(pathlib.Path(__file__).resolve().parents[2] / "languages")}),
}


@pytest.mark.parametrize("words, variables", ALONE.values(), ids=ALONE.keys())
def test_run_that_has_terms_of_its_own_does_without(server, words, variables):
    done = hotcell(server.unix, "run", "-v", *words, "-c", "print(42)", **variables)
    assert (done.returncode, done.stdout, served(done)) == (0, b"42\n", None), done


def test_configuration_file_of_the_run_means_no_server(server, tmp_path):
    (tmp_path / "own.toml").write_text(f"[limits]\ntimeout = 9\n[isolation]\nallow_weak = {str(machine_is_weak()).lower()}\n")
    done = hotcell(server.unix, "run", "-v", "--config", tmp_path / "own.toml", "-c", "print(42)")
    assert (done.returncode, served(done)) == (0, None), done


def test_mounts_are_shown_without_the_server(server, tmp_path):
    (tmp_path / "shown").mkdir()
    (tmp_path / "shown" / "a").write_text("here\n")
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "hotcell").mkdir()
    weak = f"[isolation]\nallow_weak = {str(machine_is_weak()).lower()}\n"
    (tmp_path / "config" / "hotcell" / "config.toml").write_text(f"[mounts]\nallowed_read_paths = ['{tmp_path}']\n" + weak)
    done = hotcell(server.unix, "run", "-v", "--mount", f"{tmp_path}/shown:/mnt", "-l", "bash", "-c", "cat /mnt/a",
                   XDG_CONFIG_HOME=str(tmp_path / "config"))
    assert (done.returncode, done.stdout, served(done)) == (0, b"here\n", None), done


def test_local_and_a_named_server_contradict_each_other(server):
    done = hotcell(server.unix, "--server", server.url, "run", "--local", "-c", "1")
    assert (done.returncode, done.stdout) == (2, b"") and b"--local" in done.stderr


def test_server_that_stops_is_done_without(start_server):
    server = start_server()
    process = start(server.unix, "run", "-l", "bash", "-c", "echo up; sleep 3; echo done")
    assert process.stdout.readline() == b"up\n"
    server.process.send_signal(signal.SIGTERM)
    assert until(lambda: any("draining" in line for line in server.log), 2), "the signal has arrived"
    done = hotcell(server.unix, "run", "-v", "-c", "print(42)")
    assert (done.returncode, done.stdout, served(done)) == (0, b"42\n", None), done
    out, _ = process.communicate(timeout=30 * SLOW)
    assert (process.returncode, out) == (0, b"done\n"), "what ran on it has ended by itself"
    done = hotcell(server.unix, "run", "-v", "-c", "print(42)")
    assert (done.returncode, served(done)) == (0, None)


@contextlib.contextmanager
def pretender(answer, uid=None):
    """A socket at which `answer(connection)` is called for each client; with a uid, in a process of that user's."""
    with tempfile.TemporaryDirectory(prefix="hotcell-test-") as place:
        os.chmod(place, 0o777)
        path = os.path.join(place, "hotcell.sock")

        def listen():
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(path)
            listener.listen(8)
            return listener

        def serve(listener):
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection, contextlib.suppress(OSError):
                        answer(connection)

        if uid is None:
            listener = listen()
            thread = threading.Thread(target=serve, args=(listener,), daemon=True)
            thread.start()
            yield path
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            thread.join(5)
            return
        child = os.fork()
        if child == 0:
            os.setgid(uid)
            os.setuid(uid)
            serve(listen())
            os._exit(0)
        try:
            while not os.path.exists(path):
                time.sleep(0.01)
            yield path
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def problem(status, code):
    body = json.dumps({"type": "about:blank", "title": "x", "status": status, "detail": "not now", "code": code}).encode()
    head = f"HTTP/1.1 {status} No\r\nContent-Type: application/problem+json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"

    def answer(connection):
        connection.recv(65536)
        connection.sendall(head.encode() + body)
    return answer


def bytes_of(data):
    def answer(connection):
        connection.recv(65536)
        connection.sendall(data)
    return answer


def silence(connection):
    time.sleep(5)


PRETENDERS = {
    "wants a key": problem(401, "unauthorized"),
    "forbids": problem(403, "forbidden"),
    "is another version": problem(412, "conflict"),
    "is busy": problem(503, "overloaded"),
    "fails": problem(500, "internal"),
    "never had a turn for it": bytes_of(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
                                        b'event: start\ndata: {"id":"run_1"}\n\nevent: error\ndata: {"status":503,"detail":"full"}\n\n'),
    "is no server of ours": bytes_of(b"220 mail.example.org ESMTP\r\n"),
    "hangs up": lambda connection: None,
    "is silent": silence,
}


@pytest.mark.parametrize("answer", PRETENDERS.values(), ids=PRETENDERS.keys())
def test_socket_at_which_something_is_wrong_is_done_without(answer):
    with pretender(answer) as path:
        begin = time.monotonic()
        done = hotcell(path, "run", "-v", "-c", "print(input())", stdin=b"typed\n")
        assert (done.returncode, done.stdout, served(done)) == (0, b"typed\n", None), done
        assert time.monotonic() - begin < 4 * SLOW


def test_socket_that_nobody_listens_at_is_done_without(tmp_path):
    path = tempfile.mkdtemp(prefix="hotcell-test-") + "/hotcell.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
    try:
        done = hotcell(path, "run", "-v", "-c", "print(42)")
        assert (done.returncode, served(done)) == (0, None), done
    finally:
        os.unlink(path)
        os.rmdir(os.path.dirname(path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can play another user")
def test_server_of_another_user_is_given_nothing(tmp_path):
    heard = tmp_path / "heard"
    heard.touch()
    heard.chmod(0o666)
    tmp_path.chmod(0o777)

    def answer(connection):
        heard.write_bytes(connection.recv(65536))
        bytes_of(b"")(connection)
    with pretender(answer, NOBODY) as path:
        done = hotcell(path, "run", "-v", "-c", "print(42)")
        assert (done.returncode, done.stdout, served(done)) == (0, b"42\n", None), done
        time.sleep(0.2)
        assert heard.read_bytes() == b""


# ---- what it rests on ----

def test_expectation_that_is_not_met_is_412(server):
    version = subprocess.run([HOTCELL, "version"], capture_output=True, text=True, check=True).stdout.split()[1]
    level = server.get("/readyz").json["isolation"]
    for expected, status in ((f"hotcell/{version}", 200), (f"hotcell/{version} full", 200 if level == "full" else 412), ("hotcell/0.0.1", 412),
                             (f"hotcell/{version} better", 412)):
        answer = server.run(code="print(1)", headers={"Hotcell-Expect": expected})
        assert answer.status == status, (expected, answer)


def test_stdin_route(server):
    with server.events("/v1/runs", {"code": "import sys; print(sys.stdin.read())", "stdin": "first,", "stdin_open": True}) as stream:
        events = iter(stream)
        run = next(events).data["id"]
        octets = {"Content-Type": "application/octet-stream"}
        route = f"/v1/runs/{run}/stdin"
        assert server.post(route, b"second,", headers=octets).status == 204
        assert server.post(route, b"x", headers={"Content-Type": "text/plain"}).status == 415
        assert server.post(route + "?last=true", b"x", headers=octets).status == 400
        assert server.post(route + "?end=perhaps", b"x", headers=octets).status == 400
        assert server.post(route + "?end=true", b"third", headers=octets).status == 204
        assert server.post(route, b"fourth", headers=octets).status == 409
        result = list(events)[-1].data
        assert result["stdout"] == "first,second,third\n", result
    assert server.post(route, b"late", headers=octets).status in (404, 409)
    assert server.post("/v1/runs/run_none/stdin", b"x", headers=octets).status == 404


def test_stdin_that_was_not_asked_for_is_refused(server):
    run = server.run(code="import time; time.sleep(5)", **{"async": True}).json["id"]
    assert server.post(f"/v1/runs/{run}/stdin", b"x", headers={"Content-Type": "application/octet-stream"}).status == 409
    server.delete(f"/v1/runs/{run}")


def test_piece_that_is_not_read_waits_and_ends_with_the_run(server):
    octets = {"Content-Type": "application/octet-stream"}
    run = server.run(code="import time; time.sleep(2)", stdin_open=True, **{"async": True}).json["id"]
    begin = time.monotonic()
    answer = server.post(f"/v1/runs/{run}/stdin", b"x" * (1 << 20), headers=octets)
    assert answer.status == 409 and time.monotonic() - begin > 1, answer
