"""Tests of the Python module. They need numpy, some of them timm and torch.

    pip install crates/wave-python && pytest crates/wave-python/tests
"""

import inspect
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

import wave_templates as wave
from wave_templates import _native, _progress, _settings

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


def test_methods_of_init(tmp_path):
    sizes = dict(depth=2, width=48, heads=3, image_size=24, patch=8, classes=2)
    model = wave.init("mimetic", seed=1, **sizes)
    assert model["head.weight"].shape == (2, 48)
    other = wave.init("mimetic", seed=2, **sizes)
    assert not np.array_equal(model["blocks.0.attn.qkv.weight"], other["blocks.0.attn.qkv.weight"])
    large = wave.expand(depth=4, width=96)
    large.save(tmp_path / "large")
    small = wave.init("nested", depth=2, width=64, from_=tmp_path / "large")
    assert np.array_equal(small["head.weight"], large["head.weight"][:, :64])


RECIPE = (
    "[condense]\nsteps = 3\ndepths = [1, 2]\nwidths = [16, 32]\ntemplate_size = 16\n"
    "[condense.auxiliary]\ndepth = 2\nwidth = 32\nhead_width = 16\npatch = 8\nimage_size = 24\n"
)
PREPROCESSING = {"input_size": (3, 24, 24), "mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4), "crop_pct": 1.0}


LEVELS = {"condense": {"kl_weight": 0, "levels": [{"depths": [1]}, {"depths": [2]}]}}


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
    settings = dict(SHAPES, ancestor=net, preprocessing=PREPROCESSING)
    done = wave.condense(recipe, tmp_path / "t", cache=tmp_path / "c", **settings)
    assert 0 <= done["top1"] <= 1 and net.training
    provenance = wave.inspect(tmp_path / "t")["provenance"]
    assert provenance["ancestor"].startswith("a network in Python, width ")
    assert provenance["origin"] == {"base_models": [], "licenses": [None]}
    card = (tmp_path / "t" / "README.md").read_text()
    assert "timm/net" not in card and "license: " not in card and "without a known licence" in card
    # Images come normalised as the module was trained.
    low = [(0 - m) / s for m, s in zip(PREPROCESSING["mean"], PREPROCESSING["std"])]
    high = [(1 - m) / s for m, s in zip(PREPROCESSING["mean"], PREPROCESSING["std"])]
    pixels = torch.cat(seen[1:]).transpose(0, 1).flatten(1)
    assert all(low[c] - 1e-4 <= pixels[c].min() and pixels[c].max() <= high[c] + 1e-4 for c in range(3))
    # A second condensation finds all outputs in the cache.
    before = len(seen)
    wave.condense(recipe, tmp_path / "u", cache=tmp_path / "c", **settings)
    assert all(len(x) == 1 for x in seen[before:])
    same = [wave.expand(tmp_path / d, depth=2, width=32)["head.weight"] for d in "tu"]
    assert np.array_equal(*same)
    # Without a classifier to follow, by its outputs as features; other weights are another ancestor.
    net.head.weight.data += 1
    wave.condense(recipe, tmp_path / "f", ancestor_output="features", **settings)
    assert "head.weight" not in wave.expand(tmp_path / "f", depth=2, width=32)
    with pytest.raises(ValueError, match="input_size"):
        wave.condense(recipe, tmp_path / "x", ancestor=net, **SHAPES)

    def fail(module, inputs):
        if len(inputs[0]) > 1:
            raise ArithmeticError("no such luck")

    failing = net.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="no such luck"):
        wave.condense(recipe, tmp_path / "y", **settings)
    failing.remove()
    with pytest.raises(ValueError, match="the model 5"):
        net.head = torch.nn.Linear(4, 5)
        wave.condense(recipe, tmp_path / "x", **settings)


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
        (lambda: wave.condense(out="o", ancestor="nowhere", data="shapes", minutes=1), "nowhere"),
        (lambda: wave.WeightTemplates.from_pretrained("nowhere"), "nowhere"),
        (lambda: wave.expand(depth=2, width=64, threads=0), "--threads 0"),
        (lambda: wave.expand(depth=2, width=64, device="tpu"), "--device tpu"),
        (lambda: wave.expand(depth=2, width=64, dtype="f16"), "dtype"),
        (lambda: wave.expand(depth=2, width=64).save("o", format="keras"), "save: format: .*keras.*onnx"),
        (lambda: wave.convert("o", "p", format="keras"), "convert: format: .*keras.*onnx"),
        (lambda: wave.finetune("nowhere", "o", data="shapes", clip=float("inf")), "clip = inf; expected a finite"),
        (lambda: wave.condense(LEVELS, "o", data="shapes", depths=[3]), "depths has no effect"),
        (lambda: wave.init("timm", depth=1, width=32, classes=2, kernel=3), "^kernel does not apply to arch vit"),
        (lambda: wave.init("timm", depth=1, width=32, classes=2, batch=3), "unknown key batch"),
    ],
)
def test_wrong_requests_say_what_is_wrong(call, needle, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=needle):
        call()
    assert not list(tmp_path.iterdir())


def test_ctrl_c_saves_and_what_was_stopped_goes_on(tmp_path):
    model = wave.expand(depth=2, width=64)
    model.save(tmp_path / "m")
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
    # From memory too: the same weights are the same model.
    settings = dict(data="shapes", new_head=True, steps=100_000, checkpoint_steps=1)
    with pytest.raises(ValueError, match="--resume"):
        model.finetune(tmp_path / "t", **settings)
    done = model.finetune(tmp_path / "t", resume=True, time_limit=0.001, **settings)
    assert done.model["head.bias"].shape == (8,)


@pytest.mark.parametrize("name", ["templates", "condense"])
def test_notebooks_run(name, tmp_path, monkeypatch):
    for package in ("timm", "torch", "PIL"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((Path(__file__).parent.parent / f"examples/{name}.ipynb").read_text())
    assert not any(cell.get("outputs") for cell in notebook["cells"])
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    scope = {}
    for cell in cells:
        exec(cell, scope)  # noqa: S102: the notebook is ours
    if name == "templates":
        assert scope["kept"] and scope["difference"] < 1e-4
    else:
        assert scope["accuracy"] > 0.9 and scope["tuned"]["top1"] > 0.5


def test_the_api_is_all_that_is_seen():
    assert dir(wave) == wave.__all__
    assert all(getattr(wave, name).__doc__ for name in wave.__all__)
    assert wave.__version__.count(".") == 2


@pytest.mark.parametrize(
    ("stage", "function", "more"),
    [
        ("condense", wave.condense, _settings.CondenseSettings),
        ("adapt", wave.adapt, _settings.AdaptSettings),
        ("expand", wave.expand, _settings.ExpandSettings),
        ("init", wave.init, _settings.InitSettings),
        ("finetune", wave.finetune, _settings.FinetuneSettings),
        ("eval", wave.evaluate, None),
    ],
)
def test_type_checkers_know_every_setting(stage, function, more):
    signature = inspect.signature(function).parameters
    named = {name.removesuffix("_") for name in signature}
    typed = set(getattr(more, "__annotations__", ()))
    keys = set(_native.keys(stage)) | ({"levels"} if stage == "condense" else set())
    if stage in ("expand", "init"):
        keys -= {"format", "dtype"}  # of a directory, and these are in memory
    assert not typed & named
    assert keys <= named | typed
    assert typed <= keys
    if stage != "init":
        assert {"device", "threads", "seed", "progress"} <= named


def test_progress_is_bars_or_lines(capsys, monkeypatch):
    lines = _progress.Progress()
    monkeypatch.setattr(_progress, "LINE_EVERY", -1.0)
    lines(1, "train", 1, 9, "3 s left")
    lines(1, "", None, 0, "")
    lines(None, "", None, 0, "epoch 1")
    assert capsys.readouterr().err == "train 1/9 3 s left\nepoch 1\n"

    bars = _progress.Progress()
    bars._tqdm = Mock()
    bars(7, "train", 1, 9, "3 s left")
    bars(7, "train", 2, 9, "2 s left")
    bar = bars._tqdm.return_value
    assert bars._tqdm.call_args.kwargs["desc"] == "train" and bars._tqdm.call_count == 1
    assert (bar.n, bar.total) == (2, 9)
    bar.set_postfix_str.assert_called_with("2 s left")
    bars(7, "", None, 0, "")
    bar.close.assert_called_once()


def test_a_training_tells_its_progress(tmp_path, capsys):
    model = wave.expand(depth=1, width=32, progress=False)
    settings = dict(SHAPES, new_head=True, epochs=2)
    model.finetune(tmp_path / "quiet", progress=False, **settings)
    assert capsys.readouterr().err == ""
    tuned = model.finetune(tmp_path / "loud", **settings)
    assert "epoch 1" in capsys.readouterr().err
    assert 0 <= tuned["top1"] <= 1
    assert wave.evaluate(tmp_path / "loud", data="shapes", test_limit=32)["images"] == 32
    assert wave.inspect(tmp_path / "loud")["parameters"] == tuned["parameters"]
    # Complete runs are told again; others are replaced on demand alone.
    assert model.finetune(tmp_path / "loud", resume=True, **settings) == tuned
    settings["epochs"] = 1
    with pytest.raises(ValueError, match="overwrite"):
        model.finetune(tmp_path / "loud", **settings)
    other = model.finetune(tmp_path / "loud", overwrite=True, threads=1, seed=1, **settings)
    assert other.model["head.weight"].shape == (8, 32)


def test_templates_are_a_set_and_a_path(tmp_path):
    templates = wave.WeightTemplates.from_pretrained("fashion-mnist")
    assert "28 x 28" in repr(templates) and templates.config["classes"] == 10
    model = templates.expand(2, 64)
    assert model.result["expected_top1"] > 0.5
    assert np.array_equal(model["head.weight"], wave.expand(templates, depth=2, width=64)["head.weight"])
    assert templates.expand(max_params="200k", progress=False).parameters <= 200_000
    assert templates.expand(2, 64, image_size=56, mlp_ratio=2).config["model_args"]["img_size"] == 56
    sent = templates.push_to_hub("you/set", dry_run=True)
    assert "templates.safetensors" in [file["path"] for file in sent["files"]]
    adapted = templates.adapt(tmp_path / "d", steps=2, **SHAPES)
    assert adapted["accuracies"]
    for depth, width in [(2, 64), (5, 96)]:
        assert templates.expand(depth, width, delta=adapted["out"])["head.weight"].shape == (8, width)
    with pytest.raises(ValueError, match="holds no artefact"):
        templates.expand(2, 64, delta=tmp_path)


def test_a_saved_model_is_what_the_command_writes_and_is_read_again(tmp_path):
    model = wave.expand("fashion-mnist", depth=2, width=64)
    model.save(tmp_path / "m")
    again = wave.read(tmp_path / "m")
    assert list(again) == list(model)
    assert all(np.array_equal(again[name], model[name]) for name in model)
    files = {file.name for file in (tmp_path / "m").iterdir()}
    assert files == {"README.md", "config.json", "model.safetensors", "scalers.safetensors"}
    provenance = wave.inspect(tmp_path / "m")["provenance"]
    assert provenance["stage"] == "expand" and len(provenance["templates_sha256"]) == 64
    # Scalers are of the composed weights alone.
    model["head.bias"][:] = 7.0
    model.save(tmp_path / "n")
    assert not (tmp_path / "n/scalers.safetensors").exists()
    assert wave.read(tmp_path / "n")["head.bias"].min() == 7.0
    wave.convert(model, tmp_path / "h", dtype="f16")
    model.save(tmp_path / "i", dtype="f16")
    for half in (wave.read(tmp_path / name) for name in "hi"):
        assert half["head.bias"].min() == 7.0
        assert np.allclose(half["head.weight"], model["head.weight"], rtol=1e-3, atol=1e-4)


def test_images_are_paths_pictures_and_arrays(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    model = wave.expand(depth=2, width=64)
    array = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    picture = Image.fromarray(array)
    picture.save(tmp_path / "a.png")
    found = model.predict([tmp_path / "a.png", picture, array]) + model.predict(array[None]) + model.predict(tmp_path)
    assert [one["image"] for one in found[1:4]] == ["image 1", "image 2", "image 0"]
    assert len({tuple(one["logits"]) for one in found}) == 1 and len(found) == 5
    assert found[0]["label"] == found[0]["top"][0]["label"]
    model.save(tmp_path / "m")
    assert wave.predict(tmp_path / "m", array)[0]["logits"] == found[0]["logits"]
    with pytest.raises(RuntimeError, match="1 of 2 images"):
        model.predict([array, tmp_path / "none.png"])
    with pytest.raises(ValueError, match="image 0 is a ndarray float64"):
        model.predict(array / 255)
    # Changed weights count.
    model["head.bias"][3] += 1e3
    assert model.predict(array)[0]["index"] == 3


def test_a_recipe_may_be_a_dict(tmp_path):
    auxiliary = {"depth": 2, "width": 32, "head_width": 16, "patch": 8, "image_size": 24, "mlp_ratio": None}
    recipe = {
        "seed": np.int64(3),
        "condense": {"epochs": 9, "kl_weight": 0, "depths": (1, 2), "widths": [16, 32], "auxiliary": auxiliary},
    }
    made = wave.condense(recipe, tmp_path / "t", steps=2, template_size=16, **SHAPES)
    provenance = made.templates.config["provenance"]
    assert provenance["seed"] == 3
    assert made.templates.expand(5, 48)["fc_norm.weight"].shape == (48,)
    names = [row["name"] for row in wave.templates(tmp_path / "t")]
    assert "fashion-mnist" in names and str(tmp_path / "t") in names
    with pytest.raises(ValueError, match="the recipe: unknown key condens; did you mean condense"):
        wave.condense({"condens": {}}, tmp_path / "u")


def test_names_of_timm():
    timm = pytest.importorskip("timm")
    torch = pytest.importorskip("torch")
    import wave_templates.timm as names

    x = torch.zeros(1, 3, 32, 32)
    network = timm.create_model("wave_cifar_10", depth=3, width=64).eval()
    model = wave.expand("cifar-10", depth=3, width=64)
    own = model.to_timm().eval()
    assert sum(p.numel() for p in own.parameters()) == model.parameters
    with torch.no_grad():
        assert torch.equal(network(x), own(x))
    assert network.pretrained_cfg["label_names"][0] == "airplane"
    other = timm.create_model(names.register("fashion-mnist", "wave_clothes"), depth=2, embed_dim=64, num_classes=3)
    assert other(torch.zeros(1, 1, 28, 28)).shape == (1, 3)
    with pytest.raises(ValueError, match="in_chans=1"):
        timm.create_model("wave_cifar_10", depth=3, width=64, in_chans=1)
