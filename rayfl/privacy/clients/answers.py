"""A worker's part of client-level DP: it clips answers and, with `level = "local"`, adds noise to them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rayfl.algorithms.exchange import Answer, Part
from rayfl.errors import RayflError
from rayfl.planning.client_mechanism import BELOW, ClientMechanism
from rayfl.privacy.clients.noised_sums import lattice_of
from rayfl.privacy.discrete_gaussian import discrete_gaussian

if TYPE_CHECKING:
    import torch

    from rayfl.local.client_streams import ClientStreams

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
    mechanism: ClientMechanism, received: torch.Tensor, left: torch.Tensor, streams: ClientStreams
) -> torch.Tensor:
    """Returns the model that a client of a relay passes on: the received model plus its clipped and noised change.

    Args:
        mechanism: The phase's mechanism.
        received: float32 [length of the model].
        left: float32 [length of the model], the client's trained model.
        streams: The client's random streams.
    """
    change = _only(mechanism, left - received, "model")
    norm = math.sqrt(float(change.double().square().sum()))
    _clip(mechanism, [change], norm, mechanism.clip_norm)
    _add_noise(mechanism, change, "model", mechanism.clip_norm, streams, 0)
    return received + change


def _only(mechanism: ClientMechanism, vector: torch.Tensor, part: Part) -> torch.Tensor:
    """A copy with zeros wherever the phase does not train, including padding."""
    kept = vector.new_zeros(vector.numel())
    flat = vector.detach().flatten()
    for start, stop in mechanism.places(part):
        kept[start:stop] = flat[start:stop]
    return kept


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
