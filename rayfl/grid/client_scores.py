"""The scores of single clients in a finished run."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from rayfl.errors import ResourceError
from rayfl.planning.headline import Headline
from rayfl.reading import reading

SETS = ("client_test", "test")
"""Where clients have test samples of their own held out from their training samples, scores are on those."""


def client_scores(folder: Path, headline: Headline) -> list[float]:
    """Reads every client's headline metric on its own test samples in the last evaluated round.

    Args:
        folder: The run's.
        headline: The run's.

    Returns:
        Nothing where the run kept no scores of single clients (`evaluation.per_client`).

    Raises:
        ResourceError: They are damaged.
    """
    path = folder / "clients.parquet"
    if not path.exists():
        return []
    with reading(path, "as Parquet", ResourceError):
        if headline.metric not in pq.read_schema(path).names:
            return []
        table = pq.read_table(path, columns=["round", "set", headline.metric]).drop_null()
    for name in SETS:
        of_set = table.filter(pc.equal(table["set"], name))
        if len(of_set):
            last = of_set.filter(pc.equal(of_set["round"], pc.max(of_set["round"])))
            found: list[float] = last[headline.metric].to_pylist()
            return found
    return []
