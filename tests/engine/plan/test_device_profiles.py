"""Quantities of simulated devices: drawn from the seed, or read from traces that are checked first."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfl.config.participation import Devices
from rayfl.engine.plan.devices import DeviceProfiles, SessionTable, build_profiles
from rayfl.errors import DataError

CLIENTS = 2000


def profiles(clients: int = CLIENTS, seed: int = 5, **devices: Any) -> DeviceProfiles:
    return build_profiles(Devices(**devices), seed, clients)


def written(path: Path, **columns: Any) -> str:
    pq.write_table(pa.table(columns), path)
    return str(path)


def test_distributions_have_their_medians_ends_and_shares() -> None:
    found = profiles(
        steps_per_s={"lognormal": [20, 0.5]},
        down_bytes_per_s={"uniform": [100, 300]},
        up_bytes_per_s={"kinds": [1, 1, 4]},
        dropout=0.25,
    ).quantities
    logs = np.log(found["steps_per_s"])
    assert np.median(logs) == pytest.approx(np.log(20), abs=0.05)
    assert logs.std() == pytest.approx(0.5, abs=0.03)
    assert 100 <= found["down_bytes_per_s"].min() < 105
    assert 295 < found["down_bytes_per_s"].max() <= 300
    assert (found["up_bytes_per_s"] == 1).mean() == pytest.approx(2 / 3, abs=0.04)
    assert set(found["up_bytes_per_s"]) == {1, 4}
    assert (found["dropout"] == 0.25).all()


def test_a_client_has_the_same_device_however_many_there_are_and_another_with_another_seed() -> None:
    few, many = (profiles(number, steps_per_s={"lognormal": [20, 1]}).quantities["steps_per_s"] for number in (3, 9))
    assert np.array_equal(few, many[:3])
    assert not np.array_equal(few, profiles(3, 6, steps_per_s={"lognormal": [20, 1]}).quantities["steps_per_s"])


def test_a_trace_gives_each_client_its_own_row(tmp_path: Path) -> None:
    file = written(
        tmp_path / "devices.parquet", client=[2, 0, 1, 7], speed=[3, 10, 20, 1], dropout=[0.5, 0.0, 1.0, 0.1]
    )
    found = profiles(3, steps_per_s={"file": file, "column": "speed"}, dropout={"file": file})
    assert list(found.quantities["steps_per_s"]) == [10, 20, 3]
    assert list(found.quantities["dropout"]) == [0.0, 1.0, 0.5]
    assert found.files == [(file, hashlib.sha256(Path(file).read_bytes()).hexdigest())]


def test_without_a_column_of_clients_they_draw_devices_whole(tmp_path: Path) -> None:
    file = written(tmp_path / "devices.parquet", speed=np.arange(1.0, 6), up=10 * np.arange(1.0, 6))
    found = profiles(
        steps_per_s={"file": file, "column": "speed"}, up_bytes_per_s={"file": file, "column": "up"}
    ).quantities
    assert set(found["steps_per_s"]) == {1, 2, 3, 4, 5}
    assert np.array_equal(found["up_bytes_per_s"], 10 * found["steps_per_s"])


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"client": [0, 1, 1], "speed": [1, 2, 3]}, r"column 'client' names client 1 twice"),
        (
            {"client": [0, 2, 3], "speed": [1, 2, 3]},
            r"column 'client' does not name client 1 of 3; add a row for every client",
        ),
        ({"client": [0.0, 1.0, 2.0], "speed": [1, 2, 3]}, r"column 'client' is double; expected client: int64"),
        ({"client": [0, 1, 2], "pace": [1, 2, 3]}, r"has no column 'speed'; expected client: int64, speed: double"),
        ({"client": [0, 1, 2], "speed": ["a", "b", "c"]}, r"column 'speed' is string; expected"),
        ({"client": [0, 1, 2], "speed": [1, None, 3]}, r"column 'speed' has 1 empty values"),
        ({"client": [2, 1, 0], "speed": [1, 0, 3]}, r"column 'speed' has 0 in row 1; must be a finite number above 0"),
        ({"client": [0, 1, 2], "speed": [1, float("nan"), 3]}, r"column 'speed' has nan in row 1; must be a finite"),
    ],
)
def test_a_trace_that_does_not_fit_is_told_by_key_file_and_column(
    columns: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    file = written(tmp_path / "devices.parquet", **columns)
    with pytest.raises(DataError, match=rf"^participation.steps_per_s: {file}: {complaint}"):
        profiles(3, steps_per_s={"file": file, "column": "speed"})


def test_missing_and_damaged_traces_are_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"participation.dropout: .*none.parquet: cannot be read \(No such file"):
        profiles(3, dropout={"file": str(tmp_path / "none.parquet")})
    (tmp_path / "text.parquet").write_text("no Parquet")
    with pytest.raises(DataError, match=r"participation.dropout: .*text.parquet: cannot be read as Parquet"):
        profiles(3, dropout={"file": str(tmp_path / "text.parquet")})
    file = written(tmp_path / "odds.parquet", dropout=[0.5, 1.5])
    with pytest.raises(DataError, match=r"column 'dropout' has 1.5 in row 1; must be a probability, 0 to 1"):
        profiles(50, dropout={"file": file})


def sessions(rows: list[tuple[int, float, float]], tmp_path: Path, clients: int = 3, **more: Any) -> SessionTable:
    columns = dict(zip(("client", "begins", "ends"), map(list, zip(*rows, strict=True)), strict=True))
    file = written(tmp_path / "sessions.parquet", **columns)
    found = profiles(clients, steps_per_s=1, availability={"sessions": file, **more}).sessions
    assert found is not None
    return found


def test_sessions_begin_end_touch_and_repeat(tmp_path: Path) -> None:
    rows = [(1, 50.0, 60.0), (0, 5.0, 10.0), (1, 60.0, 100.0), (1, 0.0, 20.0), (9, 0.0, 100.0)]
    once, daily = sessions(rows, tmp_path), sessions(rows, tmp_path, repeat_s=100.0)
    assert [once.until(0, at) for at in (4.9, 5.0, 9.0, 10.0, 107.0)] == [None, 10.0, 10.0, None, None]
    assert once.until(1, 55.0) == 100.0
    assert once.until(2, 5.0) is None
    assert daily.until(0, 107.0) == 110.0
    assert daily.until(1, 155.0) == 220.0  # until 200, and on from there when the intervals begin anew
    assert sessions([(0, 0.0, 100.0)], tmp_path, repeat_s=100.0).until(0, 31.0) == float("inf")


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(1, 9)), min_size=1, max_size=12),
    st.integers(0, 45),
)
def test_a_client_is_available_where_any_of_its_intervals_covers_the_instant(
    drawn: list[tuple[int, int, int]], at: int
) -> None:
    from rayfl.engine.plan.devices import _merged

    rows = sorted((client, float(begins), float(begins + length)) for client, begins, length in drawn)
    client, begins, ends = map(np.array, zip(*rows, strict=True))
    table = _merged(client, begins, ends, 3, None)
    for one in range(3):
        covered = {second for of, first, last in rows if of == one for second in range(int(first), int(last))}
        later = at
        while later in covered:
            later += 1
        assert table.until(one, float(at)) == (float(later) if at in covered else None)
        for repeat_s in (None, 45.0):
            again = {second + 45 * turn for second in covered for turn in range(1 if repeat_s is None else 3)}
            first = min((second for second in again if second >= at), default=np.inf)
            assert replace(table, repeat_s=repeat_s).begin(one, float(at)) == first


def test_a_session_that_begins_between_two_numbers_is_met_at_the_second() -> None:
    begins = np.array([1 / 3])
    table = SessionTable(np.array([0, 1]), begins, begins + 1e-3, 1.0)
    for at in (1e5 + 0.9, 3e6 + 0.1, 7.7e8 + 0.5):
        began = table.begin(0, at)
        assert table.until(0, began) is not None
        assert began - at < 1


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([(0, 5.0, 5.0)], r"row 0 has begins = 5 and ends = 5; must be 0 <= begins < ends <= repeat_s = 100"),
        ([(0, 0.0, 5.0), (1, 90.0, 101.0)], r"row 1 has begins = 90 and ends = 101"),
        ([(8, 0.0, 5.0)], r"column 'client' names none of the clients 0 to 2"),
    ],
)
def test_sessions_that_do_not_fit_are_told(
    rows: list[tuple[int, float, float]], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=rf"^participation.availability: .*sessions.parquet: {complaint}"):
        sessions(rows, tmp_path, repeat_s=100.0)
