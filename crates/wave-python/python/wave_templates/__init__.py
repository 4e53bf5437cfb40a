"""Vision transformers of any depth and width from one set of weight templates.

>>> import wave_templates as wave
>>> model = wave.expand(depth=2, width=64)
>>> model["blocks.0.attn.qkv.weight"].shape
(192, 64)
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, Union

import numpy as np

# Elementwise operators of candle would start threads beside those that wave has already.
os.environ.setdefault("CANDLE_NUM_THREADS", "1")

from . import _native  # noqa: E402
from ._ancestor import Ancestor  # noqa: E402
from ._pack import pack  # noqa: E402

__all__ = [
    "Model",
    "adapt",
    "condense",
    "evaluate",
    "expand",
    "finetune",
    "init",
    "inspect",
    "pack",
    "read",
    "templates",
]

Path = Union[str, "os.PathLike[str]"]


class Model(Mapping):
    """A model in memory: its weights by timm's names, as numpy arrays of float32.

    Made by :func:`expand`, :func:`init` and :func:`read`.
    """

    def __init__(self, native: _native.Model) -> None:
        self._native = native
        self._weights = {
            name: np.frombuffer(values, dtype="<f4").reshape(shape)
            for name, shape, values in native.tensors()
        }

    def __getitem__(self, name: str) -> np.ndarray:
        return self._weights[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)

    def __repr__(self) -> str:
        arguments = self.config["model_args"]
        sizes = ", ".join(f"{name}={value}" for name, value in arguments.items())
        return f"<Model of {self.parameters:,} parameters: {sizes}>"

    @property
    def config(self) -> dict[str, Any]:
        """timm's ``config.json``: architecture, sizes, preprocessing, names of the classes."""
        return json.loads(self._native.config())

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return self._native.parameters()

    def to_torch(self) -> dict[str, Any]:
        """A state dict of torch tensors, which share the memory of the arrays."""
        import torch

        return {name: torch.from_numpy(values) for name, values in self.items()}

    def to_timm(self) -> Any:
        """The same model in timm. The architecture has to be one of timm's: a vision transformer or a
        ConvMixer."""
        import timm

        config = self.config
        arguments = config["model_args"]
        if config["architecture"].startswith("convmixer"):
            raise ValueError("timm.create_model fixes the sizes of a ConvMixer; use timm.models.convmixer.ConvMixer")
        model = timm.create_model(
            config["architecture"],
            num_classes=config["num_classes"],
            pretrained_cfg=config["pretrained_cfg"],
            **arguments,
        )
        model.load_state_dict(self.to_torch())
        return model

    def save(self, out: Path, *, format: str = "timm", dtype: str = "f32") -> None:
        """Writes a model directory.

        ``format`` is ``"timm"``, ``"transformers"`` or ``"onnx"``, ``dtype`` ``"f32"``, ``"f16"`` or ``"bf16"``.
        """
        self._native.write(os.fspath(out), json.dumps({"format": format, "dtype": dtype}))


def expand(
    templates: Path | None = None,
    *,
    depth: int,
    width: int,
    heads: int | None = None,
    delta: Path | None = None,
) -> Model:
    """A model of ``depth`` layers and ``width`` channels, composed from templates, without data.

    ``templates`` is a template directory, the name of a shipped set (the first by default), or
    ``hf:OWNER/NAME``. ``width`` is a multiple of the templates' head width, unless ``heads`` is given.
    ``delta`` is what :func:`adapt` made of these templates, for its data.
    """
    name = None if templates is None else os.fspath(templates)
    delta = None if delta is None else os.fspath(delta)
    return Model(_native.expand(name, depth, width, heads, delta))


def init(method: str, **settings: Any) -> Model:
    """A model by another method, such as ``"mimetic"``; ``settings`` are the flags of ``wave init``:
    ``depth``, ``width``, ``data`` or ``image_size`` and ``classes``, ``from_``..."""
    return Model(_native.init(method, _json(settings)))


def read(path: Path) -> Model:
    """The model in a directory, or ``hf:OWNER/NAME``."""
    return Model(_native.read(os.fspath(path)))


def condense(
    recipe: Path,
    out: Path,
    *,
    ancestor: Any = None,
    preprocessing: dict[str, Any] | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Distils an ancestor into a template directory ``out``. ``settings`` go before those of the recipe:
    ``data``, ``epochs``...

    ``ancestor`` is a model directory, ``hf:OWNER/NAME``, or any ``torch.nn.Module`` that maps images
    (b, channels, side, side) to class scores (b, n). It teaches by its features instead with
    ``ancestor_output="features"``: a timm model by what its classifier sees, any other module by its outputs.
    ``preprocessing`` has the keys of timm's ``pretrained_cfg`` (``input_size``, ``mean``, ``std``,
    ``interpolation``, ``crop_pct``, ``crop_mode``); a timm model brings its own. ``cache="DIR"`` keeps the
    outputs, so that further condensations do not run the module again.
    """
    module = None
    if callable(getattr(ancestor, "state_dict", None)):
        module = Ancestor(ancestor, preprocessing)
    elif preprocessing is not None:
        raise ValueError("preprocessing is of an ancestor that is a torch.nn.Module; leave it out")
    elif ancestor is not None:
        settings["ancestor"] = os.fspath(ancestor)
    return json.loads(_native.condense(os.fspath(recipe), os.fspath(out), _json(settings), module))


def adapt(templates: Path, out: Path, **settings: Any) -> dict[str, Any]:
    """Fits templates to other data once, for models of all sizes, and writes a delta to ``out``, or whole
    templates with ``whole=True``. ``settings`` are the flags of ``wave adapt``: ``data``, ``train_limit``..."""
    return json.loads(_native.adapt(os.fspath(templates), os.fspath(out), _json(settings)))


def finetune(model: Path, out: Path, **settings: Any) -> dict[str, Any]:
    """Trains all weights of a model directory, and writes the result to ``out``. ``settings`` are the flags of
    ``wave finetune``: ``data``, ``epochs``, ``lr``..."""
    return json.loads(_native.finetune(os.fspath(model), os.fspath(out), _json(settings)))


def evaluate(model: Path, **settings: Any) -> dict[str, Any]:
    """Accuracy of a model directory. ``settings`` are the flags of ``wave eval``: ``data``, ``test_limit``..."""
    return json.loads(_native.evaluate(os.fspath(model), _json(settings)))


def inspect(path: Path) -> dict[str, Any]:
    """What a template directory, a model directory or a safetensors file holds."""
    return json.loads(_native.inspect(os.fspath(path)))


def templates(*dirs: Path) -> list[dict[str, Any]]:
    """The templates at hand: shipped, here, downloaded, and those in ``dirs``, with sizes and accuracies."""
    return json.loads(_native.templates([os.fspath(d) for d in dirs]))["templates"]


def _json(settings: dict[str, Any]) -> str:
    # `from_`, since Python keeps `from` for itself.
    given = {name.removesuffix("_"): value for name, value in settings.items() if value is not None}
    return json.dumps(given, default=os.fspath)
