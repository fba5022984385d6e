"""Previews: HTTP and WebSocket to a server inside a sandbox, by its path, by a signed link and by a host name."""

import asyncio
import contextlib
import hashlib
import json
import os
import socket
import time

import pytest

from openapi import Contract
from sandboxes import ROOT, Sandbox, wait_for
from server import Server
from test_access import bearer, key

websockets = pytest.importorskip("websockets", reason="python3-websockets is not installed")

POLICY = "sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads"
DOMAIN = "preview.test"
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND", "BREW")

# The server inside: 8000 is well-behaved, each line of NONSENSE is all that one port says.
GUEST = r'''
import base64, hashlib, http.server, json, socket, struct, threading, time

class Guest(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status=200, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def any(self):
        length = int(self.headers.get("Content-Length") or 0)
        page = self.path.partition("?")[0]
        if page == "/ws":
            return self.talk()
        if page == "/halves":
            self.send_response(200)
            self.send_header("Content-Length", "10")
            self.end_headers()
            for _ in range(2):
                self.wfile.write(self.rfile.read(5))
                self.wfile.flush()
            return
        digest, left = hashlib.sha256(), length
        while left and (piece := self.rfile.read(min(left, 65536))):
            digest.update(piece)
            left -= len(piece)
        if page == "/big":
            return self.reply(200, bytes(range(256)) * 78125)
        if page == "/redirect":
            return self.reply(302, headers=[("Location", self.headers["X-Where"])])
        if page == "/bold":
            return self.reply(418, headers=[("Hotcell-Recovered", "true"), ("Access-Control-Allow-Origin", "*"), ("Strict-Transport-Security", "max-age=1"),
                ("Clear-Site-Data", '"*"'), ("Service-Worker-Allowed", "/"), ("Content-Security-Policy", "default-src *"), ("X-Own", "kept"),
                ("Set-Cookie", "a=b; Path=/; Domain=preview.test; HttpOnly"), ("Connection", "close, X-Hop"), ("X-Hop", "1")])
        seen = {"method": self.command, "path": self.path, "headers": {name.lower(): value for name, value in self.headers.items()},
                "length": length, "sha256": digest.hexdigest()}
        self.reply(200, json.dumps(seen).encode(), [("Content-Type", "application/json")])

    def talk(self):
        proof = hashlib.sha1((self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
        self.send_response(101)
        for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", base64.b64encode(proof).decode())):
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        while head := self.rfile.read(2):
            length = head[1] & 127
            if length == 126:
                length, = struct.unpack(">H", self.rfile.read(2))
            elif length == 127:
                length, = struct.unpack(">Q", self.rfile.read(8))
            mask, data = self.rfile.read(4), self.rfile.read(length)
            plain = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
            size = bytes([length]) if length < 126 else b"\x7e" + struct.pack(">H", length) if length < 65536 else b"\x7f" + struct.pack(">Q", length)
            self.wfile.write(head[:1] + size + plain)
            if head[0] & 15 == 8:
                return

for method in METHODS + ("HEAD",):
    setattr(Guest, "do_" + method, Guest.any)

def babble(port, words):
    listener = socket.create_server(("127.0.0.1", port))
    while True:
        client = listener.accept()[0]
        client.recv(65536)
        client.sendall(words)
        client.close()

for port, words in enumerate(NONSENSE, 8001):
    threading.Thread(target=babble, args=(port, words), daemon=True).start()
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Guest).serve_forever()
'''
NONSENSE = (b"", b"nonsense\r\n\r\n", b"HTTP/1.1 9999 What\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
            b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200000, b"HTTP/1.1 200 OK\r\nX-A: a\r\n")


@pytest.fixture(scope="module")
def server():
    """With keys, so that it matters who asks, and with a domain."""
    with Server(f'[sandboxes]\ndomain = "{DOMAIN}"\n') as one:
        one.ada, one.bob = bearer(key(one, "create", "ada")), bearer(key(one, "create", "bob"))
        yield one


@pytest.fixture(scope="module")
def box(server):
    contract = Contract(server.get("/openapi.json", headers=server.ada).json)
    one = Sandbox(server, headers=server.ada, contract=contract, files={"guest.py": f"METHODS = {METHODS}\nNONSENSE = {NONSENSE}\n{GUEST}"})
    one.detach("exec python3 guest.py")
    wait_for(lambda: one.server.get(below(one), headers=one.headers).status == 200)
    return one


def below(box, path="/", port=8000):
    return f"{ROOT}/{box.id}/ports/{port}{path}"


def link(box, port=8000, **fields):
    answer = box.ask("POST", "/ports/{port}", fields, port=str(port))
    assert answer.status == 201, answer
    return answer.json


def test_any_method_with_its_path_and_query_and_body(server, box):
    for method in METHODS:
        answer = server.request(method, below(box, "/a%20b/c?x=1&y=%2F"), f"body of {method}", headers={**server.ada, "X-Mine": "1", "X-API-Key": "no"})
        assert answer.status == 200, (method, answer)
        seen = answer.json
        assert (seen["method"], seen["path"]) == (method, "/a%20b/c?x=1&y=%2F")
        assert seen["sha256"] == hashlib.sha256(f"body of {method}".encode()).hexdigest()
        assert seen["headers"]["host"] == "localhost:8000" and seen["headers"]["x-mine"] == "1"
        assert not {"authorization", "x-api-key"} & set(seen["headers"])  # a key of ours is not for a guest
    answer = server.request("HEAD", below(box), headers=server.ada)
    assert answer.status == 200 and answer.body == b"" and int(answer.headers["content-length"]) > 100
    answer = server.get(below(box, ""), headers=server.ada)
    assert answer.status == 308 and answer.headers["location"] == below(box)


def test_large_bodies_stream_both_ways(server, box):
    body = os.urandom(20_000_000)
    for method in ("POST", "PUT"):
        seen = server.request(method, below(box, "/take"), body, headers=server.ada).json
        assert (seen["length"], seen["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())
    answer = server.get(below(box, "/big"), headers=server.ada)
    assert answer.body == bytes(range(256)) * 78125
    with contextlib.closing(socket.create_connection(("127.0.0.1", server.port), timeout=30)) as client:
        head = f"POST {below(box, '/halves')} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {server.ada['Authorization']}\r\nContent-Length: 10\r\n\r\n"
        client.sendall(head.encode() + b"first")
        found = b""
        while not found.endswith(b"first"):  # half of the answer, while half of the question has not been asked
            found += client.recv(65536)
        client.sendall(b"other")
        while not found.endswith(b"firstother"):
            found += client.recv(65536)


def test_nobody_and_nonsense_are_502(server, box):
    answer = server.get(below(box, port=9), headers=server.ada)
    assert answer.status == 502 and answer.headers["content-type"].startswith("application/problem+json"), answer
    for port in range(8001, 8001 + len(NONSENSE)):
        answer = server.get(below(box, port=port), headers=server.ada)
        assert answer.status == 502 and answer.json["detail"], (NONSENSE[port - 8001], answer)
    for port in ("0", "65536", "http", "-1"):
        assert server.get(below(box, port=port), headers=server.ada).status == 400, port
    with pytest.raises(websockets.InvalidStatusCode) as refused:
        asyncio.run(talk(server, below(box, "/no-socket")))
    assert refused.value.status_code == 502


async def talk(server, path, host="localhost", headers=None):
    """Sends messages and has them back; the code that the connection closes with."""
    async with websockets.connect(f"ws://{host}{path}", host="127.0.0.1", port=server.port, extra_headers=server.ada if headers is None else headers,
                                  compression=None, max_size=None) as client:
        for message in ("grüße", b"\0\1\2\xff", os.urandom(300000)):
            await client.send(message)
            assert await asyncio.wait_for(client.recv(), 30) == message
    return client.close_code


def test_a_websocket_reaches_through(server, box):
    assert asyncio.run(talk(server, below(box, "/ws"))) == 1000
    assert asyncio.run(talk(server, link(box)["url"] + "ws", headers={})) == 1000


def headers_of(server, path, headers):
    with contextlib.closing(server.connect()) as connection:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        response.read()
        return response.status, response.msg


def test_a_guest_s_page_is_no_page_of_the_server_s(server, box):
    for path, prefix in ((below(box, "/bold"), below(box)), (link(box)["url"] + "bold", link(box)["url"])):
        status, headers = headers_of(server, path, server.ada)
        assert status == 418 and headers["X-Own"] == "kept"
        assert headers.get_all("Content-Security-Policy")[-1] == POLICY
        for name in ("Hotcell-Recovered", "Access-Control-Allow-Origin", "Strict-Transport-Security", "Clear-Site-Data", "Service-Worker-Allowed", "X-Hop"):
            assert name not in headers, name
        cookie = headers["Set-Cookie"]
        assert cookie.startswith("a=b; HttpOnly; Path=/") and "Domain" not in cookie and cookie.split("Path=")[1].split("/")[1] == prefix.split("/")[1]


def test_redirects_lead_below_the_prefix(server, box):
    prefix = below(box, "")
    for told, seen in (("/next?a=1", prefix + "/next?a=1"), ("http://localhost:8000/x", prefix + "/x"), ("http://localhost:8000", prefix + "/"),
                       ("sibling", "sibling"), ("https://elsewhere.example/", "https://elsewhere.example/"), (prefix + "/y", prefix + "/y")):
        answer = server.get(below(box, "/redirect"), headers={**server.ada, "X-Where": told})
        assert (answer.status, answer.headers["location"]) == (302, seen), told


def test_a_link_opens_without_a_key_until_it_expires(server, box):
    made = link(box, expires_in=1)
    url = made["url"]
    assert server.get(url + "page?q").json["path"] == "/page?q" and made["port"] == 8000
    lasting = link(box, expires_in="1h")["url"]
    token = lasting.split("/")[2]
    identity, port, expires, mark = token.split(".")
    for wrong in (token[:-1] + ("0" if token[-1] != "0" else "1"), f"{identity}.8001.{expires}.{mark}", f"{identity}.{port}.{int(expires, 16) + 1:x}.{mark}",
                  f"{identity}.{port}.{expires}.", f"{identity}.{port}.{expires}", token + "0", token[:-1], "x", f"{identity}.0{port}.{expires}.{mark}",
                  f"sbx_{'0' * 26}.{port}.{expires}.{mark}"):
        assert server.get(f"/preview/{wrong}/").status == 404, wrong
    wait_for(lambda: server.get(url).status == 404, within=5)
    assert server.get(lasting).status == 200
    other = Sandbox(server, headers=server.ada, contract=box.contract)
    gone = link(other)["url"]
    assert server.get(gone).status == 502  # a good link, and nobody there
    other.delete()
    wait_for(lambda: server.get(gone).status == 404)
    for bad in (0, -1, "never", 31 * 86400, []):
        answer = box.ask("POST", "/ports/{port}", {"expires_in": bad}, port="8000")
        assert answer.status == 400 and "expires_in" in answer.text, (bad, answer)
    assert box.ask("POST", "/ports/{port}", {"for": 1}, port="8000").status == 400


def test_a_host_name_of_its_own(server, box):
    host = {"Host": f"8000-{box.id}.{DOMAIN}"}
    answer = server.get("/v1/runs?x", headers={**host, **server.ada})  # every path is the guest's there
    assert answer.json["path"] == "/v1/runs?x" and "content-security-policy" not in answer.headers
    assert server.get("/redirect", headers={**host, **server.ada, "X-Where": "/next"}).headers["location"] == "/next"
    assert asyncio.run(talk(server, "/ws", host=host["Host"])) == 1000
    for headers in ({}, server.bob):
        assert server.get("/", headers={**host, **headers}).status in (401, 404)
    made = link(box)
    assert made["host_url"].startswith(f"http://{host['Host']}/?")
    entry = server.get("/" + made["host_url"].split("/", 3)[3], headers=host)
    assert entry.status == 302 and entry.headers["location"] == "/" and "HttpOnly" in entry.headers["set-cookie"]
    token = made["host_url"].split("?")[1]
    for asked, led in ((f"/a%20b/c?x=1&{token}&y=%2F", "/a%20b/c?x=1&y=%2F"), (f"/d?{token}&z", "/d?z"), (f"/{'e' * 8050}?{token}", "/")):
        assert server.get(asked, headers=host).headers["location"] == led, asked
    for elsewhere in ("//evil.example/", "/%2Fevil.example", "/\\evil.example"):
        assert server.get(f"{elsewhere}?{token}", headers=host).status == 400, elsewhere
    cookie = {"Cookie": "other=1; " + entry.headers["set-cookie"].split(";")[0]}
    assert server.get("/page", headers={**host, **cookie}).json["path"] == "/page"
    assert server.get("/page", headers={"Host": f"8001-{box.id}.{DOMAIN}", **cookie}).status in (401, 404)  # a link is for one port
    for name in (f"8000-sbx_none.{DOMAIN}", f"0-{box.id}.{DOMAIN}"):
        assert server.get("/", headers={"Host": name, **server.ada}).status in (400, 403, 404), name


def test_another_tenant_and_nobody_have_no_way_in(server, box):
    for path in (below(box), below(box, ""), below(box, "/ws")):
        assert server.get(path, headers=server.bob).status == 404
        assert server.get(path).status == 401
    assert server.post(below(box, ""), {}, headers=server.bob).status == 404
    assert server.post(below(box, ""), {}).status == 401


def test_the_server_s_own_port_is_not_there(server, box):
    assert server.get(below(box, "/healthz", port=server.port), headers=server.ada).status == 502
    connect = f"import socket; socket.create_connection(('127.0.0.1', {server.port}), 2)"
    assert box.exec(["python3", "-c", connect]).json["exit_code"] == 1


def test_one_that_is_open_keeps_the_sandbox_from_being_idle(server, box):
    short = Sandbox(server, headers=server.ada, contract=box.contract, idle_timeout=2, files={"guest.py": f"METHODS = {METHODS}\nNONSENSE = ()\n{GUEST}"})
    short.exec("setsid python3 guest.py > /dev/null 2>&1 &")
    wait_for(lambda: server.get(below(short), headers=server.ada).status == 200)

    async def linger():
        async with websockets.connect(f"ws://127.0.0.1:{server.port}{below(short, '/ws')}", extra_headers=server.ada, compression=None) as client:
            await asyncio.sleep(3.5)
            await client.send("still")
            assert await client.recv() == "still"

    asyncio.run(linger())
    begun = time.monotonic()
    wait_for(lambda: short.server.get(f"{ROOT}/{short.id}", headers=server.ada).status == 404)
    assert time.monotonic() - begun > 1
