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

from rayfl.config.local import Rates, Train, TrainingBySteps
from rayfl.config.section import Named, Section

ClientStatistic = Literal[
    "mean", "variance", "lowest_10", "lowest_20", "variance_corrected", "pooled_mean", "pooled_variance"
]
"""A statistic over clients; `rayfl.tasks.metrics.over_clients` and `pooled` define them."""


class Personalization(TrainingBySteps):
    """How a client trains the global model for itself before it is scored.

    Attributes:
        train: What of the network trains, whatever the phase trained; see `Train`.
    """

    train: Train = "all"


class Evaluation(Section):
    """How the global model is evaluated on the test samples.

    Attributes:
        metrics: What is reported beside the loss: registered metrics, or `package.module:object` of your own: a
            function (outputs, targets) of all test samples, or a class derived from torchmetrics.Metric or
            rayfl.tasks.Metric. By default the task's.
        headline: The metric that ranks rounds and runs, by its label, or "loss"; by default the first.
        every: Evaluates after every so many rounds of the scenario, and after the last round of each phase.
        samples: Evaluates on at most this many of the data's test samples, drawn once from the data's seed and the same
            in all rounds; all of them by default. With scores per client, every client that has test samples keeps at
            least one of its own, and the rest are drawn from all clients alike. Other sets are always scored whole.
        clients: Evaluates on the test samples of this many clients, drawn anew for every evaluated round among those
            that have any, all with the same chance; by default all of them. Scores are then by client, as with
            `per_client`.
        bank: How many training samples metrics of features (`knn`, `linear_probe`) see with their labels, drawn once
            from the data's seed and the same in all rounds; all of them if there are fewer.
        batch_size: Test samples that go through the model at once.
        per_client: Also scores every client on its own test samples, for clients.parquet.
        over_clients: Statistics over clients, all of one weight, of the headline metric: columns
            `<set>_<metric>_<statistic>` (`client_test_accuracy_variance`) for every set whose samples belong to
            clients, and for `personalized_<metric>`. `mean`; `variance` (of the population, in squared shares);
            `lowest_10` and `lowest_20`, the mean of the worst 10 and 20 % of the clients, at least one;
            `variance_corrected`, less what small test sets are expected to add (accuracy and top_k). Scores are then by
            client, as with `per_client`. `pooled_mean` and `pooled_variance`, as `test_<metric>_pooled_mean`, need no
            test samples by client: a client's accuracy is that of each class of the test samples, weighted by the
            classes of its own samples (those it trains on and those held out of them).
        personalize: Also trains the global model on every client's own training samples in this way, and scores the
            result on the client's own test samples (FedBABU's personalized accuracy). The global model is not changed,
            and the learning rate is the same in all rounds. Without `epochs`, `steps` are taken however few samples a
            client has.
        client_model: What is scored on a client's own test samples: the `global` model, or the client's `personal` one,
            where the phase's algorithm keeps some (`ditto`, `fedbn`, `fedper`, `buffers = "keep"`); in a phase whose
            algorithm keeps none it is the global one. All scores are then by client, as with `per_client`.
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
        """Whether every client is scored on samples of its own."""
        own = len(self.over_clients) > len(self.pooled_statistics)
        return any((self.per_client, own, self.personalize, self.clients, self.client_model == "personal"))

    @property
    def pooled_statistics(self) -> tuple[ClientStatistic, ...]:
        """The statistics over clients that are taken on all test samples."""
        return tuple(name for name in self.over_clients if name.startswith("pooled_"))

    @field_validator("over_clients")
    @classmethod
    def _every_statistic_once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(names)) < len(names):
            raise ValueError("names a statistic twice")
        return names

    @field_validator("personalize")
    @classmethod
    def _no_rounds_to_decay_over(cls, local: Personalization | None) -> Personalization | None:
        if local and (local.lr_decay != 1 or local.lr_drops or local.round_schedule != Rates()):
            raise ValueError("knows no lr_decay, lr_drops and round_schedule: it has the same rate in all rounds")
        return local

    @model_validator(mode="after")
    def _one_kind_of_client_model(self) -> Evaluation:
        if self.personalize and self.client_model == "personal":
            raise ValueError(
                "personalize trains the global model and client_model = 'personal' scores others; choose one"
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
                    f"over_clients: '{name}' is of the one global model, for all clients, and does not go with {key}; "
                    "leave one of them out"
                )
        return self


class Numerics(Section):
    """What, beside the data and the algorithm, decides the last bit of the result.

    Attributes:
        threads: CPU threads of one client update.
        kernels: `fast` puts faster layers of the same outputs into the network where the CPU has them; `plain` leaves
            it as its author wrote it, for tools that look at the types of layers (Opacus, for one).
        deterministic: On CUDA, an operation without a deterministic implementation is an error; if false, runs that use
            one differ in their last bits.
        tf32: On CUDA, matrix products and convolutions may round their inputs to TF32 (10 bits), for speed.
        clients_at_once: So many clients of a parallel round train together, as one stacked computation, which is for
            GPUs and networks too small to fill one; on CPUs it is slower. Plain SGD with or without momentum, penalties
            and corrections that need only the parameters, networks without batch norm, dropout and recurrent layers;
            everything else is carried out client by client, as are relays, `local.dp`, and losses and gradients that an
            algorithm asks for. The last bits of a stacked update depend on who is in its group, so groups follow from
            the scenario alone: clients of like numbers of steps or, where clients keep state, of the same number modulo
            64, so that large groups need several times 64 clients in a cohort.
        fraction_bits: Contributions to a sum are rounded to multiples of 2**-fraction_bits, so that sums are exact
            and their order cannot matter.
    """

    threads: PositiveInt = 1
    kernels: Literal["fast", "plain"] = "fast"
    deterministic: bool = True
    tf32: bool = False
    clients_at_once: PositiveInt = 1
    fraction_bits: Annotated[int, Field(ge=8, le=48)] = 32


class Resources(Section):
    """What to run on. Apart from the kind of device, nothing here changes a result.

    Attributes:
        hosts: How many; `auto` is one for every `cpus_per_host` (and `gpus_per_host`) that the cluster has.
        cpus_per_host: CPUs that Ray reserves for each host.
        gpus_per_host: GPUs that Ray reserves for each host; fractions let hosts share a GPU.
        device: `auto` is CUDA for hosts with a share of a GPU, else the CPU.
        device_cache_gb: How much of a GPU's memory each host may use to keep samples there as they are stored (images
            as uint8), so that they are copied once and batches are made there; refused on the CPU.
        client_state_gb: How much main memory the states of its clients (control variates, personal models) may take on
            each host. The rest is on the node's disk, in a file that no folder lists, where TMPDIR says; the system
            frees it however the host ends. Refused where clients keep nothing.
        relay: `packed` runs a relay on one host, while the others evaluate; `spread` sends the model to each
            client's own host. Clients that keep state always train on their own host.
        restarts: How often the run goes on, without a further round in between, after a host, the server or the
            scheduler died or fell silent. Hosts that keep nothing start again and repeat their client updates; for
            anything else all of them start anew after the last checkpoint and repeat the rounds since. The bits stay
            the same. With `secure` noise, which a repetition would draw anew, the run ends, and `rayfl resume` goes on.
        watchdog_s: After so many seconds without an answer the outstanding client updates are named.
        dashboard: Starts Ray's dashboard with the cluster that a run starts on this machine, and prints its address, on
            loopback; refused where there is a cluster already, or none.
    """

    hosts: PositiveInt | Literal["auto"] = "auto"
    cpus_per_host: PositiveFloat = 1
    gpus_per_host: NonNegativeFloat = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    device_cache_gb: NonNegativeFloat = 1
    client_state_gb: NonNegativeFloat = 1
    relay: Literal["packed", "spread"] = "packed"
    restarts: NonNegativeInt = 3
    watchdog_s: PositiveFloat = 60
    dashboard: bool = False

    @model_validator(mode="after")
    def _whole_gpus(self) -> Resources:
        if self.gpus_per_host > 1 and self.gpus_per_host != int(self.gpus_per_host):
            raise ValueError("gpus_per_host above 1 must be a whole number")
        return self

    @property
    def device_cache_bytes(self) -> int:
        return int(self.device_cache_gb * 2**30)

    @property
    def client_state_bytes(self) -> int:
        return int(self.client_state_gb * 2**30)

    @property
    def uses_cuda(self) -> bool:
        """Whether hosts compute on CUDA."""
        return self.device == "cuda" or (self.device == "auto" and self.gpus_per_host > 0)
