"""Recomputes from the rows of recipes/results the numbers that Markdown files give.

    python3 tests/python/check_numbers.py [--list]

numbers.txt, beside this file, says which number is of which rows. Named are the file, the cell and the text that
disagree; then the exit code is 1. `--list` prints means with deviations that no line of numbers.txt covers.
"""

import argparse
import json
import pathlib
import re
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAPPING = pathlib.Path(__file__).with_name("numbers.txt")
NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?"
CELL = rf"{NUMBER}(?: ± {NUMBER})?(?: \( ?{NUMBER}(?: ± {NUMBER})?\))?"
PARTS = re.compile(rf"({NUMBER})(?: ± ({NUMBER}))?(?: \( ?({NUMBER})(?: ± ({NUMBER}))?\))?")


class Stale(Exception):
    """A line of numbers.txt that is wrong itself."""


def plain(text):
    """Text without what Markdown and footnotes add, on one line; rows of tables begin and end with a bar."""
    return re.sub(r"\s+", " ", re.sub(r"\]\([^)]*\)|[\[\]*`†‡§]", "", text))


def read_rows(names):
    rows = []
    for name in names:
        path = ROOT / "recipes/results" / name
        if path.suffix != ".json":
            path = path / "rows.json"
        rows += json.loads(path.read_text(encoding="utf-8"))
    return rows


def matches(row, term):
    size = re.fullmatch(r"(\d+)x(\d+)", term)
    if size:
        return (row.get("depth"), row.get("width")) == (int(size[1]), int(size[2]))
    key, equals, value = term.partition("=")
    if equals:
        found = row.get(key)
        if isinstance(found, bool) or found is None:
            return str(found).lower() == value.lower()
        if isinstance(found, (int, float)):
            return abs(found - float(value)) < 1e-9
        return str(found) == value
    key, tilde, value = term.partition("~")
    if tilde:
        return value.replace("_", " ") in str(row.get(key))
    return term in (row.get("method"), row.get("start"))


def field(row, path):
    value = row
    for key in path.split("."):
        value = value[int(key)] if isinstance(value, list) else value[key]
    share = re.search("top1|exact|curve", path) and value <= 1
    return value * (100 if share else 1)


def values_of(selector, sources):
    """The values that a selector names, and those in parentheses: before the training, if it names no others."""
    source, _, terms = selector.partition(":")
    if source not in sources:
        raise Stale(f"rows {source!r} are not named by a line `rows`")
    path, other, chosen = "top1", "start_top1", sources[source]
    less = None
    for term in terms.split():
        if term.startswith("."):
            path = term[1:]
        elif term.startswith("("):
            other = term[1:]
        elif term.startswith("-"):
            less = term[1:]  # paired by seed
        else:
            chosen = [row for row in chosen if matches(row, term)]
    if less is None:
        within = [field(row, other) for row in chosen if other.partition(".")[0] in row]
        return [field(row, path) for row in chosen], within
    others = [term for term in terms.split() if not term.startswith((".", "-"))][1:]
    of = {
        row["seed"]: field(row, path)
        for row in sources[source]
        if all(matches(row, term) for term in [less, *others])
    }
    return [field(row, path) - of[row["seed"]] for row in chosen if row["seed"] in of], []


def agrees(shown, exact):
    """True if `shown` is `exact` rounded; of a tie both neighbours are right."""
    digits = len(shown.partition(".")[2])
    return abs(float(shown.replace(",", "")) - exact) <= 0.5 * 10**-digits + 1e-9


def faults(shown, selector, sources):
    """What is wrong with a cell."""
    values, before = values_of(selector, sources)
    if not values:
        return [f"no rows for {selector}"]
    found = []
    pairs = zip(PARTS.fullmatch(shown).groups(), (0, 1, 0, 1), (values, values, before, before))
    for number, deviation, of in pairs:
        if number is None:
            continue
        if len(of) < 1 + deviation:
            found.append(f"{number}: {len(of)} rows for {selector}")
            continue
        exact = statistics.stdev(of) if deviation else statistics.fmean(of)
        if not agrees(number, exact):
            what = "deviation" if deviation else "mean"
            found.append(f"{number}: rows have {what} {exact:.4f} ({selector}, {len(of)} rows)")
    return found


def check_line(line, text, sources):
    """Faults of the place where a line of numbers.txt is found, or of the best of several, and the place."""
    pieces = re.split(r"\{([^}]*)\}", line)
    optional = line.startswith("|")  # cells may be empty
    pattern = "".join(
        re.escape(piece) if i % 2 == 0 else f"({CELL})" + "?" * optional
        for i, piece in enumerate(pieces)
    )
    if optional:
        pattern = re.sub(r"(?:\\ )+", " *", pattern)
    places = list(re.finditer(f"(?=({pattern}))", text))  # they may overlap
    if not places:
        raise Stale(f"not found: {line}")
    best, most = None, None
    for place in places:
        cells = [
            (shown, selector)
            for shown, selector in zip(place.groups()[1:], pieces[1::2])
            if shown and selector != "?"
        ]
        wrong = [fault for cell in cells for fault in faults(*cell, sources)]
        if best is None or len(cells) - len(wrong) > most:
            best = [f"{place[1].strip()}: {fault}" for fault in wrong], place.span(1)
            most = len(cells) - len(wrong)
    return best


def check_tables(line, original, sources):
    """Cells of all tables with columns `L x W`: `means SOURCE: word=method, ...`, or `table` for those with deviations."""
    kind, _, line = line.partition(" ")
    source, _, names = line.partition(":")
    methods = dict(name.strip().split("=") for name in names.split(","))
    found, compared, columns = [], [], []
    for row in original.splitlines():
        if not row.startswith("|"):
            columns = []
            continue
        cells = [plain(cell).strip() for cell in row.strip().strip("|").split("|")]
        sizes = [re.fullmatch(r"(\d+) x (\d+)", cell) for cell in cells]
        if any(sizes):
            known = {(row.get("depth"), row.get("width")) for row in sources[source]}
            of_source = all((int(s[1]), int(s[2])) in known for s in sizes if s)
            columns = sizes if of_source else []  # else the table is of another bench
            continue
        method = next((m for word, m in methods.items() if cells[0].lower().startswith(word)), None)
        if method is None or not columns:
            continue
        for cell, size in zip(cells, columns):
            shown = PARTS.match(cell)
            if size and shown and (kind == "means" or "±" in shown[0]):
                name, _, without = method.partition("!")
                at = f"{size[1]}x{size[2]}"
                compared.append(shown[0])
                if at in without.split("!"):
                    continue
                selector = f"{source}:{name} {at}"
                found += [f"{cells[0]}, {at}: {fault}" for fault in faults(shown[0], selector, sources)]
    return found, compared


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print what no line covers")
    show = parser.parse_args().list
    sources, wrong, count = {}, [], 0
    path = original = text = None
    covered = {}
    for number, line in enumerate(MAPPING.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            if line.startswith("rows "):
                name, *names = line.split()[1:]
                sources[name] = read_rows(names)
            elif line.startswith("file "):
                path = line.removeprefix("file ")
                original = (ROOT / path).read_text(encoding="utf-8")
                comments = path.endswith(".toml")
                text = plain(re.sub("^# ?", "", original, flags=re.M) if comments else original)
                covered.setdefault(path, (text, [], set()))
            elif line.startswith(("table ", "means ")):
                found, cells = check_tables(line, original, sources)
                count += len(cells)
                covered[path][2].update(cells)
                wrong += [f"{path}: {fault}" for fault in found]
            else:
                found, span = check_line(line, text, sources)
                covered[path][1].append(span)
                count += line.count("{") - line.count("{?}")
                wrong += [f"{path}: {fault}" for fault in found]
        except (Stale, KeyError, IndexError, ValueError, OSError) as error:
            wrong.append(f"{MAPPING.name}, line {number}: {path}: {error}")
    for path, (text, spans, cells) in covered.items() if show else ():
        for place in re.finditer(rf"{NUMBER} ± [^|,;]*", text):
            within = any(start <= place.start() < end for start, end in spans)
            if not within and place[0].strip() not in cells:
                around = text[max(0, place.start() - 60) : place.end() + 5]
                print(f"not covered: {path}: ...{around}")
    for fault in wrong:
        print(fault, file=sys.stderr)
    print(f"{count} numbers compared with their rows, {len(wrong)} faults")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
