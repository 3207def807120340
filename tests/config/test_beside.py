"""Paths are relative to the file that names them; those in overrides are relative to the working directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomli_w

from rayfl.config.loader import load_scenario
from rayfl.config.scenario import Scenario
from rayfl.runs.start_chain import starts_of
from rayfl.studies.grid.schema import load_grid

TINY: dict[str, Any] = {
    "data": {"name": "npz_file", "clients": 2},
    "model": {"name": "mlp"},
    "phases": [{"name": "p", "rounds": 1, "cohort": 1}],
}
PATHS = {
    "start.file": "weights/x.safetensors",
    "start.run": "runs/x",
    "start.scenario": "first.toml",
    "data.options.path": "../mine.npz",
    "data.options.test_path": "../test.txt",
    "data.options.root": "files",
    "data.options.tokenizer": "distilbert",
    "model.folder": "distilbert",
}


def nested(key: str, value: Any) -> dict[str, Any]:
    first, _, rest = key.partition(".")
    return {first: nested(rest, value) if rest else value}


def at(scenario: Scenario, key: str) -> Any:
    found: Any = scenario.model_dump(mode="json")
    for part in key.split("."):
        found = found[part]
    return found


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with scenarios, which is not the working directory."""
    (tmp_path / "project" / "weights").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "project"


def write(path: Path, *tables: dict[str, Any]) -> Path:
    whole: dict[str, Any] = {}
    for part in tables:
        for key, value in part.items():
            both = isinstance(whole.get(key), dict) and isinstance(value, dict)
            whole[key] = whole[key] | value if both else value
    path.write_text(tomli_w.dumps(whole))
    return path


@pytest.mark.parametrize("key", PATHS)
def test_a_path_in_a_file_is_beside_it_and_absolute_in_what_is_written(key: str, project: Path) -> None:
    path = write(project / "own.toml", TINY, nested(key, PATHS[key]))
    expected = str((project / PATHS[key]).resolve())
    loaded = load_scenario(path)
    assert at(loaded, key) == expected
    again = write(project.parent / "scenario.toml", {})
    again.write_text(loaded.to_toml())
    assert at(load_scenario(again), key) == expected


@pytest.mark.parametrize("key", PATHS)
def test_a_path_of_a_base_is_beside_the_base(key: str, project: Path) -> None:
    write(project / "base.toml", TINY, nested(key, PATHS[key]))
    (project / "deeper").mkdir()
    path = write(project / "deeper" / "own.toml", {"base": "../base.toml", "seed": 3})
    assert at(load_scenario(path), key) == str((project / PATHS[key]).resolve())


@pytest.mark.parametrize("key", PATHS)
def test_a_path_in_an_override_or_a_table_is_relative_to_the_working_directory(key: str, project: Path) -> None:
    path = write(project / "own.toml", TINY)
    expected = str((Path.cwd() / PATHS[key]).resolve())
    assert at(load_scenario(path, [f"{key}={PATHS[key]}"]), key) == expected
    assert at(load_scenario(path, {key: PATHS[key]}), key) == expected
    table = {**TINY, **nested(key, PATHS[key])}
    table |= {section: {**TINY[section], **table[section]} for section in ("data", "model")}
    assert at(load_scenario(table), key) == expected


@pytest.mark.parametrize("quick", [{"quick": nested("start.file", "x.pt")}, {"quick": {"start.file": "x.pt"}}])
def test_a_path_in_the_quick_table_is_beside_its_file(quick: dict[str, Any], project: Path) -> None:
    path = write(project / "own.toml", TINY, quick)
    assert at(load_scenario(path, quick=True), "start.file") == str(project / "x.pt")


@pytest.mark.parametrize(
    "overrides", [nested("data.options.path", "a.npz"), {"data.options.path": "a.npz"}], ids=["tables", "key path"]
)
def test_overrides_of_a_start_are_beside_the_file_that_has_them(overrides: dict[str, Any], project: Path) -> None:
    (project / "first").mkdir()
    write(project / "first" / "first.toml", TINY, nested("data.options.path", "own.npz"))
    start = {"start": {"scenario": "first/first.toml", "overrides": overrides}}
    (first,) = starts_of(load_scenario(write(project / "own.toml", TINY, start)).start)
    assert first.scenario.data.options["path"] == str(project / "a.npz")
    (first,) = starts_of(
        load_scenario(write(project / "own.toml", TINY, {"start": {"scenario": "first/first.toml"}})).start
    )
    assert first.scenario.data.options["path"] == str(project / "first" / "own.npz")


def test_a_scenario_by_name_is_the_one_beside_the_file_first_and_rayfls_own_keep_their_names(project: Path) -> None:
    own = {"start": {"scenario": "femnist_cyclic"}}
    assert at(load_scenario(write(project / "own.toml", TINY, own)), "start.scenario") == "femnist_cyclic"
    write(project / "femnist_cyclic.toml", TINY)
    assert at(load_scenario(project / "own.toml"), "start.scenario") == str(project / "femnist_cyclic.toml")
    Path("scenarios").mkdir()
    write(Path("scenarios") / "mine.toml", TINY)
    found = load_scenario(write(project / "own.toml", TINY, {"start": {"scenario": "mine"}}))
    assert at(found, "start.scenario") == str(Path("scenarios/mine.toml").absolute())


def test_a_missing_scenario_is_looked_for_beside_the_file_alone(project: Path) -> None:
    write(Path("first.toml"), TINY)
    loaded = load_scenario(write(project / "own.toml", TINY, {"start": {"scenario": "first.toml"}}))
    assert at(loaded, "start.scenario") == str(project / "first.toml")


def test_home_is_written_out_and_absolute_paths_and_urls_stay(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    for path, expected in (("~/x.npz", "/home/ann/x.npz"), ("/a/x.npz", "/a/x.npz"), ("s3://a/x", "s3://a/x")):
        given = load_scenario(write(project / "own.toml", TINY, nested("data.options.path", path)))
        assert at(given, "data.options.path") == expected


@pytest.mark.parametrize("key", PATHS)
@pytest.mark.parametrize("where", ["overrides", "quick", "rows", "columns"])
def test_paths_in_a_grid_are_beside_its_file_and_so_is_its_scenario(where: str, key: str, project: Path) -> None:
    (project / "grids").mkdir()
    write(project / "own.toml", TINY, {"quick": {"seed": 0}})
    overrides = nested(key, PATHS[key])
    tables: dict[str, Any] = {"scenario": "../own.toml", "rows": {"a": {}}, "columns": {"b": {}}}
    tables[where] = {"only": overrides} if where in ("rows", "columns") else overrides
    grid = load_grid(write(project / "grids" / "own.grid.toml", tables))
    (cell,) = grid.scenarios(quick=True).values()
    assert at(cell, key) == str((project / "grids" / PATHS[key]).resolve())


def test_a_grids_overrides_on_the_command_line_are_relative_to_the_working_directory(project: Path) -> None:
    write(project / "own.toml", TINY)
    tables = {"scenario": "own.toml", "rows": {"a": {}}, "columns": {"b": {}}, "overrides": {"start.file": "a.pt"}}
    grid = load_grid(write(project / "own.grid.toml", tables))
    (cell,) = grid.scenarios(["start.file=b.pt"]).values()
    assert at(cell, "start.file") == str(Path.cwd() / "b.pt")
