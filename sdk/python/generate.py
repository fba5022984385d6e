#!/usr/bin/python3
"""Make the client without asyncio (src/hotcell/_sync) from the one with it (src/hotcell/_async).

    ./generate.py            write it
    ./generate.py --check    exit with 1 if it is not what would be written

The two differ in words alone; what really differs, how bytes are sent and received, is in each folder's stream.py.
"""

import pathlib
import re
import sys

SOURCE = pathlib.Path(__file__).resolve().parent / "src" / "hotcell"
NAMES = ["http", "events", "client", "sandbox", "contexts", "files", "terminal"]
HEAD = "# Made from _async/{name}.py by generate.py: change that one.\n"
WORDS = [
    (r"async (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\baclose\b", "close"),
]


def made_of(name):
    text = (SOURCE / "_async" / f"{name}.py").read_text()
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text)
    return HEAD.format(name=name) + text


def main(arguments):
    stale = 0
    for name in NAMES:
        target, text = SOURCE / "_sync" / f"{name}.py", made_of(name)
        if target.exists() and target.read_text() == text:
            continue
        stale += 1
        if arguments == ["--check"]:
            print(f"{target.name} is not what generate.py makes of _async/{target.name}")
        else:
            target.write_text(text)
    return 1 if stale and arguments == ["--check"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
