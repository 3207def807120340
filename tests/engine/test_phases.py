"""What a phase hands to the next."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.engine.scenes import FEDERATED, PRETRAIN, TINY, prepared, run_on_hosts

STANDING_STILL = {"lr": 1e-30, "batch_size": 16}


@pytest.mark.parametrize("following", [PRETRAIN, FEDERATED | {"name": "next"}], ids=["relay", "parallel"])
@pytest.mark.parametrize(
    "first",
    [
        {"algorithm": "feddyn"},
        {"algorithm": "feddyn", "eval_model": "all"},
        {"algorithm": "fedexp"},
        {"algorithm": "fedavg", "eval_model": "all"},
    ],
    ids=lambda first: "-".join(first.values()),
)
def test_the_next_phase_starts_from_the_model_that_was_evaluated(
    first: dict[str, Any], following: dict[str, Any]
) -> None:
    evaluated, _ = run_on_hosts(prepared(**TINY, phases=[FEDERATED | first]), 1)
    phases = [FEDERATED | first, following | {"rounds": 1, "local": STANDING_STILL}]
    after, _ = run_on_hosts(prepared(**TINY, phases=phases), 2)
    assert np.array_equal(after, evaluated)
