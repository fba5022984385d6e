"""docs/benchmarks.svg: the warm cases as bars of ratios to the bare program, with the target of each.

Drawn by hand, so that nothing has to be installed. The colours follow the reader's: light or dark.
"""

import html
import math

WIDTH, LEFT, RIGHT, ROW, TOP, BOTTOM = 900, 300, 70, 26, 56, 40
OTHERS = ("hotcell run", "bubblewrap", "runc", "docker")
STYLE = """
  .page { fill: #ffffff } .text { fill: #1f2328 } .soft { fill: #59636e } .ours { fill: #1a7f37 } .late { fill: #bc4c00 }
  .other { fill: #8c959f } .grid { stroke: #d1d9e0 } .one { stroke: #59636e } .mark { stroke: #1f2328 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } .text { fill: #f0f6fc } .soft { fill: #9198a1 } .ours { fill: #3fb950 } .late { fill: #f0883e }
    .other { fill: #6e7681 } .grid { stroke: #3d444d } .one { stroke: #9198a1 } .mark { stroke: #f0f6fc }
  }
  text { font: 13px system-ui, sans-serif } .small { font-size: 11px }
"""


def bars(measured):
    """[(label, ratio, target or None, kind)] from the cases of single warm runs."""
    found = []
    for case in measured["cases"]:
        if not case["name"].startswith("warm-") or case["unit"] != "ms" or case["baseline"] != "bare":
            continue
        ratios = {row["contender"]: row["ratio"] for row in case["rows"]}
        if not ratios.get("hotcell"):
            continue
        target = next((one for one in case["targets"] if one["text"].endswith("× bare")), None)
        kind = "ours" if target is None or target["met"] else "late"
        found.append((case["title"], ratios["hotcell"], target["limit"] if target else None, kind))
        if case["name"] == "warm-python":
            found += [(f"the same by {name}", ratios[name], None, "other") for name in OTHERS if ratios.get(name)]
    return found


def draw(measured):
    """The picture, or None when there is nothing to show."""
    rows = bars(measured)
    if not rows:
        return None
    values = [1, *(value for row in rows for value in row[1:3] if value)]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    plot, height = WIDTH - LEFT - RIGHT, TOP + ROW * len(rows) + BOTTOM

    def across(value):
        return LEFT + plot * (math.log10(value) - low) / (high - low)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
           ' aria-label="The time of a run as a multiple of the bare program">',
           f"<style>{STYLE}</style>", f'<rect class="page" width="{WIDTH}" height="{height}" rx="6"/>',
           '<text class="text" x="16" y="26" font-weight="600">Time of a run, as a multiple of the bare program</text>',
           '<text class="soft small" x="16" y="43">left of 1: sooner than without a sandbox; the mark is the target</text>']
    bottom = TOP + ROW * len(rows)
    for power in range(low, high + 1):
        x = across(10 ** power)
        kind = "one" if power == 0 else "grid"
        out.append(f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>')
        out.append(f'<text class="soft small" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{10.0 ** power:g}</text>')
    for index, (label, ratio, target, kind) in enumerate(rows):
        y = TOP + ROW * index
        text = "text" if kind != "other" else "soft"
        out.append(f'<text class="{text}" x="{LEFT - 10}" y="{y + 17}" text-anchor="end">{html.escape(label)}</text>')
        end = across(ratio)
        out.append(f'<rect class="{kind}" x="{LEFT}" y="{y + 5}" width="{max(1, end - LEFT):.1f}" height="{ROW - 10}"/>')
        if target:
            x = across(target)
            out.append(f'<line class="mark" stroke-width="2" x1="{x:.1f}" x2="{x:.1f}" y1="{y + 2}" y2="{y + ROW - 2}"/>')
            end = x if 0 < x - end < 60 else end  # the number would lie on the mark
        out.append(f'<text class="{text} small" x="{end + 6:.1f}" y="{y + 17}">{ratio:.3g}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"
