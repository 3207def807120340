"""Client-level DP of a phase (`phases.N.dp`): the resolved mechanism, and the noise on answers and sums. No PyTorch.

The mechanism is plain data that hosts, server and accounting share. A worker clips answers and, with `level = "local"`,
adds noise to them; the server adds noise to exact sums and keeps a bound that follows a quantile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from rayfl.algorithms.exchange import Answer, Answers, Part, Released
from rayfl.algorithms.server_state import ServerState
from rayfl.config.privacy import Quantile
from rayfl.errors import RayflError
from rayfl.privacy.secure_noise import Lattice, discrete_gaussian

if TYPE_CHECKING:
    import torch

    from rayfl.local.context import ClientStreams


CLIP_NORM = "clip_norm"
"""The server's state that holds an adaptive clipping bound."""

BELOW = "clients below the bound"
"""Name of the sum in which clients report whether they were clipped (-1/2) or not (1/2), for an adaptive bound."""


@dataclass(frozen=True)
class ClientMechanism:
    """Client-level DP of a phase.

    Attributes:
        level: Whether the server (`central`) or each client (`local`) adds the noise.
        noise_multiplier: Standard deviation of the noise as a multiple of `clip_norm`, for everything that a round
            releases.
        clip_norm: C, the bound on a client's contribution; its initial value if it adapts.
        quantile: How the bound adapts, if it does.
        denominator: Divisor of sums, if the number of answers must stay hidden.
        changing: Ranges (start, stop) of a model vector that the phase trains, ascending.
        released: The released parts of clients' answers; empty in a relay, which releases a model.
        secure: Whether noise comes from the operating system.
        fraction_bits: Contributions to a sum are rounded to multiples of 2**-fraction_bits.
    """

    level: Literal["central", "local"]
    noise_multiplier: float
    clip_norm: float
    quantile: Quantile | None
    denominator: float | None
    changing: tuple[tuple[int, int], ...]
    released: Released = field(default_factory=Released)
    secure: bool = False
    fraction_bits: int = 32

    @property
    def vector_noise(self) -> float:
        """The noise multiplier of the vectors.

        With an adaptive bound a round releases the vectors and a count. Together these are one Gaussian mechanism of
        `noise_multiplier` if the vectors have z_delta = (z^-2 - z_b^-2)^(-1/2), with z_b that of the count (Andrew et
        al., theorem 1, where z_b is twice the standard deviation of the count's noise).
        """
        if not self.quantile or not self.noise_multiplier:
            return self.noise_multiplier
        return 1 / math.sqrt(self.noise_multiplier**-2 - self.quantile.noise_multiplier**-2)

    def places(self, part: Part) -> Sequence[tuple[int, int]]:
        """Ranges of the released values in a vector."""
        return [(0, part)] if isinstance(part, int) else self.changing

    @property
    def num_values(self) -> int:
        """Number of values that a client releases in a round."""
        return sum(stop - start for part in self.released.parts.values() for start, stop in self.places(part))

    def bound(self, clip_norm: float) -> float:
        """Bound on the L2 norm of a contribution to the exact sums: C plus the largest rounding error."""
        return clip_norm + math.sqrt(self.num_values) * 2.0 ** -(self.fraction_bits + 1)


def length(part: Part, num_params: int, num_values: int) -> int:
    """Length of a released vector; parameters are the first `num_params` of a model's `num_values` values."""
    return part if isinstance(part, int) else num_params if part == "params" else num_values


@dataclass(frozen=True)
class ClientAccounting:
    """How the client-level DP of a run is accounted for.

    Attributes:
        delta: The delta of the guarantee.
        accountant: `prv`, `rdp` or `exact`.
        secure: Whether the noise is discrete and comes from the operating system.
    """

    delta: float
    accountant: str
    secure: bool = False


def bound_of(mechanism: ClientMechanism, server: ServerState) -> float:
    """Returns the round's clipping bound C, which is part of the server's state if it adapts."""
    adapted = server.state.get(CLIP_NORM)
    return mechanism.clip_norm if adapted is None or not mechanism.quantile else float(adapted[0])


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
        noisy = {}
        for name, part in parts.items():
            total = np.zeros(length(part, server.num_params, len(server.model))) if answers is None else sums[name]
            for start, stop in mechanism.places(part):
                if mechanism.secure:  # sums of whole steps
                    total[start:stop] = (total[start:stop] + discrete_gaussian(stop - start)) * lattice.step
                else:
                    total[start:stop] += scale * stream.standard_normal(stop - start)
            noisy[name] = total
        return noisy

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


ROUNDING = 1 - 2.0**-22
"""Scaling in float32 rounds twice, by 2^-24 of a value each time; with this factor the norm stays below the bound."""

NOISE = "client-level dp noise"
"""The purpose of the client's stream from which the noise is drawn."""


def hide_answer(
    mechanism: ClientMechanism, answer: Answer, clip_norm: float, num_params: int, streams: ClientStreams
) -> None:
    """Clips an answer in place, and adds noise to it with `level = "local"`.

    All released vectors are clipped as one: C bounds the root of the sum of their squared norms. Parts that the phase
    does not train are set to zero.

    Args:
        mechanism: The phase's mechanism.
        answer: What the server would receive without privacy.
        clip_norm: C.
        num_params: Length of the parameters' part of a model vector.
        streams: The client's random streams.

    Raises:
        RayflError: The answer differs from what the algorithm declares, or has a weight.
    """
    _check(mechanism, answer, num_params)
    vectors = []
    for held, parts in ((answer.values, mechanism.released.values), (answer.sums, mechanism.released.sums)):
        for name, part in parts.items():
            held[name] = _only(mechanism, held[name], part)
            vectors.append((held[name], part))
    norm = math.sqrt(sum(float(vector.double().square().sum()) for vector, _ in vectors))
    _clip(mechanism, [vector for vector, _ in vectors], norm, clip_norm)
    if mechanism.level == "local":
        for number, (vector, part) in enumerate(vectors):
            _add_noise(mechanism, vector, part, clip_norm, streams, number)
    if mechanism.quantile:
        before = norm if answer.norm is None else answer.norm
        answer.sums[BELOW] = vectors[0][0].new_full((1,), 0.5 if before <= clip_norm else -0.5)


def hidden_model(
    mechanism: ClientMechanism, received: torch.Tensor, trained: torch.Tensor, streams: ClientStreams
) -> torch.Tensor:
    """Returns the model that a client of a relay passes on: the received model plus its clipped and noised change.

    Args:
        mechanism: The phase's mechanism.
        received: float32 [length of the model].
        trained: float32 [length of the model], the client's model after its update.
        streams: The client's random streams.
    """
    change = _only(mechanism, trained - received, "model")
    norm = math.sqrt(float(change.double().square().sum()))
    _clip(mechanism, [change], norm, mechanism.clip_norm)
    _add_noise(mechanism, change, "model", mechanism.clip_norm, streams, 0)
    return received + change


def _only(mechanism: ClientMechanism, vector: torch.Tensor, part: Part) -> torch.Tensor:
    """A copy with zeros wherever the phase does not train, including padding."""
    masked = vector.new_zeros(vector.numel())
    flat = vector.detach().flatten()
    for start, stop in mechanism.places(part):
        masked[start:stop] = flat[start:stop]
    return masked


def _clip(mechanism: ClientMechanism, vectors: Sequence[torch.Tensor], norm: float, clip_norm: float) -> None:
    """Clips vectors in place as one; with `secure`, to whole steps of the phase's lattice."""
    if mechanism.secure:
        lattice, norms = lattice_of(mechanism, clip_norm), vectors[0].new_tensor([norm])
        for vector in vectors:
            vector.copy_(lattice.in_steps(vector.unsqueeze(0), norms)[0])
        squares = sum((vector.double().square().sum() for vector in vectors), norms.new_zeros(1).double())
        if not lattice.admits(squares):
            for vector in vectors:
                vector.zero_()
    elif norm > clip_norm:
        for vector in vectors:
            vector *= clip_norm / norm * ROUNDING


def _add_noise(
    mechanism: ClientMechanism,
    vector: torch.Tensor,
    part: Part,
    clip_norm: float,
    streams: ClientStreams,
    number: int,
) -> None:
    """Adds noise to a clipped vector, in place; converts steps of a lattice to values."""
    import torch  # imported here because the server loads this module's names without PyTorch

    source = None if mechanism.secure else streams.numpy(NOISE, number)
    for start, stop in mechanism.places(part):
        if source is None:
            noise = torch.from_numpy(discrete_gaussian(stop - start)).to(vector.device)
            vector[start:stop] = (vector[start:stop].double() + noise) * lattice_of(mechanism, clip_norm).step
        else:
            drawn = mechanism.noise_multiplier * clip_norm * source.standard_normal(stop - start)
            vector[start:stop] += torch.from_numpy(drawn).to(vector.device, vector.dtype)


def _check(mechanism: ClientMechanism, answer: Answer, num_params: int) -> None:
    released, sent = mechanism.released, (answer.values, answer.sums)
    for held, parts, kind in zip(sent, (released.values, released.sums), ("values", "sums"), strict=True):
        if held.keys() != parts.keys():
            raise RayflError(
                f"it answered with {_names(held)} as {kind}, but its algorithm's releases() declares {_names(parts)}"
            )
        for name, part in parts.items():
            _check_length(name, held[name], part, num_params)
    if answer.maxima:
        raise RayflError(
            f"it answered with maxima ({_names(answer.maxima)}), which no noise hides; dp only allows sums"
        )
    if answer.weight != 1:
        raise RayflError(
            f"its answer has the weight {answer.weight:g}, but dp needs the same weight, 1, for every client; use "
            "weighting = 'uniform'"
        )


def _check_length(name: str, vector: torch.Tensor, part: Part, num_params: int) -> None:
    wanted = part if isinstance(part, int) else num_params
    if vector.numel() < wanted or (part != "model" and vector.numel() != wanted):
        raise RayflError(
            f"it answered with '{name}' of {vector.numel()} values, but its algorithm's releases() declares {part!r}"
        )


def _names(vectors: Mapping[str, object]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(vectors)) or "nothing"
