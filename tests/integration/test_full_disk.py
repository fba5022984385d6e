"""A disk without room: the server says so, and says that it is ready again when there is room, without waiting for somebody to send work."""

import contextlib
import os
import subprocess

import pytest

from cells import until
from server import Server

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")


@pytest.fixture
def room(tmp_path):
    """A file system of 4 MiB."""
    folder = tmp_path / "room"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=0755", "none", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill(path):
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass


def test_a_start_without_room_names_the_folder(room):
    fill(room / "filler")
    server = Server(state=room / "state")
    with pytest.raises(AssertionError, match=str(room / "state")):
        server.start()
    server.remove()


def test_readiness_comes_back_with_the_room(room):
    with Server(state=room / "state") as server:
        assert server.get("/readyz").status == 200
        fill(room / "filler")
        answers = []
        while len(answers) < 100 and (not answers or answers[-1].status == 200):  # the journal has room for some
            answers.append(server.run(code="print('x' * 60000)"))
        assert answers[-1].status == 503, answers[-1]
        ready = server.get("/readyz")
        assert ready.status == 503 and ready.json["store"] is False and ready.headers["retry-after"], ready
        (room / "filler").unlink()
        assert until(lambda: server.get("/readyz").status == 200, 10), "nobody sends work to a server that is not ready"
        assert server.run(code="print(1)").json["stdout"] == "1\n"
        for answer in answers[:-1]:
            assert server.get(f"/v1/runs/{answer.json['id']}").json["status"] == "completed", "what was answered is there"
