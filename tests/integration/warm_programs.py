"""Programs that look at everything a start decides, for test_warm.py: each must do the same, warm or cold. Addresses are taken out of what they
print, and nothing else. A program of a preload set imports a module of it, because that is how its set is chosen."""

import base64
import io
import textwrap
import zipfile


def archived(**members):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in members.items():
            archive.writestr(f"{name}.py", text)
    return data.getvalue()


ARCHIVED = archived(__main__="import other, sys; print(__name__, __file__, sys.path[0], other.x)", other="x = 42")
ARCHIVE = {"base64": base64.b64encode(ARCHIVED).decode()}


class Program:
    def __init__(self, code, args=(), stdin="", files=None, env=None, collect=None):
        self.fields = {"args": list(args), "stdin": stdin, **({"code": textwrap.dedent(code).lstrip("\n")} if code is not None else {"entry": "main.py"})}
        for name, value in (("files", files), ("env", env), ("collect", collect)):
            if value:
                self.fields[name] = value


# What the kernel tells of a process, and what must not depend on how it was started.
STATUS = "Name Umask State Tgid Ngid Pid PPid TracerPid Uid Gid FDSize Groups NStgid NSpid NSpgid NSsid Kthread Threads SigPnd ShdPnd SigBlk " \
         "SigIgn SigCgt CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs Seccomp Seccomp_filters Speculation_Store_Bypass " \
         "SpeculationIndirectBranch Cpus_allowed_list Mems_allowed_list"

PYTHON = {
    "who it is": Program("""
        import os, sys
        print(sys.argv, sys.orig_argv, __file__, __name__, __spec__, __doc__, __package__, __cached__, sorted(globals()), os.getcwd())
        print(sys.path, sys.path_hooks, sys.meta_path, sorted(sys.path_importer_cache), sys.executable, sys.prefix, sys.exec_prefix)
        print(sorted(sys.modules), sorted(vars(sys)), sorted(dir(__builtins__)), sys._getframe().f_back, sys.exc_info())
    """, args=["one", "two words", "", "ü", "-c", "main.py"]),
    "environment": Program("""
        import os, posix, subprocess, sys
        print(os.environ, os.environb, posix.environ, os.getenv("GREETING"), os.getenvb(b"EMPTY"))
        os.environ["MORE"] = "1"; del os.environ["GREETING"]; os.putenv("PUT", "2")
        print(subprocess.run(["env"], capture_output=True).stdout.split(b"\\n"))
        print(open("/proc/self/environ").read().split("\\0"), open("/proc/self/cmdline").read().split("\\0"))
    """, args=["a b"], env={"GREETING": "guten Tag", "EMPTY": "", "ODD": "a=b=c ü"}),
    "time zone": Program("import time; print(time.tzname, time.timezone, time.strftime('%H', time.localtime(0)))", env={"TZ": "Asia/Tokyo"}),
    "streams": Program("""
        import sys
        for s in sys.stdin, sys.stdout, sys.stderr:
            print(s, s.encoding, s.errors, s.line_buffering, s.write_through, s.isatty(), s.newlines, s.fileno(), s.seekable(), s.readable())
            print(s.buffer, getattr(s.buffer, "raw", None), getattr(s.buffer, "raw", s.buffer).closefd, s.buffer.mode)
        print(sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__)
        sys.stdout.buffer.write(b"bytes\\n"); sys.stderr.write("\\ud800 ü\\n"); print("after")
        sys.stdout.reconfigure(line_buffering=True); print("line", end=""); sys.stdout.detach().write(b"detached\\n")
    """),
    "streams with input": Program("""
        import sys
        print(sys.stdin, sys.stdin.seekable(), sys.stdin.buffer.raw.seekable(), sys.stdin.tell(), sys.stdin.buffer.peek(1)[:1], sys.stdin.read())
    """, stdin="ü\n"),
    "site is as it was": Program("""
        import inspect, site, sys
        print(site.ENABLE_USER_SITE, site.execusercustomize.__module__, site.execusercustomize.__qualname__, inspect.getsource(site.execusercustomize))
        print(list(sys.path_importer_cache.items())[-1:], [kind.__name__ for kind in object.__subclasses__() if "site" in kind.__module__])
    """),
    "a usercustomize of its own": Program("import usercustomize; print(usercustomize.x)", files={"usercustomize.py": "x = 1"}),
    "an archive": Program(None, files={"main.py": ARCHIVE}),
    "an archive with text before it": Program(None, files={"main.py": {"base64": base64.b64encode(b"#!/usr/bin/python3\n" + ARCHIVED).decode()}}),
    "a program with the mark of an archive in it": Program("print('PK\\5\\6', len('PK\5\6'))"),
    "not to be encoded": Program("print('before'); print('\\ud800')"),
    "flags and encodings": Program("""
        import sys
        print(sys.flags, sys.warnoptions, sys._xoptions, sys.getrecursionlimit(), sys.getswitchinterval(), sys.dont_write_bytecode)
        print(sys.getfilesystemencoding(), sys.getfilesystemencodeerrors(), sys.getdefaultencoding(), sys.hash_info, sys.pycache_prefix)
        import locale, site
        print(locale.getlocale(), locale.setlocale(locale.LC_ALL), locale.getpreferredencoding())
        print(site.ENABLE_USER_SITE, site.USER_SITE, site.USER_BASE, site.PREFIXES, sys.modules["sitecustomize"].__file__)
        import gc, atexit, faulthandler, warnings
        print(gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.callbacks, faulthandler.is_enabled(), warnings.filters)
    """),
    "hashes": Program("print(hash('abc'), hash(b'x'), hash(1.5), {*'abcdefgh'}, {1: 2}.keys() | {'a', 'b'})"),
    "process": Program("""
        import os, resource
        status = dict(line.split(":", 1) for line in open("/proc/self/status"))
        print([(name, status.get(name)) for name in %r.split()])
        print({fd: os.readlink(f"/proc/self/fd/{fd}").split(":")[0] for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")})
        print([os.get_inheritable(fd) for fd in range(3)], os.umask(0), os.getpid(), os.getppid(), os.getsid(0), os.getpgid(0), os.nice(0))
        print([(name, resource.getrlimit(getattr(resource, name))) for name in dir(resource) if name.startswith("RLIMIT")])
        print(open("/proc/self/comm").read(), os.readlink("/proc/self/exe"), os.readlink("/proc/self/cwd"), os.readlink("/proc/self/root"))
        print(open("/proc/self/oom_score_adj").read(), open("/proc/self/attr/current").read() if 0 else "", os.sched_getscheduler(0))
        print(sorted(os.listdir("/")), sorted(os.listdir("/tmp")), sorted(os.listdir(".")), os.path.exists("/.hotcell"))
    """ % STATUS),
    "signals": Program("""
        import signal, os
        print([(n, str(signal.getsignal(n))) for n in range(1, 65) if n not in (32, 33)], signal.pthread_sigmask(signal.SIG_BLOCK, []))
        signal.signal(signal.SIGUSR1, lambda *a: print("got", a[0])); os.kill(os.getpid(), signal.SIGUSR1)
        signal.signal(signal.SIGALRM, lambda *a: print("alarm")); signal.setitimer(signal.ITIMER_REAL, 0.01); signal.pause()
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt as e:
            print(repr(e))
    """),
    "a closed pipe": Program("import os; r, w = os.pipe(); os.close(r)\ntry: os.write(w, b'x')\nexcept BrokenPipeError as e: print(e)"),
    "SIGTERM": Program("import os, signal; print('x'); os.kill(os.getpid(), signal.SIGTERM); print('never')"),
    "SIGKILL": Program("import os, signal; print('x'); os.kill(os.getpid(), signal.SIGKILL)"),
    "SIGSEGV": Program("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"),
    "abort": Program("import os; os.abort()"),
    "interrupt that nobody catches": Program("import os, signal; os.kill(os.getpid(), signal.SIGINT)\nwhile True: pass"),
    "input": Program("import sys; print([input('? '), sys.stdin.readline(), sys.stdin.buffer.read(3), sys.stdin.read()])", stdin="a\nb\r\ncdeü\n"),
    "end of input": Program("print(input())"),
    "input of a megabyte": Program("import sys; text = sys.stdin.read(); print(len(text), text[-5:])", stdin="line ü\n" * 150000),
    "large output": Program("for i in range(30000): print(i, 'x' * 40)"),
    "large output at once": Program("import sys; sys.stdout.write('y' * 900000); sys.stderr.write('z' * 100000)"),
    "exit by number": Program("import sys; print('x'); sys.exit(3)"),
    "exit by text": Program("import sys; sys.exit('because')"),
    "exit by nothing": Program("raise SystemExit"),
    "exit by a large number": Program("raise SystemExit(258)"),
    "exit of the site": Program("exit(5)"),
    "exit at once": Program("import os, atexit; atexit.register(print, 'never'); print('x'); os._exit(4)"),
    "exit in a thread": Program("import sys, threading; t = threading.Thread(target=sys.exit, args=[3]); t.start(); t.join(); print('on')"),
    "exit in an exit handler": Program("import sys, atexit; atexit.register(lambda: sys.exit(3)); print('x')"),
    "an exit handler that fails": Program("import atexit; atexit.register(lambda: 1 / 0); atexit.register(print, 'first')"),
    "exception": Program("""
        def inner(x):
            return [1, 2][x]

        def outer():
            try:
                inner(5)
            except IndexError as e:
                raise ValueError("outer ü") from e

        outer()
    """),
    "exception while another is handled": Program("try:\n    1 / 0\nexcept ZeroDivisionError:\n    {}['x']\n"),
    "exception in another file": Program("import lib\nlib.go()", files={"lib.py": "def go():\n    assert 1 == 2, 'no'\n"}),
    "exception that cannot be shown": Program("class E(Exception):\n    def __str__(self): raise TypeError\nraise E"),
    "exceptions in a group": Program("raise ExceptionGroup('two', [ValueError(1), TypeError(2)])"),
    "exception in a thread": Program("import threading; t = threading.Thread(target=lambda: 1 / 0, name='T'); t.start(); t.join(); print('on')"),
    "a hook for exceptions": Program("import sys; sys.excepthook = lambda *a: print('hook', a[1]); 1 / 0"),
    "sys.last_value set by hand": Program("import sys\ntry: 1 / 0\nexcept Exception as e: sys.last_value = e\nprint('fine')"),
    "syntax error": Program("x = 1\nprint('never')\ny = (1 +\n"),
    "syntax error in another file": Program("import lib", files={"lib.py": "def f(:\n"}),
    "tabs and spaces": Program("if 1:\n\tx = 1\n        y = 2\n"),
    "not UTF-8": Program("# \x00"),
    "coding line": Program("# -*- coding: latin-1 -*-\nprint('\xe9')"),
    "future and doc": Program("'doc'\nfrom __future__ import annotations\nprint(__doc__, __annotations__)\nx: undefined = 1"),
    "empty": Program(""),
    "recursion": Program("""
        import sys
        depth = 0
        def down():
            global depth
            depth += 1
            down()
        try:
            down()
        except RecursionError as e:
            print(depth, e)
        sys.setrecursionlimit(200); depth = 0
        down()
    """),
    "exit handlers and finalizers": Program("""
        import atexit, weakref
        class Loud:
            def __init__(self, name): self.name = name
            def __del__(self): print("gone", self.name)
        a, _b, c = Loud("a"), Loud("b"), Loud("c")
        def f(): return a
        loop = Loud("loop"); loop.self = loop; del loop
        def steps():
            try: yield
            finally: print("generator closed")
        g = steps(); next(g)
        r = weakref.ref(c, lambda _: print("weakref"))
        weakref.finalize(c, print, "finalize")
        atexit.register(print, "first"); atexit.register(print, "second")
    """),
    "the first class has a finalizer": Program("class A:\n    def __del__(self): print('gone')\na = A()"),
    "a finalizer that comes later": Program("class A: pass\na, b = A(), type('B', (), {'__del__': lambda self: print('b')})()\nA.__del__ = lambda self: print('a')"),
    "a finalizer after an error": Program("class A:\n    def __init__(self): self.n = 1\n    def __del__(self): print('gone', self.n)\na = [A()]\n1 / 0"),
    "a built-in hears of a weak reference": Program("import weakref\nclass A: pass\na = A(); r = weakref.ref(a, print)"),
    "an error that leaves no trace": Program("import sys\ndef h(*_): del sys.last_type, sys.last_value, sys.last_traceback\nsys.excepthook = h\n1 / 0"),
    "an error, and sys is as large as before": Program("import sys; del sys.copyright, sys.api_version, sys.hexversion; 1 / 0"),
    "an error that a handler forgets": Program("import atexit, sys\natexit.register(lambda: [delattr(sys, name) for name in ('last_type', 'last_value', 'last_traceback')])\n1 / 0"),
    "an error of somebody else's": Program("""
        import sys
        def g(): yield 1 / 0
        try: next(g())
        except Exception as e: sys.last_type, sys.last_value, sys.last_traceback = type(e), e, e.__traceback__.tb_next
        print("fine")
    """),
    "an exit that a handler forgets": Program("import atexit, sys\natexit.register(lambda: globals().pop('__file__') and globals().pop('__cached__'))\nsys.exit(7)"),
    "an error of keys": Program("raise KeyboardInterrupt"),
    "text that is left in a stream": Program("import sys; sys.stdout.reconfigure(write_through=False); sys.stdout.write('x'); sys.stdout = sys.stderr"),
    "text that is left in both": Program("import sys\nfor one in (sys.stdout, sys.stderr): one.reconfigure(write_through=False); one.write('x')"),
    "exit handlers before the end": Program("""
        import atexit, json, sys
        atexit.register(print, "handler")
        atexit._run_exitfuncs()
        import json as again
        print(again is json, "json" in sys.modules)
        class A:
            def __del__(self): print("gone")
        a = A()
        f = open("left", "w"); f.write("y")
    """, collect=["left"]),
    "a stream of its own that fails": Program("""
        import sys
        class W:
            n = 0
            def write(self, text): sys.__stdout__.write(text)
            def flush(self):
                W.n += 1
                sys.__stdout__.write(f"flush {W.n}\\n")
                if W.n == 2: raise OSError("full")
        sys.stdout = W(); sys.stdout.flush()
    """),
    "a proxy that is heard": Program("import weakref, os\nclass A: pass\na = A(); p = weakref.proxy(a, os.getpid)"),
    "a reference that hides its callback": Program("import weakref\nclass A: pass\nclass R(weakref.ref): __callback__ = None\na = A(); r = R(a, lambda _: print('dead'))"),
    "a folder that is left open": Program("import os, warnings\nwarnings.simplefilter('always')\nfound = os.scandir('/'); next(found)"),
    "the collector is listened to": Program("import gc\ngc.callbacks.append(lambda phase, info: print(phase))"),
    "what cannot be collected": Program("import gc, warnings\nwarnings.simplefilter('always'); gc.garbage.append([1])"),
    "a module that loads when it is asked": Program("""
        import importlib.util, sys
        spec = importlib.util.find_spec("this")
        spec.loader = importlib.util.LazyLoader(spec.loader)
        sys.modules["this"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        print("lazy")
    """),
    "a module that is none": Program("import os, sys\nclass M:\n    def __getattr__(self, name): os._exit(9)\nsys.modules['m'] = M(); print('end')"),
    "built-ins that are watched": Program("import builtins\nplain = len\ndef watched(x): print('len', type(x)); return plain(x)\nbuiltins.len = watched\n1 / 0"),
    "traced to an error": Program("import sys\ndef trace(frame, event, arg):\n    print(event, frame.f_code.co_name)\n    return trace\nsys.settrace(trace); sys.setprofile(trace)\n1 / 0"),
    "files that were closed": Program("f = open('a', 'w'); f.write('x'); f.close()\nb = open('a', 'rb'); print(b.read()); b.close(); r = open('a', 'rb', 0); r.close()"),
    "a file over something of its own": Program("""
        import gc, io
        class B(io.RawIOBase):
            def writable(self): return True
            def write(self, data): return len(data)
            @property
            def closed(self):
                for one in gc.get_objects():
                    if type(one) is list and len(one) > 1000: one.clear()
                return True
        t = io.TextIOWrapper(B()); print("end")
    """),
    "traced to its end": Program("""
        import sys
        def trace(frame, event, arg):
            print(event, frame.f_code.co_name)
            return trace
        sys.settrace(trace); sys.setprofile(trace)
        def f(): return 1
        f()
    """),
    "files left open": Program("""
        from typing import List, Optional
        import json, functools
        class Node: pass
        Tree = Optional[List[Node]]
        json.JSONEncoder.default = lambda self, x: str(x)
        out = open("left.txt", "w"); out.write("still in a buffer")
        json.extra = open("extra.txt", "w"); json.extra.write("in another module")
        class Keeper: log = open("log.txt", "wb")
        Keeper.log.write(b"of a class")
    """, collect=["*.txt"]),
    "files left open by one that fails": Program("out = open('left.txt', 'w'); out.write('x'); 1 / 0", collect=["*.txt"]),
    "files left open by one that exits": Program("out = open('left.txt', 'w'); out.write('x'); exit(2)", collect=["*.txt"]),
    "C's own buffer": Program("import ctypes; ctypes.CDLL(None).printf(b'from C\\n'); print('from Python')"),
    "coroutine that nobody awaits": Program("async def f(): pass\nx = f()"),
    "daemon thread": Program("import threading, time; threading.Thread(target=time.sleep, args=[100], daemon=True).start(); print('done')"),
    "thread that goes on": Program("import threading, time; threading.Thread(target=lambda: (time.sleep(.05), print('late'))).start(); print('done')"),
    "threads": Program("""
        import threading, os, queue, concurrent.futures
        print(threading.main_thread().name, threading.main_thread().native_id == os.getpid(), threading.active_count(), threading.stack_size())
        with concurrent.futures.ThreadPoolExecutor(4) as pool: print(list(pool.map(lambda x: x * x, range(20))))
        def deep(n): return n and deep(n - 1)
        t = threading.Thread(target=lambda: print(deep(900))); t.start(); t.join()
    """),
    "asyncio": Program("""
        import asyncio
        async def main():
            p = await asyncio.create_subprocess_exec("echo", "child", stdout=asyncio.subprocess.PIPE)
            print(await asyncio.gather(asyncio.sleep(.01, 1), p.communicate()), asyncio.get_running_loop().is_running())
        asyncio.run(main())
    """),
    "subprocess": Program("""
        import subprocess, sys, os
        print(subprocess.run("echo $0; cat; exit 3", shell=True, input=b"in", capture_output=True))
        print(subprocess.run([sys.executable, "-c", "import sys, os; print(sys.path, sys.argv, sorted(os.environ), sys.flags)", "x"], capture_output=True))
        print(os.system("exit 4"), os.popen("echo popen").read(), subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True)
              .stdout.split("SigQ")[1].split("Cap")[0].split("ShdPnd")[1])
    """),
    "fork": Program("""
        import os, sys, atexit, random
        atexit.register(print, "exit of", os.getpid() == 2)
        pid = os.fork()
        if pid == 0:
            print("child", os.getppid(), len(sys.argv)); sys.exit(5)
        print("parent", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        if os.fork() == 0: os.execv(sys.executable, [sys.executable, "-c", "print('executed')"])
        os.wait()
    """),
    "multiprocessing": Program("""
        import multiprocessing, os
        def square(x): return x * x
        if __name__ == "__main__":
            for how in "fork", "spawn":
                with multiprocessing.get_context(how).Pool(2) as pool: print(how, pool.map(square, range(5)))
            print(multiprocessing.current_process().name, multiprocessing.parent_process(), multiprocessing.active_children())
            queue = multiprocessing.Queue(); p = multiprocessing.Process(target=queue.put, args=[os.getppid()]); p.start(); print(queue.get()); p.join()
    """),
    "several files": Program("from lib import answer\nimport lib.double\nprint(answer(21), lib.__file__, lib.double.__name__, lib.__path__)", files={
        "lib/__init__.py": "from .double import answer", "lib/double.py": "def answer(n): return n * 2"}),
    "modules by the names of others": Program("import json, random, re, types, copy\nprint(json.mine, random.__file__, re.__name__, types, copy)", files={
        "json.py": "mine = 1", "random.py": "", "types/__init__.py": ""}),
    "a module of the user's site": Program("import os; print('main')", files={
        ".local/lib/python3.11/site-packages/usercustomize.py": "print('custom')", ".local/lib/python3.11/site-packages/x.pth": "import sys"}),
    "a sitecustomize beside it": Program("import sitecustomize; print(sitecustomize.__file__)", files={"sitecustomize.py": "print('mine')"}),
    "itself as a module": Program("import sys\nif __name__ == '__main__':\n    import main\n    print(main.__name__, main is sys.modules['__main__'])"),
    "reload": Program("import importlib, json, sys; m = importlib.reload(json); print(m is json); del sys.modules['json']; import json as j; print(j is m)"),
    "modules that a driver used": Program("import ctypes, gc, atexit, struct; print(ctypes.sizeof(ctypes.c_long), ctypes.CDLL(None).abs(-4),\n"
                                          "gc.collect() >= 0, atexit.register(print, 'bye'), struct.pack('<I', 1))"),
    "gc, frozen by hand": Program("""
        import gc
        class Loud:
            def __del__(self): print("gone")
        kept = Loud(); ring = [Loud()]; ring.append(ring); gc.freeze(); print(gc.get_freeze_count() > 0)
    """),
    "gc by hand": Program("import gc; gc.unfreeze(); gc.disable(); gc.enable(); gc.set_debug(0); print(gc.isenabled(), gc.garbage)"),
    "runpy and code": Program("import runpy, code; runpy.run_path('other.py'); code.InteractiveInterpreter().runsource('1 / 0'); print('on')",
                              files={"other.py": "print(__name__, __file__)"}),
    "everything": Program("""
        import argparse, collections, csv, dataclasses, datetime, decimal, enum, functools, hashlib, heapq, itertools, json, math, os, pathlib, pickle
        import random, re, statistics, string, tempfile, textwrap, typing, uuid
        @dataclasses.dataclass(order=True)
        class Point: x: int; y: typing.Optional[int] = None
        class Color(enum.Enum): RED = 1
        print(Point(1), Color.RED, json.dumps({"a": [1, None]}, indent=1), re.findall(r"\\w+", "a b c"), decimal.Decimal("0.1") * 3)
        print(random.Random(5).random(), statistics.median([3, 1, 2]), hashlib.sha256(b"x").hexdigest(), pickle.loads(pickle.dumps(Point(2))))
        print(datetime.date(2020, 2, 29), pathlib.Path("a") / "b", uuid.UUID(int=1), math.pi, tempfile.gettempdir(), Point.__module__)
        random.seed(1); print(random.random(), random.sample(range(99), 3), collections.Counter("hello"), textwrap.fill("x " * 50))
        argparse.ArgumentParser(prog=None).parse_args(["--no"])
    """),
    "numpy and pandas": Program("""
        import numpy as np, pandas as pd, json, sys, threading
        frame = pd.DataFrame({"k": list("abab"), "v": np.arange(4.0)})
        print(frame.groupby("k").v.agg(["sum", "mean"]), frame.dtypes, np.linalg.inv(np.array([[2.0, 1], [1, 3]])), threading.active_count())
        np.random.seed(3); print(np.random.rand(2), np.random.default_rng(3).integers(9, size=3), np.get_printoptions(), pd.get_option("display.width"))
        frame.to_csv("out.csv"); print(pd.read_csv("out.csv"), np.__file__, pd.__version__, np.array([1]) / 0)
    """, collect=["*.csv"]),
    "pandas that fails": Program("import pandas as pd\ndef f(frame): return frame['none']\nf(pd.DataFrame({'a': [1]}))"),
    "matplotlib": Program("import matplotlib.pyplot as plt\nprint(plt.plot([1, 2]), plt.get_backend())\nplt.savefig('a.png'); print(open('a.png', 'rb').read(4))"),
    "scipy": Program("import scipy.optimize, scipy.stats\nprint(scipy.optimize.brentq(lambda x: x ** 2 - 2, 0, 2), scipy.stats.norm.cdf(1))"),
}

RUBY = {
    "who it is": Program("""
        p $0, $PROGRAM_NAME, __FILE__, __dir__, __LINE__, __method__, ARGV, $*, Dir.pwd, self, caller, caller_locations(0).map(&:to_s)
        p $LOADED_FEATURES, $LOAD_PATH, $;, $,, $/, $!, $@, $~, $_, $VERBOSE, $DEBUG, $., $-w, $-a, $FILENAME
        p Object.constants.sort, private_methods.sort, singleton_methods, methods.sort - Object.new.methods, global_variables.sort, binding.local_variables
        p Gem.loaded_specs.keys, Gem.path, Gem.user_dir, RUBY_DESCRIPTION, RbConfig.ruby, Thread.list.size, Thread.current == Thread.main
        p ObjectSpace.each_object(Class).count { |c| c.name.nil? && !c.singleton_class? }, ObjectSpace.each_object(File).map(&:path)
    """, args=["one", "two words", "", "ü", "-e"]),
    "environment": Program("""
        p ENV.to_a, ENV['GREETING'], ENV['GREETING'].encoding
        ENV['MORE'] = '1'; ENV.delete('GREETING'); puts `env`
        p File.read('/proc/self/environ').split("\\0"), File.read('/proc/self/cmdline').split("\\0")
    """, args=["a b"], env={"GREETING": "guten Täg", "EMPTY": "", "ODD": "a=b=c"}),
    "time zone": Program("p Time.at(0).to_s, Time.at(0).zone", env={"TZ": "Asia/Tokyo"}),
    "streams": Program("""
        [$stdin, $stdout, $stderr, STDIN, STDOUT, STDERR].each { |s| p s, s.fileno, s.sync, s.tty?, s.external_encoding, s.internal_encoding, s.close_on_exec?, s.binmode? }
        p Encoding.default_external, Encoding.default_internal, Encoding.find('locale'), Encoding.find('filesystem'), ''.encoding
        $stderr.puts 'error'; $stdout.syswrite("sys\\n") rescue p $!
    """),
    "process": Program("""
        names = %%w[%s]
        p File.readlines('/proc/self/status').map { |line| line.chomp.split(':', 2) }.select { |name, _| names.include?(name) && name != 'FDSize' }
        p File.umask, $$, Process.ppid, Process.getsid, Process.getpgrp, Process.getpriority(Process::PRIO_PROCESS, 0)
        p %%i[CORE NOFILE FSIZE STACK MEMLOCK NPROC DATA AS CPU].map { |name| Process.getrlimit(name) }, Dir.children('/proc/self/fd').size
        p File.read('/proc/self/comm'), File.readlink('/proc/self/exe'), Dir.children('/').sort, Dir.children('/tmp'), Dir.children('.').sort
    """ % STATUS),
    "signals": Program("""
        p Signal.list.keys.map { |name| [name, (trap(name, 'DEFAULT') rescue $!.class)] }
        r, w = IO.pipe; trap('USR1') { w.write 'x' }; Process.kill('USR1', $$); p r.read(1)
        begin; Process.kill('INT', $$); sleep 5; rescue Interrupt => e; p e; end
        begin; Process.kill('TERM', $$); sleep 5; rescue SignalException => e; p e.message, e.signo; end
        r.close; begin; w.write 'x'; rescue Errno::EPIPE => e; p e.message; end
    """),
    "SIGTERM": Program("begin; Process.kill('TERM', $$); sleep 5; ensure; puts 'ensured'; end"),
    "SIGINT": Program("at_exit { puts 'bye' }; Process.kill('INT', $$); sleep 5"),
    "SIGKILL": Program("puts 'x'; $stdout.flush; Process.kill('KILL', $$); sleep 5"),
    "stdin": Program("p gets, $stdin.readline, ARGF.lineno, $stdin.read(3), STDIN.read, gets, $.", stdin="a\nb\ncdeü\n"),
    "stdin of arguments": Program("p gets", args=["other.txt"], files={"other.txt": "of a file\n"}),
    "large input": Program("p $stdin.each_line.count", stdin="line ü\n" * 100000),
    "large output": Program("20000.times { |i| puts \"#{i} #{'x' * 40}\" }; $stderr.print 'z' * 50000"),
    "data": Program("p DATA.class, DATA.read, DATA.path, DATA.pos, DATA.lineno\nDATA.rewind; p DATA.read.size\n__END__\none\ntwo\n"),
    "exit": Program("at_exit { puts \"bye #{$!.inspect}\" }; exit 7"),
    "exit at once": Program("at_exit { puts 'never' }; puts 'x'; $stdout.flush; exit! 4"),
    "abort": Program("abort 'because'"),
    "exit in at_exit": Program("at_exit { exit 3 }; at_exit { puts 'first' }"),
    "exception": Program("def inner(x) = x.size\ndef outer = inner(nil)\nbegin; outer; rescue => e; raise ArgumentError, 'outer ü'; end"),
    "exception in another file": Program("require_relative 'lib'\ngo", files={"lib.rb": "def go\n  raise KeyError, 'no'\nend\n"}),
    "a name that is almost right": Program("foo_bar = 1\nputs foo_baz"),
    "syntax error": Program("puts 'never'\ndef f(\n"),
    "syntax error in another file": Program("require './lib'", files={"lib.rb": "def f(\nend end"}),
    "no such file": Program("require 'nothing/of/the/kind'"),
    "magic comments": Program("# frozen_string_literal: true\n# encoding: utf-8\np 'x'.frozen?, __ENCODING__, 'ü'.bytes\n'x' << 'y'"),
    "warnings": Program("# -*- warn_indent: true -*-\nX = 1\nX = 2\nwarn 'careful', uplevel: 0\np __LINE__"),
    "shebang": Program("#!/usr/bin/env -S ruby -w\np $VERBOSE, __LINE__\nx = 1"),
    "byte order mark": Program("\ufeffp __LINE__, 'ü'"),
    "empty": Program(""),
    "comment at once": Program("=begin\nx\n=end\np __LINE__\n"),
    "recursion": Program("def f(n) = f(n + 1)\nbegin; f(0); rescue SystemStackError => e; p e.message, e.backtrace.last; end"),
    "threads": Program("""
        q = Queue.new; t = 4.times.map { |i| Thread.new { sleep 0.01; q << i; i * i } }; p t.map(&:value), q.size
        Thread.report_on_exception = true; Thread.new { raise 'in a thread' }.join rescue p $!
        m = Mutex.new; c = ConditionVariable.new; Thread.new { m.synchronize { c.signal } }; p Thread.new { Thread.stop }.join(0.01)
        require 'timeout'; begin; Timeout.timeout(0.05) { sleep }; rescue Timeout::Error => e; p e.class; end
    """),
    "subprocess": Program("""
        p `echo child; exit 3`, $?.exitstatus, system('exit 4'), IO.popen(['cat'], 'r+') { |io| io << 'in'; io.close_write; io.read }
        p spawn('true').class, Process.wait2[1].success?, `ruby -e 'p $0, ARGV, $LOADED_FEATURES.size, ENV.keys.sort' x`
        require 'open3'; p Open3.capture3('cat; echo err >&2', stdin_data: 'data')[0..1], `cat /proc/self/status`[/SigIgn.*\\n.*/]
    """),
    "fork": Program("""
        at_exit { puts "exit of #{$$ == 2}" }
        pid = fork { puts "child #{Process.ppid}"; exit 5 }
        p Process.wait2(pid)[1].exitstatus
        fork { exec('echo', 'executed') }; Process.wait
    """),
    "several files": Program("require_relative 'lib/double'\nload 'other.rb'\np answer(21), $\".last, __FILE__", files={
        "lib/double.rb": "def answer(n) = n * 2", "other.rb": "p __FILE__, $0, __dir__"}),
    "libraries": Program("""
        require 'json'; require 'set'; require 'time'; require 'securerandom'; require 'bigdecimal'; require 'digest'; require 'erb'; require 'fiddle'
        puts JSON.pretty_generate({ a: [1, nil] }), Set[1, 2].inspect, Digest::SHA256.hexdigest('x'), BigDecimal('0.1') * 3, ERB.new('<%= 1 + 1 %>').result
        p Random.new(5).rand, [*1..9].shuffle(random: Random.new(1)), srand(3).class, rand(100), Time.iso8601('2020-02-29T00:00:00Z'), SecureRandom.hex.size
    """),
    "finalizers": Program("ObjectSpace.define_finalizer(Object.new, proc { puts 'gone' }); $f = File.open('left.txt', 'w'); $f.write('x')", collect=["*.txt"]),
    "trace of the top": Program("TracePoint.new(:raise) { |t| p t.path, t.lineno }.enable { raise 'x' rescue 0 }; p RubyVM::InstructionSequence.of(method(:puts)) rescue p $!"),
}

PERL = {
    "who it is": Program("""
        use strict; use warnings;
        print "$0|$$|@ARGV|", scalar(@ARGV), "|", __FILE__, "|", __LINE__, "|", __PACKAGE__, "|$^X|$^V|$]|", scalar(caller) // "top", "\\n";
        print join(",", map { "$_=$INC{$_}" } sort keys %INC), "\\n@INC\\n", join(",", sort keys %main::), "\\n";
        print "$^W $^H $^F $| [$;] [@{[defined $, ? 1 : 0]}] [$/] [$!] [$@] ", (defined $_ ? "def" : "undef"), " ", time - $^T < 5 ? "now" : "then", "\\n";
    """, args=["one", "two words", "", "ü", "-e"]),
    "environment": Program("""
        print map { "$_=$ENV{$_}\\n" } sort keys %ENV; print "$ENV{GREETING}\\n";
        $ENV{MORE} = 1; delete $ENV{GREETING}; $ENV{EMPTY} = "long" x 100; print sort `env`; local %ENV = (ONLY => 1); system("/usr/bin/env");
        for my $file ("environ", "cmdline") { open my $h, "<", "/proc/self/$file" or die; local $/; print join("|", sort split /\\0/, <$h>), "\\n" }
    """, args=["a b"], env={"GREETING": "guten Tag", "EMPTY": "", "ODD": "a=b=c"}),
    "process": Program("""
        my %%names = map { $_ => 1 } qw(%s); open my $h, "<", "/proc/self/status" or die; print grep { /^(\\w+):/ && $names{$1} } <$h>;
        for my $n (sort { $a <=> $b } grep { /\\d/ } do { opendir my $d, "/proc/self/fd"; readdir $d }) { print "$n ", (readlink("/proc/self/fd/$n") // "") =~ s/\\d{4,}//r, "\\n" }
        printf "%%o %%d %%d %%d %%s\\n", umask, getppid, getpgrp, getpriority(0, 0), join ",", sort grep { !/^\\./ } glob "/* /tmp/* *";
        print join(",", map { "$_=" . ($SIG{$_} // "undef") } sort keys %%SIG), "\\n"; print readlink "/proc/self/exe"; open $h, "/proc/self/comm"; print <$h>;
    """ % STATUS),
    "signals": Program("""
        $SIG{USR1} = sub { print "got $_[0]\\n" }; kill USR1 => $$; $SIG{ALRM} = sub { die "alarm\\n" }; eval { alarm 1; select undef, undef, undef, 5 }; print $@;
        local $SIG{PIPE} = "IGNORE"; pipe my $r, my $w; close $r; print defined syswrite($w, "x") ? "wrote" : "$!", "\\n";
    """),
    "SIGTERM": Program('print "x\\n"; END { print "never\\n" } kill TERM => $$; sleep 5;'),
    "SIGKILL": Program('print "x\\n"; kill KILL => $$; sleep 5;'),
    "stdin": Program("print scalar(<STDIN>), scalar(<>), $., \"\\n\", <STDIN>;", stdin="a\nb\ncü\n"),
    "stdin of arguments": Program("print while <>;", args=["other.txt"], files={"other.txt": "of a file\n"}),
    "large output": Program('print "$_ ", "x" x 40, "\\n" for 1 .. 20000; print STDERR "z" x 50000;'),
    "data": Program('print fileno(DATA), " ", tell(DATA), " ", (stat DATA)[7], "\\n", <DATA>; seek DATA, 0, 0; print scalar <DATA>;\n__END__\none\ntwo\n'),
    "end": Program('print "x\\n";\n__END__\nnot Perl {{{\n'),
    "exit": Program('END { print "end $?\\n" } exit 7;'),
    "die": Program('sub inner { die "boom" } sub outer { inner(@_) } END { print "end $?\\n" } outer();'),
    "die with an object": Program('eval { die { code => 3 } }; print $@->{code}, "\\n"; eval { eval { die "in\\n" }; print $@; die "out\\n" }; die $@;'),
    "die while reading": Program('my $line = <STDIN>; warn "careful"; die "here"', stdin="a\nb\n"),
    "confess": Program("use Carp; sub f { confess 'why' } sub g { f(1, 'two') } g();"),
    "syntax error": Program('print "never\\n";\nmy $x = (1 +;\n'),
    "strict": Program("use strict;\n$x = 1;\n"),
    "warnings": Program('use warnings;\nmy $x; print "a" . $x; print 1 + "2a", "\\n"; warn "mine\\n";'),
    "shebang with options": Program('#!/usr/bin/perl -s\nprint "$foo|@ARGV|\\n";', args=["-foo=3", "x"]),
    "open files of one with options": Program('#!/usr/bin/perl -l\nopendir my $d, "/proc/self/fd"; print join ",", sort grep { /\\d/ } readdir $d;'),
    "shebang that is too late": Program('#!/usr/bin/perl -T\nprint 1;'),
    "error number": Program('print $! + 0, "\\n"; exit $!;'),
    "error number after a fork": Program('system "true"; print $! + 0, "\\n"; my $pid = fork // die; exit if !$pid; wait; print $! + 0, "\\n"; system "true"; die "x";'),
    "who inherits the script": Program('BEGIN { print `ls /proc/self/fd` } print fileno(DATA), "\\n", `ls /proc/self/fd`, <DATA>;\n__DATA__\nx\n'),
    "who inherits the script of one with arguments": Program('BEGIN { print `ls /proc/self/fd` } print fileno(DATA), `ls /proc/self/fd`;\n__DATA__\nx\n', args=["x"]),
    "numbers of evals": Program('eval "die"; print $@; eval "die"; print $@;', args=["x"]),
    "shebang": Program('#!/usr/bin/perl -w\nmy $x; print "$^W ", __LINE__, " $x\\n";'),
    "utf8": Program('use utf8; use open qw(:std :utf8); my $ü = "ü"; print length($ü), " $ü\\n"; print STDERR "ü\\n";'),
    "line directive": Program('# line 7 "other.pl"\ndie "x";\n'),
    "begin and end": Program('BEGIN { print "begin ", __LINE__, "\\n" } INIT { print "init\\n" } CHECK { print "check\\n" } END { print "end\\n" } print "main ${^GLOBAL_PHASE}\\n";'),
    "format": Program('our ($n, $v) = ("name", 3.14159);\nformat STDOUT =\n@<<<<< @##.##\n$n, $v\n.\nwrite;\n'),
    "empty": Program(""),
    "recursion": Program("no warnings; sub f { my $n = shift; $n ? 1 + f($n - 1) : 0 } print f(20000), qq(\\n);"),
    "subprocess": Program("""
        print `echo child; exit 3`, $? >> 8, " ", system("exit 4") >> 8, "\\n"; open my $p, "-|", "cat", "/proc/self/status" or die; print grep { /^Sig[IBC]/ } <$p>;
        open my $q, "|-", "cat" or die; print $q "piped\\n"; close $q; print `perl -e 'print \\$0, " \\@ARGV ", join(",", sort keys %ENV), "\\n"' x`;
    """),
    "fork": Program('$| = 1; my $pid = fork; if (!$pid) { print "child ", getppid, "\\n"; exit 5 } waitpid $pid, 0; print $? >> 8, "\\n"; fork or exec "echo", "executed"; wait;'),
    "several files": Program("use lib 'lib';\nuse Double qw(answer);\nrequire './other.pl';\nprint answer(21), \" $INC{'Double.pm'}\\n\";", files={
        "lib/Double.pm": "package Double;\nuse Exporter 'import';\nour @EXPORT_OK = ('answer');\nsub answer { $_[0] * 2 }\n1;",
        "other.pl": "print __FILE__, ' ', join('|', caller), \"\\n\"; 1;"}),
    "modules": Program("use JSON::PP; use List::Util qw(sum); use POSIX qw(floor); use Data::Dumper; use File::Temp; use Time::HiRes; use Storable;\n"
                       "$Data::Dumper::Sortkeys = 1; print Dumper({ a => [1, undef] }), sum(1 .. 4), floor(2.5), JSON::PP->new->canonical->encode({ b => 1 }), qq(\\n); srand 3; print int rand 1000;"),
    "objects": Program("package Loud { sub new { bless { n => $_[1] }, $_[0] } sub DESTROY { print 'gone ', $_[0]{n}, qq( ${^GLOBAL_PHASE}\\n) } } our $g = Loud->new('g'); my $l = Loud->new('l'); undef $l; print 'main', qq(\\n);"),
    "tie and local": Program("local $, = '-'; local $\\ = qq(!\\n); print 1, 2; our @x = (1, 2); { local @x = 3; print @x } print @x; printf '%s', $0;"),
    "itself": Program("open my $h, '<', $0 or die; print scalar(<$h>), -s $0, ' ', -M $0 < 1 ? 'new' : 'old', qq(\\n); do './main.pl' unless our $again++; print qq($again\\n);"),
}

PHP = {
    "who it is": Program("""
        <?php
        print_r(get_included_files()); print_r($argv); var_dump($argc); echo __FILE__, " ", __LINE__, " ", __DIR__, " ", getcwd(), " ", PHP_SAPI, "\\n";
        $server = $_SERVER; echo abs($server['REQUEST_TIME_FLOAT'] - microtime(true)) < 5, abs($server['REQUEST_TIME'] - time()) < 5, "\\n";
        unset($server['REQUEST_TIME_FLOAT'], $server['REQUEST_TIME']); print_r($server); print_r($_ENV); print_r(array_keys($GLOBALS)); print_r(debug_backtrace());
        print_r(get_defined_functions()['user']); echo implode(',', get_declared_classes()), "\\n", implode(',', get_loaded_extensions()), "\\n", get_include_path(), "\\n";
        foreach (array_diff_key(ini_get_all(null, false), ['auto_append_file' => 1]) as $k => $v) echo "$k=$v\\n";
        echo ob_get_level(), connection_status(), ignore_user_abort(), " ", PHP_BINARY, " ", spl_object_id(new stdClass), " ", gc_enabled(), "\\n";
    """, args=["one", "two words", "", "ü", "-r"]),
    "environment": Program("""
        <?php print_r(getenv()); echo getenv('GREETING'), $_SERVER['ODD'], "\\n"; putenv('MORE=1'); putenv('GREETING'); echo shell_exec('env');
        print_r(explode("\\0", file_get_contents('/proc/self/environ'))); print_r(explode("\\0", file_get_contents('/proc/self/cmdline')));
    """, args=["a b"], env={"GREETING": "guten Tag", "EMPTY": "", "ODD": "a=b=c", "12": "number"}),
    "options": Program("<?php echo json_encode(getopt('v:', ['long'], $rest)), $rest;", args=["-v", "3", "--long", "more"]),
    "what is there": Program("<?php echo json_encode(array_keys(get_defined_vars())), json_encode(array_keys($_SERVER));"),
    "variables that go before": Program("<?php echo $_SERVER['argc'], $_SERVER['SCRIPT_NAME'], gettype($_SERVER['argv']);", env={"argv": "e", "argc": "7", "SCRIPT_NAME": "s"}),
    "the environment by name": Program("<?php echo json_encode($_ENV), count($_SERVER), $_SERVER['ODD'] ?? 'none';", env={"ODD": "1"}),
    "files that change": Program("<?php exec('rm main.php'); var_dump(is_file('main.php'), file_exists('main.php'));"),
    "time zone": Program("<?php echo date_default_timezone_get(), date('H', 0), getenv('TZ');", env={"TZ": "Asia/Tokyo"}),
    "process": Program("""
        <?php
        $names = explode(' ', '%s'); echo implode('', array_filter(file('/proc/self/status'), fn($line) => in_array(explode(':', $line)[0], $names)));
        foreach (scandir('/proc/self/fd') as $n) if ($n[0] != '.') echo $n, ' ', preg_replace('/\\d{4,}/', '', (string) @readlink("/proc/self/fd/$n")), "\\n";
        printf("%%o %%d %%d %%d %%d\\n", umask(), getmypid(), posix_getppid(), posix_getsid(0), posix_getpgrp()); print_r(posix_getrlimit());
        echo file_get_contents('/proc/self/comm'), readlink('/proc/self/exe'), implode(',', scandir('/')), implode(',', scandir('/tmp')), implode(',', scandir('.')), "\\n";
    """ % STATUS),
    "streams": Program("""
        <?php foreach ([STDIN, STDOUT, STDERR] as $s) { print_r(stream_get_meta_data($s)); var_dump(stream_isatty($s), get_resource_type($s), ftell($s)); }
        fwrite(STDERR, "error\\n"); fwrite(STDOUT, "out\\n"); echo "echo\\n"; print_r(array_map('gettype', [STDIN, STDOUT, STDERR])); file_put_contents('php://stdout', "put\\n");
    """),
    "stdin": Program("<?php echo fgets(STDIN), json_encode(fscanf(STDIN, '%s %d')), stream_get_contents(STDIN), feof(STDIN) ? 'end' : 'more';", stdin="a\nb 2\ncü\n"),
    "stdin by name": Program("<?php echo file_get_contents('php://stdin'), var_export(fgets(STDIN), true);", stdin="a\nb\n"),
    "readline": Program("<?php while (($line = readline()) !== false) echo \"[$line]\\n\";", stdin="a\nb\n"),
    "large input": Program("<?php $n = 0; while (fgets(STDIN) !== false) $n++; echo $n;", stdin="line ü\n" * 100000),
    "large output": Program("<?php for ($i = 0; $i < 20000; $i++) echo $i, str_repeat('x', 40), \"\\n\"; fwrite(STDERR, str_repeat('z', 50000));"),
    "signals": Program("""
        <?php pcntl_async_signals(true); var_dump(pcntl_signal_get_handler(SIGPIPE), pcntl_signal_get_handler(SIGTERM));
        pcntl_signal(SIGUSR1, fn($n) => print("got $n\\n")); posix_kill(getmypid(), SIGUSR1); pcntl_signal(SIGALRM, fn() => print("alarm\\n")); pcntl_alarm(1); sleep(5);
    """),
    "SIGTERM": Program("<?php echo \"x\\n\"; register_shutdown_function(fn() => print('never')); posix_kill(getmypid(), SIGTERM); sleep(5);"),
    "SIGKILL": Program("<?php echo \"x\\n\"; posix_kill(getmypid(), SIGKILL); sleep(5);"),
    "exit by number": Program("<?php register_shutdown_function(fn() => print('down')); exit(7);"),
    "exit by text": Program("<?php die('because');"),
    "return": Program("<?php echo 'x'; return 5; echo 'never';"),
    "exception": Program("<?php\nfunction inner($x) { throw new RuntimeException(\"boom ü\"); }\nfunction outer() { try { inner(1); } catch (Exception $e) { throw new LogicException('outer', 3, $e); } }\nouter();"),
    "exception in another file": Program("<?php require 'lib.php';\ngo();", files={"lib.php": "<?php\nfunction go() { trigger_error('no', E_USER_ERROR); }"}),
    "error": Program("<?php\necho 1;\nnothing_of_the_kind();"),
    "warnings": Program("<?php\necho $undefined; echo [1][5]; echo 'a' + 0 ?? 1; trigger_error('mine', E_USER_NOTICE); require 'nothing.php';"),
    "deprecated": Program("<?php\nclass A { } $a = new A; $a->x = 1; strlen(null); echo 'on';"),
    "handlers": Program("<?php set_error_handler(function ($n, $text, $file, $line) { echo \"$text $file $line\\n\"; return true; }); echo $x; set_exception_handler(fn($e) => print(get_class($e))); throw new Exception;"),
    "parse error": Program("<?php\necho 'never';\nfunction (\n"),
    "parse error in another file": Program("<?php\ninclude 'lib.php'; echo 'never';", files={"lib.php": "<?php if {"}),
    "strict types": Program("<?php\ndeclare(strict_types=1);\nnamespace Some\\Where;\nfunction f(int $x) { return __FUNCTION__ . $x; }\necho f(1), __NAMESPACE__; f('1');"),
    "text around": Program("before\n<?php echo 1 ?>\nafter\n<?= 2 ?>"),
    "no code": Program("just text\n"),
    "shebang": Program("#!/usr/bin/php\n<?php echo __LINE__;"),
    "halt": Program("<?php echo file_get_contents(__FILE__, false, null, __COMPILER_HALT_OFFSET__);\n__halt_compiler();rest of it"),
    "empty": Program("<?php "),
    "recursion": Program("<?php function f($n) { return $n ? 1 + f($n - 1) : 0; } echo f(20000);"),
    "objects": Program("<?php class Loud { function __construct(public $n) {} function __destruct() { echo \"gone $this->n\\n\"; } } $a = new Loud('a'); $b = new Loud('b'); register_shutdown_function(fn() => print(\"down\\n\")); ob_start(); echo 'buffered';"),
    "generators and closures": Program("<?php function g() { try { yield 1; yield 2; } finally { echo 'closed'; } } foreach (g() as $x) { echo $x; break; } $f = fn($n) => $n * 2; echo array_sum(array_map($f, [1, 2])), match(true) { default => 'm' };"),
    "subprocess": Program("<?php echo shell_exec('echo child'); exec('exit 3', $o, $code); echo $code; passthru('cat /proc/self/status | grep Sig[IBC]'); $p = proc_open(['cat'], [['pipe', 'r'], ['pipe', 'w']], $pipes); fwrite($pipes[0], 'in'); fclose($pipes[0]); echo stream_get_contents($pipes[1]), proc_close($p); echo `php -r 'print_r(\\$argv); echo count(\\$_SERVER);' x`;"),
    "fork": Program("<?php $pid = pcntl_fork(); if (!$pid) { echo 'child ', posix_getppid(), \"\\n\"; exit(5); } pcntl_waitpid($pid, $status); echo pcntl_wexitstatus($status);"),
    "several files": Program("<?php\nrequire __DIR__ . '/lib/double.php'; include_once 'main2.php'; spl_autoload_register(function ($c) { echo \"load $c\\n\"; eval(\"class $c {}\"); });\necho answer(21), get_class(new Thing), count(get_included_files());",
                             files={"lib/double.php": "<?php\nfunction answer(int $n): int { return $n * 2; }", "main2.php": "<?php echo __FILE__, __LINE__;"}),
    "libraries": Program("<?php echo json_encode(['a' => [1, null]], JSON_PRETTY_PRINT), md5('x'), preg_replace('/\\d+/', '#', 'a1b22'), number_format(1234.5, 2), date('Y-m-d', 0), serialize(new ArrayObject([1])); mt_srand(5); echo mt_rand(), rand(1, 9); srand(3); echo shuffle($GLOBALS['argv']);"),
    "files left open": Program("<?php $f = fopen('left.txt', 'w'); fwrite($f, 'x'); file_put_contents('put.txt', 'y'); echo filesize('put.txt'), is_file('main.php');", collect=["*.txt"]),
    "constants": Program("<?php define('MINE', 1); const OTHER = 2; echo MINE, OTHER, PHP_EOL, PHP_OS, M_PI, E_ALL, defined('STDIN'), constant('PHP_VERSION'); define('STDIN', 1);"),
}

PROGRAMS = {"python": PYTHON, "ruby": RUBY, "perl": PERL, "php": PHP}
