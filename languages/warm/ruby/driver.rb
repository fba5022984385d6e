# The driver of Ruby's zygotes: `ruby -r./driver.rb -rhotcell main.rb`, in the folder of this file. Ruby opens main.rb, requires both, and only
# then reads main.rb. This file answers the second of them, of which there is no file: it forks once, which returns only in children, each of
# which is in its cell (src/cell/warm.h). The child puts the program's main.rb in the place of the one that was opened, sets right what a start
# derives from its arguments, and returns: Ruby itself then reads and runs the program.
#
# What always holds: no constant, method or loaded feature is left behind. Where a cold start would find something that was not prepared for,
# the child execs Ruby, which is what a cold start does.

def self.require(_)
  singleton_class.send(:remove_method, :require)
  $LOADED_FEATURES.delete(__FILE__)
  require 'rbconfig' # so that the index of features is made anew here, and not in each child
  context = File.expand_path('context.rb', __dir__)
  script = ObjectSpace.each_object(File).find { |file| !file.closed? && file.path == $0 }
  3.times { GC.start }

  exit!(1) if Process.fork
  block = IO.for_fd(3, 'rb')
  argc, _, folder, *words = block.read.split("\0", -1)
  block.close
  argv = words.first(argc.to_i).each { |word| word.force_encoding(Encoding.find('locale')) }
  # Ruby has looked for these at the beginning of main.rb already: #! with its options, a byte order mark, nothing at all.
  if argv.size == 2 && argv[1] == context
    script.reopen(context) # a context's program takes the place of main.rb, which Ruby still looks for where it was
    Dir.chdir(__dir__)
    ARGV.replace([folder])
    return true
  end
  unless argv[1] == $0 && File.file?($0) && !['#!', "\xEF\xBB", nil].include?(File.read($0, 2)) && [$stdin, $stdout, $stderr].none?(&:tty?)
    exec([argv[0], argv[0]], *argv[1..])
  end
  script.reopen($0) # which also forgets what was read ahead of the other
  ARGV.replace(argv[2..])
  ENV['TZ'] = ENV['TZ'] if ENV['TZ'] # Ruby keeps in mind that it has looked
  true
end
