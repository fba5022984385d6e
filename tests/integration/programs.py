"""For each language, the programs that test_languages.py runs. `error` fails in line 3 of its entry (or of the function that the language names);
`expect` is what its message must contain. Compiled languages have a program that does not compile, wrong in line 3."""

import dataclasses


@dataclasses.dataclass
class Programs:
    hello: str  # prints hello
    stdin: str  # prints what it reads, in upper case
    args: str  # prints each argument in brackets
    several: dict  # the entry first; prints 42 with the help of another file
    exit: str  # exits with 7
    error: str  # fails at run time
    expect: list
    signal: int = 0
    broken: str = ""  # does not compile
    broken_expect: str = ""


PROGRAMS = {
    "python": Programs(
        hello="print('hello')",
        stdin="import sys\nprint(sys.stdin.read().upper(), end='')",
        args="import sys\nprint(*(f'[{a}]' for a in sys.argv[1:]))",
        several={"main.py": "from lib import answer\nprint(answer(21))", "lib/__init__.py": "from .double import answer",
                 "lib/double.py": "def answer(n): return n * 2"},
        exit="raise SystemExit(7)",
        error="def fail():\n    x = []\n    return x[5]\nfail()",
        expect=['/workspace/main.py", line 3, in fail', "IndexError"]),
    "javascript": Programs(
        hello="console.log('hello')",
        stdin="process.stdout.write(require('fs').readFileSync(0, 'utf8').toUpperCase())",
        args="console.log(process.argv.slice(2).map(a => `[${a}]`).join(' '))",
        several={"main.js": "const { answer } = require('./lib/double');\nconsole.log(answer(21));",
                 "lib/double.js": "exports.answer = n => n * 2;"},
        exit="process.exit(7)",
        error="function fail() {\n  const x = undefined;\n  return x.y;\n}\nfail();",
        expect=["/workspace/main.js:3", "TypeError"]),
    "typescript": Programs(
        hello="const word: string = 'hello';\nconsole.log(word);",
        stdin="import * as fs from 'fs';\nprocess.stdout.write(fs.readFileSync(0, 'utf8').toUpperCase());",
        args="console.log(process.argv.slice(2).map(a => `[${a}]`).join(' '));",
        several={"main.ts": "import { answer } from './lib/double';\nimport data from './data.json';\nconsole.log(answer(data.n));",
                 "lib/double.ts": "export function answer(n: number): number { return n * 2; }", "data.json": '{"n": 21}'},
        exit="process.exit(7);",
        error="function fail(x: any): number {\n  // in this line, next\n  return x.y.z;\n}\nfail({});",
        expect=["/workspace/main.ts:3", "TypeError"],
        broken="const a = 1;\n\nconst b: number = 'text';\nconsole.log(a, b);", broken_expect="main.ts(3,7): error TS2322"),
    "bash": Programs(
        hello="echo hello",
        stdin="read -r line; echo \"${line^^}\"",
        args='printf \'[%s] \' "$@" | sed "s/ $//"; echo',
        several={"main.sh": "source lib/double.sh\nanswer 21", "lib/double.sh": "answer() { echo $(($1 * 2)); }"},
        exit="exit 7",
        error="set -e\n\nno_such_command",
        expect=["main.sh: line 3: no_such_command: command not found"]),
    "sh": Programs(
        hello="echo hello",
        stdin="tr a-z A-Z",
        args='for a; do printf \'%s[%s]\' "$s" "$a"; s=" "; done; echo',
        several={"main.sh": ". lib/double.sh\nanswer 21", "lib/double.sh": "answer() { echo $(($1 * 2)); }"},
        exit="exit 7",
        error="set -e\n\nno_such_command",
        expect=["main.sh: 3: no_such_command: not found"]),
    "ruby": Programs(
        hello="puts 'hello'",
        stdin="print STDIN.read.upcase",
        args="puts ARGV.map { |a| \"[#{a}]\" }.join(' ')",
        several={"main.rb": "require_relative 'lib/double'\nputs answer(21)", "lib/double.rb": "def answer(n) = n * 2"},
        exit="exit 7",
        error="def fail_here\n  x = nil\n  x.size\nend\nfail_here",
        expect=["main.rb:3:in `fail_here'", "NoMethodError"]),
    "go": Programs(
        hello='package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("hello") }',
        stdin='package main\n\nimport (\n\t"fmt"\n\t"io"\n\t"os"\n\t"strings"\n)\n\n'
              'func main() {\n\ttext, _ := io.ReadAll(os.Stdin)\n\tfmt.Print(strings.ToUpper(string(text)))\n}',
        args='package main\n\nimport (\n\t"fmt"\n\t"os"\n\t"strings"\n)\n\n'
             'func main() { fmt.Println("[" + strings.Join(os.Args[1:], "] [") + "]") }',
        several={"main.go": 'package main\n\nimport (\n\t"example.com/it/lib"\n\t"fmt"\n)\n\nfunc main() { fmt.Println(double(lib.Half)) }',
                 "double.go": "package main\n\nfunc double(n int) int { return n * 2 }",
                 "lib/half.go": "package lib\n\nconst Half = 21", "go.mod": "module example.com/it\n\ngo 1.19\n"},
        exit='package main\n\nimport "os"\n\nfunc main() { os.Exit(7) }',
        error='package main; import "os"\nfunc main() {\n\t_ = []string{}[len(os.Args)]\n}',
        expect=["/workspace/main.go:3", "index out of range"],
        broken='package main\nfunc main() {\n\tx := 1\n}', broken_expect="main.go:3:2: x declared but not used"),
    "c": Programs(
        hello='#include <stdio.h>\nint main(void) { puts("hello"); }',
        stdin="#include <ctype.h>\n#include <stdio.h>\nint main(void) { int c; while ((c = getchar()) != EOF) putchar(toupper(c)); }",
        args='#include <stdio.h>\nint main(int n, char **a) { for (int i = 1; i < n; i++) printf("[%s]%c", a[i], i + 1 < n ? 32 : 10); }',
        several={"main.c": '#include <stdio.h>\n#include <math.h>\n#include "lib/double.h"\n'
                           'int main(int n, char **a) { printf("%d\\n", answer(20 + (int)sqrt(n))); (void)a; }',
                 "lib/double.h": "int answer(int n);", "lib/double.c": '#include "double.h"\nint answer(int n) { return n * 2; }'},
        exit="int main(void) { return 7; }",
        error='#include <assert.h>\nint main(int n, char **a) { (void)a;\n    assert(n > 5);\n}',
        expect=["main.c:3: main: Assertion `n > 5' failed"], signal=6,
        broken="int main(void)\n{\n    return x;\n}", broken_expect="main.c:3:12: error: ‘x’ undeclared"),
    "cpp": Programs(
        hello='#include <iostream>\nint main() { std::cout << "hello\\n"; }',
        stdin="#include <cctype>\n#include <iostream>\nint main() { for (char c; std::cin.get(c);) std::cout.put(std::toupper(c)); }",
        args='#include <iostream>\nint main(int n, char **a) { for (int i = 1; i < n; i++) std::cout << "[" << a[i] << (i + 1 < n ? "] " : "]\\n"); }',
        several={"main.cpp": '#include <iostream>\n#include "lib/double.hpp"\nint main() { std::cout << answer(21) << "\\n"; }',
                 "lib/double.hpp": "int answer(int n);", "lib/double.cpp": '#include "double.hpp"\nint answer(int n) { return n * 2; }'},
        exit="int main() { return 7; }",
        error='#include <stdexcept>\nint main() {\n    throw std::runtime_error("boom");\n}',
        expect=["terminate called", "boom"], signal=6,
        broken="#include <vector>\nint main() {\n    std::vector<int> v = x;\n}", broken_expect="main.cpp:3:26: error: ‘x’ was not declared"),
    "rust": Programs(
        hello='fn main() { println!("hello"); }',
        stdin='fn main() { for line in std::io::stdin().lines() { println!("{}", line.unwrap().to_uppercase()); } }',
        args='fn main() { println!("{}", std::env::args().skip(1).map(|a| format!("[{}]", a)).collect::<Vec<_>>().join(" ")); }',
        several={"main.rs": 'mod double;\nmod lib;\nfn main() { println!("{}", double::answer(lib::half::HALF)); }',
                 "double.rs": "pub fn answer(n: i32) -> i32 { n * 2 }", "lib/mod.rs": "pub mod half;", "lib/half.rs": "pub const HALF: i32 = 21;"},
        exit="fn main() { std::process::exit(7); }",
        error='fn main() {\n    let x: Option<i32> = std::env::args().nth(9).map(|_| 1);\n    x.unwrap();\n}',
        expect=["main.rs:3:7", "panicked"],
        broken='fn main() {\n    let x: i32 =\n        "text";\n    let _ = x;\n}', broken_expect="main.rs:3:9"),
    "java": Programs(
        hello='public class Main { public static void main(String[] a) { System.out.println("hello"); } }',
        stdin='public class Main { public static void main(String[] a) throws Exception {\n'
              'System.out.print(new String(System.in.readAllBytes()).toUpperCase()); } }',
        args='public class Main { public static void main(String[] a) { System.out.println("[" + String.join("] [", a) + "]"); } }',
        several={"Main.java": "import lib.Double;\npublic class Main { public static void main(String[] a) { System.out.println(Double.of(Half.N)); } }",
                 "Half.java": "class Half { static final int N = 21; }",
                 "lib/Double.java": "package lib;\npublic class Double { public static int of(int n) { return n * 2; } }"},
        exit="public class Main { public static void main(String[] a) { System.exit(7); } }",
        error="public class Main {\n    static int fail(int[] x) {\n        return x[5];\n    }\n"
              "    public static void main(String[] a) { fail(new int[1]); }\n}",
        expect=["at Main.fail(Main.java:3)", "ArrayIndexOutOfBoundsException"],
        broken="public class Main {\n    public static void main(String[] a) {\n        int x = y;\n    }\n}",
        broken_expect="Main.java:3: error: cannot find symbol"),
    "php": Programs(
        hello='<?php echo "hello\\n";',
        stdin="<?php echo strtoupper(stream_get_contents(STDIN));",
        args="<?php echo implode(' ', array_map(fn($a) => \"[$a]\", array_slice($argv, 1))), \"\\n\";",
        several={"main.php": "<?php\nrequire __DIR__ . '/lib/double.php';\necho answer(21), \"\\n\";",
                 "lib/double.php": "<?php\nfunction answer(int $n): int { return $n * 2; }"},
        exit="<?php exit(7);",
        error="<?php\nfunction fail() {\n    throw new RuntimeException('boom');\n}\nfail();",
        expect=["/workspace/main.php:3", "RuntimeException", "boom"]),
    "perl": Programs(
        hello='print "hello\\n";',
        stdin="print uc while <STDIN>;",
        args='print join(" ", map { "[$_]" } @ARGV), "\\n";',
        several={"main.pl": "use strict;\nuse Lib::Double qw(answer);\nprint answer(21), \"\\n\";",
                 "Lib/Double.pm": "package Lib::Double;\nuse Exporter 'import';\nour @EXPORT_OK = ('answer');\nsub answer { $_[0] * 2 }\n1;"},
        exit="exit 7;",
        error="sub fail {\n    my $x = shift;\n    die 'boom';\n}\nfail();",
        expect=["boom at main.pl line 3."]),
    "lua": Programs(
        hello="print('hello')",
        stdin="io.write(io.read('a'):upper())",
        args="for i, a in ipairs(arg) do io.write('[', a, ']', i < #arg and ' ' or '\\n') end",
        several={"main.lua": "local double = require('lib.double')\nprint(double.answer(21))",
                 "lib/double.lua": "return { answer = function(n) return n * 2 end }"},
        exit="os.exit(7)",
        error="local function fail()\n  local x\n  return x.y\nend\nfail()",
        expect=["main.lua:3:", "attempt to index a nil value"]),
    "r": Programs(
        hello='cat("hello\\n")',
        stdin='cat(toupper(readLines("stdin")), sep = "\\n")',
        args='cat(paste0("[", commandArgs(trailingOnly = TRUE), "]"), "\\n", sep = " ")',
        several={"main.R": 'source("lib/double.R")\ncat(answer(21), "\\n", sep = "")', "lib/double.R": "answer <- function(n) n * 2"},
        exit="quit(status = 7)",
        error="fail <- function(n) {\n  n\n  stop('boom')\n}\nfail(3)",
        expect=["Error in fail(3) : boom", "Execution halted"]),  # R names the call, and no line
}
