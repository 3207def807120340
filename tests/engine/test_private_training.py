"""`local.dp` on hosts: the parameters of an Opacus loop, noise of the right size, and the same bits anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer, optimizer
from torch import nn

from rayfl.algorithms.fedavg import FedAvg
from rayfl.algorithms.limits import SampleRequest
from rayfl.data.batches import BatchSource
from rayfl.engine.events import RoundDone
from rayfl.engine.initial_model import build_network
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.errors import ClientError
from rayfl.local.context import ClientContext, ClientStreams
from rayfl.local.queries import DataView, Gradient, HessianVectorProduct
from rayfl.local.requests import ClientUpdate, LocalTraining
from rayfl.local.spending import Mechanism
from rayfl.models.flat import FlatModel
from rayfl.streams import client_stream, client_torch_seed
from tests.engine.scenes import prepared, run_on_hosts

CPU = torch.device("cpu")
DP: dict[str, Any] = {"noise_multiplier": 1.1, "max_grad_norm": 0.7, "accountant": "rdp"}
OFF = {"noise_multiplier": 0.0, "max_grad_norm": float("inf"), "max_loss": 1e6}
PEOPLE = {"data": {"name": "tests.algorithms.scene:people"}, "model": {"name": "tests.algorithms.scene:TanhNet"}}
SIZES = (5, 9, 14, 7, 16, 6, 11, 8, 13, 10, 12, 4)


def job(dp: dict[str, Any] | None, local: dict[str, Any], scene: dict[str, Any] = PEOPLE, **phase: Any) -> RunPlan:
    chosen = {"name": "private", "rounds": 2, "cohort": 5} | phase
    return prepared(**scene, phases=[chosen | {"local": {**local, **({"dp": dp} if dp else {})}}])


def trained(prepared_job: RunPlan, hosts: int = 1) -> np.ndarray:
    return run_on_hosts(prepared_job, hosts)[0]


def rounds(prepared_job: RunPlan) -> list[RoundDone]:
    return [event for event in run_on_hosts(prepared_job, 1)[1] if isinstance(event, RoundDone)]


def alone(client: int) -> dict[str, Any]:
    return {"rounds": 1, "cohort": {"explicit": [[client]]}}


def test_what_no_loss_reaches_gets_noise_as_everything_does() -> None:
    """Otherwise its staying as it is would tell which samples a network with branches has seen."""
    made = job(DP, {"batch_size": 4, "lr": 0.1}, PEOPLE | {"model": "tests.engine.test_stacked:SpareHead"}, **alone(2))
    initial, found = made.workloads[0].initial, torch.from_numpy(trained(made))
    spare = [slot for slot in initial.layout if slot.name.startswith("spare")]
    assert spare
    for slot in spare:
        assert (slot.view(found) != slot.view(torch.from_numpy(initial.vector))).all()


@pytest.mark.parametrize(("network", "batch_size"), [("lenet5", 3), ("cnn_fashion_mnist", 64)])
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")  # Opacus' own
def test_a_client_update_is_a_plain_opacus_loop(network: str, batch_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the same batches with the same noise; some batches are empty, and with 64 the client has fewer samples."""
    scene = {"data": {"name": "handwriting", "clients": 4}, "model": {"name": network}}
    local = {"epochs": 2, "batch_size": batch_size, "lr": 0.1, "momentum": 0.5, "weight_decay": 0.01}
    made = job({**DP, "physical_batch_size": 100}, local, scene, **alone(2))  # dropout draws for all at once
    found = trained(made)

    workload = made.workloads[0]
    numerics = made.scenario.numerics.model_copy(update={"kernels": "plain"})
    scenario = made.scenario.model_copy(update={"numerics": numerics})
    plain_network = build_network(scenario, workload.network, workload.store, workload.num_outputs).train()
    private = GradSampleModule(plain_network, loss_reduction="mean")
    plain = torch.optim.SGD(private.parameters(), lr=0.1, momentum=0.5, weight_decay=0.01)
    stepping = DPOptimizer(
        plain,
        noise_multiplier=DP["noise_multiplier"],
        max_grad_norm=DP["max_grad_norm"],
        expected_batch_size=min(batch_size, made.workloads[0].store.train_shards.sizes[2]),
    )
    draws, noise = (client_stream(made.scenario.seed, name, 0, 1, 2) for name in ("dp batches", "dp noise"))

    def same_noise(std: float, reference: torch.Tensor, **_: Any) -> torch.Tensor:
        return std * in_the_order_of_the_vector(noise, reference.shape)

    monkeypatch.setattr(optimizer, "_generate_noise", same_noise)
    source = BatchSource(workload.store, CPU)
    rows = source.shard(2)
    torch.manual_seed(client_torch_seed(made.scenario.seed, "model", 0, 1, 2))  # dropout
    sizes = []
    for _ in range(2 * -(-len(rows) // batch_size)):
        places = np.flatnonzero(draws.random(len(rows)) < batch_size / len(rows))
        sizes.append(len(places))
        stepping.zero_grad()
        if len(places):
            x, y = source.batch("train", rows[places])
            torch.autograd.backward(nn.functional.cross_entropy(private(in_pytorchs_order(x)), y))
        else:
            for parameter in private.parameters():
                parameter.grad_sample = torch.zeros(0, *parameter.shape)
        stepping.step()
    assert len(set(sizes)) > 1 or batch_size == 64
    assert (0 in sizes) == (batch_size == 3)
    expected = FlatModel(plain_network, CPU).vector.numpy()
    assert np.abs(found - expected).max() < 1e-6 * max(1.0, np.abs(expected).max())
    moved = np.abs(found - workload.initial.vector).max()
    assert moved > 0.01


def in_pytorchs_order(x: torch.Tensor) -> torch.Tensor:
    """Of images with a single channel, `contiguous()` says that they are, and layers take them for channels-last."""
    return torch.empty(x.shape).copy_(x)


def in_the_order_of_the_vector(noise: np.random.Generator, shape: Sequence[int]) -> torch.Tensor:
    """Weights of convolutions lie channels-last."""
    drawn = torch.from_numpy(noise.standard_normal(int(np.prod(shape)), dtype=np.float32))
    if len(shape) != 4:
        return drawn.view(*shape)
    out, channels, height, width = shape
    return drawn.view(out, height, width, channels).permute(0, 3, 1, 2)


FULL = {"epochs": 3, "batch_size": "full", "lr": 0.1}
ALGORITHMS: list[Any] = [
    "fedavg",
    {"name": "scaffold", "option": "I"},
    {"name": "scaffold", "option": "II"},
    {"name": "fedprox", "mu": 0.1},
    {"name": "feddyn", "alpha": 0.1},
    "coprefl",
    {"name": "coprefl", "split": "round"},
    "fednova",
    "ditto",
    "perfedavg",
    {"name": "fedmeta", "order": "first"},
    {"name": "fedmeta", "order": "first", "variant": "meta_sgd"},
    "fedbabu",
]


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
def test_without_noise_and_bound_full_batches_train_as_without_privacy(algorithm: Any) -> None:
    meta = isinstance(algorithm, dict) and algorithm["name"] == "fedmeta"
    local = {"lr": 0.1} if meta else FULL
    private, plain = (trained(job(dp, local, algorithm=algorithm, cohort=3)) for dp in (OFF, None))
    assert np.abs(private - plain).max() < 1e-6
    assert np.abs(plain - job(None, local).workloads[0].initial.vector).max() > 1e-3


def test_a_client_with_fewer_samples_than_a_batch_takes_whole_steps() -> None:
    """Divided by `batch_size` instead of by its samples, a step of 4 samples would be an eighth of it."""
    local = {"epochs": 3, "batch_size": 32, "lr": 0.1}
    private, plain = (trained(job(dp, local, **alone(11))) for dp in (OFF, None))
    moved = np.abs(plain - job(None, local).workloads[0].initial.vector).max()
    assert moved > 1e-3
    assert np.abs(private - plain).max() < 1e-6


def test_without_noise_and_bound_convolutions_train_as_without_privacy() -> None:
    """For three steps: later, rounding tips a ReLU or a maximum of pooling in some runs."""
    network = {"name": "cnn_fashion_mnist", "dropout": 0.0}
    scene = {"data": {"name": "handwriting", "clients": 4}, "model": network}
    private, plain = (trained(job(dp, FULL, scene, **alone(0))) for dp in (OFF, None))
    assert np.abs(private - plain).max() < 1e-6
    assert np.abs(plain - job(None, FULL, scene, **alone(0)).workloads[0].initial.vector).max() > 1e-2


@pytest.mark.parametrize("options", [{}, {"clipping": "ghost"}])
def test_noise_has_the_standard_deviation_of_the_bound_times_the_multiplier_over_b(options: dict[str, Any]) -> None:
    scene = {"data": {"name": "handwriting", "clients": 4}, "model": {"name": "mlp"}}
    local = {"batch_size": 10, "steps": 1, "lr": 1.0}
    with_noise, without = (
        trained(job({**DP, **options, "noise_multiplier": multiplier}, local, scene, **alone(1)))
        for multiplier in (3.0, 0)
    )
    noise = (without - with_noise)[np.abs(without) > 0].astype(np.float64)  # without padding
    assert len(noise) > 100_000
    scaled = noise / (3.0 * DP["max_grad_norm"] / 10)
    assert abs(scaled.mean()) < 5 / np.sqrt(len(noise))
    assert abs(scaled.std() - 1) < 5 / np.sqrt(2 * len(noise))
    assert abs((scaled**4).mean() - 3) < 0.2


def test_gradients_and_losses_that_an_algorithm_asks_for_are_noised_too() -> None:
    """SCAFFOLD's option I keeps a gradient: C z multiplier / n; CoPreFL reports query losses."""
    runs = {
        multiplier: rounds(
            job(
                {**OFF, "max_grad_norm": 1e-3, "noise_multiplier": multiplier},
                FULL,
                algorithm={"name": "scaffold", "option": "I"},
                report=["norms"],
                **alone(4),
            )
        )
        for multiplier in (0.0, 1000.0)
    }
    silent, loud = (float(events[0].scalars["client_control_norm"]) for events in runs.values())
    parameters = 4 * 6 + 6 + 6 * 5 + 5 + 5 * 3 + 3
    assert silent <= 1e-3
    assert loud == pytest.approx(np.sqrt(parameters) * 1000 * 1e-3 / SIZES[4], rel=0.25)
    losses = [
        float(rounds(job({**OFF, "max_loss": bound}, FULL, algorithm="coprefl"))[0].scalars["query_loss"])
        for bound in (1e-3, 1e6)
    ]
    assert losses[0] == pytest.approx(1e-3)
    assert losses[1] > 0.1


def test_secure_noise_and_batches_never_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    local = {"epochs": 1, "batch_size": 4, "lr": 0.1}
    secure = {**DP, "secure": True, "physical_batch_size": 1}
    first, second = (trained(job(secure, local, **alone(11))) for _ in range(2))
    assert not np.array_equal(first, second)
    monkeypatch.setattr("rayfl.privacy.samples.released_sums.discrete_gaussian", lambda size: np.zeros(size, np.int64))
    drawn = [trained(job(secure, local, **alone(10))) for _ in range(2)]
    assert np.abs(drawn[0] - drawn[1]).max() > 1e-4  # not the noise: the batches


@pytest.mark.parametrize("secure", [False, True])
def test_with_secure_noise_a_drawn_sample_changes_no_draw_of_the_others(
    secure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Augmentations and dropout by the seed, one after the other, would tell the others' gradients who came before."""
    asked = set[str]()
    for name in ("numpy", "torch_seed"):
        found = getattr(ClientStreams, name)

        def drawn(self: ClientStreams, purpose: str, request: int = 0, found: Any = found) -> Any:
            asked.add(purpose)
            return found(self, purpose, request)

        monkeypatch.setattr(ClientStreams, name, drawn)
    dp = {**DP, "secure": secure, "physical_batch_size": 1}
    trained(job(dp, {"epochs": 1, "batch_size": 4, "lr": 0.1}, **alone(11)))
    of_samples = {"augment", "dp batches", "dp noise", "model"}
    assert asked & of_samples == (set() if secure else of_samples)


@pytest.mark.parametrize("optimizer_name", ["adamw", "muon"])  # of PyTorch's own, and one that splits the parameters
def test_other_optimizers_step_behind_the_noise(optimizer_name: str) -> None:
    chosen = {"name": optimizer_name, "others": "sgd"} if optimizer_name == "muon" else optimizer_name
    local = {**FULL, "optimizer": chosen, "lr": 0.01}
    private, plain = (trained(job(dp, local, **alone(4))) for dp in (OFF, None))
    assert np.abs(private - plain).max() < 1e-4  # what they divide by can be small
    assert not np.array_equal(trained(job(DP, local, **alone(4))), private)


@pytest.mark.parametrize("order", ["bottom_up", "top_down"])
def test_unfreezing_leaves_what_is_frozen_without_noise(order: str) -> None:
    unfreeze = {"share": 1.0, "order": order}
    local = {"epochs": 3, "batch_size": "full", "lr": 0.1, "unfreeze": unfreeze}
    private, plain = (trained(job(dp, local, **alone(4))) for dp in (OFF, None))
    assert np.abs(private - plain).max() < 1e-6
    steps = {"steps": 1, "batch_size": 4, "lr": 0.1}
    made = job(DP, {**steps, "unfreeze": unfreeze} | {"steps": 3, "batch_size": "full", "epochs": 3}, **alone(1))
    layout, moved = made.workloads[0].initial.layout, trained(made) - made.workloads[0].initial.vector
    assert all(np.any(moved[slot.offset : slot.end]) for slot in layout)


def test_frozen_parameters_have_no_noise() -> None:
    made = job(DP, {"epochs": 2, "batch_size": 4, "lr": 0.1}, train="head", **alone(2))
    moved = trained(made) - made.workloads[0].initial.vector
    changed = {slot.name: bool(moved[slot.offset : slot.end].any()) for slot in made.workloads[0].initial.layout}
    assert {name for name, change in changed.items() if change} == {"read_out.weight", "read_out.bias"}


def test_an_update_of_empty_batches_is_noise_alone_and_has_no_loss() -> None:
    scene = {"data": {"name": "handwriting", "clients": 4}, "model": {"name": "mlp"}}
    local = {"batch_size": 1, "steps": 1, "lr": 1.0}
    clients = range(4)
    for client in clients:
        made = job({**DP, "max_grad_norm": 1e-4}, local, scene, **alone(client))
        rows = made.workloads[0].store.train_shards[client]
        drawn = (client_stream(7, "dp batches", 0, 1, client).random(len(rows)) < 1 / len(rows)).sum()
        (done,) = rounds(made)
        assert done.steps == (drawn > 0)
        assert np.isnan(done.train_loss) == (drawn == 0)
        assert done.spent[client] == {Mechanism(1.1, 1 / len(rows)): 1}
        if drawn == 0:
            noise = client_stream(7, "dp noise", 0, 1, client)
            moved, initial = trained(made) - made.workloads[0].initial.vector, made.workloads[0].initial
            for slot in initial.layout:
                expected = -1.1e-4 * noise.standard_normal(slot.size, dtype=np.float32)
                assert np.allclose(moved[slot.offset : slot.offset + slot.size], expected, rtol=0, atol=1e-7)
            break
    else:
        raise AssertionError("no client's only batch was empty")


@pytest.mark.parametrize("augmentations", [1, 4])
def test_the_physical_batch_size_does_not_change_the_result(augmentations: int) -> None:
    data = {"name": "handwriting", "clients": 4, "augment": ["flip", {"name": "crop", "padding": 2}]}
    scene = {"data": data, "model": {"name": "lenet5"}}
    models = [
        trained(
            job(
                {**DP, "physical_batch_size": size, "augmentations": augmentations},
                {"batch_size": 16, "steps": 2},
                scene,
                **alone(2),
            )
        )
        for size in (5, 1000)
    ]
    assert np.abs(models[0] - models[1]).max() < 1e-6


def test_augmented_copies_of_a_sample_are_drawn_anew() -> None:
    data = {"name": "handwriting", "clients": 4, "augment": ["flip", {"name": "crop", "padding": 2}]}
    scene = {"data": data, "model": {"name": "mlp"}}
    one, four = (
        trained(job({**OFF, "augmentations": copies}, {"batch_size": "full", "steps": 1}, scene, **alone(0)))
        for copies in (1, 4)
    )
    assert np.abs(one - four).max() > 1e-5


def test_ghost_clipping_gives_the_result_of_per_sample_clipping() -> None:
    local = {"epochs": 2, "batch_size": 4, "lr": 0.1}
    models = [
        trained(job({**DP, "clipping": clipping}, local, algorithm={"name": "scaffold", "option": "I"}, cohort=2))
        for clipping in ("per_sample", "ghost")
    ]
    assert np.abs(models[0] - models[1]).max() < 1e-6


def test_shuffled_batches_are_those_of_training_without_privacy() -> None:
    local = {"epochs": 2, "batch_size": 4, "lr": 0.1}
    sizes = [[4, 4, 4, 4] * 2, [4, 4] * 2]  # of clients whose batches are all whole, since the divisor is always B
    clients = {"cohort": {"explicit": [[4, 7]]}}
    assert [SIZES[4] // 4 * 2, SIZES[7] // 4 * 2] == [len(one) for one in sizes]
    private, plain = (trained(job(dp, local, **clients)) for dp in ({**OFF, "sampling": "shuffled"}, None))
    assert np.abs(private - plain).max() < 1e-6


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        ("fedavg", {("", 0.25): 8}),
        ({"name": "scaffold", "option": "II"}, {("", 0.25): 8}),
        ({"name": "scaffold", "option": "I"}, {("", 0.25): 8, ("", 1.0): 1}),
        # 13 samples of support, 4 batches in a pass; then a gradient and a loss of the 3 of the query
        ("coprefl", {("support", 4 / 13): 8, ("query", 1.0): 2}),
        ({"name": "coprefl", "split": "round"}, {("", 4 / 13): 8, ("", 1.0): 2}),
    ],
    ids=str,
)
def test_every_mechanism_is_charged(algorithm: Any, expected: dict[tuple[str, float], int]) -> None:
    local = {"epochs": 2, "batch_size": 4, "lr": 0.1}
    made = job(DP, local, algorithm=algorithm, rounds=1, cohort={"explicit": [[4, 7]]})
    (done,) = rounds(made)
    assert set(done.spent) == {4, 7}
    found = {(one.part, one.rate): number for one, number in done.spent[4].items()}
    assert found == pytest.approx(expected)
    assert {one.noise_multiplier for one in done.spent[4]} == {DP["noise_multiplier"]}


def test_nothing_is_charged_without_privacy() -> None:
    assert all(not event.spent for event in rounds(job(None, FULL, **alone(4))))


def test_steps_are_limited_by_their_number_as_ever() -> None:
    made = job(DP, {"epochs": 5, "steps": 3, "batch_size": 4}, **alone(4))
    assert list(rounds(made)[0].spent[4].values()) == [3]


def test_every_client_can_have_its_own_noise() -> None:
    made = job({**DP, "noise_multiplier": 0.0}, {"batch_size": 4}, rounds=1, cohort={"explicit": [[1, 2]]})
    own = np.zeros(len(SIZES))
    own[1], own[2] = 0.5, 2.5
    (done,) = rounds(replace(made, phases=[made.phases[0].with_facts(noise=own)]))
    assert {one.noise_multiplier for spent in done.spent.values() for one in spent} == {0.5, 2.5}
    assert next(iter(done.spent[2])).noise_multiplier == 2.5


def test_central_training_charges_the_pool_of_samples() -> None:
    made = prepared(
        **PEOPLE,
        phases=[{"name": "central", "schedule": "central", "rounds": 1, "local": {"batch_size": 23, "dp": DP}}],
    )
    (done,) = rounds(made)
    assert done.spent == {len(SIZES): {Mechanism(1.1, 23 / sum(SIZES)): 5}}


def test_training_at_the_server_is_not_private_where_its_table_does_not_say_so() -> None:
    data = {"name": "tests.algorithms.scene:people", "server_share": 0.2}
    made = prepared(
        data=data,
        model=PEOPLE["model"],
        phases=[
            {
                "name": "federated",
                "rounds": 1,
                "cohort": 2,
                "local": {"batch_size": 4, "dp": DP},
                "server_training": {"steps": 2, "lr": 0.1},
            }
        ],
    )
    (done,) = rounds(made)
    assert len(done.spent) == 2
    assert all(client < len(SIZES) for client in done.spent)


def test_queries_at_the_server_are_charged_to_the_servers_samples() -> None:
    data = {"name": "tests.algorithms.scene:people", "server_share": 0.2}
    phase = {"name": "p", "algorithm": {"name": "coprefl", "queries": "server"}, "rounds": 1, "cohort": 3}
    made = prepared(data=data, model=PEOPLE["model"], phases=[phase | {"local": {"batch_size": 4, "dp": DP}}])
    (done,) = rounds(made)
    assert done.spent[len(SIZES) + 1] == {Mechanism(1.1, 1.0): 2 * 3}


class Curious(FedAvg):
    """Asks for what cannot be private."""

    asks_for: str

    def sample_requests(self) -> tuple[SampleRequest, ...]:
        return SampleRequest("query"), SampleRequest(), SampleRequest()

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Any]:
        if self.asks_for == "twice":
            yield Gradient(model, DataView(np.array([0, 1, 1])))
        elif self.asks_for == "Hessian":
            yield HessianVectorProduct(model, vector=model[: client.num_params])
        else:
            yield LocalTraining(model, terms=(lambda batch: batch.outputs.square().mean(),))
        return (yield from super().client_update(client, model))


@pytest.mark.parametrize(
    ("asks_for", "what"),
    [
        ("Hessian", "Hessian-vector"),
        ("terms", "terms of the whole batch"),
        ("twice", "a view that contains a sample twice"),
    ],
)
def test_an_algorithm_that_asks_for_what_cannot_be_private_is_stopped(asks_for: str, what: str) -> None:
    algorithm = {"name": f"{__name__}:Curious", "asks_for": asks_for}
    with pytest.raises(ClientError, match=f"local.dp: its client update .*{what}"):
        trained(job(DP, FULL, algorithm=algorithm))
