"""Twelve clients, a small network, and one phase that may hide the clients."""

from __future__ import annotations

from typing import Any

from rayfl.engine.plan.run_plan import RunPlan
from tests.engine.scenes import prepared

PEOPLE: dict[str, Any] = {
    "data": {"name": "tests.algorithms.scene:people"},
    "model": {"name": "tests.algorithms.scene:TanhNet"},
    "evaluation": {"every": 1},
}
DELTA = 12**-1.1
"""The largest delta allowed for so few clients, for which there is no default."""
LOCAL = {"steps": 3, "batch_size": 4, "lr": 0.1}
UNIFORM = {"name": "fedavg", "weighting": "uniform"}


def phase(**changes: Any) -> dict[str, Any]:
    return {"name": "hidden", "rounds": 3, "cohort": 4, "algorithm": UNIFORM, "local": LOCAL} | changes


def central(**changes: Any) -> dict[str, Any]:
    return {"level": "central", "noise_multiplier": 1.0, "clip_norm": 0.3, "delta": DELTA} | changes


def local(**changes: Any) -> dict[str, Any]:
    return {"level": "local", "noise_multiplier": 1.0, "clip_norm": 0.3, "delta": DELTA} | changes


def job(*phases: dict[str, Any], **changes: Any) -> RunPlan:
    return prepared(**PEOPLE | changes, phases=list(phases))


def target(epsilon: float, **changes: Any) -> dict[str, Any]:
    """Central DP with the noise found for a target."""
    return {"level": "central", "target_epsilon": epsilon, "clip_norm": 0.3, "delta": DELTA} | changes
