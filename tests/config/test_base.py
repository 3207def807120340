"""A scenario over its base: one way to share what experiments have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rayfl.config import Scenario, find_scenarios, load_scenario
from rayfl.config.data import Normalization
from rayfl.config.loader import read_scenario
from rayfl.config.section import Named
from rayfl.errors import ScenarioError

BASE = """\
name = "the base itself"
title = "The base"
seed = 1
model = { name = "lenet5", width = 4 }
[data]
name = "femnist"
augment = ["flip"]
partition = { name = "dirichlet", beta = 0.1 }
[[phases]]
name = "cyclic"
schedule = "relay"
rounds = 2
cohort = 3
local = { lr = 0.5, epochs = 7 }
[[phases]]
name = "federated"
until = 10
cohort = 3
[quick]
phases.cyclic.rounds = 1
phases.federated.until = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory's `scenarios`, with a base in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "_base.toml").write_text(BASE)
    return tmp_path / "scenarios"


def over(folder: Path, text: str, base: str = "_base", name: str = "mine") -> Path:
    path = folder / f"{name}.toml"
    path.write_text(f'base = "{base}"\n{text}')
    return path


def rounds(scenario: Scenario) -> dict[str, int]:
    return {phase.name: phase.rounds for phase in scenario.phases}


def test_a_file_that_only_names_its_base_is_the_base_under_its_own_name(folder: Path) -> None:
    base, mine = load_scenario(folder / "_base.toml"), load_scenario(over(folder, ""))
    assert (base.name, mine.name) == ("the base itself", "mine")
    assert mine == base.model_copy(update={"name": "mine"})
    assert "base =" not in mine.to_toml()


def test_tables_change_single_keys_and_lists_replace(folder: Path) -> None:
    mine = load_scenario(over(folder, 'seed = 2\n[data]\nclients = 9\naugment = ["crop"]\n'))
    assert (mine.seed, mine.data.name, mine.data.clients) == (2, "femnist", 9)
    assert [augment.name for augment in mine.data.augment] == ["crop"]
    assert mine.model.options == {"width": 4}


def test_a_phase_is_changed_by_its_name(folder: Path) -> None:
    mine = load_scenario(over(folder, "[phases.cyclic]\ncohort = 5\nlocal = { lr = 0.25 }\n"))
    assert mine.phases[0].settings.cohort == 5
    assert (mine.phases[0].local.lr, mine.phases[0].local.epochs) == (0.25, 7)
    assert rounds(mine) == {"cyclic": 2, "federated": 8}


def test_a_table_without_a_name_changes_options_and_one_with_a_name_replaces_them(folder: Path) -> None:
    changed = load_scenario(over(folder, 'data.partition.beta = 0.5\nphases.federated.algorithm.weighting = "uniform"'))
    assert changed.data.partition is not None
    assert (changed.data.partition.name, changed.data.partition.options) == ("dirichlet", {"beta": 0.5})
    assert changed.phases[1].algorithm.options == {"weighting": "uniform"}
    replaced = load_scenario(over(folder, 'model = { name = "mine:Net" }\ndata.partition = "iid"\n'))
    assert (replaced.model.name, replaced.model.options) == ("mine:Net", {})
    assert replaced.data.partition is not None
    assert replaced.data.partition.options == {}


def test_a_section_that_the_base_gives_by_name_can_be_given_by_its_keys(folder: Path) -> None:
    over(folder, 'data.normalize = "imagenet"', name="named")
    mine = load_scenario(over(folder, "data.normalize = { mean = [0.5], std = [0.25] }", base="named"))
    assert mine.data.normalize == Normalization(mean=(0.5,), std=(0.25,))


def test_a_list_of_phases_replaces_the_bases(folder: Path) -> None:
    mine = load_scenario(over(folder, '[[phases]]\nname = "only"\nrounds = 3\ncohort = 1\n'))
    assert rounds(mine) == {"only": 3}


def test_a_base_may_have_a_base(folder: Path) -> None:
    over(folder, "seed = 2\nphases.cyclic.rounds = 4\n", name="middle")
    mine = load_scenario(over(folder, "phases.cyclic.cohort = 1\n", base="middle"))
    assert (mine.seed, rounds(mine), mine.phases[0].settings.cohort) == (2, {"cyclic": 4, "federated": 6}, 1)


def test_a_base_is_found_beside_the_file_by_path_from_it_or_among_all_scenarios(folder: Path) -> None:
    (folder / "paper").mkdir()
    assert load_scenario(over(folder / "paper", "", base="../_base.toml")).title == "The base"
    assert load_scenario(over(folder / "paper", "", base="mine.toml", name="other")).title == "The base"
    over(folder, 'title = "Shared"', name="shared")
    assert load_scenario(over(folder / "paper", "", base="shared", name="third")).title == "Shared"
    assert load_scenario(over(folder / "paper", "", base="femnist_cyclic", name="fourth")).title.startswith("CyclicFL")


def test_a_table_may_have_a_base() -> None:
    tables: dict[str, Any] = {"base": "femnist_cyclic", "phases": {"cyclic": {"rounds": 0}}}
    mine = load_scenario(tables)
    assert (mine.name, rounds(mine)) == ("scenario", {"federated": 1000})
    assert tables == {"base": "femnist_cyclic", "phases": {"cyclic": {"rounds": 0}}}


def test_files_that_are_only_bases_are_no_scenarios(folder: Path) -> None:
    over(folder, "")
    assert "mine" in find_scenarios()
    assert not [name for name in find_scenarios() if name.startswith("_")]
    with pytest.raises(ScenarioError, match="no scenario '_base'"):
        load_scenario("_base")


def test_the_title_in_the_list_may_be_the_bases(folder: Path) -> None:
    assert read_scenario(over(folder, ""))["title"] == "The base"
    assert read_scenario(over(folder, 'title = "Mine"'))["title"] == "Mine"


def test_quick_is_inherited_unless_there_is_another(folder: Path) -> None:
    assert rounds(load_scenario(over(folder, ""), quick=True)) == {"cyclic": 1, "federated": 2}
    own = over(folder, "[quick]\nphases.cyclic.rounds = 2\nphases.federated.rounds = 1\n")
    assert rounds(load_scenario(own, quick=True)) == {"cyclic": 2, "federated": 1}


def test_an_inherited_quick_does_not_touch_phases_that_are_switched_off_or_gone(folder: Path) -> None:
    off = over(folder, "phases.cyclic.rounds = 0\n")
    assert rounds(load_scenario(off, quick=True)) == {"federated": 3}
    gone = over(folder, '[[phases]]\nname = "federated"\nrounds = 50\ncohort = 1\n')
    assert rounds(load_scenario(gone, quick=True)) == {"federated": 3}


def test_an_inherited_quick_leaves_out_options_of_a_partition_that_is_replaced_by_another(folder: Path) -> None:
    quick = "[quick]\ndata.clients = 9\ndata.partition.beta = 1.0\nphases.federated.algorithm.mu = 0.5\n"
    over(folder, f'phases.federated.algorithm = "fedprox"\n{quick}', name="hurried")
    kept = load_scenario(over(folder, "data.partition.beta = 0.3", base="hurried"), quick=True)
    assert kept.data.partition == Named.model_validate({"name": "dirichlet", "beta": 1.0})
    assert kept.phases[1].algorithm.options == {"mu": 0.5}
    other = 'data.partition = "iid"\nphases.federated.algorithm = "fedavg"'
    replaced = load_scenario(over(folder, other, base="hurried"), quick=True)
    assert replaced.data.partition == Named(name="iid")
    assert replaced.data.clients == 9
    assert replaced.phases[1].algorithm == Named(name="fedavg")


def test_a_wrong_phase_in_a_users_quick_table_is_an_error(folder: Path) -> None:
    path = over(folder, "[quick]\nphases.cyclik.rounds = 2\n")
    with pytest.raises(ScenarioError, match=r"phases.cyclik: no phase is called 'cyclik'; did you mean 'cyclic'\?"):
        load_scenario(path, quick=True)


@pytest.mark.parametrize(
    ("text", "base", "message"),
    [
        ("", "_bass", r"mine.toml: no scenario '_bass'; .*\(or give a path ending in .toml\)"),
        ("", "far/base.toml", r"mine.toml: no scenario file '.*scenarios/far/base.toml'"),
        ("", "mine", r"mine.toml: a circle of bases: mine.toml -> mine.toml"),
        ("phases.cyclik.rounds = 3", "_base", r"mine.toml: phases.cyclik: no phase is called 'cyclik'; did you mean"),
        ("data.nam = 3", "_base", r"scenario 'mine':\ndata.nam: unknown key; did you mean 'name'"),
    ],
)
def test_errors_in_a_base_name_the_file(text: str, base: str, message: str, folder: Path) -> None:
    with pytest.raises(ScenarioError, match=message):
        load_scenario(over(folder, text, base))


def test_a_circle_of_two_is_told_in_order(folder: Path) -> None:
    over(folder, "", base="b", name="a")
    over(folder, "", base="a", name="b")
    with pytest.raises(ScenarioError, match=r"a circle of bases: a.toml -> b.toml -> a.toml"):
        load_scenario("a")


def test_a_base_that_is_no_text_is_rejected(folder: Path) -> None:
    path = folder / "mine.toml"
    path.write_text("base = 3\n")
    with pytest.raises(ScenarioError, match=r"mine.toml: base: must be a scenario's name .* \(got 3\)"):
        load_scenario(path)
