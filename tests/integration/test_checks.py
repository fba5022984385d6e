"""The checks of the tree find what they are there to find, and the test runner counts what it runs."""

import importlib.machinery
import importlib.util
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(tool, *arguments):
    return subprocess.run([ROOT / "tools" / tool, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)


def load(tool):
    """A tool as a module, to call its functions."""
    loader = importlib.machinery.SourceFileLoader(tool.replace("-", "_"), str(ROOT / "tools" / tool))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def tree(folder, **files):
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".c")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize(("layer", "include"), [
    ("base", '"text/toml.h"'),
    ("base", '"kernel/caps.h"'),
    ("text", '"run/config.h"'),
    ("kernel", '"text/json.h"'),
    ("kernel", '"cell/spec.h"'),
    ("cell", '"warden/proto.h"'),
    ("warden", '"run/plan.h"'),
    ("warden", '"text/toml.h"'),
    ("run", '"cell/build.h"'),
    ("run", '"warden/pool.h"'),
    ("run", '"cli/verbs.h"'),
    ("cli", '"run/engine.h"'),
    ("cli", '"gateway/runs.h"'),
    ("store", '"run/config.h"'),
    ("store", "<openssl/ssl.h>"),
    ("run", '"store/store.h"'),
    ("gateway", '"cell/build.h"'),
    ("gateway", "<sqlite3.h>"),
    ("serve", '"gateway/runs.h"'),
    ("warden", '"serve/proto.h"'),
    ("cli", '"message.h"'),
    ("warden", "<jansson.h>"),
    ("run", "<seccomp.h>"),
])
def test_a_wrong_include_is_found_and_named(tmp_path, layer, include):
    tree(tmp_path, **{f"{layer}__x": f'#include "base/err.h"\n  # include {include}\n'})
    done = run("check-layers", tmp_path)
    assert done.returncode == 1
    assert f"{layer}/x.c:2:" in done.stdout
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize(("layer", "include"), [
    ("base", '"base/fd.h"'),
    ("text", '"base/buf.h"'),
    ("kernel", '"seccomp_filter.h"'),
    ("cell", '"kernel/mount.h"'),
    ("warden", '"cell/spec.h"'),
    ("run", '"warden/keeper.h"'),
    ("run", '"kernel/probe.h"'),
    ("run", "<jansson.h>"),
    ("cli", '"hotcell.h"'),
    ("base", "<errno.h>"),
])
def test_a_right_include_passes(tmp_path, layer, include):
    done = run("check-layers", tree(tmp_path, **{f"{layer}__x": f"#include {include}\n"}))
    assert (done.returncode, done.stdout) == (0, "")


def test_a_folder_that_is_no_layer_is_found(tmp_path):
    assert "is not a layer" in run("check-layers", tree(tmp_path, misc__x="")).stdout


def test_no_sources_at_all_is_a_fault(tmp_path):
    assert run("check-layers", tmp_path).returncode == 1


@pytest.mark.parametrize("text", [
    "/* TO" "DO: later */\n",
    "int x; /* FIX" "ME */\n",
    'open("/wo' 'rk/main/x");\n',
    "int x; \n",
    "\tint x;\n",
    "int x;",
    "/* " + "x" * 120 + " */\n",
    "int x;\n" * 601,
])
def test_text_that_must_not_be_there_is_found(tmp_path, text):
    (tmp_path / "x.c").write_text(text)
    assert run("check-text", tmp_path / "x.c").returncode == 1


def test_plain_text_passes(tmp_path):
    (tmp_path / "x.c").write_text("/* Why this is so. */\nint x;\n")
    done = run("check-text", tmp_path / "x.c")
    assert (done.returncode, done.stdout) == (0, "")


def test_a_source_that_is_not_built_is_found(tmp_path):
    for name in ("src", "tests/unit", "tests/fuzz"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "meson.build").write_text("['known.c', 'known']\n")
    (tmp_path / "meson.build").write_text("")
    tree(tmp_path, src__base__known="", src__base__forgotten="", tests__unit__test_forgotten="", tests__fuzz__fuzz_known="")
    done = run("check-sources", tmp_path)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "src/base/forgotten.c is not in src/meson.build",
        "tests/unit/test_forgotten.c is not in tests/unit/meson.build",
        "tests/fuzz/fuzz_known.c has no corpus in tests/fuzz/corpus/known/",
    ]


@pytest.mark.parametrize(("text", "passed", "failed", "skipped", "complete"), [
    ("1..2\nok 1 - a\nok 2 - b\n", 2, 0, 0, True),
    ("1..2\nok 1 - a\nnot ok 2 - b\n# detail\n", 1, 1, 0, True),
    ("ok 1 - a\nok 2 # SKIP no kernel\n1..2\n", 1, 0, 1, True),
    ("1..3\nok 1 - a\n", 1, 0, 0, False),
    ("Segmentation fault\n", 0, 0, 0, False),
])
def test_the_runner_counts_tap_points_and_sees_a_crash(text, passed, failed, skipped, complete):
    counts, whole = load("run-tests").count_tap(text)
    assert (counts.passed, counts.failed, counts.skipped, whole) == (passed, failed, skipped, complete)


def test_the_runner_refuses_a_section_that_is_not_there():
    done = run("run-tests", "nosuchsection")
    assert done.returncode == 2
    assert "nosuchsection" in done.stderr


def test_every_make_target_is_in_the_help():
    done = subprocess.run(["make", "-C", ROOT, "--no-print-directory", "help"], capture_output=True, text=True, timeout=60, check=True)
    for target in ("all", "serve", "test", "test-v2", "soak", "install", "bench", "fuzz", "format", "lint", "clean"):
        assert f"make {target} " in done.stdout
