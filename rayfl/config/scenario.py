"""The whole experiment as data."""

from __future__ import annotations

from typing import Annotated, Any

import tomli_w
from pydantic import Field, NonNegativeInt, ValidationError, field_validator

from rayfl.config.checkpoint import Checkpoint
from rayfl.config.data import Data
from rayfl.config.execution import Evaluation, Numerics, Resources
from rayfl.config.participation import Devices
from rayfl.config.phase import Phase, with_default_name
from rayfl.config.section import Named, Section
from rayfl.config.start import Start
from rayfl.config.user_modules import make_importable
from rayfl.config.validation import explain
from rayfl.errors import ScenarioError

CHANGES_NO_RESULT = frozenset({"name", "title", "resources", "checkpoint", "module_folders"})
"""Keys that change no result, apart from the kind of device that `resources` asks for."""

LONGEST_NAME = 200
"""Bytes of UTF-8: file systems allow 255, and the run's folder adds the time."""


class Scenario(Section):
    """An experiment: everything its result depends on, and what to run it on.

    Attributes:
        name: Begins the name of the run's folder; by default the file's stem, where the scenario came from a file.
        seed: Of the initial parameters, cohorts and training; and of the data, unless `data.seed` is set.
        model: A registered network or `package.module:object`, with its options; rayfl passes `num_classes` (the width
            of its output) and `input_shape` (height, width, channels) to a network that asks for them. For a network
            that is no `rayfl.models.Network`, the option `feature_layer` says which layer is its head: `fc`, say.
            Phases may have a `model` and a `task` of their own.
        start: What the model of the first phase begins with, instead of random weights.
        task: What is learned: a registered task or `package.module:object`, with its options.
        phases: Once validated, those that have rounds; `until` has become `rounds`.
        participation: The devices that clients are simulated on; by default none, and nothing takes virtual time.
        callbacks: What follows the run and may end it: registered ones or `package.module:object`, with their options.
        module_folders: Where Python looks for modules of the user's own that it does not know. The folder of a file
            that names a module beside itself is added when the file is loaded.
    """

    name: str = "scenario"
    title: str = ""
    seed: NonNegativeInt = 0
    data: Data
    model: Named
    start: Start | None = None
    task: Named = Named(name="classification")
    phases: Annotated[tuple[Phase, ...], Field(min_length=1)]
    participation: Devices | None = None
    evaluation: Evaluation = Evaluation()
    callbacks: tuple[Named, ...] = ()
    numerics: Numerics = Numerics()
    resources: Resources = Resources()
    checkpoint: Checkpoint = Checkpoint()
    module_folders: tuple[str, ...] = ()

    @classmethod
    def from_tables(cls, tables: dict[str, Any]) -> Scenario:
        """A validated scenario.

        Raises:
            ScenarioError: names each key that is unknown, missing or out of range, and what is allowed.
        """
        try:
            return cls.model_validate(tables)
        except ValidationError as error:
            raise ScenarioError(explain(error, cls, tables)) from None

    @field_validator("name")
    @classmethod
    def _name_fits_a_folder(cls, name: str) -> str:
        if not name.strip() or not name.isprintable() or name.startswith(".") or set(name) & set("/\\"):
            raise ValueError("must be fit for a folder's name: something printable, no slashes, no dot in front")
        if len(name.encode()) > LONGEST_NAME:
            raise ValueError(f"must be fit for a folder's name: at most {LONGEST_NAME} bytes long")
        return name

    @field_validator("task", mode="before")
    @classmethod
    def _options_of_the_default(cls, value: Any) -> Any:
        """`task.label_smoothing=0.1` where no task was named."""
        return {"name": "classification", **value} if isinstance(value, dict) else value

    @field_validator("phases", mode="before")
    @classmethod
    def _the_only_one_needs_no_name(cls, phases: Any) -> Any:
        return with_default_name(phases)

    @field_validator("phases")
    @classmethod
    def _phases_to_run(cls, phases: tuple[Phase, ...]) -> tuple[Phase, ...]:
        names = [phase.name for phase in phases]
        if len(set(names)) != len(names):
            raise ValueError(f"two phases have the same name: {', '.join(names)}")
        run: list[Phase] = []
        done = 0
        for phase in phases:
            if phase.until is not None:
                if phase.until <= done:
                    raise ValueError(
                        f"'{phase.name}' lasts until round {phase.until}, but {done} rounds are over before it begins"
                    )
                phase = phase.model_copy(update={"rounds": phase.until - done, "until": None})
            if phase.rounds:
                run.append(phase)
            done += phase.rounds
        if not run:
            raise ValueError("none of them has a round")
        return tuple(run)

    def task_of(self, phase: Phase) -> Named:
        """What a phase learns."""
        return phase.task or self.task

    def model_of(self, phase: Phase) -> Named:
        """The network of a phase."""
        return phase.model or self.model

    def evaluation_of(self, phase: Phase) -> Evaluation:
        """How the model of a phase is evaluated."""
        if phase.metrics is None:
            return self.evaluation
        headline = None if phase.metrics else "loss"
        return self.evaluation.model_copy(update={"metrics": phase.metrics, "headline": headline})

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled with its `module_folders` first: the keys of a schedule of the user's own are a class from there."""
        return _unpickled, (_Folders(self.module_folders), type(self), self.__getstate__())

    @property
    def repeatable(self) -> bool:
        """Whether a repeated client update has the same bits; with `secure` it would release its samples once more."""
        private = [dp for phase in self.phases for dp in (phase.settings.dp, phase.local.dp) if dp is not None]
        return not any(dp.secure for dp in private)

    @property
    def data_seed(self) -> int:
        """The seed of everything that is drawn about the data."""
        return self.seed if self.data.seed is None else self.data.seed

    def to_toml(self) -> str:
        """The resolved scenario, every default written out (an option left open is left out)."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))


class _Folders(tuple[str, ...]):
    """Folders that are made importable as soon as they are unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return make_importable, (tuple(self),)


def _unpickled(_: None, kind: type[Scenario], state: dict[Any, Any]) -> Scenario:
    scenario = kind.__new__(kind)
    scenario.__setstate__(state)
    return scenario
