"""Draws break-even.svg from rows.json of each directory below: python3 recipes/results/break_even.py"""

import json
import math
import pathlib
import statistics

HERE = pathlib.Path(__file__).parent
BLUE, GREEN, RED = "#0072B2", "#009E73", "#D55E00"
FIGURES = {  # the data set of the rows, the title, the axis in %, and the width of a panel
    "bench-cifar10-break-even": ("", "16 minutes of one core for k sizes, CIFAR-10", range(40, 81, 10), 124),
    "bench-tiny-imagenet": ("tiny-imagenet", "7 minutes of one core for k sizes, Tiny ImageNet", range(0, 31, 10), 184),
}


def label(x, y, words, size=12, anchor="start"):
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}">{words}</text>'


def line(x1, x2, y, colour, width=2):
    return f'<path d="M{x1:.1f} {y:.1f}H{x2:.1f}" stroke="{colour}" stroke-width="{width}"/>'


def draw(directory, dataset, title, axis, width):
    """Accuracy over the number of sizes, a panel for each size of which some were trained alone."""
    accuracies = {}
    for row in json.loads((directory / "rows.json").read_text()):
        if row["dataset"] == dataset:
            size = row["depth"], row["width"]
            accuracies.setdefault((row["method"], size), []).append(100 * row["start_top1"])
    means = {key: statistics.fmean(of) for key, of in accuracies.items()}
    alone = {(int(method[6:]), size): mean for (method, size), mean in means.items() if method.startswith("alone-")}
    out = [
        '<svg width="760" height="290" viewBox="0 0 760 290" xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" fill="#222222">',
        '<rect width="760" height="290" fill="#FFFFFF"/>',
        label(16, 24, f"{title}: top-1 in % without further training", 16),
    ]
    for i, size in enumerate(sorted({size for _, size in alone})):
        ks = sorted(k for k, of in alone if of == size)
        x = lambda k: 52 + (width + 56) * i + width * math.log(k) / math.log(10)
        y = lambda a: 210 - 140 * (a - axis[0]) / (axis[-1] - axis[0])
        out.append(label(x(1), 54, f"{size[0]} x {size[1]}", 14))
        for a in axis:
            out += [line(x(1), x(10), y(a), "#E0E0E0", 1), label(x(1) - 12, y(a) + 4, a, 11, "end")]
        out += [label(x(k), 228, k, 11, "middle") for k in ks]
        for method, colour in (("nested", GREEN), ("templates", BLUE)):
            out.append(line(x(1), x(10), y(means[method, size]), colour))
        curve = " ".join(f"{x(k):.1f},{y(alone[k, size]):.1f}" for k in ks)
        out.append(f'<polyline points="{curve}" fill="none" stroke="{RED}" stroke-width="2"/>')
        out += [f'<circle cx="{x(k):.1f}" cy="{y(alone[k, size]):.1f}" r="4" fill="{RED}"/>' for k in ks]
    out.append(label(380, 246, "k, the number of sizes", 12, "middle"))
    for start, colour, words in (
        (30, BLUE, "templates, once for all sizes"),
        (244, GREEN, "slices of one elastic network"),
        (458, RED, "each size alone, a k-th of the time"),
    ):
        out += [line(start, start + 24, 270, colour), label(start + 30, 274, words, 11)]
    out.append("</svg>")
    (directory / "break-even.svg").write_text("\n".join(out) + "\n")


for name, figure in FIGURES.items():
    draw(HERE / name, *figure)
