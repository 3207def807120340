"""The run behind each algorithm's curve, and why some algorithms have none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Table = Mapping[str, Any]

REFERENCE = "fedavg"
ROUNDS = 30
CLIENTS = 20
BETA = 0.3
COHORT = 10
STEPS = 10


@dataclass(frozen=True)
class Setting:
    """How the algorithms of one picture are run and scored.

    Attributes:
        words: What differs from the common setting, as a sentence; empty if nothing does.
        metric: Column of metrics.jsonl that is drawn.
        data: Keys of `data` beyond the common ones.
        model: The network.
        evaluation: Keys of `evaluation` beyond the common ones.
        personal: Whether clients are scored with their personal models; with FedAvg, which has none, with the global
            model.
    """

    words: str = ""
    metric: str = "test_accuracy"
    data: Table = field(default_factory=dict)
    model: Table = field(default_factory=lambda: {"name": "mlp", "hidden": [64]})
    evaluation: Table = field(default_factory=dict)
    personal: bool = False


@dataclass(frozen=True, eq=False)
class Curve:
    """A run.

    Attributes:
        algorithm: Its registered name.
        label: Its name in the legend.
        setting: A name in `SETTINGS`.
        options: Of the algorithm, where they are not its defaults.
        local: The keys of `local`, where they are not the common ones.
        note: A further remark for readers, as a sentence.
    """

    algorithm: str
    label: str
    setting: str = "common"
    options: Table = field(default_factory=dict)
    local: Table = field(default_factory=lambda: {"steps": STEPS, "batch_size": 32, "lr": 0.1})
    note: str = ""

    @property
    def name(self) -> str:
        """The folder of its records."""
        repeated = self.algorithm == REFERENCE and self.setting != "common"
        return f"{self.algorithm}_{self.setting}" if repeated else self.algorithm


OWN_TEST_SAMPLES: Table = {"test_share": 0.2}

SETTINGS: Mapping[str, Setting] = {
    "common": Setting(),
    "personal": Setting(
        "Clients keep a fifth of their samples for testing, and each is scored on its own: with its personal model, "
        "or with the global model of FedAvg.",
        "client_test_accuracy_mean",
        data=OWN_TEST_SAMPLES,
        evaluation={"over_clients": ["mean"]},
        personal=True,
    ),
    "batch_norm": Setting(
        "The hidden layer has batch norm. Clients keep a fifth of their samples for testing, and each is scored on its "
        "own: with its own batch norm, or with the global model of FedAvg.",
        "client_test_accuracy_mean",
        data=OWN_TEST_SAMPLES,
        model={"name": "tools.algorithm_curves.network:NormalizedPerceptron"},
        evaluation={"over_clients": ["mean"]},
        personal=True,
    ),
    "adapted": Setting(
        "Clients keep a fifth of their samples for testing, and each is scored on its own, after it has adapted the "
        "global model by one gradient step on 100 of its training samples.",
        "personalized_accuracy",
        data=OWN_TEST_SAMPLES,
        evaluation={"personalize": {"steps": 1, "batch_size": 100, "lr": 0.1}, "over_clients": ["mean"]},
    ),
}

ADAPTIVE: Table = {"lr": 0.01}
ONE_GRADIENT: Table = {"lr": 0.1}
ONE_GRADIENT_NOTE = f"Instead of {STEPS} steps, a client sends one gradient in each round."

CURVES = (
    Curve("fedavg", "FedAvg"),
    Curve("fedprox", "FedProx"),
    Curve("moon", "MOON"),
    Curve("feddecorr", "FedDecorr"),
    Curve("fedavgm", "FedAvgM"),
    Curve("fedadagrad", "FedAdagrad", options=ADAPTIVE),
    Curve("fedadam", "FedAdam", options=ADAPTIVE),
    Curve("fedyogi", "FedYogi", options=ADAPTIVE),
    Curve("scaffold", "SCAFFOLD"),
    Curve("feddyn", "FedDyn"),
    Curve("fedexp", "FedExP"),
    Curve("fednova", "FedNova", note="All clients take the same number of steps, so FedNova equals FedAvg here."),
    Curve("qfedavg", "q-FedAvg"),
    Curve("qfedsgd", "q-FedSGD", local=ONE_GRADIENT, note=ONE_GRADIENT_NOTE),
    Curve("coprefl", "CoPreFL"),
    Curve("fedbabu", "FedBABU"),
    Curve("fedavg", "FedAvg", "personal"),
    Curve("ditto", "Ditto", "personal"),
    Curve("fedper", "FedPer", "personal"),
    Curve("fedavg", "FedAvg", "batch_norm"),
    Curve("fedbn", "FedBN", "batch_norm"),
    Curve("fedavg", "FedAvg", "adapted"),
    Curve("fedmeta", "FedMeta", "adapted", {"meta_lr": 0.5}, ONE_GRADIENT, ONE_GRADIENT_NOTE),
    Curve("perfedavg", "Per-FedAvg", "adapted", {"inner_lr": 0.1}),
)

NO_CURVE: Mapping[str, str] = {
    "orchestra": "Orchestra trains without labels, so it has no accuracy to draw beside that of FedAvg.",
}
"""Algorithms without a curve, and the reason."""


def curve_of(algorithm: str) -> Curve:
    """The curve on the page of an algorithm that is not in `NO_CURVE`."""
    return next(curve for curve in CURVES if curve.algorithm == algorithm)


def reference_of(curve: Curve) -> Curve:
    """FedAvg in the setting of a curve."""
    return next(one for one in CURVES if one.algorithm == REFERENCE and one.setting == curve.setting)


def scenario(curve: Curve) -> dict[str, Any]:
    """The scenario that a curve is drawn from."""
    setting = SETTINGS[curve.setting]
    personal = setting.personal and curve.algorithm != REFERENCE
    return {
        "name": curve.name,
        "title": curve.label,
        "data": {
            "name": "fashion_mnist",
            "source": "files",
            "clients": CLIENTS,
            "partition": {"name": "dirichlet", "beta": BETA},
            **setting.data,
        },
        "model": dict(setting.model),
        "phases": [
            {
                "name": "federated",
                "algorithm": {"name": curve.algorithm, **curve.options},
                "rounds": ROUNDS,
                "cohort": COHORT,
                "local": dict(curve.local),
            }
        ],
        "evaluation": {**setting.evaluation, **({"client_model": "personal"} if personal else {})},
    }
