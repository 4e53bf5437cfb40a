"""Writes speed.svg, from performance.md, and papers.svg, and prints the table of papers: python3 recipes/results/draw.py"""

import pathlib
import re

HERE = pathlib.Path(__file__).parent
VERDICTS = {  # and their colours
    "reproduced": "#0072B2",
    "partly": "#56B4E9",
    "not reproduced": "#D55E00",
    "not tried": "#BBBBBB",
    "not applicable here": "#E4E4E4",
}
PROCESSORS = {"Beside PyTorch": "Zen 5", "Zen 2": "Zen 2", "Intel with AMX": "Intel, AMX", "AVX2 on Zen 5": "Zen 5, AVX2 alone"}


def text(x, y, words, size=12, anchor="start"):
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}">{words}</text>'


def bar(x, y, width, height, colour):
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" fill="{colour}"/>'


def write(name, height, title, parts):
    head = (
        f'<svg width="760" height="{height}" viewBox="0 0 760 {height}" xmlns="http://www.w3.org/2000/svg" '
        f'font-family="sans-serif" fill="#222222">'
    )
    white = f'<rect width="760" height="{height}" fill="#FFFFFF"/>'
    (HERE / name).write_text("\n".join([head, white, text(16, 24, title, 16), *parts, "</svg>"]) + "\n")


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


speed()
papers()
