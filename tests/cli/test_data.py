"""`rayfl data`: counts, output and pictures of a split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from rayfl.__main__ import main as rayfl_command
from rayfl.cli.data import main
from rayfl.data.dataset import Provenance, Samples, Shards
from rayfl.data.split_facts import shown_split, split_facts
from rayfl.data.store import ShardStore

SCENARIO = """
title = "Vectors"
model = "tests.user_code:Linear"
[data]
name = "{name}"
{more}
[[phases]]
name = "p"
rounds = 1
cohort = 1
"""


@pytest.fixture
def not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rayfl.runs.figures.split.draw_split", lambda *_: None)


def scenario(tmp_path: Path, name: str = "tests.user_code:vectors", more: str = "clients = 4") -> str:
    path = tmp_path / "mine.toml"
    path.write_text(SCENARIO.format(name=name, more=more))
    return str(path)


@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=9), min_size=1, max_size=6))
def test_classes_and_distances_are_those_of_the_plain_definition(by_client: list[list[int]]) -> None:
    labels = np.array([label for client in by_client for label in client])
    owner = np.repeat(np.arange(len(by_client)), [len(client) for client in by_client])
    mixed = np.random.default_rng(0).permutation(len(labels))
    samples = Samples(np.zeros((len(labels), 1)), labels[mixed])
    shards = Shards.by_owner(owner[mixed], len(by_client))
    store = ShardStore("s", samples, samples, 5, shards, None, None, (), Provenance("arrays", ""))
    facts, shown = split_facts(store), shown_split(store)
    overall = np.array([(labels == k).mean() for k in range(5)])
    assert facts.classes is not None
    assert facts.distances is not None
    for client, held in enumerate(by_client):
        own = np.array([held.count(k) / len(held) for k in range(5)])
        assert facts.sizes[client] == len(held)
        assert facts.classes[client] == len(set(held))
        assert facts.distances[client] == pytest.approx(0.5 * abs(own - overall).sum(), abs=1e-12)
        np.testing.assert_allclose(shown.shares[client], own)
    np.testing.assert_array_equal(shown.classes, facts.classes)
    np.testing.assert_allclose(shown.distances, facts.distances, atol=1e-12)
    assert shown.samples == {"training": facts.sizes.tolist()}


def test_of_many_clients_some_are_shown_with_the_classes_of_all() -> None:
    labels = np.random.default_rng(0).integers(0, 4, 903)
    samples = Samples(np.zeros((903, 1)), labels)
    shards = Shards.by_owner(np.arange(903) % 301, 301)
    shown = shown_split(ShardStore("s", samples, samples, 4, shards, None, None, (), Provenance("arrays", "")))
    assert (shown.num_clients, len(shown.clients), shown.clients[0], shown.clients[-1]) == (301, 200, 0, 300)
    assert shown.overall == [int((labels == k).sum()) for k in range(4)]
    assert shown.counts is not None
    for client, counts in zip(shown.clients, shown.counts, strict=True):
        assert counts == [int((labels[client::301] == k).sum()) for k in range(4)]


def test_a_split_is_printed_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "split.png"
    arguments = [scenario(tmp_path), "--clients", "--out", str(out), "data.validation_share=0.1", "data.seed=4"]
    assert rayfl_command(["data", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "Vectors (data seed 4)" in printed
    assert "4 clients with 13 to 13 training samples (mean 13)" in printed.replace("14", "13")
    for word in ("training samples", "validation samples", "classes", "distance", "median"):
        assert word in printed
    assert [line.split()[0] for line in printed.splitlines() if line[:1].isdigit()][-4:] == ["0", "1", "2", "3"]
    with Image.open(out) as picture:
        assert picture.width > 1000


@pytest.mark.slow
def test_rendered_images_are_drawn_beside_the_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = "clients = 4\noptions = { codes = 5, pairs = 30, test_images = 4, points = 300, size = 16"
    drawn = []
    for seed, options in ((0, ""), (0, ""), (1, ""), (0, ', views = "shared"'), (0, ', form = "cached"')):
        out = tmp_path / "split.png"
        path = scenario(tmp_path, "fractals", f"{more}{options} }}")
        assert main([path, "--out", str(out), f"data.seed={seed}"]) == 0
        sheet = tmp_path / "split-images.png"
        assert f"picture  {sheet}" in capsys.readouterr().out
        with Image.open(sheet) as picture:
            drawn.append(picture.tobytes())
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 4


@pytest.mark.usefixtures("not_drawn")
def test_chosen_classes_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = scenario(tmp_path, more="clients = 2\nclasses = { places = [[0, 2]] }")
    assert main([path, "--out", str(tmp_path / "split.png")]) == 0
    printed = capsys.readouterr().out
    (line,) = [line for line in printed.splitlines() if "training samples (mean" in line]
    assert line.endswith("2 classes; classes 0-1 of 2")


@pytest.mark.usefixtures("not_drawn")
def test_every_natural_client_has_a_line_with_its_name_samples_and_classes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [scenario(tmp_path, f"{__name__}:named", ""), "--clients", "--out", str(tmp_path / "split.png")]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    (head,) = [number for number, line in enumerate(lines) if line.startswith("client  owner")]
    rows = [line.split() for line in lines[head + 1 : head + 3]]
    assert rows[0][:3] == ["0", "[bold]a", "12"]
    assert " ".join(rows[0][-6:]) == "3 (50%), 0 (33%), 4 (17%)"
    assert rows[1][:3] == ["1", "b" * 90, "8"]
    assert " ".join(rows[1][-2:]) == "1 (100%)"


def named() -> Any:
    y = np.array([0] * 4 + [3] * 6 + [4] * 2 + [1] * 8)
    owner = np.array(["[bold]a"] * 12 + ["b" * 90] * 8)
    x = np.arange(20.0)[:, None]
    return {"train": (x, y, owner), "test": (x, y)}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("clients = 3", "labels are not classes; data.labels_by can derive classes from them"),
        ('clients = 3\npartition = "shards"\nlabels_by = "quantiles"', "distance: total variation"),
    ],
)
def test_data_without_classes_has_a_split_too(
    more: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "split.png"
    assert main([scenario(tmp_path, "tests.researcher:prices", more), "--out", str(out)]) == 0
    assert said in capsys.readouterr().out
    assert out.stat().st_size > 10_000


@pytest.mark.parametrize("name", ["split.jpg", "split"])
def test_a_picture_of_another_format_is_refused_before_the_data_is_loaded(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([scenario(tmp_path), "--out", name]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"error: out: '{name}' has no supported suffix; use .png, .svg, .pdf\n")


def test_errors_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = scenario(tmp_path)
    for arguments, said in (
        ([path, "data.validation_share=2"], "data.validation_share"),
        ([path, "--out", str(tmp_path / "none" / "x.png")], "error: --out: "),
        (["no_such_scenario"], "no_such_scenario"),
    ):
        assert main(arguments) == 1
        error = capsys.readouterr().err
        assert said in error
        assert error.startswith("error: ")
    with pytest.raises(SystemExit):
        main([])
