"""The how-to guides show scenarios that can be run, commands that resolve, and Python that compiles."""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import rayfl.cli.data
import rayfl.cli.run
import rayfl.runs.session
from rayfl.cli import grid as grid_command
from rayfl.config.loader import load_scenario
from rayfl.config.scenario import Scenario
from rayfl.data.generated import digits
from rayfl.engine.plan.scenario_checks import check_scenario
from rayfl.runs.options import RunOptions
from rayfl.runs.preparation import prepare
from rayfl.runs.resolution import resolve
from rayfl.studies.grid.schema import Grid, load_grid
from tests.docs import pages

OWN = "how-to/own-components.md"
"""Its scenario names a network that the page defines."""


@pytest.fixture(scope="module", autouse=True)
def few_writers(images_drawn_once: None) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digits, "COLOURED_WRITERS", 30)
        yield


def scenarios(page: str) -> list[dict[str, Any]]:
    """The blocks of a page that have phases and data or a base. Phases alone stand for those of the page's first."""
    found = [tables for tables in pages.tables(page) if "phases" in tables]
    whole = [tables for tables in found if {"data", "model"} <= tables.keys() or "base" in tables]
    return whole + [whole[0] | {"phases": tables["phases"]} for tables in found if tables not in whole]


def fragments(page: str) -> list[dict[str, Any]]:
    """The other blocks, as overrides of a scenario: parts of it, or of a phase."""
    found = [tables for tables in pages.tables(page) if not {"phases", "base", "rows", "items"} & tables.keys()]
    return [
        {key if key in Scenario.model_fields else f"phases.federated.{key}": value for key, value in tables.items()}
        for tables in found
    ]


def of_pages(found: Any) -> list[Any]:
    return [pytest.param(each, id=f"{page} {index}") for page in pages.GUIDES for index, each in enumerate(found(page))]


def grids(page: str) -> list[dict[str, Any]]:
    return [tables for tables in pages.tables(page) if "rows" in tables]


def commands(page: str) -> list[tuple[str, list[str]]]:
    return list(pages.commands(page))


def python(page: str) -> list[str]:
    return pages.fenced(page, "python")


@pytest.mark.parametrize("tables", of_pages(scenarios))
def test_a_documented_scenario_can_be_run(tables: dict[str, Any]) -> None:
    overrides: dict[str, Any] = {"data.source": "generated"}
    if "views" in tables.get("data", {}):  # two fit SimSiam and MoCo, Orchestra needs three
        overrides["data.views"] = [{"augment": ["flip"]}] * (3 if "orchestra" in str(tables["phases"]) else 2)
    if "'devices.parquet'" in str(tables):
        overrides["participation.up_bytes_per_s"] = 500_000
        overrides["participation.availability"] = 0.9
    prepare(load_scenario(tables, overrides), Path("no-data-here"))


def test_a_documented_network_can_be_trained_in_the_scenario_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    [network] = python(OWN)
    [scenario] = [block for block in pages.INDENTED.findall(pages.text(OWN)) if "base =" in block]
    (tmp_path / "networks.py").write_text(network)
    (tmp_path / "mine.toml").write_text("\n".join(line.strip() for line in scenario.splitlines()))

    loaded = load_scenario(tmp_path / "mine.toml", ["data.source=generated"])
    prepare(loaded, Path("no-data-here"))  # makes the network and compares it with the data

    assert loaded.model.name == "networks:Perceptron"
    assert Path(str(sys.modules.pop("networks").__file__)) == tmp_path / "networks.py"


@pytest.mark.parametrize("overrides", of_pages(fragments))
def test_the_keys_of_a_documented_fragment_exist(overrides: dict[str, Any]) -> None:
    load_scenario("femnist_fedavg", overrides)


@pytest.mark.parametrize("tables", of_pages(grids))
def test_the_cells_of_a_documented_grid_resolve(tables: dict[str, Any]) -> None:
    cells = load_grid(tables).scenarios()

    assert {(place.row, place.column) for place in cells} == {
        (row, column) for row in tables["rows"] for column in tables["columns"]
    }


@pytest.mark.parametrize("command", of_pages(commands))
def test_a_documented_command_resolves(command: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    kind, arguments = command
    if kind == "grid":
        check_grid(arguments, monkeypatch)
    else:
        check_scenario(resolve(load_scenario(*asked(kind, arguments, monkeypatch))))


def check_grid(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def taken(name: str, **options: Any) -> Any:
        given.update(options, name=name)
        return argparse.Namespace(failed=(), failed_analyses={})

    monkeypatch.setattr("rayfl.studies.grid.execution.grid", taken)
    assert grid_command.main(arguments) == 0
    grid: Grid = load_grid(given["name"])
    grid.choose(given["only"], "--only")
    assert set(given["seeds"]) <= set(grid.seeds)
    assert grid.scenarios(given["overrides"], given["quick"])


def asked(kind: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[str], bool]:
    """The scenario, overrides and --quick, as the command itself reads them."""
    seen: list[tuple[str, list[str], bool]] = []

    def run_with(options: RunOptions, name: str, overrides: list[str], quick: bool, console: Console) -> None:
        seen.append((name, overrides, quick))

    def execute(options: argparse.Namespace) -> int:
        seen.append((options.name, options.overrides, options.quick))
        return 0

    monkeypatch.setattr(rayfl.runs.session, "run_with", run_with)
    monkeypatch.setattr(rayfl.cli.data, "_execute", execute)
    if kind == "submit":
        kind, arguments = "run", [each for each in arguments if each not in ("--name", "cyclic", "--priority", "5")]
    arguments = [each for each in arguments if each != "--show"]  # prints instead of running
    assert {"run": rayfl.cli.run.main, "data": rayfl.cli.data.main}[kind](arguments) == 0
    [found] = seen
    return found


@pytest.mark.parametrize(("arguments", "message"), pages.messages("how-to/debugging.md"))
def test_a_documented_error_is_what_rayfl_says(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rayfl.cli.run.main([*arguments, "--show"]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("block", of_pages(python))
def test_documented_python_compiles_and_imports_what_exists(block: str) -> None:
    for node in ast.walk(compile(block, "a how-to guide", "exec", ast.PyCF_ONLY_AST)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                check_import(alias.name)
        elif isinstance(node, ast.ImportFrom):
            check_import(str(node.module), *[alias.name for alias in node.names])


def check_import(module: str, *names: str) -> None:
    package = module.partition(".")[0]
    assert importlib.util.find_spec(package) is not None, module
    if package == "rayfl":
        assert all(hasattr(importlib.import_module(module), name) for name in names), (module, names)


@pytest.mark.parametrize(
    ("found", "page", "number"),
    [
        (scenarios, "how-to/scenarios.md", 2),
        (scenarios, "how-to/self-supervision.md", 2),
        (scenarios, "how-to/asynchronous.md", 1),
        (scenarios, "how-to/slow-clients.md", 1),
        (grids, "how-to/grids.md", 2),
        (commands, "how-to/command-line.md", 8),
        (python, "how-to/callbacks.md", 2),
    ],
)
def test_the_page_shows_what_these_tests_check(found: Any, page: str, number: int) -> None:
    assert len(found(page)) >= number


def test_the_error_messages_of_the_page_are_found() -> None:
    assert len(pages.messages("how-to/debugging.md")) == 4
