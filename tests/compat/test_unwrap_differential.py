"""A short run of the differential fuzzing of POST /execute's unwrapping, always with the same texts. `make fuzz` has the long one."""

import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HOTCELL", ROOT / "build" / "hotcell")).resolve().parent


def test_python_reads_the_same_from_dictionaries_and_fences():
    done = subprocess.run(["/usr/bin/python3", ROOT / "tests" / "fuzz" / "differential_unwrap.py", BUILD / "tests" / "fuzz" / "unwrap_print",
                           "--cases", "10000", "--seed", "1"], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0 and "no difference" in done.stdout, done.stdout + done.stderr
