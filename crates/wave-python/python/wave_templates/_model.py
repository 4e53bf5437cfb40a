"""Models in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _native, _stages
from ._run import PathLike, Result, given, path, result, run, to_json

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._settings import ExpandSettings, InitSettings


class Model(Mapping[str, np.ndarray]):
    """A model in memory: its weights by timm's names, as numpy arrays of float32.

    Created by :func:`expand`, :func:`init` and :func:`read`. The arrays may be changed in place; saving,
    predicting and training then use the changed values.
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
        """timm's ``config.json``: architecture, sizes, preprocessing, class names."""
        return result(self._native.config())

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return self._native.parameters()

    @property
    def result(self) -> Result:
        """Results of the expansion: ``expected_top1``, ``ledger``, ``not_condensed``..."""
        return result(self._native.result())

    def to_torch(self) -> dict[str, Any]:
        """A state dict of torch tensors, which share the memory of the arrays."""
        import torch

        return {name: torch.from_numpy(values) for name, values in self.items()}

    def to_timm(self, **arguments: Any) -> Any:
        """The same model in timm. The architecture must exist in timm, such as a vision transformer.
        ``arguments`` are passed to ``timm.create_model``, such as ``drop_path_rate``."""
        import timm

        config = self.config
        if config["architecture"].startswith("convmixer"):
            raise ValueError("timm.create_model fixes the sizes of a ConvMixer; use timm.models.convmixer.ConvMixer")
        model = timm.create_model(
            config["architecture"],
            num_classes=config["num_classes"],
            pretrained_cfg={**config["pretrained_cfg"], "label_names": config["label_names"]},
            **{**config["model_args"], **arguments},
        )
        model.load_state_dict(self.to_torch())
        return model

    def save(self, out: PathLike, *, format: str = "timm", dtype: str = "f32") -> None:
        """Writes a model directory.

        ``format`` is ``"timm"``, ``"transformers"`` or ``"onnx"``, ``dtype`` ``"f32"``, ``"f16"`` or ``"bf16"``.
        """
        self._current().write(os.fspath(out), to_json({"format": format, "dtype": dtype}), run(progress=False))

    predict = _stages.predict
    evaluate = _stages.evaluate
    finetune = _stages.finetune
    push_to_hub = _stages.publish

    def _current(self) -> _native.Model:
        """The model with the arrays as they are now."""
        return self._native.with_tensors([(name, values.tobytes()) for name, values in self.items()])


def expand(
    templates: PathLike | None = None,
    depth: int | None = None,
    width: int | None = None,
    *,
    heads: int | None = None,
    mlp_ratio: float | None = None,
    image_size: int | None = None,
    patch: int | None = None,
    max_params: int | str | None = None,
    max_macs: int | str | None = None,
    max_latency_ms: float | None = None,
    delta: PathLike | None = None,
    data: PathLike | None = None,
    train_limit: int | None = None,
    test_limit: int | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    batch: int | None = None,
    lr: float | None = None,
    seed: int | None = None,
    device: str = "cpu",
    threads: int | None = None,
    progress: bool = True,
    **settings: Unpack[ExpandSettings],
) -> Model:
    """A model of ``depth`` layers and ``width`` channels, composed from templates in memory, without data.

    >>> wave.expand(depth=2, width=64)["blocks.0.attn.qkv.weight"].shape
    (192, 64)

    Args:
        templates: :class:`WeightTemplates`, a template directory, the name of a shipped set (the first by default),
            or ``hf:OWNER/NAME``.
        width: a multiple of the templates' head width, unless ``heads`` is given.
        mlp_ratio, image_size, patch: replace the templates' values.
        max_params, max_macs, max_latency_ms: limits instead of a size, such as ``"8M"`` and ``"1.2G"``; the most
            accurate size within them is chosen by the accuracies recorded with the templates.
        delta: output of :func:`adapt` for these templates and other data.
        data: a little data to fit scalers and head to, for ``steps`` (300).
        settings: further keys of ``[expand]``, the flags of ``wave expand``.
    """
    keys = dict(
        settings, depth=depth, width=width, heads=heads, mlp_ratio=mlp_ratio, image_size=image_size, patch=patch,
        max_params=None if max_params is None else str(max_params),
        max_macs=None if max_macs is None else str(max_macs),
        max_latency_ms=max_latency_ms, delta=delta, data=data, train_limit=train_limit, test_limit=test_limit,
        epochs=epochs, steps=steps, batch=batch, lr=lr, seed=seed,
    )
    name = path(getattr(templates, "source", templates))
    return Model(_native.expand(name, given(keys), run(device, threads, progress)))


def init(
    method: str,
    depth: int | None = None,
    width: int | None = None,
    *,
    heads: int | None = None,
    arch: str | None = None,
    patch: int | None = None,
    image_size: int | None = None,
    channels: int | None = None,
    classes: int | None = None,
    data: PathLike | None = None,
    from_: PathLike | None = None,
    seed: int | None = None,
    progress: bool = True,
    **settings: Unpack[InitSettings],
) -> Model:
    """A model initialised by another method, such as ``"mimetic"``, as ``wave init`` does.

    Args:
        data: source of image size, channels and classes, unless given.
        from_: the trained model that methods such as ``"prune"`` take weights from.
        settings: further keys of ``[init]``, the flags of ``wave init``.
    """
    keys = dict(
        settings, depth=depth, width=width, heads=heads, arch=arch, patch=patch, image_size=image_size,
        channels=channels, classes=classes, data=data, from_=from_, seed=seed,
    )
    return Model(_native.init(method, given(keys), run(progress=progress)))


def read(of: PathLike, *, progress: bool = True) -> Model:
    """The model in a directory, in a safetensors file, or ``hf:OWNER/NAME``."""
    return Model(_native.read(os.fspath(of), None, "{}", run(progress=progress)))
