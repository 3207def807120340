"""A tiny FEMNIST in LEAF's format, for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

USERS = ("f0001_02", "f0000_14", "f0002_03")


def leaf_split(users: tuple[str, ...], per_user: int, seed: int) -> dict[str, Any]:
    """One file's content: `per_user` images of each user, pixels k / 255."""
    rng = np.random.default_rng(seed)
    pixels = {user: rng.integers(0, 256, (per_user, 784)) for user in users}
    labels = {user: rng.integers(0, 62, per_user) for user in users}
    return {
        "users": list(users),
        "num_samples": [per_user] * len(users),
        "user_data": {user: {"x": (pixels[user] / 255).tolist(), "y": labels[user].tolist()} for user in users},
    }


def write_leaf(folder: Path) -> None:
    """Two training files and one test file; users are not sorted, as LEAF leaves them."""
    for name, content in (
        ("train/all_data_0_niid_05_keep_0_train_9.json", leaf_split(USERS[:2], 4, 0)),
        ("train/all_data_1_niid_05_keep_0_train_9.json", leaf_split(USERS[2:], 4, 1)),
        ("test/all_data_0_niid_05_keep_0_test_9.json", leaf_split(USERS, 2, 2)),
    ):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content))
