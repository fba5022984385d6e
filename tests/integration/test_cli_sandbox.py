"""The command line of sandboxes against a server: hotcell sandbox, cp and volume. hotcell shell is in test_cli_shell.py."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import time

import pytest

from cells import HOTCELL, SLOW
from server import server, start_server  # noqa: F401  fixtures


@pytest.fixture(autouse=True)
def home(tmp_path_factory, monkeypatch):
    """No configuration of the machine's user, no server of the environment."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("home")))
    for name in ("HOTCELL_SERVER", "HOTCELL_KEY", "HOTCELL_CA"):
        monkeypatch.delenv(name, raising=False)


class Line:
    """hotcell WORDS against one server."""

    def __init__(self, server):  # noqa: F811
        self.server = server

    def words(self, *words):
        return [HOTCELL, "--server", "unix:" + self.server.unix, *map(str, words)]

    def __call__(self, *words, stdin=b"", within=60, **options):
        return subprocess.run(self.words(*words), input=stdin, capture_output=True, timeout=within * SLOW, check=False, **options)

    def text(self, *words, **options):
        done = self(*words, **options)
        assert done.returncode == 0, done
        return done.stdout.decode()

    def json(self, *words, **options):
        return json.loads(self.text(*words, "--json", **options))


@pytest.fixture
def hotcell(server):  # noqa: F811
    return Line(server)


@pytest.fixture
def box(hotcell):
    """The id of a sandbox of this test's own."""
    one = hotcell.text("sandbox", "create").strip()
    yield one
    hotcell("sandbox", "rm", one)


# ---- life ----

def test_create_prints_the_id_alone(hotcell):
    done = hotcell("sandbox", "create", "--memory", "128m", "--pids", "20", "--env", "A=1", "--idle-timeout", "10m", "--max-lifetime", "1h",
                   "--metadata", "job=42", "--metadata", "who=ada", "--recover")
    assert done.returncode == 0 and re.fullmatch(rb"sbx_[a-z0-9]{26}\n", done.stdout) and done.stderr == b"", done
    made = hotcell.json("sandbox", "inspect", done.stdout.decode().strip())
    assert made["limits"]["memory"] == 128 << 20 and made["limits"]["pids"] == 20 and made["env"] == {"A": "1"}
    assert (made["idle_timeout"], made["max_lifetime"], made["recover"]) == (600, 3600, True)
    assert made["metadata"] == {"job": "42", "who": "ada"}
    assert hotcell("sandbox", "delete", made["id"]).returncode == 0


def test_files_go_in_when_it_is_made(hotcell, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.txt").write_text("hello\n")
    one = hotcell.text("sandbox", "create", "--file", "src", cwd=tmp_path).strip()
    assert hotcell.text("sandbox", "exec", one, "--", "cat", "src/a.txt") == "hello\n"
    hotcell("sandbox", "rm", one)


def test_list_has_a_table_ids_and_states(hotcell, box):
    table = hotcell.text("sandbox", "list").splitlines()
    assert re.split("  +", table[0].strip()) == ["ID", "STATE", "CREATED", "USED", "JOBS", "MEMORY", "METADATA"]
    assert any(re.match(rf"{box}  running  ", row) for row in table)
    assert box in hotcell.text("sandbox", "ls", "-q").split()
    assert box not in hotcell.text("sandbox", "ls", "-q", "--status", "paused").split()
    assert box in [one["id"] for one in hotcell.json("sandbox", "ls")["sandboxes"]]
    wrong = hotcell("sandbox", "ls", "--status", "pausd")
    assert wrong.returncode == 2 and b"did you mean paused?" in wrong.stderr


def test_inspect_shows_what_it_uses(hotcell, box):
    hotcell("sandbox", "exec", box, "--", "sh", "-c", "head -c 2000000 /dev/zero >fill")
    facts = dict(re.split("  +", row, maxsplit=1) for row in hotcell.text("sandbox", "inspect", box).splitlines())
    assert facts["id"] == box and facts["state"] == "running" and "1.9 MiB of 100 MiB" in facts["disk"]
    assert re.match(r"\S+ \S+ of 512 MiB, at most ", facts["memory"]) and facts["isolation"] in ("full", "weak")


def test_an_id_may_be_abbreviated_where_it_is_unique(hotcell, box):
    other = hotcell.text("sandbox", "create").strip()
    for short in (box, box[-6:], box[4:]):
        assert hotcell.json("sandbox", "inspect", short)["id"] == box
    both = hotcell("sandbox", "inspect", os.path.commonprefix([box, other])[:8])
    assert both.returncode == 2 and re.search(rb"stands for \d+ sandboxes", both.stderr), both
    none = hotcell("sandbox", "inspect", "zzzzzz")
    assert none.returncode == 2 and b'there is no sandbox "zzzzzz"' in none.stderr
    hotcell("sandbox", "rm", other)


def test_pause_and_resume(hotcell, box):
    assert hotcell("sandbox", "pause", box).returncode == 0
    refused = hotcell("sandbox", "exec", box, "true")
    assert refused.returncode == 2 and b"paused" in refused.stderr, refused
    assert hotcell.json("sandbox", "resume", box)["state"] == "running"
    assert hotcell("sandbox", "exec", box, "true").returncode == 0


def test_rm_takes_several_and_goes_on_after_a_wrong_one(hotcell):
    two = [hotcell.text("sandbox", "create").strip() for _ in range(2)]
    done = hotcell("sandbox", "rm", two[0], "zzzzzz", two[1])
    assert done.returncode == 2 and b"zzzzzz" in done.stderr
    assert not set(two) & set(hotcell.text("sandbox", "ls", "-q", "--status", "running").split())


def test_rm_all(start_server):  # noqa: F811
    hotcell = Line(start_server())
    for _ in range(3):
        hotcell.text("sandbox", "create")
    assert len(hotcell.json("sandbox", "rm", "--all")["sandboxes"]) == 3
    assert hotcell.json("sandbox", "ls", "--status", "running")["count"] == 0


def test_mistakes_get_an_answer(hotcell, box):
    for words, said, remedy in [
            (["sandbox"], b"needs a word", b"create, list"),
            (["sandbox", "crate"], b"crate", b"hotcell sandbox create"),
            (["sandbox", "create", "--memry", "1g"], b"--memry", b"--memory"),
            (["sandbox", "create", "--memory", "much"], b"--memory", b""),
            (["sandbox", "create", "--volume", "cache"], b"NAME:PATH", b"cache:/cache"),
            (["sandbox", "create", "--metadata", "x"], b"K=V", b""),
            (["sandbox", "create", "extra"], b"extra", b""),
            (["sandbox", "inspect"], b"hotcell sandbox inspect", b"hotcell sandbox list"),
            (["sandbox", "exec", box], b"nothing to run", b"hotcell shell"),
            (["sandbox", "exec", box, "-l", "ruby", "--", "x"], b"-l ruby", b""),
            (["sandbox", "exec", box, "--name", "x", "--", "x"], b"--name", b"-d"),
            (["sandbox", "exec", box, "-s", "x", "-e", "A=1", "--", "x"], b"--session", b""),
            (["sandbox", "logs", "-f", box], b"which job", b"hotcell sandbox logs"),
            (["cp", "a"], b"source and a destination", b""),
            (["cp", "a", "b"], b"neither", b"ID:PATH"),
            (["cp", box + ":a", box + ":b"], b"both", b"pipe"),
            (["cp", "no-such-file", box + ":"], b"no-such-file", b""),
            (["shell", box], b"needs a terminal", b"sandbox exec"),
            (["volume", "crate"], b"crate", b"hotcell volume create"),
            (["volume", "create"], b"one name", b""),
            (["volume", "create", "x"], b"size", b"--size 1g"),
            (["volume", "create", "x", "--size", "much"], b"--size", b"much"),
            (["volume", "remove"], b"name", b"")]:
        done = hotcell(*words)
        assert done.returncode == 2 and said in done.stderr and remedy in done.stderr, (words, done)


def test_no_server_is_said_so(tmp_path):
    for words in (["sandbox", "list"], ["sandbox", "create"], ["volume", "list"], ["cp", "x:y", "."]):
        done = subprocess.run([HOTCELL, *words, "--state", str(tmp_path)], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        assert done.returncode == 125 and b"hotcell serve starts one" in done.stderr, (words, done)


def test_the_server_of_this_machine_is_found(server, box):  # noqa: F811
    words = ["--config", str(server.config_file), "--state", str(server.state)]
    done = subprocess.run([HOTCELL, "sandbox", "ls", "-q", *words], capture_output=True, check=False)
    assert done.returncode == 0 and box in done.stdout.decode().split(), done


# ---- exec ----

def test_exec_is_as_transparent_as_a_run(hotcell, box):
    done = hotcell("sandbox", "exec", box, "--", "sh", "-c", "cat; echo err >&2; exit 3", stdin=b"in\0\xff")
    assert (done.returncode, done.stdout) == (3, b"in\0\xff"), done
    assert done.stderr == b"err\nhotcell: exited with status 3\n"
    assert hotcell("sandbox", "exec", "-q", box, "--", "sh", "-c", "exit 4").stderr == b""


def test_options_end_at_the_command(hotcell, box):
    assert hotcell.text("sandbox", "exec", "-w", "/tmp", box, "-e", "A=1", "sh", "-c", "pwd; echo $A $0 $1", "-q", "--json") == "/tmp\n1 -q --json\n"


def test_exec_code_shell_and_json(hotcell, box):
    assert hotcell.text("sandbox", "exec", box, "-c", "import sys; print(6 * 7, sys.argv[1])", "word") == "42 word\n"
    assert hotcell.text("sandbox", "exec", box, "-l", "bash", "-c", "echo $((6 * 7))") == "42\n"
    assert hotcell.text("sandbox", "exec", box, "--shell", "echo a | tr a b") == "b\n"
    result = hotcell.json("sandbox", "exec", box, "-c", "print(1)")
    assert (result["status"], result["stdout"], result["sandbox"]) == ("completed", "1\n", box)


def test_exit_codes_are_those_of_a_run(hotcell, box):
    assert hotcell("sandbox", "exec", box, "--timeout", "0.5", "--", "sleep", "60").returncode == 124
    assert hotcell("sandbox", "exec", box, "--", "no-such-program").returncode == 127
    assert hotcell("sandbox", "exec", box, "--", "sh", "-c", "kill -9 $$").returncode == 137


def test_output_is_live(hotcell, box):
    process = subprocess.Popen(hotcell.words("sandbox", "exec", box, "--", "sh", "-c", "echo first; read x; echo got $x"),
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"first\n"
    process.stdin.write(b"second\n")
    process.stdin.close()
    assert process.stdout.read() == b"got second\n" and process.wait(30) == 0


def test_large_input_and_output_pass_through(hotcell, box):
    data = os.urandom(3 << 20)
    done = hotcell("sandbox", "exec", "--output", "8m", box, "cat", stdin=data)
    assert done.returncode == 0 and done.stdout == data


def test_ctrl_c_ends_the_job_and_not_the_sandbox(hotcell, box):
    process = subprocess.Popen(hotcell.words("sandbox", "exec", box, "--", "sh", "-c", "echo up; exec sleep 1000"), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(30 * SLOW) == 130
    deadline = time.monotonic() + 10 * SLOW
    while "sleep" in hotcell.text("sandbox", "exec", box, "--", "sh", "-c", "cat /proc/[0-9]*/comm"):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_session_keeps_its_state(hotcell, box):
    assert hotcell.text("sandbox", "exec", "-s", "main", box, "cd /tmp && x=5") == ""
    assert hotcell.text("sandbox", "exec", "-s", "main", box, "--", "pwd;", "echo", "$x") == "/tmp\n5\n"
    assert hotcell.text("sandbox", "exec", "-i", "-s", "main", box, "cat", stdin=b"from stdin\n") == "from stdin\n"
    assert hotcell("sandbox", "exec", "-s", "main", box, "false").returncode == 1


# ---- jobs ----

def test_a_detached_job_and_its_log(hotcell, box):
    job = hotcell.text("sandbox", "exec", "-d", "--name", "web", box, "--", "sh", "-c", "echo out; echo err >&2; sleep 0.5; echo more; exit 4")
    assert re.fullmatch(r"job_[a-z0-9]+\n", job)
    table = hotcell.text("sandbox", "logs", box).splitlines()
    assert re.split("  +", table[1])[:3] == [job.strip(), "web", "running"]
    followed = hotcell("sandbox", "logs", "-f", box, "web")
    assert (followed.returncode, followed.stdout) == (0, b"out\nmore\n") and followed.stderr.startswith(b"err\n"), followed
    shown = hotcell("sandbox", "logs", box, job.strip())
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, b"out\nmore\n", b"err\n")
    assert hotcell.json("sandbox", "logs", box, "web")["result"]["exit_code"] == 4
    assert hotcell("sandbox", "logs", box, "nothing").returncode == 2


def test_input_of_a_detached_job(hotcell, box):
    data = os.urandom(200000)
    hotcell.text("sandbox", "exec", "-d", "-i", "--name", "count", box, "--", "sh", "-c", "sleep 0.3; wc -c", stdin=data)
    assert hotcell("sandbox", "logs", "-f", box, "count").stdout.strip() == b"200000"


def test_who_looks_on_does_not_end_the_job(hotcell, box):
    hotcell.text("sandbox", "exec", "-d", "--name", "long", box, "--", "sh", "-c", "echo up; exec sleep 1000")
    process = subprocess.Popen(hotcell.words("sandbox", "logs", "-f", box, "long"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(30 * SLOW) == 130 and process.stderr.read() == b""
    assert hotcell.json("sandbox", "logs", box, "long")["state"] == "running"


# ---- cp ----

@pytest.fixture
def tree(tmp_path, monkeypatch):
    """The current folder, with a folder `src` in it."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "src"
    (folder / "sub" / "empty").mkdir(parents=True)
    (folder / "a.txt").write_text("one\n")
    (folder / "sub" / "run").write_text("#!/bin/sh\necho ran\n")
    (folder / "sub" / "run").chmod(0o755)
    (folder / "ünï \n").write_bytes(b"\0\xff")
    (folder / "link").symlink_to("sub/run")
    os.utime(folder / "a.txt", (1e9, 1e9))
    return folder


def same(left, right):
    return subprocess.run(["diff", "-r", "--no-dereference", left, right], capture_output=True, check=False).returncode == 0


def test_a_folder_goes_in_and_comes_out_the_same(hotcell, box, tree):
    assert hotcell("cp", "src", f"{box}:").returncode == 0
    assert hotcell.text("sandbox", "exec", box, "--", "./src/link") == "ran\n"
    assert hotcell("cp", f"{box}:src", "back").returncode == 0
    assert same("src", "back")
    assert os.stat("back/a.txt").st_mtime == 1e9 and os.stat("back/sub/run").st_mode & 0o777 == 0o755
    assert hotcell("sandbox", "cp", f"{box}:src", "back").returncode == 0 and same("src", "back/src"), "into a folder that is there"


@pytest.mark.parametrize("target, found", [("", "a.txt"), ("b.txt", "b.txt"), ("/workspace/new/b.txt", "new/b.txt"), ("new/", "new/a.txt"),
                                           ("/workspace/", "a.txt"), ("there", "there/a.txt")])
def test_where_a_file_goes(hotcell, box, tree, target, found):
    hotcell("sandbox", "exec", box, "mkdir", "there")
    done = hotcell("cp", "src/a.txt", f"{box}:{target}")
    assert done.returncode == 0, done
    assert hotcell.text("sandbox", "exec", box, "--", "cat", f"/workspace/{found}") == "one\n"


@pytest.mark.parametrize("source, target, found", [("src", "", "src/a.txt"), ("src/", "there", "there/src/a.txt"), ("src", "other", "other/a.txt"),
                                                   ("src/.", "there", "there/a.txt"), ("src/.", "new", "new/a.txt")])
def test_where_a_folder_goes(hotcell, box, tree, source, target, found):
    hotcell("sandbox", "exec", box, "mkdir", "there")
    assert hotcell("cp", source, f"{box}:{target}").returncode == 0
    assert hotcell.text("sandbox", "exec", box, "--", "cat", found) == "one\n"


def test_where_what_comes_out_goes(hotcell, box, tree):
    hotcell("cp", "src", f"{box}:")
    assert hotcell("cp", f"{box}:src/a.txt", ".").returncode == 0 and os.path.exists("a.txt")
    assert hotcell("cp", f"{box}:src/a.txt", "b.txt").returncode == 0 and os.path.exists("b.txt")
    assert hotcell("cp", f"{box}:src/a.txt", "b.txt").returncode == 0, "a file is replaced, as with cp"
    assert hotcell("cp", f"{box}:src/.", "new").returncode == 0 and os.path.exists("new/a.txt")
    assert hotcell("cp", f"{box}:src/a.txt", "none/").returncode == 2
    assert hotcell("cp", f"{box}:src", "b.txt").returncode == 2, "a folder onto a file"
    assert hotcell("cp", f"{box}:src/a.txt", f"{box}:src/sub", "new").returncode == 0 and os.path.exists("new/sub/run"), "several"
    assert hotcell("cp", f"{box}:nothing", ".").returncode == 2
    os.symlink("a.txt", "link")
    assert hotcell("cp", f"{box}:src/sub/run", "link").returncode == 0
    assert os.path.islink("link") and "ran" in open("a.txt").read(), "a link that was named is written through, and stays"
    assert hotcell.json("cp", f"{box}:src", "counted") == {"entries": 6, "bytes": 4 + 19 + 2, "partly": False}


def test_streams(hotcell, box, tree):
    assert hotcell("cp", "-", f"{box}:x/y", stdin=b"bytes\0").returncode == 0
    assert hotcell("cp", f"{box}:x/y", "-").stdout == b"bytes\0"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add("src")
    assert hotcell("cp", "-", f"{box}:unpacked/", stdin=packed.getvalue()).returncode == 0
    done = hotcell("cp", f"{box}:unpacked", "-")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        assert archive.extractfile("src/a.txt").read() == b"one\n"
    hotcell("sandbox", "exec", box, "--", "ln", "-s", "unpacked/src/a.txt", "l")
    assert hotcell("cp", f"{box}:l", "-").stdout == b"one\n", "to stdout a link is followed"
    wrong = hotcell("cp", "-", f"{box}:unpacked/", stdin=b"no tar at all" * 100)
    assert wrong.returncode == 2 and b"tar" in wrong.stderr


def test_what_a_guest_made_does_not_get_out_of_the_folder(hotcell, box, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outside").mkdir()
    hotcell.text("sandbox", "exec", box, "--", "sh", "-c", """
        mkdir -p out/deep/er; cd out; echo fine >file
        ln -s /etc/passwd absolute; ln -s ../../outside up; ln -s deep/../../outside wound; ln -s ../../file deep/er/good; mkfifo pipe""")
    done = hotcell("cp", f"{box}:out", "out")
    assert done.returncode == 1, done
    for name in (b"absolute", b"up", b"wound"):
        assert name + b" is left out" in done.stderr
    assert sorted(os.listdir("out")) == ["deep", "file"] and os.readlink("out/deep/er/good") == "../../file"
    # A link that is here already is not gone through either.
    shutil.rmtree("out/deep")
    os.symlink(tmp_path / "outside", "out/deep")
    done = hotcell("cp", f"{box}:out/.", "out")
    assert done.returncode in (1, 125) and os.listdir("outside") == [] and os.path.islink("out/deep"), done


def test_what_cannot_be_sent_is_left_out_by_name(hotcell, box, tree):
    os.mkfifo("src/pipe")
    done = hotcell("cp", "src", f"{box}:")
    assert done.returncode == 1 and b"src/pipe is left out" in done.stderr
    assert hotcell.text("sandbox", "exec", box, "--", "cat", "src/a.txt") == "one\n"


def test_a_full_disk_is_said_so(hotcell, tmp_path):
    one = hotcell.text("sandbox", "create", "--disk", "2m").strip()
    (tmp_path / "large").write_bytes(b"x" * (8 << 20))
    done = hotcell("cp", tmp_path / "large", f"{one}:")
    assert done.returncode != 0 and b"large" in done.stderr and b"full" in done.stderr, done
    hotcell("sandbox", "rm", one)


def test_memory_stays_flat(hotcell, tmp_path):
    """Less than the file by far. A sanitizer keeps what was freed: its own limit for that is made small."""
    one = hotcell.text("sandbox", "create", "--disk", "300m", "--memory", "600m").strip()
    (tmp_path / "large").write_bytes(os.urandom(1 << 20) * 128)
    for words in (["cp", tmp_path / "large", f"{one}:large"], ["cp", f"{one}:large", tmp_path / "back"]):
        process, most = subprocess.Popen(hotcell.words(*words), env={**os.environ, "ASAN_OPTIONS": "quarantine_size_mb=1"}), 0
        while process.poll() is None:
            found = re.search(r"VmHWM:\s+(\d+) kB", open(f"/proc/{process.pid}/status").read())
            most = max(most, int(found[1]) if found else 0)
            time.sleep(0.002)
        assert process.returncode == 0 and 0 < most < 60000, (words, process.returncode, most)
    assert (tmp_path / "large").read_bytes() == (tmp_path / "back").read_bytes()
    hotcell("sandbox", "rm", one)


def test_an_interrupted_copy_leaves_no_half_file(hotcell, box, tmp_path):
    hotcell.text("sandbox", "exec", box, "--", "sh", "-c", "head -c 90000000 /dev/zero >large")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to").mkdir()
    process = subprocess.Popen(hotcell.words("cp", f"{box}:large", tmp_path / "to"), stderr=subprocess.PIPE)
    deadline = time.monotonic() + 20 * SLOW
    while process.poll() is None and not os.listdir(tmp_path / "to") and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    code = process.wait(30 * SLOW)
    assert (code, os.listdir(tmp_path / "to")) in [(130, []), (0, ["large"])], (code, os.listdir(tmp_path / "to"))


# ---- volumes ----

def test_a_volume_outlives_its_sandboxes(start_server):  # noqa: F811
    server = start_server()  # noqa: F811
    hotcell, made = Line(server), None
    if server.get("/v1/volumes", unix=True).status == 404:
        pytest.skip("this server has no volumes")
    made = hotcell("volume", "create", "cache", "--size", "64m")
    if made.returncode == 125:
        pytest.skip(f"no volumes on this machine: {made.stderr.decode()}")
    assert made.returncode == 0, made
    for command, shown in (("echo kept >/cache/x", ""), ("cat /cache/x", "kept\n")):
        one = hotcell.text("sandbox", "create", "--volume", "cache:/cache").strip()
        assert hotcell.text("sandbox", "exec", one, "--shell", command) == shown
        busy = hotcell("volume", "rm", "cache")
        assert busy.returncode == 2 and one.encode() in busy.stderr, busy
        assert hotcell("sandbox", "rm", one).returncode == 0
        deadline = time.monotonic() + 20 * SLOW
        while one in hotcell.text("sandbox", "ls", "-q").split():
            assert time.monotonic() < deadline
            time.sleep(0.05)
    rows = [re.split("  +", row) for row in hotcell.text("volume", "list").splitlines()]
    assert rows[0] == ["NAME", "SIZE", "USED", "CREATED", "SANDBOXES"] and rows[1][:2] == ["cache", "64 MiB"] and rows[1][4] == "0"
    assert hotcell("volume", "remove", "cache").returncode == 0
    assert hotcell.json("volume", "list")["volumes"] == []
