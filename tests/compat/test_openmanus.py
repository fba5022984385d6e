"""hotcell.compat.openmanus, as agents call it: the sandbox, its manager, its clients, and what was wrong put right."""

import asyncio
import inspect
import os
import pathlib
import shutil
import tempfile
import time
import uuid

import pytest

import hotcell
from cells import SLOW
from hotcell.compat.openmanus import (SANDBOX_CLIENT, AsyncDockerizedTerminal, BaseSandboxClient, DockerSandbox, LocalSandboxClient, SandboxError,
                                      SandboxManager, SandboxResourceError, SandboxSettings, SandboxTimeoutError, create_sandbox_client)


def with_sandbox(work, config=None):
    """Runs a coroutine function with a sandbox of its own."""
    async def main():
        async with DockerSandbox(config) as sandbox:
            return await work(sandbox)
    return asyncio.run(main())


def with_manager(work, **options):
    async def main():
        async with SandboxManager(**options) as manager:
            return await work(manager)
    return asyncio.run(main())


@pytest.fixture(autouse=True)
def at_the_server(compat):
    yield


# ---- settings, errors ----

def test_settings():
    settings = SandboxSettings()
    assert settings.model_dump() == {"use_sandbox": False, "image": "python:3.12-slim", "work_dir": "/workspace", "memory_limit": "512m",
                                     "cpu_limit": 1.0, "timeout": 300, "network_enabled": False}


def test_errors():
    assert issubclass(SandboxTimeoutError, SandboxError) and issubclass(SandboxResourceError, SandboxError) and SandboxError is hotcell.SandboxError


# ---- the sandbox ----

def test_create_gives_itself(server):
    async def work():
        sandbox = DockerSandbox()
        assert await sandbox.create() is sandbox
        try:
            return await sandbox.run_command("echo hello"), sandbox.container.id
        finally:
            await sandbox.cleanup()
    said, name = asyncio.run(work())
    assert said == "hello" and server.get(f"/v1/sandboxes/{name}").status == 404


def test_before_create_and_after_cleanup():
    async def work():
        sandbox = DockerSandbox()
        for call in (sandbox.run_command("true"), sandbox.read_file("x"), sandbox.write_file("x", ""), sandbox.copy_to("x", "y"), sandbox.copy_from("x", "y")):
            with pytest.raises(RuntimeError, match="^Sandbox not initialized$"):
                await call
        await sandbox.cleanup()
    asyncio.run(work())


def test_failing_to_create_says_why_and_leaves_nothing(server):
    before = {one["id"] for one in server.get("/v1/sandboxes").json["sandboxes"]}
    for config in (SandboxSettings(memory_limit="nonsense"), SandboxSettings(network_enabled=True)):
        with pytest.raises(RuntimeError, match="^Failed to create sandbox: "):
            asyncio.run(DockerSandbox(config).create())
    with pytest.raises(RuntimeError, match="^Failed to create sandbox: "):
        asyncio.run(DockerSandbox(volume_bindings={"/etc": "/etc"}).create())
    assert {one["id"] for one in server.get("/v1/sandboxes").json["sandboxes"]} <= before


def test_limits_reach_the_sandbox():
    async def work(sandbox):
        return sandbox.container.info.limits
    limits = with_sandbox(work, SandboxSettings(memory_limit="256m", cpu_limit=0.5))
    assert limits["memory"] == 256 << 20 and limits["cpus"] == 0.5


# ---- commands ----

def test_one_shell_for_all_commands():
    async def work(sandbox):
        await sandbox.run_command("cd /tmp && export NAME=value; f() { echo function $1; }")
        return await sandbox.run_command("pwd; echo $NAME; f x")
    assert with_sandbox(work) == "/tmp\nvalue\nfunction x"


@pytest.mark.parametrize("command, said", [
    ("echo 123; echo; echo 456", "123\n\n456"),
    ("echo out; echo err >&2; echo out again", "out\nerr\nout again"),
    ("printf '  inner  blanks  \\n\\n'", "inner  blanks"),
    ("cat <<'X'\n$ not a prompt\nroot@host:/# either\nX", "$ not a prompt\nroot@host:/# either"),
    ("for i in 1 2 3\ndo\n  echo $i\ndone", "1\n2\n3"),
    ("echo \"quotes ' and \\\" and `echo ticks` and $(echo more)\"", "quotes ' and \" and ticks and more"),
    ("", ""), ("true", ""), ("python3 -c 'print(6 * 7)'", "42"), ("echo äöü €", "äöü €")])
def test_output_is_exact(command, said):
    async def work(sandbox):
        return await sandbox.run_command(command)
    assert with_sandbox(work) == said


def test_errors_of_the_shell_are_output():
    async def work(sandbox):
        wrong = await sandbox.run_command("no-such-command")
        code = sandbox.terminal.last_exit_code
        syntax = await sandbox.run_command("echo 'never closed")
        return wrong, code, syntax, await sandbox.run_command("echo goes on")
    wrong, code, syntax, after = with_sandbox(work)
    assert "not found" in wrong and code == 127 and "unexpected EOF" in syntax and after == "goes on"


def test_a_timeout_and_what_comes_after_it():
    async def work(sandbox):
        await sandbox.run_command("cd /tmp; x=kept")
        began = time.monotonic()
        with pytest.raises(SandboxTimeoutError, match="^Command execution timed out after 1 seconds$"):
            await sandbox.run_command("echo old; sleep 30; echo old too", timeout=1)
        assert time.monotonic() - began < 20 * SLOW
        return await sandbox.run_command("echo new $x; pwd")
    assert with_sandbox(work) == "new kept\n/tmp"


def test_the_timeout_of_the_settings():
    async def work(sandbox):
        with pytest.raises(SandboxTimeoutError, match="after 1 seconds"):
            await sandbox.run_command("sleep 30")
    with_sandbox(work, SandboxSettings(timeout=1))


def test_exit_ends_the_shell_and_not_the_sandbox():
    async def work(sandbox):
        await sandbox.write_file("kept", "here")
        await sandbox.run_command("cd /tmp; exit 3")
        assert sandbox.terminal.last_exit_code == 3
        return await sandbox.run_command("pwd; cat kept")
    assert with_sandbox(work) == "/workspace\nhere"


def test_commands_at_once_take_turns():
    async def work(sandbox):
        return await asyncio.gather(*(sandbox.run_command(f"x=$((x + 1)); sleep .05; echo {number} $x") for number in range(5)))
    assert [said.split()[0] for said in with_sandbox(work)] == ["0", "1", "2", "3", "4"]


def test_a_command_that_is_given_up():
    async def work(sandbox):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(sandbox.run_command("echo old; sleep 60"), 0.5)
        return await sandbox.run_command("echo new")
    assert with_sandbox(work) == "new"


def test_no_privileges_and_no_network():
    async def work(sandbox):
        return await sandbox.run_command("id -u; cat /etc/shadow; ls /sys/class/net 2>/dev/null; "
                                         "python3 -c \"import socket; socket.create_connection(('192.0.2.1', 80), 2)\"")
    said = with_sandbox(work)
    assert not said.startswith("0\n") and "OSError" in said


# ---- files ----

def test_files():
    async def work(sandbox):
        await sandbox.write_file("deep/er/file.txt", "text ä\n\n")
        assert await sandbox.read_file("deep/er/file.txt") == "text ä\n\n" == await sandbox.read_file("/workspace/deep/er/file.txt")
        assert await sandbox.run_command("cat deep/er/file.txt") == "text ä"
        await sandbox.write_file("/tmp/$(touch owned) 'x'; y", "strange")
        assert await sandbox.read_file("/tmp/$(touch owned) 'x'; y") == "strange"
        with pytest.raises(FileNotFoundError, match="^File not found: nothing/here$"):
            await sandbox.read_file("nothing/here")
        for path in ("../etc/passwd", "/workspace/../etc/passwd", "a/.."):
            with pytest.raises(RuntimeError, match="^Failed to read file: Path contains potentially unsafe patterns$"):
                await sandbox.read_file(path)
            with pytest.raises(RuntimeError, match="^Failed to write file: Path contains potentially unsafe patterns$"):
                await sandbox.write_file(path, "x")
        await sandbox.write_file("a..b", "fine")
        with pytest.raises(RuntimeError, match="^Failed to read file: "):
            await sandbox.read_file("deep")
        await sandbox.run_command("printf '\\377' > binary")
        with pytest.raises(RuntimeError, match="^Failed to read file: "):
            await sandbox.read_file("binary")
        with pytest.raises(RuntimeError, match="^Failed to write file: "):
            await sandbox.write_file("/proc/x/y", "no")
    with_sandbox(work)


def test_another_working_directory():
    async def work(sandbox):
        await sandbox.write_file("file", "x")
        return await sandbox.run_command("pwd; cat /tmp/work/file"), await sandbox.read_file("file")
    assert with_sandbox(work, SandboxSettings(work_dir="/tmp/work")) == ("/tmp/work\nx", "x")


def test_the_documented_flow(tmp_path):
    (tmp_path / "script.py").write_text("open('result.csv', 'w').write('a,b')\nprint('ran')")

    async def work(sandbox):
        await sandbox.copy_to(str(tmp_path / "script.py"), "/workspace/")
        said = await sandbox.run_command("python3 script.py")
        await sandbox.copy_from("/workspace/result.csv", str(tmp_path / "made" / "here" / "result.csv"))
        return said
    assert with_sandbox(work) == "ran" and (tmp_path / "made" / "here" / "result.csv").read_text() == "a,b"


def test_copying_files_and_trees(tmp_path):
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "empty").mkdir()
    (tmp_path / "tree" / "deep" / "file").write_bytes(bytes(range(256)) * 1000)
    (tmp_path / "big").write_bytes(os.urandom(5 << 20))

    async def work(sandbox):
        await sandbox.copy_to(str(tmp_path / "tree"), "copy")
        assert await sandbox.run_command("find copy | sort") == "copy\ncopy/deep\ncopy/deep/file\ncopy/empty"
        await sandbox.copy_from("copy", str(tmp_path / "back"))
        await sandbox.copy_to(str(tmp_path / "big"), "renamed")
        await sandbox.copy_to(str(tmp_path / "big"), "copy")  # a folder that exists
        await sandbox.copy_from("copy/big", str(tmp_path))
        (tmp_path / "folder").mkdir()
        await sandbox.copy_from("renamed", str(tmp_path / "folder"))
        with pytest.raises(FileNotFoundError, match="^Source file not found: /nonexistent$"):
            await sandbox.copy_to("/nonexistent", "x")
        with pytest.raises(FileNotFoundError, match="^Source file not found: missing$"):
            await sandbox.copy_from("missing", str(tmp_path / "x"))
        with pytest.raises(RuntimeError, match="^Failed to copy file: "):
            await sandbox.copy_to(str(tmp_path / "big"), "../x")
    with_sandbox(work)
    assert (tmp_path / "back" / "deep" / "file").read_bytes() == bytes(range(256)) * 1000 and (tmp_path / "back" / "empty").is_dir()
    assert (tmp_path / "folder" / "renamed").read_bytes() == (tmp_path / "big").read_bytes()


def test_what_comes_out_stays_where_it_belongs(tmp_path):
    (tmp_path / "precious").write_text("mine")

    async def work(sandbox):
        await sandbox.run_command(f"mkdir evil; ln -s {tmp_path} evil/a; ln -s /etc/passwd evil/b")
        with pytest.raises(RuntimeError, match="^Failed to copy file: "):
            await sandbox.copy_from("evil", str(tmp_path / "out"))
    with_sandbox(work)
    assert (tmp_path / "precious").read_text() == "mine" and not (tmp_path / "out" / "a").exists()


def test_volumes_of_the_host(private):
    root = pathlib.Path(tempfile.mkdtemp(prefix="hotcell-volume-", dir="/var/tmp"))
    try:
        root.chmod(0o755)
        (root / "shared").mkdir()
        (root / "shared" / "in").write_text("from the host")
        os.chown(root / "shared", 54321, 54321)

        async def work():
            async with DockerSandbox(volume_bindings={str(root / "shared"): "/shared"}) as sandbox:
                return await sandbox.run_command("cat /shared/in; echo back > /shared/out")
        assert asyncio.run(work()) == "from the host" and (root / "shared" / "out").read_text() == "back\n"
    finally:
        shutil.rmtree(root)


# ---- terminals ----

def test_terminals():
    parameters = inspect.signature(AsyncDockerizedTerminal).parameters
    assert [(name, one.default) for name, one in list(parameters.items())[1:]] == [("working_dir", "/workspace"), ("env_vars", None),
                                                                                  ("default_timeout", 60)]

    async def work(sandbox):
        terminal = AsyncDockerizedTerminal(sandbox.container, "/tmp", {"NAME": "a 'b' $c"}, default_timeout=5)
        with pytest.raises(RuntimeError):
            await terminal.run_command("true")
        await terminal.init()
        assert await terminal.run_command("pwd; echo \"$NAME\"") == "/tmp\na 'b' $c"
        with pytest.raises(TimeoutError) as caught:
            await terminal.run_command("sleep 30", timeout=1)
        assert not isinstance(caught.value, SandboxError)
        assert await terminal.run_command("echo still there") == "still there"
        other = AsyncDockerizedTerminal(sandbox)
        await other.init()
        assert await other.run_command("pwd; echo $NAME.") == "/workspace\n."
        await terminal.close()
        await other.close()
    with_sandbox(work)


# ---- the manager ----

def test_manager():
    async def work(manager):
        first = await manager.create_sandbox()
        assert str(uuid.UUID(first, version=4)) == first
        sandbox = await manager.get_sandbox(first)
        assert await sandbox.run_command("echo hello") == "hello" and first in manager._sandboxes and manager._last_used[first] > 0
        await manager.create_sandbox(SandboxSettings(memory_limit="256m"))
        with pytest.raises(RuntimeError, match=r"^Maximum number of sandboxes \(2\) reached$"):
            await manager.create_sandbox()
        await manager.delete_sandbox(first)
        await manager.delete_sandbox("unknown")
        with pytest.raises(KeyError) as caught:
            await manager.get_sandbox(first)
        assert caught.value.args == (f"Sandbox {first} not found",)
        assert manager.get_stats() == {"total_sandboxes": 1, "active_operations": 0, "max_sandboxes": 2, "idle_timeout": 3600,
                                       "cleanup_interval": 300, "is_shutting_down": False}
        return manager
    manager = with_manager(work, max_sandboxes=2)
    assert manager.get_stats()["total_sandboxes"] == 0 and manager.get_stats()["is_shutting_down"]


def test_manager_defaults():
    assert [(name, one.default) for name, one in list(inspect.signature(SandboxManager.__init__).parameters.items())[1:]] == [
        ("max_sandboxes", 100), ("idle_timeout", 3600), ("cleanup_interval", 300)]


def test_the_limit_holds_for_those_that_are_being_made():
    async def work(manager):
        found = await asyncio.gather(*(manager.create_sandbox() for _ in range(4)), return_exceptions=True)
        return [isinstance(one, str) for one in found]
    assert sorted(with_manager(work, max_sandboxes=2)) == [False, False, True, True]


def test_the_idle_are_cleaned_up_and_the_busy_are_not():
    async def work(manager):
        idle, busy, held = [await manager.create_sandbox() for _ in range(3)]
        manager.idle_timeout = 0.1
        sandbox = await manager.get_sandbox(busy)
        command = asyncio.ensure_future(sandbox.run_command("sleep 1; echo done"))
        async with manager.sandbox_operation(held):
            assert manager.get_stats()["active_operations"] == 1
            await asyncio.sleep(0.4)
            await manager._cleanup_idle_sandboxes()
            with pytest.raises(KeyError):
                await manager.get_sandbox(idle)
            assert set(manager._sandboxes) == {busy, held}
        assert await command == "done"
        await asyncio.sleep(0.3)
        await manager._cleanup_idle_sandboxes()
        return dict(manager._sandboxes)
    assert with_manager(work) == {}


def test_cleanup_comes_by_itself():
    async def work(manager):
        await manager.create_sandbox()
        deadline = time.monotonic() + 20 * SLOW
        while manager._sandboxes and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        return dict(manager._sandboxes)
    assert with_manager(work, idle_timeout=0.2, cleanup_interval=0.2) == {}


def test_operations_of_unknown_sandboxes():
    async def work(manager):
        with pytest.raises(KeyError):
            async with manager.sandbox_operation("unknown"):
                pass
    with_manager(work)


# ---- clients ----

def test_local_clients(tmp_path):
    async def work():
        client = create_sandbox_client()
        assert isinstance(client, LocalSandboxClient) and isinstance(client, BaseSandboxClient) and isinstance(SANDBOX_CLIENT, LocalSandboxClient)
        with pytest.raises(RuntimeError, match="^Sandbox not initialized$"):
            await client.run_command("true")
        await client.create(SandboxSettings(timeout=20), None)
        await client.write_file("a", "text")
        assert await client.read_file("a") == "text" and await client.run_command("cat a", timeout=5) == "text"
        await client.copy_from("/workspace/a", str(tmp_path / "a"))
        await client.copy_to(str(tmp_path / "a"), "/workspace/b")
        assert await client.run_command("cat b") == "text"
        await client.cleanup()
        with pytest.raises(RuntimeError, match="^Sandbox not initialized$"):
            await client.read_file("a")
        await client.cleanup()
    asyncio.run(work())
