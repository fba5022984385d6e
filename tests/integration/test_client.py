"""The command line against a server, side by side with the command line alone: the same words, the same output, the same exit code.

And what only the two together have: keys, history, the audit log, TLS, lost connections.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

from cells import HOTCELL, SLOW, machine_is_weak
from server import Server, server, start_server  # noqa: F401  fixtures

CODE = "import sys; sys.stdout.write(sys.stdin.read().upper()); sys.stderr.write('warned\\n'); sys.exit(3)"


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory):
    """No configuration of the machine's user, no server of the environment; a weak machine is accepted here as the server accepts it."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "hotcell").mkdir()
    if machine_is_weak():
        (folder / "hotcell" / "config.toml").write_text("[isolation]\nallow_weak = true\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(folder))
        for name in ("HOTCELL_SERVER", "HOTCELL_KEY", "HOTCELL_CA"):
            patch.delenv(name, raising=False)
        yield folder


def hotcell(*words, stdin=b"", env=None, cwd=None):
    return subprocess.run([HOTCELL, *map(os.fspath, words)], input=stdin, capture_output=True, timeout=60 * SLOW, check=False, cwd=cwd,
                          env={**os.environ, **(env or {})})


def start(*words, **options):
    """One that goes on. SIGINT is not ignored in it, which it would be where the tests are a background job of a shell."""
    return subprocess.Popen([HOTCELL, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **options)


def shape(value):
    """What a value is made of: names and types, without the values."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def without_figures(text):
    """Nor with the line of --verbose that says who ran it."""
    text = re.sub(rb"hotcell: a \w+ start, .*\n", b"", text)
    return re.sub(rb"\d+(\.\d+)? (ms|KiB|MiB|bytes)", b"N", text)


def said(text):
    """A server names the field at fault where the message does not."""
    return text.replace(b"hotcell: mounts: ", b"hotcell: ")


# ---- the same run here and there ----

RUNS = {
    "plain": ["-c", "print(42)"],
    "exit code, stdin and both streams": ["-c", CODE],
    "quiet": ["-q", "-c", "raise SystemExit(9)"],
    "verbose": ["-v", "-c", "print(1)"],
    "no newline at the end": ["-c", "print('x', end='')"],
    "another language": ["-l", "bash", "-c", "echo $0 $#; exit 4", "a", "b"],
    "arguments and environment": ["--env", "K=V=W", "-c", "import os, sys; print(sys.argv[1:], os.environ['K'])", "a b", "--json", "ä"],
    "timeout keeps partial output": ["--timeout", "0.5", "-c", "import time; print(1, flush=True); time.sleep(9)"],
    "out of memory": ["--memory", "32m", "-c", "x = bytearray(100 << 20)"],
    "signal": ["-c", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"],
    "output over its limit": ["--output", "4k", "-c", "print('x' * 10000)"],
    "command": ["--", "sh", "-c", "echo $0; exit 7", "zero"],
    "command not found": ["--", "no-such-command"],
    "shell": ["--shell", "echo 1 | wc -c"],
    "compile error": ["-l", "c", "-c", "int main(void) { return x; }"],
    "compiled": ["-l", "c", "-c", "#include <stdio.h>\nint main(void) { puts(\"c\"); return 5; }"],
    "syntax error": ["-c", "print("],
    "file": ["job.py", "one"],
    "files": ["--file", "data", "--file", "tool.sh", "--", "sh", "-c", "./tool.sh; cat data/a.txt; wc -c <data/b.bin"],
    "entry": ["--file", "data", "--file", "job.py", "--entry", "job.py", "two"],
    "request": ["--request", "request.json"],
    "read-only root": ["-l", "bash", "-c", "touch /usr/x"],
    "writable root": ["--read-only=false", "-l", "bash", "-c", "touch /usr/x && echo made"],
    "disk full": ["--disk", "1m", "-l", "bash", "-c", "head -c 5m /dev/zero >x"],
    "too many open files": ["--files-open", "10", "-c", "files = [open('/dev/null') for _ in range(50)]"],
    "module that is missing": ["-c", "import no_such_module"],
    "cut and failed": ["--output", "4k", "-c", "print('x' * 10000); raise SystemExit(3)"],
    "limits in force": ["--pids", "17", "--files-open", "33", "-l", "bash", "-c", "ulimit -n"],
    "wrong size": ["--memory", "64q", "-c", "1"],
    "too small a size": ["--memory", "1k", "-c", "1"],
    "unknown language": ["-l", "pyhton", "-c", "1"],
    "unknown image": ["--image", "hsot", "-c", "1"],
    "unknown network": ["--network", "open", "-c", "1"],
    "mount that is not allowed": ["--mount", "/etc:/mnt", "-c", "1"],
    "unknown option": ["--memry", "1", "-c", "1"],
    "nothing to run": [],
    "file that is missing": ["jbo.py"],
    "file name that leaves": ["--file", "data/a.txt:../x", "-c", "1"],
    "unknown field of a request": ["--request", "wrong.json"],
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("text\n")
    (tmp_path / "data" / "b.bin").write_bytes(bytes(range(256)))
    (tmp_path / "tool.sh").write_text("#!/bin/sh\necho executable\n")
    (tmp_path / "tool.sh").chmod(0o755)
    (tmp_path / "job.py").write_text("import sys\nprint('job', sys.argv[1:])\n")
    (tmp_path / "request.json").write_text(json.dumps(
        {"code": "import sys; print(sys.stdin.read(), sys.argv[1:])", "stdin": "of the request", "args": ["x"], "limits": {"timeout": 5},
         "metadata": {"a": 1}}))
    (tmp_path / "wrong.json").write_text('{"code": "1", "lmits": {}}')
    return tmp_path


@pytest.mark.parametrize("words", RUNS.values(), ids=RUNS.keys())
def test_run_is_the_same_with_and_without_a_server(server, folder, words):
    here = hotcell("run", *words, stdin=b"abc", cwd=folder)
    there = hotcell("--server", server.url, "run", *words, stdin=b"abc", cwd=folder)
    assert (there.returncode, there.stdout) == (here.returncode, here.stdout), (here, there)
    assert said(without_figures(there.stderr)) == without_figures(here.stderr)


@pytest.mark.parametrize("words", RUNS.values(), ids=RUNS.keys())
def test_json_has_the_same_shape_with_and_without_a_server(server, folder, words):
    here = hotcell("run", "--json", *words, stdin=b"abc", cwd=folder)
    there = hotcell("run", "--json", "--server", server.url, *words, stdin=b"abc", cwd=folder)
    assert (there.returncode, without_figures(there.stderr)) == (here.returncode, without_figures(here.stderr))
    first, second = json.loads(here.stdout), json.loads(there.stdout)
    if "error" in first:
        assert second["error"].keys() == first["error"].keys()
        assert (second["error"]["field"], second["error"]["remedy"]) == (first["error"]["field"], first["error"]["remedy"])
        assert second["error"]["message"].endswith(first["error"]["message"])
        return
    assert shape(second) == shape(first)
    for key in ("status", "exit_code", "signal", "stdout", "stderr", "truncated", "language", "files", "metadata"):
        assert second[key] == first[key], key


@pytest.mark.parametrize("place", ["before", "after", "environment", "socket"])
def test_server_is_named_before_or_after_the_verb_or_by_the_environment(server, place):
    words = {"before": ["--server", server.url, "run"], "after": ["run", "--server=" + server.url], "environment": ["run"],
             "socket": ["--server", "unix:" + server.unix, "run"]}[place]
    done = hotcell(*words, "--json", "-c", "1", env={"HOTCELL_SERVER": server.url} if place == "environment" else {})
    run = json.loads(done.stdout)["id"]
    assert server.get(f"/v1/runs/{run}", unix=True).json["id"] == run


def test_words_of_the_program_are_not_options(server):
    done = hotcell("run", "--", "echo", "--server", "http://nowhere:1")
    assert (done.returncode, done.stdout) == (0, b"--server http://nowhere:1\n")
    done = hotcell("run", "--server", "", "-c", "print(1)", env={"HOTCELL_SERVER": "http://127.0.0.1:1"})
    assert (done.returncode, done.stdout) == (0, b"1\n"), "an empty address is this machine"


def test_bytes_pass_through_as_they_are(server):
    every = bytes(range(256)) * 300
    copy = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()); sys.stderr.buffer.write(b'\\xff\\x00\\n')"
    done = hotcell("--server", server.url, "run", "-c", copy, stdin=every)
    assert (done.returncode, done.stdout, done.stderr) == (0, every, b"\xff\x00\n")


def test_arguments_that_json_cannot_carry_are_named(server):
    done = subprocess.run([HOTCELL, "--server", server.url, "run", "-c", "1", b"\xff"], capture_output=True, check=False)
    assert done.returncode == 2 and b"args" in done.stderr and b"UTF-8" in done.stderr


def test_collected_files_are_written_as_without_a_server(server, tmp_path):
    code = ("import os; os.mkdir('out'); open('out/b', 'wb').write(bytes(range(256))); open('t', 'w').write('x'); "
            "os.symlink('/etc', 'out/l')")
    seen = {}
    for name, words in {"here": [], "there": ["--server", server.url]}.items():
        target = tmp_path / name
        done = hotcell("run", *words, "-v", "--collect", "out/*", "--collect", "t", "--collect-to", target, "-c", code)
        assert done.returncode == 0, done
        files = {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}
        seen[name] = files, without_figures(done.stderr)
    assert seen["there"] == seen["here"] and seen["there"][0]["out/b"] == bytes(range(256))
    collect = ["run", "--server", server.url, "--collect", "t", "--collect-to", tmp_path / "there", "-c"]
    assert hotcell(*collect, code).returncode == 0  # it is there, and the same
    again = hotcell(*collect, "open('t', 'w').write('y')")
    assert again.returncode == 125 and b"exists" in again.stderr


def test_output_is_live(server):
    code = "import time; print('first', flush=True); time.sleep(30)"
    process = start("--server", server.url, "run", "-c", code)
    started = time.monotonic()
    assert process.stdout.readline() == b"first\n"
    assert time.monotonic() - started < 15 * SLOW
    process.send_signal(signal.SIGINT)
    assert process.wait(20 * SLOW) == 130
    process.stdout.close()


def newest(server):
    return server.get("/v1/runs?limit=1", unix=True).json["runs"][0]


def wait_for_status(server, run, status):
    deadline = time.monotonic() + 20 * SLOW
    while (found := server.get(f"/v1/runs/{run}", unix=True).json["status"]) != status:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_the_run(server, number, code):
    process = start("--server", server.url, "run", "-l", "bash", "-c", "echo up; sleep 60", stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"up\n"
    run = newest(server)["id"]
    process.send_signal(number)
    _, err = process.communicate(timeout=20 * SLOW)
    assert process.returncode == code and b"was ended by " + number.name.encode() in err
    wait_for_status(server, run, "killed")


def test_nobody_reading_the_output_ends_the_run(server):
    process = start("--server", server.url, "run", "--output", "8m", "--", "yes", stderr=subprocess.DEVNULL)
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(30 * SLOW) == 141
    wait_for_status(server, newest(server)["id"], "killed")


def test_terminal_is_not_waited_for_by_a_program_that_does_not_read(server):
    leader, follower = os.openpty()
    done = subprocess.run([HOTCELL, "--server", server.url, "run", "-c", "print(42)"], stdin=follower, capture_output=True,
                          timeout=60 * SLOW, check=False)
    os.close(leader)
    os.close(follower)
    assert (done.returncode, done.stdout) == (0, b"42\n")


def test_languages_are_listed_by_the_server(server):
    here, there = hotcell("languages", "--names"), hotcell("--server", server.url, "languages", "--names")
    assert there.stdout == here.stdout
    one, other = (json.loads(hotcell(*words, "languages", "--json").stdout) for words in ([], ["--server", server.url]))
    for language in one:
        del language["source"]  # a path of the machine that it is on
    assert [(language["name"], language["available"], list(language)) for language in one] == [
        (language["name"], language["available"], list(language)) for language in other]


# ---- connections ----

class Cutter:
    """A proxy that hands on the first answer only up to a point, cuts the connection there, and leaves all later ones alone."""

    def __init__(self, port, keep):
        self.port, self.keep, self.requests = port, keep, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                with client, socket.create_connection(("127.0.0.1", self.port)) as upstream:
                    self.handle(client, upstream)

    def handle(self, client, upstream):
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.recv(65536)
        length = int((re.search(rb"Content-Length: (\d+)", head) or [0, 0])[1])
        while len(head.partition(b"\r\n\r\n")[2]) < length:
            head += client.recv(65536)
        self.requests.append(head)
        upstream.sendall(re.sub(rb"Host: \S+", b"Host: 127.0.0.1:%d" % self.port, head))
        answer = b""
        while piece := upstream.recv(65536):
            answer += piece
        client.sendall(answer if len(self.requests) > 1 or self.keep is None else answer[:self.keep])

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(5)


def test_lost_connection_goes_on_and_no_byte_is_lost_or_repeated(server):
    code = "import sys\nfor i in range(40): print(i, 'x' * 50, flush=True); sys.stderr.write(f'{i}\\n')"
    words = ["run", "-c", code]
    straight = hotcell("--server", server.url, *words)
    assert straight.returncode == 0 and straight.stdout.count(b"\n") == 40
    for keep in (400, 700, 1500, 3000, 4000, 5000):
        cutter = Cutter(server.port, keep)
        try:
            done = hotcell("--server", cutter.url, *words)
        finally:
            cutter.close()
        assert (done.returncode, done.stdout, done.stderr) == (0, straight.stdout, straight.stderr), keep
        # Whether the end of its input is sent with the request or after it is a matter of microseconds.
        asked = [request for request in cutter.requests if b"/stdin" not in request.partition(b"\r\n")[0]]
        assert len(asked) == 2 and b"Last-Event-ID: " in asked[1], cutter.requests
        assert asked[1].startswith(b"GET /v1/runs/run_")


def test_connection_lost_before_the_run_has_an_id_is_an_error(server):
    cutter = Cutter(server.port, 20)
    try:
        done = hotcell("--server", cutter.url, "run", "-c", "print(1)")
    finally:
        cutter.close()
    assert (done.returncode, done.stdout) == (125, b"") and b"was lost" in done.stderr
    assert len(cutter.requests) == 1, "a request that may have been carried out is not sent again"


def test_nobody_there():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    done = hotcell("--server", f"http://127.0.0.1:{port}", "run", "-c", "1")
    assert done.returncode == 125 and b"cannot reach a server" in done.stderr and b"hotcell serve" in done.stderr


def test_body_over_the_servers_limit(start_server, tmp_path):
    server = start_server("[server]\nbody_bytes = '64k'\n")
    (tmp_path / "large").write_bytes(b"x" * (8 << 20))
    done = hotcell("--server", server.url, "run", "--file", tmp_path / "large", "-c", "1")
    assert (done.returncode, done.stdout) == (2, b""), done
    (tmp_path / "large").write_bytes(b"x" * 100000)
    done = hotcell("--server", server.url, "run", "--json", "--file", tmp_path / "large", "-c", "1")
    assert json.loads(done.stdout)["error"]["code"] == "too_large"


def test_input_has_no_limit_but_time(start_server):
    server = start_server("[server]\nbody_bytes = '64k'\n")
    done = hotcell("--server", server.url, "run", "-c", "import sys; print(len(sys.stdin.buffer.read()))", stdin=b"x" * (8 << 20))
    assert (done.returncode, done.stdout) == (0, b"%d\n" % (8 << 20)), done


@pytest.fixture
def certificate(tmp_path):
    def make(name, host):
        key, file = tmp_path / f"{name}.key", tmp_path / f"{name}.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key,
                        "-out", file, "-days", "2", "-subj", "/CN=test", "-addext", f"subjectAltName={host}"], check=True,
                       capture_output=True)
        return file, key
    return make


class TlsServer(Server):
    """Serves https: readiness is asked through the socket, which has no TLS."""

    def __init__(self, config):
        super().__init__(config)
        self.listeners = 0

    def wait_ready(self, deadline):
        while not self.urls or self.get("/readyz", unix=True).status != 200:
            self.urls = [match[1] for line in self.lines for match in re.finditer(r"listening on (https://\S+)", line)]
            assert time.monotonic() < deadline and self.process.poll() is None, self.log
            time.sleep(0.02)


def test_tls_is_verified(certificate):
    good, key = certificate("good", "IP:127.0.0.1")
    other, _ = certificate("other", "IP:127.0.0.1")
    with TlsServer(f"[server]\ntls_certificate = '{good}'\ntls_key = '{key}'\n") as server:
        words = ["--server", server.url, "run", "-c", "print(1)"]
        assert hotcell("--ca", good, *words).stdout == b"1\n"
        assert hotcell(*words, env={"HOTCELL_CA": str(good)}).stdout == b"1\n"
        large = hotcell("--ca", good, *words[:-1], "print(len(input()))", stdin=b"x" * (4 << 20))
        assert (large.returncode, large.stdout) == (0, b"%d\n" % (4 << 20))
        for wrong in ([], ["--ca", other]):
            done = hotcell(*wrong, *words)
            assert (done.returncode, done.stdout) == (125, b"") and b"is not trusted" in done.stderr, done
        done = hotcell("--ca", good, "--server", server.url.replace("127.0.0.1", "localhost"), "run", "-c", "1")
        assert done.returncode == 125 and b"is not trusted" in done.stderr, "the certificate is for another name"
        assert hotcell("--server", server.url.replace("https", "http"), "run", "-c", "1").returncode == 125
        done = hotcell("--ca", "/dev/null", *words)
        assert done.returncode == 2 and b"/dev/null" in done.stderr


# ---- history, show, cancel, stats ----

def place(server):
    """The words that name the server's state folder and socket, for the verbs that need no address."""
    return ["--state", server.state, "--config", server.config_file]


def columns(text):
    return [re.split(r"  +", line.strip()) for line in text.decode().splitlines()]


def test_history_from_the_server_and_from_its_folder(server):
    for code in ("print(1)", "raise SystemExit(4)"):
        hotcell("--server", server.url, "run", "-q", "-c", code)
    hotcell("--server", server.url, "run", "-q", "-l", "bash", "-c", "true")
    tables = [hotcell("history", *words).stdout for words in (place(server), ["--server", server.url], ["--server", "unix:" + server.unix])]
    assert tables[0] == tables[1] == tables[2]
    rows = columns(tables[0])
    assert rows[0] == ["ID", "WHEN", "STATUS", "LANGUAGE", "EXIT", "TIME", "MEMORY"]
    assert [row[2:5] for row in rows[1:4]] == [["completed", "bash", "0"], ["error", "python", "4"], ["completed", "python", "0"]]
    stored, asked = (json.loads(hotcell("history", "--json", "--limit", "2", *words).stdout)
                     for words in (place(server), ["--server", "unix:" + server.unix]))
    assert stored == asked and len(stored["runs"]) == 2 and stored["next"] == stored["runs"][1]["id"]


@pytest.mark.parametrize("source", ["folder", "server"])
def test_history_is_filtered_and_paged(server, source):
    words = place(server) if source == "folder" else ["--server", server.url]
    for _ in range(2):
        hotcell("--server", server.url, "run", "-q", "-c", "raise SystemExit(5)")
    failed = json.loads(hotcell("history", "--json", "--status", "error", "--language", "python", *words).stdout)["runs"]
    assert len(failed) >= 2 and {(run["status"], run["language"]) for run in failed} == {("error", "python")}
    words = ["--status", "error", "-l", "python", "--before", failed[0]["id"], *words]
    older = json.loads(hotcell("history", "--json", *words).stdout)["runs"]
    assert [run["id"] for run in older] == [run["id"] for run in failed[1:]]


@pytest.mark.parametrize("source", ["folder", "server"])
def test_show_one_run(server, source):
    words = place(server) if source == "folder" else ["--server", server.url]
    result = json.loads(hotcell("--server", server.url, "run", "--json", "-c", "print('out'); raise SystemExit(6)").stdout)
    shown = hotcell("show", result["id"], *words)
    assert shown.returncode == 0, shown
    facts = {row[0]: row[1] for row in columns(shown.stdout) if len(row) > 1}
    assert facts["id"] == result["id"] and facts["status"] == "error" and facts["exit code"] == "6"
    assert shown.stdout.endswith(b"\nstdout:\nout\n")
    assert json.loads(hotcell("show", "--json", result["id"], *words).stdout) == result
    report = hotcell("show", "--report", result["id"], *words)
    assert report.returncode == 0 and result["id"].encode() in report.stdout
    assert json.loads(hotcell("show", "--report", "--json", result["id"], *words).stdout)
    wrong = hotcell("show", result["id"][:-1] + "_", *words)
    assert wrong.returncode == 2 and b"there is no run" in wrong.stderr and f"did you mean {result['id']}?".encode() in wrong.stderr


def test_tests_that_failed_are_told_by_show_and_why(server):
    tests = [{"stdin": "1", "expect_stdout": "2\n"}, {"name": "two", "stdin": "2", "expect_stdout": "5\n"}, {"stdin": "x"}]
    run = server.run(code="print(int(input()) * 2)", tests=tests).json
    same = server.run(code="print(0)", tests=[{"expect_stdout": "1"}]).json
    assert (run["tests_passed"], same["status"], same["success"]) == (1, "completed", False)
    for verb in ("show", "why"):
        shown = hotcell(verb, run["id"], *place(server)).stdout.decode()
        assert re.search(r"^tests +1 of 3 passed$", shown, re.M) and re.search(r'^two +failed: its output, "4", ', shown, re.M), shown
        assert re.search(r"^test 3 +error: invalid literal", shown, re.M), shown
        assert re.search(r"^tests +0 of 1 passed$", hotcell(verb, same["id"], *place(server)).stdout.decode(), re.M)


def test_what_a_guest_wrote_does_not_drive_the_terminal(server):
    result = json.loads(hotcell("--server", server.url, "run", "--json", "-c", r"print('\x1b[31mred\x1b[0m')").stdout)
    leader, follower = os.openpty()
    subprocess.run([HOTCELL, "show", result["id"], *map(str, place(server))], stdin=subprocess.DEVNULL, stdout=follower,
                   env={**os.environ, "TERM": "dumb"}, check=True)
    os.close(follower)
    shown = b""
    with contextlib.suppress(OSError):  # EIO: the last of it was read. A terminal hands over what it has, not all that was written
        while part := os.read(leader, 65536):
            shown += part
    os.close(leader)
    assert b"?[31mred?[0m" in shown and b"\x1b" not in shown


@pytest.mark.parametrize("source", ["folder", "server"])
def test_cancel_ends_a_run(server, source):
    words = place(server) if source == "folder" else ["--server", server.url]
    run = server.post("/v1/runs", {"language": "bash", "code": "sleep 60", "async": True}).json["id"]
    done = hotcell("cancel", run, *words)
    assert (done.returncode, done.stdout) == (0, b"") and run.encode() in done.stderr, done
    wait_for_status(server, run, "killed")
    again = hotcell("cancel", "--json", run, *words)
    assert again.returncode == 2 and json.loads(again.stdout)["error"]["code"] == "conflict", again
    assert hotcell("cancel", "run_nothing", *words).returncode == 2


def test_stats_from_the_server_and_from_its_folder(server):
    hotcell("--server", server.url, "run", "-c", "1")
    stored = json.loads(hotcell("stats", "--json", *place(server)).stdout)
    asked = json.loads(hotcell("--server", "unix:" + server.unix, "stats", "--json").stdout)
    assert stored["history"].keys() == asked["history"].keys()
    assert stored["history"]["runs"] == asked["history"]["runs"] >= 1
    assert stored["history"]["by_status"] == asked["history"]["by_status"]
    table = hotcell("stats", "--server", server.url).stdout.decode()
    assert re.search(r"^running +\d+ of at most \d+$", table, re.M) and re.search(r"^python +\w+ +\d+ ", table, re.M), table
    assert b"runs recorded" in hotcell("stats", *place(server)).stdout


def test_a_folder_without_a_server_is_named(tmp_path):
    for words in (["history"], ["stats"], ["show", "run_x"], ["key", "list"], ["key", "revoke", "x"],
                  ["audit", "verify"], ["cancel", "run_x"]):
        done = hotcell(*words, "--state", tmp_path / "nothing")
        assert done.returncode in (2, 125) and str(tmp_path).encode() in done.stderr, (words, done)
    assert not (tmp_path / "nothing").exists()


# ---- keys and the audit log ----

def test_token_is_alone_on_stdout_and_kept_nowhere(tmp_path):
    state = tmp_path / "state"
    quotas = ["--runs-per-minute", "60", "--concurrent", "4", "--cpu-seconds-per-day", "1000"]
    made = hotcell("key", "create", "ada", *quotas, "--state", state)
    assert made.returncode == 0 and re.fullmatch(rb"hc_[\w-]{43}\n", made.stdout) and b"ada" in made.stderr
    token = made.stdout.strip()
    for file in state.iterdir():
        assert token not in file.read_bytes(), file
        assert file.stat().st_mode & 0o077 == 0
    row = json.loads(hotcell("key", "list", "--json", "--state", state).stdout)[0]
    assert (row["name"], row["runs_per_minute"], row["concurrent"], row["cpu_seconds_per_day"]) == ("ada", 60, 4, 1000)
    assert token.decode().startswith(row["prefix"]) and len(row["prefix"]) < 16
    listed = hotcell("key", "list", "--state", state).stdout
    assert re.search(rb"^ada +hc_\S+ +60 +4 +1000 ", listed, re.M) and token not in listed
    twice = hotcell("key", "create", "ada", "--state", state)
    assert (twice.returncode, twice.stdout) == (2, b"") and b"ada" in twice.stderr
    wrong = hotcell("key", "revoke", "adda", "--state", state)
    assert wrong.returncode == 2 and b"did you mean ada?" in wrong.stderr
    assert hotcell("key", "revoke", "ada", "--state", state).returncode == 0
    assert json.loads(hotcell("key", "list", "--json", "--state", state).stdout)[0]["revoked_at"]
    made = json.loads(hotcell("key", "create", "bob", "--json", "--state", state).stdout)
    assert made["name"] == "bob" and made["token"].startswith("hc_") and made["concurrent"] is None
    events = [(entry["event"], entry["tenant"]) for entry in json.loads(hotcell("audit", "list", "--json", "--state", state).stdout)]
    assert events == [("key_created", "ada"), ("key_revoked", "ada"), ("key_created", "bob")]


def test_keys_open_a_server_and_keep_tenants_apart(start_server, tmp_path):
    server = start_server()
    words = ["--server", server.url]
    assert hotcell(*words, "run", "-c", "1").returncode == 0, "without keys, loopback is open"
    tokens = {name: hotcell("key", "create", name, "--state", server.state).stdout.decode() for name in ("ada", "bob")}
    refused = hotcell(*words, "run", "--json", "-c", "1")
    assert refused.returncode == 2 and json.loads(refused.stdout)["error"]["code"] == "unauthorized"
    assert "HOTCELL_KEY" in json.loads(refused.stdout)["error"]["remedy"]
    file = tmp_path / "bob.key"
    file.write_text(tokens["bob"])
    ada = {"HOTCELL_KEY": tokens["ada"].strip()}
    done = hotcell(*words, "run", "--json", "-c", "1", env=ada)
    assert done.returncode == 0, done
    run = json.loads(done.stdout)["id"]
    assert hotcell("run", *words, "--key-file", file, "-c", "print(1)").stdout == b"1\n"
    assert [row["id"] for row in json.loads(hotcell(*words, "history", "--json", env=ada).stdout)["runs"]] == [run]
    assert hotcell(*words, "show", run, env=ada).returncode == 0
    assert hotcell(*words, "--key-file", file, "show", run).returncode == 2
    assert len(json.loads(hotcell("history", "--json", *place(server)).stdout)["runs"]) == 3, "the folder's owner sees all"
    assert hotcell("key", "revoke", "ada", "--state", server.state).returncode == 0
    assert hotcell(*words, "run", "-c", "1", env=ada).returncode == 2, "noticed at once"
    assert hotcell(*words, "history", env={"HOTCELL_KEY": "not a key"}).returncode == 2


def test_quota_is_told_with_when_to_try_again(start_server):
    server = start_server()
    token = hotcell("key", "create", "ada", "--runs-per-minute", "1", "--state", server.state).stdout.decode().strip()
    runs = [hotcell("--server", server.url, "run", "--json", "-c", "1", env={"HOTCELL_KEY": token}) for _ in range(2)]
    assert [done.returncode for done in runs] == [0, 125], runs
    error = json.loads(runs[1].stdout)["error"]
    assert error["code"] == "quota_exceeded" and "try again" in (error["remedy"] or "") + error["message"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another")
def test_root_leaves_nothing_of_its_own_in_the_folder(start_server):
    server = start_server()
    owner = (server.state / "history.db").stat().st_uid
    if owner == 0:
        pytest.skip("this machine has no uid for the gateway")
    for words in (["key", "create", "ada"], ["key", "list"], ["history"], ["stats"], ["audit", "list"]):
        assert hotcell(*words, "--state", server.state).returncode == 0, words
    for name in ("history.db", "history.db-wal", "history.db-shm", "history.db-runs"):
        assert (server.state / name).stat().st_uid == owner, name
    assert (server.state / "audit.log").stat().st_uid == 0
    trace = subprocess.run(["strace", "-f", "-e", "trace=setresuid,openat", HOTCELL, "history", "--state", str(server.state)],
                           capture_output=True, text=True, check=True, env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}).stderr
    assert trace.index(f"setresuid({owner}") < trace.index("history.db"), "root does not parse a database"


def test_audit_log_that_was_changed_is_found(tmp_path):
    state = tmp_path / "state"
    for name in ("ada", "bob", "eve"):
        hotcell("key", "create", name, "--state", state)
    whole = hotcell("audit", "verify", "--state", state)
    assert whole.returncode == 0 and b"3 entries" in whole.stdout
    log = state / "audit.log"
    lines = log.read_bytes().splitlines(keepends=True)
    for broken, line in ((lines[0] + lines[2], 2), (lines[0] + lines[1].replace(b"bob", b"rob") + lines[2], 2),
                         (lines[1] + lines[0] + lines[2], 1), (b"".join(lines) + b"x\n", 4)):
        log.write_bytes(broken)
        found = hotcell("audit", "verify", "--state", state)
        assert found.returncode == 1 and b"line %d:" % line in found.stdout, found
        report = hotcell("audit", "verify", "--json", "--state", state)
        assert report.returncode == 1 and json.loads(report.stdout)["bad_line"] == line
    log.write_bytes(b"".join(lines))
    assert hotcell("audit", "verify", "--state", state).returncode == 0


def test_audit_list_is_filtered(server):
    hotcell("--server", server.url, "run", "-q", "--timeout", "0.2", "-l", "bash", "-c", "sleep 5")
    hotcell("--server", server.url, "run", "--mount", "/etc:/mnt", "-c", "1")
    entries = json.loads(hotcell("audit", "list", "--json", "--limit", "1000", "--state", server.state).stdout)
    events = {entry["event"] for entry in entries}
    assert events >= {"server_started", "limit_hit", "mount_denied"}, events
    only = json.loads(hotcell("audit", "list", "--json", "--event", "limit_hit", "--state", server.state).stdout)
    assert only and {entry["event"] for entry in only} == {"limit_hit"}
    last = json.loads(hotcell("audit", "list", "--json", "--limit", "1", "--state", server.state).stdout)
    assert last == entries[-1:]
    assert b"limit_hit" in hotcell("audit", "list", "--state", server.state).stdout
    assert hotcell("audit", "verify", "--state", server.state).returncode == 0
