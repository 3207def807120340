"""How many steps a client update takes: known from the number of samples alone, so it can also be planned with."""

from __future__ import annotations

from rayfl.config.phase import Local


def batch_size(local: Local, num_samples: int) -> int:
    """Samples of a whole batch."""
    return num_samples if local.batch_size == "full" else min(local.batch_size, num_samples)


def steps_per_epoch(local: Local, num_samples: int) -> int:
    """Batches of one pass; the incomplete one counts unless it is dropped, and is kept where it is the only one."""
    size = batch_size(local, num_samples)
    return max(1, num_samples // size) if local.drop_last else -(-num_samples // size)


def update_steps(local: Local, num_samples: int) -> int:
    """Steps of one client update: the epochs' batches, at most `local.steps`."""
    steps = local.epochs * steps_per_epoch(local, num_samples)
    return steps if local.steps is None else min(steps, local.steps)


def effective_steps(steps: int, momentum: float) -> float:
    """||a||_1, where `steps` steps of SGD move the model by lr * sum_k a_k g_k: `steps` itself without momentum.

    (K - rho (1 - rho^K) / (1 - rho)) / (1 - rho) with momentum rho (FedNova, section 4.2).
    """
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
