"""What happens to answers on their way: sparsified and quantized, counted in bits, with the same bits on any hosts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from rayfl.algorithms import construction
from rayfl.algorithms.transforms import Encoded, Quantize, TopK
from rayfl.engine.events import RoundDone
from rayfl.engine.totals import Traffic
from rayfl.errors import ScenarioError
from rayfl.local.client_state import ClientState
from rayfl.local.context import ClientContext
from tests.algorithms.scene import EVERYTHING, PLAIN, SIZES, prepared
from tests.algorithms.test_eval_model import SEEN
from tests.engine.scenes import run_on_hosts
from tests.local.bench import Bench, shared_bench

NUM_PARAMS = 83
"""TanhNet: 4 * 6 + 6 + 6 * 5 + 5 + 5 * 3 + 3."""
RECORDING: dict[str, Any] = {"name": "fedavg", "penalties": ["tests.algorithms.test_eval_model:Recording"]}


@pytest.fixture(scope="module")
def bench() -> Bench:
    return shared_bench()


def client(bench: Bench, round: int = 1, *declared: str) -> ClientContext:
    found = bench.client(3, {}, round=round)
    found.state = ClientState({}, frozenset(declared))
    return found


def message(seed: int, length: int = 60) -> Encoded:
    values = torch.randn(length, generator=torch.Generator().manual_seed(seed))
    return Encoded(values, length)


@pytest.mark.parametrize(("share", "kept"), [(0.1, 6), (0.101, 7), (1e-9, 1), (1.0, 60)])
def test_top_k_sends_the_largest_values_as_they_are(bench: Bench, share: float, kept: int) -> None:
    whole = message(0)
    sent = TopK(share=share).encode(client(bench), "delta", whole)
    order = np.argsort(-whole.values.abs().numpy())
    expected = np.zeros(60, np.float32)
    expected[order[:kept]] = whole.values.numpy()[order[:kept]]
    assert np.array_equal(sent.values.numpy(), expected)
    assert (sent.count, sent.bits) == (kept, kept * (32 + 32))


def test_top_k_prefers_the_first_of_equals(bench: Bench) -> None:
    values = torch.tensor([1.0, -2.0, 2.0, -2.0, 0.5])
    sent = TopK(share=0.4).encode(client(bench), "delta", Encoded(values, 5))
    assert sent.values.tolist() == [0.0, -2.0, 2.0, 0.0, 0.0]


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_quantized_values_are_unbiased_and_on_the_grid(bench: Bench, bits: int) -> None:
    """The mean over many rounds comes as close as the variance of rounding between two levels allows."""
    whole, levels, draws = message(1), 2 ** (bits - 1) - 1, 500
    norm = float(whole.values.norm())
    quantize = Quantize(bits=bits)
    sent = [quantize.transform(client(bench, round), "delta", whole) for round in range(1, draws + 1)]
    values = torch.stack([one.values for one in sent]).double()
    level = values.abs() * levels / norm
    assert torch.allclose(level, level.round(), rtol=0, atol=1e-4)
    assert float(level.max()) <= levels
    fraction = (whole.values.double().abs() / norm * levels).frac()
    deviation = norm / levels * (fraction * (1 - fraction)).sqrt() / math.sqrt(draws)
    assert float(deviation.max()) > 0
    assert bool(((values.mean(dim=0) - whole.values).abs() <= 4.5 * deviation + 1e-6).all())
    assert bool(((values == 0) | (values.sign() == whole.values.sign())).all())
    assert {(one.count, one.bits) for one in sent} == {(60, 60 * bits + 32)}


def test_quantization_draws_for_every_vector_client_and_exchange(bench: Bench) -> None:
    whole, quantize = message(2), Quantize(bits=3)
    one = quantize.transform(client(bench), "delta", whole).values
    assert torch.equal(one, quantize.transform(client(bench), "delta", whole).values)
    for other in (
        quantize.transform(client(bench), "control_delta", whole),
        quantize.transform(client(bench, 2), "delta", whole),
        quantize.transform(bench.client(5, {}), "delta", whole),
        quantize.transform(bench.client(3, {}, exchange=1), "delta", whole),
    ):
        assert not torch.equal(one, other.values)


def test_nothing_to_send_stays_nothing(bench: Bench) -> None:
    nothing = Encoded(torch.zeros(5), 5)
    for transform in (TopK(share=0.5, error_feedback=False), Quantize()):
        assert torch.equal(transform.transform(client(bench), "delta", nothing).values, nothing.values)


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_with_error_feedback_nothing_is_lost_in_the_long_run(bench: Bench, share: float) -> None:
    """What was sent over the rounds and what is still held back add up to what the client wanted to send."""
    transform = TopK(share=share)
    ((residual, scope),) = transform.client_state(["delta"]).items()
    assert scope == "phase"
    state: dict[str, torch.Tensor] = {}
    wanted, sent = torch.zeros(60), torch.zeros(60)
    for round in range(1, 31):
        context = client(bench, round, residual)
        context.state.update(state)
        whole = message(round)
        wanted += whole.values
        sent += transform.transform(context, "delta", whole).values
        state = dict(context.state)
        assert torch.allclose(sent + state[residual], wanted, rtol=0, atol=1e-4)
    assert float(state[residual].norm()) > 0.1


def test_quantization_has_no_error_feedback() -> None:
    """With two bits the error is larger than what is sent, so a residual would grow from round to round."""
    with pytest.raises(ScenarioError, match="error_feedback: unknown key"):
        construction.TRANSFORMS.build({"name": "quantize", "error_feedback": True})
    message = "must be greater than or equal to 2"
    with pytest.raises(ScenarioError, match=rf"phases\.federated\.transforms\.0: bits: {message}"):
        prepared("fedavg", PLAIN, {"transforms": [{"name": "quantize", "bits": 1}]})


def test_without_error_feedback_a_client_keeps_nothing(bench: Bench) -> None:
    transform = TopK(share=0.1, error_feedback=False)
    assert transform.client_state(["delta"]) == {}
    context = client(bench)
    transform.transform(context, "delta", message(0))
    assert not context.state


@pytest.mark.parametrize("feedback", [True, False])
def test_the_server_averages_what_is_sent_and_clients_make_up_for_the_rest(feedback: bool) -> None:
    """A whole run, recomputed from what clients were seen to receive and to train."""
    top_k = {"name": "top_k", "share": 0.25, "error_feedback": feedback}
    job, _ = prepared(RECORDING, PLAIN, {"transforms": [top_k]})
    SEEN.clear()  # of the trace
    vector, _ = run_on_hosts(job, 2)
    kept, residuals = math.ceil(0.25 * NUM_PARAMS), dict[int, np.ndarray]()
    w = job.result.initial.vector.astype(np.float64)
    for round in range(1, PLAIN.rounds + 1):
        total, weight = np.zeros_like(w), 0
        for seen_round, number, received, trained in SEEN:
            if seen_round == round:
                assert np.allclose(received.numpy(), w, rtol=0, atol=1e-6)
                values = (trained - received).numpy()
                if feedback:
                    values = values + residuals.get(number, np.float32(0))
                chosen = np.argsort(-np.abs(values), kind="stable")[:kept]
                sent = np.zeros_like(values)
                sent[chosen] = values[chosen]
                residuals[number] = values - sent
                total, weight = total + SIZES[number] * sent, weight + SIZES[number]
        w = w + total / weight
    assert np.linalg.norm(vector - w) < 1e-5 * np.linalg.norm(w - job.result.initial.vector)


TRANSFORMS: dict[str, list[Any]] = {
    "top_k": [{"name": "top_k", "share": 0.1}],
    "quantize": [{"name": "quantize", "bits": 4}],
    "both": [{"name": "top_k", "share": 0.1}, {"name": "quantize", "bits": 4}],
}
BITS = {"top_k": 9 * (32 + 32), "quantize": NUM_PARAMS * 4 + 32, "both": 9 * (32 + 4) + 32}
"""9 of 83 values, with their indices; a norm beside quantized values."""
VALUES = {"top_k": 9, "quantize": NUM_PARAMS, "both": 9}


def traffic(algorithm: Any, transforms: list[Any], **changes: Any) -> Traffic:
    job, _ = prepared(algorithm, PLAIN, {"transforms": transforms}, **changes)
    _, events = run_on_hosts(job, 2)
    return [event for event in events if isinstance(event, RoundDone)][-1].traffic


UPDATES = sum(len(cohort) for cohort in PLAIN.cohorts)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_traffic_counts_what_is_sent_in_bits(name: str) -> None:
    moved = traffic("fedavg", TRANSFORMS[name])
    assert moved == Traffic(
        transfers=2 * UPDATES,
        down_values=NUM_PARAMS * UPDATES,
        up_values=VALUES[name] * UPDATES,
        down_bytes=4 * NUM_PARAMS * UPDATES,
        up_bytes=math.ceil(BITS[name] / 8) * UPDATES,
    )


@pytest.mark.parametrize("name", TRANSFORMS)
def test_single_values_are_sent_as_they_are_and_scaffolds_control_variates_are_not(name: str) -> None:
    if name == "both":
        moved = traffic("fednova", TRANSFORMS[name])
        assert moved.up_bytes == math.ceil((BITS[name] + 32) / 8) * UPDATES
        assert moved.up_values == (VALUES[name] + 1) * UPDATES
    moved = traffic("scaffold", TRANSFORMS[name])
    assert moved.up_bytes == math.ceil(2 * BITS[name] / 8) * UPDATES
    assert moved.down_bytes == 2 * 4 * NUM_PARAMS * UPDATES


def test_of_frozen_modules_nothing_is_counted() -> None:
    """Top-k counts its share of what is trained: of FedBABU's body of 65 values, 7."""
    moved = traffic("fedbabu", TRANSFORMS["top_k"])
    assert (moved.down_values, moved.up_values) == (65 * UPDATES, 7 * UPDATES)


def test_transformed_answers_keep_the_bits_on_any_number_of_hosts() -> None:
    """Of two vectors each, which clients keep residuals of."""
    job, _ = prepared("scaffold", EVERYTHING, {"transforms": TRANSFORMS["both"]})
    expected, _ = run_on_hosts(job, 1)
    assert not np.array_equal(expected, run_on_hosts(prepared("scaffold", EVERYTHING)[0], 1)[0])
    assert np.array_equal(run_on_hosts(job, 3)[0], expected)
