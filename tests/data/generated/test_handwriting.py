"""Generated handwriting: deterministic, uneven, learnable, cached."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from rayfl.config.registry import call_with_options
from rayfl.data.formats.leaf import WrittenImages
from rayfl.data.generated import handwriting
from rayfl.data.generated.handwriting import CAPITAL, CHARACTERS, FAR, FONTS, SIZE, stroke_distances
from rayfl.errors import DataError


def _same(a: WrittenImages, b: WrittenImages) -> bool:
    pairs = ((a.images, b.images), (a.labels, b.labels), (a.writer, b.writer), (a.is_test, b.is_test))
    return a.names == b.names and all(np.array_equal(x, y) for x, y in pairs)


def test_every_font_draws_every_character_as_one_thin_line() -> None:
    distances = stroke_distances()
    assert distances.shape == (len(FONTS), len(CHARACTERS), SIZE, SIZE)
    on_line = (distances == 0).sum((2, 3))
    # The shortest stroke belongs to a small i or an r, the longest to an M or W: one pixel wide, no blots.
    assert on_line.min() > CAPITAL / 2
    assert on_line.max() < 7 * CAPITAL
    assert np.allclose(distances[:, :, 0], FAR)


def test_distance_is_euclidean_distance_to_the_line() -> None:
    line = np.argwhere(stroke_distances()[0, 10] == 0)
    grid = np.stack(np.meshgrid(np.arange(SIZE), np.arange(SIZE), indexing="ij"), -1)
    brute = np.sqrt(((grid[:, :, None] - line) ** 2).sum(-1)).min(-1)
    assert np.allclose(stroke_distances()[0, 10], np.minimum(brute, FAR), atol=1e-5)


def test_same_seed_same_images_other_seed_other_images() -> None:
    first = handwriting.generate(3, 4)
    assert _same(first, handwriting.generate(3, 4))
    assert not _same(first, handwriting.generate(4, 4))


def test_a_writer_does_not_depend_on_how_many_there_are() -> None:
    few, many = handwriting.generate(0, 3), handwriting.generate(0, 6)
    rows = many.writer < 3
    assert np.array_equal(few.images, many.images[rows])
    assert np.array_equal(few.labels, many.labels[rows])
    assert np.array_equal(few.is_test, many.is_test[rows])
    assert many.names[:3] == few.names


def test_paper_is_white_and_ink_dark_as_in_femnist() -> None:
    images = handwriting.generate(0, 10).images
    assert np.median(images) > 240
    edge = np.concatenate([images[:, 0], images[:, -1], images[:, :, 0], images[:, :, -1]])
    assert (edge > 200).mean() > 0.99
    assert images.reshape(len(images), -1).min(1).max() < 128, "an image without ink"


def test_two_images_of_a_class_by_one_writer_differ() -> None:
    written = handwriting.generate(0, 5)
    assert len(np.unique(written.images.reshape(len(written), -1), axis=0)) == len(written)


def test_writers_have_uneven_sizes_and_class_mixes_as_in_femnist(generated: Path) -> None:
    written = handwriting.cached(generated, 0, 80)
    sizes = np.bincount(written.writer)
    assert sizes.min() >= 20
    assert sizes.max() <= 400
    assert 135 < sizes.mean() < 165
    assert sizes.std() > 30
    assert 0.65 < (written.labels < 10).mean() < 0.75
    assert np.bincount(written.labels, minlength=62).min() > 15
    mixes = np.array([np.bincount(written.labels[written.writer == w], minlength=62) for w in range(80)])
    assert (mixes > 0).sum(1).max() < 62, "no writer is expected to write every character"


def test_a_tenth_of_each_writer_is_test_and_never_none() -> None:
    dataset = handwriting.generate(1, 20).dataset("x", 62, handwriting.provenance(1, 20))
    assert dataset.natural is not None
    assert dataset.natural.test is not None
    train, test = dataset.natural.train.sizes, dataset.natural.test.sizes
    assert train.min() >= 1
    assert test.min() >= 1
    assert np.abs(test - (train + test) / 10).max() <= 0.5


def test_as_a_source_it_has_writers_as_natural_clients(tmp_path: Path) -> None:
    given = {"source": "auto", "data_dir": tmp_path, "cache_dir": tmp_path, "seed": 0, "clients": 7}
    dataset = call_with_options(handwriting.load, {"classes": 10}, given, "data")
    assert dataset.name == "handwriting"
    assert dataset.num_classes == 10
    assert dataset.natural.names == tuple(f"w{w:07d}" for w in range(7))
    assert dataset.train.x.shape[1:] == (28, 28, 1)
    assert dataset.train.x.dtype == np.uint8
    assert dataset.train.y.dtype == np.int64
    assert dataset.train.y.max() == 9
    assert dataset.provenance.source == "generated"
    assert "Generated handwriting, 7 writers, seed 0" in dataset.provenance.description
    assert "white background" in dataset.provenance.description


def test_cache_is_read_back_equal_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = handwriting.cached(tmp_path, 0, 3)
    assert _same(first, handwriting.generate(0, 3))
    monkeypatch.setattr(handwriting, "generate", None)
    assert _same(first, handwriting.cached(tmp_path, 0, 3))
    assert [file.suffix for file in tmp_path.iterdir()] == [".parquet"], "temporary files stay behind"


@pytest.mark.parametrize("other", [{"seed": 1}, {"writers": 4}, {"classes": 10}])
def test_cache_file_is_named_after_everything_it_depends_on(tmp_path: Path, other: dict[str, int]) -> None:
    handwriting.cached(tmp_path, **({"seed": 0, "writers": 2, "classes": 62} | other))
    handwriting.cached(tmp_path, seed=0, writers=2, classes=62)
    assert len(list(tmp_path.iterdir())) == 2


def test_cache_of_another_format_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handwriting.cached(tmp_path, 0, 1)
    monkeypatch.setattr(handwriting, "FORMAT", handwriting.FORMAT + 1)
    handwriting.cached(tmp_path, 0, 1)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("damage", ["truncated", "emptied", "flipped"])
def test_damaged_cache_is_detected_and_regenerated(
    tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = handwriting.cached(tmp_path, 0, 2)
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 1
    else:
        del content[len(content) // 2 if damage == "truncated" else 0 :]
    file.write_bytes(content)
    told: list[str] = []
    monkeypatch.setattr(handwriting._log, "warning", lambda text, *of: told.append(text % of))
    for _ in range(2):
        assert _same(written, handwriting.cached(tmp_path, 0, 2))
    (once,) = told
    assert once.startswith(f"regenerating damaged cache file: {file}")


def test_cache_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(DataError, match=rf"{blocked}/handwriting-.*: cannot be written"):
        handwriting.load(blocked, 0, 1)


def test_a_linear_model_learns_ten_digits_but_not_all_of_them() -> None:
    written = handwriting.generate(0, 20, classes=10)
    x = 1 - torch.from_numpy(written.images).float().flatten(1) / 255
    y = torch.from_numpy(written.labels)
    test = torch.from_numpy(written.is_test)
    generator = torch.Generator().manual_seed(0)
    weights = torch.zeros(784, 10, requires_grad=True)
    rows = torch.nonzero(~test)[:, 0]
    for _ in range(200):
        batch = rows[torch.randint(len(rows), (128,), generator=generator)]
        loss = torch.nn.functional.cross_entropy(x[batch] @ weights, y[batch])
        (gradient,) = torch.autograd.grad(loss, weights)
        weights.data -= 0.1 * gradient
    accuracy = ((x[test] @ weights).argmax(1) == y[test]).float().mean().item()
    assert 0.5 < accuracy < 0.95
