"""GPT in PyTorch, eager, that generates with a cache of keys and values: for `bench_generation.py`.

    python tests/bench/gpt_torch.py WEIGHTS.npz LAYERS HEADS CONTEXT THREADS

Reads lines from standard input: `logits` answers with the logits of the context's greedy text as
JSON, `N` generates N tokens and answers with the seconds, `prompt N` answers with the seconds to
the first token after a prompt of N tokens. Weights have the names of the configs.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping

import numpy as np
import torch
from torch import nn
from torch.nn import functional


def linear(weights: Mapping[str, torch.Tensor], name: str) -> nn.Linear:
    """Return the layer with mxrun's weights."""
    weight, bias = weights[f"{name}_weight"], weights[f"{name}_bias"]
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    layer.weight, layer.bias = nn.Parameter(weight), nn.Parameter(bias)
    return layer


def norm(weights: Mapping[str, torch.Tensor], name: str) -> nn.LayerNorm:
    """Return the layer with mxrun's weights."""
    gamma, beta = weights[f"{name}_gamma"], weights[f"{name}_beta"]
    layer = nn.LayerNorm(len(gamma))
    layer.weight, layer.bias = nn.Parameter(gamma), nn.Parameter(beta)
    return layer


class Block(nn.Module):
    """Transformer block that stores the keys and values of a text in tensors made beforehand."""

    def __init__(
        self, weights: Mapping[str, torch.Tensor], name: str, heads: int, context: int
    ) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = norm(weights, f"{name}/norm1"), norm(weights, f"{name}/norm2")
        self.qkv = linear(weights, f"{name}/qkv")
        self.projection = linear(weights, f"{name}/projection")
        self.up, self.down = linear(weights, f"{name}/up"), linear(weights, f"{name}/down")
        size = self.projection.in_features // heads
        self.keys = torch.zeros(1, heads, context, size)
        self.values = torch.zeros(1, heads, context, size)

    def forward(self, x: torch.Tensor, present: int) -> torch.Tensor:
        """Return the output at one position, or at the first ones."""
        count = x.shape[1]
        query, key, value = self.qkv(self.norm1(x)).view(1, count, 3, self.heads, -1).unbind(2)
        end = present + count
        self.keys[:, :, present:end] = key.transpose(1, 2)
        self.values[:, :, present:end] = value.transpose(1, 2)
        mixed = functional.scaled_dot_product_attention(
            query.transpose(1, 2),
            self.keys[:, :, :end],
            self.values[:, :, :end],
            is_causal=count > 1,
        )
        x = x + self.projection(mixed.transpose(1, 2).reshape(1, count, -1))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """The network of mxrun's config gpt_shakespeare."""

    def __init__(
        self, weights: Mapping[str, torch.Tensor], layers: int, heads: int, context: int
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding.from_pretrained(weights["embed_weight"])
        self.position = nn.Parameter(weights["position_weight"])
        blocks = (Block(weights, f"block{i + 1}", heads, context) for i in range(layers))
        self.blocks = nn.ModuleList(blocks)
        self.norm, self.head = norm(weights, "norm"), linear(weights, "head")

    def forward(self, token: torch.Tensor, present: int) -> torch.Tensor:
        """Return the logits [1, 1, tokens] after one token, or after the first ones."""
        x = self.embed(token) + self.position[present : present + token.shape[1]]
        for block in self.blocks:
            x = block(x, present)
        return self.head(self.norm(x[:, -1:]))


def generate(model: Gpt, count: int) -> None:
    """Generate `count` tokens after token 0, drawn with their probabilities."""
    token = torch.zeros(1, 1, dtype=torch.long)
    for present in range(count):
        token = torch.multinomial(functional.softmax(model(token, present)[:, -1], -1), 1)


def first_token(model: Gpt, ids: torch.Tensor) -> int:
    """Return the token drawn after a prompt [1, positions]."""
    probabilities = functional.softmax(model(ids, 0)[:, -1], -1)
    return int(torch.multinomial(probabilities, 1))


def greedy_logits(model: Gpt, count: int) -> list[list[float]]:
    """Return the logits of each position of the greedy text after token 0."""
    token, found = torch.zeros(1, 1, dtype=torch.long), []
    for present in range(count):
        logits = model(token, present)[:, -1]
        found.append(logits[0].tolist())
        token = logits.argmax(-1, keepdim=True)
    return found


def main() -> None:
    """Answer each line of standard input."""
    path, (layers, heads, context, threads) = sys.argv[1], map(int, sys.argv[2:])
    torch.set_num_threads(threads)
    with np.load(path) as arrays:
        weights = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    model = Gpt(weights, layers, heads, context).eval()
    with torch.inference_mode():
        for line in sys.stdin:
            if line.strip() == "logits":
                answer: object = greedy_logits(model, context - 1)
            else:
                ids = torch.arange(int(line.split()[-1]))[None] % model.embed.num_embeddings
                started = time.perf_counter()
                if line.startswith("prompt"):
                    first_token(model, ids)
                else:
                    generate(model, int(line))
                answer = time.perf_counter() - started
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
