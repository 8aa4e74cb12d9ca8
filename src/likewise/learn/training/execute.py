"""Train one run in its folder: build the state, lock the folder, resume, train, mark the run as done."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import numpy as np
import torch

from likewise.core.distributed.collectives import world
from likewise.core.distributed.process_group import first_process_first, wait_for_all
from likewise.core.settings import Train
from likewise.core.types import Items
from likewise.data.decoded_cache import Pixels
from likewise.learn.training.build import build_state, make_samples
from likewise.learn.training.inputs import fit_heads, open_inputs, prepare_terms, start_sampler, training_batches
from likewise.learn.training.loop import Hooks, PeriodicWork, loop
from likewise.learn.training.run_log import RunLog
from likewise.learn.training.step import NetworkRunner
from likewise.learn.training.time_estimate import with_estimate
from likewise.learn.training.validation import relabel, score_test, validate
from likewise.runs.identity import Claim, cleared_after_failure, prepare_folder
from likewise.runs.trained import write_trained
from likewise.score.checks import check_plan


def execute(
    claim: Claim,
    config: Train,
    items: Items,
    device: torch.device,
    log: RunLog,
    hooks: Hooks,
    say: Callable[[str], None],
    default_sampler: bool = False,
) -> Pixels | None:
    """Train to the end, from the last checkpoint if there is one. Returns the decoded images, for evaluation to reuse.

    Args:
        default_sampler: the sampler is the default one, so report the classes that it skips.
    """
    run, first = claim.run, log.writes
    samples = make_samples(config, items, device)
    check_plan(config, items, samples.protocol)
    state = build_state(config, samples, device, *world())  # before the folder: bad settings must not leave one behind
    hooks.built(state)
    skips_single = default_sampler and (config.sampler or "").startswith("SamplesPerClass(")
    if skips_single and (sentence := samples.describe_single_classes()):
        say(sentence)
    if (relevance := state.components.loss.relevance) is not None and relevance.note:
        say(relevance.note)
    with cleared_after_failure(run, first, lambda: state.step > 0), run.owned() if first else nullcontext():
        wait_for_all()  # no process reads the folder while the first one fills it
        if first:
            prepare_folder(claim, config, device)
            write_trained(run.path, items, np.union1d(samples.rows, samples.val_rows))
        wait_for_all()
        inputs = open_inputs(state, say)
        fit_heads(state, inputs)
        first_process_first(lambda: prepare_terms(state, inputs, run))
        log.restore(state)
        hooks.restored(state)
        runner, hooks = NetworkRunner(state), with_estimate(hooks, state, say)
        start_sampler(state, inputs)
        periodic = PeriodicWork(*(partial(work, state, inputs, log) for work in (relabel, validate, score_test)))
        loop(state, runner, training_batches(state, inputs), log, periodic, hooks, inputs.workers(state))
        if first:
            run.finish()
        wait_for_all()
    return inputs.held and inputs.held.pixels
