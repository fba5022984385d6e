#!/usr/bin/python3
"""Compare hotcell's unwrapping of code with Python's own reading of the same text.

    tests/fuzz/differential_unwrap.py PROGRAM [--seconds N] [--cases N] [--seed N]

PROGRAM is unwrap_print of a build tree. Texts are made from a grammar and then damaged at random; for dictionaries the reference
is the ast module (what ast.literal_eval reads, and JSON's three words), for fences it is a plain reading of the rules with regular
expressions. Ends with the number of texts, and how many of them each side unwrapped; exit status 1 at the first difference.
"""

import argparse
import ast
import json
import random
import re
import struct
import subprocess
import sys
import time
import unicodedata
import warnings

LANGUAGES = ["python", "py", "bash", "c++", "javascript"]
BLANK = " \t\r\n\f"
DECIMAL = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?\Z", re.ASCII)
SIGNED = re.compile(r"[-+](?:[ \t\r\n\f]|#[^\r\n]*|\\\r?\n)*[\d.]")
WORDS = {"true", "false", "null"}
DEPTH = 16


# ---- the reference ----

class NotOurs(Exception):
    """Python reads it, but it is not among what hotcell promises to read."""


def check_value(node, source, depth):
    """Is this node one of the values that may stand in the dictionary? Returns the string, or None for another value."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool)):
        return None
    if isinstance(node, ast.Name) and node.id in WORDS:
        return None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
        if not is_number(node.operand, source) or not SIGNED.match(ast.get_source_segment(source, node)):
            raise NotOurs
        return None
    if is_number(node, source):
        return None
    if depth >= DEPTH:
        raise NotOurs
    if isinstance(node, (ast.List, ast.Tuple)):
        for item in node.elts:
            check_value(item, source, depth + 1)
        return None
    if isinstance(node, ast.Dict):
        check_dict(node, source, depth)
        return None
    raise NotOurs


def is_number(node, source):
    if not isinstance(node, ast.Constant) or isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
        return False
    return DECIMAL.match(ast.get_source_segment(source, node) or "") is not None


def check_dict(node, source, depth):
    found = {}
    for key, value in zip(node.keys, node.values):
        if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
            raise NotOurs
        found[key.value] = check_value(value, source, depth + 1)
    return found


def read_dictionary(text):
    """(code, language), or None when the text is no such dictionary."""
    text = text.strip(BLANK)
    if not text.startswith("{"):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    if not isinstance(tree.body, ast.Dict):
        return None
    try:
        found = check_dict(tree.body, text, 0)
    except NotOurs:
        return None
    for key in ("generated_code", "code"):
        if found.get(key) is not None:
            return found[key], (found.get("language") or "").replace("\0", "?")
    return None


def read_fence(text):
    """(code, language), or None when the text is not fenced."""
    body = re.sub(r"\A(?:[ \t\r\f]*\n)*", "", text).rstrip(BLANK)
    opening = re.match(r"([ \t]*)(`{3,})[ \t]*([^` \t\r\n\f]*)([ \t\r\f][^`\n]*)?\n", body)
    if not opening or "\0" in opening[3] or (opening[3] and opening[3].lower() not in LANGUAGES):
        return None
    inside = body[opening.end():]
    run = len(inside) - len(inside.rstrip("`"))
    if run < len(opening[2]):
        return None
    before = inside[:len(inside) - run]
    if re.search(r"(?:\A|\n)[ \t]*\Z", before):
        code = before.rstrip(" \t")
    else:
        code = inside[:len(inside) - len(opening[2])]
    if opening[1]:
        code = re.sub(r"(?m)^[ \t]{1,%d}" % len(opening[1]), "", code) if "\r" not in code else \
            "\n".join(re.sub(r"\A[ \t]{1,%d}" % len(opening[1]), "", line) for line in code.split("\n"))
    return code, opening[3]


def reference(text):
    language = ""
    dictionary = read_dictionary(text)
    if dictionary is not None:
        text, language = dictionary
    # What UTF-8 cannot hold is an escape in hotcell's answer: the fence is read with that.
    fenced = read_fence(text)
    if fenced is not None:
        return fenced[0], fenced[1] or language
    return text, language


def named(match):
    try:
        return unicodedata.lookup(match[1])
    except KeyError:
        return match[0]


def normal(text):
    """Both answers in one form: escapes that hotcell keeps are decoded, pairs of surrogates joined, "\\/" is a slash."""
    text = re.sub(r"\\N\{([^{}]*)\}", named, text)
    text = re.sub(r"\\(?:u|U0000)([dD][89a-fA-F][0-9a-fA-F]{2})", lambda match: chr(int(match[1], 16)), text)
    text = text.replace("\\/", "/")
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass" if has_lone(text) else "strict")


def has_lone(text):
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return "\ufffd" in joined


# ---- texts ----

PIECES = ["print(1)", "x = 'a'", "\"", "'", "'''", '"""', "\\", "\\n", "\\t", "\n", "\r\n", "\r", "\\\n", "\\x41", "\\u20ac", "\\101",
          "\\0", "\\777", "\\U0001F600", "\\ud83d\\ude00", "\\ud800", "\\N{BULLET}", "\\d", "\\/", "é", "😀", "#", "{", "}", "[", "]", "(",
          ")", ",", ":", " ", "\t", "\f", "```", "````", "`", "```python\n", "\n```", "\n```\n", "python", "bash", "generated_code", "code",
          "language", "True", "None", "true", "null", "0", "1", "30", "-1.5e3", ".5", "007", "0x1", "1_0", "1j", "u", "r", "b", "f", "R", "\0",
          "\v", "%", "$"]


class Maker:
    def __init__(self, chance):
        self.chance = chance

    def pick(self, *items):
        return self.chance.choice(items)

    def space(self):
        return self.pick("", "", "", " ", "\n", "  \t", " # note\n", "\\\n", "\r\n", "\f")

    def plain(self):
        return "".join(self.chance.choice(PIECES) for _ in range(self.chance.randrange(6)))

    def literal(self, value):
        """One of the ways to write this string."""
        way = self.chance.randrange(6)
        if way == 0:
            return repr(value)
        if way == 1:
            return json.dumps(value, ensure_ascii=self.pick(True, False))
        if way == 2:
            return self.pick("u", "") + "".join(["'", *(self.escape(character) for character in value), "'"])
        if way == 3:
            half = len(value) // 2
            return self.literal(value[:half]) + self.space() + repr(value[half:])
        if way == 4:
            return self.pick("'''", '"""') + value.replace("\\", "\\\\").replace("'", "\\'").replace('"', '\\"') + self.pick("'''", '"""')
        return "(" + self.space() + repr(value) + self.space() + ")"

    def escape(self, character):
        number = ord(character)
        ways = [f"\\U{number:08x}"]
        if number < 0x10000:
            ways.append(f"\\u{number:04X}")
        if number < 0x200:
            ways.append(f"\\{number:03o}")
        if number < 0x100:
            ways.append(f"\\x{number:02x}")
        if character.isalnum():
            ways.append(character)
        return self.chance.choice(ways)

    def string(self):
        if self.chance.random() < 0.15: # not always well formed
            quote = self.pick("'", '"', "'''", '"""')
            return self.pick("", "", "r", "u", "b", "f") + quote + self.plain() + quote
        return self.literal(self.code())

    def value(self, depth):
        way = self.chance.randrange(8 if depth < 4 else 5)
        if way < 3:
            return self.string()
        if way < 5:
            if self.chance.random() < 0.1:
                return self.pick("007", "0x1f", "1_000", "1j", "--1", "-(1)", "1e", ".", "nil", "x", "...")
            return self.pick("1", "30", "-1", "+ 2", "1.5", ".5", "1.", "1e3", "-2E-3", "0", "00", "True", "False", "None", "true", "null")
        if way == 5:
            return self.dictionary(depth + 1)
        opening, closing = self.pick("[]", "[]", "()", "()", "{}")
        return opening + self.pick(",", ", ").join(self.value(depth + 1) for _ in range(self.chance.randrange(3))) + self.pick("", ",") + closing

    def dictionary(self, depth=0):
        pairs = []
        for _ in range(self.chance.randrange(1, 4)):
            key = self.pick("generated_code", "generated_code", "code", "code", "language", "timeout", "other")
            pairs.append(self.space() + self.literal(key) + self.space() + ":" + self.space() + self.value(depth) + self.space())
        return "{" + ",".join(pairs) + self.pick("", "", ",") + self.space() + "}"

    def code(self):
        return self.pick("print(1)", "x = 'a\"b'\nprint(x)\n", "", "python = 1", "s = '''\n```\n'''", self.fence() if self.chance.random() < 0.3 else "y",
                         self.plain())

    def fence(self):
        indent = self.pick("", "", "", "  ", "\t")
        ticks = self.pick("```", "```", "```", "````", "``")
        end = self.pick("\n", "\n", "\r\n")
        info = self.pick("", "python", "py", "Python", "bash", "c++", " python", "python title=1", "cobol", "python`", "python\t")
        lines = [indent + line for line in self.pick("print(1)", "if x:\n    y", "", "```\nz\n```", "`", "a ```", self.plain()).split("\n")]
        return self.pick("", "", "\n", " \n", "text\n") + indent + ticks + info + end + end.join(lines) + self.pick(end, end, "") + indent + \
            self.pick(ticks, ticks, ticks, "```", "`````", "") + self.pick("", "", "\n", " \n\n", "\nmore")

    def damage(self, text):
        for _ in range(self.chance.randrange(1, 4)):
            at = self.chance.randrange(len(text) + 1)
            way = self.chance.randrange(3)
            if way == 0:
                text = text[:at] + self.chance.choice(PIECES) + text[at:]
            elif way == 1:
                text = text[:at] + text[at + self.chance.randrange(1, 4):]
            else:
                other = self.chance.randrange(len(text) + 1)
                text = text[:at] + text[min(at, other):max(at, other)] + text[at:]
        return text

    def text(self):
        text = self.pick(self.dictionary, self.dictionary, self.fence, self.code)()
        if self.chance.random() < 0.3:
            text = self.pick("", " ", "\n") + text + self.pick("", " ", "\n", " # end", ";")
        return self.damage(text) if self.chance.random() < 0.3 else text


# ---- the comparison ----

def read_record(stream):
    length = struct.unpack("<I", stream.read(4))[0]
    return stream.read(length)


def ask(program, text):
    data = text.encode()
    program.stdin.write(struct.pack("<I", len(data)) + data)
    program.stdin.flush()
    return read_record(program.stdout).decode(), read_record(program.stdout).decode(errors="replace")


def undecided(text):
    """Whether Python's answer depends on what hotcell does not have: the names of characters, and half surrogates that Python joins
    only across literals or takes for a blank in a fence."""
    for match in re.finditer(r"\\N\{([^{}]*)\}", text):
        try:
            unicodedata.lookup(match[1])
        except KeyError:
            return True
    return False


def compare(program, text):
    """Whether hotcell unwrapped it. Raises AssertionError when the answers differ."""
    code, language = ask(program, text)
    wanted, wanted_language = reference(text)
    if normal(code) != normal(wanted):
        raise AssertionError(f"code\n  text      {text!r}\n  hotcell   {code!r}\n  reference {wanted!r}")
    if language.encode() != wanted_language.encode("utf-8", "surrogatepass")[:63] and normal(language) != normal(wanted_language):
        raise AssertionError(f"language\n  text      {text!r}\n  hotcell   {language!r}\n  reference {wanted_language!r}")
    return code != text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=None)
    parser.add_argument("--cases", type=int, default=None)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    if options.seconds is None and options.cases is None:
        options.cases = 20000
    maker = Maker(random.Random(seed))
    until = time.monotonic() + options.seconds if options.seconds is not None else None
    count = unwrapped = 0
    with subprocess.Popen([options.program, *LANGUAGES], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        while (options.cases is None or count < options.cases) and (until is None or time.monotonic() < until):
            text = maker.text()
            if undecided(text):
                continue
            try:
                text.encode()
                unwrapped += compare(program, text)
            except UnicodeEncodeError:
                continue
            except AssertionError as difference:
                print(f"seed {seed}, text {count}: the answers differ in the {difference}")
                program.kill()
                return 1
            count += 1
        program.stdin.close()
        if program.wait() != 0:
            print(f"seed {seed}: {options.program} ended with status {program.returncode}")
            return 1
    print(f"seed {seed}: {count} texts, {unwrapped} unwrapped, no difference")
    return 0 if count > 0 and unwrapped > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
