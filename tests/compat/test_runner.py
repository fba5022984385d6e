"""hotcell.compat.runner, as users of SandboxRunner call it, with the policy for mounts put right."""

import asyncio
import os
import pathlib
import shutil
import tempfile
import time

import pytest

from cells import SLOW
from hotcell.compat.runner import FORBIDDEN_PATHS, MountPolicy, MountRefusedError, SandboxConfig, SandboxResult, SandboxRunner, validate_mount


def run(code, config=None, **options):
    return asyncio.run(SandboxRunner(config).run_code(code, **options))


@pytest.fixture
def folders():
    """Two folders that cells can read, one below a place that everybody may enter."""
    root = pathlib.Path(tempfile.mkdtemp(prefix="hotcell-runner-", dir="/var/tmp"))
    root.chmod(0o755)
    for name in ("data", "data-x", "out", "secret"):
        (root / name).mkdir()
        (root / name / "file").write_text(f"in {name}")
        os.chown(root / name, 54321, 54321)
    (root / "data" / "escape").symlink_to(root / "secret")
    yield root
    shutil.rmtree(root)


# ---- results ----

def test_the_documented_check(compat):
    assert str(run("print(42)")) == "42\n"


def test_the_documented_tool(compat):
    async def run_python(code):
        result = await SandboxRunner().run_code(code, language="python")
        return result.stdout if result.success else f"Error (exit code {result.exit_code}):\n{result.stderr}"
    assert asyncio.run(run_python("print('fine')")) == "fine\n"
    assert asyncio.run(run_python("1/0")).startswith("Error (exit code 1):\nTraceback")


def test_results_as_text():
    assert str(SandboxResult("out", "err", 0)) == "out" and SandboxResult("", "", 0).success
    assert str(SandboxResult("out", "err", 3)) == "Exit code 3.\nStdout: out\nStderr: err" and not SandboxResult("", "", 3).success
    assert str(SandboxResult("out", "err", -1, True)) == "Execution timed out.\nStdout: out\nStderr: err"


def test_commands(compat):
    result = asyncio.run(SandboxRunner().run_command("echo out; echo err >&2; [[ a == a ]] && exit 7"))
    assert (result.stdout, result.stderr, result.exit_code, result.success, result.timed_out) == ("out\n", "err\n", 7, False, False)


def test_the_code_is_a_file_that_cannot_be_written(compat):
    result = run("print(__file__)\nopen('/workspace/code', 'a')")
    assert result.stdout == "/workspace/code\n" and "PermissionError" in result.stderr
    assert run("echo $0", language="bash").stdout == "/workspace/code\n"


def test_other_languages(compat):
    assert run("puts 42", language="ruby").stdout == "42\n"


# ---- limits ----

def test_defaults():
    config = SandboxConfig()
    assert (config.memory_limit, config.cpu_limit, config.timeout_seconds, config.pids_limit, config.network_enabled) == ("512m", 1.0, 60, 50, False)
    assert config.allowed_read_paths == config.allowed_write_paths == []


def test_timeouts_end_everything(compat):
    began = time.monotonic()
    result = run("import subprocess\nprint('so far', flush=True)\nsubprocess.run(['sleep', '60'])", SandboxConfig(timeout_seconds=1))
    assert (result.exit_code, result.stderr, result.timed_out, result.success) == (-1, "Execution timed out", True, False)
    assert result.stdout == "so far\n" and time.monotonic() - began < 20 * SLOW


def test_memory_processes_and_network(compat):
    result = run("x = bytearray(10 ** 9)", SandboxConfig(memory_limit="64m"))
    assert not result.success and result.exit_code == 137 and "memory" in result.stderr
    result = run("import os, time\nfor i in range(60):\n    if os.fork() == 0: time.sleep(5); os._exit(0)")
    assert not result.success
    result = run("import socket\nsocket.create_connection(('192.0.2.1', 80), 2)")
    assert not result.success and "OSError" in result.stderr
    assert run("open('/tmp/big', 'wb').write(bytes(150 << 20))").success is False


# ---- mounts ----

def test_policy(folders):
    data, out = str(folders / "data"), str(folders / "out")
    policy = MountPolicy(allowed_read_paths=[data], allowed_write_paths=[out])
    assert policy.forbidden_paths == FORBIDDEN_PATHS and policy.forbidden_paths is not FORBIDDEN_PATHS
    assert validate_mount(data, policy) and validate_mount(f"{data}/file", policy) and validate_mount(out, policy)
    assert validate_mount(out, policy, writable=True) and not validate_mount(data, policy, writable=True)
    assert not validate_mount(f"{data}-x", policy), "a name that merely begins like an allowed one"
    assert not validate_mount(f"{data}/escape", policy), "a link that leads out"
    assert not validate_mount(f"{data}/nothing", policy) and not validate_mount(data, MountPolicy())


def test_forbidden_beats_allowed():
    policy = MountPolicy(allowed_read_paths=["/"], allowed_write_paths=["/"])
    for path in ("/etc/shadow", "/proc/self", "/sys", "/dev/null"):
        assert not validate_mount(path, policy)
    for parent in ("/", "/etc"):
        assert not validate_mount(parent, policy), f"{parent} has something forbidden in it"
    assert validate_mount("/usr", policy)


def test_mounts(private, folders):
    config = SandboxConfig(allowed_read_paths=[str(folders / "data")], allowed_write_paths=[str(folders / "out")])
    result = run("print(open('/data/file').read())\nopen('/out/new', 'w').write('made')\ntry: open('/data/new', 'w')\nexcept OSError as e: print(e.errno)",
                 config, extra_mounts=[{"host_path": str(folders / "data"), "container_path": "/data"},
                                       {"host_path": str(folders / "out"), "container_path": "/out", "readonly": False}])
    assert result.stdout == "in data\n30\n", str(result)
    assert (folders / "out" / "new").read_text() == "made"


@pytest.mark.parametrize("name, readonly", [("data", False), ("secret", True), ("data/escape", True), ("data-x", True), ("nothing", True)])
def test_refused_mounts_are_errors(folders, name, readonly):
    config = SandboxConfig(allowed_read_paths=[str(folders / "data")])
    with pytest.raises(MountRefusedError, match="Mount rejected by policy") as caught:
        run("print(1)", config, extra_mounts=[{"host_path": str(folders / name), "container_path": "/x", "readonly": readonly}])
    assert isinstance(caught.value, PermissionError)
