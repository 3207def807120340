"""Sections that the pages of runs and of grids have in common."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rayfl.errors import ResourceError
from rayfl.figures.groups import Recorded
from rayfl.figures.page.parts import Picture, Section
from rayfl.figures.page.pictures import bars
from rayfl.figures.quantities import Quantity, quantity_of
from rayfl.grid.repetitions import repetition_means
from rayfl.reading import read_json_object, reading
from rayfl.report.text_table import TextTable

OVER_CLIENTS = re.compile(r"_(mean|variance|variance_corrected|lowest_\d+|clients)$")
"""Columns of metrics.jsonl with statistics over clients."""

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
    first = recorded.runs[0].columns
    return [name for name in first if OVER_CLIENTS.search(name) and all(name in run.columns for run in recorded.runs)]


def statistics_table(recorded: Recorded, columns: Sequence[str], caption: str) -> TextTable:
    """Columns after the last evaluated round, by group; mean ± standard deviation over its tasks or seeds.

    A group is a row, or a column where there would be more than `MOST_ACROSS` columns.
    """
    quantities = [quantity_of(recorded.runs, column) for column in columns]
    rows = []
    for group in recorded.groups:
        cells = []
        for column, quantity in zip(columns, quantities, strict=True):
            found = np.array(repetition_means({run.key: float(run.columns[column][-1]) for run in group.runs}))
            mean = shown(float(found.mean()), quantity)
            if len(found) == 1:
                cells.append(mean)
            else:
                cells.append(f"{mean.removesuffix(quantity.unit).rstrip()} ± {shown(found.std(ddof=1), quantity)}")
        rows.append([group.name, *cells])
    header = ["", *(quantity.words for quantity in quantities)]
    if len(columns) > MOST_ACROSS:
        header, *rows = [list(line) for line in zip(header, *rows, strict=True)]
    return TextTable(caption, header, rows)


def read_privacy(path: Path) -> Section:
    """The guarantees in privacy.json, with a histogram of the clients' epsilons.

    Raises:
        ResourceError: The file is damaged.
    """
    privacy = read_json_object(path, ResourceError)
    with reading(path, "as the privacy of a run", ResourceError):
        return _privacy_section(privacy)


def _privacy_section(privacy: Mapping[str, Any]) -> Section:
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
    return Section("Privacy", texts, pictures, tables, points)


def _epsilon(stated: Mapping[str, Any]) -> str:
    found, delta = stated.get("epsilon"), stated.get("delta")
    if isinstance(found, Mapping):
        said = f"ε = {_number(found['maximum'])} (largest of any client; median {_number(found['median'])})"
    else:
        said = f"ε = {_number(found)}" if isinstance(found, int | float) else f"ε: {found}"
    after = f", after round {stated['rounds']}" if "rounds" in stated else ""
    return said + ("" if delta is None else f", δ = {_number(delta)}") + after


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)


def _histogram(epsilon: object, level: str) -> list[Picture]:
    if not isinstance(epsilon, Mapping) or "histogram_by_rdp" not in epsilon:
        return []
    found = epsilon["histogram_by_rdp"]
    left_out = f"; {found['infinite']} clients without a bound are left out" if found["infinite"] else ""
    caption = f"Clients by the {level} ε that each has spent (bounds by RDP, which are a little larger){left_out}"
    return [bars(found["edges"], found["clients"], "spent ε", caption)]


def environment_section(environments: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> Section:
    """Versions, devices, digests and seeds of runs; each distinct value once."""
    seed = f"seed{'s' if len(set(seeds)) > 1 else ''}", ", ".join(map(str, sorted(set(seeds))))
    if not any(environments):
        facts = TextTable("", ["", ""], [list(seed)])
        return Section("Environment", ["Versions and devices were not recorded here."], tables=[facts])
    found: dict[str, list[str]] = {}

    def add(name: str, value: object) -> None:
        text = str(value)
        if value not in (None, "") and text not in found.setdefault(name, []):
            found[name].append(text)

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
    rows = [[name, "; ".join(values)] for name, values in found.items() if values]
    return Section("Environment", tables=[TextTable("", ["", ""], [list(seed), *rows])])


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
