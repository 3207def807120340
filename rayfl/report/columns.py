"""The columns of a run's records, and how reported scalars join them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from rayfl.config.execution import NUMBER_OF_CLIENTS
from rayfl.errors import RayflError
from rayfl.report.column_meanings import METRICS_MEANINGS, REPORTED_MEANINGS

if TYPE_CHECKING:
    from rayfl.config.phase import Phase
    from rayfl.config.scenario import Scenario
    from rayfl.data.store import ShardStore

METRICS = pa.schema(
    [
        ("phase", pa.string()),
        ("round", pa.int64()),
        ("round_in_phase", pa.int64()),
        ("train_loss", pa.float64()),
        ("seconds", pa.float64()),
        ("bytes", pa.int64()),
        ("transfers", pa.int64()),
        ("bytes_down", pa.int64()),
        ("bytes_up", pa.int64()),
    ]
)
"""metrics.jsonl, a line per evaluated round; scores come before `train_loss`, reported scalars at the end."""

CLIENTS = pa.schema(
    [
        ("phase", pa.string()),
        ("round", pa.int64()),
        ("client", pa.int64()),
        ("set", pa.string()),
        ("samples", pa.int64()),
    ]
)
"""clients.parquet; scores and reported scalars follow under their names."""

OWNER = pa.field("owner", pa.dictionary(pa.int32(), pa.string()))
"""Another column of clients.parquet, if the data names its clients."""


def columns_of(scenario: Scenario, phase: Phase, store: ShardStore) -> set[str] | None:
    """Returns the columns that metrics.jsonl may have in the rounds of a phase.

    Args:
        scenario: The scenario, with its callbacks.
        phase: The phase.
        store: The scenario's data.

    Returns:
        Their names; None if code of the user's own, which may report scalars under any name, takes part.
    """
    from rayfl.planning.headline import headline_label
    from rayfl.tasks.metrics.building import metric_label  # loads PyTorch

    own = [scenario.task_of(phase).name, *(callback.name for callback in scenario.callbacks)]
    if any(":" in name for name in (*own, *_texts(phase.model_dump(mode="json", exclude=_REPORT_NOTHING)))):
        return None
    evaluation = scenario.evaluation_of(phase)
    sets = {"test": store.test_shards, **{name: held.shards for name, held in store.held_out.items()}}
    labels, headline = [metric_label(metric) for metric in evaluation.metrics], headline_label(evaluation)
    described = [f"{name}_{headline}" for name, shards in sets.items() if shards is not None]
    known = {meaning.name for meaning in (*METRICS_MEANINGS, *REPORTED_MEANINGS) if "<" not in meaning.name} - {"phase"}
    known |= {f"{name}_{label}" for name in sets for label in ("loss", *labels)}
    if evaluation.personalize:
        known |= {f"personalized_{label}{ending}" for label in labels for ending in ("", f"_{NUMBER_OF_CLIENTS}")}
        described.append(f"personalized_{headline}")
    for statistic in evaluation.over_clients:
        pooled = statistic in evaluation.pooled_statistics
        number = f"pooled_{NUMBER_OF_CLIENTS}" if pooled else NUMBER_OF_CLIENTS
        columns = [f"test_{headline}"] if pooled else described
        known |= {f"{column}_{ending}" for column in columns for ending in (statistic, number)}
    return known


_REPORT_NOTHING = {"name", "metrics", "model", "local"}
"""Keys of a phase whose values report no scalars."""


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(inner)


def joined(row: Mapping[str, object], *reported: Mapping[str, float | None]) -> dict[str, object]:
    """Returns a row with reported scalars as further columns.

    Args:
        row: The fixed columns.
        reported: Scalars by name; None stays empty.

    Raises:
        RayflError: A scalar has the name of another column.
    """
    whole = dict(row)
    for scalars in reported:
        for name, value in scalars.items():
            if name in whole:
                raise RayflError(f"reported scalar '{name}': the records have a column of this name; choose another")
            whole[name] = None if value is None else float(value)
    return whole
