"""What a task or a loss term of a user's own can make of a batch, against plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from rayfl.algorithms import (
    Answer,
    Exchange,
    LocalTrainingAlgorithm,
    Penalty,
    Requirement,
    Round,
    RoundContext,
    SampleRequest,
    ServerState,
)
from rayfl.config import Scenario
from rayfl.engine.events import RoundDone
from rayfl.errors import ClientError, DataError, RayflError, ScenarioError
from rayfl.local import ClientContext, ClientUpdate, Features, LocalTraining, LossTerm, Outputs, TrainingBatch
from rayfl.runs.preparation import prepare
from rayfl.streams import client_stream
from rayfl.tasks import Classification
from tests.algorithms.reference import PlainUpdate, Vector, assert_equal, forward, mean, rounds, sizes
from tests.algorithms.scene import PLAIN, prepared, trained
from tests.engine import scenes
from tests.engine.scenes import run_on_hosts

HERE = __name__
VIEWS = [{"augment": [f"{HERE}:darker"]}, {"augment": ["flip", {"name": f"{HERE}:darker", "by": 0.5}]}]
SHOWN: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []


def darker(x: torch.Tensor, rng: np.random.Generator, by: float = 0.25) -> torch.Tensor:
    return x * by


class Siamese(nn.Module):
    """An encoder with projector, and a predictor: what SimSiam trains."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 16), nn.Tanh(), nn.Linear(16, num_classes))
        self.predictor = nn.Linear(num_classes, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.encoder(x)
        return outputs


class SimSiam(Classification):
    """Chen and He, "Exploring Simple Siamese Representation Learning", CVPR 2021, alg. 1; labels are for metrics."""

    views: ClassVar[int] = 2
    name: str = "simsiam"

    def objective(self, batch: TrainingBatch) -> torch.Tensor:
        encoder, predictor = batch.module.encoder, batch.module.predictor
        assert isinstance(encoder, nn.Module)
        assert isinstance(predictor, nn.Module)
        one, other = (encoder(x) for x in batch.views)
        loss = simsiam(predictor(one), other) / 2 + simsiam(predictor(other), one) / 2
        SHOWN.append((*batch.views, loss.detach()))
        return loss


def simsiam(predicted: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return -F.cosine_similarity(predicted, target.detach(), dim=1).mean()


def siamese(**changes: Any) -> dict[str, Any]:
    federated = scenes.FEDERATED | {"rounds": 2, "cohort": 3, "local": {"steps": 2, "batch_size": 8, "lr": 0.2}}
    data = {"name": "handwriting", "clients": 6, "views": VIEWS}
    model = {"name": f"{HERE}:Siamese"}
    return {"data": data, "task": f"{HERE}:SimSiam", "model": model, "phases": [federated], **changes}


def test_simsiam_sees_each_view_with_its_own_augmentation() -> None:
    job = scenes.prepared(**siamese())
    SHOWN.clear()  # of the trial before the run
    model, _ = run_on_hosts(job, 1)
    shown = list(SHOWN)
    assert np.array_equal(model, run_on_hosts(job, 3)[0])
    assert len(shown) == 2 * 3 * 2
    flipped = 0
    for one, other, _ in shown:
        plain = 2 * one  # a quarter against a half of the same samples
        same, mirrored = ((other == x).flatten(1).all(dim=1) for x in (plain, plain.flip(3)))
        assert bool((same | mirrored).all())
        flipped += int((~same).sum())
    assert 0.3 < flipped / sum(len(one) for one, *_ in shown) < 0.7


def test_simsiam_trains_as_in_plain_pytorch() -> None:
    """The first client's two steps, from the views that it was shown."""
    job = scenes.prepared(**siamese())
    SHOWN.clear()  # of the trial before the run
    run_on_hosts(job, 1)
    _, flat = prepare(Scenario.from_tables(scenes.tables(**siamese())), Path("no-data-here"))
    network = cast(Any, flat.module.double())
    for one, other, ours in SHOWN[:2]:
        first, second = (network.encoder(x.double()) for x in (one, other))
        loss = simsiam(network.predictor(first), second) / 2 + simsiam(network.predictor(second), first) / 2
        assert float(ours) == pytest.approx(float(loss.detach()), abs=1e-5)
        gradients = torch.autograd.grad(loss, list(network.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(network.parameters(), gradients, strict=True):
                parameter.sub_(gradient, alpha=0.2)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"views": VIEWS[:1]}, "data.views: there are 1, but task '.*SimSiam' compares 2; define 2"),
        ({"views": VIEWS, "augment": ["flip"]}, "data.views: gives each view its own augmentations, but data.augment"),
        ({"views": [{}, {}]}, "compares 2 augmented views of every batch, which are identical without data.augment"),
        ({"views": [{}, {"augment": ["flap"]}]}, "unknown augmentation 'flap'"),
        ({"views": [{}, {"augment": [{"name": "flip", "p": 1}]}]}, r"data\.views\.1\.augment\.0\.p: not an option"),
        (
            {"views": [{}, {"augment": ["feddecorr_cifar10"]}]},
            r"data\.views\.1\.augment\.0: .* fills with",
        ),
    ],
)
def test_views_that_do_not_fit_are_named(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises((ScenarioError, DataError), match=complaint):
        scenes.prepared(**siamese(data={"name": "handwriting", "clients": 6, **changes}))


def test_a_task_of_one_view_takes_no_list_of_views() -> None:
    with pytest.raises(ScenarioError, match=r"data\.views: there are 2, but task 'classification' does not use views"):
        scenes.prepared(data={"name": "handwriting", "clients": 6, "views": VIEWS})


class FromEverywhere(Penalty):
    """Reads what a client keeps, its features, and a vector that the exchange brought: features stay near a mixture.

    loss + strength * mean ||features - (kept + sent) / 2||^2; what is kept is the mean feature after training.
    """

    strength: float = 0.3

    def reads_features(self) -> bool:
        return True

    def client_state(self) -> dict[str, Any]:
        return {"centre": "phase"}

    def term(self, client: ClientContext, start: torch.Tensor) -> LossTerm:
        return self.pull

    def pull(self, batch: TrainingBatch) -> torch.Tensor:
        _, sent = batch.client.sent
        centre = (batch.client.state.get("centre", torch.zeros_like(sent)) + sent) / 2
        return self.strength * (batch.features - centre).square().sum(dim=1).mean()


class Centred(LocalTrainingAlgorithm):
    """Clients train towards their own mean feature and everybody's, of which they send the sum."""

    def requirements(self) -> set[Requirement]:
        return super().requirements() | {"features"}

    def round(self, server: ServerState, context: RoundContext) -> Round:
        centre = server.state.get("centre", np.zeros(5)).astype(np.float32)
        answers = yield Exchange(self.client_update, server.model, centre, down=("model", 5), up=("model", 5))
        server.apply_update(answers.mean("delta")[: server.num_params])
        server.keep("centre", answers.mean("centre"))

    def client_update(self, client: ClientContext, model: torch.Tensor, sent: torch.Tensor) -> ClientUpdate[Answer]:
        trained = yield from self.train(client, model)
        features = yield Features(trained)
        client.state["centre"] = features.mean(dim=0)
        return Answer(client.num_samples, delta=trained - model, centre=features.mean(dim=0))

    def server_state(self) -> dict[str, Any]:
        return {"centre": "phase"}


def test_a_loss_reads_client_state_features_and_a_vector_of_the_exchange() -> None:
    w, everybody = PLAIN.initial(), torch.zeros(5, dtype=torch.float64)
    own: dict[int, Vector] = {}

    def pulled(update: PlainUpdate) -> Callable[[Vector, torch.Tensor, torch.Tensor], torch.Tensor]:
        centre = (own.get(update.client, torch.zeros(5, dtype=torch.float64)) + everybody) / 2

        def loss(w: Vector, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            features, logits = forward(w, x)
            return F.cross_entropy(logits, y) + 0.3 * (features - centre).square().sum(dim=1).mean()

        return loss

    for cohort in rounds(PLAIN):
        models = [update.sgd(w, pulled(update)) for update in cohort]
        centres = [forward(model, update.x)[0].mean(dim=0) for model, update in zip(models, cohort, strict=True)]
        own |= {update.client: centre for update, centre in zip(cohort, centres, strict=True)}
        everybody = mean(centres, sizes(cohort))
        w = mean(models, sizes(cohort))
    algorithm = {"name": f"{HERE}:Centred", "penalties": [f"{HERE}:FromEverywhere"]}
    assert_equal(trained(algorithm, PLAIN), w, PLAIN)


class Telling(LocalTrainingAlgorithm):
    """Clients answer with the sums of what they were given."""

    def round(self, server: ServerState, context: RoundContext) -> Round:
        answers = yield Exchange(self.client_update, server.model)
        server.report(features=float(answers.sums["features"].sum()), outputs=float(answers.sums["outputs"].sum()))

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        features, outputs = (yield Features(model)), (yield Outputs(model))
        assert features.shape == (client.num_samples, 5)
        assert outputs.shape == (client.num_samples, 3)
        return Answer(sums={"features": features.sum(dim=0), "outputs": outputs.sum(dim=0)})


def test_features_and_outputs_are_those_of_the_model_in_evaluation_mode() -> None:
    _, events = run_on_hosts(prepared(f"{HERE}:Telling", PLAIN, model={"name": PEOPLE, "loudness": 1.7})[0], 2)
    w = PLAIN.initial()
    reported = [event.scalars for event in events if isinstance(event, RoundDone)]
    for scalars, cohort in zip(reported, rounds(PLAIN), strict=True):
        found = [forward(w, update.x) for update in cohort]
        assert scalars["features"] == pytest.approx(float(sum(features.sum() for features, _ in found)), rel=1e-4)
        assert scalars["outputs"] == pytest.approx(float(sum(outputs.sum() for _, outputs in found)), rel=1e-4)


PEOPLE = "tests.algorithms.scene:TanhNet"


class Stated(Telling):
    """The same, in an algorithm that says that no request of its clients is noised."""

    def sample_requests(self) -> tuple[SampleRequest, ...]:
        return ()


def test_features_of_single_samples_are_rejected_under_local_dp() -> None:
    dp = {"local": {**PLAIN.local, "dp": {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "delta": 0.001}}}
    with pytest.raises(RayflError, match=r"local\.dp: its client update requests the features of single samples"):
        run_on_hosts(prepared(f"{HERE}:Stated", PLAIN, dp)[0], 1)


class NoFeatures(nn.Module):
    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(4, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.layer(x)
        return outputs


def test_features_of_a_network_that_declares_none_are_an_error() -> None:
    with pytest.raises(
        ClientError, match="requests features, the input of the head: model NoFeatures does not declare its head"
    ):
        run_on_hosts(prepared(f"{HERE}:Telling", PLAIN, model=f"{HERE}:NoFeatures")[0], 1)


class ReadsFeatures(Classification):
    reads_features: ClassVar[bool] = True
    name: str = "reads features"

    def objective(self, batch: TrainingBatch) -> torch.Tensor:
        return self.loss(batch.outputs, batch.y) + batch.features.square().mean()


def test_a_task_that_reads_features_needs_a_network_that_declares_them() -> None:
    with pytest.raises(
        ScenarioError,
        match="reads the network's features, the input of its head: model NoFeatures does not declare its head",
    ):
        prepared("fedavg", PLAIN, task=f"{HERE}:ReadsFeatures", model=f"{HERE}:NoFeatures")
    changed = [run_on_hosts(prepared("fedavg", PLAIN, task=task)[0], 1)[0] for task in TASKS]
    assert not np.array_equal(changed[0], changed[1])


TASKS = ("classification", f"{HERE}:ReadsFeatures")


class WorksOnAHost(LocalTrainingAlgorithm):
    """After a round the server has its step computed on a host, which draws from streams and has no samples."""

    exchanges: ClassVar[int] = 2

    def asks(self) -> tuple[Any, ...]:
        return "cohort", "host"

    def round(self, server: ServerState, context: RoundContext) -> Round:
        answers = yield Exchange(self.client_update, server.model)
        delta = answers.mean("delta").astype(np.float32)
        work = yield Exchange(self.server_work, server.model, delta, at="host")
        server.apply_update(work.mean("step")[: server.num_params])
        server.report(scale=float(work.mean("scale")[0]))

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        trained = yield from self.train(client, model)
        return Answer(client.num_samples, delta=trained - model)

    def server_work(self, client: ClientContext, model: torch.Tensor, delta: torch.Tensor) -> Answer:
        assert (client.num_samples, len(client.data), client.sent[1] is delta) == (0, 0, True)
        scale = client.streams.numpy("scale").uniform()
        return Answer(step=scale * delta, scale=torch.full((1,), scale))


def test_a_host_works_for_a_server_that_holds_no_samples() -> None:
    models = []
    for hosts in (1, 3):
        job, _ = prepared(f"{HERE}:WorksOnAHost", PLAIN)
        assert job.result.store.server is None
        model, events = run_on_hosts(job, hosts)
        models.append(model)
    assert np.array_equal(models[0], models[1])
    w, stands_for = PLAIN.initial(), 12 + 2
    reported = [event.scalars["scale"] for event in events if isinstance(event, RoundDone)]
    for number, (scale, cohort) in enumerate(zip(reported, rounds(PLAIN), strict=True), start=1):
        drawn = client_stream(11, "scale", 0, number, stands_for, 1).uniform()
        assert scale == pytest.approx(drawn)
        w = w + drawn * mean([update.sgd(w) - w for update in cohort], sizes(cohort))
    assert_equal(trained(f"{HERE}:WorksOnAHost", PLAIN), w, PLAIN)


class TrainsThere(WorksOnAHost):
    def server_work(self, client: ClientContext, model: torch.Tensor, delta: torch.Tensor) -> Any:
        _ = yield LocalTraining(model)
        return Answer(step=delta, scale=delta[:1])


class SaysOtherwise(WorksOnAHost):
    def asks(self) -> tuple[Any, ...]:
        return "cohort", "cohort"


def test_requests_that_need_samples_are_an_error_without_them() -> None:
    with pytest.raises(ClientError, match="the server's work on a worker process"):
        run_on_hosts(prepared(f"{HERE}:TrainsThere", PLAIN)[0], 1)
    with pytest.raises(RayflError, match=r"exchange 1 has at='host', but `asks\(\)` returns 'cohort' for it"):
        run_on_hosts(prepared(f"{HERE}:SaysOtherwise", PLAIN)[0], 1)
