"""Tests of the Python module. They need numpy, some of them timm and torch.

    pip install crates/wave-python && pytest crates/wave-python/tests
"""

import signal
import subprocess
import sys
import time

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


def test_timm_and_torch():
    pytest.importorskip("timm")
    torch = pytest.importorskip("torch")
    model = wave.expand(depth=2, width=64)
    same = model.to_timm().eval()
    assert sum(p.numel() for p in same.parameters()) == model.parameters
    with torch.no_grad():
        logits = same(torch.zeros(1, 1, 28, 28))
    assert logits.shape == (1, 10)
