"""rayfl: a Ray-native simulator of federated learning in which initialising the model is a phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayfl.lazy_names import lazy_names

if TYPE_CHECKING:
    from rayfl.callbacks.callback import Callback, RunSoFar
    from rayfl.cluster.handle import Handle, attach
    from rayfl.cluster.submission import submit
    from rayfl.config import Scenario, load_scenario
    from rayfl.errors import ClientError, DataError, DivergenceError, RayflError, ScenarioError
    from rayfl.figures.comparison import Comparison, compare
    from rayfl.figures.plot import plot
    from rayfl.grid.carrying_out import GridResult, grid
    from rayfl.result import Result
    from rayfl.session import Session
    from rayfl.simulation import run

__all__ = [
    "Callback",
    "ClientError",
    "Comparison",
    "DataError",
    "DivergenceError",
    "GridResult",
    "Handle",
    "RayflError",
    "Result",
    "RunSoFar",
    "Scenario",
    "ScenarioError",
    "Session",
    "__version__",
    "attach",
    "compare",
    "grid",
    "load_scenario",
    "plot",
    "run",
    "submit",
]

__version__ = "0.1.0"
"""The only place with the version; the package metadata reads it from here."""

_HOMES = {
    "Callback": "rayfl.callbacks.callback",
    "ClientError": "rayfl.errors",
    "Comparison": "rayfl.figures.comparison",
    "DataError": "rayfl.errors",
    "DivergenceError": "rayfl.errors",
    "GridResult": "rayfl.grid.carrying_out",
    "Handle": "rayfl.cluster.handle",
    "RayflError": "rayfl.errors",
    "Result": "rayfl.result",
    "RunSoFar": "rayfl.callbacks.callback",
    "Scenario": "rayfl.config",
    "ScenarioError": "rayfl.errors",
    "Session": "rayfl.session",
    "attach": "rayfl.cluster.handle",
    "compare": "rayfl.figures.comparison",
    "grid": "rayfl.grid.carrying_out",
    "load_scenario": "rayfl.config",
    "plot": "rayfl.figures.plot",
    "run": "rayfl.simulation",
    "submit": "rayfl.cluster.submission",
}

__getattr__ = lazy_names(__name__, _HOMES)
