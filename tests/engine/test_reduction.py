"""What a host makes of its clients' answers, and the server of the hosts' messages, against sums by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from rayfl.algorithms.exchange import Answer, Answers
from rayfl.engine.exact_sum import LARGEST, NotFiniteError
from rayfl.engine.reduction import (
    HostAnswers,
    LeftBuffers,
    Reduction,
    counted_from,
    merge_hosts,
    reduce_discounted,
    reduce_hosts,
)
from rayfl.errors import RayflError

BITS = 32


def vector(*values: float) -> torch.Tensor:
    return torch.tensor(values)


def answer(weight: float, *delta: float, **more: Any) -> Answer:
    return Answer(weight, delta=vector(*delta), **more)


def host(*answers: tuple[int, Answer], each: bool = False) -> HostAnswers:
    reduction = Reduction(BITS, each)
    for client, its in answers:
        reduction.add(client, its)
    return reduction.result()


def test_values_are_weighted_sums_and_diagnostics_are_not_and_maxima_are_elementwise() -> None:
    first = answer(
        2.0, 1.0, -3.0, sums={"loss": vector(0.5)}, maxima={"top": vector(1.0, 7.0)}, diagnostics={"norm": vector(4.0)}
    )
    second = answer(
        3.0, 0.5, 1.0, sums={"loss": vector(0.25)}, maxima={"top": vector(2.0, 5.0)}, diagnostics={"norm": vector(1.0)}
    )
    for parts in ([host((4, first), (1, second))], [host((1, second)), host((4, first))]):
        found = reduce_hosts(parts, BITS)
        assert (found.count, found.weight) == (2, 5.0)
        assert found.totals["delta"].tolist() == [2.0 + 1.5, -6.0 + 3.0]
        assert found.mean("delta").tolist() == [0.7, -0.6]
        assert {name: total.tolist() for name, total in found.sums.items()} == {"loss": [0.75], "norm": [5.0]}
        assert found.maxima["top"].tolist() == [2.0, 7.0]
        assert not found.each


def test_answers_that_are_kept_one_by_one_come_by_client_and_are_not_summed() -> None:
    shared = torch.tensor([[1.0, 2.0]])
    last, first = Answer(2.0, delta=shared, sums={"loss": vector(1.0)}), answer(1.0, 3.0, 4.0, sums={"loss": vector(2)})
    parts = [host((9, last), each=True), host((3, first), each=True)]
    shared.zero_()  # a view of the resident model, say, which the next client trains
    found = reduce_hosts(parts, BITS)
    updates = found.one_by_one("delta")
    assert (updates.clients, updates.weights.tolist()) == ((3, 9), [1.0, 2.0])
    assert [one.tolist() for one in updates.vectors] == [[3.0, 4.0], [1.0, 2.0]]
    assert (found.count, found.weight, found.totals, found.sums["loss"].tolist()) == (2, 3.0, {}, [3.0])


def test_a_message_merged_of_several_has_their_sums_answers_and_buffers() -> None:
    def one(client: int, *delta: float, each: bool) -> HostAnswers:
        reduction = Reduction(BITS, each)
        reduction.add(
            client, answer(1.0 + client, *delta, maxima={"top": vector(float(client))}, sums={"loss": vector(0.5)})
        )
        reduction.leave(LeftBuffers(client, 1, 10 * (client % 3), {"count": np.array(client)}))
        return reduction.result()

    for each in (False, True):
        parts = [one(client, client / 3, -1e30 * client, each=each) for client in range(5)]
        merged = [merge_hosts(parts[:2], BITS), merge_hosts(parts[2:], BITS)]
        several, few = reduce_hosts(parts, BITS), reduce_hosts(merged, BITS)
        assert (few.count, few.weight, few.maxima["top"].tolist()) == (several.count, several.weight, [4.0])
        for sums, expected in ((few.totals, several.totals), (few.sums, several.sums)):
            assert {name: total.tobytes() for name, total in sums.items()} == {
                name: total.tobytes() for name, total in expected.items()
            }
        if each:
            assert [v.tolist() for v in few.one_by_one("delta").vectors] == [
                v.tolist() for v in several.one_by_one("delta").vectors
            ]
        assert [left.client for part in merged for left in part.left] == [1, 2]  # the one with most samples
    with pytest.raises(RayflError, match="clients answered the same exchange with different names"):
        merge_hosts([parts[0], host((0, Answer(1.0, other=vector(1.0))))], BITS)


@pytest.mark.parametrize("weight", [-1e-9, float("nan"), float("inf"), LARGEST])
def test_a_weight_that_cannot_be_summed_is_refused(weight: float) -> None:
    with pytest.raises(RayflError, match=r"its answer has the weight .*; weights must be finite, not negative and"):
        host((0, answer(weight, 1.0)))


def test_weights_may_be_zero_but_not_all_of_them() -> None:
    found = reduce_hosts([host((0, answer(0.0, 5.0)), (1, answer(2.0, 1.0)))], BITS)
    assert (found.count, found.weight, found.totals["delta"].tolist()) == (2, 2.0, [2.0])
    tiny = 2.0**-BITS
    assert reduce_hosts([host((0, answer(tiny, 5.0)))], BITS).weight == tiny
    for nothing in (0.0, tiny / 4):
        with pytest.raises(RayflError, match=r"must add up to more than 0, but their sum is 0\.0"):
            reduce_hosts([host((0, answer(nothing, 5.0)))], BITS)


@pytest.mark.parametrize(
    ("answers", "each", "complaint"),
    [
        ([Answer(1.0)], False, "its Answer must contain at least one named vector"),
        ([Answer(1.0, sums={"s": vector(1.0)})], True, "contains no values, which an exchange with each=True needs"),
        (
            [Answer(1.0, sums={"a": vector(1.0)}, diagnostics={"a": vector(1.0)})],
            False,
            r"its Answer has \['a'\] both in sums and in diagnostics",
        ),
        (
            [answer(1.0, 1.0), Answer(1.0, change=vector(1.0))],
            False,
            r"its Answer has \['change'\], but those of other clients have \['delta'\]",
        ),
        (
            [answer(1.0, 1.0), Answer(1.0, sums={"delta": vector(1.0)})],
            False,
            r"its Answer has \['delta'\], but those of other clients have \['delta'\]",
        ),
        ([answer(1.0, 1.0), answer(1.0, 1.0, maxima={"m": vector(1.0)})], False, r"has \['delta', 'm'\]"),
    ],
)
def test_a_host_refuses_answers_that_cannot_be_reduced(answers: Sequence[Answer], each: bool, complaint: str) -> None:
    with pytest.raises(RayflError, match=complaint):
        host(*enumerate(answers), each=each)


def test_answers_that_are_kept_must_be_finite_and_alike() -> None:
    with pytest.raises(NotFiniteError):
        host((0, answer(1.0, float("nan"))), each=True)
    one = host((0, answer(1.0, 1.0)), each=True)
    with pytest.raises(RayflError, match=r"different numbers of values in 'delta': 1 \(client 0\) and 2 \(client 7\)"):
        reduce_hosts([host((7, answer(1.0, 1.0, 2.0)), each=True), one], BITS)
    with pytest.raises(RayflError, match=r"with different names: \['delta'\] and \['change'\]"):
        reduce_hosts([one, host((7, Answer(1.0, change=vector(1.0))), each=True)], BITS)


def test_hosts_must_answer_with_the_same_names() -> None:
    with pytest.raises(RayflError, match=r"different names: \[\['change'\], \['delta'\]\]"):
        reduce_hosts([host((0, answer(1.0, 1.0))), host((1, Answer(1.0, change=vector(1.0))))], BITS)


def test_a_discount_multiplies_values_and_neither_weights_nor_sums() -> None:
    def part(client: int, value: float) -> HostAnswers:
        return host((client, answer(2.0, value, sums={"loss": vector(value)})))

    found = reduce_discounted([part(0, 1.0), part(1, 3.0), part(2, 5.0)], [0.5, 1.0, 0.5], BITS)
    assert found.totals["delta"].tolist() == [2.0 * 3.0 + 0.5 * (2.0 * 1.0 + 2.0 * 5.0)]
    assert (found.count, found.weight, found.sums["loss"].tolist()) == (3, 6.0, [9.0])
    with pytest.raises(RayflError, match="each=True cannot be discounted"):
        reduce_discounted([host((0, answer(1.0, 1.0)), each=True)], [1.0], BITS)


def test_a_change_of_one_model_is_counted_from_another() -> None:
    """The client came from 2 to 5; from 1 that is a change by 4, of which half counts, with weight 3."""
    told = Answers(
        count=1, weight=3.0, totals={"delta": np.array([0.5 * 3.0 * 3.0]), "other": np.array([1.0])}, sums={}
    )
    found = counted_from(np.array([1.0], np.float32), np.array([2.0], np.float32), 0.5, told)
    assert found.totals["delta"].tolist() == [0.5 * 3.0 * 4.0]
    assert found.totals["other"].tolist() == [1.0]
    with pytest.raises(RayflError, match="mixing models needs 'delta' in the answers, but they hold other"):
        counted_from(np.zeros(1), np.zeros(1), 1.0, Answers(1, 1.0, {"other": np.zeros(1)}, {}))


def test_only_the_largest_clients_buffers_are_sent_unless_the_order_decides() -> None:
    left = [LeftBuffers(client, 1, size, {"seen": np.array(client)}) for client, size in ((4, 7), (2, 9), (1, 9))]
    for reduction, clients in ((Reduction(BITS), [1]), (Reduction(BITS, ordered=True), [4, 2, 1])):
        for one in left:
            reduction.leave(one)
        assert [one.client for one in reduction.result().left] == clients
