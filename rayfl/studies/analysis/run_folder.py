"""The folder of a finished run that is analysed: its phases and rounds, and the models that were kept."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from rayfl.data.dataset import Provenance
from rayfl.engine.plan.phase_plan import PhasePlan, plan_phases
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.errors import DataError, ScenarioError
from rayfl.files import reading
from rayfl.runs.archive import RunArchive
from rayfl.runs.figures.recorded_run import DataNote
from rayfl.runs.folder import ENVIRONMENT_FILE, MODELS, SCENARIO_FILE


def keeping(every: int) -> str:
    """The callback that keeps the model after every so many rounds, as a scenario names it."""
    return f'{{ name = "periodic_model", every = {every} }}'


class RunFolder(RunArchive):
    """The folder of a finished run."""

    @classmethod
    def read(cls, path: Path) -> RunFolder:
        """Reads the folder of a run.

        Raises:
            DataError: It is not the folder of a run, or the run has not finished.
            ResourceError: Its records are damaged, or of an earlier format.
        """
        folder = cls(path.absolute(), str(path))
        folder.check_format()
        if folder.status is None:
            raise DataError(f"'{path}' is not the folder of a run: it has no status.json; name a folder below runs/")
        if folder.status["status"] != "finished":
            raise DataError(f"'{path}': the run has not finished ({folder.status['status']}); analyse a finished one")
        folder.check_complete()
        with reading(path / ENVIRONMENT_FILE, "as the environment of a run"):
            _ = folder.scenario, folder.provenance, folder.headline, folder.clients
        return folder

    def check_drawn(self) -> None:
        """Checks that whole cohorts trained, so they can be drawn again.

        Raises:
            ScenarioError: The run has [participation], which leaves clients out.
        """
        if self.scenario.participation:
            raise ScenarioError(
                f"'{self.path}': [participation] leaves out clients of a cohort, which analyses cannot repeat; analyse "
                "a run without it"
            )

    @property
    def title(self) -> str:
        """The title of the scenario, or else its name."""
        return self.scenario.title or self.scenario.name

    @property
    def provenance(self) -> Provenance:
        """The provenance of the data."""
        data = self.environment["data"]
        files = tuple((file["path"], file["sha256"]) for file in data["files"])
        return Provenance(data["source"], data["description"], files, data["digest"])

    @property
    def data(self) -> DataNote:
        """The data in a few words."""
        return DataNote(self.scenario.data.name, self.provenance.source)

    @property
    def clients(self) -> int:
        """Number of clients."""
        return int(self.environment["data"]["clients"])

    @property
    def rounds(self) -> int:
        """Number of rounds of the scenario."""
        return sum(phase.rounds for phase in self.scenario.phases)

    @cached_property
    def plans(self) -> list[PhasePlan]:
        """The plans of the phases."""
        return plan_phases(self.scenario)

    @property
    def last_rounds(self) -> list[int]:
        """The last round of each phase."""
        return list(accumulate(phase.rounds for phase in self.scenario.phases))

    def index(self, round: int) -> RoundIndex:
        """Position of a round, from 1."""
        phase = next(number for number, last in enumerate(self.last_rounds) if round <= last)
        return RoundIndex(phase, round, round - self.plans[phase].first_round + 1)

    def phase_of_model(self, round: int) -> int:
        """The phase of the model after a round; the first phase for round 0."""
        return self.index(round).phase if round else 0

    def check_kept(self, rounds: Sequence[int]) -> None:
        """Checks that the models after some rounds were kept; round 0, the initial model, always exists.

        Raises:
            DataError: One is missing.
        """
        if missing := sorted({round for round in rounds if round} - set(self.models)):
            others = [f"'{one.name}'" for one in self.scenario.callbacks if one.name != "periodic_model"]
            beside = f" (beside {' and '.join(others)})" if others else ""
            callbacks = shlex.quote(f"callbacks=[{keeping(math.gcd(*missing))}]")
            run = f"rayfl run {shlex.quote(str(self.path / SCENARIO_FILE))} {callbacks}"
            raise DataError(
                f"'{self.path}' lacks the model after round {missing[0]} in '{MODELS}/' (it has {len(self.models)} of "
                f"{self.rounds}); run the scenario again with the callback that keeps it{beside}: {run}"
            )
