"""`rayfl.compare(..., by="client")`: the same clients in several runs, those with the largest changes first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from rayfl.console import TextTable
from rayfl.errors import ScenarioError
from rayfl.runs.figures.client_scores import MOST_ROWS, decimals_of, written
from rayfl.runs.figures.quantities import Quantity
from rayfl.studies.figures.clients import GroupClients, MetricClients, metrics_of_clients
from rayfl.studies.figures.groups import Recorded
from rayfl.studies.tables import Numbers, ShownPage, TablePage
from rayfl.wording import counted

SCHEMA = pa.schema(
    [
        ("metric", pa.string()),
        ("panel", pa.string()),
        ("client", pa.string()),
        ("label", pa.string()),
        ("score", pa.float64()),
        ("difference", pa.float64()),
    ]
)
"""Columns of `ClientComparison.table`."""


@dataclass(frozen=True, eq=False)
class PairedClients:
    """The clients that all groups of a panel scored.

    Attributes:
        of: The metric.
        panel: Label of the column of a grid; empty outside grids.
        labels: Of the groups.
        reference: The place of the one that the others are compared with; None for a single group.
        names: Of the clients [n].
        scores: float64 [groups, n].
        lost: How many clients some group has not scored, or with labels that leave the metric undefined.
    """

    of: MetricClients
    panel: str
    labels: tuple[str, ...]
    reference: int | None
    names: np.ndarray
    scores: np.ndarray
    lost: int

    @property
    def differences(self) -> np.ndarray:
        """float64 [groups, n]: to the reference; of a single group, its scores."""
        return self.scores - (0.0 if self.reference is None else self.scores[self.reference])

    @cached_property
    def others(self) -> list[int]:
        """The places of the groups that are compared with the reference; a single group's own."""
        return [place for place in range(len(self.labels)) if place != self.reference]

    @cached_property
    def order(self) -> np.ndarray:
        """Clients by their mean difference over the others, the largest gain first."""
        gains = self.differences[self.others].mean(axis=0)
        order: np.ndarray = np.argsort(gains if self.of.higher is False else -gains, kind="stable")
        return order


def compare_clients(recorded: Recorded, metrics: Sequence[str], reference: str | None) -> ClientComparison:
    """Compares clients, paired by owner or number.

    Args:
        recorded: The runs.
        metrics: See `metrics_of_clients`.
        reference: Label of the group that the others are compared with; None for a single group.

    Raises:
        DataError, ScenarioError: See `metrics_of_clients`; or no client is in all groups.
    """
    parts = [
        _paired(of, panel, of.in_panel(panel), reference)
        for of in metrics_of_clients(recorded, metrics)
        for panel in recorded.panels
    ]
    return ClientComparison(recorded, tuple(parts))


def _paired(of: MetricClients, panel: str, groups: Sequence[GroupClients], reference: str | None) -> PairedClients:
    everybody, defined = np.unique(np.concatenate([clients.names for clients in groups])), []
    for clients in groups:
        order = np.argsort(clients.names)
        values = np.full(len(everybody), np.nan)
        values[np.searchsorted(everybody, clients.names[order])] = clients.values[order]
        defined.append(values)
    scores = np.stack(defined)
    known = ~np.isnan(scores).any(axis=0)
    labels = tuple(clients.group.label for clients in groups)
    if not known.any():
        runs = ", ".join(f"'{label}'" for label in labels)
        raise ScenarioError(f"by: no client has a score in each of {runs}, so nothing can be paired")
    first = {name: place for place, name in enumerate(groups[0].names.tolist())}
    paired = sorted(np.flatnonzero(known).tolist(), key=lambda place: first[everybody[place]])
    place = labels.index(reference) if reference in labels and len(labels) > 1 else None
    return PairedClients(of, panel, labels, place, everybody[paired], scores[:, paired], int((~known).sum()))


@dataclass(frozen=True, repr=False)
class ClientComparison(ShownPage):
    """Clients of several runs compared; made by `rayfl.compare` with `by="client"`. A notebook shows its tables.

    Attributes:
        recorded: The compared runs.
        parts: The clients by every metric, in every column of a grid.
    """

    recorded: Recorded
    parts: tuple[PairedClients, ...]

    @property
    def table(self) -> pa.Table:
        """One row for every metric, column of a grid, client and group, in the units of the records; see `SCHEMA`.

        `difference` is that to the reference, and null for the reference.
        """
        rows = []
        for part in self.parts:
            for place, label in enumerate(part.labels):
                apart = part.differences[place].tolist() if part.reference not in (None, place) else None
                for client, (name, score) in enumerate(zip(part.names, part.scores[place].tolist(), strict=True)):
                    row = {"metric": part.of.metric, "panel": part.panel, "client": str(name), "label": label}
                    rows.append(row | {"score": score, "difference": apart and apart[client]})
        return pa.Table.from_pylist(rows, schema=SCHEMA)

    @cached_property
    def text_tables(self) -> list[TextTable]:
        """The tables as texts: at most 20 clients, those with the largest changes up and down."""
        return [_table(part) for part in self.parts]

    @property
    def notes(self) -> list[str]:
        """Sentences below the tables: how many clients gain and lose, the data, and the runs that are left out."""
        lost = [
            f"{_where(part)}Clients without a score in some run, which are left out: {part.lost:,}."
            for part in self.parts
            if part.lost
        ]
        several = any(len(group.runs) > 1 for group in self.recorded.groups)
        return [
            *(_gains(part, place) for part in self.parts if part.reference is not None for place in part.others),
            *lost,
            *(["Scores of a client are means over the runs of a row that scored it."] if several else []),
            *(f"{note}." for note in self.recorded.notes),
            f"Data: {'; '.join(note.text for note in self.recorded.data)}.",
        ]

    @property
    def page(self) -> TablePage:
        """The tables and the notes."""
        return TablePage(self.text_tables, self.notes)


def _table(part: PairedClients) -> TextTable:
    half, number = MOST_ROWS // 2, len(part.names)
    places = part.order if number <= MOST_ROWS else np.concatenate([part.order[:half], part.order[-half:]])
    factor, scores = part.of.quantity.factor, part.scores[:, places]
    decimals = decimals_of(factor * scores)
    columns = [("", [str(name) for name in part.names[places]])]
    for place, label in enumerate(part.labels):
        columns.append((label, [written(factor * score, decimals) for score in scores[place]]))
        if part.reference not in (None, place):
            texts = [Numbers(factor, decimals).text(apart, "+") for apart in part.differences[place, places]]
            columns.append((f"difference to {part.labels[part.reference or 0]}", texts))
    header, entries = zip(*columns, strict=True)
    shown = "from the best to the worst" if part.reference is None else "from the largest gain to the largest loss"
    if number > MOST_ROWS:
        shown += f", the first and last {half} of {number:,} clients"
    caption = f"{_where(part)}{_capital(part.of.quantity.within(' in '))}, last score of each client; {shown}"
    return TextTable(caption, header, list(zip(*entries, strict=True)))


def _gains(part: PairedClients, place: int) -> str:
    """How many clients gain and lose in a group, against the reference."""
    assert part.reference is not None
    apart, quantity = part.differences[place], part.of.quantity
    up, down, equal = (int(count) for count in ((apart > 0).sum(), (apart < 0).sum(), (apart == 0).sum()))
    words = ("higher", "lower") if part.of.higher is None else ("better", "worse")
    first, second = (down, up) if part.of.higher is False else (up, down)
    middle = f"{quantity.factor * float(np.median(apart)):+.{_decimals(quantity)}}".replace("-", "\N{MINUS SIGN}")
    unit = "percentage points" if quantity.unit == "%" else quantity.unit
    are = "is" if first == 1 else "are"
    counts = f"{first:,} of {counted(len(apart), 'client')} {are} {words[0]}, {second:,} {words[1]}, {equal:,} equal"
    against = f"{part.labels[place]} against {part.labels[part.reference]}"
    return f"{_where(part)}{against}: {counts}; median difference {middle} {unit}".rstrip() + "."


def _decimals(quantity: Quantity) -> str:
    return "2f" if quantity.unit else "4g"


def _where(part: PairedClients) -> str:
    return f"{part.panel}: " if part.panel else ""


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
