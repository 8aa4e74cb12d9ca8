"""Settings of a training that do not go together, refused before anything is written."""

from __future__ import annotations

import torch

from likewise.config import Train
from likewise.config.spec import describe
from likewise.contracts import BatchSampler, Loss, input_of
from likewise.errors import LikewiseError
from likewise.runs.devices import bytes_of
from likewise.training.state import Components


def check_compatibility(
    config: Train, components: Components, sampler: BatchSampler, device: torch.device, processes: int
) -> None:
    """Raise where a component contradicts the settings or another component."""
    if config.cache_memory:
        bytes_of(config.cache_memory)  # raises for a text that is no amount
    check_loss_arguments(config, components)
    needs_prediction = components.confidence and components.confidence.needs_prediction
    if needs_prediction and components.loss.predict(torch.zeros(1, config.dim, device=device)) is None:
        raise LikewiseError(
            f"train: {config.confidence} asks which class the loss would name, and {config.loss} has none; use NormSoftmax()"
        )
    if components.terms and len(components.embedders) > 1:
        raise LikewiseError(
            f"train: {config.confidence} trains {len(components.embedders)} networks, and {config.terms[0]} goes with one; "
            "leave one of them out"
        )
    if config.mixup is not None:
        check_mixup(config, components, sampler, processes)


def check_loss_arguments(config: Train, components: Components) -> None:
    """Raise where a loss, or one inside of it, was given another number of classes, dimensions or views, or hides its input."""
    declared = input_of(describe(config.loss, Loss, allow_imports=config.allow_imports))
    if declared != components.loss.input:  # evaluation goes by the spec alone
        raise LikewiseError(
            f"train: {config.loss} takes {components.loss.input} embeddings, but its class declares {declared}; make `input` a "
            "class attribute, or override `input_of`"
        )
    for part in components.loss.modules():
        for name in ("classes", "dim", "largest_class"):
            given = getattr(part, name, None)
            if given is not None and components.facts[name] is not None and given != components.facts[name]:
                raise LikewiseError(
                    f"train: {config.loss} has {name}={given}, but this training has {components.facts[name]}; leave {name} out, "
                    "it is filled in"
                )
        if (views := getattr(part, "views", 1)) not in (1, config.views):
            raise LikewiseError(
                f"train: {config.loss} has views={views}, but a batch holds every picture {config.views} times; train with "
                f"--views {views}, or give the loss views={config.views}"
            )


def check_mixup(config: Train, components: Components, sampler: BatchSampler, processes: int) -> None:
    """Raise where mixup meets a setting that needs whole batches or single samples."""
    for conflict, words in (
        (processes > 1, "the samples of a process, so that several would train another way than one"),
        (config.chunk_size is not None, "samples of the whole batch, and chunk cuts it"),
        (config.recompute, "inside of the network, and recompute would do without"),
    ):
        if conflict:
            raise LikewiseError(f"train: mixup mixes {words}; leave one of them out")
    if config.record_losses:
        raise LikewiseError(
            "train: record_losses wants the loss of every sample, and mixup makes mixtures of them; leave one of them out"
        )
    remembers = type(sampler).observe is not BatchSampler.observe, components.loss.remembers
    for text, conflict in zip((config.sampler, config.loss), remembers, strict=True):
        if conflict:
            raise LikewiseError(
                f"train: {text} would remember embeddings of mixtures as those of one class; leave out mixup, or use another"
            )
    if components.confidence or components.terms or components.taught:
        text = config.confidence or "".join(config.terms[:1]) or config.loss
        raise LikewiseError(f"train: {text} judges samples, and mixup makes mixtures of them; leave one of them out")
