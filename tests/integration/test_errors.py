"""What the history knows of failures: by kind, by tenant, and which later run put them right. And `hotcell why`, which tells a person."""

import json
import os
import re
import subprocess

import pytest

from cells import HOTCELL
from openapi import Contract
from server import server, start_server  # noqa: F401 (fixtures)

BROKEN = """import sys

def mean(values):
    total = 0
    for value in values:
        total += value
    return total / len(values)

def report(rows):
    for name, values in rows.items():
        print(name, mean(values))

report({"a": [1, 2, 3], "b": []})
"""
FIXED = BROKEN.replace("    return total / len(values)\n", "    return total / len(values) if values else 0\n")
OTHER = "print(sum(ord(letter) for letter in 'a wholly different program that works'))\n"


def hotcell(*words, **options):
    env = {key: value for key, value in os.environ.items() if key != "HOTCELL_SERVER"}
    return subprocess.run([HOTCELL, *map(str, words)], capture_output=True, text=True, check=False, timeout=60, env=env, **options)


def key(one, name):
    made = hotcell("key", "create", name, "--state", one.state)
    return {"Authorization": "Bearer " + re.search(r"hc_[A-Za-z0-9_-]{43}", made.stdout)[0]}


def errors(one, query="", **options):
    answer = one.get(f"/v1/history/errors{query}", **options)
    assert answer.status == 200, answer
    return answer.json["errors"]


def test_failures_are_counted_by_kind_and_fixed_by_similar_code(start_server):
    one = start_server()
    contract = Contract(one.get("/openapi.json").json)
    first = one.run(code=BROKEN).json
    found = first["diagnosis"]
    assert (found["category"], found["error_type"], found["line"]) == ("exception", "ZeroDivisionError", 7), found
    assert found["source"] == "    return total / len(values)"
    contract.validate(first, "Result")
    assert one.run(code=OTHER).json["status"] == "completed"
    second = one.run(code=BROKEN.replace("total", "amount").replace('"b"', '"c"')).json
    assert second["diagnosis"]["fingerprint"] == found["fingerprint"]
    answer = one.get("/v1/history/errors")
    contract.check("GET", "/v1/history/errors", answer)
    group, = answer.json["errors"]
    assert (group["count"], group["last_run"], group["fixed_by"], group["language"]) == (2, second["id"], None, "python"), group
    assert group["first_at"] < group["last_at"] and group["message"] == "division by zero"

    good = one.run(code=FIXED).json
    assert good["status"] == "completed"
    assert errors(one)[0]["fixed_by"] == good["id"]
    report = one.get(f"/v1/runs/{first['id']}/report")
    contract.check("GET", "/v1/runs/{id}/report", report)
    assert report.json["seen"] == errors(one)[0] and report.json["diagnosis"] == found
    text = one.get(f"/v1/runs/{first['id']}/report", headers={"Accept": "text/markdown"}).text
    assert good["id"] in text and "| source |" in text and "| times that it failed so | 2 |" in text


def test_the_filters_find_what_they_name(start_server):
    one = start_server()
    key_error = one.run(code="{}['a']").json["diagnosis"]
    one.run(code="[][1]")
    one.run(language="ruby", code="nil.upcase")
    one.run(code="print(1)")
    assert [group["error_type"] for group in errors(one)] == ["NoMethodError", "IndexError", "KeyError"]
    assert [group["error_type"] for group in errors(one, "?limit=1")] == ["NoMethodError"]
    assert [group["error_type"] for group in errors(one, "?error_type=KeyError")] == ["KeyError"]
    assert [group["language"] for group in errors(one, "?language=rb")] == ["ruby"]
    assert [group["error_type"] for group in errors(one, f"?fingerprint={key_error['fingerprint']}")] == ["KeyError"]
    assert errors(one, "?error_type=KeyErro") == [] and errors(one, "?fingerprint=" + 16 * "0") == []


@pytest.mark.parametrize("query, word", [
    ("limit=0", "limit"), ("limit=1001", "limit"), ("fingerprint=xyz", "fingerprint"), ("colour=red", "colour"), ("limit=1&limit=2", "limit"),
    ("error_type=" + 200 * "x", "error_type"),
])
def test_a_bad_filter_is_named(server, query, word):
    answer = server.get(f"/v1/history/errors?{query}")
    assert answer.status == 400 and word in answer.json["detail"], answer


def test_a_tenant_sees_its_own_failures_alone(start_server):
    one = start_server()
    ann, bob = key(one, "ann"), key(one, "bob")
    run = one.run(code=BROKEN, headers=ann).json
    assert one.run(code=FIXED, headers=bob).json["status"] == "completed"
    assert errors(one, headers=bob) == []
    assert [group["fixed_by"] for group in errors(one, headers=ann)] == [None]
    assert "tenant" not in errors(one, headers=ann)[0]
    one.run(code=BROKEN, headers=bob)
    assert [group["count"] for group in errors(one, headers=bob)] == [1]
    assert sorted(group["tenant"] for group in errors(one, unix=True)) == ["ann", "bob"]
    assert one.get(f"/v1/runs/{run['id']}/report", headers=ann).json["seen"]["count"] == 1
    assert one.get("/v1/history/errors").status == 401


def test_it_survives_a_restart_and_a_cancelled_run_is_no_failure(start_server, tmp_path):
    (tmp_path / "state").mkdir()
    one = start_server(state=tmp_path / "state")
    one.run(code=BROKEN)
    started = one.run(code="import time; time.sleep(60)", **{"async": True}).json["id"]
    assert one.delete(f"/v1/runs/{started}").status == 202
    assert one.get(f"/v1/runs/{started}?wait=20").json["status"] == "killed"
    before = errors(one)
    assert len(before) == 1
    one.stop()
    one.start()
    assert errors(one) == before


# ---- the command line ----

def test_why_explains_a_run_from_the_server_and_from_its_folder(start_server):
    one = start_server()
    bad = one.run(code=BROKEN).json["id"]
    missing = one.run(code="import astropy").json["id"]
    good = one.run(code="print(1)").json["id"]
    for place in (("--state", one.state), ("--server", "unix:" + one.unix)):
        told = hotcell("why", bad, *place)
        assert told.returncode == 0 and "\x1b" not in told.stdout, told
        rows = dict(re.split(r"  +", line, maxsplit=1) for line in told.stdout.splitlines() if not line.startswith(" "))
        assert rows["category"] == "exception" and rows["error"] == "ZeroDivisionError" and rows["source"] == "return total / len(values)"
        assert rows["where"].startswith("main.py, line 7") and rows["what to do"] and rows["failed so"] == "this once", rows
        last = json.loads(hotcell("why", "--json", *place).stdout)
        assert last["id"] == missing and last["diagnosis"]["evidence"]["package"] == "python3-astropy"
        assert last["diagnosis"]["hint"] == "apt install python3-astropy on the machine that runs hotcell"
        assert last["seen"]["count"] == 1
        assert "has not failed" in hotcell("why", good, *place).stdout
        unknown = hotcell("why", bad[:-1] + ("0" if bad[-1] != "0" else "1"), *place)
        assert unknown.returncode == 2 and "did you mean" in unknown.stderr, unknown


def test_why_without_a_failure_says_so(start_server):
    one = start_server()
    one.run(code="print(1)")
    told = hotcell("why", "--state", one.state)
    assert told.returncode == 2 and "no run has failed lately" in told.stderr, told


def test_history_errors_lists_kinds_of_failures(start_server):
    one = start_server()
    one.run(code=BROKEN)
    one.run(code=BROKEN)
    good = one.run(code=FIXED).json["id"]
    one.run(language="bash", code="exit 7")
    for place in (("--state", one.state), ("--server", "unix:" + one.unix)):
        lines = hotcell("history", "--errors", *place).stdout.splitlines()
        assert lines[0].split()[0] == "TIMES" and len(lines) == 3, lines
        assert "unknown" in lines[1] and "exited with status 7" in lines[1]
        assert re.match(r"2 ", lines[2]) and "ZeroDivisionError" in lines[2] and good in lines[2]
        found = json.loads(hotcell("history", "--errors", "--json", "--error-type", "ZeroDivisionError", *place).stdout)
        assert [group["count"] for group in found["errors"]] == [2] and found["errors"][0]["tenant"] == "local"
    for words, says in ((("--errors", "--status", "error"), "--status"), (("--fingerprint", "0" * 16), "--errors")):
        refused = hotcell("history", *words, "--state", one.state)
        assert refused.returncode == 2 and says in refused.stderr, refused


# ---- without a server ----

def test_a_run_without_a_server_is_diagnosed_as_well(tmp_path):
    program = tmp_path / "main.py"
    program.write_text("def f():\n    return [][3]\nf()\n")
    done = hotcell("--server", "", "run", "--json", "--allow-weak", program)
    found = json.loads(done.stdout)["diagnosis"]
    assert (found["category"], found["error_type"], found["file"], found["line"], found["source"]) == \
        ("exception", "IndexError", "main.py", 2, "    return [][3]"), found


def test_a_fault_in_a_languages_patterns_is_named(start_server, tmp_path):
    folder = tmp_path / "languages"
    folder.mkdir()
    (folder / "odd.toml").write_text(
        'name = "odd"\ntitle = "Odd"\nextensions = [".odd"]\nfile = "main.odd"\nneeds = ["/bin/sh"]\n\n[run]\ncommand = ["/bin/sh", "{entry}"]\n'
        '\n[diagnosis]\n\n[[diagnosis.errors]]\npattern = "^(a"\n')
    with pytest.raises(AssertionError, match=r"odd.toml:13: .*regular expression"):
        start_server(f'[languages]\npaths = ["{folder}"]\n')
