"""Checks a client's answer, and adds diagnostics and applies transforms before it is summed."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rayfl.algorithms.exchange import Answer
from rayfl.algorithms.transforms import Encoded
from rayfl.errors import RayflError
from rayfl.local.context import ClientContext
from rayfl.models.flat import FlatModel
from rayfl.planning.phase_plan import PhasePlan


def check_lengths(answer: Answer, sent_vectors: Sequence[str], model: FlatModel) -> None:
    """Checks the vectors of all parameters in an answer, since a user's algorithm may answer with anything.

    Raises:
        RayflError: A vector is not a tensor of floating point numbers, or has neither the length of a model vector nor
            of its parameters' part.
    """
    params, whole = len(model.params), len(model.vector)
    for name in sent_vectors:
        vector = answer.values.get(name, answer.sums.get(name))
        if vector is not None and not isinstance(vector, torch.Tensor):
            raise RayflError(f"it answered with '{name}' as a {type(vector).__name__}, not a torch.Tensor")
        if vector is not None and not vector.is_floating_point():
            raise RayflError(
                f"it answered with '{name}' of dtype {vector.dtype}, which holds no fractions of a change; return "
                "floating point numbers, converted before the parameters are subtracted or scaled"
            )
        if vector is not None and vector.numel() not in (params, whole):
            raise RayflError(
                f"it answered with '{name}' of {vector.numel()} values; it must have {params} (the parameters' part of "
                f"a model vector, including padding) or {whole} (the whole vector)"
            )


def add_diagnostics(
    plan: PhasePlan, client: ClientContext, answer: Answer, send: Sequence[torch.Tensor], summed: bool
) -> None:
    """Adds the diagnostics of the trained model that the phase's `eval_model` and reports need, in place.

    Args:
        plan: The phase.
        client: The client.
        answer: The client's answer.
        send: The vectors sent to it, beginning with the model that it trained from.
        summed: Whether the answer's values are summed rather than kept one by one.

    Raises:
        RayflError: The exchange sent no model, or the trained model has another length.
    """
    if not (plan.evaluated.reads_trained or plan.diagnostics.reads_trained):
        return
    trained, delta = answer.trained, answer.values.get("delta")
    if trained is None and delta is None:
        return
    if not send:
        wanted = f"eval_model = '{plan.evaluated.rule}'" if plan.evaluated.reads_trained else "report = ['divergence']"
        raise RayflError(f"{wanted} needs the model that clients train from; make it the first vector that you send")
    if trained is not None and trained.shape != send[0].shape:
        raise RayflError(
            f"it answered with a trained model of shape {list(trained.shape)}, but was sent one of shape "
            f"{list(send[0].shape)}"
        )
    change = delta if trained is None else trained - send[0]
    if change is None or change.shape != send[0].shape:
        return
    answer.diagnostics |= plan.evaluated.diagnose(client, answer, send[0], change, summed)
    answer.diagnostics |= plan.diagnostics.diagnose(client.num_params, change)


def apply_transforms(plan: PhasePlan, client: ClientContext, answer: Answer) -> tuple[int, int]:
    """Applies the phase's transforms to an answer, in place; returns the values and bits that they save."""
    saved_values = saved_bits = 0
    for name in plan.algorithm.sent_vectors if plan.transforms else ():
        vectors = answer.values if name in answer.values else answer.sums
        if name not in vectors:
            continue
        whole = message = Encoded(vectors[name][: client.num_params], client.num_values)
        for transform in plan.transforms:
            message = transform.transform(client, name, message)
        vectors[name] = torch.cat([message.values, vectors[name][client.num_params :]])
        saved_values += whole.count - message.count
        saved_bits += whole.bits - message.bits
    return saved_values, saved_bits
