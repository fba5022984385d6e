"""The gateway's HTTP layer with clients that others wrote: curl, Python's websockets, node. The server is build/http_echo."""

import asyncio
import contextlib
import http.client
import http.server
import os
import pathlib
import socket
import subprocess
import threading
import time

import pytest

from cells import HOTCELL, SLOW

websockets = pytest.importorskip("websockets", reason="python3-websockets is not installed")
ECHO = pathlib.Path(HOTCELL).parent / "http_echo"


class Echo:
    def __init__(self, process):
        self.process = process
        self.port = int(process.stdout.readline())

    def url(self, path, scheme="http"):
        return f"{scheme}://127.0.0.1:{self.port}{path}"

    def peak_memory(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("there is no VmHWM")

    def closed_with(self):
        """The code that the next WebSocket to end was closed with."""
        word, code = self.process.stdout.readline().split()
        assert word == "closed"
        return int(code)


@pytest.fixture
def echo():
    with subprocess.Popen([ECHO], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Echo(process)
        process.stdin.close()
        assert process.wait(10 * SLOW) == 0


def curl(*arguments, **options):
    return subprocess.run(["curl", "-sS", "--noproxy", "*", *arguments], check=True, capture_output=True, timeout=120 * SLOW, **options).stdout


# ---- bodies ----


@pytest.mark.parametrize("path", ["/count", "/pipe"])
def test_a_gigabyte_passes_and_memory_stays_flat(echo, path, tmp_path):
    big = tmp_path / "big"
    with big.open("wb") as file:
        file.truncate(1 << 30)
    before = echo.peak_memory()
    assert curl("-T", str(big), echo.url(path)) == b"%d 0" % (1 << 30)
    assert echo.peak_memory() < before + (4 << 20)


@pytest.mark.parametrize("path", ["/count", "/pipe"])
def test_chunks_pass_too(echo, path):
    data = bytes(range(256)) * 40000
    assert curl("-T", "-", echo.url(path), input=data) == b"%d %d" % (len(data), sum(data))


def test_a_client_that_expects_100_is_told_to_go_on(echo):
    start = time.monotonic()
    answer = curl("-v", "-H", "Expect: 100-continue", "--expect100-timeout", "30", "-T", "-", echo.url("/count"), input=b"abc")
    assert answer == b"3 294"
    assert time.monotonic() - start < 10 * SLOW


@pytest.mark.parametrize("path", ["/bytes", "/chunks"])
def test_a_large_reply_passes_and_memory_stays_flat(echo, path, tmp_path):
    before = echo.peak_memory()
    curl("-o", str(tmp_path / "got"), echo.url(f"{path}/{1 << 28}"))
    assert (tmp_path / "got").stat().st_size == 1 << 28
    assert echo.peak_memory() < before + (4 << 20)
    assert b"Content-Length: 100" in curl("-I", echo.url("/bytes/100"))


# ---- previews ----


class Inside(http.server.BaseHTTPRequestHandler):
    """What a guest may well run: Python's own server, which speaks HTTP/1.0, or 1.1 where it is told to."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.path == "/redirect":
            self.send_response(302)
            self.send_header("Location", "/landed")
            self.end_headers()
            return
        body = b"x" * int(self.path.removeprefix("/bytes/")) if self.path.startswith("/bytes/") else repr(sorted(self.headers.items())).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        if self.protocol_version == "HTTP/1.1":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self):
        left, size = int(self.headers["Content-Length"]), 0
        while left > 0:
            piece = self.rfile.read(min(left, 1 << 16))
            size, left = size + len(piece), left - len(piece)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"%d" % size)


@pytest.fixture(params=["HTTP/1.0", "HTTP/1.1"])
def inside(request):
    handler = type("Handler", (Inside,), {"protocol_version": request.param})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join(10 * SLOW)


def test_a_page_of_a_guest_is_shown(echo, inside):
    answer = curl("-i", "-H", "Authorization: Bearer secret", "-H", "Cookie: own=1", echo.url(f"/proxy/{inside}/hello?x=1"))
    assert b"Content-Security-Policy: sandbox allow-scripts\r\n" in answer
    assert b"secret" not in answer and b"own=1" in answer and f"localhost:{inside}".encode() in answer


def test_a_redirect_stays_in_the_preview(echo, inside):
    answer = curl("-L", "-w", "%{http_code} %{url_effective}", "-o", "/dev/null", echo.url(f"/proxy/{inside}/redirect"))
    assert answer.decode() == "200 " + echo.url(f"/proxy/{inside}/landed")


def test_much_goes_through_a_preview_both_ways(echo, inside, tmp_path):
    big = tmp_path / "big"
    with big.open("wb") as file:
        file.truncate(1 << 28)
    before = echo.peak_memory()
    assert curl("-T", str(big), echo.url(f"/proxy/{inside}/")) == b"%d" % (1 << 28)
    curl("-o", str(tmp_path / "got"), echo.url(f"/proxy/{inside}/bytes/{1 << 26}"))
    assert (tmp_path / "got").stat().st_size == 1 << 26
    assert echo.peak_memory() < before + (4 << 20)


def test_many_requests_share_a_clients_connection(echo, inside):
    connection = http.client.HTTPConnection("127.0.0.1", echo.port, timeout=10 * SLOW)
    for i in range(50):
        connection.request("GET", f"/proxy/{inside}/bytes/{i}")
        assert len(connection.getresponse().read()) == i
    connection.close()


def test_nothing_there_is_a_502(echo):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    assert curl("-o", "/dev/null", "-w", "%{http_code}", echo.url(f"/proxy/{port}/")) == b"502"


def test_a_websocket_of_a_guest_is_reached(echo):
    async def talk():
        async def answer(socket):
            async for message in socket:
                await socket.send(message)

        async with websockets.serve(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with websockets.connect(echo.url(f"/proxy/{port}/chat", "ws")) as socket:  # with their own compression
                for message in ["hello", b"\x00\xff" * 1000, "y" * 500000]:
                    await socket.send(message)
                    assert await socket.recv() == message

    asyncio.run(talk())


# ---- WebSocket ----


def test_python_speaks_with_it(echo):
    async def talk():
        async with websockets.connect(echo.url("/ws", "ws"), subprotocols=["echo"], compression=None) as socket:
            assert socket.subprotocol == "echo"
            for message in ["hello", "", "ümläut \N{SNOWMAN}", b"", b"\x00\xff" * 500, "x" * 70000, bytes(1 << 20)]:
                await socket.send(message)
                assert await socket.recv() == message
            await socket.send(["in ", "three ", "pieces"])
            assert await socket.recv() == "in three pieces"
            await (await socket.ping(b"are you there"))
            await asyncio.sleep(1)  # its pings are answered meanwhile
            await socket.send("still here")
            assert await socket.recv() == "still here"

    asyncio.run(talk())
    assert echo.closed_with() == 1000


def test_an_offer_to_compress_is_not_taken_up(echo):
    async def talk():
        async with websockets.connect(echo.url("/ws", "ws"), compression="deflate") as socket:
            assert not socket.extensions
            await socket.send("plain")
            assert await socket.recv() == "plain"

    asyncio.run(talk())


def test_either_side_may_close(echo):
    async def talk():
        async with websockets.connect(echo.url("/ws", "ws")) as socket:
            await socket.send("close 4321")
            with pytest.raises(websockets.ConnectionClosed):
                await socket.recv()
            assert (socket.close_code, socket.close_reason) == (4321, "as you wish")
        async with websockets.connect(echo.url("/ws", "ws")) as socket:
            await socket.close(3210, "enough")
            assert socket.close_code == 3210

    asyncio.run(talk())
    assert echo.closed_with() == 4321
    assert echo.closed_with() == 3210


def test_a_message_that_is_too_large_is_1009(echo):
    async def talk():
        async with websockets.connect(echo.url("/ws", "ws"), max_size=None) as socket:
            with contextlib.suppress(websockets.ConnectionClosed):
                await socket.send(bytes((1 << 20) + 1))
                await socket.recv()
            await socket.wait_closed()
            assert socket.close_code == 1009

    asyncio.run(talk())
    assert echo.closed_with() == 1009


def test_a_flood_goes_at_the_pace_of_its_reader(echo):
    async def talk():
        async with websockets.connect(echo.url("/ws", "ws"), max_size=None, max_queue=1, read_limit=65536) as socket:
            await socket.send("flood 64")
            await asyncio.sleep(1)
            size = 0
            while size < 64 << 20:
                size += len(await socket.recv())

    before = echo.peak_memory()
    asyncio.run(talk())
    assert echo.peak_memory() < before + (4 << 20)


NODE = """
const net = require('net'), crypto = require('crypto');
const key = crypto.randomBytes(16).toString('base64');
const request = require('http').request(process.argv[1], {headers: {
    Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Key': key, 'Sec-WebSocket-Version': '13'}});
request.on('upgrade', (response, socket, head) => {
    const proof = crypto.createHash('sha1').update(key + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64');
    if (response.headers['sec-websocket-accept'] !== proof) throw new Error('the proof is wrong');
    socket.write(Buffer.from([0x81, 0x82, 1, 2, 3, 4, 0x68 ^ 1, 0x69 ^ 2]));
    socket.on('data', data => { console.log(data.toString('hex')); socket.destroy(); });
});
request.end();
"""


@pytest.mark.skipif(not os.access("/usr/bin/node", os.X_OK), reason="node is not installed")
def test_node_is_upgraded(echo):
    answer = subprocess.run(["/usr/bin/node", "-e", NODE, echo.url("/ws")], check=True, capture_output=True, text=True, timeout=30 * SLOW)
    assert answer.stdout.strip() == "81026869"
    assert echo.closed_with() == 1006
