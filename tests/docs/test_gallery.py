"""The gallery shows every figure with its command, and the documentation names only files that the repository has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
DOCS = CHECKOUT / "docs"
FIGURES = sorted(path.name for path in (DOCS / "figures").iterdir() if path.is_file())
PAGES = sorted(path for path in DOCS.rglob("*.md") if "records" not in path.relative_to(DOCS).parts)
FIGURE_LINK = re.compile(r"!\[[^\]]+\]\(\.\./figures/([^)]+)\)")
IN_REPOSITORY = re.compile(r"\{repo\}`(?:[^`<]*<([^`>]+)>|([^`]+))`")


def entries() -> dict[str, str]:
    """The text of each figure's entry in the gallery, by the figure's file name."""
    text = (DOCS / "gallery" / "index.md").read_text(encoding="utf-8")
    found: dict[str, str] = {}
    for entry in re.split(r"^(?:#{2,3}|:::{grid-item-card}) .*$", text, flags=re.MULTILINE)[1:]:
        for name in FIGURE_LINK.findall(entry):
            assert name not in found, f"{name} is in the gallery twice"
            found[name] = entry
    return found


def commands(entry: str) -> list[str]:
    return re.findall(r"^ {4}(\S.*)$", entry, flags=re.MULTILINE)


def named_in_repository(text: str) -> list[str]:
    return [first or second for first, second in IN_REPOSITORY.findall(text)]


def test_the_gallery_shows_every_figure_and_no_other() -> None:
    assert sorted(entries()) == FIGURES


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_has_one_command_and_says_whether_its_records_are_kept(figure: str) -> None:
    entry = entries()[figure]
    (command,) = commands(entry)
    analysis = re.fullmatch(r"rayfl analyse (\w+) .+", command)
    assert figure in command or (analysis and figure == f"starts_{analysis[1]}.png"), command
    said = re.findall(r"\*\*(Records kept|Records not kept|Needs no records)\*\*", entry)
    assert len(said) == 1
    if said == ["Records kept"]:
        used = {folder for folder in named_in_repository(entry) if folder.startswith("docs/records/")}
        assert used == set(re.findall(r"docs/records/\w+", command))


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_is_on_the_page_that_its_entry_links_to(figure: str) -> None:
    (page,) = set(re.findall(r"\]\(\.\./((?:results|explanation)/\w+\.md)\)", entries()[figure]))
    assert f"../figures/{figure}" in (DOCS / page).read_text(encoding="utf-8")


def test_the_documentation_names_only_files_that_the_repository_has() -> None:
    absent = {
        (page.relative_to(DOCS).as_posix(), named)
        for page in PAGES
        for named in named_in_repository(page.read_text(encoding="utf-8"))
        if not (CHECKOUT / named).exists()
    }
    assert not absent


def test_every_record_is_named_by_a_results_page_or_the_gallery() -> None:
    paths = [*(DOCS / "results").glob("*.md"), DOCS / "gallery" / "index.md"]
    pages = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    named = {Path(path).parts[2] for path in named_in_repository(pages) if path.startswith("docs/records/")}
    assert named == {path.name for path in (DOCS / "records").iterdir()}
