"""The indexes of algorithms, data sets and networks: all are there, with the paper of each."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from rayfl.algorithms import algorithms
from rayfl.data import data_sources
from rayfl.data.dataset import Dataset, Provenance, Samples
from rayfl.models import models
from tests.docs.test_reference import REFERENCE

CARDS = re.compile(r"^```\{(?:algorithm|data)-cards\} (.+)$", re.MULTILINE)


def on_cards(page: str) -> list[str]:
    return " ".join(CARDS.findall((REFERENCE / page).read_text(encoding="utf-8"))).split()


def test_every_algorithm_has_one_card_and_a_sentence() -> None:
    from extensions.algorithm_cards import SENTENCES

    assert sorted(on_cards("algorithms/index.md")) == sorted(algorithms) == sorted(SENTENCES)
    assert all(re.fullmatch(r"[A-Z].{20,100}\.", sentence) for sentence in SENTENCES.values())


def test_an_algorithms_card_has_its_curve_paper_and_year() -> None:
    from extensions.algorithm_cards import as_markdown

    text = as_markdown(["fedadam", "orchestra"])
    adam, orchestra = text.split(":::{grid-item-card} ")[1:]
    assert adam.startswith("FedAdam\n")
    assert ":img-top: /figures/algorithms/fedadam.png" in adam
    assert "Reddi et al., ICLR 2021" in adam
    assert ":img-top:" not in orchestra
    assert "Lubana et al., ICML 2022" in orchestra


def test_the_paper_of_every_algorithm_has_authors_and_a_year() -> None:
    from extensions.algorithm_cards import paper

    assert {name for name in algorithms if not re.fullmatch(r"[A-Z].+, .*\d{4}", paper(name))} == set()


@pytest.mark.parametrize(
    ("cited", "short"),
    [
        ('Li et al., "Federated\nOptimization", MLSys 2020, eq. 2.', "Li et al., MLSys 2020"),
        ('Hsu, Qi and Brown, "Measuring", 2019 (FedAvgM).', "Hsu, Qi and Brown, 2019"),
        ('FedBN: Li, Jiang, Zhang and Dou, "FedBN", ICLR 2021.', "Li et al., ICLR 2021"),
        ('From Chen et al., "Improved Baselines" (MoCo v2), 2020.', "Chen et al., 2020"),
        ("No paper, since 2020.", ""),
    ],
)
def test_a_citation_is_shortened_to_authors_venue_and_year(cited: str, short: str) -> None:
    from extensions import citations

    assert citations.short(cited) == short


def test_every_source_that_generates_a_stand_in_has_a_card() -> None:
    from extensions.data_cards import DATA_SETS

    own_files = {"text_files", "image_folder", "imagenet", "arrow_file", "prepared", "npz_file", "parquet_folder"}
    assert set(data_sources) - {*own_files, "huggingface", "torchvision"} == set(DATA_SETS)
    assert sorted(on_cards("components/data-sources.md")) == sorted(DATA_SETS)


@pytest.mark.takes("draws the strokes of all characters")
def test_the_picture_of_a_data_set_is_of_what_rayfl_generates(tmp_path: Path) -> None:
    from extensions.data_cards import COLUMNS, ROWS, generated, pictures

    dataset = generated("femnist", tmp_path)
    assert dataset.provenance.source == "generated"
    images = pictures(dataset)
    assert images is not None
    assert images.shape == (ROWS * COLUMNS, 28, 28, 3)
    assert all((dataset.train.x == image[None, ..., :1]).all((1, 2, 3)).any() for image in images)


def test_texts_have_no_picture() -> None:
    from extensions.data_cards import pictures

    texts = Samples(np.zeros((3, 80), np.int64), np.zeros(3, np.int64))
    assert pictures(Dataset("texts", texts, texts, 2, Provenance("generated", "texts"))) is None


@pytest.mark.takes("builds every network on the meta device")
def test_every_network_is_in_the_table_with_its_parameters_and_a_paper() -> None:
    from extensions.network_table import HEADER, as_markdown

    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in as_markdown([]).splitlines()[len(HEADER) :]]
    assert [re.match(r"\[`(\w+)`\]", row[0])[1] for row in rows] == list(models)  # type: ignore[index]
    assert all(row[2] for row in rows)
    (lenet,) = (row for row in rows if "lenet5" in row[0] and "on" not in row[0])
    assert lenet[1].replace("\N{NARROW NO-BREAK SPACE}", "") == "62006"
