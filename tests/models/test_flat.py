"""Flat models: the same training as torch.optim.SGD on a plain copy, in one vector with persistent views."""

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.nn import functional

from rayfl.errors import DataError, ScenarioError
from rayfl.models.cnn import LeNet5
from rayfl.models.flat import FlatModel
from rayfl.models.network import Network

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def one_thread_and_a_seed() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


class Residual(nn.Module):
    """A residual block with batch norm and a 1x1 convolution, from one channel."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 5, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(5)
        self.shortcut = nn.Conv2d(5, 7, 1)
        self.body = nn.Conv2d(5, 7, 3, padding=1)
        self.fc = nn.Linear(7, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.norm(self.stem(x)))
        x = functional.relu(self.body(x) + self.shortcut(x))
        logits: torch.Tensor = self.fc(x.mean(dim=(2, 3)))
        return logits


class CharLSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.lstm = nn.LSTM(8, 9, num_layers=2, batch_first=True)
        self.fc = nn.Linear(9, 11)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.fc(self.lstm(self.embedding(x))[0][:, -1])
        return logits


class Counting(nn.Module):
    """Integer, boolean and non-persistent buffers beside a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.register_buffer("steps", torch.tensor(5))
        self.register_buffer("mask", torch.tensor([True, False, True]))
        self.register_buffer("scale", torch.tensor([1.5, 2.5]))
        self.register_buffer("constant", torch.arange(3, dtype=torch.float64), persistent=False)

    steps: torch.Tensor
    mask: torch.Tensor
    scale: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps.add_(1)
        logits: torch.Tensor = self.fc(x * self.mask) * self.scale
        return logits


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "lenet5": (LeNet5, lambda: torch.randn(6, 3, 32, 32)),
    "residual": (Residual, lambda: torch.randn(6, 1, 9, 9)),
    "char_lstm": (CharLSTM, lambda: torch.randint(0, 11, (6, 12))),
    "counting": (Counting, lambda: torch.randn(6, 3)),
}


@pytest.fixture(params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def batches(name: str, steps: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(MODELS[name][1](), torch.randint(0, 2, (6,))) for _ in range(steps)]


@pytest.mark.parametrize("channels_last", [False, True])
def test_steps_of_sgd_equal_those_of_torch_on_a_plain_copy(name: str, channels_last: bool) -> None:
    plain = MODELS[name][0]()
    flat = FlatModel(copy.deepcopy(plain), CPU, channels_last)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    momentum = torch.zeros_like(flat.params)
    for x, y in batches(name, 5):
        optimizer.zero_grad()
        torch.autograd.backward(functional.cross_entropy(plain(x), y))
        optimizer.step()
        flat.zero_gradient()
        torch.autograd.backward(functional.cross_entropy(flat.module(x), y))
        momentum.mul_(0.9).add_(flat.gradient.add_(flat.params, alpha=1e-3))
        flat.params.add_(momentum, alpha=-0.05)
    rtol, atol = (1e-4, 2e-6) if channels_last else (0, 0)
    trained = {name: tensor for name, tensor in plain.state_dict().items() if tensor.is_floating_point()}
    state = flat.state_dict()
    torch.testing.assert_close({name: state[name] for name in trained}, trained, rtol=rtol, atol=atol)


@pytest.mark.parametrize("channels_last", [False, True])
def test_every_tensor_lies_at_a_multiple_of_64_bytes_with_zeros_between(name: str, channels_last: bool) -> None:
    flat = FlatModel(MODELS[name][0](), CPU, channels_last)
    for parameter in flat.module.parameters():
        assert parameter.data_ptr() % 64 == 0
        assert parameter.grad is not None
        assert parameter.grad.data_ptr() % 64 == 0
        assert parameter.grad.stride() == parameter.stride()
    assert flat.num_params == sum(p.numel() for p in flat.module.parameters())
    used = torch.zeros(len(flat.vector), dtype=torch.bool)
    for slot in flat.layout:
        used[slot.offset : slot.offset + slot.size] = True
    x, y = batches(name, 1)[0]
    torch.autograd.backward(functional.cross_entropy(flat.module(x), y))
    flat.params.sub_(flat.gradient)
    assert used.sum() == flat.num_params + flat.num_buffer_values
    assert (flat.vector[~used] == 0).all()
    assert (flat.gradient[~used[: len(flat.gradient)]] == 0).all()


def test_parameters_lie_in_named_order_and_make_up_the_first_part_of_the_vector(name: str) -> None:
    module = MODELS[name][0]()
    flat = FlatModel(module, CPU)
    names = [parameter for parameter, _ in module.named_parameters()]
    assert [slot.name for slot in flat.layout if slot.is_parameter] == names
    assert [slot.is_parameter for slot in flat.layout] == sorted((s.is_parameter for s in flat.layout), reverse=True)
    assert flat.params.data_ptr() == flat.vector.data_ptr()
    assert len(flat.params) + len(flat.buffers) == len(flat.vector)
    assert len(flat.gradient) == len(flat.params)


def test_changing_the_vector_changes_what_the_module_computes(name: str) -> None:
    flat = FlatModel(MODELS[name][0]().eval(), CPU)
    x, _ = batches(name, 1)[0]
    before = flat.module(x)
    flat.params.mul_(1.1)
    assert not torch.equal(flat.module(x), before)
    flat.params.zero_()
    assert (flat.module(x) == 0).all()


def test_a_state_dict_round_trip_restores_the_model_and_fits_a_plain_module(name: str) -> None:
    make, _ = MODELS[name]
    plain = make()
    flat = FlatModel(copy.deepcopy(plain), CPU)
    state = flat.state_dict()
    torch.testing.assert_close(state, dict(plain.state_dict()), rtol=0, atol=0)
    assert all(tensor.is_contiguous() for tensor in state.values())
    other = FlatModel(make(), CPU)
    other.load_state_dict(state)
    assert torch.equal(other.vector, flat.vector)
    make().load_state_dict(state)


def test_an_exported_state_dict_is_a_copy(name: str) -> None:
    flat = FlatModel(MODELS[name][0](), CPU)
    before = flat.vector.clone()
    for tensor in flat.state_dict().values():
        tensor.zero_()
    assert torch.equal(flat.vector, before)


def test_a_vector_that_is_not_loaded_can_be_exported() -> None:
    flat, other = FlatModel(LeNet5(), CPU), FlatModel(LeNet5(), CPU)
    torch.testing.assert_close(flat.state_dict(other.vector), other.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("channels_last", [False, True])
def test_convolutions_are_stored_as_asked(channels_last: bool) -> None:
    plain = LeNet5()
    weight = plain.conv2.weight.detach().clone()
    flat = FlatModel(plain, CPU, channels_last)
    slot = next(slot for slot in flat.layout if slot.name == "conv2.weight")
    stored = flat.vector[slot.offset : slot.offset + slot.size]
    assert plain.conv2.weight.stride() == ((150, 1, 30, 6) if channels_last else (150, 25, 5, 1))
    assert torch.equal(stored, (weight.permute(0, 2, 3, 1) if channels_last else weight).flatten())
    assert torch.equal(plain.conv2.weight, weight)


def test_running_statistics_are_views_that_training_updates() -> None:
    flat = FlatModel(Residual(), CPU)
    before = flat.vector.clone()
    flat.module(torch.randn(6, 1, 9, 9))
    after = flat.vector
    changed = {slot.name for slot in flat.layout if not torch.equal(slot.view(before), slot.view(after))}
    assert changed == {"norm.running_mean", "norm.running_var"}
    flat.load(before)
    assert flat.state_dict()["norm.num_batches_tracked"].item() == 0
    assert torch.equal(flat.vector, before)


class CountsItself(nn.Module):
    """Batch and instance norm beside a layer of one's own, all of which count in a buffer of the same name."""

    def __init__(self) -> None:
        super().__init__()
        self.own = WithBuffer(torch.tensor(3))
        self.own.register_buffer("num_batches_tracked", torch.tensor(7))
        self.norm, self.other = nn.BatchNorm1d(2), nn.InstanceNorm1d(2, track_running_stats=True)
        self.lazy: nn.Module = nn.LazyBatchNorm1d()
        self.lazy(torch.zeros(2, 2))


def test_only_the_counters_of_pytorchs_norms_are_left_out() -> None:
    flat = FlatModel(CountsItself(), CPU)
    assert flat.discrete_names == ("own.extra", "own.num_batches_tracked")
    assert flat.counters == {f"{name}.num_batches_tracked" for name in ("norm", "other", "lazy")}


def test_a_norm_that_averages_over_all_batches_keeps_its_counter_across_loads() -> None:
    flat = FlatModel(nn.Sequential(nn.BatchNorm1d(3, momentum=None)), CPU)
    batches = torch.randn(4, 5, 3)
    for batch in batches:
        flat.module(batch)
        flat.load(flat.vector.clone(), flat.discrete())
    assert torch.allclose(flat.state_dict()["0.running_mean"], batches.mean(dim=(0, 1)))
    assert flat.state_dict()["0.num_batches_tracked"].item() == 4


def test_integer_and_boolean_buffers_are_loaded_beside_the_vector_in_their_own_types() -> None:
    flat = FlatModel(Counting(), CPU)
    flat.module(torch.randn(1, 3))
    flat.module.get_buffer("mask").fill_(False)
    left = flat.discrete()
    assert (left["steps"].item(), left["mask"].tolist()) == (6, [False] * 3)
    flat.load(flat.vector.clone())
    flat.load(flat.vector.clone(), left)
    assert flat.module.get_buffer("steps").item() == 6
    state = flat.state_dict()
    assert (state["steps"].item(), state["mask"].tolist(), state["mask"].dtype) == (6, [False] * 3, torch.bool)
    assert flat.state_dict(flat.vector, flat.initial_discrete())["steps"].item() == 5


def test_a_buffer_that_a_module_replaces_is_read_and_put_back() -> None:
    flat = FlatModel(Counting(), CPU)
    held = flat.module.get_buffer("steps")
    with torch.inference_mode():
        flat.module.steps = torch.tensor(8)
    assert flat.discrete()["steps"].item() == 8
    flat.load(flat.vector.clone())
    assert flat.module.get_buffer("steps") is held
    assert held.item() == 5
    flat.module.steps = torch.tensor([8])
    with pytest.raises(ScenarioError, match=r"buffer 'steps' became torch.int64 \[1\], but was torch.int64 \[\]"):
        flat.discrete()


def test_what_a_batch_of_an_evaluation_writes_is_undone_after_it() -> None:
    flat = FlatModel(Counting(), CPU)
    vector, beside = flat.vector.clone(), {"steps": torch.tensor(9), "mask": torch.tensor([True] * 3)}
    flat.load(vector, beside)
    seen = []
    for place in flat.unchanged(range(4), vector, beside):
        seen.append([flat.module.get_buffer(name).tolist() for name in ("steps", "mask", "scale", "constant")])
        if place == 0:
            flat.module.get_buffer("mask").data.fill_(False)
        if place == 1:
            flat.module.get_buffer("scale").data.fill_(0.0)
            flat.params.zero_()
        if place == 2:
            flat.module.get_buffer("constant").fill_(4.0)
    assert seen == [seen[0]] * 4
    assert torch.equal(flat.vector, vector)


class CachesMask(nn.Module):
    """Computes attention's mask when a batch of another length comes; has statistics not yet known."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 1)
        self.register_buffer("mask", torch.empty(0, 0), persistent=False)
        self.register_buffer("unknown", torch.full((2,), torch.nan))
        self.mask: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(self.mask) != len(x):
            self.mask = torch.full((len(x), len(x)), -torch.inf).triu(1)
        outputs: torch.Tensor = torch.softmax(self.mask, dim=1) @ self.linear(x)
        return outputs


def test_a_mask_of_another_shape_is_put_back_when_values_elsewhere_are_left() -> None:
    net = CachesMask()
    flat = FlatModel(net, CPU)
    flat.module(torch.ones(3, 1))
    mask, before = net.mask, flat.vector.clone()
    with flat.elsewhere(flat.params + 1):
        mask.zero_()
        flat.module(torch.ones(5, 1))
        assert len(net.mask) == 5
    assert net.mask is mask
    assert torch.equal(mask, torch.full((3, 3), -torch.inf).triu(1))
    assert torch.equal(flat.vector, before)
    flat.load(flat.vector.clone())
    assert not len(net.mask)


def test_an_evaluation_that_only_computes_a_mask_does_not_load_the_model_again(monkeypatch: pytest.MonkeyPatch) -> None:
    net = CachesMask()
    flat = FlatModel(net, CPU)
    vector, loads = flat.vector.clone(), list[int]()
    flat.load(vector)
    monkeypatch.setattr(flat, "load", lambda *_: loads.append(1))
    for length in flat.unchanged([2, 3, 3, 4], vector):
        assert not len(net.mask)
        flat.module(torch.ones(length, 1))
    assert not loads


class StartsItself(CachesMask):
    """Its first batch also sets a bias, unless a flag says that it is set; PyTorch does not see how."""

    def __init__(self, late: bool) -> None:
        super().__init__()
        self.late = late

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not len(self.mask):
            if not self.late:
                self.linear.bias.data.fill_(float(x.mean()))
            elif len(x) == 3:
                with torch.no_grad():
                    self.linear.bias.fill_(float(x.mean()))
        return super().forward(x)


@pytest.mark.parametrize("late", [False, True])
def test_a_layer_that_a_batch_of_an_evaluation_initialises_is_as_before_for_the_next(late: bool) -> None:
    flat = FlatModel(StartsItself(late), CPU)
    vector = flat.vector.clone()
    for length in flat.unchanged([2, 3, 3, 4], vector):
        assert torch.equal(flat.vector, vector)
        flat.module(torch.full((length, 1), 7.0))
    assert torch.equal(flat.vector, vector)


def test_an_expanded_buffer_gets_memory_of_its_own() -> None:
    flat = FlatModel(WithBuffer(torch.arange(3).expand(2, 3)), CPU)
    flat.load(flat.vector.clone(), {"extra": torch.ones(2, 3, dtype=torch.int64)})
    assert flat.discrete()["extra"].tolist() == [[1, 1, 1]] * 2


def test_integer_and_boolean_buffers_stay_out_of_the_vector_and_start_anew_with_every_load() -> None:
    flat = FlatModel(Counting(), CPU)
    assert flat.num_buffer_values == 2
    flat.module(torch.randn(1, 3))
    flat.module.get_buffer("mask").fill_(False)
    flat.load(flat.vector.clone())
    assert flat.module.get_buffer("steps").item() == 5
    assert flat.module.get_buffer("mask").tolist() == [True, False, True]
    state = flat.state_dict()
    assert (state["steps"].item(), state["steps"].dtype) == (5, torch.int64)
    assert "constant" not in state


def test_a_large_integer_is_exported_exactly() -> None:
    flat = FlatModel(WithBuffer(torch.tensor([2**40 + 1])), CPU)
    assert flat.state_dict()["extra"].item() == 2**40 + 1
    assert len(flat.buffers) == 0


def test_a_buffer_with_infinities_is_a_constant_outside_the_vector_and_is_exported() -> None:
    mask = torch.full((3, 3), -torch.inf).triu(1)
    flat = FlatModel(WithBuffer(mask.clone()), CPU)
    assert len(flat.buffers) == 0
    flat.module.get_buffer("extra").zero_()
    flat.load(flat.vector.clone())
    assert torch.equal(flat.module.get_buffer("extra"), mask)
    assert torch.equal(flat.state_dict()["extra"], mask)
    assert (flat.vector - flat.vector == 0).all()


def test_frozen_parameters_are_constants_and_not_trained() -> None:
    plain = LeNet5()
    plain.conv1.requires_grad_(False)
    model = FlatModel(plain, CPU)
    assert model.num_params == 62_006 - 456
    assert not len(model.buffers)
    frozen = plain.conv1.weight.detach().clone()
    torch.autograd.backward(functional.cross_entropy(plain(torch.randn(2, 3, 32, 32)), torch.tensor([0, 1])))
    model.params.sub_(model.gradient).mul_(0.9)
    assert torch.equal(plain.conv1.weight, frozen)
    model.load(torch.zeros_like(model.vector))
    assert torch.equal(plain.conv1.weight, frozen)
    assert torch.equal(model.state_dict()["conv1.weight"], frozen)


def test_frozen_parameters_that_are_no_constants_are_carried_along() -> None:
    plain = LeNet5()
    plain.conv1.requires_grad_(False)
    model = FlatModel(plain, CPU, constants=())
    assert model.num_params == 62_006 - 456
    assert model.num_buffer_values == 456
    model.load(torch.zeros_like(model.vector))
    assert (plain.conv1.weight == 0).all()


def test_a_changed_constant_is_noticed() -> None:
    plain = LeNet5()
    plain.conv1.requires_grad_(False)
    model = FlatModel(plain, CPU)
    with torch.no_grad():
        plain.conv1.weight.add_(1)
    with pytest.raises(
        ScenarioError, match=r"'conv1\.weight' is frozen .* a constant, but the network or its task changes"
    ):
        model.check()


def test_gradients_add_up_in_place_and_zero_gradient_attaches_them_again() -> None:
    flat = FlatModel(LeNet5(), CPU)
    x, y = batches("lenet5", 1)[0]
    torch.autograd.backward(functional.cross_entropy(flat.module(x), y))
    once = flat.gradient.clone()
    torch.autograd.backward(functional.cross_entropy(flat.module(x), y))
    torch.testing.assert_close(flat.gradient, 2 * once)
    flat.module.zero_grad(set_to_none=True)
    flat.zero_gradient()
    flat.check()
    assert (flat.gradient == 0).all()
    torch.autograd.backward(functional.cross_entropy(flat.module(x), y))
    assert torch.equal(flat.gradient, once)


def test_switching_between_training_and_evaluation_leaves_the_views_alone(name: str) -> None:
    flat = FlatModel(MODELS[name][0](), CPU)
    flat.module.eval().train().requires_grad_(True)
    flat.check()


def test_gradients_that_were_set_to_none_are_noticed() -> None:
    flat = FlatModel(LeNet5(), CPU)
    flat.module.zero_grad(set_to_none=True)
    with pytest.raises(ScenarioError, match=r"gradient of 'conv1\.weight' was set to None.*zero_gradient\(\)"):
        flat.check()


def test_gradients_that_were_replaced_are_noticed() -> None:
    flat = FlatModel(LeNet5(), CPU)
    flat.module.zero_grad(set_to_none=True)
    torch.autograd.backward(functional.cross_entropy(flat.module(torch.randn(2, 3, 32, 32)), torch.tensor([0, 1])))
    with pytest.raises(ScenarioError, match=r"gradient of 'conv1\.weight' is another tensor"):
        flat.check()


def replace_parameter(module: nn.Module) -> None:
    module.get_submodule("fc").weight = nn.Parameter(torch.zeros(4, 7))


def replace_storage(module: nn.Module) -> None:
    module.get_parameter("fc.weight").data = torch.zeros(4, 7)


def replace_buffer(module: nn.Module) -> None:
    norm = module.get_submodule("norm")
    norm.running_mean = module.get_buffer("norm.running_mean") * 0.9


def cast(module: nn.Module) -> None:
    module.double()


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (replace_parameter, r"fc\.weight"),
        (replace_storage, r"fc\.weight"),
        (replace_buffer, r"norm\.running_mean"),
        (cast, r"stem\.weight"),
    ],
)
@pytest.mark.parametrize("noticed_by", ["load", "check"])
def test_a_tensor_that_was_replaced_is_noticed_by_name(
    change: Callable[[nn.Module], None], name: str, noticed_by: str
) -> None:
    flat = FlatModel(Residual(), CPU)
    vector = flat.vector.clone()
    change(flat.module)
    with pytest.raises(ScenarioError, match=f"'{name}' was replaced by another tensor"):
        flat.load(vector) if noticed_by == "load" else flat.check()


def test_a_buffer_that_was_removed_is_noticed_by_name() -> None:
    flat = FlatModel(Counting(), CPU)
    del flat.module.scale
    with pytest.raises(ScenarioError, match="'scale' was removed from the module"):
        flat.check()


def test_a_vector_of_another_length_is_rejected() -> None:
    flat = FlatModel(Counting(), CPU)
    with pytest.raises(ValueError, match="the vector has shape"):
        flat.load(flat.vector[:-1])


class Aliased(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.decoder = nn.Linear(3, 5, bias=False)
        self.decoder.weight = nn.Parameter(self.embedding.weight.data)


class Overlapping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        both = torch.zeros(6)
        self.first = nn.Parameter(both[:4])
        self.second = nn.Parameter(both[2:])


class Neighbours(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        both = torch.arange(6.0)
        self.first = nn.Parameter(both[:4])
        self.second = nn.Parameter(both[4:])


class Quantised(nn.Linear):
    def __init__(self) -> None:
        super().__init__(2, 2)
        self.scale = nn.Parameter(torch.zeros(2, dtype=torch.int8), requires_grad=False)


class WithBuffer(nn.Module):
    def __init__(self, buffer: torch.Tensor, persistent: bool = True) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.register_buffer("extra", buffer, persistent=persistent)


class FrozenMask(nn.Linear):
    def __init__(self) -> None:
        super().__init__(2, 2)
        self.mask = nn.Parameter(torch.tensor([0.0, -torch.inf]), requires_grad=False)


class ExtraState(nn.Linear):
    def get_extra_state(self) -> dict[str, int]:
        return {"version": 1}

    def set_extra_state(self, state: dict[str, int]) -> None:
        pass


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Aliased, r"'embedding\.weight' and 'decoder\.weight' share memory but are two tensors; make both the same"),
        (Overlapping, "'first' and 'second' share memory"),
        (lambda: nn.Linear(2, 2).double(), r"parameter 'weight' is torch\.float64"),
        (lambda: nn.Linear(2, 2).half(), r"parameter 'weight' is torch\.float16.*\.float\(\)"),
        (
            lambda: nn.Linear(2, 2, dtype=torch.complex64),
            r"parameter 'weight' is torch\.complex64.*view_as_real",
        ),
        (Quantised, r"parameter 'scale' is torch\.int8; .* so make it a buffer"),
        (lambda: WithBuffer(torch.zeros(2, dtype=torch.float64)), r"buffer 'extra' is torch\.float64"),
        (lambda: WithBuffer(torch.zeros(2, dtype=torch.complex64)), r"buffer 'extra' is torch\.complex64"),
        (nn.Flatten, "Flatten has no parameters to train"),
        (lambda: nn.Linear(2, 2).requires_grad_(False), "Linear has no parameters to train"),
        (lambda: nn.LazyLinear(2), "parameter 'weight' has no shape yet"),
        (lambda: nn.Linear(2, 2, device="meta"), "parameter 'weight' is on the meta device, without values"),
        (lambda: WithBuffer(torch.zeros(2, device="meta")), "buffer 'extra' is on the meta device, without values"),
        (lambda: ExtraState(2, 2), "'_extra_state' is extra state"),
    ],
)
@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_a_module_that_does_not_fit_one_vector_is_rejected_by_name(make: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        FlatModel(make(), CPU)


def test_parameters_that_lie_side_by_side_in_one_storage_are_not_taken_for_tied() -> None:
    flat = FlatModel(Neighbours(), CPU)
    assert {name: tensor.tolist() for name, tensor in flat.state_dict().items()} == {
        "first": [0, 1, 2, 3],
        "second": [4, 5],
    }


def test_a_network_whose_declaration_is_wrong_is_rejected() -> None:
    class Undeclared(Network):
        ordered_modules = ("first",)
        feature_layer = "first"

        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(2, 2)
            self.second = nn.Linear(2, 2)

    with pytest.raises(ScenarioError, match=r"order first\.weight, first\.bias, but .*second\.bias"):
        FlatModel(Undeclared(), CPU)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("fc3.bias"), r"lacks 'fc3\.bias' of this model"),
        (lambda state: state.update(head=torch.zeros(1)), "has 'head', which this model does not have"),
        (
            lambda state: state.update({"fc3.bias": torch.zeros(3)}),
            r"'fc3\.bias' has shape \(3,\), this model's has \(10,\)",
        ),
        (lambda state: state.clear(), r"lacks 'conv1\.bias', .* and 5 more"),
    ],
)
def test_a_state_dict_that_does_not_fit_is_rejected_and_changes_nothing(
    change: Callable[[dict[str, torch.Tensor]], object], message: str
) -> None:
    flat = FlatModel(LeNet5(), CPU)
    before = flat.vector.clone()
    state = FlatModel(LeNet5(), CPU).state_dict()
    change(state)
    with pytest.raises(DataError, match=message):
        flat.load_state_dict(state)
    assert torch.equal(flat.vector, before)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device")
@pytest.mark.parametrize("name", ["lenet5", "residual", "counting"])
def test_steps_on_a_gpu_agree_with_those_on_the_cpu(name: str) -> None:
    module = MODELS[name][0]()
    on_cpu, on_gpu = FlatModel(copy.deepcopy(module), CPU), FlatModel(module, torch.device("cuda"))
    for x, y in batches(name, 3):
        for flat in (on_cpu, on_gpu):
            device = flat.vector.device
            flat.zero_gradient()
            torch.autograd.backward(functional.cross_entropy(flat.module(x.to(device)), y.to(device)))
            flat.params.add_(flat.gradient, alpha=-0.05)
    torch.testing.assert_close(on_gpu.state_dict(), on_cpu.state_dict(), rtol=1e-3, atol=1e-3)
