"""Every page of results answers its question before it shows a table, and is on the overview."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from rayfl.config.scenario_files import find_papers
from rayfl.studies.papers import load_paper

RESULTS = Path(__file__).parents[2] / "docs" / "results"
PAGES = sorted(path.stem for path in RESULTS.glob("*.md") if path.stem != "index")
SET_UP = ("command", "data", "hardware", "date", "time")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_its_question_conclusion_and_set_up_before_any_other_table(page: str) -> None:
    text = (RESULTS / f"{page}.md").read_text(encoding="utf-8")
    places = [text.index(part) for part in ("**Question.**", "## Conclusion", ":::{admonition} Set-up", "\n|")]
    assert places == sorted(places)


@pytest.mark.parametrize("page", PAGES)
def test_a_set_up_names_command_data_hardware_date_and_time(page: str) -> None:
    text = (RESULTS / f"{page}.md").read_text(encoding="utf-8")
    box = text.split(":::{admonition} Set-up", 1)[1].split("\n:::", 1)[0]
    rows = " ".join(re.findall(r"^\| ([\w ,]+) \| .+ \|$", box, flags=re.MULTILINE))
    assert [key for key in SET_UP if key not in rows] == []


def test_the_overview_lists_every_page_once_and_has_a_row_for_it() -> None:
    text = (RESULTS / "index.md").read_text(encoding="utf-8")
    tree = text.split("```{toctree}", 1)[1].split("```", 1)[0]
    assert sorted(re.findall(r"^(\w+)$", tree, flags=re.MULTILINE)) == PAGES
    rows = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    assert sorted(set(re.findall(r"\]\((\w+)\.md\) \|$", rows, flags=re.MULTILINE))) == PAGES


@pytest.mark.parametrize("name", find_papers())
def test_the_page_of_a_paper_has_its_tables_and_figures(name: str) -> None:
    paper = load_paper(name)
    assert f"```{{paper}} {name}\n```" in (RESULTS.parents[1] / paper.page).read_text(encoding="utf-8")
    rows = [
        row for row in import_module("extensions.papers").as_markdown([name]).splitlines()[2:] if row.startswith("|")
    ]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [(row[0], row[-1]) for row in cells] == [(item.number, item.verdict) for item in paper.items]
    assert {len(row) for row in cells} == {7}
    assert set(re.findall(r"`(\w+)`", " ".join(row[2] for row in cells))) == set(paper.core_hours)
