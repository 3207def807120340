"""The trial of Ray Tune that this program may be."""

from __future__ import annotations

import sys
from collections.abc import Mapping


def in_trial() -> bool:
    """Whether this program is a function that Ray Tune runs as a trial."""
    if "ray.tune" not in sys.modules:  # a trial has imported it; needs rayfl[tune]
        return False
    from rayfl.backends.ray.private import in_tune_session

    return in_tune_session()


def report_to_trial(metrics: Mapping[str, object]) -> None:
    """Reports metrics to the trial."""
    from ray import tune

    tune.report(dict(metrics))
