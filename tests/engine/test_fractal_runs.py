"""Whole runs on fractals have the same bits on any number of hosts."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from rayfl.engine.plan.run_plan import RunPlan
from tests.engine.scenes import prepared, run_on_hosts, without_clock

LOCAL = {"batch_size": 4, "lr": 0.1}


def job(**options: Any) -> RunPlan:
    options = {"codes": 30, "pairs": 48, "test_images": 8, "size": 16, "points": 100} | options
    return prepared(
        data={"name": "fractals", "clients": 4, "augment": ["flip"], "options": options},
        task="simsiam",
        model={"name": "siamese", "network": "tests.views_scene:Encoder", "width": 8, "predictor": 4},
        phases=[
            {"name": "parallel", "rounds": 1, "cohort": 3, "local": LOCAL},
            {"name": "central", "schedule": "central", "rounds": 1, "local": LOCAL},
        ],
        evaluation={"every": 1},
        resources={},
    )


def test_every_form_trains_on_other_images_and_has_the_same_bits_on_one_host_and_two() -> None:
    models = []
    for options in ({}, {"form": "cached"}, {"views": "shared"}):
        made = job(**options)
        (model, events), (other, theirs) = (run_on_hosts(made, hosts) for hosts in (1, 2))
        assert np.array_equal(model, other)
        assert without_clock(events) == without_clock(theirs)
        models.append(model)
    models.append(made.workloads[0].initial.vector)
    assert not any(np.array_equal(one, other) for one, other in combinations(models, 2))


def test_a_network_without_classes_does_not_grow_with_the_codes() -> None:
    few, many = (job(codes=codes).workloads[0] for codes in (30, 100_000))
    assert many.num_outputs == 1
    assert len(many.initial.vector) == len(few.initial.vector)
    assert many.store.num_classes is None
