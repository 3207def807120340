"""Data prepared on a cluster: the bytes of data prepared in one process, whatever dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import ray
from PIL import Image
from torch.utils.data import Dataset

from rayfl.__main__ import main as rayfl_command
from rayfl.backends.ray.fragments import OnCluster
from rayfl.backends.ray.log import NAME
from rayfl.backends.ray.tasks import RayTask, Returned, run_tasks
from rayfl.config.data import Data
from rayfl.config.execution import Resources
from rayfl.config.scenario import Scenario
from rayfl.data.prepared import writer
from rayfl.data.prepared.progress import PROGRESS
from rayfl.data.prepared.reader import verify
from rayfl.errors import DataError
from tests.backends.ray.calls import answer
from tests.data.prepared.killed import content
from tests.data.prepared.scenes import LABELS, OWNER, VECTORS, data

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("ray_cluster", "several_fragments")]


@pytest.fixture
def several_fragments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "FRAGMENT_BYTES", 400)
    monkeypatch.setattr(writer, "BLOCK_BYTES", 100)


def on_cluster(config: Data, folder: Path, say: Any = lambda line: None) -> None:
    phase = {"name": "p", "rounds": 1, "cohort": 1}
    scenario = Scenario.from_tables({"data": {"name": config.name}, "model": "mlp", "phases": [phase]})
    write = OnCluster(scenario, {}, Path(), "auto")
    writer.prepare(config, 0, Path(), folder.parent / "cache", folder, say, write)


def in_one_process(config: Data, folder: Path, say: Any = lambda line: None) -> None:
    writer.prepare(config, 0, Path(), folder.parent / "cache", folder, say)


class Rows(Dataset[tuple[np.ndarray, int]]):
    """Items that are read when they are needed; the first process to read one of them dies, if a marker says so."""

    def __init__(self, marker: str) -> None:
        self._marker, self.targets = marker, LABELS

    def __len__(self) -> int:
        return len(VECTORS)

    def __getitem__(self, row: int) -> tuple[np.ndarray, int]:
        if row == 7 and self._marker:
            with suppress(FileNotFoundError):  # one of two processes that read it at once
                Path(self._marker).unlink()
                os.kill(os.getpid(), signal.SIGKILL)
        return VECTORS[row], int(LABELS[row])


def items(marker: str = "") -> dict[str, Any]:
    return {"train": Rows(marker), "test": (VECTORS, LABELS)}


def other_items() -> dict[str, Any]:
    """Items that differ between processes."""

    class Others(Rows):
        def __getitem__(self, row: int) -> tuple[np.ndarray, int]:
            return VECTORS[row] + os.getpid(), int(LABELS[row])

    return {"train": Others(""), "test": (VECTORS, LABELS)}


def sources(folder: Path) -> Iterator[tuple[str, Data]]:
    """One of each way in which rows reach a task."""
    four = {"clients": 4, "partition": {"name": "dirichlet", "beta": 1.0}}
    yield from {
        "images": data("images"),
        "words": data("words"),
        "named": data("named"),
        "windows": data("windows"),
    }.items()
    yield "items", Data.model_validate({"name": f"{__name__}:items", **four})
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.ravel()), 4)
    table = pa.table({"x": vectors, "label": LABELS, "site": OWNER})
    with pa.ipc.new_file(str(folder / "rows.arrow"), table.schema) as file:
        file.write_table(table, max_chunksize=32)
    options = {"path": str(folder / "rows.arrow"), "inputs": "x", "label": "label"}
    yield "arrow", Data.model_validate({"name": "arrow_file", "options": options, **four})
    for number in range(12):
        image = folder / "scans" / f"site{number % 2}" / f"class{number % 3}" / f"{number}.png"
        image.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8, 3), number, np.uint8)).save(image)
    yield "scans", Data.model_validate({"name": "image_folder", "options": {"path": str(folder / "scans"), "size": 8}})


def test_every_source_gives_the_bytes_of_one_process(tmp_path: Path) -> None:
    for name, config in sources(tmp_path):
        alone, together = tmp_path / f"{name} alone", tmp_path / f"{name} together"
        in_one_process(config, alone)
        on_cluster(config, together)
        assert content(together) == content(alone), name
        assert len(list(alone.glob("train-*.arrow"))) > 1, name
        verify(together)


def test_a_worker_that_dies_is_replaced_and_leaves_nothing_behind(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    config = Data.model_validate({"name": f"{__name__}:items", "clients": 4, "options": {"marker": str(marker)}})
    in_one_process(config, tmp_path / "alone")
    told: list[str] = []

    def say(line: str) -> None:
        told.append(line)

    original, written = OnCluster.__call__, tmp_path / "together"

    def dying(self: OnCluster, folder: Path, fragments: Any) -> Any:
        marker.touch()  # once the source was read in this process
        return original(self, folder, fragments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OnCluster, "__call__", dying)
        on_cluster(config, written, say)
    assert not marker.exists()
    assert len(told) == len(list(written.glob("*.arrow"))) - 1
    assert content(written) == content(tmp_path / "alone")


@pytest.mark.parametrize("goes_on", ["together", "alone"])
def test_what_was_interrupted_goes_on_on_the_cluster_or_alone(goes_on: str, tmp_path: Path) -> None:
    in_one_process(data("images"), tmp_path / "alone")
    told: list[str] = []

    def say(line: str) -> None:
        told.append(line)
        if len(told) == 2:
            raise KeyboardInterrupt

    folder = tmp_path / "it"
    with pytest.raises(KeyboardInterrupt):
        on_cluster(data("images"), folder, say)
    assert len((folder / PROGRESS).read_text().splitlines()) == 3
    (folder / NAME).write_text("what Ray said")
    again: list[str] = []
    if goes_on == "together":
        on_cluster(data("images"), folder, again.append)
    else:
        in_one_process(data("images"), folder, again.append)
    assert content(folder) == content(tmp_path / "alone")
    assert len(again) == len(list(folder.glob("*.arrow"))) - 1 - 2


def test_a_node_that_reads_other_data_is_refused(tmp_path: Path) -> None:
    config = Data.model_validate({"name": f"{__name__}:other_items", "clients": 4})
    with pytest.raises(DataError, match="other"):
        on_cluster(config, tmp_path / "it")
    assert not (tmp_path / "it" / "manifest.json").exists()


def test_the_command_names_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    address = ray.get_runtime_context().gcs_address
    words = ["data", "prepare", "tests.data.prepared.scenes:vectors"]
    for name, more in (("alone", []), ("together", ["--address", address])):
        assert rayfl_command([*words, str(tmp_path / name), "data.clients=5", *more]) == 0
    assert content(tmp_path / "together") == content(tmp_path / "alone")
    capsys.readouterr()
    assert rayfl_command([*words, str(tmp_path / "none"), "data.clients=5", "--address", "127.0.0.1:1"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: this program is already connected to the Ray cluster at")


def test_no_more_tasks_are_taken_than_may_wait(tmp_path: Path) -> None:
    taken: list[int] = []

    def tasks() -> Iterator[RayTask]:
        for number in (1, 2, 3, 4, 6, 7, 8):
            taken.append(number)
            yield RayTask((number,), Resources())

    results = run_tasks(answer, tasks(), None, tmp_path, tmp_path / "none", at_once=2)
    values = []
    for result in results:
        if isinstance(result, Returned):
            values.append(result.value)
            assert len(taken) - len(values) <= 2
    assert sorted(values) == [10, 20, 30, 40, 60, 70, 80]
