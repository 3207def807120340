"""Meanings and units of the columns in the records of a run, as the documentation lists them."""

from __future__ import annotations

from typing import Literal, NamedTuple

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
        "(`requires_grad=False`) are not sent, unless a module follows others or the network changes it itself.",
    ),
    Meaning("transfers", "models", f"Model transfers {_BOTH_WAYS}"),
    Meaning("bytes_down", "bytes", "The part of `bytes` from the server to clients."),
    Meaning("bytes_up", "bytes", "The part of `bytes` from clients to the server."),
    Meaning("simulated_seconds", "s", f"Virtual time {_SINCE_START}.", _DEVICES),
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
