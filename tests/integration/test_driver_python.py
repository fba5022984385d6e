"""Contexts of Python: languages/warm/python/context.py, through its door."""

import base64
import json
import os
import signal
import time

import drivers
import pytest

FOLDER = drivers.SOURCE / "languages/warm/python"
COMMAND = drivers.command_of("python")
ENV = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
# What stands in for the warden: fork() returns as it does in a zygote's child, and the argument block is there.
ZYGOTE = """
import posix, sys
def opened(path, *words, _open=posix.open):
    if path == "/.hotcell/later":
        posix.open = _open
        begin, sys.path[:0] = sys.__hotcell__, [""]
        del sys.__hotcell__
        told = begin(lambda: None)
        after_fork, _, become_context, code = told[1]
        after_fork()
        exec(code, become_context({env!r}))
    return _open(path, *words)
posix.open = opened
"""


def cold(folder):
    return drivers.Driver(COMMAND, folder, ENV)


def forked(folder):
    """A zygote's child, as far as it is written in Python: the rest is src/cell/warm_python.c's, whose part the stand-in plays."""
    stand_in = folder / ".zygote"
    stand_in.mkdir(exist_ok=True)
    env = [f"{name}={value}".encode() for name, value in {**drivers.ENV, **ENV}.items()]
    (stand_in / "sitecustomize.py").write_text(ZYGOTE.format(env=env))
    env = {**ENV, "HOTCELL_WARM": "", "PYTHONPATH": f"{FOLDER}:{stand_in}", "HOTCELL_PRELOAD": "json threading numpy concurrent.futures"}
    return drivers.Driver(["/usr/bin/python3", "main.py"], folder, env)


@pytest.fixture(params=[cold, forked], ids=["cold", "forked"])
def context(request, tmp_path):
    driver = request.param(tmp_path)
    yield driver
    driver.close()


@pytest.fixture
def plain(tmp_path):
    driver = cold(tmp_path)
    yield driver
    driver.close()


def test_variables_stay_and_the_last_value_is_shown(context):
    assert context.ready["fds"] and context.ready["version"].startswith("3.")
    result = context.run("x = 20\ny = [1]\ndef f(a):\n    return a + x\nclass C: pass\nimport math")
    assert result.status == "completed" and result.displays == [] and result.error is None
    result = context.run("print('out')\nf(22)")
    assert (result.stdout, result.value, len(result.displays)) == (b"out\n", "42", 1)
    assert context.run("_ + 1").value == "43"
    assert context.run("y.append(2); y").value == "[1, 2]"
    assert context.run("x;").displays == [] and context.run("None").displays == [] and context.run("'a'").value == "'a'"
    assert context.run("math.pi").value == "3.141592653589793"
    assert context.run("").status == context.run("# only this\n").status == "completed"


def test_the_code_finds_itself_in_main_and_nothing_of_ours(context, tmp_path):
    result = context.run("import sys, os\n(sys.argv, sys.path[0], __name__, sys.modules['__main__'].__dict__ is globals(), os.getcwd())")
    assert result.value == repr(([""], "", "__main__", True, str(tmp_path)))
    names = context.run("sorted(globals())").value
    assert names == "['__builtins__', '__doc__', '__loader__', '__name__', '__package__', '__spec__', 'os', 'sys']"
    assert str(FOLDER) not in context.run("sys.path, os.environ, [getattr(m, '__file__', 0) for m in sys.modules.values()]").value
    context.run("import pickle, copy\nclass Point:\n    def __init__(self): self.x = 1")
    assert context.run("pickle.loads(pickle.dumps(Point())).x").value == "1"
    (tmp_path / "mine.py").write_text("value = 7\n")
    assert context.run("import mine; mine.value").value == "7"
    assert context.run("import inspect; inspect.getsource(Point.__init__)").value == "'    def __init__(self): self.x = 1\\n'"


def test_stdout_and_stderr_are_apart_whoever_writes(context):
    result = context.run("import os, sys, subprocess\nprint('a'); print('b', file=sys.stderr); os.write(1, b'c\\n'); os.write(2, b'd\\n')\n"
                         "subprocess.run('echo e; echo f >&2', shell=True); print('g', end='', flush=True)\nsys.stdout.buffer.write(bytes(range(256)));")
    assert result.stdout == b"a\nc\ne\ng" + bytes(range(256)) and result.stderr == b"b\nd\nf\n"
    assert context.run("print('\\udcff', 'ä')").stdout == b"\xff \xc3\xa4\n"


def test_input_is_the_calls_own(context):
    result = context.run("a = input('name? ')\nb = input()\na, b", "first\nsecond\nthird\n")
    assert (result.stdout, result.value) == (b"name? ", "('first', 'second')")
    result = context.run("input()", "")
    assert result.error["type"] == "EOFError"
    assert context.run("import sys; sys.stdin.read()", "all of\nit").value == "'all of\\nit'"
    assert context.run("import subprocess; subprocess.run(['cat'], capture_output=True).stdout", "for a child").value == "b'for a child'"
    assert context.run("exit()").error["type"] == "SystemExit"
    assert context.run("input()", "still").value == "'still'"


def test_errors_have_the_cells_own_lines(context):
    context.run("def f(x):\n    return 1 / x\n")
    result = context.run("y = 1\nf(\n  0)\n")
    assert result.status == "error" and result.exit_code is None
    assert (result.error["type"], result.error["message"], result.error["line"]) == ("ZeroDivisionError", "division by zero", 2)
    trace = result.error["traceback"]
    assert 'File "<cell 2>", line 2, in <module>' in trace and 'File "<cell 1>", line 2, in f' in trace and "return 1 / x" in trace
    assert "context.py" not in trace and "asyncio" not in trace and (result.stdout, result.stderr) == (b"", b"")
    result = context.run("import asyncio\nasync def g():\n    await asyncio.sleep(0)\n    raise ValueError('x')\nawait g()")
    assert result.error["line"] == 4 and result.error["traceback"].startswith("Traceback (most recent call last):\n  File \"<cell 3>\", line 5, in <module>\n")
    assert context.run("y").value == "1"


def test_chained_errors_and_groups(context):
    trace = context.run("try:\n    1/0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e").error["traceback"]
    assert "ZeroDivisionError" in trace and "direct cause" in trace and "KeyError: 'k'" in trace and "context.py" not in trace
    error = context.run("raise ExceptionGroup('many', [ValueError(1), TypeError(2)])").error
    assert error["type"] == "ExceptionGroup" and "TypeError: 2" in error["traceback"]


def test_syntax_errors(context):
    error = context.run("x = 1\nif x\n    pass").error
    assert (error["type"], error["message"], error["line"]) == ("SyntaxError", "expected ':'", 2)
    assert error["traceback"].startswith('  File "<cell 1>", line 2\n    if x\n')
    assert context.run("x = (").error["line"] == 1
    assert context.run(b"\xff\xfe").error["type"] == "UnicodeDecodeError"
    assert context.run("'a\0b'").status == "error"
    assert context.run("return 5").error["message"] == "'return' outside function"


@pytest.mark.parametrize("code, kind, message", [("import sys; sys.exit(3)", "SystemExit", "3"), ("exit()", "SystemExit", "None"), ("raise SystemExit", "SystemExit", ""),
                                                 ("raise KeyboardInterrupt('mine')", "KeyboardInterrupt", "mine"), ("def f(): f()\nf()", "RecursionError", None),
                                                 ("raise GeneratorExit", "GeneratorExit", ""), ("class E(Exception):\n    def __str__(self): 1/0\nraise E", "E", None),
                                                 ("x = [0] * 10**15", "MemoryError", None), ("class R:\n    def __repr__(self): 1/0\nR()", "ZeroDivisionError", None)])
def test_whatever_is_raised_the_context_lives_on(context, code, kind, message):
    context.run("kept = 1")
    error = context.run(code).error
    assert error["type"] == kind and (message is None or error["message"] == message), error
    assert "context.py" not in error["traceback"]
    assert context.run("kept").value == "1"


def begun(driver, call, timeout=10):
    """Waits until the call has written something."""
    deadline = time.monotonic() + timeout * drivers.SLOW
    while not driver.drain(call, call.outs[0]):
        assert time.monotonic() < deadline
        time.sleep(0.005)


LOOPS = ["while True: pass", "import time; time.sleep(100)", "import subprocess; subprocess.run(['sleep', '100'])", "import threading; threading.Event().wait()",
         "import asyncio; await asyncio.sleep(100)", "for i in range(10**12): x = i", "import os; os.read(os.pipe()[0], 1)", "import asyncio; asyncio.run(asyncio.sleep(100))",
         "while True: print('.' * 1000)", "while True: display(1)"]


@pytest.mark.parametrize("loop", LOOPS)
def test_an_interrupt_keeps_the_state(context, loop):
    context.run("kept = 5")
    call = context.begin(f"print('begun')\n{loop}\nprint('never')")
    begun(context, call)
    time.sleep(0.1)
    context.interrupt()
    result = context.finish(call, 10)
    assert result.status == "interrupted" and result.error["type"] == "KeyboardInterrupt" and b"never" not in result.stdout
    assert context.run("kept").value == "5"
    assert context.run("import asyncio; await asyncio.sleep(0, 8)").value == "8"


def test_an_interrupt_of_nothing_is_nothing(context):
    for _ in range(50):
        context.interrupt()
        result = context.run("1")
        assert result.status in ("completed", "interrupted")  # it may come when the call has begun
    time.sleep(0.05)
    context.interrupt()
    time.sleep(0.05)
    assert context.run("import time; time.sleep(0.1); 7").value == "7"


def test_two_hundred_interrupts_at_any_moment_leave_every_frame_whole(plain):
    plain.run("n = 0")
    for i in range(200):
        call = plain.begin("print('begun')\nwhile True:\n    n += 1\n    display(n)")
        begun(plain, call)
        time.sleep(0.0003 * (i % 11))
        plain.interrupt()
        assert plain.finish(call).status == "interrupted"
    assert int(plain.run("n").value) > 200


def test_code_may_have_its_own_way_with_interrupts(context):
    call = context.begin("import time\nprint('begun')\ntry:\n    time.sleep(100)\nexcept KeyboardInterrupt:\n    print('caught')\n'on'")
    begun(context, call)
    context.interrupt()
    result = context.finish(call)
    assert (result.status, result.value) == ("completed", "'on'") and b"caught" in result.stdout
    context.run("import signal; old = signal.signal(signal.SIGINT, lambda *_: print('handled'))")
    call = context.begin("print('begun'); time.sleep(0.5)")
    begun(context, call)
    context.interrupt()
    result = context.finish(call)
    assert result.status == "completed" and b"handled" in result.stdout
    assert context.run("old is signal.default_int_handler").value == "True"


def test_top_level_await_and_tasks_on_one_loop(context):
    assert context.run("import asyncio\nloop = asyncio.get_running_loop()\nawait asyncio.sleep(0.01, 'slept')").error["type"] == "RuntimeError"
    assert context.run("await asyncio.sleep(0.01, 'slept')").value == "'slept'"
    context.run("async def loop(): return asyncio.get_running_loop()\nfirst = await loop()")
    assert context.run("await loop() is first").value == "True"
    context.run("log = []\nasync def work():\n    for i in range(3):\n        await asyncio.sleep(0.02)\n        log.append(i)\n        print('leak', i)\n"
                "async def start():\n    return asyncio.create_task(work())\ntask = await start()")
    time.sleep(0.5)
    result = context.run("log")
    assert result.value == "[0, 1, 2]" and result.stdout == b""  # it went on by itself
    assert context.run("await asyncio.gather(asyncio.sleep(0.01, 1), asyncio.sleep(0, 2))").value == "[1, 2]"
    assert context.run("asyncio.run(asyncio.sleep(0, 'own loop'))").value == "'own loop'"
    assert context.run("await asyncio.sleep(0, 'and again')").value == "'and again'"


def test_what_a_call_leaves_behind_does_not_write_into_the_next(context):
    context.run("""
import threading, time, asyncio, subprocess, http.server
def late(name):
    while True:
        time.sleep(0.02)
        print('leak', name)
        threading.Thread(target=print, args=('leak of a leak',)).start()
threading.Thread(target=late, args=('thread',), daemon=True).start()
async def task():
    while True:
        await asyncio.sleep(0.02)
        print('leak task')
async def start(): return asyncio.create_task(task())
kept = await start()
child = subprocess.Popen('while sleep 0.05; do echo leak child; done', shell=True)
""")
    result = context.run("time.sleep(0.3)\nawait asyncio.sleep(0.3)\nprint('mine')\nthreading.Thread(target=print, args=('my thread',)).start(); time.sleep(0.05)")
    assert result.stdout == b"mine\nmy thread\n" and result.stderr == b""
    context.run("child.kill()")


def test_pools_write_for_whoever_gives_them_work(context):
    context.run("from concurrent.futures import ThreadPoolExecutor\nimport asyncio\npool = ThreadPoolExecutor(2)\nlist(pool.map(print, 'ab'))")
    assert sorted(context.run("list(pool.map(print, 'cd'));").stdout.split()) == [b"c", b"d"]
    assert context.run("await asyncio.to_thread(print, 'e')").stdout == b"e\n"
    assert context.run("await asyncio.to_thread(print, 'f')").stdout == b"f\n"
    assert context.run("await asyncio.get_running_loop().run_in_executor(None, print, 'g')").stdout == b"g\n"


def test_processes(context):
    context.run("import multiprocessing as mp, os, sys\ndef square(x):\n    print('in', x)\n    return x * x")
    result = context.run("with mp.get_context('fork').Pool(2) as pool: values = pool.map(square, range(4))\nvalues")
    assert result.value == "[0, 1, 4, 9]" and sorted(result.stdout.splitlines()) == [b"in 0", b"in 1", b"in 2", b"in 3"]
    result = context.run("pid = os.fork()\nif pid == 0:\n    print('child')\n    sys.exit(5)\nos.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])")
    assert (result.value, result.stdout) == ("5", b"child\n")
    result = context.run("if os.fork() == 0:\n    'shown by the child'\nelse:\n    os.wait()\n'by the parent'")
    assert result.value == "'by the parent'" and len(result.displays) == 1
    assert context.run("import subprocess; subprocess.run(['ls', '/proc/self/fd'], capture_output=True, text=True).stdout").value == "'0\\n1\\n2\\n3\\n'"


def test_display_and_all_forms(context):
    result = context.run("""
class Thing:
    def _repr_html_(self): return '<b>'
    def _repr_png_(self): return b'\\x89PNG'
    def _repr_svg_(self): return '<svg/>'
    def _repr_json_(self): return {'a': [1]}
    def _repr_latex_(self): return '$x$'
    def _repr_markdown_(self): return '*x*'
    def _repr_jpeg_(self): return None
    def _repr_pdf_(self): 1/0
    def _repr_mimebundle_(self, include=None, exclude=None): return {'application/x-own': 'own'}, {}
    def __repr__(self): return 'thing'
display(Thing(), 2)
Thing()
""")
    assert [(one["value"], one["of"]) for one in result.displays] == [(False, 1), (False, 2), (True, 3)]
    forms = result.forms(result.displays[0])
    assert forms == result.forms(result.displays[2]) == {
        "text/html": "<b>", "image/png": base64.b64encode(b"\x89PNG").decode(), "image/svg+xml": "<svg/>", "application/json": '{"a": [1]}',
        "text/latex": "$x$", "text/markdown": "*x*", "application/x-own": "own", "text/plain": "thing"}
    assert result.forms(result.displays[1]) == {"text/plain": "2"} and context.run("Thing").value == "<class '__main__.Thing'>"
    assert context.run("'\\ud800\\0'").value == "'\\ud800\\x00'"
    assert context.run("class S:\n    def __repr__(self): return 'a\\ud800\\0b'\nS()").value == "a\\ud800\ufffdb"


def test_a_display_that_is_too_large_is_a_note(plain):
    result = plain.run("'x' * (33 << 20)")
    assert result.value == "(left out: 33 MiB to show, of at most 32 MiB)"
    assert len(plain.run("'x' * (20 << 20)").value) == (20 << 20) + 2


def test_huge_output(plain):
    result = plain.run("print('x' * 10_000_000)\nfor i in range(20000): print(i)", timeout=60)
    assert len(result.stdout) == 10_000_001 + 108890 and result.stdout.endswith(b"\n19999\n")


def test_streams_that_were_closed_or_replaced(context):
    context.run("import sys, io, os, contextlib\nsys.stdout.close(); sys.stdin.close(); os.close(0); os.close(1); os.close(2)")
    result = context.run("print('again'); print('err', file=sys.stderr); input()", "in")
    assert (result.stdout, result.stderr, result.value) == (b"again\n", b"err\n", "'in'")
    assert context.run("with contextlib.redirect_stdout(io.StringIO()) as s: print('caught')\ns.getvalue()").value == "'caught\\n'"
    context.run("mine = sys.stdout = io.StringIO()")
    assert context.run("print('kept')\nmine.getvalue()").value == "'kept\\n'"


def test_future_imports_hold(context):
    context.run("from __future__ import annotations")
    assert context.run("def f(x: nothing): pass\nf.__annotations__").value == "{'x': 'nothing'}"


def test_pandas(plain):
    result = plain.run("import pandas as pd\npd.DataFrame({'a': [1, 2]})")
    forms = result.forms(result.displays[0])
    assert "<table" in forms["text/html"] and forms["text/plain"] == "   a\n0  1\n1  2"
    assert plain.run("pd.Series([1.5])").value == "0    1.5\ndtype: float64"


@pytest.mark.parametrize("code", ["fig = go.Figure(go.Scatter(y=[1, 2])); fig", "go.Figure(go.Scatter(y=[1, 2])).show()", "display(go.Figure(go.Scatter(y=[1, 2])))"])
def test_plotly_without_a_browser(plain, code):
    result = plain.run(f"import plotly.graph_objects as go\n{code}")
    assert result.stdout == result.stderr == b"" and len(result.displays) == 1, result
    forms = result.forms(result.displays[0])
    assert json.loads(forms["application/vnd.plotly.v1+json"])["data"][0]["y"] == [1, 2] and "plotly" in forms["text/plain"]


def test_ipython_display(plain):
    result = plain.run("from IPython.display import display, HTML, Image, Markdown, publish_display_data, clear_output\n"
                       "display(HTML('<p>'), Image(data=b'\\x89PNG\\r\\n\\x1a\\n', format='png'))\npublish_display_data({'text/x': 'y'})\nclear_output()\nMarkdown('*m*')")
    forms = [result.forms(one) for one in result.displays]
    assert forms[0]["text/html"] == "<p>" and base64.b64decode(forms[1]["image/png"]).startswith(b"\x89PNG") and forms[2] == {"text/x": "y"}
    assert forms[3]["text/markdown"] == "*m*" and result.stdout == result.stderr == b""
    result = plain.run("import IPython; IPython.display.display(3)\nhandle = display(1, display_id=True)\nhandle.update(2)")
    assert [result.forms(one)["text/plain"] for one in result.displays] == ["3", "1", "2"]


def pngs(result):
    found = [result.forms(one).get("image/png") for one in result.displays]
    return [base64.b64decode(one) for one in found if one]


def test_matplotlib_figures_are_shown_without_asking(plain):
    result = plain.run("import matplotlib.pyplot as plt\nplt.plot([1, 2, 3]);", timeout=60)
    assert result.status == "completed" and len(pngs(result)) == 1 and pngs(result)[0].startswith(b"\x89PNG"), result
    assert plain.run("1").displays[0]["entries"][0]["data"] == "1"  # it is closed
    result = plain.run("plt.figure(); plt.plot([1]); plt.show(); print('after'); plt.figure(); plt.plot([2]); plt.figure();")
    assert len(pngs(result)) == 3 and result.stderr == b""
    result = plain.run("fig, ax = plt.subplots(); ax.plot([1]); fig")
    assert len(pngs(result)) == 1 and result.displays[0]["value"] is True
    assert len(pngs(plain.run("display(fig)"))) == 1
    result = plain.run("plt.plot([1]); 1/0")
    assert result.status == "error" and len(pngs(result)) == 1
    assert plain.run("import matplotlib; matplotlib.get_backend().lower()").value == "'agg'"
    result = plain.run("import subprocess; subprocess.run(['/usr/bin/python3', '-c', 'import matplotlib.pyplot as p; p.plot([1]); p.savefig(\"x.png\"); print(1)'])")
    assert result.stdout == b"1\n"


def test_a_figure_that_cannot_be_drawn_is_an_error_and_goes_away(plain):
    result = plain.run("import matplotlib.pyplot as plt\nplt.title('$\\\\nonsense{$')\nplt.plot([1]);", timeout=60)
    assert result.status == "error" and result.error["type"] == "ValueError"
    assert plain.run("plt.get_fignums()").value == "[]"


def test_a_thousand_calls_leak_nothing(plain):
    def fds():
        return sorted(os.listdir(f"/proc/{plain.process.pid}/fd"))
    plain.run("1")
    before = fds()
    for i in range(1000):
        assert plain.run(f"{i}").value == str(i)
        while plain.left_over:
            os.close(plain.left_over.pop())
    assert fds() == before


@pytest.mark.parametrize("frame", [b"{}", b"nonsense", b'{"op":"execute","id":1}', b"\xff" * 10, b"[]", b"1"])
def test_a_frame_that_makes_no_sense_ends_it(tmp_path, frame):
    driver = cold(tmp_path)
    driver.send(frame)
    assert driver.exit_code() == 125
    driver.close()


def test_exit_handlers_run_when_the_door_is_closed(context, tmp_path):
    context.run("import atexit, threading, time\natexit.register(lambda: open('mark', 'w').write('x'))\nthreading.Thread(target=time.sleep, args=(100,)).start()")
    context.door.close()
    assert context.exit_code() == 0 and (tmp_path / "mark").read_text() == "x"


def test_a_death_is_seen(context):
    call = context.begin("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    with pytest.raises(drivers.Ended):
        context.finish(call)
    assert context.exit_code() == -signal.SIGSEGV


def test_the_door_may_be_fd_0(tmp_path):
    driver = drivers.Driver(["/bin/sh", "-c", 'exec "$0" "$@" 0<&3 3<&-', *COMMAND], tmp_path, ENV)
    assert driver.run("input()", "x").value == "'x'"
    driver.close()
