"""Contexts of Ruby: languages/warm/ruby/context.rb, through its door."""

import os
import signal
import time

import drivers
import pytest

COMMAND = drivers.command_of("ruby")
# What stands in for the warden: fork returns as it does in a zygote's child, with the argument block as fd 3 and the door as fd 0.
ZYGOTE = """
module Process
  def self.fork
    singleton_class.send(:remove_method, :fork)
    Dir.chdir(ENV.delete('STAND_IN'))
    nil
  end
end
"""


def cold(folder):
    return drivers.Driver(COMMAND, folder)


def forked(folder):
    (folder / ".zygote.rb").write_text(ZYGOTE)
    (folder / ".block").write_text("\0".join(["2", "0", str(folder), *COMMAND, ""]))
    script = f"cd {drivers.SOURCE}/languages/warm/ruby && exec /usr/bin/ruby -r{folder}/.zygote.rb -r./driver.rb -rhotcell main.rb 0<&3 3<{folder}/.block"
    return drivers.Driver(["/bin/sh", "-c", script], folder, {"STAND_IN": str(folder)})


@pytest.fixture(params=[cold, forked], ids=["cold", "forked"])
def context(request, tmp_path):
    driver = request.param(tmp_path)
    yield driver
    driver.close()


def test_variables_stay_and_the_last_value_is_shown(context):
    assert context.ready["fds"] and context.ready["version"].startswith("3.")
    context.run("x = 20\n@y = [1]\n$z = 3\ndef f(a)\n  a + 2\nend\nclass C; D = 5; end\nrequire 'set'")
    result = context.run("puts 'out'\nf(x) + @y[0] + $z + C::D")
    assert (result.stdout, result.value) == (b"out\n", "31")
    assert context.run("_ + 1").value == "32"
    assert context.run("x = 5").displays == context.run("def g; end").displays == context.run("nil").displays == context.run("5;").displays == []
    assert context.run("").status == "completed" and context.run("x").value == "5"
    assert context.run("[self.inspect, $0, ARGV, local_variables.sort]").value == '["main", "ruby", [], [:_, :x]]'


def test_output_and_input_are_the_calls_own(context):
    result = context.run("puts 'a'; warn 'b'; system('echo c; echo d >&2'); $stdout.write([0, 255].pack('C*')); print gets; puts STDIN.read; nil", "one\ntwo\n")
    assert (result.stdout, result.stderr) == (b"a\nc\n\0\xffone\ntwo\n", b"b\nd\n")
    assert context.run("[gets, gets]", "x\n").value == '["x\\n", nil]' and context.run("[gets, gets]", "y\n").value == '["y\\n", nil]'
    assert context.run("`cat`", "for a child").value == '"for a child"'
    context.run("$stdout.close; $stdin.close; $stderr.close")
    assert context.run("puts 'again'; gets", "in").stdout == b"again\n"
    context.run("require 'stringio'; $stdout = StringIO.new")
    assert context.run("puts 'kept'; $stdout.string").value == '"kept\\n"'


def test_errors_have_the_cells_own_lines(context):
    context.run("def f(x)\n  1 / x\nend")
    error = context.run("y = 1\n\nf(0)").error
    assert (error["type"], error["message"], error["line"]) == ("ZeroDivisionError", "divided by 0", 3)
    assert "<cell 1>:2:in `f'" in error["traceback"] and "<cell 2>:3:in `<main>'" in error["traceback"] and "context.rb" not in error["traceback"]
    error = context.run("x = 1\nif x\n").error
    assert (error["type"], error["line"]) == ("SyntaxError", 2)
    for code, kind in (("exit 3", "SystemExit"), ("abort 'x'", "SystemExit"), ("raise Exception", "Exception"), ("def r; r; end; r", "SystemStackError"), ("throw :x", "UncaughtThrowError"),
                       ("Object.new.tap { |o| def o.inspect = raise('bad') }", "RuntimeError"), ("raise Class.new(StandardError), 'm'", "Exception"), ("nothing", "NameError")):
        assert context.run(code).error["type"] == kind, code
    assert context.run(b"\xff").error["type"] == "SyntaxError"
    trace = context.run("begin\n  1 / 0\nrescue\n  raise 'second'\nend").error["traceback"]
    assert "second (RuntimeError)" in trace and "divided by 0 (ZeroDivisionError)" in trace
    assert context.run("y").value == "1"


@pytest.mark.parametrize("loop", ["loop {}", "sleep", "system('sleep 100'); sleep", "Thread.new { sleep }.join", "loop { puts 'x' * 100 }", "IO.pipe[0].read"])
def test_an_interrupt_keeps_the_state(context, loop):
    context.run("kept = 5")
    call = context.begin(f"puts 'begun'\n{loop}\nputs 'never'")
    while not context.drain(call, call.outs[0]):
        time.sleep(0.01)
    time.sleep(0.1)
    context.interrupt()
    result = context.finish(call, 10)
    assert result.status == "interrupted" and result.error["type"] == "Interrupt" and b"never" not in result.stdout
    assert context.run("kept").value == "5"


def test_an_interrupt_of_nothing_is_nothing_and_a_trap_is_the_codes_own(context):
    for _ in range(20):
        context.interrupt()
        assert context.run("1").status in ("completed", "interrupted")
    time.sleep(0.05)
    context.interrupt()
    time.sleep(0.05)
    assert context.run("sleep 0.1; 7").value == "7"
    context.run("trap('INT') { $caught = true }")
    call = context.begin("puts 1; sleep 0.5; $caught")
    while not context.drain(call, call.outs[0]):
        time.sleep(0.01)
    context.interrupt()
    assert context.finish(call).value == "true"


def test_what_a_call_leaves_behind_does_not_write_into_the_next(context):
    context.run("Thread.new { loop { sleep 0.02; puts 'leak'; warn 'leak'; Thread.new { puts 'leak' } } }; nil")
    result = context.run("sleep 0.3; puts 'mine'; Thread.new { puts 'my thread' }.join; nil")
    assert (result.stdout, result.stderr) == (b"mine\nmy thread\n", b"")


def test_forks_and_fds(context):
    result = context.run("fork { puts 'child' }; Process.wait; $?.exitstatus")
    assert (result.stdout, result.value) == (b"child\n", "0")
    result = context.run("pid = fork\nif pid.nil?\n  puts 'child'\n  exit 5\nend\nProcess.wait; $?.exitstatus")
    assert (result.stdout, result.value) == (b"child\n", "5")
    assert context.run("`ls /proc/self/fd`").value == '"0\\n1\\n2\\n3\\n"'


def test_forms(context):
    result = context.run("class T; def to_html = '<b>'; def to_png = \"\\x89PNG\".b; def inspect = 'thing'; end; T.new")
    assert result.forms(result.displays[0]) == {"text/html": "<b>", "image/png": "iVBORw==", "text/plain": "thing"}
    assert context.run('"a\\xff\\0".b').value == '"a\\xFF\\x00"'
    assert context.run("'x' * (33 << 20)").value == "(left out: more than 32 MiB to show)"


def test_calls_leak_nothing(context):
    def fds():
        return sorted(os.listdir(f"/proc/{context.process.pid}/fd"))
    context.run("1")
    before = fds()
    for i in range(300):
        assert context.run(f"{i}").value == str(i)
        while context.left_over:
            os.close(context.left_over.pop())
    assert fds() == before


@pytest.mark.parametrize("frame", [b"{}", b"nonsense", b'{"op":"execute","id":1}', b"\xff" * 10, b"[]"])
def test_a_frame_that_makes_no_sense_ends_it(context, frame):
    context.send(frame)
    assert context.exit_code() == 125


def test_it_ends_when_the_door_is_closed_with_its_exit_handlers(context, tmp_path):
    context.run("at_exit { File.write('mark', 'x') }; Thread.new { sleep }; nil")
    context.door.close()
    assert context.exit_code() == 0 and (tmp_path / "mark").read_text() == "x"


def test_the_door_may_be_fd_0(tmp_path):
    driver = drivers.Driver(["/bin/sh", "-c", 'exec "$0" "$@" 0<&3 3<&-', *COMMAND], tmp_path)
    assert driver.run("gets", "x").value == '"x"'
    driver.close()


def test_a_death_is_seen(context):
    call = context.begin("Process.kill(:KILL, $$)")
    with pytest.raises(drivers.Ended):
        context.finish(call)
    assert context.exit_code() == -signal.SIGKILL
