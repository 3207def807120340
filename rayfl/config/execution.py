"""[evaluation], [numerics] and [resources]: when to test, what decides the bits, and what to run on."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from rayfl.config.phase import Local
from rayfl.config.section import Section


class Evaluation(Section):
    """The global model on the test examples: every so many rounds, and after the last round of each phase.

    per_client: also every client's own test examples, into clients.parquet.
    personalize: also, for every client, the model after this local training on the client's own examples, scored on its
        own test examples (FedBABU's personalised accuracy); each time from the global model, of which nothing changes.
        Its rate is the same in all rounds.
    """

    every: PositiveInt = 1
    batch_size: PositiveInt = 500
    per_client: bool = False
    personalize: Local | None = None

    @field_validator("personalize")
    @classmethod
    def _no_rounds_to_decay_over(cls, local: Local | None) -> Local | None:
        if local and (local.lr_decay != 1 or local.lr_drops):
            raise ValueError("knows no lr_decay and no lr_drops: it has the same rate in all rounds")
        return local


class Numerics(Section):
    """What, beside the data and the algorithm, decides the last bit of the result.

    threads: CPU threads of one visit.
    fraction_bits: contributions to a sum are rounded to multiples of 2**-fraction_bits, so that sums are exact
        and their order cannot matter; a weighted value must stay below
        2**(51 - fraction_bits), half a million for 32, and a sum below 2**(53 - fraction_bits), two million.
    """

    threads: PositiveInt = 1
    fraction_bits: Annotated[int, Field(ge=8, le=48)] = 32


class Resources(Section):
    """What to run on. Nothing here changes a result, the kind of device apart.

    hosts: how many; `auto`: one for every `cpus_per_host` (and `gpus_per_host`) that is there.
    gpus_per_host: fractions let hosts share a GPU.
    device: `auto` is CUDA for hosts with a share of a GPU, else the CPU.
    relay: `packed` runs a relay on one host, while the others evaluate; `spread` sends the model to each
        client's own host. Clients that keep state always train on their own host.
    restarts: how often a host that died is started anew; its visits are repeated.
    patience_s: after so many seconds without an answer the outstanding visits are named.
    """

    hosts: PositiveInt | Literal["auto"] = "auto"
    cpus_per_host: PositiveFloat = 1
    gpus_per_host: NonNegativeFloat = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    relay: Literal["packed", "spread"] = "packed"
    restarts: NonNegativeInt = 3
    patience_s: PositiveFloat = 60

    @model_validator(mode="after")
    def _whole_gpus(self) -> Resources:
        if self.gpus_per_host > 1 and self.gpus_per_host != int(self.gpus_per_host):
            raise ValueError("gpus_per_host above 1 must be a whole number")
        return self

    @property
    def uses_cuda(self) -> bool:
        return self.device == "cuda" or (self.device == "auto" and self.gpus_per_host > 0)
