"""What a step and a client cost on a GPU does not grow unnoticed: kernels, copies, bytes and waits, counted."""

from __future__ import annotations

import pytest
import torch

from rayfl.algorithms import algorithms
from tests.pretend_cuda.contracts import CASES, Case, contract, recorded
from tests.pretend_cuda.test_pretend_cuda import AsksInEveryStep

KNOWN_TO_WAIT = {"perfedavg", "DP-SGD"}
"""Their steps fetch their own batches; the one looks whether a batch has changed a buffer, the other for NaN."""

ANEW = "python -m tests.pretend_cuda.contracts"


@pytest.mark.parametrize("name", CASES)
def test_a_way_of_training_keeps_its_contract(name: str) -> None:
    golden = recorded()
    found, agreed = contract(CASES[name]), golden["contracts"][name]
    if torch.__version__ != golden["torch"]:  # another PyTorch splits functions into other operators
        found, agreed = ({of: count | {"kernels": 0} for of, count in each.items()} for each in (found, agreed))
    grown = [
        f"{what} a {of}: {count[what]}, were {agreed[of][what]}"
        for of, count in found.items()
        for what in count
        if count[what] > agreed[of][what]
    ]
    assert not grown, f"{'; '.join(grown)} (if it has to be so: {ANEW} '{name}')"
    assert found == agreed, f"it got cheaper: keep that with {ANEW} '{name}'"


def test_contracts_are_those_of_the_cases_and_all_algorithms_have_one() -> None:
    assert [*recorded()["contracts"]] == [*CASES]
    # fedbn trains as fedavg does; orchestra clusters until it converges, so its counts depend on values
    assert {*algorithms} - {*CASES} == {"fedbn", "orchestra"}


def test_no_step_waits_and_none_copies_within_an_epoch() -> None:
    steps = {name: costs["step"] for name, costs in recorded()["contracts"].items() if "step" in costs}
    assert len(steps) > 25
    assert {name for name, count in steps.items() if count["waits"] or count["copies"]} == KNOWN_TO_WAIT


def test_a_kernel_or_a_wait_more_is_noticed() -> None:
    case = CASES["dropout, batch norm, augmentation"]
    careless = Case(case.phase, {**case.tables, "model": f"{AsksInEveryStep.__module__}:AsksInEveryStep"})
    usual, grown = recorded()["contracts"]["dropout, batch norm, augmentation"], contract(careless)
    assert grown["step"]["waits"] == usual["step"]["waits"] + 1
    assert grown["step"]["kernels"] > usual["step"]["kernels"]
