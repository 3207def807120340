"""Windows of a text behave like an array of all windows, but only store the text and their starts."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from rayfl.config.data import Data, Normalization
from rayfl.config.section import Named
from rayfl.data.batches import BatchSource
from rayfl.data.dataset import Dataset, NaturalClients, Provenance, Samples, Shards
from rayfl.data.inputs import TextWindows
from rayfl.data.store import build_store
from rayfl.errors import DataError, ScenarioError

TEXT = np.random.default_rng(0).integers(0, 80, 60, np.uint8)
STARTS = np.array([3, 0, 17, 55], np.int32)
WRITTEN_OUT = np.stack([TEXT[start : start + 5] for start in STARTS])


def _windows() -> TextWindows:
    return TextWindows(TEXT, STARTS, 5)


def _dataset() -> Dataset:
    """Two clients of three and one training windows; their test windows."""
    train, test = TextWindows(TEXT, STARTS, 4), TextWindows(TEXT, STARTS[::-1].copy(), 4)
    natural = NaturalClients(
        ("a", "b"),
        Shards(np.array([0, 2, 3, 1]), np.array([0, 3, 4])),
        Shards(np.array([1, 0, 2]), np.array([0, 1, 3])),
    )
    trained, tested = (Samples(part, TEXT[part.starts + 4]) for part in (train, test))
    return Dataset("windows", trained, tested, 80, Provenance("arrays", "test"), natural)


def test_windows_are_cut_out_of_the_text() -> None:
    windows = _windows()
    assert (len(windows), windows.shape, windows.ndim, windows.dtype) == (4, (4, 5), 2, np.dtype(np.uint8))
    np.testing.assert_array_equal(windows[np.array([2, 2, 0])], WRITTEN_OUT[[2, 2, 0]])
    np.testing.assert_array_equal(windows[1:3], WRITTEN_OUT[1:3])
    np.testing.assert_array_equal(np.asarray(windows), WRITTEN_OUT)
    np.testing.assert_array_equal(np.asarray(windows, np.float64), WRITTEN_OUT.astype(np.float64))


def test_taking_some_samples_shares_the_text() -> None:
    taken = Samples(_windows(), np.arange(4)).take(np.array([3, 1]))
    assert isinstance(taken.x, TextWindows)
    assert taken.x.text is TEXT
    np.testing.assert_array_equal(np.asarray(taken.x), WRITTEN_OUT[[3, 1]])
    assert taken.y.tolist() == [3, 1]


@pytest.mark.parametrize("start", [-1, 56])
def test_windows_outside_the_text_raise(start: int) -> None:
    with pytest.raises(DataError, match=f"windows of 5 symbols start at {start} to {start}; in a text of 60 symbols"):
        TextWindows(TEXT, np.array([start]), 5)


def test_pickled_as_plain_buffers_with_the_text_once() -> None:
    text = np.zeros(100000, np.uint8)
    train, test = (TextWindows(text, np.arange(n, dtype=np.int32), 80) for n in (1000, 10))
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps((train, test), protocol=5, buffer_callback=buffers.append)
    assert len(pickled) < 1000
    assert sorted(len(buffer.raw()) for buffer in buffers) == [40, 4000, 100000]
    again = pickle.loads(pickled, buffers=buffers)  # noqa: S301 - pickled two lines above
    assert again[0].text is again[1].text


def test_batches_of_windows_are_int64_and_follow_the_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tests.data.test_text_windows.DATA", _dataset(), raising=False)
    store = build_store(Data(name="tests.data.test_text_windows:DATA"), 0, tmp_path, tmp_path)
    assert store.input_shape == (4,)
    source = BatchSource(store, torch.device("cpu"))
    batches = list(source.training_batches(source.shard(0)[[2, 0, 1]], 2, np.random.default_rng(0)))
    starts = STARTS[[0, 2, 3]][[2, 0, 1]]
    assert [len(x) for x, _ in batches] == [2, 1]
    x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
    assert (x.dtype, y.dtype) == (torch.int64, torch.int64)
    assert x.tolist() == [TEXT[start : start + 4].tolist() for start in starts]
    assert y.tolist() == TEXT[starts + 4].tolist()
    assert store.test_shards is not None
    x, y = source.test_batch(slice(1, 3))
    tested = STARTS[::-1][[0, 2]]
    assert x.tolist() == [TEXT[start : start + 4].tolist() for start in tested]
    assert y.tolist() == TEXT[tested + 4].tolist()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"normalize": Normalization(mean=(0.5,), std=(0.5,))}, "data.normalize is for images"),
        ({"augment": (Named(name="flip"),)}, r"data.augment.0: 'flip' is for images"),
    ],
)
def test_options_for_images_raise(
    config: dict[str, object], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tests.data.test_text_windows.DATA", _dataset(), raising=False)
    with pytest.raises(ScenarioError, match=message):
        build_store(Data.model_validate({"name": "tests.data.test_text_windows:DATA", **config}), 0, tmp_path, tmp_path)
