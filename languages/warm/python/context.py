"""A Python that keeps its variables: the program of contexts (docs/SANDBOXES.md). It is started as `python3 context.py`, or by a zygote's child
(sitecustomize.py), with its door as fd 3, or as fd 0 where fd 3 is no socket. Through the door it gets one piece of code after another, each with
fds of its own for stdin, stdout and stderr, and answers what the code showed and how it ended.

What always holds: 0 to 2 are the call's own while it is carried out, and /dev/null otherwise. What is left behind by a call (threads, tasks of
asyncio) writes to nowhere and not into the output of the next, by whose hand ever it was started: owner() tells. A frame is sent whole or not at
all, interrupts notwithstanding. No name of this file is among the globals of the code, and no frame of it in a traceback.
"""

import __future__
import _ast
import _contextvars
import _signal
import _socket
import _thread
import builtins
import io
import json
import linecache
import os
import stat
import sys

FRAME_LIMIT, DISPLAY_LIMIT = 64 << 20, 32 << 20
MESSAGE_LIMIT, TRACE_LIMIT = 64 << 10, 512 << 10
ALLOW_AWAIT, ONLY_AST, COROUTINE = 0x2000, 0x400, 0x80  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, ast.PyCF_ONLY_AST, inspect.CO_COROUTINE
HERE = (lambda: None).__code__.co_filename
REPRESENTATIONS = {
    "_repr_html_": "text/html", "_repr_markdown_": "text/markdown", "_repr_svg_": "image/svg+xml", "_repr_png_": "image/png",
    "_repr_jpeg_": "image/jpeg", "_repr_pdf_": "application/pdf", "_repr_latex_": "text/latex", "_repr_json_": "application/json",
    "_repr_javascript_": "application/javascript",
}
CALL = _contextvars.ContextVar("call")


class State:
    """Of the process."""
    pid = os.getpid()
    door = None
    call = 0  # the number of the one that is carried out; 0: none
    calls = 0
    id = None
    displays = 0
    shown = []  # figures that this call has shown already
    flags = ALLOW_AWAIT
    loop = None
    on_interrupt = _signal.default_int_handler  # the code's own, while none is carried out
    sending = _thread.allocate_lock()


# ---- the door ----


def find_door():
    for fd in (3, 0):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                door = _socket.socket(fileno=move_away(fd))
                door.setblocking(True)
                return door
        except OSError:
            pass
    raise SystemExit("hotcell: there is no door at fd 3")


def move_away(fd):
    """Out of the places that programs expect to get, as far as the limit of open files goes."""
    import fcntl
    for least in (200, 100, 50, 4):
        try:
            moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, least)
        except OSError:
            continue
        os.close(fd)
        return moved
    return fd


def receive(size, fds, first=False):
    """All of `size` bytes; None at the end of everything."""
    parts, had = [], 0
    while had < size:
        data, control, flags, _ = State.door.recvmsg(min(size - had, 1 << 20), _socket.CMSG_SPACE(16), _socket.MSG_CMSG_CLOEXEC)
        for level, kind, rights in control:
            if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                fds += [int.from_bytes(rights[at:at + 4], sys.byteorder) for at in range(0, len(rights), 4)]
        if not data:
            if first and not had:
                return None
            raise ValueError("a frame that does not end")
        parts.append(data)
        had += len(data)
    return b"".join(parts)


def next_call():
    """The frame and its fds; None when the door is closed."""
    fds = []
    head = receive(4, fds, first=True)
    if head is None:
        return None
    length = int.from_bytes(head, "little")
    if length > FRAME_LIMIT:
        raise ValueError("a frame that is too large")
    frame = json.loads(receive(length, fds))
    if frame["op"] != "execute" or len(fds) != 4:
        raise ValueError("a frame that is no call")
    return frame["id"], fds


def send(frame):
    """Whole, whatever signals come: a handler in the main thread may raise at any point."""
    data = json.dumps(frame, ensure_ascii=False).encode("utf-8", "backslashreplace")
    data = len(data).to_bytes(4, "little") + data
    late = []
    main = _thread.get_ident() == State.thread
    if main:
        handler = _signal.signal(_signal.SIGINT, lambda *_: late.append(True))
    try:
        with State.sending:
            State.door.sendall(data)
    except OSError:
        leave()  # nobody wants to know
    if main:
        _signal.signal(_signal.SIGINT, handler if handler is not None else _signal.SIG_DFL)
        if late:
            os.kill(State.pid, _signal.SIGINT)


# ---- whose output it is ----


def owner():
    """The number of the call that what runs here belongs to: 0 where it is not known."""
    call = CALL.get(0)
    if not call:
        threading = sys.modules.get("threading")
        thread = threading and threading._active.get(_thread.get_ident())
        call = thread.__dict__.get("_call", 0) if thread else 0
    return call


def is_left_over():
    call = owner()
    return call != State.call if call else not State.call


def own_threads(threading):
    """A thread belongs to the call that whoever started it belongs to."""
    plain = threading.Thread.start

    def start(self):
        """Start the thread's activity."""
        self._call = owner() or State.call
        plain(self)
    threading.Thread.start = start


def own_work(pool):
    """A worker of a pool belongs to whoever gave it its work."""
    item = pool._WorkItem
    begin, run = item.__init__, item.run

    def __init__(self, *words):
        begin(self, *words)
        self._call = owner() or State.call

    def work(self):
        token = CALL.set(self._call)
        try:
            run(self)
        finally:
            CALL.reset(token)
    item.__init__, item.run = __init__, work


class Output(io.RawIOBase):
    """One of the call's two outputs. Lines are written when they end: what C code and child processes write keeps its place between them."""

    def __init__(self, fd, name):
        self.fd, self.name, self.mode = fd, name, "wb"

    def fileno(self):
        return self.fd

    def isatty(self):
        return False

    def writable(self):
        return True

    def write(self, data):
        view = memoryview(data).cast("B")
        size = len(view)
        if is_left_over() and os.getpid() == State.pid:
            return size
        while view:
            view = view[os.write(self.fd, view):]
        return size


def open_streams():
    """Input anew for every call. The outputs if they are not there any more: what the code has put in their place is left."""
    stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "rb", closefd=False)), "utf-8", "surrogateescape")
    stdin.buffer.raw.name, stdin.mode = "<stdin>", "r"
    sys.stdin = sys.__stdin__ = stdin
    for fd, name, errors in ((1, "stdout", "surrogateescape"), (2, "stderr", "backslashreplace")):
        if isinstance(getattr(sys, name), io.TextIOWrapper) and isinstance(getattr(sys, name).buffer, Output) and not getattr(sys, name).closed:
            continue
        now = getattr(sys, name)
        if now is not None and now is not getattr(sys, f"__{name}__") and not getattr(now, "closed", False):
            continue
        stream = io.TextIOWrapper(Output(fd, f"<{name}>"), "utf-8", errors, line_buffering=True)
        stream.mode = "w"
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def place(fds):
    for to, fd in enumerate(fds):
        os.dup2(fd, to)


def flush():
    for stream in {sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__}:
        try:
            stream.flush()
        except Exception:  # noqa: BLE001, S110: closed, or of the code's own making
            pass


# ---- what is shown ----


def text_of(data):
    """For JSON: no half of a pair of surrogates, and no NUL."""
    return str(data).encode("utf-8", "backslashreplace").decode().replace("\0", "\ufffd")


def data_of(kind, data):
    if isinstance(data, (bytes, bytearray, memoryview)):
        import base64
        return base64.b64encode(data).decode() if not kind.startswith("text/") and kind != "image/svg+xml" else text_of(bytes(data).decode("utf-8", "replace"))
    if isinstance(data, str):
        return text_of(data)
    return text_of(json.dumps(data, default=str))  # application/json and its kind


def png_of(figure):
    file = io.BytesIO()
    figure.savefig(file, format="png", bbox_inches="tight")
    State.shown.append(figure)
    return file.getvalue()


def is_of(thing, module, name):
    """Whether it is of a class of a library that is loaded, if it is."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(thing, kind)


def forms_of(thing):
    """All of its forms, by type; None: it has shown itself."""
    if isinstance(thing, type):
        return {"text/plain": repr(thing)}
    if is_of(thing, "plotly.basedatatypes", "BaseFigure"):
        return {"application/vnd.plotly.v1+json": thing.to_json(), "text/plain": f"<plotly {type(thing).__name__} with {len(thing.data)} traces>"}
    if is_of(thing, "matplotlib.figure", "Figure"):
        return {"image/png": png_of(thing), "text/plain": repr(thing)}
    if callable(method := getattr(thing, "_ipython_display_", None)):
        method()
        return None
    forms = {}
    for name, kind in REPRESENTATIONS.items():
        method = getattr(thing, name, None)
        if not callable(method):
            continue
        try:
            data = method()
        except Exception:  # noqa: BLE001, S112: a form that cannot be made is no form
            continue
        if data is not None:
            forms[kind] = data[0] if isinstance(data, tuple) else data
    if callable(method := getattr(thing, "_repr_mimebundle_", None)):
        try:
            bundle = method(include=None, exclude=None)
            forms.update(bundle[0] if isinstance(bundle, tuple) else bundle or {})
        except Exception:  # noqa: BLE001, S110: as above
            pass
    if "text/plain" not in forms:
        forms["text/plain"] = repr(thing)
    return {kind: data for kind, data in forms.items() if data is not None}


def show(forms, value=False):
    if is_left_over() or os.getpid() != State.pid or not forms:
        return
    entries = [{"type": str(kind), "data": data_of(str(kind), data)} for kind, data in sorted(forms.items(), key=lambda form: form[0] == "text/plain")]
    size = sum(len(entry["data"]) for entry in entries)
    if size > DISPLAY_LIMIT:
        entries = [{"type": "text/plain", "data": f"(left out: {size >> 20} MiB to show, of at most {DISPLAY_LIMIT >> 20} MiB)"}]
    State.displays += 1
    send({"id": State.id, "event": "display", "value": value, "of": State.displays, "entries": entries})


class Handle:
    """What display() gives to those that ask for one: what is shown cannot be changed any more, so it is shown anew."""

    def __init__(self, display_id):
        self.display_id = display_id

    def display(self, thing, **_):
        display(thing)

    update = display


def display(*things, raw=False, display_id=None, **_):
    """Shows things, in as many forms as each has."""
    for thing in things:
        show(thing if raw else forms_of(thing))
    return Handle(display_id) if display_id else None


def publish(data, metadata=None, source=None, **_):
    show(dict(data))


def display_value(value):
    """sys.displayhook"""
    if value is None:
        return
    builtins._ = None
    show(forms_of(value), value=True)
    builtins._ = value


def show_figures(keep=True):
    """Those that are open, once, and then no more."""
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    if not hasattr(sys.modules.get("matplotlib.pyplot"), "close") or helpers is None:
        return
    figures = [manager.canvas.figure for manager in helpers.Gcf.get_all_fig_managers()]
    try:
        for figure in figures:
            if keep and not any(figure is one for one in State.shown):
                display(figure)
    finally:
        sys.modules["matplotlib.pyplot"].close("all")


# ---- libraries that must know where they are ----


def adapt_pyplot(pyplot):
    def show(*_, **__):
        """Display all open figures."""
        show_figures()
    pyplot.show = show


def adapt_plotly(plotly):
    def show(figure, *_, **__):
        display(figure)
    plotly.show = show


def adapt_ipython(module):
    if "display" not in vars(module):  # which of the two has it depends on the version
        return
    module.display, module.publish_display_data = display, publish
    module.clear_output = lambda *_, **__: None


AFTER_IMPORT = {
    "threading": own_threads, "concurrent.futures.thread": own_work, "matplotlib.pyplot": adapt_pyplot, "plotly.io": adapt_plotly,
    "IPython.core.display_functions": adapt_ipython, "IPython.core.display": adapt_ipython,
}


class Loader:
    """A module's own, with something to do afterwards."""

    def __init__(self, loader, name):
        self.__dict__.update(loader=loader, name=name)

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        AFTER_IMPORT[self.name](module)


class Finder:
    """Stands before the others, and finds nothing by itself."""

    @staticmethod
    def find_spec(name, path, target=None):
        if name not in AFTER_IMPORT:
            return None
        for finder in sys.meta_path:
            spec = None if finder is Finder else finder.find_spec(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = Loader(spec.loader, name)
                return spec
        return None


def adapt():
    for name, change in AFTER_IMPORT.items():
        if name in sys.modules:
            change(sys.modules[name])
    sys.meta_path.insert(0, Finder)


# ---- a call ----


def compile_cell(source, name):
    """What to carry out, and what to show the value of; None for nothing. `from __future__ import` holds for all that comes after it."""
    tree = compile(source, name, "exec", State.flags | ONLY_AST, dont_inherit=True)
    last = tree.body.pop().value if tree.body and isinstance(tree.body[-1], _ast.Expr) and not source.rstrip().endswith(";") else None
    code = compile(tree, name, "exec", State.flags, dont_inherit=True)
    for feature in __future__.all_feature_names:
        State.flags |= code.co_flags & getattr(__future__, feature).compiler_flag
    return code if tree.body else None, compile(_ast.Expression(last), name, "eval", State.flags, dont_inherit=True) if last else None


def run_code(code, names):
    result = eval(code, names)
    if not code.co_flags & COROUTINE:
        return result
    import asyncio
    if State.loop is None or State.loop.is_closed():
        State.loop = asyncio.new_event_loop()
    asyncio.set_event_loop(State.loop)
    task = State.loop.create_task(result)
    try:
        return State.loop.run_until_complete(task)
    finally:
        if not task.done():  # interrupted
            task.cancel()
            State.loop.run_until_complete(asyncio.wait({task}, timeout=1))


def read_source(fd):
    parts, at = [], 0
    while part := os.pread(fd, 1 << 20, at):
        parts.append(part)
        at += len(part)
        if at > FRAME_LIMIT:
            raise ValueError(f"the code has more than {FRAME_LIMIT >> 20} MiB")
    return b"".join(parts).decode("utf-8")


def describe(error, name):
    """The error as the answer has it."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == name:
            line = trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.filename == name:
        line = error.lineno
    try:
        message = str(error.msg if isinstance(error, SyntaxError) else error)
    except Exception:  # noqa: BLE001
        message = "(its text cannot be had)"
    return {"type": type(error).__name__, "message": text_of(message[:MESSAGE_LIMIT]), "traceback": text_of(format_trace(error)), "line": line}


def format_trace(error):
    import traceback
    try:
        summary = traceback.TracebackException(type(error), error, error.__traceback__, compact=True)
        todo = [summary]
        while todo:
            one = todo.pop()
            # From the outside to the code there is this file, and asyncio's loop.
            cells = [at for at, frame in enumerate(one.stack) if frame.filename.startswith("<cell ")]
            if one is summary:
                del one.stack[:cells[0] if cells else len(one.stack)]
            one.stack[:] = [frame for frame in one.stack if frame.filename != HERE]
            todo += [next_one for next_one in (one.__cause__, one.__context__, *(one.exceptions or ())) if next_one is not None]
        text = "".join(summary.format() if summary.stack or summary.__cause__ or summary.__context__ or summary.exceptions else summary.format_exception_only())
    except Exception:  # noqa: BLE001: a class whose errors cannot be formatted, or no memory
        text = f"{type(error).__name__}: (its traceback cannot be had)\n"
    return text if len(text) <= TRACE_LIMIT else text[:TRACE_LIMIT // 2] + "\n…\n" + text[-TRACE_LIMIT // 2:]


def carry_out(source_fd, name, names):
    """None, or the error that it ended with."""
    error = None
    try:
        try:
            _signal.signal(_signal.SIGINT, State.on_interrupt)
            source = read_source(source_fd)
            linecache.cache[name] = (len(source), None, [line + "\n" for line in source.splitlines()], name)
            code, value = compile_cell(source, name)
            if code:
                run_code(code, names)
            if value:
                sys.displayhook(run_code(value, names))
        except BaseException as caught:  # noqa: BLE001: SystemExit and KeyboardInterrupt are the call's end, not ours
            error = caught
        try:
            show_figures(keep=not isinstance(error, KeyboardInterrupt))
        except Exception as caught:  # noqa: BLE001: a figure that cannot be drawn
            error = error or caught
    except KeyboardInterrupt as caught:  # outside of the code: it came late
        error = error or caught
    return error


def stop_listening():
    """From here on, an interrupt is for nobody."""
    handler = _signal.getsignal(_signal.SIGINT)
    _signal.signal(_signal.SIGINT, lambda *_: None)
    if handler is not None:
        State.on_interrupt = handler


def call(identifier, fds, names, null):
    State.calls += 1
    State.call, State.id, State.displays, State.shown = State.calls, identifier, 0, []
    CALL.set(State.call)
    place(fds[1:])
    for fd in fds[1:]:
        os.close(fd)
    open_streams()
    name = f"<cell {State.call}>"
    error = carry_out(fds[0], name, names)
    if os.getpid() != State.pid:  # os.fork() in the code: this is the child, which has come to its end
        flush()
        os._exit(0 if error is None else error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1)
    try:
        stop_listening()
    except KeyboardInterrupt:
        stop_listening()
    os.close(fds[0])
    answer = {"id": identifier, "event": "done", "status": "completed", "exit_code": None, "error": None}
    if error is not None:
        answer["status"] = "interrupted" if isinstance(error, KeyboardInterrupt) else "error"
        answer["error"] = describe(error, name)
        error.__traceback__ = None
    flush()
    State.call = 0
    place([null] * 3)
    send(answer)


def wait(null):
    """For the next call. Tasks that earlier ones left behind go on meanwhile."""
    asyncio = sys.modules.get("asyncio")
    if State.loop is not None and not State.loop.is_closed() and asyncio.all_tasks(State.loop):
        try:
            ready = State.loop.create_future()
            State.loop.add_reader(State.door.fileno(), lambda: ready.done() or ready.set_result(None))
            State.loop.run_until_complete(ready)
        except BaseException:  # noqa: BLE001, S110: a task's own SystemExit
            pass
        finally:
            State.loop.remove_reader(State.door.fileno())
    return next_call()


def leave(code=0):
    """Exit handlers, and no waiting for threads: whoever closes the door has done with all of them."""
    try:
        import atexit
        atexit._run_exitfuncs()
        flush()
    finally:
        os._exit(code)


def main():
    State.pid, State.thread = os.getpid(), _thread.get_ident()
    State.door = find_door()
    null = move_away(os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC))
    place([null] * 3)
    stop_listening()
    os.register_at_fork(after_in_child=lambda: State.door.close())
    module = type(sys)("__main__")
    module.__builtins__ = builtins
    sys.modules["__main__"] = module
    sys.argv[:] = [""]
    folder = HERE.rpartition("/")[0]
    sys.path[:] = ["", *(entry for entry in sys.path if entry not in ("", folder))]
    sys.displayhook, builtins.display = display_value, display
    open_streams()
    adapt()
    send({"event": "ready", "version": sys.version.split()[0], "fds": True})
    while True:
        try:
            frame = wait(null)
        except Exception:  # noqa: BLE001: whatever it was, it was no frame
            leave(125)
        if frame is None:
            leave()
        call(*frame, vars(module), null)


if __name__ in ("__main__", "hotcell.context"):
    main()
