"""Callbacks that report a run's metrics to an experiment tracker."""

from __future__ import annotations

import importlib.util
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from rayfl.callbacks.callback import Callback, RunSoFar
from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError


class Tracker(Callback):
    """Reports the numbers of every evaluated round under the names of their columns.

    Attributes:
        packages: Packages that must be installed.
        extra: The extra of rayfl that installs them.
    """

    packages: ClassVar[tuple[str, ...]]
    extra: ClassVar[str]

    def check(self, scenario: Scenario) -> None:
        """See `Callback.check`."""
        missing = [package for package in self.packages if importlib.util.find_spec(package) is None]
        if missing:
            raise ScenarioError(f"{', '.join(missing)} not installed: pip install 'rayfl[{self.extra}]'")

    def on_evaluation(self, run: RunSoFar) -> None:
        """See `Callback.on_evaluation`."""
        row = run.metrics[-1]
        numbers = {name: float(value) for name, value in row.items() if isinstance(value, int | float)}
        self.report(row["round"], {name: value for name, value in numbers.items() if name != "round"})

    @abstractmethod
    def report(self, round: int, numbers: Mapping[str, float]) -> None:
        """Reports the numbers of one evaluated round."""


def options_of(scenario: Scenario) -> dict[str, Any]:
    """The resolved scenario as a flat dictionary with dotted keys."""
    return dict(_flat("", scenario.model_dump(mode="json", exclude_none=True)))


def _flat(prefix: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        inner = [(str(key), part) for key, part in value.items()]
    elif isinstance(value, list) and any(isinstance(part, dict | list) for part in value):
        inner = [(str(index), part) for index, part in enumerate(value)]
    else:
        return [(prefix, value)]
    return [pair for key, part in inner for pair in _flat(f"{prefix}.{key}" if prefix else key, part)]
