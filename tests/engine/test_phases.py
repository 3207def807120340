"""What a phase hands to the next."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.engine.scenes import FEDERATED, PRETRAIN, prepared, run_on_hosts

STANDING_STILL = {"lr": 1e-30, "batch_size": 16}


@pytest.mark.parametrize("following", [PRETRAIN, FEDERATED | {"name": "next"}], ids=["relay", "parallel"])
@pytest.mark.parametrize(
    "algorithm", ["feddyn", {"name": "feddyn", "report": "all"}, "fedexp", {"name": "fedavg", "report": "all"}], ids=str
)
def test_the_next_phase_starts_from_the_model_that_was_reported(algorithm: Any, following: dict[str, Any]) -> None:
    first = FEDERATED | {"algorithm": algorithm}
    reported, _ = run_on_hosts(prepared(phases=[first]), 1)
    after, _ = run_on_hosts(prepared(phases=[first, following | {"rounds": 1, "local": STANDING_STILL}]), 2)
    assert np.array_equal(after, reported)
