"""Reduces the answers of many clients to one exchange, on each host and then over hosts, or keeps them one by one.

Elementwise maxima are exact and therefore do not depend on the order; sums are those of `exact_sum`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from rayfl.algorithms.exchange import Answer, Answers, Sums
from rayfl.algorithms.updates import Updates
from rayfl.engine.exact_sum import (
    LARGEST,
    ExactSum,
    NotFiniteError,
    PartialSum,
    SumMemory,
    SumRangeError,
    check_lengths,
    combine,
    in_units,
    merge,
)
from rayfl.errors import RayflError
from rayfl.models.tensors import Discrete, all_finite

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Maximum:
    """A running elementwise maximum of vectors, on the device of the first one."""

    def __init__(self, name: str) -> None:
        """Starts without a vector.

        Args:
            name: Name of the vectors, for error messages.
        """
        self._name = name
        self._largest: Tensor | None = None

    def add(self, values: Tensor) -> None:
        """Includes one more vector.

        Args:
            values: [n] float32 or float64, finite.

        Raises:
            NotFiniteError: A value is NaN or infinite.
            SumRangeError: The vector differs in length from the others.
        """
        # the maximum of -0.0 and 0.0 may be either; adding 0.0 turns both into 0.0
        values = values.detach().double() + 0.0
        if self._largest is not None and values.shape != self._largest.shape:
            raise SumRangeError(
                f"its '{self._name}' has {values.numel()} values, but those of other clients have "
                f"{self._largest.numel()}"
            )
        if not all_finite(values):
            raise NotFiniteError(self._name)
        self._largest = values if self._largest is None else self._largest.maximum(values)

    def partial(self) -> np.ndarray:
        """Returns the maximum over this host's clients, float64 [n]."""
        if self._largest is None:
            raise ValueError(f"nothing was added to '{self._name}'")
        return self._largest.cpu().numpy()


def combine_maxima(name: str, parts: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the elementwise maximum over the hosts' maxima, float64 [n].

    Args:
        name: Name of the vectors, for error messages.
        parts: The result of `Maximum.partial` on each host, in any order.

    Raises:
        SumRangeError: The parts have different lengths.
    """
    lengths = sorted({len(part) for part in parts})
    if len(lengths) > 1:
        raise SumRangeError(f"clients answered with different numbers of values in '{name}': {lengths}")
    largest: np.ndarray = np.max(np.stack(parts), axis=0)
    return largest


@dataclass(frozen=True)
class OneAnswer:
    """One client's answer, for exchanges that want answers one by one.

    Attributes:
        client: The client's number.
        weight: The answer's weight.
        vectors: Its `values`, float32 [n] each; on Ray read from shared memory, not copied.
    """

    client: int
    weight: float
    vectors: dict[str, np.ndarray]


@dataclass(frozen=True)
class LeftBuffers:
    """The integer and boolean buffers that a client update left.

    Attributes:
        client: The client's number.
        round: The round in which the update began.
        num_samples: The client's number of training samples.
        values: The values by name.
    """

    client: int
    round: int
    num_samples: int
    values: Discrete


@dataclass(frozen=True)
class HostAnswers:
    """One host's message to the server for its part of the cohort.

    It holds one vector per name, whatever the number of clients; with `each=True`, also one vector per client.

    Attributes:
        count: Number of clients that answered here.
        weight: Sum of their weights, in units of 2**-fraction_bits.
        totals: Weighted sums.
        sums: Plain sums, including diagnostics.
        maxima: Elementwise maxima, float64.
        each: The answers one by one, in order of arrival.
        left: The integer and boolean buffers of the client with most samples, or of every client if the order of their
            answers decides; empty if the network has none, or if differential privacy hides clients.
    """

    count: int
    weight: int
    totals: dict[str, PartialSum]
    sums: dict[str, PartialSum]
    maxima: dict[str, np.ndarray]
    each: tuple[OneAnswer, ...] = ()
    left: tuple[LeftBuffers, ...] = ()


class Reduction:
    """Reduces the answers of one host's clients.

    Args:
        fraction_bits: See `ExactSum`.
        each: Whether to keep the answers' values one by one instead of summing them.
        ordered: Whether the order of the answers decides whose integer and boolean buffers count.
        memory: Where the sums are; by default in new memory.
    """

    def __init__(
        self, fraction_bits: int, each: bool = False, ordered: bool = False, memory: SumMemory | None = None
    ) -> None:
        self._memory = memory
        self._left: list[LeftBuffers] = []
        self._ordered = ordered
        self._bits, self._count, self._weight = fraction_bits, 0, 0
        self._totals: dict[str, ExactSum] = {}
        self._sums: dict[str, ExactSum] = {}
        self._maxima: dict[str, Maximum] = {}
        self._each: list[OneAnswer] | None = [] if each else None

    def add(self, client: int, answer: Answer) -> None:
        """Adds one client's answer.

        Raises:
            RayflError: It is empty, or differs in names or lengths from earlier answers.
            SumRangeError: A value cannot be summed.
        """
        if both := answer.sums.keys() & answer.diagnostics.keys():
            raise RayflError(f"its Answer has {sorted(both)} both in sums and in diagnostics")
        plain = answer.sums | answer.diagnostics
        vectors = {**answer.values, **plain, **answer.maxima}
        if not vectors:
            raise RayflError("its Answer must contain at least one named vector")
        if self._each is not None and not answer.values:
            raise RayflError("its Answer contains no values, which an exchange with each=True needs")
        if not self._count:
            self._totals = {name: ExactSum(name, self._bits, self._memory) for name in answer.values}
            self._sums = {name: ExactSum(name, self._bits, self._memory) for name in plain}
            self._maxima = {name: Maximum(name) for name in answer.maxima}
        for mine, others in ((answer.values, self._totals), (plain, self._sums), (answer.maxima, self._maxima)):
            if mine.keys() != others.keys():
                known = [*self._totals, *self._sums, *self._maxima]
                raise RayflError(f"its Answer has {sorted(vectors)}, but those of other clients have {sorted(known)}")
        if not 0 <= answer.weight < LARGEST:  # also true for NaN
            raise RayflError(
                f"its answer has the weight {answer.weight}; weights must be finite, not negative and below "
                f"{LARGEST:.3g}"
            )
        self._weight += in_units(answer.weight, self._bits)
        if self._each is not None:
            copies = {name: _kept(name, tensor) for name, tensor in answer.values.items()}
            self._each.append(OneAnswer(client, answer.weight, copies))
        else:
            for name, values in answer.values.items():
                self._totals[name].add(values.flatten(), answer.weight)
        for name, values in plain.items():
            self._sums[name].add(values.flatten(), 1.0)
        for name, values in answer.maxima.items():
            self._maxima[name].add(values.flatten())
        self._count += 1

    def leave(self, buffers: LeftBuffers) -> None:
        """Adds the integer and boolean buffers that one client's update left.

        If the order of the answers decides, those of all clients are kept, but equal values only once.
        """
        if not self._ordered:
            self._left = [of_largest([*self._left, buffers])]
            return
        before = self._left[-1].values if self._left else {}
        values = {
            name: before[name] if name in before and np.array_equal(before[name], value) else value
            for name, value in buffers.values.items()
        }
        self._left.append(replace(buffers, values=values))

    def result(self) -> HostAnswers:
        """Returns the message to the server."""
        return HostAnswers(
            self._count,
            self._weight,
            {} if self._each is not None else {name: total.partial() for name, total in self._totals.items()},
            {name: total.partial() for name, total in self._sums.items()},
            {name: largest.partial() for name, largest in self._maxima.items()},
            tuple(self._each or ()),
            tuple(self._left),
        )


def of_largest(buffers: Sequence[LeftBuffers]) -> LeftBuffers:
    """Returns the buffers of the client with most samples, of several the one with the lowest number."""
    return max(buffers, key=lambda one: (one.num_samples, -one.client))


def _kept(name: str, values: torch.Tensor) -> np.ndarray:
    """Copies a tensor to main memory, since an answer may be a view of the resident model."""
    import torch  # imported here because the server combines answers without PyTorch

    if not all_finite(values):
        raise NotFiniteError(name)
    flat: np.ndarray = values.detach().flatten().to("cpu", torch.float32, copy=True).numpy()
    return flat


def merge_hosts(parts: Sequence[HostAnswers], fraction_bits: int) -> HostAnswers:
    """Merges some hosts' messages, in any order, into one of the same size, with which `reduce_hosts` has equal bits.

    Raises:
        RayflError: Clients answered with different names.
    """
    _check_names(parts)

    def merged(sums: Sequence[Mapping[str, PartialSum]]) -> dict[str, PartialSum]:
        return {name: merge(name, [part[name] for part in sums], fraction_bits) for name in sums[0]}

    left = [one for part in parts for one in part.left]
    return HostAnswers(
        count=sum(part.count for part in parts),
        weight=sum(part.weight for part in parts),
        totals=merged([part.totals for part in parts]),
        sums=merged([part.sums for part in parts]),
        maxima={name: combine_maxima(name, [part.maxima[name] for part in parts]) for name in parts[0].maxima},
        each=tuple(one for part in parts for one in part.each),
        left=(of_largest(left),) if left else (),
    )


def _check_names(parts: Sequence[HostAnswers]) -> None:
    names = {(frozenset(part.totals), frozenset(part.sums), frozenset(part.maxima)) for part in parts}
    if len(names) != 1:
        listed = sorted(sorted(name for group in groups for name in group) for groups in names)
        raise RayflError(f"clients answered the same exchange with different names: {listed}")


def reduce_hosts(parts: Sequence[HostAnswers], fraction_bits: int) -> Answers:
    """Combines the hosts' messages, in any order, into the cohort's answers.

    Raises:
        RayflError: Clients answered with different names, or the sum of their weights is not positive.
    """
    singles = sorted((one for part in parts for one in part.each), key=lambda one: one.client)
    _check_names(parts)
    for sums in ([part.totals for part in parts], [part.sums for part in parts]):
        for name in sums[0]:
            check_lengths(name, [own[name] for own in sums])
    weight = sum(part.weight for part in parts) / 2**fraction_bits
    if weight <= 0:
        raise RayflError(f"the weights of a cohort's answers must add up to more than 0, but their sum is {weight}")

    def combined(sums: Sequence[Mapping[str, PartialSum]]) -> Sums:
        return Sums({name: partial(combine, name, [part[name] for part in sums], fraction_bits) for name in sums[0]})

    return Answers(
        count=sum(part.count for part in parts),
        weight=weight,
        totals=combined([part.totals for part in parts]),
        sums=combined([part.sums for part in parts]),
        maxima={name: combine_maxima(name, [part.maxima[name] for part in parts]) for name in parts[0].maxima},
        each=_one_by_one(singles) if singles else {},
    )


def reduce_discounted(parts: Sequence[HostAnswers], discounts: Sequence[float], fraction_bits: int) -> Answers:
    """Like `reduce_hosts`, but multiplies the parts' values by discounts; weights, plain sums and maxima stay as is.

    Parts with equal discounts are summed exactly before the discount is applied, so the result does not depend on the
    number of hosts.

    Args:
        parts: The hosts' messages, in any order.
        discounts: One per part.
        fraction_bits: See `ExactSum`.

    Raises:
        RayflError: As `reduce_hosts`, or answers are kept one by one.
    """
    if any(part.each for part in parts):
        raise RayflError("answers of an exchange with each=True cannot be discounted")
    whole = reduce_hosts(parts, fraction_bits)
    totals: dict[str, np.ndarray] = {name: np.zeros_like(total) for name, total in whole.totals.items()}
    for discount in sorted(set(discounts), reverse=True):
        own = [part for part, its in zip(parts, discounts, strict=True) if its == discount]
        for name, total in totals.items():
            total += discount * combine(name, [part.totals[name] for part in own], fraction_bits)
    return replace(whole, totals=totals)


def counted_from(model: np.ndarray, base: np.ndarray, discount: float, answers: Answers) -> Answers:
    """Shifts the `delta` of answers of clients that began from one model so that it starts at another one.

    A change of the base b by delta is a change of w by delta + (b - w).

    Args:
        model: w, float32 [n].
        base: b, float32 [n].
        discount: The factor that the answers' values were multiplied by.
        answers: The result of `reduce_discounted`.

    Raises:
        RayflError: No client answered with a `delta`.
    """
    if "delta" not in answers.totals:
        raise RayflError(f"mixing models needs 'delta' in the answers, but they hold {', '.join(answers.totals)}")
    shift = base.astype(np.float64) - model
    delta = answers.totals["delta"] + discount * answers.weight * shift
    return replace(answers, totals={**answers.totals, "delta": delta})


def _one_by_one(singles: Sequence[OneAnswer]) -> dict[str, Updates]:
    """Returns all answers by name, in the given order.

    Raises:
        RayflError: The answers differ in names or in lengths of vectors.
    """
    first = singles[0]
    for one in singles:
        if one.vectors.keys() != first.vectors.keys():
            raise RayflError(
                f"clients answered the same exchange with different names: {sorted(first.vectors)} and "
                f"{sorted(one.vectors)}"
            )
        for name, vector in one.vectors.items():
            if len(vector) != len(first.vectors[name]):
                raise RayflError(
                    f"clients answered with different numbers of values in '{name}': {len(first.vectors[name])} "
                    f"(client {first.client}) and {len(vector)} (client {one.client})"
                )
    clients, weights = tuple(one.client for one in singles), np.array([one.weight for one in singles], np.float64)
    return {name: Updates(clients, weights, [one.vectors[name] for one in singles]) for name in first.vectors}
