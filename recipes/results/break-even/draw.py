"""Writes rows.json, break-even.svg and prints the table: python3 recipes/results/break-even/draw.py"""

import json
import math
import pathlib
import statistics

HERE = pathlib.Path(__file__).parent
TOTAL, SHORT = 71, 15  # minutes
# No rows were kept of these: sizes/README.md and bench-cifar10-hour/README.md.
TEMPLATES = {(2, 64): 74.7, (4, 96): 83.2, (8, 128): 82.9, (12, 128): 82.3}
WITHOUT_ROWS = {("alone", 12, 128): 85.8}


def mean(files, method, size):
    rows = [r for f in files for r in json.loads((HERE.parent / f).read_text())]
    of = [r["start_top1"] for r in rows if (r["method"], r["depth"], r["width"]) == (method, *size)]
    return 100 * statistics.fmean(of) if of else None


muon = ["bench-cifar10-muon/rows.json", "bench-cifar10-muon/rows-seeds-1-2.json"]
hour = ["bench-cifar10-hour/rows.json"]
points = []
for size in TEMPLATES:
    name = f"{size[0]} x {size[1]}"
    add = lambda *of: points.append(dict(zip(("size", "method", "minutes", "top1", "source"), (name, *of))))
    add("templates", TOTAL, TEMPLATES[size], "sizes/README.md, no rows kept")
    add("nested", TOTAL, round(mean(hour, "nested", size), 2), hour[0])
    add("alone", SHORT, round(mean(muon, "alone", size), 2), " + ".join(muon))
    value = mean(hour, "alone", size)
    source = hour[0] if value else "bench-cifar10-hour/README.md, no rows kept"
    add("alone", TOTAL, round(value or WITHOUT_ROWS["alone", *size], 2), source)
(HERE / "rows.json").write_text(json.dumps(points, indent=1) + "\n")

out = ['<svg width="760" height="250" viewBox="0 0 760 250" xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" fill="#222222">',
       '<rect width="760" height="250" fill="#FFFFFF"/>',
       '<text x="16" y="24" font-size="16">71 minutes for k sizes, CIFAR-10: top-1 without further training</text>']
most = TOTAL / SHORT
for i, size in enumerate(TEMPLATES):
    name = f"{size[0]} x {size[1]}"
    t, n, low, high = (p["top1"] for p in points if p["size"] == name)
    x = lambda k: 50 + 180 * i + 130 * (k - 1) / (most - 1)
    y = lambda a: 200 - 140 * (a - 74) / 14
    alone = lambda k: high + (low - high) * math.log(k) / math.log(most)
    cross = most ** ((high - t) / (high - low))
    level = f"{cross:.1f}" if cross <= most else "not within 4.7"  # no extrapolation
    print(f"| {name} | {t:.1f} | {n:.1f} | {high:.1f} | {alone(2):.1f} | {alone(3):.1f} | {alone(4):.1f} | {level} |")
    out.append(f'<text x="{x(1)}" y="50" font-size="14">{name}</text>')
    for a in (74, 78, 82, 86):
        out.append(f'<line x1="{x(1)}" x2="{x(most)}" y1="{y(a)}" y2="{y(a)}" stroke="#E0E0E0"/>')
        out.append(f'<text x="{x(1) - 6}" y="{y(a) + 4}" font-size="11" text-anchor="end">{a}</text>')
    for k in (1, 2, 3, 4):
        out.append(f'<text x="{x(k):.0f}" y="218" font-size="11" text-anchor="middle">{k}</text>')
    for a, colour in ((t, "#0072B2"), (n, "#009E73")):
        out.append(f'<line x1="{x(1)}" x2="{x(most)}" y1="{y(a):.1f}" y2="{y(a):.1f}" stroke="{colour}" stroke-width="2"/>')
    line = " ".join(f"{x(1 + j * (most - 1) / 40):.1f},{y(alone(1 + j * (most - 1) / 40)):.1f}" for j in range(41))
    out.append(f'<polyline points="{line}" fill="none" stroke="#D55E00" stroke-width="2" stroke-dasharray="5 3"/>')
    out += [f'<circle cx="{x(k):.1f}" cy="{y(a):.1f}" r="4" fill="#D55E00"/>' for k, a in ((1, high), (most, low))]
for x0, colour, word in ((50, "#0072B2", "templates, once"), (190, "#009E73", "slices, once"), (310, "#D55E00", "each size alone for 71/k minutes (dots measured)")):
    out.append(f'<text x="{x0}" y="240" font-size="12" fill="{colour}">{word}</text>')
out.append('<text x="640" y="240" font-size="12">across: k sizes</text></svg>')
(HERE / "break-even.svg").write_text("\n".join(out) + "\n")
