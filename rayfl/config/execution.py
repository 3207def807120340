"""[evaluation], [numerics], [resources] and [checkpoint]: everything about a run but what it learns.

When to test, settings that affect the last bits, hardware, and when to write checkpoints from which a run can be
resumed.
"""

from __future__ import annotations

import re
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

from rayfl.config.local import Rates, Train, TrainingBySteps
from rayfl.config.section import Named, PlainOptions, Section

ClientStatistic = Literal[
    "mean", "variance", "lowest_10", "lowest_20", "variance_corrected", "pooled_mean", "pooled_variance"
]
"""A statistic over clients, as defined in `rayfl.tasks.metrics.over_clients` and `pooled`."""

NUMBER_OF_CLIENTS = "clients"
"""Ending of the column with the number of clients that a metric's statistics describe."""


class Personalization(TrainingBySteps):
    """How each client trains the global model for itself before it is scored; takes the keys of `local`.

    Attributes:
        train: Which part of the network trains, whatever the phase trained: `all` (the default), `head`, `body`, or a
            list of names or shell patterns of modules and parameters.
    """

    train: Train = "all"


class Evaluation(Section):
    """How the global model is evaluated on the test samples.

    Attributes:
        metrics: Metrics reported in addition to the loss: registered ones, or `package.module:object` of your own,
            which is a function (outputs, targets) of all test samples or a class derived from torchmetrics.Metric or
            rayfl.tasks.Metric. By default the task's metrics.
        headline: Label of the metric that ranks rounds and runs, or "loss". By default the first metric.
        every: Evaluates after every `every` rounds of the scenario, and after the last round of each phase. Default: 1.
        samples: Maximum number of the data's test samples to evaluate on, drawn once from the data's seed, the same in
            all rounds. With scores per client, every client that has test samples keeps at least one, and
            the rest are drawn from all clients alike. Other sets are always evaluated in full. By default all samples
            are used.
        clients: Number of clients on whose test samples the model is evaluated, drawn again for every evaluated round,
            uniformly from the clients that have test samples. Scores are then by client, as with `per_client`. By
            default all clients.
        bank: Maximum number of training samples that feature metrics (`knn`, `linear_probe`) use with their labels,
            drawn once from the data's seed, the same in all rounds. Needed by these metrics only. By default none are
            drawn.
        batch_size: Test samples per forward pass. Default: 500.
        per_client: Also scores every client on its own test samples and writes clients.parquet. Default: false.
        over_clients: Statistics of the headline metric over clients, with equal weights, as columns
            `<set>_<metric>_<statistic>` (`client_test_accuracy_variance`) for every set whose samples belong to
            clients, and for `personalized_<metric>`. `mean`; `variance`, of the population, in squared shares;
            `lowest_10` and `lowest_20`, the mean of the worst 10 and 20 % of the clients, at least one;
            `variance_corrected`, less the variance expected from small test sets (accuracy and top_k). Scores are then
            by client, as with `per_client`. `pooled_mean` and `pooled_variance`, as `test_<metric>_pooled_mean`, need
            no test samples by client: a client's accuracy is that of each class of the test samples, weighted by the
            classes of its own samples (training and held-out ones); they do not combine with `clients`, `personalize`
            and `client_model = "personal"`. Clients whose labels leave the metric undefined are left out;
            `<set>_<metric>_clients` is the number of the others, which the statistics describe. Default: none.
        personalize: Also trains the global model on each client's own training samples with these keys of `local`, and
            scores the result on the client's own test samples (FedBABU's personalised accuracy). The global model does
            not change. The learning rate is the same in all rounds, so `lr_decay`, `lr_drops` and `round_schedule`
            raise an error. With `steps` but no `epochs`, all steps are taken. By default clients do not personalise.
        client_model: Which model is scored on a client's own test samples: the `global` model (the default), or the
            client's `personal` one if the phase's algorithm keeps personal models (`ditto`, `fedbn`, `fedper`, `buffers
            = "keep"`), else the global one. With `personal`, all scores are by client, as with `per_client`. `personal`
            does not combine with `personalize`.
    """

    metrics: tuple[Named, ...] = ()
    headline: str | None = None
    every: PositiveInt = 1
    samples: PositiveInt | None = None
    clients: PositiveInt | None = None
    bank: PositiveInt | None = None
    batch_size: PositiveInt = 500
    per_client: bool = False
    over_clients: tuple[ClientStatistic, ...] = ()
    personalize: Personalization | None = None
    client_model: Literal["global", "personal"] = "global"

    @property
    def scores_by_client(self) -> bool:
        """Whether every client is scored on its own samples."""
        own = len(self.over_clients) > len(self.pooled_statistics)
        return any((self.per_client, own, self.personalize, self.clients, self.client_model == "personal"))

    @property
    def pooled_statistics(self) -> tuple[ClientStatistic, ...]:
        """The statistics over clients that are computed on all test samples."""
        return tuple(name for name in self.over_clients if name.startswith("pooled_"))

    @field_validator("over_clients")
    @classmethod
    def _every_statistic_once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(names)) < len(names):
            raise ValueError("lists a statistic twice")
        return names

    @field_validator("personalize")
    @classmethod
    def _no_rounds_to_decay_over(cls, local: Personalization | None) -> Personalization | None:
        if local and (local.lr_decay != 1 or local.lr_drops or local.round_schedule != Rates()):
            raise ValueError(
                "does not support lr_decay, lr_drops and round_schedule: its learning rate is the same in all rounds"
            )
        return local

    @model_validator(mode="after")
    def _one_kind_of_client_model(self) -> Evaluation:
        if self.personalize and self.client_model == "personal":
            raise ValueError(
                "personalize trains the global model, and client_model = 'personal' scores other models; choose one"
            )
        return self

    @model_validator(mode="after")
    def _one_model_for_the_pool(self) -> Evaluation:
        other = {
            "client_model = 'personal'": self.client_model == "personal",
            "personalize": self.personalize,
            "clients": self.clients,
        }
        for name in self.pooled_statistics:
            for key in (key for key, chosen in other.items() if chosen):
                raise ValueError(
                    f"over_clients: '{name}' scores the global model for all clients and cannot be combined with "
                    f"{key}; leave one of them out"
                )
        return self


class Numerics(Section):
    """Settings other than data and algorithm that can change the last bits of the result.

    Attributes:
        threads: CPU threads per client update. Default: 1.
        kernels: `fast` (the default) replaces layers of the network by faster ones with the same outputs where the CPU
            has them; `plain` leaves the network as written, for tools that look at the types of layers, such as Opacus.
        deterministic: On CUDA, raises an error for operations without a deterministic implementation (the default); if
            false, runs that use such operations differ in their last bits.
        tf32: On CUDA, lets matrix products and convolutions round their inputs to TF32 (10 bits), for speed. Default:
            false.
        clients_at_once: Number of clients of a parallel round that train together as one stacked computation. Meant for
            GPUs and networks too small to fill one; slower on CPUs. Works with plain SGD with or without momentum, with
            regularisers and corrections that need only the parameters, and for networks without batch norm, dropout and
            recurrent layers; everything else runs client by client, as do relays, `local.dp`, and losses and gradients
            that an algorithm requests. The last bits of a stacked update depend on the other clients in its group, so
            groups follow from the scenario alone: clients with similar numbers of steps or, if clients keep state, with
            the same client number modulo 64, so large groups need several times 64 clients in a cohort. Default: 1.
        fraction_bits: Contributions to a sum are rounded to multiples of 2**-fraction_bits, which makes sums exact and
            independent of their order; from 8 to 48. Default: 32.
    """

    threads: PositiveInt = 1
    kernels: Literal["fast", "plain"] = "fast"
    deterministic: bool = True
    tf32: bool = False
    clients_at_once: PositiveInt = 1
    fraction_bits: Annotated[int, Field(ge=8, le=48)] = 32


class HostRange(Section):
    """A number of worker processes that follows the size of the cluster.

    A run starts as soon as `min` fit. The rest is requested from Ray all the same, so that an autoscaler adds nodes,
    and joins between two rounds; after the loss of nodes a run continues with fewer, and requests them again.

    Attributes:
        min: The smallest number. Default: 1.
        max: The largest number.
    """

    min: PositiveInt = 1
    max: PositiveInt


class HostOptions(Section):
    """What Ray is asked for each worker process, besides CPUs and GPUs.

    Attributes:
        label_selector: Labels of the nodes to run on, by key: a value, `!value`, `in(a, b)` or `!in(a, b)`, such as
            `{ pool = "training", "ray.io/market-type" = "!spot" }`. By default any node.
        resources: Amounts of custom resources, which a node declares with `ray start --resources`. By default none.
        accelerator_type: Kind of accelerator that the node must have, by Ray's name, such as `A100`. By default any.
        memory_gb: Main memory, in GiB, that Ray reserves. Ray limits no process to it, but places no more processes on
            a node than its memory allows. By default none is reserved.
        runtime_env: Ray's runtime environment, such as `{ env_vars = { OMP_NUM_THREADS = "2" } }`; by default that of
            the driver. It is recorded with the scenario, so it must hold no secrets.
    """

    label_selector: dict[str, Annotated[str, Field(min_length=1)]] = Field(default_factory=dict)
    resources: dict[str, PositiveFloat] = Field(default_factory=dict)
    accelerator_type: str | None = None
    memory_gb: PositiveFloat | None = None
    runtime_env: PlainOptions = Field(default_factory=dict)

    @field_validator("label_selector")
    @classmethod
    def _conditions(cls, selector: dict[str, str]) -> dict[str, str]:
        for key, condition in selector.items():
            if not _LABEL_CONDITION.fullmatch(condition):
                raise ValueError(f"{key} = '{condition}' is none of value, !value, in(a, b) and !in(a, b)")
        return selector

    @field_validator("resources")
    @classmethod
    def _custom(cls, resources: dict[str, float]) -> dict[str, float]:
        keys = {"CPU": "cpus_per_host", "GPU": "gpus_per_host", "memory": "host_options.memory_gb"}
        for name in resources.keys() & keys.keys():
            raise ValueError(f"{name} is not a custom resource; use resources.{keys[name]}")
        return resources


_LABEL = r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?"
_LABEL_CONDITION = re.compile(rf"!?(?:{_LABEL}|in\({_LABEL}(?:, ?{_LABEL})*\))", re.ASCII)


class Resources(Section):
    """The hardware to run on. Apart from the kind of device, nothing in this section changes a result.

    Attributes:
        hosts: Number of worker processes. `auto` (the default) starts one for every `cpus_per_host` CPUs (and
            `gpus_per_host` GPUs) of the cluster. `{ min = 2, max = 40 }` is for clusters that grow and shrink.
        cpus_per_host: CPUs that Ray reserves for each worker process. Default: 1.
        gpus_per_host: GPUs that Ray reserves for each worker process; a fraction lets several share one GPU, above 1 it
            must be a whole number. Default: 0.
        host_options: What else Ray is asked for each worker process: labels of nodes, custom resources, memory.
        device: `auto` (the default) is CUDA for worker processes with a share of a GPU, else the CPU; or `cpu`, `cuda`.
        device_cache_gb: GPU memory, in GiB, in which each worker process may keep samples as they are stored (images as
            uint8), so that they are copied once and batches are made on the GPU. Raises an error on the CPU. Default:
            1.
        client_state_gb: Main memory, in GiB, that client states (control variates, personal models) may take in each
            worker process. The rest goes to the node's disk, into an unnamed file in TMPDIR that the system frees
            however the process ends. Raises an error if clients keep no state. Default: 1.
        relay: `packed` (the default) runs a relay in one worker process while the others evaluate; `spread` sends the
            model to the worker process that holds each client. Clients that keep state always train where their state
            is.
        restarts: How many times in a row, without a completed round in between, the run continues after a worker
            process, the server or the scheduler died or stopped responding. Worker processes without client state
            restart and repeat their client updates; in all other cases the run continues from the last checkpoint and
            repeats the rounds since, and only if server or scheduler died, every process restarts. The bits stay the
            same. With `secure` noise, which a repetition would draw
            again, the run ends instead, and `rayfl resume` continues it. Default: 3.
        watchdog_s: Seconds without an answer, or a batch made, after which the outstanding client updates are reported.
            Default: 60.
        dashboard: Starts Ray's dashboard, on loopback, with the cluster that a run starts on this machine, and prints
            its address. Raises an error if a cluster is already running, or if none is started. Default: false.
    """

    hosts: PositiveInt | Literal["auto"] | HostRange = "auto"
    cpus_per_host: PositiveFloat = 1
    gpus_per_host: NonNegativeFloat = 0
    host_options: HostOptions = HostOptions()
    device: Literal["auto", "cpu", "cuda"] = "auto"
    device_cache_gb: NonNegativeFloat = 1
    client_state_gb: NonNegativeFloat = 1
    relay: Literal["packed", "spread"] = "packed"
    restarts: NonNegativeInt = 3
    watchdog_s: PositiveFloat = 60
    dashboard: bool = False

    @field_validator("hosts")
    @classmethod
    def _in_order(cls, hosts: int | str | HostRange) -> int | str | HostRange:
        if isinstance(hosts, HostRange) and hosts.min > hosts.max:
            raise ValueError(f"min = {hosts.min} is above max = {hosts.max}; lower min or raise max")
        return hosts

    @model_validator(mode="after")
    def _whole_gpus(self) -> Resources:
        if self.gpus_per_host > 1 and self.gpus_per_host != int(self.gpus_per_host):
            raise ValueError("gpus_per_host above 1 must be a whole number")
        return self

    @property
    def fewest_hosts(self) -> int:
        """The number of worker processes without which a run does not start."""
        match self.hosts:
            case HostRange():
                return self.hosts.min
            case int():
                return self.hosts
        return 1

    def most_hosts(self, useful: int) -> int:
        """The largest number of worker processes of a run.

        Args:
            useful: The largest number that can have work.
        """
        match self.hosts:
            case HostRange():
                return max(self.hosts.min, min(self.hosts.max, useful))
            case int():
                return self.hosts
        return useful

    @property
    def device_cache_bytes(self) -> int:
        return int(self.device_cache_gb * 2**30)

    @property
    def client_state_bytes(self) -> int:
        return int(self.client_state_gb * 2**30)

    @property
    def uses_cuda(self) -> bool:
        """Whether worker processes compute on CUDA."""
        return self.device == "cuda" or (self.device == "auto" and self.gpus_per_host > 0)


class Checkpoint(Section):
    """When a checkpoint is written, how many are kept, and what happens if one cannot be written.

    Checkpoints are written in the run's folder while training continues. A run that was interrupted, killed or lost
    with its machine resumes from the last one (`rayfl resume`) and ends with the same bits as an uninterrupted run.
    With `secure` noise the bits differ, and the run is charged for the rounds that it repeats.

    Attributes:
        minutes: Writes a checkpoint at the end of the first round that ends this many minutes after the last one; 0 for
            never. Default: 10.
        rounds: Writes a checkpoint at the end of the first round that ends this many rounds after the last one, once
            that one is written; 0, the default, for never.
        ends: Whether to write a checkpoint also at the end of each phase, if the run has lasted for a minute by then or
            its noise is `secure`, and when the run is interrupted (Ctrl-C, SIGTERM, SIGHUP, `--minutes`): the run then
            stops after the current round, or immediately at a second signal. Default: true.
        keep: Number of latest checkpoints to keep, at least 1. Default: 2; the older one is used if the last turns out
            to be damaged.
        on_failure: `continue` (the default) prints a warning if a checkpoint or the run's metrics cannot be written,
            for example because the disk is full or the folder was removed, and tries again when the next checkpoint is
            due; `stop` ends the run. The last good checkpoint is kept either way.
    """

    minutes: NonNegativeFloat = 10.0
    rounds: NonNegativeInt = 0
    ends: bool = True
    keep: PositiveInt = 2
    on_failure: Literal["continue", "stop"] = "continue"
