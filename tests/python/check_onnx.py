"""Check an ONNX file that wave exported with tools that share none of its code.

    pip install torch timm onnx onnxruntime numpy

    python tests/python/check_onnx.py MODEL_DIR [FILE.onnx]

FILE.onnx is MODEL_DIR/model.onnx unless given: what `--format onnx` writes, of any `--dtype`. It
has to pass ONNX's own checker, shape inference included, and an ONNX runtime has to give the logits
that timm gives for the weights of MODEL_DIR, within 1e-4 of the largest logit or of 1, on random
images, for batches of 1, 2 and 5.

Exit code: 0 all equal, 1 a difference or an unreadable file, 2 wrong usage. Written for
Python 3.10 or later, torch 2.x, timm 1.x, onnx 1.x and onnxruntime 1.x.
"""

import argparse
import sys

import numpy as np

TOLERANCE = 1e-4
BATCHES = (1, 2, 5)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", metavar="MODEL_DIR")
    parser.add_argument("file", metavar="FILE.onnx", nargs="?")
    arguments = parser.parse_args()
    arguments.file = arguments.file or f"{arguments.model}/model.onnx"

    import onnx
    import onnxruntime
    import timm
    import torch

    try:
        onnx.checker.check_model(arguments.file, full_check=True)
        session = onnxruntime.InferenceSession(arguments.file, providers=["CPUExecutionProvider"])
        model = timm.create_model(f"local-dir:{arguments.model}", pretrained=True).eval()
    except Exception as error:  # each library has exceptions of its own
        print(f"{arguments.file}, {arguments.model}: {error}", file=sys.stderr)
        return 1
    opset = onnx.load(arguments.file, load_external_data=False).opset_import[0].version
    shape = session.get_inputs()[0].shape
    print(f"operator set {opset}, input {shape}, output {session.get_outputs()[0].shape}")

    generator = torch.Generator().manual_seed(0)
    failed = False
    for batch in BATCHES:
        images = torch.randn(batch, *shape[1:], generator=generator)
        with torch.inference_mode():
            expected = model(images).numpy()
        (found,) = session.run(None, {session.get_inputs()[0].name: images.numpy()})
        if found.shape != expected.shape:
            print(f"batch {batch}: shape {found.shape}, expected {expected.shape}")
            failed = True
            continue
        limit = TOLERANCE * max(1.0, np.abs(expected).max())
        difference = np.abs(found - expected).max()
        verdict = "ok" if difference <= limit else "DIFFERS"
        print(f"batch {batch}: largest difference {difference:.1e}, limit {limit:.1e}: {verdict}")
        failed |= not difference <= limit
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
