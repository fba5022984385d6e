"""Language files and SIGHUP: what is added, changed or removed is in force without a restart, and a file with a fault changes nothing."""

import signal

import pytest

from cells import until
from server import start_server  # noqa: F401 (fixture)
from test_operation import said

GREET = """
name = "greet"
title = "Greetings"
aliases = ["hi"]
extensions = [".greet"]
file = "main.greet"
needs = ["/bin/sh"]
[version]
command = ["/bin/echo", "greet 1.2.3"]
pattern = 'greet ([0-9.]+)'
[run]
command = ["/bin/sh", "-c", "echo WORD; cat {entry}"]
"""


def languages(server):
    return {language["name"]: language for language in server.get("/v1/languages").json}


def reload(server):
    before = sum("was read again" in line or "was not taken" in line for line in server.log)
    server.process.send_signal(signal.SIGHUP)
    assert until(lambda: sum("was read again" in line or "was not taken" in line for line in server.log) > before, 10), server.log


@pytest.fixture
def place(start_server, tmp_path):
    """A server with a folder of languages of its own, which is empty."""
    folder = tmp_path / "languages"
    folder.mkdir()
    server = start_server(f"[languages]\npaths = ['{folder}']\n")
    return server, folder / "greet.toml"


def test_a_language_that_is_added_is_there_after_a_reload(place):
    server, file = place
    assert server.run(code="x", language="greet").status == 400
    gateway = server.process_of("hotcell-gateway")
    file.write_text(GREET.replace("WORD", "hello"))
    reload(server)
    assert server.run(code="x", language="hi").json["stdout"] == "hello\nx"
    assert until(lambda: languages(server)["greet"]["version"] == "1.2.3", 10), languages(server)["greet"]
    assert server.run(code="x", language="greet").json["language_version"] == "1.2.3"
    assert server.process_of("hotcell-gateway") == gateway


def test_a_language_that_is_changed_or_removed_is_so_after_a_reload_and_runs_under_way_are_not_troubled(place):
    server, file = place
    file.write_text(GREET.replace("echo WORD;", "echo old; sleep 1;"))
    reload(server)
    run = server.run(code="x", language="greet", **{"async": True}).json["id"]
    assert until(lambda: server.get(f"/v1/runs/{run}").json["status"] == "running", 10)
    file.write_text(GREET.replace("WORD", "new").replace("greet 1.2.3", "greet 4"))
    reload(server)
    assert server.run(code="y", language="greet").json["stdout"] == "new\ny"
    assert until(lambda: languages(server)["greet"]["version"] == "4", 10), languages(server)["greet"]
    file.unlink()
    reload(server)
    assert server.run(code="x", language="greet").status == 400 and "greet" not in languages(server)
    assert until(lambda: "success" in server.get(f"/v1/runs/{run}").json, 10)
    assert server.get(f"/v1/runs/{run}").json["stdout"] == "old\nx"


def test_a_language_file_with_a_fault_leaves_everything_as_it_was(place):
    server, file = place
    file.write_text(GREET.replace("WORD", "hello"))
    reload(server)
    file.write_text(GREET.replace("aliases", "alias"))
    reload(server)
    line = said(server, "was not taken")
    assert str(file) in line and "alias" in line, line
    assert server.run(code="x", language="greet").json["stdout"] == "hello\nx"
    assert server.run(code="print(1)").json["stdout"] == "1\n"


def test_versions_stay_while_they_are_asked_for_again(place):
    server, _ = place
    assert until(lambda: languages(server)["python"]["version"], 20)
    for _ in range(5):
        reload(server)
        assert languages(server)["python"]["version"], "it was known a moment ago"


def test_every_language_that_is_installed_has_a_version(place):
    server, _ = place
    known = until(lambda: all(language["version"] for language in languages(server).values() if language["available"]), 30)
    assert known, {name: language["version"] for name, language in languages(server).items() if language["available"]}
