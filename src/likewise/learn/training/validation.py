"""Work on whole splits during training: validation, scores of the test split, relabelling rounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from likewise.core.distributed.process_group import broadcast_from_first
from likewise.core.types import Embedded
from likewise.learn.training.inputs import Inputs, embed, start_sampler
from likewise.learn.training.run_log import RunLog
from likewise.learn.training.state import TrainState
from likewise.runs.log import TEST_PREFIX
from likewise.score.metrics import is_set_metric
from likewise.score.relevance import relevance_of
from likewise.score.retrieve import Scoring
from likewise.score.scoring import as_compared, mean_score, score


def validate(state: TrainState, inputs: Inputs, log: RunLog) -> None:
    """Score the validation split, and save the network if it is the best so far. The test split is never used."""
    log.check_finite(state)
    samples, select = state.samples, state.config.select
    e = embed(state, inputs, samples.val_rows)
    how = {"trained": True, "allow_imports": state.config.allow_imports}
    relevance = relevance_of(samples.items, samples.val_rows, state.config.relevance, **how)
    scoring = Scoring(
        samples.items, samples.protocol, [select], state.similarity, state.device, quiet=True, relevance=relevance
    )
    value = mean_score(e, scoring)
    if value > state.best:
        log.save_best(state)
    state.schedule.validated(value)
    state.waited = 0 if value > state.best else state.waited + 1
    state.best = max(state.best, value)
    line = {"step": state.step, f"val {select}": value}
    if samples.items.y_clean is not None:  # for the log only: no decision uses it
        clean = replace(samples.items, y=samples.items.y_clean)
        e = replace(e, y=torch.as_tensor(clean.y[samples.val_rows]))
        relevance = relevance_of(clean, samples.val_rows, state.config.relevance, **how)
        line[f"val {select} by true labels"] = mean_score(e, replace(scoring, items=clean, relevance=relevance))
    log.note(line)


def score_test(state: TrainState, inputs: Inputs, log: RunLog) -> None:
    """Score the test split for the log, with the labels that evaluation uses. No decision uses the scores."""
    log.check_finite(state)
    samples = state.samples
    rows = samples.protocol.rows(samples.loaded, "test")
    e = replace(as_compared(embed(state, inputs, rows), state.similarity), y=torch.as_tensor(samples.loaded.y[rows]))
    names = [name for name in state.config.metrics if not is_set_metric(name)]
    how = {"trained": True, "allow_imports": state.config.allow_imports}
    relevance = relevance_of(samples.loaded, rows, state.config.relevance, **how)
    scores, _ = score(e, Scoring(
        samples.loaded, samples.protocol, names, state.similarity, state.device, quiet=True, relevance=relevance
    ))  # fmt: skip
    log.note({"step": state.step, **{f"{TEST_PREFIX}{k}": float(np.nanmean(v)) for k, v in scores.each.items()}})


def relabel(state: TrainState, inputs: Inputs, log: RunLog) -> None:
    """Run one relabelling round of the confidence, and train with the labels and sample weights that it returns."""
    log.check_finite(state)
    state.seed(0)
    confidence, samples = state.components.confidence, state.samples
    given = torch.as_tensor(samples.labels, device=state.device)
    e = embed(state, inputs, samples.rows, features=True)
    assert e.f is not None and confidence is not None
    z, f = e.z.to(state.device), e.f.to(state.device)
    relabelling = confidence.relabel(Embedded(z, given, torch.arange(len(given), device=state.device), f=f))
    if relabelling is None:
        return
    relabelling = replace(relabelling, y=broadcast_from_first(relabelling.y), w=broadcast_from_first(relabelling.w))
    state.relabel(relabelling)
    start_sampler(state, inputs)
    facts = state.monitor.relabelling_facts(relabelling, given, samples.clean)
    log.note({"step": state.step + 1, "relabelling": facts})  # the first step that uses it
