"""The package: its files are current, typed, installable with nothing else, by pip and by dpkg."""

import ast
import os
import pathlib
import re
import subprocess
import sys

import pytest

import hotcell

ROOT = pathlib.Path(__file__).resolve().parents[2]
SDK = ROOT / "sdk" / "python"
FILES = sorted((SDK / "src" / "hotcell").rglob("*.py"))
IMPORTS = "import hotcell, hotcell.compat.openmanus, hotcell.compat.nemo, hotcell.compat.runner, hotcell.compat.code_sandbox; print(hotcell.__file__)"


def test_the_client_without_asyncio_is_what_is_made_of_the_other():
    done = subprocess.run([sys.executable, SDK / "generate.py", "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_its_version_is_the_servers():
    assert hotcell.__version__ == re.search(r"version: '([^']+)'", (ROOT / "meson.build").read_text())[1]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SDK)))
def test_each_file_is_python_39_documented_and_of_the_standard_library(path):
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    assert ast.get_docstring(tree), "the file says nothing about itself"
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [
            node.module] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
        for name in names:
            top = name.split(".")[0]
            assert top in sys.stdlib_module_names or top == "typing_extensions", f"{name} is not of the standard library"
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node) or any(isinstance(base, ast.Name) and base.id == "NamedTuple" for base in node.bases), node.name
    if path.parent.name == "_async" and path.name != "stream.py":
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name not in ("AsyncConnection", "AsyncHttp"):
                for inner in node.body:
                    if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)) and not inner.name.startswith("_"):
                        assert ast.get_docstring(inner) or inner.name in ("aclose", "json"), f"{node.name}.{inner.name} has no docstring"


def test_types_are_right():
    done = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", os.devnull, "--config-file", SDK / "pyproject.toml", SDK / "src" / "hotcell"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_pip_installs_it_offline(tmp_path):
    environment = {**os.environ, "PIP_CONFIG_FILE": os.devnull, "PYTHONPATH": ""}
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    for options in (["--no-build-isolation"], ["--force-reinstall"]):
        done = subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", *options, SDK], env=environment,
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    found = subprocess.run([python, "-c", IMPORTS], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert found.startswith(str(tmp_path / "venv"))
    assert (pathlib.Path(found.strip()).parent / "py.typed").exists()
    checked = subprocess.run([python, "-m", "pip", "--disable-pip-version-check", "show", "hotcell"], env=environment, capture_output=True, text=True,
                             check=True).stdout
    assert f"Version: {hotcell.__version__}" in checked


def test_a_debian_package_has_the_same(tmp_path):
    made = subprocess.run([ROOT / "packaging" / "debian-python" / "build", tmp_path], capture_output=True, text=True, check=True).stdout.strip()
    assert made == str(tmp_path / f"python3-hotcell_{hotcell.__version__}_all.deb")
    fields = subprocess.run(["dpkg-deb", "--field", made, "Package", "Version", "Depends"], capture_output=True, text=True, check=True).stdout
    assert fields == f"Package: python3-hotcell\nVersion: {hotcell.__version__}\nDepends: python3 (>= 3.9)\n"
    subprocess.run(["dpkg-deb", "--extract", made, tmp_path / "tree"], check=True)
    packages = tmp_path / "tree" / "usr" / "lib" / "python3" / "dist-packages"
    found = subprocess.run([sys.executable, "-c", IMPORTS], env={"PYTHONPATH": str(packages), "PATH": os.environ["PATH"]}, cwd=tmp_path,
                           capture_output=True, text=True, check=True).stdout
    assert found.startswith(str(packages))
    assert {str(path.relative_to(packages)) for path in packages.rglob("*.py")} >= {str(path.relative_to(SDK / "src")) for path in FILES}
