"""What is checked in a client's answer, added to it and left out of it before it is summed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rayfl.algorithms.exchange import Answer
from rayfl.algorithms.transforms import Encoded
from rayfl.engine.answers import add_diagnostics, apply_transforms, check_lengths
from rayfl.errors import RayflError

MODEL: Any = SimpleNamespace(params=torch.zeros(4), vector=torch.zeros(6))
"""Four values of parameters, two of buffers."""

CLIENT: Any = SimpleNamespace(num_params=4, num_values=3)
"""One of the four is padding."""


@pytest.mark.parametrize("length", [4, 6])
def test_a_vector_has_the_length_of_the_parameters_or_of_the_whole_model(length: int) -> None:
    check_lengths(Answer(delta=torch.zeros(length), other=torch.zeros(1)), ["delta", "missing"], MODEL)


@pytest.mark.parametrize(
    ("vector", "complaint"),
    [
        (torch.zeros(5), r"'delta' of 5 values; it must have 4 \(the parameters' part .* or 6 \(the whole vector\)"),
        (torch.zeros(4, dtype=torch.int64), "'delta' of dtype torch.int64, which holds no fractions"),
        ([0.0] * 4, "'delta' as a list, not a torch.Tensor"),
    ],
)
def test_any_other_vector_is_refused_in_values_and_in_sums(vector: Any, complaint: str) -> None:
    for answer in (Answer(delta=vector), Answer(sums={"delta": vector})):
        with pytest.raises(RayflError, match=complaint):
            check_lengths(answer, ["delta"], MODEL)


class Noted:
    """A rule that says what change it was asked about."""

    rule = "all"

    def __init__(self, reads: bool) -> None:
        self.reads_trained = reads

    def diagnose(self, *asked: Any) -> dict[str, torch.Tensor]:
        return {type(self).__name__: next(one for one in reversed(asked) if isinstance(one, torch.Tensor))}


class Diverging(Noted): ...


def plan(evaluated: bool, diagnosed: bool) -> Any:
    return SimpleNamespace(evaluated=Noted(evaluated), diagnostics=Diverging(diagnosed))


@pytest.mark.parametrize(("evaluated", "diagnosed"), [(True, False), (False, True)])
def test_the_change_is_that_of_the_trained_model_or_else_the_delta(evaluated: bool, diagnosed: bool) -> None:
    sent, delta = torch.tensor([1.0, 2.0]), torch.tensor([9.0, 9.0])
    for answer, change in (
        (Answer(trained=torch.tensor([1.5, 5.0]), delta=delta), [0.5, 3.0]),
        (Answer(delta=delta), [9.0, 9.0]),
    ):
        add_diagnostics(plan(evaluated, diagnosed), CLIENT, answer, [sent], True)
        assert {name: one.tolist() for name, one in answer.diagnostics.items()} == {
            "Noted": change,
            "Diverging": change,
        }


def test_nothing_is_added_where_nobody_asks_or_nothing_was_trained_or_lengths_differ() -> None:
    sent = torch.zeros(2)
    for asked, answer in (
        (False, Answer(delta=sent)),
        (True, Answer(loss=sent)),
        (True, Answer(delta=torch.zeros(1))),
    ):
        add_diagnostics(plan(asked, asked), CLIENT, answer, [sent], True)
        assert not answer.diagnostics


def test_a_trained_model_needs_one_that_was_sent_of_its_shape() -> None:
    for evaluated, wanted in ((True, r"eval_model = 'all'"), (False, r"report = \['divergence'\]")):
        with pytest.raises(RayflError, match=f"{wanted} needs the model that clients train from"):
            add_diagnostics(plan(evaluated, True), CLIENT, Answer(delta=torch.zeros(2)), [], True)
    with pytest.raises(RayflError, match=r"a trained model of shape \[3\], but was sent one of shape \[2\]"):
        add_diagnostics(plan(True, True), CLIENT, Answer(trained=torch.zeros(3)), [torch.zeros(2)], True)


class First:
    """Sends the first value alone, in 16 bits, with 5 bits more."""

    def transform(self, client: Any, name: str, message: Encoded) -> Encoded:
        values = torch.zeros_like(message.values)
        values[0] = message.values[0]
        return replace(message, values=values, count=1, value_bits=16, extra_bits=5)


def test_transforms_leave_buffers_alone_and_save_what_is_not_sent() -> None:
    made: Any = SimpleNamespace(transforms=[First()], sent_vectors=("delta", "control", "missing"))
    answer = Answer(delta=torch.arange(1.0, 7.0), sums={"control": torch.arange(1.0, 5.0), "loss": torch.ones(1)})
    saved = apply_transforms(made, CLIENT, answer, [slice(0, CLIENT.num_params)])
    assert answer.values["delta"].tolist() == [1.0, 0.0, 0.0, 0.0, 5.0, 6.0]
    assert answer.sums["control"].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert answer.sums["loss"].tolist() == [1.0]
    assert saved == (2 * (3 - 1), 2 * (3 * 32 - (16 + 5)))
    answer = Answer(delta=torch.arange(1.0, 7.0))
    apply_transforms(made, CLIENT, answer, [slice(1, 2), slice(3, 5)])
    assert answer.values["delta"].tolist() == [1.0, 2.0, 3.0, 0.0, 0.0, 6.0]
    made.transforms = []
    assert apply_transforms(made, CLIENT, answer, [slice(0, CLIENT.num_params)]) == (0, 0)
