"""Weight templates as timm models.

>>> import timm, wave_templates.timm
>>> model = timm.create_model("wave_cifar_10", depth=6, width=96, num_classes=5)

Each shipped set has a name; :func:`register` adds others.
"""

from __future__ import annotations

import os
import re
from typing import Any

from timm.models import register_model

from . import _native
from ._model import expand
from ._run import PathLike

__all__ = ["register"]

#: Arguments of timm's vision transformers, and what wave calls them.
_SHAPE = {"img_size": "image_size", "patch_size": "patch", "num_heads": "heads", "mlp_ratio": "mlp_ratio"}


def register(templates: PathLike, name: str | None = None) -> str:
    """Makes ``timm.create_model(name, depth=..., width=...)`` expand these templates; returns the name.

    ``templates`` are as in :func:`wave_templates.expand`; ``name`` defaults to ``wave_`` and the last part of their
    name. The weights are always composed from the templates, even with ``pretrained=False``. A different
    ``num_classes`` starts a new classifier. ``embed_dim``, timm's name for ``width``, is accepted too; models written
    by ``timm.models.save_for_hf`` need it.
    """
    source = os.fspath(getattr(templates, "source", templates))
    if name is None:
        name = "wave_" + re.sub(r"\W+", "_", re.split(r"[/\\:]", source.rstrip("/\\").split("@")[0])[-1])

    def create(
        pretrained: bool = True,
        pretrained_cfg: Any = None,
        cache_dir: Any = None,
        *,
        depth: int | None = None,
        width: int | None = None,
        embed_dim: int | None = None,
        num_classes: int | None = None,
        in_chans: int | None = None,
        delta: PathLike | None = None,
        **arguments: Any,
    ) -> Any:
        if pretrained_cfg is not None:
            raise ValueError(f"{name} uses the preprocessing of its templates; remove pretrained_cfg")
        shape = {ours: arguments.pop(theirs) for theirs, ours in _SHAPE.items() if theirs in arguments}
        model = expand(source, depth, embed_dim if width is None else width, delta=delta, progress=False, **shape)
        channels = model.config["model_args"]["in_chans"]
        if in_chans not in (None, channels):
            raise ValueError(f"in_chans={in_chans}: {name} takes images with {channels} channels")
        network = model.to_timm(**arguments)
        if num_classes not in (None, network.num_classes):
            network.reset_classifier(num_classes)
        return network

    create.__name__ = create.__qualname__ = name
    globals()[name] = create  # where timm looks for it
    register_model(create)
    return name


for _name in _native.shipped():
    register(_name)
