"""The driver of Python's zygotes. `python3 main.py` imports it while it starts, as every start imports a sitecustomize, and before it opens
main.py. It imports what the preload set names and calls fork() once; that call returns only in children, each of which is in its cell
(src/cell/warm.h). The child puts right what a start derives from its arguments, environment and fds, and returns: the interpreter itself then
opens and runs main.py, so frames, tracebacks, sys.path[0] and the exit are its own.

What always holds: nothing of this file is left under a name that a program can come across. Where a cold start would find something that was
not prepared for, the child execs Python, which is what a cold start does.
"""

import sys


def give_way():
    """The machine's own sitecustomize, if it has one, as a cold start finds it."""
    folder = __file__.rpartition("/")[0]
    sys.path[:] = [entry for entry in sys.path if entry != folder]
    sys.path_importer_cache.pop(folder, None)
    del sys.modules["sitecustomize"]
    import sitecustomize  # noqa: F401


def preload(words):
    """Imports these modules; what cannot be imported is left to the program. The first names of all that came with them."""
    before = set(sys.modules)
    for name in words:
        package, there = name.partition(".")[0], set(sys.modules)
        try:
            __import__(name)
        except Exception:  # noqa: BLE001
            # Submodules of a package that failed stay behind: the program's own import would take them, and not make them part of the package.
            for new in [one for one in sys.modules if one not in there and one.partition(".")[0] == package]:
                del sys.modules[new]
    return {name.partition(".")[0] for name in sys.modules if name not in before}


def borrow(name):
    """A module that a cold start does not have. A program that imports it gets one of its own."""
    kept = sys.modules, sys.path_importer_cache
    before = [set(one) for one in kept]
    module = __import__(name)
    for now, then in zip(kept, before):
        for new in [one for one in now if one not in then]:
            del now[new]
    return module


def all_types():
    """Every type there is, built in or not."""
    found, todo = {object}, [object]
    while todo:
        for one in type.__subclasses__(todo.pop()):
            if one not in found:
                found.add(one)
                todo.append(one)
    return found


def ease_exit(gc):
    """An interpreter that ends clears every module and every interned string. In a child this copies each page of the zygote in order to throw
    it away, which takes longer than most programs run. Most programs leave nothing that could notice: no open file, no generator, no object
    with a finalizer. If that is so, the process ends once the exit handlers are through; or, if only the interpreter knows the exit code, it is
    spared the modules. Otherwise it goes on to its own end, as in a cold start."""
    import _io
    import _weakref
    import builtins
    # As exit() does, but for the ends of libraries, of which there are as many as modules, and none that could tell: those that a program brings
    # along are found below. Their output is another matter.
    libc = borrow("ctypes").PyDLL(None)
    flush_all, quit_process = libc.fflush, libc._exit
    modules, main = sys.modules, vars(sys.modules["__main__"])
    own, sizes = len(modules), (len(vars(sys)), len(vars(builtins)))
    kept = [*modules.values()]
    kept.append(kept)  # a cycle, which is frozen and therefore never collected
    files = (_io.FileIO, _io.BufferedReader, _io.BufferedWriter, _io.BufferedRandom, _io.TextIOWrapper)
    gc.collect()  # types that are about to go: the program's own would get their addresses
    known = {id(one): one for one in all_types()}
    streams, marker = set(), []

    def harmless(kind):
        """Nothing happens when one of these goes away."""
        return not hasattr(kind, "__del__") and (known.get(id(kind)) is kind or (
            kind.__flags__ & 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class
            and all(map(harmless, kind.__bases__))))

    def unheard(callback):
        """Nothing of a weak reference's callback can be noticed: there is none, or it is that of the caches of abstract classes (_abc.c)."""
        return callback is None or (type(callback) is type(len) and callback.__name__ == "_destroy" and callback.__module__ is None)

    def exit_code():
        """None: unknown. PyRun_SimpleFile takes __file__ and __cached__ away when the program is through, but SystemExit leaves them."""
        if "__file__" in main or "__cached__" in main or "__spec__" not in main or len(vars(builtins)) != sizes[1]:
            return None
        if len(vars(sys)) == sizes[0]:
            return 0
        error, trace = getattr(sys, "last_value", None), getattr(sys, "last_traceback", None)
        if len(vars(sys)) != sizes[0] + 3 or trace is None or isinstance(error, KeyboardInterrupt):
            return None
        frame = trace.tb_frame  # that of the program itself, which did not get beyond this line
        return 1 if frame.f_globals is main and frame.f_back is None and frame.f_lineno == trace.tb_lineno else None

    def nothing_left(objects):
        new = [modules[name] for name, _ in zip(reversed(modules), range(len(modules) - own))]
        if any((getattr(one, "__file__", None) or "").endswith(".so") for one in new):
            return False
        if len(objects) > 100_000 or any(one is kept for one in objects):
            return False  # too many to look at; or the program has called gc.unfreeze(), and what is its own cannot be told from the rest
        kinds = {type(one) for one in objects if id(one) not in streams and not (type(one) in files and one.closed)}
        kinds.update(one for one in objects if isinstance(one, type))
        callbacks = [one.__callback__ for one in objects if isinstance(one, _weakref.ReferenceType)]
        return all(map(harmless, kinds)) and all(map(unheard, callbacks))

    def leave():
        try:
            sys.stdout.flush()
            sys.stderr.flush()
            objects = gc.get_objects()
            if not any(one is marker[0] for one in objects):
                kept.clear()
                return  # the program has called gc.freeze(), by which everything stays as it is
            if nothing_left(objects):
                code = exit_code()
                if code is not None:
                    flush_all(None)
                    quit_process(code)
                modules.clear()
                return
        except Exception:  # noqa: BLE001, S110: the interpreter's own end will tell
            pass
        gc.unfreeze()

    register = borrow("atexit").register
    register(leave)
    register(sys.setprofile, None)  # they are called in turn, the last one first: a program that is traced does not see what is below
    register(sys.settrace, None)

    def keep(*things):
        """To let go of something that is large costs each child more than to keep it."""
        kept.append((globals(), things))

    return streams, marker, keep


def read_beside(name):
    """A program that is beside this file. It is compiled once, and not in each child."""
    path = __file__.rpartition("/")[0] + "/" + name
    with open(path, encoding="utf-8") as file:
        return compile(file.read(), path, "exec", dont_inherit=True)


def rehearse():
    """What programs do, once, before there is any: what Python makes of code that it has seen, and libraries of their first use, is made here."""
    import _io
    kept, sys.stdout = sys.stdout, _io.StringIO()
    try:
        exec(read_beside("rehearsal.py"), {"__name__": "rehearsal"})
    except Exception:  # noqa: BLE001, S110: a library that cannot do it is the program's affair
        pass
    sys.stdout = kept


def look_around(posix):
    """What nobody has looked at in this cell, and the interpreter looks at before it opens main.py."""
    posix.listdir("/workspace")
    for folder in sys.path:
        try:
            posix.stat(folder)
        except OSError:
            pass


def read_block(posix):
    """The argument block: the arguments and the variables. It is there when the program is."""
    text, block = b"", posix.open("/.hotcell/program", posix.O_RDONLY | posix.O_CLOEXEC)
    while part := posix.read(block, 1 << 20):
        text += part
    posix.close(block)
    words = text.split(b"\0")
    first, last = 3 + int(words[0]), 3 + int(words[0]) + int(words[1])
    return words[3:first], words[first:last]


def set_environment(posix, env):
    posix.environ.clear()  # which is what os.environ and os.environb look at
    for word in env:
        name, equals, value = word.partition(b"=")
        if equals:
            posix.environ.setdefault(name, value)
    if b"TZ" in posix.environ:
        sys.modules["time"].tzset()


def kind_of(posix, fd):
    """What a stream asks of its fd when it is made: where two are of one kind, the stream that was made for the one fits the other."""
    found = posix.fstat(fd)
    kind = found.st_mode >> 12
    return (kind, found.st_rdev) if kind == 2 else (kind, found.st_blksize) if kind == 1 else fd  # a device; a pipe; whatever it is


def open_streams(posix, was):
    """Streams that the zygote has made as every start makes them stay, where the program's fds are of the kind that it has. The others are made
    as create_stdio of pylifecycle.c does with PYTHONUNBUFFERED, which python.toml sets. The ids of all objects that the new ones consist of."""
    import _io
    made = []
    for fd, (name, encoding, errors, kind) in enumerate(was):
        if kind != fd and kind_of(posix, fd) == kind:
            continue
        binary = _io.open(fd, "wb" if fd else "rb", 0 if fd else -1, None, None, None, False)
        raw = binary if fd else binary.raw
        raw.name = f"<{name}>"
        stream = _io.TextIOWrapper(binary, encoding, errors, "\n", False, True)
        stream.mode = "w" if fd else "r"
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
        made += [raw, binary, stream]
    return map(id, made)


def is_plain(posix, path):
    """Whether no importer of sys.path_hooks would have a program: it is neither a folder nor an archive, whose directory is at its end."""
    try:
        file = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
        try:
            end = posix.fstat(file).st_size
            return b"PK\5\6" not in posix.pread(file, 1 << 17, max(end - (1 << 17), 0))
        finally:
            posix.close(file)
    except OSError:
        return False


def skip_user_module():
    """`site` is about to import usercustomize, and would look for it in every folder. Where there is none, it need not."""
    site = sys.modules["site"]
    import_it = site.execusercustomize

    def once():
        site.execusercustomize = import_it

    if not any(finder.find_spec("usercustomize", None) for finder in sys.meta_path):
        site.execusercustomize = once


def become_context(code):
    """Does not return: there is no main.py to go on with. For the modules that are being imported right now, and never will have been, no thread
    of the program's may wait."""
    for name in ("site", "sitecustomize"):
        if spec := getattr(sys.modules.get(name), "__spec__", None):
            spec._initializing = False
    exec(code, {"__name__": "hotcell.context", "__builtins__": __builtins__})


def serve():
    import os
    import posix

    names = preload(os.environ.get("HOTCELL_PRELOAD", "").split())
    command = [os.fsencode(word) for word in sys.orig_argv]
    folder = os.getcwdb()
    streams = [(name, getattr(sys, name).encoding, getattr(sys, name).errors, kind_of(posix, fd))
               for fd, name in enumerate(("stdin", "stdout", "stderr"))]
    user_site = sys.modules["site"].USER_SITE
    context = read_beside("context.py")
    numpy, threading = sys.modules.get("numpy"), sys.modules.get("threading")
    gc = borrow("gc")
    rehearse()
    skip_user_module()
    own_streams, marker, keep = ease_exit(gc)
    keep(context, names, command, folder, streams, user_site)
    gc.collect()
    gc.freeze()

    if os.fork():
        os._exit(1)
    marker.append([])  # made after the freeze, so that the collector knows of it
    if numpy:
        numpy.random.seed()
    if threading:
        threading.main_thread()._set_native_id()
    look_around(posix)
    argv, env = read_block(posix)
    is_context = argv == [command[0], os.fsencode(context.co_filename)]
    if ((not is_context and (argv[:len(command)] != command or os.getcwdb() != folder)) or os.path.isdir(user_site)
            or (names and any(name.partition(".")[0] in names for name in os.listdir()))):
        # Another command, or modules of the program's own by the names of ones that are loaded.
        os.execve(argv[0], argv, dict(word.partition(b"=")[::2] for word in env))
    set_environment(posix, env)
    if is_context:
        become_context(context)
    sys.argv[1:] = map(os.fsdecode, argv[len(command):])
    sys.orig_argv[:] = map(os.fsdecode, argv)
    program = f"{os.fsdecode(folder)}/{sys.argv[0]}"
    if is_plain(posix, program):  # then this is what the interpreter, having asked each importer, would write down
        sys.path_importer_cache[program] = None
    own_streams.update(open_streams(posix, streams))


try:
    give_way()
finally:
    serve()
