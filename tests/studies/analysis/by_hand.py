"""The output of TanhNet, computed by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np


def tensors(vector: np.ndarray, layout: Any) -> dict[str, np.ndarray]:
    """Its tensors in float64; dense layers are stored row by row."""
    return {
        slot.name: vector[slot.offset : slot.offset + slot.size].astype(np.float64).reshape(tuple(slot.shape))
        for slot in layout
    }


def forward(vector: np.ndarray, layout: Any, x: np.ndarray) -> np.ndarray:
    """The logits, in evaluation mode."""
    held = tensors(vector, layout)
    for name in ("first", "second"):
        x = np.tanh(x @ held[f"{name}.weight"].T + held[f"{name}.bias"])
    logits: np.ndarray = x @ held["read_out.weight"].T + held["read_out.bias"]
    return logits
