"""hotcell mcp-wrap with real MCP servers from npm, and the official client in front of them."""

import json
import subprocess
import time

import pytest
from mcp_client import Client

from cells import HOTCELL, SLOW, machine_is_weak

WEAK = ["--allow-weak"] if machine_is_weak() else []


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "shown"
    place.mkdir(mode=0o777)
    place.chmod(0o777)
    (place / "note.txt").write_text("for the server\n")
    (tmp_path / "secret.txt").write_text("not for the server\n")
    return place


@pytest.fixture
def wrapped(modules, folder, tmp_path):
    """The words that run a package's server in a cell. The limit of time is one second: it is not for servers."""
    config = tmp_path / "config.toml"
    config.write_text(f'[mounts]\nallowed_read_paths = ["{modules}"]\nallowed_write_paths = ["{folder}"]\n[limits]\ntimeout = 1\noutput = 1024\n')

    def words(package, *arguments, options=()):
        return [HOTCELL, "mcp-wrap", "--config", str(config), *WEAK, "--mount", f"{modules}:/srv/mcp", "--mount", f"{folder}:/shown:rw", *options, "--",
                "node", f"/srv/mcp/node_modules/@modelcontextprotocol/{package}/dist/index.js", *arguments]

    return words


def test_a_caged_server_works_as_it_does_without_a_cage(modules, wrapped):
    with Client(modules, "v1", "stdio", *wrapped("server-everything", "stdio")) as client:
        assert "echo" in {tool["name"] for tool in client.do("tools")}
        assert client.call("echo", message="hello")["content"][0]["text"] == "Echo: hello"
        time.sleep(1.5)  # past the limit of time that a run would have
        long = "x" * 100000  # past the limit of output
        assert client.call("echo", message=long)["content"][0]["text"] == f"Echo: {long}"


def test_a_caged_server_sees_what_it_was_shown_and_nothing_else(modules, wrapped, folder):
    with Client(modules, "v1", "stdio", *wrapped("server-filesystem", "/shown", "/etc", "/root")) as client:
        assert client.call("read_text_file", path="/shown/note.txt")["content"][0]["text"] == "for the server\n"
        client.call("write_file", path="/shown/made.txt", content="by the server")
        assert (folder / "made.txt").read_text() == "by the server"
        for path in (str(folder.parent / "secret.txt"), "/etc/shadow", "/root/.ssh/id_rsa"):
            result = client.call("read_text_file", path=path)
            assert result["isError"] and "not for the server" not in json.dumps(result)


def test_a_caged_server_has_the_variables_it_was_given(modules, wrapped):
    with Client(modules, "v1", "stdio", *wrapped("server-everything", "stdio", options=["--env", "NAME=ada"])) as client:
        text = client.call("get-env")["content"][0]["text"]
        assert json.loads(text)["NAME"] == "ada"


def test_a_caged_server_ends_with_its_client(wrapped):
    with subprocess.Popen(wrapped("server-everything", "stdio"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        time.sleep(1)
        process.stdin.close()
        process.wait(20 * SLOW)


def test_a_command_is_needed():
    outcome = subprocess.run([HOTCELL, "mcp-wrap"], capture_output=True, text=True, timeout=20, check=False)
    assert outcome.returncode == 2 and "nothing to run" in outcome.stderr
