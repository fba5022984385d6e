# What most programs do: see src/cell/warm_pages.h.
Shape = Struct.new(:width, :height) do
  def area = width * height
end
shapes = (1..20).map { |width| Shape.new(width, 1.5) }
begin
  raise ArgumentError, "#{shapes.sum(&:area)} #{shapes.map(&:area).sort.last(3).inspect}"
rescue ArgumentError => error
  puts error.message
end
puts({ answer: 42, words: 'one two'.split })
puts 42
