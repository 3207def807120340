"""Tables in LaTeX, with the rules of booktabs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rayfl.figures.wrapping import balanced
from rayfl.report.text_table import Bold, TextTable

_LOWER = """
    alpha beta gamma delta varepsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma varsigma tau upsilon varphi
    chi psi omega
"""
_UPPER = "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
_GREEK = dict(zip("αβγδεζηθικλμνξπρσςτυφχψωΓΔΘΛΞΠΣΥΦΨΩ", f"{_LOWER} {_UPPER}".split(), strict=True))
_SYMBOLS = {"±": "pm", "×": "times", "≤": "leq", "≥": "geq", "→": "rightarrow", "∞": "infty", "·": "cdot", "µ": "mu"}
_TEXTS = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "−": "$-$",
    "\N{NO-BREAK SPACE}": "~",
    "²": "$^2$",
    "–": "--",
    "…": r"\ldots{}",
    "[": "{[}",  # a row that begins with one would be an option of the row before
    "]": "{]}",
}
_ESCAPES = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {character: f"$\\{name}$" for character, name in (_GREEK | _SYMBOLS).items()}
    | _TEXTS
)

HEADING_CHARACTERS = 12
"""Longer headings are set in several lines."""

PREAMBLE = r"% needs \usepackage{booktabs} in the preamble"


def escaped(text: str) -> str:
    r"""Text that LaTeX prints as it is; Greek letters and signs become mathematics.

    Letters with accents stay, since LaTeX reads UTF-8.
    """
    return text.translate(_ESCAPES)


def latex(tables: Sequence[TextTable], notes: Sequence[str]) -> str:
    """A `table` environment for each table, with the notes below the last."""
    parts = [PREAMBLE]
    for place, table in enumerate(tables):
        parts.append(_table(table, notes if place == len(tables) - 1 else ()))
    return "\n\n".join(parts) + "\n"


def _table(table: TextTable, notes: Sequence[str]) -> str:
    lines = [
        r"\begin{table}",
        r"\centering\small",
        r"\setlength{\tabcolsep}{4pt}",
        rf"\caption{{{escaped(table.caption)}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(table.header) - 1)}}}",
        r"\toprule",
        _line(map(_stacked, table.header)),
        r"\midrule",
        *map(_row, table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\smallskip\footnotesize {escaped(note)}" for note in notes),
        r"\end{table}",
    ]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return _line(rf"\textbf{{{escaped(text)}}}" if isinstance(text, Bold) else escaped(text) for text in cells)


def _line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _stacked(text: str) -> str:
    """A long heading in lines of similar lengths, since a wide table does not fit a page."""
    lines = balanced(text, HEADING_CHARACTERS)
    if len(lines) < 2:
        return escaped(text)
    return r"\shortstack[r]{" + r"\\".join(map(escaped, lines)) + "}"
