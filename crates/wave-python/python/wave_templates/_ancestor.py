"""PyTorch modules as ancestors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

#: The keys of timm's ``pretrained_cfg`` that say what images a network takes.
PREPROCESSING = ("input_size", "mean", "std", "interpolation", "crop_pct", "crop_mode")


class Ancestor:
    """A module with its description, for the native side."""

    def __init__(self, module: Any, preprocessing: Mapping[str, Any] | None) -> None:
        import torch

        self._torch, self._module = torch, module
        own = getattr(module, "pretrained_cfg", None) or {}
        given = {**own, **(preprocessing or {})}
        missing = [key for key in ("input_size", "mean", "std") if given.get(key) is None]
        if missing:
            raise ValueError(
                f"the ancestor does not describe its input images ({', '.join(missing)}); give preprocessing ="
                ' {"input_size": (3, 224, 224), "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)},'
                " or the values it was trained with"
            )
        config = {key: given[key] for key in PREPROCESSING if given.get(key) is not None}
        parameter = next(module.parameters(), None)
        self._device = "cpu" if parameter is None else parameter.device
        self._shape = tuple(int(side) for side in config["input_size"])
        one = np.zeros((1, *self._shape), dtype="<f4")
        n = self._outputs(one, False).shape[1]
        # A timm model without a classifier says num_classes = 0; its outputs are its features.
        self.classes = n if getattr(module, "num_classes", n) else 0
        self.width = self._outputs(one, True).shape[1]
        self.name: str = own.get("architecture") or type(module).__name__
        self.parameters = sum(p.numel() for p in module.parameters())
        self.digest = self._digest()
        self.pretrained_cfg = json.dumps(config)

    def run(self, images: bytes, count: int, features: bool) -> bytes:
        """The outputs of normalised images; both as little-endian float32."""
        batch = np.frombuffer(bytearray(images), dtype="<f4").reshape(count, *self._shape)
        return self._outputs(batch, features).astype("<f4").tobytes()

    def _outputs(self, images: np.ndarray, features: bool) -> np.ndarray:
        module = self._module
        training = module.training
        module.eval()
        try:
            with self._torch.inference_mode():
                x = self._torch.from_numpy(images).to(self._device)
                if features and hasattr(module, "forward_head"):
                    outputs = module.forward_head(module.forward_features(x), pre_logits=True)
                else:
                    outputs = module(x)
        finally:
            module.train(training)
        if getattr(outputs, "ndim", None) != 2:
            found = getattr(outputs, "shape", type(outputs).__name__)
            raise ValueError(
                f"the ancestor returns {found}, expected a tensor (images, outputs); wrap it in a module that returns one"
            )
        return np.asarray(outputs.float().cpu())

    def _digest(self) -> str:
        digest = hashlib.sha256()
        for name, value in sorted(self._module.state_dict().items()):
            digest.update(f"{name} {tuple(value.shape)} ".encode())
            digest.update(value.detach().cpu().float().contiguous().numpy().tobytes())
        return digest.hexdigest()
