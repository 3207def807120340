"""Names in a scenario are resolved and checked, and defaults written out, before any data is loaded."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel, Field, PositiveInt

from rayfl.callbacks.callback import Callback
from rayfl.callbacks.selection import CALLBACKS
from rayfl.cli.run import main
from rayfl.config import Scenario, load_scenario
from rayfl.config.component import with_defaults
from rayfl.config.registry import call_with_options, kinds, reads_none
from rayfl.config.section import Named
from rayfl.errors import ScenarioError
from rayfl.runs.resolution import PARTS, resolve

TABLES: dict[str, Any] = {
    "data": {"name": "fashion_mnist", "clients": 10, "partition": {"name": "dirichlet", "beta": 0.5}},
    "model": "mlp",
    "phases": [{"name": "federated", "rounds": 1, "cohort": 2}],
}


def named(name: str, **options: Any) -> Named:
    return Named.model_validate({"name": name, **options})


def network(
    num_classes: int,
    width: PositiveInt,
    depths: tuple[int, ...] = (1, 2),
    share: float = 0.5,
    norm: Callable[[int], Any] = print,
    steps: PositiveInt = 0,
    head: str | None = None,
) -> None: ...


def choices(annotation: Any, path: str = "") -> Iterator[str]:
    """The key paths of what is chosen by name in a value of some type."""
    for kind in kinds(annotation):
        if kind is Named:
            yield path
        elif get_origin(kind) is tuple:
            yield from choices(get_args(kind)[0], f"{path}.*")
        elif isinstance(kind, type) and issubclass(kind, BaseModel):
            for key, field in kind.model_fields.items():
                yield from choices(field.annotation, f"{path}.{key}".removeprefix("."))


def test_everything_that_a_scenario_chooses_by_name_is_resolved() -> None:
    paths = {path for _, paths in PARTS for path in paths}
    with_local = {"phases.*.local.optimizer", "phases.*.server_training.optimizer", "evaluation.personalize.optimizer"}
    assert {*choices(Scenario)} - paths == with_local


def test_options_left_to_their_defaults_are_written_out() -> None:
    found = with_defaults(network, {"width": 3, "share": 1}, ["num_classes"], "model")
    assert found == {"width": 3, "share": 1, "depths": [1, 2]}


class Act(Enum):
    RELU = "relu"
    TANH = "tanh"


def partly_hinted(  # type: ignore[no-untyped-def]
    num_classes: int,
    act=Act.TANH,
    hinted: Act = Act.TANH,
    either: Act | str = Act.TANH,
    widths=(6, 7),
    pairs=((1, 2),),
    depths: Sequence[int] = (1, 2),
    rate=1,
    scale: float = 1,
    bound: float = math.inf,
) -> None: ...


def test_a_default_is_written_only_where_reading_it_gives_the_same_value() -> None:
    found = with_defaults(partly_hinted, {}, ["num_classes"], "model")
    assert found == {"hinted": "tanh", "depths": [1, 2], "rate": 1, "scale": 1, "bound": math.inf}


def opened(scale: float | None = 5.0, cut: int | None = None, free=5, mode: str | None = "none") -> None:  # type: ignore[no-untyped-def]
    OPENED.append((scale, cut, free, mode))


OPENED: list[Any] = []


def test_none_is_written_as_the_text_that_stands_for_it() -> None:
    assert with_defaults(opened, {"scale": None, "cut": None, "free": 5}, (), "it") == {
        "scale": "none",
        "free": 5,
        "mode": "none",
    }
    call_with_options(opened, {"scale": "none", "mode": "none"}, {}, "it")
    assert OPENED == [(None, None, 5, "none")]


@pytest.mark.parametrize("wrong", [{"free": None}, {"free": [1, None]}, {"free": {"a": None}}, {"mode": None}])
def test_none_that_no_file_can_hold_is_rejected(wrong: dict[str, Any]) -> None:
    (key,) = wrong
    with pytest.raises(ScenarioError, match=rf"^it\.{key}: None cannot be written in a scenario file"):
        with_defaults(opened, wrong, (), "it")


class Mode(Enum):
    NONE = "none"


@pytest.mark.parametrize(
    ("annotation", "stands_for_it"),
    [
        (float | None, True),
        (Annotated[int, Field(ge=1)] | None, True),
        (Act | None, True),
        (Literal["some"] | None, True),
        (float, False),
        (str | None, False),
        (Path | None, False),
        (Mode | None, False),
        (Literal["none"] | None, False),
        (Any | None, False),
        ("float | None", False),
    ],
)
def test_the_text_none_stands_for_none_where_it_is_no_value(annotation: Any, stands_for_it: bool) -> None:
    assert reads_none(annotation) == stands_for_it


class Patient(Callback):
    patience: int | None = 3
    text: str | None = None
    sum: int = Field(default_factory=lambda data: (data["patience"] or 0) + 1)


def test_options_of_components_are_opened_by_none_too() -> None:
    for given in (None, "none"):
        tables = TABLES | {"callbacks": [{"name": f"{__name__}:Patient", "patience": given}]}
        resolved = resolve(load_scenario(tables))
        assert resolved.callbacks[0].options == {"patience": "none", "sum": 1}
        assert CALLBACKS.build(load_scenario(tomllib.loads(resolved.to_toml())).callbacks[0]).patience is None


def test_a_model_has_its_defaults_but_not_what_the_data_decides() -> None:
    assert resolve(load_scenario(TABLES)).model == named("mlp", hidden=[200, 200])
    assert resolve(load_scenario(TABLES, ["model.hidden=[7]"])).model == named("mlp", hidden=[7])


def test_options_that_only_a_users_function_takes_stay() -> None:
    def open_ended(first: int = 1, **others: int) -> None: ...

    assert with_defaults(open_ended, {"second": 2}, (), "model") == {"second": 2, "first": 1}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model=lenet", "unknown model 'lenet'; did you mean 'lenet5'"),
        ("model.hiden=[3]", "model.hiden: not an option of 'model'; did you mean 'hidden'?"),
        ("model.hidden=[0]", "model.hidden.0: must be greater than 0 (got 0)"),
        ("data.name=femnits", "unknown data set 'femnits'; did you mean 'femnist'"),
        ("data.options.labels=coarse", "data.options.labels: not an option of 'data.options'"),
        ("data.partition=drichlet", "unknown partitioner 'drichlet'; did you mean 'dirichlet'"),
        ("data.partition.beta=-1", "data.partition.beta: must be greater than 0 (got -1)"),
        ("data.partition=dirichlet", "data.partition: needs beta"),
        ("data.augment=['flap']", "unknown augmentation 'flap'; did you mean 'flip'?"),
        ("data.augment=[{name='crop', paddin=3}]", "data.augment.0.paddin: not an option of 'data.augment.0'"),
        ("phases.0.algorithm=fedavgg", "unknown algorithm 'fedavgg'; did you mean 'fedavg'"),
        ("phases.0.algorithm.server=3", "phases.federated.algorithm.server: unknown key"),
        ("model=os:sep", "model 'os:sep': is part of Python, so"),
    ],
)
def test_show_checks_names_and_options(
    override: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rayfl.data.store.build_store", lambda *_: pytest.fail("data was loaded"))
    path = tmp_path / "mine.toml"
    path.write_text(load_scenario(TABLES).to_toml())
    assert main([str(path), "--show", override]) == 1
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.startswith("error: ")
    assert said.out == ""


def test_options_of_data_that_takes_none_are_rejected() -> None:
    data = {"name": "tests.user_code:VECTORS", "options": {"rows": 3}}
    with pytest.raises(ScenarioError, match=r"data\.options: 'tests\.user_code:VECTORS' is not a function"):
        resolve(load_scenario({**TABLES, "data": data}))
