#!/usr/bin/env python3
"""PyTorch's training step of a DeiT on a GPU: bf16 autocast, flash attention, fused AdamW.

    python pytorch_step.py --width 384 --heads 6 --batch 128 [--image 224] [--patch 16] [--compile] [--steps 20]

Prints one JSON object: median milliseconds of a step, and the most memory reserved. The model is that of
`wave speed`: pre-norm blocks, class token, head of 1000. Needs torch with CUDA, nothing else.
"""
import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, n, d = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(b, n, 3, self.heads, d // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        o = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d)
        x = x + self.proj(o)
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Deit(nn.Module):
    def __init__(self, width, heads, depth, image, patch):
        super().__init__()
        self.patch = nn.Conv2d(3, width, patch, patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        tokens = 1 + (image // patch) ** 2
        self.position = nn.Parameter(torch.randn(1, tokens, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 1000)

    def forward(self, images):
        x = self.patch(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, required=True)
    parser.add_argument("--heads", type=int, required=True)
    parser.add_argument("--depth", type=int, default=12)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--patch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Deit(args.width, args.heads, args.depth, args.image, args.patch).cuda()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05, fused=True)
    run = torch.compile(model) if args.compile else model
    images = torch.randn(args.batch, 3, args.image, args.image, device="cuda")
    labels = torch.arange(args.batch, device="cuda") % 1000
    seconds = []
    for step in range(5 + args.steps):
        torch.cuda.synchronize()
        began = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(run(images), labels)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        loss.item()
        if step >= 5:
            seconds.append(time.perf_counter() - began)
    memory = torch.cuda.max_memory_reserved() / 2**20
    print(json.dumps({"ms": 1e3 * statistics.median(seconds), "mib": memory}))


main()
