"""Build the state of a training from its settings, in an order that the seed fixes; check that they can be combined."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from likewise.core.contracts import BatchSampler, Confidence, Loss, Miner, Term, input_of
from likewise.core.devices import bytes_of
from likewise.core.distributed.sharded_proxies import shard
from likewise.core.settings import Train
from likewise.core.settings.spec import build, describe
from likewise.core.types import Items, LikewiseError
from likewise.data.dataset import inject_noise, make_protocol
from likewise.learn.training.schedule import Schedule, make_optimizer, make_plan
from likewise.learn.training.state import Components, Samples, TrainState, number_samples
from likewise.models.mixup import Mixup
from likewise.models.teacher import Teacher
from likewise.runs.network import (
    facts_of,
    facts_of_relevance,
    facts_with,
    make_embedder,
    make_loss,
    make_relevance,
    to_device,
)


def make_samples(config: Train, loaded: Items, device: torch.device) -> Samples:
    """Select and number the samples of a training, by the protocol and with the label noise of the settings."""
    protocol = make_protocol(config)
    items = inject_noise(loaded, protocol, config.noise, config.seed, config.allow_imports)
    samples = number_samples(loaded, items, protocol, device)
    if len(samples.rows) == 0:
        raise LikewiseError(f"train: the train split of '{loaded.name}' must not be empty; check its `split` column")
    if not len(samples.val_rows) and (config.patience is not None or config.schedule == "plateau"):
        raise LikewiseError(
            "train: --patience and --schedule plateau need a validation split, and this data has none; "
            'take one from the training classes: --protocol "UnseenClasses(val=0.2)"'
        )
    return samples


def build_state(config: Train, samples: Samples, device: torch.device, rank: int = 0, processes: int = 1) -> TrainState:
    """Build the state of a training before its first step. Raises if two settings cannot be combined."""
    components, sampler = build_components(config, samples, device)
    check_compatibility(config, components, sampler, device, processes)
    if config.mixup is not None:
        components = replace(components, mixup=Mixup(components.embedder, config.mixup, config.mixup_at))
    plan = make_plan(config, len(sampler), components.confidence and components.confidence.every)
    optimizer = make_optimizer(config, components.embedders, components.losses, components.terms)
    schedule = Schedule(config, optimizer, plan.steps, plan.steps_per_epoch)

    def make_sampler(labels: np.ndarray) -> BatchSampler:
        return build_sampler(config, components.facts | {"labels": labels})

    return TrainState(
        config, samples, components, sampler, make_sampler, plan, optimizer, schedule, device, rank, processes
    )


def build_components(config: Train, samples: Samples, device: torch.device) -> tuple[Components, BatchSampler]:
    """Build networks, losses, confidence and terms, and the first sampler."""
    embedder = to_device(make_embedder(config, samples.features, reseed=True), device)
    facts = facts_of(config, samples.items, samples.rows)
    facts["relevance"] = relevance = make_relevance(config, facts)
    sampler = build_sampler(config, facts)
    facts |= facts_with(config, sampler, embedder)

    def make(text: str, kind: type, **more) -> Any:
        return build(text, kind, allow_imports=config.allow_imports, **(facts | more)).to(device)

    embedders, losses = [embedder], [make_loss(config, facts, relevance).to(device)]
    with torch.random.fork_rng(devices=[]):  # a confidence must not change the initial values of the terms
        confidence = make(config.confidence, Confidence, **samples.facts(config.votes)) if config.confidence else None
    if config.votes is not None and getattr(confidence, "votes", None) is None:
        raise LikewiseError(
            f"train: --votes needs a confidence that uses votes, got {config.confidence or 'none'}; add --robust"
        )
    for number in range(1, confidence.peers if confidence else 1):
        other = replace(config, seed=config.seed + 1000 * number)  # same architecture, other initial weights
        embedders.append(to_device(make_embedder(other, samples.features, reseed=True), device))
    losses += [make_loss(config, facts, relevance).to(device) for _ in embedders[1:]]
    if config.shard_proxies:
        for loss in losses:
            shard(loss)

    def make_other_loss(dim: int, **more: Any) -> Loss:
        return make_loss(config, facts | more | {"dim": dim}, relevance).to(device)

    terms = [make(text, Term, make_loss=make_other_loss) for text in config.terms]
    inside = [module for component in (*losses, *terms) for module in component.modules()]
    taught_miners = [module for module in inside if isinstance(module, Miner) and module.momentum is not None]
    momentum = taught_miners[0].momentum if taught_miners else None
    teacher = None if momentum is None else Teacher(embedder, momentum)
    return Components(embedders, losses, confidence, terms, teacher, taught_miners, facts), sampler


def build_sampler(config: Train, facts: dict[str, Any]) -> BatchSampler:
    """Build the sampler of the settings, for the labels in `facts`."""
    assert config.sampler is not None
    return build(config.sampler, BatchSampler, allow_imports=config.allow_imports, **facts)


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
