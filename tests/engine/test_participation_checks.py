"""Keys that simulated devices make meaningless, or that have no effect without them, are rejected by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayfl.algorithms import AnswerTransform, Encoded
from rayfl.engine.schedules.relay import Relay
from rayfl.errors import ScenarioError
from rayfl.local import ClientContext
from tests.algorithms.scene import PLAIN, SIZES, prepared

FAST = {"steps_per_s": 1.0}
LOSSY = {"dropout": 0.1}
CENTRAL = {"level": "central", "noise_multiplier": 1.0, "clip_norm": 1.0, "delta": 0.01}
LOCAL = CENTRAL | {"level": "local"}


class Sparse(AnswerTransform):
    """How much it sends depends on the values."""

    name: str = "sparse"

    def transform(self, client: ClientContext, vector: str, message: Encoded) -> Encoded:
        return message


class Timeless(Relay):
    """A user's schedule that does not keep virtual time."""

    keeps_time = False


def refused(complaint: str, phase: dict[str, Any], participation: Any, algorithm: Any = "fedavg", **more: Any) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        prepared(algorithm, PLAIN, phase, participation=participation, **more)


@pytest.mark.parametrize("key", ["deadline_s", "over_selection", "quorum"])
def test_options_that_count_answers_need_devices(key: str) -> None:
    refused(rf"^phases.federated.{key}: has no effect without simulated devices, since all clients", {key: 3}, None)


@pytest.mark.parametrize(
    ("phase", "participation", "complaint"),
    [
        (
            {"deadline_s": 3},
            LOSSY,
            r"phases.federated.deadline_s: has no effect, since nothing takes virtual time",
        ),
        ({"over_selection": 1.5}, FAST, r"over_selection: draws more clients than cohort asks for, but \{ explicit ="),
        (
            {"over_selection": 2, "cohort": {"bernoulli": 0.5}},
            FAST,
            r"but \{ bernoulli = ... \} does not ask for a number of clients",
        ),
        (
            {"over_selection": 2, "cohort": 1.0},
            FAST,
            r"phases.federated.over_selection: has no effect, since cohort has",
        ),
        ({"quorum": 12, "cohort": 4}, FAST, r"phases.federated.quorum: at most 4 answers count in a round, fewer"),
        (
            {"schedule": "relay", "deadline_s": 3},
            FAST,
            r"phases.federated.deadline_s: has no effect with this schedule",
        ),
        (
            {},
            {},
            r"participation: has no effect without any key; set one, for example steps_per_s, or leave the table out",
        ),
        (
            {},
            {"steps_per_s": 1, "samples_per_s": 1},
            r"participation: .* set the same speed in different units; give",
        ),
        ({}, {"steps_per_s": {"uniform": [3, 1]}}, r"participation.steps_per_s: allowed are a number above 0, or one"),
        ({}, {"steps_per_s": {"uniform": [0, 1]}}, r"participation.steps_per_s: allowed are a number above 0"),
        (
            {},
            {"dropout": {"kinds": [0.5, 1.5]}},
            r"participation.dropout: allowed are a probability \(0.0 to 1.0\)",
        ),
        (
            {},
            LOSSY | {"compute_watts": 3},
            r"participation: compute_watts has no effect without steps_per_s",
        ),
        ({}, FAST | {"transmit_watts": 3}, r"participation: transmit_watts has no effect without down_bytes_per_s"),
        (
            {},
            {"availability": {"sessions": "x"}},
            r"participation: availability: sessions are intervals of virtual",
        ),
    ],
)
def test_options_without_effect_or_meaning_are_rejected(
    phase: dict[str, Any], participation: dict[str, Any], complaint: str
) -> None:
    refused(complaint, phase, participation)


def test_robust_aggregation_needs_a_quorum() -> None:
    krum = {"name": "fedavg", "weighting": "uniform", "aggregation": {"name": "krum", "byzantine": 1}}
    refused(r"needs cohorts of at least 5 .*; with \[participation\], a round may have", {"cohort": 6}, LOSSY, krum)
    prepared(krum, PLAIN, {"cohort": 6, "quorum": 5}, participation=LOSSY)


def test_schedules_that_keep_no_time_and_messages_that_are_not_known() -> None:
    timeless = {"schedule": "tests.engine.test_participation_checks:Timeless", "cohort": 4}
    refused(r"phases.federated.schedule: '.*' does not support the virtual clock of .*keeps_time", timeless, FAST)
    even = {"schedule": "tests.engine.test_schedules:EvenParallel", "cohort": 4}
    refused(r"phases.federated.schedule: '.*' defines its own participation, which", even, FAST)
    sparse = {"transforms": ["tests.engine.test_participation_checks:Sparse"]}
    refused(r"phases.federated.transforms: '.*:Sparse' does not say beforehand how much it sends", sparse, FAST)


@pytest.mark.parametrize("dp", [CENTRAL, LOCAL])
@pytest.mark.parametrize("key", ["deadline_s", "over_selection", "quorum"])
def test_clients_are_not_hidden_where_virtual_time_decides_who_counts(key: str, dp: dict[str, Any]) -> None:
    phase = {"cohort": 4, "dp": dp, key: 2}
    uniform = {"name": "fedavg", "weighting": "uniform"}
    refused(rf"phases.federated.{key}: is not allowed with dp, which hides clients' numbers of", phase, FAST, uniform)


def test_clients_are_not_hidden_by_sessions_or_by_lists_of_several_lengths(tmp_path: Path) -> None:
    file = tmp_path / "sessions.parquet"
    clients = range(len(SIZES))
    pq.write_table(pa.table({"client": clients, "begins": np.zeros(12), "ends": np.full(12, 9.0)}), file)
    uniform = {"name": "fedavg", "weighting": "uniform"}
    away = FAST | {"availability": {"sessions": str(file)}}
    refused(r"participation.availability: with sessions, the participants", {"cohort": 4, "dp": CENTRAL}, away, uniform)
    refused(r"phases.federated.cohort: .* these lists differ in length", {"dp": CENTRAL}, LOSSY, uniform)
