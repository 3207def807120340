"""The columns of a run's records: their types, and their meanings and units as the documentation lists them.

With a round and its evaluation as one row of the metrics.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

import pyarrow as pa

from rayfl.config.execution import NUMBER_OF_CLIENTS
from rayfl.engine.events import Evaluated, RoundDone
from rayfl.engine.totals import Simulated
from rayfl.errors import RayflError

if TYPE_CHECKING:
    from rayfl.config.phase import Phase
    from rayfl.config.scenario import Scenario
    from rayfl.data.store import ShardStore


File = Literal["metrics.jsonl", "clients.parquet"]


class Meaning(NamedTuple):
    """A column.

    Attributes:
        name: Name of the column; parts in `<>` vary.
        unit: Unit of its values; empty for names and dimensionless numbers.
        text: The description.
        only: The condition under which the column exists; empty if it always does.
        file: The file with the column; scalars that clients report are in both files.
    """

    name: str
    unit: str
    text: str
    only: str = ""
    file: File = "metrics.jsonl"


_DEVICES = "with [participation]"
_SPLIT = "if devices have both a bandwidth and a speed"
_ASYNCHRONOUS = "in asynchronous phases"
_SAMPLES = "with `local.dp`"
_PERSONALIZED = "with `evaluation.personalize`"
_SERVER_STEPS = "with `server_training`"
_COPREFL = "with `coprefl`"


def _reporting(scalars: str, algorithm: str = "") -> str:
    return f'with `report = ["{scalars}"]`' + (f" of `{algorithm}`" if algorithm else "")


_DIVERGENCE, _META = _reporting("divergence"), _reporting("meta", "coprefl")
_CONTROL, _DUAL = _reporting("norms", "scaffold"), _reporting("norms", "feddyn")

_FROM_1 = "counted from 1 through the whole scenario."
_SINCE_START = "since the start of the run"
_BOTH_WAYS = f"{_SINCE_START}, in both directions."
_EQUAL_WEIGHTS = "over clients, all with the same weight,"
_NO_REPORTS = "null in rows of reported scalars."
_UNWEIGHTED = "before gamma weights it."

_PHASE = Meaning("phase", "", "Name of the phase.")

METRICS_MEANINGS = (
    _PHASE,
    Meaning("round", "rounds", f"The evaluated round, {_FROM_1}"),
    Meaning("round_in_phase", "rounds", "The same round, counted from 1 in its phase."),
    Meaning(
        "<set>_loss",
        "as the loss",
        "Mean loss over the samples of a set: `test`; `validation` and `client_test`, which are held out from clients' "
        "samples (`data.validation_share`, `data.test_share`); or another test set of the data.",
    ),
    Meaning(
        "<set>_<metric>",
        "as the metric",
        "A metric over the samples of a set, such as `test_accuracy`; null where its labels leave it undefined.",
    ),
    Meaning(
        "<set>_<metric>/<class>",
        "as the metric",
        "The metric of one class, by its number, such as `test_recall/3`; null for a class without samples in the set.",
        "with `recall`, `precision` and `f1`",
    ),
    Meaning(
        "personalized_<metric>",
        "as the metric",
        f"Mean {_EQUAL_WEIGHTS} of the metric after each client has personalised the model.",
        _PERSONALIZED,
    ),
    Meaning(
        "<set>_<metric>_<statistic>",
        "as the metric; squared for variances",
        f"A statistic of the headline metric {_EQUAL_WEIGHTS} such as `client_test_accuracy_variance`.",
        "with `evaluation.over_clients`",
    ),
    Meaning(
        "<set>_<metric>_clients",
        "clients",
        "Number of clients that these statistics describe: those whose labels define the metric.",
        "with `evaluation.over_clients`",
    ),
    Meaning(
        "personalized_<metric>_clients",
        "clients",
        "Number of clients in the mean: those whose labels define the metric.",
        _PERSONALIZED,
    ),
    Meaning("epsilon", "", "The largest example-level epsilon of any client after the round.", _SAMPLES),
    Meaning("client_epsilon", "", "Client-level epsilon after the round.", "with `phases.N.dp`"),
    Meaning("train_loss", "as the objective", "Mean over the local steps of the round; null without training."),
    Meaning("seconds", "s", f"Wall-clock time {_SINCE_START}."),
    Meaning(
        "bytes",
        "bytes",
        f"Traffic of the protocol {_BOTH_WAYS} What a phase never trains and parameters that the network freezes "
        "(`requires_grad=False`) are not sent, unless a module follows others.",
    ),
    Meaning("transfers", "models", f"Model transfers {_BOTH_WAYS}"),
    Meaning("bytes_down", "bytes", "The part of `bytes` from the server to clients."),
    Meaning("bytes_up", "bytes", "The part of `bytes` from clients to the server."),
    Meaning("simulated_seconds", "s", f"Virtual time {_SINCE_START}.", _DEVICES),
    Meaning("transfer_seconds", "s", f"Virtual time that clients received or sent, in all, {_SINCE_START}.", _SPLIT),
    Meaning("training_seconds", "s", f"Virtual time that clients computed, in all, {_SINCE_START}.", _SPLIT),
    Meaning(
        "energy_joules", "J", f"Energy used by the clients' devices {_SINCE_START}.", "if devices have a power rating"
    ),
    Meaning("unavailable", "clients", f"Clients that were drawn but not available, {_SINCE_START}.", _DEVICES),
    Meaning("dropped", "client updates", f"Updates whose answer never arrived, {_SINCE_START}.", _DEVICES),
    Meaning(
        "late", "client updates", f"Updates cut at a deadline or because enough had answered, {_SINCE_START}.", _DEVICES
    ),
)
"""metrics.jsonl, in the order of its columns; reported scalars follow at the end."""

REPORTED_MEANINGS = (
    Meaning("step_norm", "", "Norm of the server's step.", _reporting("step")),
    Meaning("divergence", "", "Mean norm of the clients' changes.", _DIVERGENCE),
    Meaning(
        "divergence_ratio",
        "",
        "Mean squared norm of the changes over the squared norm of their mean; 1 if all clients agree.",
        _DIVERGENCE,
    ),
    Meaning("clip_norm", "", "The bound to which the round clipped the changes.", "with `clip_norm = { quantile }`"),
    Meaning("left_out", "clients", "Clients of the cohort whose budget was spent.", "with `local.dp.max_epsilon`"),
    Meaning("mean_staleness", "server steps", "Mean age of the models that answers started from.", _ASYNCHRONOUS),
    Meaning("max_staleness", "server steps", "Largest age of a model that an answer started from.", _ASYNCHRONOUS),
    Meaning("server_train_loss", "as the objective", "Mean over the server's training steps.", _SERVER_STEPS),
    Meaning("server_steps", "steps", "Number of the server's training steps.", _SERVER_STEPS),
    Meaning(
        "up_bytes_more_if_summed",
        "bytes",
        "Additional bytes that the cohort would send in the round if the server saw only sums.",
        _COPREFL,
    ),
    Meaning("server_step", "", "eta_g, the factor by which the server extrapolates.", "with `fedexp`"),
    Meaning("largest_loss", "as the loss", "The largest loss of a client in the cohort.", "with `qfedavg`, `qfedsgd`"),
    Meaning("control_norm", "", "Norm of the server's control variate.", _CONTROL),
    Meaning("client_control_norm", "", "Norm of the participants' new control variates.", _CONTROL, "clients.parquet"),
    Meaning("dual_norm", "", "Norm of the mean of all dual vectors.", _DUAL),
    Meaning("client_dual_norm", "", "Norm of the participants' new dual vectors.", _DUAL, "clients.parquet"),
    Meaning(
        "query_loss",
        "as the loss",
        "Mean loss on the query sets: of the clients' mean model with `coprefl`, of the adapted models with `fedmeta`; "
        "by client in clients.parquet.",
        f"{_COPREFL} and `fedmeta`",
        "clients.parquet",
    ),
    Meaning("query_loss_variance", "", "Variance of the losses over the query sets.", _COPREFL),
    Meaning("meta_norm", "", "Norm of the server's meta step.", _META),
    Meaning("meta_ratio", "", "`meta_norm` over the norm of the clients' mean change.", _META),
    Meaning("meta_loss_norm", "", f"Gradient norm of the losses' term of L_meta, {_UNWEIGHTED}", _META),
    Meaning("meta_variance_norm", "", f"Gradient norm of the variance, {_UNWEIGHTED}", _META),
)
"""Scalars that the server or clients report; for clients, the mean over the participants."""

CLIENTS_MEANINGS = (
    _PHASE,
    Meaning("round", "rounds", f"The round, {_FROM_1}"),
    Meaning("client", "", "Number of the client, from 0."),
    Meaning("set", "", f"The set of the client's samples that was scored; {_NO_REPORTS}"),
    Meaning("samples", "samples", f"Number of samples that were scored; {_NO_REPORTS}"),
    Meaning("owner", "", "Name of the client in the data.", "if the data names its clients"),
    Meaning(
        "<metric>",
        "as the metric",
        "The metric on the client's samples; null where their labels leave it undefined.",
    ),
    Meaning("personalized_<metric>", "as the metric", "The metric after personalisation.", _PERSONALIZED),
    Meaning("epsilon", "", "The client's example-level epsilon, in a row after the last round.", _SAMPLES),
)
"""clients.parquet: a row for a client's score, or for the scalars that a client reported in a round."""


METRICS = pa.schema(
    [
        ("phase", pa.string()),
        ("round", pa.int64()),
        ("round_in_phase", pa.int64()),
        ("train_loss", pa.float64()),
        ("seconds", pa.float64()),
        ("bytes", pa.int64()),
        ("transfers", pa.int64()),
        ("bytes_down", pa.int64()),
        ("bytes_up", pa.int64()),
    ]
)
"""metrics.jsonl, a line per evaluated round; scores come before `train_loss`, reported scalars at the end."""

CLIENTS = pa.schema(
    [
        ("phase", pa.string()),
        ("round", pa.int64()),
        ("client", pa.int64()),
        ("set", pa.string()),
        ("samples", pa.int64()),
    ]
)
"""clients.parquet; scores and reported scalars follow under their names."""

OWNER = pa.field("owner", pa.dictionary(pa.int32(), pa.string()))
"""Another column of clients.parquet, if the data names its clients."""


def columns_of(scenario: Scenario, phase: Phase, store: ShardStore) -> set[str] | None:
    """Returns the columns that metrics.jsonl may have in the rounds of a phase.

    Args:
        scenario: The scenario, with its callbacks.
        phase: The phase.
        store: The scenario's data.

    Returns:
        Their names; None if code of the user's own, which may report scalars under any name, takes part.
    """
    from rayfl.engine.plan.headline import headline_label, part_column
    from rayfl.tasks.metrics import BY_CLASS
    from rayfl.tasks.metrics.construction import metric_label  # loads PyTorch

    own = [scenario.task_of(phase).name, *(callback.name for callback in scenario.callbacks)]
    if any(":" in name for name in (*own, *_texts(phase.model_dump(mode="json", exclude=_REPORT_NOTHING)))):
        return None
    evaluation = scenario.evaluation_of(phase)
    sets = {"test": store.test_shards, **{name: held.shards for name, held in store.held_out.items()}}
    labels, headline = [metric_label(metric) for metric in evaluation.metrics], headline_label(evaluation)
    described = [f"{name}_{headline}" for name, shards in sets.items() if shards is not None]
    known = {meaning.name for meaning in (*METRICS_MEANINGS, *REPORTED_MEANINGS) if "<" not in meaning.name} - {"phase"}
    known |= {f"{name}_{label}" for name in sets for label in ("loss", *labels)}
    of_classes = [metric_label(metric) for metric in evaluation.metrics if metric.name in BY_CLASS]
    classes = [str(label) for label in range(store.num_classes or 0)]
    known |= {part_column(f"{name}_{label}", of) for name in sets for label in of_classes for of in classes}
    if evaluation.personalize:
        known |= {f"personalized_{label}{ending}" for label in labels for ending in ("", f"_{NUMBER_OF_CLIENTS}")}
        described.append(f"personalized_{headline}")
    for statistic in evaluation.over_clients:
        pooled = statistic in evaluation.pooled_statistics
        number = f"pooled_{NUMBER_OF_CLIENTS}" if pooled else NUMBER_OF_CLIENTS
        columns = [f"test_{headline}"] if pooled else described
        known |= {f"{column}_{ending}" for column in columns for ending in (statistic, number)}
    return known


_REPORT_NOTHING = {"name", "metrics", "model", "local"}
"""Keys of a phase whose values report no scalars."""


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(inner)


def joined(row: Mapping[str, object], *reported: Mapping[str, float | None]) -> dict[str, object]:
    """Returns a row with reported scalars as further columns.

    Args:
        row: The fixed columns.
        reported: Scalars by name; None stays empty.

    Raises:
        RayflError: A scalar has the name of another column.
    """
    whole = dict(row)
    for scalars in reported:
        for name, value in scalars.items():
            if name in whole:
                raise RayflError(f"reported scalar '{name}': the records have a column of this name; choose another")
            whole[name] = None if value is None else float(value)
    return whole


def metrics_row(done: RoundDone, evaluated: Evaluated) -> dict[str, object]:
    """A round and its evaluation as a row of metrics.jsonl; values that are not finite are None.

    Raises:
        RayflError: A reported scalar has the name of another column.
    """
    fixed = {
        "phase": done.phase,
        "round": done.round,
        "round_in_phase": done.round_in_phase,
        **evaluated.scores,
        "train_loss": done.train_loss,
        "seconds": done.seconds,
        "bytes": done.traffic.bytes,
        "transfers": done.traffic.transfers,
        "bytes_down": done.traffic.down_bytes,
        "bytes_up": done.traffic.up_bytes,
        **simulated_columns(done.simulated),
    }
    return {name: _finite(value) for name, value in joined(fixed, done.scalars).items()}


def simulated_columns(simulated: Simulated | None) -> dict[str, object]:
    """Totals that a run with [participation] has simulated since its start; empty without."""
    if simulated is None:
        return {}
    return {
        "simulated_seconds": simulated.seconds,
        **({} if simulated.transfer is None else {"transfer_seconds": simulated.transfer}),
        **({} if simulated.training is None else {"training_seconds": simulated.training}),
        **({} if simulated.joules is None else {"energy_joules": simulated.joules}),
        "unavailable": simulated.unavailable,
        "dropped": simulated.dropped,
        "late": simulated.late,
    }


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
