# A child runs this as main.py, to learn which memory all programs write to: it is copied for each (src/cell/warm_pages.h).
import sys
print(42)
if "pandas" in sys.modules:
    # as text: to read it takes memory, which programs without it do not use
    exec("""
import numpy, pandas
frame = pandas.DataFrame({"key": numpy.arange(30) % 3, "value": numpy.arange(30) / 4})
print(frame.groupby("key")["value"].sum().to_dict())
""")
