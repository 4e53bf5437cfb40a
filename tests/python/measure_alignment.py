"""Whether alignment of a trained transformer's free symmetries helps weight templates, and what it is worth as pruning.

    wave init mimetic --data fashion-mnist --depth 12 --width 192 --heads 3 --patch 7 --out init
    wave finetune init --data fashion-mnist --epochs 5 --lr 1e-3 --crop-padding 2 --flip true --out trained
    python tests/python/measure_alignment.py trained --init init --out rows.json

The network is free: no templates took part in its training. Four studies, each of which may be named alone:
energy (what templates keep of the weights, before and after alignment, beside noise), storage (accuracy over
stored values), sizes (accuracy at fewer multiply-adds, beside pruning) and invariance (logits before and after).
Labels are used to test, and by nothing else. The study text, asked for by name, is the first for the weights of a
BERT in safetensors (--text). Needs numpy, scipy, safetensors and the IDX files of Fashion-MNIST. Set
OMP_NUM_THREADS=1 on a busy machine: it is many times faster there. Rows go to --out study by study.
"""

import argparse
import copy
import gzip
import io
import json
import pathlib
import subprocess
import tarfile
import tempfile
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


def pixels(data, split):
    """Images from 0 to 1, (n, channels, side, side), and labels: of IDX files or tar shards of JPEG files."""
    shards = sorted(pathlib.Path(data).glob({"train": "train-*.tar", "test": "val-*.tar"}[split]))
    if shards:
        from PIL import Image

        x, y = {}, {}
        for shard in shards:
            with tarfile.open(shard) as members:
                for member in members:
                    key, kind = member.name.rsplit(".", 1)
                    content = members.extractfile(member).read()
                    if kind == "cls":
                        y[key] = int(content)
                    else:
                        x[key] = np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).transpose(2, 0, 1)
        order = np.random.default_rng(0).permutation(list(y))  # shards may be sorted by class
        return np.stack([x[key] for key in order]).astype(F) / 255, np.array([y[key] for key in order])
    name = {"train": "train", "test": "t10k"}[split]
    with gzip.open(pathlib.Path(data) / f"{name}-images-idx3-ubyte.gz") as f:
        x = np.frombuffer(f.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(pathlib.Path(data) / f"{name}-labels-idx1-ubyte.gz") as f:
        y = np.frombuffer(f.read(), np.uint8, offset=8)
    return x.astype(F) / 255, y


def images(data, split, config):
    """Patches of all images, (n, tokens, pixels), and labels."""
    x, y = pixels(data, split)
    mean, std = (np.array(config["pretrained_cfg"][k], F)[:, None, None] for k in ("mean", "std"))
    x = (x - mean) / std
    p = config["model_args"]["patch_size"]
    n, channels, side, _ = x.shape
    g = side // p
    x = x.reshape(n, channels, g, p, g, p).transpose(0, 2, 4, 1, 3, 5)
    return np.ascontiguousarray(x.reshape(n, g * g, channels * p * p)), y


def norm(x):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(EPS))


# Phi(x) = (1 + tanh(x p(x x))) / 2, minimax on [-6, 6]: gelu's error is 3e-6, at a tenth of the time of scipy's erf.
PHI = [0.79782814, 0.036468784, -0.00012485713, -3.0581919e-05, 1.1191358e-06]


def gelu(x):
    """x Phi(x), a piece that fits into the cache at a time."""
    out = np.empty_like(x)
    flat, into = x.reshape(-1), out.reshape(-1)
    for i in range(0, flat.size, 16384):
        piece = flat[i : i + 16384]
        u = np.clip(piece, F(-6), F(6))
        s = u * u
        p = s * F(PHI[-1])
        for c in PHI[-2:0:-1]:
            p += F(c)
            p *= s
        p += F(PHI[0])
        p *= u
        np.tanh(p, out=p)
        p += F(1)
        p *= piece
        np.multiply(p, F(0.5), out=into[i : i + 16384])
    return out


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


def align(w, heads, counts, t, rounds=20):
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
        goal = None  # at first, the sum of the other layers as they now are
        if i >= 5:
            goal = {k: nearest(v, counts[k], t) for k, v in w.items()}
            history.append(sum((g**2).sum() for g in goal.values()) / sum((v**2).sum() for v in w.values()))
        for l in range(depth):
            g = {k: goal[k][l] if goal else v.sum(0) - v[l] for k, v in w.items()}
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
        if len(history) > 3 and history[-1] - history[-2] < 3e-4:
            break
    return w, moves


def aligned(net, counts, t=None, rounds=20):
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
        first = factor == factors[0]
        candidates = [("network", None, w), *((k, None, v) for k, v in more if first)]
        for seed in range(seeds if first else 1):
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


# Least squares on activations


def second(x):
    """The mean of x x' over all tokens, in f64."""
    x = x.reshape(-1, x.shape[-1])
    return (x.T @ x).astype(np.float64) / len(x)


def least_squares(x, y, w, b):
    """The (W, b) nearest to (w, b) that make W x + b nearest to y: ridge regression of what w leaves."""
    x, y = x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1])
    mx, my = x.mean(0), y.mean(0)
    x, y = x - mx, y - my
    c = second(x)
    left = (y.T @ x).astype(np.float64) / len(x) - w @ c
    c[np.diag_indices(len(c))] += RIDGE * (np.trace(c) / len(c) + 1e-12)
    w = w + cho_solve(cho_factor(c), left.T).T
    return w.astype(F), (my - w @ mx).astype(F)


def root(c):
    """C^1/2 and its inverse."""
    s, u = np.linalg.eigh(c)
    s = np.sqrt(np.maximum(s, s[-1] * 1e-6))
    return (u * s) @ u.T, (u / s) @ u.T


def nearest_rank(w, c, r):
    """The matrix of rank r nearest to w for inputs of second moment c."""
    if r >= min(w.shape):
        return w
    half, inverse = root(c)
    return svd_rank(w @ half, r) @ inverse


def by_activations(c, w, t, templates, rank):
    """What templates, with scalers by least squares for inputs of second moment c, and a rest of this rank make of w."""
    made = np.zeros_like(w)
    if templates is not None and len(templates):
        n, rows, cols = len(templates), w.shape[0] // t, w.shape[1] // t
        cb = c.reshape(cols, t, cols, t).transpose(0, 2, 1, 3)
        flat = templates.reshape(n, -1)
        gram = np.zeros((n, cols, n, cols))
        for i in range(cols):
            for j in range(cols):
                gram[:, i, :, j] = (templates @ cb[i, j]).reshape(n, -1) @ flat.T
        wc = (w @ c).reshape(rows, t, cols, t).transpose(0, 2, 1, 3).reshape(rows, cols, t * t)
        gram = gram.reshape(n * cols, -1)
        gram[np.diag_indices(len(gram))] += 1e-6 * np.trace(gram) / len(gram)
        rhs = (wc @ flat.T).transpose(0, 2, 1).reshape(rows, -1)
        s = np.linalg.solve(gram, rhs.T).T.reshape(rows, n, cols)
        made = np.einsum("anb,nij->aibj", s, templates, optimize=True).reshape(w.shape)
    return made + nearest_rank(w - made, c, rank) if rank else made


def templates_for(w, n, t, c):
    """n templates of these weights, nearest for inputs of second moment c (the mean of the layers and blocks)."""
    if n == 0:
        return None
    half, inverse = root(c)
    b = blocks(w, t).reshape(-1, t, t) @ half
    b = b.reshape(len(b), -1)
    k = len(b)
    if n >= k:
        u = np.eye(k)
    else:
        _, u = eigh(b @ b.T, subset_by_index=[k - n, k - 1])
    return (u.T @ b).reshape(-1, t, t) @ inverse


def compressed(net, calibration, counts, ranks, t=None):
    """Templates, scalers and a low-rank rest, layer by layer, with the errors of earlier layers in.

    Every matrix is first solved for the outputs of the original network given the inputs that the layers before it
    now give, then expressed. Biases by moment matching. Without counts: truncated SVD by activations.
    """
    t = t or len(net["w0"])
    _, kept_ = calibration["states"]
    inputs = {"qkv": "h1", "proj": "o", "fc1": "h2", "fc2": "f"}
    w, templates = stacked(net), {}
    for part, key in inputs.items():
        if counts[part]:
            cs = [second(k[key]) for k in kept_[1:]]
            cols = w[part].shape[2] // t
            diag = [c[i * t : (i + 1) * t, i * t : (i + 1) * t] / np.trace(c) for c in cs for i in range(cols)]
            templates[part] = templates_for(w[part], counts[part], t, np.mean(diag, 0))
    net = copy.deepcopy(net)
    x = calibration["patches"] @ net["w0"].T + net["pos"]
    d = len(net["w0"])

    def express(part, inp, out, w, b):
        w, b = least_squares(inp, out, w, b)
        flat = inp.reshape(-1, inp.shape[-1])
        made = by_activations(second(flat), w.astype(np.float64), t, templates.get(part), ranks[part]).astype(F)
        return made, (out.reshape(-1, out.shape[-1]).mean(0) - made @ flat.mean(0)).astype(F)

    for layer, goal in zip(net["layers"], kept_[1:]):
        h = norm(x)
        wf = np.concatenate([layer["w" + k].reshape(-1, d) for k in "qkv"])
        bf = np.concatenate([layer["b" + k].reshape(-1) for k in "qkv"])
        made, b = express("qkv", h, goal["h1"] @ wf.T + bf, wf, bf)
        for k, m, c in zip("qkv", np.split(made, 3), np.split(b, 3)):
            layer["w" + k], layer["b" + k] = m.reshape(layer["w" + k].shape), c.reshape(layer["b" + k].shape)
        o, _ = attend(layer, h, net["scale"])
        made, layer["bo"] = express("proj", o, goal["mid"] - x, flat_wo(layer), layer["bo"])
        layer["wo"] = made.reshape(layer["wo"].shape)
        x = x + o @ made.T + layer["bo"]
        h = norm(x)
        layer["w1"], layer["b1"] = express("fc1", h, goal["h2"] @ layer["w1"].T + layer["b1"], layer["w1"], layer["b1"])
        f = gelu(h @ layer["w1"].T + layer["b1"])
        layer["w2"], layer["b2"] = express("fc2", f, goal["x"] - x, layer["w2"], layer["b2"])
        x = x + f @ layer["w2"].T + layer["b2"]
    return net


def calibrate(net, patches):
    return dict(patches=patches, states=forward(net, patches, keep=True))


def storage(network, test, train, shares, n_calibration, seed):
    """Accuracy at full size over the share of the blocks' matrices that is stored."""
    rows, d = [], len(network["w0"])
    pick = np.random.default_rng(seed).permutation(len(train))[:n_calibration]
    base = centred(network)
    base = rotated(base, rotation(base, train[pick])[0])
    begin = time.time()
    after = aligned(base, {k: 2 * n for k, n in PARTS.items()})
    print(f"aligned in {time.time() - begin:.0f} s", flush=True)
    whole = {k: v[0].size for k, v in stacked(base).items()}
    depth = len(base["layers"])

    def add(name, share, net, seconds):
        rows.append(dict(study="storage", method=name, share=share, top1=top1(net, test), seconds=round(seconds, 1), seed=seed))
        print(rows[-1], flush=True)

    calibrations = {"as it is": (base, calibrate(base, train[pick])), "aligned": (after, calibrate(after, train[pick]))}
    add("whole network", 1, base, 0)
    for share in shares:
        ranks = {k: rank_at(v.shape[1:], share) for k, v in stacked(base).items()}
        w = {k: np.stack([svd_rank(m, ranks[k]) for m in v]) for k, v in stacked(base).items()}
        add("SVD", share, unstacked(base, w), 0)
        begin = time.time()
        none = dict.fromkeys(PARTS, 0)
        add("SVD by activations", share, compressed(base, calibrations["as it is"][1], none, ranks), time.time() - begin)
        for name, (net, calibration) in calibrations.items() if share > 0.15 else ():
            # a layer is 12 d d of the depth 12 d d: the default plan's 24 templates are two layers
            counts = {k: max(1, round(share * depth * n / 2)) for k, n in PARTS.items()}
            if share <= 0.5:
                factors = {k: nearest(v, counts[k], d) for k, v in stacked(net).items()}
                add(f"templates, factorised, {name}", share, unstacked(net, factors), 0)
            begin = time.time()
            add(f"templates, {name}", share, compressed(net, calibration, counts, none), time.time() - begin)
            counts = {k: max(1, round(share / 2 * depth * n / 2)) for k, n in PARTS.items()}
            left = {k: (share * depth * whole[k] - counts[k] * d * d) / depth for k in PARTS}
            ranks_left = {k: int(left[k] / sum(stacked(net)[k].shape[1:]) + 0.5) for k in PARTS}
            begin = time.time()
            mixed = compressed(net, calibration, counts, ranks_left)
            add(f"half templates, half rest, {name}", share, mixed, time.time() - begin)
    return rows


# Sizes


def macs(net):
    tokens, d = net["pos"].shape
    total = net["w0"].size * tokens + net["head"].size
    for l in net["layers"]:
        qk, v = l["wq"][..., 0].size, l["wv"][..., 0].size
        total += tokens * (d * (2 * qk + 2 * v) + tokens * (qk + v) + 2 * l["w1"].size)
    return total


def norm_back(dy, x):
    xhat = norm(x)
    x = x - x.mean(-1, keepdims=True)
    sd = np.sqrt((x * x).mean(-1, keepdims=True) + F(EPS))
    return (dy - dy.mean(-1, keepdims=True) - xhat * (dy * xhat).mean(-1, keepdims=True)) / sd


def taylor(net, patches, rng):
    """Squares of the derivative of the loss by a mask on every channel, summed over images: the first-order Taylor score.

    The label of an image is drawn from what the network says of it, so that none is needed.
    """
    scores = [dict(mlp=0, qk=0, v=0) for _ in net["layers"]]
    for i in range(0, len(patches), 50):
        batch = patches[i : i + 50]
        x = batch @ net["w0"].T + net["pos"]
        tape = []
        for l in net["layers"]:
            h1 = norm(x)
            q, k, v = (heads_of(h1, l["w" + z], l["b" + z]) for z in "qkv")
            o, a = attend(l, h1, net["scale"])
            mid = x + o @ flat_wo(l).T + l["bo"]
            pre = norm(mid) @ l["w1"].T + l["b1"]
            f = gelu(pre)
            tape.append((x, q, k, v, o, a, mid, pre, f))
            x = mid + f @ l["w2"].T + l["b2"]
        pool = x.mean(1)
        p = norm(pool) @ net["head"].T + net["hb"]
        p = np.exp(p - p.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        drawn = (p.cumsum(1) > rng.random((len(p), 1))).argmax(1)
        g = p - np.eye(p.shape[1], dtype=F)[drawn]
        dx = np.repeat(norm_back(g @ net["head"], pool)[:, None] / F(x.shape[1]), x.shape[1], 1)
        for l, s, (x, q, k, v, o, a, mid, pre, f) in zip(net["layers"][::-1], scores[::-1], tape[::-1]):
            df = dx @ l["w2"]
            s["mlp"] = s["mlp"] + ((df * f).sum(1) ** 2).sum(0)
            phi = np.where(np.abs(pre) > 1e-3, f / np.where(pre == 0, 1, pre), F(0.5))
            dpre = df * (phi + pre * np.exp(pre * pre * F(-0.5)) * F(0.3989423))
            dx = dx + norm_back(dpre @ l["w1"], mid)
            do = dx @ flat_wo(l)
            heads, r = l["wv"].shape[:2]
            s["v"] = s["v"] + ((do * o).sum(1) ** 2).sum(0).reshape(heads, r)
            do = do.reshape(*do.shape[:2], heads, r).transpose(0, 2, 1, 3)
            da, dv = do @ v.transpose(0, 1, 3, 2), a.transpose(0, 1, 3, 2) @ do
            ds = a * (da - (da * a).sum(-1, keepdims=True)) * F(net["scale"])
            dq, dk = ds @ k, ds.transpose(0, 1, 3, 2) @ q
            s["qk"] = s["qk"] + ((dq * q).sum(2) ** 2).sum(0)
            s["head"] = s.get("head", 0) + ((do * (a @ v)).sum((2, 3)) ** 2).sum(0)
            dh = sum(np.einsum("nhtr,hrd->ntd", dz, l["w" + z], optimize=True) for z, dz in zip("qkv", (dq, dk, dv)))
            dx = dx + norm_back(dh, x)
    return scores


def magnitude(net):
    size = lambda w: np.sqrt((w.astype(np.float64) ** 2).sum(-1))
    scores = []
    for l in net["layers"]:
        v = size(l["wv"]) * np.sqrt((l["wo"].astype(np.float64) ** 2).sum(0))
        scores.append(dict(mlp=size(l["w1"]) * size(l["w2"].T), qk=size(l["wq"]) * size(l["wk"]), v=v, head=(v**2).sum(-1)))
    return scores


def pruned(net, scores, share, how):
    """The channels of the highest scores. how: "uniform" (as many in every layer and head), "global", or "heads"."""
    net = copy.deepcopy(net)
    line = {k: np.quantile(np.concatenate([s[k].ravel() for s in scores]), 1 - share) for k in scores[0]}
    for l, s in zip(net["layers"], scores):
        m, (heads, r) = len(l["w1"]), l["wq"].shape[:2]
        best = lambda x, n: np.sort(np.argsort(-x)[:n])
        n_mlp = round(share * m) if how == "uniform" else max(1, int((s["mlp"] >= line["mlp"]).sum()))
        keep = best(s["mlp"], n_mlp)
        l["w1"], l["b1"], l["w2"] = l["w1"][keep], l["b1"][keep], l["w2"][:, keep]
        if how == "heads":
            h = best(s["head"], max(1, int((s["head"] >= line["head"]).sum())))
            for x in "qkv":
                l["w" + x], l["b" + x] = l["w" + x][h], l["b" + x][h]
            l["wo"] = l["wo"][:, h]
            continue
        for group, names in (("qk", "qk"), ("v", "v")):
            # as many in every head of a layer, so that they stack; of global scores, as many as the layer wins
            n = round(share * r) if how == "uniform" else max(1, round((s[group] >= line[group]).sum() / heads))
            keeps = [best(s[group][a], n) for a in range(heads)]
            for x in names:
                l["w" + x] = np.stack([l["w" + x][a][keeps[a]] for a in range(heads)])
                l["b" + x] = np.stack([l["b" + x][a][keeps[a]] for a in range(heads)])
            if group == "v":
                l["wo"] = np.stack([l["wo"][:, a, keeps[a]] for a in range(heads)], 1)
    return net


def surgeon(f, w):
    """The inputs of w from the least needed to the most: one goes at a time, and the rest take over by least squares."""
    f = f.reshape(-1, f.shape[-1])
    h = second(f - f.mean(0))
    h[np.diag_indices(len(h))] += 1e-3 * np.trace(h) / len(h)
    inverse, w, order = np.linalg.inv(h), w.astype(np.float64).copy(), []
    gone = np.zeros(len(h))
    for _ in range(len(h)):
        j = int(np.argmin((w**2).sum(0) / np.maximum(np.diag(inverse), 1e-30) + gone))
        column = inverse[:, j].copy()
        w -= np.outer(w[:, j], column / column[j])
        inverse -= np.outer(column, column / column[j])
        gone[j] = np.inf
        order.append(j)
    return np.array(order)


def thinned(net, calibration, r, m):
    """Every layer with m MLP channels, and heads of r channels: the leading ones of scores and of outputs.

    Queries and keys: the nearest scores of rank r for the inputs seen. Values and projections: the nearest outputs.
    r and m may be lists of a number for each layer.
    """
    net = copy.deepcopy(net)
    for i, (l, k) in enumerate(zip(net["layers"], calibration["states"][1][1:])):
        ri, mi = (x[i] if isinstance(x, list) else x for x in (r, m))
        heads, width, d = l["wq"].shape
        h = k["h1"].reshape(-1, d)
        half, inverse = root(second(np.concatenate([h, np.ones((len(h), 1), F)], 1)))
        o = k["o"].reshape(-1, heads, width)
        made = {x: [] for x in ("wq", "bq", "wk", "bk", "wv", "bv", "wo")}
        for a in range(heads):
            if ri < width:
                q, p = (np.concatenate([l["w" + x][a], l["b" + x][a][:, None]], 1).astype(np.float64) for x in "qk")
                u, s, v = np.linalg.svd((q @ half).T @ (p @ half))
                q, p = (u[:, :ri] * s[:ri] ** 0.5).T @ inverse, (v[:ri].T * s[:ri] ** 0.5).T @ inverse
                ch, ci = root(second(o[:, a]))
                u = np.linalg.svd(ch @ l["wo"][:, a].T.astype(np.float64), full_matrices=False)[0][:, :ri]
                wv, bv, wo = u.T @ ci @ l["wv"][a], u.T @ ci @ l["bv"][a], l["wo"][:, a] @ ch @ u
            else:
                q, p = (np.concatenate([l["w" + x][a], l["b" + x][a][:, None]], 1) for x in "qk")
                wv, bv, wo = l["wv"][a], l["bv"][a], l["wo"][:, a]
            for name, value in zip(made, (q[:, :-1], q[:, -1], p[:, :-1], p[:, -1], wv, bv, wo)):
                made[name].append(value)
        l.update({name: np.stack(v, 1 if name == "wo" else 0).astype(F) for name, v in made.items()})
        if mi < len(l["w1"]):
            keep = np.sort(calibration["orders"][i][-mi:])
            l["w1"], l["b1"], l["w2"] = l["w1"][keep], l["b1"][keep], l["w2"][:, keep]
    return net


def narrowed(net, calibration, d):
    """The stream in its leading directions: (network, R), R the map from the old stream to the new one.

    The new one has mean 0 too: R's rows are orthogonal to 1, as in rotation().
    """
    _, p = rotation(net, calibration["patches"][:250])
    e = np.eye(d)[0] - d**-0.5
    b = np.eye(d) - 2 * np.outer(e, e) / (e @ e)
    r = (b[:, 1:] @ p[:, 1:d].T).astype(F)  # (d, old d)
    net = copy.deepcopy(net)
    gain = F((len(net["w0"]) / d) ** 0.5)
    net["w0"], net["pos"], net["head"] = r @ net["w0"], net["pos"] @ r.T, net["head"] @ r.T * gain
    for l in net["layers"]:
        for k in ("wq", "wk", "wv", "w1"):
            l[k] = l[k] @ r.T * gain
        l["wo"] = np.tensordot(r, l["wo"], 1)
        l["w2"], l["bo"], l["b2"] = r @ l["w2"], r @ l["bo"], r @ l["b2"]
    return net, r


def refitted(net, calibration, r=None, layers=None, reads=None):
    """What writes to the stream by least squares towards the original stream, with the errors of earlier layers in.

    Where the stream was narrowed, what reads it too: reads is the network whose stream is still whole. layers says
    which layers of the original these are: the last before a gap takes over what the gap did.
    """
    net = copy.deepcopy(net)
    states = calibration["states"][1]
    to = (lambda x: x) if r is None else (lambda x: x @ r.T)
    layers = list(range(len(net["layers"]))) if layers is None else layers
    x = calibration["patches"] @ net["w0"].T + net["pos"]
    d = x.shape[-1]
    for i, l in enumerate(net["layers"]):
        goal = states[1 + layers[i]]
        after = states[layers[i + 1] if i + 1 < len(layers) else len(states) - 1]["x"]
        h = norm(x)
        if reads is not None:
            for k in "qkv":
                old = reads["layers"][i]["w" + k]
                flat = old.reshape(-1, old.shape[-1])
                y = goal["h1"] @ flat.T + reads["layers"][i]["b" + k].reshape(-1)
                w, b = least_squares(h, y, l["w" + k].reshape(-1, d), l["b" + k].reshape(-1))
                l["w" + k], l["b" + k] = w.reshape(l["w" + k].shape), b.reshape(l["b" + k].shape)
        o, _ = attend(l, h, net["scale"])
        w, l["bo"] = least_squares(o, to(goal["mid"]) - x, flat_wo(l), l["bo"])
        l["wo"] = w.reshape(l["wo"].shape)
        x = x + o @ w.T + l["bo"]
        h = norm(x)
        if reads is not None:
            y = goal["h2"] @ reads["layers"][i]["w1"].T + reads["layers"][i]["b1"]
            l["w1"], l["b1"] = least_squares(h, y, l["w1"], l["b1"])
        f = gelu(h @ l["w1"].T + l["b1"])
        l["w2"], l["b2"] = least_squares(f, to(after) - x, l["w2"], l["b2"])
        x = x + f @ l["w2"].T + l["b2"]
    pool = norm(x.mean(1))
    net["head"], net["hb"] = least_squares(pool, calibration["states"][0], net["head"], net["hb"])
    return net


def shallower(net, calibration, n):
    """The n layers that change the stream's direction most (the first always), and which they are."""
    states = calibration["states"][1]
    unit = lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True)
    change = [1 - float((unit(a["x"]) * unit(b["x"])).sum(-1).mean()) for a, b in zip(states, states[1:])]
    keep = sorted([0, *sorted(range(1, len(change)), key=lambda i: -change[i])[: n - 1]])
    return {**copy.deepcopy(net), "layers": [copy.deepcopy(net["layers"][i]) for i in keep]}, keep


def by_wave(arguments, depth, width, heads, seed):
    """What `wave init prune` makes of the network."""
    with tempfile.TemporaryDirectory() as room:
        out = pathlib.Path(room) / "pruned"
        command = [arguments.wave, "init", "prune", "--from", arguments.model, "--depth", depth, "--width", width]
        command += ["--heads", heads, "--data", arguments.data, "--train-limit", arguments.images, "--seed", seed]
        subprocess.run([*map(str, command), "--quiet", "--threads", "1", "--out", str(out)], check=True)
        return centred(load(out, heads))


def sizes(network, test, train, arguments, seed, short=False):
    """Accuracy at fewer multiply-adds, without training."""
    n_calibration = arguments.images
    rows = []
    rng = np.random.default_rng(seed)
    patches = train[rng.permutation(len(train))[:n_calibration]]
    net = centred(network)
    begin = time.time()
    calibration = calibrate(net, patches)
    basis = time.time() - begin
    states = calibration["states"][1][1:]
    calibration["orders"] = [surgeon(k["f"], l["w2"]) for k, l in zip(states, net["layers"])]
    ordered = time.time() - begin - basis
    begin = time.time()
    rival_scores = {"Taylor": taylor(net, patches, rng)}
    scored = {"Taylor": time.time() - begin, "magnitude": 0}
    rival_scores["magnitude"] = magnitude(net)
    whole, d, depth = macs(net), len(net["w0"]), len(net["layers"])
    m, (heads, r) = len(net["layers"][0]["w1"]), net["layers"][0]["wq"].shape[:2]

    def add(name, share, fit, made, seconds):
        row = dict(study="sizes", method=name, share=share, macs=macs(made) / whole, fit=fit, top1=top1(made, test))
        rows.append({**row, "seconds": round(seconds, 1), "images": n_calibration, "seed": seed})
        print(rows[-1], flush=True)

    if not short:
        add("whole network", 1, False, net, 0)
    for share in [0.5, 0.25] if short else [0.5, 0.25, 0.75]:

        def both(name, made, seconds, **fit):
            if not short or "Taylor" in name:
                add(name, share, False, made, seconds)
            begin = time.time()
            add(name, share, True, refitted(made, calibration, **fit), seconds + time.time() - begin)

        if arguments.wave:
            width = heads * round(d * share**0.5 / heads)
            begin = time.time()
            made = by_wave(arguments, depth, width, heads, seed)
            add("wave init prune: narrower", share, True, made, time.time() - begin)
            n = round(depth * share**0.5)
            width = heads * round(d * (share * depth / n) ** 0.5 / heads)
            begin = time.time()
            made = by_wave(arguments, n, width, heads, seed)
            add("wave init prune: shallower and narrower", share, True, made, time.time() - begin)
        begin = time.time() - basis - ordered
        made = thinned(net, calibration, round(share * r), round(share * m))
        both("align: heads and MLPs thinner", made, time.time() - begin)
        wins = pruned(net, rival_scores["Taylor"], share, "global")["layers"]
        begin = time.time() - basis - ordered
        made = thinned(net, calibration, [l["wv"].shape[1] for l in wins], [len(l["w1"]) for l in wins])
        both("align: thinner, as many as Taylor gives a layer", made, scored["Taylor"] + time.time() - begin)
        begin = time.time() - basis - ordered
        few = heads * round(d * share**0.5 / heads)
        thin = thinned(net, calibration, few // heads, 4 * few)
        made, to = narrowed(thin, calibration, few)
        both("align: narrower", made, time.time() - begin, r=to, reads=thin)
        n = round(share * depth)
        begin = time.time() - basis
        made, keep = shallower(net, calibration, n)
        both("align: shallower", made, time.time() - begin, layers=keep)
        n = round(share**0.5 * depth)
        begin = time.time() - basis - ordered
        left = share * depth / n
        made = thinned(net, calibration, round(left * r), round(left * m))
        keep = shallower(net, calibration, n)[1]
        made = {**made, "layers": [made["layers"][i] for i in keep]}
        both("align: shallower and thinner", made, time.time() - begin, layers=keep)
        for name, scores in rival_scores.items():
            for how in ["global", "uniform", "heads"]:
                if name == "Taylor" or not short and how != "heads":
                    both(f"{name}, {how}", pruned(net, scores, share, how), scored[name])
    return rows


def plot(rows, file):
    """Accuracy over multiply-adds, a line for each method: the mean of the seeds."""
    import matplotlib.pyplot as plt

    plt.rcParams["svg.fonttype"] = "none"
    shown = [
        ("wave init prune: narrower", True, "wave init prune"),
        ("align: heads and MLPs thinner", True, "thinner, refitted"),
        ("align: shallower", True, "shallower, refitted"),
        ("Taylor, global", True, "Taylor, refitted"),
        ("Taylor, global", False, "Taylor"),
        ("magnitude, global", False, "magnitude"),
    ]
    figure, axis = plt.subplots(figsize=(6, 4))
    for method, fit, label in shown:
        points = {}
        for row in rows:
            if row["study"] == "sizes" and (row["method"], row["fit"]) in [(method, fit), ("whole network", False)]:
                points.setdefault(row["share"], []).append(row)
        line = [[np.mean([row[k] for row in points[x]]) for k in ("macs", "top1")] for x in sorted(points)]
        axis.plot(*zip(*line), "o-", label=label)
    axis.set_xlabel("multiply-adds, share of the whole network")
    axis.set_ylabel("top-1 in %")
    axis.legend()
    figure.tight_layout()
    figure.savefig(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=pathlib.Path, help="a timm ViT with mean pooling, trained")
    parser.add_argument("--init", type=pathlib.Path, help="the start that it was trained from")
    parser.add_argument("--text", type=pathlib.Path, help="a BERT's weights")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist", type=pathlib.Path)
    parser.add_argument("--wave", help="the program, to measure `wave init prune` too")
    parser.add_argument("--heads", default=3, type=int)
    parser.add_argument("--text-heads", default=12, type=int)
    parser.add_argument("--test-limit", default=1000, type=int)
    parser.add_argument("--images", default=300, type=int, help="unlabelled images to calibrate on")
    parser.add_argument("--seeds", default=3, type=int)
    parser.add_argument("--only", default="invariance,energy,storage,sizes")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--plot", type=pathlib.Path, help="a picture of the study sizes; needs matplotlib")
    arguments = parser.parse_args()
    rows = json.loads(arguments.out.read_text()) if arguments.out.exists() else []
    studies = arguments.only.split(",")

    def write(study, more):
        rows[:] = [r for r in rows if r["study"] != study or r.get("model") not in {m.get("model") for m in more}] + more
        lines = ",\n".join(json.dumps(r) for r in rows)
        arguments.out.write_text(f"[\n{lines}\n]\n")

    config = json.loads((arguments.model / "config.json").read_text())
    net = load(arguments.model, arguments.heads)
    train, _ = images(arguments.data, "train", config)
    test = tuple(a[: arguments.test_limit] for a in images(arguments.data, "test", config))
    if "invariance" in studies:
        x, rows_ = test[0][:500], []
        logits = forward(net, x)
        made = centred(net)
        made = rotated(made, rotation(made, train[:250])[0])
        for name, other in (("centred and rotated", made), ("and aligned", aligned(made, PARTS))):
            far = float(np.abs(forward(other, x) - logits).max())
            rows_.append(dict(study="invariance", change=name, largest=far, largest_logit=float(np.abs(logits).max())))
            print(rows_[-1], flush=True)
        write("invariance", rows_)
    if "energy" in studies:
        more = [("start", stacked(centred(load(arguments.init, arguments.heads))))] if arguments.init else []
        w = stacked(centred(net))
        write("energy", energy("ViT 12 x 192", w, arguments.heads, arguments.seeds, [1, 2, 4], PARTS, more))
    if "text" in studies:
        layers = dict(qkv=3, proj=1, fc1=4, fc2=4)  # of 6 layers, the same share as the default plan's of 12
        write("energy", energy("MiniLM 6 x 384", bert(arguments.text), arguments.text_heads, 1, [1, 2], layers))
    if "storage" in studies:
        shares = [1 / 6, 0.5, 1 / 3, 0.75, 0.1, 0.05]
        write("storage", storage(net, test, train, shares, arguments.images, 0))
    if "sizes" in studies:
        more = sizes(net, test, train, arguments, 0)
        write("sizes", more)
        for seed in range(1, arguments.seeds):
            more += sizes(net, test, train, arguments, seed, short=True)
            write("sizes", more)
    if arguments.plot:
        plot(rows, arguments.plot)


if __name__ == "__main__":
    main()
