"""A run that is still to come, for checks of its analysis before it begins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

from rayfl.callbacks.model_files import PeriodicModel
from rayfl.callbacks.selection import build_callbacks
from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError
from rayfl.runs.folder import MODELS
from rayfl.studies.analysis.analysis import Analysis
from rayfl.studies.analysis.run_folder import RunFolder, keeping


class _NotYetError(Exception):
    """Only a finished run has these records."""


class PlannedRun(RunFolder):
    """The folder of a run as its scenario lets expect it, without records.

    Args:
        path: Its folder.
        scenario: Its scenario, with every default.
    """

    def __init__(self, path: Path, scenario: Scenario) -> None:
        super().__init__(path)
        self._planned = scenario

    @cached_property
    def scenario(self) -> Scenario:
        """The scenario."""
        return self._planned

    @cached_property
    def models(self) -> dict[int, Path]:
        """The models that will be kept, by round, if the run does all its rounds."""
        kept = set(accumulate(phase.rounds for phase in self.scenario.phases)) - {0}
        for callback in build_callbacks(self.scenario):
            if isinstance(callback, PeriodicModel):
                regular = range(callback.every, self.rounds + 1, callback.every)
                kept |= set(regular if callback.keep is None else regular[-callback.keep :])
        return dict.fromkeys(sorted(kept), self.path / MODELS)

    @property
    def status(self) -> Any:
        """Not there yet, as all records."""
        raise _NotYetError

    environment = rows = metrics = status

    def check_kept(self, rounds: Sequence[int]) -> None:
        """Checks that the models after some rounds will be kept.

        Raises:
            ScenarioError: One will not.
        """
        if missing := sorted({round for round in rounds if round} - set(self.models)):
            raise ScenarioError(
                f"the runs would not keep the model after round {missing[0]}: add {keeping(math.gcd(*missing))} to "
                "their callbacks"
            )


def check_planned(analysis: Analysis, runs: Sequence[PlannedRun]) -> None:
    """Makes all checks of an analysis that need no records of its runs.

    Raises:
        ScenarioError: Its options do not fit the runs, or the runs will not support it.
    """
    try:
        analysis.units(runs)
    except (_NotYetError, OSError):  # it can only be told once they have finished
        return
