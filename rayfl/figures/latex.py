"""Tables in LaTeX, with the rules of booktabs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rayfl.figures.sheet import Entry, Sheet
from rayfl.figures.wrapping import balanced

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


def latex(sheets: Sequence[Sheet], notes: Sequence[str]) -> str:
    """A `table` environment for each sheet, with the notes below the last."""
    parts = [PREAMBLE]
    for place, sheet in enumerate(sheets):
        parts.append(_table(sheet, notes if place == len(sheets) - 1 else ()))
    return "\n\n".join(parts) + "\n"


def _table(sheet: Sheet, notes: Sequence[str]) -> str:
    lines = [
        r"\begin{table}",
        r"\centering\small",
        r"\setlength{\tabcolsep}{4pt}",
        rf"\caption{{{escaped(sheet.caption)}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(sheet.header) - 1)}}}",
        r"\toprule",
        _line(map(_stacked, sheet.header)),
        r"\midrule",
        *map(_row, sheet.rows),
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\smallskip\footnotesize {escaped(note)}" for note in notes),
        r"\end{table}",
    ]
    return "\n".join(lines)


def _row(entries: Sequence[Entry]) -> str:
    return _line(rf"\textbf{{{escaped(entry.text)}}}" if entry.bold else escaped(entry.text) for entry in entries)


def _line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _stacked(text: str) -> str:
    """A long heading in lines of similar lengths, since a wide table does not fit a page."""
    lines = balanced(text, HEADING_CHARACTERS)
    if len(lines) < 2:
        return escaped(text)
    return r"\shortstack[r]{" + r"\\".join(map(escaped, lines)) + "}"
