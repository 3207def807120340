"""Damaged files of every format are read, or rejected with an error that names them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rayfl.errors import DataError
from tools.fuzz.attempt import attempt, write_valid
from tools.fuzz.mutations import mutated
from tools.fuzz.targets import TARGETS, Target

FEW = {"resumed run": 4, "checkpoint": 6, "images": 6, "tiny imagenet": 2, "scenario": 6, "grid": 6}
"""Fewer inputs for slow readers."""
QUICK = ["overrides", "checkpoint", "state", "places", "weights", "cifar pickles", "idx.gz", "femnist leaf", "images",
         "parquet folder", "npz"]  # fmt: skip
"""One reader of each format; those that run scenarios or open many images are slow."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in TARGETS]
)
def test_damaged_files_are_read_or_rejected_by_name(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    if name == "sent140":
        pytest.importorskip("transformers", reason="rayfl[text] is not installed")
    if name == "hugging face":
        pytest.importorskip("datasets", reason="rayfl[huggingface] is not installed")
    write_valid(target, tmp_path / "valid")

    @settings(max_examples=FEW.get(name, 12), suppress_health_check=list(HealthCheck))
    @given(st.randoms(use_true_random=False))
    def reads_or_refuses(random: Random) -> None:
        with tempfile.TemporaryDirectory() as folder:
            outcome = attempt(target, tmp_path / "valid", Path(folder) / "input", random)
        assert outcome.kind != "failed", f"{outcome.damaged}: {outcome.detail}"

    reads_or_refuses()


def _write(folder: Path) -> None:
    (folder / "numbers.json").write_text('{"a": [1, 2]}')


def _raises(error: Exception) -> Callable[[Path], None]:
    def read(folder: Path) -> None:
        raise error

    return read


@pytest.mark.parametrize(
    ("read", "kind"),
    [
        (lambda folder: None, "read"),
        (_raises(DataError("numbers.json: is damaged")), "rejected"),
        (_raises(DataError("something is damaged")), "failed"),
        (_raises(DataError("numbers.json: Traceback (most recent call last):")), "failed"),
        (_raises(KeyError("a")), "failed"),
    ],
)
def test_an_outcome_is_judged_by_what_the_reader_does(read: Callable[[Path], None], kind: str, tmp_path: Path) -> None:
    (tmp_path / "valid").mkdir()
    _write(tmp_path / "valid")
    outcome = attempt(Target(_write, read), tmp_path / "valid", tmp_path / "input", Random(0))
    assert (outcome.kind, outcome.damaged) == (kind, ("numbers.json",))


def test_damage_is_the_same_for_the_same_number_and_mostly_another_for_another() -> None:
    content = b'{"a": [1, 2, 3], "b": {"c": "text"}}'
    once, again = ([mutated(Path("x.json"), content, Random(n), [b"other"]) for n in range(200)] for _ in range(2))
    assert once == again
    assert len(set(once)) > 100
    assert sum(found == content for found in once) < 20
