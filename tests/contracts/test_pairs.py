"""What works together and what does not: algorithms with schedules and options, and options with each other."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from rayfl.algorithms import algorithms
from rayfl.algorithms.fedavg import FedAvg
from rayfl.algorithms.sampler import CohortSampler, SamplingContext
from rayfl.config import load_scenario
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.plan.scenario_checks import check_rounds, check_scenario
from rayfl.engine.plan.symbolic_rounds import with_traces
from rayfl.errors import ScenarioError
from rayfl.models.flat import FlatModel
from rayfl.runs.preparation import prepare
from rayfl.runs.resolution import resolve
from rayfl.tasks.supervised import Classification
from tests.contracts.places import PHASE, TABLES

SHORT = {
    "CLOCK": "participation={samples_per_s=100}",
    "HELD": "data.server_share=0.1",
    "FLIP": "data.augment=['flip']",
    "START": "start={file='x'}",
    "PERSONAL": "evaluation.client_model='personal'",
    "TWO": "numerics.clients_at_once=2",
    "RELAY": "p.schedule='relay'",
    "ALONE": "p={name='p', rounds=1, schedule='central'}",
    "STALE": "p.schedule='asynchronous' & p.concurrency=4 & CLOCK",
    "SERVER": "p.server_training={steps=1} & HELD",
    "PRIVATE": "p.local.dp={noise_multiplier=1, max_grad_norm=1}",
    "CENTRAL": "p.dp={level='central', noise_multiplier=1, clip_norm=1}",
    "HIDDEN": "p.algorithm.weighting='uniform' & CENTRAL",
    "ALOCAL": "p.algorithm.weighting='uniform' & p.dp={level='local', noise_multiplier=1, clip_norm=1}",
    "DRAWN": "p.cohort={sampler='power_of_choice', clients=2, candidates=3}",
    "BERNOULLI": "p.cohort={bernoulli=0.5}",
    "META": "p.algorithm={name='fedmeta', variant='meta_sgd', order='first'}",
    "NESTEROV": "p.local.optimizer.nesterov=true & p.local.momentum=0.5",
    "BOTH": "q.name='q' & q.rounds=1 & q.cohort=2",
}
"""Overrides of a scenario by the names that the tables below use; `p.` and `q.` are its phases, `@` is this module."""


class Mine(FedAvg):
    """Has an option of which rayfl knows nothing."""

    extra: int = 0


class Untrained(FedAvg):
    trains: ClassVar[bool] = False


class Declared:
    config = FedAvg


KEYS = SimpleNamespace(config=3)


class FirstTwo(CohortSampler):
    """Reads nothing that clients report."""

    def draw(self, context: SamplingContext) -> list[int]:
        return [0, 1]


class PerBatch(Classification):
    per_sample: ClassVar[bool] = False


class Paired(Classification):
    views: ClassVar[int] = 2


class Whole(Classification):
    def objective(self, batch: Any) -> Any:
        return batch.outputs.mean()


class Keeping(Classification):
    def client_state(self) -> dict[str, Any]:
        return {"kept": "phase"}


class Stepping(Classification):
    def after_step(self, module: Any, client: Any) -> None: ...


USES = """
    RELAY                                                     => phases.p(.algorithm.server_optimizer)?
    p.schedule='buffered' & p.concurrency=4 & p.buffer=2 & CLOCK => phases.p.algorithm
    STALE                                                     => phases.p.algorithm
    p.schedule='local'                                        => phases.p(.algorithm.server_optimizer)?
    ALONE                                                     => phases.p(.algorithm.server_optimizer)?
    PRIVATE                                                   => phases.p.local.dp
    CENTRAL                                                   => phases.p.dp
    p.local.optimizer='adam'                                  => phases.p.local.optimizer
    NESTEROV                                                  => phases.p.local.(optimizer|momentum)
    p.local.momentum=0.5                                      => phases.p.local.momentum
    p.local.module_lr={fc=0.1}                                => phases.p.local.module_lr
    p.local.epochs=2                                          => phases.p.local.epochs
    p.local.lr_decay=0.5                                      => phases.p.local.lr_decay
    p.eval_model='average'                                    => phases.p.eval_model
    p.eval_model='participants'                               => phases.p.eval_model
    p.eval_model='all'                                        => phases.p.eval_model
    p.eval_model='ema' & SERVER                               => phases.p.server_training
    SERVER                                                    => phases.p.server_training
    p.report=['divergence']                                   => phases.p.report
    p.report=['norms']                                        => phases.p.report
    DRAWN                                                     => phases.p.cohort
    PERSONAL                                                  => evaluation.client_model
    resources.client_state_gb=2                               => resources.client_state_gb
    resources.hosts=4097                                      => resources.hosts
"""
"""Uses of an algorithm, and the key that is named where it does not support one."""

WORKS = """
    fedavg      +++++ ++ ++++++ +++++ +-+--+
    fedavgm     -++-- ++ ++++++ +++++ +-+--+
    fedadagrad  -++-- ++ ++++++ +++++ +-+--+
    fedadam     -++-- ++ ++++++ +++++ +-+--+
    fedyogi     -++-- ++ ++++++ +++++ +-+--+
    fedprox     +++++ ++ ++++++ +++++ +-+--+
    scaffold    ----- ++ --+-++ +++++ +++-+-
    moon        +--++ -+ ++++++ +++++ +-+-+-
    feddyn      ----- ++ ++++++ ++++- +++-+-
    fedexp      +--++ ++ ++++++ ++++- +-+--+
    feddecorr   +++++ -+ ++++++ +++++ +-+--+
    fednova     +--++ +- --+-++ +++++ +-+--+
    qfedavg     ----- -- --+-++ +++++ +-+-++
    qfedsgd     ----- -- -----+ +--++ ----++
    coprefl     ----- +- ++++++ ---++ +-+--+
    fedbabu     +++++ ++ ++++++ +++++ +-+--+
    orchestra   ----- -- ++++++ +--++ +-+-++
    ditto       ----- ++ ++++++ +++++ +-+++-
    fedbn       ----- +- ++++++ +++++ +-+++-
    fedper      ----- +- ++++++ +++++ +-+++-
    fedmeta     -+--- -+ -----+ +--++ -----+
    perfedavg   +++++ ++ ----++ +++++ +-+--+
"""
"""Whether an algorithm with its defaults (but the uniform weights that dp needs) works with each of `USES`."""

CHECKS = """
    numerics.deterministic=false => numerics.deterministic: has no effect on the CPU
    numerics.tf32=true => numerics.tf32: has no effect on the CPU
    resources.device_cache_gb=2 => resources.device_cache_gb: has no effect on the CPU
    numerics.tf32=true & numerics.deterministic=false & resources.device='cuda' =>
    p.head='fresh' & START => phases.p.head: is about .*; use start.head
    p.head='fresh' =>
    START =>
    START & BOTH & q.head='fresh' =>
    BOTH & q.algorithm='ditto' & PERSONAL =>
    BOTH & q.algorithm='fednova' & PERSONAL => evaluation.client_model: .* and 'fedavg', 'fednova' has none
    TWO =>
    RELAY & numerics.clients_at_once=1 =>
    RELAY & TWO => numerics.clients_at_once: 2 has no effect, since relays, .*; leave it out
    ALONE & TWO => numerics.clients_at_once: 2 has no effect
    STALE & TWO => numerics.clients_at_once: 2 has no effect
    PRIVATE & TWO => numerics.clients_at_once: 2 has no effect
    PRIVATE & BOTH & q.schedule='relay' & TWO => numerics.clients_at_once: 2 has no effect
    RELAY & BOTH & TWO =>
    HIDDEN & TWO =>
    HIDDEN & p.dp.secure=true & TWO => numerics.clients_at_once: .* which phases.p.dp.secure rules out; leave it out
    HIDDEN & p.dp.secure=true =>
    p.algorithm='scaffold' & resources.hosts=4096 =>
    p.algorithm='scaffold' & resources.hosts=4097 => resources.hosts: 4097 is .* set resources.hosts=4096
    p.algorithm='@Untrained' & RELAY => phases.p: '.*' cannot run in a relay: its clients do not train
    p.algorithm={name='@Mine', extra=1} & RELAY =>
    p.algorithm={name='@Mine', weighting='uniform'} & RELAY => phases.p.algorithm.weighting: has no effect in a relay
    p.algorithm={name='moon', mu=2} & RELAY =>
    p.algorithm={name='moon', first='initial'} & RELAY => phases.p: 'moon' cannot read the phase's first model in
    p.algorithm='fednova' & p.local.optimizer='adam' => .*.optimizer: 'fednova' does not work with 'adam': it
    p.algorithm='fednova' & NESTEROV => .*.optimizer: 'fednova' does not work with 'sgd' with options: it
    p.algorithm={name='scaffold', option='I'} & p.local.optimizer='adam' =>
    p.algorithm={name='scaffold', option='I', correction='step'} & p.local.optimizer='adam' => .*: correction = 'step'
    p.algorithm={name='feddyn', penalty='decay'} & p.local.optimizer='adam' =>
    p.algorithm={name='qfedavg', q=0} & p.local.optimizer='adam' =>
    p.algorithm={name='fedexp', form='code'} & RELAY => phases.p.algorithm.form: has no effect in a relay
    p.report=['step', 'step'] => phases.p.report: lists 'step' twice
    p.report=['step', 'divergence'] =>
    p.ema_decay=0.9 => phases.p: ema_decay has no effect without eval_model = 'ema'; leave it out
    p.ema_decay=0.9 & p.eval_model='ema' =>
    RELAY & CENTRAL => phases.p.dp: level = 'central' needs a server .*; use level = 'local'
    ALONE & p.keep_momentum=true => phases.p: keep_momentum needs local.optimizer = 'sgd' with local.momentum above 0
    ALONE & p.keep_momentum=true & p.local.momentum=0.5 =>
    ALONE & p.keep_momentum=true & NESTEROV => phases.p: keep_momentum needs
    ALONE & p.local.momentum=0.5 =>
    p.schedule='@Mine' => phases.p: schedule: '.*' does not declare its keys; set its `config` to a class derived from
    p.schedule='@Declared' => phases.p: schedule: '.*' does not declare its keys
    p.schedule='@KEYS' => phases.p: schedule: '.*' does not declare its keys
    p.schedule='x:' => phases.p: schedule: 'x:' is not an import path
    p={name='p', cohort=2, rounds=1, until=1} => phases.p: give either rounds, the number of rounds, or until
    BOTH & q={name='q', cohort=2, until=1} => phases: 'q' has until = 1, but the phases before it already have 1 rounds
    BOTH & q={name='q', cohort=2, until=2} =>
    p.rounds=0 => phases: none of them has any rounds
    BOTH & q.name='p' => phases: two phases have the same name: p, p
    phases={a={}} => phases.a: no phase is called 'a'
    p={schedule='central'} => phases.p.cohort: has no effect with this schedule
    phases=[3] => phases.0: .*
    name='a/b' => name: must be usable as a folder's name
    task.label_smoothing=0.1 =>
    p.report=['steps'] => phases.p.report: 'fedavg' does not report 'steps'; did you mean 'step'?
    p.algorithm='qfedsgd' & p.report=['step'] =>
    p.algorithm='qfedsgd' & p.local.momentum=0.1 => phases.p.local.momentum: .*: clients of 'qfedsgd' do not train
    META & p.local.lr_decay=0.9 => phases.p.local.lr_decay: .*: with these options, 'fedmeta' reads only lr; leave
    META & PRIVATE =>
    p.algorithm='perfedavg' & p.local.clip_norm=1 => .*.clip_norm: .*'perfedavg' reads only batch_size, .*, steps
    p.algorithm='coprefl' & p.eval_model='ema' =>
    p.algorithm='coprefl' & p.eval_model='all' => phases.p.eval_model: 'all' misses .*; use 'global' or 'ema'
    p.algorithm='feddyn' & SERVER => phases.p.server_training: .*'participants', the default of 'feddyn', evaluates
    p.eval_model='all' & SERVER => phases.p.server_training: .*eval_model = 'all' evaluates
    HIDDEN & p.eval_model='participants' =>
    HIDDEN & p.eval_model='all' => phases.p.eval_model: 'all' is a mean of models that dp hides
    CENTRAL => phases.p.dp: 'fedavg' does not hide clients: .*; use weighting = 'uniform'
    HIDDEN & BERNOULLI & p.report=['divergence'] => phases.p.report: 'divergence' needs participants, and with dp
    HIDDEN & BERNOULLI & p.report=['step'] =>
    HIDDEN & p.report=['divergence'] =>
    ALOCAL & BERNOULLI & p.report=['divergence'] =>
    BERNOULLI & p.report=['divergence'] =>
    HIDDEN & DRAWN => phases.p.cohort: no account covers clients that the sampler 'power_of_choice' chooses
    HIDDEN & p.cohort={by_size=2} => phases.p.cohort: by_size draws clients by their numbers of samples
    p.cohort={by_size=2} =>
    ALOCAL & RELAY & p.algorithm='fedavg' & p.order='fixed' =>
    ALOCAL & RELAY & p.algorithm='fedavg' & p.order='no_repeat' => phases.p.order: with 'no_repeat'
    HIDDEN & p.transforms=['top_k'] =>
    ALOCAL & p.transforms=['quantize', 'top_k'] => phases.p.transforms: 'quantize' saves nothing
    HIDDEN & PRIVATE =>
    HIDDEN & PRIVATE & p.local.dp.max_epsilon=1 & p.local.dp.accountant='rdp' => phases.p.local.dp.max_epsilon: the
    HIDDEN & p.dp.accountant='rdp' =>
    ALOCAL & p.dp.accountant='rdp' => phases.p.dp.accountant: has no effect with level = 'local'
    ALOCAL & p.dp.accountant='rdp' & p.dp.secure=true =>
    evaluation.personalize={} =>
    evaluation.personalize.dp={noise_multiplier=1, max_grad_norm=1} => evaluation.personalize.dp: has no effect
    SERVER & p.server_training.dp={noise_multiplier=1, max_grad_norm=1} => phases.p.server_training.dp: only the samples
    PRIVATE & DRAWN => phases.p.cohort: 'power_of_choice' reads what clients report, .* with local.dp
    PRIVATE & task='moco' & data.views=[{augment=['flip']}, {}] => phases.p.local.dp: task 'moco' has no per-
    PRIVATE & p.cohort={sampler='@FirstTwo'} =>
    PRIVATE & task='@PerBatch' => phases.p.local.dp: task '.*PerBatch' has no per-sample losses
    PRIVATE & task='@Paired' & data.views=[{augment=['flip']}, {}] => phases.p.local.dp: task '.*' has no per-sample
    PRIVATE & task='@Whole' => phases.p.local.dp: task '.*Whole' has no per-sample losses
    PRIVATE & task='@Keeping' => phases.p.local.dp: the state that task '.*Keeping' keeps or changes
    PRIVATE & task='@Stepping' => phases.p.local.dp: the state that task '.*Stepping' keeps or changes
    PRIVATE & p.local.sample_weights='inverse_frequency' => phases.p.local.sample_weights: cannot be combined with dp
    PRIVATE & p.local.sampling='balanced' => phases.p.local.sampling: cannot be combined with dp
    PRIVATE & p.local.accumulate=2 => phases.p.local.accumulate: cannot be combined with dp: .* larger batch_size
    PRIVATE & p.local.drop_last=true => phases.p.local.drop_last: cannot be combined with dp
    PRIVATE & p.local.precision='bf16' => phases.p.local.precision: cannot be combined with dp
    PRIVATE & p.local.shuffle=false => phases.p.local.shuffle: cannot be combined with dp
    PRIVATE & p.local.shuffle=false & p.local.dp.sampling='shuffled' =>
    PRIVATE & p.local.dp.noise_multiplier=0 =>
    PRIVATE & p.local.dp.secure=true =>
    PRIVATE & p.local.dp.secure=true & p.local.dp.noise_multiplier=0 => phases.p.local.dp.secure: has no effect without
    PRIVATE & p.local.dp.augmentations=2 => phases.p.local.dp.augmentations: has no effect without data.augment
    PRIVATE & FLIP & p.local.dp.augmentations=2 & p.local.dp.physical_batch_size=2 =>
    PRIVATE & FLIP & p.local.dp.augmentations=3 & p.local.dp.physical_batch_size=2 => phases.p.*: 3 copies .* of 2;
    META & PRIVATE & FLIP & p.local.dp.augmentations=2 => phases.p.local.dp.augmentations: .*'fedmeta' do not train
    META & PRIVATE & p.local.dp.sampling='shuffled' => phases.p.local.dp.sampling: has no effect: clients of 'fedmeta'
"""
"""Scenarios, and what is said about each; nothing where the keys fit."""


def rows(table: str) -> list[tuple[str, str]]:
    return [(left.strip(), right.strip()) for left, right in (line.split("=>") for line in table.strip().splitlines())]


def overrides(text: str) -> list[str]:
    """The overrides of a row."""
    names = [name.strip() for name in text.replace("@", f"{__name__}:").split("&")]
    written = [part for name in names for part in (overrides(SHORT[name]) if name in SHORT else [name])]
    return [re.sub("^([pq])(?=[.=])", lambda match: f"phases.{'pq'.index(match[1])}", one) for one in written]


def checked(text: str, algorithm: str = "fedavg") -> None:
    phases = [{**PHASE, "algorithm": algorithm}, *([{"name": "q"}] if "BOTH" in text else [])]
    scenario = resolve(load_scenario({**TABLES, "phases": phases}, overrides(text)))
    plans, (run, model) = check_scenario(scenario), network()
    check_rounds(scenario, with_traces(plans, [model] * len(plans), [run.result] * len(plans)))


@cache
def network() -> tuple[RunPlan, FlatModel]:
    """A network on which rounds are traced."""
    return prepare(load_scenario({**TABLES, "model": "lenet5"}), Path())


def refusal(text: str, algorithm: str = "fedavg") -> str:
    with pytest.raises(ScenarioError) as caught:
        checked(text, algorithm)
    (line,) = str(caught.value).removeprefix("scenario 'scenario':\n").splitlines()
    return line


def test_the_table_has_every_algorithm_and_every_use() -> None:
    table = {name: "".join(cells) for name, *cells in map(str.split, WORKS.strip().splitlines())}
    assert list(table) == list(algorithms)
    assert {len(cells) for cells in table.values()} == {len(rows(USES))}


@pytest.mark.parametrize("row", WORKS.strip().splitlines(), ids=lambda row: row.split()[0])
def test_an_algorithm_works_with_what_the_table_says_and_names_the_key_otherwise(row: str) -> None:
    name, *cells = row.split()
    for works, (use, key) in zip("".join(cells), rows(USES), strict=True):
        weighted = use == "CENTRAL" and "weighting" in algorithms.resolve(name).model_fields
        text = f"{use} & p.algorithm.weighting='uniform'" if weighted else use
        if use == "ALONE":
            text = f"ALONE & p.algorithm='{name}'"
        if works == "+":
            checked(text, name)
        else:
            said = refusal(text, name)
            assert re.match(f"{key}: .*", said), said
            assert f"'{name}'" in said or re.search("no phase's clients|for phases.p: |phase, which|relay, which", said)


@pytest.mark.parametrize(("text", "said"), rows(CHECKS))
def test_keys_that_do_not_fit_are_named_and_those_beside_them_are_accepted(text: str, said: str) -> None:
    if said:
        message = refusal(text)
        assert re.match(said, message), message
    else:
        checked(text)
