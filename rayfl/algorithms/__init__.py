"""Federated algorithms; presets name well-known combinations of their parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayfl.config.registry import Registry
from rayfl.lazy_names import lazy_names

if TYPE_CHECKING:
    from rayfl.algorithms.aggregation import Aggregation
    from rayfl.algorithms.algorithm import Algorithm, Round
    from rayfl.algorithms.exchange import Answer, Answers, Exchange, Messages, Part, Released
    from rayfl.algorithms.fedavg import FedAvg
    from rayfl.algorithms.fedopt import ServerOptimizer
    from rayfl.algorithms.limits import Requirement, SampleRequest
    from rayfl.algorithms.local_training import LocalTrainingAlgorithm
    from rayfl.algorithms.penalty import Penalty
    from rayfl.algorithms.personalization import FedPer, PersonalParts
    from rayfl.algorithms.sampler import CohortSampler, SamplingContext
    from rayfl.algorithms.server_state import RoundContext, ServerState
    from rayfl.algorithms.support_query import SupportQuery
    from rayfl.algorithms.transforms import AnswerTransform, BiasedTransform, Encoded
    from rayfl.algorithms.updates import Updates
    from rayfl.local.state import Declaration, merged

__all__ = [
    "Aggregation",
    "Algorithm",
    "Answer",
    "AnswerTransform",
    "Answers",
    "BiasedTransform",
    "CohortSampler",
    "Declaration",
    "Encoded",
    "Exchange",
    "FedAvg",
    "FedPer",
    "LocalTrainingAlgorithm",
    "Messages",
    "Part",
    "Penalty",
    "PersonalParts",
    "Released",
    "Requirement",
    "Round",
    "RoundContext",
    "SampleRequest",
    "SamplingContext",
    "ServerOptimizer",
    "ServerState",
    "SupportQuery",
    "Updates",
    "merged",
]

_HOMES = {
    "Aggregation": "rayfl.algorithms.aggregation",
    "Algorithm": "rayfl.algorithms.algorithm",
    "Answer": "rayfl.algorithms.exchange",
    "AnswerTransform": "rayfl.algorithms.transforms",
    "Answers": "rayfl.algorithms.exchange",
    "BiasedTransform": "rayfl.algorithms.transforms",
    "CohortSampler": "rayfl.algorithms.sampler",
    "Declaration": "rayfl.local.state",
    "Encoded": "rayfl.algorithms.transforms",
    "Exchange": "rayfl.algorithms.exchange",
    "FedAvg": "rayfl.algorithms.fedavg",
    "FedPer": "rayfl.algorithms.personalization",
    "LocalTrainingAlgorithm": "rayfl.algorithms.local_training",
    "Messages": "rayfl.algorithms.exchange",
    "Part": "rayfl.algorithms.exchange",
    "Penalty": "rayfl.algorithms.penalty",
    "PersonalParts": "rayfl.algorithms.personalization",
    "Released": "rayfl.algorithms.exchange",
    "Requirement": "rayfl.algorithms.limits",
    "Round": "rayfl.algorithms.algorithm",
    "RoundContext": "rayfl.algorithms.server_state",
    "SampleRequest": "rayfl.algorithms.limits",
    "SamplingContext": "rayfl.algorithms.sampler",
    "ServerOptimizer": "rayfl.algorithms.fedopt",
    "ServerState": "rayfl.algorithms.server_state",
    "SupportQuery": "rayfl.algorithms.support_query",
    "Updates": "rayfl.algorithms.updates",
    "merged": "rayfl.local.state",
}

__getattr__ = lazy_names(__name__, _HOMES)

algorithms = Registry(
    "algorithm",
    {
        "fedavg": "rayfl.algorithms.fedavg:FedAvg",
        "fedavgm": "rayfl.algorithms.fedavg:FedAvg",
        "fedadagrad": "rayfl.algorithms.fedavg:FedAvg",
        "fedadam": "rayfl.algorithms.fedavg:FedAvg",
        "fedyogi": "rayfl.algorithms.fedavg:FedAvg",
        "fedprox": "rayfl.algorithms.fedavg:FedAvg",
        "scaffold": "rayfl.algorithms.scaffold:SCAFFOLD",
        "moon": "rayfl.algorithms.fedavg:FedAvg",
        "feddyn": "rayfl.algorithms.feddyn:FedDyn",
        "fedexp": "rayfl.algorithms.fedexp:FedExP",
        "feddecorr": "rayfl.algorithms.fedavg:FedAvg",
        "fednova": "rayfl.algorithms.fednova:FedNova",
        "qfedavg": "rayfl.algorithms.qffl:QFedAvg",
        "qfedsgd": "rayfl.algorithms.qffl:QFedSGD",
        "coprefl": "rayfl.algorithms.coprefl:CoPreFL",
        "fedbabu": "rayfl.algorithms.personalization:FedBABU",
        "orchestra": "rayfl.algorithms.orchestra:Orchestra",
        "ditto": "rayfl.algorithms.personalization:Ditto",
        "fedbn": "rayfl.algorithms.personalization:FedBN",
        "fedper": "rayfl.algorithms.personalization:FedPer",
        "fedmeta": "rayfl.algorithms.fedmeta:FedMeta",
        "perfedavg": "rayfl.algorithms.perfedavg:PerFedAvg",
    },
)
