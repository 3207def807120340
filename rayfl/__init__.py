"""rayfl: a Ray-native simulator of federated learning in which the model's initialisation is a phase."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rayfl.callbacks.callback import Callback, RunSoFar
    from rayfl.cluster.handle import Handle, attach
    from rayfl.cluster.submission import submit
    from rayfl.config import Scenario, load_scenario
    from rayfl.simulation import Result, run

__all__ = [
    "Callback",
    "Handle",
    "Result",
    "RunSoFar",
    "Scenario",
    "__version__",
    "attach",
    "load_scenario",
    "run",
    "submit",
]

__version__ = "0.1.0"
"""The only place that states the version; the package's metadata takes it from here."""

_HOMES = {
    "Callback": "rayfl.callbacks.callback",
    "Handle": "rayfl.cluster.handle",
    "Result": "rayfl.simulation",
    "RunSoFar": "rayfl.callbacks.callback",
    "Scenario": "rayfl.config",
    "attach": "rayfl.cluster.handle",
    "load_scenario": "rayfl.config",
    "run": "rayfl.simulation",
    "submit": "rayfl.cluster.submission",
}


def __getattr__(name: str) -> Any:
    # imported on first use: the server and scheduler processes need no PyTorch, and start faster without it
    if name not in _HOMES:
        raise AttributeError(f"module 'rayfl' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
