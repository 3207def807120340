"""That the pretended GPU behaves as one: values, devices, refusals, and the counts of copies and waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.pretend_cuda.device import PretendCuda, pretend_cuda


@pytest.fixture
def gpu() -> Iterator[PretendCuda]:
    with pretend_cuda() as gpu:
        yield gpu


def on_gpu(*values: float) -> Tensor:
    return torch.tensor(values, device="cuda")


@pytest.mark.parametrize(
    ("operation", "copies", "waits"),
    [
        (lambda x: x + 1, 0, 0),
        (lambda x: x * torch.tensor(2.0), 0, 0),
        (lambda x: x.to("cuda"), 0, 0),
        (lambda x: torch.zeros(3, device="cuda") + x.new_ones(3), 0, 0),
        (lambda x: x.item(), 0, 1),
        (lambda x: float(x), 0, 1),
        (lambda x: bool(x > 0), 0, 1),
        (lambda x: x.nonzero(), 0, 1),
        (lambda x: x[x > 0], 0, 1),
        (lambda x: torch.equal(x, x + 1), 0, 1),
        (lambda x: torch.cuda.synchronize(), 0, 1),
        (lambda x: x.tolist(), 1, 1),
        (lambda x: x.cpu(), 1, 1),
        (lambda x: x.to("cpu", non_blocking=True), 1, 0),
        (lambda x: torch.ones(3).cuda(), 1, 1),
        (lambda x: torch.ones(3).pin_memory().to(x.device, non_blocking=True), 1, 0),
        (lambda x: torch.tensor([1.0, 2.0], device="cuda"), 1, 1),
        (lambda x: x.new_tensor([1.0, 2.0]), 1, 1),
        (lambda x: torch.vmap(lambda row: row + 1)(x), 0, 0),
        (lambda x: x.copy_(torch.ones(1)), 1, 1),
        (lambda x: torch.ones(1).copy_(x), 1, 1),
        (lambda x: x[torch.tensor([0, 0])], 1, 1),
    ],
)
def test_copies_and_waits_are_counted(
    operation: Callable[[Tensor], object], copies: int, waits: int, gpu: PretendCuda
) -> None:
    x = on_gpu(3.0)
    gpu.count.clear()
    operation(x)
    assert (gpu.count["copies"], gpu.count["waits"]) == (copies, waits)


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x + torch.ones(2),
        lambda x: torch.stack([x, torch.ones(2)]),
        lambda x: F.linear(x, torch.ones(1, 2)),
        lambda x: x.add_(torch.ones(2)),
        lambda x: torch.ones(2).add_(x),
        lambda x: nn.Linear(2, 1)(x),
    ],
)
def test_devices_do_not_mix(operation: Callable[[Tensor], object], gpu: PretendCuda) -> None:
    x = on_gpu(1.0, 2.0)
    with pytest.raises(RuntimeError, match="expected all tensors to be on the same device"):
        operation(x)


def test_a_tensor_on_the_gpu_says_so_and_so_do_its_views_copies_and_results(gpu: PretendCuda) -> None:
    x = on_gpu(1.0, 2.0, 3.0)
    for tensor in (x, x[1:], x.clone(), x * 2, x.double(), torch.zeros_like(x), x.new_zeros(2), x.detach().numel() * x):
        assert (tensor.device, tensor.is_cuda, tensor.is_cpu) == (torch.device("cuda", 0), True, False)
    for tensor in (x.cpu(), x.cpu() + 1, torch.zeros(3), torch.zeros_like(x, device="cpu")):
        assert (tensor.device, tensor.is_cuda, tensor.is_cpu) == (torch.device("cpu"), False, True)


def test_a_module_and_its_gradients_move_and_compute_as_on_the_cpu(gpu: PretendCuda) -> None:
    module, x = nn.Linear(2, 1), torch.tensor([[1.0, -2.0]])
    expected = torch.autograd.grad(module(x).square().sum(), module.weight)[0]
    module.to("cuda")
    module(x.cuda()).square().sum().backward()
    gradient = module.weight.grad
    assert gradient is not None
    assert gradient.device == torch.device("cuda", 0)
    assert gradient.cpu().numpy().tolist() == expected.numpy().tolist()


def test_there_is_no_numpy_on_a_gpu(gpu: PretendCuda) -> None:
    with pytest.raises(TypeError, match=r"Use Tensor\.cpu"):
        on_gpu(1.0).numpy()


def test_backward_through_an_lstm_needs_training_mode(gpu: PretendCuda) -> None:
    lstm, x = nn.LSTM(2, 3).to("cuda"), torch.zeros(4, 1, 2, device="cuda")
    lstm(x)[0].sum().backward()
    lstm.eval()
    with torch.no_grad():
        lstm(x)
    with pytest.raises(RuntimeError, match="training mode"):
        lstm(x)[0].sum().backward()


def test_the_machine_is_as_before_in_the_end() -> None:
    available, deterministic = torch.cuda.is_available(), torch.backends.cudnn.deterministic
    with pretend_cuda():
        torch.backends.cudnn.deterministic = not deterministic
        assert torch.cuda.is_available()
    assert torch.cuda.is_available() == available
    assert torch.backends.cudnn.deterministic == deterministic
