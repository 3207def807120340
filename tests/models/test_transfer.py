"""Weights by name: what a rule covers keeps the new model's values, and everything else must match."""

from __future__ import annotations

import copy
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import nn

from rayfl.errors import DataError, ScenarioError
from rayfl.models.cnn import LeNet5
from rayfl.models.flat import FlatModel
from rayfl.models.heads import projected
from rayfl.models.mlp import MLP
from rayfl.models.resnet import ResNet8
from rayfl.models.transfer import transfer

CPU = torch.device("cpu")
HEAD = {"fc3.weight", "fc3.bias"}


def state_of(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def test_without_rules_all_values_are_taken_and_nothing_changes() -> None:
    source, target = state_of(ResNet8()), FlatModel(ResNet8(), CPU)
    before, kept = target.vector.clone(), copy.deepcopy(source)
    result = transfer(source, target)
    assert torch.equal(target.vector, before)
    torch.testing.assert_close(source, kept, rtol=0, atol=0)
    target.load(result.vector)
    torch.testing.assert_close(target.state_dict(), source, rtol=0, atol=0)
    assert result.taken == tuple(source)
    assert (result.fresh, result.unmatched) == ((), ())
    assert not result.discrete, "batch norm's counters are not taken"


def test_batch_norms_counters_may_be_missing() -> None:
    source = {name: value for name, value in state_of(ResNet8()).items() if "tracked" not in name}
    target = FlatModel(ResNet8(), CPU)
    result = transfer(source, target)
    assert result.taken == tuple(source)
    assert result.summary() == f"{len(source)} tensors taken"


class Flagged(nn.Linear):
    """A weight with a flag and a counter."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.register_buffer("flag", torch.tensor(False))
        self.register_buffer("num_batches_tracked", torch.tensor([1, 2]))


def test_integers_and_flags_are_taken_in_their_own_types() -> None:
    target = FlatModel(Flagged(), CPU)
    source = state_of(Flagged()) | {"flag": torch.tensor(True), "num_batches_tracked": torch.tensor([2**40 + 1, 5])}
    expected = {name: source[name] for name in ("flag", "num_batches_tracked")}
    torch.testing.assert_close(dict(transfer(source, target).discrete), expected, rtol=0, atol=0)
    kept = transfer(source, target, ignore=["flag"])
    assert not kept.discrete["flag"]
    with pytest.raises(DataError, match=r"'flag' is torch.float32, this model's is torch.bool"):
        transfer(source | {"flag": torch.tensor(1.0)}, target)
    with pytest.raises(DataError, match=r"lacks 'num_batches_tracked' of this model"):
        transfer({name: value for name, value in source.items() if "tracked" not in name}, target)


class Masked(nn.Linear):
    """A weight, a mask, and a threshold which may be infinite."""

    def __init__(self, since: int, threshold: float = 0.0) -> None:
        super().__init__(2, 2)
        self.register_buffer("mask", torch.zeros(8).index_fill(0, torch.arange(since, 8), -torch.inf))
        self.register_buffer("threshold", torch.tensor([threshold, 0.5]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_constants_with_infinities_must_be_those_of_the_model(dtype: torch.dtype) -> None:
    target = FlatModel(Masked(5, torch.nan), CPU)
    source = {name: value.to(dtype) for name, value in state_of(Masked(5, torch.nan)).items()}
    assert transfer(source, target).taken == ("weight", "bias", "mask", "threshold")
    other = state_of(Masked(3, torch.nan))
    message = "^w.pt: 'mask' differs from this model's, which holds infinities or NaN and is constant: build the model"
    with pytest.raises(DataError, match=message):
        transfer(other, target, where="w.pt")
    with pytest.raises(DataError, match="'mask' differs"):
        target.load_state_dict(other)
    assert transfer(other, target, ignore=["mask"]).fresh == ("mask",)


@pytest.mark.parametrize("name", ["threshold", "weight"])
@pytest.mark.parametrize("value", [torch.inf, torch.nan, 1e300])
def test_values_of_the_vector_must_be_finite(name: str, value: float) -> None:
    source = {name: values.double() for name, values in state_of(Masked(5)).items()}
    source[name].view(-1)[0] = value
    with pytest.raises(DataError, match=f"^w.pt: '{name}' holds infinities or NaN, this model's is finite$"):
        transfer(source, FlatModel(Masked(5), CPU), where="w.pt")


def test_a_fresh_head_lets_a_model_go_on_with_other_classes() -> None:
    source, target = state_of(LeNet5(num_classes=100)), FlatModel(LeNet5(num_classes=10), CPU)
    initial = target.state_dict()
    result = transfer(source, target, head="fresh")
    after = target.state_dict(result.vector)
    for name, value in after.items():
        assert torch.equal(value, initial[name] if name in HEAD else source[name])
    assert set(result.fresh) == HEAD
    assert not HEAD & set(result.taken)
    assert result.summary() == "8 tensors taken, 2 fresh ('fc3.bias', 'fc3.weight')"


def test_a_fresh_head_stays_fresh_where_the_sources_would_fit() -> None:
    source, target = state_of(LeNet5()), FlatModel(LeNet5(), CPU)
    result = transfer(source, target, head="fresh")
    assert torch.equal(target.state_dict(result.vector)["fc3.weight"], target.state_dict()["fc3.weight"])


def test_ignored_names_keep_their_values_or_are_left_out_of_the_source() -> None:
    source, target = state_of(projected("lenet5", 10, (32, 32, 3))), FlatModel(LeNet5(), CPU)
    result = transfer(source, target, ignore=["fc3.*", "conv1.bias"])
    assert set(result.fresh) == HEAD | {"conv1.bias"}
    assert set(result.unmatched) == {name for name in source if name.startswith("fc3.")}
    assert torch.equal(target.state_dict(result.vector)["conv2.weight"], source["conv2.weight"])
    assert "6 not used ('fc3.classifier.bias', " in result.summary()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_are_converted(dtype: torch.dtype) -> None:
    source, target = {name: value.to(dtype) for name, value in state_of(LeNet5()).items()}, FlatModel(LeNet5(), CPU)
    after = target.state_dict(transfer(source, target).vector)
    assert torch.equal(after["fc1.weight"], source["fc1.weight"].float())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fc1.bias": None}, "weights.bin: lacks 'fc1.bias' of this model"),
        ({"head": torch.zeros(1)}, "weights.bin: has 'head', which this model does not have"),
        ({"fc1.bias": torch.zeros(3)}, "weights.bin: 'fc1.bias' has shape (3,), this model's has (120,)"),
        ({"fc1.bias": [0.0] * 120}, "weights.bin: 'fc1.bias' is of type list, not a tensor"),
        ({"fc1.bias": torch.zeros(120).int()}, "weights.bin: 'fc1.bias' is torch.int32, this model's is torch.float32"),
        (
            {"fc1.bias": None, "epoch": 3},
            "weights.bin: lacks 'fc1.bias' of this model; has 'epoch', which this model does not have",
        ),
    ],
)
def test_tensors_that_no_rule_covers_are_an_error_that_lists_their_names(change: dict[str, Any], message: str) -> None:
    source = {name: value for name, value in (state_of(LeNet5()) | change).items() if value is not None}
    with pytest.raises(DataError) as caught:
        transfer(source, FlatModel(LeNet5(), CPU), head="fresh", where="weights.bin")
    assert str(caught.value) == message


def test_many_mismatches_are_counted() -> None:
    source = {name: torch.zeros(7) for name in state_of(LeNet5())}
    with pytest.raises(DataError, match=r"'conv1\.weight' has shape \(7,\).*; and 5 more like these$"):
        transfer(source, FlatModel(LeNet5(), CPU))


def test_a_pattern_without_effect_is_rejected() -> None:
    with pytest.raises(ScenarioError, match=r"ignore: 'layer9\.\*' matches no name"):
        transfer(state_of(LeNet5()), FlatModel(LeNet5(), CPU), ignore=["layer9.*"])


def test_rules_that_leave_nothing_are_rejected() -> None:
    with pytest.raises(ScenarioError, match="the rules leave nothing to transfer"):
        transfer(state_of(LeNet5()), FlatModel(LeNet5(), CPU), ignore=["*"])


def test_a_fresh_head_needs_a_network_that_declares_one() -> None:
    with pytest.raises(ScenarioError, match="model Linear does not declare its head; derive the class from"):
        transfer(nn.Linear(2, 2).state_dict(), FlatModel(nn.Linear(2, 2), CPU), head="fresh")


NAMES = [f"layers.{i}.{kind}" for i in range(4) for kind in ("weight", "bias")]


@given(
    ignored=st.sets(st.sampled_from(NAMES), max_size=7),
    missing=st.sets(st.sampled_from(NAMES)),
    reshaped=st.sets(st.sampled_from(NAMES)),
    extra=st.sets(st.sampled_from(["extra.a", "extra.b", "extra.c"])),
    extra_ignored=st.sets(st.sampled_from(["extra.a", "extra.b", "extra.c"])),
    head=st.sampled_from(["keep", "fresh"]),
)
def test_every_value_is_the_sources_unless_a_rule_covers_its_name(
    ignored: set[str], missing: set[str], reshaped: set[str], extra: set[str], extra_ignored: set[str], head: Any
) -> None:
    target = FlatModel(MLP(2, (3,), hidden=(4, 5, 4)), CPU)
    initial = target.state_dict()
    source = {name: torch.randn(9) if name in reshaped else torch.randn_like(v) for name, v in initial.items()}
    source = {name: v for name, v in source.items() if name not in missing} | {name: torch.ones(1) for name in extra}
    ignore = sorted(ignored | (extra_ignored & extra))
    covered = set(ignore) | ({"layers.3.weight", "layers.3.bias"} if head == "fresh" else set())
    if (missing | reshaped | extra) - covered or covered >= set(NAMES):
        with pytest.raises((DataError, ScenarioError)) as caught:
            transfer(source, target, head, ignore)
        assert isinstance(caught.value, DataError) == bool((missing | reshaped | extra) - covered)
        return
    result = transfer(source, target, head, ignore)
    after = target.state_dict(result.vector)
    for name in NAMES:
        assert torch.equal(after[name], initial[name] if name in covered else source[name])
    assert set(result.taken) | set(result.fresh) == set(NAMES)
    assert set(result.fresh) == covered & set(NAMES)
    assert set(result.unmatched) == extra
    padding = torch.ones(len(result.vector), dtype=torch.bool)
    for slot in target.layout:
        padding[slot.offset : slot.offset + slot.size] = False
    assert (result.vector[padding] == 0).all()
