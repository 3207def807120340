"""Scenarios are found by name or path, and made whole: the file, then [quick], then overrides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rayfl
from rayfl.config import Scenario, find_scenarios, load_scenario
from rayfl.config.loader import read_scenario
from rayfl.config.scenario_files import find, is_shipped
from rayfl.errors import ScenarioError
from rayfl.runs.resolution import resolve

TABLES: dict[str, Any] = {
    "seed": 1,
    "data": {"name": "femnist"},
    "model": "lenet5",
    "phases": [{"name": "only", "rounds": 2, "cohort": 3}],
}
TOML = """\
title = "{title}"
seed = 1
model = "lenet5"
[data]
name = "femnist"
[[phases]]
name = "only"
rounds = 2
cohort = 3
"""
SHIPPED = ("femnist_cyclic", "femnist_fedavg", "fashion_mnist_cyclic", "fashion_mnist_fedavg")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with its own `scenarios` folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenarios").mkdir()
    return tmp_path / "scenarios"


def write(path: Path, title: str = "", more: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(TOML.format(title=title) + more)
    return path


@pytest.mark.parametrize("place", ["mine.toml", "paper/mine.toml", "paper/table_2/mine.toml"])
def test_a_name_is_found_in_any_subfolder(place: str, folder: Path) -> None:
    write(folder / place, "Mine")
    loaded = load_scenario("mine")
    assert (loaded.title, loaded.name) == ("Mine", "mine")


def test_a_path_is_read_wherever_it_lies(folder: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "elsewhere" / "far.toml", "Far")
    assert load_scenario(path).title == load_scenario(str(path)).title == "Far"
    assert "far" not in find_scenarios()


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_scenarios_are_found_from_anywhere(name: str, folder: Path) -> None:
    assert load_scenario(name).title
    quick, full = (sum(p.rounds for p in load_scenario(name, quick=q).phases) for q in (True, False))
    assert quick < full


def test_all_shipped_scenarios_are_valid_with_titles_and_known_algorithms(folder: Path) -> None:
    for name in find_scenarios():
        for quick in (False, True):
            loaded = resolve(load_scenario(name, quick=quick))
            assert (loaded.name, bool(loaded.title)) == (name, True)


def test_an_unchanged_clone_of_what_is_shipped_is_shipped_and_a_changed_one_is_your_own(folder: Path) -> None:
    shipped = find("femnist_cyclic")
    assert is_shipped(shipped)
    clone = Path("scenarios") / shipped.parent.name / shipped.name
    clone.parent.mkdir(parents=True, exist_ok=True)
    clone.write_bytes(shipped.read_bytes())
    assert is_shipped(clone)
    clone.write_bytes(shipped.read_bytes() + b"# mine\n")
    assert not is_shipped(clone)


def test_the_working_directory_goes_before_what_is_shipped(folder: Path) -> None:
    write(folder / "femnist_cyclic.toml", "My own version")
    assert load_scenario("femnist_cyclic").title == "My own version"


def test_two_files_of_one_name_are_an_error_that_names_both(folder: Path) -> None:
    write(folder / "a" / "twin.toml")
    write(folder / "b" / "twin.toml")
    with pytest.raises(
        ScenarioError, match=r"two scenarios have the name 'twin': scenarios/a/twin.toml and .*b/twin.toml"
    ):
        load_scenario("femnist_cyclic")


def test_overrides_win_over_quick_which_wins_over_the_file(folder: Path) -> None:
    quick = '[quick]\n"phases.0.rounds" = 7\n"seed" = 8\n"data.clients" = 9\n'
    path = write(folder / "mine.toml", more=quick)
    file = load_scenario(path)
    assert (file.phases[0].rounds, file.seed, file.data.clients) == (2, 1, None)
    hurried = load_scenario(path, quick=True)
    assert (hurried.phases[0].rounds, hurried.seed, hurried.data.clients) == (7, 8, 9)
    told = load_scenario(path, ["seed=10", "phases.0.rounds=11"], quick=True)
    assert (told.phases[0].rounds, told.seed, told.data.clients) == (11, 10, 9)


@pytest.mark.parametrize("quick", ["[quick.data]\nclients = 9\n", "[quick]\ndata.clients = 9\n"])
def test_tables_in_quick_change_single_keys_too(quick: str, folder: Path) -> None:
    path = write(folder / "mine.toml", more=quick)
    loaded = load_scenario(path, quick=True)
    assert (loaded.data.name, loaded.data.clients) == ("femnist", 9)


def test_the_last_of_two_overrides_of_a_key_wins() -> None:
    assert load_scenario(TABLES, ["seed=3", "seed=4"]).seed == 4


def test_a_table_is_left_as_it_was() -> None:
    tables = {**TABLES, "phases": [dict(TABLES["phases"][0])]}
    assert load_scenario(tables, {"phases.0.rounds": 9}).phases[0].rounds == 9
    assert tables == TABLES


def test_a_scenario_is_taken_as_it_is_and_can_be_overridden() -> None:
    loaded = load_scenario(TABLES)
    assert load_scenario(loaded) == loaded
    assert load_scenario(loaded, ["seed=9"]) == loaded.model_copy(update={"seed": 9})


def test_rayfl_offers_the_same_under_its_own_name() -> None:
    assert rayfl.load_scenario is load_scenario
    assert rayfl.Scenario is Scenario


def test_titles_are_read_without_validation(folder: Path) -> None:
    assert read_scenario(write(folder / "mine.toml", "T", "nonsense = 1\n"))["title"] == "T"


def test_an_unknown_name_offers_the_nearest(folder: Path) -> None:
    with pytest.raises(ScenarioError, match=r"no scenario 'femnist_cycle'; did you mean 'femnist_cyclic'") as caught:
        load_scenario("femnist_cycle")
    assert "or give a path ending in .toml" in str(caught.value)


def test_a_name_unlike_any_other_is_told_where_all_are_listed(folder: Path) -> None:
    with pytest.raises(ScenarioError, match=r"^no scenario 'zzz'; `rayfl list` lists all \(or give a path"):
        load_scenario("zzz")


def test_a_path_to_nothing_is_named(folder: Path) -> None:
    with pytest.raises(ScenarioError, match=r"no scenario file 'not/there.toml'"):
        load_scenario("not/there.toml")


def test_a_file_that_is_no_toml_is_named_with_the_place(folder: Path) -> None:
    path = folder / "broken.toml"
    path.write_text("seed = 1\nrounds = = 3\n")
    with pytest.raises(ScenarioError, match=r"cannot read scenario file 'scenarios/broken.toml': .*line 2"):
        load_scenario("broken")


def test_a_name_too_long_for_a_file_is_named(folder: Path) -> None:
    for name, where in (("a" * 300 + ".toml", "cannot look for 'aaa"), ("a" * 300, "no scenario 'aaa")):
        with pytest.raises(ScenarioError, match=where):
            load_scenario(name)
    path = write(folder / "mine.toml")
    path.write_text(f'base = "{"a" * 300}"\n')
    with pytest.raises(ScenarioError, match=r"scenarios/mine.toml: cannot look for '.*': File name too long"):
        load_scenario("mine")


@pytest.mark.parametrize(
    ("text", "reason"),
    [("x = " + "[" * 5000, "nested more than 50 levels deep"), ("seed = " + "9" * 5000, "5000 digits")],
    ids=["nested", "digits"],
)
def test_a_file_that_would_break_the_parser_is_named(text: str, reason: str, folder: Path) -> None:
    (folder / "odd.toml").write_text(text)
    with pytest.raises(ScenarioError, match=rf"cannot read scenario file 'scenarios/odd.toml': .*{reason}"):
        load_scenario("odd")


def test_a_byte_order_mark_is_no_part_of_a_file(folder: Path) -> None:
    """Some editors on Windows begin UTF-8 files with it."""
    base, derived = write(folder / "base.toml"), folder / "marked.toml"
    base.write_text(base.read_text(), encoding="utf-8-sig")
    derived.write_text('base = "base.toml"\nseed = 5\n', encoding="utf-8-sig")
    assert derived.read_bytes()[:3] == b"\xef\xbb\xbf"
    assert load_scenario(derived).seed == 5
    assert load_scenario(base).phases == load_scenario(derived).phases


def test_a_file_in_another_encoding_is_named(folder: Path) -> None:
    path = folder / "latin.toml"
    path.write_bytes('title = "é"\n'.encode("latin-1"))
    with pytest.raises(ScenarioError, match=r"cannot read scenario file '.*latin.toml'"):
        load_scenario(path)


def test_errors_say_which_scenario_they_are_about(folder: Path) -> None:
    path = write(folder / "mine.toml", more="[numerics]\nthreads = 0\n")
    with pytest.raises(ScenarioError, match=r"scenario 'mine':\nnumerics.threads: must be greater than 0 \(got 0\)"):
        load_scenario(path)


@pytest.mark.parametrize("quick", ["", "[quick]\n"])
def test_quick_without_a_quick_table_is_an_error(quick: str, folder: Path) -> None:
    with pytest.raises(ScenarioError, match=r"scenario 'mine' has no \[quick\] table"):
        load_scenario(write(folder / "mine.toml", more=quick), quick=True)


def test_quick_that_is_no_table_is_an_error() -> None:
    with pytest.raises(ScenarioError, match="quick"):
        load_scenario({**TABLES, "quick": 3}, quick=True)


def test_a_wrong_quick_key_is_found_when_it_is_used() -> None:
    with pytest.raises(ScenarioError, match=r"data.client: unknown key; did you mean 'clients'\?"):
        load_scenario({**TABLES, "quick": {"data.client": 3}}, quick=True)


def test_a_single_override_may_be_given_as_text() -> None:
    assert load_scenario("femnist_cyclic", "seed=41").seed == 41
