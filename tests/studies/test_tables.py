"""Numbers of tables, and pages of tables in Markdown and LaTeX."""

from __future__ import annotations

from pathlib import Path

import pytest

import rayfl
from rayfl.console import Bold, TextTable
from rayfl.studies.statistics import Summary
from rayfl.studies.tables import Numbers, TablePage, latex_text
from tests.studies.figures.scene import a_run


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a_b & 5 % of #1 {x} $y$", r"a\_b \& 5 \% of \#1 \{x\} \$y\$"),
        ("\\alpha ~ ^", r"\textbackslash{}alpha \textasciitilde{} \textasciicircum{}"),
        ("β = 0.1, ε ≤ Ω", r"$\beta$ = 0.1, $\varepsilon$ $\leq$ $\Omega$"),
        ("+1.2 ± 3, −4 %²", r"+1.2 $\pm$ 3, $-$4 \%$^2$"),
        ("[a]", "{[}a{]}"),
        ("Müller", "Müller"),
    ],
)
def test_special_characters_of_latex_are_escaped(text: str, expected: str) -> None:
    assert latex_text(text) == expected


def test_a_table_has_the_rules_of_booktabs_and_the_best_in_bold(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / name, f"{name}_1 & 2", 0, [value]) for name, value in (("a", 0.5), ("b", 0.25))]
    lines = rayfl.compare(*runs).latex.splitlines()
    assert lines[0] == r"% needs \usepackage{booktabs} in the preamble"
    begin, end = lines.index(r"\begin{tabular}{lrr}"), lines.index(r"\end{tabular}")
    assert lines[begin + 1 : end] == [
        r"\toprule",
        r" & \shortstack[r]{test\\accuracy, \%} & \shortstack[r]{difference\\to a\_1 \& 2} \\",
        r"\midrule",
        r"a\_1 \& 2 & \textbf{50.00} & reference \\",
        r"b\_1 \& 2 & 25.00 & $-$25.00 \\",
        r"\bottomrule",
    ]
    assert lines[-1] == r"\end{table}"
    assert r"\par\smallskip\footnotesize A single pair has no interval: run more seeds or tasks to get one." in lines


def test_a_page_of_markdown_is_read_as_it_was_written() -> None:
    tables = [
        TextTable("Of all.", ["", "a|b"], [["c", "1"], ["*d*", "`x` < \\ 2"]]),
        TextTable("", ["", "b"], [["c", "2"]]),
    ]
    page = TablePage(tables, ["A note.", Bold("A warning.")], "Title", [TextTable("Runs", ["", "seed"], [["c", "0"]])])
    found = TablePage.from_markdown(page.markdown())
    assert found == TablePage(tables, ["A note.", "A warning."], "Title")
    assert [isinstance(note, Bold) for note in found.notes] == [False, True]


def test_notes_before_a_table_are_not_its_caption() -> None:
    found = TablePage.from_markdown("# T\n\nA note.\n\nOf\nall.\n\n| a |\n| --- |\n| b |\n\n| c |\n| --- |\n| d |\n")
    assert found == TablePage([TextTable("Of all.", ["a"], [["b"]]), TextTable("", ["c"], [["d"]])], ["A note."], "T")


def test_an_empty_page_has_nothing() -> None:
    assert TablePage.from_markdown("") == TablePage([], [])


@pytest.mark.parametrize(
    ("found", "spread", "difference"),
    [
        # the margin is 4.303 sqrt(3) / sqrt(3)
        (Summary(-0.5, 3**0.5, 3), "−50.0 ± 173.2", "−50.0 [−480.3, +380.3]"),
        (Summary(0.25, None, 1), "25.0", "+25.0"),
    ],
)
def test_numbers_have_a_unit_a_deviation_and_an_interval(found: Summary, spread: str, difference: str) -> None:
    numbers = Numbers(100, 1)
    assert (numbers.spread(found), numbers.difference(found)) == (spread, difference)
