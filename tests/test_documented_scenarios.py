"""Whole scenarios that documentation shows are ones that could be run."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from rayfl.config.scenario import Scenario
from rayfl.preparation import prepare

DOCS = Path(__file__).parents[1] / "docs"


def scenarios(page: str) -> list[dict[str, Any]]:
    """The indented blocks of a page that have data, a model and phases."""
    blocks = re.findall(r"(?:^    .*\n|^\n)+", (DOCS / page).read_text(), re.MULTILINE)
    found = [tomllib.loads(block) for block in blocks if "[[phases]]" in block]
    whole = [tables for tables in found if {"data", "model"} <= tables.keys()]
    return whole + [whole[0] | {"phases": tables["phases"]} for tables in found if "data" not in tables]


def of_page(page: str) -> list[Any]:
    return [pytest.param(tables, id=f"{page} {index}") for index, tables in enumerate(scenarios(page))]


@pytest.mark.parametrize("tables", of_page("how-to/self-supervision.md"))
def test_a_documented_scenario_of_views_can_be_run(tables: dict[str, Any]) -> None:
    views = [{"augment": ["flip"]}] * (3 if "orchestra" in str(tables["phases"]) else 2)
    prepared(tables, views=views)


@pytest.mark.parametrize("tables", of_page("how-to/asynchronous.md"))
def test_a_documented_scenario_can_be_run(tables: dict[str, Any]) -> None:
    prepared(tables)


def prepared(tables: dict[str, Any], **data: Any) -> None:
    data = tables["data"] | {"source": "generated"} | data
    prepare(Scenario.from_tables(tables | {"data": data}), Path("no-data-here"))


@pytest.mark.parametrize(("page", "number"), [("how-to/self-supervision.md", 2), ("how-to/asynchronous.md", 1)])
def test_the_page_has_its_scenarios(page: str, number: int) -> None:
    assert len(scenarios(page)) == number
