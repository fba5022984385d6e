<?php
// What most programs do: see src/cell/warm_pages.h.
class Shape
{
    public function __construct(public float $width, public float $height = 1.5)
    {
    }

    public function area(): float
    {
        return $this->width * $this->height;
    }
}

$areas = array_map(fn ($width) => (new Shape($width))->area(), range(1, 20));
sort($areas);
try {
    throw new InvalidArgumentException(sprintf('%.1f of %d', array_sum($areas), count($areas)));
} catch (InvalidArgumentException $error) {
    echo $error->getMessage(), "\n";
}
echo json_encode(['answer' => 42, 'words' => explode(' ', 'one two')]), "\n";
echo 42, "\n";
