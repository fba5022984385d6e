"""Programs that are given to an interpreter which waits for them do what they do when they are started cold.

Every program below runs on two servers, one of which starts everything cold, and whatever a caller can see must be the same.
"""

import concurrent.futures
import contextlib
import re
import textwrap
import time

import pytest

from cells import SLOW
from server import Server

PRIMED = ["javascript", "typescript", "java", "r", "bash"]
NO_CACHE = "[compile_cache]\nsize = 0\n"  # every compile is a real one


class Program:
    def __init__(self, code, args=(), stdin="", files=None, env=None, limits=None, status="completed"):
        self.fields = {"code": textwrap.dedent(code).lstrip("\n"), "args": list(args), "stdin": stdin}
        self.status = status
        for name, value in (("files", files), ("env", env), ("limits", limits)):
            if value:
                self.fields[name] = value


PROGRAMS = {
    "javascript": {
        "main": Program("""
            console.log(require.main === module, process.mainModule === module, module.id, module.parent, module.children, module.paths);
            console.log(__filename, __dirname, process.cwd(), Object.keys(require.cache));
            console.log(process.argv, process.argv0, process.execPath, process.execArgv, process.title, process._preload_modules);
            console.log(Object.keys(process).sort(), Object.keys(globalThis), process.eventNames(), process.pid, process.ppid);
        """, args=["one", "two words", "", "-ü", "main.js"]),
        "env": Program("console.log(Object.entries(process.env).sort())", env={"GREETING": "guten Tag", "EMPTY": ""}),
        "names that a shell drops": Program("console.log(process.env['x.y'], process.env.X_1)", env={"x.y": "2", "X_1": "3"}),
        "kinds of streams": Program("""
            for (const s of [process.stdout, process.stderr]) { console.log(s.constructor.name, s._type, s.fd); s._handle.setBlocking(true); }
            process.stderr.write('all of it'.repeat(20000));
        """),
        "time zone": Program("console.log(new Date(0).toString())", env={"TZ": "Asia/Tokyo"}),
        "stdin as stream": Program("""
            let all = '';
            process.stdin.setEncoding('utf8').on('data', text => all += text).on('end', () => console.log(all.length, all.slice(0, 20)));
        """, stdin="line ü\n" * 20000),
        "stdin at once": Program("process.stdout.write(require('fs').readFileSync(0, 'utf8').toUpperCase())", stdin="words\n"),
        "readline": Program("""
            const lines = require('readline').createInterface({ input: process.stdin });
            lines.on('line', line => console.log([line])).on('close', () => console.log('end', process.stdin.constructor.name));
        """, stdin="a\nb\nc"),
        "exit": Program("process.on('exit', code => console.log('exit', code)); process.exit(7); console.log('never')", status="error"),
        "exitCode": Program("process.exitCode = 3; setTimeout(() => console.log('later'), 5)", status="error"),
        "exception": Program("""
            function fail(x) {
                return x.y.z;
            }
            fail({});
        """, status="error"),
        "exception later": Program("setTimeout(() => { throw new RangeError('late') }, 5)", status="error"),
        "syntax error": Program("const a = 1;\nconst b = (;\n", status="error"),
        "no module": Program("require('./none')", status="error"),
        "rejection": Program("Promise.reject(new Error('nobody catches this'))", status="error"),
        "rejection of no error": Program("Promise.reject(42)", status="error"),
        "handlers": Program("""
            process.on('uncaughtException', (error, origin) => console.log(error.message, origin));
            process.on('unhandledRejection', reason => console.log('rejected', reason));
            process.on('beforeExit', () => console.log('before exit')).on('exit', code => console.log('exit', code));
            Promise.reject(1);
            setTimeout(() => { throw new Error('thrown') }, 5);
        """),
        "stack": Program("function f() { return new Error('here').stack } console.log(f()); console.trace('trace')"),
        "warning": Program("process.emitWarning('careful'); new Buffer(1)"),
        "recursion": Program("function f() { f() } try { f() } catch (e) { console.log(e.name, e.message) }"),
        "SIGTERM": Program("process.kill(process.pid, 'SIGTERM'); setInterval(() => {}, 1000)", status="error"),
        "SIGKILL": Program("process.kill(process.pid, 'SIGKILL'); setInterval(() => {}, 1000)", status="error"),
        "signal handler": Program("""
            process.on('SIGUSR2', name => { console.log('got', name); clearInterval(timer) });
            const timer = setInterval(() => {}, 1000);
            process.kill(process.pid, 'SIGUSR2');
        """),
        "module": Program("""
            import fs, { existsSync } from 'node:fs';
            import { createRequire } from 'module';
            import { answer } from './lib/double.mjs';
            import other, { named } from './other.js';
            console.log(import.meta.url, typeof require, typeof module, this, existsSync('main.js'), process.argv);
            console.log(answer(21), other, named, createRequire(import.meta.url)('./data.json'), await Promise.resolve('top level'));
            console.log((await import('./script.cjs')).default, (await import('./data.json', { with: { type: 'json' } })).default);
        """, args=["x"], files={"lib/double.mjs": "export const answer = n => n * 2;", "data.json": '{"n": 1}',
                               "other.js": "export default 'other';\nexport const named = 1;", "script.cjs": "module.exports = 'script';"}),
        "module that throws": Program("import 'fs';\n\nconst f = () => { throw new Error('in a module') };\nf();\n", status="error"),
        "module that waits for ever": Program("import 'fs';\nawait new Promise(() => {});\n", status="error"),
        "module by package.json": Program("import { x } from '#inner';\nconsole.log(x, import.meta.url);", files={
            "package.json": '{"type": "module", "imports": {"#inner": "./inner.js"}}', "inner.js": "export const x = 1;"}),
        "import in a script": Program("import('./lib.mjs').then(lib => console.log(lib.x, require.main === module))",
                                      files={"lib.mjs": "export const x = 5;"}),
        "several files": Program("console.log(require('./lib').answer(21), require('./data.json').n, module.children.length)", files={
            "lib/index.js": "exports.answer = n => n * 2;\nexports.main = require.main.filename;", "data.json": '{"n": 1}'}),
        "node_modules": Program("console.log(require('thing'), require.resolve('thing'))", files={
            "node_modules/thing/package.json": '{"main": "it.js"}', "node_modules/thing/it.js": "module.exports = 'a thing';"}),
        "worker": Program("""
            const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
            if (isMainThread) {
                const worker = new Worker(__filename, { workerData: 20, argv: ['x'] });
                worker.on('message', text => console.log(text)).on('exit', code => console.log('ended', code));
            } else {
                parentPort.postMessage([workerData + 1, process.argv, process.execArgv, process._preload_modules, Object.keys(require.cache),
                                        require.main === module, module.children, module.parent]);
            }
        """),
        "worker that throws": Program("""
            const { Worker } = require('worker_threads');
            new Worker("throw new Error('in a worker')", { eval: true }).on('error', error => console.log(error.message));
        """),
        "child": Program("""
            const { execFileSync, spawnSync, fork } = require('child_process');
            console.log(String(execFileSync(process.execPath, ['-p', '[1, process.argv, Object.keys(process.env).sort()]'])));
            console.log(spawnSync('sh', ['-c', 'cat; exit 5'], { input: 'from here' }).status);
            if (process.argv[2] !== 'child')
                fork(__filename, ['child']).on('message', text => console.log(text)).on('exit', code => console.log('exit', code));
            else
                process.send([process.execArgv, process.argv], () => process.disconnect());
        """),
        "order": Program("""
            setTimeout(() => console.log('timeout'), 0); setImmediate(() => console.log('immediate'));
            process.nextTick(() => console.log('tick')); Promise.resolve().then(() => console.log('promise'));
            queueMicrotask(() => console.log('microtask')); console.log('first', require('async_hooks').executionAsyncId());
            setTimeout(() => console.log('last'), 20);
        """),
        "large output": Program("console.log('x'.repeat(400000)); console.error('y'.repeat(400000))"),
        "output of several kinds": Program("""
            console.log('%s %d %j', 'a', 1, { b: [1, new Map([[1, 2]])] }, new Set(['x'])); console.table([{ a: 1 }]); console.error('wrong');
            process.stdout.write(Buffer.from('ü\\n')); console.log(process.stdout.isTTY, process.stdout.constructor.name, process.stderr.fd);
        """),
        "files": Program("const fs = require('fs'); fs.writeFileSync('new', 'x'); console.log(fs.readdirSync('.'), fs.readdirSync('/tmp'))"),
        "no program": Program(""),
        "umask and descriptors": Program("""
            const fs = require('fs');
            console.log(process.umask(), process.getuid(), process.getgroups(), fs.readFileSync('/proc/self/limits', 'latin1'));
            try { fs.readFileSync('/.hotcell/program') } catch (error) { console.log(error.code) }
        """),
    },
    "typescript": {
        "main": Program("""
            console.log(require.main === module, module.id, module.children.length, __filename, __dirname, Object.keys(require.cache));
            console.log(process.argv, process.argv0, process.execArgv, process.title, (process as any)._preload_modules, Object.keys(process).sort());
        """, args=["one", "two words", ""]),
        "types": Program("""
            import * as fs from 'fs';
            interface Shape { area(): number }
            class Square implements Shape { constructor(private side: number) {} area(): number { return this.side ** 2 } }
            enum Color { Red, Green = 7 }
            namespace Inner { export const x = 1 }
            function first<T>(items: T[]): T | undefined { return items[0] }
            const shapes: Shape[] = [new Square(3)];
            console.log(first(shapes)?.area(), Color[7], Inner.x, fs.existsSync('main.ts'));
        """),
        "type errors": Program("""
            const a: number = 'text';
            function f(x: string): number { return x }
            console.log(b, f(1));
            import { none } from './none';
        """, status="compile_error"),
        "syntax error": Program("const a = ;\nlet b: = 5;\n", status="compile_error"),
        "error in another file": Program("import { x } from './lib/other';\nconsole.log(x);", status="compile_error",
                                         files={"lib/other.ts": "export const x: number = 'text';"}),
        "several files": Program("""
            import { answer } from './lib/double';
            import data from './data.json';
            import type { Named } from './lib/named';
            const named: Named = { name: 'x' };
            console.log(answer(data.n), named);
        """, files={"lib/double.ts": "export function answer(n: number): number { return n * 2 }", "data.json": '{"n": 21}',
                    "lib/named.ts": "export interface Named { name: string }"}),
        "tsconfig": Program("const f = (x: string) => x.length;\nlet unused = null;\nconsole.log(f('abc'), unused);", files={
            "tsconfig.json": '{"compilerOptions": {"strict": false, "target": "es2020", "experimentalDecorators": true}}'}),
        "tsconfig that is stricter": Program("const f = (x: string) => x.length;\nlet unused = 1;\nexport {};", status="compile_error", files={
            "tsconfig.json": '{"compilerOptions": {"noUnusedLocals": true, "lib": ["es2020"]}}'}),
        "exception": Program("""
            interface Inner { y: { z: number } }
            function fail(x: any): number {

                return (x as Inner).y.z;
            }
            fail({});
        """, status="error"),
        "exception elsewhere": Program("import { fail } from './lib/fail';\nfail();", status="error", files={
            "lib/fail.ts": "type T = string;\n\nexport function fail(): T { throw new TypeError('from there') }"}),
        "rejection": Program("async function f(): Promise<void> { throw new Error('nobody catches this') }\nf();", status="error"),
        "stdin": Program("import * as fs from 'fs';\nprocess.stdout.write(fs.readFileSync(0, 'utf8').toUpperCase());", stdin="words\n"),
        "exit": Program("process.exit(7);", status="error"),
        "top level await and env": Program("console.log(Object.entries(process.env).sort());", env={"GREETING": "hello"}),
        "worker": Program("""
            import { Worker, isMainThread, parentPort } from 'worker_threads';
            if (isMainThread)
                new Worker(__filename).on('message', (text: any) => console.log(text));
            else
                parentPort!.postMessage([process.execArgv, process._preload_modules, Object.keys(require.cache), new Error('x').stack]);
        """.replace("process._preload_modules", "(process as any)._preload_modules")),
    },
    "java": {
        "a name that is not ASCII": Program("public class Grüße { public static void main(String[] a) { System.out.println(Grüße.class.getName()); } }"),
        "all on one line": Program("import java.util.*; class M { public static void main(String[] a) { System.out.println(List.of(1)); } }"),
        "a class in a comment": Program("/*\npublic\nclass Foo {\n*/\npublic class Main { public static void main(String[] a) { System.out.println(1); } }"),
        "a letter that ends with a line's end": Program(
            "// Å public class Foo {\npublic class Main { public static void main(String[] a) { System.out.println(1); } }"),
        "a class by the driver's name": Program("""
            public class Main {
                public static void main(String[] args) { System.out.println(new Run().go() + " " + Run.class.getClassLoader().getClass()); }
            }
            class Run { String go() { return "mine"; } }
        """),
        "main": Program("""
            import java.util.*;
            public class Main {
                public static void main(String[] args) throws Exception {
                    System.out.println(Arrays.toString(args) + " " + Thread.currentThread() + " " + Thread.currentThread().getId());
                    for (String name : new String[] {"java.class.path", "user.dir", "sun.java.command", "file.encoding", "user.home", "java.io.tmpdir"})
                        System.out.println(name + " " + System.getProperty(name));
                    System.out.println(new TreeSet<>(System.getProperties().stringPropertyNames()));
                    System.out.println(Main.class.getClassLoader().getClass() + " " + Thread.currentThread().getContextClassLoader().getClass());
                    System.out.println(Main.class.getModule().isNamed() + " " + Main.class.getProtectionDomain().getCodeSource().getLocation());
                    System.out.println(Thread.getAllStackTraces().keySet().stream().map(Thread::getName).sorted().toList());
                    System.out.println(Runtime.getRuntime().maxMemory() + " " + Runtime.getRuntime().availableProcessors());
                }
            }
        """, args=["one", "two words", "", "ü", "@x"]),
        "stack": Program("""
            public class Main {
                static void show() {
                    for (StackTraceElement element : Thread.currentThread().getStackTrace()) System.out.println(element);
                    StackWalker.getInstance(StackWalker.Option.RETAIN_CLASS_REFERENCE).forEach(System.out::println);
                    new Exception("shown").printStackTrace();
                }
                public static void main(String[] args) { show(); }
            }
        """),
        "hash codes": Program("""
            public class Main {
                public static void main(String[] args) { System.out.println(new Object() + " " + new Main().hashCode() + " " + args.hashCode()); }
            }
        """),
        "exception": Program("""
            public class Main {
                static int fail(int[] x) {
                    return x[5];
                }
                public static void main(String[] args) {
                    try { fail(new int[1]); } catch (RuntimeException e) { throw new IllegalStateException("with a cause", e); }
                }
            }
        """, status="error"),
        "checked exception": Program('public class Main { public static void main(String[] a) throws Exception { throw new Exception("x"); } }',
                                     status="error"),
        "exception in the initialiser": Program("""
            public class Main {
                static int x = Integer.parseInt("no number");
                public static void main(String[] args) { System.out.println(x); }
            }
        """, status="error"),
        "initialiser comes first": Program("""
            public class Main {
                static { System.out.println("static"); new Exception("here").printStackTrace(System.out); }
                public static void main(String[] args) { System.out.println("main"); }
            }
        """),
        "exception in a thread": Program("""
            public class Main {
                public static void main(String[] args) throws Exception {
                    Thread thread = new Thread(() -> { throw new RuntimeException("in a thread"); });
                    thread.start();
                    thread.join();
                    System.out.println("main goes on");
                }
            }
        """),
        "stack overflow": Program("""
            public class Main {
                static int f(int n) { return f(n + 1) + 1; }
                public static void main(String[] args) { try { f(0); } catch (StackOverflowError e) { System.out.println(e); } }
            }
        """),
        "exit": Program("""
            public class Main {
                public static void main(String[] args) {
                    Runtime.getRuntime().addShutdownHook(new Thread(() -> System.out.println("hook")));
                    System.exit(7);
                }
            }
        """, status="error"),
        "threads go on after main": Program("""
            public class Main {
                public static void main(String[] args) {
                    new Thread(() -> {
                        try { Thread.sleep(50); } catch (InterruptedException e) { }
                        System.out.println("after main " + Thread.currentThread().getName());
                    }).start();
                    System.out.println("main ends");
                }
            }
        """),
        "stdin": Program("""
            import java.util.Scanner;
            public class Main {
                public static void main(String[] args) {
                    Scanner in = new Scanner(System.in);
                    int sum = 0;
                    while (in.hasNextInt()) sum += in.nextInt();
                    System.out.printf("%d %.3f %s%n", sum, sum / 3.0, in.hasNext() ? in.next() : "none");
                }
            }
        """, stdin="1 2 3\n4 ende\n"),
        "packages": Program("""
            package com.example.app;
            import com.example.lib.Double;
            public class Main {
                public static void main(String[] args) throws Exception {
                    System.out.println(Double.of(21) + " " + Class.forName("com.example.lib.Double").getDeclaredMethods().length);
                    throw new Exception(Main.class.getName());
                }
            }
        """, files={"com/example/lib/Double.java": "package com.example.lib;\npublic class Double { public static int of(int n) { return n * 2; } }"},
            status="error"),
        "several files": Program("public class Main { public static void main(String[] a) { System.out.println(Other.answer()); } }",
                                 files={"Other.java": "class Other { static int answer() { return 42; } }"}),
        "resources": Program("""
            import java.nio.file.*;
            public class Main {
                public static void main(String[] args) throws Exception {
                    System.out.print(new String(Main.class.getResourceAsStream("/data.txt").readAllBytes()));
                    System.out.println(Main.class.getResource("data.txt") + " " + Main.class.getResource("Main.class") + Main.class.getResource("/Run.class"));
                    System.out.println(Files.readString(Path.of("data.txt")).length() + " " + Path.of("").toAbsolutePath());
                }
            }
        """, files={"data.txt": "a resource\n"}),
        "records": Program("""
            import java.util.*;
            import java.util.stream.*;
            public class Main {
                sealed interface Shape permits Circle, Square {}
                record Circle(double r) implements Shape {}
                record Square(double side) implements Shape {}
                public static void main(String[] args) {
                    List<Shape> shapes = List.of(new Circle(1), new Square(2));
                    for (Shape shape : shapes) System.out.println(shape + " " + (shape instanceof Circle c ? c.r() : -1));
                    String text = \"\"\"
                        a block
                        \"\"\";
                    System.out.print(text + IntStream.range(0, 5).boxed().collect(Collectors.groupingBy(n -> n % 2)));
                    System.out.println(switch (args.length) { case 0 -> "none"; default -> "some"; } + new Circle(1).equals(new Circle(1)));
                }
            }
        """),
        "public class of another name": Program("""
            public class Solution {
                public static void main(String[] args) { throw new RuntimeException("in " + Solution.class); }
            }
        """, status="error"),
        "no public class": Program('class Helper { }\nclass Program { public static void main(String[] a) { System.out.println("found"); } }'),
        "interface": Program('interface Main { static void main(String[] args) { System.out.println("in an interface"); } }'),
        "inherited main": Program("""
            class Base { static { System.out.println("base"); } public static void main(String[] args) { System.out.println("inherited"); } }
            public class Main extends Base { static { System.out.println("derived"); } }
        """),
        "no main": Program("public class Main { int x; }", status="error"),
        "main that is not static": Program("public class Main { public void main(String[] args) { } }", status="error"),
        "unknown class": Program("class A { }", status="error"),
        "compile errors": Program("""
            public class Main {
                public static void main(String[] args) {
                    int x = "text";
                    undefined();
                }
            }
        """, status="compile_error"),
        "compile errors in a copy": Program("public class Solution { int f() { } }", status="compile_error"),
        "notes of the compiler": Program("""
            import java.util.*;
            public class Main {
                public static void main(String[] args) { List list = new ArrayList(); list.add(1); System.out.println(list + "ü"); }
            }
        """),
        "env": Program("""
            public class Main {
                public static void main(String[] args) { System.out.println(new java.util.TreeMap<>(System.getenv())); }
            }
        """, env={"GREETING": "guten Tag", "EMPTY": ""}),
        "child": Program("""
            public class Main {
                public static void main(String[] args) throws Exception {
                    Process process = new ProcessBuilder("sh", "-c", "echo child; cat; env | sort; exit 5").redirectErrorStream(true).start();
                    process.getOutputStream().close();
                    System.out.print(new String(process.getInputStream().readAllBytes()));
                    System.out.println(process.waitFor());
                }
            }
        """),
        "large output": Program("""
            public class Main {
                public static void main(String[] args) { for (int i = 0; i < 20000; i++) System.out.println("line " + i); System.err.println("end"); }
            }
        """),
    },
    "r": {
        "main": Program("""
            print(commandArgs()); print(commandArgs(trailingOnly = TRUE)); interactive(); getwd()
            ls(all.names = TRUE); search(); sys.calls(); sys.nframe(); loadedNamespaces()
            exists(".Random.seed"); environment(); showConnections(all = TRUE); options("keep.source", "width", "digits", "encoding")
        """),
        "args": Program("print(commandArgs(TRUE)); print(commandArgs())", args=["one", "two words", "--ü", "-e"]),
        "env": Program("e <- Sys.getenv(); e <- e[names(e) != 'R_SESSION_TMPDIR']; for (n in sort(names(e))) cat(n, e[[n]], '\\n')",
                       env={"GREETING": "guten Tag"}),
        "stdin": Program('x <- readLines(file("stdin"))\ncat(toupper(x), sep = "\\n")\nlength(x)', stdin="a line\nanother"),
        "stdin is the script": Program("x <- readLines(stdin(), 2)\nfirst line\nsecond line\nprint(x)"),
        "values are printed": Program("1:20\nx <- 5\nx\ninvisible(6)\nNULL\nfunction(a) a + 1\ndata.frame(a = 1:2, b = c('x', 'y'))\n'ü'"),
        "error": Program("f <- function(x) {\n    stop('in here')\n}\nf(1)\ncat('never')", status="error"),
        "error at top level": Program("cat('before\\n')\nstop('at the top')", status="error"),
        "error of a builtin": Program("log('a')", status="error"),
        "parse error": Program("cat('before\\n')\nx <- (1 +\n", status="error"),
        "syntax error": Program("cat('before\\n')\nx <- 1 2\ncat('after')\n", status="error"),
        "warnings": Program("""
            warning("at the top")
            f <- function(n) { warning("inside"); n }
            f(3)
            for (i in 1:3) warning(paste("number", i))
            as.integer("x")
            message("a message")
        """),
        "warnings are errors": Program("options(warn = 2)\nas.integer('x')", status="error"),
        "quit": Program("cat('a\\n')\nquit(status = 3)\ncat('never')", status="error"),
        "exit handlers": Program(".Last <- function() cat('last\\n')\nreg.finalizer(globalenv(), function(e) cat('final\\n'), onexit = TRUE)\n"),
        "traceback": Program("options(error = function() { traceback(2); quit(status = 4) })\nf <- function() g()\ng <- function() stop('x')\nf()",
                             status="error"),
        "conditions": Program("""
            r <- tryCatch(stop("a"), error = function(e) e, finally = cat("finally\\n"))
            print(r); print(conditionCall(r)); print(sys.call())
            withCallingHandlers(warning("w"), warning = function(w) { cat("caught\\n"); invokeRestart("muffleWarning") })
        """),
        "seed": Program("set.seed(42)\nprint(runif(3))\nprint(rnorm(2))\nprint(sample(10))"),
        "several files": Program('source("lib/double.R")\nanswer(21)\nread.csv("data.csv")',
                                 files={"lib/double.R": "answer <- function(n) n * 2", "data.csv": "a,b\n1,2\n"}),
        "no newline at the end": Program("cat('no newline')\nx <- 5; x"),
        "long lines": Program("x <- c(" + ", ".join(str(n) for n in range(3000)) + ")\nsum(x)\n" + "# a comment\n" * 2000 + "length(x)"),
        "no program": Program(""),
        "child": Program('system("echo child; env | grep -v R_SESSION | sort")\nprint(system2("sh", c("-c", shQuote("exit 5"))))'),
        "packages": Program("library(stats4)\nlibrary(tools)\nfile_ext('a.b')\nmean(c(1, 2))\nnone::x", status="error"),
        "temporary files": Program('nchar(tempdir()); dir.exists(tempdir()); length(list.files("/tmp", all.files = TRUE, no.. = TRUE)); list.files()'),
        "large output": Program("for (i in 1:20000) cat('line', i, '\\n')"),
        "SIGTERM": Program("cat('before\\n')\ntools::pskill(Sys.getpid(), 15)\nSys.sleep(10)", status="error"),
    },
    "bash": {
        "who it is": Program("""
            echo "$0 $# $* _=$_ $- $LINENO $BASH_SUBSHELL ${BASH_SOURCE[*]} ${FUNCNAME[*]-} $PPID $SHLVL $SECONDS ${BASH_ENV-none} $? ${!-none}"
            declare -p | grep -v -E 'BASHPID|BASH_ARG|EPOCH|RANDOM'
            declare -F; alias; hash; trap; jobs; shopt; set -o; ulimit -a; umask; pwd; dirs; ls -A
        """),
        "arguments": Program('for word in "$@"; do printf "[%s]" "$word"; done; shift 2; echo "$# $1"; set -- x; echo "$*"',
                             args=["one", "two words", "", "a\nb", "-ü", "*", "$HOME", "main.sh"]),
        "BASH_ARGV": Program('echo "${#BASH_ARGV[@]} ${BASH_ARGV[*]} ${BASH_ARGC[*]}"', args=["one", "two"]),
        "BASH_ARGV without arguments": Program('echo "${#BASH_ARGV[@]} ${BASH_ARGC[*]}"'),
        "environment": Program("env | grep -v ^_= | sort; export MORE=1; unset GREETING; bash -c 'env | grep -v ^_= | sort'; tr '\\0' '\\n' </proc/$$/environ; "
                               "tr '\\0' '\\n' </proc/$$/cmdline", env={"GREETING": "guten Tag", "EMPTY": "", "ODD": "a=b=c ü"}),
        "environment, as it is": Program("env | grep -v ^_= | sort; tr '\\0' '\\n' </proc/$$/environ; tr '\\0' '\\n' </proc/$$/cmdline"),
        "time zone": Program("date -d @0 +%H:%M; printf '%(%H:%M)T\\n' 0", env={"TZ": "Asia/Tokyo"}),
        "process": Program("""
            wanted='^(Name|Umask|Pid|PPid|NSpid|NSpgid|NSsid|Threads|SigBlk|SigIgn|SigCgt|Cap|NoNewPrivs|Seccomp)'
            while read -r line; do [[ $line =~ $wanted ]] && echo "$line"; done </proc/$$/status # by the shell itself, which is not about to wait then
            for fd in /proc/$$/fd/*; do echo "${fd##*/} $(readlink "$fd" | sed 's/[0-9]*//g')"; done; cat /proc/$$/comm; found=$(ps -e -o comm=); sort <<<"$found"
        """),
        "stdin": Program('read -r first; echo "first: $first"; while read -r -n 3 part; do echo "[$part]"; done; read -r || echo end', stdin="a line\nanother"),
        "stdin to a child": Program("head -c 4; cat | tr a-z A-Z", stdin="one two three\n" * 5000),
        "exit": Program("trap 'echo leaving $?' EXIT; exit 7; echo never", status="error"),
        "last status": Program("true; false", status="error"),
        "not found": Program("nosuchcommand 1", status="error"),
        "syntax error": Program("echo before\nif then\n", status="error"),
        "unbound": Program("set -u\necho before\necho $nothing\n", status="error"),
        "errexit": Program("set -e\nfunction fails() { false; }\ntrap 'echo line $LINENO in ${FUNCNAME[0]}' ERR\nset -E\nfails\necho never", status="error"),
        "xtrace": Program("set -x\nx=1\necho $((x + 1))\n[[ $x == 1 ]]"),
        "functions and sources": Program("""
            . lib/double.sh
            double 21; echo "${BASH_SOURCE[0]} $0"; caller || echo none; type double
        """, files={"lib/double.sh": 'double() { echo $(($1 * 2)) "${BASH_SOURCE[0]}" "$LINENO" "${FUNCNAME[*]}"; }'}),
        "options of the first line": Program("#!/bin/bash -eu\necho $-\n"),
        "here-documents and pipes": Program('cat <<E | sort | while read -r x; do echo "[$x]"; done\nb $HOME\na $((1+1))\nE\necho "${PIPESTATUS[*]}"'),
        "jobs and waiting": Program('sleep 0.05 & wait $!; echo $?; (exit 5) & wait %1; echo $?; coproc cat; echo hi >&"${COPROC[1]}"; read -r x <&"${COPROC[0]}"; echo $x'),
        "traps": Program("trap 'echo usr1' USR1; kill -USR1 $$; trap 'echo pipe' PIPE; echo done"),
        "SIGTERM": Program("kill -TERM $$; sleep 5", status="error"),
        "SIGKILL": Program("kill -KILL $$; sleep 5", status="error"),
        "time passes from here": Program("SECONDS=5; echo $SECONDS; sleep 1.2; echo $((SECONDS == 6 || SECONDS == 7)); times | wc -l; TIMEFORMAT=%0R; time true"),
        "child shells": Program('echo "$BASHPID $$ $BASH_SUBSHELL" | tr -d 0-9; (echo $BASH_SUBSHELL); bash -c \'echo $SHLVL $0\'; sh -c "echo \\$PPID" >/dev/null; $BASH --version | head -1'),
        "globs and sorting": Program("touch b a 'c d' ü; echo *; for x in [a-c]*; do echo \"$x\"; done; shopt -s nullglob; echo none*; printf '%s\\n' é e f | sort"),
        "large output": Program("for ((i = 0; i < 20000; i++)); do echo line $i; done"),
        "nothing": Program(""),
    },
}

# Numbers that differ from one start to the next.
RANDOM = {
    "javascript": "const c = require('crypto'); console.log(Math.random(), c.randomUUID(), c.randomBytes(8).toString('hex'))",
    "typescript": "import * as c from 'crypto';\nconsole.log(Math.random(), c.randomUUID(), c.randomBytes(8).toString('hex'));",
    "java": """
        import java.util.*;
        public class Main {
            public static void main(String[] args) {
                System.out.println(Math.random() + " " + UUID.randomUUID() + " " + new Random().nextLong() + " " + new SplittableRandom().nextLong()
                                   + " " + java.util.concurrent.ThreadLocalRandom.current().nextLong() + " " + new java.security.SecureRandom().nextLong());
            }
        }
    """,
    "r": "cat(runif(1, 0, 1e9), sample(1e9, 1), rnorm(1), basename(tempdir()), '\\n')",
    "bash": "echo $RANDOM-$RANDOM-$RANDOM $SRANDOM $(mktemp -u)",
}


@contextlib.contextmanager
def server_with(config, compiling=""):
    with Server(config + NO_CACHE + compiling) as server:
        yield server


@pytest.fixture(scope="module")
def cold():
    with server_with("[warm]\nenabled = false\n", "prepare = false\n") as server:
        yield server


@pytest.fixture(scope="module", params=PRIMED)
def primed(request):
    """A server that keeps programs of one language waiting."""
    with server_with(f'[warm]\nstart = ["{request.param}"]\nprimed_min = 2\n') as server:
        server.language = request.param
        yield server


def wait_for_one(server, within=120):
    deadline = time.monotonic() + within * SLOW
    while server.get("/v1/stats").json["pool"]["primed"] == 0:
        assert time.monotonic() < deadline, f"nothing waits: {server.log[-20:]}"
        time.sleep(0.05)


def run_primed(server, **fields):
    """A program that comes too soon after another starts cold, which is as it should be: it is run again."""
    deadline = time.monotonic() + 120 * SLOW
    while True:
        wait_for_one(server)
        result = server.run(language=server.language, **fields).json
        if result["timing"]["start"] == "primed":
            return result
        assert result["timing"]["start"] == "cold" and time.monotonic() < deadline, result
        time.sleep(0.5)


def visible(result):
    return {key: result[key] for key in ("status", "exit_code", "signal", "stdout", "stderr", "truncated", "diagnosis", "files")}


def every_program(languages):
    return [(language, name) for language in languages for name in PROGRAMS[language]]


@pytest.mark.parametrize("primed,name", every_program(PRIMED), indirect=["primed"], ids=lambda value: re.sub(r"\W", "-", str(value)))
def test_a_primed_program_does_what_a_cold_one_does(primed, cold, name):
    program = PROGRAMS[primed.language][name]
    with concurrent.futures.ThreadPoolExecutor(1) as beside:  # a cold start takes a processor for seconds, and there is another
        waited = beside.submit(cold.run, language=primed.language, **program.fields)
        found = run_primed(primed, **program.fields)
        expected = waited.result().json
    assert expected["status"] == program.status and expected["timing"]["start"] == "cold", expected
    assert visible(found) == visible(expected)


def test_no_two_primed_programs_share_a_random_state(primed):
    first, second = (run_primed(primed, code=RANDOM[primed.language])["stdout"].split() for _ in range(2))
    assert len(first) >= 3 and len(first) == len(second)
    assert not set(first) & set(second)


def test_a_primed_program_is_held_to_its_limits(primed):
    endless = {"javascript": "console.log('begun'); for (;;) ;", "typescript": "console.log('begun'); for (;;) ;", "r": "cat('begun\\n')\nrepeat {}",
               "bash": "echo begun; while :; do :; done",
               "java": 'public class Main { public static void main(String[] a) { System.out.println("begun"); for (;;) ; } }'}
    result = run_primed(primed, code=endless[primed.language], limits={"timeout": 1.5})
    assert (result["status"], result["stdout"], result["exit_code"]) == ("timeout", "begun\n", 124)


def test_a_primed_program_has_its_own_memory_and_no_more(primed):
    hungry = {"javascript": "const all = []; for (;;) all.push(Buffer.alloc(1 << 24, 1));",
              "typescript": "const all: any[] = []; for (;;) all.push(Buffer.alloc(1 << 24, 1));",
              "r": "all <- list()\nrepeat all[[length(all) + 1]] <- runif(2e6)",
              "bash": "x=x; while :; do x=$x$x; done",
              "java": """
                  public class Main {  // the heap has a bound of its own, and what is outside of it, too: both together are more than there is
                      public static void main(String[] args) {
                          var outside = java.nio.ByteBuffer.allocateDirect(280 << 20);
                          while (outside.hasRemaining()) outside.put((byte) 1);
                          byte[][] inside = new byte[270][];
                          for (int i = 0; i < inside.length; i++) java.util.Arrays.fill(inside[i] = new byte[1 << 20], (byte) 1);
                          System.out.println(outside.get(1) + inside[1][1]);
                      }
                  }
              """}
    result = run_primed(primed, code=hungry[primed.language])
    assert (result["status"], result["exit_code"]) == ("oom", 137), result


def test_what_a_program_needs_from_its_start_makes_it_cold(primed):
    hello = {"javascript": "console.log(1)", "typescript": "console.log(1)", "r": "cat(1)", "bash": "echo 1",
             "java": "public class Main { public static void main(String[] a) { System.out.println(1); } }"}[primed.language]
    variable = {"javascript": "NODE_OPTIONS", "typescript": "NODE_NO_WARNINGS", "r": "R_LIBS", "java": "JAVA_TOOL_OPTIONS", "bash": "BASH_XTRACEFD"}[primed.language]
    value = {"JAVA_TOOL_OPTIONS": "-Dx=1", "NODE_OPTIONS": "--no-warnings", "BASH_XTRACEFD": "2"}.get(variable, "1")
    wait_for_one(primed)
    result = primed.run(language=primed.language, code=hello, env={variable: value}).json
    assert (result["status"], result["timing"]["start"], result["stdout"].strip()) == ("completed", "cold", "1"), result


def test_a_heap_of_another_size_is_a_cold_start():
    code = "public class Main { public static void main(String[] a) { System.out.println(Runtime.getRuntime().maxMemory() >> 20); } }"
    with server_with('[warm]\nstart = ["java"]\n') as server:
        server.language = "java"
        usual = run_primed(server, code=code)
        wait_for_one(server)
        small = server.run(language="java", code=code, limits={"memory": "200m"}).json
    assert small["timing"]["start"] == "cold" and int(small["stdout"]) < 130 < int(usual["stdout"]), (small, usual)


def test_the_tests_of_a_program_pass_where_programs_wait(primed):
    code = {"javascript": "console.log(Number(require('fs').readFileSync(0, 'utf8')) * 2)",
            "typescript": "import * as fs from 'fs';\nconsole.log(Number(fs.readFileSync(0, 'utf8')) * 2);",
            "java": "public class Main { public static void main(String[] a) { System.out.println(new java.util.Scanner(System.in).nextInt() * 2); } }",
            "r": "cat(as.numeric(readLines(file('stdin'))) * 2, '\\n', sep = '')", "bash": "read -r x; echo $((x * 2))"}[primed.language]
    wait_for_one(primed)
    result = primed.run(language=primed.language, code=code, tests=[{"stdin": "1\n", "expect_stdout": "2\n"}, {"stdin": "21\n", "expect_stdout": "42\n"}]).json
    assert result["status"] == "completed" and all(test["passed"] for test in result["tests"]), result


def test_what_waits_is_gone_when_the_server_is():
    """Server.stop checks that nothing is left."""
    with server_with('[warm]\nstart = ["javascript", "java"]\n') as server:
        wait_for_one(server)
