"""Vision transformers of any depth and width from one set of weight templates.

>>> import wave_templates as wave
>>> model = wave.expand(depth=2, width=64)
>>> model["blocks.0.attn.qkv.weight"].shape
(192, 64)
"""

import os as _os

# Elementwise operators of candle would start threads beside those that wave has already.
_os.environ.setdefault("CANDLE_NUM_THREADS", "1")

from ._model import Model, expand, init, read  # noqa: E402
from ._native import version as __version__  # noqa: E402
from ._pack import pack  # noqa: E402
from ._run import Result  # noqa: E402
from ._stages import (  # noqa: E402
    adapt,
    condense,
    convert,
    evaluate,
    finetune,
    inspect,
    predict,
    publish,
    pull,
    templates,
)
from ._templates import WeightTemplates  # noqa: E402

__all__ = [
    "Model",
    "Result",
    "WeightTemplates",
    "__version__",
    "adapt",
    "condense",
    "convert",
    "evaluate",
    "expand",
    "finetune",
    "init",
    "inspect",
    "pack",
    "predict",
    "publish",
    "pull",
    "read",
    "templates",
]


def __dir__() -> "list[str]":
    return __all__
