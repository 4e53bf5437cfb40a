"""A published graph hypernetwork as a directory that `wave init ghn3 --from DIR` predicts from.

    pip install torch joblib safetensors
    python recipes/ghn3.py ghn3tm8.pt hypernetworks/ghn3-t

GHN-3 (Knyazev et al. 2023) is published as PyTorch pickles, `ghn3tm8.pt` to `ghn3xlm16.pt`, in the repository
SamsungSAILMontreal/ghn3 of the Hugging Face hub; they predict networks for ImageNet. A pickle may run code as
it is read: take it from there alone.

The weights keep their names, which `wave_init::graph` lists. Code that runs moves the three embeddings of a
node's place into the first layer (`gnn.0.centrality_embed_in` and so on); both are read. What the pickle does
not say is written into `config.json`: images of 3 x 224 x 224 in ImageNet's normalisation, patches of 16, heads
of 64 channels, and as many classes as it predicts.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

CONFIG = {
    "model_type": "wave_hypernetwork",
    "image_size": 224,
    "channels": 3,
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
    "patch": 16,
    "head_width": 64,
}


def read(path):
    """The tensors by name, of a file that joblib or torch wrote, with or without its training's state."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:
        import joblib

        state = joblib.load(path)
    state = state.get("state_dict", state)
    return {name: torch.as_tensor(value) for name, value in state.items()}


def convert(state):
    """Weights as they are written. Those of the older GHN-2, which has no Graphormer, are refused."""
    if any(name.startswith("gnn.gru.") for name in state):
        sys.exit("these are weights of GHN-2; give those of a GHN-3")
    if "gnn.0.attn.to_qkv.weight" not in state:
        sys.exit(f"no weights of a GHN-3: there is no gnn.0.attn.to_qkv.weight, but {sorted(state)[:3]}")
    return {name: value.float().contiguous() for name, value in state.items()}


def main(source, out):
    weights = convert(read(source))
    classes = len(weights["decoder.class_layer_predictor.1.weight"])
    config = CONFIG | {"label_names": [str(i) for i in range(classes)]}
    config["wave"] = {"stage": "converted", "from": Path(source).name}
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    print(f"{out}: {len(weights)} tensors, {sum(w.numel() for w in weights.values()):,} values")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
