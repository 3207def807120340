"""Reports a committed round: sums and means over its client updates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rayfl.engine.schedules.schedule import SubmittedRound
from rayfl.local.spending import SpendingByClient
from rayfl.planning.events import ClientScalars, RoundDone
from rayfl.planning.sampling import reported_scalars
from rayfl.planning.totals import Simulated, Traffic
from rayfl.planning.update_report import UpdateReport


def round_done(
    phase: str,
    done: SubmittedRound,
    reports: Sequence[UpdateReport],
    server: Sequence[Mapping[str, float] | None],
    traffic: Traffic,
    seconds: float,
    spent: SpendingByClient,
    left_out: tuple[int, ...] | None,
    simulated: Simulated | None,
) -> RoundDone:
    """Summarises a round.

    Args:
        phase: The phase's name.
        done: The round.
        reports: The hosts' reports on its client updates.
        server: The scalars that the server's calls returned.
        traffic: Total since the start of the run.
        seconds: Time since the start of the run.
        spent: Privacy that the round spent, by client.
        left_out: Clients whose budget was exhausted; None in phases that leave no client out.
        simulated: Total since the start of the run; None without [participation].
    """
    losses = [loss for report in reports for loss in report.losses.values()]
    steps = sum(number for _, number in losses)
    by_client = reported_scalars(reports)
    means = {
        name: math.fsum(values) / len(values)
        for name in sorted({name for scalars in by_client.values() for name in scalars})
        if (values := [scalars[name] for scalars in by_client.values() if name in scalars])
    }
    reported = {name: value for scalars in server for name, value in (scalars or {}).items()}
    if left_out is not None:
        reported |= {"left_out": float(len(left_out))}
    reported |= done.scalars
    return RoundDone(
        phase=phase,
        round=done.index.round,
        round_in_phase=done.index.round_in_phase,
        train_loss=math.fsum(total for total, _ in losses) / steps if steps else math.nan,
        client_updates=sum(len(clients) for _, clients in done.assignments),
        steps=steps,
        traffic=traffic,
        seconds=seconds,
        scalars=means | reported,
        client_scalars=tuple(ClientScalars(client, by_client[client]) for client in sorted(by_client)),
        spent=spent,
        left_out=left_out or (),
        simulated=simulated,
    )
