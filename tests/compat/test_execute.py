"""POST /execute and GET / as clients of the other sandbox know them: every row of its contract, and every fault of the original put right."""

import concurrent.futures
import json
import os
import pathlib
import socket
import subprocess
import time
import urllib.parse
import uuid

import pytest
import requests
from cells import HOTCELL, SLOW
from client import Client
from server import LISTENING

TIMED_OUT = "Timed out\n"


@pytest.fixture(scope="module", name="client")
def fixture_client(server):
    return Client(server.url)


@pytest.fixture(name="workspace")
def fixture_workspace(server):
    """The host's view of the shared folder."""
    return pathlib.Path(server.state) / "workspace"


def running(marker):
    """Processes of this machine with the marker among their arguments."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and int(entry.name) != os.getpid() and marker.encode() in (entry / "cmdline").read_bytes():
                found.append(entry.name)
        except OSError:
            pass
    return found


def wait_for(condition, within=10):
    deadline = time.monotonic() + within * SLOW
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return value


# ---- what is refused, and with which words ----

BODY = {"generated_code": "print(1)", "timeout": 10, "language": "python"}


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", "text/json", "application/", None])
def test_a_body_that_is_not_said_to_be_json_is_refused(client, kind):
    assert client.refused(data=json.dumps(BODY), headers={"Content-Type": kind}) == "Request must be JSON"


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "application/vnd.api+json", "Application/JSON"])
def test_every_kind_of_json_is_taken(client, kind):
    response = client.post(data=json.dumps(BODY), headers={"Content-Type": kind})
    assert (response.status_code, response.json()["stdout"]) == (200, "1\n")


@pytest.mark.parametrize("body", ["", "null", "{", "{'a': 1}", '{"generated_code": "print(1)", "timeout": 10,}', "\xff", '{"a": "\x01"}'])
def test_bad_json_an_empty_body_and_null_are_refused(client, body):
    assert client.refused(data=body.encode("latin-1"), headers={"Content-Type": "application/json"}) == "Invalid JSON data"


def test_a_lone_surrogate_is_refused_and_a_pair_is_a_character(client):
    head = '{"timeout": 10, "generated_code": '
    assert client.refused(data=head + '"x = \'\\ud800\'"}', headers={"Content-Type": "application/json"}) == "Invalid JSON data"
    response = client.post(data=head + '"print(\'\\ud83d\\ude00\')"}', headers={"Content-Type": "application/json"})
    assert response.json() == {"process_status": "completed", "stdout": "😀\n", "stderr": ""}


@pytest.mark.parametrize("body, name", [({}, "generated_code"), ({"timeout": 1}, "generated_code"), ({"generated_code": ""}, "timeout"),
                                        ({"language": "cobol"}, "generated_code"), ({"generated_code": None, "language": "cobol"}, "timeout")])
def test_the_first_field_that_is_missing_is_named(client, body, name):
    assert client.refused(json=body) == f"Missing required field: {name}"


def test_an_unknown_language_is_refused_with_the_list_of_those_there_are(client):
    message = client.refused(json={**BODY, "language": "cobol", "generated_code": None})
    assert message.startswith("Only python execution is supported")
    listed = message.removeprefix("Only python execution is supported")
    assert all(name in listed for name in ("python", "bash", "javascript", "ruby"))


@pytest.mark.parametrize("field, value", [("timeout", "10"), ("timeout", None), ("timeout", True), ("timeout", [1]), ("generated_code", None),
                                          ("generated_code", 5), ("generated_code", ["x"]), ("generated_code", {"code": "x"}),
                                          ("language", 5), ("language", None)])
def test_a_field_of_the_wrong_type_is_refused_and_named(client, field, value):
    assert field in client.refused(json={**BODY, field: value})


@pytest.mark.parametrize("body", [5, "text", [1], True])
def test_a_body_that_is_no_object_is_refused(client, body):
    assert "object" in client.refused(data=json.dumps(body), headers={"Content-Type": "application/json"})


def test_get_of_execute_is_not_allowed(server):
    response = requests.get(f"{server.url}/execute", timeout=30)
    assert response.status_code == 405 and "POST" in response.headers["allow"]
    assert requests.put(f"{server.url}/execute", json=BODY, timeout=30).status_code == 405


def test_the_root_says_ok_and_shows_people_a_page(server):
    for headers in ({}, {"Accept": "application/json"}, {"Accept": "*/*"}):
        response = requests.get(f"{server.url}/", headers=headers, timeout=30)
        assert (response.status_code, response.json()) == (200, {"status": "ok"})
    page = requests.get(f"{server.url}/", headers={"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}, timeout=30)
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html") and "/v1/runs" in page.text


# ---- what runs ----

def test_the_documented_example_works(client):
    assert client.execute("print('Hello, World!')", 30) == {"process_status": "completed", "stdout": "Hello, World!\n", "stderr": ""}


def test_without_a_language_it_is_python(client):
    response = client.post(json={"generated_code": "print(1)", "timeout": 10})
    assert response.json()["stdout"] == "1\n"


def test_extra_fields_are_ignored(client):
    assert client.execute("print(1)", max_output_characters=1000, session={"a": [1, {"b": None}]})["process_status"] == "completed"


@pytest.mark.parametrize("code", ["", " ", "\n\n", "# nothing"])
def test_empty_code_completes(client, code):
    assert client.execute(code) == {"process_status": "completed", "stdout": "", "stderr": ""}


PROGRAMS = {"bash": "echo $((6*7))", "sh": "echo 42", "javascript": "console.log(42)", "js": "console.log(42)", "ruby": "puts 42",
            "perl": "print 42, \"\\n\"", "c": "#include <stdio.h>\nint main(void) { puts(\"42\"); }",
            "cpp": "#include <iostream>\nint main() { std::cout << 42 << std::endl; }",
            "go": "package main\nimport \"fmt\"\nfunc main() { fmt.Println(42) }",
            "java": "public class Answer { public static void main(String[] a) { System.out.println(42); } }",
            "rust": "fn main() { println!(\"42\"); }", "php": "<?php echo 42, \"\\n\";", "lua": "print(42)", "r": "cat(42, \"\\n\", sep=\"\")",
            " Python3 ": "print(42)", "PYTHON": "print(42)"}


@pytest.mark.parametrize("language", PROGRAMS)
def test_every_language_runs(client, language):
    answer = client.execute(PROGRAMS[language], 60, language)
    assert (answer["process_status"], answer["stdout"]) == ("completed", "42\n"), answer


def test_an_exception_is_an_error_with_its_traceback_and_the_output_before_it(client):
    answer = client.execute("print('before')\nraise ValueError('no')")
    assert answer["process_status"] == "error" and answer["stdout"] == "before\n"
    assert answer["stderr"].startswith("Traceback (most recent call last)") and "ValueError: no" in answer["stderr"]


def test_a_syntax_error_is_an_error(client):
    answer = client.execute("print('Hello'")
    assert answer["process_status"] == "error" and "SyntaxError" in answer["stderr"] and answer["stdout"] == ""


def test_an_import_that_fails_is_an_error(client):
    answer = client.execute("import nonexistent_module_of_nobody")
    assert answer["process_status"] == "error" and "ModuleNotFoundError" in answer["stderr"]


def test_a_compile_error_is_an_error_with_the_compilers_words(client):
    answer = client.execute("int main(void) { return x; }", 60, "c")
    assert answer["process_status"] == "error" and "error:" in answer["stderr"] and answer["stdout"] == ""


def test_both_streams_are_kept_apart(client):
    answer = client.execute("import sys\nprint('out')\nprint('err', file=sys.stderr)")
    assert answer == {"process_status": "completed", "stdout": "out\n", "stderr": "err\n"}


def test_stdin_is_at_its_end(client):
    assert client.execute("import sys\nprint(repr(sys.stdin.read()))")["stdout"] == "''\n"


def test_bytes_that_are_not_utf8_are_replaced(client):
    answer = client.execute("import os\nos.write(1, b'a\\xff\\xc3b')\nos.write(2, b'\\xfe')")
    assert answer == {"process_status": "completed", "stdout": "a\ufffd\ufffdb", "stderr": "\ufffd"}
    assert client.execute("print('a\\0b')")["stdout"] == "a\0b\n"


@pytest.mark.parametrize("statement", ["import numpy as np; print(np.array([1, 2, 3]).sum())",
                                       "import pandas as pd; print(pd.DataFrame({'a': [2, 4]})['a'].sum())",
                                       "import scipy.linalg; print(round(abs(scipy.linalg.det([[2, 0], [0, 3]]))))",
                                       "import IPython; print(6)",
                                       "import plotly.graph_objects as go; go.Figure(data=[go.Bar(y=[1])]).write_html('plot.html'); print(6)"])
def test_the_libraries_are_there(client, statement):
    answer = client.execute(statement, 60)
    assert (answer["process_status"], answer["stdout"]) == ("completed", "6\n"), answer


# ---- time ----

@pytest.mark.parametrize("timeout", [0, -1, -0.5, 0.0])
def test_no_time_is_a_timeout_and_nothing_runs(client, workspace, timeout):
    name = f"never-{uuid.uuid4().hex}"
    assert client.execute(f"open('{name}', 'w')", timeout) == {"process_status": "timeout", "stdout": "", "stderr": TIMED_OUT}
    assert not (workspace / name).exists()


@pytest.mark.parametrize("timeout", [1, 0.5])
def test_a_timeout_keeps_what_was_printed(client, timeout):
    began = time.monotonic()
    answer = client.execute("import time, sys\nprint('before', flush=True)\nprint('e', file=sys.stderr)\ntime.sleep(60)", timeout)
    assert answer == {"process_status": "timeout", "stdout": "before\n", "stderr": TIMED_OUT}
    assert timeout <= time.monotonic() - began < 10 * SLOW


@pytest.mark.parametrize("timeout", [10**9, 1e12, 3600.5])
def test_any_amount_of_time_may_be_asked_for(client, timeout):
    assert client.execute("print(1)", timeout)["process_status"] == "completed"


def test_a_timeout_over_the_ceiling_is_lowered_to_it(start_server):
    client = Client(start_server("[ceilings]\ntimeout = 1\n").url)
    began = time.monotonic()
    assert client.execute("import time\ntime.sleep(60)", 600)["process_status"] == "timeout"
    assert time.monotonic() - began < 15 * SLOW


# ---- the workspace ----

def test_files_persist_from_one_request_to_the_next(client, workspace):
    name = f"kept-{uuid.uuid4().hex}.txt"
    assert client.execute(f"import os\nprint(os.getcwd())\nopen('{name}', 'w').write('here')")["stdout"] == "/workspace\n"
    assert client.execute(f"print(open('/workspace/{name}').read())")["stdout"] == "here\n"
    assert client.execute(f"cat {name}; rm {name}", language="bash")["stdout"] == "here"
    assert not (workspace / name).exists()


def test_the_code_itself_is_not_among_the_files(client):
    before = client.execute("import os\nprint(sorted(os.listdir('/workspace')))")["stdout"]
    assert "main" not in before and ".hotcell" not in before
    client.execute("package main\nfunc main() {}", 60, "go")
    assert client.execute("import os\nprint(sorted(os.listdir('/workspace')))")["stdout"] == before


def test_a_module_that_was_written_can_be_imported_by_the_next_request(client):
    name = f"module_{uuid.uuid4().hex}"
    client.execute(f"open('{name}.py', 'w').write('answer = 42')")
    assert client.execute(f"import {name}, os\nprint({name}.answer)\nos.remove('{name}.py')")["stdout"] == "42\n"


def test_requests_at_the_same_time_share_the_workspace_and_nothing_else(client):
    tag = uuid.uuid4().hex
    code = ("import os, time\nopen('{tag}-{i}', 'w').write('{i}')\nend = time.time() + 30\n"
            "while time.time() < end and len([n for n in os.listdir('.') if n.startswith('{tag}')]) < 2: time.sleep(.01)\n"
            "print({i}, os.path.exists('/tmp/mine'))\nopen('/tmp/mine', 'w')\n")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: client.execute(code.format(tag=tag, i=i), 60), range(8)))
    assert [answer["stdout"] for answer in answers] == [f"{i} False\n" for i in range(8)], answers
    removed = client.execute(f"import glob, os\nfor n in glob.glob('{tag}-*'): print(open(n).read()); os.remove(n)")["stdout"]
    assert sorted(removed.split()) == [str(i) for i in range(8)]


def test_the_folder_may_be_named_by_the_environment(start_server, tmp_path):
    folder = tmp_path / "output"
    folder.mkdir()
    server = start_server(env={"OUTPUT_DATA_PATH": str(folder)})
    assert Client(server.url).execute("open('made.txt', 'w').write('by a guest')")["process_status"] == "completed"
    assert (folder / "made.txt").read_text() == "by a guest"
    assert not (pathlib.Path(server.state) / "workspace" / "made.txt").exists()


def test_the_address_may_be_named_by_the_environment(start_server):
    server = start_server('[server]\nexecute_listen = "127.0.0.1:1"\n', env={"SANDBOX_HOST": "127.0.0.2", "SANDBOX_PORT": "0"},
                          listen=("127.0.0.1:0",))
    found = wait_for(lambda: [match[1] for line in server.lines for match in LISTENING.finditer(line) if "127.0.0.2" in match[1]])
    assert found, server.lines
    assert Client(found[0]).execute("print(1)")["stdout"] == "1\n"
    assert requests.get(found[0] + "/", timeout=30).json() == {"status": "ok"}


# ---- dictionaries and markdown ----

@pytest.mark.parametrize("code, output", [
    ("{'generated_code': 'print(\"Hello from dict format\")'}", "Hello from dict format\n"),
    ('{"generated_code": "print(\'json\')\\nprint(2)"}', "json\n2\n"),
    ("{'code': '''print(1)\nprint(2)''', 'timeout': 0}", "1\n2\n"),
    ("```python\nprint('Hello from markdown')\n```", "Hello from markdown\n"),
    ("```py\nprint(1)\n```", "1\n"),
    ("```\nprint(1)\n```\n", "1\n"),
    ("```bash\necho in bash\n```", "in bash\n"),
    ("{'generated_code': '```python\\nprint(1)\\n```'}", "1\n"),
    ("{'generated_code': 'echo $0 | grep -c main', 'language': 'sh'}", "1\n"),
    ("python = 3\nprint(python)", "3\n"),
    ("s = '''\n```python\nx\n```\n'''\nprint(s.count('`'))", "6\n"),
    ("{'generated_code': 'print(1)'}['generated_code']; print(2)", "2\n"),
])
def test_code_is_taken_out_of_dictionaries_and_fences_and_other_code_is_left_alone(client, code, output):
    answer = client.execute(code)
    assert (answer["process_status"], answer["stdout"]) == ("completed", output), answer


def test_a_dictionary_with_an_unknown_language_is_refused(client):
    message = client.refused(json={**BODY, "generated_code": "{'code': 'x', 'language': 'cobol'}"})
    assert message.startswith("Only python execution is supported")


# ---- where the original fails ----

@pytest.mark.parametrize("statement, status", [("import sys; sys.exit()", "completed"), ("import sys; sys.exit(0)", "completed"),
                                               ("import sys; sys.exit(3)", "error"), ("import os; os._exit(0)", "completed"),
                                               ("import os; os._exit(7)", "error"), ("raise SystemExit('why')", "error")])
def test_a_program_that_exits_by_itself_does_not_hang(client, statement, status):
    began = time.monotonic()
    answer = client.execute(f"print('before', flush=True); {statement}", 60)
    assert (answer["process_status"], answer["stdout"]) == (status, "before\n"), answer
    assert time.monotonic() - began < 20 * SLOW


@pytest.mark.parametrize("size", [64 * 1024 + 1, 700_000])
def test_much_output_is_no_timeout(client, size):
    answer = client.execute(f"import sys\nsys.stdout.write('x' * {size})\nsys.stderr.write('y' * {size})", 30)
    assert answer == {"process_status": "completed", "stdout": "x" * size, "stderr": "y" * size}


def test_output_of_file_descriptors_and_of_children_is_kept(client):
    answer = client.execute("import os, subprocess\nos.write(1, b'one\\n')\nsubprocess.run(['echo', 'two'])\nos.system('echo three >&2')")
    assert answer == {"process_status": "completed", "stdout": "one\ntwo\n", "stderr": "three\n"}


GRANDCHILD = """
import os, subprocess, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        subprocess.Popen(['sleep', '{number}'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while True:
            open('{marker}', 'a').write('.')
            time.sleep(.02)
    os._exit(0)
os.wait()
while not os.path.exists('{marker}'):
    time.sleep(.01)
print('started', flush=True)
{rest}
"""


@pytest.mark.parametrize("rest, status", [("time.sleep(60)", "timeout"), ("", "completed")])
def test_nothing_that_a_program_started_outlives_it(client, workspace, rest, status):
    marker, number = f"alive-{uuid.uuid4().hex}", str(uuid.uuid4().int % 10**12)
    answer = client.execute(GRANDCHILD.format(marker=marker, number=number, rest=rest), 3)
    assert (answer["process_status"], answer["stdout"]) == (status, "started\n"), answer
    assert wait_for(lambda: not running(number)), running(number)
    size = (workspace / marker).stat().st_size
    time.sleep(0.3)
    assert (workspace / marker).stat().st_size == size > 0
    client.execute(f"import os\nos.remove('{marker}')")


def test_a_client_that_leaves_ends_its_run(client, server, workspace):
    marker = f"left-{uuid.uuid4().hex}"
    body = json.dumps({"generated_code": f"import time\nwhile True:\n    open('{marker}', 'a').write('.')\n    time.sleep(.02)", "timeout": 300})
    address = urllib.parse.urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
        connection.sendall(f"POST /execute HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
                           f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        assert wait_for((workspace / marker).exists, 20)
    def quiet():
        size = (workspace / marker).stat().st_size
        time.sleep(0.3)
        return (workspace / marker).stat().st_size == size
    assert wait_for(quiet)
    client.execute(f"import os\nos.remove('{marker}')")


@pytest.mark.parametrize("code, words", [
    ("x = bytearray(1 << 40)", "MemoryError"),
    ("x = []\nwhile True: x.append(bytearray(1 << 20))", "memory"),
    ("import os\nwhile True: os.write(1, b'x' * 65536)", "output"),
    ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
])
def test_what_ended_a_program_is_said_in_stderr(client, code, words):
    answer = client.execute(code, 60)
    assert answer["process_status"] == "error" and words in answer["stderr"], {**answer, "stdout": len(answer["stdout"])}


def test_a_server_that_is_full_says_so_in_the_same_shape(start_server):
    server = start_server("[server]\nconcurrent = 1\nqueue = 1\n")
    body = {"generated_code": "import time; time.sleep(2)", "timeout": 30}
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        responses = list(pool.map(lambda _: Client(server.url).post(json=body), range(6)))
    full = [response for response in responses if response.status_code != 200]
    assert full and len(full) < 6
    for response in full:
        assert response.status_code in (429, 503) and int(response.headers["retry-after"]) > 0
        assert response.json()["process_status"] == "error" and response.json()["stderr"]


def test_a_quota_that_is_used_up_is_told_in_the_same_shape(start_server):
    server = start_server()
    made = subprocess.run([HOTCELL, "key", "create", "team", "--runs-per-minute", "1", "--state", server.state, "--config", server.config_file,
                           "--json"], capture_output=True, text=True, check=True, timeout=60)
    headers = {"Authorization": f"Bearer {json.loads(made.stdout)['token']}"}
    client = Client(server.url)
    assert requests.post(f"{server.url}/execute", json=BODY, timeout=30).status_code == 401
    assert client.post(json=BODY, headers=headers).json()["stdout"] == "1\n"
    response = client.post(json=BODY, headers=headers)
    assert response.status_code == 429 and int(response.headers["retry-after"]) > 0
    assert response.json()["process_status"] == "error" and "minute" in response.json()["stderr"]
