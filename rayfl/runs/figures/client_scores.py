"""The scores of single clients in the last round that has any, from clients.parquet, and their table.

Loads neither PyTorch nor matplotlib.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayfl.config.registry import nearest
from rayfl.console import TextTable
from rayfl.data.held_out import CLIENT_TEST, VALIDATION
from rayfl.engine.columns import CLIENTS, OWNER
from rayfl.engine.plan.headline import Headline, unit_of
from rayfl.errors import ScenarioError
from rayfl.files import reading
from rayfl.runs.archive import RunArchive
from rayfl.runs.figures.quantities import Quantity
from rayfl.runs.folder import CLIENTS_FILE

MOST_ROWS = 20
"""Rows of a table of clients; of more clients, it has the best and the worst."""

UNDEFINED = "–"


@dataclass(frozen=True, eq=False)
class ClientScores:
    """Scores of single clients on one set of samples.

    Attributes:
        round: The round after which they were scored.
        set: The set of samples: `client_test`, `test` or `validation`.
        clients: int64 [n], their numbers.
        owners: Their names in the data [n]; None if it names none.
        samples: int64 [n], the number of samples behind each score.
        scores: float64 [n] by column of clients.parquet; NaN where the labels leave a metric undefined.
        headline: The metric that ranks clients, as it ranks rounds.
    """

    round: int
    set: str
    clients: np.ndarray
    owners: pa.ChunkedArray | None
    samples: np.ndarray
    scores: Mapping[str, np.ndarray]
    headline: Headline

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def values(self) -> np.ndarray:
        """float64 [n]: the headline metric."""
        return self.scores.get(self.headline.metric, np.full(len(self), np.nan))

    @cached_property
    def ranking(self) -> np.ndarray:
        """int64: places of the clients whose headline metric is defined, from the best to the worst."""
        defined = np.flatnonzero(~np.isnan(self.values))
        keys = -self.values[defined] if self.headline.higher_is_better else self.values[defined]
        ranking: np.ndarray = defined[np.argsort(keys, kind="stable")]
        return ranking

    def quantity(self, column: str) -> Quantity:
        """A column's words and unit, with the set of samples: `client test accuracy` in percent."""
        whole = column if column.startswith("personalized_") else f"{self.set}_{column}"
        return Quantity(whole.replace("_", " "), *unit_of(whole, self.headline))

    def names(self, places: np.ndarray) -> list[str]:
        """What identifies clients at some places, also in another run: their owners, or their numbers."""
        if self.owners is None:
            return [f"client {client}" for client in self.clients[places].tolist()]
        return [str(owner) for owner in self.owners.take(pa.array(places)).to_pylist()]


def scores_by_set(archive: RunArchive, headline: Headline) -> list[ClientScores]:
    """Reads the scores of single clients in the last round that has any.

    Args:
        archive: The run.
        headline: Its headline metric.

    Returns:
        The scores on every set of samples, those on clients' own test samples first; none if the run recorded no scores
        of single clients (`evaluation.per_client`).

    Raises:
        DataError: clients.parquet is damaged.
    """
    table = archive.scores_of_clients
    if table is None:
        return []
    with reading(archive.path / CLIENTS_FILE, "as Parquet"):
        sets = sorted(pc.unique(table["set"]).to_pylist(), key=lambda name: (name != CLIENT_TEST, name == VALIDATION))
        return [_on(name, table.filter(pc.equal(table["set"], name)), headline) for name in sets]


def _on(name: str, table: pa.Table, headline: Headline) -> ClientScores:
    """The scores on one set, without columns that have no value there, such as those of reported scalars."""
    fixed = {*CLIENTS.names, OWNER.name}
    scores = {of: np.asarray(table[of].to_numpy(), np.float64) for of in table.column_names if of not in fixed}
    scores = {of: values for of, values in scores.items() if not np.isnan(values).all()}
    owners = table[OWNER.name] if OWNER.name in table.column_names else None
    return ClientScores(
        int(table["round"][0].as_py()),
        name,
        table["client"].to_numpy(),
        None if owners is None or owners.null_count else owners,
        table["samples"].to_numpy(),
        scores,
        headline,
    )


def scores_of(found: Sequence[ClientScores], metric: str, where: str) -> tuple[ClientScores, str]:
    """The scores and the column that a metric means: `accuracy`, or `validation_accuracy` of another set of samples.

    Args:
        found: What `scores_by_set` returned.
        metric: The metric; empty for the headline metric.
        where: The run, for messages.

    Raises:
        ScenarioError: The run recorded no scores of single clients, or not this metric.
    """
    if not found:
        raise ScenarioError(
            f"by: '{where}' recorded no scores of single clients; run it with evaluation.per_client = true"
        )
    known = {f"{scores.set}_{name}": (scores, name) for scores in found for name in scores.scores}
    known |= {name: (found[0], name) for name in found[0].scores}
    chosen = metric or found[0].headline.metric
    if chosen not in known:
        raise ScenarioError(f"metric: '{where}' has no '{chosen}' of single clients; {nearest(chosen, known)}")
    return known[chosen]


def table_of_clients(scores: ClientScores, most: int = MOST_ROWS) -> TextTable:
    """A table of clients with owner, number of samples and every metric, from the best to the worst.

    Args:
        scores: Their scores.
        most: Rows; of more clients, the table has the best and the worst half of them.
    """
    places, words = scores.ranking, scores.quantity(scores.headline.metric).words
    undefined = np.setdiff1d(np.arange(len(scores)), places)
    caption = f"Clients by {words} after round {scores.round}"
    if len(scores) <= most:
        places, rest = np.concatenate([places, undefined]), ""
    else:
        half = most // 2
        left, parts = len(places) - 2 * half, []
        if left > 0:
            parts = [f"the {half} best and the {half} worst of {len(scores):,}; {left:,} between them are left out"]
            places = np.concatenate([places[:half], places[-half:]])
        if len(undefined):
            parts.append(f"{len(undefined):,} of {len(scores):,} without a score are left out")
        rest = ": " + ", and ".join(parts)
    quantities = {of: scores.quantity(of) for of in _ordered(scores)}
    numbered = [] if scores.owners is None else ["client"]
    decimals = {of: decimals_of(quantity.factor * scores.scores[of][places]) for of, quantity in quantities.items()}
    header = ["", *numbered, "samples", *(_heading(of, quantity) for of, quantity in quantities.items())]
    rows = [
        [
            name,
            *(str(scores.clients[place]) for _ in numbered),
            f"{scores.samples[place]:,}",
            *(written(quantity.factor * scores.scores[of][place], decimals[of]) for of, quantity in quantities.items()),
        ]
        for name, place in zip(scores.names(places), places.tolist(), strict=True)
    ]
    return TextTable(caption + rest, header, rows)


def _ordered(scores: ClientScores) -> list[str]:
    """The headline metric, the other metrics, and the loss."""
    metric = scores.headline.metric
    return sorted(scores.scores, key=lambda name: (name != metric, name == "loss"))


def _heading(name: str, quantity: Quantity) -> str:
    return name.replace("_", " ") + (f" ({quantity.unit})" if quantity.unit else "")


def decimals_of(values: np.ndarray) -> int:
    """The decimals with which the largest of some values has four digits."""
    largest = np.abs(values[np.isfinite(values)]).max(initial=0.0)
    return int(np.clip(3 - np.floor(np.log10(largest)), 0, 6)) if largest else 2


def written(value: float, decimals: int) -> str:
    """A score in a table; a dash where it is undefined."""
    return UNDEFINED if np.isnan(value) else f"{value:.{decimals}f}"


def line_of_clients(scores: ClientScores) -> str:
    """The worst, median and best client in a line; empty if the headline metric is defined for none."""
    values, places = scores.values, scores.ranking
    if not len(places):
        return ""
    best, worst = (scores.headline.text(float(values[places[place]])) for place in (0, -1))
    middle = scores.headline.text(float(np.median(values[places])))
    words = scores.quantity(scores.headline.metric).words
    count = f"{len(places):,} client{'s' if len(places) > 1 else ''}"
    return f"{words} worst {worst}, median {middle}, best {best}, of {count}"
