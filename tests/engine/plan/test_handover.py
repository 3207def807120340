"""Which tensors a phase's model takes over from another's."""

from __future__ import annotations

import numpy as np

from rayfl.engine.plan.workload import Handover, InitialModel
from rayfl.models.tensors import Slot


def model(*tensors: tuple[tuple[str, ...], tuple[int, ...]], fill: float, head: str = "") -> InitialModel:
    """Rows of one value, each tensor under all of its names."""
    slots, offset = [], 0
    for (name, *aliases), shape in tensors:
        strides = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
        slots.append(Slot(name, offset, shape, strides, True, tuple(aliases)))
        offset = slots[-1].end
    return InitialModel(np.full(offset, fill, np.float32), slots, head)


BEFORE = model((("body",), (2, 3)), (("wide",), (4,)), (("head.weight",), (5, 2)), (("gone",), (1,)), fill=1.0)
AFTER = model((("wide",), (3,)), (("head.weight",), (5, 2)), (("body",), (2, 3)), fill=2.0, head="head")
TIED = model((("embedding", "head.weight"), (5, 2)), (("head.bias",), (5,)), fill=2.0, head="head")


def taken(own: InitialModel, fresh_head: bool) -> dict[str, float]:
    vector = own.take(BEFORE.vector, BEFORE, fresh_head)
    return {slot.name: float(vector[slot.offset : slot.offset + slot.size].mean()) for slot in own.layout}


def test_tensors_with_the_same_name_and_shape_are_taken_and_the_rest_stays_as_initialised() -> None:
    assert taken(AFTER, fresh_head=False) == {"wide": 2.0, "head.weight": 1.0, "body": 1.0}
    assert AFTER.handover(BEFORE) == Handover(("head.weight", "body"), ("wide",), ("wide", "gone"))
    assert float(AFTER.vector.min()) == 2.0


def test_a_fresh_head_is_not_taken() -> None:
    assert taken(AFTER, fresh_head=True) == {"wide": 2.0, "head.weight": 2.0, "body": 1.0}
    assert AFTER.handover(BEFORE, fresh_head=True) == Handover(
        ("body",), ("wide", "head.weight"), ("wide", "head.weight", "gone")
    )


def test_a_tensor_that_the_head_shares_with_the_body_is_taken_by_any_of_its_names() -> None:
    assert taken(TIED, fresh_head=True) == {"embedding": 1.0, "head.bias": 2.0}


def test_it_is_told_in_a_line() -> None:
    assert AFTER.handover(BEFORE).summary() == "2 tensors taken, 1 fresh ('wide'), 2 not used ('gone', 'wide')"
