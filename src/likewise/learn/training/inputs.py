"""Inputs of the network (transforms, decoded images, batches), and the work on whole splits: relabelling and validation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from likewise.core.contracts import BatchSampler
from likewise.core.devices import bytes_of
from likewise.core.distributed.process_group import broadcast_from_first
from likewise.core.types import Batch, Embedded, TrainingSetInfo
from likewise.data.augment import Augment, Plain
from likewise.data.loader import batches, choose_workers, in_order
from likewise.data.placement import Resident, hold
from likewise.learn.training.run_log import RunLog
from likewise.learn.training.state import TrainState
from likewise.models.heads import PCA
from likewise.runs.embed import embed_rows
from likewise.runs.folder import TEST_PREFIX, Run
from likewise.runs.network import transforms
from likewise.score.metrics import is_set_metric
from likewise.score.retrieve import Scoring, relevance_of
from likewise.score.scoring import as_compared, mean_score, score


class Inputs(NamedTuple):
    """Image transforms for training and evaluation, and the decoded images; all None for feature vectors.

    `held` is also None if images are decoded from their files in every epoch.
    """

    augment: Augment | None
    plain: Plain | None
    held: Resident | None

    def workers(self, state: TrainState) -> int:
        """Return the number of processes that read image files during training."""
        from_files = state.samples.items.x is None and self.held is None
        return choose_workers(state.config.workers) if from_files else 0


def open_inputs(state: TrainState, say: Callable[[str], None] = print, hold: Callable = hold) -> Inputs:
    """Make the transforms, and decode the images of the training, validation and (with test_every) test splits.

    Args:
        hold: function that stores decoded images on disk, in memory or on the device.
    """
    config, samples = state.config, state.samples
    augment, plain = transforms(config, state.components.embedder)
    rows = [samples.rows, samples.val_rows]
    rows += [samples.protocol.rows(samples.loaded, "test")] if config.test_every else []
    held = hold(
        samples.items, np.concatenate(rows), state.device, config.cache, config.short_side, workers=config.workers,
        quiet=config.quiet, budget=bytes_of(config.cache_memory) if config.cache_memory else None, say=say,
    )  # fmt: skip
    return Inputs(augment, plain, held)


def embed(
    state: TrainState, inputs: Inputs, rows: np.ndarray, features: bool = False, network: int = 0, quiet: bool = True
) -> Embedded:
    """Embed rows of the data with a network, by default the first, using the evaluation transform."""
    return embed_rows(
        state.components.embedders[network], state.samples.items, rows, inputs.plain, device=state.device, held=inputs.held,
        workers=state.config.workers, quiet=quiet, features=features,
    )  # fmt: skip


def fit_heads(state: TrainState, inputs: Inputs) -> None:
    """Call `fit` of every head that has it, with the features of the training samples before training."""
    for network, embedder in enumerate(state.components.embedders):
        if isinstance(embedder.head, PCA):
            f = embed(state, inputs, state.samples.rows, features=True, network=network).f
            assert f is not None
            embedder.head.fit(embedder.head_input(f).to(state.device))


def prepare_terms(state: TrainState, inputs: Inputs, run: Run) -> None:
    """Call `prepare` of every term, which computes its targets from the training samples."""
    config, samples = state.config, state.samples

    def images(transform: Callable | None) -> Iterator[tuple[Tensor, Tensor]]:
        held = inputs.held if transform is None else None
        feed = batches(
            samples.items, in_order(samples.rows, 128), transform or inputs.plain, device=state.device, held=held,
            workers=choose_workers(config.workers),
        )  # fmt: skip
        for batch in feed:
            yield batch.x, samples.position[batch.row]

    info = TrainingSetInfo(
        samples.labels, samples.class_names, images, run.path, state.device, config.quiet, samples.items.class_words
    )
    for term in state.components.terms:
        term.prepare(info)


def start_sampler(state: TrainState, inputs: Inputs) -> None:
    """Call `start` of the sampler with the embeddings of the samples that it draws from, numbered from 0."""
    numbers = torch.arange(len(state.kept))
    state.sampler.start(lambda: replace(embed(state, inputs, state.samples.rows[state.kept]), row=numbers))


def training_batches(state: TrainState, inputs: Inputs) -> Iterator[Batch]:
    """Yield the batches from the current step on; each process gets its share of the images."""
    return batches(
        state.samples.items, batch_rows(state), inputs.augment, device=state.device, held=inputs.held,
        workers=inputs.workers(state), seed=state.config.seed, first_draw=state.step, process=(state.rank, state.processes),
    )  # fmt: skip


def batch_rows(state: TrainState) -> Iterator[list[int] | None]:
    """Yield the rows of every batch; None means that readers must not prefetch, because the next batch depends on this one."""
    step, relabel_every = state.step, state.plan.relabel_every
    while True:
        observes = type(state.sampler).observe is not BatchSampler.observe
        for chosen in state.sampler:
            yield state.samples.rows[state.kept[chosen]].tolist() * state.config.views
            step += 1
            if relabel_every and step % relabel_every == 0:
                yield None  # relabelling may replace the sampler
                break
            if observes and step % len(state.sampler) == 0:
                yield None


def validate(state: TrainState, inputs: Inputs, log: RunLog) -> None:
    """Score the validation split, and save the network if it is the best so far. The test split is never used."""
    log.check_finite(state)
    samples, select = state.samples, state.config.select
    with state.averaged():
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
    with state.averaged():
        e = replace(
            as_compared(embed(state, inputs, rows), state.similarity), y=torch.as_tensor(samples.loaded.y[rows])
        )
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
    before_first_step = state.step == 0  # later rounds are part of the training's progress
    e = embed(state, inputs, samples.rows, features=True, quiet=state.config.quiet or not before_first_step)
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
