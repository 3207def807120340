"""The tutorials' sources, without running them; the documentation's build executes them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
NOTEBOOKS = sorted(path.stem for path in TUTORIALS.glob("*.md") if path.name != "index.md")
GENERATED = {"handwriting", "__main__:stations"}
CELL = re.compile(r"^```\{code-cell\} ipython3\n(?::tags: [^\n]*\n)?(.*?)^```$", re.MULTILINE | re.DOTALL)
MAGIC = re.compile(r"^%.*$", re.MULTILINE)


def source(name: str) -> str:
    return (TUTORIALS / f"{name}.md").read_text(encoding="utf-8")


def test_there_are_tutorials() -> None:
    assert "first-experiment" in NOTEBOOKS


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_has_the_header_that_jupytext_and_myst_nb_read(name: str) -> None:
    _, header, _ = source(name).split("---\n", 2)
    read: dict[str, Any] = yaml.safe_load(header)
    assert read["jupytext"]["text_representation"] == {"extension": ".md", "format_name": "myst"}
    assert read["kernelspec"] == {"name": "python3", "display_name": "Python 3"}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_code_cells_compile(name: str) -> None:
    cells = CELL.findall(source(name))
    assert len(cells) == source(name).count("```{code-cell}") > 2
    for number, cell in enumerate(cells):
        compile(MAGIC.sub("", cell), f"{name}.md, cell {number}", "exec")


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_uses_generated_data_alone(name: str) -> None:
    code = "\n".join(CELL.findall(source(name)))
    named = re.findall(r'"data": \{\s*"name": "([\w:]+)"', code)
    assert set(named) <= GENERATED
    assert named or '"data.source": "generated"' in code


def test_notebooks_run_in_a_temporary_directory_where_their_runs_are_left() -> None:
    assert "nb_execution_in_temp = True" in (TUTORIALS.parent / "conf.py").read_text()


def test_the_first_cell_of_the_first_tutorial_is_short() -> None:
    first = CELL.findall(source("first-experiment"))[0]
    assert len(first.strip().splitlines()) <= 8


def test_every_notebook_is_in_the_table_of_contents_and_has_a_line() -> None:
    index = source("index")
    toctree = re.search(r"```\{toctree\}\n(.*?)```", index, re.DOTALL)
    assert toctree is not None
    entries = [line for line in toctree[1].splitlines() if line and not line.startswith(":")]
    assert sorted(entries) == NOTEBOOKS
    assert sorted(re.findall(r"^- \[.+\]\(([\w-]+)\.md\): \S", index, re.MULTILINE)) == NOTEBOOKS
