"""Tables in LaTeX."""

from __future__ import annotations

from pathlib import Path

import pytest

import rayfl
from rayfl.studies.figures.comparison_tables import escaped
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
    assert escaped(text) == expected


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
