"""The arithmetic and rendering of the benchmark; no test asserts a speed."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from rayfl.backends.inline import inline_session
from rayfl.config.loader import load_scenario
from rayfl.engine.assignment import segments
from rayfl.engine.events import RoundDone
from rayfl.engine.totals import Traffic
from rayfl.local.steps import update_steps
from rayfl.models.cnn import LeNet5
from rayfl.studies.scale.processes import RAY, ROLES, processor_seconds
from tools.bench import checkpoints, clients, naive, parallel, relay, update
from tools.bench.data import images, points
from tools.bench.processes import anonymous_bytes, descendants
from tools.bench.rounds import job_of
from tools.bench.table import Row, as_markdown, print_table

ROW = Row("a hop", 2.0, "ms", "<=", 5.0, "update 3 ms, training 1 ms")


def done(round: int, seconds: float, phase: str = "across", steps: int = 160) -> RoundDone:
    return RoundDone(phase, round, round, 0.0, 10, steps, Traffic(), seconds)


def test_the_naive_client_takes_every_batch_of_one_epoch_from_the_global_model() -> None:
    torch.manual_seed(0)
    trainer = naive.Trainer(naive.Load(clients=2, samples=70, batch_size=32, lr=0.1))
    before = {name: value.clone() for name, value in trainer._global.items()}
    assert trainer.train_client(0) == 3
    assert any(not torch.equal(value, before[name]) for name, value in trainer._model.state_dict().items())
    assert all(torch.equal(value, before[name]) for name, value in trainer._global.items())


def test_the_naive_network_computes_what_rayfls_lenet5_does() -> None:
    plain, ours = naive.LeNet5(), LeNet5()
    ours.load_state_dict(plain.state_dict())
    x = torch.randn(4, 3, 32, 32)
    torch.testing.assert_close(plain(x), ours(x))


def test_rounds_with_a_checkpoint_are_told_from_those_without() -> None:
    """The first is due after round 3: it is written during round 4, added during round 5; round 6 is undisturbed."""
    rounds = [float(number) for number in range(2, checkpoints.ROUNDS + 1)]
    beside, after, alone = checkpoints.by_place(rounds)
    assert (beside[:2], after[:2], alone[:2]) == ([4, 7], [5, 8], [6, 9])
    assert {len(part) for part in (beside, after, alone)} == {checkpoints.CHECKPOINTS}


@pytest.mark.slow
def test_the_naive_limit_is_the_sum_of_processes_that_each_finish_a_client() -> None:
    limit = naive.naive_limit(2, naive.Load(clients=2, samples=8, batch_size=4, lr=0.1), seconds=0.01)
    assert limit > 0


def test_steps_per_second_leaves_out_the_first_round() -> None:
    assert parallel.steps_per_second([done(1, 9.0, steps=1000), done(2, 9.5), done(3, 10.0)]) == 320


def test_an_update_is_compared_with_the_bare_step_of_its_own_pair() -> None:
    seconds = np.array([[3.0, 2.0], [30.0, 20.0], [4.0, 1.0]])  # while the second pair ran, so did another program
    ratio, more = update.rows_of("lenet5", seconds, 0.4)
    assert (ratio.figure, more.figure, more.target) == (1.5, 3000.0, 0.4)


def test_updates_and_bare_steps_alternate_and_the_warm_up_is_not_counted() -> None:
    turns: list[tuple[str, int]] = []
    seconds = update.seconds_of_pairs(lambda n: turns.append(("update", n)), lambda n: turns.append(("bare", n)), 2)
    assert seconds.shape == (2, 2)
    assert turns[:4] == [("bare", 0), ("update", 0), ("update", 1), ("bare", 1)]
    assert len(turns) == 2 * (update.WARM_UP + 2)


@pytest.mark.parametrize("name", update.PROBLEMS)
def test_an_update_takes_one_step_of_the_same_network_as_the_bare_loop(name: str) -> None:
    job, model = job_of(update.scenario(update.PROBLEMS[name]))
    before = model.vector.clone()
    with inline_session(job):
        update.updates(job, model)(0)
        update.bare_steps(job, model)(0)
    sizes = job.result.population.sizes
    assert {update_steps(job.scenario.phases[0].local, int(size)) for size in sizes} == {1}
    assert torch.equal(model.vector, before), "the bare loop trains a copy"


def test_processor_time_is_counted_for_this_process_and_for_those_under_it() -> None:
    assert processor_seconds().keys() == set(ROLES)
    burn = "sum(i * i for i in range(3_000_000)); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        before = processor_seconds()
        assert child.stdout is not None
        child.stdout.readline()
        assert processor_seconds()[RAY] > before[RAY], "what no actor is counts as Ray's own"
        child.communicate(b"\n")


def test_processor_time_of_a_round_is_the_median_over_the_repetitions() -> None:
    rounds = parallel.ROUNDS - 1
    each = {"workers": 0.3 * rounds, "server": 0.1 * rounds}
    taken = [{part: factor * each.get(part, 0.0) for part in ROLES} for factor in (1, 1, 7)]
    rows = {row.name.rpartition(", ")[2]: row for row in parallel.processor_rows(taken)}
    assert rows["workers"].figure == pytest.approx(300)
    assert rows["server"].figure == pytest.approx(100)
    assert rows["server"].detail == "25.0% of all"
    assert rows[RAY].figure == 0


def test_a_hop_is_timed_within_its_own_phase() -> None:
    rounds = [done(n, 0.2 * n) for n in range(1, 4)] + [done(n, 10 + 0.1 * n, "within") for n in range(4, 7)]
    assert relay.hop_seconds(rounds, "across") == pytest.approx(0.2 / relay.HOPS)
    assert relay.hop_seconds(rounds, "within") == pytest.approx(0.1 / relay.HOPS)


def test_one_relay_changes_host_at_every_hop_and_the_other_never() -> None:
    phases = load_scenario(relay.scenario()).phases
    given = [phase.model_dump()["cohort"]["explicit"][0] for phase in phases]
    assert [len(cohort) for cohort in given] == [relay.HOPS, relay.HOPS]
    assert [len(segments(cohort, relay.HOSTS, packed=False)) for cohort in given] == [relay.HOPS, 1]


def test_the_scenarios_say_what_they_are_compared_with() -> None:
    scenario = load_scenario(parallel.scenario(rounds=2))
    (phase,) = scenario.phases
    load = naive.Load(100, 500, phase.local.model_dump()["batch_size"], phase.local.lr)
    assert load == parallel.LOAD
    assert (scenario.data.clients, scenario.data.options["train"]) == (100, 100 * 500)
    assert (phase.settings.cohort, phase.local.epochs, scenario.resources.hosts) == (10, 1, 2)


def test_few_and_many_clients_share_the_same_samples() -> None:
    few, many = (load_scenario(clients.scenario(number)).data for number in (clients.FEW, clients.MANY))
    assert few.options == many.options
    assert (few.clients, many.clients) == (100, 100_000)


def test_data_is_the_same_at_every_call() -> None:
    x, y, test_x, test_y = images(train=6, test=3)
    assert (x.shape, x.dtype.name, y.shape, test_x.shape, test_y.shape) == (
        (6, 32, 32, 3), "uint8", (6,), (3, 32, 32, 3), (3,),
    )  # fmt: skip
    assert (images(train=6, test=3)[0] == x).all()
    assert (points(train=200)[0] == points(train=200)[0]).all()


def test_descendants_are_found_through_their_parents() -> None:
    grandchild = "import sys, time; print('ready', flush=True); sys.stdin.read()"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {grandchild!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = descendants()
        process.communicate()
    assert process.pid in found
    assert any("ready" in command and "subprocess" not in command for command in found.values())
    assert os.getpid() not in found


def test_anonymous_memory_grows_by_what_the_process_fills() -> None:
    before = anonymous_bytes("self")
    with mmap.mmap(
        -1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    ) as filled:  # malloc may reuse freed memory
        filled.write(b"\1" * len(filled))
        assert anonymous_bytes("self") - before >= 0.95 * len(filled)


def test_a_row_is_met_on_its_own_side_of_the_target() -> None:
    assert ROW.met
    assert not Row("speed", 1.05, "×", ">=", 1.1, "").met
    assert Row("speed", 1.1, "×", ">=", 1.1, "").met


def test_markdown_has_a_line_for_each_row_and_each_fact() -> None:
    assert as_markdown([ROW], ["2 cores"]).splitlines() == [
        "| measurement | figure | target | figure / target | met | from |",
        "| --- | --- | --- | --- | --- | --- |",
        "| a hop | 2 ms | ≤ 5 ms | 0.40 | yes | update 3 ms, training 1 ms |",
        "",
        "- 2 cores",
    ]


def test_the_printed_table_breaks_no_cell_and_ends_with_the_facts(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([ROW], ["2 cores", "Python"])
    lines = capsys.readouterr().out.splitlines()
    assert any(all(cell in line for cell in ROW.cells()) for line in lines)
    assert lines[-2:] == ["2 cores", "Python"]
