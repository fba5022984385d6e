"""`hotcell config`: what is in force, where it came from, and what is said about a file that is wrong."""

import os

import pytest


@pytest.fixture
def machine(tmp_path):
    """A machine with no configuration yet, and the environment that points hotcell at it."""

    class Machine:
        system, user, extra = tmp_path / "etc" / "config.toml", tmp_path / "home" / "hotcell" / "config.toml", tmp_path / "extra.toml"
        env = {"HOTCELL_SYSCONFDIR": str(tmp_path / "etc"), "XDG_CONFIG_HOME": str(tmp_path / "home")}

    for path in (Machine.system, Machine.user):
        path.parent.mkdir(parents=True)
    return Machine


def settings(hotcell, machine, *arguments, env=None):
    outcome = hotcell("config", "--json", *arguments, env={**machine.env, **(env or {})})
    assert outcome.returncode == 0, outcome
    return {row["key"]: row for row in outcome.json}


def refusal(hotcell, machine, text):
    machine.extra.write_text(text)
    outcome = hotcell("config", "--config", machine.extra, env=machine.env)
    assert outcome.returncode == 2, outcome
    assert outcome.stdout == ""
    return outcome.stderr


def test_defaults_are_those_of_the_manual(hotcell, machine):
    rows = settings(hotcell, machine)
    wanted = {"limits.memory": "512 MiB", "limits.cpus": 1, "limits.pids": 100, "limits.timeout": "30 s", "limits.output": "1 MiB",
              "limits.disk": "100 MiB", "sandbox.network_enabled": False, "sandbox.read_only": True, "sandbox.image": "host",
              "sandbox.work_dir": "/workspace", "languages.default": "python", "isolation.allow_weak": False, "mounts.allowed_read_paths": []}
    assert {key: rows[key]["value"] for key in wanted} == wanted
    assert rows.pop("client.local_server")["default"] is True, "which the tests turn off"
    assert {row["origin"] for row in rows.values()} == {"default"}
    assert all(row["value"] == row["default"] and row["summary"] for row in rows.values())


def test_each_value_says_where_it_came_from(hotcell, machine):
    machine.system.write_text("[limits]\nmemory = '1g'\npids = 10\ntimeout = 5\n")
    machine.user.write_text("[limits]\npids = 20\ntimeout = 6\n")
    machine.extra.write_text("# mine\n[sandbox]\ntimeout = 7\n")
    rows = settings(hotcell, machine, "--config", machine.extra, env={"HOTCELL_LIMITS_CPUS": "0.5"})
    assert [(rows[key]["value"], rows[key]["origin"]) for key in ("limits.memory", "limits.pids", "limits.timeout", "limits.cpus")] == [
        ("1 GiB", f"{machine.system}:2"), (20, f"{machine.user}:2"), ("7 s", f"{machine.extra}:3"), (0.5, "HOTCELL_LIMITS_CPUS")]


def test_a_default_that_a_ceiling_cuts_is_shown_as_it_is_in_force(hotcell, machine):
    machine.extra.write_text("[limits]\nmemory = '4g'\npids = 7\n[ceilings]\nmemory = '1g'\ncpu_time = '5s'\npids = 9\n")
    rows = settings(hotcell, machine, "--config", machine.extra)
    assert {key: rows[key]["value"] for key in ("limits.memory", "limits.cpu_time", "limits.pids", "ceilings.memory")} == {
        "limits.memory": "1 GiB", "limits.cpu_time": "5 s", "limits.pids": 7, "ceilings.memory": "1 GiB"}
    assert rows["limits.memory"]["origin"] == f"{machine.extra}:5: ceilings.memory" and rows["limits.pids"]["origin"] == f"{machine.extra}:3"


def test_the_table_for_people_has_every_key(hotcell, machine):
    machine.user.write_text("[limits]\npids = 23\n")
    outcome = hotcell("config", env=machine.env)
    assert outcome.returncode == 0, outcome
    for key in settings(hotcell, machine):
        assert key in outcome.stdout
    assert "23" in outcome.stdout and str(machine.user) in outcome.stdout


@pytest.mark.parametrize("text, line, said", [
    ("[limits]\nmemory = true\n", 2, 'expected a number of bytes or a string such as "512m", found true'),
    ("[limits]\n\nmemroy = '1g'\n", 3, "did you mean 'memory'?"),
    ("[limit]\nmemory = '1g'\n", 1, "did you mean [limits]?"),
    ("timeout = 3\n", 1, "outside of any section"),
    ("[limits]\nmemory = 512m\n", 2, "a string needs quotes"),
    ("[limits]\npids = 10\n[limits]\n", 3, "already defined"),
    ("[limits]\ntimeout = -1\n", 2, "timeout"),
    ("[mounts]\nallowed_read_paths = ['relative']\n", 2, "expected an absolute path"),
    ("[sandbox]\nwork_dir = '/etc'\n", 2, "the cell's own"),
])
def test_a_mistake_is_named_with_file_and_line(hotcell, machine, text, line, said):
    stderr = refusal(hotcell, machine, text)
    assert f"{machine.extra}:{line}:" in stderr
    assert said in stderr


def test_every_verb_refuses_a_wrong_file(hotcell, machine):
    machine.user.write_text("[limits]\npids = 'many'\n")
    for words in (["config"], ["doctor"], ["languages"], ["run", "-c", "print(1)"]):
        outcome = hotcell(*words, env=machine.env)
        assert outcome.returncode == 2 and f"{machine.user}:2:" in outcome.stderr, outcome
        assert outcome.stdout == ""


def test_a_named_file_that_is_missing_is_an_error(hotcell, machine):
    outcome = hotcell("config", "--config", machine.extra, env=machine.env)
    assert outcome.returncode == 2 and str(machine.extra) in outcome.stderr, outcome


@pytest.mark.skipif(os.geteuid() != 0, reason="root's own rule")
def test_root_takes_nothing_from_a_file_that_others_can_write(hotcell, machine):
    machine.user.write_text("[isolation]\nallow_weak = true\n")
    assert settings(hotcell, machine)["isolation.allow_weak"]["value"] is True
    machine.user.chmod(0o666)
    outcome = hotcell("config", env=machine.env)
    assert outcome.returncode == 2 and f"chmod go-w {machine.user}" in outcome.stderr, outcome
    machine.user.chmod(0o644)
    os.chown(machine.user, 12345, 12345)
    outcome = hotcell("config", env=machine.env)
    assert outcome.returncode == 2 and f"chown root:root {machine.user}" in outcome.stderr, outcome


def test_configured_limits_are_in_force(hotcell, machine):
    weak = "[isolation]\nallow_weak = true\n"
    machine.user.write_text(weak + "[limits]\ntimeout = 0.5\n[languages]\ndefault = 'bash'\n")
    outcome = hotcell("run", "--json", "-c", "sleep 20", env=machine.env)
    assert outcome.returncode == 124 and outcome.json["status"] == "timeout", outcome
    outcome = hotcell("run", "--timeout", "20", "-c", "sleep 1; echo $0 done", env=machine.env)
    assert outcome.returncode == 0 and outcome.stdout.endswith("done\n"), outcome


def test_a_request_over_a_ceiling_is_refused(hotcell, machine):
    machine.user.write_text("[isolation]\nallow_weak = true\n[ceilings]\nmemory = '256m'\n")
    outcome = hotcell("run", "--memory", "257m", "--", "/bin/true", env=machine.env)
    assert outcome.returncode == 2 and "256 MiB" in outcome.stderr and "ceilings.memory" in outcome.stderr, outcome
    outcome = hotcell("run", "--memory", "256m", "--", "/bin/true", env=machine.env)
    assert outcome.returncode == 0, outcome


def test_a_fault_in_a_file_is_not_blamed_on_an_option(hotcell, machine):
    machine.extra.write_text("[limits]\nmemroy = '5m'\n")
    for verb in (["config"], ["run", "-c", "1"]):
        outcome = hotcell(*verb[:1], "--config", machine.extra, *verb[1:], env=machine.env)
        assert outcome.returncode == 2 and f"{machine.extra}:2: unknown key 'memroy'" in outcome.stderr, outcome
        assert "--mem" not in outcome.stderr, outcome
    outcome = hotcell("run", "--memory", "5q", "-c", "1", env=machine.env)
    assert 'hotcell: --memory: "5q" is not a size' in outcome.stderr, outcome


@pytest.mark.parametrize("text, words", [
    ("[sandbox]\nnetwork_enabled = true\n", ["sandbox.network_enabled", "set network_enabled = false"]),
    ("[sandbox]\nimage = 'python:3.12-slim'\n", ["sandbox.image", "python:3.12-slim", 'use "host"']),
    ("[languages]\ndefault = 'pyhton'\n", ["languages.default", 'did you mean "python"?']),
    ("[languages]\npaths = ['/none']\n", ["languages.paths", "/none does not exist"]),
])
def test_a_value_that_no_run_can_have_is_named_with_file_and_line(hotcell, machine, text, words):
    machine.extra.write_text(text)
    outcome = hotcell("run", "--config", machine.extra, "-c", "print(1)", env=machine.env)
    assert outcome.returncode == 2 and outcome.stdout == "", outcome
    for word in [f"{machine.extra}:2: ", *words]:
        assert word in outcome.stderr, outcome
