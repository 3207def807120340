"""Slopes of resources compared with known lines, and a short run in this process."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from pydantic import PrivateAttr
from rich.console import Console

import rayfl
from rayfl.callbacks.callback import Callback, RunSoFar
from tests.callbacks.scene import tables
from tools.soak import MIB, slopes

ROUNDS = 80


def samples(memory: np.ndarray) -> list[dict[str, Any]]:
    """Samples of a phase whose first half grows steeply, as during start-up."""
    rounds = np.arange(0, 4000, 20)
    early = np.maximum(0, 2000 - rounds) * 1e4
    return [
        {
            "phase": "relay",
            "round": int(round),
            "memory": {"host": float(used)},
            "handles": {"host": 50},
            "store": {"object store": 0},
        }
        for round, used in zip(rounds, memory[: len(rounds)] - early, strict=True)
    ]


def test_a_slope_is_that_of_the_second_half_per_thousand_rounds() -> None:
    noise = np.random.default_rng(0).normal(scale=0.1 * MIB, size=200)
    rounds = np.arange(0, 4000, 20)
    flat, steep = (slopes(samples(400 * MIB + noise + per_round * rounds))[0] for per_round in (0, 0.002 * MIB))
    assert abs(flat.slope) <= 2 * flat.error < 0.1 * MIB
    assert abs(steep.slope - 2 * MIB) <= 2 * steep.error
    assert (flat.too_steep, steep.too_steep) == (False, True)
    handles = next(slope for slope in slopes(samples(np.zeros(200))) if slope.what == "handles")
    assert (handles.level, handles.slope, handles.too_steep) == (50, 0, False)


class Measures(Callback):
    """Records Python memory and open file handles by round."""

    _used: dict[int, tuple[int, int]] = PrivateAttr(default_factory=dict)

    def on_round(self, run: RunSoFar) -> None:
        assert run.round is not None
        if run.round.round % 5 == 0:
            gc.collect()
            self._used[run.round.round] = tracemalloc.get_traced_memory()[0], psutil.Process().num_fds()


@pytest.mark.slow
@pytest.mark.parametrize(
    "phase",
    [{"schedule": "relay", "cohort": 1}, {"algorithm": "scaffold", "cohort": 2}],
    ids=["relay", "parallel"],
)
def test_memory_and_handles_stay_flat_over_rounds(phase: dict[str, Any], tmp_path: Path) -> None:
    measures = Measures(name="measures")
    local = {"lr": 0.01, "batch_size": 4, "steps": 1}
    scene = tables(phases=[{"name": "p", "rounds": ROUNDS, "local": local} | phase])
    tracemalloc.start()
    try:
        rayfl.run(
            scene | {"evaluation": {"every": ROUNDS}, "checkpoint": {"rounds": 25}},
            backend="inline", folder=tmp_path, callbacks=[measures], console=Console(quiet=True),
        )  # fmt: skip
    finally:
        tracemalloc.stop()
    memory, handles = (np.array([used[place] for used in measures._used.values()]) for place in (0, 1))
    # the least of many, since a checkpoint that is being written takes some too
    first, second = memory[5:10].min(), memory[10:].min()
    per_round = (second - first) / 25
    # a round that waits for its evaluation takes 1.6 kB, and at most `ROUNDS_HELD` of them wait
    assert per_round < 2500
    assert handles[-1] <= handles[3] + 1
