"""Which layers hold on this machine, and that hotcell says so: in the result, in doctor, and by refusing where one is missing.

Run on a whole machine, this shows that nothing is called weak; the virtual machines without a controller, without Landlock and without user
namespaces show the rest.
"""

import json
import subprocess

import cells
import pytest
from cells import HOTCELL, SLOW

essential = pytest.mark.essential
weak_only = pytest.mark.skipif(not cells.machine_is_weak() or not cells.user_namespaces(), reason="this machine enforces every layer")
whole_only = pytest.mark.skipif(cells.machine_is_weak() or not cells.user_namespaces(), reason="this machine lacks a layer")
namespaces_only = pytest.mark.skipif(not cells.user_namespaces(), reason="no user namespaces")
without_namespaces_only = pytest.mark.skipif(cells.user_namespaces(), reason="this machine has user namespaces")


def doctor():
    done = subprocess.run([HOTCELL, "doctor", "--json"], capture_output=True, text=True, timeout=60 * SLOW, check=False)
    return done.returncode, json.loads(done.stdout), done.stdout + done.stderr


@essential
@namespaces_only
def test_layers_of_a_result_are_what_the_machine_has():
    run = cells.run("--", "/bin/true", weak=True)
    assert run.status == "completed", run
    assert run.isolation["layers"] == cells.machine_layers()
    assert run.isolation["level"] == ("weak" if cells.machine_is_weak() else "full")


@essential
@whole_only
def test_a_whole_machine_runs_without_asking():
    run = cells.run("--", "/bin/true", weak=False)
    assert run.status == "completed" and run.isolation["level"] == "full", run


@essential
@whole_only
def test_doctor_calls_a_whole_machine_safe():
    status, _, text = doctor()
    assert status == 0, text


@weak_only
def test_a_machine_that_lacks_a_layer_is_refused():
    """The guest does not start; what is missing is named, and so is the remedy and the way to accept it."""
    done = subprocess.run([HOTCELL, "run", "--", "/bin/echo", "started"], capture_output=True, text=True, timeout=60 * SLOW, check=False)
    assert done.returncode == 125 and "started" not in done.stdout, done
    for layer in set(cells.ALL_LAYERS) - set(cells.machine_layers()):
        assert layer in done.stderr.lower(), (layer, done.stderr)
    assert "--allow-weak" in done.stderr


@weak_only
def test_doctor_calls_a_weak_machine_unsafe_and_names_the_layer():
    status, _, text = doctor()
    assert status != 0
    for layer in set(cells.ALL_LAYERS) - set(cells.machine_layers()):
        assert layer in text.lower(), (layer, text)


@without_namespaces_only
@pytest.mark.parametrize("weak", [False, True])
def test_without_user_namespaces_nothing_runs(weak):
    """This layer is what a cell is made of, so there is nothing to accept: --allow-weak does not help."""
    option = ["--allow-weak"] if weak else []
    done = subprocess.run([HOTCELL, "run", *option, "--", "/bin/echo", "started"], capture_output=True, text=True, timeout=60 * SLOW,
                          check=False)
    assert done.returncode == 125 and "started" not in done.stdout, done
    assert "user namespace" in done.stderr and "max_user_namespaces" in done.stderr, done.stderr


@without_namespaces_only
def test_without_user_namespaces_doctor_says_so():
    status, _, text = doctor()
    assert status != 0 and "max_user_namespaces" in text
