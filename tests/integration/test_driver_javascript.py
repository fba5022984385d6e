"""Contexts of JavaScript: languages/warm/javascript/context.js, through its door."""

import os
import signal
import time

import drivers
import pytest

COMMAND = drivers.command_of("javascript")


@pytest.fixture
def context(tmp_path):
    driver = drivers.Driver(COMMAND, tmp_path)
    yield driver
    driver.close()


def test_variables_stay_and_may_be_declared_again(context):
    assert context.ready["fds"] is False
    assert context.run("const a = 1; let b = [2]; var c = 3; class D { x = 4 }\nfunction f(x) { return x + a }").displays == []
    assert context.run("f(b[0]) + c + new D().x").value == "10"
    assert context.run("_ + 1").value == "11"
    assert context.run("const a = 10; let b = 'new'; class D {}\nf(1) + b").value == "'11new'"
    assert context.run("undefined").displays == [] and context.run("null").value == "null" and context.run("").status == "completed"
    assert context.run("({a: [1, new Map([[1, 2]])]})").value == "{ a: [ 1, Map(1) { 1 => 2 } ] }"
    assert context.run("10n ** 20n").value == "100000000000000000000n" and context.run("-0").value == "-0" and context.run("NaN").value == "NaN"


def test_output_is_apart_and_exact(context):
    result = context.run("console.log('out', {a: 1}); console.error('err'); process.stdout.write('no newline')\nundefined")
    assert (result.stdout, result.stderr) == (b"out { a: 1 }\nno newline", b"err\n")
    result = context.run("require('child_process').execSync('echo child; echo error >&2', {stdio: 'inherit'}); require('fs').writeSync(1, 'direct\\n'); undefined")
    assert (result.stdout, result.stderr) == (b"child\ndirect\n", b"error\n")


def test_large_output_is_whole_before_the_answer(context):
    result = context.run("console.log('x'.repeat(10_000_000)); for (let i = 0; i < 20000; i++) console.log(i)")
    assert len(result.stdout) == 10_000_001 + 108890 and result.stdout.endswith(b"\n19999\n")
    result = context.run("({[Symbol.for('Jupyter.display')]: () => ({'text/html': 'x'.repeat(33 << 20)})})")
    assert result.value == "(left out: 33 MiB to show, of at most 32 MiB)"


def test_top_level_await_and_promises(context):
    assert context.run("const v = await new Promise(r => setTimeout(() => r(7), 20)); v + 1").value == "8"
    assert context.run("async function main() { await null; console.log('in main'); return 'done' }\nmain()").value == "'done'"
    error = context.run("async function bad() { await null; throw new RangeError('r') }\nbad()").error
    assert (error["type"], error["line"]) == ("RangeError", 1)
    assert context.run("v").value == "7"


def test_modules(context, tmp_path):
    (tmp_path / "mine.js").write_text("module.exports = {value: 5}\n")
    (tmp_path / "esm.mjs").write_text("export default 6; export const other = 7\n")
    assert context.run("require('./mine').value").value == "5"
    assert context.run("import six, {other as seven} from './esm.mjs'\nimport * as path from 'node:path'\nimport 'fs'\n[six, seven, path.sep]").value == "[ 6, 7, '/' ]"
    assert context.run("(await import('./esm.mjs')).other").value == "7"
    assert context.run("fs.existsSync('mine.js') && os.EOL").value == "'\\n'"
    assert context.run("import x from 'no-such-module'").error["message"].startswith("Cannot find module 'no-such-module'")


def test_input(context):
    code = "const lines = []; for await (const line of readline.createInterface({input: process.stdin})) lines.push(line); lines"
    assert context.run("fs.readFileSync(0, 'utf8')", "text\n").value == "'text\\n'"
    assert context.run(code, "a\nb\n").value == "[ 'a', 'b' ]" and context.run(code, "c\n").value == "[ 'c' ]"
    assert context.run("fs.readFileSync('/dev/stdin', 'utf8')", "").value == "''"
    assert context.run("child_process.execSync('cat', {stdio: [0, 'pipe']}).toString()", "for a child").value == "'for a child'"


def test_errors_have_the_cells_own_lines(context):
    context.run("function f(x) {\n  return x.y.z\n}")
    error = context.run("1\n\nf({})").error
    assert (error["type"], error["line"]) == ("TypeError", 3) and "reading 'z'" in error["message"]
    assert "at f (<cell-1>:2:14)" in error["traceback"] and "at <cell-2>:3:1" in error["traceback"]
    assert "context.js" not in error["traceback"] and "node:" not in error["traceback"]
    error = context.run("let x = 1;\nlet = = 2").error
    assert (error["type"], error["line"]) == ("SyntaxError", 2) and "let = = 2" in error["traceback"]
    error = context.run("throw 'a text'").error
    assert (error["type"], error["message"]) == ("string", "'a text'")
    assert context.run("throw {toString() { throw 1 }, get name() { throw 2 }}").status == "error"
    assert context.run("function g() { g() }; g()").error["type"] == "RangeError"
    error = context.run("\nprocess.exit(3)").error
    assert (error["type"], error["line"]) == ("Exit", 2)
    assert context.run("1").value == "1"


LOOPS = ["while (true) {}", "await new Promise(() => {})", "for (;;) console.log('x')", "await new Promise(r => setTimeout(r, 100000))", "while (true) display(1)",
         "child_process.execSync('sleep 100')", "await (async () => { while (true) await new Promise(setImmediate) })()"]


@pytest.mark.parametrize("loop", LOOPS)
def test_an_interrupt_keeps_the_state(context, loop):
    context.run("let kept = 5")
    call = context.begin(f"console.log('begun'); {loop}; console.log('never')")
    while not context.drain(call, call.outs[0]):
        time.sleep(0.01)
    time.sleep(0.1)
    context.interrupt()
    result = context.finish(call, 10)
    assert result.status == "interrupted" or (result.status == "error" and "execSync" in loop), result
    assert b"never" not in result.stdout
    result = context.run("kept")
    assert (result.value, result.stdout) == ("5", b"")


def test_interrupts_at_any_moment_leave_every_frame_whole(context):
    context.run("let n = 0")
    for i in range(40):
        call = context.begin("console.log('begun'); while (true) { n++; display(n); console.log(n) }")
        while not context.drain(call, call.outs[0]):
            time.sleep(0.001)
        time.sleep(0.001 * (i % 11))
        context.interrupt()
        assert context.finish(call).status == "interrupted"
    assert int(context.run("n").value) > 40
    assert context.run("console.log('x'); 1").stdout == b"x\n"


def test_an_interrupt_of_nothing_is_nothing(context):
    for _ in range(20):
        context.interrupt()
        assert context.run("1").status in ("completed", "interrupted")
    time.sleep(0.1)
    context.interrupt()
    time.sleep(0.1)
    assert context.run("await new Promise(r => setTimeout(() => r(7), 100))").value == "7"


def test_what_a_call_leaves_behind_does_not_write_into_the_next(context):
    context.run("let n = 0; setInterval(() => { n++; console.log('leak'); console.error('leak'); display('leak') }, 5); (async () => { for (;;) { await new Promise(r => "
                "setTimeout(r, 5)); process.stdout.write('leak') } })(); undefined")
    result = context.run("await new Promise(r => setTimeout(r, 200)); console.log('mine'); setTimeout(() => console.log('own timer'), 5); await new Promise(r => setTimeout(r, 50)); n > 3")
    assert (result.stdout, result.stderr, result.value, len(result.displays)) == (b"mine\nown timer\n", b"", "true", 1)


def test_errors_outside_of_the_evaluation_do_not_end_it(context):
    result = context.run("setTimeout(() => { throw new Error('in a timer') }, 5); Promise.reject(new Error('rejected')); await new Promise(r => setTimeout(r, 50)); 1")
    assert result.value == "1" and b"in a timer" in result.stderr and b"rejected" in result.stderr and b"context.js" not in result.stderr
    context.run("setTimeout(() => { throw new Error('late') }, 20); 1")
    time.sleep(0.1)
    assert context.run("2").stderr == b""


def test_display(context):
    result = context.run("display(1, {[Symbol.for('Jupyter.display')]() { return {'text/html': '<b>', 'image/png': Buffer.from('png'), 'application/json': {a: 1}} }}); 'a\\0\\ud800'")
    assert [(one["value"], one["of"]) for one in result.displays] == [(False, 1), (False, 2), (True, 3)]
    forms = result.forms(result.displays[1])
    assert (forms["text/html"], forms["image/png"], forms["application/json"]) == ("<b>", "cG5n", '{"a":1}')


def test_no_fd_of_ours_and_no_argument_is_seen(context):
    assert context.run("child_process.execSync('ls /proc/self/fd').toString()").value == "'0\\n1\\n2\\n3\\n'"
    assert context.run("[process.argv.length, process.execArgv.length, process.cwd() === process.env.PWD || true]").value == "[ 1, 0, true ]"


def test_a_hundred_calls_leak_nothing(context):
    def fds():
        return sorted(os.listdir(f"/proc/{context.process.pid}/fd"))
    context.run("console.log(1)", "x")
    before = fds()
    for i in range(100):
        assert context.run(f"fs.readFileSync(0, 'utf8') + {i}", "x").value == f"'x{i}'"
    assert fds() == before


@pytest.mark.parametrize("frame", [b"{}", b"nonsense", b'{"op":"execute","id":1}', b"\xff" * 10, b"[]", b"null"])
def test_a_frame_that_makes_no_sense_ends_it(context, frame):
    context.send(frame)
    assert context.exit_code() == 125


def test_it_ends_when_the_door_is_closed(context):
    context.run("setInterval(() => {}, 10); 1")
    context.door.close()
    assert context.exit_code() == 0


def test_the_door_may_be_fd_0(tmp_path):
    driver = drivers.Driver(["/bin/sh", "-c", 'exec "$0" "$@" 0<&3 3<&-', *COMMAND], tmp_path)
    assert driver.run("1 + 1").value == "2"
    driver.close()


def test_a_death_is_seen(context):
    call = context.begin("process.kill(process.pid, 'SIGKILL')")
    with pytest.raises(drivers.Ended):
        context.finish(call)
    assert context.exit_code() == -signal.SIGKILL
