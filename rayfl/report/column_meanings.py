"""What the columns of a run's records mean, and in which unit; the documentation shows it."""

from __future__ import annotations

from typing import Literal, NamedTuple

File = Literal["metrics.jsonl", "clients.parquet"]


class Meaning(NamedTuple):
    """A column.

    Attributes:
        name: Of the column; parts in `<>` vary.
        unit: Of its values; empty for names and numbers without one.
        text: What it says.
        only: When the column is there; empty if always.
        file: Where it is; a client's reports are in both files.
    """

    name: str
    unit: str
    text: str
    only: str = ""
    file: File = "metrics.jsonl"


_DEVICES = "with [participation]"
_ASYNCHRONOUS = "in asynchronous phases"
_META = 'with `report = ["meta"]` of `coprefl`'

METRICS_MEANINGS = (
    Meaning("phase", "", "Name of the phase."),
    Meaning("round", "rounds", "The evaluated round, counted from 1 through the whole scenario."),
    Meaning("round_in_phase", "rounds", "The same round, counted from 1 in its phase."),
    Meaning(
        "<set>_loss",
        "as the loss",
        "Mean loss over the samples of a set: `test`; `validation` and `client_test`, which are held out of clients' "
        "samples (`data.validation_share`, `data.test_share`); or a further test set of the data.",
    ),
    Meaning("<set>_<metric>", "as the metric", "A metric over the samples of a set, such as `test_accuracy`."),
    Meaning(
        "personalized_<metric>",
        "as the metric",
        "Mean over clients, all of one weight, of the metric after each has trained the model for itself.",
        "with `evaluation.personalize`",
    ),
    Meaning(
        "<set>_<metric>_<statistic>",
        "as the metric; squared for variances",
        "A statistic of the headline metric over clients, all of one weight, such as `client_test_accuracy_variance`.",
        "with `evaluation.over_clients`",
    ),
    Meaning("epsilon", "", "The largest epsilon of any client's samples after the round.", "with `local.dp`"),
    Meaning("client_epsilon", "", "Epsilon of the clients after the round.", "with `phases.N.dp`"),
    Meaning("train_loss", "as the objective", "Mean over the local steps of the round; null where nothing trained."),
    Meaning("seconds", "s", "Wall-clock time since the start of the run."),
    Meaning("bytes", "bytes", "What the protocol has moved since the start of the run, in both directions."),
    Meaning("transfers", "models", "Model transfers since the start of the run, in both directions."),
    Meaning("bytes_down", "bytes", "The part of `bytes` that the server sent to clients."),
    Meaning("bytes_up", "bytes", "The part of `bytes` that clients sent to the server."),
    Meaning("simulated_seconds", "s", "Virtual time since the start of the run.", _DEVICES),
    Meaning("energy_joules", "J", "Energy that the clients' devices have used.", "where devices have a power"),
    Meaning("unavailable", "clients", "Clients that were drawn and not available, since the start.", _DEVICES),
    Meaning("dropped", "client updates", "Updates whose answer never arrived, since the start.", _DEVICES),
    Meaning("late", "client updates", "Updates cut at a deadline or since enough had answered.", _DEVICES),
)
"""metrics.jsonl, in the order of its columns; those that are reported follow at the end."""

REPORTED_MEANINGS = (
    Meaning("step_norm", "", "Norm of the server's step.", 'with `report = ["step"]`'),
    Meaning("divergence", "", "Mean norm of the changes of the clients.", 'with `report = ["divergence"]`'),
    Meaning(
        "divergence_ratio",
        "",
        "Mean squared norm of the changes over the squared norm of their mean; 1 where all clients agree.",
        'with `report = ["divergence"]`',
    ),
    Meaning("clip_norm", "", "The bound to which the round clipped the changes.", "with `clip_norm = { quantile }`"),
    Meaning("left_out", "clients", "Clients of the cohort without a budget.", "with `local.dp.max_epsilon`"),
    Meaning("mean_staleness", "server steps", "Mean age of the models that answers started from.", _ASYNCHRONOUS),
    Meaning("max_staleness", "server steps", "Largest age of a model that an answer started from.", _ASYNCHRONOUS),
    Meaning("server_train_loss", "as the objective", "Mean over the server's own steps.", "with `server_training`"),
    Meaning("server_steps", "steps", "Number of the server's own steps.", "with `server_training`"),
    Meaning(
        "up_bytes_more_if_summed",
        "bytes",
        "How many more bytes the cohort would send in the round if the server saw only sums.",
        "with `coprefl`",
    ),
    Meaning("server_step", "", "eta_g, the factor by which the server extrapolates.", "with `fedexp`"),
    Meaning("largest_loss", "as the loss", "The largest loss of a client of the cohort.", "with `qfedavg`, `qfedsgd`"),
    Meaning("control_norm", "", "Norm of the server's control variate.", 'with `report = ["norms"]` of `scaffold`'),
    Meaning(
        "client_control_norm",
        "",
        "Norm of the participants' new control variates.",
        'with `report = ["norms"]` of `scaffold`',
        "clients.parquet",
    ),
    Meaning("dual_norm", "", "Norm of the mean of all dual vectors.", 'with `report = ["norms"]` of `feddyn`'),
    Meaning(
        "client_dual_norm",
        "",
        "Norm of the participants' new dual vectors.",
        'with `report = ["norms"]` of `feddyn`',
        "clients.parquet",
    ),
    Meaning(
        "query_loss",
        "as the loss",
        "Mean loss on the query sets: with `coprefl` of the clients' mean model, with `fedmeta` of the adapted models, "
        "by client in clients.parquet.",
        "with `coprefl` and `fedmeta`",
        "clients.parquet",
    ),
    Meaning("query_loss_variance", "", "Variance of the losses over the query sets.", "with `coprefl`"),
    Meaning("meta_norm", "", "Norm of the server's meta step.", _META),
    Meaning("meta_ratio", "", "The same over the norm of the clients' mean change.", _META),
    Meaning("meta_loss_norm", "", "Gradient norm of the losses' term of L_meta, before gamma weights it.", _META),
    Meaning("meta_variance_norm", "", "Gradient norm of the variance, before gamma weights it.", _META),
)
"""Scalars that the server or clients report, the mean over the participants where clients do."""

CLIENTS_MEANINGS = (
    Meaning("phase", "", "Name of the phase."),
    Meaning("round", "rounds", "The round, counted from 1 through the whole scenario."),
    Meaning("client", "", "Number of the client, from 0."),
    Meaning("set", "", "The set of the client's samples that was scored; null in rows of reports."),
    Meaning("samples", "samples", "How many samples were scored; null in rows of reports."),
    Meaning("owner", "", "The data's own name of the client.", "where the data names its clients"),
    Meaning("<metric>", "as the metric", "A score of the client's samples."),
    Meaning("personalized_<metric>", "as the metric", "The same after the client has trained for itself."),
    Meaning("epsilon", "", "What the client has spent, in a row after the last round.", "with `local.dp`"),
)
"""clients.parquet: a row for a client's score, or for what a client reported in a round."""
