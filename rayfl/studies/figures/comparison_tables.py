"""The tables of a comparison as texts, a row for each group, the best in bold; and in LaTeX, with rules of booktabs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from rayfl.console import Bold, TextTable
from rayfl.studies.figures.compared_groups import Choice, Compared, Line
from rayfl.studies.figures.groups import Group
from rayfl.studies.figures.print_style import balanced
from rayfl.studies.figures.quantities import Quantity, quantity_of
from rayfl.studies.figures.scores import TARGET_COSTS, Reached, best_round, score
from rayfl.studies.grid.results import TAIL
from rayfl.studies.statistics import Summary, repetitions

NOTHING = "–"
_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))


class _Numbers(NamedTuple):
    """How the numbers of a table are written: times `factor`, with as many decimals."""

    factor: float
    decimals: int

    def text(self, value: float, sign: str = "-") -> str:
        if not math.isfinite(value):
            return NOTHING
        return f"{self.factor * value:{sign}.{self.decimals}f}".replace("-", "−")


def table_of(found: Compared, choice: Choice) -> TextTable:
    """The table of a metric in a panel."""
    numbers = _numbers(found.quantity, [line.score.mean for line in found.lines if line.score])
    has_tasks = any(run.task is not None for line in found.lines for run in line.group.runs)
    counts = [_counted(line) for line in found.lines]
    count = counts[0] if len(set(counts)) == 1 and counts[0].isdecimal() else ""
    columns = [
        ("", [line.group.label for line in found.lines]),
        (found.quantity.within(", "), _scores(found, numbers)),
    ]
    if not count:
        columns.append(("tasks" if has_tasks else "seeds", counts))
    if any(line.difference for line in found.lines):
        columns.append(
            (f"difference to {choice.reference}", [_difference(line, choice, numbers) for line in found.lines])
        )
        pairs = [str(line.difference.repetitions) if line.difference else NOTHING for line in found.lines]
        if set(pairs) - {NOTHING, count}:
            columns.append(("pairs", pairs))
    reached = [line.reached for line in found.lines if line.reached is not None]
    if choice.target is not None and reached:
        target = f"{found.quantity.factor * choice.target:.6g} {found.quantity.unit}".rstrip()
        columns += _target_columns(reached, target)
    header, entries = zip(*columns, strict=True)
    return TextTable(_caption(found, choice, has_tasks, count), header, list(zip(*entries, strict=True)))


def table_of_runs(groups: Sequence[Group], metric: str, window: int) -> TextTable:
    """Every run by a metric: in its best round, over its last rounds, and after its last."""
    runs = [(group.name, run) for group in groups for run in group.runs if metric in run.columns and run.ranked.any()]
    quantity = quantity_of([run for _, run in runs], metric)
    has_tasks = any(run.task is not None for _, run in runs)
    values = [[score(run, metric, at, window) for at in ("best", "mean_last_5", "last")] for _, run in runs]
    numbers = _numbers(quantity, [value for scores in values for value in scores])
    rows = []
    for (name, run), scores in zip(runs, values, strict=True):
        best, tail, last = map(numbers.text, scores)
        task = [NOTHING if run.task is None else str(run.task)] if has_tasks else []
        place = best_round(run, window)
        chosen = [best, NOTHING if place is None else str(place)]
        rows.append([name, str(run.seed), *task, *chosen, tail, last])
    header = ["", "seed", *(["task"] if has_tasks else []), "best", "in round", f"mean of the last {TAIL}", "last"]
    return TextTable(f"All runs: {quantity.within(' in ')}{_smoothed(window)}.", header, rows)


def _scores(found: Compared, numbers: _Numbers) -> list[str]:
    """Means and deviations; those that read like the best are in bold, unless all do."""
    means = [numbers.text(line.score.mean) if line.score else NOTHING for line in found.lines]
    best = numbers.text(found.best) if found.best is not None and len(set(means)) > 1 else ""
    return [_cell(_spread(line.score, numbers), mean == best) for mean, line in zip(means, found.lines, strict=True)]


def _spread(score: Summary | None, numbers: _Numbers) -> str:
    if score is None:
        return NOTHING
    mean = numbers.text(score.mean)
    return mean if score.deviation is None else f"{mean} ± {numbers.text(score.deviation)}"


def _cell(text: str, bold: bool) -> str:
    return Bold(text) if bold else text


def _counted(line: Line) -> str:
    """How many repetitions there are, and how many runs have no finite score."""
    scored = line.score.repetitions if line.score else 0
    total = len(repetitions({run.key: run for run in line.group.runs}))
    missing = len(line.group.runs) - len(line.values)
    if not missing:
        return str(total)
    return f"{scored} of {total}" if scored < total else f"{total}, less {missing} run{'s' if missing > 1 else ''}"


def _difference(line: Line, choice: Choice, numbers: _Numbers) -> str:
    found = line.difference
    if found is None:
        return "reference" if line.group.label == choice.reference else "no pairs"
    text = numbers.text(found.mean, "+")
    if found.margin is None:
        return text
    return f"{text} [{numbers.text(found.mean - found.margin, '+')}, {numbers.text(found.mean + found.margin, '+')}]"


def _target_columns(found: Sequence[Reached], target: str) -> Iterator[tuple[str, list[str]]]:
    """How many runs reached the target, then their mean costs; the lowest in bold, of the groups in which all did.

    Nothing is in bold where all costs are equal.
    """
    yield f"reached {target}", [*map(_reached, found)]
    for cost in TARGET_COSTS:
        means = [reached.mean(cost.name) for reached in found]
        known = [mean for mean in means if mean is not None]
        if not known:
            continue
        header, text = _amounts(cost.name, cost.words, max(known))
        complete = [mean for mean, reached in zip(means, found, strict=True) if reached.count == reached.runs]
        least = min((mean for mean in complete if mean is not None), default=None) if len({*known}) > 1 else None
        yield (
            header,
            [
                NOTHING if mean is None else _cell(text(mean), mean == least and reached.count == reached.runs)
                for mean, reached in zip(means, found, strict=True)
            ],
        )


def _reached(found: Reached) -> str:
    runs = f"{found.runs} run{'s' if found.runs > 1 else ''}"
    return f"{found.count} of {runs}" if found.count else f"not reached by {runs}"


def _amounts(cost: str, words: str, most: float) -> tuple[str, Callable[[float], str]]:
    """The header of a cost, and how its values are written."""
    if cost == "bytes":
        size, unit = next(unit for unit in _BYTES if most >= unit[0] or unit[0] == 1)
        return ("bytes" if unit == "bytes" else f"bytes, {unit}"), lambda value: f"{value / size:.4g}"
    if cost in ("rounds", "client_updates", "transfers"):
        return words, lambda value: f"{value:.0f}" if value == round(value) else f"{value:.1f}"
    return words, lambda value: f"{value:.4g}"


def _caption(found: Compared, choice: Choice, has_tasks: bool, count: str) -> str:
    """Describes the numbers and what they are means over: `count` seeds or tasks, if all groups have as many."""
    where = f"{found.panel}: " if found.panel else ""
    rounds = {
        "last": "after the last round",
        "best": "in the round with the best headline metric",
        "mean_last_5": f"mean of the last {TAIL} evaluated rounds",
    }.get(str(choice.at), f"after round {choice.at}")
    smoothed = "" if choice.at == "last" else _smoothed(choice.window)  # the last round keeps its value
    parts = [f"{where}{found.quantity.within(' in ')}, {rounds}{smoothed}"]
    over = f"{count} {'tasks, each averaged over its seeds' if has_tasks else 'seeds'}".lstrip()
    if any(line.score and line.score.deviation is not None for line in found.lines):
        parts.append(f"mean ± sample standard deviation over {over}")
    elif has_tasks:
        parts.append("mean over the seeds of a task")
    elif count:
        parts.append("one seed each" if len(found.lines) > 1 else "one seed")
    if any(line.difference and line.difference.margin is not None for line in found.lines):
        same = "task and seed" if has_tasks else "seed"
        parts.append(
            f"differences to {choice.reference} between runs of the same {same}, with 95 % t-intervals over "
            f"{'tasks' if has_tasks else 'seeds'}"
        )
    if choice.target is not None and any(line.reached for line in found.lines):
        parts.append(
            f"costs up to the first evaluated round that reached the target{_smoothed(choice.window)}, means over the "
            "runs that did"
        )
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if not found.panel else f"{text}."


def _smoothed(window: int) -> str:
    return f", smoothed over {window} evaluated rounds" if window > 1 else ""


def _numbers(quantity: Quantity, values: Sequence[float]) -> _Numbers:
    """Two decimals of percent; of other numbers, four digits of the largest."""
    most = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    decimals = 2 if quantity.unit else max(0, 3 - math.floor(math.log10(most))) if most else 3
    return _Numbers(quantity.factor, decimals)


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
