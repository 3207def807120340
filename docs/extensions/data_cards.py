"""`{data-cards} cifar10 femnist`: data sets, with samples of the stand-ins that rayfl generates for them.

They are drawn when the page is built. No real data is read, so they are the same everywhere.
"""

from __future__ import annotations

import base64
import inspect
import io
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image
from sphinx.application import Sphinx

from extensions import docstrings, prose
from extensions.cards import Card, grid
from extensions.generated import directive
from rayfl.data import data_sources
from rayfl.data.dataset import Dataset
from rayfl.data.fractals.images import FractalImages
from rayfl.streams import stream

DATA_SETS = {
    "handwriting": ("Generated handwriting", ""),
    "fractals": ("Fractals", "Chen et al., ICLR 2023"),
    "femnist": ("FEMNIST", "Caldas et al., 2018 (LEAF)"),
    "fashion_mnist": ("Fashion-MNIST", "Xiao et al., 2017"),
    "cifar10": ("CIFAR-10", "Krizhevsky, 2009"),
    "cifar100": ("CIFAR-100", "Krizhevsky, 2009"),
    "tiny_imagenet": ("Tiny-ImageNet", "Le and Yang, 2015"),
    "pacs": ("PACS", "Li et al., ICCV 2017"),
    "inaturalist": ("iNaturalist-GEO", "Hsu et al., ECCV 2020"),
    "chest_xray": ("Chest X-ray", "Kermany et al., Cell 2018"),
    "cityscapes": ("Cityscapes", "Cordts et al., CVPR 2016"),
    "shakespeare": ("Shakespeare", "Caldas et al., 2018 (LEAF)"),
    "penn_treebank": ("Penn Treebank", "Marcus et al., 1993"),
    "sent140": ("Sent140", "Go, Bhayani and Huang, 2009"),
}
"""Title and paper of the data sets of which rayfl can generate samples."""

ROWS, COLUMNS, SIDE, GAP = 2, 4, 72, 4
SMALL = {"clients": 5, "pairs": ROWS * COLUMNS, "codes": 64, "test_images": 8}
"""Options that keep generating quick."""


def as_markdown(words: list[str]) -> str:
    """Returns a grid of the named data sets."""
    with TemporaryDirectory() as cache:
        return grid(_card(name, generated(name, Path(cache))) for name in words)


def generated(name: str, cache: Path) -> Dataset:
    """Returns what a source generates; writers that several sources share are generated once in a cache."""
    source: Callable[..., Dataset] = data_sources.resolve(name)
    given: dict[str, Any] = {"source": "generated", "data_dir": cache / "none", "cache_dir": cache, "seed": 0, **SMALL}
    return source(**{key: value for key, value in given.items() if key in inspect.signature(source).parameters})


def _card(name: str, dataset: Dataset) -> Card:
    title, paper = DATA_SETS[name]
    text = prose.as_markdown(docstrings.of(data_sources.resolve(name)).summary)
    link, images = f"#{name.replace('_', '-')}", pictures(dataset)
    if images is None:
        return Card(title, text, link, footer=paper)
    return Card(title, text, link, as_uri(images), f"Samples that rayfl generates for {title}", paper)


def pictures(dataset: Dataset) -> np.ndarray | None:
    """Returns the first samples of different classes, [n, height, width, 3] uint8; None if they are no images."""
    x, count = dataset.train.x, ROWS * COLUMNS
    if isinstance(x, FractalImages):
        rows, rngs = np.arange(min(count, len(x))), [stream(0, "documentation", view) for view in range(2)]
        return np.asarray(x.render_views(rows, rngs)[0])
    if not isinstance(x, np.ndarray) or x.ndim != 4:
        return None
    rows = np.arange(0, len(x), max(1, len(x) // count))[:count]
    return np.repeat(x[rows], 3 // x.shape[-1], axis=-1)


def as_uri(images: np.ndarray) -> str:
    """Returns a PNG of the images in a grid, as a data URI."""
    height, width = images.shape[1:3]
    columns = COLUMNS * height // width or 1
    wide = SIDE * width // height
    sheet = Image.new("RGB", (columns * (wide + GAP) - GAP, ROWS * (SIDE + GAP) - GAP), "white")
    for place, image in enumerate(images[: ROWS * columns]):
        row, column = divmod(place, columns)
        scaled = Image.fromarray(image).resize((wide, SIDE), Image.Resampling.LANCZOS)
        sheet.paste(scaled, (column * (wide + GAP), row * (SIDE + GAP)))
    with io.BytesIO() as file:
        sheet.save(file, format="PNG", optimize=True)
        return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def setup(app: Sphinx) -> dict[str, bool]:
    """Adds `{data-cards}`."""
    app.add_directive("data-cards", directive(as_markdown))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
