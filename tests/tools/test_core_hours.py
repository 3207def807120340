"""The estimate of core-hours, on scenarios and grids whose samples can be counted by hand."""

from __future__ import annotations

import pytest

from rayfl.config.loader import load_scenario
from rayfl.config.phase import Phase
from rayfl.config.scenario import Scenario
from rayfl.runs.resolution import resolve
from tools.core_hours import Speed, Speeds, hours_of, seconds_of


class GivenSpeeds(Speeds):
    """The same speed for all networks."""

    def __init__(self, training: float, evaluation: float) -> None:
        super().__init__()
        self._speed = Speed(training, evaluation)

    def of(self, scenario: Scenario, phase: Phase) -> Speed:
        return self._speed


FEDERATED = 10 * 5 * 600  # samples of a round: ten clients, five epochs of a hundredth of Fashion-MNIST


@pytest.mark.parametrize(
    ("name", "trained", "evaluated"),
    [
        ("fashion_mnist_fedavg", 1000 * FEDERATED, 100 * 10_000),
        ("fashion_mnist_cyclic", 100 * 25 * 600 + 900 * FEDERATED, 100 * 10_000),  # 20 steps of 32 exceed an epoch
        ("fps_simsiam_32", 100 * 1_000_000, 10 * 1_000),
    ],
)
def test_all_samples_of_a_run_count(name: str, trained: int, evaluated: int) -> None:
    scenario = resolve(load_scenario(name))
    assert seconds_of(scenario, GivenSpeeds(1.0, 0.0)) == pytest.approx(trained)
    assert seconds_of(scenario, GivenSpeeds(0.0, 1.0)) == pytest.approx(evaluated)


def test_cells_of_a_seed_share_their_start() -> None:
    relay, federated, fractals = 25 * 500, 10 * 5 * 500, 20 * 30_000  # samples of a round, and of a whole start
    of_a_seed = [
        300 * federated,  # random weights
        100 * relay + 200 * federated,  # CyclicFL
        300 * federated,  # CoPreFL
        300 * federated + fractals,  # FPS
        300 * federated + fractals,  # fractals and SimSiam
        100 * relay + 200 * federated,  # a relay from the same start
        50 * relay + 250 * federated,  # a relay, then CoPreFL
        300 * federated,  # Orchestra
    ]
    assert hours_of("starts_table", GivenSpeeds(1.0, 0.0)) * 3600 == pytest.approx(3 * sum(of_a_seed))
