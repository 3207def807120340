"""Callbacks on Ray, where rounds run ahead: they see the same as in one process, and stop the run at the same round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.callbacks.scene import PLAIN, RELAY, STATEFUL, Diary, StopAt, figures, model_of, run, same

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("shared_hosts")]


def test_callbacks_see_the_same_as_in_one_process(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"phases": [RELAY, PLAIN, STATEFUL], "evaluation": {"every": 2}}
    inline, on_ray = Diary(), Diary()
    expected = run(tmp_path, callbacks=[inline], **changes)
    result = run(tmp_path, "ray", callbacks=[on_ray], **changes)
    assert on_ray.entries() == inline.entries()
    assert same(model_of(result), model_of(expected))
    assert figures(result) == figures(expected)


@pytest.mark.parametrize(
    ("phase", "once_evaluated", "hosts"),
    [(PLAIN, True, 1), (STATEFUL, False, 1), (STATEFUL, True, 2), (RELAY | {"rounds": 4}, False, 2)],
    ids=["plain", "stateful", "stateful, once evaluated", "relay"],
)
def test_a_stop_discards_what_ran_ahead(
    tmp_path: Path, phase: dict[str, Any], once_evaluated: bool, hosts: int
) -> None:
    expected = run(tmp_path, phases=[phase | {"rounds": 2}])
    callbacks = [StopAt(round=2, once_evaluated=once_evaluated)]
    stopped = run(tmp_path, "ray", callbacks=callbacks, phases=[phase], resources={"hosts": hosts, "relay": "spread"})
    assert same(model_of(stopped), model_of(expected))
    assert figures(stopped) == figures(expected)


def test_errors_in_a_round_after_the_last_are_never_seen(tmp_path: Path) -> None:
    phase = {"name": "p", "rounds": 3, "cohort": {"explicit": [[1, 2], [5, 3]]}}
    phase |= {"algorithm": "tests.backends.ray.broken:Raising"}  # as soon as client 5 takes part, in round 2
    callbacks = [StopAt(round=1, once_evaluated=True)]
    stopped = run(tmp_path, "ray", callbacks=callbacks, phases=[phase], resources={"hosts": 1})
    assert stopped.metrics["round"].to_pylist() == [1]
