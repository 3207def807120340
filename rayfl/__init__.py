"""rayfl: a Ray-native simulator of federated learning in which initialising the model is a phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayfl.lazy_names import lazy_names

if TYPE_CHECKING:
    from rayfl.callbacks.callback import Callback as Callback
    from rayfl.callbacks.callback import RunSoFar as RunSoFar
    from rayfl.config import Scenario as Scenario
    from rayfl.config import load_scenario as load_scenario
    from rayfl.errors import ClientError as ClientError
    from rayfl.errors import DataError as DataError
    from rayfl.errors import DivergenceError as DivergenceError
    from rayfl.errors import RayflError as RayflError
    from rayfl.errors import ScenarioError as ScenarioError
    from rayfl.runs.result import Result as Result
    from rayfl.runs.session import Session as Session
    from rayfl.runs.session import run as run
    from rayfl.service.handle import Handle as Handle
    from rayfl.service.handle import attach as attach
    from rayfl.service.submission import submit as submit
    from rayfl.studies.analysis.execution import AnalysisResult as AnalysisResult
    from rayfl.studies.analysis.execution import analyse as analyse
    from rayfl.studies.figures.comparison import Comparison as Comparison
    from rayfl.studies.figures.comparison import compare as compare
    from rayfl.studies.figures.plot import plot as plot
    from rayfl.studies.grid.execution import GridResult as GridResult
    from rayfl.studies.grid.execution import grid as grid
else:
    __getattr__, __dir__ = lazy_names(__name__, "__version__")

__version__ = "0.1.0"
"""The only place with the version; the package metadata reads it from here."""
