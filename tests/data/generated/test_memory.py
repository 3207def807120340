"""More generated clients than the machine has memory for are refused before the first is generated."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayfl.config.loader import load_scenario
from rayfl.data.generated import handwriting, plays
from rayfl.data.sources import sent140 as tweets
from rayfl.data.sources import stand_in as memory
from rayfl.errors import ScenarioError
from rayfl.runs.preparation import prepare


@pytest.mark.parametrize("data", ["handwriting", "femnist", "shakespeare", "sent140"])
def test_a_billion_clients_are_refused_with_the_memory_that_they_take(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYFL_CACHE", str(tmp_path))
    monkeypatch.setattr(memory, "machine_bytes", lambda: 64 * 2**30)
    model = "char_lstm" if data == "shakespeare" else "mlp"
    source = {} if data == "handwriting" else {"source": "generated"}
    scenario = load_scenario(
        {
            "data": {"name": data, "clients": 1e9, **source},
            "model": model,
            "phases": [{"schedule": "parallel", "rounds": 1, "cohort": 2}],
        }
    )
    with pytest.raises(ScenarioError, match=r"data\.clients: the samples of 1,000,000,000 generated clients take"):
        prepare(scenario, tmp_path)


def test_the_figure_is_the_mean_size_of_a_clients_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """150 images of 28 x 28 bytes."""
    monkeypatch.setattr(memory, "machine_bytes", lambda: 10 * 2**30)
    with pytest.raises(ScenarioError) as caught:
        handwriting.generate(0, 100_000)
    assert str(caught.value) == (
        "data.clients: the samples of 100,000 generated clients take 11 GB, but this machine has 10 GB; choose at most "
        "91,304"
    )


def test_the_means_are_those_of_what_is_generated() -> None:
    images = handwriting.generate(3, 40).images
    assert images.nbytes / 40 == pytest.approx(handwriting.MEAN_IMAGES * 28 * 28, rel=0.2)
    texts = plays.generate(3, 60, 500)
    assert sum(map(len, texts.values())) / 60 == pytest.approx(500 + 1500, rel=0.3)
    assert len(tweets.generate(3, 200)) / 200 == pytest.approx((2 + tweets.MOST) / 2, rel=0.1)
