"""Inputs of the network: image transforms, decoded images, and the batches of a training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from likewise.core.contracts import BatchSampler
from likewise.core.devices import bytes_of
from likewise.core.types import Batch, Embedded, TrainingSetInfo
from likewise.data.augment import Augment, Plain
from likewise.data.loader import batches, choose_workers, in_order
from likewise.data.placement import Resident, hold
from likewise.learn.training.state import TrainState
from likewise.models.heads import PCA
from likewise.runs.engine.embed import embed_rows
from likewise.runs.folder import Run
from likewise.runs.network import transforms


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


def embed(state: TrainState, inputs: Inputs, rows: np.ndarray, features: bool = False, network: int = 0) -> Embedded:
    """Embed rows of the data with a network, by default the first, using the evaluation transform."""
    return embed_rows(
        state.components.embedders[network], state.samples.items, rows, inputs.plain, device=state.device, held=inputs.held,
        workers=state.config.workers, quiet=True, features=features,
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
