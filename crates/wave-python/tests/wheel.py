"""Tries an installed wheel: the shipped templates make a model. ``.ci/wheel.sh`` runs it."""

import wave_templates as wave

model = wave.expand(depth=2, width=64)
assert model["blocks.1.attn.qkv.weight"].shape == (192, 64)
