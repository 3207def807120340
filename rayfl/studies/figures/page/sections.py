"""The parts of a page, and the sections that the pages of runs and of grids have in common.

The template lays the parts out, and escapes every text in them. Figures are data URIs, so that a page needs no other
file.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rayfl.console import TextTable
from rayfl.data.split_facts import ShownSplit
from rayfl.engine.plan.headline import statistic_over_clients
from rayfl.errors import ResourceError
from rayfl.files import reading
from rayfl.runs.archive import RunArchive
from rayfl.runs.figures.client_dots import dots_of
from rayfl.runs.figures.client_scores import ClientScores
from rayfl.runs.figures.confusion import confusion_of
from rayfl.runs.figures.curves import curves_of
from rayfl.runs.figures.quantities import Quantity, X, quantity_of
from rayfl.runs.figures.recorded_run import RecordedRun
from rayfl.runs.figures.split import split_of
from rayfl.runs.figures.style import COLUMN_INCHES, drawing, line_style
from rayfl.runs.folder import PRIVACY_FILE
from rayfl.studies.figures.groups import Recorded
from rayfl.studies.figures.plot import figure_of
from rayfl.studies.statistics import summary


@dataclass(frozen=True)
class Picture:
    """A figure.

    Attributes:
        caption: Its caption, which is also its alternative text.
        source: Its data URI.
        width: On a screen, in rem; less where the page is narrower.
    """

    caption: str
    source: str
    width: float


class Link(str):
    """The text of a cell that leads to another file, by its path from the page."""

    def __new__(cls, text: str, href: str) -> Link:
        link = super().__new__(cls, text)
        link.href = href
        return link

    href: str


@dataclass(frozen=True)
class PageSection:
    """A headed part of the page.

    Attributes:
        title: Its heading.
        texts: Paragraphs.
        pictures: Below them.
        tables: Below those.
        points: A list below the tables.
        code: Preformatted text at the end; empty for none.
    """

    title: str
    texts: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    tables: Sequence[TextTable] = ()
    points: Sequence[str] = ()
    code: str = ""


@dataclass(frozen=True)
class Page:
    """A whole page.

    Attributes:
        title: Its heading.
        status: The state of the run or grid, in one word.
        reason: Details of the state; may be empty.
        data: One line on the data.
        sections: In order.
        version: Of rayfl, which made the page.
        renewed_s: Seconds after which a browser opens the page again; 0 for never.
    """

    title: str
    status: str
    reason: str
    data: str
    sections: Sequence[PageSection] = field(default_factory=tuple)
    version: str = ""
    renewed_s: int = 0


REPORT_FILE = "report.html"

RENEWED_S = 5
"""Seconds between two pages of what is under way."""

BINS = 20
REM_PER_INCH = 8
"""A figure for print is a third larger on a screen, where its text would be small."""


def curves(recorded: Recorded, names: Sequence[str], caption: str, x: X = "rounds") -> Picture:
    """Learning curves, as `rayfl.plot` draws them."""
    with drawing():
        return _picture(figure_of(recorded, names, x), caption)


def run_curves(run: RecordedRun, caption: str) -> Picture:
    """The learning curves of a run, as its curves.png shows them."""
    with drawing():
        return _picture(curves_of(run), caption)


def client_dots(scores: ClientScores, caption: str) -> Picture:
    """A dot for every client."""
    with drawing():
        return _picture(dots_of(scores), caption)


def confusion_map(counts: Sequence[Sequence[int]], caption: str) -> Picture:
    """A confusion matrix."""
    with drawing():
        return _picture(confusion_of(np.array(counts, np.int64)), caption)


def split_picture(split: ShownSplit) -> Picture:
    """The samples of clients and their classes, as `rayfl data` draws them."""
    shown, total = len(split.clients), f"{split.num_clients:,}"
    caption = f"Samples of {shown} of {total} clients" if shown < split.num_clients else f"Samples of {total} clients"
    if split.counts is not None:
        caption += ", the share of each class, the number of classes, and the total variation distance between the "
        caption += "classes of a client and of all clients"
    with drawing():
        return _picture(split_of(split), caption)


def histogram(values: np.ndarray, label: str, caption: str) -> Picture:
    """How many clients have which value."""
    counts, edges = np.histogram(values, bins=min(BINS, max(1, len(np.unique(values)))))
    return bars(edges, counts, label, caption)


def bars(edges: Sequence[float] | np.ndarray, counts: Sequence[int] | np.ndarray, label: str, caption: str) -> Picture:
    """A histogram that has been counted: the edges of its bins, one more than counts of clients."""
    with drawing():
        figure = Figure(figsize=(COLUMN_INCHES, 1.9), layout="constrained")
        axes = figure.subplots()
        axes.stairs(np.asarray(counts), np.asarray(edges), fill=True, color=line_style(0).colour, alpha=0.85)
        axes.set_xlabel(label[:1].upper() + label[1:])
        axes.set_ylabel("Clients")
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        return _picture(figure, caption)


def _picture(figure: Figure, caption: str) -> Picture:
    file = BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    source = f"data:image/svg+xml;base64,{b64encode(file.getvalue()).decode()}"
    return Picture(caption, source, round(REM_PER_INCH * figure.get_figwidth(), 1))


MOST_ACROSS = 5
"""Columns of a table that fit a page."""

_LEVELS = {"samples": "example-level", "clients": "client-level"}
_FACTS = (
    ("unit", "what is hidden"),
    ("neighbouring_relation", "neighbouring data sets"),
    ("relation", "neighbouring data sets"),
    ("adversary", "adversary"),
    ("sampling", "sampling"),
    ("composition", "accountant"),
    ("scope", "scope"),
    ("public", "public"),
    ("randomness", "randomness"),
)


def shown(value: float, quantity: Quantity) -> str:
    """A recorded value in the unit of its quantity."""
    if not np.isfinite(value):
        return "–"
    text = f"{quantity.factor * value:.2f}" if quantity.unit else f"{value:.4g}"
    return f"{text} {quantity.unit}".rstrip()


def statistics_over_clients(recorded: Recorded) -> list[str]:
    """The columns that every run has with statistics over clients."""
    return [
        name
        for name in recorded.runs[0].columns
        if all(name in run.columns and statistic_over_clients(name, run.columns) for run in recorded.runs)
    ]


def statistics_table(recorded: Recorded, columns: Sequence[str], caption: str) -> TextTable:
    """Columns after the last evaluated round, by group; mean ± standard deviation over its tasks or seeds.

    A group is a row, or a column where there would be more than `MOST_ACROSS` columns.
    """
    quantities = [quantity_of(recorded.runs, column) for column in columns]
    rows = []
    for group in recorded.groups:
        cells = []
        for column, quantity in zip(columns, quantities, strict=True):
            stats = summary({run.key: float(run.columns[column][-1]) for run in group.runs})
            assert stats is not None
            text = shown(stats.mean, quantity)
            if stats.deviation is not None:
                text = f"{text.removesuffix(quantity.unit).rstrip()} ± {shown(stats.deviation, quantity)}"
            cells.append(text)
        rows.append([group.name, *cells])
    header = ["", *(quantity.words for quantity in quantities)]
    if len(columns) > MOST_ACROSS:
        header, *rows = [list(line) for line in zip(header, *rows, strict=True)]
    return TextTable(caption, header, rows)


def privacy_section(run: RunArchive) -> PageSection:
    """The guarantees of a run that states one, with a histogram of the clients' epsilons.

    Raises:
        ResourceError: privacy.json is damaged.
    """
    with reading(run.path / PRIVACY_FILE, "as the privacy of a run", ResourceError):
        return _privacy_section(run.privacy or {})


def _privacy_section(privacy: Mapping[str, Any]) -> PageSection:
    texts, pictures, tables, points = [], [], [], []
    for name, level in _LEVELS.items():
        if name not in privacy:
            continue
        stated = privacy[name]
        texts.append(f"{level[:1].upper()}{level[1:]} differential privacy: {_epsilon(stated)}.")
        facts = [[words, str(stated[key])] for key, words in _FACTS if isinstance(stated.get(key), str)]
        tables.append(TextTable(f"The {level} guarantee", ["", ""], facts))
        points += [f"Not covered: {point}" for point in stated.get("not_covered", []) if isinstance(point, str)]
        points += [str(note) for note in stated.get("notes", [])]
        points += [f"Ended early: {stated['ended_early']}"] if stated.get("ended_early") else []
        pictures += _histogram(stated.get("epsilon"), level)
    return PageSection("Privacy", texts, pictures, tables, points)


def _epsilon(stated: Mapping[str, Any]) -> str:
    epsilon, delta = stated.get("epsilon"), stated.get("delta")
    if isinstance(epsilon, Mapping):
        text = f"ε = {_number(epsilon['maximum'])} (largest of any client; median {_number(epsilon['median'])})"
    else:
        text = f"ε = {_number(epsilon)}" if isinstance(epsilon, int | float) else f"ε: {epsilon}"
    after = f", after round {stated['rounds']}" if "rounds" in stated else ""
    return text + ("" if delta is None else f", δ = {_number(delta)}") + after


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)


def _histogram(epsilon: object, level: str) -> list[Picture]:
    if not isinstance(epsilon, Mapping) or "histogram_by_rdp" not in epsilon:
        return []
    bins = epsilon["histogram_by_rdp"]
    left_out = f"; {bins['infinite']} clients without a bound are left out" if bins["infinite"] else ""
    caption = f"Clients by the {level} ε that each has spent (bounds by RDP, which are a little larger){left_out}"
    return [bars(bins["edges"], bins["clients"], "spent ε", caption)]


def environment_section(environments: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> PageSection:
    """Versions, devices, digests and seeds of runs; each distinct value once."""
    seed = f"seed{'s' if len(set(seeds)) > 1 else ''}", ", ".join(map(str, sorted(set(seeds))))
    if not any(environments):
        facts = TextTable("", ["", ""], [list(seed)])
        return PageSection("Environment", ["Versions and devices were not recorded here."], tables=[facts])
    entries: dict[str, list[str]] = {}

    def add(name: str, value: object) -> None:
        text = str(value)
        if value not in (None, "") and text not in entries.setdefault(name, []):
            entries[name].append(text)

    for environment in environments:
        for name, version in environment.get("packages", {}).items():
            add(name, version)
        add("Python", environment.get("python"))
        add("backend", environment.get("backend"))
        driver = environment.get("driver", {})
        if driver:
            add("driver", f"{driver.get('platform', '')}, {driver.get('cpus', '?')} CPUs")
        for host in environment.get("hosts", []):
            add("workers", ", ".join(f"{key} {host[key]}" for key in ("device", "processor", "torch") if key in host))
        numerics = environment.get("numerics", {})
        add("numerics", ", ".join(f"{key} = {value}" for key, value in numerics.items()))
        data = environment.get("data", {})
        add("data", data.get("description"))
        add("SHA-256 of all samples", data.get("digest"))
        for file in data.get("files", []):
            add("SHA-256 of data files", f"{file.get('path', file.get('name', 'file'))}: {file.get('sha256')}")
    rows = [[name, "; ".join(values)] for name, values in entries.items() if values]
    return PageSection("Environment", tables=[TextTable("", ["", ""], [list(seed), *rows])])


def split_texts(scenario: Mapping[str, Any], environment: Mapping[str, Any]) -> list[str]:
    """How the data was split, in words."""
    partition = scenario.get("data", {}).get("partition")
    if isinstance(partition, Mapping):
        options = ", ".join(f"{key} = {value}" for key, value in partition.items() if key != "name")
        how = f"Partition {partition.get('name', '')}" + (f" ({options})." if options else ".")
    else:
        how = "The partition that comes with the data."
    summary = environment.get("data", {}).get("summary")
    return [
        f"{how} {summary[:1].upper()}{summary[1:]}." if summary else f"{how} The sizes of clients were not recorded."
    ]
