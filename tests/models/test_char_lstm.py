"""CharLSTM: the same function as PyTorch's stacked LSTM; one bias vector or two; weights that stay in place."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from rayfl.models.flat import FlatModel
from rayfl.models.text import CharLSTM


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_layers_compute_what_pytorch_s_stacked_lstm_computes(layers: int) -> None:
    torch.manual_seed(0)
    network = CharLSTM(20, (12,), layers=layers, hidden=16)
    stacked = nn.LSTM(8, 16, num_layers=layers, batch_first=True)
    stacked.load_state_dict(
        {
            name.removeprefix(f"lstm.{layer}.").replace("_l0", f"_l{layer}"): tensor
            for layer in range(layers)
            for name, tensor in network.state_dict().items()
            if name.startswith(f"lstm.{layer}.")
        }
    )
    x = torch.randint(20, (5, 12))
    outputs, _ = stacked(network.embedding(x))
    torch.testing.assert_close(network(x), network.classifier(outputs[:, -1]))


def test_one_bias_trains_as_pytorch_s_two_at_half_the_rate_of_their_sum() -> None:
    torch.manual_seed(0)
    one, two = CharLSTM(20, (12,), hidden=16, biases=1), CharLSTM(20, (12,), hidden=16)
    two.load_state_dict(one.state_dict())
    x, y = torch.randint(20, (5, 12)), torch.randint(20, (5,))
    steps = []
    for network in (one, two):
        model = FlatModel(network, torch.device("cpu"))
        first = network.lstm[0]
        before = first.get_parameter("bias_ih_l0") + first.get_parameter("bias_hh_l0").detach().clone()
        torch.autograd.backward(functional.cross_entropy(network(x), y))
        model.params.sub_(model.gradient)
        steps.append(first.get_parameter("bias_ih_l0") + first.get_parameter("bias_hh_l0") - before)
    torch.testing.assert_close(2 * steps[0], steps[1])
    assert not steps[0].eq(0).all()


def test_the_second_bias_stays_zero_with_one_bias() -> None:
    network = CharLSTM(20, (12,), hidden=16, biases=1)
    model = FlatModel(network, torch.device("cpu"))
    torch.autograd.backward(functional.cross_entropy(network(torch.randint(20, (5, 12))), torch.randint(20, (5,))))
    model.params.sub_(model.gradient)
    assert all((layer.get_parameter("bias_hh_l0") == 0).all() for layer in network.lstm)
    assert model.num_params == sum(p.numel() for p in network.parameters()) - 2 * 4 * 16


def test_a_sequence_of_another_length_is_read_to_its_own_last_character() -> None:
    network = CharLSTM(20, (12,), hidden=16)
    x = torch.randint(20, (5, 30))
    changed = x.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 20
    assert network(x).shape == (5, 20)
    assert not torch.isclose(network(x), network(changed)).all(dim=1).any()


@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda",
            marks=[
                pytest.mark.gpu,
                pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device"),
            ],
        ),
    ],
)
def test_the_weights_stay_in_the_flat_vector_when_others_are_used_for_once(device: str) -> None:
    torch.manual_seed(0)
    model = FlatModel(CharLSTM(20, (12,), hidden=16), torch.device(device))
    x, y = torch.randint(20, (5, 12), device=device), torch.randint(20, (5,), device=device)
    before = model.module(x)
    with model.frozen_copy(torch.zeros_like(model.vector)) as zeros:
        assert (zeros.module(x) == 0).all()
    assert torch.equal(model.module(x), before)
    torch.autograd.backward(functional.cross_entropy(model.module(x), y))
    model.check()
    model.params.sub_(model.gradient)
    assert not torch.isclose(model.module(x), before).all()
