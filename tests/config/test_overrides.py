"""`key.path=value`: the schema determines the type of a value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rayfl.config import Scenario, load_scenario
from rayfl.config.cohort import Bernoulli, Explicit
from rayfl.config.overrides import parse_override
from rayfl.config.section import Named
from rayfl.errors import ScenarioError

TABLES: dict[str, Any] = {
    "title": "before",
    "data": {"name": "femnist", "augment": ["flip", {"name": "crop", "padding": 4}], "partition": "iid"},
    "model": "cnn_femnist",
    "phases": [
        {"name": "first", "schedule": "relay", "rounds": 2, "cohort": 3, "local": {"lr": 0.5}},
        {"name": "second", "algorithm": "fedavg", "rounds": 2, "cohort": 0.25},
    ],
}


def named(name: str, **options: Any) -> Named:
    return Named.model_validate({"name": name, **options})


def value_at(scenario: Scenario, path: str) -> Any:
    """Returns the value at a dotted path; the options of a named component are reached by their keys."""
    value: Any = scenario
    for key in path.split("."):
        if isinstance(value, tuple):
            value = value[int(key)]
        elif isinstance(value, dict):
            value = value[key]
        elif isinstance(value, Named) and key != "name":
            value = value.options[key]
        else:
            value = getattr(value, key)
    return value


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("seed=3", 3),
        ("phases.0.rounds=10", 10),
        ("phases.1.rounds = 10", 10),
        ("phases.0.local.lr=3", 3.0),
        ("phases.0.local.lr=1e-3", 0.001),
        ("phases.1.cohort=.5", 0.5),
        ("phases.0.local.clip_norm=10", 10.0),
        ("phases.0.local.steps=20", 20),
        ("phases.0.local.drop_last=true", True),
        ("evaluation.per_client=false", False),
        ("title=A plain text, unquoted", "A plain text, unquoted"),
        ('title="quoted"', "quoted"),
        ("title=3", "3"),
        ("title=true", "true"),
        ("title=a=b", "a=b"),
        ("title=", ""),
        ("data.source=generated", "generated"),
        ("phases.0.local.batch_size=full", "full"),
        ("phases.0.local.batch_size=64", 64),
        ("resources.hosts=auto", "auto"),
        ("resources.hosts=2", 2),
        ("resources.gpus_per_host=0.5", 0.5),
        ("phases.0.cohort=3", 3),
        ("phases.0.cohort=0.1", 0.1),
        ("phases.0.cohort=1.0", 1.0),
        ("phases.0.cohort={bernoulli=0.2}", Bernoulli(bernoulli=0.2)),
        ("phases.0.cohort={explicit=[[0, 2], [1]]}", Explicit(explicit=((0, 2), (1,)))),
        ("data.normalize={mean=[0.1], std=[0.2]}", None),
        ("data.augment=[]", ()),
        ('data.augment=["crop"]', (named("crop"),)),
        ("data.augment.1.padding=2", 2),
        ("data.augment.0=crop", named("crop")),
        ("data.partition=natural", named("natural")),
        ("data.partition.beta=0.1", 0.1),
        ("data.partition={name='dirichlet', beta=0.1}", named("dirichlet", beta=0.1)),
        ("data.options.rows=5", 5),
        ("data.options.kind=round", "round"),
        ("data.options.kind='5'", "5"),
        ("data.options.sizes=[1, 2]", [1, 2]),
        ("model=lenet5", named("lenet5")),
        ("model.leaf=true", True),
        ("model.layers=[32, 64]", [32, 64]),
        ("phases.1.algorithm.weighting=uniform", "uniform"),
        ("phases.1.algorithm=mine:FedMine", named("mine:FedMine")),
    ],
)
def test_a_value_has_the_type_of_its_key(override: str, expected: Any) -> None:
    path = override.partition("=")[0].strip()
    found = value_at(load_scenario(TABLES, [override]), path)
    if expected is not None:
        assert found == expected
        assert type(found) is type(expected)
    else:
        assert (found.mean, found.std) == ((0.1,), (0.2,))


def test_none_undoes_clipping() -> None:
    clipped = load_scenario(TABLES, ["phases.0.local.clip_norm=10", "phases.0.local.clip_value=1"])
    path = "phases.0.local.clip_norm"
    assert value_at(load_scenario(clipped, [f"{path}=none"]), path) is None
    assert value_at(load_scenario(clipped, ["phases.0.local.clip_value=none"]), path) == 10.0


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("phases.0.cohort", 3, 3),
        ("phases.0.cohort", 0.5, 0.5),
        ("phases.0.cohort", {"bernoulli": 0.5}, Bernoulli(bernoulli=0.5)),
        ("title", "3", "3"),
        ("data.augment.0.probability", 0.25, 0.25),
        ("phases.0", {"name": "new", "rounds": 1, "cohort": 1}, None),
    ],
)
def test_overrides_may_be_a_table_of_python_values(path: str, value: Any, expected: Any) -> None:
    found = value_at(load_scenario(TABLES, {path: value}), path)
    if expected is not None:
        assert found == expected
        assert type(found) is type(expected)
    else:
        assert (found.name, found.schedule) == ("new", "parallel")


def test_options_of_the_data_change_one_by_one_unless_the_data_does(tmp_path: Path) -> None:
    """`data.options.codes = 5` in a file is the table `options = { codes = 5 }`, and dropped the other options."""
    (tmp_path / "first.toml").write_text(
        'model = "mlp"\n[[phases]]\nrounds = 1\ncohort = 1\n'
        '[data]\nname = "fractals"\nclients = 1\noptions = { codes = 9, views = "shared" }\n'
        "[quick]\ndata.options.pairs = 7\n"
    )
    (tmp_path / "fewer.toml").write_text('base = "first"\ndata.options.codes = 5\n')
    (tmp_path / "other.toml").write_text('base = "first"\ndata = { name = "femnist", options = { a = 1 } }\n')
    fewer = {"codes": 5, "views": "shared"}
    assert load_scenario(tmp_path / "fewer.toml").data.options == fewer
    assert load_scenario(tmp_path / "fewer.toml", quick=True).data.options == fewer | {"pairs": 7}
    assert load_scenario(tmp_path / "first.toml", {"data": {"options": {"codes": 5}}}).data.options == fewer
    assert load_scenario(tmp_path / "first.toml", ["data.options={}"]).data.options == {}
    assert load_scenario(tmp_path / "other.toml").data.options == {"a": 1}
    with pytest.raises(ScenarioError, match=r"has no \[quick\] table"):  # its options were those of other data
        load_scenario(tmp_path / "other.toml", quick=True)


@pytest.mark.parametrize(
    "change",
    [
        ["phases.second.local={lr=0.3}", "evaluation={every=2}"],
        {"phases": {"second": {"local": {"lr": 0.3}}}, "evaluation": {"every": 2}},
        {"phases.second.local.lr": 0.3, "evaluation.every": 2, "evaluation": {}, "phases.second": {}},
    ],
)
def test_a_table_changes_a_section_key_by_key_as_in_a_base(change: Any) -> None:
    rest = {"phases.second.local.epochs": 4, "evaluation.per_client": True}
    before = load_scenario(TABLES, rest)
    expected = load_scenario(before, ["phases.second.local.lr=0.3", "evaluation.every=2"])
    assert load_scenario(before, change) == expected
    assert expected.phases[1].local.epochs == 4
    with pytest.raises(ScenarioError, match="participation: has no effect without any key"):
        load_scenario(before, {"participation": {}})


def test_an_option_of_a_short_name_keeps_the_name() -> None:
    """`algorithm = "fedavg"` is short for `{ name = "fedavg" }`, also in lists and as the default."""
    overrides = ["phases.1.algorithm.weighting=uniform", "model.hidden=7", "data.augment.0.probability=0.1"]
    loaded = load_scenario(TABLES, overrides)
    assert loaded.phases[1].algorithm == named("fedavg", weighting="uniform")
    assert loaded.model == named("cnn_femnist", hidden=7)
    assert loaded.data.augment == (named("flip", probability=0.1), named("crop", padding=4))


def test_an_option_of_the_default_algorithm_can_be_set() -> None:
    loaded = load_scenario(TABLES, ["phases.0.algorithm.weighting=uniform"])
    assert loaded.phases[0].algorithm == named("fedavg", weighting="uniform")


def test_phases_may_be_any_sequence_in_python() -> None:
    tables = {**TABLES, "phases": tuple(TABLES["phases"])}
    assert load_scenario(tables, {"phases.1.rounds": 9}).phases[1].rounds == 9


def test_only_the_named_key_changes() -> None:
    before, after = load_scenario(TABLES), load_scenario(TABLES, ["phases.0.local.momentum=0.9"])
    assert after.phases[0].local.lr == 0.5
    local = after.phases[0].local.model_copy(update={"momentum": 0.0})
    phases = (after.phases[0].model_copy(update={"local": local}), after.phases[1])
    assert after.model_copy(update={"phases": phases}) == before


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed", r"'seed' is not an override; write key.path=value, for example phases.0.rounds=10"),
        ("=3", r"'=3' is not an override"),
        ("sed=3", r"sed: unknown key; did you mean 'seed'\?"),
        ("phasess.0.rounds=3", r"phasess: unknown key; did you mean 'phases'\?"),
        ("phases.0.lokal.lr=3", r"phases.first.lokal: unknown key; did you mean 'local'\?"),
        ("phases.0.local.learning_rate=3", r"phases.first.local.learning_rate: unknown key; "),
        ("seed=many", r"seed: must be a valid integer.* \(got 'many'\)"),
        ("phases.0.local.lr=fast", r"phases.first.local.lr: must be a valid number.* \(got 'fast'\)"),
        ("evaluation.per_client=maybe", r"evaluation.per_client: must be a valid boolean.* \(got 'maybe'\)"),
        ("data.source=fils", r"data.source: must be 'auto', 'files' or 'generated' \(got 'fils'\)"),
        ("phases.2.rounds=3", r"phases.2: the list has 2 elements, counted from 0 to 1"),
        ("phases.x.rounds=3", r"phases.x: no phase is called 'x'; known: first, second"),
        ("phases.frist.rounds=3", r"phases.frist: no phase is called 'frist'; did you mean 'first'\?"),
        ("phases.-1.rounds=3", r"phases.-1: no phase is called '-1'"),
        ("phases.².rounds=3", r"phases.²: no phase is called '²'"),
        ("data.augment.crop.padding=3", r"data.augment.crop: the list has 2 elements, counted from 0 to 1"),
        ("model={name=mlp,hidden=[8]}", r"model: {name=mlp,hidden=\[8\]} is not TOML: quote texts, write 0\.5 rather"),
        ("callbacks=[best_model]", r"callbacks: \[best_model\] is not TOML: quote texts"),
        ("phases.2={}", r"phases.2: the list has 2 elements"),
        ("phases.0.rounds.more=3", r"phases.0.rounds.more: 'phases.first.rounds' is a value, not a table"),
        ("phases.0.cohort.bernoulli=0.5", r"'phases.first.cohort' is a value, not a table"),
        ("title.x=3", r"title"),
        ("data.options.x=" + "[" * 5000, r"data.options.x: tables and lists are nested more than 50 levels deep"),
        ("title=" + "{a=" * 5000, r"title: tables and lists are nested more than 50 levels deep"),
        ("data.options.x=" + "[" * 51 + "]" * 51, r"data.options.x: tables and lists are nested more than 50 levels"),
        ("data.options." + "a." * 5000 + "b=3", r"tables and lists are nested more than 50"),
        ("seed=" + "9" * 5000, r"seed: a number has too many digits"),
        ("seed=" + "x" * 5000, r"seed: must be a valid integer.* \(got 'x{199}…\)"),
    ],
    ids=lambda text: text[:60],
)
def test_errors_name_keys_that_cannot_be_overridden(override: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        load_scenario(TABLES, [override])


@pytest.mark.parametrize("text", [f"{'a.' * 100_000}a=1", f"seed={{{'a.' * 100_000}a=1}}"], ids=["key", "value"])
def test_keys_of_thousands_of_parts_are_rejected_at_once(text: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="nested more than 50 levels deep"):
        parse_override(text)
    (tmp_path / "deep.toml").write_text(text)
    with pytest.raises(ScenarioError, match=r"deep\.toml': tables and lists are nested more than 50 levels deep"):
        load_scenario(tmp_path / "deep.toml")
