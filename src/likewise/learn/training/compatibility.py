"""Check that the settings of a training can be combined, before any file is written."""

from __future__ import annotations

import torch

from likewise.core.contracts import BatchSampler, Loss, input_of
from likewise.core.devices import bytes_of
from likewise.core.errors import LikewiseError
from likewise.core.settings import Train
from likewise.core.settings.spec import describe
from likewise.learn.training.state import Components
from likewise.runs.network import facts_of_relevance


def check_compatibility(
    config: Train, components: Components, sampler: BatchSampler, device: torch.device, processes: int
) -> None:
    """Raise if a component cannot be combined with the settings or with another component."""
    if config.cache_memory:
        bytes_of(config.cache_memory)  # raises for a malformed amount
    check_loss_arguments(config, components)
    for text, term in zip(config.terms, components.terms, strict=True):
        if (views := getattr(term, "views", 1)) not in (1, config.views):
            raise LikewiseError(
                f"train: {text} has views={views}, but a batch has {config.views} views of every image; use --views {views}"
            )
    needs_prediction = components.confidence and components.confidence.needs_prediction
    if needs_prediction and components.loss.predict(torch.zeros(1, config.dim, device=device)) is None:
        raise LikewiseError(
            f"train: {config.confidence} needs a loss that predicts classes, and {config.loss} predicts none; "
            "use --loss NormSoftmax()"
        )
    if components.terms and len(components.embedders) > 1:
        raise LikewiseError(
            f"train: {config.confidence} trains {len(components.embedders)} networks, but {config.terms[0]} supports one; "
            "drop one of the two"
        )
    if components.loss.relevance is not None:
        check_relevance(config, components)
    if config.mixup is not None:
        check_mixup(config, components, sampler, processes)


def check_relevance(config: Train, components: Components) -> None:
    """Raise if a component that uses labels as classes, or proxies in several processes, is combined with a relevance."""
    if config.shard_proxies:
        raise LikewiseError(
            f"train: --shard-proxies supports one class per sample, and {config.relevance} has other targets; drop one of the two"
        )
    used = [(config.confidence, components.confidence), *zip(config.terms, components.terms, strict=True)]
    for text, component in used:
        if component is not None and component.uses_classes:
            raise LikewiseError(
                f"train: {text} compares or changes the labels of samples as classes, which {config.relevance} does not have; "
                "drop one of the two"
            )


def check_loss_arguments(config: Train, components: Components) -> None:
    """Raise if a loss, or a loss inside it, has other classes, dimensions or views than the training, or an undeclared input."""
    declared = input_of(describe(config.loss, Loss, allow_imports=config.allow_imports))
    if declared != components.loss.input:  # evaluation only has the spec
        raise LikewiseError(
            f"train: {config.loss} takes {components.loss.input} embeddings, but its class declares {declared}; make `input` a "
            "class attribute, or override `input_of`"
        )
    relevance = components.loss.relevance
    facts = components.facts | ({} if relevance is None else facts_of_relevance(relevance))
    for component in components.loss.modules():
        for name in ("classes", "dim", "largest_class"):
            given = getattr(component, name, None)
            if given is not None and facts[name] is not None and given != facts[name]:
                raise LikewiseError(
                    f"train: {config.loss} has {name}={given}, but this training has {name}={facts[name]}; "
                    f"drop {name} from the spec: training fills it in"
                )
        if (views := getattr(component, "views", 1)) not in (1, config.views):
            raise LikewiseError(
                f"train: {config.loss} has views={views}, but a batch has {config.views} views of every image; use "
                f"--views {views}, or a loss with views={config.views}"
            )


def check_mixup(config: Train, components: Components, sampler: BatchSampler, processes: int) -> None:
    """Raise if mixup is combined with a setting that needs several processes, chunks, or single samples."""
    for conflict, reason, remedy in (
        (processes > 1, "does not support several processes", "--gpus"),
        (config.chunk_size is not None, "needs the whole batch at once", "--chunk-size"),
        (config.recompute, "cannot repeat a forward pass with the same mixture", "--recompute"),
        (config.record_losses, "leaves no loss of a single sample to record", "--record-losses"),
    ):
        if conflict:
            raise LikewiseError(f"train: --mixup {reason}; drop --mixup or {remedy}")
    remembers = type(sampler).observe is not BatchSampler.observe, components.loss.remembers
    for text, conflict in zip((config.sampler, config.loss), remembers, strict=True):
        if conflict:
            raise LikewiseError(
                f"train: {text} would store embeddings of mixtures under one class; drop --mixup, or replace {text}"
            )
    if components.confidence or components.terms or components.taught_miners:
        text = config.confidence or "".join(config.terms[:1]) or config.loss
        raise LikewiseError(f"train: {text} needs single samples, but --mixup mixes them; drop one of the two")
