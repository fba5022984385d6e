"""The same compile is done once: what counts as the same, for whom it is kept, and that nothing a guest does gets into it. And what is prepared for
compilers: who makes it, who can see it, who cannot write it.

Most tests use a language of their own, whose compiler writes a number that is another one each time: programs that print the same number were compiled once.
"""

import base64
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

from cells import HOTCELL, SLOW
from server import start_server  # noqa: F401  (a fixture)

LANGUAGE = """
name = "dice"
title = "Dice"
extensions = [".dice"]
file = "main.dice"
package = "none"
needs = ["/bin/sh", "{tool}"]

[compile]
command = ["/bin/sh", "-c", '''
[ -e broken ] && exit 3
echo "a warning" >&2
{{ echo "#!/bin/sh"; echo "echo $(od -An -N8 -tx8 /dev/urandom)"; cat "$1"; }} > {{out}}
chmod +x {{out}}
head -c "${{SIZE:-0}}" /dev/urandom > {{out}}.more
''', "sh", "{{entry}}"]

[prepare]
command = ["/bin/sh", "-c", '''
od -An -N8 -tx8 /dev/urandom > made
cp /bin/true program && chmod 4777 program
ln -s /etc/passwd link
mkdir -p deep/er && echo below > deep/er/file
''']

[run]
command = ["{{out}}"]
"""


@pytest.fixture
def dice(start_server, tmp_path):  # noqa: F811
    """Starts a server that has the language; `tool` is part of its compiler."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hotcell-test-", dir="/usr/local/share"))
    folder.chmod(0o755)
    tool = folder / "tool"
    tool.write_text("1")
    (tmp_path / "languages").mkdir()
    (tmp_path / "languages" / "dice.toml").write_text(LANGUAGE.format(tool=tool))

    def start(config="", **more):
        server = start_server(f'[languages]\npaths = ["{tmp_path / "languages"}"]\n{config}', **more)
        server.tool = tool
        return server

    yield start
    shutil.rmtree(folder)


def throw(server, code="", times=1, **more):
    """The results of running the same thing several times."""
    results = []
    for _ in range(times):
        answer = server.run(language="dice", code=code, **more)
        assert answer.status == 200, answer
        assert answer.json["status"] == "completed", answer
        results.append(answer.json)
    return results


def numbers(results):
    return [result["stdout"].split()[0] for result in results]


def starts(results):
    return ["cached" if result["timing"]["start"] == "cached" else "compiled" for result in results]


def key(server, *words):
    done = subprocess.run([HOTCELL, "key", *words, "--state", str(server.state)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done
    return {"Authorization": f"Bearer {done.stdout.strip()}"}


def metric(server, name):
    return float(re.search(rf"^hotcell_compile_cache_{name} (\S+)$", server.get("/metrics", unix=True).text, re.M)[1])


def wait_for(condition, what, seconds=60):
    deadline = time.monotonic() + seconds * SLOW
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


# ---- the same ----


def test_the_third_of_the_same_compile_is_not_done(dice):
    server = dice()
    results = throw(server, times=4)
    first, second, third, fourth = numbers(results)
    assert first != second and second == third == fourth
    assert starts(results) == ["compiled", "compiled", "cached", "cached"]
    assert metric(server, "hits_total") == 2 and metric(server, "misses_total") == 2 and metric(server, "entries") == 1


def test_the_stage_of_a_kept_compile_is_told_with_its_output_and_used_nothing(dice):
    server = dice()
    fresh, _, kept = throw(server, times=3)
    compile_, run = kept["stages"]
    assert compile_["name"] == "compile" and compile_["status"] == "completed" and compile_["cached"] is True
    assert compile_["output"] == fresh["stages"][0]["output"] == "a warning\n"
    assert compile_["usage"]["wall_ms"] == compile_["usage"]["cpu_ms"] == 0 and compile_["usage"]["memory_peak"] is None
    assert compile_["limits"] == fresh["stages"][0]["limits"]
    assert run["name"] == "run" and "cached" not in run and run["usage"]["cpu_ms"] > 0
    assert not any("cached" in stage for stage in fresh["stages"])
    with server.events("/v1/runs", {"language": "dice", "code": ""}) as stream:
        events = [(event.name, event.data.get("name") or event.data.get("text")) for event in stream]
    assert [event for event in events if event[0] != "result"][1:4] == [("stage", "compile"), ("stderr", "a warning\n"), ("stage", "run")]


def test_input_arguments_and_the_limits_of_the_program_are_not_part_of_a_compile(dice):
    server = dice()
    code = 'echo "$1"; cat; ulimit -n'
    throw(server, code, times=2)
    results = [throw(server, code, stdin=f"in {i}", args=[f"argument {i}"], metadata={"i": i})[0] for i in range(3)]
    assert starts(results) == ["cached"] * 3 and len(set(numbers(results))) == 1
    assert [result["stdout"].splitlines()[1:3] for result in results] == [[f"argument {i}", f"in {i}256"] for i in range(3)]


@pytest.mark.parametrize("change", [
    {"code": "# other"}, {"files": {"more.txt": ""}}, {"files": {"a.txt": "A"}}, {"env": {"X": "1"}}, {"entry": "other.dice"},
    {"files": {"a.txt": {"base64": "YQ==", "executable": True}}}, {"limits": {"cpus": 0.5}},
], ids=lambda change: next(iter(change)) + "-" + re.sub(r"\W+", "", json.dumps(change))[:16])
def test_whatever_a_compile_can_see_makes_it_another(dice, change):
    server = dice()
    usual = {"code": "", "files": {"a.txt": "a"}}
    throw(server, times=3, **usual)
    results = throw(server, **{**usual, **change}) + throw(server, **usual)
    assert starts(results) == ["compiled", "cached"]


def test_a_changed_tool_is_another_compiler(dice):
    server = dice()
    assert starts(throw(server, times=3))[-1] == "cached"
    server.tool.write_text("22")
    results = throw(server, times=3)
    assert starts(results) == ["compiled", "compiled", "cached"]
    (server.tool.parent / "part").write_text("a part of it that nobody names")
    assert starts(throw(server)) == ["compiled"]


def test_a_failed_compile_is_done_each_time(dice):
    server = dice()
    for _ in range(4):
        result = server.run(language="dice", code="", files={"broken": ""}).json
        assert result["status"] == "compile_error" and result["timing"]["start"] != "cached"
    assert metric(server, "entries") == 0


def test_runs_at_the_same_time_share_what_is_kept(dice):
    server = dice()
    code = "cat; head -c 300000 /tmp/.hotcell/main.more | cksum"
    env = {"SIZE": "300000"}
    known = throw(server, code, times=3, env=env)[-1]["stdout"].split()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda i: throw(server, code, env=env, stdin=f"{i}\n")[0], range(24)))
    assert set(starts(results)) == {"cached"}
    assert [result["stdout"].split() for result in results] == [[known[0], str(i), *known[1:]] for i in range(24)]


def test_the_disk_of_a_run_is_its_own_besides_what_was_compiled(dice):
    server = dice()
    code = "head -c 900000 /dev/zero > /tmp/mine && echo fits"
    results = throw(server, code, times=3, env={"SIZE": "3000000"}, limits={"disk": "4m"})
    assert starts(results)[-1] == "cached" and all("fits" in result["stdout"] for result in results)


def test_tests_share_a_compile_that_was_kept(dice):
    server = dice()
    code = 'read x; [ "$x" = 2 ] && exit 4; echo "got $x" > here; cat here'
    tests = [{"stdin": "1\n"}, {"stdin": "2\n"}, {"stdin": "3\n"}]
    results = [server.run(language="dice", code=code, tests=tests).json for _ in range(2)]
    # What compiling left is collected for the tests in any case: the first time is enough.
    assert [result["timing"]["start"] == "cached" for result in results] == [False, True]
    for result in results:
        assert [test["verdict"] for test in result["tests"]] == ["passed", "error", "passed"]
        assert result["tests"][2]["stdout"].endswith("got 3\n") and result["stages"][0]["output"] == "a warning\n"
    first = {test["stdout"].split()[0] for result in results for test in result["tests"]}
    assert len(first) == 1
    assert numbers(throw(server, code, stdin="1\n")) == list(first), "a run without tests has the same compile"


def test_files_are_collected_as_ever(dice):
    server = dice()
    for _ in range(3):
        result = throw(server, "echo out > out.txt; ls", files={"in.txt": "in"}, collect=["*"])[0]
        assert sorted(file["path"] for file in result["files"]) == ["in.txt", "main.dice", "out.txt"], result
    assert result["timing"]["start"] == "cached"


@pytest.mark.parametrize("language, code", [
    ("c", '#include <stdio.h>\nint main(void) { puts("42"); }'),
    ("cpp", '#include <iostream>\nint main() { std::cout << "42\\n"; }'),
    ("go", 'package main\nimport "fmt"\nfunc main() { fmt.Println(42) }'),
    ("rust", 'fn main() { println!("42"); }'),
    ("java", 'public class Answer { public static void main(String[] a) { System.out.println(42); } }'),
    ("typescript", 'const answer: number = 42; console.log(answer);'),
])
def test_every_compiled_language_runs_from_what_was_kept(start_server, language, code):  # noqa: F811
    server = start_server("[compile_cache]\nprepare = false\n")
    results = [server.run(language=language, code=code, within=90).json for _ in range(3)]
    assert [(result["status"], result["stdout"]) for result in results] == [("completed", "42\n")] * 3, results
    assert results[2]["timing"]["start"] == "cached"


# ---- who has it ----


def test_tenants_have_their_own(dice):
    server = dice()
    ada, bob = key(server, "create", "ada"), key(server, "create", "bob")
    ours = throw(server, times=3, headers=ada)
    assert starts(ours) == ["compiled", "compiled", "cached"]
    theirs = throw(server, times=3, headers=bob)
    assert starts(theirs) == ["compiled", "compiled", "cached"]
    assert not set(numbers(ours)) & set(numbers(theirs))
    assert numbers(throw(server, headers=ada)) == numbers(ours)[2:]


def test_a_tenant_a_request_and_a_server_can_do_without(dice):
    server = dice()
    results = throw(server, times=3, cache=False)
    assert len(set(numbers(results))) == 3 and set(starts(results)) == {"compiled"}
    assert starts(throw(server, times=3)) == ["compiled", "compiled", "cached"], "nothing was noted of the others"
    assert starts(throw(server, cache=False)) == ["compiled"]
    plain, without = key(server, "create", "plain"), key(server, "create", "without", "--no-compile-cache")
    assert starts(throw(server, times=3, headers=without)) == ["compiled"] * 3
    assert starts(throw(server, times=3, headers=plain)) == ["compiled", "compiled", "cached"]
    assert server.run(code="1", cache="no", headers=plain).status == 400
    off = dice("[compile_cache]\nsize = 0\n")
    assert starts(throw(off, times=3)) == ["compiled"] * 3


def test_a_smaller_size_drops_what_is_over_it_on_reload(dice):
    server = dice()
    assert starts(throw(server, times=3))[-1] == "cached"
    server.configure(server.config_file.read_text() + "\n[compile_cache]\nsize = 0\n")
    server.process.send_signal(signal.SIGHUP)
    wait_for(lambda: any("was read again" in line for line in server.log), server.log)
    assert starts(throw(server, times=2)) == ["compiled"] * 2 and metric(server, "entries") == 0


def test_other_stages_mounts_and_a_writable_root_are_never_kept(dice, tmp_path):
    allowed = tmp_path / "data"
    allowed.mkdir()
    os.chmod(tmp_path, 0o755)
    server = dice(f'[mounts]\nallowed_read_paths = ["{allowed}"]\n')
    for more in ({"stages": [{"command": ["/bin/true"]}]}, {"read_only": False}, {"mounts": [{"host": str(allowed), "path": "/data"}]}):
        results = throw(server, times=3, **more)
        assert len(set(numbers(results))) == 3 and set(starts(results)) == {"compiled"}, more
    assert metric(server, "entries") == 0


def test_memory_is_bounded_and_a_flood_takes_nothing_from_others(dice):
    server = dice('[compile_cache]\nsize = "1m"\n')
    ada, bob = key(server, "create", "ada"), key(server, "create", "bob")
    quiet = throw(server, times=3, headers=ada)
    for i in range(8):
        throw(server, f"# {i}", times=2, env={"SIZE": "200000"}, headers=bob)
        assert metric(server, "bytes") <= 1 << 20
    assert 2 <= metric(server, "entries") <= 6
    assert numbers(throw(server, headers=ada)) == numbers(quiet)[2:]
    assert starts(throw(server, "# 7", env={"SIZE": "200000"}, headers=bob)) == ["cached"]
    assert starts(throw(server, "# 0", env={"SIZE": "200000"}, headers=bob)) == ["compiled"]
    large = throw(server, "# large", times=3, env={"SIZE": "300000"}, headers=bob)
    assert set(starts(large)) == {"compiled"}, "one entry is a quarter of it at most"


# ---- poison ----


def test_what_a_program_does_to_its_files_is_not_kept(dice):
    """It runs after what is kept was read, and each time in a cell of its own."""
    server = dice()
    code = """
echo 'echo poisoned' > "$0" 2>/dev/null || { rm -f "$0"; printf '#!/bin/sh\\necho poisoned\\n' > "$0"; chmod +x "$0"; }
for file in /tmp/.hotcell/main* /workspace/*; do rm -f "$file"; ln -s /etc/passwd "$file"; done
mkdir -p /tmp/.hotcell/more && echo x > /tmp/.hotcell/more/x
(setsid sh -c 'while :; do echo poisoned > /tmp/.hotcell/main; sleep 0.01; done' &) >/dev/null 2>&1
ls /tmp/.hotcell
"""
    results = throw(server, code, times=5)
    assert starts(results) == ["compiled", "compiled"] + ["cached"] * 3
    assert len(set(numbers(results[1:]))) == 1 and all("poisoned" not in result["stdout"] for result in results)
    assert len({tuple(result["stdout"].split()[1:]) for result in results}) == 1


def test_code_that_a_compile_runs_only_harms_the_same_input(dice):
    """A request can bring its own tools (PATH) and files: they are part of the key, so nobody else gets what they made."""
    server = dice()
    evil = {"od": {"base64": "IyEvYmluL3NoCmVjaG8gZXZpbAo=", "executable": True}}
    results = throw(server, times=3, files=evil, env={"PATH": "/workspace:/usr/bin:/bin"})
    assert numbers(results) == ["evil"] * 3 and starts(results)[2] == "cached"
    assert "evil" not in numbers(throw(server, times=3))
    assert "evil" not in numbers(throw(server, times=3, env={"PATH": "/workspace:/usr/bin:/bin"}))
    assert "evil" not in numbers(throw(server, times=3, files=evil))


def test_processes_that_a_compile_left_write_nothing_later(dice):
    server = dice()
    od = "#!/bin/sh\n(setsid sh -c 'while :; do echo late > /tmp/.hotcell/late; sleep 0.005; done' >/dev/null 2>&1 &)\nsleep 0.1\necho 1\n"
    late = {"od": {"base64": base64.b64encode(od.encode()).decode(), "executable": True}}
    results = throw(server, "rm -f /tmp/.hotcell/late; sleep 0.1; ls /tmp/.hotcell", times=4, files=late, env={"PATH": "/workspace:/usr/bin:/bin"})
    assert starts(results)[-1] == "cached"
    assert all("late" not in result["stdout"] for result in results), [result["stdout"] for result in results]


# ---- what is prepared ----


def prepared(server, language="dice"):
    return server.state / "cache" / language


def test_a_cache_is_prepared_when_its_language_is_first_used(dice):
    server = dice()
    server.run(code="1")
    assert not prepared(server).exists()
    throw(server)
    wait_for(lambda: (prepared(server) / ".key").exists(), "nothing was prepared")
    made = (prepared(server) / "made").read_text()
    assert throw(server, "cat /.hotcell/cache/dice/made /.hotcell/cache/dice/deep/er/file")[0]["stdout"].endswith(made + "below\n")
    assert any("prepared the cache of dice" in line for line in server.log)
    names = sorted(path.name for path in (server.state / "cache").iterdir())
    assert names == ["dice"], "nothing else is left"


def test_only_plain_files_come_out_of_the_cell_that_prepares(dice):
    server = dice()
    throw(server)
    wait_for(lambda: (prepared(server) / ".key").exists(), "nothing was prepared")
    found = [prepared(server), *prepared(server).rglob("*")]
    assert not [path for path in found if path.is_symlink()] and (prepared(server) / "program").is_file()
    for path in found:
        status = path.stat()
        assert status.st_uid == os.geteuid() and status.st_mode & 0o7777 == (0o755 if path.is_dir() else 0o644), path


def test_a_guest_cannot_change_what_is_prepared(dice):
    server = dice()
    throw(server)
    wait_for(lambda: (prepared(server) / ".key").exists(), "nothing was prepared")
    before = {path: path.read_bytes() for path in prepared(server).rglob("*") if path.is_file()}
    code = """
c=/.hotcell/cache
for to in $c/dice/made $c/dice/new $c/new $c/dice/deep/er/file; do (echo poison > $to) 2>/dev/null && echo "wrote $to"; done
rm -rf $c/dice 2>/dev/null; mv $c/dice $c/other 2>/dev/null && echo moved; ln -s /etc $c/dice/etc 2>/dev/null && echo linked
chmod 777 $c/dice/made 2>/dev/null && echo chmod; mount -o remount,rw $c 2>/dev/null && echo mount; $c/dice/program 2>/dev/null && echo ran
ls $c/dice >/dev/null && echo seen
"""
    assert throw(server, code)[0]["stdout"].splitlines()[1:] == ["seen"]
    assert {path: path.read_bytes() for path in prepared(server).rglob("*") if path.is_file()} == before


def test_the_gateway_cannot_write_what_is_prepared(dice):
    if os.geteuid() != 0:
        pytest.skip("without root the gateway has no uid of its own")
    server = dice()
    folder = server.state / "cache"
    assert folder.stat().st_uid == 0 and folder.stat().st_mode & 0o7777 == 0o755
    gateway = next(pid for pid in server.descendants() if "gateway" in pathlib.Path(f"/proc/{pid}/comm").read_text())
    uid = int(re.search(r"^Uid:\s+(\d+)", pathlib.Path(f"/proc/{gateway}/status").read_text(), re.M)[1])
    assert uid != 0
    done = subprocess.run(["sh", "-c", f"touch {folder}/new || rmdir {folder} || mv {folder} {folder}2"], user=uid, group=server.state.stat().st_gid,
                          extra_groups=[], capture_output=True, timeout=10)
    assert done.returncode != 0 and sorted(folder.iterdir()) == []


def test_a_cache_is_kept_over_a_restart_and_made_again_for_other_tools(dice, tmp_path):
    state = tmp_path / "state"
    seen = []
    for change in (False, False, True):
        server = dice(state=state)
        if change:
            server.tool.write_text("3333")
        throw(server)
        old = seen[-1] if change else None
        wait_for(lambda: (prepared(server) / ".key").exists() and (prepared(server) / "made").read_text() != old, "nothing was prepared")
        time.sleep(0 if change else 4 * SLOW)
        seen.append((prepared(server) / "made").read_text())
        server.stop()
    assert seen[0] == seen[1] != seen[2]


def test_what_an_interrupted_preparation_left_is_removed(dice, tmp_path):
    state = tmp_path / "state"
    left = state / "cache" / ".dice.new" / "deep"
    left.mkdir(parents=True)
    (left / "file").write_text("half")
    server = dice(state=state)
    assert not (state / "cache" / ".dice.new").exists()
    throw(server)
    server.stop()
    assert [path.name for path in (state / "cache").iterdir() if not path.name.startswith(".")] in ([], ["dice"])


def test_a_server_can_do_without_prepared_caches(dice):
    server = dice("[compile_cache]\nprepare = false\n")
    throw(server)
    assert not (server.state / "cache").exists()
    assert throw(server, "ls /.hotcell/cache/dice 2>/dev/null || echo none")[0]["stdout"].splitlines()[-1] == "none"


@pytest.mark.parametrize("language, file, codes", [
    ("cpp", "iostream.gch", ['#include <iostream>\nint main() { std::cout << 42 << std::endl; }',
                             '#include <bits/stdc++.h>\nusing namespace std;\nint main() { vector<int> v{42}; cout << v.at(0) << "\\n"; }',
                             '#include <vector>\n#include <iostream>\nint main() { std::cout << std::vector<int>{42}[0] << "\\n"; }']),
    ("go", "trim.txt", ['package main\nimport "fmt"\nfunc main() { fmt.Println(42) }',
                        'package main\nimport ("encoding/json"; "net/http"; "os"; "regexp")\nvar _ = http.StatusOK\n'
                        'func main() { json.NewEncoder(os.Stdout).Encode(len(regexp.MustCompile("a{42}").String()) * 7) }',
                        'package main\n// static int twice(int x) { return 2 * x; }\nimport "C"\nfunc main() { println(C.twice(21)); print("") }']),
    ("java", "javac.jsa", ['public class Main { public static void main(String[] a) { System.out.println(42); } }']),
])
def test_programs_are_the_same_with_prepared_caches(start_server, language, file, codes):  # noqa: F811
    server = start_server("[compile_cache]\nsize = 0\n[warm]\nenabled = false\n")
    wrong = codes[0].replace("42", "nothing_of_this_name")

    def all_of_them():
        return [(result["status"], result["stdout"], result["stderr"] if result["status"] == "completed" else
                 re.sub(r"\s+", " ", result["stderr"]))
                for result in (server.run(language=language, code=code, within=90).json for code in [*codes, wrong])]

    before = all_of_them()
    assert [status for status, _, _ in before] == ["completed"] * len(codes) + ["compile_error"], before
    wait_for(lambda: (prepared(server, language) / ".key").exists() and (prepared(server, language) / file).exists(), server.log, 120)
    assert all_of_them() == before
