from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rayfl.engine import exact_sum
from rayfl.engine.exact_sum import (
    LARGEST,
    ExactSum,
    NotFiniteError,
    PartialSum,
    SumMemory,
    SumRangeError,
    combine,
    in_units,
    merge,
)
from rayfl.errors import DivergenceError

BITS = 32
small = st.floats(-100, 100, width=32)
finite = st.floats(allow_nan=False, allow_infinity=False, width=32)
weights = st.one_of(st.integers(1, 500).map(float), st.floats(-(2.0**800), 2.0**800))
fraction_bits = st.sampled_from([8, 32, 48])

Term = tuple[Sequence[float], float]
"""A vector, and its weight."""


def summed(terms: Sequence[Term], bits: int = BITS) -> PartialSum:
    total = ExactSum("delta", bits)
    for values, weight in terms:
        total.add(torch.tensor(values, dtype=torch.float32), weight)
    return total.partial()


def spread(terms: Sequence[Term], random: Random, bits: int) -> np.ndarray:
    """The sum over a number of hosts, in an order, that chance decides."""
    terms = random.sample(terms, len(terms))
    cuts = sorted(random.sample(range(1, len(terms)), random.randint(0, min(4, len(terms) - 1))))
    parts = [terms[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(terms)], strict=True)]
    return combine("delta", [summed(part, bits) for part in parts], bits)


def merged_anyhow(parts: Sequence[PartialSum], random: Random, bits: int) -> np.ndarray:
    """The sum of shares that are merged in pairs and triples, in any order."""
    parts = list(parts)
    while len(parts) > 1:
        chosen = random.sample(range(len(parts)), min(len(parts), random.randint(2, 3)))
        whole = merge("delta", [parts[place] for place in chosen], bits)
        assert np.abs(whole.total).max(initial=0.0) <= whole.bound
        parts = [part for place, part in enumerate(parts) if place not in chosen] + [whole]
    return combine("delta", parts, bits)


def true_sum(terms: Sequence[Term], element: int, bits: int) -> float:
    """By rational numbers: weighted values to the nearest multiple of 2**-bits, to even at ties; their sum, rounded."""
    rounded = (round(Fraction(values[element] * weight) * 2**bits) for values, weight in terms)
    return float(Fraction(sum(rounded), 2**bits))


@given(
    st.lists(st.tuples(st.tuples(small, small, small), weights.filter(lambda w: abs(w) < 500)), min_size=1), st.data()
)
@settings(max_examples=40)
def test_usual_values_have_the_bits_of_one_array_of_float64(terms: list[Term], data: Any) -> None:
    """The sum is what adding up a single grid of float64 gives, as long as that is exact."""
    magic, expected = 1.5 * 2.0 ** (52 - BITS), np.zeros(3)
    for values, weight in terms:
        expected += (np.array(values) * weight + magic) - magic
    part = summed(terms)
    assert np.array_equal(part.total, expected)
    assert part.where.size == part.further.size == 0, "no memory for what does not occur"
    assert np.array_equal(spread(terms, data.draw(st.randoms(use_true_random=False)), BITS), expected)


@given(st.lists(st.floats(0, LARGEST, exclude_max=True), min_size=1, max_size=20), fraction_bits)
@settings(max_examples=40)
def test_numbers_in_units_add_up_as_the_values_of_vectors_do(numbers: list[float], bits: int) -> None:
    found = sum(in_units(number, bits) for number in numbers) / 2**bits
    assert found == combine("weight", [summed([((1.0,), number) for number in numbers], bits)], bits)[0]


@given(
    st.lists(st.tuples(st.tuples(finite, finite, small), weights), min_size=1, max_size=30),
    st.randoms(use_true_random=False),
    fraction_bits,
)
def test_any_order_and_any_hosts_give_the_correctly_rounded_sum(terms: list[Term], random: Random, bits: int) -> None:
    with mock.patch.object(exact_sum, "CHUNK", 2):
        found = spread(terms, random, bits)
    assert found.tolist() == [true_sum(terms, element, bits) for element in range(3)]


@given(
    st.lists(st.sampled_from([4 - 2.0**-22, 2.0**-22 - 4, 4.0, 2.0**21, -(2.0**21), 2.0**-30]), min_size=1, max_size=6),
    st.integers(1, 40),
    st.randoms(use_true_random=False),
)
@settings(max_examples=40)
def test_sums_carry_into_further_bins_exactly(values: list[float], times: int, random: Random) -> None:
    """With 48 bits, bin 0 takes contributions below 8 and sums up to 32: 4 * 1.75 is nearly as large as it takes."""
    terms = [((value, -value, 2.0**-30), 1.75) for value in values * times]
    found = spread(terms, random, 48)
    assert found.tolist() == [true_sum(terms, element, 48) for element in range(3)]


@given(st.lists(st.sampled_from([4.0, 4 - 2.0**-21, -3.5, 2.0**-30]), min_size=3, max_size=6), st.integers(1, 40))
@settings(max_examples=40)
def test_sums_that_stay_small_open_no_further_bin_however_many_terms_they_have(values: list[float], times: int) -> None:
    """With 48 bits, bin 0 takes sums up to 32, and these reach 28 at most."""
    back_and_forth = [sign * value for value in values * times for sign in (1, -1)]
    terms = [((value, value / 2), 1.75) for value in (*back_and_forth, *values[:3])]
    part = summed(terms, 48)
    assert part.where.size == part.further.size == 0
    assert combine("delta", [part], 48).tolist() == [true_sum(terms, element, 48) for element in range(2)]


def test_clients_whose_values_cancel_need_a_single_bin_however_large_their_weights() -> None:
    """Their largest values, 1, times 100 000 samples add up to 6 million, which is more than a bin takes."""
    generator, total = torch.Generator().manual_seed(0), ExactSum("delta", BITS)
    expected = np.zeros(8, dtype=object)
    for _ in range(60):
        delta = torch.rand(8, generator=generator) * 2 - 1
        delta[int(torch.randint(8, (), generator=generator))] = 1.0
        total.add(delta, 100_000.0)
        expected += [round(Fraction(value) * 100_000 * 2**BITS) for value in delta.tolist()]
    assert [len(bins.sums) for bins in total._chunks] == [1]
    assert combine("delta", [total.partial()], BITS).tolist() == [float(Fraction(units, 2**BITS)) for units in expected]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_tie_far_below_the_largest_value_rounds_the_sum_correctly(sign: float) -> None:
    """2**60 + 2**7 lies between two float64 numbers; 2**-30 more decides, whatever host it is on."""
    parts = [summed([((sign * 2.0**60,), 1.0)]), summed([((sign * 2.0**7,), 1.0)]), summed([((sign * 2.0**-30,), 1.0)])]
    assert combine("delta", parts[:2], BITS)[0] == sign * 2.0**60
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        assert combine("delta", [parts[index] for index in order], BITS)[0] == sign * (2.0**60 + 2.0**8)


def test_large_values_that_cancel_leave_the_small_ones() -> None:
    terms = [((1e38,), 1e200), ((0.25,), 1.0), ((-1e38,), 1e200)]
    assert combine("delta", [summed(terms[:2]), summed(terms[2:])], BITS)[0] == 0.25


@pytest.mark.parametrize("scale", [1.0, 1e6, 1e30])
def test_long_vectors_are_summed_chunk_by_chunk(scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    vectors = [torch.randn(100_003, generator=generator) for _ in range(3)]
    for vector in vectors:
        vector[70_000] *= scale
    terms = [(vector.tolist(), weight) for vector, weight in zip(vectors, (1.0, 2.0, 300.0), strict=True)]
    found = combine("delta", [summed(terms[:1]), summed(terms[1:])], BITS)
    true = sum(weight * vector.double().numpy() for vector, (_, weight) in zip(vectors, terms, strict=True))
    assert np.abs(np.delete(found - true, 70_000)).max() <= 3 * 2.0 ** -(BITS + 1)
    assert found[70_000] == true_sum(terms, 70_000, BITS)


def test_a_large_value_allocates_and_sends_further_bins_for_its_own_chunk_alone() -> None:
    values = torch.ones(5 * exact_sum.CHUNK)
    values[3 * exact_sum.CHUNK + 7] = 1e9
    total = ExactSum("delta", BITS)
    total.add(values, 1.0)
    assert [len(bins.sums) for bins in total._chunks] == [1, 1, 1, 2, 1]
    part = total.partial()
    assert part.where.tolist() == [3 * exact_sum.CHUNK + 7]
    assert part.further.shape == (1, 1)


@pytest.mark.parametrize("bits", [8, 32])
def test_shares_that_are_too_large_together_though_not_one_by_one_are_summed_exactly(bits: int) -> None:
    """Each is below the 2**(53 - bits) up to which float64 adds multiples of 2**-bits exactly."""
    totals = [units * 2.0**-bits for units in (2**53 - 1, 2, 1)]
    exact = float(sum(map(Fraction, totals)))
    assert exact != totals[0] + totals[1] + totals[2], "float64 rounds on the way"
    nothing = np.zeros(0, np.int64), np.zeros((0, 0))
    parts = [PartialSum(np.array([total, 1.0]), abs(total), *nothing) for total in totals]
    assert combine("delta", parts, bits).tolist() == [exact, 3.0]
    assert combine("delta", parts[::-1], bits).tolist() == [exact, 3.0]


@given(
    st.lists(st.lists(st.tuples(st.tuples(finite, small), weights), min_size=1, max_size=4), min_size=2, max_size=9),
    st.randoms(use_true_random=False),
    fraction_bits,
)
@settings(max_examples=150)
def test_merged_shares_have_the_same_sum(hosts: list[list[Term]], random: Random, bits: int) -> None:
    parts = [summed(terms, bits) for terms in hosts]
    before = [(part.total.tobytes(), part.further.tobytes()) for part in parts]
    merged = merged_anyhow(parts, random, bits)
    assert merged.tobytes() == combine("delta", parts, bits).tobytes()
    assert merged[1] == true_sum([term for terms in hosts for term in terms], 1, bits)
    assert before == [(part.total.tobytes(), part.further.tobytes()) for part in parts]  # they may be in shared memory


@pytest.mark.parametrize("scale", [1.0, 2.0**40])
def test_many_merges_of_full_bins_stay_exact_and_small(scale: float) -> None:
    largest = (2.0**53 - 1) * 2.0**-BITS * scale
    part = summed([((largest, -largest), 1.0), ((largest, 1.0), 0.5)])
    whole = part
    for _ in range(40):
        whole = merge("delta", [whole, part], BITS)
    assert len(whole.further) <= len(part.further) + 1
    assert combine("delta", [whole], BITS).tobytes() == combine("delta", [part] * 41, BITS).tobytes()


def test_a_shares_bound_is_not_below_its_values() -> None:
    assert summed([((0.75, 0.0), 1.0), ((-0.75, 1.0), -1.0)]).bound >= 1.5


def test_memory_is_used_again_once_shares_are_copied_and_shows_nothing_of_them() -> None:
    memory = SumMemory()

    def share(value: float) -> PartialSum:
        total = ExactSum("delta", BITS, memory)
        total.add(torch.full((5,), value), 1.0)
        return total.partial()

    first = share(3.0)
    second = share(4.0)  # the first may still be read
    assert (first.total.tolist(), second.total.tolist()) == ([3.0] * 5, [4.0] * 5)
    memory.copied()
    begun = ExactSum("delta", BITS, memory)
    begun.add(torch.zeros(5), 1.0)
    third = begun.partial()
    assert third.total.tolist() == [0.0] * 5
    assert np.shares_memory(third.total, first.total) or np.shares_memory(third.total, second.total)
    other = ExactSum("delta", BITS, memory)
    other.add(torch.ones(6), 1.0)
    assert other.partial().total.tolist() == [1.0] * 6


def test_an_empty_vector_has_an_empty_sum() -> None:
    assert combine("delta", [summed([((), 1.0)])] * 2, BITS).shape == (0,)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("other", [1.0, 1e30])
def test_a_contribution_that_is_not_finite_says_that_training_diverged(value: float, other: float) -> None:
    with pytest.raises(NotFiniteError) as caught:
        ExactSum("delta", BITS).add(torch.tensor([other, value]), 1.0)
    assert str(caught.value) == (
        "its answer 'delta' contains NaN or infinity: training diverged; use a smaller lr, or set clip_norm"
    )
    assert isinstance(caught.value, DivergenceError), "the client's error says so too"


@pytest.mark.parametrize("weight", [math.nan, math.inf, LARGEST])
def test_a_weight_beyond_all_measure_is_rejected(weight: float) -> None:
    with pytest.raises(
        SumRangeError,
        match=rf"'delta' times its weight {re.escape(f'{weight:.3g}')} is outside the range of sums, \+-9.75e\+288",
    ) as caught:
        ExactSum("delta", BITS).add(torch.tensor([1.0]), weight)
    assert not isinstance(caught.value, NotFiniteError)


def test_vectors_of_different_lengths_are_rejected_on_a_host_and_between_hosts() -> None:
    total = ExactSum("delta", BITS)
    total.add(torch.ones(2), 1.0)
    with pytest.raises(SumRangeError, match="its 'delta' has 3 values, but those of other clients have 2"):
        total.add(torch.ones(3), 1.0)
    with pytest.raises(SumRangeError, match=r"different numbers of values in 'delta': \[1, 2\]"):
        combine("delta", [summed([((1.0,), 1.0)]), total.partial()], BITS)
