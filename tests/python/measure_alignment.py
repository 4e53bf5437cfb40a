"""Whether alignment of a trained transformer's free symmetries helps weight templates, and what it is worth as pruning.

    wave init mimetic --data fashion-mnist --depth 12 --width 192 --heads 3 --patch 7 --out init
    wave finetune init --data fashion-mnist --epochs 5 --lr 1e-3 --crop-padding 2 --flip true --out trained
    python tests/python/measure_alignment.py trained --init init --out rows.json

The network is free: no templates took part in its training. Four studies, each of which may be named alone:
energy (what templates keep of the weights, before and after alignment, beside noise), storage (accuracy over
stored values), sizes (accuracy at fewer multiply-adds, beside pruning) and invariance (logits before and after).
Labels are used to test, and by nothing else. --text FILE adds the weights of a BERT in safetensors to the first.
Needs numpy, scipy, safetensors and the IDX files of Fashion-MNIST. Rows are written to --out study by study.
"""

import argparse
import copy
import gzip
import json
import pathlib
import statistics
import time

import numpy as np
from safetensors.numpy import load_file
from scipy.linalg import cho_factor, cho_solve, eigh
from scipy.optimize import linear_sum_assignment

EPS = 1e-6
PARTS = {"qkv": 6, "proj": 2, "fc1": 8, "fc2": 8}  # templates of the default plan, as large as the width
RIDGE = 1e-4  # of least squares, relative to the mean square of an input
F = np.float32


# A network is {"w0": (d, pixels), "pos": (tokens, d), "head": (classes, d), "hb", "scale", "layers": [...]}, its
# norms without gain and bias. A layer has wq, wk (heads, r, d), bq, bk (heads, r), wv (heads, s, d), bv (heads, s),
# wo (d, heads, s), bo (d), w1 (m, d), b1 (m), w2 (d, m), b2 (d). r and s are 64 in the trained network.


def load(directory, heads):
    """A timm ViT with mean pooling. The norms' gains and biases go into the matrices that follow."""
    p = {k: v.astype(np.float64) for k, v in load_file(pathlib.Path(directory) / "model.safetensors").items()}
    depth = 1 + max(int(k.split(".")[1]) for k in p if k.startswith("blocks."))
    d = p["pos_embed"].shape[-1]

    def folded(weight, bias, norm):
        return p[weight] * p[norm + ".weight"], p[bias] + p[weight] @ p[norm + ".bias"]

    layers = []
    for l in range(depth):
        b = f"blocks.{l}."
        w, c = folded(b + "attn.qkv.weight", b + "attn.qkv.bias", b + "norm1")
        wq, wk, wv = w.reshape(3, heads, d // heads, d)
        bq, bk, bv = c.reshape(3, heads, d // heads)
        w1, b1 = folded(b + "mlp.fc1.weight", b + "mlp.fc1.bias", b + "norm2")
        wo = p[b + "attn.proj.weight"].reshape(d, heads, d // heads)
        layer = dict(wq=wq, wk=wk, wv=wv, bq=bq, bk=bk, bv=bv, wo=wo, bo=p[b + "attn.proj.bias"], w1=w1, b1=b1)
        layers.append({**layer, "w2": p[b + "mlp.fc2.weight"], "b2": p[b + "mlp.fc2.bias"]})
    head, hb = folded("head.weight", "head.bias", "fc_norm")
    w0 = p["patch_embed.proj.weight"].reshape(d, -1)
    pos = p["pos_embed"][0] + p["patch_embed.proj.bias"]
    return cast(dict(w0=w0, pos=pos, head=head, hb=hb, scale=(d // heads) ** -0.5, layers=layers))


def cast(net, to=F):
    out = {k: v.astype(to) if isinstance(v, np.ndarray) else v for k, v in net.items()}
    out["layers"] = [{k: v.astype(to) for k, v in l.items()} for l in net["layers"]]
    return out


def images(data, split, config):
    """Patches of all images, (n, tokens, pixels), and labels."""
    name = {"train": "train", "test": "t10k"}[split]
    with gzip.open(pathlib.Path(data) / f"{name}-images-idx3-ubyte.gz") as f:
        x = np.frombuffer(f.read(), np.uint8, offset=16).reshape(-1, 28, 28)
    with gzip.open(pathlib.Path(data) / f"{name}-labels-idx1-ubyte.gz") as f:
        y = np.frombuffer(f.read(), np.uint8, offset=8)
    x = ((x.astype(F) / 255 - config["pretrained_cfg"]["mean"][0]) / config["pretrained_cfg"]["std"][0]).astype(F)
    p = config["model_args"]["patch_size"]
    g = 28 // p
    return x.reshape(-1, g, p, g, p).transpose(0, 1, 3, 2, 4).reshape(-1, g * g, p * p), y


def norm(x):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(EPS))


def gelu(x):
    """x Phi(x), by formula 7.1.26 of Abramowitz and Stegun (error of erf 1.5e-7), five times as fast as scipy's erf."""
    z = np.abs(x) * F(0.5**0.5)
    t = 1 / (1 + F(0.3275911) * z)
    y = t * F(1.061405429)
    for c in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        y += F(c)
        y *= t
    z *= -z
    y *= np.exp(z) * F(0.5)  # Phi(-|x|)
    return np.maximum(x, 0) - np.abs(x) * y


def heads_of(h, w, b):
    n, t, d = h.shape
    out = h.reshape(-1, d) @ w.reshape(-1, d).T + b.reshape(-1)
    return out.reshape(n, t, *w.shape[:2]).transpose(0, 2, 1, 3)  # (n, heads, tokens, r)


def attend(layer, h, scale):
    """The heads' outputs, (n, tokens, heads s), and the attention."""
    q, k, v = (heads_of(h, layer["w" + x], layer["b" + x]) for x in "qkv")
    a = q @ k.transpose(0, 1, 3, 2) * h.dtype.type(scale)
    a = np.exp(a - a.max(-1, keepdims=True))
    a /= a.sum(-1, keepdims=True)
    o = a @ v
    return o.transpose(0, 2, 1, 3).reshape(*h.shape[:2], -1), a


def flat_wo(layer):
    return layer["wo"].reshape(len(layer["wo"]), -1)


def forward(net, patches, keep=False):
    """Logits; with keep also, of each layer, what least squares needs."""
    x = patches @ net["w0"].T + net["pos"]
    kept = [dict(x=x)] if keep else None
    for layer in net["layers"]:
        h1 = norm(x)
        o, _ = attend(layer, h1, net["scale"])
        x = x + o @ flat_wo(layer).T + layer["bo"]
        mid, h2 = x, norm(x)
        f = gelu(h2 @ layer["w1"].T + layer["b1"])
        x = x + f @ layer["w2"].T + layer["b2"]
        if keep:
            kept.append(dict(h1=h1, o=o, mid=mid, h2=h2, f=f, x=x))
    logits = norm(x.mean(1)) @ net["head"].T + net["hb"]
    return (logits, kept) if keep else logits


def top1(net, test):
    x, y = test
    right = [forward(net, x[i : i + 50]).argmax(1) == y[i : i + 50] for i in range(0, len(x), 50)]
    return 100 * float(np.concatenate(right).mean())


# Alignment


def centred(net):
    """What writes to the residual stream without its mean over channels, which every norm subtracts."""
    net = copy.deepcopy(net)
    net["w0"] -= net["w0"].mean(0)
    net["pos"] -= net["pos"].mean(1, keepdims=True)
    for l in net["layers"]:
        for k in ("wo", "bo", "w2", "b2"):
            l[k] -= l[k].mean(0)
        for k in ("wq", "wk", "wv", "w1"):
            l[k] -= l[k].mean(-1, keepdims=True)
    net["head"] -= net["head"].mean(-1, keepdims=True)
    return net


def rotation(net, patches):
    """Q with Q 1 = 1: the first axis of its source is 1, the others principal directions of the stream.

    Q = B P', with P's columns 1 / sqrt(d) and the principal directions, and B an orthogonal matrix whose first column is
    1 / sqrt(d) too: the nearest to the identity, a Householder reflection.
    """
    d = len(net["w0"])
    c = np.zeros((d, d))
    for k in forward(net, patches, keep=True)[1][1:]:
        for h in (k["h1"], k["h2"]):
            h = h.reshape(-1, d).astype(np.float64)
            c += h.T @ h / len(h)
    one = np.full(d, d**-0.5)
    _, vectors = np.linalg.eigh(c + 1e6 * np.trace(c) * np.outer(one, one))  # 1 comes last, so first below
    p = vectors[:, ::-1]
    p[:, 0] = one
    e = np.eye(d)[0] - one
    b = np.eye(d) - 2 * np.outer(e, e) / (e @ e)
    return b @ p.T, p


def rotated(net, q):
    """The same function in the basis q of the stream."""
    net = cast(net, np.float64)
    net["w0"], net["pos"], net["head"] = q @ net["w0"], net["pos"] @ q.T, net["head"] @ q.T
    for l in net["layers"]:
        for k in ("wq", "wk", "wv", "w1"):
            l[k] = l[k] @ q.T
        l["wo"] = np.tensordot(q, l["wo"], 1)
        l["w2"], l["bo"], l["b2"] = q @ l["w2"], q @ l["bo"], q @ l["b2"]
    return cast(net)


def stacked(net):
    """The composed weights by part, (layers, rows, columns)."""
    ls, d = net["layers"], len(net["w0"])
    qkv = [np.concatenate([l["w" + x].reshape(-1, d) for x in "qkv"]) for l in ls]
    return {
        "qkv": np.array(qkv, np.float64),
        "proj": np.array([flat_wo(l) for l in ls], np.float64),
        "fc1": np.array([l["w1"] for l in ls], np.float64),
        "fc2": np.array([l["w2"] for l in ls], np.float64),
    }


def unstacked(net, w):
    """The network with these composed weights."""
    net = copy.deepcopy(net)
    for i, l in enumerate(net["layers"]):
        for x, part in zip("qkv", np.split(w["qkv"][i], 3)):
            l["w" + x] = part.reshape(l["w" + x].shape).astype(F)
        l["wo"] = w["proj"][i].reshape(l["wo"].shape).astype(F)
        l["w1"], l["w2"] = w["fc1"][i].astype(F), w["fc2"][i].astype(F)
    return net


def blocks(w, t):
    n, rows, cols = w.shape
    return w.reshape(n, rows // t, t, cols // t, t).transpose(0, 1, 3, 2, 4).reshape(-1, t * t)


def unblocks(b, shape, t):
    n, rows, cols = shape
    return b.reshape(n, rows // t, cols // t, t, t).transpose(0, 1, 3, 2, 4).reshape(shape)


def nearest(w, n, t):
    """The nearest weights that n templates of t x t compose: `wave condense --method factorise`."""
    b = blocks(w, t)
    gram = b @ b.T if len(b) <= t * t else b.T @ b
    k = len(gram)
    if n >= k:
        return w.copy()
    _, u = eigh(gram, subset_by_index=[k - n, k - 1])
    return unblocks(u @ (u.T @ b) if len(b) <= t * t else (b @ u) @ u.T, w.shape, t)


def align(w, heads, counts, t, rounds=25):
    """Permutes heads and MLP channels and rotates within heads, so that templates keep more. `w` as from stacked().

    Alternates, as k-means does: the nearest templates of the weights; then, layer by layer, the symmetry that brings
    the weights closest to what the templates compose. Both steps raise the energy kept. Starts from agreement with
    the mean over layers. Returns the weights and the permutation and rotations of each layer (for the biases).
    """
    w = {k: v.copy() for k, v in w.items()}
    depth, d = len(w["proj"]), w["proj"].shape[1]
    r = d // heads
    moves = [dict(p=np.arange(w["fc1"].shape[1]), h=np.arange(heads), rq=[np.eye(r)] * heads, rv=[np.eye(r)] * heads)
             for _ in range(depth)]  # fmt: skip
    history = []
    for i in range(rounds):
        if i < 5:  # towards the mean of the layers, without the one in question
            goal = {k: (v.sum(0) - v) for k, v in w.items()}
        else:
            goal = {k: nearest(v, counts[k], t) for k, v in w.items()}
            history.append(sum((g**2).sum() for g in goal.values()) / sum((v**2).sum() for v in w.values()))
        for l in range(depth):
            g = {k: v[l] for k, v in goal.items()} if i >= 5 else {k: v.sum(0) - v[l] for k, v in w.items()}
            gain = g["fc1"] @ w["fc1"][l].T + g["fc2"].T @ w["fc2"][l]
            _, p = linear_sum_assignment(gain, maximize=True)
            w["fc1"][l], w["fc2"][l] = w["fc1"][l][p], w["fc2"][l][:, p]
            moves[l]["p"] = moves[l]["p"][p]
            q, k, v = w["qkv"][l].reshape(3, heads, r, d)
            gq, gk, gv = g["qkv"].reshape(3, heads, r, d)
            o, go = w["proj"][l].reshape(d, heads, r), g["proj"].reshape(d, heads, r)
            gains, rots = np.zeros((heads, heads)), {}
            for a in range(heads):
                for b in range(heads):
                    both = []
                    for m in (gq[a] @ q[b].T + gk[a] @ k[b].T, gv[a] @ v[b].T + go[:, a].T @ o[:, b]):
                        x, s, y = np.linalg.svd(m)
                        gains[a, b] += s.sum()
                        both.append(x @ y)
                    rots[a, b] = both
            _, h = linear_sum_assignment(gains, maximize=True)
            rq, rv = ([rots[a, h[a]][j] for a in range(heads)] for j in (0, 1))
            turn = lambda rot, m: np.stack([rot[a] @ m[h[a]] for a in range(heads)]).reshape(d, d)
            w["qkv"][l] = np.concatenate([turn(rq, q), turn(rq, k), turn(rv, v)])
            w["proj"][l] = np.stack([o[:, h[a]] @ rv[a].T for a in range(heads)], 1).reshape(d, d)
            moves[l]["rq"] = [rq[a] @ moves[l]["rq"][h[a]] for a in range(heads)]
            moves[l]["rv"] = [rv[a] @ moves[l]["rv"][h[a]] for a in range(heads)]
            moves[l]["h"] = moves[l]["h"][h]
        if len(history) > 3 and history[-1] - history[-2] < 2e-5:
            break
    return w, moves


def aligned(net, counts, t=None, rounds=25):
    """The same function, its layers aligned."""
    heads, r, d = net["layers"][0]["wq"].shape
    w, moves = align(stacked(net), heads, counts, t or d, rounds)
    out = unstacked(net, w)
    for l, m in zip(out["layers"], moves):
        l["b1"] = l["b1"][m["p"]]
        for x, rot in (("bq", m["rq"]), ("bk", m["rq"]), ("bv", m["rv"])):
            l[x] = np.stack([rot[a] @ l[x][m["h"][a]] for a in range(heads)]).astype(F)
    return out


# Energy


def kept(w, counts, t):
    """The share of the sum of squares that templates keep: by part, by layer, and in total."""
    near = {k: nearest(v, counts[k], t) for k, v in w.items()}
    square = lambda v: (v**2).sum((1, 2))
    parts = {k: float((near[k] ** 2).sum() / (v**2).sum()) for k, v in w.items()}
    per_layer = sum(square(near[k]) for k in w) / sum(square(v) for v in w.values())
    total = sum((near[k] ** 2).sum() for k in w) / sum((v**2).sum() for v in w.values())
    mean = sum(parts[k] * w[k][0].size for k in w) / sum(w[k][0].size for k in w)
    return dict(parts=parts, layers=[round(float(x), 4) for x in per_layer], total=float(total), mean=float(mean))


def low_rank(w, share):
    """The same of truncated SVD of every matrix at this share of the stored values."""
    near = {k: np.stack([svd_rank(m, rank_at(m.shape, share)) for m in v]) for k, v in w.items()}
    parts = {k: float((near[k] ** 2).sum() / (v**2).sum()) for k, v in w.items()}
    total = sum((near[k] ** 2).sum() for k in w) / sum((v**2).sum() for v in w.values())
    mean = sum(parts[k] * w[k][0].size for k in w) / sum(w[k][0].size for k in w)
    return dict(parts=parts, total=float(total), mean=float(mean))


def rank_at(shape, share):
    return int(share * shape[0] * shape[1] / (shape[0] + shape[1]) + 0.5)


def svd_rank(m, r):
    u, s, v = np.linalg.svd(m, full_matrices=False)
    return (u[:, :r] * s[:r]) @ v[:r]


def noise_like(w, rng, spectrum=False):
    """Normal numbers of the same norm matrix by matrix; or random singular vectors with the same singular values."""
    out = {}
    for k, v in w.items():
        z = rng.standard_normal(v.shape)
        if spectrum:
            for i in range(len(v)):
                pieces = 3 if k == "qkv" else 1  # q, k and v are matrices of their own
                made = []
                for m, n in zip(np.split(v[i], pieces), np.split(z[i], pieces)):
                    a, _, b = np.linalg.svd(n, full_matrices=False)
                    made.append((a * np.linalg.svd(m, compute_uv=False)) @ b)
                z[i] = np.concatenate(made)
        out[k] = z * np.sqrt((v**2).sum((1, 2), keepdims=True) / (z**2).sum((1, 2), keepdims=True))
    return out


def energy(name, w, heads, seeds, factors, base, more=()):
    """Rows for every number of templates. `more`: other weights by name, such as those of the start."""
    rows, d = [], w["proj"].shape[1]
    for factor in factors:
        counts = {k: n * factor for k, n in base.items()}
        share = sum(counts.values()) * d * d / sum(v.size for v in w.values())
        row = lambda kind, seed, r: rows.append(dict(study="energy", model=name, templates=sum(counts.values()),
                                                     share=share, kind=kind, seed=seed, **r))  # fmt: skip
        candidates = [("network", None, w), *((k, None, v) for k, v in more)]
        for seed in range(seeds):
            candidates.append(("noise", seed, noise_like(w, np.random.default_rng(seed))))
            candidates.append(("noise with its spectrum", seed, noise_like(w, np.random.default_rng(seed), True)))
        for kind, seed, v in candidates:
            row(kind, seed, kept(v, counts, d))
            start = time.time()
            v, _ = align(v, heads, counts, d)
            row(kind + ", aligned", seed, kept(v, counts, d))
            print(name, sum(counts.values()), kind, seed, f"{rows[-2]['mean']:.4f} -> {rows[-1]['mean']:.4f},",
                  f"by energy {rows[-2]['total']:.4f} -> {rows[-1]['total']:.4f}, {time.time() - start:.0f} s", flush=True)  # fmt: skip
        row("low rank", None, low_rank(w, share))
        print(name, "low rank", rows[-1]["mean"], rows[-1]["total"], flush=True)
    return rows


def bert(path):
    """The composed weights of a BERT, by part."""
    p = load_file(path)
    prefix = next(k for k in p if k.endswith("encoder.layer.0.output.dense.weight"))[: -len("0.output.dense.weight")]
    depth = 1 + max(int(k[len(prefix) :].split(".")[0]) for k in p if k.startswith(prefix))
    get = lambda l, k: p[f"{prefix}{l}.{k}.weight"].astype(np.float64)
    qkv = [np.concatenate([get(l, "attention.self." + x) for x in ("query", "key", "value")]) for l in range(depth)]
    names = {"proj": "attention.output.dense", "fc1": "intermediate.dense", "fc2": "output.dense"}
    return {"qkv": np.array(qkv), **{k: np.array([get(l, v) for l in range(depth)]) for k, v in names.items()}}
