"""clients.parquet has the names of clients if the data does."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rayfl
from rayfl.data.dataset import ClientNames
from rayfl.engine.events import ClientScalars, RoundDone
from rayfl.engine.totals import Traffic
from rayfl.errors import RayflError
from rayfl.runs import client_records
from rayfl.runs.records import Records
from tests.runs.evaluations import client_score, evaluated

SITES = ("west", "nörd", "east")
POOL = 4
"""The number of a pool of samples, which belongs to no client."""


def done(round: int, *scalars: ClientScalars) -> RoundDone:
    return RoundDone("p", round, round, 1.0, 1, 1, Traffic(0, 0, 0, 0, 0), 1.0, client_scalars=scalars)


def records(folder: Path) -> Records:
    made = Records.create(folder, "x", datetime(2026, 2, 3))
    made.name_clients(ClientNames.of(SITES))
    return made


def add(made: Records, round: int, name: str = "drift") -> None:
    made.add(done(round, ClientScalars(2, {name: 0.5}), ClientScalars(POOL, {name: 0.5})))
    made.add(evaluated("p", round, 1.0, 0.5, 9, tuple(client_score(client, 4, 1.0, 0.5) for client in (1, 0))))


def test_rows_of_every_kind_have_their_owner_and_those_of_pools_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_records, "ROWS_HELD", 2)  # several parts, with other names in each
    with records(tmp_path) as made:
        add(made, 1)
        add(made, 2, "distance")
        made.add_epsilons("p", 2, np.arange(3.0))
    found = pq.read_table(made.folder / "clients.parquet")
    assert pa.types.is_dictionary(found.schema.field("owner").type)
    each = [(2, "east"), (POOL, None), (1, "nörd"), (0, "west")]
    of_epsilons = [(0, "west"), (1, "nörd"), (2, "east")]
    rows = found.to_pylist()
    assert [(row["client"], row["owner"]) for row in rows] == [*each, *each, *of_epsilons]
    assert [row["distance"] for row in rows[:5]] == [None] * 4 + [0.5]


def test_names_are_there_after_records_were_opened_again(tmp_path: Path) -> None:
    with records(tmp_path) as made:
        add(made, 1)
        state = made.state()
        add(made, 2)
    with Records(made.folder, reopened=True) as again:
        again.name_clients(ClientNames.of(SITES))
        again.restore(state)
        add(again, 2)
    owners = pq.read_table(made.folder / "clients.parquet")["owner"].to_pylist()
    assert owners == ["east", None, "nörd", "west"] * 2


def test_a_scalar_named_owner_is_rejected_where_there_is_such_a_column(tmp_path: Path) -> None:
    with records(tmp_path) as made, pytest.raises(RayflError, match="'owner': the records have a column of this name"):
        made.add(done(1, ClientScalars(2, {"owner": 0.5})))


def sites() -> Any:
    x, y = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30) % 2
    owner = np.array([SITES[row % 3] for row in range(30)])
    return {"train": (x, y, owner), "test": (x, y, owner)}


@pytest.mark.parametrize(("partition", "owners"), [("natural", ["east", "nörd", "west"]), ("iid", None)])
def test_a_run_names_natural_clients_and_no_others(partition: str, owners: list[str] | None, tmp_path: Path) -> None:
    tables = {
        "data": {"name": f"{__name__}:sites", "partition": partition, "clients": 3, "test_share": 0.2},
        "model": "tests.user_code:Linear",
        "phases": [{"name": "p", "rounds": 1, "cohort": 3}],
        "evaluation": {"per_client": True},
    }
    result = rayfl.run(tables, backend="inline", out=tmp_path)
    found = pq.read_table(result.directory / "clients.parquet")
    assert ("owner" in found.column_names) == (owners is not None)
    if owners is not None:
        names = dict(zip(found["client"].to_pylist(), found["owner"].to_pylist(), strict=True))
        assert [names[client] for client in range(3)] == owners
