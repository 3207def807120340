"""Empty classes are reported before a run, with a remedy; a single class raises."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import rayfl
from rayfl.cli.data import main as data_report
from rayfl.config.data import Data
from rayfl.data.dataset import Dataset, Provenance, Samples
from rayfl.data.inputs import TextWindows
from rayfl.data.split_facts import empty_classes
from rayfl.data.store import build_store
from rayfl.errors import DataError

X = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
FROM_ONE = "no training samples of class 0, of 4 numbered from 0; if labels count from 1, subtract 1"

GAPS = (
    "no training samples of classes 1-2, 5, of 7 numbered from 0; unless intended, number them without gaps, for "
    "example with numpy.unique(labels, return_inverse=True)"
)


def of(labels: Any, classes: int | None = None, x: Any = X) -> Dataset:
    samples = Samples(x, np.asarray(labels))
    count = int(np.max(labels)) + 1 if classes is None else classes
    return Dataset("mine", samples, samples, count, Provenance("arrays", "made up"))


def counted_from_one() -> Any:
    y = np.arange(12) % 3 + 1
    return X, y, X, y


def with_a_gap() -> Dataset:
    return of(np.repeat([0, 3, 4, 6], 3).astype(np.uint64))


def with_more_declared() -> Dataset:
    return of(np.arange(12) % 3, classes=9)


def numbers() -> Any:
    return X, X[:, 0], X, X[:, 0]


def vectors() -> Dataset:
    return of(np.eye(12, 3, 1, dtype=np.int64), classes=3)


def text() -> Dataset:
    return of(np.full(12, 5), x=TextWindows(np.zeros(14, np.uint8), np.arange(12), 3))


def one_class() -> Any:
    return X, np.zeros(12, int), X, np.zeros(12, int)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (counted_from_one, FROM_ONE),
        (with_a_gap, GAPS),
        (with_more_declared, ""),
        (numbers, ""),
        (vectors, ""),
        (text, ""),
    ],
)
def test_classes_without_a_sample_below_the_largest_label_are_named(
    made: Callable[[], Any], said: str, tmp_path: Path
) -> None:
    config = Data(name=f"{__name__}:{made.__name__}", clients=2)
    assert empty_classes(build_store(config, 0, tmp_path, tmp_path)) == said


def scenario(made: Callable[[], Any]) -> dict[str, Any]:
    return {
        "data": {"name": f"{__name__}:{made.__name__}", "clients": 2},
        "model": "mlp",
        "phases": [{"name": "p", "rounds": 1, "cohort": 1}],
    }


def test_a_run_and_the_data_report_say_so_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rayfl.run(scenario(counted_from_one), backend="inline", out=tmp_path, console=Console(width=200))
    assert f"note     {FROM_ONE}" in capsys.readouterr().out.splitlines()
    (tmp_path / "own.toml").write_text(
        f'model = "mlp"\nphases = [{{ name = "p", rounds = 1, cohort = 1 }}]\n'
        f'[data]\nname = "{__name__}:counted_from_one"\nclients = 2\n'
    )
    assert data_report([str(tmp_path / "own.toml"), "--out", str(tmp_path / "split.png")]) == 0
    assert f"note     {FROM_ONE}" in capsys.readouterr().out.splitlines()


def test_a_single_class_raises_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        rayfl.run(scenario(one_class), backend="inline", out=tmp_path, console=Console(quiet=True))
    assert str(caught.value) == (
        "task 'classification': all 12 training labels are 0, and a single class leaves nothing to learn: provide "
        "samples of at least two classes, choose more with data.classes, or use another task"
    )
