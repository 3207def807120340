"""The scores of single clients in a finished run."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from rayfl.errors import ResourceError
from rayfl.planning.headline import Headline
from rayfl.reading import reading

SETS = ("client_test", "test")
"""If clients hold out some of their training samples for testing, scores are on those."""


def client_scores(folder: Path, headline: Headline) -> list[float | None]:
    """Reads the headline metric of every client on its own test samples in the last evaluated round.

    Args:
        folder: The folder of the run.
        headline: The headline metric of the run.

    Returns:
        One score per client, None where its labels leave the metric undefined; empty if the run recorded no scores of
        single clients (`evaluation.per_client`).

    Raises:
        ResourceError: The file is damaged.
    """
    path = folder / "clients.parquet"
    if not path.exists():
        return []
    with reading(path, "as Parquet", ResourceError):
        if headline.metric not in pq.read_schema(path).names:
            return []
        table = pq.read_table(path, columns=["round", "set", headline.metric])
    for name in SETS:
        of_set = table.filter(pc.equal(table["set"], name))
        if len(of_set):
            last = of_set.filter(pc.equal(of_set["round"], pc.max(of_set["round"])))
            found: list[float | None] = last[headline.metric].to_pylist()
            return found
    return []
