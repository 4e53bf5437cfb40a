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

def label(x, y, words, size=12, anchor="start"):
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}">{words}</text>'


def line(x1, x2, y, colour, width=2, dashes=""):
    return f'<path d="M{x1:.1f} {y:.1f}H{x2:.1f}" stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dashes}"/>'


BLUE, GREEN, RED = "#0072B2", "#009E73", "#D55E00"
out = [
    '<svg width="760" height="290" viewBox="0 0 760 290" xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" fill="#222222">',
    '<rect width="760" height="290" fill="#FFFFFF"/>',
    label(16, 24, "71 minutes for k sizes, CIFAR-10: top-1 in % without further training", 16),
]
most = TOTAL / SHORT
for i, size in enumerate(TEMPLATES):
    name = f"{size[0]} x {size[1]}"
    t, n, low, high = (p["top1"] for p in points if p["size"] == name)
    x = lambda k: 52 + 180 * i + 124 * (k - 1) / (most - 1)
    y = lambda a: 210 - 140 * (a - 74) / 14
    alone = lambda k: high + (low - high) * math.log(k) / math.log(most)
    cross = most ** ((high - t) / (high - low))
    level = f"{cross:.1f}" if cross <= most else "not within 4.7"  # no extrapolation
    print(f"| {name} | {t:.1f} | {n:.1f} | {high:.1f} | {alone(2):.1f} | {alone(3):.1f} | {alone(4):.1f} | {level} |")
    out.append(label(x(1), 54, name, 14))
    for a in (74, 78, 82, 86):
        out += [line(x(1), x(most), y(a), "#E0E0E0", 1), label(x(1) - 12, y(a) + 4, a, 11, "end")]
    out += [label(x(k), 228, k, 11, "middle") for k in (1, 2, 3, 4)]
    out += [line(x(1), x(most), y(n), GREEN), line(x(1), x(most), y(t), BLUE)]
    curve = " ".join(f"{x(k):.1f},{y(alone(k)):.1f}" for k in (1 + j * (most - 1) / 40 for j in range(41)))
    out.append(f'<polyline points="{curve}" fill="none" stroke="{RED}" stroke-width="2" stroke-dasharray="5 3"/>')
    out += [f'<circle cx="{x(k):.1f}" cy="{y(a):.1f}" r="4" fill="{RED}"/>' for k, a in ((1, high), (most, low))]
out.append(label(380, 246, "k, the number of sizes", 12, "middle"))
for start, colour, dashes, words in (
    (30, BLUE, "", "templates, once for all sizes"),
    (244, GREEN, "", "slices, once for all sizes"),
    (438, RED, "5 3", "each size alone, 71/k minutes (dots: measured)"),
):
    out += [line(start, start + 24, 270, colour, 2, dashes), label(start + 30, 274, words, 11)]
out.append("</svg>")
(HERE / "break-even.svg").write_text("\n".join(out) + "\n")
