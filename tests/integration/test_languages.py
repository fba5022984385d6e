"""Every language does what its users expect: programs.py has the programs, this file says what must come of them.

A language that is not installed makes its tests fail: `make test` installs them all.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tomllib

import pytest
from cells import HOTCELL
from programs import PROGRAMS

SLOW = float(os.environ.get("HOTCELL_SLOW", "1"))
FOLDER = pathlib.Path(__file__).resolve().parents[2] / "languages"
DEFINITIONS = {path.stem: tomllib.loads(path.read_text()) for path in sorted(FOLDER.glob("*.toml"))}
COMPILED = [name for name, definition in DEFINITIONS.items() if "compile" in definition]
MIB = 1 << 20

every_language = pytest.mark.parametrize("language", PROGRAMS)
every_compiled_language = pytest.mark.parametrize("language", COMPILED)


@pytest.fixture
def run(hotcell):
    """A result of `hotcell run --json`, for code given as text."""

    def call(language, code, *arguments, options=(), **rest):
        return hotcell("run", "--json", *options, "-l", language, "-c", code, *arguments, **rest).json

    return call


@pytest.fixture
def own_languages(tmp_path):
    """A user's folder of languages: (put one in, the environment that makes hotcell see it)."""
    folder = tmp_path / "config" / "hotcell" / "languages"
    folder.mkdir(parents=True)

    def put(name, text):
        (folder / f"{name}.toml").write_text(text)
        return {"XDG_CONFIG_HOME": str(tmp_path / "config")}

    return put


def toy(run, compile="", needs="/bin/sh", name="toy"):
    return (f'name = "{name}"\ntitle = "Toy"\naliases = ["plaything"]\nextensions = [".toy"]\nfile = "main.toy"\npackage = "toybox-dev"\n'
            f'needs = ["{needs}"]\n[version]\ncommand = ["/bin/echo", "toy 4.2"]\npattern = "toy (.*)"\n{compile}\n[run]\n{run}\n')


def plant(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_every_definition_has_its_programs():
    assert sorted(PROGRAMS) == sorted(DEFINITIONS)
    assert len(PROGRAMS) == 15


# ---- what every language can ----

@every_language
def test_hello_is_all_that_is_said(hotcell, language):
    seen = hotcell("run", "-l", language, "-c", PROGRAMS[language].hello)
    assert (seen.returncode, seen.stdout, seen.stderr) == (0, "hello\n", ""), seen


@every_language
def test_stdin_reaches_the_program(hotcell, language):
    seen = hotcell("run", "-l", language, "-c", PROGRAMS[language].stdin, stdin="some words\n")
    assert (seen.returncode, seen.stdout) == (0, "SOME WORDS\n"), seen


@every_language
def test_arguments_arrive_as_they_are(run, language):
    result = run(language, PROGRAMS[language].args, "a b", "*", "-x", "@y", "$HOME")
    assert result["stdout"].strip() == "[a b] [*] [-x] [@y] [$HOME]", result
    assert (result["status"], result["language"]) == ("completed", language)
    assert re.match(r"\d+(\.\d+)+", result["language_version"]), result


@every_language
def test_several_files_find_each_other_and_nothing_is_added(hotcell, language, tmp_path):
    files = PROGRAMS[language].several
    plant(tmp_path, files)
    result = hotcell("run", "--json", "-l", language, "--file", ".", "--collect", "**", "--entry", next(iter(files)), cwd=tmp_path).json
    assert (result["status"], result["stdout"]) == ("completed", "42\n"), result
    assert sorted(file["path"] for file in result["files"] if file["type"] == "file") == sorted(files)


@every_language
def test_exit_code_is_the_programs(hotcell, language):
    seen = hotcell("run", "-l", language, "-c", PROGRAMS[language].exit)
    assert seen.returncode == 7, seen


@every_language
def test_a_runtime_error_names_file_and_line(hotcell, language):
    programs = PROGRAMS[language]
    seen = hotcell("run", "--json", "-l", language, "-c", programs.error)
    result = seen.json
    assert result["status"] == "error" and not result["success"], result
    assert result["exit_code"] == seen.returncode != 0
    assert seen.returncode == 128 + programs.signal if programs.signal else seen.returncode < 128 or seen.returncode == 255
    for text in programs.expect:
        assert text in result["stderr"], result["stderr"]
    assert "/.hotcell/" not in result["stderr"].split("Module._compile")[0]


# ---- compiled languages ----

@every_compiled_language
def test_a_compile_error_is_told_apart(hotcell, language):
    programs = PROGRAMS[language]
    seen = hotcell("run", "--json", "-l", language, "-c", programs.broken)
    result = seen.json
    assert result["status"] == "compile_error" and not result["success"], result
    assert seen.returncode == result["exit_code"] != 0
    assert programs.broken_expect in result["stderr"], result["stderr"]
    assert result["stdout"] == ""
    assert [stage["name"] for stage in result["stages"]] == ["compile"]


@pytest.mark.parametrize("language", ["c", "typescript"])
def test_a_compile_error_is_seen_by_people(hotcell, language):
    seen = hotcell("run", "-l", language, "-c", PROGRAMS[language].broken)
    assert seen.returncode != 0 and seen.stdout == "", seen
    assert PROGRAMS[language].broken_expect in seen.stderr


@every_compiled_language
def test_stages_have_limits_and_usage_of_their_own(run, language):
    result = run(language, PROGRAMS[language].hello, options=["--memory", "200m", "--timeout", "9", "--pids", "50"])
    compile, program = result["stages"]
    assert (compile["name"], program["name"]) == ("compile", "run")
    assert compile["limits"]["memory"] == 1024 * MIB and program["limits"]["memory"] == 200 * MIB
    assert compile["limits"]["timeout"] >= 30 and program["limits"]["timeout"] == 9
    for stage in compile, program:
        assert (stage["status"], stage["exit_code"]) == ("completed", 0)
        assert stage["usage"]["wall_ms"] > 0 and stage["usage"]["memory_peak"] > 0, stage
    assert compile["usage"]["cpu_ms"] > program["usage"]["cpu_ms"]
    # The whole standard library of Go takes half a minute; a program takes a second.
    assert compile["usage"]["cpu_ms"] < 10_000 * SLOW


def test_a_compiler_that_takes_too_long_is_stopped_by_its_own_limit(hotcell, own_languages):
    env = own_languages("toy", toy('command = ["/bin/echo", "ran"]', '[compile]\ncommand = ["/bin/sleep", "20"]\ntimeout = "500ms"'))
    result = hotcell("run", "--json", "--timeout", "15", "-l", "toy", "-c", "x", env=env).json
    assert (result["status"], result["exit_code"], result["stdout"]) == ("timeout", 124, ""), result
    assert [(stage["name"], stage["status"]) for stage in result["stages"]] == [("compile", "timeout")]
    assert 400 <= result["stages"][0]["usage"]["wall_ms"] < 5000 * SLOW


def test_a_compiler_that_takes_too_much_memory_is_stopped_by_its_own_limit(hotcell, own_languages):
    env = own_languages("toy", toy('command = ["/bin/echo", "ran"]',
                                   '[compile]\ncommand = ["/usr/bin/python3", "-c", "x = bytearray(200 << 20)"]\nmemory = "50m"'))
    result = hotcell("run", "--json", "--memory", "400m", "-l", "toy", "-c", "x", env=env).json
    assert result["status"] == "oom" and result["stages"][0]["status"] == "oom", result
    assert len(result["stages"]) == 1


def test_go_compiles_only_the_program(hotcell, own_languages):
    """go's own log of what it runs, from a copy of the definition that keeps it: one package is compiled, however much is imported."""
    text = (FOLDER / "go.toml").read_text()
    text, count = re.subn(r"exec go build (-o .*)", r"exec go build -x \1 2>/tmp/.hotcell/log", text)
    assert count == 1
    env = own_languages("go", text.replace('command = ["{out}"]', 'command = ["/bin/cat", "/tmp/.hotcell/log"]'))
    code = 'package main\nimport ("encoding/json"; "fmt"; "net/http"; "os/user")\n' \
           'func main() { fmt.Println(json.Valid(nil), http.StatusOK); user.Current() }'
    result = hotcell("run", "--json", "-l", "go", "-c", code, env=env).json
    assert result["status"] == "completed", result
    assert re.findall(r"/compile .* -p (\S+)", result["stdout"]) == ["main"], result["stdout"]


# ---- names ----

@pytest.mark.parametrize("name, language", [("py", "python"), ("Python3", "python"), (" PYTHON ", "python"), ("js", "javascript"), ("Node", "javascript"),
                                            ("ts", "typescript"), ("C++", "cpp"), ("golang", "go"), ("rb", "ruby"), ("R", "r"), ("shell", "bash")])
def test_aliases_case_and_spaces_do_not_matter(run, name, language):
    assert run(name, PROGRAMS[language].hello)["language"] == language


@pytest.mark.parametrize("file, language", [("job.py", "python"), ("JOB.PY", "python"), ("job.mjs", "javascript"), ("job.rb", "ruby"), ("job.sh", "bash"),
                                            ("job.C", "cpp"), ("job.c", "c"), ("deep/er/job.lua", "lua"), ("job.r", "r"), ("job.ts", "typescript")])
def test_a_file_is_known_by_its_extension(hotcell, tmp_path, file, language):
    plant(tmp_path, {file: PROGRAMS[language].hello})
    result = hotcell("run", "--json", file, cwd=tmp_path).json
    assert (result["language"], result["stdout"]) == (language, "hello\n"), result


def test_an_unknown_language_is_refused_with_a_suggestion(hotcell):
    seen = hotcell("run", "-l", "pyhton", "-c", "1")
    assert seen.returncode not in (0, 1), seen
    assert "pyhton" in seen.stderr and 'did you mean "python"?' in seen.stderr and "typescript" in seen.stderr


def test_languages_lists_all_fifteen_as_installed(hotcell):
    listed = hotcell("languages", "--json").json
    listed = listed["languages"] if isinstance(listed, dict) else listed
    found = {one["name"]: one for one in listed}
    assert set(PROGRAMS) <= set(found)
    for name in PROGRAMS:
        one = found[name]
        assert one["available"] and one["package"] == DEFINITIONS[name]["package"], one
        assert re.match(r"\d+(\.\d+)+", one["version"]), one
        assert one["aliases"] == DEFINITIONS[name]["aliases"]
    seen = hotcell("languages")
    assert seen.returncode == 0 and all(name in seen.stdout for name in PROGRAMS), seen


# ---- languages of one's own ----

def test_a_sixteenth_language_is_one_file(hotcell, own_languages, tmp_path):
    env = own_languages("toy", toy('command = ["/usr/bin/rev", "{entry}"]'))
    result = hotcell("run", "--json", "-l", "toy", "-c", "olleh", env=env).json
    assert (result["status"], result["stdout"].strip(), result["language"], result["language_version"]) == ("completed", "hello", "toy", "4.2"), result
    assert hotcell("run", "-l", "Plaything", "-c", "olleh", env=env).stdout.strip() == "hello"
    plant(tmp_path, {"x.toy": "olleh"})
    assert hotcell("run", tmp_path / "x.toy", env=env).stdout.strip() == "hello"
    assert "toy" in hotcell("languages", env=env).stdout


def test_a_sixteenth_language_can_be_configured(hotcell, tmp_path):
    plant(tmp_path, {"mine/toy.toml": toy('command = ["{out}"]', '[compile]\ncommand = ["/bin/cp", "{entry}", "{out}"]'),
                     "config.toml": f'[languages]\npaths = ["{tmp_path}/mine"]\n'})
    (tmp_path / "x.toy").write_text("#!/bin/sh\necho hello \"$@\"\n")
    (tmp_path / "x.toy").chmod(0o755)
    seen = hotcell("run", "--config", tmp_path / "config.toml", tmp_path / "x.toy", "you")
    assert (seen.returncode, seen.stdout) == (0, "hello you\n"), seen


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
def test_what_a_language_looks_up_is_looked_up_by_pid_1_of_its_cell(own_languages, tmp_path):
    """Beside the program, which is not touched by names that are not there, lead out of the cell's own or are the guest's."""
    names = ["/usr/share/no-such-name-of-toy", "/usr/bin/rev", "/workspace/main.toy", "/proc/self/fd/0", "/usr/../usr/lib"]
    env = own_languages("toy", toy(f'command = ["/bin/sh", "-c", "sleep 0.3; exec rev {{entry}}"]\nlookups = {json.dumps(names)}'))
    plant(tmp_path, {"config.toml": f'[isolation]\nallow_weak = true\n[mounts]\nallowed_read_paths = ["{tmp_path}"]\n'})
    trace = tmp_path / "trace"
    for options in ([], ["--read-only=false"], ["--mount", f"{tmp_path}:/data:ro"]):
        seen = subprocess.run(["strace", "-f", "-o", trace, "-e", "trace=execveat,stat,newfstatat", HOTCELL, "run", "--local",
                               "--config", tmp_path / "config.toml", "-l", "toy", *options, "-c", "olleh"],
                              env={**os.environ, **env}, capture_output=True, text=True, timeout=60 * SLOW)
        assert (seen.returncode, seen.stdout.strip()) == (0, "hello"), seen
        lines = trace.read_text().splitlines()
        init = next(line.split()[0] for line in lines if '["hotcell-init"]' in line)
        asked = [line for line in lines if line.split()[0] == init]
        for name in names:
            assert any(f'"{name}"' in line for line in asked), (name, asked)


def test_a_language_file_with_a_mistake_is_refused_with_its_line(hotcell, own_languages):
    env = own_languages("toy", toy('command = ["/bin/cat", "{entry}"]\ntimeout = 3'))
    seen = hotcell("run", "-l", "toy", "-c", "x", env=env)
    assert seen.returncode != 0 and re.search(r'toy\.toml:\d+: unknown key "timeout" in run', seen.stderr), seen


def test_a_missing_language_is_reported_with_its_package(hotcell, own_languages):
    env = own_languages("toy", toy('command = ["/usr/bin/no-such-tool", "{entry}"]', needs="/usr/bin/no-such-tool"))
    seen = hotcell("run", "-l", "toy", "-c", "x", env=env)
    assert seen.returncode not in (0, 1), seen
    assert "toybox-dev" in seen.stderr and "/usr/bin/no-such-tool" in seen.stderr, seen
    listed = hotcell("languages", "--json", env=env).json
    listed = listed["languages"] if isinstance(listed, dict) else listed
    one = next(one for one in listed if one["name"] == "toy")
    assert not one["available"] and one["package"] == "toybox-dev"
    assert "toybox-dev" in hotcell("languages", env=env).stdout


# ---- each language's own ways ----

@pytest.mark.parametrize("language, code", [
    ("python", "print('before')\nwhile True: pass"), ("perl", 'print "before\\n"; while (1) {}'), ("lua", "print('before') while true do end"),
    ("javascript", "console.log('before'); for (;;);"), ("php", '<?php echo "before\\n"; while (true);'), ("bash", "echo before; while :; do :; done"),
    ("r", 'cat("before\\n"); while (TRUE) {}'), ("java", 'public class Main { public static void main(String[] a) { System.out.println("before"); for (;;); } }')])
def test_output_before_a_timeout_is_kept(run, language, code):
    result = run(language, code, options=["--timeout", 3 * SLOW])
    assert (result["status"], result["stdout"]) == ("timeout", "before\n"), result


def test_python_code_does_not_shadow_the_standard_library(run):
    result = run("python", "import code, sys\nprint(code.__file__, sys.path[0], sys.argv[0], __file__)")
    assert result["stdout"].split()[0].startswith("/usr/lib/python3")
    assert result["stdout"].split()[1:] == ["/workspace", "main.py", "/workspace/main.py"]


@pytest.mark.parametrize("file", ["main.js", "main.mjs"])
def test_javascript_modules_are_told_from_scripts(hotcell, tmp_path, file):
    end = file.rpartition(".")[2]
    plant(tmp_path, {file: f"import {{ answer }} from './lib.{end}';\nimport fs from 'node:fs';\nconsole.log(await answer(21), typeof fs.statSync);",
                     f"lib.{end}": "export const answer = async n => n * 2;"})
    result = hotcell("run", "--json", "-l", "js", "--file", ".", "--entry", file, cwd=tmp_path).json
    assert (result["stdout"], result["stderr"]) == ("42 function\n", ""), result


def test_a_javascript_that_only_speaks_of_imports_is_a_script(run):
    code = "const text = `\nimport x from 'y'\n`;\nconsole.log(typeof require('fs').statSync, text.length)"
    assert run("js", code)["stdout"] == "function 19\n"


def test_typescript_knows_node_and_finds_files_beside_the_program(hotcell, tmp_path):
    plant(tmp_path, {"main.ts": "import { readFileSync } from 'node:fs';\nimport path from 'path';\nconst name = 'x';\nenum E { A, B }\n"
                                "const data: Buffer = readFileSync(path.join(__dirname, 'data.txt'));\n"
                                "console.log(data.toString().trim(), name, E.B, process.argv.map(a => a).length, new URL('http://a/b').pathname);",
                     "data.txt": "data\n"})
    result = hotcell("run", "--json", "--file", ".", "--entry", "main.ts", cwd=tmp_path).json
    assert result["stdout"] == "data x 1 2 /b\n", result


def test_typescript_takes_the_strictness_of_a_tsconfig(hotcell, tmp_path):
    plant(tmp_path, {"main.ts": "const found: string = ['a'].find(a => a === 'a');\nconsole.log(found);"})
    strict = hotcell("run", "--json", "--file", ".", "--entry", "main.ts", cwd=tmp_path).json
    assert strict["status"] == "compile_error" and "TS2322" in strict["stderr"], strict
    plant(tmp_path, {"tsconfig.json": '{ "compilerOptions": { "strict": false, "noEmit": true } }'})
    assert hotcell("run", "--json", "--file", ".", "--entry", "main.ts", cwd=tmp_path).json["stdout"] == "a\n"


def test_go_builds_several_files_without_a_module(hotcell, tmp_path):
    plant(tmp_path, {"main.go": 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println(answer()) }', "a.go": "package main\n\nfunc answer() int { return 42 }"})
    assert hotcell("run", "--file", ".", "--entry", "main.go", cwd=tmp_path).stdout == "42\n"


def test_go_says_at_once_that_there_is_no_network(run):
    result = run("go", 'package main\n\nimport "github.com/no/such"\n\nfunc main() { such.Do() }')
    assert result["status"] == "compile_error" and "github.com/no/such" in result["stderr"], result


def test_java_finds_the_class_whatever_its_name(run):
    public = run("java", 'public class Solution {\n  public static void main(String[] a) {\n    throw new RuntimeException("boom " + a[0]);\n  }\n}', "x")
    assert "boom x" in public["stderr"] and "at Solution.main(Solution.java:3)" in public["stderr"], public
    broken = run("java", "public class Solution {\n  int x = y;\n}")
    assert broken["status"] == "compile_error" and broken["stderr"].startswith("Solution.java:2: error:"), broken
    second = run("java", 'class Helper { static String a = "second"; }\nclass Program {\n  public static void main(String[] a) { System.out.println(Helper.a); }\n}')
    assert second["stdout"] == "second\n", second


def test_java_with_a_package(hotcell, tmp_path):
    plant(tmp_path, {"com/x/App.java": "package com.x;\npublic final class App { public static void main(String[] a) { System.out.println(Dep.N); } }",
                     "com/x/Dep.java": "package com.x;\nclass Dep { static final int N = 42; }"})
    assert hotcell("run", "-l", "java", "--file", ".", "--entry", "com/x/App.java", cwd=tmp_path).stdout == "42\n"


@pytest.mark.parametrize("memory", [128, 512])
def test_java_collects_garbage_before_the_cell_is_full(run, memory):
    code = "public class Main { public static void main(String[] a) { long n = 0; for (int i = 0; i < 20000; i++) n += new byte[1 << 18].length; " \
           "System.out.println(n >> 20); } }"
    result = run("java", code, options=["--memory", f"{memory}m"])
    assert (result["status"], result["stdout"]) == ("completed", "5000\n"), result


def test_java_says_itself_that_its_heap_is_full(run):
    code = "import java.util.*;\npublic class Main {\n  public static void main(String[] a) {\n    var l = new ArrayList<byte[]>();\n" \
           "    while (true) l.add(new byte[1 << 20]);\n  }\n}"
    result = run("java", code, options=["--memory", "256m"])
    assert result["status"] == "error" and "OutOfMemoryError" in result["stderr"] and "Main.java:5" in result["stderr"], result


def test_perl_sees_its_own_line_numbers_and_data(run):
    result = run("perl", 'print __LINE__, " $0 ", scalar <DATA>;\n__END__\nrest\n')
    assert result["stdout"] == "1 main.pl rest\n", result


def test_php_errors_are_said_once_and_on_stderr(run):
    result = run("php", "<?php\necho 1 / 0;")
    assert result["stdout"] == "" and result["stderr"].count("DivisionByZeroError") == 1, result


def test_a_file_name_is_never_an_option(hotcell, tmp_path):
    plant(tmp_path, {"-V.py": "print('ran')"})
    assert hotcell("run", "--file", ".", "--entry", "-V.py", cwd=tmp_path).stdout == "ran\n"
