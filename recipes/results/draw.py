"""Draws break-even.svg of four benches and sizes.svg of one, from their rows, speed.svg, from performance.md, and papers.svg, and
prints the table of papers: python3 recipes/results/draw.py"""

import json
import math
import pathlib
import re
import statistics

HERE = pathlib.Path(__file__).parent
VERDICTS = {  # and their colours
    "reproduced": "#0072B2",
    "partly": "#56B4E9",
    "not reproduced": "#D55E00",
    "not tried": "#BBBBBB",
    "not applicable here": "#E4E4E4",
}
PROCESSORS = {"Beside PyTorch": "Zen 5", "Zen 2": "Zen 2", "Intel with AMX": "Intel, AMX", "AVX2 on Zen 5": "Zen 5, AVX2 alone"}
BLUE, GREEN, RED = "#0072B2", "#009E73", "#D55E00"
ALONE = {  # the colour and the legend of the methods METHOD-k
    "alone": (RED, "each size alone, 1/k of the time"),
    "labels": ("#CC79A7", "alone, from labels"),
}
BREAK_EVEN = {  # the data set of the rows, the title, the axis in %, and the width of a panel
    "bench-photographs": ("", "16 minutes of one core for k sizes, photographs", range(20, 81, 20), 184),
    "bench-cifar10-break-even": ("", "16 minutes of one core for k sizes, CIFAR-10", range(40, 91, 10), 124),
    "bench-tiny-imagenet": ("tiny-imagenet", "7 minutes of one core for k sizes, Tiny ImageNet", range(0, 31, 10), 184),
    "bench-tiny-imagenet-half-hour": ("", "30 minutes of one core for k sizes, Tiny ImageNet", range(0, 31, 10), 124),
}
SIZES = {  # the colour and the legend of the methods
    "templates-120": (BLUE, "templates, 120 minutes"),
    "templates": ("#56B4E9", "templates, 30 minutes"),
    "nested": (GREEN, "slices, 30 minutes"),
    "alone-5": (RED, "each size alone, a fifth of 30"),
}


def text(x, y, words, size=12, anchor="start"):
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}">{words}</text>'


def bar(x, y, width, height, colour):
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" fill="{colour}"/>'


def line(x1, x2, y, colour, width=2):
    return f'<path d="M{x1:.1f} {y:.1f}H{x2:.1f}" stroke="{colour}" stroke-width="{width}"/>'


def curve(points, colour, radius):
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>']
    return parts + [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"/>' for x, y in points]


def write(name, height, title, parts):
    head = (
        f'<svg width="760" height="{height}" viewBox="0 0 760 {height}" xmlns="http://www.w3.org/2000/svg" '
        f'font-family="sans-serif" fill="#222222">'
    )
    white = f'<rect width="760" height="{height}" fill="#FFFFFF"/>'
    (HERE / name).write_text("\n".join([head, white, text(16, 24, title, 16), *parts, "</svg>"]) + "\n")


def break_even(directory, dataset, title, axis, width):
    """Accuracy over the number of sizes, a panel for each size of which some were trained alone."""
    accuracies = {}
    for row in json.loads((HERE / directory / "rows.json").read_text()):
        if row["dataset"] == dataset:
            size = row["depth"], row["width"]
            accuracies.setdefault((row["method"], size), []).append(100 * row["start_top1"])
    means = {key: statistics.fmean(of) for key, of in accuracies.items()}
    alone = {kind: {} for kind in ALONE}
    for (method, size), mean in means.items():
        kind, _, k = method.partition("-")
        if kind in ALONE:
            alone[kind].setdefault(size, {})[int(k)] = mean
    out = []
    for i, (size, at) in enumerate(sorted(alone["alone"].items())):
        x = lambda k: 52 + (width + 56) * i + width * math.log10(k)
        y = lambda a: 210 - 140 * (a - axis[0]) / (axis[-1] - axis[0])
        out.append(text(x(1), 54, f"{size[0]} x {size[1]}", 14))
        for a in axis:
            out += [line(x(1), x(10), y(a), "#E0E0E0", 1), text(x(1) - 12, y(a) + 4, a, 11, "end")]
        out += [text(x(k), 228, k, 11, "middle") for k in sorted(at)]
        for method, colour in (("nested", GREEN), ("templates", BLUE)):
            out.append(line(x(1), x(10), y(means[method, size]), colour))
        for kind, (colour, _) in ALONE.items():
            if size not in alone[kind]:
                continue
            out += curve([(x(k), y(mean)) for k, mean in sorted(alone[kind][size].items())], colour, 4)
    out.append(text(380, 246, "k, the number of sizes", 12, "middle"))
    legend = [(BLUE, "templates, once for all sizes"), (GREEN, "slices of one network")]
    legend += [ALONE[kind] for kind in ALONE if alone[kind]]
    for start, (colour, words) in zip((30, 230, 392, 610), legend):
        out += [line(start, start + 24, 270, colour), text(start + 30, 274, words, 11)]
    write(f"{directory}/break-even.svg", 290, f"{title}: top-1 in % without further training", out)


def sizes(directory, axis, tokens=65, classes=200):
    """Accuracy over parameters and over multiply-adds, of ViTs of 64 patches of 4 x 4 x 3 pixels and a class token."""
    accuracies = {}
    for row in json.loads((HERE / directory / "rows.json").read_text()):
        if row["method"] in SIZES:
            accuracies.setdefault((row["method"], row["depth"], row["width"]), []).append(100 * row["start_top1"])
    outside = lambda w: w * (48 + 1 + 1 + tokens + 2 + classes) + classes
    parameters = lambda d, w: d * (12 * w * w + 13 * w) + outside(w)
    work = lambda d, w: d * tokens * (12 * w * w + 2 * tokens * w) + w * (48 * (tokens - 1) + classes)
    panels = [("million parameters", parameters, (0.1, 0.3, 1, 3)), ("million multiply-adds", work, (10, 30, 100, 300))]
    out = []
    for i, (label, of, ticks) in enumerate(panels):
        least, most = 0.7 * ticks[0], 2 * ticks[-1]
        x = lambda n: 60 + 370 * i + 300 * math.log(n / least) / math.log(most / least)
        y = lambda a: 230 - 180 * (a - axis[0]) / (axis[-1] - axis[0])
        for a in axis:
            out += [line(x(least), x(most), y(a), "#E0E0E0", 1), text(48 + 370 * i, y(a) + 4, a, 11, "end")]
        out += [text(x(tick), 248, tick, 11, "middle") for tick in ticks]
        out.append(text(210 + 370 * i, 266, label, 12, "middle"))
        for method, (colour, _) in SIZES.items():
            points = [(x(of(d, w) / 1e6), y(statistics.fmean(a))) for (m, d, w), a in accuracies.items() if m == method]
            out += curve(sorted(points), colour, 3)
    for start, (colour, words) in zip((30, 210, 380, 530), SIZES.values()):
        out += [line(start, start + 20, 290, colour), text(start + 26, 294, words, 11)]
    write(f"{directory}/sizes.svg", 310, "Tiny ImageNet: top-1 in % by size, without further training", out)


def speed():
    """Ratios of a training step of DeiT-S, shape C; the first of each section and precision, against eager PyTorch."""
    ratios, section = {}, None
    for line in (HERE / "performance.md").read_text().splitlines():
        if line.startswith("#"):
            section = next((p for words, p in PROCESSORS.items() if words in line), None)
        row = re.match(r"\| C \| train \| (f32|bf16) \|.*\(eager\) \| ([\d.]+)", line)
        if row and section:
            ratios.setdefault((section, row[1]), float(row[2]))
    x = lambda ratio: 200 + 220 * ratio
    parts, y = [], 44
    for (processor, precision), ratio in sorted(ratios.items(), key=lambda item: -item[1]):
        parts += [text(190, y + 14, f"{processor}, {precision}", anchor="end"), bar(x(0), y, x(ratio) - x(0), 18, "#0072B2")]
        parts.append(text(x(ratio) + 6, y + 14, f"{ratio:.2f}"))
        y += 26
    parts.append(f'<line x1="{x(1)}" x2="{x(1)}" y1="38" y2="{y}" stroke="#222222" stroke-dasharray="4 3"/>')
    parts.append(text(x(1), y + 16, "PyTorch", anchor="middle"))
    write("speed.svg", y + 26, "A training step of DeiT-S: times as fast as PyTorch, two cores", parts)


def papers():
    counts, paper = {}, None
    for line in (HERE / "../papers/README.md").read_text().splitlines():
        if line.startswith("## "):
            paper = line[3:].partition(" (")[0]
        elif re.match(r"\| \d", line):
            verdict = line.strip("| ").split(" | ")[4]
            of = max((v for v in VERDICTS if verdict.startswith(v)), key=len)
            counts.setdefault(paper, dict.fromkeys(VERDICTS, 0))[of] += 1
    parts, y = [], 44
    for paper, of in counts.items():
        print(f"| {paper} | {' | '.join(map(str, of.values()))} |")
        parts.append(text(232, y + 14, paper, anchor="end"))
        x = 240
        for verdict, count in of.items():
            parts.append(bar(x, y, 18 * count, 18, VERDICTS[verdict]))
            x += 18 * count
        y += 26
    x = 60
    for verdict, colour in VERDICTS.items():
        parts += [bar(x, y + 8, 12, 12, colour), text(x + 18, y + 18, verdict)]
        x += 40 + 7.2 * len(verdict)
    write("papers.svg", y + 32, "Claims, tables and rivals of the papers by verdict", parts)


for name, figure in BREAK_EVEN.items():
    break_even(name, *figure)
sizes("bench-tiny-imagenet-half-hour", range(0, 31, 10))
speed()
papers()
