"""python -m rayfl.studies.scale.measure SCENARIO OVERRIDES...: one short run on Ray, whose cost it prints as JSON."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from rayfl.errors import RayflError, ResourceError

SAMPLED = 2
"""Rounds during which memory is sampled; times are those of the rounds after them."""


@dataclass(frozen=True)
class Cost:
    """What a run took.

    Attributes:
        round_s: Seconds of a round, the median after the first `SAMPLED`.
        processor_s: Processor seconds of a round by role, likewise.
        memory: Proportional set size by role in bytes, when the sum over all roles was largest.
        store_bytes: Bytes of the objects that a round creates in Ray's object stores.
        model_bytes: Bytes of the model that the server sends.
        data_bytes: Bytes of the training samples.
    """

    round_s: float
    processor_s: Mapping[str, float]
    memory: Mapping[str, int]
    store_bytes: float
    model_bytes: int
    data_bytes: int


def cost(scenario: str, overrides: Sequence[str], timeout_s: float) -> Cost:
    """Runs a scenario in a process of its own.

    Raises:
        ResourceError: It failed, or takes longer; the message ends with its last line.
    """
    command = [sys.executable, "-m", __name__, scenario, *overrides]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise ResourceError(f"did not end within {timeout_s:.0f} s") from None
    if done.returncode:
        raise ResourceError((done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"])[-1])
    return Cost(**json.loads(done.stdout.splitlines()[-1]))


def measured(scenario: str, overrides: Sequence[str]) -> Cost:
    """Runs a scenario on a Ray cluster of its own, and measures this process and those that it starts."""
    from rayfl.backends.ray.log import RayLog
    from rayfl.backends.ray.object_arrays import created_bytes
    from rayfl.backends.ray.session import ray_session
    from rayfl.config.loader import load_scenario
    from rayfl.data.files import data_folder
    from rayfl.data.inputs import named_parts
    from rayfl.engine.events import RoundDone
    from rayfl.runs.preparation import prepare
    from rayfl.runs.resolution import resolve
    from rayfl.studies.scale.processes import peak_memory, processor_seconds

    seconds, marks, peak = list[float](), [], dict[str, int]()
    loaded = resolve(load_scenario(scenario, overrides=overrides))
    with ExitStack() as sampling:
        peak = sampling.enter_context(peak_memory())
        run, _ = prepare(loaded, data_folder(None))
        with ray_session(run, None, RayLog(Path(os.devnull))) as session:
            for event in session.events():
                if not isinstance(event, RoundDone):
                    continue
                seconds.append(event.seconds)
                if event.round == SAMPLED:
                    sampling.close()  # which itself takes time
                if event.round in (SAMPLED, run.scenario.phases[0].rounds):
                    marks.append((processor_seconds(), created_bytes()))
    (first, created), (last, created_later) = marks
    seconds = seconds[SAMPLED - 1 :]
    rounds = len(seconds) - 1
    train = run.result.store.train
    parts = sum(part.nbytes for part in named_parts(train.x).values() if isinstance(part, np.ndarray))
    return Cost(
        statistics.median(later - earlier for earlier, later in pairwise(seconds)),
        {role: (last[role] - first.get(role, 0.0)) / rounds for role in last},
        dict(peak),
        (created_later - created) / rounds,
        run.result.initial.vector.nbytes,
        parts + train.y.nbytes,
    )


if __name__ == "__main__":
    try:
        print(json.dumps(asdict(measured(sys.argv[1], sys.argv[2:]))))
    except RayflError as error:
        sys.exit(" ".join(str(error).split()))
