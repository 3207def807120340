"""The schema of a whole experiment, and [start]: weights that the model starts from instead of random ones."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import tomli_w
from pydantic import Field, NonNegativeInt, ValidationError, field_validator, model_validator

from rayfl.config.data import Data
from rayfl.config.execution import Checkpoint, Evaluation, Numerics, Resources
from rayfl.config.participation import Devices
from rayfl.config.phase import Phase, with_default_name
from rayfl.config.privacy import ClientDP, SampleDP
from rayfl.config.section import Named, Section, check_idle, check_plain
from rayfl.config.user_modules import make_importable
from rayfl.config.validation import explain
from rayfl.errors import ScenarioError
from rayfl.passwords import check_no_passwords

STARTS = ("file", "run", "weights", "scenario")


class Start(Section):
    """Where the initial weights come from: exactly one of `file`, `run`, `weights` and `scenario`.

    Weights are matched by parameter name; every name must exist on both sides with the same shape, except where `head`
    and `ignore` say otherwise. Relative paths are relative to the file that names them; paths on a command line or in a
    program are relative to the working directory.

    Attributes:
        file: A .safetensors file, or a file written by torch.save that contains only tensors (a state dict). By default
            another key says where the weights come from.
        run: The folder of a finished run. By default another key says where the weights come from.
        weights: Published weights of a torchvision network, such as `torchvision:ResNet18_Weights.IMAGENET1K_V1`, which
            torchvision downloads or finds in its cache. By default another key says where the weights come from.
        scenario: A name or path. That scenario runs first and its final model is kept; it runs again only if something
            that it depends on has changed. By default another key says where the weights come from.
        overrides: Overrides of that scenario, in the form of a [quick] table. A `seed` among them also applies to the
            scenario that it starts from in turn. Default: none.
        quick: Runs that scenario in its quick form, and the one that it starts from in turn if that has a quick form.
            Default: false.
        head: Whether the feature layer takes its weights from the start (`keep`, the default) or keeps its initial
            values (`fresh`).
        rename: Replaces the beginnings of names in the start: `{ "net." = "" }` removes the prefix that a wrapper adds
            to all names, `{ "" = "encoder." }` adds a prefix. If several fit, the longest applies. All else, `head` and
            `ignore` included, uses the new names. Default: none.
        ignore: Shell patterns ("layer4.*") of names that stay as initialised or are not used. Default: none.
    """

    file: str | None = None
    run: str | None = None
    weights: str | None = None
    scenario: str | None = None
    overrides: dict[str, Any] = Field(default_factory=dict)
    quick: bool = False
    head: Literal["keep", "fresh"] = "keep"
    rename: dict[str, str] = Field(default_factory=dict)
    ignore: tuple[str, ...] = ()

    @field_validator("overrides")
    @classmethod
    def _overrides_are_plain(cls, overrides: dict[str, Any]) -> dict[str, Any]:
        check_plain(overrides)
        return overrides

    @model_validator(mode="after")
    def _one_kind(self) -> Start:
        kinds = [kind for kind in STARTS if getattr(self, kind) is not None]
        if len(kinds) != 1:
            raise ValueError(f"give exactly one of {', '.join(STARTS)} (given: {', '.join(kinds) or 'none'})")
        alone = self.scenario is None
        check_idle(self, {"overrides": alone, "quick": alone}, "without a scenario to start from")
        return self


CHANGES_NO_RESULT = frozenset({"name", "title", "resources", "checkpoint", "module_folders"})
"""Keys that do not change results, except through the kind of device that `resources` selects."""

LONGEST_NAME = 200
"""In bytes of UTF-8: file systems allow 255, and the name of the run's folder also contains the time."""


LONGEST_TITLE = 10_000
"""In characters; it is printed, drawn and recorded. Long enough for a cell's: its grid's title and labels."""


def fitting_a_folder(name: str) -> str:
    """A name of a scenario or grid, checked to be that of a folder inside another.

    Raises:
        ValueError: It cannot be one.
    """
    if not name.strip() or not name.isprintable() or name.startswith(".") or set(name) & set("/\\"):
        raise ValueError("must be usable as a folder's name: printable characters, no slashes, no leading dot")
    if len(name.encode()) > LONGEST_NAME:
        raise ValueError(f"must be usable as a folder's name: at most {LONGEST_NAME} bytes long")
    return name


class Scenario(Section):
    """An experiment: everything that its result depends on, and the resources to run it with.

    Attributes:
        name: First part of the name of the run's folder; at most 200 bytes, without slashes or a leading dot. By
            default the stem of the scenario's file, or `scenario` without a file.
        title: One line that `rayfl list` and reports show, at most 10000 characters. Default: empty.
        seed: Seed of the initial parameters, cohorts and training; and of the data, unless `data.seed` is set. Default:
            0.
        data: The data set, and how it is divided among clients.
        model: A registered network or `package.module:object`, with its options. rayfl passes `num_classes` (the width
            of the output) and `input_shape` (height, width, channels) to networks that take them. For a network that
            does not derive from `rayfl.models.Network`, the option `feature_layer` names the layer that is its head,
            such as `fc`. Phases may have their own `model` and `task`.
        start: Where the initial weights of the first phase's model come from. By default they are random, drawn from
            `seed`.
        task: The learning task: a registered one or `package.module:object`, with its options. Default:
            `classification`.
        phases: The phases in order, at least one with rounds. In the resolved scenario phases without rounds are left
            out, and `rounds` replaces `until`.
        participation: The devices that clients are simulated on. By default none, and nothing takes virtual time.
        evaluation: When and how the model is evaluated.
        callbacks: Callbacks that follow the run and may end it: registered ones or `package.module:object`, with their
            options. Default: none.
        numerics: Settings that can change the last bits of the result.
        resources: The worker processes and devices to run on.
        checkpoint: When checkpoints are written, and how many are kept.
        module_folders: Folders in which Python looks for your own modules if it does not find them elsewhere. When a
            file is loaded that names a module in its own folder, that folder is added. Default: none.

    Example:
        >>> import rayfl
        >>> scenario = rayfl.load_scenario("femnist_cyclic")
        >>> [(phase.name, phase.schedule, phase.rounds) for phase in scenario.phases]
        [('cyclic', 'relay', 100), ('federated', 'parallel', 900)]
        >>> print(scenario.to_toml())
        name = "femnist_cyclic"
        ...
    """

    name: str = "scenario"
    title: Annotated[str, Field(max_length=LONGEST_TITLE)] = ""
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
        """Validates the tables of a scenario.

        Raises:
            ScenarioError: Names each key that is unknown, missing or out of range, and the allowed values.
        """
        check_no_passwords(tables)  # before validation, whose messages show values
        try:
            return cls.model_validate(tables)
        except ValidationError as error:
            raise ScenarioError(explain(error, cls, tables)) from None

    @field_validator("name")
    @classmethod
    def _name_fits_a_folder(cls, name: str) -> str:
        return fitting_a_folder(name)

    @field_validator("task", mode="before")
    @classmethod
    def _options_of_the_default(cls, value: Any) -> Any:
        """Allows `task.label_smoothing=0.1` where no task is named."""
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
        if unclear := [name for name in names if "." in name or name.isdecimal()]:
            raise ValueError(f"'{unclear[0]}' is no name that keys could contain; use neither dots nor digits alone")
        run: list[Phase] = []
        done = 0
        for phase in phases:
            if phase.until is not None:
                if phase.until <= done:
                    raise ValueError(
                        f"'{phase.name}' has until = {phase.until}, but the phases before it already have {done} rounds"
                    )
                phase = phase.model_copy(update={"rounds": phase.until - done, "until": None})
            if phase.rounds:
                run.append(phase)
            done += phase.rounds
        if not run:
            raise ValueError("none of them has any rounds")
        return tuple(run)

    def task_of(self, phase: Phase) -> Named:
        """The task of a phase."""
        return phase.task or self.task

    def model_of(self, phase: Phase) -> Named:
        """The network of a phase."""
        return phase.model or self.model

    def evaluation_of(self, phase: Phase) -> Evaluation:
        """The evaluation settings of a phase."""
        if phase.metrics is None:
            return self.evaluation
        headline = None if phase.metrics else "loss"
        return self.evaluation.model_copy(update={"metrics": phase.metrics, "headline": headline})

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles `module_folders` first: the keys of a user's own schedule are a class from one of these folders."""
        return _unpickled, (_Folders(self.module_folders), type(self), self.__getstate__())

    @property
    def repeatable(self) -> bool:
        """Whether a repeated client update has the same bits; with `secure` it would release its samples again."""
        return not any(dp.secure for dp in self._privacy)

    @property
    def hides(self) -> bool:
        """Whether a phase hides samples or clients, so that errors must not describe data."""
        return bool(self._privacy)

    @property
    def _privacy(self) -> list[SampleDP | ClientDP]:
        return [dp for phase in self.phases for dp in (phase.settings.dp, phase.local.dp) if dp is not None]

    @property
    def data_seed(self) -> int:
        """The seed of everything that is drawn about the data."""
        return self.seed if self.data.seed is None else self.data.seed

    def to_toml(self) -> str:
        """The resolved scenario as TOML, with all defaults (optional keys without a value are left out)."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))


class _Folders(tuple[str, ...]):
    """Folders that become importable as soon as they are unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return make_importable, (tuple(self),)


def _unpickled(_: None, kind: type[Scenario], state: dict[Any, Any]) -> Scenario:
    scenario = kind.__new__(kind)
    scenario.__setstate__(state)
    return scenario
