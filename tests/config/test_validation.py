"""Errors list every wrong key with its path, the allowed values and the given value."""

from __future__ import annotations

import copy
from typing import Any

import pydantic
import pytest

from rayfl.algorithms.fedavg import FedAvg
from rayfl.config import Scenario, load_scenario
from rayfl.config.overrides import apply_override
from rayfl.config.validation import RENAMED, annotation_at
from rayfl.errors import ScenarioError
from rayfl.runs.resolution import resolve

TABLES: dict[str, Any] = {
    "data": {"name": "femnist"},
    "model": "lenet5",
    "phases": [
        {"name": "first", "schedule": "relay", "rounds": 2, "cohort": 3},
        {"name": "second", "rounds": 2, "cohort": 3},
    ],
}
SINGLE = "which is a single step; leave it out"
NEAREST = "did you mean 'fedavg' or 'qfedavg' or 'fedavgm'?"
SCHEDULES = "'parallel', 'relay', 'buffered', 'asynchronous', 'local' or 'central', or 'package.module:object'"
EVALUATION = "bank, batch_size, client_model, clients, every, headline, metrics, over_clients, per_client, personalize"
COHORT = (
    "allowed are a number of clients (1, 2, ...), a share of them (0.0 < share <= 1.0), "
    "{ bernoulli = probability }, { by_size = number }, { explicit = [[client, ...], ...] }, or { sampler = name, ... }"
)


def message_for(path: str, value: Any) -> str:
    tables = copy.deepcopy(TABLES)
    apply_override(tables, path, value)
    with pytest.raises(ScenarioError) as caught:
        resolve(Scenario.from_tables(tables))
    return str(caught.value)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("seed", -1, "seed: must be greater than or equal to 0 (got -1)"),
        ("phases.0.local.momentum", 1, "phases.first.local.momentum: must be less than 1 (got 1)"),
        ("phases.0.local.lr", float("nan"), "phases.first.local.lr: must be a finite number (got nan)"),
        (
            "phases.0.local.lr",
            10**40,
            f"phases.first.local.lr: must be at most 3.4e38 in magnitude, the largest float32 (got {10**40})",
        ),
        ("phases.1.cohort", True, f"phases.second.cohort: {COHORT} (got True)"),
        (
            "resources.hosts",
            0,
            "resources.hosts: must be greater than 0 or must be 'auto' or must be a table (got 0)",
        ),
        (
            "resources.hosts",
            {"min": 5, "max": 3},
            "resources.hosts: min = 5 is above max = 3; lower min or raise max",
        ),
        (
            "resources.host_options.label_selector",
            {"pool": "in()"},
            "resources.host_options.label_selector: pool = 'in()' is none of value, !value, in(a, b) and !in(a, b)",
        ),
        (
            "resources.host_options.resources",
            {"GPU": 1},
            "resources.host_options.resources: GPU is not a custom resource; use resources.gpus_per_host",
        ),
        (
            "data.normalize",
            {"mean": [0.5], "std": [0.0]},
            "data.normalize: mean and std need one value per channel, std above 0",
        ),
        (
            "phases.1.name",
            "p1.5",
            "phases: 'p1.5' is no name that keys could contain; use neither dots nor digits alone",
        ),
        ("phases.1.name", "2", "phases: '2' is no name that keys could contain; use neither dots nor digits alone"),
        ("phases.1.name", "first", "phases: two phases have the same name: first, first"),
        ("phases", [], "phases: must not be empty (got [])"),
        ("data", 3, "data: must be a table (got 3)"),
        (
            "phases.1.order",
            "fixed",
            "phases.second.order: has no effect with this schedule; leave it out (got 'fixed')",
        ),
        (
            "phases.1.local",
            {"lr": 0.1, "lr_decay_from": "phase"},
            "phases.second.local: lr_decay_from has no effect without lr_decay and lr_drops; leave it out",
        ),
        (
            "phases.1.local",
            {"lr": 0.1, "batch_size": "full", "drop_last": True},
            f"phases.second.local: drop_last has no effect with batch_size = 'full', {SINGLE}",
        ),
        ("phases.1.schedule", "ring", f"phases.second: schedule must be {SCHEDULES}"),
        (
            "phases.0.algorithm",
            "fedavgg",
            f"unknown algorithm 'fedavgg'; {NEAREST} (your own: 'package.module:object')",
        ),
        (
            "phases.1.algorithm",
            {"name": "fedavg", "wieghting": "size"},
            "phases.second.algorithm.wieghting: unknown key; did you mean 'weighting' or 'aggregation'? (got 'size')",
        ),
        (
            "phases.1.algorithm",
            {"name": "fedavg", "weighting": "size"},
            "phases.second.algorithm.weighting: must be 'samples' or 'uniform' (got 'size')",
        ),
        (
            "phases.1.algorithm",
            {"name": "tests.user_code:CautiousServer"},
            "phases.second.algorithm.server_lr: is missing",
        ),
        ("evaluation.zzz", 1, f"evaluation.zzz: unknown key; known: {EVALUATION}, samples (got 1)"),
    ],
)
def test_what_is_said_about_a_wrong_value_word_for_word(path: str, value: Any, message: str) -> None:
    """One text of each kind; the contracts over all keys check only their shape."""
    assert message_for(path, value) == message


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("resources.patience_s", 5, "resources.patience_s: is now called resources.watchdog_s"),
        (
            "phases.1.cohort",
            {"given": [[1]]},
            "phases.second.cohort.given: is now called phases.second.cohort.explicit",
        ),
    ],
)
def test_an_old_key_is_rejected_with_the_new_ones_name(path: str, value: Any, message: str) -> None:
    assert message_for(path, value) == message


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_every_renamed_key_is_unknown_and_its_new_name_is_known(old: str, new: str) -> None:
    def known(key: str) -> bool:
        """Whether the schema, a form of `cohort` or FedAvg's options have the key."""
        *parents, last = (int(part) if part.isdecimal() else part for part in key.replace("*", "0").split("."))
        if parents[-1] == "cohort":
            return last in {"bernoulli", "by_size", "explicit"}
        if parents[-1] == "algorithm":
            return str(last) in FedAvg.model_fields
        try:
            annotation_at(Scenario, (*parents, last))
        except KeyError:
            return False
        return True

    assert (known(old), known(new)) == (False, True)


def test_all_missing_keys_are_told_at_once() -> None:
    with pytest.raises(ScenarioError, match=r"data: is missing\nmodel: is missing\nphases: is missing"):
        load_scenario({})
    with pytest.raises(ScenarioError, match=r"phases.a.cohort: is missing"):
        load_scenario({**TABLES, "phases": [{"name": "a"}]})


def test_every_wrong_key_gets_its_line() -> None:
    tables = {**TABLES, "seed": -1, "resources": {"hosts": "many", "restart": 3}}
    with pytest.raises(ScenarioError) as caught:
        load_scenario(tables)
    first, *rest = str(caught.value).splitlines()
    assert first == "scenario 'scenario':"
    assert [line.split(":")[0] for line in rest] == ["seed", "resources.hosts", "resources.restart"]


@pytest.mark.parametrize("name", ["rayfl.engine.host:Host", "tests.user_code:vectors", "tests.user_code:SHARD_SIZES"])
def test_an_algorithm_that_is_none_is_rejected(name: str) -> None:
    message = message_for("phases.1.algorithm", name)
    assert name in message
    assert "Algorithm" in message


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_package:Thing", "cannot import 'no_such_package:Thing': No module named 'no_such_package'"),
        (
            "tests.user_code:CautionsServer",
            "module 'tests.user_code' has no 'CautionsServer'; did you mean 'CautiousServer'",
        ),
        (":Thing", "':Thing'"),
        (".relative:Thing", "'.relative:Thing'"),
    ],
)
def test_an_import_path_to_nothing_is_told(name: str, message: str) -> None:
    assert message in message_for("phases.1.algorithm", name)


@pytest.mark.parametrize("name", ["a/b", "", "..", "a\nb", "a" * 201, "ä" * 101])
def test_a_name_that_cannot_name_a_folder_is_rejected(name: str) -> None:
    assert "name: " in message_for("name", name)
    assert Scenario.from_tables({**TABLES, "name": "ä" * 100}).name


def test_options_that_no_file_can_hold_are_rejected() -> None:
    assert "data.options" in message_for("data.options", {"rows": object()})


def test_tables_that_contain_themselves_are_rejected() -> None:
    endless: list[Any] = []
    endless += [endless, endless]
    for tables, overrides in (
        ({**TABLES, "data": {"name": "femnist", "options": {"rows": endless}}}, {}),
        (TABLES, {"data.options.rows": endless}),
    ):
        with pytest.raises(ScenarioError, match="nested more than 50 levels deep"):
            load_scenario(tables, overrides)


def test_scenarios_cannot_be_changed() -> None:
    scenario = load_scenario(TABLES)
    for section in (scenario, scenario.data, scenario.phases[0], scenario.phases[0].local, scenario.model):
        with pytest.raises(pydantic.ValidationError, match="frozen"):
            setattr(section, "name", "other")  # noqa: B010 - an assignment that mypy refuses


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (("seed",), int),
        (("phases", 0, "rounds"), int),
        (("phases", 1, "local", "drop_last"), bool),
        (("data", "options", "x"), Any),
    ],
)
def test_the_schema_knows_the_type_at_a_path(path: tuple[int | str, ...], expected: Any) -> None:
    assert annotation_at(Scenario, path) is expected


def test_the_schema_does_not_know_what_is_not_there() -> None:
    with pytest.raises(KeyError):
        annotation_at(Scenario, ("phases", 0, "lokal"))
