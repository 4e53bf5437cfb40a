"""Tar shards of some classes of other tar shards.

    python tests/python/split_classes.py DATA OUT --classes bird,cat,deer,dog,frog,horse

Images keep their bytes; labels count from 0 in the order of --classes. What `--classes` leaves out makes the
other half. Needs nothing but Python.
"""

import argparse
import json
import pathlib
import tarfile
from io import BytesIO


def copy(source, out, labels):
    """Copies the samples whose label is among `labels`; returns how many."""
    count = 0
    with tarfile.open(source) as shard, tarfile.open(out, "w") as half:
        held = {}
        for entry in shard:
            stem, suffix = entry.name.split(".", 1)
            held.setdefault(stem, {})[suffix] = shard.extractfile(entry).read()
            if "cls" not in held[stem] or len(held[stem]) < 2:
                continue
            files = held.pop(stem)
            label = int(files["cls"])
            if label not in labels:
                continue
            files["cls"] = str(labels[label]).encode()
            for suffix, data in files.items():
                info = tarfile.TarInfo(f"{stem}.{suffix}")
                info.size = len(data)
                half.addfile(info, BytesIO(data))
            count += 1
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--classes", required=True)
    arguments = parser.parse_args()
    about = json.loads((arguments.data / "_info.json").read_text())
    names = arguments.classes.split(",")
    labels = {about["class_names"].index(name): label for label, name in enumerate(names)}
    arguments.out.mkdir(parents=True)
    for split in about["splits"].values():
        lengths = [copy(arguments.data / name, arguments.out / name, labels) for name in split["filenames"]]
        split.update(shard_lengths=lengths, num_samples=sum(lengths))
        print(split["name"], sum(lengths), "images")
    (arguments.out / "_info.json").write_text(json.dumps({**about, "class_names": names}, indent=1) + "\n")


if __name__ == "__main__":
    main()
