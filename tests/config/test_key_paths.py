"""Error messages show phases by name, and by number if a name would be ambiguous."""

from __future__ import annotations

from typing import Any

import pytest

from rayfl.config.loader import load_scenario
from rayfl.config.validation import written_path
from rayfl.errors import ScenarioError

DATA: dict[str, Any] = {"data": {"name": "femnist"}, "model": "lenet5"}


def phase(**keys: Any) -> dict[str, Any]:
    return {"rounds": 1, "cohort": 1, **keys}


def complaint(*phases: dict[str, Any], overrides: dict[str, Any] | None = None) -> str:
    with pytest.raises(ScenarioError) as error:
        load_scenario(DATA | {"phases": list(phases)}, overrides or {})
    return str(error.value)


def test_a_misspelt_key_is_reported_under_the_phases_name() -> None:
    said = complaint(phase(name="cyclic", cohrt=2), phase(name="federated", local={"learning_rate": 1}))
    assert "phases.cyclic.cohrt: unknown key; did you mean 'cohort'" in said
    assert "phases.federated.local.learning_rate: unknown key; did you mean 'lr'?" in said
    assert "phases.0" not in said
    assert "phases.1" not in said


def test_an_override_by_number_is_reported_under_the_phases_name() -> None:
    said = complaint(phase(name="cyclic"), overrides={"phases.0.local.lr": -1})
    assert "phases.cyclic.local.lr: must be greater than 0 (got -1)" in said


def test_the_path_in_a_message_works_as_an_override() -> None:
    phases = [phase(name="cyclic"), phase(name="federated")]
    path = written_path({"phases": phases}, ("phases", 1, "local", "lr"))
    assert load_scenario(DATA | {"phases": phases}, {path: 0.25}).phases[1].local.lr == 0.25


@pytest.mark.parametrize(
    "names", [[None], ["same", "same"], [3, "b"], ["", "b"], ["1", "b"], ["a.b", "c"], [["a"], "b"], ["a\nb", "c"]]
)
def test_a_phase_whose_name_does_not_tell_is_numbered(names: list[Any]) -> None:
    tables = {"phases": [{} if name is None else {"name": name} for name in names]}
    assert written_path(tables, ("phases", 0, "rounds")) == "phases.0.rounds"


def test_a_wrong_name_is_reported_under_the_phases_number() -> None:
    assert "phases.1.name: must be a valid string (got 3)" in complaint(phase(name="cyclic"), phase(name=3))
    assert written_path({"phases": [{"name": "cyclic"}]}, ("phases", 0, "name")) == "phases.0.name"


@pytest.mark.parametrize("tables", [None, {}, {"phases": "three"}, {"phases": [3]}, {"phases": []}])
def test_tables_that_are_no_scenario_keep_the_number(tables: Any) -> None:
    assert written_path(tables, ("phases", 0, "rounds")) == "phases.0.rounds"
    assert written_path(tables, ("data", "name")) == "data.name"
