"""One adaptation for all sizes beside fine-tuning each size, on few labelled images.

    python tests/python/measure_adaptation.py --wave target/release/wave --out rows.json > adaptation.md

For each task and seed, with the same training images: `wave adapt` once as a delta and once as whole
templates, and then models of all sizes without data; and for each size a model from the templates, all of
whose weights (or, as a linear probe, whose head alone) are fine-tuned. Also slices of one fine-tuned network
of the largest size. Prints a table in Markdown for each task; rows go to --out as they are measured, and those
already there are not measured again. Needs the data, and nothing but Python; matplotlib for --plot.
"""

import argparse
import json
import pathlib
import resource
import statistics
import subprocess
import tempfile

SIZES = [(2, 64), (4, 64), (12, 64), (7, 96), (4, 128), (12, 128)]
FROZEN = "blocks.,patch_embed,pos_embed,norm"


def processor_seconds():
    """Seconds of processors that finished commands took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Task:
    """Runs of one task and seed."""

    def __init__(self, arguments, data, seed, room):
        self.program = str(pathlib.Path(arguments.wave).resolve())
        self.templates = str(pathlib.Path(arguments.templates).resolve())
        self.room = pathlib.Path(room)
        self.threads = ["--threads", arguments.threads]
        self.tests = ["--data", data, "--test-limit", arguments.test_limit]
        self.training = [
            *self.tests, "--train-limit", arguments.train_limit, "--seed", seed, "--crop-padding", 2,
            "--flip", "true", "--test-epochs", 1000,
        ]  # fmt: skip
        self.tuning = [*self.training, "--epochs", arguments.epochs, "--weight-decay", 0.05]
        self.tuning += ["--lr", arguments.lr]

    def wave(self, *words):
        command = [self.program, *map(str, words), *map(str, self.threads), "--json"]
        began = processor_seconds()
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: {done.stderr}")
        return json.loads(done.stdout), processor_seconds() - began

    def expand(self, templates, depth, width, *more):
        out = self.room / "model"
        size = ["--depth", depth, "--width", width]
        self.wave("expand", templates, *size, *more, "--out", out, "--overwrite")
        return out

    def top1(self, model):
        return self.wave("eval", model, *self.tests)[0]["top1"]

    def adapted(self, *flags):
        """Accuracy of each size after one adaptation, and its time."""
        out = self.room / "adapted"
        _, seconds = self.wave("adapt", self.templates, *self.training, *flags, "--out", out, "--overwrite")
        whole = (out / "templates.safetensors").exists()
        made = [out] if whole else [self.templates, "--delta", out]
        for depth, width in SIZES:
            model = self.expand(made[0], depth, width, *made[1:])
            yield depth, width, self.top1(model), seconds / len(SIZES)

    def tuned(self, *flags):
        """Accuracy of each size after its own fine-tuning, and its time."""
        out = self.room / "tuned"
        for depth, width in SIZES:
            model = self.expand(self.templates, depth, width)
            tune = ["finetune", model, *self.tuning, "--new-head", "true", *flags]
            result, seconds = self.wave(*tune, "--out", out, "--overwrite")
            yield depth, width, result["top1"], seconds

    def slices(self):
        """Accuracy of slices of one network of the largest size."""
        out, slice_ = self.room / "nested", self.room / "slice"
        widths = sorted({width for _, width in SIZES})
        depths = sorted(depth for depth, _ in SIZES)
        model = self.expand(self.templates, depths[-1], widths[-1])
        tune = [
            "finetune", model, *self.tuning, "--new-head", "true", "--depths", f"{depths[0]},{depths[-1]}",
            "--widths", ",".join(map(str, widths)), "--sizes-per-step", 2, "--out", out, "--overwrite",
        ]  # fmt: skip
        _, seconds = self.wave(*tune)
        for depth, width in SIZES:
            size = ["--depth", depth, "--width", width]
            self.wave("init", "nested", "--from", out, *size, "--out", slice_, "--overwrite")
            yield depth, width, self.top1(slice_), seconds / len(SIZES)


METHODS = {
    "adapted, delta": lambda task: task.adapted(),
    "adapted, whole": lambda task: task.adapted("--whole", "true"),
    "fine-tuned each": lambda task: task.tuned(),
    "linear probe each": lambda task: task.tuned("--freeze", FROZEN),
    "slices of one": lambda task: task.slices(),
}


def table(rows, data):
    """Mean and standard deviation over the seeds, a row for each size."""
    print(f"\n### {data}\n\n| method | {' | '.join(f'{d} x {w}' for d, w in SIZES)} | processor seconds, all sizes |")
    print(f"|---|{'---|' * len(SIZES)}---|")
    for method in METHODS:
        found = [row for row in rows if row["data"] == data and row["method"] == method]
        if not found:
            continue
        cells = []
        for size in SIZES:
            values = [100 * row["top1"] for row in found if (row["depth"], row["width"]) == size]
            deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.1f}{deviation}")
        seconds = sum(row["seconds"] for row in found) / len({row["seed"] for row in found})
        print(f"| {method} | {' | '.join(cells)} | {seconds:.0f} |", flush=True)


def plot(rows, tasks, file):
    """Accuracy over the sizes, a picture for each task."""
    import matplotlib.pyplot as plt

    plt.rcParams["svg.fonttype"] = "none"
    figure, axes = plt.subplots(1, len(tasks), figsize=(4.5 * len(tasks), 3.6), squeeze=False)
    for axis, task in zip(axes[0], tasks):
        for method in METHODS:
            means = []
            for size in SIZES:
                found = [row["top1"] for row in rows if (row["data"], row["method"]) == (task, method)
                         and (row["depth"], row["width"]) == size]  # fmt: skip
                means.append(100 * statistics.mean(found) if found else float("nan"))
            axis.plot([f"{depth} x {width}" for depth, width in SIZES], means, "o-", label=method)
        axis.set_title(pathlib.Path(task).name)
        axis.tick_params(axis="x", rotation=30)
    axes[0][0].set_ylabel("top-1 in %")
    axes[0][-1].legend()
    figure.tight_layout()
    figure.savefig(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--wave", default="target/release/wave")
    parser.add_argument("--templates", default="templates/fashion-mnist")
    parser.add_argument("--tasks", default="shapes,rotated:fashion-mnist")
    parser.add_argument("--methods", default=",".join(map(str, range(len(METHODS)))), help="by number")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--train-limit", default=1000)
    parser.add_argument("--test-limit", default=2000)
    parser.add_argument("--epochs", default=60, help="of fine-tuning each")
    parser.add_argument("--lr", default=4e-3, help="of fine-tuning each")
    parser.add_argument("--threads", default=1)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--plot", type=pathlib.Path, help="a picture; needs matplotlib")
    arguments = parser.parse_args()
    rows = json.loads(arguments.out.read_text()) if arguments.out.exists() else []
    known = {(row["data"], row["seed"], row["method"]) for row in rows}
    methods = [list(METHODS)[int(i)] for i in arguments.methods.split(",")]
    tasks = arguments.tasks.split(",")
    for seed in arguments.seeds.split(","):
        for data in tasks:
            for method in methods:
                if (data, seed, method) in known:
                    continue
                with tempfile.TemporaryDirectory() as room:
                    task = Task(arguments, data, seed, room)
                    for depth, width, top1, seconds in METHODS[method](task):
                        row = {"data": data, "seed": seed, "method": method, "depth": depth}
                        rows.append({**row, "width": width, "top1": top1, "seconds": round(seconds, 1)})
                arguments.out.write_text(json.dumps(rows, indent=0) + "\n")
    for data in tasks:
        table(rows, data)
    if arguments.plot:
        plot(rows, tasks, arguments.plot)


if __name__ == "__main__":
    main()
