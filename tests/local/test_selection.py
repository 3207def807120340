"""What of a network trains: names, ties, modes, and what is sent."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from rayfl.config.local import Train, Unfreezing
from rayfl.engine.plan.message_sizes import MessageSizes
from rayfl.errors import ScenarioError
from rayfl.local.batches import TrainingBatch
from rayfl.local.context import ClientContext
from rayfl.local.requests import ClientUpdate, LocalTraining
from rayfl.local.training_plan import select, trained_units
from rayfl.models.flat import FlatModel
from rayfl.models.network import Network
from tests.algorithms.scene import INPUTS
from tests.local.bench import Bench
from tests.models.test_tied import Tied


class Normed(Network):
    """Dense layers with batch norm and dropout, in a block and outside of it, and an LSTM."""

    ordered_modules = ("lstm", "block", "norm", "head")
    feature_layer = "head"

    def __init__(self, num_classes: int = 3) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, 2, num_layers=2, dropout=0.5, batch_first=True)
        self.block = nn.Sequential(nn.Linear(2, 6), nn.BatchNorm1d(6), nn.Dropout(0.5))
        self.norm = nn.BatchNorm1d(6)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(6, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features, _ = self.lstm(x[..., None])
        logits: torch.Tensor = self.head(self.dropout(self.norm(self.block(features[:, -1]))))
        return logits


def chosen(*train: Train, network: nn.Module | None = None) -> tuple[set[str], tuple[str, ...]]:
    """The modules in which something changes, and those in evaluation mode."""
    selection = select(train, network or Normed())
    assert selection
    return {name.rpartition(".")[0] for name in selection.tensors}, selection.frozen


def test_all_restricts_nothing() -> None:
    assert select(["all", "all"], Normed()) is None
    assert select([], nn.Linear(1, 1)) is None


def test_head_body_and_modules() -> None:
    assert chosen("head") == ({"head"}, ("block", "lstm", "norm"))
    assert chosen("body") == ({"lstm", "block.0", "block.1", "norm"}, ("head",))
    assert chosen(("block.0", "norm")) == ({"block.0", "norm"}, ("block.1", "head", "lstm"))
    assert chosen(("block",), "body") == ({"block.0", "block.1"}, ("head", "lstm", "norm"))
    assert chosen(("0",), network=nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1))) == ({"0"}, ("2",))


def test_parameters_and_patterns() -> None:
    selection = select([("block.0.bias", "*.1", "*_hh_l?")], Normed())
    assert selection
    recurrent = {f"lstm.{kind}_hh_l{layer}" for kind in ("weight", "bias") for layer in (0, 1)}
    statistics = {
        f"block.1.{name}" for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    }
    assert selection.tensors == {"block.0.bias"} | statistics | recurrent
    assert selection.frozen == ("head", "norm")
    assert chosen(("head*",)) == ({"head"}, ("block", "lstm", "norm"))


def test_a_pattern_that_names_a_tied_parameter_by_one_of_its_names_trains_it() -> None:
    selection = select([("dec*.weight",)], Tied())
    assert selection
    assert selection.tensors == {"embedding.weight", "decoder.weight"}


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ("*.blok", "train: no module and no parameter of model Normed matches '*.blok'; did you mean 'block'?"),
        (
            "block.0.wieght",
            "train: model Normed has no module or parameter 'block.0.wieght'; did you mean 'block.0.weig",
        ),
        ("blck", "train: model Normed has no module 'blck'; did you mean 'block'"),
        ("*.running_*", "train: '*.running_*' names only what model Normed does not train; it trains 'block.0.bias', "),
    ],
)
def test_a_name_that_nothing_has_is_refused_with_similar_ones(train: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        select([(train,)], Normed())
    assert str(caught.value).startswith(message)


def test_a_tied_parameter_trains_if_any_of_its_owners_does() -> None:
    selection = select([("embedding",)], Tied())
    assert selection
    assert selection.tensors == {"embedding.weight", "decoder.weight"}
    assert selection.frozen == ("hidden",)
    selection = select([("decoder",)], Tied())
    assert selection
    assert selection.tensors == {"embedding.weight", "decoder.weight", "decoder.bias"}


@pytest.mark.parametrize("train", ["head", "body"])
def test_a_head_that_is_tied_into_the_body_is_not_cut_off(train: Train) -> None:
    with pytest.raises(ScenarioError) as caught:
        select([train], Tied())
    assert str(caught.value) == (
        "train: the head of model Tied cannot be cut off: 'decoder.weight' and 'embedding.weight' are one tensor (tied "
        "weights); give names of modules"
    )


def test_only_what_may_train_thaws() -> None:
    network = Normed()
    units = trained_units(Unfreezing(share=1.0), select([("block.1", "head")], network), network)
    assert units == [{"block.1.weight", "block.1.bias"}, {"head.weight", "head.bias"}]
    tied = trained_units(Unfreezing(share=1.0), None, Tied())
    assert tied[0] == {"embedding.weight"}


def test_frozen_parameters_and_statistics_are_neither_sent_nor_counted() -> None:
    model = FlatModel(Normed(), torch.device("cpu"))
    norm, block = 2 * 6, 2 * 6 + 6 + 2 * 6

    def sent(train: Train, buffers: bool = True) -> tuple[int, int]:
        sizes = MessageSizes(model, select([train], model.module), buffers)
        return sizes.num_params, sizes.num_buffers

    assert sent("all") == (model.num_params, 24)
    assert sent("head") == (6 * 3 + 3, 0)
    assert sent("body") == (model.num_params - 21, 24)
    assert sent(("norm", "block.0")) == (norm + 18, 12)
    assert sent(("block",)) == (block, 12)
    assert sent(("block",), buffers=False) == (block, 0)


def trained_by_client(train: Train) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], set[str]]:
    """Every tensor before and after one client's update, and the modules that were in training mode during it."""
    bench = Bench(model=f"{__name__}:Normed")
    training: set[str] = set()

    def watch(batch: TrainingBatch) -> torch.Tensor:
        training.update(name for name, module in bench.model.module.named_modules() if module.training)
        return batch.outputs.new_zeros(())

    def update(client: ClientContext) -> ClientUpdate[torch.Tensor]:
        trained: torch.Tensor = yield LocalTraining(bench.initial, terms=(watch,))
        return trained

    local = {"batch_size": 8, "momentum": 0.5, "weight_decay": 0.1}
    trained = bench.run(bench.client(4, local, train=(train,)), update)
    return bench.model.state_dict(bench.initial), bench.model.state_dict(trained), training


BODY = ("lstm", "block", "block.0", "block.1", "block.2", "norm")


@pytest.mark.parametrize(
    ("train", "moved", "in_training"),
    [
        ("head", {"head"}, {"", "head", "dropout", "lstm"}),
        ("body", {"lstm", "block.0", "block.1", "norm"}, {"", *BODY, "dropout"}),
        (("block.0",), {"block.0"}, {"", "lstm", "block", "block.0", "block.2", "dropout"}),
    ],
    ids=["head", "body", "block.0"],
)
def test_frozen_modules_keep_their_statistics_and_compute_in_evaluation_mode(
    train: Train, moved: set[str], in_training: set[str]
) -> None:
    """A frozen LSTM stays in training mode without its dropout, since cuDNN goes backwards in that mode alone."""
    before, after, training = trained_by_client(train)
    changed = {name.rpartition(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert changed == moved
    assert training == in_training


def test_the_dropout_of_a_frozen_lstm_is_off_and_comes_back() -> None:
    bench = Bench(model=f"{__name__}:Normed")
    lstm = bench.model.module.get_submodule("lstm")
    seen: list[Any] = []

    def watch(batch: TrainingBatch) -> torch.Tensor:
        seen.append(lstm.dropout)
        return batch.outputs.new_zeros(())

    def update(client: ClientContext) -> ClientUpdate[None]:
        yield LocalTraining(bench.initial, terms=(watch,))

    bench.run(bench.client(4, {"batch_size": 8}, train=("head",)), update)
    assert set(seen) == {0.0}
    assert lstm.dropout == 0.5
    assert lstm.training


def test_the_inputs_fit_the_network() -> None:
    assert Normed()(torch.zeros(2, INPUTS)).shape == (2, 3)
