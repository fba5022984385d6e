# What the zygote runs once, before it has any child, so that what Python and libraries make of themselves at the first use is there for all.
# It must leave nothing behind that a program could meet.
import sys


class Shape:
    def __init__(self, width, height=1.5):
        self.width, self.height = width, height

    def area(self):
        return self.width * self.height


shapes = [Shape(number) for number in range(20)]
words = sorted({str(shape.area()) for shape in shapes}, key=len)
try:
    raise ValueError(f"{len(words)} of {20:>4}: {words[-1]!r}")
except ValueError as error:
    print({"text": str(error).split(), "sum": sum(shape.area() for shape in shapes)})
print(42)

if "pandas" in sys.modules:
    import numpy
    import pandas

    frame = pandas.DataFrame({"key": numpy.arange(30) % 3, "value": numpy.arange(30) / 4})
    print(frame.groupby("key")["value"].sum().to_dict())
    frame["square"] = frame["value"] ** 2
    chosen = frame[frame["value"] > 1].sort_values("square")
    print(chosen.groupby("key").agg({"value": "mean", "square": "max"}))
    print(chosen.describe())
