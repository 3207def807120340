"""The scenarios whose results are recorded: together they use the algorithms and every kind of local training."""

from __future__ import annotations

from typing import Any

from rayfl.algorithms import algorithms

PEOPLE: dict[str, Any] = {
    "seed": 7,
    "data": {"name": "tests.algorithms.scene:people"},
    "model": {"name": "tests.algorithms.scene:TanhNet", "dropout": 0.3},
    "evaluation": {"every": 2},
}
"""Twelve clients and a network with dropout that is quickly trained."""

LOCAL: dict[str, Any] = {
    "epochs": 2, "batch_size": 4, "lr": 0.05, "lr_decay": 0.9, "momentum": 0.5, "weight_decay": 0.01, "clip_norm": 1.0,
}  # fmt: skip
RELAY: dict[str, Any] = {
    "name": "cyclic", "schedule": "relay", "rounds": 3, "cohort": 4, "local": {"steps": 3, "batch_size": 8},
}  # fmt: skip
ELSEWHERE = ("ditto", "fedbn", "fedmeta", "orchestra", "perfedavg")
"""Algorithms with scenarios of their own below."""

VARIANTS: dict[str, dict[str, Any]] = {
    **{name: {"algorithm": name} for name in algorithms if name not in ELSEWHERE},
    "fedavg-all-uniform-0.7": {
        "algorithm": {"name": "fedavg", "weighting": "uniform", "server_optimizer": {"name": "sgd", "lr": 0.7}},
        "eval_model": "all",
    },
    "fedavgm-True": {"algorithm": {"name": "fedavgm", "dampened": True}},
    "scaffold-I-step-samples": {
        "algorithm": {"name": "scaffold", "option": "I", "correction": "step", "weighting": "samples"}
    },
    "moon-initial": {"algorithm": {"name": "moon", "first": "initial"}},
    "moon-False": {"algorithm": {"name": "moon", "divide_by_tau": False}},
    "feddecorr-code": {"algorithm": {"name": "feddecorr", "scaling": "code"}},
    "feddyn-all-decay-True": {
        "algorithm": {"name": "feddyn", "penalty": "decay", "scale_alpha": True},
        "eval_model": "all",
    },
    "feddyn-cloud": {"algorithm": "feddyn", "eval_model": "global"},
    "fedexp-feddecorr": {"algorithm": {"name": "fedexp", "form": "feddecorr"}},
    "fedexp-code-global": {
        # 1e-3 / 0.998 ** 6, rounded up: in the first parallel round, the fourth of all, epsilon is 1e-3 * 0.998 ** 2
        "algorithm": {"name": "fedexp", "form": "code", "epsilon": 0.0010120844500240938},
        "eval_model": "global",
    },
    "fedexp-fedbug-all": {"algorithm": {"name": "fedexp", "form": "fedbug"}, "eval_model": "all"},
}
"""What the parallel phases of a golden scenario have of their own."""

META_LEARNED: tuple[tuple[str, dict[str, Any], tuple[str, ...]], ...] = (
    ("fedmeta", {"variant": "meta_sgd"}, ("lr",)),
    ("perfedavg", {"variant": "hessian_free"}, ("epochs", "batch_size", "lr", "lr_decay")),
)
"""Algorithms that read a part of `local` only, with their options."""


def golden_scenarios() -> dict[str, dict[str, Any]]:
    """Scenario tables by name."""
    tables: dict[str, dict[str, Any]] = {}
    for name, variant in VARIANTS.items():
        tables[name] = PEOPLE | {"phases": _phases(variant)}
    for name in ("fedavg", "fedprox", "feddecorr", "moon", "fedbabu"):
        phases = [RELAY | {"algorithm": name, "local": LOCAL}]
        tables[f"relay-spread-{name}"] = PEOPLE | {"phases": phases, "resources": {"relay": "spread"}}
    for name, options, of_local in META_LEARNED:
        phase = {"name": "federated", "rounds": 4, "cohort": 5, "algorithm": {"name": name} | options}
        local = {key: LOCAL[key] for key in of_local}
        tables[name] = PEOPLE | {"phases": [RELAY, phase | {"local": local}]}
    personal = {"every": 2, "per_client": True, "client_model": "personal"}
    tables["ditto"] = PEOPLE | {"phases": _phases({"algorithm": "ditto"}), "evaluation": personal}
    tables |= _networks()
    tables |= _self_supervised()
    return tables


def _phases(variant: dict[str, Any]) -> list[dict[str, Any]]:
    """A relay, a parallel phase and one in which modules thaw; q-FedSGD does no local training."""
    parallel = {**variant, "cohort": 5}
    if variant["algorithm"] == "qfedsgd":
        return [RELAY, parallel | {"name": "federated", "rounds": 4, "local": {"lr": 0.05, "lr_decay": 0.9}}]
    thawing = {"name": "thawing", "rounds": 2, "local": LOCAL | {"unfreeze": {"share": 0.7}}}
    return [RELAY, parallel | {"name": "federated", "rounds": 4, "local": LOCAL}, parallel | thawing]


def _networks() -> dict[str, dict[str, Any]]:
    """Convolutions, dropout, augmentation; batch norm; narrow first layers; personalisation; ways to draw cohorts."""
    handwriting = {
        "seed": 7,
        "data": {"name": "handwriting", "clients": 8, "augment": ["flip", {"name": "crop", "padding": 2}]},
        "model": {"name": "cnn_fashion_mnist"},
        "evaluation": {"every": 2},
    }
    federated = {
        "name": "federated", "rounds": 3, "cohort": 5, "local": {"epochs": 2, "batch_size": 16, "momentum": 0.5},
    }  # fmt: skip
    digits: dict[str, Any] = {
        "seed": 3,
        "data": {
            "name": "cifar10",
            "source": "generated",
            "clients": 100,
            "partition": {"name": "dirichlet_plain", "alpha": 5.0},
        },
        "evaluation": {"every": 2, "samples": 100},
    }
    few = {"steps": 3, "batch_size": 8, "lr": 0.05, "momentum": 0.9}
    short = [
        RELAY | {"rounds": 1, "cohort": 3, "local": few, "order": "no_repeat"},
        {"name": "federated", "rounds": 2, "cohort": 3, "local": few},
    ]
    return {
        "convolutions": handwriting | {"phases": [RELAY, federated]},
        "batch_norm": digits | {"model": {"name": "resnet8", "norm": "batch"}, "phases": short},
        "fedbn": digits
        | {"model": {"name": "resnet8", "norm": "batch"}, "phases": [short[0], short[1] | {"algorithm": "fedbn"}]},
        "lenet5": digits | {"model": "lenet5", "phases": short},
        "recipe": digits
        | {
            "model": "lenet5",
            "phases": short,
            "data": digits["data"] | {"normalize": "moon_cifar10", "augment": ["moon_cifar10"]},
        },
        "personalised": PEOPLE
        | {
            "phases": _phases({"algorithm": "fedbabu"}),
            "evaluation": {"every": 3, "per_client": True, "personalize": {"epochs": 2, "batch_size": 4, "lr": 0.1}},
        },
        "frozen": PEOPLE
        | {
            "phases": [
                {"name": "by_size", "rounds": 2, "cohort": {"by_size": 3}, "local": LOCAL, "train": "body"},
                {
                    "name": "bernoulli",
                    "rounds": 2,
                    "cohort": {"bernoulli": 0.3},
                    "local": LOCAL | {"unfreeze": {"share": 0.5, "order": "top_down", "units": "halves"}},
                },
            ]
        },
    }


def _self_supervised() -> dict[str, dict[str, Any]]:
    """Views, targets, queues and clusters; kept momentum and rates of single modules."""
    views = [{"augment": ["flip"]}, {"augment": [{"name": "crop", "padding": 2}]}, {"augment": ["flip"]}]
    local = {"steps": 5, "batch_size": 8, "lr": 0.002, "momentum": 0.5, "drop_last": True}
    phase = {"name": "pre", "rounds": 2, "cohort": 4, "local": local}
    central = {"name": "central", "schedule": "central", "rounds": 2, "keep_momentum": True}
    apart = local | {"module_lr": {"fc3.predictor": 0.001}}

    def tables(name: str, phases: list[dict[str, Any]], compared: int = 2, **options: Any) -> dict[str, Any]:
        model = {"moco": "momentum_contrast", "simsiam": "siamese"}.get(name, name)
        task = {"name": name} | options
        return {
            "seed": 7,
            "data": {"name": "handwriting", "clients": 8, "views": views[:compared]},
            "model": {"name": model, "network": "lenet5", "width": 16},
            "task": task,
            "phases": phases,
            "evaluation": {"every": 2, "metrics": ["spread", "knn"], "bank": 100},
        }

    clustering = {"name": "orchestra", "local_clusters": 6, "stateful": True}
    return {
        "simsiam": tables("simsiam", [phase | {"local": apart}, central | {"local": apart}]),
        "moco": tables("moco", [phase, central | {"local": local}], queue=64),
        "orchestra": tables("orchestra", [phase | {"algorithm": clustering}], compared=3, memory=16),
    }
