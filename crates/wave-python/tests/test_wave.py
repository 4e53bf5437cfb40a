"""Tests of the Python module. They need numpy, some of them timm and torch.

    pip install crates/wave-python && pytest crates/wave-python/tests
"""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import wave_templates as wave

SHAPES = {"data": "shapes", "train_limit": 64, "test_limit": 32, "batch": 16}


def test_a_model_of_any_size_is_made_in_memory():
    model = wave.expand(depth=3, width=96)
    assert model["blocks.2.attn.qkv.weight"].shape == (288, 96)
    assert model["blocks.2.attn.qkv.weight"].dtype == np.float32
    assert sum(w.size for w in model.values()) == model.parameters
    assert model.config["model_args"]["depth"] == 3
    assert "96" in repr(model)
    # The arrays are the caller's to change.
    model["head.bias"][:] = 1.0
    assert model["head.bias"].sum() == 10.0


def test_what_is_saved_is_read_again(tmp_path):
    model = wave.expand("fashion-mnist", depth=2, width=64)
    model.save(tmp_path / "m")
    again = wave.read(tmp_path / "m")
    assert list(again) == list(model)
    assert all(np.array_equal(again[name], model[name]) for name in model)
    model.save(tmp_path / "h", dtype="f16")
    half = wave.read(tmp_path / "h")
    assert np.allclose(half["head.weight"], model["head.weight"], rtol=1e-3, atol=1e-4)


def test_methods_of_init():
    sizes = dict(depth=2, width=48, heads=3, image_size=24, patch=8, classes=2)
    model = wave.init("mimetic", seed=1, **sizes)
    assert model["head.weight"].shape == (2, 48)
    other = wave.init("mimetic", seed=2, **sizes)
    assert not np.array_equal(model["blocks.0.attn.qkv.weight"], other["blocks.0.attn.qkv.weight"])


def test_weights_of_a_trained_model(tmp_path):
    large = wave.expand(depth=4, width=96)
    large.save(tmp_path / "large")
    small = wave.init("nested", depth=2, width=64, from_=tmp_path / "large")
    assert np.array_equal(small["head.weight"], large["head.weight"][:, :64])


def test_stages(tmp_path):
    wave.expand(depth=2, width=64).save(tmp_path / "m")
    tuned = wave.finetune(tmp_path / "m", tmp_path / "t", steps=3, new_head=True, **SHAPES)
    assert 0 <= tuned["top1"] <= 1
    scores = wave.evaluate(tmp_path / "t", data="shapes", test_limit=32)
    assert scores["images"] == 32
    assert wave.inspect(tmp_path / "t")["parameters"] == tuned["parameters"]
    (tmp_path / "r.toml").write_text(
        "[condense]\nkl_weight = 0\nsteps = 3\ndepths = [1, 2]\nwidths = [16, 32]\ntemplate_size = 16\n"
        "[condense.auxiliary]\ndepth = 2\nwidth = 32\nhead_width = 16\npatch = 7\nimage_size = 28\n"
    )
    wave.condense(tmp_path / "r.toml", tmp_path / "templates", **SHAPES)
    assert wave.expand(tmp_path / "templates", depth=5, width=48)["fc_norm.weight"].shape == (48,)
    names = [row["name"] for row in wave.templates(tmp_path / "templates")]
    assert "fashion-mnist" in names and str(tmp_path / "templates") in names


RECIPE = (
    "[condense]\nsteps = 3\ndepths = [1, 2]\nwidths = [16, 32]\ntemplate_size = 16\n"
    "[condense.auxiliary]\ndepth = 2\nwidth = 32\nhead_width = 16\npatch = 8\nimage_size = 24\n"
)
PREPROCESSING = {"input_size": (3, 24, 24), "mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4), "crop_pct": 1.0}


def test_one_adaptation_serves_all_sizes(tmp_path):
    made = wave.adapt("fashion-mnist", tmp_path / "d", steps=2, **SHAPES)
    assert made["accuracies"]
    for depth, width in [(2, 64), (5, 96)]:
        model = wave.expand("fashion-mnist", depth=depth, width=width, delta=tmp_path / "d")
        assert model["head.weight"].shape == (8, width)
    with pytest.raises(ValueError, match="holds no artefact"):
        wave.expand("fashion-mnist", depth=2, width=64, delta=tmp_path)


def test_a_data_set_of_torch_is_packed(tmp_path):
    pytest.importorskip("PIL")
    images = np.random.default_rng(0).integers(0, 256, (6, 10, 12, 3), dtype=np.uint8)
    dataset = [(image, i % 2) for i, image in enumerate(images)]
    assert wave.pack(tmp_path / "d", dataset, dataset[:4], class_names=["a", "b"]) == {"train": 6, "validation": 4}
    (tmp_path / "r.toml").write_text(RECIPE.replace("steps = 3", "steps = 1\nkl_weight = 0"))
    wave.condense(tmp_path / "r.toml", tmp_path / "t", data=tmp_path / "d", batch=2)
    assert wave.expand(tmp_path / "t", depth=1, width=16).config["label_names"] == ["a", "b"]
    with pytest.raises(ValueError, match="already holds"):
        wave.pack(tmp_path / "d", dataset)
    with pytest.raises(ValueError, match="item 0 is a ndarray float32"):
        wave.pack(tmp_path / "e", images.astype(np.float32))


def test_a_torch_module_is_an_ancestor(tmp_path):
    torch = pytest.importorskip("torch")
    recipe = tmp_path / "r.toml"
    recipe.write_text(RECIPE)
    torch.manual_seed(0)
    seen = []

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = torch.nn.Conv2d(3, 4, 3, stride=2), torch.nn.Linear(4, 8)

        def forward(self, x):
            seen.append(x)
            return self.head(self.conv(x).mean((2, 3)))

    net = Net()
    # As timm's models have it: of a checkpoint of the architecture, not of these weights.
    net.pretrained_cfg = {"architecture": "net", "hf_hub_id": "timm/net.of_others", "license": "apache-2.0"}
    data = dict(SHAPES, data="shapes")
    done = wave.condense(recipe, tmp_path / "t", ancestor=net, preprocessing=PREPROCESSING, cache=tmp_path / "c", **data)
    assert 0 <= done["top1"] <= 1 and net.training
    provenance = wave.inspect(tmp_path / "t")["provenance"]
    assert provenance["ancestor"].startswith("a network in Python, width ")
    assert provenance["origin"] == {"base_models": [], "licenses": [None]}
    card = (tmp_path / "t" / "README.md").read_text()
    assert "timm/net" not in card and "license: " not in card and "no licence is known" in card
    # Images come normalised as the module was trained.
    low = [(0 - m) / s for m, s in zip(PREPROCESSING["mean"], PREPROCESSING["std"])]
    high = [(1 - m) / s for m, s in zip(PREPROCESSING["mean"], PREPROCESSING["std"])]
    pixels = torch.cat(seen[1:]).transpose(0, 1).flatten(1)
    assert all(low[c] - 1e-4 <= pixels[c].min() and pixels[c].max() <= high[c] + 1e-4 for c in range(3))
    # A second condensation finds all outputs in the cache.
    before = len(seen)
    wave.condense(recipe, tmp_path / "u", ancestor=net, preprocessing=PREPROCESSING, cache=tmp_path / "c", **data)
    assert all(len(x) == 1 for x in seen[before:])
    same = [wave.expand(tmp_path / d, depth=2, width=32)["head.weight"] for d in "tu"]
    assert np.array_equal(*same)
    # Without a classifier to follow, by its outputs as features; other weights are another ancestor.
    net.head.weight.data += 1
    wave.condense(recipe, tmp_path / "f", ancestor=net, preprocessing=PREPROCESSING, ancestor_output="features", **data)
    assert "head.weight" not in wave.expand(tmp_path / "f", depth=2, width=32)
    with pytest.raises(ValueError, match="input_size"):
        wave.condense(recipe, tmp_path / "x", ancestor=net, **data)
    with pytest.raises(ValueError, match="the model 5"):
        net.head = torch.nn.Linear(4, 5)
        wave.condense(recipe, tmp_path / "x", ancestor=net, preprocessing=PREPROCESSING, **data)


def test_an_ancestor_that_fails_ends_the_run_with_its_message(tmp_path):
    torch = pytest.importorskip("torch")
    (tmp_path / "r.toml").write_text(RECIPE)

    class Net(torch.nn.Module):
        def forward(self, x):
            if len(x) > 1:
                raise ArithmeticError("no such luck")
            return x.mean((2, 3))

    with pytest.raises(RuntimeError, match="no such luck"):
        wave.condense(
            tmp_path / "r.toml", tmp_path / "t", ancestor=Net(), preprocessing=PREPROCESSING,
            ancestor_output="features", **SHAPES,
        )


def test_a_timm_model_teaches_the_same_here_and_there(tmp_path):
    timm = pytest.importorskip("timm")
    (tmp_path / "r.toml").write_text(RECIPE)
    wave.init("timm", depth=1, width=32, heads=2, image_size=24, patch=8, classes=8).save(tmp_path / "a")
    module = timm.create_model(f"local-dir:{tmp_path / 'a'}", pretrained=True)
    wave.condense(tmp_path / "r.toml", tmp_path / "here", ancestor=tmp_path / "a", **SHAPES)
    wave.condense(tmp_path / "r.toml", tmp_path / "there", ancestor=module, **SHAPES)
    here, there = (wave.expand(tmp_path / d, depth=2, width=32) for d in ("here", "there"))
    for name in here:
        assert np.allclose(here[name], there[name], atol=1e-4), name


@pytest.mark.parametrize(
    ("call", "needle"),
    [
        (lambda: wave.expand(depth=0, width=64), "depth 0"),
        (lambda: wave.expand(depth=2, width=65), "65"),
        (lambda: wave.expand("nowhere", depth=2, width=64), "nowhere"),
        (lambda: wave.init("mimetc", depth=2, width=64), "mimetic"),
        (lambda: wave.init("timm", dept=2), "depth"),
        (lambda: wave.finetune("nowhere", "o", data="shapes"), "nowhere"),
        (lambda: wave.condense("nowhere.toml", "o"), "nowhere.toml"),
    ],
)
def test_wrong_requests_say_what_is_wrong(call, needle, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=needle):
        call()
    assert not list(tmp_path.iterdir())


def test_ctrl_c_saves_and_stops(tmp_path):
    wave.expand(depth=2, width=64).save(tmp_path / "m")
    program = (
        "import wave_templates as w\n"
        f"w.finetune({str(tmp_path / 'm')!r}, {str(tmp_path / 't')!r}, data='shapes', new_head=True,"
        " steps=100000, checkpoint_steps=1)"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
    checkpoint = tmp_path / "t" / "run" / "checkpoint.safetensors"
    began = time.time()
    while not checkpoint.exists():
        assert time.time() - began < 60 and child.poll() is None
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    _, stderr = child.communicate(timeout=60)
    assert "KeyboardInterrupt" in stderr
    assert checkpoint.exists()


def test_the_notebook_runs():
    notebook = json.loads((Path(__file__).parent.parent / "examples/templates.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    scope = {}
    for cell in cells:
        exec(cell, scope)  # noqa: S102: the notebook is ours
    assert scope["tuned"]["top1"] > scope["noise"]["top1"]
    assert scope["head"].shape == (8, 64)


def test_timm_and_torch():
    pytest.importorskip("timm")
    torch = pytest.importorskip("torch")
    model = wave.expand(depth=2, width=64)
    same = model.to_timm().eval()
    assert sum(p.numel() for p in same.parameters()) == model.parameters
    with torch.no_grad():
        logits = same(torch.zeros(1, 3, 32, 32))
    assert logits.shape == (1, 10)
