"""`hotcell run --mount`: what of the host a program sees, and what it never does (ATTACKS.md 95 to 100).

Every refusal is an error that names its rule, and the program does not start. The control is `allowed` below: the same command with
a folder that the policy allows prints the token.
"""

import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading

import pytest

TOKEN = "token-7d1f"


@pytest.fixture
def world():
    """data/ (with ref/, out/, file and a symlink to secret/) and secret/, in a folder that everyone can pass."""
    root = pathlib.Path(tempfile.mkdtemp(prefix="hotcell-mounts-"))
    root.chmod(0o755)
    for name in ("data", "data/ref", "data/out", "data-x", "secret"):
        (root / name).mkdir()
        (root / name).chmod(0o777)
    for name in ("data/file", "data/ref/file", "data-x/file"):
        (root / name).write_text(TOKEN)
    (root / "secret" / "file").write_text("secret-5a0c")
    (root / "data" / "escape").symlink_to(root / "secret")
    yield root
    shutil.rmtree(root)


@pytest.fixture
def run(hotcell, world):
    """run(mount, read=[…], write=[…], forbidden=[…], code="…") -> Outcome. By default the program prints /data/file."""

    def call(*mounts, read=(), write=(), forbidden=(), code="cat /data/file"):
        config = world / "config.toml"
        names = {"allowed_read_paths": read, "allowed_write_paths": write, "forbidden_paths": forbidden}
        lines = [f"{key} = [{', '.join(repr(str(path)) for path in paths)}]" for key, paths in names.items()]
        config.write_text("[isolation]\nallow_weak = true\n[mounts]\n" + "\n".join(lines) + "\n")
        words = [word for mount in mounts for word in ("--mount", mount)]
        return hotcell("run", "--config", config, *words, "-l", "sh", "-c", code,
                       env={"HOTCELL_SYSCONFDIR": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent"})

    return call


def assert_shown(outcome, text=TOKEN):
    assert (outcome.returncode, outcome.stdout) == (0, text), outcome


def assert_refused(outcome, *rules):
    assert outcome.returncode == 2, outcome
    assert outcome.stdout == "", outcome
    assert TOKEN not in outcome.stderr
    for rule in rules:
        assert rule in outcome.stderr, outcome


def test_an_allowed_folder_is_there_and_read_only(run, world):
    assert_shown(run(f"{world}/data:/data", read=[world / "data"]))
    outcome = run(f"{world}/data:/data:ro", read=[world / "data"], code="echo x > /data/file || echo x > /data/new; ls -a /data | wc -l")
    assert "Read-only file system" in outcome.stderr, outcome
    assert (world / "data" / "file").read_text() == TOKEN and not (world / "data" / "new").exists()


def test_a_writable_folder_takes_files(run, world):
    outcome = run(f"{world}/data/out:/data:rw", write=[world / "data" / "out"], code="echo made > /data/new && cat /data/new")
    assert_shown(outcome, "made\n")
    assert (world / "data" / "out" / "new").read_text() == "made\n"


def test_one_file_several_mounts_and_deep_targets(run, world):
    outcome = run(f"{world}/data/file:/in/a/file", f"{world}/data/ref:/workspace/ref", read=[world / "data"],
                  code="cat /in/a/file /workspace/ref/file; ls /in/a")
    assert_shown(outcome, TOKEN * 2 + "file\n")


def test_a_mount_in_another_is_seen_in_whatever_order_they_are_given(run, world):
    (world / "data" / "ref" / "inner").mkdir()
    mounts = [f"{world}/data/out:/data/inner", f"{world}/data/ref:/data"]
    (world / "data" / "out" / "mark").write_text("")
    for order in (mounts, mounts[::-1]):
        assert_shown(run(*order, read=[world / "data"], code="ls /data/inner && cat /data/file"), "mark\n" + TOKEN)


def test_two_mounts_in_one_place_are_refused(run, world):
    assert_refused(run(f"{world}/data/ref:/data", f"{world}/data:/data/", read=[world / "data"]), "two mounts have the path /data", "a path of its own")


def test_a_mount_in_a_place_that_the_one_around_it_does_not_have_is_refused(run, world):
    outcome = run(f"{world}/data:/data", f"{world}/data/ref:/data/none", read=[world / "data"])
    assert_refused(outcome, "/data/none: there is no such place", "make it in that host folder")
    assert not (world / "data" / "none").exists()


def test_what_lies_beside_a_mount_is_not_there(run, world):
    outcome = run(f"{world}/data/ref:/data", read=[world / "data"], code=f"ls /data /data/.. {world} /data/../../secret; cat /data/../secret/file")
    assert "secret-5a0c" not in outcome.stdout + outcome.stderr
    assert "data-x" not in outcome.stdout, outcome


def test_a_symlink_inside_a_mount_leads_nowhere_outside(run, world):
    outcome = run(f"{world}/data:/data", read=[world / "data"], code="cat /data/escape/file")
    assert outcome.returncode != 0 and "secret-5a0c" not in outcome.stdout, outcome


def test_without_an_allow_list_the_line_to_add_is_given(run, world):
    assert_refused(run(f"{world}/data:/data"), "allowed_read_paths", f'allowed_read_paths = ["{world}/data"]', "[mounts]")
    assert_refused(run(f"{world}/data:/data:rw"), f'allowed_write_paths = ["{world}/data"]')


def test_a_neighbour_with_the_same_beginning_is_not_allowed(run, world):
    assert_refused(run(f"{world}/data-x:/data", read=[world / "data"]), "under none of")
    assert_shown(run(f"{world}/data-x:/data", read=[world / "data-x"]))


def test_one_refused_mount_among_good_ones_stops_the_run(run, world):
    outcome = run(f"{world}/data:/data", f"{world}/secret:/secret", read=[world / "data"], code="echo started")
    assert_refused(outcome, f"{world}/secret")


@pytest.mark.parametrize("host", ["/", "//", "/.", "/proc", "/proc/", "/run", "/sys", "/dev", "/etc", "/etc/shadow", "/etc//passwd", "/etc/./shadow",
                                  "/root", "/root/.ssh", "/var", "/home", "/usr/../root", "/proc/self/root", "/proc/self/root/usr", "/dev/fd/0", "/dev/shm",
                                  "/var/run/docker.sock", "/boot"])
def test_what_is_never_mounted(run, world, host):
    """Also where the operator allowed everything. What this machine does not have is refused for that."""
    for mode in ("ro", "rw"):
        assert_refused(run(f"{host}:/data:{mode}", read=["/"], write=["/"], code="echo started"))


def test_hotcells_own_state_is_never_mounted(run):
    own = [path for path in ("/run/hotcell", "/var/lib/hotcell", "/var/cache/hotcell", "/etc/hotcell") if os.path.exists(path)]
    for path in [*own, "/var/lib", "/var/cache"]:
        reason = "parent of" if path not in own else "under /run" if path.startswith("/run/") else "hotcell's own"
        assert_refused(run(f"{path}:/data", read=["/"], code="echo started"), reason)


def test_forbidden_beats_allowed_and_covers_its_parents(run, world):
    everything = {"read": [world], "forbidden": [world / "data" / "ref"]}
    assert_refused(run(f"{world}/data/ref:/data", **everything), "forbidden", "take that entry out of the configuration")
    assert_refused(run(f"{world}/data:/data", **everything), "parent of")
    assert_refused(run(f"{world}:/data", **everything), "parent of")
    assert_shown(run(f"{world}/data-x:/data", **everything))


def test_a_symlink_is_judged_by_where_it_leads(run, world):
    assert_refused(run(f"{world}/data/escape:/data", read=[world / "data"]), f"{world}/secret", "under none of")
    (world / "data" / "shadow").symlink_to("/etc/shadow")
    assert_refused(run(f"{world}/data/shadow:/data", read=[world / "data"]), "/etc/shadow")
    (world / "near").symlink_to(world / "data")
    assert_shown(run(f"{world}/near:/data", read=[world / "data"]))


def test_a_read_only_path_is_never_writable(run, world):
    assert_refused(run(f"{world}/data:/data:rw", read=[world / "data"], code="echo x > /data/file"), "read-only")
    assert_refused(run(f"{world}/data:/data:rw", read=[world / "data/ref"], write=[world / "data"], code="echo x > /data/ref/file"), "holds")
    assert_refused(run(f"{world}/data/ref:/data:rw", read=[world / "data/ref"], write=[world / "data"], code="echo x > /data/file"), "read-only")
    assert (world / "data" / "file").read_text() == (world / "data" / "ref" / "file").read_text() == TOKEN


@pytest.mark.parametrize("target", ["/", "/proc", "/proc/x", "/dev/x", "/sys", "/etc", "/etc/x", "/usr/bin", "/bin", "/lib64", "/.hotcell", "../x", "data", "/data/../etc"])
def test_targets_that_are_the_cells_own(run, world, target):
    assert_refused(run(f"{world}/data:{target}", read=[world / "data"], code="echo started"))
    assert_shown(run(f"{world}/data:/data", read=[world / "data"]))


def test_what_does_not_exist_is_refused(run, world):
    assert_refused(run(f"{world}/data/absent:/data", read=[world / "data"]), "no such file")


def test_sockets_are_not_mounted(run, world):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(world / "data" / "docker.sock"))
        assert_refused(run(f"{world}/data/docker.sock:/data/docker.sock", read=[world / "data"], code="echo started"), "neither a folder nor a regular file")


def test_a_symlink_that_changes_meanwhile_never_shows_the_other_folder(run, world):
    """Checked and mounted is the same thing: the secret's folder is refused or not seen, however the link is switched."""
    link, stop = world / "link", threading.Event()
    link.symlink_to(world / "data")

    def switch():
        while not stop.is_set():
            for target in ("secret", "data"):
                (world / "next").symlink_to(world / target)
                (world / "next").rename(link)

    thread = threading.Thread(target=switch)
    thread.start()
    try:
        outcomes = [run(f"{link}:/data", read=[world / "data"]) for _ in range(25)]
    finally:
        stop.set()
        thread.join()
    assert all("secret-5a0c" not in outcome.stdout + outcome.stderr for outcome in outcomes), outcomes
    assert all(outcome.stdout == TOKEN or outcome.returncode != 0 for outcome in outcomes), outcomes
    assert any(outcome.stdout == TOKEN for outcome in outcomes), outcomes[0]


def caseless(folder):
    """Mounts a filesystem without case on `folder`; whether this machine can."""
    image = folder.parent / "caseless.img"
    steps = (["truncate", "-s", "8M", image], ["mkfs.ext4", "-q", "-O", "casefold", image], ["mount", "-o", "loop", image, folder])
    return all(subprocess.run(step, capture_output=True, check=False).returncode == 0 for step in steps)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_another_spelling_is_the_same_folder(run, world):
    folder = world / "data-x"
    if not caseless(folder):
        pytest.skip("this kernel has no filesystem without case")
    try:
        shared = folder / "Shared"
        shared.mkdir()
        subprocess.run(["chattr", "+F", shared], check=True)
        (shared / "Keys").mkdir()
        (shared / "Keys" / "file").write_text(TOKEN)
        assert_shown(run(f"{shared}/KEYS:/data", read=[folder]))
        assert_refused(run(f"{shared}/kEYS:/data", read=[folder], forbidden=[shared / "Keys"]))
    finally:
        subprocess.run(["umount", folder], check=True)
