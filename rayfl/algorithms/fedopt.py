"""FedAvg whose server takes the clients' mean change for a gradient, and steps with momentum or an adaptive rate.

FedAvgM: Hsu, Qi and Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification", 2019. The others: Reddi et al., "Adaptive Federated Optimization", ICLR 2021, alg. 2.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated

import numpy as np
from pydantic import Field, PositiveFloat

from rayfl.algorithms.exchange import ServerState
from rayfl.algorithms.fedavg import FedAvg

Share = Annotated[float, Field(ge=0, lt=1)]


class FedAvgM(FedAvg):
    """m <- beta m + delta, w <- w + eta_g m.

    With `dampened` m <- beta m + (1 - beta) delta, as MOON's code has it.
    """

    momentum: Share = 0.9
    dampened: bool = False

    def step(self, server: ServerState, delta: np.ndarray) -> np.ndarray:
        velocity = self.momentum * server.recall("velocity", 0.0) + (1 - self.momentum * self.dampened) * delta
        server.memory["velocity"] = velocity
        return self.server_lr * velocity


class AdaptiveFedAvg(FedAvg):
    """m <- beta_1 m + (1 - beta_1) delta, w <- w + eta_g m / (sqrt(v) + tau), v by the subclass; no bias correction.

    v starts at tau^2, the least that the paper allows.
    """

    server_lr: PositiveFloat = 0.1
    beta_1: Share = 0.9
    tau: PositiveFloat = 1e-3

    def step(self, server: ServerState, delta: np.ndarray) -> np.ndarray:
        mean = self.beta_1 * server.recall("mean", 0.0) + (1 - self.beta_1) * delta
        second_moment = self.second_moment(server.recall("second_moment", self.tau**2), np.square(delta))
        server.memory |= {"mean": mean, "second_moment": second_moment}
        step: np.ndarray = self.server_lr * mean / (np.sqrt(second_moment) + self.tau)
        return step

    @abstractmethod
    def second_moment(self, before: np.ndarray, squared: np.ndarray) -> np.ndarray:
        """v, from the v before and delta^2, both [length of params]."""


class FedAdagrad(AdaptiveFedAvg):
    """v <- v + delta^2; the paper has beta_1 = 0."""

    beta_1: Share = 0.0

    def second_moment(self, before: np.ndarray, squared: np.ndarray) -> np.ndarray:
        after: np.ndarray = before + squared
        return after


class FedAdam(AdaptiveFedAvg):
    """v <- beta_2 v + (1 - beta_2) delta^2."""

    beta_2: Share = 0.99

    def second_moment(self, before: np.ndarray, squared: np.ndarray) -> np.ndarray:
        after: np.ndarray = self.beta_2 * before + (1 - self.beta_2) * squared
        return after


class FedYogi(AdaptiveFedAvg):
    """v <- v - (1 - beta_2) delta^2 sign(v - delta^2)."""

    beta_2: Share = 0.99

    def second_moment(self, before: np.ndarray, squared: np.ndarray) -> np.ndarray:
        after: np.ndarray = before - (1 - self.beta_2) * squared * np.sign(before - squared)
        return after
