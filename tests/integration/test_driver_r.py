"""Contexts of R: languages/warm/r/context.R and hotcell-door.so, through their door."""

import base64
import os
import time

import drivers
import pytest

COMMAND = drivers.command_of("r", {"{driver}/../hotcell-door.so": str(drivers.BUILD / "hotcell-door.so")})


@pytest.fixture
def context(tmp_path):
    driver = drivers.Driver(COMMAND, tmp_path)
    yield driver
    driver.close()


def shown(result):
    return [(one["value"], result.forms(one).get("text/plain")) for one in result.displays]


def test_variables_stay_and_visible_values_are_shown(context):
    assert context.ready["fds"] is True
    assert context.run("x <- 20; f <- function(a) a + x").displays == []
    assert shown(context.run("f(1); invisible(3)\ny <- 2\nf(y)")) == [(False, "[1] 21"), (True, "[1] 22")]
    assert shown(context.run("ls()")) == [(True, '[1] "f" "x" "y"')]
    assert shown(context.run("data.frame(a = 1:2)")) == [(True, "  a\n1 1\n2 2")]
    assert context.run("").status == context.run("# nothing").status == "completed"
    assert context.run('"a\\"\\\\\\u00e4\\n"').value == '[1] "a\\"\\\\\u00e4\\n"'
    assert context.run("setClass('P', representation(x = 'numeric')); new('P', x = 1)").value.startswith("An object of class")


def test_output_and_input_are_the_calls_own(context):
    result = context.run("cat('a\\n'); message('b'); print(1:3); system('echo c; echo d >&2'); warning('careful'); f <- function() warning('in f'); f(); invisible()")
    assert (result.stdout, result.stderr) == (b"a\n[1] 1 2 3\nc\n", b"b\nd\nWarning: careful\nWarning in f(): in f\n")
    result = context.run("a <- readline('? '); b <- readline(); c(a, b)", "one\ntwo\n")
    assert (result.stdout, result.value) == (b"? ", '[1] "one" "two"')
    assert context.run("readLines(file('stdin'))", "x\ny\n").value == '[1] "x" "y"' and context.run("readLines(file('stdin'))", "z\n").value == '[1] "z"'
    assert context.run("readline()", "").status == "error"
    context.run("sink('file'); cat('into')")
    assert context.run("cat('out')").stdout == b"out"


def test_errors_have_the_cells_own_lines(context):
    context.run("f <- function(x) {\n  stop('bad ', x)\n}")
    error = context.run("1\n\ng <- function(x) f(x)\ng(2)").error
    assert (error["type"], error["message"], error["line"]) == ("simpleError", "bad 2", 4)
    assert error["traceback"].startswith("Error in f(x): bad 2\n  1: g(2)\n  2: f(x) at <cell 2>#3\n  3: stop(") and "<cell 1>#2" in error["traceback"]
    assert "tryCatch" not in error["traceback"]
    error = context.run("x <- 1\ny <- (2 +").error
    assert error["line"] == 2 and "<cell 3>" in error["message"]
    assert context.run("stop('top')").error["traceback"] == "Error: top\n  1: stop(\"top\")\n"
    assert context.run("nothing").error["message"] == "object 'nothing' not found"
    assert context.run("quit(status = 3)").error["type"] == "quit" and context.run("q('no')").error["type"] == "quit"
    assert context.run("h <- function() h(); h()").status == "error"
    assert context.run("options(warn = 2); as.integer('x')").error["message"].startswith("(converted from warning)")
    assert context.run("f").status == "completed"
    assert context.run(b"'a\0b'").status == context.run(b"'\xff'").status == "error"


def test_plots_are_shown_as_png(context):
    result = context.run("plot(1:3)\nlines(3:1)\nhist(c(1, 2, 2))\n1")
    images = [base64.b64decode(result.forms(one)["image/png"]) for one in result.displays if "image/png" in result.forms(one)]
    assert len(images) == 2 and all(image.startswith(b"\x89PNG") for image in images) and result.stderr == b"" and result.value == "[1] 1"
    assert context.run("2").displays[0]["entries"] == [{"type": "text/plain", "data": "[1] 2"}]


@pytest.mark.parametrize("loop", ["while (TRUE) {}", "Sys.sleep(100)", "repeat cat('x\\n')", "repeat print(1)", "f <- function() repeat sqrt(2); f()", "repeat tryCatch(stop(), error = identity)"])
def test_an_interrupt_keeps_the_state(context, loop):
    context.run("kept <- 5")
    call = context.begin(f"cat('begun\\n'); {loop}\ncat('never')")
    while not context.drain(call, call.outs[0]):
        time.sleep(0.01)
    time.sleep(0.2)
    context.interrupt()
    result = context.finish(call, 10)
    assert result.status == "interrupted" and b"never" not in result.stdout
    assert context.run("kept").value == "[1] 5"


def test_an_interrupt_of_nothing_is_nothing(context):
    for _ in range(10):
        context.interrupt()
        assert context.run("1").status in ("completed", "interrupted")
    time.sleep(0.05)
    context.interrupt()
    time.sleep(0.05)
    assert context.run("Sys.sleep(0.2); 7").value == "[1] 7"


def test_large_values_and_no_leaks(context):
    def fds():
        return sorted(os.listdir(f"/proc/{context.process.pid}/fd"))
    assert context.run("strrep('x', 33 * 2^20)").value == "(left out: more than 32 MiB to show)"
    assert len(context.run("cat(strrep('x', 5000000))").stdout) == 5000000
    context.run("1")
    before = fds()
    for i in range(100):
        assert context.run(f"{i}").value == f"[1] {i}"
        while context.left_over:
            os.close(context.left_over.pop())
    assert fds() == before


def test_background_children_do_not_write_into_the_next_call(context):
    context.run("system('while sleep 0.05; do echo leak; done', wait = FALSE)")
    assert context.run("Sys.sleep(0.3); cat('mine')").stdout == b"mine"


@pytest.mark.parametrize("frame", [b"{}", b'{"op":"execute","id":1}', b"\xff" * 10])
def test_a_frame_that_makes_no_sense_ends_it(context, frame):
    context.send(frame)
    assert context.exit_code() == 125


def test_it_ends_when_the_door_is_closed(context):
    context.door.close()
    assert context.exit_code() == 0
