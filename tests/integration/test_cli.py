"""`hotcell run` as a person types it: every form of the command line, what it prints, what it exits with, and how it is interrupted.

What the limits do is in test_limits.py, what the languages do in test_languages.py; here it is the command line that is tested.
"""

import base64
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time

import cells
import pytest
from cells import HOTCELL, SLOW

pytestmark = pytest.mark.skipif(not cells.user_namespaces(), reason="no user namespaces: hotcell refuses to run at all")
essential = pytest.mark.essential
WEAK = ["--allow-weak"] if cells.machine_is_weak() else []


def hotcell(*words, data=b"", within=60, **options):
    """`hotcell run …` to its end. The streams are bytes."""
    command = [HOTCELL, "run", *WEAK, *map(str, words)]
    return subprocess.run(command, input=data, capture_output=True, timeout=within * SLOW, check=False, **options)


def assert_prints(done, out, code=0):
    assert (done.stdout, done.returncode) == (out, code), done
    if code == 0:
        assert done.stderr == b"", done


def start(*words, **options):
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen([HOTCELL, "run", *WEAK, *words], **options)


def available():
    done = subprocess.run([HOTCELL, "languages", "--json"], capture_output=True, check=True)
    return {language["name"] for language in json.loads(done.stdout) if language["available"]}


def needs(name):
    if name not in available():
        pytest.skip(f"{name} is not installed")


# ---- what to run ----

@essential
def test_code_is_python_by_default():
    assert_prints(hotcell("-c", "print(42)"), b"42\n")


def test_code_in_a_named_language():
    needs("ruby")
    assert_prints(hotcell("-l", "ruby", "-c", "puts 42"), b"42\n")


def test_file_with_arguments(tmp_path):
    needs("go")
    (tmp_path / "main.go").write_text(
        'package main\nimport ("fmt"; "os")\nfunc main() { fmt.Println(os.Args[1:]) }\n')
    assert_prints(hotcell("main.go", "a", "b", cwd=tmp_path), b"[a b]\n")


def test_file_with_stdin(tmp_path):
    needs("c")
    (tmp_path / "prog.c").write_text(
        '#include <stdio.h>\nint main(void) { int a, b; scanf("%d %d", &a, &b); printf("%d\\n", a + b); return 0; }\n')
    assert_prints(hotcell("-l", "c", "prog.c", cwd=tmp_path, data=b"40 2\n"), b"42\n")


@essential
def test_command_after_two_dashes():
    assert_prints(hotcell("--", "echo", "--memory", "a b"), b"--memory a b\n")


def test_make_test_on_a_copy_of_the_folder(tmp_path):
    (tmp_path / "Makefile").write_text("test:\n\t@cat sub/data\n\t@touch made-by-make\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "data").write_text("all well\n")
    assert_prints(hotcell("--file", ".", "--", "make", "test", cwd=tmp_path), b"all well\n")
    assert not (tmp_path / "made-by-make").exists()


def test_code_with_arguments():
    assert_prints(hotcell("-c", "import sys; print(sys.argv[1:])", "a", "--memory"), b"['a', '--memory']\n")


def test_dashes_after_code_still_begin_arguments():
    assert_prints(hotcell("-c", "import sys; print(sys.argv[1:])", "--", "-x"), b"['-x']\n")


def test_options_after_the_file_are_the_programs(tmp_path):
    (tmp_path / "job.py").write_text("import sys; print(sys.argv[1:])")
    assert_prints(hotcell("job.py", "--json", "--", "-q", cwd=tmp_path), b"['--json', '--', '-q']\n")


def test_code_from_stdin_leaves_the_program_without_input():
    assert_prints(hotcell("-", "a", data=b"import sys; print(sys.argv[1:], repr(sys.stdin.read()))"), b"['a'] ''\n")


def test_shell_string():
    assert_prints(hotcell("--shell", "echo $((40 + 2)) | tr 4 5"), b"52\n")


def test_request_from_a_file_and_an_option_that_changes_it(tmp_path):
    request = {"code": "import os, sys; print(os.environ['K'], sys.stdin.read())", "stdin": "in", "env": {"K": "old"}}
    (tmp_path / "request.json").write_text(json.dumps(request))
    assert_prints(hotcell("--request", "request.json", cwd=tmp_path, data=b"not this"), b"old in\n")
    assert_prints(hotcell("--request", "request.json", "--env", "K=new", cwd=tmp_path), b"new in\n")


def test_request_from_stdin():
    assert_prints(hotcell("--request", "-", data=b'{"command": ["echo", "hi"]}'), b"hi\n")


def test_script_without_extension_is_known_by_its_first_line(tmp_path):
    (tmp_path / "script").write_text("#!/usr/bin/env perl\nprint 6 * 7, \"\\n\";")
    assert_prints(hotcell("script", cwd=tmp_path), b"42\n")


def test_entry_among_files(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("import utils, sys; print(utils.x, sys.argv[1:])")
    (tmp_path / "src" / "utils.py").write_text("x = 42")
    assert_prints(hotcell("--file", "src:.", "--entry", "main.py", "a", cwd=tmp_path), b"42 ['a']\n")


# ---- what it sees ----

@essential
def test_limits_in_one_line(tmp_path):
    (tmp_path / "job.py").write_text("import os; print(os.environ['K'])")
    done = hotcell("--memory", "64m", "--timeout", "2", "--cpus", "0.5", "--pids", "20", "--output", "64k", "--disk", "50m", "--env",
                   "K=V", "job.py", cwd=tmp_path, within=20)
    assert_prints(done, b"V\n")


def test_every_limit_is_in_force():
    limits = {"timeout": ("7", 7), "cpu-time": ("3s", 3), "memory": ("80m", 80 << 20), "swap": ("0", 0), "cpus": ("0.5", 0.5),
              "cpu-shares": ("512", 512), "pids": ("33", 33), "output": ("10k", 10240), "disk": ("9m", 9 << 20), "inodes": ("500", 500),
              "files-open": ("99", 99)}
    options = [word for name, (text, _) in limits.items() for word in (f"--{name}", text)]
    code = "import os, resource; s = os.statvfs('/workspace'); print(s.f_blocks * s.f_frsize, s.f_files, resource.getrlimit(7)[0])"
    done = hotcell(*options, "-c", code)
    disk, inodes, files_open = map(int, done.stdout.split())
    assert (disk, files_open) == (9 << 20, 99)
    assert 500 <= inodes <= 520, "the cell's own folders may be on top"


def test_environment_is_set_passed_on_and_otherwise_empty():
    code = "import os; print(os.environ.get('A'), os.environ.get('PASSED'), os.environ.get('SECRET'))"
    environment = {**os.environ, "PASSED": "on", "SECRET": "s3cret"}
    assert_prints(hotcell("--env", "A=b=c", "--env", "PASSED", "-c", code, env=environment), b"b=c on None\n")


def test_files_beside_the_program(tmp_path):
    (tmp_path / "job.py").write_text("import utils, os; print(utils.x, open('data.csv').read(), os.access('tool', os.X_OK))")
    (tmp_path / "utils.py").write_text("x = 1")
    (tmp_path / "data.csv").write_text("2")
    (tmp_path / "tool").write_text("")
    (tmp_path / "tool").chmod(0o755)
    assert_prints(hotcell("--file", "utils.py", "--file", "data.csv", "--file", "tool", "job.py", cwd=tmp_path), b"1 2 True\n")


def test_relative_paths_keep_their_folders_and_others_do_not(tmp_path):
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / "src" / "main.py").write_text(
        "import os; print(sorted(os.path.join(r, f) for r, _, n in os.walk('.') for f in n))")
    (tmp_path / "src" / "deep" / "a").write_text("")
    done = hotcell("--file", "src/deep/a", "--file", tmp_path / "src" / "deep" / "a", "--file", "src/deep/a:b/c", "--file",
                   "src/deep/a:d/", "src/main.py", cwd=tmp_path)
    assert_prints(done, b"['./a', './b/c', './d/a', './src/deep/a', './src/main.py']\n")


def test_special_files_in_a_folder_are_left_out_aloud(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "plain").write_text("")
    os.mkfifo(tmp_path / "in" / "fifo")
    (tmp_path / "in" / "loop").symlink_to(".")
    done = hotcell("--file", "in", "--", "ls", "in", cwd=tmp_path)
    assert done.stdout == b"plain\n", done
    assert b"in/fifo is left out" in done.stderr and b"in/loop is left out" in done.stderr


def test_a_link_that_leads_out_of_a_folder_brings_nothing_of_its_user_into_the_cell(tmp_path):
    """The folder may be a stranger's. The control: a link within it is followed."""
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    (tmp_path / "key").write_text("secret-41aa")
    (tree / "file").write_text("text\n")
    for name, target in (("up", "../key"), ("deep/up", "../../key"), ("absolute", tmp_path / "key"), ("round", "deep/../../key"),
                         ("magic", "/proc/self/cwd/key"), ("nothing", "none"), ("inside", "file"), ("deep/inside", "../file")):
        (tree / name).symlink_to(target)
    for words, cwd in ((["--file", "."], tree), (["--file", "tree/:."], tmp_path)):
        done = hotcell(*words, "--", "sh", "-c", "find . -type f | sort; cat inside deep/inside", cwd=cwd)
        assert done.stdout == b"./deep/inside\n./file\n./inside\ntext\ntext\n", done
        for name in (b"up", b"deep/up", b"absolute", b"round", b"magic"):
            assert name + b" is left out: it is a link that leads out of the folder" in done.stderr, (name, done)
        assert b"nothing is left out" in done.stderr and b"secret" not in done.stdout + done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount")
def test_links_of_a_folder_are_followed_while_others_mount(tmp_path):
    """The kernel is unsure of each ".." then, and asks to be asked again."""
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "file").write_text("text\n")
    for number in range(200):
        (tree / "deep" / f"link{number}").symlink_to("../file")
    (tmp_path / "place").mkdir()
    loop = 'while mount -t tmpfs none "$1"; do umount "$1"; done'
    with subprocess.Popen(["unshare", "-m", "sh", "-c", loop, "mounts", tmp_path / "place"], stderr=subprocess.DEVNULL) as mounts:
        try:
            for _ in range(5):
                done = hotcell("--file", ".", "--", "sh", "-c", "cat deep/* | wc -l", cwd=tree)
                assert (done.returncode, done.stdout.strip(), done.stderr) == (0, b"200", b"")
            assert mounts.poll() is None
        finally:
            mounts.kill()


def test_a_folder_is_no_input(tmp_path):
    done = hotcell("--stdin", tmp_path, "--", "cat")
    assert done.returncode == 2 and f"{tmp_path} is a folder".encode() in done.stderr, done
    folder = os.open(tmp_path, os.O_RDONLY)
    done = subprocess.run([HOTCELL, "run", "--", "cat"], stdin=folder, capture_output=True, check=False)
    os.close(folder)
    assert done.returncode == 2 and b"stdin is a folder" in done.stderr, done


def test_a_script_whose_interpreter_is_missing_is_told_from_a_missing_one(tmp_path):
    (tmp_path / "script").write_text("#!/no/such/interpreter\n")
    (tmp_path / "script").chmod(0o755)
    done = hotcell("--file", "script", "--", "./script", cwd=tmp_path)
    assert done.returncode == 127 and b"the interpreter that it names is not in the cell" in done.stderr, done
    done = hotcell("--", "./script")
    assert done.returncode == 127 and b"no such program in the cell" in done.stderr, done


@pytest.fixture
def public():
    """A folder that other users can reach; pytest's own is its user's alone."""
    with tempfile.TemporaryDirectory(prefix="hotcell-test-") as folder:
        os.chmod(folder, 0o755)
        yield pathlib.Path(folder)


def test_mount_is_read_only_unless_asked(public):
    shared = public / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (shared / "a").write_text("seen\n")
    config = public / "config.toml"
    config.write_text(f'[mounts]\nallowed_read_paths = ["{shared}"]\nallowed_write_paths = ["{shared}"]\n')
    script = "cat /data/a; echo x 2>/dev/null >/data/b; echo $?"
    done = hotcell("--config", config, "--mount", f"{shared}:/data:ro", "--shell", script)
    assert done.stdout.startswith(b"seen\n") and not done.stdout.endswith(b"\n0\n"), done
    done = hotcell("--config", config, "--mount", "shared:/data", "--shell", script, cwd=public)
    assert not done.stdout.endswith(b"\n0\n"), done
    assert not (shared / "b").exists()
    done = hotcell("--config", config, "--mount", f"{shared}:/data:rw", "--shell", script)
    assert done.stdout == b"seen\n0\n", done
    assert (shared / "b").read_text() == "x\n"


def test_mount_that_is_not_allowed_is_refused_with_the_rule():
    done = hotcell("--mount", "/etc:/data", "-c", "print(1)")
    assert done.stdout == b"" and done.returncode in (2, 125), done
    assert b"/etc" in done.stderr


def test_root_is_read_only_unless_told_otherwise():
    script = "touch /usr/made-here && echo made"
    assert b"Read-only file system" in hotcell("-l", "bash", "-c", script).stderr
    assert b"Read-only file system" in hotcell("--read-only", "-l", "bash", "-c", script).stderr
    assert_prints(hotcell("--read-only=false", "-l", "bash", "-c", script), b"made\n")
    assert not os.path.exists("/usr/made-here")


def test_stdin_from_a_file(tmp_path):
    (tmp_path / "in.txt").write_text("from the file")
    assert_prints(hotcell("--stdin", "in.txt", "--", "cat", cwd=tmp_path, data=b"not this"), b"from the file")


# ---- the streams ----

@essential
def test_output_is_byte_for_byte():
    code = "import os; b = bytes(range(256)) * 300; os.write(1, b[:70000]); os.write(1, b[70000:]); os.write(2, b)"
    done = hotcell("-c", code)
    assert done.stdout == done.stderr == bytes(range(256)) * 300
    assert done.returncode == 0


def test_input_is_byte_for_byte():
    data = os.urandom(3 << 20)
    assert hotcell("--output", "8m", "--", "cat", data=data).stdout == data


@essential
def test_output_is_live():
    with start("-c", "import sys; print('first', flush=True); sys.stdin.read(); print('second')", stdin=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"first\n"
        assert process.poll() is None
        process.stdin.close()
        assert process.stdout.read() == b"second\n"
    assert process.returncode == 0


def test_input_is_live():
    with start("-c", "for line in iter(input, 'end'): print('got', line, flush=True)", stdin=subprocess.PIPE) as process:
        for word in (b"a", b"b"):
            process.stdin.write(word + b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"got " + word + b"\n"
        process.stdin.write(b"end\n")
        process.stdin.close()
    assert process.returncode == 0


@essential
def test_closed_stdout_ends_the_run_quietly():
    begin = time.monotonic()
    with start("-c", "while True: print('y' * 1000)") as process:
        assert process.stdout.read(10) == b"y" * 10
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
    assert time.monotonic() - begin < 10 * SLOW


def test_full_disk_is_said():
    with open("/dev/full", "wb") as full:
        done = subprocess.run([HOTCELL, "run", *WEAK, "-c", "print(1)"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 125
    assert b"cannot write to stdout: No space left on device" in done.stderr


def test_nonblocking_stdout_loses_nothing():
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETFL, os.O_NONBLOCK)
    with start("-c", "import os; os.write(1, bytes(500000) + b'end')", stdout=writer) as process:
        os.close(writer)
        time.sleep(0.5)
        with os.fdopen(reader, "rb") as pipe:
            assert pipe.read() == bytes(500000) + b"end"
    assert process.returncode == 0


def test_closed_standard_descriptors_do_no_harm():
    command = f"exec {HOTCELL} run {' '.join(WEAK)} -c 'print(42)' <&- 2>&-"
    assert subprocess.run(["sh", "-c", command], capture_output=True, check=False).stdout == b"42\n"


# ---- how it ends ----

@pytest.mark.parametrize("words, code", [
    (["-c", "raise SystemExit(7)"], 7),
    (["--timeout", "300ms", "-c", "import time; time.sleep(60)"], 124),
    (["--", "/etc/hostname"], 126),
    (["--", "no-such-command"], 127),
    (["-c", "import os; os.kill(os.getpid(), 11)"], 139),
    (["--memory", "32m", "-c", "x = bytearray(1 << 30)\nfor i in range(0, 1 << 30, 4096): x[i] = 1"], 137),
], ids=["own", "timeout", "cannot execute", "not found", "signal", "memory"])
def test_exit_codes_and_the_line_that_explains_them(words, code):
    done = hotcell(*words)
    assert done.returncode == code, done
    last = done.stderr.decode().splitlines()[-1]
    assert last.startswith("hotcell: "), done
    assert "\033" not in last
    quiet = hotcell("-q", *words)
    assert quiet.returncode == code
    assert b"hotcell:" not in quiet.stderr


def test_memory_line_says_what_to_change():
    done = hotcell("--memory", "64m", "-c", "x = bytearray(1 << 30)\nfor i in range(0, 1 << 30, 4096): x[i] = 1")
    assert b"hotcell: killed: used more than 64 MiB of memory; raise --memory\n" in done.stderr, done


@pytest.mark.parametrize("words, line", [
    (["--disk", "1m", "-l", "bash", "-c", "head -c 5m /dev/zero >x"], "exited with status 1; raise --disk"),
    (["--files-open", "10", "-c", "files = [open('/dev/null') for _ in range(50)]"], "exited with status 1; raise --files-open"),
    (["-c", "import no_such_module"],
     "exited with status 1; no_such_module is not on the machine that runs hotcell: send it with --file, or do without it"),
    (["-c", "open('/etc/x', 'w')"],
     "exited with status 1; write to the working directory or to /tmp: the rest of a cell is read-only"),
    (["-c", "1/0"], "exited with status 1"),
    (["--output", "1k", "-c", "print('x' * 2000); raise SystemExit(3)"],
     "exited with status 3; output: 977 bytes over the 1 KiB limit were left out; raise --output"),
], ids=["disk", "open files", "module", "read-only", "the program's own", "and what is missing"])
def test_line_says_what_to_change_around_a_program(words, line):
    """What the program itself is to blame for it has said above that line."""
    assert hotcell(*words).stderr.decode().splitlines()[-1] == f"hotcell: {line}"


def test_large_files_do_not_cost_the_diagnosis(tmp_path):
    (tmp_path / "data").write_bytes(bytes(1 << 20) + b"x")
    done = hotcell("--file", tmp_path / "data", "-c", "import no_such_module")
    assert b"no_such_module is not on the machine" in done.stderr, done


def test_more_files_than_the_disk_may_have_name_the_inodes(tmp_path):
    for number in range(200):
        (tmp_path / f"file{number}").touch()
    done = hotcell("--inodes", "64", "--file", tmp_path, "--", "true")
    assert done.returncode == 126 and b"; raise --inodes\n" in done.stderr, done


def test_most_processes_that_a_kernel_can_have():
    assert hotcell("--pids", "4194304", "-c", "print(1)").stdout == b"1\n"


def test_file_that_is_collected_as_it_was_sent_is_no_error(tmp_path):
    (tmp_path / "job.py").write_text("open('new.txt', 'w').write('x')")
    done = hotcell("--collect", "*", "job.py", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b""), done
    assert (tmp_path / "new.txt").read_text() == "x"
    (tmp_path / "job.py").write_text("open('new.txt', 'w').write('y')")
    assert hotcell("--collect", "*", "job.py", cwd=tmp_path).returncode == 125
    assert (tmp_path / "new.txt").read_text() == "x"


@pytest.mark.parametrize("words, message", [
    (["--collect-to", "out", "-c", "1"], "add --collect GLOB"),
    (["--file", "link", "-c", "1"], "link is a link to a file that is not there"),
    (["link"], "link is a link to a file that is not there"),
], ids=["nothing to collect", "link", "program"])
def test_mistakes_are_told_for_what_they_are(tmp_path, words, message):
    (tmp_path / "link").symlink_to("nowhere")
    done = hotcell(*words, cwd=tmp_path)
    assert done.returncode == 2 and message in done.stderr.decode(), done
    assert "did you mean" not in done.stderr.decode()
    assert not (tmp_path / "out").exists()


def test_result_that_cannot_be_written_is_told_on_stderr():
    with open("/dev/full", "wb") as full:
        done = subprocess.run([HOTCELL, "run", *WEAK, "--json", "-c", "print(1)"], stdin=subprocess.DEVNULL, stdout=full,
                              stderr=subprocess.PIPE, check=False)
    assert done.returncode == 125 and b"cannot write to stdout" in done.stderr, done


@essential
@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, 131)])
def test_signal_ends_the_whole_cell(number, code):
    program = "import os, time\nif os.fork() == 0: os.setsid()\nelse: print('up', flush=True)\ntime.sleep(60)"
    with start("-c", program) as process:
        assert process.stdout.readline() == b"up\n"
        tree = cells.tree_of(process.pid)
        assert len(tree) > 2
        process.send_signal(number)
        assert process.wait(10 * SLOW) == code
        error = process.stderr.read()
    assert error == b"hotcell: killed: hotcell was ended by SIG" + number.name[3:].encode() + b"\n"
    assert cells.until(lambda: not cells.alive(tree))
    assert cells.until(lambda: not cells.groups_of(process.pid))


def test_many_signals_leave_nothing_behind():
    with start("-c", "import time; print('up', flush=True); time.sleep(60)") as process:
        assert process.stdout.readline() == b"up\n"
        tree = cells.tree_of(process.pid)
        for _ in range(20):
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGTERM)
        assert process.wait(10 * SLOW) in (130, 143)
    assert cells.until(lambda: not cells.alive(tree))
    assert cells.until(lambda: not cells.groups_of(process.pid))


def test_signal_at_any_instant_of_the_start():
    for delay in range(0, 40, 2):
        with start("-c", "import time; time.sleep(60)", start_new_session=True) as process:
            time.sleep(delay / 1000)
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(10 * SLOW) in (130, -signal.SIGINT), delay
        assert cells.until(lambda: not cells.groups_of(process.pid)), delay


def test_ignored_interrupt_stays_ignored():
    command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", HOTCELL, "run", *WEAK, "-c", "print('up', flush=True); print(input())"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGINT)
        process.stdin.write(b"went on\n")
        process.stdin.close()
        assert process.stdout.read() == b"went on\n"
    assert process.returncode == 0


def on_terminal(*words, send=b"", expect=b"", **environment):
    """The same on a terminal of its own; what the terminal showed, and the exit code. `send` is typed once `expect` is seen."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm", **environment)
        os.environ.pop("NO_COLOR", None) if "NO_COLOR" not in environment else None
        os.execv(HOTCELL, [HOTCELL, *words])
    shown, deadline = b"", time.monotonic() + 30 * SLOW
    while time.monotonic() < deadline and select.select([terminal], [], [], 1)[0] is not None:
        try:
            shown += os.read(terminal, 65536)
        except OSError:
            break
        if send and expect in shown:
            os.write(terminal, send)
            send = b""
    os.close(terminal)
    return shown, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_control_c_on_a_terminal():
    code = "import time; print('up', flush=True); time.sleep(60)"
    shown, status = on_terminal("run", *WEAK, "-c", code, send=b"\x03", expect=b"up")
    assert status == 130
    assert b"SIGINT" in shown


def test_colour_and_a_fresh_line_on_a_terminal_only():
    words = ["run", *WEAK, "--timeout", "2s", "-c", "import time; print('half', end='', flush=True); time.sleep(60)"]
    shown, status = on_terminal(*words)
    assert status == 124
    assert re.search(rb"half\r\nhotcell: \x1b\[31m[a-z0-9 ]+\x1b\[0m[:;] ", shown), shown
    shown, _ = on_terminal(*words, NO_COLOR="1")
    assert b"\x1b" not in shown and b"half\r\nhotcell: " in shown
    done = hotcell(*words[1 + len(WEAK):])
    assert done.stdout == b"half" and done.stderr.startswith(b"hotcell: ")


# ---- the result ----

@essential
def test_json_is_the_result_and_nothing_else():
    done = hotcell("--json", "-c", "import sys; print(42); print('e', file=sys.stderr)")
    result = json.loads(done.stdout)
    assert (result["status"], result["success"], result["exit_code"]) == ("completed", True, 0)
    assert (result["stdout"], result["stderr"], result["language"]) == ("42\n", "e\n", "python")
    assert result["isolation"]["level"] == ("weak" if WEAK else "full")
    assert done.stderr == b"" and done.stdout.count(b"\n") == 1


def test_json_is_indented_on_a_terminal():
    shown, _ = on_terminal("run", *WEAK, "--json", "-c", "print(42)")
    assert json.loads(shown)["stdout"] == "42\n"
    assert shown.count(b"\n") > 10


def test_json_of_a_failure_has_the_exit_code_of_the_program():
    done = hotcell("--json", "-c", "raise SystemExit(3)")
    assert done.returncode == json.loads(done.stdout)["exit_code"] == 3


def test_verbose_says_what_was_used():
    done = hotcell("-v", "-c", "print(42)")
    assert re.fullmatch(rb"(hotcell: a cold start, without a server: .*\n)?hotcell: completed in [\d.]+ ms: [\d.]+ ms of CPU, at most [\d.]+ [KM]iB of memory, isolation \w+\n",
                        done.stderr), done


MAKE_FILES = "import os; os.makedirs('out/deep'); open('out/a.png', 'wb').write(b'\\x89\\0a'); open('out/deep/b.png', 'w').write('b')"


@essential
def test_collected_files_are_written_below_the_current_folder(tmp_path):
    assert_prints(hotcell("--collect", "out/*.png", "-c", MAKE_FILES, cwd=tmp_path), b"")
    assert (tmp_path / "out" / "a.png").read_bytes() == b"\x89\0a"


def test_nothing_collected_is_said(tmp_path):
    done = hotcell("--collect", "none*", "-c", MAKE_FILES, cwd=tmp_path)
    assert done.returncode == 0 and b"nothing was collected" in done.stderr, done
    done = hotcell("--collect", "*", "--timeout", "1", "-c", "open('a', 'w').close(); import time; time.sleep(9)", cwd=tmp_path)
    assert done.returncode == 124 and b"nothing was collected" in done.stderr and not os.listdir(tmp_path), done


def test_collected_files_go_to_the_named_folder(tmp_path):
    done = hotcell("-v", "--collect", "out/a.png", "--collect-to", "results", "-c", MAKE_FILES, cwd=tmp_path)
    assert (tmp_path / "results" / "out" / "a.png").read_bytes() == b"\x89\0a"
    assert b"hotcell: wrote out/a.png (3 bytes)\n" in done.stderr


def test_collected_files_replace_nothing_without_force(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.png").write_text("mine")
    words = ["--collect", "out/a.png", "-c", MAKE_FILES]
    done = hotcell(*words, cwd=tmp_path)
    assert done.returncode == 125 and b"out/a.png exists" in done.stderr and b"--force" in done.stderr, done
    assert (tmp_path / "out" / "a.png").read_text() == "mine"
    assert_prints(hotcell("--force", *words, cwd=tmp_path), b"")
    assert (tmp_path / "out" / "a.png").read_bytes() == b"\x89\0a"
    assert sorted(os.listdir(tmp_path / "out")) == ["a.png"]


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_collected_files_never_go_through_a_link(tmp_path, force):
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    (outside / "a.png").write_text("theirs")
    (inside / "out").symlink_to(outside)
    done = hotcell(*force, "--collect", "out/a.png", "-c", MAKE_FILES, cwd=inside)
    assert done.returncode == 125 and b"cannot write the collected file out/a.png" in done.stderr, done
    (inside / "out").unlink()
    (inside / "out").mkdir()
    (inside / "out" / "a.png").symlink_to(outside / "a.png")
    hotcell(*force, "--collect", "out/a.png", "-c", MAKE_FILES, cwd=inside)
    assert (outside / "a.png").read_text() == "theirs"
    assert os.listdir(outside) == ["a.png"]


def test_links_in_the_cell_are_not_followed_home(tmp_path):
    code = "import os; os.symlink('/etc/passwd', 'x'); os.symlink('../../up', 'y')"
    done = hotcell("--collect", "*", "-c", code + "; open('z', 'w').close()", cwd=tmp_path)
    assert done.returncode == 0
    assert b"hotcell: x is a symbolic link, and was not written\n" in done.stderr
    assert not (tmp_path / "x").exists() and not (tmp_path / "y").is_symlink()
    assert (tmp_path / "z").read_bytes() == b""


def test_collected_files_are_in_the_json(tmp_path):
    words = ["--json", "--collect", "out/a.png", "-c", MAKE_FILES]
    [file] = json.loads(hotcell(*words, cwd=tmp_path).stdout)["files"]
    assert (file["path"], file["size"], base64.b64decode(file["base64"])) == ("out/a.png", 3, b"\x89\0a")
    assert os.listdir(tmp_path) == []
    hotcell("--collect-to", ".", *words, cwd=tmp_path)
    assert (tmp_path / "out" / "a.png").exists()


def test_names_from_the_cell_cannot_drive_the_terminal(tmp_path):
    done = hotcell("-v", "--collect", "*", "-c", "open('a\\x1b[31m', 'w')", cwd=tmp_path)
    assert b"\x1b" not in done.stderr


# ---- the README ----

def readme_examples():
    """Every "$ command" in a console block of README.md, with the lines that it is said to print."""
    text = (cells.SOURCE / "README.md").read_text()
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


@pytest.mark.skipif(bool(WEAK), reason="the examples are those of a machine that enforces every layer")
@pytest.mark.parametrize("command, output", list(readme_examples()), ids=[command for command, _ in readme_examples()])
def test_readme_shows_what_is_printed(tmp_path, command, output):
    environment = {**os.environ, "PATH": os.path.dirname(HOTCELL) + ":" + os.environ["PATH"]}
    done = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path,
                          env=environment, check=False)
    assert done.stdout == output


# ---- the library ----

def test_example_program_runs_the_same_cell():
    example = os.path.join(os.path.dirname(HOTCELL), "example-run")
    done = subprocess.run([example, "print(6 * 7)"], capture_output=True, check=False)
    if WEAK:
        assert done.returncode == 125 and done.stderr
        return
    assert done.stdout == b"42\n" and b"status: completed, exit code: 0" in done.stderr, done
    assert subprocess.run([example, "raise SystemExit(9)"], capture_output=True, check=False).returncode == 9


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))


@pytest.fixture
def lone_programs(tmp_path):
    """What `hotcell run` needs, without the programs that it becomes."""
    folder = pathlib.Path(HOTCELL).parent
    if not (folder / "hotcell-full").exists():
        pytest.skip("hotcell and hotcell-full are one program in this build")
    for name in ("hotcell", "hotcell-warden", "hotcell-init"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
        (tmp_path / name).chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("words", [["doctor"], ["config", "--json"], ["run", "--json", "--", "true"], ["run", "-v", "--", "true"], ["serve", "--check"]])
def test_a_missing_part_is_named_with_the_remedy(lone_programs, words):
    done = subprocess.run([lone_programs / "hotcell", *words], capture_output=True, timeout=60 * SLOW, check=False, text=True)
    said = done.stdout if words[:2] == ["run", "--json"] else done.stderr
    assert done.returncode == 125 and "cannot start hotcell-full" in said and "HOTCELL_LIBEXEC" in said, done


def test_a_run_needs_no_other_part_than_the_warden_and_init(lone_programs):
    done = subprocess.run([lone_programs / "hotcell", "run", *WEAK, "--", "echo", "hello"], capture_output=True, timeout=60 * SLOW, check=False)
    assert_prints(done, b"hello\n")


@pytest.mark.parametrize("words", [["version"], ["help"], ["help", "serve"], ["run", "--help"], ["help", "history"]])
def test_help_needs_no_other_part(lone_programs, words):
    done = subprocess.run([lone_programs / "hotcell", *words], capture_output=True, timeout=60 * SLOW, check=False)
    assert (done.returncode, done.stderr) == (0, b"") and b"hotcell" in done.stdout, done


def test_a_program_that_took_over_is_called_what_was_typed():
    with subprocess.Popen([HOTCELL, "run", "--json", *WEAK, "--", "sleep", "60"], stdout=subprocess.DEVNULL) as process:
        try:
            proc = pathlib.Path(f"/proc/{process.pid}")
            end = time.monotonic() + 30 * SLOW
            while not (proc / f"task/{process.pid}/children").read_text() and time.monotonic() < end:
                time.sleep(0.01)
            assert (proc / "comm").read_text() == "hotcell\n"
            command = (proc / "cmdline").read_bytes()
            assert command.startswith(HOTCELL.encode() + b"\0run\0"), command
        finally:
            process.terminate()
