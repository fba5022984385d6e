"""What the command line says about itself: help, the manual, completions, the verbs with tables, and the answer to a mistake.

Nothing here starts a cell.
"""

import json
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import time

import pytest
from cells import HOTCELL, SLOW, SOURCE

VERBS = ["run", "sandbox", "shell", "cp", "volume", "serve", "mcp", "mcp-wrap", "tools", "languages", "doctor", "config", "history", "show", "cancel", "stats", "key", "audit", "version", "help"]
ACTS = ["sandbox create", "sandbox list", "sandbox inspect", "sandbox exec", "sandbox cp", "sandbox logs", "sandbox pause", "sandbox resume",
        "sandbox rm", "volume create", "volume list", "volume remove"]
ENVIRONMENT = {**os.environ, "PATH": os.path.dirname(HOTCELL) + ":" + os.environ["PATH"]}


def hotcell(*words, **options):
    return subprocess.run([HOTCELL, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60 * SLOW, check=False,
                          **options)


def options_of(verb):
    """Every option that the help of a verb lists, with both of its names."""
    text = hotcell("help", *verb.split()).stdout
    found = re.findall(r"^  (?:(-\w), |    )(--[a-z-]+)", text, re.MULTILINE)
    assert found, text
    return sorted({name for pair in found for name in pair if name})


# ---- help ----

@pytest.mark.parametrize("verb", VERBS)
def test_no_line_of_a_help_text_breaks_off_before_its_paragraph_ends(verb):
    text = hotcell("help", verb).stdout
    about = text.partition("\n\n")[2].partition("\nWhat")[0].partition("\nOptions")[0]
    for paragraph in about.split("\n\n"):
        lines = paragraph.splitlines()
        for line, following in zip(lines, lines[1:]):
            assert line.startswith("  ") or following.startswith(" ") or len(line) + 1 + len(following.split()[0]) > 100, text


def test_hotcell_alone_prints_short_help_and_fails():
    done = hotcell()
    assert (done.returncode, done.stdout) == (2, "")
    assert all(f"hotcell {verb}" in done.stderr for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS + ACTS)
def test_help_of_every_verb_has_usage_options_and_examples(verb):
    done = hotcell("help", *verb.split())
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: hotcell {verb}")
    assert re.search(r"\nExamples:\n  (id=\$\()?hotcell ", done.stdout)
    assert "--help" in options_of(verb)
    assert hotcell(*verb.split(), "--help").stdout == hotcell(*verb.split(), "-h").stdout == done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 120


def test_help_lists_every_option_that_the_issue_of_a_run_needs():
    assert set(options_of("run")) >= {
        "-c", "-l", "-q", "-v", "-h", "--timeout", "--cpu-time", "--memory", "--swap", "--cpus", "--cpu-shares", "--pids", "--output",
        "--disk", "--inodes", "--files-open", "--env", "--file", "--mount", "--collect", "--collect-to", "--force", "--json",
        "--read-only", "--network", "--image", "--stdin", "--entry", "--allow-weak", "--config", "--quiet", "--request", "--shell", "--local"}


def test_common_words_for_help_and_version():
    assert hotcell("--help").stdout == hotcell("-h").stdout == hotcell("help").stdout
    assert hotcell("--version").stdout == hotcell("-V").stdout == hotcell("version").stdout


def test_defaults_in_the_help_are_those_in_force(tmp_path):
    """The help is text; the configuration is what counts."""
    done = hotcell("config", "--json", env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path)})
    settings = {setting["key"]: setting["default"] for setting in json.loads(done.stdout)}
    text = " ".join(hotcell("help", "run").stdout.split())

    def number(value):
        match = re.fullmatch(r"([\d.]+) ?([kmg]?)(?:ib|b|s|bytes)?", str(value).strip().lower())
        assert match, value
        return float(match[1]) * {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}[match[2]]

    checked = 0
    for option, default in re.findall(r"--([a-z-]+) (?:SIZE|TIME|NUMBER) [^()]*\(default ([\d.]+[a-z]*)\)", text):
        assert number(settings["limits." + option.replace("-", "_")]) == number(default), option
        checked += 1
    assert checked == 10


# ---- the manual ----

MANUAL = SOURCE / "docs" / "hotcell.1"


def test_manual_has_no_fault_that_mandoc_finds():
    if not shutil.which("mandoc"):
        pytest.skip("mandoc is not installed")
    done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", MANUAL], capture_output=True, text=True, check=False)
    assert [line for line in (done.stdout + done.stderr).splitlines() if "mandoc.db" not in line] == []


def test_manual_explains_every_option_of_every_verb():
    text = MANUAL.read_text()
    for verb in VERBS + ACTS:
        if verb in VERBS:
            assert re.search(rf"^\.It Cm {verb}$", text, re.MULTILINE), verb
        else:
            assert re.search(rf"Cm {verb}\b", text), verb
        for option in options_of(verb):
            assert re.search(rf"Fl {re.escape(option[1:])}(?![\w-])", text), option


def test_manual_and_help_have_the_same_exit_codes():
    text = MANUAL.read_text()
    for code in ("124", "125", "126", "127"):
        assert f".It {code}\n" in text and code in hotcell("help", "run").stdout


# ---- completions ----

COMPLETIONS = SOURCE / "packaging" / "completions"


@pytest.mark.parametrize("name", ["hotcell.bash", "_hotcell"])
def test_completions_know_every_option(name):
    text = (COMPLETIONS / name).read_text()
    for verb in VERBS + ACTS:
        assert re.search(rf"\b{verb}\b", text) or verb.startswith("volume "), verb
        for option in options_of(verb):
            assert re.search(rf"(?<![\w-]){re.escape(option)}(?!-?\w)", text), option


def test_fish_completions_know_every_option():
    text = (COMPLETIONS / "hotcell.fish").read_text()
    for verb in VERBS + ACTS:
        for option in options_of(verb):
            if verb == "sandbox create" and f" {option[2:]} " in re.search(r"^for limit in (.*)$", text, re.MULTILINE)[0] + " ":
                continue
            flag = rf"-l {option[2:]}" if option.startswith("--") else rf"-s {option[1:]}"
            assert re.search(rf"{re.escape(flag)}(?![\w-])", text), option


def bash(*words):
    script = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _hotcell; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", script, "bash", COMPLETIONS / "hotcell.bash", *words], capture_output=True, text=True,
                          env=ENVIRONMENT, check=False)
    assert done.stderr == ""
    return done.stdout.split()


def fish(line):
    script = f"source {COMPLETIONS / 'hotcell.fish'}; complete -C '{line}'"
    done = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.stderr == ""
    return [row.split("\t")[0] for row in done.stdout.splitlines()]


def test_bash_completes(tmp_path, monkeypatch):
    if not shutil.which("bash"):
        pytest.skip("bash is not installed")
    monkeypatch.chdir(tmp_path)
    pathlib.Path("job.py").touch()
    assert bash("hotcell", "d") == ["doctor"]
    assert set(bash("hotcell", "run", "--cpu")) == {"--cpu-time", "--cpus", "--cpu-shares"}
    assert "python" in bash("hotcell", "run", "-l", "py")
    assert bash("hotcell", "run", "--memory", "64m", "jo") == ["job.py"]
    assert bash("hotcell", "run", "job.py", "--me") == [], "options end at the first operand"
    assert "--names" in bash("hotcell", "languages", "--")
    assert "true" in bash("hotcell", "run", "--", "tru")
    assert bash("hotcell", "key", "cr") == ["create"]
    assert bash("hotcell", "sandbox", "in") == ["inspect"]
    assert bash("hotcell", "sandbox", "create", "--idle") == ["--idle-timeout"]
    assert bash("hotcell", "cp", "jo") == ["job.py"]
    assert bash("hotcell", "volume", "create", "--si") == ["--size"]
    assert bash("hotcell", "history", "--status", "time") == ["timeout"]
    assert bash("hotcell", "--server", "http://x:1", "hist") == ["history"]
    assert "--memory" in bash("hotcell", "--server", "http://x:1", "run", "--mem")


def test_fish_completes():
    if not shutil.which("fish"):
        pytest.skip("fish is not installed")
    assert "doctor" in fish("hotcell d")
    assert set(fish("hotcell run --cpu")) == {"--cpu-time", "--cpus", "--cpu-shares"}
    assert "python" in fish("hotcell run -l py")
    assert fish("hotcell sandbox ins") == ["inspect"]
    assert fish("hotcell sandbox create --idle") == ["--idle-timeout"]
    assert "--follow" in fish("hotcell sandbox logs --fo")


def zsh(keys, want):
    """Type keys at a zsh on a terminal, as a person does, until it shows what is wanted; what it has shown."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(ENVIRONMENT, TERM="dumb", PS1="> ")
        os.execvp("zsh", ["zsh", "-f", "-i"])
    setup = f"fpath=({COMPLETIONS} $fpath); autoload -U compinit; compinit -u -D; LISTMAX=0; echo rea''dy\n"
    os.write(terminal, setup.encode())
    shown, sent, deadline = b"", False, time.monotonic() + 20 * SLOW
    while time.monotonic() < deadline and want not in shown:
        if select.select([terminal], [], [], 0.2)[0]:
            shown += os.read(terminal, 65536)
        if b"ready\r\n" in shown and not sent:
            os.write(terminal, keys)
            sent, shown = True, b""
    os.write(terminal, b"\x03exit\n")
    os.close(terminal)
    os.waitpid(pid, 0)
    return shown


@pytest.mark.parametrize("keys, want", [(b"hotcell doc\t", b"doctor"), (b"hotcell run --memo\t", b"--memory"),
                                        (b"hotcell run -l pyth\t", b"python"),
                                        (b"hotcell sandbox insp\t", b"inspect"), (b"hotcell sandbox create --idle\t", b"--idle-timeout"), (b"hotcell languages --na\t", b"--names")])
def test_zsh_completes(keys, want):
    if not shutil.which("zsh"):
        pytest.skip("zsh is not installed")
    assert want in zsh(keys, want)


# ---- verbs with tables ----

def test_version():
    done = hotcell("version")
    assert re.fullmatch(r"hotcell \d+\.\d+\.\d+\n", done.stdout)
    assert json.loads(hotcell("version", "--json").stdout) == {"version": done.stdout.split()[1]}


def test_languages_as_table_names_and_json():
    languages = json.loads(hotcell("languages", "--json").stdout)
    names = [language["name"] for language in languages]
    assert set(names) >= {"python", "javascript", "typescript", "bash", "sh", "ruby", "go", "c", "cpp", "rust", "java", "php", "perl",
                          "lua", "r"}
    assert hotcell("languages", "--names").stdout.split() == names
    rows = hotcell("languages").stdout.splitlines()
    assert len(rows) == len(names) + 1
    for language, row in zip(languages, rows[1:]):
        assert row.split()[0] == language["name"]
        assert (language["version"] if language["available"] else f"not installed: apt install {language['package']}") in row
        assert row == row.rstrip()


def test_readme_lists_the_languages_that_there_are():
    rows = re.findall(r"^\| (\S+) \| ([^|]+) \| ([^|]+) \| (\S+) \|$", (SOURCE / "README.md").read_text(), re.MULTILINE)
    listed = {name: (package, set(aliases.split(", ")), re.findall(r"(?<!\S)\.\S+", files)) for name, aliases, files, package in rows}
    languages = json.loads(hotcell("languages", "--json").stdout)
    built_in = [language for language in languages if (SOURCE / "languages" / f"{language['name']}.toml").exists()]
    assert len(built_in) >= 15
    by_file = {}
    for language in built_in:
        package, aliases, files = listed[language["name"]]
        assert package == language["package"] and aliases <= set(language["aliases"]), language
        assert all(by_file.setdefault(file, language["name"]) == language["name"] for file in files), "one of two has it, not both"
        known = re.search(r"^extensions = \[(.*)\]", (SOURCE / "languages" / f"{language['name']}.toml").read_text(), re.MULTILINE)[1]
        assert all(f'"{file}"' in known for file in files), (files, known)
        assert by_file.get(language["extension"]) is not None, language


def test_missing_language_names_its_package(tmp_path):
    folder = tmp_path / "languages"
    folder.mkdir()
    (folder / "klingon.toml").write_text(
        'name = "klingon"\ntitle = "Klingon"\nextensions = [".kl"]\nfile = "main.kl"\npackage = "qapla"\n'
        'needs = ["/usr/bin/no-such-klingon"]\n[run]\ncommand = ["/usr/bin/no-such-klingon", "{entry}"]\n')
    config = tmp_path / "config.toml"
    config.write_text(f'[languages]\npaths = ["{folder}"]\n')
    done = hotcell("languages", "--config", str(config))
    assert re.search(r"^klingon .* not installed: apt install qapla$", done.stdout, re.MULTILINE), done


def test_doctor_as_table_and_json():
    done = hotcell("doctor", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == {"full": 0, "weak": 1, "none": 3}[report["level"]]
    table = hotcell("doctor")
    assert table.returncode == done.returncode
    for check in report["checks"]:
        assert re.search(rf"^{re.escape(check['name'])} +{check['status']}\b", table.stdout, re.MULTILINE), check
        if check["remedy"]:
            assert check["remedy"] in table.stdout
    assert all(check["remedy"] for check in report["checks"] if check["status"] != "ok")


def test_config_shows_value_and_origin(tmp_path):
    config = tmp_path / "mine.toml"
    config.write_text('[limits]\nmemory = "77m"\n')
    done = hotcell("config", "--config", str(config))
    assert re.search(rf"^limits\.memory +\S*77\S* ?\S* .*{re.escape(str(config))}", done.stdout, re.MULTILINE), done.stdout
    settings = {setting["key"]: setting for setting in json.loads(hotcell("config", "--config", str(config), "--json").stdout)}
    assert str(config) in settings["limits.memory"]["origin"]
    assert "mine.toml" not in settings["limits.pids"]["origin"]


def test_mistake_in_a_config_file_names_the_line(tmp_path):
    config = tmp_path / "bad.toml"
    config.write_text('[limits]\nmemory = "77m"\nmemry = 3\n')
    done = hotcell("config", "--config", str(config))
    assert done.returncode == 2 and "bad.toml:3" in done.stderr and "memory" in done.stderr, done


# ---- mistakes ----

MISTAKES = [
    (["rnu"], "rnu", "hotcell run"),
    (["help", "langages"], "langages", "hotcell languages"),
    (["doctor", "--jsn"], "--jsn", "--json"),
    (["doctor", "extra"], "extra", ""),
    (["histroy"], "histroy", "hotcell history"),
    (["history", "--statsu", "x"], "--statsu", "--status"),
    (["history", "--status", "time_out"], "time_out", "timeout"),
    (["history", "--limit", "0"], "--limit", "1"),
    (["history", "extra"], "extra", ""),
    (["show"], "needs the id", "hotcell history"),
    (["show", "a", "b"], "\"b\"", ""),
    (["cancel"], "needs the id", "hotcell history"),
    (["key"], "hotcell key", "key create NAME"),
    (["key", "crate", "x"], "crate", "hotcell key create"),
    (["key", "create"], "NAME", ""),
    (["key", "list", "x"], "\"x\"", ""),
    (["key", "create", "x", "--concurrent", "many"], "--concurrent", "many"),
    (["audit", "verfy"], "verfy", "hotcell audit verify"),
    (["audit"], "hotcell audit", "audit verify"),
    (["--server", "http://x:1", "doctor"], "--server", "this machine"),
    (["--server"], "--server needs a value", ""),
    (["--server", "localhost:7600", "run", "-c", "1"], "localhost:7600", "http://127.0.0.1:7600"),
    (["run", "--server", "ftp://x", "-c", "1"], "ftp://x", "http://"),
    (["history", "--server", "http://x:1", "--state", "/tmp"], "--state", "--server"),
    (["run", "--server", "http://x:1", "--allow-weak", "-c", "1"], "--allow-weak", ""),
    (["run", "--server", "http://x:1", "--key-file", "no-such-key", "-c", "1"], "no-such-key", ""),
    (["run", "--memry", "64m", "x.py"], "--memry", "--memory"),
    (["run", "-memory", "64m", "x.py"], "-m", "--memory"),
    (["run", "--colect", "x"], "--colect", "--collect"),
    (["run", "--timeout"], "--timeout needs a value", ""),
    (["run", "--json=1", "-c", "x"], "--json takes no value", ""),
    (["run"], "nothing to run", "-c CODE"),
    (["run", "-c", "1", "--shell", "2"], "two programs", ""),
    (["run", "-l", "python", "--", "echo"], "is a command", ""),
    (["run", "jbo.py"], "jbo.py", "job.py"),
    (["run", "sub/jbo.py"], "sub/jbo.py", "sub/job.py"),
    (["run", "sh"], "no file sh", "hotcell run -- sh"),
    (["run", "sub"], "sub is a folder", "--entry"),
    (["run", "--file", "dat.csv", "job.py"], "dat.csv", "data.csv"),
    (["run", "--file", "data.csv:../x", "job.py"], "../x", ""),
    (["run", "--stdin", "dat.csv", "job.py"], "dat.csv", "data.csv"),
    (["run", "--request", "reqest.json"], "reqest.json", "request.json"),
    (["run", "--request", "request.json"], "cod", "code"),
    (["run", "--env", "HOTCELL_UNSET_HERE", "-c", "1"], "HOTCELL_UNSET_HERE", "HOTCELL_UNSET_HERE=VALUE"),
    (["run", "--env", "=x", "-c", "1"], "env", ""),
    (["run", "--mount", "/data", "-c", "1"], "/data", "HOST:PATH"),
    (["run", "--mount", "/data:/data:rx", "-c", "1"], "rx", "/data:/data:ro"),
    (["run", "--read-only=maybe", "-c", "1"], "maybe", "true or false"),
    (["run", "--memory", "64q", "-c", "1"], "64q", "--memory"),
    (["run", "--memory", "-5", "-c", "1"], "-5", "--memory"),
    (["run", "--cpu-time", "soon", "-c", "1"], "soon", "--cpu-time"),
    (["run", "--pids", "many", "-c", "1"], "many", "--pids"),
    (["run", "-l", "pyhton", "-c", "1"], "pyhton", "python"),
    (["run", "-l", "klingon", "-c", "1"], "klingon", ""),
    (["run", "notes.xyz"], "notes.xyz", "-l"),
    (["run", "--network", "open", "-c", "1"], "open", "none"),
    (["run", "--image", "hsot", "-c", "1"], "hsot", "host"),
    (["run", "--config", "no-such.toml", "-c", "1"], "no-such.toml", ""),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("sub").mkdir()
    for name in ("job.py", "data.csv", "sub/job.py", "notes.xyz"):
        pathlib.Path(name).write_text("print(1)")
    pathlib.Path("request.json").write_text('{"cod": "print(1)"}')
    return tmp_path


@pytest.mark.parametrize("words, names, suggests", MISTAKES, ids=[" ".join(mistake[0]) or "-" for mistake in MISTAKES])
def test_mistake_is_named_and_the_nearest_right_one_suggested(folder, words, names, suggests):
    done = hotcell(*words)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert done.stderr.startswith("hotcell: ")
    assert names in done.stderr and suggests in done.stderr, done
    assert len(done.stderr.splitlines()) <= 2


@pytest.mark.parametrize("words", [["--memry", "1"], ["--memory", "64q", "-c", "1"], ["-l", "pyhton", "-c", "1"], ["nofile.py"], []])
def test_mistake_in_json(folder, words):
    done = hotcell("run", "--json", *words)
    assert (done.returncode, done.stderr) == (2, ""), done
    error = json.loads(done.stdout)["error"]
    assert sorted(error) == ["code", "field", "message", "remedy"]
    assert error["code"] == "invalid_request" and error["message"]


def test_bytes_that_are_no_text_make_valid_json():
    done = subprocess.run([HOTCELL, "run", "--json", b"no\xff\x1bfile"], capture_output=True, check=False)
    assert "no\ufffd\x1bfile" in json.loads(done.stdout)["error"]["message"]
    done = subprocess.run([HOTCELL, "run", b"no\x1b[31mfile"], capture_output=True, check=False)
    assert b"\x1b" not in done.stderr


def test_closed_stdout_of_a_table():
    with open("/dev/full", "wb") as full:
        done = subprocess.run([HOTCELL, "help", "run"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 125 and b"cannot write to stdout" in done.stderr
