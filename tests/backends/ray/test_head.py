"""A cluster whose head cannot be reached, without a cluster."""

from __future__ import annotations

import pytest

from rayfl.backends.ray.head import Head
from rayfl.errors import ResourceError


def test_a_head_that_stays_away_ends_the_run_before_ray_ends_the_program() -> None:
    now, away = [0.0], [False]

    def reach() -> None:
        if away[0]:
            raise ConnectionRefusedError("refused")

    head = Head(reach, most_s=40, clock=lambda: now[0])

    def checked(after_s: float) -> None:
        now[0] += after_s
        head.check()

    checked(100)
    away[0] = True
    checked(1)
    assert not head.is_there(), "a call of Ray to it would block"
    checked(39)
    away[0] = False
    checked(6)
    assert head.is_there()
    away[0] = True
    checked(40)
    with pytest.raises(ResourceError, match=r"the head of the Ray cluster is lost \(refused\)"):
        checked(6)
