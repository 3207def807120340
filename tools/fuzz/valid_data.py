"""Small valid files in every format that a data source reads."""

from __future__ import annotations

import gzip
import io
import json
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from rayfl.config.data import Data
from rayfl.data.prepared import writer
from rayfl.data.sources.pacs import CLASSES as PACS_CLASSES

_RNG = np.random.default_rng(0)
_IMAGES = _RNG.integers(0, 256, (6, 3072), np.uint8)
_LABELS = [0, 1, 2, 3, 4, 5]


def cifar_python(folder: Path) -> None:
    """CIFAR-10's python version: pickles."""
    content = pickle.dumps({b"data": _IMAGES, b"labels": _LABELS}, protocol=3)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        _put(folder / "cifar-10-batches-py" / name, content)


def cifar_binary(folder: Path) -> None:
    """CIFAR-100's binary version."""
    records = np.concatenate([np.zeros((6, 1), np.uint8), np.array(_LABELS, np.uint8)[:, None], _IMAGES], axis=1)
    for name in ("train.bin", "test.bin"):
        _put(folder / "cifar-100-binary" / name, records.tobytes())


def cifar_parquet(folder: Path) -> None:
    """CIFAR-10 in the format of rayfl's subsets."""
    columns = {
        "image": pa.array([image.tobytes() for image in _IMAGES], pa.binary(3072)),
        "label": pa.array(_LABELS, pa.int16()),
        "split": ["train"] * 4 + ["test"] * 2,
    }
    _parquet(folder / "cifar10" / "cifar10.parquet", columns)


def idx(folder: Path, suffix: str = ".gz") -> None:
    """Fashion-MNIST's IDX files."""
    images = np.resize(_IMAGES, (6, 28, 28))
    for part in ("train", "t10k"):
        for name, values in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", np.array(_LABELS))):
            sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
            content = bytes([0, 0, 8, values.ndim]) + sizes + values.astype(np.uint8).tobytes()
            raw = folder / "FashionMNIST" / "raw"
            _put(raw / f"{part}-{name}{suffix}", gzip.compress(content) if suffix else content)


def femnist_parquet(folder: Path) -> None:
    """FEMNIST in rayfl's format."""
    columns = {
        "writer_id": ["a", "a", "b", "b"],
        "image": pa.array([image.tobytes() for image in _IMAGES[:4, :784]], pa.binary(784)),
        "label": pa.array(_LABELS[:4], pa.int16()),
        "split": ["train", "test"] * 2,
    }
    _parquet(folder / "femnist" / "femnist.parquet", columns)


def femnist_leaf(folder: Path) -> None:
    """FEMNIST in LEAF's format."""
    data = {user: {"x": (_IMAGES[:2, :784] / 255).tolist(), "y": [1, 2]} for user in ("a", "b")}
    _leaf(folder / "femnist", data, data)


def shakespeare_leaf(folder: Path) -> None:
    """Shakespeare in LEAF's format."""
    text = "To be, or not to be: that is the question. " * 5
    windows = [text[start : start + 81] for start in range(60)]
    data = {"P_A": {"x": [window[:80] for window in windows], "y": [window[80] for window in windows]}}
    _leaf(folder / "shakespeare", data, data)


def shakespeare_gutenberg(folder: Path) -> None:
    """Shakespeare in Project Gutenberg's format."""
    speech = "  HAMLET. To be, or not to be: that is the question.\n" + "    Whether 'tis nobler in the mind\n" * 30
    play = "\n\nTHE TRAGEDY\n\nby William Shakespeare\n\n" + speech + speech.replace("HAMLET", "OPHELIA")
    _put(folder / "shakespeare" / "100.txt", ("x\n" + play * 3).encode())


def shakespeare_parquet(folder: Path) -> None:
    """Shakespeare in the format of rayfl's subsets."""
    text = "\n".join(["To be, or not to be: that is the question."] * 40)
    _parquet(folder / "shakespeare" / "shakespeare.parquet", {"play": ["P"], "role": ["A"], "text": [text]})


def sent140(folder: Path) -> None:
    """Sent140 in LEAF's format, and a tokenizer."""
    data = {user: {"x": [["1", "Mon", "Q", user, "so happy !"]] * 2, "y": [1, 0]} for user in ("amy", "zoe")}
    _leaf(folder / "sent140", data, data)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "so", "happy", "!"]
    _put(folder / "tokenizer" / "vocab.txt", ("\n".join(words) + "\n").encode())
    config = {"model_type": "distilbert", "vocab_size": len(words)}
    _put(folder / "tokenizer" / "config.json", json.dumps(config).encode())


def texts(folder: Path) -> None:
    """The texts of Penn Treebank."""
    for name in ("ptb.train.txt", "ptb.test.txt"):
        _put(folder / "penn_treebank" / name, b"no it was n't black monday <unk> $ N " * 8)


def images(folder: Path) -> None:
    """Images in every format, by class, under train/ and test/."""
    kinds = {"png": "RGB", "jpg": "RGB", "gif": "P", "bmp": "RGB", "tiff": "RGB", "webp": "RGB", "ppm": "RGB"}
    for split in ("train", "test"):
        for place, (kind, mode) in enumerate(kinds.items()):
            _image(folder / "images" / split / ("one", "two")[place % 2] / f"{place}.{kind}", 12, 10, mode)


def tiny_imagenet(folder: Path) -> None:
    """Tiny-ImageNet with one image per class."""
    root = folder / "tiny-imagenet-200"
    names = [f"n{number:08}" for number in range(200)]
    for name in names:
        _image(root / "train" / name / "images" / f"{name}_0.JPEG", 8, 8)
    _image(root / "val" / "images" / "val_0.JPEG", 8, 8)
    _put(root / "wnids.txt", "".join(f"{name}\n" for name in names).encode())
    _put(root / "val" / "val_annotations.txt", f"val_0.JPEG\t{names[3]}\t0\t0\t7\t7\n".encode())


def pacs(folder: Path) -> None:
    """PACS with two images per class of one domain."""
    for name in PACS_CLASSES:
        for number in range(2):
            _image(folder / "pacs" / "sketch" / name / f"{number}.png", 40, 40)


def cityscapes(folder: Path) -> None:
    """Cityscapes with one city per split."""
    for split, city in (("train", "ulm"), ("val", "munster")):
        stem = f"{city}_000000_000019"
        _image(folder / "cityscapes" / "leftImg8bit" / split / city / f"{stem}_leftImg8bit.png", 8, 6)
        _image(folder / "cityscapes" / "gtFine" / split / city / f"{stem}_gtFine_labelIds.png", 8, 6, "L")


def chest_xray(folder: Path) -> None:
    """Chest X-rays, two of each class in each split."""
    for split in ("train", "test"):
        for name in ("NORMAL", "PNEUMONIA"):
            for number in range(2):
                _image(folder / "chest_xray" / split / name / f"{number}.jpeg", 40, 36, "L")


def inaturalist(folder: Path) -> None:
    """iNaturalist-GEO: tables and images."""
    root = folder / "inaturalist"
    for name in ("a1", "b2", "c3"):
        _image(root / "images" / f"{name}.jpg", 40, 36)
    _put(root / "federated_train_geo_3k.csv", b"user_id,image_id,class\n7,a1,1202\n3,b2,0\n")
    _put(root / "test.csv", b"image_id,class\nc3,5\n")


def table(rows: int = 20) -> dict[str, Any]:
    """Columns of every type that rayfl reads."""
    return {
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(_RNG.normal(size=3 * rows).astype(np.float32)), 3),
        "words": pa.array([[1] * (1 + row % 3) for row in range(rows)]),
        "image": pa.array([_png()] * rows),
        "age": pa.array(np.arange(rows)),
        "city": pa.array(["rome", "oslo"] * (rows // 2)),
        "owner": pa.array(["a", "b", "b", "c"] * (rows // 4)),
        "part": pa.array(["train", "train", "train", "test", "far"] * (rows // 5)),
    }


def parquet_folder(folder: Path) -> None:
    """Two Parquet files with the same columns."""
    for name in ("0", "1"):
        _parquet(folder / "people" / f"{name}.parquet", table())


def arrow_file(folder: Path) -> None:
    """An Arrow file with two record batches."""
    whole = pa.table(table())
    written = io.BytesIO()
    with pa.ipc.new_file(written, whole.schema) as writer:
        writer.write_table(whole, max_chunksize=10)
    _put(folder / "people.arrow", written.getvalue())


def people() -> dict[str, Any]:
    """A source of inputs by name, of which one differs in length, with the owners of the training samples."""
    inputs = {"a": np.arange(60, dtype=np.float32).reshape(20, 3), "b": [np.arange(1 + row % 3) for row in range(20)]}
    labels = np.arange(20) % 2
    return {"train": (inputs, labels, np.array(["a", "b", "b", "c"] * 5)), "test": (inputs, labels)}


def prepared(folder: Path, fragments: int | None = None) -> None:
    """Prepared data of several fragments and record batches, in the folder `it`; left off after some fragments."""
    told: list[str] = []

    def say(line: str) -> None:
        told.append(line)
        if len(told) == fragments:
            raise KeyboardInterrupt

    config = Data.model_validate({"name": f"{__name__}:people"})
    with (
        patch.object(writer, "FRAGMENT_BYTES", 150),
        patch.object(writer, "BLOCK_BYTES", 100),
        suppress(KeyboardInterrupt),
    ):
        writer.prepare(config, 0, Path(), Path(), folder / "it", say)


def npz(folder: Path) -> None:
    """Arrays, compressed and uncompressed."""
    for name, save in (("plain", np.savez), ("packed", np.savez_compressed)):
        arrays: dict[str, Any] = {}
        for part in ("train", "test"):
            arrays[f"{part}_x"], arrays[f"{part}_y"] = _IMAGES[:, :20].astype(np.float32), np.array(_LABELS)
            arrays[f"{part}_owner"] = np.array(["a", "b", "a", "b", "a", "b"])
        written = io.BytesIO()
        save(written, **arrays)
        _put(folder / f"{name}.npz", written.getvalue())


def hugging_face(folder: Path) -> None:
    """A data set saved by `datasets`, with two splits."""
    import datasets

    features = datasets.Features(
        {"pixels": datasets.List(datasets.Value("float32")), "label": datasets.ClassLabel(names=["no", "yes"])}
    )
    rows = {"pixels": [[0.5, float(row)] for row in range(6)], "label": [row % 2 for row in range(6)]}
    splits = {split: datasets.Dataset.from_dict(rows, features) for split in ("train", "test")}
    datasets.disable_progress_bars()
    datasets.DatasetDict(splits).save_to_disk(str(folder / "saved"))


def _leaf(folder: Path, train: dict[str, Any], test: dict[str, Any]) -> None:
    for split, data in (("train", train), ("test", test)):
        counts = [len(user["y"]) for user in data.values()]
        content = {"users": list(data), "num_samples": counts, "user_data": data}
        _put(folder / split / "all_data.json", json.dumps(content).encode())


def _parquet(file: Path, columns: dict[str, Any]) -> None:
    written = io.BytesIO()
    pq.write_table(pa.table(columns), written, write_page_checksum=False)
    _put(file, written.getvalue())


def _image(file: Path, width: int, height: int, mode: str = "RGB") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pixels = _RNG.integers(0, 34, (height, width, 3), np.uint8)
    Image.fromarray(pixels).convert(mode).save(file)


def _png() -> bytes:
    written = io.BytesIO()
    Image.new("RGB", (4, 5), (1, 2, 3)).save(written, format="PNG")
    return written.getvalue()


def _put(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
