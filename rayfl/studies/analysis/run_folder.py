"""The folder of a finished run: scenario, environment, metrics and kept models."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

from rayfl.config.loader import load_scenario
from rayfl.config.scenario import Scenario
from rayfl.data.dataset import Provenance
from rayfl.engine.plan.headline import Headline
from rayfl.engine.plan.phase_plan import PhasePlan, plan_phases
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.errors import DataError, ScenarioError
from rayfl.files import read_json_object, reading
from rayfl.runs.folder import ENVIRONMENT_FILE, MODELS, SCENARIO_FILE, model_of_phase
from rayfl.runs.status import MODEL, read_status


@dataclass(frozen=True)
class RunFolder:
    """The folder of a finished run.

    Attributes:
        path: The folder.
        scenario: The resolved scenario.
        environment: The content of environment.json.
    """

    path: Path
    scenario: Scenario
    environment: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> RunFolder:
        """Reads the folder of a run.

        Raises:
            DataError: It is not the folder of a run, or the run has not finished.
        """
        status = read_status(path)
        if status is None:
            raise DataError(f"'{path}' is not the folder of a run: it has no status.json; name a folder below runs/")
        if status["status"] != "finished":
            raise DataError(f"'{path}': the run has not finished ({status['status']}); analyse a finished one")
        found = cls(path.absolute(), load_scenario(path / "scenario.toml"), read_json_object(path / ENVIRONMENT_FILE))
        with reading(path / ENVIRONMENT_FILE, "as the environment of a run"):
            _ = found.provenance, found.headline, found.clients
        return found

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
    def headline(self) -> Headline:
        """The metric that ranks rounds."""
        return Headline.from_record(self.environment["headline"])

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

    @cached_property
    def kept(self) -> dict[int, Path]:
        """The kept models by round: of the ends of phases, the final one, and those of `periodic_model`."""
        names = [model_of_phase(number, phase.name) for number, phase in enumerate(self.scenario.phases)]
        ends = {round: self.path / name for round, name in zip(self.last_rounds, names, strict=True)}
        status = read_status(self.path)
        assert status is not None
        ends[status["committed_rounds"]] = self.path / MODEL
        found = {round: file for round, file in ends.items() if round and file.is_file()}
        regular = {int(file.stem.removeprefix("round_")): file for file in (self.path / MODELS).glob("round_*")}
        return dict(sorted({**found, **regular}.items()))

    def check_kept(self, rounds: Sequence[int]) -> None:
        """Checks that the models after some rounds were kept; round 0, the initial model, always exists.

        Raises:
            DataError: One is missing.
        """
        if missing := sorted({round for round in rounds if round} - set(self.kept)):
            callback = f'{{ name = "periodic_model", every = {math.gcd(*missing)} }}'
            others = [f"'{one.name}'" for one in self.scenario.callbacks if one.name != "periodic_model"]
            beside = f" (beside {' and '.join(others)})" if others else ""
            run = f"rayfl run {shlex.quote(str(self.path / SCENARIO_FILE))} {shlex.quote(f'callbacks=[{callback}]')}"
            raise DataError(
                f"'{self.path}' lacks the model after round {missing[0]} in '{MODELS}/' (it has {len(self.kept)} of "
                f"{self.rounds}); run the scenario again with the callback that keeps it{beside}: {run}"
            )
