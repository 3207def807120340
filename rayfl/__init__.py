"""rayfl: a Ray-native simulator of federated learning in which initialising the model is a phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayfl.lazy_names import lazy_names

if TYPE_CHECKING:
    from rayfl.callbacks.callback import Callback, RunSoFar
    from rayfl.config import Scenario, load_scenario
    from rayfl.errors import ClientError, DataError, DivergenceError, RayflError, ScenarioError
    from rayfl.runs.result import Result
    from rayfl.runs.session import Session, run
    from rayfl.service.handle import Handle, attach
    from rayfl.service.submission import submit
    from rayfl.studies.figures.comparison import Comparison, compare
    from rayfl.studies.figures.plot import plot
    from rayfl.studies.grid.execution import GridResult, grid

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
    "Comparison": "rayfl.studies.figures.comparison",
    "DataError": "rayfl.errors",
    "DivergenceError": "rayfl.errors",
    "GridResult": "rayfl.studies.grid.execution",
    "Handle": "rayfl.service.handle",
    "RayflError": "rayfl.errors",
    "Result": "rayfl.runs.result",
    "RunSoFar": "rayfl.callbacks.callback",
    "Scenario": "rayfl.config",
    "ScenarioError": "rayfl.errors",
    "Session": "rayfl.runs.session",
    "attach": "rayfl.service.handle",
    "compare": "rayfl.studies.figures.comparison",
    "grid": "rayfl.studies.grid.execution",
    "load_scenario": "rayfl.config",
    "plot": "rayfl.studies.figures.plot",
    "run": "rayfl.runs.session",
    "submit": "rayfl.service.submission",
}

__getattr__ = lazy_names(__name__, _HOMES)
