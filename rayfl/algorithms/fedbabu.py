"""FedBABU: only the body is trained; the head stays as it was drawn, and is fine-tuned when a client personalises.

Oh, Kim and Yun, "FedBABU: Toward Enhanced Representation for Federated Image Classification", ICLR 2022.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from rayfl.algorithms.fedavg import FedAvg
from rayfl.config.local import Train


class FedBABU(FedAvg):
    """FedAvg of all but the network's head, its feature layer, which keeps its initial value on all clients.

    Evaluated as it is, it is the paper's "initial accuracy"; `evaluation.personalize` fine-tunes it for every client.
    With `local.dp` the body's gradients are clipped and noised; the head has no noise.
    """

    trains_only: ClassVar[Train] = "body"

    weighting: Literal["samples", "uniform"] = "uniform"
