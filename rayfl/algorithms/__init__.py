"""Federated algorithms; presets name well-known combinations of their parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayfl.config.registry import Registry
from rayfl.lazy_names import lazy_names

if TYPE_CHECKING:
    from rayfl.algorithms.aggregation import Aggregation as Aggregation
    from rayfl.algorithms.algorithm import Algorithm as Algorithm
    from rayfl.algorithms.algorithm import Round as Round
    from rayfl.algorithms.coprefl import CoPreFL as CoPreFL
    from rayfl.algorithms.exchange import Answer as Answer
    from rayfl.algorithms.exchange import Answers as Answers
    from rayfl.algorithms.exchange import Exchange as Exchange
    from rayfl.algorithms.exchange import Messages as Messages
    from rayfl.algorithms.exchange import Part as Part
    from rayfl.algorithms.exchange import Released as Released
    from rayfl.algorithms.fedavg import FedAvg as FedAvg
    from rayfl.algorithms.feddyn import FedDyn as FedDyn
    from rayfl.algorithms.fedexp import FedExP as FedExP
    from rayfl.algorithms.fedmeta import FedMeta as FedMeta
    from rayfl.algorithms.fednova import FedNova as FedNova
    from rayfl.algorithms.fedopt import SGD as SGD
    from rayfl.algorithms.fedopt import Adagrad as Adagrad
    from rayfl.algorithms.fedopt import Adam as Adam
    from rayfl.algorithms.fedopt import Momentum as Momentum
    from rayfl.algorithms.fedopt import ServerOptimizer as ServerOptimizer
    from rayfl.algorithms.fedopt import Yogi as Yogi
    from rayfl.algorithms.limits import Requirement as Requirement
    from rayfl.algorithms.limits import SampleRequest as SampleRequest
    from rayfl.algorithms.local_training import LocalTrainingAlgorithm as LocalTrainingAlgorithm
    from rayfl.algorithms.orchestra import Orchestra as Orchestra
    from rayfl.algorithms.penalty import Contrastive as Contrastive
    from rayfl.algorithms.penalty import Decorrelation as Decorrelation
    from rayfl.algorithms.penalty import Penalty as Penalty
    from rayfl.algorithms.penalty import Proximal as Proximal
    from rayfl.algorithms.perfedavg import PerFedAvg as PerFedAvg
    from rayfl.algorithms.personalization import Ditto as Ditto
    from rayfl.algorithms.personalization import FedBABU as FedBABU
    from rayfl.algorithms.personalization import FedBN as FedBN
    from rayfl.algorithms.personalization import FedPer as FedPer
    from rayfl.algorithms.personalization import PersonalParts as PersonalParts
    from rayfl.algorithms.qffl import QFedAvg as QFedAvg
    from rayfl.algorithms.qffl import QFedSGD as QFedSGD
    from rayfl.algorithms.sampler import CohortSampler as CohortSampler
    from rayfl.algorithms.sampler import SamplingContext as SamplingContext
    from rayfl.algorithms.scaffold import Scaffold as Scaffold
    from rayfl.algorithms.server_state import RoundContext as RoundContext
    from rayfl.algorithms.server_state import ServerState as ServerState
    from rayfl.algorithms.support_query import SupportQuery as SupportQuery
    from rayfl.algorithms.transforms import AnswerTransform as AnswerTransform
    from rayfl.algorithms.transforms import BiasedTransform as BiasedTransform
    from rayfl.algorithms.transforms import Encoded as Encoded
    from rayfl.algorithms.updates import Updates as Updates
    from rayfl.local.state import Declaration as Declaration
    from rayfl.local.state import merged as merged
else:
    __getattr__, __dir__ = lazy_names(__name__)


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
