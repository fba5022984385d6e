"""The audit log's blocked_call: which calls that no ordinary program makes were refused to a run, or to what runs in a sandbox, and how often."""

import json
import os
import shutil
import time

import pytest

from cells import SLOW
from sandboxes import Sandbox, box, contract, wait_for  # noqa: F401  (fixtures)
from server import server, start_server  # noqa: F401  (fixtures)
from test_sandbox_life import kill_gateway

TRY = "unshare -U true"  # calls unshare(2), and nothing else of the list
BY_PYTHON = """
import ctypes, errno, sys
libc = ctypes.CDLL(None, use_errno=True)

def call(number, *arguments):
    return errno.errorcode[ctypes.get_errno()] if libc.syscall(number, *arguments) < 0 else "done"
"""
MOUNT, SETNS, SOCKET = 165, 308, 41

pytestmark = pytest.mark.skipif(not shutil.which("unshare") or os.uname().machine != "x86_64", reason="needs unshare(1) and the numbers of x86-64")


def entries(server, **wanted):
    """The entries whose fields, or whose detail's, are these."""
    lines = (server.state / "audit.log").read_text().splitlines()
    found = [entry for entry in map(json.loads, lines) if entry["event"] == "blocked_call"]
    return [entry for entry in found if all((entry | entry["detail"]).get(name) == value for name, value in wanted.items())]


def calls_of(server, **wanted):
    """The counts of the only such entry."""
    found = entries(server, **wanted)
    assert len(found) == 1, found
    return {call["name"]: call["count"] for call in found[0]["detail"]["calls"]}


# ---- runs ----

def test_a_run_is_written_down_with_its_tenant(server):
    answer = server.run(language="python", code=BY_PYTHON + f"print(*[call({MOUNT}, 0, 0, 0, 0, 0) for _ in range(3)], call({SETNS}, 0, 0), call({SOCKET}, 17, 3, 0))")
    assert answer.json["stdout"] == "EPERM EPERM EPERM EPERM EAFNOSUPPORT\n"
    entry, = entries(server, run=answer.json["id"])
    assert entry["tenant"] == "local"
    assert entry["detail"] == {"calls": [{"name": "socket", "count": 1}, {"name": "mount", "count": 3}, {"name": "setns", "count": 1}]}


@pytest.mark.parametrize("env", [{}, {"PYTHONHASHSEED": "random"}], ids=["warm", "cold"])
def test_words_that_leave_no_entry_do_not_wear_out_the_witness(server, env):
    """A last word (src/cell/witness.h) that does not count is answered, as often as a guest likes, and what it tries afterwards is written down."""
    code = BY_PYTHON + f"""
import os
if os.fork() == 0:
    for _ in range(6000):
        libc.syscall(231, 0, 0x62796521)
    print(call({MOUNT}, 0, 0, 0, 0, 0), flush=True)
    os._exit(0)
os.wait()
"""
    answer = server.run(language="python", code=code, env=env)
    assert answer.json["stdout"] == "EPERM\n"
    assert calls_of(server, run=answer.json["id"]) == {"mount": 1}


@pytest.mark.parametrize("language", ["python", "javascript", "ruby", "perl", "bash"])
def test_however_it_was_started(start_server, language):
    server = start_server(f'[warm]\nstart = ["{language}"]\nprimed_min = 1\n[pool]\nmin = 1\n' if language != "bash" else "[pool]\nmin = 0\nmax = 0\n")
    code = {"python": f"import os; os.system('{TRY}')", "javascript": f"try {{ require('child_process').execSync('{TRY}') }} catch {{}}",
            "ruby": f"system('{TRY}')", "perl": f"system('{TRY}')", "bash": TRY}[language]
    wanted = {"javascript": "primed", "bash": "cold"}.get(language, "warm")
    deadline = time.monotonic() + 40 * SLOW
    while True:
        answer = server.run(language=language, code=code)
        if answer.status == 200 and not answer.json.get("timing"):
            pytest.skip(f"no {language}")
        assert calls_of(server, run=answer.json["id"]) == {"unshare": 1}
        if answer.json["timing"]["start"] == wanted:
            break
        assert time.monotonic() < deadline, answer
        time.sleep(0.3)


def test_what_ended_the_run_does_not_matter(server):
    code = BY_PYTHON + f"call({MOUNT}, 0, 0, 0, 0, 0)\n"
    for more, limits, status in (("while True: pass", {"timeout": 0.5}, "timeout"), ("x = b'x' * (1 << 30)", {"memory": "64m"}, "oom"),
                                 ("import os; os.kill(os.getpid(), 9)", {}, "killed"), ("while True: print('x' * 65536)", {"output": "1k"}, "output_limit")):
        answer = server.run(language="python", code=code + more, limits=limits)
        assert answer.json["status"] in (status, "error"), answer
        assert calls_of(server, run=answer.json["id"]) == {"mount": 1}, status


def test_stages_and_tests_are_one_entry(server):
    answer = server.run(stages=[{"name": "first", "command": ["sh", "-c", f"{TRY}; true"]}], command=["sh", "-c", f"{TRY}; {TRY}; true"],
                        tests=[{"stdin": ""}, {"stdin": ""}])
    assert answer.json["status"] == "completed", answer
    assert calls_of(server, run=answer.json["id"]) == {"unshare": 5}


def test_counts_have_an_end(server):
    code = BY_PYTHON + f"seen = {{call({MOUNT}, 0, 0, 0, 0, 0) for _ in range(20000)}}; print(*sorted(seen)); print(call({SETNS}, 0, 0))"
    answer = server.run(language="python", code=code)
    assert answer.json["stdout"] == "ENOSYS EPERM\nENOSYS\n", "after 4096 the kernel says so, and nobody counts"
    assert calls_of(server, run=answer.json["id"]) == {"mount": 1000}


def test_the_children_of_a_program_are_counted_with_it(server):
    answer = server.run(command=["sh", "-c", f"for i in 1 2 3; do {TRY} & done; wait; ({TRY} &); sleep 0.3"])
    assert calls_of(server, run=answer.json["id"]) == {"unshare": 4}


def test_the_result_does_not_show_it(server):
    answer = server.run(command=["sh", "-c", f"{TRY}; true"])
    assert entries(server, run=answer.json["id"])
    assert "calls" not in json.dumps(answer.json)


def test_a_foreign_call_is_written_down_as_before(server):
    code = "import ctypes, mmap\nm = mmap.mmap(-1, 4096, prot=7)\nm.write(b'\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3')\n" \
           "ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()"
    answer = server.run(language="python", code=code)
    assert answer.json["signal"] == 31, answer
    entry, = entries(server, run=answer.json["id"])
    assert "SIGSYS" in entry["detail"]["reason"]


# ---- ordinary programs ----

ORDINARY = {
    "python": "import multiprocessing, subprocess, asyncio, socket, ssl, sqlite3, ctypes\n"
              "with multiprocessing.Pool(2) as pool: print(sum(pool.map(abs, [1, -2])))\nsubprocess.run(['true'])\nasyncio.run(asyncio.sleep(0))\n"
              "socket.getaddrinfo('localhost', 80)",
    "javascript": "const { Worker, isMainThread } = require('worker_threads'); if (isMainThread) { new Worker(__filename); require('child_process').execSync('true');"
                  " require('os').networkInterfaces(); require('http').createServer().listen(0, function () { this.close() }) }",
    "typescript": "const one: number = 1; console.log(one)",
    "java": "public class Main { public static void main(String[] a) throws Exception { new ProcessBuilder(\"true\").start().waitFor(); Thread t = new Thread(() -> {});"
            " t.start(); t.join(); java.net.NetworkInterface.getNetworkInterfaces(); } }",
    "go": "package main\nimport (\"fmt\"; \"net\"; \"os/exec\")\nfunc main() { exec.Command(\"true\").Run(); net.Interfaces(); fmt.Println(1) }",
    "c": "#include <stdio.h>\n#include <pthread.h>\nstatic void *f(void *p) { return p; }\nint main(void) { pthread_t t; pthread_create(&t, 0, f, 0); pthread_join(t, 0); puts(\"1\"); }",
    "cpp": "#include <iostream>\n#include <future>\nint main() { std::cout << std::async([] { return 1; }).get(); }",
    "rust": "fn main() { std::thread::spawn(|| {}).join().unwrap(); std::process::Command::new(\"true\").status().unwrap(); }",
    "ruby": "require 'socket'; require 'open3'; Open3.capture2('true'); Process.wait(fork {}); Addrinfo.getaddrinfo('localhost', 80); Socket.getifaddrs",
    "perl": "use IO::Socket; system('true'); fork || exit; wait; gethostbyname('localhost')",
    "php": "exec('true'); gethostbyname('localhost'); echo 1;",
    "r": "library(parallel); mclapply(1:2, sqrt, mc.cores = 2); system('true'); summary(lm(dist ~ speed, cars))",
    "lua": "os.execute('true'); print(io.popen('ls'):read('a'))",
    "bash": "ls -la /; ps aux; cat <(echo 1); tar cf /tmp/x.tar /etc/passwd; df; id; sort /etc/passwd | uniq | wc; find / -xdev > /dev/null 2>&1",
    "sh": "ls -la /; id; uname -a; hostname",
}


@pytest.mark.parametrize("language", ORDINARY)
def test_ordinary_programs_leave_no_entry(server, language):
    answer = server.run(language=language, code=ORDINARY[language], limits={"timeout": 60, "memory": "1g", "pids": 256}, within=90)
    if answer.status != 200:
        pytest.skip(f"no {language}")
    assert answer.json["exit_code"] is not None, answer
    assert not entries(server, run=answer.json["id"]), answer


# ---- sandboxes ----

def test_an_exec_has_its_run_and_its_sandbox(server, box):
    run = box.exec(f"{TRY}; true").json["id"]
    assert calls_of(server, run=run, sandbox=box.id) == {"unshare": 1}
    assert len(entries(server, sandbox=box.id)) == 1


def test_a_detached_job(server, box):
    job = box.detach(f"{TRY}; {TRY}; true")
    wait_for(lambda: entries(server, job=job))
    assert calls_of(server, job=job, sandbox=box.id) == {"unshare": 2}


def test_a_session_and_a_context_when_they_end(server, box):
    box.shell(TRY)
    context = box.context()
    box.run(context, f"import os; os.system('{TRY}'); os.system('{TRY}')")
    assert not entries(server, sandbox=box.id), "they go on"
    box.ask("DELETE", "/contexts/{context}", context=context)
    wait_for(lambda: entries(server, job=context))
    assert calls_of(server, job=context) == {"unshare": 2}
    box.delete()
    wait_for(lambda: len(entries(server, sandbox=box.id)) == 2)
    assert sum(call["count"] for entry in entries(server, sandbox=box.id) for call in entry["detail"]["calls"]) == 3


def test_a_terminal(server, box):
    terminals = pytest.importorskip("test_sandbox_terminals")
    with terminals.Terminal(box, command="/bin/sh") as terminal:
        terminal.send(f"{TRY}; exit\n")
        terminal.end()
    wait_for(lambda: entries(server, sandbox=box.id))
    assert calls_of(server, sandbox=box.id) == {"unshare": 1}


def test_what_a_job_left_running_is_told_later(server, box):
    run = box.exec(f"{TRY}; (sleep 1; {TRY}; {TRY}) > /dev/null 2>&1 &").json["id"]
    time.sleep(0.2)
    assert calls_of(server, run=run) == {"unshare": 1}
    time.sleep(1.5)
    box.exec("true")
    wait_for(lambda: len(entries(server, sandbox=box.id)) == 2)
    assert calls_of(server, sandbox=box.id, run=None) == {"unshare": 2}


def test_what_is_left_running_is_told_when_the_sandbox_goes(server, box):
    box.exec(f"({TRY}; sleep 100) > /dev/null 2>&1 &")
    time.sleep(0.5)
    box.delete()
    wait_for(lambda: entries(server, sandbox=box.id))
    assert sum(call["count"] for entry in entries(server, sandbox=box.id) for call in entry["detail"]["calls"]) == 1


def test_jobs_side_by_side_are_told_apart(server, box):
    guilty, quiet = box.detach(f"{TRY}; sleep 1"), box.detach("sleep 1")
    wait_for(lambda: entries(server, job=guilty))
    assert not entries(server, job=quiet)
    assert calls_of(server, job=guilty) == {"unshare": 1}


def test_a_paused_sandbox_wakes_up_in_the_middle_of_a_call(server, box):
    job = box.detach(f"i=0; while [ $i -lt 200 ]; do {TRY}; i=$((i+1)); done")
    for _ in range(5):
        time.sleep(0.05)
        assert box.ask("POST", "/pause").status == 200
        assert box.ask("POST", "/resume").status == 200
    wait_for(lambda: entries(server, job=job), within=40)
    assert 200 <= calls_of(server, job=job)["unshare"] <= 220


def test_many_programs_at_once(start_server):
    """More than a door holds, all running, some of them trying."""
    server = start_server()
    box = Sandbox(server, limits={"pids": 1000, "memory": "1g"})
    jobs = [box.detach("exec sleep 60") for _ in range(320)] + [box.detach(f"{TRY}; exec sleep 60")]
    assert all(box.job(job)["state"] == "running" for job in jobs[::20]), "the door was emptied"
    assert calls_of(server, run=box.exec(f"{TRY}; true").json["id"]) == {"unshare": 1}
    for job in jobs:
        box.ask("DELETE", "/jobs/{job}", job=job)
    wait_for(lambda: entries(server, job=jobs[-1]))
    assert calls_of(server, job=jobs[-1]) == {"unshare": 1}


def test_files_and_collections_are_no_programs(server, box):
    box.put("a.txt", b"x")
    assert box.get("a.txt").body == b"x"
    assert not entries(server, sandbox=box.id)


def test_the_next_gateway_writes_down_what_it_finds(start_server):
    server = start_server()
    box = Sandbox(server)
    job = box.detach(f"sleep 1; {TRY}; sleep 1")
    kill_gateway(server)
    wait_for(lambda: entries(server, job=job))
    assert calls_of(server, job=job) == {"unshare": 1}
