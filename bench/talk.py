"""HTTP on connections that are kept, as much of it as the benchmark of sandboxes needs; what Python adds is counted."""

import json
import select
import socket
import time

BLOCK = 1 << 20


class Refused(Exception):
    """An answer that does not count, or none: a failure must never pass for a fast answer."""


class Talk:
    """One connection to a server on loopback. Every answer must have a length, or be one without a body (204)."""

    def __init__(self, port):
        self.port = port
        self.room = bytearray(BLOCK)  # for the body of an answer
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def ask(self, method, path, body=None, wanted=(200,)):
        """(milliseconds, the body, until the next answer): from just before the request is written until its answer has
        been read."""
        request = self.request(method, path, body)
        begun = time.perf_counter_ns()
        self.send(request)
        answer = self.hear(f"{method} {path}", wanted)
        return (time.perf_counter_ns() - begun) / 1e6, answer

    def json(self, method, path, body=None, wanted=(200,)):
        """The same with JSON in both directions."""
        text = b"" if body is None else json.dumps(body).encode()
        taken, answer = self.ask(method, path, text, wanted)
        return taken, json.loads(bytes(answer)) if answer else None

    def request(self, method, path, body):
        """The parts to write: a large body is not copied behind its head."""
        body = body or b""
        head = (f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n").encode()
        return [head + body] if len(body) < BLOCK else [head, body]

    def send(self, request):
        for part in request:
            self.socket.sendall(part)

    def hear(self, what, wanted):
        got = b""
        while (end := got.find(b"\r\n\r\n")) < 0:
            got += self.more(what)
        status, length = int(got[9:12]), length_of(got[:end])
        if len(self.room) < length:
            self.room = bytearray(length)
        body = memoryview(self.room)[:length]
        have = len(got) - end - 4
        body[:have] = got[end + 4:]
        while have < length:
            count = self.socket.recv_into(body[have:])
            if count == 0:
                raise Refused(f"{what}: the server has closed the connection")
            have += count
        if status not in wanted:
            raise Refused(f"{what}: {status} {bytes(body[:300]).decode(errors='replace')}")
        return body

    def more(self, what):
        block = self.socket.recv(BLOCK)
        if not block:
            raise Refused(f"{what}: the server has closed the connection")
        return block


def length_of(head):
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


def all_of(port, connections, requests, wanted):
    """Asks [(method, path, body)], one at a time on each of so many connections. (Seconds, the answers' bodies.)"""
    talks = [Talk(port) for _ in range(connections)]
    waiting, answers = {}, []
    left = iter(requests)
    begun = time.perf_counter()
    try:
        free = talks
        while True:
            for talk in free:
                request = next(left, None)
                if request is not None:
                    talk.send(talk.request(*request))
                    waiting[talk.socket] = talk, request
            if not waiting:
                return time.perf_counter() - begun, answers
            ready, _, _ = select.select(list(waiting), [], [])
            free = []
            for one in ready:
                talk, request = waiting.pop(one)
                answers.append(bytes(talk.hear(" ".join(request[:2]), wanted)))
                free.append(talk)
    finally:
        for talk in talks:
            talk.socket.close()
