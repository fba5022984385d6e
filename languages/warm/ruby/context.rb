# A Ruby that keeps its variables: the program of contexts (docs/SANDBOXES.md, languages/README.md), with its door as fd 3, or as fd 0 where fd 3
# is no socket. It is started as `ruby context.rb`, or takes the place of main.rb in a zygote's child (driver.rb).
#
# What always holds: 0 to 2 are the call's own while it is carried out, and /dev/null otherwise. The threads of a call are a group of their own,
# which their threads inherit: what is not in the group of the call that is carried out writes to nowhere. No variable, constant or method of this
# file can be seen by the code.

require 'fcntl'
require 'json'
require 'socket'

Class.new do
  def initialize
    @pid = Process.pid
    @door = find_door
    @null = File.open(File::NULL, 'r+')
    @binding = TOPLEVEL_BINDING.dup
    @calls = 0
    @group = nil # of the call that is carried out
    @handler = 'DEFAULT' # the code's own for SIGINT, while none is carried out
    @file = __FILE__
  end

  def serve
    @owned = own_output
    place([@null] * 3)
    close_in_children
    listen(false)
    Dir.chdir(ARGV.first) unless ARGV.empty? # in a zygote's child
    $0 = 'ruby'
    ARGV.clear
    send_frame(event: 'ready', version: RUBY_VERSION, fds: true)
    while (call = next_call)
      carry_out(*call)
    end
    exit
  rescue StandardError
    exit!(125) # whatever it was, it was no frame
  end

  private

  # ---- the door ----

  def find_door
    fd = [3, 0].find { |one| socket?(one) } or abort('hotcell: there is no door at fd 3')
    own = IO.for_fd(fd, autoclose: false).fcntl(Fcntl::F_DUPFD, [Process.getrlimit(:NOFILE)[0] - 8, 200].min)
    fd.zero? ? $stdin.reopen(File::NULL) : IO.for_fd(fd).close
    UNIXSocket.for_fd(own).tap { |door| door.close_on_exec = true }
  end

  def socket?(fd)
    IO.for_fd(fd, autoclose: false).stat.socket?
  rescue SystemCallError, ArgumentError # there is none, or Ruby has it for itself
    false
  end

  # All of it, or nil at the end of everything.
  def receive(size, fds)
    data = +''.b
    while data.bytesize < size
      part, _, _, *controls = @door.recvmsg([size - data.bytesize, 1 << 20].min, 0, nil, scm_rights: true)
      controls.each { |control| fds.concat(control.unix_rights) if control.cmsg_is?(:SOCKET, :RIGHTS) }
      return nil if part.nil? || part.empty?

      data << part
    end
    data
  end

  def next_call
    fds = []
    head = receive(4, fds) or return nil
    raise ArgumentError, 'a frame that is too large' if head.unpack1('V') > 64 << 20

    frame = JSON.parse(receive(head.unpack1('V'), fds))
    raise ArgumentError, 'a frame that is no call' unless frame['op'] == 'execute' && fds.size == 4

    [frame['id'], fds]
  end

  # Whole, whatever signals come.
  def send_frame(frame)
    data = JSON.generate(frame)
    late = false
    handler = trap('INT') { late = true }
    @door.write([data.bytesize].pack('V') + data)
    trap('INT', handler || 'DEFAULT')
    Process.kill('INT', @pid) if late
  rescue SystemCallError
    exit!(0) # nobody wants to know
  end

  # ---- whose output it is ----

  def place(files)
    [STDIN, STDOUT, STDERR].zip(files) { |to, from| to.reopen(from) }
    [STDIN, STDOUT, STDERR].each { |io| io.extend(@owned) } # again: an IO that is reopened is of the other's class
    STDOUT.sync = STDERR.sync = true
  end

  # Not STDERR itself: Ruby's own warnings go straight to that. What the code has put in their place is left.
  def open_streams
    $stdin = STDIN
    $stdout = owned(1) if $stdout.equal?(STDOUT) || $stdout.closed?
    $stderr = owned(2) if $stderr.equal?(STDERR) || $stderr.closed?
  end

  def owned(fd)
    IO.for_fd(fd, 'w', autoclose: false).extend(@owned).tap { |io| io.sync = true }
  end

  # What is closed could not be opened again.
  def own_output
    left_over = -> { Process.pid == @pid && !Thread.current.group.equal?(@group) }
    Module.new do
      define_method(:close) {}
      define_method(:write) { |*data| left_over.call ? data.sum { |one| one.to_s.bytesize } : super(*data) }
    end
  end

  def close_in_children
    door = @door
    Process.singleton_class.prepend(Module.new do
      define_method(:_fork) { super().tap { |pid| door.close if pid.zero? } }
    end)
  end

  # ---- a call ----

  # Interrupts are for the code, or for nobody.
  def listen(yes)
    if yes
      trap('INT', @handler || 'DEFAULT')
    else
      @handler = trap('INT') {}
    end
  end

  def carry_out(id, fds)
    name = "<cell #{@calls += 1}>"
    fds[0].seek(0)
    code = fds[0].read.force_encoding(Encoding::UTF_8)
    place(fds[1..])
    fds.each(&:close)
    open_streams
    @group = ThreadGroup.new.add(Thread.main)
    value, error = evaluate(code, name)
    leave_child(error) if Process.pid != @pid
    value, error = show(id, code, value, error) if error.nil?
    begin
      listen(false)
    rescue Interrupt
      listen(false)
    end
    @group = nil
    place([@null] * 3)
    status = error.nil? ? 'completed' : error.is_a?(Interrupt) ? 'interrupted' : 'error'
    send_frame(id: id, event: 'done', status: status, exit_code: nil, error: error && describe(error, name))
  end

  def evaluate(code, name)
    raise SyntaxError, "#{name}: the code is not UTF-8" unless code.valid_encoding?

    listen(true)
    value = @binding.eval(code, name, 1)
    @binding.local_variable_set(:_, value)
    [value, nil]
  rescue Exception => e # rubocop:disable Lint/RescueException
    [nil, e]
  end

  # fork in the code: this is the child, which has come to its end.
  def leave_child(error)
    warn(error.full_message(highlight: false)) if error && !error.is_a?(SystemExit)
    exit!(error.is_a?(SystemExit) ? error.status : error ? 1 : 0)
  end

  # ---- what is shown ----

  # The value, unless it is nil or that of an assignment or a definition.
  def show(id, code, value, error)
    return [value, error] if value.nil? || code.rstrip.end_with?(';') || statement?(code)

    entries = forms_of(value).map { |type, data| { type: type, data: data } }
    if entries.sum { |entry| entry[:data].bytesize } > 32 << 20
      entries = [{ type: 'text/plain', data: '(left out: more than 32 MiB to show)' }]
    end
    send_frame(id: id, event: 'display', value: true, of: 1, entries: entries)
    [value, nil]
  rescue Exception => e # rubocop:disable Lint/RescueException
    [value, e]
  end

  def statement?(code)
    require 'ripper'
    tree = Ripper.sexp(code)
    %i[assign massign opassign def defs class module sclass alias undef].include?(tree && tree[1].last&.first)
  end

  def forms_of(value)
    forms = {}
    { to_html: 'text/html', to_svg: 'image/svg+xml', to_png: 'image/png' }.each do |method, type|
      data = value.public_send(method) if value.respond_to?(method) && value.method(method).arity <= 0
      forms[type] = type == 'image/png' ? [data].pack('m0') : clean(data) if data.is_a?(String)
    rescue StandardError
      nil # a form that cannot be made is no form
    end
    forms.merge('text/plain' => clean(value.inspect))
  end

  # For JSON: UTF-8, and no NUL.
  def clean(text)
    text.to_s.dup.force_encoding(text.to_s.encoding == Encoding::BINARY ? Encoding::UTF_8 : text.to_s.encoding)
        .encode(Encoding::UTF_8, invalid: :replace, undef: :replace).scrub("\ufffd").tr("\0", "\ufffd")
  end

  # ---- errors ----

  def describe(error, name)
    trace = (error.backtrace || []).reject { |line| line.start_with?("#{@file}:") }
    line = trace.filter_map { |one| one[/\A#{Regexp.escape(name)}:(\d+)/, 1] }.first
    line ||= error.message[/#{Regexp.escape(name)}:(\d+)/, 1] if error.is_a?(ScriptError)
    { type: error.class.name || 'Exception', message: clean(error.message)[0, 65_536], traceback: clean(format_trace(error, trace))[0, 524_288], line: line&.to_i }
  rescue StandardError
    { type: error.class.name || 'Exception', message: '(its text cannot be had)', traceback: '', line: nil }
  end

  def format_trace(error, trace)
    first = trace.empty? ? '' : "#{trace.first}: "
    text = "#{first}#{error.message} (#{error.class})\n" + trace.drop(1).map { |line| "\tfrom #{line}\n" }.join
    cause = error.cause
    text += format_trace(cause, (cause.backtrace || []).reject { |line| line.start_with?("#{@file}:") }) if cause
    text
  end
end.new.send(:serve)
