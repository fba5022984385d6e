"""How the Python client reaches a server, and what it does when it does not: addresses, keys, broken connections, retries."""

import asyncio
import socket
import subprocess
import threading
import time

import pytest

import hotcell
from cells import HOTCELL, SLOW
from cutter import Cutter
from server import Server

LINES = 300
TALKING = f"import time\nfor i in range({LINES}): print('line', i, flush=True); time.sleep(.002)"
WANTED = "".join(f"line {number}\n" for number in range(LINES))


# ---- addresses ----

def test_unix_socket(server):
    with hotcell.Client(f"unix:{server.unix}") as client:
        assert client.run("print(1)").stdout == "1\n"

    async def work():
        async with hotcell.AsyncClient(f"unix:{server.unix}") as client:
            return (await client.run("print(2)")).stdout
    assert asyncio.run(work()) == "2\n"


def test_the_environment_names_the_server(server, monkeypatch):
    monkeypatch.setenv("HOTCELL_SERVER", server.url)
    with hotcell.Client() as client:
        assert client.address == server.url and client.run("print(1)").success


@pytest.mark.parametrize("address", ["ftp://x", "http://", "unix:", "127.0.0.1:7600", "http://user@host", "http://host?x=1", "http://host:x"])
def test_addresses_that_are_none(address):
    with pytest.raises(hotcell.InvalidRequestError) as caught:
        hotcell.Client(address)
    assert caught.value.field == "address"


class Secure(Server):
    """The plain client of the tests does not speak TLS, so the address is read here, and waited for by the unix socket."""

    def wait_ready(self, deadline):
        while not self.urls and time.monotonic() < deadline:
            self.urls = [line.split()[-1] for line in self.lines if line.startswith("listening on https://")]
            time.sleep(0.01)
        while self.get("/readyz", unix=True).status != 200 and time.monotonic() < deadline:
            time.sleep(0.02)


def test_https_with_a_certificate_of_ones_own(tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", certificate], check=True, capture_output=True)
    secure = Secure(f"[server]\ntls_certificate = '{certificate}'\ntls_key = '{key}'\n")
    secure.listeners = 0
    with secure:
        assert secure.url.startswith("https://")
        with hotcell.Client(secure.url, ca=str(certificate)) as client:
            assert client.run("print(1)").stdout == "1\n"
            with client.stream("print(2)") as events:
                assert events.wait().stdout == "2\n"

        async def work():
            async with hotcell.AsyncClient(secure.url, ca=str(certificate)) as one:
                return (await one.run("print(3)")).stdout
        assert asyncio.run(work()) == "3\n"
        with pytest.raises(hotcell.ConnectionFailedError, match="(?i)certificate"):
            hotcell.Client(secure.url, retries=0).run("print(1)")


# ---- keys ----

@pytest.fixture
def locked(start_server):
    server = start_server()
    token = subprocess.run([HOTCELL, "key", "create", "ada", "--runs-per-minute", "3", "--state", str(server.state)], check=True,
                           capture_output=True, text=True).stdout.strip().splitlines()[-1]
    deadline = time.monotonic() + 10 * SLOW
    while server.get("/v1/stats").status != 401 and time.monotonic() < deadline:
        time.sleep(0.05)
    return server, token


def test_keys_and_quotas(locked, tmp_path, monkeypatch):
    server, token = locked
    with pytest.raises(hotcell.AuthenticationError):
        hotcell.Client(server.url).stats()
    with pytest.raises(hotcell.AuthenticationError):
        hotcell.Client(server.url, key="hc_wrong").stats()
    (tmp_path / "key").write_text(f"{token}\n")
    assert hotcell.Client(server.url, key_file=tmp_path / "key").stats()
    monkeypatch.setenv("HOTCELL_KEY", token)
    client = hotcell.Client(server.url, max_retry_wait=0)
    for _ in range(3):
        client.run("print(1)")
    with pytest.raises(hotcell.QuotaError) as caught:
        client.run("print(1)")
    assert caught.value.status == 429 and caught.value.retry_after >= 1 and caught.value.code == "quota_exceeded"


def test_keys_that_are_none(tmp_path):
    (tmp_path / "empty").write_text("")
    for options in ({"key": "a\r\nX: y"}, {"key_file": tmp_path / "empty"}, {"key": "a", "key_file": tmp_path / "empty"}):
        with pytest.raises(hotcell.InvalidRequestError):
            hotcell.Client("http://127.0.0.1:1", **options)


# ---- broken connections ----

def test_a_stream_goes_on_after_each_break(server, client):
    run = client.run_async(TALKING)
    with Cutter(server.port, [600, 3000, 2500, 4000]) as cutter, hotcell.Client(cutter.url) as through:
        events = list(through.events(run.id))
    assert "".join(event.text for event in events if event.name == "stdout") == WANTED
    assert events[-1].name == "result" and [event.name for event in events].count("result") == 1
    assert sum(b"last-event-id:" in bytes(seen).lower() for seen in cutter.seen) == 4


def test_a_stream_goes_on_in_asyncio(server, client):
    run = client.run_async(TALKING)

    async def work(url):
        async with hotcell.AsyncClient(url) as through:
            return [event async for event in through.events(run.id)]
    with Cutter(server.port, [900, 900, 900]) as cutter:
        events = asyncio.run(work(cutter.url))
    assert "".join(event.text for event in events if event.name == "stdout") == WANTED


def test_a_run_that_may_have_begun_is_not_sent_again(server, client):
    mark = f"mark-{time.monotonic_ns()}"
    with Cutter(server.port, [0]) as cutter, hotcell.Client(cutter.url, retries=5) as through:
        with pytest.raises(hotcell.ConnectionFailedError) as caught:
            through.run(f"print('{mark}')", metadata={"mark": mark})
        assert caught.value.begun and len(cutter.seen) == 1
    rows = [client.describe_run(row["id"]) for row in client.history(limit=10).runs]
    assert sum(row.get("metadata") == {"mark": mark} for row in rows) <= 1


def test_what_changes_nothing_is_sent_again(server):
    with Cutter(server.port, [0, 10]) as cutter, hotcell.Client(cutter.url, retries=2) as through:
        assert through.stats()["version"]
        assert len(cutter.seen) == 3
    with Cutter(server.port, [0, 0, 0]) as cutter, hotcell.Client(cutter.url, retries=2) as through:
        with pytest.raises(hotcell.ConnectionFailedError):
            through.stats()


def test_a_connection_that_the_server_closed_meanwhile_is_not_used(start_server):
    server = start_server("[server]\nidle_time = '1s'\n")
    with hotcell.Client(server.url, retries=0) as client:
        assert client.run("print(1)").success
        time.sleep(2.5)
        assert client.run("print(2)").success


def test_nobody_listens():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(hotcell.ConnectionFailedError, match="cannot be reached") as caught:
            hotcell.Client(f"http://127.0.0.1:{port}").run("print(1)")
        assert not caught.value.begun and isinstance(caught.value, ConnectionError)
    with pytest.raises(hotcell.ConnectionFailedError):
        hotcell.Client("unix:/nonexistent/socket").stats()


def talker(said):
    """A peer that says this to whoever connects, and then nothing. Its address."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        kept = []
        while True:
            try:
                one, _ = listener.accept()
            except OSError:
                return
            kept.append(one)
            one.sendall(said)
    threading.Thread(target=serve, daemon=True).start()
    return listener, f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_silent_server_is_given_up():
    listener, url = talker(b"")
    with listener:
        began = time.monotonic()
        with pytest.raises(hotcell.RequestTimeoutError) as caught:
            hotcell.Client(url, timeout=0.3, retries=0).stats()
        assert time.monotonic() - began < 5 * SLOW and isinstance(caught.value, TimeoutError)
        with pytest.raises(hotcell.RequestTimeoutError):
            asyncio.run(hotcell.AsyncClient(url, timeout=0.3, retries=0).stats())


@pytest.mark.parametrize("said", [b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 abc OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
                                  b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                                  b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", b"HTTP/1.1 200 OK\r\nX: " + b"a" * (1 << 17)])
def test_nonsense_is_said_to_be_nonsense(said):
    listener, url = talker(said)
    with listener, pytest.raises(hotcell.ProtocolError):
        hotcell.Client(url, timeout=5, retries=0).stats()


# ---- a busy server ----

def test_refused_runs_are_sent_again_when_the_server_says_when(start_server):
    server = start_server("[server]\nconcurrent = 1\nqueue = 1\n")
    with hotcell.Client(server.url, retries=0) as client:
        busy = [client.run_async("import time\ntime.sleep(2)") for _ in range(2)]
        with pytest.raises(hotcell.OverloadedError) as caught:
            client.run("print(1)")
        assert caught.value.retry_after >= 1 and caught.value.status == 503
        with hotcell.Client(server.url, retries=20) as patient:
            assert patient.run("print(1)").stdout == "1\n"
        for run in busy:
            run.wait()


def test_the_user_agent_names_the_client(server):
    with Cutter(server.port, []) as cutter, hotcell.Client(cutter.url) as through:
        through.stats()
    assert f"User-Agent: hotcell-python/{hotcell.__version__}".encode() in bytes(cutter.seen[0])
