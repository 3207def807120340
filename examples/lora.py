"""LoRA: a frozen transformer whose attention and dense layers get small trained matrices, and only these travel.

    python examples/lora.py                      # a small transformer, in this process, about half a minute
    python examples/lora.py ray                  # on Ray, with bit-identical results
    python examples/lora.py ray --size 100m      # 100 million frozen parameters, once on every machine
    python examples/lora.py ray --size 100m --full      # beside it: everything trains and travels

Frozen parameters (`requires_grad = False`) are constants of the run: workers map them from shared memory, and rounds,
sums and checkpoints hold the adapters only. Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import nn

import rayfl

SIZES: dict[str, dict[str, int]] = {
    "small": {"width": 32, "depth": 2, "heads": 4},
    "100m": {"width": 896, "depth": 10, "heads": 14},
}
WORDS, LENGTH, TOPICS = 200, 16, 4
ALPHA = 16


def sentences(writers: int = 8, each: int = 40) -> dict[str, Any]:
    """Sentences of word numbers [n, LENGTH]; a topic prefers its own words, and writers have topics of their own."""
    rng = np.random.default_rng(0)

    def drawn(topics: np.ndarray) -> np.ndarray:
        words = rng.integers(WORDS, size=(len(topics), LENGTH))
        own = topics[:, None] + TOPICS * rng.integers(WORDS // TOPICS, size=words.shape)
        return np.where(rng.random(words.shape) < 0.4, own, words)

    owner = np.repeat(np.arange(writers), each)
    topics = np.where(rng.random(len(owner)) < 0.5, owner % TOPICS, rng.integers(TOPICS, size=len(owner)))
    test = rng.integers(TOPICS, size=200)
    return {"train": (drawn(topics), topics, owner), "test": (drawn(test), test)}


class LoRA(nn.Module):
    """A frozen linear layer plus a trained product of two narrow matrices, which is zero at first."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base_layer, self.scale = base, ALPHA / rank
        self.lora_A = nn.Linear(base.in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.base_layer(x) + self.scale * self.lora_B(self.lora_A(x))
        return y


def with_lora(network: nn.Module, rank: int) -> nn.Module:
    """Freezes a network and gives its linear layers, except the head, adapters: those of `peft` if it is installed."""
    network.requires_grad_(False)
    linear = {path: layer for path, layer in network.named_modules() if isinstance(layer, nn.Linear) and path != "head"}
    if find_spec("peft"):
        from peft import LoraConfig, inject_adapter_in_model

        inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=ALPHA, target_modules=[*linear]), network)
    else:
        for path, layer in linear.items():
            network.set_submodule(path, LoRA(layer, rank))
    network.get_submodule("head").requires_grad_(True)
    return network


class Block(nn.Module):
    """Attention and a dense layer, each after a layer norm and with a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_dense = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.dense = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        split = self.qkv(self.before_attention(x)).unflatten(2, (3, self.heads, -1)).transpose(1, 3)
        attended = nn.functional.scaled_dot_product_attention(*split.unbind(2))
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        y: torch.Tensor = x + self.dense(self.before_dense(x))
        return y


class Transformer(nn.Module):
    """Reads a sentence and names its topic; `rank = 0` trains all of it. Load your own base here."""

    def __init__(self, num_classes: int, width: int, depth: int, heads: int, rank: int = 4) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Parameter(0.02 * torch.randn(LENGTH, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, num_classes)
        if rank:
            with_lora(self, rank)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.norm(self.blocks(self.words(x) + self.places)).mean(1))
        return logits


def main(backend: str = "inline", *options: str) -> rayfl.Result:
    """Runs the scenario; overrides such as `seed=1` replace its values."""
    size = options[options.index("--size") + 1] if "--size" in options else "small"
    rank = 0 if "--full" in options else 4
    local = {"optimizer": "adam", "lr": 0.01, "steps": 4} | ({} if size == "small" else {"lr": 0.001, "batch_size": 8})
    scenario: dict[str, Any] = {
        "name": "lora",
        "title": f"A transformer ({size}), " + ("all of it" if rank == 0 else f"LoRA of rank {rank}"),
        "data": {"name": "lora:sentences"},
        "model": {"name": "lora:Transformer", "rank": rank} | SIZES[size],
        "phases": [{"name": "tuning", "rounds": 5, "cohort": 4, "local": local}],
        "evaluation": {"every": 1 if size == "small" else 5, "batch_size": 32},
        "resources": {"hosts": 2, "cpus_per_host": 1},
    }
    overrides = [option for option in options if "=" in option]
    return rayfl.run(scenario, overrides=overrides, backend="ray" if backend == "ray" else "inline")


if __name__ == "__main__":
    main(*sys.argv[1:])
