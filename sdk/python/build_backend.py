"""Builds the package for pip (PEP 517 and 660) with nothing but Python: no network and no other package is needed."""

import base64
import hashlib
import io
import pathlib
import re
import tarfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE / "src"
NAME = "hotcell"
STAMP = (2026, 1, 1, 0, 0, 0)  # the same files make the same wheel


def version():
    return re.search(r'__version__ = "([^"]+)"', (SOURCE / NAME / "_version.py").read_text())[1]


def project():
    """The simple fields of [project], which is all that there is; tomllib is newer than the oldest Python that this is for."""
    text = (HERE / "pyproject.toml").read_text()
    return {key: value for key, value in re.findall(r'^([a-z-]+) = "([^"]*)"$', text.partition("[project]")[2].partition("\n[")[0], re.M)}


def metadata():
    facts = project()
    lines = ["Metadata-Version: 2.1", f"Name: {NAME}", f"Version: {version()}", f"Summary: {facts['description']}", "License: Apache-2.0",
             f"Requires-Python: {facts['requires-python']}", "Description-Content-Type: text/markdown"]
    return "\n".join(lines) + "\n\n" + (HERE / "README.md").read_text()


def modules():
    """Every file of the package, by its name in site-packages."""
    return {str(path.relative_to(SOURCE)): path.read_bytes() for path in sorted((SOURCE / NAME).rglob("*"))
            if path.suffix == ".py" or path.name == "py.typed"}


def info_files():
    return {"METADATA": metadata(), "WHEEL": "Wheel-Version: 1.0\nGenerator: hotcell\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "top_level.txt": f"{NAME}\n"}


def info_folder():
    return f"{NAME}-{version()}.dist-info"


def write_wheel(folder, files):
    name = f"{NAME}-{version()}-py3-none-any.whl"
    contents = dict(files)
    contents.update({f"{info_folder()}/{key}": value.encode() for key, value in info_files().items()})
    record = ""
    for path, data in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(data)}\n"
    contents[f"{info_folder()}/RECORD"] = (record + f"{info_folder()}/RECORD,,\n").encode()
    with zipfile.ZipFile(pathlib.Path(folder) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in contents.items():
            entry = zipfile.ZipInfo(path, STAMP)
            entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    return name


# ---- what pip calls ----

def get_requires_for_build_wheel(config_settings=None):
    return []


get_requires_for_build_sdist = get_requires_for_build_editable = get_requires_for_build_wheel


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    folder = pathlib.Path(metadata_directory) / info_folder()
    folder.mkdir()
    for name, text in info_files().items():
        (folder / name).write_text(text)
    return folder.name


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return write_wheel(wheel_directory, modules())


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return write_wheel(wheel_directory, {f"{NAME}.pth": f"{SOURCE}\n".encode()})


def build_sdist(sdist_directory, config_settings=None):
    base = f"{NAME}-{version()}"
    files = {f"src/{name}": data for name, data in modules().items()}
    files.update({name: (HERE / name).read_bytes() for name in ("pyproject.toml", "README.md", "build_backend.py", "generate.py")})
    files["PKG-INFO"] = metadata().encode()
    with tarfile.open(pathlib.Path(sdist_directory) / f"{base}.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(f"{base}/{name}")
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return f"{base}.tar.gz"
