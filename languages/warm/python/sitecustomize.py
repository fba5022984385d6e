"""The half of the driver of Python's zygotes that is written in Python; the other is src/cell/warm_python.c. `python3 main.py` imports this file
while it starts, as every start imports a sitecustomize. It imports what the preload set names, prepares what children will need, and lets the
start go on. Where the interpreter opens main.py, the other half calls begin() and forks; what each child does, it does in C, and calls adopt() or
become_context() for what is out of the ordinary. The interpreter itself then opens and runs main.py, so frames, tracebacks and the exit are its own.

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
        exec(read_beside("first.py"), {"__name__": "first"})
    except Exception:  # noqa: BLE001, S110: a library that cannot do it is the program's affair
        pass
    sys.stdout = kept


def fill_pools():
    """What is free between things that stay is taken, for good: what a child makes then lies together, and not a piece on each of many pages, all
    of which it would have to copy. A pool of pymalloc is for blocks of one size; in a new one they lie in a row behind its head."""
    taken = [complex(1) for _ in [None] * 4000]  # of 32 bytes, as are the numbers that are made below
    for size in (16, *range(48, 513, 16)):
        row = 0
        for one in [object] * 20_000:
            taken.append(one() if size == 16 else bytes(size - 33))
            row = row + 1 if id(taken[-1]) & 0x3fff == 48 + row * size else 0
            if row == 3:
                break
    return taken


def set_environment(posix, env):
    posix.environ.clear()  # which is what os.environ and os.environb look at
    for word in env:
        name, equals, value = word.partition(b"=")
        if equals:
            posix.environ.setdefault(name, value)
    if b"TZ" in posix.environ:
        sys.modules["time"].tzset()


def open_streams(fds, was):
    """Made as create_stdio of pylifecycle.c does with PYTHONUNBUFFERED, which python.toml sets. All objects that they consist of."""
    import _io
    made = []
    for fd in fds:
        name, encoding, errors = was[fd]
        binary = _io.open(fd, "wb" if fd else "rb", 0 if fd else -1, None, None, None, False)
        raw = binary if fd else binary.raw
        raw.name = f"<{name}>"
        stream = _io.TextIOWrapper(binary, encoding, errors, "\n", False, True)
        stream.mode = "w" if fd else "r"
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
        made += [raw, binary, stream]
    return made


def prepare():
    import _io
    import _weakref
    import builtins
    import os
    import posix

    names = preload(os.environ.get("HOTCELL_PRELOAD", "").split())
    command = [os.fsencode(word) for word in sys.orig_argv]
    streams = [(name, getattr(sys, name).encoding, getattr(sys, name).errors) for name in ("stdin", "stdout", "stderr")]
    user_site = sys.modules["site"].USER_SITE
    folder, context = os.getcwdb(), read_beside("context.py")
    context_command = [command[0], os.fsencode(context.co_filename)]
    numpy, threading = sys.modules.get("numpy"), sys.modules.get("threading")
    gc, atexit = borrow("gc"), borrow("atexit")
    register, count_handlers = atexit.register, atexit._ncallbacks
    rehearse()

    def after_fork():
        if numpy:
            numpy.random.seed()
        if threading:
            threading.main_thread()._set_native_id()

    def adopt(argv, env, fds):
        """What differs from what the zygote has; None: nothing does."""
        if env is not None:
            set_environment(posix, env)
        if argv is not None:
            sys.argv[1:] = map(os.fsdecode, argv[len(command):])
            sys.orig_argv[:] = map(os.fsdecode, argv)
        return open_streams(fds or (), streams)

    def become_context(env):
        """What its code is run with. There is no main.py to go on with."""
        set_environment(posix, env)
        sys.path_importer_cache.pop(f"{sys.path.pop(0)}/main.py", None)
        sys.orig_argv[:] = map(os.fsdecode, context_command)
        return {"__name__": "hotcell.context", "__builtins__": __builtins__}

    def begin(leave):
        """Where the interpreter opens main.py, having found none: what src/cell/warm_python.c wants to know."""
        sys.path[0] = os.fsdecode(folder)
        env = [name + b"=" + value for name, value in posix.environ.items()]
        env = env[:[word.startswith(b"HOTCELL_WARM=") for word in env].index(True)]
        set_environment(posix, env)
        register(leave)
        modules = [*sys.modules.values()]
        kept = [modules, globals()]
        kept.append(kept)  # a cycle, which is frozen and therefore never collected
        gc.collect()  # types that are about to go: the program's own would get their addresses
        told = (
            (command, context_command, [folder, os.fsencode(user_site)], sorted(map(os.fsencode, names)), env),
            (after_fork if numpy or threading else None, adopt, become_context, context),
            ((kept, gc.get_objects, gc.unfreeze, gc.get_debug, count_handlers, gc.callbacks, gc.garbage, sys.modules["_warnings"].filters),
             (_io.FileIO, (_io.BufferedReader, _io.BufferedWriter, _io.BufferedRandom), _io.TextIOWrapper, _weakref.ReferenceType,
              (_weakref.ProxyType, _weakref.CallableProxyType)),
             (sys.modules, vars(sys.modules["__main__"]), vars(builtins), vars(sys)),
             ([*all_types()], modules)))
        gc.collect()
        kept += [told, fill_pools()]
        gc.freeze()
        return told

    sys.__hotcell__ = begin
    try:
        posix.open("/.hotcell/later", posix.O_RDONLY)
    except OSError:
        pass


try:
    give_way()
finally:
    prepare()
