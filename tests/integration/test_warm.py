"""Programs that are forked from an interpreter which was there before them do what they do when they are started cold.

Every program of warm_programs.py and programs.py runs on two servers, one of which starts everything cold, and whatever a caller can see must be
the same. What children of one interpreter share, and what happens to that interpreter, is tested below.
"""

import concurrent.futures
import contextlib
import difflib
import os
import pathlib
import re
import signal
import time
import tomllib

import pytest
from cells import SLOW
from programs import PROGRAMS as PLAIN
from server import Server, start_server  # noqa: F401
from warm_programs import PROGRAMS, Program

FILES = pathlib.Path(__file__).resolve().parents[2] / "languages"
FORKED = [name for name in PROGRAMS if tomllib.loads((FILES / f"{name}.toml").read_text()).get("warm", {}).get("kind") == "zygote"]
COLD = "[warm]\nenabled = false\n[pool]\nmax = 0\n"


def plain_programs(language):
    """Those that every language has, in the same form."""
    plain = PLAIN[language]
    entry = next(iter(plain.several))
    return {"hello": Program(plain.hello), "plain stdin": Program(plain.stdin, stdin="words\n"), "plain args": Program(plain.args, args=["a", "b c"]),
            "plain files": Program(plain.several[entry], files={name: text for name, text in plain.several.items() if name != entry}),
            "plain exit": Program(plain.exit), "plain error": Program(plain.error)}


EVERY = [(language, name) for language in FORKED for name in {**plain_programs(language), **PROGRAMS[language]}]


@pytest.fixture(scope="module")
def cold():
    with Server(COLD) as server:
        yield server


@pytest.fixture(scope="module")
def warm():
    with Server("[warm]\nstart = [%s]\n" % ", ".join(f'"{name}"' for name in [*FORKED, "python/*"])) as server:
        yield server


def run_warm(server, language, within=60, **fields):
    """A program that comes while its interpreter is being booted starts cold, as it should: it is run again."""
    deadline = time.monotonic() + within * SLOW
    while (result := server.run(language=language, **fields).json)["timing"]["start"] != "warm":
        assert result["timing"]["start"] == "cold" and time.monotonic() < deadline, result
        time.sleep(0.1)
    return result


def visible(result):
    seen = {key: result[key] for key in ("status", "exit_code", "signal", "stdout", "stderr", "truncated", "diagnosis", "files")}
    for stream in "stdout", "stderr":
        seen[stream] = re.sub(r"0x[0-9a-f]{8,}", "0x…", seen[stream])
    return seen


def assert_same(warm, cold):
    warm, cold = visible(warm), visible(cold)
    difference = [line for key in warm for line in difflib.unified_diff(str(cold[key]).splitlines(), str(warm[key]).splitlines(), f"cold {key}", f"warm {key}",
                                                                        lineterm="", n=0)]
    assert not difference, "\n".join(line[:2000] for line in difference[:40])
    assert warm == cold


def test_all_four_languages_are_forked():
    assert FORKED == ["python", "ruby", "perl", "php"]


@pytest.mark.parametrize("language,name", EVERY, ids=lambda value: re.sub(r"\W", "-", value))
def test_a_warm_program_does_what_a_cold_one_does(warm, cold, language, name):
    fields = {**plain_programs(language), **PROGRAMS[language]}[name].fields
    expected = cold.run(language=language, **fields).json
    assert expected["timing"]["start"] == "cold", expected
    assert_same(run_warm(warm, language, **fields), expected)


def test_a_short_program_is_not_said_to_have_taken_no_time(warm, cold):
    """Its time begins before it hears of it: one that was quick to begin, on another processor, was said to have ended as it began. (The sum alone
    takes longer than what is asked for here.)"""
    for server, count in ((warm, 200), (cold, 30)):
        for _ in range(count):
            result = server.run(language="python", code="print(sum(range(50000)))").json
            assert result["usage"]["wall_ms"] >= 0.2 and result["timing"]["run_ms"] >= 0.2, result


# ---- what children of one interpreter share ----

RANDOM = {
    "python": """
        import random, uuid, secrets, os, tempfile, ssl, multiprocessing, numpy, json, string
        for value in (random.random(), random.getrandbits(64), random.choices(string.ascii_letters, k=12), uuid.uuid4(), uuid.uuid1(), secrets.token_hex(8),
                      os.urandom(8).hex(), tempfile.mktemp(), next(tempfile._get_candidate_names()), ssl.RAND_bytes(8).hex(), random.SystemRandom().random(),
                      bytes(multiprocessing.current_process().authkey).hex(), numpy.random.rand(), numpy.random.default_rng().random(),
                      numpy.random.RandomState().rand(), numpy.random.randint(1 << 60)):
            print(value)""",
    "ruby": """
        require 'securerandom'; require 'tmpdir'; require 'tempfile'; require 'openssl'
        puts rand, Random.rand, Random.new.rand, Random.new_seed, Random.seed, SecureRandom.hex, SecureRandom.uuid, [*1..50].shuffle.inspect, [*1..10000].sample(3).inspect,
             Dir.mktmpdir, Tempfile.new.path, OpenSSL::Random.random_bytes(8).unpack1('H*'), Random.bytes(8).unpack1('H*'), srand""",
    "perl": """
        use File::Temp qw(tempfile); use List::Util qw(shuffle); my (undef, $name) = tempfile();
        print "$_\\n" for rand, $name, join(",", shuffle 1 .. 50), int rand 2 ** 48, srand""",
    "php": """
        <?php foreach ([mt_rand() . mt_rand(), rand() . rand(), random_int(0, PHP_INT_MAX), bin2hex(random_bytes(8)), uniqid('', true), lcg_value(), tempnam('/tmp', 'x'),
                        str_shuffle('abcdefghijklmnopqrstuvwxyz'), bin2hex(openssl_random_pseudo_bytes(8)), implode(',', array_rand(range(0, 9999), 5)),
                        password_hash('x', PASSWORD_BCRYPT, ['cost' => 4]), (new Random\\Randomizer)->getInt(0, PHP_INT_MAX)] as $value) echo $value, "\\n";""",
}


@pytest.mark.parametrize("language", FORKED)
def test_no_two_warm_programs_share_a_random_state(warm, language):
    code = Program(RANDOM[language]).fields["code"]
    results = [run_warm(warm, language, code=code) for _ in range(4)]
    assert all(result["status"] == "completed" for result in results), results[0]
    lines = [result["stdout"].splitlines() for result in results]
    assert len(lines[0]) >= 5
    for number, values in enumerate(zip(*lines)):
        assert len(set(values)) == len(values), (number, values)


def test_hashes_of_python_are_the_documented_constant_and_random_when_asked_for(warm, cold):
    code = "print(hash('abc'), [*{*'abcdefgh'}])"
    assert run_warm(warm, "python", code=code)["stdout"] == run_warm(warm, "python", code=code)["stdout"] == cold.run(code=code).json["stdout"]
    results = [warm.run(code=code, env={"PYTHONHASHSEED": "random"}).json for _ in range(4)]
    assert [result["timing"]["start"] for result in results] == ["cold"] * 4
    assert len({result["stdout"] for result in results}) == 4


TRACES = {
    "python": ("import builtins, json, os, sys, random, signal, threading\n"
               "json.left = builtins.left = sys.left = 1; os.environ['LEFT'] = '1'; sys.path.append('/left'); sys.argv.append('left'); random.seed(1)\n"
               "signal.signal(signal.SIGTERM, signal.SIG_IGN); os.chdir('/tmp'); os.umask(0); sys.setrecursionlimit(50)\n"
               "open('/tmp/left', 'w'); open('/workspace/left', 'w'); open('/dev/shm/left', 'w'); threading.Thread(target=signal.pause, daemon=True).start()",
               "import builtins, json, os, sys, random, signal, threading\n"
               "print(hasattr(json, 'left'), hasattr(builtins, 'left'), hasattr(sys, 'left'), os.environ.get('LEFT'), sys.path, sys.argv, signal.getsignal(15),\n"
               "os.getcwd(), os.umask(0), sys.getrecursionlimit(), os.listdir('/tmp'), os.listdir('/workspace'), os.listdir('/dev/shm'), threading.active_count())\n"
               "print(random.random())"),
    "ruby": ("$left = 1; class Object; LEFT = 1; def left = 1; end; ENV['LEFT'] = '1'; $: << '/left'; ARGV << 'left'; srand 1; File.write('/tmp/left', '')\nDir.chdir '/tmp'",
             "p defined?($left), defined?(LEFT), respond_to?(:left, true), ENV['LEFT'], $:.size, ARGV, Dir.pwd, Dir.children('/tmp'), Dir.children('.')\nputs rand"),
    "perl": ("$main::left = 1; $ENV{LEFT} = 1; push @INC, '/left'; push @ARGV, 'left'; srand 1; open F, '>', '/tmp/left'; chdir '/tmp'; $SIG{TERM} = 'IGNORE'; $, = 'left'",
             "print join(' ', defined $main::left ? 1 : 0, $ENV{LEFT} // 'none', scalar(@INC), scalar(@ARGV), glob('/tmp/* *'), $SIG{TERM} // 'none', defined $, ? 1 : 0), \"\\n\", rand, \"\\n\""),
    "php": ("<?php $left = 1; define('LEFT', 1); function left() {} putenv('LEFT=1'); $argv[] = 'left'; mt_srand(1); touch('/tmp/left'); chdir('/tmp'); ini_set('precision', '3');",
            "<?php echo json_encode([isset($left), defined('LEFT'), function_exists('left'), getenv('LEFT'), $argv, getcwd(), scandir('/tmp'), scandir('.'), ini_get('precision')]), \"\\n\", mt_rand();"),
}


@pytest.mark.parametrize("language", FORKED)
def test_nothing_of_one_program_is_there_in_the_next(warm, cold, language):
    leave, look = TRACES[language]
    run_warm(warm, language, code=leave)
    results = [run_warm(warm, language, code=look)["stdout"].splitlines() for _ in range(2)]
    assert results[0][:-1] == results[1][:-1] == cold.run(language=language, code=look).json["stdout"].splitlines()[:-1]
    assert results[0][-1] != results[1][-1]


MAPS = {
    "python": "for line in open('/proc/self/maps'): print(line, end='')",
    "ruby": "print File.read('/proc/self/maps')",
    "perl": "open F, '<', '/proc/self/maps'; print <F>;",
    "php": "<?php readfile('/proc/self/maps');",
}


@pytest.mark.parametrize("language", FORKED)
def test_a_warm_program_shares_no_memory_that_it_could_write_to(warm, cold, language):
    def maps(result):
        assert result["status"] == "completed", result
        return [line.split(maxsplit=5) for line in result["stdout"].splitlines()]

    mine, other = maps(run_warm(warm, language, code=MAPS[language])), maps(cold.run(language=language, code=MAPS[language]).json)
    assert not [line for line in mine if "w" in line[1] and "s" in line[1]], mine
    assert not [line for line in mine if "w" in line[1] and "x" in line[1]] or [line for line in other if "w" in line[1] and "x" in line[1]]
    added = {line[5] for line in mine if len(line) > 5} - {line[5] for line in other if len(line) > 5}
    assert all(re.match(r"/usr/lib/|/\.hotcell/warm/hotcell-warm\.so|\S*/memfd:hotcell-arguments|\[heap\]|\[anon", name) for name in added), added


def test_a_request_that_needs_another_start_gets_one(warm, cold):
    for language, fields in (("python", {"env": {"PYTHONOPTIMIZE": "1"}, "code": "import sys; print(sys.flags.optimize)"}),
                             ("python", {"env": {"LANG": "C"}, "code": "import sys; print(sys.stdout.errors)"}),
                             ("python", {"env": {"HOME": "/tmp"}, "code": "import site; print(site.USER_SITE)"}),
                             ("python", {"entry": "other.py", "files": {"other.py": "import sys; print(sys.argv)"}})):
        result = warm.run(language=language, **fields).json
        assert result["timing"]["start"] == "cold", result
        assert_same(result, cold.run(language=language, **fields).json)


def test_limits_of_the_request_hold_for_a_warm_program(warm):
    loop = run_warm(warm, "python", code="print('begun')\nwhile True: pass", limits={"timeout": "300ms"})
    assert (loop["status"], loop["stdout"]) == ("timeout", "begun\n"), loop
    memory = run_warm(warm, "python", code="x = 'x' * (400 << 20)", limits={"memory": "128m"})
    assert memory["status"] == "oom" or "MemoryError" in memory["stderr"], memory
    output = run_warm(warm, "python", code="while True: print('x' * 1000)", limits={"output": "10k"})
    assert output["status"] == "output_limit", output


# ---- what happens to the interpreter ----


def zygotes_of(server):
    """The pids of interpreters that wait outside of any cell, in the warden's own pid namespace."""
    warden = server.process_of("hotcell-warden")
    assert warden, server.log[-20:]
    space = os.readlink(f"/proc/{warden}/ns/pid")
    found = set()
    for pid in server.descendants():
        with contextlib.suppress(OSError):
            if b"HOTCELL_WARM=zygote" in pathlib.Path(f"/proc/{pid}/environ").read_bytes() and os.readlink(f"/proc/{pid}/ns/pid") == space:
                found.add(pid)
    return found


def test_a_killed_interpreter_fails_no_run_and_is_replaced(start_server):
    server = start_server('[warm]\nstart = ["python"]\n')
    run_warm(server, "python", code="print(1)")
    first = zygotes_of(server)
    assert first

    def one(number):
        return server.run(language="python", code=f"print({number} * 2)").json

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        runs = [pool.submit(one, number) for number in range(60)]
        for _ in range(5):
            time.sleep(0.1)
            for pid in zygotes_of(server):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        results = [run.result() for run in runs]
    assert [(result["status"], result["stdout"]) for result in results] == [("completed", f"{number * 2}\n") for number in range(60)]
    run_warm(server, "python", code="print(1)")
    assert not zygotes_of(server) & first


def test_an_interpreter_is_replaced_after_its_number_of_programs(start_server):
    server = start_server('[warm]\nstart = ["python"]\nforks = 3\n')
    seen = set()
    for number in range(4):
        for _ in range(3):
            result = run_warm(server, "python", code=f"print({number})")
            assert (result["status"], result["stdout"]) == ("completed", f"{number}\n")
            seen |= zygotes_of(server)
    assert len(seen) >= 3, seen


def test_many_warm_programs_at_once(warm):
    def one(number):
        language = FORKED[number % len(FORKED)]
        return warm.run(language=language, code=PLAIN[language].stdin, stdin=f"words {number}\n").json

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(one, range(64)))
    assert not [result for number, result in enumerate(results) if result["stdout"] != f"WORDS {number}\n"]
