"""How programs that began warm come to their end: by their last word (src/cell/witness.h), or as any other. Either way the result is that of a
cold start, and nobody waits for more than the program.
"""

import os
import shutil
import subprocess
import sys
import threading
import time

import pytest
from cells import SLOW
from server import Server, start_server  # noqa: F401
from test_pool import pool_of, start_of, wait_for, wait_until_warm

LAST = "0x62796521"  # WITNESS_LAST
CALL = f"import ctypes, os, time\nlast = lambda code: ctypes.CDLL(None).syscall(231, code, {LAST})\n"
ENDS = {
    "falls off its end": "print(1)",
    "exits": "import sys; print(1); sys.exit(3)",
    "exits at once": "import os; print(1, flush=True); os._exit(4)",
    "exits with a large code": "import os; print(1, flush=True); os._exit(260)",
    "has something to do at its end": "import atexit; atexit.register(print, 'end'); print(1)",
    "left text in a stream of libc": "import ctypes; ctypes.CDLL(None).printf(b'of libc')",
    "has a thread that is at work": "import _thread, time; _thread.start_new_thread(time.sleep, (9,)); print(1)",
    "leaves a child": "import os, time\nif os.fork() == 0: time.sleep(60)\nprint(1); raise SystemExit(5)",
    "waits for a child": "import os\nif os.fork() == 0: print('child'); raise SystemExit(7)\nprint(os.waitstatus_to_exitcode(os.wait()[1]))",
    "runs another program": "import os; os.execv('/bin/sh', ['sh', '-c', 'echo $0; exit 6'])",
    "has closed its output": "import os; os.close(1); os.close(2); os._exit(8)",
    "is killed": "import os; os.kill(os.getpid(), 9)",
    "has a child that says a last word": CALL + "pid = os.fork()\nif pid == 0: print(last(9), flush=True); os._exit(2)\nprint(os.waitstatus_to_exitcode(os.wait()[1]))",
    "has a child and says its last word": CALL + "if os.fork() == 0: time.sleep(60)\nprint(1, flush=True); last(0); print(2)",
    "has a child that says it again and again": CALL + "if os.fork() == 0:\n  while True: last(1)\ntime.sleep(0.05); print(1); raise SystemExit(3)",
}
COLD = {"PYTHONHASHSEED": "random"}
OTHERS = [("perl", "print 42; exit 3"), ("php", "<?php echo 42; exit(3);"), ("ruby", "print 42; exit 3")]


@pytest.fixture(scope="module")
def server():
    with Server() as one:
        wait_until_warm(one, code="print(1)")
        yield one


def end_of(server, **request):
    """Warm, when what it imports has been asked for."""
    deadline = time.monotonic() + 30 * SLOW
    while True:
        wait_for(lambda: pool_of(server)["primed"] >= 1)
        result = server.run(**request).json
        if result["timing"]["start"] == "warm" or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return {key: result[key] for key in ("status", "exit_code", "signal", "stdout", "stderr")}, result["timing"]["start"]


@pytest.mark.parametrize("name", ENDS)
def test_the_end_of_a_warm_program_is_that_of_a_cold_one(server, name):
    warm, start = end_of(server, code=ENDS[name])
    cold = {key: server.run(code=ENDS[name], env=COLD).json[key] for key in warm}
    assert (warm, start) == (cold, "warm")


def test_a_program_that_says_its_last_word_has_ended(server):
    result, start = end_of(server, code=CALL + "print(1, flush=True); last(9); print(2)")
    assert (result["status"], result["exit_code"], result["stdout"], start) == ("error", 9, "1\n", "warm")


SIGNALLED = """import signal
def go_on(*_):
    print("it goes on", flush=True)
signal.signal(signal.SIGALRM, go_on)
signal.setitimer(signal.ITIMER_REAL, {delay})
"""


@pytest.mark.parametrize("delay", ["0.0002", "0.0005", "0.001", "0.002"])
def test_no_signal_wakes_a_program_that_has_said_its_last_word(server, delay):
    """It said 9, and that is its end: its own alarm does not get it out of the call once that was heard. Or it was not heard, and it goes on."""
    code = CALL + SIGNALLED.format(delay=delay) + "print(last(9), flush=True)\ntime.sleep(0.1)"
    for _ in range(10):
        result, start = end_of(server, code=code)
        assert start == "warm" and result["exit_code"] == (0 if "-1" in result["stdout"] else 9), result


def wakes_of(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("voluntary_ctxt_switches"))


def test_a_guest_does_not_wake_the_warden_as_often_as_it_likes(server):
    """Its word does not count, for it is not alone; it says it again and again."""
    warden = server.process_of("hotcell-warden")
    before = wakes_of(warden)
    result, start = end_of(server, code=CALL + "if os.fork() == 0: time.sleep(60)\nfor _ in range(20000): last(0)\nprint(1); os._exit(3)")
    assert (result["exit_code"], result["stdout"], start) == (3, "1\n", "warm")
    assert wakes_of(warden) - before < 2000


@pytest.mark.parametrize("language,code", OTHERS)
def test_other_interpreters_end_as_they_should(server, language, code):
    if not shutil.which(language, path="/usr/bin"):
        pytest.skip(f"{language} is not installed")
    wait_until_warm(server, language=language, code=code.split(";")[0] + ";")
    result, start = end_of(server, language=language, code=code)
    assert (result["exit_code"], result["stdout"], start) == (3, "42", "warm")


def look_at(pid):
    """Name, state, parent."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
        head, _, rest = stat.read().rpartition(")")
    return head.partition("(")[2], rest.split()[0], int(rest.split()[1])


def those_who_wait(server, name):
    """In cells of their own: the others are zygotes."""
    warden = server.process_of("hotcell-warden")
    for pid in server.descendants():
        try:
            found, _, parent = look_at(pid)
            if (found, parent) == (name, warden) and space_of(pid) != space_of(warden):
                yield pid
        except OSError:
            continue


def space_of(pid):
    return os.readlink(f"/proc/{pid}/ns/pid")


def outer_pid_of_init(pid):
    """The pid 1 of the namespace that a process is in."""
    for other in filter(str.isdigit, os.listdir("/proc")):
        try:
            if space_of(other) == space_of(pid):
                with open(f"/proc/{other}/status", encoding="utf-8") as status:
                    if next(line for line in status if line.startswith("NSpid:")).split()[-1] == "1":
                        return int(other)
        except OSError:
            continue
    return None


HOLD = """import ctypes, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 4
print(libc.ptrace(0x4206, int(sys.argv[1]), 0, 0x40), flush=True)  # PTRACE_SEIZE, with a stop at its exit
time.sleep(600)
"""


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
def test_output_ends_with_its_program_and_not_with_its_cell(start_server):  # noqa: F811
    """The program begins and ends while the warden is about to look whether it has begun, so that both are heard at once; and its cell cannot
    be taken apart. The answer comes all the same: nothing of the server's keeps the program's output open."""
    server = start_server("[warm]\nstart = []\nprimed_min = 1\n")
    request = {"language": "perl", "code": "print 42"}
    wait_until_warm(server, **request)
    wait_for(lambda: pool_of(server)["primed"] >= 1)
    inits = [outer_pid_of_init(pid) for pid in those_who_wait(server, "perl")]
    assert inits, "no program of perl's waits in a cell"
    warden, answers = str(server.process_of("hotcell-warden")), []
    holders = [subprocess.Popen([sys.executable, "-c", HOLD, str(init)], stdout=subprocess.PIPE, text=True) for init in inits]
    slowed = subprocess.Popen(["strace", "-p", warden, "-e", "trace=sendmsg", "-e", "inject=sendmsg:delay_exit=300000", "-o", "/dev/null"],
                              stderr=subprocess.PIPE, text=True)
    asking = threading.Thread(target=lambda: answers.append(server.run(**request).json))
    try:
        assert [holder.stdout.readline() for holder in holders] == ["0\n"] * len(holders)
        assert "attached" in slowed.stderr.readline()
        asking.start()
        asking.join(20 * SLOW)
        assert answers and answers[0]["stdout"] == "42" and answers[0]["timing"]["start"] == "warm"
    finally:
        for process in (slowed, *holders):
            process.kill()
            process.wait()
    assert start_of(server, **request)
