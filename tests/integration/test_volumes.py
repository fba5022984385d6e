"""Volumes: folders that outlive sandboxes, with a size that holds, a tenant's own.

They take root, a loop device and ext4. Where one of them is missing these tests say which, and are skipped with that reason; that the server
refuses volumes there, with the remedy, is tested all the same (test_without_root_...).
"""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

from cells import HOTCELL, SLOW
from openapi import Contract
from server import Server, server, start_server  # noqa: F401

MIB = 1 << 20


def missing():
    """What this machine lacks for volumes, or None."""
    if os.geteuid() != 0:
        return "volumes take root"
    if not pathlib.Path("/dev/loop-control").exists():
        return "there is no /dev/loop-control"
    if "ext4" not in pathlib.Path("/proc/filesystems").read_text().split():
        return "this kernel has no ext4 (or its module is not loaded)"
    if not any(os.access(f"{folder}/mke2fs", os.X_OK) for folder in ("/usr/sbin", "/sbin")):
        return "e2fsprogs is not installed"
    return None


needs_volumes = pytest.mark.skipif(missing() is not None, reason=str(missing()))


class Box:
    """One sandbox of a server."""

    def __init__(self, server, headers=None, **order):
        self.server, self.headers = server, headers
        answer = server.post("/v1/sandboxes", order, headers=headers)
        assert answer.status == 201, answer
        self.facts, self.id = answer.json, answer.json["id"]

    def run(self, command, **more):
        answer = self.server.post(f"/v1/sandboxes/{self.id}/exec", {"command": command, **more}, headers=self.headers)
        assert answer.status == 200, answer
        return answer.json

    def output(self, command):
        result = self.run(command)
        assert result["exit_code"] == 0, result
        return result["stdout"].strip()

    def end(self):
        self.server.delete(f"/v1/sandboxes/{self.id}", headers=self.headers)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def create(server, name, size="16m", headers=None):
    answer = server.post("/v1/volumes", {"name": name, "size": size}, headers=headers)
    assert answer.status == 201, answer
    return answer.json


def remove(server, name, headers=None):
    answer = server.delete(f"/v1/volumes/{name}", headers=headers)
    assert answer.status == 204, answer


def volumes(server, headers=None):
    answer = server.get("/v1/volumes", headers=headers)
    assert answer.status == 200, answer
    return {row["name"]: row for row in answer.json["volumes"]}


@contextlib.contextmanager
def volume(server, name, size="16m"):
    create(server, name, size)
    try:
        yield name
    finally:
        remove(server, name)


def at(name, path="/data", **more):
    return [{"name": name, "path": path, **more}]


def loops_of(state):
    """Loop devices whose file is below this folder."""
    found = []
    for device in pathlib.Path("/sys/block").glob("loop*"):
        with contextlib.suppress(OSError):
            if (device / "loop/backing_file").read_text().startswith(str(state)):
                found.append(device.name)
    return found


def eventually(check, within=10):
    deadline = time.monotonic() + within * SLOW
    while not (value := check()):
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)
    return value


# ---- life ----


@needs_volumes
def test_a_volume_is_made_listed_and_removed(server):
    made = create(server, "first", "32m")
    assert made["name"] == "first" and made["size"] == 32 * MIB and made["used"] < MIB and made["sandboxes"] == 0, made
    assert abs(time.time() - time.mktime(time.strptime(made["created_at"][:19], "%Y-%m-%dT%H:%M:%S")) + time.timezone) < 60 * SLOW
    assert volumes(server)["first"] == made
    remove(server, "first")
    assert "first" not in volumes(server)
    assert server.delete("/v1/volumes/first").status == 404


@needs_volumes
def test_answers_are_as_described(server):
    contract = Contract(server.get("/openapi.json").json)
    contract.check("POST", "/v1/volumes", server.post("/v1/volumes", {"name": "told", "size": 20 * MIB}))
    for wrong in ({"name": "told", "size": "16m"}, {"name": "told"}, {"name": "x", "size": "99999g"}, {"other": 1}):
        contract.check("POST", "/v1/volumes", server.post("/v1/volumes", wrong))
    contract.check("POST", "/v1/volumes", server.post("/v1/volumes", b"name=told", headers={"Content-Type": "text/plain"}))
    made = contract.check("POST", "/v1/sandboxes", server.post("/v1/sandboxes", {"volumes": at("told")}))
    contract.check("POST", "/v1/sandboxes", server.post("/v1/sandboxes", {"volumes": at("nothing")}))
    contract.check("GET", "/v1/volumes", server.get("/v1/volumes"))
    contract.check("GET", "/v1/volumes", server.get("/v1/volumes", unix=True))
    contract.check("GET", "/v1/stats", server.get("/v1/stats"))
    contract.check("DELETE", "/v1/volumes/{name}", server.delete("/v1/volumes/told"))
    server.delete(f"/v1/sandboxes/{made.json['id']}")
    assert contract.check("DELETE", "/v1/volumes/{name}", server.delete("/v1/volumes/told")).status == 204
    assert contract.check("DELETE", "/v1/volumes/{name}", server.delete("/v1/volumes/told")).status == 404


@needs_volumes
def test_the_command_line(server):
    def hotcell(*words):
        return subprocess.run([HOTCELL, *words, "--server", f"unix:{server.unix}"], capture_output=True, text=True, timeout=60)

    assert hotcell("volume", "create", "typed", "--size", "32m").returncode == 0
    listed = hotcell("volume", "list")
    assert "typed" in listed.stdout and "32" in listed.stdout, listed
    made = hotcell("sandbox", "create", "--volume", "typed:/cache")
    assert made.returncode == 0, made
    held = hotcell("volume", "remove", "typed")
    assert held.returncode != 0 and "typed" in held.stderr, held
    assert hotcell("sandbox", "rm", made.stdout.split()[0]).returncode == 0
    removed = hotcell("volume", "remove", "typed")
    assert removed.returncode == 0, removed


@needs_volumes
def test_what_is_in_a_volume_outlives_its_sandbox(server):
    with volume(server, "keeps"):
        with Box(server, volumes=at("keeps")) as box:
            assert box.facts["volumes"] == [{"name": "keeps", "path": "/data", "read_only": False}]
            assert box.output("mkdir /data/d && echo kept > /data/d/f && ls -A /data") == "d"
            assert box.output("stat -c '%U %a' /data /data/d/f").split("\n") == ["sandbox 755", "sandbox 644"]
        with Box(server, volumes=at("keeps", "/other")) as box:
            assert box.output("cat /other/d/f; echo more >> /other/d/f; rm -r /other/d; ls -A /other") == "kept"


@needs_volumes
def test_two_sandboxes_have_one_volume_at_once(server):
    with volume(server, "both"):
        with Box(server, volumes=at("both")) as one, Box(server, volumes=at("both")) as other:
            one.output("echo from one > /data/a")
            assert other.output("cat /data/a && echo from other > /data/a") == "from one"
            assert one.output("cat /data/a") == "from other"
            assert volumes(server)["both"]["sandboxes"] == 2
            refused = server.delete("/v1/volumes/both")
            assert refused.status == 409 and refused.json["code"] == "conflict", refused
        # both are on their way out: that is waited for


@needs_volumes
def test_many_sandboxes_open_one_volume_at_the_same_time(server):
    with volume(server, "race"):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            boxes = list(pool.map(lambda number: Box(server, volumes=at("race")), range(8)))
        for number, box in enumerate(boxes):
            box.output(f"echo {number} > /data/{number}")
        assert boxes[0].output("cat /data/*").split() == [str(number) for number in range(8)]
        for box in boxes:
            box.end()


@needs_volumes
def test_several_volumes_in_one_sandbox(server):
    with volume(server, "one"), volume(server, "two"):
        with Box(server, volumes=at("one", "/one") + at("two", "/workspace/two")) as box:
            box.output("echo 1 > /one/x; echo 2 > /workspace/two/x")
        with Box(server, volumes=at("two", "/two") + at("one", "/mnt/one")) as box:
            assert box.output("cat /mnt/one/x /two/x").split() == ["1", "2"]


@needs_volumes
def test_a_volume_as_the_working_directory(server):
    with volume(server, "work"):
        with Box(server, volumes=at("work", "/workspace"), files={"a.txt": "first file"}) as box:
            assert box.output("cat a.txt") == "first file"
        with Box(server, volumes=at("work", "/workspace")) as box:
            assert box.output("cat a.txt") == "first file"


@needs_volumes
def test_it_is_there_after_a_restart_of_the_server(start_server, tmp_path):
    one = start_server(state=tmp_path / "state")
    create(one, "stays")
    Box(one, volumes=at("stays")).output("echo still here > /data/f; sync /data/f")
    used = volumes(one)["stays"]["used"]
    assert used > 0
    one.stop()
    eventually(lambda: not loops_of(tmp_path))
    one.start()
    assert volumes(one)["stays"]["sandboxes"] == 0 and volumes(one)["stays"]["used"] == used
    with Box(one, volumes=at("stays")) as box:
        assert box.output("cat /data/f") == "still here"


@needs_volumes
def test_a_gateway_that_dies_takes_no_volume_along(start_server):
    one = start_server()
    create(one, "lives", "200m")
    with Box(one, volumes=at("lives")) as box:
        box.output("echo a > /data/f")
        os.kill(one.process_of("hotcell-gateway"), signal.SIGKILL)
        with contextlib.suppress(OSError):
            eventually(lambda: one.get("/v1/sandboxes").status == 200)
        eventually(lambda: len(one.get("/v1/sandboxes").json["sandboxes"]) == 1)
        assert box.output("cat /data/f; head -c 150M /dev/zero > /data/large; stat -c %s /data/large").split() == ["a", str(150 * MIB)]
        assert volumes(one)["lives"]["sandboxes"] == 1
        assert one.delete("/v1/volumes/lives").status == 409
    remove(one, "lives")


@needs_volumes
def test_a_sandbox_that_recovers_has_its_volume_again(start_server):
    one = start_server()
    create(one, "again")
    with Box(one, volumes=at("again"), recover=True) as box:
        box.output("echo a > /data/f")
        os.kill(one.process_of("hotcell-warden"), signal.SIGKILL)
        eventually(lambda: one.get(f"/v1/sandboxes/{box.id}").json["state"] == "failed" and one.get("/readyz").status == 200)
        assert box.output("cat /data/f") == "a"
    remove(one, "again")


# ---- its size ----


@needs_volumes
def test_the_size_is_enforced(server):
    with volume(server, "small", "24m"):
        with Box(server, volumes=at("small"), limits={"disk": "1m"}) as box:
            result = box.run("head -c 64M /dev/zero > /data/f")
            assert result["exit_code"] != 0 and "No space left on device" in result["stderr"], result
            size = int(box.output("stat -c %s /data/f"))
            assert 16 * MIB < size <= 24 * MIB, size
            box.output("sync /data/f")
            assert size <= volumes(server)["small"]["used"] <= 24 * MIB
            image = server.state / "volumes/local/small.img"
            assert image.stat().st_size == 24 * MIB and image.stat().st_blocks * 512 <= 24 * MIB + 65536
            box.output("rm /data/f")
            box.output("head -c 10M /dev/zero > /data/f")  # there is room again, and more than the sandbox's disk has


@needs_volumes
def test_the_number_of_files_is_limited(server):
    with volume(server, "files"):
        with Box(server, volumes=at("files"), limits={"timeout": 120}) as box:
            result = box.run(["python3", "-c", "for i in range(200000): open(f'/data/{i}', 'x').close()"])
            assert result["exit_code"] != 0 and "No space left on device" in result["stderr"], result


@needs_volumes
def test_a_file_may_be_larger_than_the_disk_of_the_sandbox(server):
    with volume(server, "large", "300m"):
        with Box(server, volumes=at("large"), limits={"timeout": 120}) as box:
            assert box.output("head -c 200M /dev/zero > /data/f; stat -c %s /data/f") == str(200 * MIB)


@needs_volumes
def test_read_only(server):
    with volume(server, "fixed"):
        with Box(server, volumes=at("fixed")) as writer, Box(server, volumes=at("fixed", read_only=True)) as reader:
            writer.output("echo a > /data/f")
            assert reader.output("cat /data/f") == "a"
            for command in ("echo b > /data/f", "touch /data/g", "rm /data/f", "mkdir /data/d", "chmod 777 /data/f"):
                assert reader.run(command)["exit_code"] != 0, command
            assert writer.output("cat /data/f; echo c > /data/f") == "a"


@needs_volumes
def test_limits_of_the_configuration(start_server):
    one = start_server("[volumes]\nmax_size = '64m'\nmax_total = '96m'\nmax_per_tenant = 2\n")
    large = one.post("/v1/volumes", {"name": "a", "size": "65m"})
    assert large.status == 400 and large.json["field"] == "size" and "volumes.max_size" in large.text, large
    create(one, "a", "64m")
    full = one.post("/v1/volumes", {"name": "b", "size": "64m"})
    assert full.status == 429 and full.json["code"] == "quota_exceeded" and "volumes.max_total" in full.text, full
    create(one, "b", "16m")
    many = one.post("/v1/volumes", {"name": "c", "size": "16m"})
    assert many.status == 429 and "volumes.max_per_tenant" in many.text, many
    assert one.get("/v1/stats").json["volumes"] == {"count": 2, "size": 80 * MIB}
    remove(one, "a")
    create(one, "c", "64m")
    assert sorted(path.name for path in (one.state / "volumes/local").iterdir()) == ["b.img", "c.img"]


# ---- what is asked wrongly ----


@pytest.mark.parametrize("name", ["", "A", "a b", "../a", "a/b", ".a", "-a", "_a", "a.img", "ä", "a" * 41, "a\u0000b", 5, None])
def test_names_are_checked(server, name):
    answer = server.post("/v1/volumes", {"name": name, "size": "16m"})
    assert answer.status == 400 and answer.json["field"] == "name", answer
    if isinstance(name, str):
        answer = server.post("/v1/sandboxes", {"volumes": at(name)})
        assert answer.status == 400 and answer.json["field"] == "volumes[0].name", answer


@pytest.mark.parametrize("size", [None, 0, -1, 1.5, True, "", "large", "-1m", [], "1m", 1 << 62, "999999999g"])
def test_sizes_are_checked(server, size):
    answer = server.post("/v1/volumes", {"name": "odd", "size": size})
    assert answer.status == 400 and answer.json["field"] == "size", answer


@pytest.mark.parametrize("order, field", [
    ({"name": "x"}, "volumes[0].path"),
    ({"path": "/data"}, "volumes[0].name"),
    ({"name": "x", "path": "data"}, "volumes[0].path"),
    ({"name": "x", "path": "/"}, "volumes[0].path"),
    ({"name": "x", "path": "/proc/x"}, "volumes[0].path"),
    ({"name": "x", "path": "/usr"}, "volumes[0].path"),
    ({"name": "x", "path": "/data/../etc"}, "volumes[0].path"),
    ({"name": "x", "path": "/data", "read_only": "yes"}, "volumes[0].read_only"),
    ({"name": "x", "path": "/data", "host": 3}, "volumes[0].host"),
    ("x", "volumes[0]"),
])
def test_orders_are_checked(server, order, field):
    answer = server.post("/v1/sandboxes", {"volumes": [order]})
    assert answer.status == 400 and answer.json["field"] == field, answer


def test_paths_of_volumes_are_apart(server):
    for other in ("/data", "/data/below"):
        answer = server.post("/v1/sandboxes", {"volumes": at("x") + at("y", other)})
        assert answer.status == 400 and answer.json["field"] == "volumes[1].path", answer
    answer = server.post("/v1/sandboxes", {"volumes": [row for n in range(17) for row in at("x", f"/d{n}")]})
    assert answer.status == 400 and answer.json["field"] == "volumes", answer


@needs_volumes
def test_a_volume_that_is_not_there(server):
    answer = server.post("/v1/sandboxes", {"volumes": at("nothing")})
    assert answer.status == 404 and "nothing" in answer.json["detail"], answer
    assert server.get("/v1/sandboxes").json["count"] == 0
    assert server.delete("/v1/volumes/nothing").status == 404
    assert server.delete("/v1/volumes/NOTHING").status == server.delete("/v1/volumes/.hidden").status == 404
    assert server.delete("/v1/volumes/..%2Fnothing").status == 400


@needs_volumes
def test_a_name_is_given_once(server):
    with volume(server, "once"):
        again = server.post("/v1/volumes", {"name": "once", "size": "16m"})
        assert again.status == 409 and again.json["code"] == "conflict", again
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: server.post("/v1/volumes", {"name": "once", "size": "16m"}).status, range(4)))
    assert sorted(answers) == [201, 409, 409, 409], answers
    remove(server, "once")


@needs_volumes
def test_every_question_of_a_crowd_is_answered(server):
    with concurrent.futures.ThreadPoolExecutor(200) as pool:
        statuses = set(pool.map(lambda _: server.get("/v1/volumes").status, range(1000)))
    assert statuses == {200}, statuses


@needs_volumes
def test_tenants_are_apart(start_server):
    one = start_server()
    keys = {}
    for name in ("alice", "bob"):
        made = subprocess.run([HOTCELL, "key", "create", name, "--state", str(one.state)], capture_output=True, text=True, check=True)
        key = next(word for word in made.stdout.split() if word.startswith("hc_"))
        keys[name] = {"Authorization": f"Bearer {key}"}
    create(one, "secret", headers=keys["alice"])
    with Box(one, headers=keys["alice"], volumes=at("secret")) as box:
        box.output("echo hers > /data/f")
        assert volumes(one, keys["bob"]) == {}
        assert one.delete("/v1/volumes/secret", headers=keys["bob"]).status == 404
        assert one.post("/v1/sandboxes", {"volumes": at("secret")}, headers=keys["bob"]).status == 404
        assert one.delete("/v1/volumes/secret?tenant=alice", headers=keys["bob"]).status == 400
        create(one, "secret", headers=keys["bob"])
        with Box(one, headers=keys["bob"], volumes=at("secret")) as other:
            assert other.output("ls -A /data") == ""
            assert box.output("cat /data/f") == "hers"
        everybody = one.get("/v1/volumes", unix=True).json["volumes"]
        assert [(row["name"], row["tenant"], row["sandboxes"]) for row in everybody][0] == ("secret", "alice", 1)
        assert len(everybody) == 2
    eventually(lambda: one.request("DELETE", "/v1/volumes/secret?tenant=alice", unix=True).status == 204)
    assert volumes(one, keys["alice"]) == {}


@needs_volumes
def test_changes_are_in_the_audit_log_whatever_else_is(server):
    """Refusals, of which somebody can cause as many as he likes, do not hide them."""
    for _ in range(60):
        assert server.post("/v1/runs", {"none": 1}).status == 400
    with volume(server, "noted"):
        pass
    events = [json.loads(line) for line in (server.state / "audit.log").read_text().splitlines()]
    noted = [(event["event"], event.get("tenant")) for event in events if (event.get("detail") or {}).get("reason") == "noted"]
    assert noted == [("volume_created", "local"), ("volume_removed", "local")], events[-4:]


# ---- crashes ----


@needs_volumes
def test_nothing_is_left_when_the_server_is_killed(start_server, tmp_path):
    one = start_server(state=tmp_path / "state")
    create(one, "crash")
    box = Box(one, volumes=at("crash"))
    box.output("echo written > /data/f; sync /data/f")
    assert len(loops_of(tmp_path)) == 1
    assert str(tmp_path) not in pathlib.Path("/proc/self/mountinfo").read_text()
    os.kill(one.process.pid, signal.SIGKILL)
    one.process.wait()
    one.settle()
    one.start()  # at once, while the cells of the one before are still going
    with Box(one, volumes=at("crash")) as box:
        assert box.output("cat /data/f") == "written"
    one.stop()
    eventually(lambda: not loops_of(tmp_path))
    one.start()


@needs_volumes
def test_half_made_volumes_are_cleared_at_the_start(start_server, tmp_path):
    folder = tmp_path / "state/volumes/local"
    folder.mkdir(parents=True)
    (folder / ".new-half").write_bytes(b"x" * 4096)
    (folder / "not a volume").write_bytes(b"x")
    one = start_server(state=tmp_path / "state")
    assert volumes(one) == {} and not (folder / ".new-half").exists()
    create(one, "half")


@needs_volumes
def test_a_damaged_volume_is_repaired_or_refused(start_server, tmp_path):
    one = start_server(state=tmp_path / "state")
    create(one, "hurt", "64m")
    with Box(one, volumes=at("hurt")) as box:
        box.output("echo whole > /data/f")
    one.stop()
    eventually(lambda: not loops_of(tmp_path))
    image = tmp_path / "state/volumes/local/hurt.img"
    subprocess.run(["debugfs", "-w", "-R", "set_super_value state 0", str(image)], check=True, capture_output=True)
    one.start()
    with Box(one, volumes=at("hurt")) as box:  # not cleanly unmounted: checked, and good
        assert box.output("cat /data/f") == "whole"
    one.stop()
    eventually(lambda: not loops_of(tmp_path))
    with image.open("r+b") as file:  # beyond repair
        file.seek(4096)
        file.write(os.urandom(8 * MIB))
    one.start()
    answer = one.post("/v1/sandboxes", {"volumes": at("hurt")})
    assert answer.status == 503 and "damaged" in answer.json["detail"] and "e2fsck" in answer.json["detail"], answer
    remove(one, "hurt")


# ---- what a guest may try ----


@needs_volumes
def test_a_guest_leaves_nothing_that_matters(server):
    with volume(server, "rights"):
        with Box(server, volumes=at("rights")) as box:
            box.output("cp /usr/bin/id /data/id")
            assert box.run("chmod u+s /data/id")["exit_code"] != 0 and box.run("chmod g+s /data/id")["exit_code"] != 0
            options = box.output("grep ' /data ' /proc/self/mountinfo")
            assert "nosuid" in options and "nodev" in options and "loop" not in options.split(" - ")[0], options
            assert box.run("mknod /data/null c 1 3")["exit_code"] != 0
            assert box.run("chown 0 /data/id")["exit_code"] != 0
            assert box.run("setcap cap_sys_admin+ep /data/id || python3 -c \"import os; os.setxattr('/data/id', 'security.capability', b'x' * 20)\"")["exit_code"] != 0
            assert box.output("ls /dev | grep -c loop || true") == "0"
            assert box.run("mount -o remount,suid /data")["exit_code"] != 0
            assert box.run("umount /data")["exit_code"] != 0
        with Box(server, volumes=at("rights")) as box:
            assert "euid" not in box.output("/data/id")
    assert not (server.state / "volumes/local/rights.img").exists()


@needs_volumes
def test_links_in_a_volume_lead_nobody_out(server):
    with volume(server, "links"):
        with Box(server, volumes=at("links")) as box:
            box.output("ln -s /etc/shadow /data/shadow; ln -s / /data/root; ln -s .. /data/up; rm -rf /data/lost+found; ln -s /etc /data/lost+found")
        assert volumes(server)["links"]["used"] < MIB
        with Box(server, volumes=at("links")) as box:
            assert box.run("cat /data/shadow")["exit_code"] != 0
            assert box.output("ls -A /data").split() == ["lost+found", "root", "shadow", "up"]
            assert box.run(f"ls {server.state} /data/root{server.state}")["exit_code"] != 0
            assert box.run("cat /data/../data/root/proc/1/root/etc/shadow")["exit_code"] != 0


@needs_volumes
def test_a_volume_of_another_is_not_reached_from_inside(server):
    with volume(server, "mine"), volume(server, "theirs"):
        with Box(server, volumes=at("theirs")) as other, Box(server, volumes=at("mine")) as box:
            other.output("echo secret-of-theirs > /data/f")
            assert "secret-of-theirs" not in box.run("cat /data/f; for p in /proc/[0-9]*; do cat $p/root//data/f; done 2>/dev/null")["stdout"]
            assert "img" not in box.output("cat /proc/self/mountinfo")


@needs_volumes
def test_the_gateway_has_no_volumes(server):
    with volume(server, "closed"):
        folder = server.state / "volumes"
        assert folder.stat().st_uid == 0 and folder.stat().st_mode & 0o777 == 0o700
        gateway = server.process_of("hotcell-gateway")
        status = pathlib.Path(f"/proc/{gateway}/status").read_text()
        uid = int(status.split("Uid:")[1].split()[0])
        assert uid != 0
        looked = subprocess.run(["ls", str(folder)], user=uid, group=server.state.stat().st_gid, extra_groups=[], capture_output=True, text=True)
        assert looked.returncode != 0 and "Permission denied" in looked.stderr, looked


# ---- where they cannot be had ----


@pytest.mark.skipif(os.geteuid() != 0, reason="it takes root to start a server as somebody else")
def test_without_root_volumes_are_refused_with_the_remedy():
    one = Server()
    for folder in (one.folder, one.state):
        os.chown(folder, 65534, 65534)
    one.popen = {"user": 65534, "group": 65534, "extra_groups": []}
    one.env["HOME"] = str(one.folder)
    one.configure("[isolation]\nallow_weak = true\n")
    with one:
        for answer in (one.post("/v1/volumes", {"name": "a", "size": "16m"}), one.get("/v1/volumes"), one.post("/v1/sandboxes", {"volumes": at("a")})):
            assert answer.status == 400 and answer.json["code"] == "volumes_unavailable" and "root" in answer.json["remedy"], answer
