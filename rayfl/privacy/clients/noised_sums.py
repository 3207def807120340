"""The server's part of client-level DP: noise on exact sums, and a bound that follows a quantile. No PyTorch."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from rayfl.algorithms.exchange import Answers, Part
from rayfl.algorithms.server_state import ServerState
from rayfl.planning.client_mechanism import BELOW, CLIP_NORM, ClientMechanism, length
from rayfl.privacy.discrete_gaussian import discrete_gaussian
from rayfl.privacy.lattice import Lattice


def bound_of(mechanism: ClientMechanism, server: ServerState) -> float:
    """Returns the round's clipping bound C, which is part of the server's state if it adapts."""
    kept = server.state.get(CLIP_NORM)
    return mechanism.clip_norm if kept is None or not mechanism.quantile else float(kept[0])


def lattice_of(mechanism: ClientMechanism, clip_norm: float) -> Lattice:
    """Returns the lattice in whose steps a `secure` phase releases its vectors."""
    return Lattice(mechanism.vector_noise, clip_norm)


def noised(
    mechanism: ClientMechanism, server: ServerState, answers: Answers | None, stream: np.random.Generator
) -> Answers:
    """Adds noise to a cohort's sums, and drops everything else that the algorithm must not see.

    If the cohort's size is random, it is replaced by its expectation; diagnostics, which are for the experimenter, are
    left out. An adaptive bound is updated for the next round.

    Args:
        mechanism: The phase's mechanism.
        server: The server's working copy.
        answers: The exact answers; None if no client took part, which leaves only noise.
        stream: Source of the noise, unless `dp.secure`.
    """
    clip_norm = bound_of(mechanism, server)
    scale, lattice = mechanism.vector_noise * mechanism.bound(clip_norm), lattice_of(mechanism, clip_norm)

    def released(sums: Mapping[str, np.ndarray], parts: Mapping[str, Part]) -> dict[str, np.ndarray]:
        found = {}
        for name, part in parts.items():
            total = np.zeros(length(part, server.num_params, len(server.model))) if answers is None else sums[name]
            for start, stop in mechanism.places(part):
                if mechanism.secure:  # sums of whole steps
                    total[start:stop] = (total[start:stop] + discrete_gaussian(stop - start)) * lattice.step
                else:
                    total[start:stop] += scale * stream.standard_normal(stop - start)
            found[name] = total
        return found

    counted = 0 if answers is None else answers.count
    number = counted if mechanism.denominator is None else mechanism.denominator
    totals = released(answers.totals if answers else {}, mechanism.released.values)
    sums = released(answers.sums if answers else {}, mechanism.released.sums)
    if mechanism.quantile:
        below = 0.0 if answers is None else float(answers.sums[BELOW][0])
        if mechanism.secure:
            halves = Lattice(mechanism.quantile.noise_multiplier, 0.5)
            below = (round(2 * below) * halves.largest_norm + int(discrete_gaussian(1)[0])) * halves.step
        else:
            below += mechanism.quantile.noise_multiplier / 2 * float(stream.standard_normal())
        share = below / number + 0.5
        step = math.exp(-mechanism.quantile.lr * (share - mechanism.quantile.quantile))
        server.keep(CLIP_NORM, np.array([clip_norm * step]))
        server.report(clip_norm=clip_norm)
    return Answers(number, float(number), totals, sums)
