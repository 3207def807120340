"""The keys and phases that a shell completes: those of the schema, from a cache that is never out of date."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayfl.cli import scenario_keys
from rayfl.cli.scenario_keys import ANY_PHASE, keys_by_section, keys_of_schema, phase_names
from rayfl.config.loader import load_scenario
from rayfl.config.scenario import Scenario
from rayfl.config.scenario_files import find_scenarios
from rayfl.config.validation import annotation_at


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the cache, which does not exist yet."""
    monkeypatch.setenv("RAYFL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "completion" / "keys.json"


def key_paths(tables: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The key paths of the values in tables; a phase's position in the list is left out."""
    match tables:
        case dict():
            for key, value in tables.items():
                yield from key_paths(value, (*path, key))
        case [dict(), *_] if path == ("phases",):
            for phase in tables:
                yield from key_paths(phase, ("phases.*",))
        case _:
            yield path


def test_the_schema_has_every_key_that_is_completed() -> None:
    for section, keys in keys_of_schema().items():
        path = section.replace(ANY_PHASE, "phases.0").split(".") if section else []
        for key in keys:
            whole = (*path, key.rstrip(".="))
            annotation_at(Scenario, tuple(int(part) if part.isdecimal() else part for part in whole))


@pytest.mark.parametrize("name", ["femnist_cyclic", "femnist_private", "cityscapes_fps"])
def test_every_key_of_a_resolved_scenario_is_completed(name: str) -> None:
    known = keys_of_schema()
    tables = load_scenario(name).model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    for path in key_paths(tables):
        section, found = "", []
        for part in path:
            found = known[section]
            if f"{part}." in found or part == ANY_PHASE:
                section = f"{section}.{part}" if section else part
            else:
                break
        # the options of a choice by name are its own, and no keys of the schema
        assert f"{part}=" in found or section in known, path


def test_phases_are_those_of_the_loaded_scenario_and_those_without_rounds() -> None:
    for name in find_scenarios():
        found = phase_names(name)
        running = [phase.name for phase in load_scenario(name).phases]
        assert [phase for phase in found if phase in running] == running


def test_a_phase_without_a_name_goes_by_its_number(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[[phases]]\nrounds = 1\n[[phases]]\nname = "second"\n')
    assert phase_names(str(file)) == ["0", "second"]


@pytest.mark.parametrize("text", ['base = "mine.toml"', 'base = "nothing"', "title = 'none'", "no TOML", "phases = 3"])
def test_a_file_without_phases_completes_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(text)
    assert phase_names(str(tmp_path / "mine.toml")) == []


def test_the_schema_is_read_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = keys_by_section()
    assert first == keys_of_schema()
    assert cache.is_file()
    monkeypatch.setattr(scenario_keys, "keys_of_schema", lambda: pytest.fail("the schema was read again"))
    assert keys_by_section() == first


def test_another_version_reads_the_schema_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys_by_section()
    cache.write_text(json.dumps(json.loads(cache.read_text()) | {"keys": {"": ["of_the_other="]}}))
    assert keys_by_section() == {"": ["of_the_other="]}
    monkeypatch.setattr("rayfl.__version__", "99")
    assert keys_by_section() == keys_of_schema()


def test_a_changed_schema_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = tmp_path / "rayfl" / "config"
    schema.mkdir(parents=True)
    (schema / "scenario.py").touch()
    monkeypatch.setattr("rayfl.__file__", str(tmp_path / "rayfl" / "__init__.py"))
    monkeypatch.setattr(scenario_keys, "keys_of_schema", lambda: {"": ["before="]})
    assert keys_by_section() == {"": ["before="]}
    (schema / "new_section.py").touch()
    monkeypatch.setattr(scenario_keys, "keys_of_schema", lambda: {"": ["after="]})
    assert keys_by_section() == {"": ["after="]}


@pytest.mark.parametrize("damaged", ["", "{", "[]", '{"stamp": 1}'])
def test_a_damaged_cache_is_replaced(damaged: str, cache: Path) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text(damaged)
    assert keys_by_section() == keys_of_schema() == json.loads(cache.read_text())["keys"]


def test_a_cache_that_cannot_be_written_is_done_without(cache: Path) -> None:
    cache.parent.parent.touch()  # a file is where the folder should be
    assert keys_by_section() == keys_of_schema()
