"""Draws break-even.svg from rows.json: python3 recipes/results/bench-cifar10-break-even/draw.py"""

import json
import math
import pathlib
import statistics

HERE = pathlib.Path(__file__).parent
SIZES = [(2, 64), (4, 96), (8, 128), (12, 128)]
BLUE, GREEN, RED = "#0072B2", "#009E73", "#D55E00"
LEAST, MOST = 40, 80  # %
rows = json.loads((HERE / "rows.json").read_text())


def mean(method, size):
    of = [r["start_top1"] for r in rows if (r["method"], r["depth"], r["width"]) == (method, *size)]
    return 100 * statistics.fmean(of)


def label(x, y, words, size=12, anchor="start"):
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}">{words}</text>'


def line(x1, x2, y, colour, width=2):
    return f'<path d="M{x1:.1f} {y:.1f}H{x2:.1f}" stroke="{colour}" stroke-width="{width}"/>'


out = [
    '<svg width="760" height="290" viewBox="0 0 760 290" xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" fill="#222222">',
    '<rect width="760" height="290" fill="#FFFFFF"/>',
    label(16, 24, "16 minutes of one core for k sizes, CIFAR-10: top-1 in % without further training", 16),
]
for i, size in enumerate(SIZES):
    x = lambda k: 52 + 180 * i + 124 * math.log(k) / math.log(10)
    y = lambda a: 210 - 140 * (a - LEAST) / (MOST - LEAST)
    out.append(label(x(1), 54, f"{size[0]} x {size[1]}", 14))
    for a in range(LEAST, MOST + 1, 10):
        out += [line(x(1), x(10), y(a), "#E0E0E0", 1), label(x(1) - 12, y(a) + 4, a, 11, "end")]
    out += [label(x(k), 228, k, 11, "middle") for k in (1, 2, 4, 10)]
    out += [line(x(1), x(10), y(mean("nested", size)), GREEN), line(x(1), x(10), y(mean("templates", size)), BLUE)]
    alone = [(k, mean(f"alone-{k}", size)) for k in (1, 2, 4, 10)]
    curve = " ".join(f"{x(k):.1f},{y(a):.1f}" for k, a in alone)
    out.append(f'<polyline points="{curve}" fill="none" stroke="{RED}" stroke-width="2"/>')
    out += [f'<circle cx="{x(k):.1f}" cy="{y(a):.1f}" r="4" fill="{RED}"/>' for k, a in alone]
out.append(label(380, 246, "k, the number of sizes", 12, "middle"))
for start, colour, words in (
    (30, BLUE, "templates, once for all sizes"),
    (244, GREEN, "slices of one elastic network"),
    (458, RED, "each size alone, a k-th of the time"),
):
    out += [line(start, start + 24, 270, colour), label(start + 30, 274, words, 11)]
out.append("</svg>")
(HERE / "break-even.svg").write_text("\n".join(out) + "\n")
