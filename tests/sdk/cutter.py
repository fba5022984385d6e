"""A proxy that breaks connections: it forwards bytes to a server, and cuts each connection where its test says so."""

import socket
import threading


class Cutter:
    """`cuts` has one entry for each connection, in their order: how many bytes of the answer pass before it is cut, None for all of them.
    Connections after the last entry pass whole. `seen` is what clients sent, one entry for each connection."""

    def __init__(self, port, cuts):
        self.port, self.cuts, self.seen = port, list(cuts), []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            cut = self.cuts.pop(0) if self.cuts else None
            self.seen.append(bytearray())
            far = socket.create_connection(("127.0.0.1", self.port))
            threading.Thread(target=self.up, args=(near, far, self.seen[-1]), daemon=True).start()
            threading.Thread(target=self.down, args=(far, near, cut), daemon=True).start()

    @staticmethod
    def up(near, far, seen):
        try:
            while data := near.recv(65536):
                seen += data
                far.sendall(data)
            far.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    @staticmethod
    def down(far, near, cut):
        try:
            while cut is None or cut > 0:
                data = far.recv(65536 if cut is None else min(cut, 65536))
                if not data:
                    break
                near.sendall(data)
                cut = None if cut is None else cut - len(data)
            if cut == 0:
                far.recv(1)  # an answer was on its way
        except OSError:
            pass
        for one in (far, near):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            one.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()
